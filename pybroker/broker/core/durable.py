"""A durable subscription: a backlog that collects messages while its consumer is away.

Persistent messages wait in the store, and in memory as far as there is space. Non-persistent ones wait in memory only
(ActiveMQ's `keepDurableSubsActive`). A subscription to a wildcard covers several topics. The store keeps one record per
topic that it covers, or one under the name of the wildcard while it covers none.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.delivered import Bodiless, shared_without_body
from pybroker.broker.core.matcher import Matcher
from pybroker.broker.core.paged_out_index import MessageRef
from pybroker.broker.core.paging import CLOCK_MASK, PAGE_BYTES_MAX, PIECE_MAX, PIECE_SECONDS, severity
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference, ReferenceState
from pybroker.broker.core.retained_history import RetainedHistory
from pybroker.broker.core.retained_messages import RetainedMessages
from pybroker.broker.core.rights import Rights
from pybroker.broker.core.search import TRANSITIONS, Search, SearchEvent
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.core.usage import REFERENCE_BYTES, SharedUsage, Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import BodilessMessage, Message
from pybroker.broker.domain.ports import Clock, MessageStore, RemovalReason
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId

_log = logging.getLogger(__name__)

_IDLE: Final = Search.IDLE

_NO_USAGE = Usage()
"""The usage of a subscription that covers no topic, and so has no messages."""


class CoveredTopic:
    """A topic, as the durable subscriptions that cover it see it.

    Attributes:
        destination: the topic's destination.
        policy: the topic's policy.
        durables: the durable subscriptions that get what is published.
        joining: those that get what is sent from now on, but not what waits at the topic's gate.
        is_covered: False while subscriptions that match the new topic do not cover it yet.
        held: counts the messages in memory that wait for subscriptions.
        history: the messages kept for retroactive consumers.
        dispatched: the number of deliveries, without those to open subscriptions that name this topic alone and are
            not durable: these count themselves.
        dequeued: the number of acknowledgements of the same subscriptions.
        in_flight: the number of outstanding deliveries to the same subscriptions.
        expired: how often a message had expired before it was delivered to a subscription.
    """

    __slots__ = (
        "dequeued",
        "destination",
        "dispatched",
        "durables",
        "expired",
        "held",
        "history",
        "in_flight",
        "is_covered",
        "joining",
        "policy",
    )

    def __init__(
        self,
        destination: Destination,
        *,
        clock: Clock,
        policy: DestinationPolicy,
        usage: Usage,
        retained: RetainedMessages | None = None,
    ) -> None:
        self.destination = destination
        self.policy = policy
        self.durables: dict[Durable, None] = {}
        self.joining: dict[Durable, None] = {}
        self.is_covered = True
        self.dispatched: int = 0
        self.dequeued: int = 0
        self.in_flight = 0
        self.expired = 0
        self.held = SharedUsage(usage)
        self.history = RetainedHistory(destination, policy.subscription_recovery_policy, clock, usage, retained)

    @property
    def usage(self) -> Usage:
        """The memory usage that its messages count for."""
        return self.held.usage

    def add_durable(self, durable: "Durable") -> None:
        """Add a durable subscription, which gets the messages sent from now on."""
        self.durables[durable] = None

    def consumed(self, message: Message) -> None:
        """Called after a durable subscription has acknowledged a message."""

    def owes(self, durable: "Durable") -> bool:
        """Return True if a published message is still on its way to a durable subscription."""
        return False

    def remove_durable(self, durable: "Durable") -> None:
        """Remove a durable subscription."""
        del (self.joining if durable in self.joining else self.durables)[durable]

    def is_retroactive_for(self, consumer: BrokerConsumer) -> bool:
        """Return True if a consumer gets the topic's history."""
        return consumer.request.retroactive or self.policy.always_retroactive


class Durable(StoredSource):
    """One durable subscription, with or without a consumer.

    Attributes:
        attach_count: how often a consumer was attached since it was created or recovered.
        reader: what its last user may read; None: everything, or there was none since it was recovered.
        is_recovered: True from its recovery until its first consumer: then its user is not known.
        unvouched: topics that it has begun to cover meanwhile, which its user may not be allowed to read.
    """

    __slots__ = (
        "_admits",
        "_covered",
        "_matches",
        "_rights",
        "attach_count",
        "consumer",
        "info",
        "is_recovered",
        "reader",
        "topics",
        "unvouched",
    )

    def __init__(
        self,
        info: DurableSubscription,
        matches: Matcher | None,
        *,
        store: MessageStore,
        dead_letters: DeadLetters,
        clock: Clock,
        policy: DestinationPolicy,
    ) -> None:
        """Create a subscription without topics and consumer; `matches` is the compiled selector, None for none."""
        super().__init__(store=store, dead_letters=dead_letters, clock=clock, policy=policy, subscription_key=info.key)
        self.info = info
        self.topics: list[CoveredTopic] = []
        self.consumer: BrokerConsumer | None = None
        self.attach_count = 0
        self._covered: dict[Destination, CoveredTopic] = {}
        self._matches = matches
        self.reader: Rights | None = None
        self.is_recovered = False
        self.unvouched: set[Destination] = set()
        self._admits: Callable[[Message], bool] | None = None
        """Returns False for what the bridge of its consumer must not forward; None: all may be delivered."""
        self._rights: Rights | None = None
        """The rights of the consumer's user, for a subscription to a wildcard; None: the user may read all topics."""

    @property
    def is_selective(self) -> bool:
        """True if the subscription has a selector."""
        return self._matches is not None

    def is_same(self, info: DurableSubscription) -> bool:
        """Return True if a returning consumer has the same terms."""
        mine = (self.info.subscribed_destination, self.info.selector, self.info.no_local)
        return mine == (info.subscribed_destination, info.selector, info.no_local)

    def attach(self, consumer: BrokerConsumer, *, is_new: bool = False) -> None:
        """Attach the consumer. If it is retroactive, and no messages wait, it gets the history of its topics.

        A new subscription has got that already, topic by topic.
        """
        self.consumer = consumer
        self.attach_count += 1
        self._rights = consumer.connection.rights if self.info.subscribed_destination.is_pattern else None
        network = consumer.request.network
        self._admits = None if network is None else network.admits
        consumer.add_source(self)
        if not is_new and not self.pending.count and not any(topic.owes(self) for topic in self.topics):
            for topic in self.topics:
                if topic.is_retroactive_for(consumer):
                    self.recall(topic)

    def recall(self, topic: CoveredTopic) -> None:
        """Append the history of a topic. Its messages are in memory only, since the store may have deleted them."""
        topic.history.recall(self._append_recalled, self._append_recalled)

    def _append_recalled(self, message: Message | None) -> None:
        if message is not None and not self.is_closed and self._wants(message):
            self.append(replace(message, persistent=False))

    def detach(self, consumer: BrokerConsumer) -> None:
        """Detach the consumer, whose outstanding messages are back."""
        self.consumer = None
        self._admits = self._rights = None

    def recover_stored(self, topic: Destination, message_ids: Sequence[str]) -> None:
        """Add messages that a topic stores for other subscriptions; delivery begins once they are on disk."""
        self.recover(topic, message_ids, frozenset())
        self._progress = TRANSITIONS.after(self._progress, SearchEvent.YIELD)
        self._store.when_durable(self._continue_dispatch)

    def stored_ids(self, topic: Destination) -> set[str]:
        """Return the ids of the messages of a topic that the store has for the subscription, which is not active."""
        found = {
            reference.message.message_id
            for reference in self._in_memory()
            if reference.message.destination == topic and reference.message.persistent
        }
        for part in self.pending.parts:
            if part.paged_out is not None:
                found.update(part.paged_out.stored_ids(topic))
        return found

    def unstored(self, topic: Destination) -> list[Message]:
        """Return the messages of a topic that wait in memory, and that neither the store nor the spool has."""
        waiting = [reference.message for reference in self._in_memory()]
        return [
            each
            for each in waiting
            if each.destination == topic and not each.persistent and not isinstance(each, BodilessMessage)
        ]

    def _in_memory(self) -> Iterator[Reference]:
        yield from self._unread
        for part in self.pending.parts:
            yield from part.in_memory()

    def is_on(self, topic: Destination) -> bool:
        """Return True if the subscription covers a topic."""
        return topic in self._covered

    def join(self, topic: CoveredTopic) -> None:
        """Cover a topic: get its messages from now on."""
        self.topics.append(topic)
        topic.add_durable(self)
        self._covered[topic.destination] = topic
        self.paging = topic.usage.paging
        self.paging.backlogs.add(self)
        self._recompute_watermark()

    def close(self) -> None:
        """Drop all messages, and release their memory: the subscription is deleted. It has topics to leave."""
        for references in self._close():
            for reference in references:
                self.release(reference)

    def publish(self, message: Message) -> None:
        """Append a message, and deliver it if the consumer has capacity; acknowledge a message that does not match."""
        if self._is_closed:
            return
        if not self._wants(message):
            self._acknowledge(message, None, RemovalReason.UNMATCHED)
            return
        self.append(message)
        consumer = self.consumer
        if consumer is not None and consumer.has_capacity:
            self.dispatch()

    def append(self, message: Message) -> None:
        """Append a message to the backlog."""
        self.waits.begin(self._next_sequence, is_first=not self.pending.count)
        self.pending.append(Reference(message, self, self._next_sequence))
        self._next_sequence += 1
        held = self._covered[message.destination].held
        held.acquire(message, REFERENCE_BYTES)
        self._record_expiry(message)
        usage = held.usage
        if usage.used > self._page_out_at or usage.broker.used > usage.broker.watermark:
            self._reduce_memory(usage)

    @property
    def holders(self) -> Iterable[BrokerConsumer]:
        """The consumer, if there is one."""
        return () if self.consumer is None else (self.consumer,)

    def in_flight(self) -> list[Reference]:
        """Return the outstanding messages of the consumer, oldest first."""
        return [*(self.consumer.outstanding if self.consumer else ()), *self._unread]

    # ------------------------------------------------------------ source

    def dispatch(self, consumer: BrokerConsumer | None = None) -> None:
        """Deliver waiting messages while the consumer has capacity, at most a piece or a page per event-loop turn."""
        pending, receiver = self.pending, self.consumer
        space, left, ends_at = PAGE_BYTES_MAX, PIECE_MAX, 0.0
        while pending.count and receiver is not None and receiver.has_capacity and self._progress is _IDLE:
            left -= 1
            if not left & CLOCK_MASK:
                now = self.paging.monotonic()
                ends_at = ends_at or now + PIECE_SECONDS
                if (left <= 0 or now >= ends_at) and self._defer_dispatch():
                    break
            if is_paged := pending.is_paged:
                if space <= 0 and self._defer_dispatch():
                    break
                try:
                    if not pending.fill():
                        break
                except StoreUnavailable as error:
                    _log.log(severity(error), "%s is not served further now: %s", self.info.key, error)
                    break
            reference = pending.pop(ReferenceState.DISPATCHED)
            if is_paged:
                space -= len(reference.message.data)
            if reference.message.expiration and self.is_expired(reference.message):
                self.expire(reference)
            elif (self._admits is not None and not self._admits(reference.message)) or (
                self._rights is not None and not self._rights.may_read(reference.message.destination)
            ):
                self.forget(reference, None, RemovalReason.UNMATCHED)
                self.release(reference)
            else:
                self.waits.end(reference.sequence)
                self.dispatched += 1
                topic = self._covered[reference.message.destination]
                topic.dispatched += 1
                topic.in_flight += 1
                receiver.offer(reference)

    def read(self, refs: Sequence[MessageRef]) -> tuple[list[Reference], int]:
        """Read messages from the store, and return those that match the subscription; see `Pager`.

        The store keeps a topic's message for all subscriptions of the topic. When a message is published that this one
        does not match, its acknowledgement is appended. After a crash in between, and in some stores of an ActiveMQ,
        such messages are left in the backlog. They are acknowledged here.
        """
        found, looked_at = super().read(refs)
        if self._matches is None and not self.info.no_local:
            return found, looked_at
        wanted: list[Reference] = []
        for reference in found:
            message = reference.message
            if self._matches_terms(message):
                message.decoded = None  # saves memory while it waits
                wanted.append(reference)
            else:
                self._acknowledge(message, None, RemovalReason.UNMATCHED)
        return wanted, looked_at

    def count_in(self, references: Sequence[Reference]) -> None:
        """Add messages that have been read back to the memory usage."""
        super().count_in(references)
        for reference in references:
            self._covered[reference.message.destination].held.acquire(reference.message, REFERENCE_BYTES)

    def count_out(self, references: Sequence[Reference]) -> None:
        """Subtract paged-out messages from the memory usage; this may call back producers that wait for memory."""
        for reference in references:
            self._covered[reference.message.destination].held.release(reference.message, REFERENCE_BYTES)

    def forget(
        self, reference: Reference, transaction: TransactionId | None, reason: RemovalReason, connection_id: str = ""
    ) -> None:
        """Append the acknowledgement of a message to the store."""
        self._acknowledge(reference.message, transaction, reason, connection_id)

    def settle(self, reference: Reference) -> None:
        """Release a reference: its acknowledgement has taken effect."""
        message = reference.message
        self.release(reference)
        self._covered[message.destination].consumed(message)

    def release(self, reference: Reference) -> None:
        """Mark a reference as settled, and release its memory."""
        reference.state = ReferenceState.SETTLED
        self.dequeued += 1
        topic = self._covered[reference.message.destination]
        topic.dequeued += 1
        if reference.delivery:
            topic.in_flight -= 1
        topic.held.release(reference.message, REFERENCE_BYTES)

    def count_expired(self, message: Message) -> None:
        """Count a message that has expired."""
        super().count_expired(message)
        self._covered[message.destination].expired += 1

    def drop_body(self, reference: Reference, bodiless: Bodiless) -> None:
        """Remove the body of a delivered message from memory if it can be read back."""
        if self._covered[reference.message.destination].policy.advisory_for_consumed:
            return  # the advisory has the message
        if self._has_on_disk(reference) and (made := shared_without_body(reference.message, bodiless)) is not None:
            self._replace(reference, made)

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Insert references at their old positions, or drop them if the subscription has been deleted."""
        for reference in (*seen, *unseen):
            if reference.delivery:
                reference.delivery = 0
                self._covered[reference.message.destination].in_flight -= 1
        if self._is_closed:
            for reference in (*seen, *unseen):
                self.release(reference)
        else:
            super().restore(seen, unseen)

    def _usage(self) -> Usage:
        return self.topics[0].usage if self.topics else _NO_USAGE

    def _replace(self, reference: Reference, message: Message) -> None:
        held, replaced = self._covered[message.destination].held, reference.message
        held.acquire(message, REFERENCE_BYTES)
        reference.message = message
        held.release(replaced, REFERENCE_BYTES)

    def _wants(self, message: Message) -> bool:
        """Return True if a message matches the terms, and the consumer's user may read its topic."""
        if self._rights is not None and not self._rights.may_read(message.destination):
            return False
        return self._matches_terms(message)

    def _matches_terms(self, message: Message) -> bool:
        consumer = self.consumer
        if self.info.no_local and consumer and message.connection_id == consumer.connection.connection_id:
            return False
        return self._matches is None or self._matches(message, 0)

    def _acknowledge(
        self, message: Message, transaction: TransactionId | None, reason: RemovalReason, connection_id: str = ""
    ) -> None:
        if message.persistent:
            topic, key = message.destination, self.info.key
            self._store.acknowledge(topic, key, message.message_id, transaction, reason, connection_id)


def on_topic(info: DurableSubscription, topic: Destination) -> DurableSubscription:
    """Return the store's record of a subscription for one concrete topic."""
    return replace(info, destination=topic)
