"""A durable subscription: a backlog that fills while its consumer is away.

Persistent messages wait in the store, and in memory as far as there is room; others in memory only (ActiveMQ's
`keepDurableSubsActive`). A subscription to a
wildcard covers several topics; the store keeps one record per topic, or one under the wildcard's own name while there
is no topic it covers.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pybroker.broker.core.consumer import Consumer, Matcher
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.paged_out_index import MessageRef
from pybroker.broker.core.paging import PAGE_BYTES_MAX, severity
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.core.retained_history import RetainedHistory
from pybroker.broker.core.search import TRANSITIONS, Search, SearchEvent
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.core.usage import SharedUsage, Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId

_log = logging.getLogger(__name__)

_IDLE: Final = Search.IDLE

_NO_USAGE = Usage()
"""Of a subscription that covers no topic: it holds nothing."""


class CoveredTopic:
    """A topic as far as the durable subscriptions that cover it know it.

    Attributes:
        destination: which.
        policy: its rules.
        durables: the subscriptions.
        held: counts what waits for its subscriptions in memory.
        history: what it remembers for retroactive consumers.
    """

    __slots__ = ("destination", "durables", "held", "history", "policy")

    def __init__(self, destination: Destination, *, clock: Clock, policy: DestinationPolicy, usage: Usage) -> None:
        self.destination = destination
        self.policy = policy
        self.durables: list[Durable] = []
        self.held = SharedUsage(usage)
        self.history = RetainedHistory(policy.subscription_recovery_policy, clock)

    @property
    def usage(self) -> Usage:
        """The memory that its messages take."""
        return self.held.usage

    def is_retroactive_for(self, consumer: Consumer) -> bool:
        """Tell whether a consumer gets the topic's recent past."""
        return consumer.request.retroactive or self.policy.always_retroactive


class Durable(StoredSource):
    """One durable subscription, active or not; the backlog of its consumer."""

    __slots__ = ("_held", "_is_closed", "_matches", "consumer", "info", "topics")

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
        """Begin without topics and consumer; `matches` is the compiled selector, None for every message."""
        super().__init__(store=store, dead_letters=dead_letters, clock=clock, policy=policy, subscription_key=info.key)
        self.info = info
        self.topics: list[CoveredTopic] = []
        self.consumer: Consumer | None = None
        self._held: dict[Destination, SharedUsage] = {}
        self._matches = matches
        self._is_closed = False

    def is_same(self, info: DurableSubscription) -> bool:
        """Tell whether a consumer that comes back asks for the same messages."""
        mine = (self.info.subscribed_destination, self.info.selector, self.info.no_local)
        return mine == (info.subscribed_destination, info.selector, info.no_local)

    def attach(self, consumer: Consumer) -> None:
        """Give the subscription its consumer, who gets its topics' recent past if it wants that and nothing waits."""
        self.consumer = consumer
        consumer.sources.append(self)
        if not self.pending.count:
            for topic in self.topics:
                if topic.is_retroactive_for(consumer):
                    self._recall(topic)

    def detach(self, consumer: Consumer) -> None:
        """Take the consumer away; what it holds comes back by `restore`."""
        self.consumer = None

    def recover_stored(self, topic: Destination, message_ids: Sequence[str]) -> None:
        """Begin with what a topic stores for others; it can be read, and delivered, once all of it is on disk."""
        self.recover(topic, message_ids, frozenset())
        self._progress = TRANSITIONS.after(self._progress, SearchEvent.YIELD)
        self._store.when_durable(self._continue_dispatch)

    def is_on(self, topic: Destination) -> bool:
        """Tell whether it gets a topic's messages."""
        return topic in self._held

    def join(self, topic: CoveredTopic) -> None:
        """Get what is sent to a topic from now on."""
        self.topics.append(topic)
        topic.durables.append(self)
        self._held[topic.destination] = topic.held
        self.paging = topic.usage.paging
        self.paging.backlogs.add(self)
        self._recompute_watermark()

    def close(self) -> None:
        """Leave the topics, and give back the memory that the backlog takes: the subscription is deleted."""
        self._is_closed = True
        self.paging.backlogs.discard(self)
        for reference in self.pending.clear():
            reference.state = State.SETTLED
            self._held[reference.message.destination].release(reference.message)
        for topic in self.topics:
            topic.durables.remove(self)

    def publish(self, message: Message) -> None:
        """Deliver a message, or let it wait."""
        if not self._wants(message):
            self._acknowledge(message, None, consumed_by="")
            return
        self.append(message)
        consumer = self.consumer
        if consumer is not None and consumer.has_room:
            self.dispatch()

    def append(self, message: Message) -> None:
        """Add a message at the end."""
        self.pending.append(Reference(message, self, self._next_sequence))
        self._next_sequence += 1
        held = self._held[message.destination]
        held.acquire(message)
        self._record_expiry(message)
        usage = held.usage
        if usage.used > self._page_out_at or usage.broker.used > usage.broker.watermark:
            self._reduce_memory(usage)

    def in_flight(self) -> list[Reference]:
        """Return what its consumer holds unsettled, oldest first."""
        return list(self.consumer.outstanding) if self.consumer else []

    # ------------------------------------------------------------ source

    def dispatch(self, consumer: Consumer | None = None) -> None:
        """Deliver what waits and fits. What was read back leaves in turns, a page in each."""
        pending, receiver = self.pending, self.consumer
        room = PAGE_BYTES_MAX
        while pending.count and receiver is not None and receiver.has_room and self._progress is _IDLE:
            if is_paged := pending.is_paged:
                if room <= 0 and self._defer_dispatch():
                    break
                try:
                    if not pending.fill():
                        break
                except StoreUnavailable as error:
                    _log.log(severity(error), "%s is not served further now: %s", self.info.key, error)
                    break
            reference = pending.pop(State.DISPATCHED)
            if is_paged:
                room -= len(reference.message.data)
            if reference.message.expiration and self.is_expired(reference.message):
                self.expire(reference)
            else:
                receiver.offer(reference)

    def read(self, refs: Sequence[MessageRef]) -> tuple[list[Reference], int]:
        """Return references to messages in the store that the subscription wants; see `Pager`.

        The store keeps a topic's message for all its subscriptions. That this one refuses it is appended when it is
        published; a crash in between, and some stores of an ActiveMQ, leave refused messages, which are settled here.
        """
        found, looked_at = super().read(refs)
        if self._matches is None and not self.info.no_local:
            return found, looked_at
        wanted: list[Reference] = []
        for reference in found:
            message = reference.message
            if self._wants(message):
                message.decoded = None  # who waits, waits small
                wanted.append(reference)
            else:
                self._acknowledge(message, None, consumed_by="")
        return wanted, looked_at

    def count_in(self, references: Sequence[Reference]) -> None:
        """Count what has come into memory."""
        super().count_in(references)
        for reference in references:
            self._held[reference.message.destination].acquire(reference.message)

    def count_out(self, references: Sequence[Reference]) -> None:
        """Count what has left memory. Producers that waited for it may go on from inside."""
        for reference in references:
            self._held[reference.message.destination].release(reference.message)

    def forget(self, reference: Reference, transaction: TransactionId | None, consumed_by: str | None) -> None:
        """Journal that the subscription is done with a message."""
        self._acknowledge(reference.message, transaction, consumed_by)

    def settle(self, reference: Reference) -> None:
        """Drop a reference whose acknowledgement counts, and what it took in memory."""
        reference.state = State.SETTLED
        self._held[reference.message.destination].release(reference.message)

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Put references back into their places, or drop them if the subscription was deleted meanwhile."""
        if self._is_closed:
            for reference in (*seen, *unseen):
                self.settle(reference)
        else:
            super().restore(seen, unseen)

    def _usage(self) -> Usage:
        return self.topics[0].usage if self.topics else _NO_USAGE

    def _wants(self, message: Message) -> bool:
        consumer = self.consumer
        if self.info.no_local and consumer and message.connection_id == consumer.connection.connection_id:
            return False
        return self._matches is None or self._matches(message, 0)

    def _recall(self, topic: CoveredTopic) -> None:
        """Append a topic's recent past. It is in memory only: the store has given it away long ago."""
        for message in topic.history:
            if self._wants(message):
                self.append(replace(message, persistent=False))

    def _acknowledge(self, message: Message, transaction: TransactionId | None, consumed_by: str | None) -> None:
        if message.persistent:
            self._store.acknowledge(
                message.destination, self.info.key, message.message_id, transaction, consumed_by=consumed_by
            )


def on_topic(info: DurableSubscription, topic: Destination) -> DurableSubscription:
    """Return the store's record of a subscription for one concrete topic."""
    return replace(info, destination=topic)
