"""A topic: each message to every subscription there is at that moment.

A topic stores a persistent message only while durable subscriptions (see `durable`) want it kept.
"""

import logging
from collections import deque
from collections.abc import Sequence

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.durable import Durable
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.transaction import LocalTransactionId

_log = logging.getLogger(__name__)


class Topic:
    """One topic."""

    __slots__ = ("_store", "destination", "durables", "gate", "subscriptions")

    def __init__(self, destination: Destination, *, store: MessageStore) -> None:
        self.destination = destination
        self.subscriptions: list[TopicSubscription] = []
        self.durables: list[Durable] = []
        self.gate = Gate(self.publish)
        self._store = store

    def stores(self, message: Message) -> bool:
        """Tell whether a message may have to outlive the process: the store knows for whom."""
        return message.persistent and not self.destination.is_temporary

    def send(self, message: Message) -> None:
        """Store a message if a durable subscription needs it to last, and hand it out, unless it is here already."""
        if not (message.persistent and self.durables) or self._store.add(message):
            self.gate.admit(message)
        else:
            _log.info("%s is on %s already", message.message_id, self.destination)

    def publish(self, message: Message) -> None:
        """Give every subscription its copy."""
        for subscription in self.subscriptions:
            subscription.publish(message)
        for durable in self.durables:
            durable.publish(message)


class TopicSubscription:
    """The backlog of one non-durable topic consumer: bounded, and gone with it.

    What does not fit into the consumer's window waits here; when more than `pending_limit` messages wait, the oldest
    is dropped (ActiveMQ's `constantPendingMessageLimitStrategy`), so that a slow reader costs bounded memory.
    """

    __slots__ = ("_clock", "_consumer", "_dead_letters", "_dropped", "_limit", "_next_sequence", "_pending", "_topics")

    def __init__(self, consumer: Consumer, *, dead_letters: DeadLetters, clock: Clock, pending_limit: int) -> None:
        self._consumer = consumer
        self._pending: deque[Reference] = deque()
        self._next_sequence = 0
        self._dead_letters = dead_letters
        self._clock = clock
        self._limit = pending_limit
        self._dropped = 0
        self._topics: list[Topic] = []
        consumer.sources.append(self)

    def join(self, topic: Topic) -> None:
        """Get what is sent to a topic from now on."""
        topic.subscriptions.append(self)
        self._topics.append(topic)

    def detach(self, consumer: Consumer) -> None:
        """Leave the topics; what waits is gone."""
        for topic in self._topics:
            topic.subscriptions.remove(self)
        self._pending.clear()

    def publish(self, message: Message) -> None:
        """Deliver a message, or let it wait."""
        consumer = self._consumer
        if not consumer.accepts(message):
            return
        reference = Reference(message, self, self._next_sequence)
        self._next_sequence += 1
        if not self._pending and consumer.has_room:
            self._offer(reference)
            return
        self._pending.append(reference)
        # The window counts too: a client that is merely paused may have as much waiting as one that is not.
        room = max(0, consumer.prefetch - len(consumer.outstanding))
        if self._limit >= 0 and len(self._pending) > self._limit + room:
            self._drop_oldest()

    def dispatch(self) -> None:
        """Deliver what waits and fits."""
        while self._pending and self._consumer.has_room:
            self._offer(self._pending.popleft())

    def forget(self, reference: Reference, transaction: LocalTransactionId | None) -> None:
        """Nothing is stored for a non-durable subscription."""

    def settle(self, reference: Reference) -> None:
        """Drop a reference whose acknowledgement counts."""
        reference.state = State.SETTLED

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Nothing outlives the subscription."""

    def reject(self, reference: Reference, cause: str) -> None:
        """Drop a rejected message: other subscriptions have their own (ActiveMQ has no dead letter here either)."""
        _log.debug("%s rejected %s: %s", self._consumer.connection.connection_id, reference.message.message_id, cause)
        reference.state = State.SETTLED

    def _offer(self, reference: Reference) -> None:
        if reference.message.is_expired(self._clock()):
            return
        reference.state = State.DISPATCHED
        self._consumer.offer(reference)

    def _drop_oldest(self) -> None:
        dropped = self._pending.popleft()
        if not self._dropped:
            _log.warning(
                "consumer of %s on connection %s is too slow: more than %d messages wait, the oldest are dropped",
                self._consumer.request.destination,
                self._consumer.connection.connection_id,
                self._limit,
            )
        self._dropped += 1
        self._dead_letters.bury(dropped.message, f"TopicSubDiscard. {self._consumer.connection.connection_id}")
