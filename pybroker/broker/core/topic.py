"""A topic: delivers each message to all subscriptions that exist at that moment, and its history to retroactive ones.

A topic stores persistent messages only while it has durable subscriptions (see `durable`, and `durable_fan_out`). If a
topic has many others, or selectors are evaluated for them, a message goes to some of them in each turn of the
event loop: to at most `FAN_OUT_PIECE`, for `PIECE_SECONDS`. Messages published meanwhile wait behind it, so that each
subscription gets them in their order; what is left of a turn is used for them. Until the last subscription has it, the
message counts for the memory of the topic.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.counting_consumer import CountingConsumer
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.durable import CoveredTopic, Durable
from pybroker.broker.core.durable_fan_out import DurableFanOut
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.message_sizes import MessageSizes
from pybroker.broker.core.overflow import overflow
from pybroker.broker.core.paging import CLOCK_MASK, PIECE_MAX, PIECE_SECONDS, Paging
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.recalls import RECALLED_MAX, Recalls
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.retained_messages import RetainedMessages
from pybroker.broker.core.subscription_groups import (
    GroupedSubscription,
    SubscriptionGroup,
    SubscriptionIndex,
    following,
    place_of,
)
from pybroker.broker.core.topic_deliveries import TopicDeliveries
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.admin import Counters, DeadLetterCause
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore

_log = logging.getLogger(__name__)

FAN_OUT_PIECE: Final = 500
"""Subscriptions that get a message, or several, in one piece: one to two milliseconds."""

DIRECT_MAX: Final = 64
"""Subscriptions without selectors that get a message without a look at the clock. So many subscriptions, and groups of
them, a topic remembers; more are looked up for each message, as they would take memory in each topic."""

DROPPED_PIECE: Final = 2_000
"""Waiting messages that a subscription drops in a turn when it ends: a millisecond."""

WAITING_SHARE: Final = 8
WAITING_BYTES_MIN: Final = 1 << 20
"""Messages that wait for one slow consumer take at most this part of the broker's memory, or 1 MB if that is more. So a
consumer of many topics cannot make all their producers wait. A policy without a limit of messages sets none here."""

_NEVER: Final = 2**63

_ALL: Final = 1 << 60
"""More than the subscriptions of any topic."""

LARGE_BYTES: Final = 16 << 10
"""The bytes of a message from which on the clock is read for each subscriber: its transport may have to encode, render
or encrypt it."""

Discarded = Callable[["TopicSubscription", Message], None]
"""A callback for each message that is dropped because its consumer is slow."""

Slow = Callable[["TopicSubscription", Destination], None]
"""A callback for a consumer for which more messages wait than its window has, with the topic of the latest."""


class Topic(CoveredTopic):
    """One topic.

    Attributes:
        published: the number of messages.
        sizes: their sizes.
    """

    __slots__ = (
        "_direct",
        "_durable_fan_out",
        "_groups",
        "_has_selectors",
        "_index",
        "_is_deferred",
        "_named",
        "_receivers",
        "_store",
        "_under_way",
        "gate",
        "published",
        "sizes",
    )

    def __init__(
        self,
        destination: Destination,
        *,
        store: MessageStore,
        clock: Clock,
        policy: DestinationPolicy,
        usage: Usage,
        index: SubscriptionIndex,
        retained: RetainedMessages | None = None,
    ) -> None:
        super().__init__(destination, clock=clock, policy=policy, usage=usage, retained=retained)
        self._index = index
        self._named = SubscriptionGroup()
        """The subscriptions that name the topic."""
        self._groups: tuple[SubscriptionGroup, ...] | None = None
        """The groups of all its subscriptions, between two changes; None after a change, or if they are many."""
        self._receivers: tuple[GroupedSubscription, ...] | None = None
        """Its subscriptions, between two changes; None after a change, or if they are many."""
        self._direct: tuple[GroupedSubscription, ...] | None = None
        """The same while they have no selectors, and no message is under way: all get a message at once."""
        self._has_selectors = False
        """True if some of the receivers have selectors."""
        self._under_way: deque[_FanOut] = deque()
        """Messages that some of their subscriptions do not have yet, oldest first."""
        self._is_deferred = False
        self._durable_fan_out: DurableFanOut | None = None
        """Passes messages to the durable subscriptions; None until there is one."""
        self.gate = Gate(self.publish, store, usage)
        self.published = 0
        self.sizes = MessageSizes()
        self._store = store

    @property
    def is_in_use(self) -> bool:
        """True when it has a subscription, durable ones without a consumer included."""
        if self.durables or self.joining or not self.is_covered or self._named.members:
            return True
        return self._index.covers(self.destination) if self._groups is None else bool(self._groups)

    @property
    def subscription_count(self) -> int:
        """The number of subscriptions, without durable ones."""
        return sum([len(group.members) for group in self._find_groups()])

    @property
    def is_kept_now(self) -> bool:
        """True while the topic has a durable subscription, for which the store keeps its messages."""
        return bool(self.durables or self.joining)

    def stores(self, message: Message) -> bool:
        """Return True if a message must survive a crash, provided that there are durable subscriptions."""
        return message.persistent and not self.destination.is_temporary

    def send(self, message: Message) -> bool:
        """Store a message if it is persistent and has durable subscribers; publish it.

        Returns:
            False if the store has one of the same id, and nothing was done.
        """
        if not self.durables and not self.joining:
            if self.stores(message):  # confirmed without a record; but a new master may have a durable subscription
                self._store.require_fence()
        elif message.persistent and not self._store.add(message):
            _log.info("%s is on %s already", message.message_id, self.destination)
            return False
        if not self.gate.is_open:  # else it is published at once
            self.history.store_ahead(message)
        self.gate.admit(message)
        return True

    def publish(self, message: Message) -> None:
        """Pass a message to every subscription."""
        self.published += 1
        self.sizes.add(message.payload_size)
        message = self.history.add(message)
        direct = self._direct
        if direct is None or len(message.data) > LARGE_BYTES:
            self._fan_out(message)
        else:
            for subscription in direct:
                subscription.publish(message)
        if self._durable_fan_out is not None:
            self._durable_fan_out.publish(message)

    def add_durable(self, durable: Durable) -> None:
        """Add a durable subscription, which gets the messages sent from now on.

        The store keeps no message for it that was committed before, so it gets none of those that wait at the gate.
        """
        if self.gate.is_open:
            self._add_durable(durable)
        else:
            self.joining[durable] = None
            self.gate.when_passed(partial(self._joined, durable))

    def _joined(self, durable: Durable) -> None:
        if durable in self.joining:  # else it was deleted
            del self.joining[durable]
            self._add_durable(durable)

    def _add_durable(self, durable: Durable) -> None:
        self.durables[durable] = None
        if self._durable_fan_out is None:
            self._durable_fan_out = DurableFanOut(self.durables, self.held)
        self._durable_fan_out.change()

    def remove_durable(self, durable: Durable) -> None:
        """Remove a durable subscription, which gets no further message, also none that is under way."""
        super().remove_durable(durable)
        if self._durable_fan_out is not None:
            self._durable_fan_out.change()

    def owes(self, durable: Durable) -> bool:
        """Return True if a published message is still on its way to a durable subscription."""
        return self._durable_fan_out is not None and self._durable_fan_out.owes(durable)

    def join(self, subscription: "TopicSubscription") -> None:
        """Add a subscription that names the topic, which gets the messages published from now on."""
        self._index.number(subscription)
        self._named.add(subscription)
        self.forget_receivers()

    def leave(self, subscription: "TopicSubscription") -> None:
        """Remove a subscription that names the topic; it gets no further message, also none that is under way."""
        consumer = subscription.own_consumer
        if consumer is not None:
            self.dispatched += consumer.offered_count
            self.dequeued += consumer.offered_count - consumer.in_flight
        self._named.discard(subscription)
        self.forget_receivers()

    @property
    def cached_count(self) -> int:
        """The number of messages that wait in memory: none, as they belong to the subscriptions."""
        return 0

    def counters(self) -> Counters:
        """Return the counts of messages. A message counts once for each subscription that it was delivered to."""
        dispatched, dequeued, in_flight = self.dispatched, self.dequeued, self.in_flight
        for subscription in self._named.members:
            consumer = subscription.own_consumer
            if consumer is not None:
                dispatched += consumer.offered_count
                dequeued += consumer.offered_count - consumer.in_flight
                in_flight += consumer.in_flight
        counters = Counters(
            size=0,
            enqueued=self.published,
            dispatched=dispatched,
            dequeued=dequeued,
            expired=self.expired,
            in_flight=in_flight,
        )
        return self.sizes.added_to(counters)

    def forget_receivers(self) -> None:
        """Look the subscriptions up again for the next message."""
        self._groups = self._receivers = self._direct = None

    def close(self) -> None:
        """Release the memory of its messages: the topic is deleted."""
        self._under_way.clear()
        if self._durable_fan_out is not None:
            self._durable_fan_out.close()
        self._index.forget(self)
        self.history.close()
        self.usage.close()

    def _find_groups(self) -> Sequence[SubscriptionGroup]:
        """Return the groups of its subscriptions, and remember them and the subscriptions if they are few."""
        if self._groups is not None:
            return self._groups
        found = self._index.covering(self.destination)
        groups: Sequence[SubscriptionGroup] = (self._named, *found) if self._named.members else found
        if len(groups) <= DIRECT_MAX:
            self._groups = groups = tuple(groups)
            self._index.remember(self)
            if sum([len(group.members) for group in groups]) <= DIRECT_MAX:
                receivers = self._receivers = tuple(following(groups, 0, self._index.latest, DIRECT_MAX))
                self._has_selectors = any(each.is_selective for each in receivers)
        return groups

    def _fan_out(self, message: Message) -> None:
        """Pass a message to the subscriptions, in pieces if they are many, and behind the messages under way."""
        groups = self._find_groups()
        receivers = self._receivers
        if (
            receivers is not None
            and not self._under_way
            and not self._has_selectors
            and (len(message.data) <= LARGE_BYTES or len(receivers) == 1)
        ):
            self._direct = receivers
            for subscription in receivers:
                subscription.publish(message)
            return
        if not groups:
            return
        EFFORT.is_large = True
        fan_out = _FanOut(message, self._index.latest, 0 if len(groups) > DIRECT_MAX else None)
        try:
            if not self._under_way:
                self._publish_piece(fan_out, FAN_OUT_PIECE, 0.0)
        finally:  # also after an error: the others get it
            if not fan_out.is_over:
                self._direct = None  # or later messages would overtake it
                self._under_way.append(fan_out)
                self.held.acquire(message)
                self._defer()

    def _publish_piece(self, fan_out: "_FanOut", left: int, ends_at: float) -> int:
        """Pass a message to further subscriptions, until a piece has been done, and return their number.

        Args:
            fan_out: the message.
            left: at most so many subscriptions get it now.
            ends_at: monotonic seconds when the piece ends; 0: it begins now.
        """
        paging = self.usage.paging
        groups, few = self._find_groups(), self._receivers
        is_bounded = paging.later is not None and (few is None or len(few) > 1)
        if not is_bounded:
            left = _ALL
        elif not ends_at or fan_out.group is not None:  # to find very many groups takes as long as a piece
            ends_at = paging.monotonic() + PIECE_SECONDS
        receivers: Iterable[GroupedSubscription | None]
        if fan_out.group is not None:
            receivers = _following_by_group(groups, fan_out)
        elif few is not None and not fan_out.last and fan_out.until == self._index.latest:
            receivers = few
        else:
            receivers = following(groups, fan_out.last, fan_out.until, left + 1)
        message = fan_out.message
        is_large = len(message.data) > LARGE_BYTES
        served, is_late = 0, False
        for subscription in receivers:
            if is_late or served >= left:
                return served
            served += 1
            if subscription is not None:
                fan_out.last = subscription.number
                if not subscription.is_closed:
                    subscription.publish(message)
            if is_bounded and (
                is_large or not served & CLOCK_MASK or (subscription is not None and subscription.is_selective)
            ):
                is_late = paging.monotonic() >= ends_at
        fan_out.is_over = True
        return served

    def _continue(self) -> None:
        """Pass the messages under way to further subscriptions, oldest first, until a piece has been done."""
        self._is_deferred = False
        under_way, paging = self._under_way, self.usage.paging
        left, ends_at = FAN_OUT_PIECE, paging.monotonic() + PIECE_SECONDS
        try:
            while under_way and left > 0:
                fan_out = under_way[0]
                left -= self._publish_piece(fan_out, left, ends_at)
                if not fan_out.is_over:
                    break
                if under_way:  # empty: the topic was deleted
                    under_way.popleft()
                    self.held.release(fan_out.message)
                if paging.monotonic() >= ends_at:
                    break
        finally:
            self._defer()

    def _defer(self) -> None:
        if self._under_way and not self._is_deferred:
            self._is_deferred = self.usage.paging.defer(self._continue)


class _FanOut:
    """A message on its way to the subscriptions that existed when it was published.

    Attributes:
        last: the number of the last of them that has it, or that an error kept from it; 0: none has.
        until: the number of the latest of them.
        group: the number of the group that is served, of which `last` is a member, if one group is served after the
            other; all groups with lower numbers have it. None: they are served in the order of their numbers.
        is_over: True once all have it.
    """

    __slots__ = ("group", "is_over", "last", "message", "until")

    def __init__(self, message: Message, until: int, group: int | None) -> None:
        self.message = message
        self.last = 0
        self.until = until
        self.group = group
        self.is_over = False


def _following_by_group(groups: Sequence[SubscriptionGroup], fan_out: _FanOut) -> Iterator[GroupedSubscription | None]:
    """Yield the subscriptions that a message goes to next, one group after the other; None for a group without any.

    The caller sets `last` to the number of each that it serves.
    """
    for index in range(place_of(fan_out.group or 0, groups), len(groups)):
        group = groups[index]
        if group.number > fan_out.until:  # it, and those behind it, began later
            return
        if group.number != fan_out.group:
            fan_out.group, fan_out.last = group.number, 0
        members = group.between(fan_out.last, fan_out.until, FAN_OUT_PIECE)
        if not members:
            fan_out.group, fan_out.last = group.number + 1, 0
            yield None
        while members:
            yield from members
            members = group.between(fan_out.last, fan_out.until, FAN_OUT_PIECE)


class TopicSubscription(GroupedSubscription):
    """The backlog of one non-durable topic consumer, which ends with the consumer.

    Messages wait here while the consumer's window is full. If more than a limit wait, messages are dropped (ActiveMQ's
    `pendingMessageLimitStrategy`), so that a slow consumer takes a limited amount of memory. The limit is a number of
    messages, and a share of the broker's memory.

    Attributes:
        dropped: number of dropped messages.
        when_drained: called once when no more messages wait.
    """

    __slots__ = (
        "_clock",
        "_consumer",
        "_dead_letters",
        "_deliveries",
        "_discarded",
        "_is_deferred",
        "_is_discarding",
        "_is_of_wildcard",
        "_is_slow",
        "_limit",
        "_paging",
        "_recalls",
        "_slow",
        "_topics",
        "_waiting",
        "_waiting_bytes",
        "_waiting_bytes_max",
        "dropped",
        "when_drained",
    )

    def __init__(
        self,
        consumer: CountingConsumer,
        *,
        dead_letters: DeadLetters,
        clock: Clock,
        policy: DestinationPolicy,
        paging: Paging,
        discarded: Discarded | None = None,
        slow: Slow | None = None,
    ) -> None:
        super().__init__()
        self.dropped = 0
        self.when_drained: Callable[[], None] | None = None
        self._consumer = consumer
        self._waiting = overflow(policy.message_eviction_strategy)
        self._waiting_bytes = 0
        self._waiting_bytes_max = _NEVER
        self._dead_letters = dead_letters
        self._clock = clock
        self._limit = _lower(policy.pending_limit(consumer.prefetch), consumer.request.pending_limit)
        self._discarded = discarded
        self._slow = slow
        self._is_slow = False
        self._is_discarding = False
        self._paging = paging
        self._is_deferred = False  # True while delivery continues in a later turn of the event loop
        self._topics: dict[Destination, Topic] = {}
        """The topics that it names; if it names a wildcard, all topics of the broker."""
        self._deliveries: TopicDeliveries | None = None
        """Counts what is delivered of several topics; None if it is of one."""
        self._is_of_wildcard = False
        self._recalls: Recalls | None = None
        """The histories that it is still to get; None if it never got one."""
        consumer.add_source(self)

    @property
    def consumer(self) -> CountingConsumer:
        """The consumer."""
        return self._consumer

    @property
    def is_dispatching(self) -> bool:
        """True while delivery continues in a later turn of the event loop."""
        return self._is_deferred

    @property
    def is_selective(self) -> bool:
        """True if the consumer may refuse some messages."""
        return self._consumer.is_selective

    @property
    def waiting_count(self) -> int:
        """The number of messages that wait for the consumer."""
        return len(self._waiting)

    def join(self, topic: Topic) -> None:
        """Subscribe to a topic by its name; a retroactive consumer first gets its history."""
        self._topics[topic.destination] = topic
        if len(self._consumer.request.destinations) > 1 and self._deliveries is None:
            self._deliveries = TopicDeliveries()
        self._limit_bytes(topic.usage.broker.limit)
        if topic.is_retroactive_for(self._consumer):
            self.recall(topic)
        topic.join(self)

    def join_wildcard(self, topics: dict[Destination, Topic], memory: int) -> None:
        """Prepare to be a member of the group of a wildcard.

        Args:
            topics: all topics, a live view.
            memory: the limit of the broker's memory; 0: none.
        """
        self._topics = topics
        self._is_of_wildcard = True
        self._deliveries = TopicDeliveries()
        self._limit_bytes(memory)

    def recall(self, topic: Topic) -> None:
        """Publish a topic's history to the consumer, as fast as the consumer takes it: it loses nothing of it."""
        if topic.history.is_empty:
            return
        if self._recalls is None:
            self._recalls = Recalls(self._publish_recalled, self._has_room, self._paging)
        self._recalls.add(topic.history)

    def _has_room(self) -> bool:
        return not self.is_closed and len(self._waiting) < RECALLED_MAX and self._waiting_bytes < WAITING_BYTES_MIN

    def _publish_recalled(self, message: Message) -> None:
        """Deliver a message, or append it without regard to the limits of what is published: it is one of few."""
        consumer = self._consumer
        if self.is_closed or (consumer.is_selective and not consumer.accepts(message)):
            return
        if not self._waiting and consumer.in_flight < consumer.window:
            self._offer(message)
        else:
            self._append(message)

    def detach(self, consumer: BrokerConsumer) -> None:
        """Leave the topics that it names, and drop the waiting messages; see `SubscriptionIndex.discard`."""
        self.is_closed = True
        self.when_drained = None
        self._waiting_bytes = 0
        if self._recalls is not None:
            self._recalls.close()
        self._drop_waiting()
        if self._deliveries is not None:
            self._deliveries.end()
        if not self._is_of_wildcard:
            for topic in self._topics.values():
                topic.leave(self)

    @property
    def own_consumer(self) -> CountingConsumer | None:
        """The consumer, if all of its deliveries are of one topic that the subscription names; None for others."""
        return self._consumer if self._deliveries is None else None

    def acknowledged(self, count: int) -> None:
        """Count acknowledgements in the topics that the deliveries were of."""
        if self._deliveries is not None:
            self._deliveries.settle(count)

    def publish(self, message: Message) -> None:
        """Deliver a message if the consumer has capacity, otherwise append it; ignore it if it does not match."""
        consumer = self._consumer
        if consumer.is_selective and not consumer.accepts(message):
            return
        waiting = self._waiting
        if not waiting and consumer.in_flight < consumer.window:
            self._offer(message)
            return
        if self.is_closed or self._is_discarding:  # by what an earlier subscription of this message did; see `_discard`
            return
        if self._slow is not None and not self._is_slow and len(waiting) > consumer.prefetch > 1:
            self._is_slow = True
            self._slow(self, message.destination)
        self._append(message)
        # The unused window counts too: while a client is paused, its limit is not lower than while it is not.
        if self._limit >= 0 and len(waiting) > self._limit + max(0, consumer.prefetch - consumer.in_flight):
            self._discard(f"{self._limit} messages")
        while self._waiting_bytes > self._waiting_bytes_max and len(waiting) > 1:
            self._discard(f"{self._waiting_bytes_max:,} bytes")

    def dispatch(self, consumer: BrokerConsumer | None = None) -> None:
        """Deliver waiting messages while the consumer has capacity, at most a piece per turn of the event loop."""
        waiting, receiver = self._waiting, self._consumer
        left, ends_at = PIECE_MAX, 0.0
        while waiting and not self._is_deferred and receiver.in_flight < receiver.window:
            left -= 1
            if not left & CLOCK_MASK:
                now = self._paging.monotonic()
                ends_at = ends_at or now + PIECE_SECONDS
                if (left <= 0 or now >= ends_at) and self._paging.defer(self._continue):
                    self._is_deferred = True
                    return
            message = waiting.popleft()
            self._waiting_bytes -= message.size
            self._offer(message)
            self._drop(message)
        if not waiting:
            self._is_slow = False
            if self._recalls:
                self._recalls.proceed()
            if self.when_drained is not None:
                drained, self.when_drained = self.when_drained, None
                drained()

    def _offer(self, message: Message) -> None:
        """Deliver a message, unless it has expired."""
        if message.expiration and message.is_expired(self._clock()):
            if (topic := self._topics.get(message.destination)) is not None:
                topic.expired += 1
            return
        if self._deliveries is not None and (topic := self._topics.get(message.destination)) is not None:
            self._deliveries.add(topic)
        self._consumer.offer(Reference(message, self, 0))

    def _limit_bytes(self, memory: int) -> None:
        if self._limit >= 0 and memory:
            self._waiting_bytes_max = max(memory // WAITING_SHARE, WAITING_BYTES_MIN)

    def _continue(self) -> None:
        self._is_deferred = False
        self.dispatch()

    def _drop_waiting(self) -> None:
        """Drop the waiting messages of a closed subscription, at most a piece per turn of the event loop."""
        waiting, left = self._waiting, DROPPED_PIECE
        while waiting:
            left -= 1
            if left < 0 and self._paging.defer(self._drop_waiting):
                return
            self._drop(waiting.popleft())

    def _discard(self, limit: str) -> None:
        """Drop a waiting message. Meanwhile the subscription gets none: it could only be an advisory about this."""
        self._is_discarding = True
        try:
            self._evict(limit)
        finally:
            self._is_discarding = False

    def _evict(self, limit: str) -> None:
        message = self._waiting.evict()
        self._waiting_bytes -= message.size
        if not self.dropped:
            _log.warning(
                "consumer of %s on connection %s is too slow: more than %s wait, and some are dropped",
                self._consumer.request.destination,
                self._consumer.connection.connection_id,
                limit,
            )
        self.dropped += 1
        if (topic := self._topics.get(message.destination)) is not None:
            topic.dequeued += 1
        cause = f"TopicSubDiscard. {self._consumer.connection.connection_id}"
        self._dead_letters.dead_letter(message, cause, kind=DeadLetterCause.DISCARDED)
        if self._discarded is not None:
            self._discarded(self, message)
        self._drop(message)

    def _append(self, message: Message) -> None:
        self._waiting.append(message)
        self._waiting_bytes += message.size
        self._hold(message)

    def _hold(self, message: Message) -> None:
        if (topic := self._topics.get(message.destination)) is not None:  # None for advisories sent to a new listener
            topic.held.acquire(message)

    def _drop(self, message: Message) -> None:
        if (topic := self._topics.get(message.destination)) is not None:
            topic.held.release(message)


def _lower(limit: int, wanted: int | None) -> int:
    """Return the limit of waiting messages: a client may lower that of the policy, but not raise it."""
    if not wanted or wanted < 0:
        return limit
    return wanted if limit < 0 else min(limit, wanted)
