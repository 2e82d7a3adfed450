"""A topic: each message to every subscription there is at that moment, and its recent past to those who ask for it.

A topic stores a persistent message only while durable subscriptions (see `durable`) want it kept.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pybroker.broker.core.consumer import Consumer, Source
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.durable import CoveredTopic
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.overflow import overflow
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, MessageStore
from pybroker.broker.domain.transaction import TransactionId

_log = logging.getLogger(__name__)

_DISPATCHED: Final = State.DISPATCHED
_SETTLED: Final = State.SETTLED

Discarded = Callable[["TopicSubscription", Message], None]
"""Told of each message dropped for a slow consumer."""


class Topic(CoveredTopic):
    """One topic."""

    __slots__ = ("_store", "gate", "subscriptions")

    def __init__(
        self, destination: Destination, *, store: MessageStore, clock: Clock, policy: DestinationPolicy, usage: Usage
    ) -> None:
        super().__init__(destination, clock=clock, policy=policy, usage=usage)
        self.subscriptions: list[TopicSubscription] = []
        self.gate = Gate(self.publish, store, usage.paging)
        self._store = store

    @property
    def is_in_use(self) -> bool:
        """True when somebody gets its messages, or will when it comes back."""
        return bool(self.subscriptions or self.durables)

    @property
    def is_kept_now(self) -> bool:
        """True while a durable subscription wants the messages stored."""
        return bool(self.durables)

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
        message = self.history.add(message)
        for subscription in self.subscriptions:
            subscription.publish(message)
        for durable in self.durables:
            durable.publish(message)

    def close(self) -> None:
        """Give back the memory it takes: it is deleted, with all it holds."""
        self.usage.close()


class TopicSubscription(Source):
    """The backlog of one non-durable topic consumer: bounded, and gone with it.

    What does not fit into the consumer's window waits here; when more than a limit waits, messages are dropped
    (ActiveMQ's `pendingMessageLimitStrategy`), so that a slow reader costs bounded memory.

    Attributes:
        dropped: how many.
    """

    __slots__ = (
        "_clock",
        "_consumer",
        "_dead_letters",
        "_discarded",
        "_limit",
        "_next_sequence",
        "_topics",
        "_waiting",
        "dropped",
    )

    def __init__(
        self,
        consumer: Consumer,
        *,
        dead_letters: DeadLetters,
        clock: Clock,
        policy: DestinationPolicy,
        discarded: Discarded | None = None,
    ) -> None:
        self.dropped = 0
        self._consumer = consumer
        self._waiting = overflow(policy.message_eviction_strategy)
        self._next_sequence = 0
        self._dead_letters = dead_letters
        self._clock = clock
        self._limit = _lower(policy.pending_limit(consumer.prefetch), consumer.request.pending_limit)
        self._discarded = discarded
        self._topics: dict[Destination, Topic] = {}
        consumer.sources.append(self)

    @property
    def consumer(self) -> Consumer:
        """Whose it is."""
        return self._consumer

    @property
    def topics(self) -> Iterable[Topic]:
        """Those it gets messages of."""
        return self._topics.values()

    def join(self, topic: Topic) -> None:
        """Get what is sent to a topic from now on, after its recent past if the consumer wants that."""
        self._topics[topic.destination] = topic
        if topic.is_retroactive_for(self._consumer):
            for message in topic.history:
                self.publish(message)
        topic.subscriptions.append(self)

    def detach(self, consumer: Consumer) -> None:
        """Leave the topics; what waits is gone."""
        while len(self._waiting):
            self._drop(self._waiting.popleft().message)
        for topic in self._topics.values():
            topic.subscriptions.remove(self)

    def publish(self, message: Message) -> None:
        """Deliver a message, or let it wait."""
        consumer = self._consumer
        if consumer.is_selective and not consumer.accepts(message):
            return
        reference = Reference(message, self, self._next_sequence)
        self._next_sequence += 1
        waiting = self._waiting
        if not waiting and len(consumer.outstanding) < consumer.window:
            if not message.expiration or not message.is_expired(self._clock()):
                reference.state = _DISPATCHED
                consumer.offer(reference)
            return
        waiting.append(reference)
        self._hold(message)
        # The window counts too: a client that is merely paused may have as much waiting as one that is not.
        room = max(0, consumer.prefetch - len(consumer.outstanding))
        if self._limit >= 0 and len(waiting) > self._limit + room:
            self._discard()

    def dispatch(self, consumer: Consumer | None = None) -> None:
        """Deliver what waits and fits."""
        waiting = self._waiting
        while waiting and self._consumer.has_room:
            reference = waiting.popleft()
            message = reference.message
            if not message.expiration or not message.is_expired(self._clock()):
                reference.state = _DISPATCHED
                self._consumer.offer(reference)
            self._drop(message)

    def forget(self, reference: Reference, transaction: TransactionId | None, consumed_by: str | None) -> None:
        """Nothing is stored for a non-durable subscription."""

    def settle(self, reference: Reference) -> None:
        """Drop a reference whose acknowledgement counts."""
        reference.state = _SETTLED

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Nothing outlives the subscription."""

    def reject(self, reference: Reference, cause: str) -> None:
        """Drop a rejected message: other subscriptions have their own (ActiveMQ has no dead letter here either)."""
        _log.debug("%s rejected %s: %s", self._consumer.connection.connection_id, reference.message.message_id, cause)
        reference.state = _SETTLED

    def expire(self, reference: Reference) -> None:
        """Drop it: a topic's messages are not dead-lettered for one subscription."""
        reference.state = _SETTLED

    def _discard(self) -> None:
        message = self._waiting.evict().message
        if not self.dropped:
            _log.warning(
                "consumer of %s on connection %s is too slow: more than %d messages wait, and some are dropped",
                self._consumer.request.destination,
                self._consumer.connection.connection_id,
                self._limit,
            )
        self.dropped += 1
        self._dead_letters.dead_letter(message, f"TopicSubDiscard. {self._consumer.connection.connection_id}")
        if self._discarded is not None:
            self._discarded(self, message)
        self._drop(message)

    def _hold(self, message: Message) -> None:
        if (topic := self._topics.get(message.destination)) is not None:  # else an advisory, replayed to newcomers
            topic.held.acquire(message)

    def _drop(self, message: Message) -> None:
        if (topic := self._topics.get(message.destination)) is not None:
            topic.held.release(message)


def _lower(limit: int, wanted: int | None) -> int:
    """Return a subscription's limit: a client may lower the policy's, not raise it."""
    if not wanted or wanted < 0:
        return limit
    return wanted if limit < 0 else min(limit, wanted)
