"""The subscriptions to topics in groups: those that name one topic, and those of each wildcard.

A topic has a group of the subscriptions that name it. Those of a wildcard are in one group, however many topics the
wildcard covers, and a topic finds the groups that cover its name when it publishes. So the memory of 2,000 wildcard
subscriptions and 2,000 topics is that of 4,000 objects, without an entry for each pair.

A subscription is in one group of a topic at most: the group of a composite name with wildcards is that of all its
parts. Subscriptions to the same wildcard whose users have other rights are in another group, which a topic finds only
if those users may read it.

Subscriptions are numbered when they begin, and get each message in the order of these numbers, whichever groups they
are in. Only a topic of very many groups serves one group after the other: to merge them takes as long as to serve
them, and would be done again for each piece. The numbers also tell which subscriptions a message is for, if it goes to
some of them later: those up to the latest number when it was published.
"""

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import merge
from operator import attrgetter
from typing import Final, Protocol

from pybroker.broker.core.counting_consumer import CountedSource, CountingConsumer
from pybroker.broker.core.rights import Rights
from pybroker.broker.domain.destination import Destination, is_reserved
from pybroker.broker.domain.destination_map import PatternMap
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.subscription import ConsumerRequest

_number: Final = attrgetter("number")

FOUND_MAX: Final = 100_000
"""The groups in the results of look-ups that are kept for further messages, and for further pieces of one: 1 MB."""

_FOUND_COST: Final = 20
"""A result takes as much memory as so many groups in it."""

_GroupKey = tuple[tuple[Destination, ...], Rights | None, bool]


class GroupedSubscription(CountedSource):
    """A subscription to topics, as its groups see it.

    Attributes:
        number: its place in the order of all subscriptions; 0 until it has one.
        is_closed: True once its consumer has closed.
    """

    __slots__ = ("is_closed", "number")

    def __init__(self) -> None:
        self.number = 0
        self.is_closed = False

    @property
    @abstractmethod
    def own_consumer(self) -> CountingConsumer | None:
        """The consumer, if all of its deliveries are of one topic that the subscription names; None for others."""

    @property
    @abstractmethod
    def is_selective(self) -> bool:
        """True if the consumer may refuse some messages."""

    @abstractmethod
    def publish(self, message: Message) -> None:
        """Deliver a message if the consumer has capacity, otherwise keep it; ignore it if it does not match."""


class SubscriptionGroup:
    """Subscriptions that get the messages of the same topics.

    Attributes:
        number: the place in the order of a topic's groups: that of its first subscription; 0 for those that name the
            topic.
        members: the subscriptions, lowest number first.
    """

    __slots__ = ("_leaves_out_reserved", "_ordered", "_rights", "members", "number")

    def __init__(self, number: int = 0, rights: Rights | None = None, *, leaves_out_reserved: bool = False) -> None:
        """Create an empty group.

        Args:
            number: see the attribute.
            rights: what the users of its subscriptions may read; None: everything.
            leaves_out_reserved: see `ConsumerRequest`.
        """
        self.number = number
        self._rights = rights
        self._leaves_out_reserved = leaves_out_reserved
        self.members: dict[GroupedSubscription, None] = {}
        self._ordered: tuple[GroupedSubscription, ...] | None = None
        """The members, for all messages between two changes of them; None after a change."""

    def gets(self, topic: Destination) -> bool:
        """Return True if the subscriptions get the messages of a topic that their wildcards cover."""
        if self._leaves_out_reserved and is_reserved(topic):
            return False
        return self._rights is None or self._rights.may_read(topic)

    def add(self, subscription: GroupedSubscription) -> None:
        """Add a subscription, whose number is higher than those of the others."""
        self.members[subscription] = None
        self._ordered = None

    def discard(self, subscription: GroupedSubscription) -> None:
        """Remove a subscription, if it is a member."""
        self.members.pop(subscription, None)
        self._ordered = None

    def between(self, after: int, until: int, count: int) -> Sequence[GroupedSubscription]:
        """Return the first members, at most `count`, of those whose numbers are above `after` and at most `until`."""
        ordered = self._ordered
        if ordered is None:
            ordered = self._ordered = tuple(self.members)
        start = bisect_right(ordered, after, key=_number) if after else 0
        stop = start + count
        found = ordered[start:stop]
        if found and found[-1].number > until:
            stop = bisect_right(found, until, key=_number)
            found = found[:stop]
        return found


def following(groups: Sequence[SubscriptionGroup], after: int, until: int, count: int) -> Iterable[GroupedSubscription]:
    """Return the subscriptions of groups whose numbers are above `after` and at most `until`, lowest number first.

    Only the first `count` of them are needed; there may be more.
    """
    if groups and groups[-1].number > until:  # those that began later have none
        stop = bisect_right(groups, until, key=_number)
        groups = groups[:stop]
    if len(groups) == 1:
        return groups[0].between(after, until, count)
    parts = [group.between(after, until, count) for group in groups]
    return merge(*[part for part in parts if part], key=_number)


def place_of(group: int, groups: Sequence[SubscriptionGroup]) -> int:
    """Return the index of the first group whose number is that or higher."""
    return bisect_left(groups, group, key=_number)


class ReceiverCache(Protocol):
    """A topic that remembers which groups it has found."""

    def forget_receivers(self) -> None:
        """Look the groups up again for the next message."""
        ...


class SubscriptionIndex:
    """Numbers the subscriptions to the topics of one broker, and finds the groups of wildcards that cover a topic.

    Attributes:
        latest: the number of the latest subscription.
    """

    __slots__ = ("_caches", "_found", "_found_count", "_groups", "_patterns", "latest")

    def __init__(self) -> None:
        self.latest = 0
        self._groups: dict[_GroupKey, SubscriptionGroup] = {}
        """The groups by what their subscriptions name, a wildcard or several names with a wildcard among them, and by
        the rights of their users."""
        self._patterns: PatternMap[SubscriptionGroup] = PatternMap()
        self._caches: dict[ReceiverCache, None] = {}
        """The topics that have looked their groups up since the last change."""
        self._found: dict[Destination, list[SubscriptionGroup]] = {}
        """The results of the last look-ups: a topic with very many groups does not remember them."""
        self._found_count = 0
        """The memory that they take, in groups."""

    def number(self, subscription: GroupedSubscription) -> None:
        """Give a subscription the next number, unless it has one."""
        if not subscription.number:
            self.latest += 1
            subscription.number = self.latest

    def add(self, request: ConsumerRequest, subscription: GroupedSubscription, rights: Rights | None = None) -> None:
        """Add a subscription to the group of its request, one of whose destinations is a wildcard."""
        self.number(subscription)
        key = request.destinations, rights, request.leaves_out_reserved
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = SubscriptionGroup(
                subscription.number, rights, leaves_out_reserved=request.leaves_out_reserved
            )
            for destination in request.destinations:
                self._patterns.add(destination, group)
        group.add(subscription)
        self.changed()

    def discard(
        self, request: ConsumerRequest, subscription: GroupedSubscription, rights: Rights | None = None
    ) -> None:
        """Remove a subscription from the group of its request, if it is a member."""
        key = request.destinations, rights, request.leaves_out_reserved
        group = self._groups.get(key)
        if group is None or subscription not in group.members:
            return
        group.discard(subscription)
        if not group.members:
            del self._groups[key]
            for destination in request.destinations:
                self._patterns.remove(destination, group)
        self.changed()

    def covering(self, topic: Destination) -> Sequence[SubscriptionGroup]:
        """Return the groups of the wildcards that cover a topic, lowest number first; none of them is empty."""
        found = self._found.get(topic)
        if found is None:
            found = [each for each in self._patterns.covering(topic) if each.gets(topic)]
            if self._found_count > FOUND_MAX:
                self._drop_found()
            self._found[topic] = found
            self._found_count += len(found) + _FOUND_COST
        return found

    def covers(self, topic: Destination) -> bool:
        """Return True if a subscription to a wildcard covers a topic, which its user may read."""
        return bool(self._groups) and bool(self.covering(topic))

    def remember(self, topic: ReceiverCache) -> None:
        """Have a topic look its groups up again after the next change of the wildcards' subscriptions."""
        self._caches[topic] = None

    def forget(self, topic: ReceiverCache) -> None:
        """Remove a topic that is deleted."""
        self._caches.pop(topic, None)

    def _drop_found(self) -> None:
        self._found = {}
        self._found_count = 0

    def changed(self) -> None:
        """Have all topics look their groups up again: the subscriptions have changed, or what their users may read."""
        self._drop_found()
        caches, self._caches = self._caches, {}
        for topic in caches:
            topic.forget_receivers()
