"""The broker's core: which destinations, durable subscriptions and clients there are, and who meets whom.

No I/O and no clock of its own: it appends to a store, calls consumers' `deliver`, and asks the clock it was given.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pybroker.broker.core.browser import Snapshot
from pybroker.broker.core.connection import Connection
from pybroker.broker.core.consumer import Consumer, Matcher, matcher
from pybroker.broker.core.deadletter import DEAD_LETTER_QUEUE, DeadLetters
from pybroker.broker.core.durable import Durable, on_topic
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.reference import State
from pybroker.broker.core.topic import Topic, TopicSubscription
from pybroker.broker.domain.destination import Destination, DestinationType, matches
from pybroker.broker.domain.errors import (
    ClientError,
    InvalidClientId,
    InvalidDestination,
    InvalidSelector,
    SubscriptionInUse,
)
from pybroker.broker.domain.ports import Clock, Deliver, MessageStore, Recovery, Throttle
from pybroker.broker.domain.subscription import (
    BROWSER_PREFETCH,
    DURABLE_PREFETCH,
    QUEUE_PREFETCH,
    TOPIC_PREFETCH,
    ConsumerRequest,
    DurableSubscription,
)

_log = logging.getLogger(__name__)

_Kind = TypeVar("_Kind", Queue, Topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules an operator can change.

    Attributes:
        max_redeliveries: how often a message may come back before it is dead-lettered; -1 for ever. JMS clients of
            ActiveMQ stop after 6.
        topic_pending_limit: messages that may wait for a slow topic consumer beyond its window; -1 without limit.
            ActiveMQ's stock configuration has 1000.
        unwritten_bytes_max: what may wait for the disk before producers are slowed down: four full journal batches.
        destinations_max: how many queues and topics clients may create.
    """

    max_redeliveries: int = 6
    topic_pending_limit: int = 1000
    unwritten_bytes_max: int = 16 << 20
    destinations_max: int = 100_000


class Broker:
    """The core; implements the port of that name."""

    def __init__(self, name: str, *, store: MessageStore, clock: Clock, policy: Policy | None = None) -> None:
        self.name = name
        self.store = store
        self.clock = clock
        self.policy = policy or Policy()
        self.dead_letters = DeadLetters(target=self.target, clock=clock)
        self.queues: dict[Destination, Queue] = {}
        self.topics: dict[Destination, Topic] = {}
        self.durables: dict[str, Durable] = {}
        self._clients: dict[str, Connection] = {}
        self._owners: dict[Destination, Connection] = {}
        self._queue_patterns: dict[Consumer, None] = {}
        self._topic_patterns: dict[Consumer, TopicSubscription] = {}
        self._temporary_count = 0
        self.is_stopping = False
        self.abandoned = False

    # ------------------------------------------------------------ life

    def recover(self) -> None:
        """Take over what the store holds. Blocks; called once, before the first client."""
        self.load(self.store.recover())

    def load(self, recovery: Recovery) -> None:
        """Take over what the store returned; `recover` for those that call `MessageStore.recover` in a thread.

        After a crash nobody knows what consumers have seen, so everything recovered counts as redelivered once.
        """
        for destination, messages in recovery.queues.items():
            if destination.is_temporary:  # of a connection that is no more
                self.store.remove_destination(destination)
                continue
            queue = self._queue(destination)
            for message in messages:
                queue.place(message, _seen(recovery, message.message_id))
        concrete = [backlog for backlog in recovery.backlogs if not backlog.subscription.destination.is_pattern]
        for backlog in concrete:  # all topics first: a new topic is joined to the subscriptions that match it
            self._topic(backlog.subscription.destination)
        for backlog in recovery.backlogs:
            if backlog.subscription.key not in self.durables:
                self._new_durable(backlog.subscription, _recovered_matcher(backlog.subscription))
        for backlog in concrete:
            durable = self.durables[backlog.subscription.key]
            self._join(durable, self._topic(backlog.subscription.destination))
            for message in backlog.messages:
                durable.append(message, _seen(recovery, message.message_id))
        for durable in self.durables.values():
            self._join_matching(durable)

    def delivered(self) -> Iterator[str]:
        """Yield the ids of messages that are not settled and that a consumer has seen, for `MessageStore.close`."""
        for source in self._backlogs():
            for reference in (*source.in_flight(), *source.pending):
                seen = reference.redelivery_count > 0 or reference.state is State.DISPATCHED
                if seen and reference.message.persistent:
                    yield reference.message.message_id

    def expire(self) -> None:
        """Let go of waiting messages past their time; called every now and then, for destinations nobody reads."""
        for source in self._backlogs():
            source.expire()

    def quiesce(self) -> None:
        """Deliver nothing any more: clients are about to leave, and what one leaves must not go to the next."""
        self.is_stopping = True
        for connection in self._clients.values():
            connection.pause()

    def abandon(self) -> None:
        """Change nothing any more: the store is not ours to write to, and clients are being cut off."""
        self.abandoned = True

    @property
    def is_behind(self) -> bool:
        """True when so much waits for the disk that producers must be slowed down."""
        return self.store.unwritten_bytes > self.policy.unwritten_bytes_max

    # ------------------------------------------------------------ clients

    def connect(self, connection_id: str, client_id: str, throttle: Throttle) -> Connection:
        """Admit a client."""
        if client_id in self._clients:
            raise InvalidClientId(f"Broker: {self.name} - Client: {client_id} already connected")
        connection = Connection(self, connection_id, client_id, throttle)
        self._clients[client_id] = connection
        return connection

    def disconnect(self, connection: Connection) -> None:
        """Forget a client that closed, and its temporary destinations with all that is on them."""
        self._clients.pop(connection.client_id, None)
        for destination in connection.temporaries:
            self._owners.pop(destination, None)
            self.queues.pop(destination, None)
            self.topics.pop(destination, None)

    # ------------------------------------------------------------ destinations

    def target(self, destination: Destination) -> Queue | Topic:
        """Return the destination a message goes to, creating it on first use.

        Raises:
            InvalidDestination: a temporary destination that is gone.
            ClientError: too many destinations.
        """
        existing = (self.queues if destination.is_queue else self.topics).get(destination)
        if existing is not None:
            return existing
        self._admit(destination)
        return self._queue(destination) if destination.is_queue else self._topic(destination)

    def create_temporary(self, owner: Connection, kind: DestinationType) -> Destination:
        """Create a temporary destination."""
        self._temporary_count += 1
        destination = Destination(kind, f"{owner.connection_id}:{self._temporary_count}")
        self._owners[destination] = owner
        self.target(destination)
        return destination

    # ------------------------------------------------------------ consumers

    def subscribe(
        self, connection: Connection, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None
    ) -> Consumer:
        """Add a consumer to what it asks for; see the port."""
        destination = request.destination
        if destination.is_temporary and self._owners.get(destination) is not connection:
            raise InvalidDestination(f"Cannot consume from {destination}: it belongs to another connection, or is gone")
        if request.browser:
            return self._browse(connection, request, deliver, browsed or _nothing)
        if request.subscription_name is not None:
            return self._subscribe_durable(connection, request, deliver, request.subscription_name)
        if destination.is_queue:
            return self._subscribe_queue(connection, request, deliver)
        return self._subscribe_topic(connection, request, deliver)

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription.

        Raises:
            InvalidDestination: there is none of that name.
            SubscriptionInUse: it is active.
        """
        durable = self._durable(client_id, subscription_name)
        if durable is None:
            raise InvalidDestination(
                f"No durable subscription exists for clientID: {client_id} and subscriptionName: {subscription_name}"
            )
        if durable.consumer is not None:
            raise SubscriptionInUse("Durable consumer is in use")
        self._drop_durable(durable)

    def forget(self, consumer: Consumer) -> None:
        """Drop a consumer that closed from those that wait for new destinations."""
        self._queue_patterns.pop(consumer, None)
        self._topic_patterns.pop(consumer, None)

    # ------------------------------------------------------------ private: consumers

    def _backlogs(self) -> list[Queue | Durable]:
        return [*self.queues.values(), *self.durables.values()]

    def _browse(
        self, connection: Connection, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None]
    ) -> Consumer:
        if not request.destination.is_queue:
            raise ClientError(f"Only queues can be browsed, and {request.destination} is a topic")
        consumer = Consumer(connection, request, deliver, prefetch=_prefetch(request, BROWSER_PREFETCH))
        Snapshot(_matching(request.destination, self.queues), consumer, browsed)
        return consumer

    def _subscribe_queue(self, connection: Connection, request: ConsumerRequest, deliver: Deliver) -> Consumer:
        consumer = Consumer(connection, request, deliver, prefetch=_prefetch(request, QUEUE_PREFETCH))
        if request.destination.is_pattern:
            self._queue_patterns[consumer] = None
        else:
            self.target(request.destination)
        for queue in _matching(request.destination, self.queues):
            queue.attach(consumer)
        return consumer

    def _subscribe_topic(self, connection: Connection, request: ConsumerRequest, deliver: Deliver) -> Consumer:
        consumer = Consumer(connection, request, deliver, prefetch=_prefetch(request, TOPIC_PREFETCH))
        limit = self.policy.topic_pending_limit if request.pending_limit is None else request.pending_limit
        subscription = TopicSubscription(
            consumer, dead_letters=self.dead_letters, clock=self.clock, pending_limit=limit
        )
        if request.destination.is_pattern:
            self._topic_patterns[consumer] = subscription
        else:
            self.target(request.destination)
        for topic in _matching(request.destination, self.topics):
            subscription.join(topic)
        return consumer

    def _subscribe_durable(
        self, connection: Connection, request: ConsumerRequest, deliver: Deliver, name: str
    ) -> Consumer:
        destination = request.destination
        if destination.is_temporary:
            raise InvalidDestination("A durable subscription cannot be created for a temporary topic.")
        if not destination.is_topic:
            raise InvalidDestination("Invalid Subscription: cannot durably subscribe to a Queue destination!")
        info = DurableSubscription(
            client_id=connection.client_id,
            name=name,
            destination=destination,
            subscribed_destination=destination,
            selector=request.selector,
            no_local=request.no_local,
        )
        durable = self._durable(connection.client_id, name)
        if durable is not None and durable.consumer is not None:
            raise SubscriptionInUse(
                f"Durable consumer is in use for client: {connection.client_id} and subscriptionName: {name}"
            )
        # Made first, because a bad selector is found here, before an old subscription is given up for the new one.
        consumer = Consumer(connection, request, deliver, prefetch=_prefetch(request, DURABLE_PREFETCH))
        if not destination.is_pattern:
            self.target(destination)
        if durable is not None and not durable.is_same(info):
            self._drop_durable(durable)
            durable = None
        if durable is None:
            durable = self._new_durable(info, matcher(info.selector))
            self._join_matching(durable)
            if not durable.topics:
                self.store.subscribe(info)
        durable.attach(consumer)
        return consumer

    def _durable(self, client_id: str, name: str) -> Durable | None:
        """Return a durable subscription.

        Raises:
            SubscriptionInUse: KahaDB's key, `<client id>:<name>`, is that of another client's subscription.
        """
        durable = self.durables.get(f"{client_id}:{name}")
        if durable is not None and durable.info.client_id != client_id:
            raise SubscriptionInUse(
                f"the store cannot tell {client_id}:{name} from subscription {durable.info.name} of client "
                f"{durable.info.client_id}: choose a name without a colon"
            )
        return durable

    def _new_durable(self, info: DurableSubscription, matches: Matcher | None) -> Durable:
        durable = self.durables[info.key] = Durable(
            info,
            matches,
            store=self.store,
            dead_letters=self.dead_letters,
            clock=self.clock,
            max_redeliveries=self.policy.max_redeliveries,
        )
        return durable

    def _join(self, durable: Durable, topic: Topic) -> None:
        topic.durables.append(durable)
        durable.topics.append(topic)

    def _join_matching(self, durable: Durable) -> None:
        """Have a subscription cover, in the store too, each topic it matches and is not on yet."""
        for topic in _matching(durable.info.subscribed_destination, self.topics):
            if durable not in topic.durables:
                self.store.subscribe(on_topic(durable.info, topic.destination))
                self._join(durable, topic)

    def _drop_durable(self, durable: Durable) -> None:
        del self.durables[durable.info.key]
        for topic in durable.topics:
            topic.durables.remove(durable)
            self.store.unsubscribe(topic.destination, durable.info.key)
        if durable.info.subscribed_destination.is_pattern:
            self.store.unsubscribe(durable.info.subscribed_destination, durable.info.key)

    # ------------------------------------------------------------ private: destinations

    def _queue(self, destination: Destination) -> Queue:
        if (queue := self.queues.get(destination)) is None:
            queue = self.queues[destination] = Queue(
                destination,
                store=self.store,
                dead_letters=self.dead_letters,
                clock=self.clock,
                max_redeliveries=self.policy.max_redeliveries,
            )
            for consumer in self._queue_patterns:
                if _covers(consumer.request.destination, destination):
                    queue.attach(consumer)
        return queue

    def _topic(self, destination: Destination) -> Topic:
        if (topic := self.topics.get(destination)) is None:
            topic = self.topics[destination] = Topic(destination, store=self.store)
            for consumer, subscription in self._topic_patterns.items():
                if _covers(consumer.request.destination, destination):
                    subscription.join(topic)
            for durable in self.durables.values():
                if _covers(durable.info.subscribed_destination, destination):
                    self._join_matching(durable)
        return topic

    def _admit(self, destination: Destination) -> None:
        """Make sure that clients may create a destination. What is stored, and the dead letter queue, need no leave."""
        if destination.is_temporary and destination not in self._owners:
            raise InvalidDestination(f"The destination {destination} does not exist.")
        count = len(self.queues) + len(self.topics)
        if count >= self.policy.destinations_max and destination != DEAD_LETTER_QUEUE:
            raise ClientError(
                f"{destination} cannot be created: there are {self.policy.destinations_max} destinations already"
            )


def _recovered_matcher(info: DurableSubscription) -> Matcher | None:
    """Return a stored subscription's selector; one that this broker refuses must not keep it from starting.

    Such a subscription, an ActiveMQ's with an XPath say, keeps every message for whoever understands it.
    """
    try:
        return matcher(info.selector)
    except InvalidSelector as error:
        _log.error("durable subscription %s keeps all messages, and cannot be activated here: %s", info.key, error)
        return None


def _covers(wanted: Destination, destination: Destination) -> bool:
    """Tell whether a name or pattern means that destination."""
    return wanted.type is destination.type and matches(wanted.name, destination.name)


def _matching(wanted: Destination, existing: Mapping[Destination, _Kind]) -> list[_Kind]:
    """Return the existing destinations a name or pattern means."""
    if not wanted.is_pattern:
        return [existing[wanted]] if wanted in existing else []
    return [kind for destination, kind in existing.items() if _covers(wanted, destination)]


def _prefetch(request: ConsumerRequest, default: int) -> int:
    return default if request.prefetch is None else request.prefetch


def _seen(recovery: Recovery, message_id: str) -> int:
    """Return 1 when a consumer may have seen the message before, else 0."""
    return int(recovery.delivered is None or message_id in recovery.delivered)


def _nothing() -> None:
    """Do nothing, for a browser nobody tells the end of."""
