"""Rules for what users may do with destinations, by the groups that they belong to.

Source: ActiveMQ's `authorizationMap`; "Logins, rights and limits" (security.md), section 4.
"""

from dataclasses import dataclass
from typing import Final

from pybroker.broker.domain.destination import Destination

EVERY_USER: Final = "*"
"""A wildcard for groups: every user has the right, including `anonymous` and users without a group."""


@dataclass(frozen=True, slots=True)
class Grants:
    """The groups that have each right.

    Attributes:
        read: may consume and browse.
        write: may send.
        admin: may create and remove destinations.
    """

    read: frozenset[str] = frozenset()
    write: frozenset[str] = frozenset()
    admin: frozenset[str] = frozenset()


NO_GRANTS: Final = Grants()


@dataclass(frozen=True, slots=True)
class Rule:
    """The rights to one destination, or to all that a pattern covers."""

    pattern: Destination
    grants: Grants


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules. A destination's rights are those of all rules that cover it, and the default ones.

    Attributes:
        rules: the rules for queues and topics.
        default: the rights to every queue and topic, in addition.
        temporary: the rights to temporary destinations; None: every user has all of them.
        warnings: what an operator should know about the rules.
    """

    rules: tuple[Rule, ...] = ()
    default: Grants = NO_GRANTS
    temporary: Grants | None = None
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of rules for queues and topics."""
        return len(self.rules)
