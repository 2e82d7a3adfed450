"""Queues and topics that announce what becomes of each message, where the policy asks for advisories about that.

All others are of the base classes, and pay nothing for it. These pay little while no observer uses the events: while no
consumer listens to the advisories.

Source: ActiveMQ 5.17, `BaseDestination`: `messageDelivered`, `messageConsumed`, `slowConsumer`,
`onMessageWithNoConsumers`.
"""

from functools import partial

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.delivered import Bodiless
from pybroker.broker.core.observers import MessageEvents, Observers
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.retained_messages import RetainedMessages
from pybroker.broker.core.subscription_groups import SubscriptionIndex
from pybroker.broker.core.topic import Topic
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.ports import Clock, MessageStore


def is_watched(policy: DestinationPolicy) -> bool:
    """Return True if a policy asks for advisories about each message, or about slow consumers of a queue."""
    return (
        policy.advisory_for_delivery
        or policy.advisory_for_consumed
        or policy.advisory_for_slow_consumers
        or policy.send_advisory_if_no_consumers
    )


class WatchedQueue(Queue):
    """A queue that announces events to the observers."""

    __slots__ = ("_events", "_filled", "_slow")

    def __init__(
        self,
        destination: Destination,
        *,
        store: MessageStore,
        dead_letters: DeadLetters,
        clock: Clock,
        policy: DestinationPolicy,
        usage: Usage,
        observers: Observers,
    ) -> None:
        super().__init__(destination, store=store, dead_letters=dead_letters, clock=clock, policy=policy, usage=usage)
        self._events = MessageEvents(destination, observers)
        self._filled: set[BrokerConsumer] = set()
        """The consumers whose windows a delivery has filled, and that were not announced since."""
        self._slow: set[BrokerConsumer] = set()
        """The consumers that were announced as slow since a message was last sent while none waited."""

    def enqueue(self, message: Message, redelivery_count: int = 0) -> None:
        """Deliver or append a message; see `Queue`."""
        if self._slow and not self.pending.count:
            self._slow.clear()
        if not self._events.are_used:
            super().enqueue(message, redelivery_count)
            return
        policy, announce = self.policy, self._events.announce
        if policy.send_advisory_if_no_consumers and not message.persistent and not self.consumer_set.all:
            announce(partial(_message_unclaimed, message))
        super().enqueue(message, redelivery_count)
        if policy.advisory_for_delivery:
            announce(partial(_message_accepted, message))
        if policy.advisory_for_slow_consumers and self._filled and self.pending.count:
            self._announce_slow()

    def settle(self, reference: Reference) -> None:
        """Announce that a message was acknowledged; see `Queue`."""
        super().settle(reference)
        if self._events.are_used and self.policy.advisory_for_consumed:
            self._events.announce(partial(_message_consumed, reference.message))

    def detach(self, consumer: BrokerConsumer) -> None:
        """Remove a consumer; see `Queue`."""
        self._slow.discard(consumer)
        self._filled.discard(consumer)
        super().detach(consumer)

    def drop_body(self, reference: Reference, bodiless: Bodiless) -> None:
        """Keep the body of a delivered message if the advisory about its acknowledgement may need the message.

        It may although no consumer listens to it now: one that begins before the acknowledgement gets the advisory.
        """
        if not self.policy.advisory_for_consumed:
            super().drop_body(reference, bodiless)

    def _deliver(self, reference: Reference, consumer: BrokerConsumer) -> None:
        super()._deliver(reference, consumer)
        if not consumer.has_capacity and consumer not in self._slow:
            self._filled.add(consumer)  # also while no observer uses the events: it may once messages have to wait

    def _announce_slow(self) -> None:
        """Announce the consumers without capacity, as messages wait: each once, until no message has to wait."""
        filled, self._filled = self._filled, set()
        for consumer in filled:
            if not consumer.has_capacity:
                self._slow.add(consumer)
                self._events.announce(partial(_consumer_slow, consumer, self.destination))


class WatchedTopic(Topic):
    """A topic that announces events to the observers."""

    __slots__ = ("_events",)

    def __init__(
        self,
        destination: Destination,
        *,
        store: MessageStore,
        clock: Clock,
        policy: DestinationPolicy,
        usage: Usage,
        index: SubscriptionIndex,
        observers: Observers,
        retained: RetainedMessages | None = None,
    ) -> None:
        super().__init__(
            destination, store=store, clock=clock, policy=policy, usage=usage, index=index, retained=retained
        )
        self._events = MessageEvents(destination, observers)

    def publish(self, message: Message) -> None:
        """Pass a message to every subscription; see `Topic`."""
        if not self._events.are_used:
            super().publish(message)
            return
        policy, announce = self.policy, self._events.announce
        if policy.send_advisory_if_no_consumers and not message.persistent and not self.is_in_use:
            announce(partial(_message_unclaimed, message))
        super().publish(message)
        if policy.advisory_for_delivery:
            announce(partial(_message_accepted, message))

    def consumed(self, message: Message) -> None:
        """Announce that a durable subscription has acknowledged a message."""
        if self._events.are_used and self.policy.advisory_for_consumed:
            self._events.announce(partial(_message_consumed, message))


def _message_unclaimed(message: Message, observer: Observer) -> None:
    observer.message_unclaimed(message)


def _message_accepted(message: Message, observer: Observer) -> None:
    observer.message_accepted(message)


def _message_consumed(message: Message, observer: Observer) -> None:
    observer.message_consumed(message)


def _consumer_slow(consumer: BrokerConsumer, destination: Destination, observer: Observer) -> None:
    observer.consumer_slow(consumer, destination)
