"""A promotion that an operator forces: a store that lacks something confirmed becomes the master. Pure.

No member does that by itself (specification of replication, 6.1). An operator may, where the stores that have
everything are lost. What makes it safe for everything else:

* It is one swap of the register over the very content that the operator was shown: a member that has renewed, stood or
  released meanwhile has made a newer revision, and the swap fails.
* That content has not changed for `QUIET_LEASES`. A master that reaches the election store renews several times in each
  lease, and any store that may stand by itself does so before.
* The epoch is above all numbers that were ever reserved, so that no data file of the former master has its number.
* The forced store alone is in sync, and how far it reaches is what was confirmed from here on.

The former master's *process* must have ended: alone in sync, it goes on serving while it does not reach the election
store (3.5). Only the operator can know that. A process that is started later reads the register first.

What is lost lies behind the end of the forced store, in the order of data file numbers and offsets: what a store has
beyond the common history it wrote itself as a master, below the number of every later master's first data file.
"""

from typing import Final, NamedTuple

from pybroker.locks.election.election_state import ElectionRole, ElectionState, StoreCondition
from pybroker.locks.election.record import DurableEnd, ElectionRecord

QUIET_LEASES: Final = 4
"""Leases without a change of the register: one more than a damaged store in sync waits before it stands."""

_NOWHERE: Final = DurableEnd(0, 0)


class LackingStore(NamedTuple):
    """A store that may be forced, and the content of the register over which it would become the master.

    Attributes:
        revision: of the register.
        record: its content.
        store: the store.
    """

    revision: int
    record: ElectionRecord
    store: StoreCondition


def lacking_store(state: ElectionState) -> LackingStore | str:
    """Return the store of a member that may become the master at an operator's word, or why it may not."""
    known, store = state.known, state.store
    if state.role is ElectionRole.BLOCKED:
        return "the register is not that of this store's cluster: see docs/replication.md, When the record does not fit"
    if known is None or store is None:
        return "the election store was not read yet"
    record = known.record
    if record is None:
        return "the election store names no cluster yet: the first member that starts with this store begins one"
    if state.mastery is not None:
        return "this member is the master"
    if is_accepted(state):
        return "this member was asked for that already, and the election store has not answered yet"
    if not store.cluster or store.is_empty:
        return f"this store has nothing of cluster {record.name}: nothing was copied into it yet"
    if not state.policy.may_stand:
        return "replicate_promote is off for this member: start it with replicate_promote on first"
    if state.role is not ElectionRole.FOLLOWING or has_everything(state.me.store, store, record):
        return "this store is in sync: this member becomes master by itself when there is none"
    return LackingStore(known.revision, record, store)


def has_everything(store_id: str, store: StoreCondition, record: ElectionRecord) -> bool:
    """Return True if a store has everything that was confirmed, by the register and by what it is itself."""
    is_alone = record.in_sync == frozenset({store_id})
    return (
        store_id in record.in_sync
        and (store.is_sound or is_alone)
        and all(store.ends.get(journal, _NOWHERE) >= end for journal, end in record.durable.items())
    )


def quiet_seconds_left(state: ElectionState, now: float) -> float:
    """Return for how long the register must not change until a promotion can be forced; 0 if it can be now."""
    record = state.record
    if record is None:
        return 0.0
    return max(0.0, state.seen_at + QUIET_LEASES * record.settings.lease_ms / 1000 - now)


def is_accepted(state: ElectionState) -> bool:
    """Return True if an operator has accepted that this store becomes the master over the register as it is now."""
    return state.known is not None and state.known.revision == state.accepted_revision != 0
