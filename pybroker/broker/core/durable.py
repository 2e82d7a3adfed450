"""A durable subscription: a backlog that fills while its consumer is away.

Persistent messages wait in the store, others in memory only (ActiveMQ's `keepDurableSubsActive`). A subscription to a
wildcard covers several topics; the store keeps one record per topic, or one under the wildcard's own name while there
is no topic it covers.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from pybroker.broker.core.consumer import Consumer, Matcher
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId

if TYPE_CHECKING:
    from pybroker.broker.core.topic import Topic


class Durable(StoredSource):
    """One durable subscription, active or not; the backlog of its consumer."""

    __slots__ = ("_matches", "consumer", "info", "topics")

    def __init__(
        self,
        info: DurableSubscription,
        matches: Matcher | None,
        *,
        store: MessageStore,
        dead_letters: DeadLetters,
        clock: Clock,
        max_redeliveries: int,
    ) -> None:
        """Begin without topics and consumer; `matches` is the compiled selector, None for every message."""
        super().__init__(store=store, dead_letters=dead_letters, clock=clock, max_redeliveries=max_redeliveries)
        self.info = info
        self.topics: list[Topic] = []
        self.consumer: Consumer | None = None
        self._matches = matches

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
            self._acknowledge(message, None)
            return
        self.append(message)
        if consumer is not None and consumer.has_room:
            self.dispatch()

    def in_flight(self) -> list[Reference]:
        """Return what its consumer holds unsettled, oldest first."""
        return list(self.consumer.outstanding) if self.consumer else []

    # ------------------------------------------------------------ source

    def dispatch(self) -> None:
        """Deliver what waits and fits."""
        consumer = self.consumer
        if consumer is None or not len(self.pending):
            return
        for reference in self.pending.scan():
            if not consumer.has_room:
                break
            if not self.is_dead(reference):
                self.pending.take(reference, State.DISPATCHED)
                consumer.offer(reference)
        self.pending.sweep()

    def forget(self, reference: Reference, transaction: LocalTransactionId | None) -> None:
        """Journal that the subscription is done with a message."""
        self._acknowledge(reference.message, transaction)

    def _acknowledge(self, message: Message, transaction: LocalTransactionId | None) -> None:
        if message.persistent:
            self._store.acknowledge(message.destination, self.info.key, message.message_id, transaction)


def on_topic(info: DurableSubscription, topic: Destination) -> DurableSubscription:
    """Return the store's record of a subscription for one concrete topic."""
    return replace(info, destination=topic)
