"""A durable subscription: a backlog that fills while its consumer is away.

Persistent messages wait in the store, others in memory only (ActiveMQ's `keepDurableSubsActive`). A subscription to a
wildcard covers several topics; the store keeps one record per topic.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pybroker.broker.core.consumer import Consumer, matcher
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.pending import Pending
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId

if TYPE_CHECKING:
    from pybroker.broker.core.topic import Topic


class Durable:
    """One durable subscription, active or not; the backlog (`Source`) of its consumer."""

    __slots__ = (
        "_clock",
        "_dead_letters",
        "_matches",
        "_next_sequence",
        "_store",
        "consumer",
        "info",
        "pending",
        "topics",
    )

    def __init__(
        self, info: DurableSubscription, *, store: MessageStore, dead_letters: DeadLetters, clock: Clock
    ) -> None:
        self.info = info
        self.topics: list[Topic] = []
        self.consumer: Consumer | None = None
        self.pending = Pending()
        self._next_sequence = 0
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._matches = matcher(info.selector)

    def is_same(self, info: DurableSubscription) -> bool:
        """Tell whether a consumer that comes back asks for the same messages."""
        mine = (self.info.subscribed_destination, self.info.selector, self.info.no_local)
        return mine == (info.subscribed_destination, info.selector, info.no_local)

    def attach(self, consumer: Consumer) -> None:
        """Give the subscription its consumer."""
        self.consumer = consumer
        consumer.sources.append(self)

    def detach(self, consumer: Consumer) -> None:
        """Take the consumer away; what it holds comes back by `restore`."""
        self.consumer = None

    def publish(self, message: Message) -> None:
        """Deliver a message, or let it wait."""
        consumer = self.consumer
        own = self.info.no_local and consumer and message.connection_id == consumer.connection.connection_id
        if own or (self._matches is not None and not self._matches(message, 0)):
            self._forget(message, None)
            return
        self.enqueue(message)
        if consumer is not None and consumer.has_room:
            self.dispatch()

    def enqueue(self, message: Message, redelivery_count: int = 0) -> None:
        """Add a message that is known to be wanted."""
        self.pending.append(Reference(message, self, self._next_sequence, redelivery_count))
        self._next_sequence += 1

    def in_flight(self) -> list[Reference]:
        """Return what its consumer holds unsettled, oldest first."""
        return list(self.consumer.outstanding) if self.consumer else []

    def expire(self) -> None:
        """Let go of every waiting message that is past its time."""
        now = self._clock()
        for reference in self.pending.scan():
            if reference.message.is_expired(now):
                self._expired(reference)
        self.pending.sweep()

    # ------------------------------------------------------------ source

    def dispatch(self) -> None:
        """Deliver what waits and fits."""
        consumer = self.consumer
        if consumer is None or not len(self.pending):
            return
        for reference in self.pending.scan():
            if not consumer.has_room:
                break
            if reference.message.is_expired(self._clock()):
                self._expired(reference)
            else:
                self.pending.take(reference, State.DISPATCHED)
                consumer.offer(reference)
        self.pending.sweep()

    def forget(self, reference: Reference, transaction: LocalTransactionId | None) -> None:
        """Journal that the subscription is done with a message."""
        self._forget(reference.message, transaction)

    def settle(self, reference: Reference) -> None:
        """Drop a reference whose acknowledgement counts."""
        reference.state = State.SETTLED

    def restore(self, references: Sequence[Reference]) -> None:
        """Put references back into their places, counted as redelivered."""
        for reference in references:
            reference.redelivery_count += 1
            self.pending.restore(reference)
        self.dispatch()

    def reject(self, reference: Reference, cause: str) -> None:
        """Dead-letter a reference."""
        self._dead_letters.bury(reference.message, cause)
        self.forget(reference, None)
        reference.state = State.SETTLED

    # ------------------------------------------------------------ private

    def _forget(self, message: Message, transaction: LocalTransactionId | None) -> None:
        if message.persistent:
            self._store.acknowledge(message.destination, self.info.key, message.message_id, transaction)

    def _expired(self, reference: Reference) -> None:
        self.pending.take(reference, State.SETTLED)
        self._dead_letters.expire(reference.message)
        self.forget(reference, None)


def on_topic(info: DurableSubscription, topic: Destination) -> DurableSubscription:
    """Return the store's record of a subscription for one concrete topic."""
    return DurableSubscription(
        client_id=info.client_id,
        name=info.name,
        destination=topic,
        subscribed_destination=info.subscribed_destination,
        selector=info.selector,
        no_local=info.no_local,
    )
