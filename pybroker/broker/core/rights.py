"""Authorization: what the users of a broker may do with its destinations, by the rules in force.

Users of the same groups have the same rights, and share one `Rights`, which remembers what it has looked up. So a send
to a destination that was looked up before costs one look-up in a set.

A rule covers a destination as a pattern of a consumer does. A consumer of a pattern gets the messages of those
destinations that its user may read; it is refused only if the user may read none that the pattern could cover.

Source: "Logins, rights and limits" (security.md), section 4.
"""

import enum
from collections.abc import Collection, Sequence
from typing import Final

from pybroker.broker.domain.destination import (
    ADVISORY_PREFIX,
    NAME_MAX,
    Destination,
    covers,
    is_advisory,
    parts,
    patterns_overlap,
    queue,
    topic,
)
from pybroker.broker.domain.destination_map import PatternMap
from pybroker.broker.domain.rules import EVERY_USER, Grants, Rule, Rules
from pybroker.broker.domain.security import AccessDenied, User

REMEMBERED_MAX: Final = 10_000
"""The results of look-ups that are kept for each set of groups; clients can choose any number of names. Those of names
above `NAME_MAX`, which are refused later, are not kept."""

READABLE_TO_ALL: Final = frozenset((topic(ADVISORY_PREFIX + "TempQueue"), topic(ADVISORY_PREFIX + "TempTopic")))
"""The topics that each client of Java, .NET and C++ subscribes to: without them it cannot start its connection."""


_NO_GROUPS: Final = frozenset[str]()


class Right(enum.Enum):
    """A right; the value is how ActiveMQ names the act in its refusal."""

    READ = "read from"
    WRITE = "write to"
    CREATE = "create"
    REMOVE = "remove"


def named(destinations: Sequence[Destination]) -> str:
    """Return destinations as ActiveMQ names them: of several only the names."""
    if len(destinations) == 1 and not destinations[0].is_composite:
        return str(destinations[0])
    return ",".join([each.name for each in destinations])


def refusal(user: User, right: Right, destinations: Sequence[Destination]) -> AccessDenied:
    """Return the answer to an act that is not allowed, in ActiveMQ's words."""
    return AccessDenied(f"User {user.name} is not authorized to {right.value}: {named(destinations)}")


class _RuleIndex:
    """Rules, prepared for look-ups.

    Attributes:
        rules: the rules.
    """

    def __init__(self, rules: Rules, former: Rules | None = None) -> None:
        """Prepare rules; `former` are those that were in force before."""
        self.rules = rules
        self._by_pattern: PatternMap[Rule] = PatternMap()
        for rule in rules.rules:
            self._by_pattern.add(rule.pattern, rule)
        self._changes: PatternMap[tuple[frozenset[str], frozenset[str]]] = PatternMap()
        """The groups that may read a pattern: before and now, if that is not the same."""
        if former is not None:
            before, now = _readers(former), _readers(rules)
            for pattern in before.keys() | now.keys():
                change = before.get(pattern, _NO_GROUPS), now.get(pattern, _NO_GROUPS)
                if change[0] != change[1]:
                    self._changes.add(pattern, change)

    def groups(self, right: Right, destination: Destination) -> list[frozenset[str]]:
        """Return the groups that have a right to one destination, as one set for each rule.

        If its name is a pattern, such as that of a queue for several virtual topics, the rules count that cover all
        names which it covers: `A.*` covers no destination called `A.>`.
        """
        rules = self.rules
        if destination.is_temporary:
            return [] if rules.temporary is None else [_granted(rules.temporary, right)]
        found = self._by_pattern.covering(destination)
        if destination.is_pattern:
            found = [rule for rule in found if covers(rule.pattern.name, destination.name)]
        return [_granted(grants, right) for grants in (*[rule.grants for rule in found], rules.default)]

    def allow_reading_some(self, pattern: Destination, groups: Collection[str]) -> bool:
        """Return True if these groups may read a destination that a pattern covers, or could cover."""
        return _includes(self.rules.default.read, groups) or any(
            _includes(rule.grants.read, groups) for rule in self._by_pattern.overlapping(pattern)
        )

    def have_changed(self, pattern: Destination, groups: Collection[str]) -> bool:
        """Return True if these groups may now read what they could not before, or the reverse, and a pattern covers."""
        return any(
            _includes(before, groups) is not _includes(now, groups)
            for before, now in self._changes.overlapping(pattern)
        )


class Rights:
    """The rights of the users of one set of groups.

    Attributes:
        writable: destinations to which they may send; not all of them, but those of which this was asked lately.
        last_written: destination of the last message that they were allowed to send; the same object is not checked.
    """

    def __init__(self, groups: frozenset[str], rules: _RuleIndex) -> None:
        self.writable: set[Destination] = set()
        self.last_written: Destination | None = None
        self._groups = groups
        self._rules = rules
        self._readable: dict[Destination, bool] = {}

    def renew(self, rules: _RuleIndex) -> None:
        """Put other rules in force."""
        self._rules = rules
        self.last_written = None
        self.writable.clear()
        self._readable.clear()

    def allow(self, right: Right, destinations: Sequence[Destination]) -> bool:
        """Return True if they have a right to all of these destinations."""
        if right is Right.READ:
            return all([self.may_read_some(each) if each.is_pattern else self.may_read(each) for each in destinations])
        if right is Right.WRITE:
            return all([self.may_write(each) for each in destinations])
        return all([self._allows(right, each) for each in destinations])

    def may_write(self, destination: Destination) -> bool:
        """Return True if they may send to a destination; to each part of a composite name."""
        if destination in self.writable:
            return True
        if not all([self._allows(Right.WRITE, part) for part in parts(destination)]):
            return False
        if len(destination.name) <= NAME_MAX and not destination.is_composite:
            if len(self.writable) >= REMEMBERED_MAX:
                self.writable.clear()
            self.writable.add(destination)
        return True

    def may_read(self, destination: Destination) -> bool:
        """Return True if they may consume from one destination."""
        known = self._readable.get(destination)
        if known is None:
            known = self._allows(Right.READ, destination)
            if len(destination.name) <= NAME_MAX:
                if len(self._readable) >= REMEMBERED_MAX:
                    self._readable.clear()
                self._readable[destination] = known
        return known

    def may_read_some(self, pattern: Destination, *, advisories: bool = True) -> bool:
        """Return True if they may consume from a destination that a pattern covers, or could cover.

        Args:
            pattern: the pattern.
            advisories: the topics that all may read count too.
        """
        if (
            advisories
            and pattern.is_topic
            and any([patterns_overlap(pattern.name, each.name) for each in READABLE_TO_ALL])
        ):
            return True
        return self._rules.allow_reading_some(pattern, self._groups)

    def has_changed_for(self, reader: Destination) -> bool:
        """Return True if a consumer of a destination or pattern has to subscribe again after the last `renew`."""
        return self._rules.have_changed(reader, self._groups) if reader.is_pattern else not self.may_read(reader)

    def _allows(self, right: Right, destination: Destination) -> bool:
        index = self._rules
        if destination.is_temporary and right is Right.REMOVE:
            return False  # its owner may, and needs no rule
        if destination.is_temporary and index.rules.temporary is None:
            return True  # every user has all rights to them
        if right is Right.READ and destination in READABLE_TO_ALL:
            return True
        if right is Right.WRITE and destination.is_topic and is_advisory(destination):
            return False  # a part of a composite name: advisories are the broker's
        return any([_includes(each, self._groups) for each in index.groups(right, destination)])


class Authorization:
    """The rules in force."""

    def __init__(self, rules: Rules | None = None) -> None:
        """Put rules in force; without them every user may do everything."""
        self._rules = None if rules is None else _RuleIndex(rules)
        self._by_groups: dict[frozenset[str], Rights] = {}

    def rights(self, user: User) -> Rights | None:
        """Return what a user may do; None: everything."""
        if self._rules is None or user.has_all_rights:
            return None
        found = self._by_groups.get(user.groups)
        if found is None:
            found = self._by_groups[user.groups] = Rights(user.groups, self._rules)
        return found

    def replace(self, rules: Rules) -> None:
        """Put other rules in force, also for users who are connected."""
        self._rules = _RuleIndex(rules, former=None if self._rules is None else self._rules.rules)
        for rights in self._by_groups.values():
            rights.renew(self._rules)


def _granted(grants: Grants, right: Right) -> frozenset[str]:
    if right is Right.READ:
        return grants.read
    return grants.write if right is Right.WRITE else grants.admin


def _includes(granted: frozenset[str], groups: Collection[str]) -> bool:
    return EVERY_USER in granted or not granted.isdisjoint(groups)


def _readers(rules: Rules) -> dict[Destination, frozenset[str]]:
    """Return the groups that may read, by pattern."""
    found: dict[Destination, frozenset[str]] = {}
    every = (*rules.rules, Rule(queue(">"), rules.default), Rule(topic(">"), rules.default))
    for rule in every:
        found[rule.pattern] = found.get(rule.pattern, _NO_GROUPS) | rule.grants.read
    return found
