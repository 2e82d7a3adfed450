"""Chooses the member to which a master hands the cluster over, on request.

Source: specification of replication, 6.3.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pybroker.broker.domain.replica.ports import FollowerProgress


class Successor(NamedTuple):
    """The member that is to take over.

    Attributes:
        refusal: the reason why none can; empty if one can.
        store: its store; empty: any member in sync.
    """

    refusal: str = ""
    store: str = ""


def successor(to: str, me: str, in_sync: frozenset[str], followers: Sequence[FollowerProgress]) -> Successor:
    """Return the member that takes over, or the reason why none can.

    Args:
        to: the name of the member that was asked for; empty: any.
        me: the name of the master.
        in_sync: the stores in sync.
        followers: the connected members.
    """
    if to == me:
        return Successor(f"{me} is the master already")
    able = [each for each in followers if not obstacle(each, in_sync)]
    if not to:
        if able:
            return Successor()
        reasons = [f"{each.name} {obstacle(each, in_sync)}" for each in followers]
        return Successor("; ".join(reasons) if reasons else "no other member is connected")
    found = [each for each in followers if each.name == to]
    if not found:
        names = ", ".join(each.name for each in able)
        return Successor(f"{to} is not connected" + (f"; {names} could take over" if names else ""))
    (chosen,) = found[-1:]  # a former connection may not have ended yet
    if reason := obstacle(chosen, in_sync):
        return Successor(f"{to} {reason}")
    return Successor(store=chosen.store)


def obstacle(follower: FollowerProgress, in_sync: frozenset[str]) -> str:
    """Return why a member cannot take over now, to be read behind its name; empty if it can."""
    if not follower.may_stand:
        return "only has a copy: its replicate_promote is no"
    if not follower.is_live and follower.left_bytes:
        return f"is not in sync: {follower.left_bytes:,} bytes are left of its copy"
    if not follower.is_live or follower.store not in in_sync:
        return "is not in sync yet"
    return ""
