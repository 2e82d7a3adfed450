"""Advisories: what happens in the broker, told on topics to whoever asks.

```text
ActiveMQ.Advisory.Connection                                       ConnectionInfo, RemoveInfo
ActiveMQ.Advisory.Queue  .Topic  .TempQueue  .TempTopic            DestinationInfo: created, deleted
ActiveMQ.Advisory.Consumer.Queue.NAME   .Consumer.Topic.NAME       ConsumerInfo, RemoveInfo; consumerCount
ActiveMQ.Advisory.Producer.Queue.NAME   .Producer.Topic.NAME       ProducerInfo, RemoveInfo; producerCount
ActiveMQ.Advisory.Expired.Queue.NAME    .MessageDLQd.Queue.NAME    the message, without its body
```

A JMS client needs those about temporary destinations: it sends to none it was not told of. Whoever subscribes is told
what there is already, alone. What nobody listens to is never made. There are no advisories about advisory topics.

Source: ActiveMQ 5.17, `AdvisoryBroker`, `AdvisorySupport`; OpenWire, the commands that are their subjects.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final, Protocol

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.containment import contain
from pybroker.broker.core.topic import Topic, TopicSubscription
from pybroker.broker.domain.admin import Admin, ClientView, ConsumerView
from pybroker.broker.domain.destination import (
    ADVISORY_PREFIX,
    Destination,
    DestinationType,
    is_advisory,
    matches,
    meets,
    topic,
)
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.commands import (
    ActiveMQMessage,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    DataStructure,
    DestinationInfo,
    DestinationOperation,
    OpenWireMessageId,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
)
from pybroker.broker.domain.openwire.marshal.transcode import from_store, stored
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.openwire.values import Value, encode_map
from pybroker.broker.domain.ports import Clock

PENDING_MAX: Final = 100_000
"""Advisories that wait for one listener: more than there may be destinations it is told of when it comes."""

_KINDS: Final = {
    DestinationType.QUEUE: "Queue",
    DestinationType.TOPIC: "Topic",
    DestinationType.TEMP_QUEUE: "TempQueue",
    DestinationType.TEMP_TOPIC: "TempTopic",
}

_Told = tuple[str, DataStructure, Mapping[str, Value]]
"""What an advisory is about: the end of its topic's name, its subject, its own properties."""


class Teller(Protocol):
    """The broker as advisories name it; some of it is known only once its store is open."""

    @property
    def name(self) -> str:
        """Its name in the settings."""
        ...

    @property
    def id(self) -> str:
        """Its id, the same for each master of a store."""
        ...

    @property
    def run_id(self) -> str:
        """Begins the ids of what this run of it sends."""
        ...

    @property
    def url(self) -> str:
        """The URL at which clients connect."""
        ...

    @property
    def clock(self) -> Clock:
        """Milliseconds since the epoch."""
        ...

    def next_sequence(self) -> int:
        """Return a number for a message that is taken in."""
        ...


class Advisories(Observer):
    """Publishes what happens in a broker on topics that are listened to.

    Args:
        teller: the broker that is observed.
        admin: what there is in it.
        topics: its topics, seen as they change.
    """

    def __init__(self, teller: Teller, admin: Admin, topics: Mapping[Destination, Topic]) -> None:
        self._teller = teller
        self._admin = admin
        self._topics = topics
        self._sequence = 0
        self._producer_id = ProducerId(teller.run_id, 0, 0)
        self._producer_counts: Counter[Destination] = Counter()
        self._listeners: dict[ConsumerView, TopicSubscription] = {}
        """Consumers of patterns that cover advisory topics, which need not exist to be heard by these."""

    # ------------------------------------------------------------ what happens

    def connection_added(self, connection: ClientView) -> None:
        """Tell of a connection that came."""
        if self._is_heard("Connection"):
            self._tell("Connection", _connection_info(connection))

    def connection_removed(self, connection: ClientView) -> None:
        """Tell of a connection that left."""
        if self._is_heard("Connection"):
            self._tell("Connection", RemoveInfo(object_id=ConnectionId(connection.connection_id)))

    def destination_added(self, destination: Destination, owner: str | None) -> None:
        """Tell of a destination that came."""
        self._tell_of_destination(destination, owner, DestinationOperation.ADD)

    def destination_removed(self, destination: Destination, owner: str | None) -> None:
        """Tell of a destination that went."""
        self._tell_of_destination(destination, owner, DestinationOperation.REMOVE)

    def consumer_added(self, consumer: ConsumerView) -> None:
        """Tell of a consumer that came."""
        self._tell_of_consumer(consumer, consumer_info)

    def consumer_removed(self, consumer: ConsumerView) -> None:
        """Tell of a consumer that left; it listens no more."""
        self._listeners.pop(consumer, None)
        self._tell_of_consumer(consumer, lambda left: RemoveInfo(object_id=consumer_id(left)))

    def producer_added(self, producer_id: ProducerId, destination: Destination) -> None:
        """Tell of a producer that came."""
        self._producer_counts[destination] += 1
        self._tell_of_producer(destination, ProducerInfo(producer_id=producer_id, destination=destination))

    def producer_removed(self, producer_id: ProducerId, destination: Destination) -> None:
        """Tell of a producer that left."""
        self._producer_counts[destination] -= 1
        if not self._producer_counts[destination]:
            del self._producer_counts[destination]
        self._tell_of_producer(destination, RemoveInfo(object_id=producer_id))

    def message_expired(self, message: Message) -> None:
        """Tell of a message whose time was over."""
        self._tell_of_message("Expired", message)

    def message_dead_lettered(self, message: Message, cause: str) -> None:
        """Tell of a message that has a dead letter; the letter says why."""
        self._tell_of_message("MessageDLQd", message)

    def _tell_of_destination(
        self, destination: Destination, owner: str | None, operation: DestinationOperation
    ) -> None:
        if not is_advisory(destination) and self._is_heard(_KINDS[destination.type]):
            self._tell(_KINDS[destination.type], _destination_info(destination, owner, operation))

    def _tell_of_consumer(self, consumer: ConsumerView, about: Callable[[ConsumerView], DataStructure]) -> None:
        destination = consumer.request.destination
        subject = f"Consumer.{_domain(destination)}.{_name(destination)}"
        if not is_advisory(destination) and self._is_heard(subject):
            self._tell(subject, about(consumer), {"consumerCount": self._admin.consumer_count(destination)})

    def _tell_of_producer(self, destination: Destination, about: DataStructure) -> None:
        subject = f"Producer.{_domain(destination)}.{_name(destination)}"
        if not is_advisory(destination) and self._is_heard(subject):
            self._tell(subject, about, {"producerCount": self._producer_counts[destination]})

    def _tell_of_message(self, event: str, message: Message) -> None:
        """Tell what became of a message; without its body."""
        destination = message.destination
        if is_advisory(destination):
            return
        subject = f"{event}.{_domain(destination)}.{_name(destination)}"
        if not self._is_heard(subject):
            return
        try:
            bodiless = replace(from_store(message.data), content=None)
        except Exception as error:  # the message's fault: nothing else is touched here
            contain(error, "making an advisory", message)
            return
        self._tell(subject, bodiless, {"orignalMessageId": message.message_id})

    # ------------------------------------------------------------ what there is already

    def welcome(self, consumer: Consumer, subscription: TopicSubscription) -> None:
        """Send a new consumer the advisories that it asks for about existing connections, destinations and clients."""
        wanted = [each for each in consumer.request.destinations if is_advisory(each)]

        def wants(subject: str) -> bool:
            return any(matches(each.name, ADVISORY_PREFIX + subject) for each in wanted)

        def may_want(subjects: str) -> bool:
            return any(meets(each.name, ADVISORY_PREFIX + subjects) for each in wanted)

        if any(each.is_pattern and meets(each.name, ADVISORY_PREFIX + ">") for each in consumer.request.destinations):
            self._listeners[consumer] = subscription
        if not wanted:
            return
        # What is not wanted is not even looked through: clients come by the thousand after a failover.
        told = chain(
            self._present_connections() if wants("Connection") else (),
            self._present_destinations({kind for kind, subject in _KINDS.items() if wants(subject)}),
            self._present_producers() if may_want("Producer.>") else (),
            self._present_consumers() if may_want("Consumer.>") else (),
        )
        for subject, about, properties in told:
            if wants(subject):
                try:
                    message = self._message(subject, about, properties, consumer_id(consumer))
                except Exception as error:  # as in `_tell`
                    contain(error, "making an advisory")
                else:
                    subscription.publish(message)

    def _present_connections(self) -> Iterator[_Told]:
        for connection in self._admin.connections():
            yield "Connection", _connection_info(connection), {}

    def _present_destinations(self, kinds: Collection[DestinationType]) -> Iterator[_Told]:
        for destination in self._admin.destinations() if kinds else ():
            if destination.type in kinds and not is_advisory(destination):
                owner = self._admin.owner(destination)
                yield _KINDS[destination.type], _destination_info(destination, owner, DestinationOperation.ADD), {}

    def _present_producers(self) -> Iterator[_Told]:
        for connection in self._admin.connections():
            for producer_id, target in connection.producers.items():
                if target is not None and not is_advisory(target):
                    about = ProducerInfo(producer_id=producer_id, destination=target)
                    yield (
                        f"Producer.{_domain(target)}.{_name(target)}",
                        about,
                        {"producerCount": self._producer_counts[target]},
                    )

    def _present_consumers(self) -> Iterator[_Told]:
        for connection in self._admin.connections():
            for consumer in connection.consumers:
                target = consumer.request.destination
                if not is_advisory(target):
                    count = {"consumerCount": self._admin.consumer_count(target)}
                    yield f"Consumer.{_domain(target)}.{_name(target)}", consumer_info(consumer), count

    # ------------------------------------------------------------ private

    def _is_heard(self, subject: str) -> bool:
        """Tell whether anybody would get an advisory."""
        where = _topic(subject)
        existing = self._topics.get(where)
        if existing is not None:
            return existing.is_in_use
        return any(listener.request.wants(where) for listener in self._listeners)

    def _tell(self, subject: str, about: DataStructure, properties: Mapping[str, Value] | None = None) -> None:
        """Tell those who hear it. No topic is made for that: there would soon be one for all that ever was."""
        try:
            message = self._message(subject, about, properties or {}, None)
        except Exception as error:  # a name too long, say: nothing else is touched here
            contain(error, "making an advisory")
            return
        existing = self._topics.get(message.destination)
        if existing is not None:
            existing.send(message)
            return
        for listener, subscription in list(self._listeners.items()):
            if listener.request.wants(message.destination):
                subscription.publish(message)

    def _message(
        self, subject: str, about: DataStructure, properties: Mapping[str, Value], target: ConsumerId | None
    ) -> Message:
        self._sequence += 1
        origin: dict[str, Value] = {
            "originBrokerId": self._teller.id,
            "originBrokerName": self._teller.name,
            "originBrokerURL": self._teller.url,
        }
        now = self._teller.clock()
        message = ActiveMQMessage(
            producer_id=self._producer_id,
            destination=_topic(subject),
            message_id=OpenWireMessageId(None, self._producer_id, self._sequence, self._teller.next_sequence()),
            jms_type="Advisory",
            priority=0,
            timestamp=now,
            marshalled_properties=encode_map({**origin, **properties}),
            data_structure=about,
            target_consumer_id=target,
            broker_in_time=now,
        )
        return routing(stored(message))


def consumer_id(consumer: ConsumerView) -> ConsumerId:
    """Return a consumer's id; one whose protocol has none gets one that no other consumer has."""
    return consumer.request.consumer_id or ConsumerId(consumer.connection.connection_id, -1, id(consumer))


def consumer_info(consumer: ConsumerView) -> ConsumerInfo:
    """Return what a consumer asked for, as OpenWire says it."""
    request = consumer.request
    return ConsumerInfo(
        consumer_id=consumer_id(consumer),
        destination=request.destination,
        browser=request.browser,
        prefetch_size=consumer.prefetch,
        dispatch_async=True,
        selector=request.selector,
        client_id=consumer.connection.client_id,
        subscription_name=request.subscription_name,
        no_local=request.no_local,
        exclusive=request.exclusive,
        retroactive=request.retroactive,
        priority=request.priority,
    )


def _connection_info(connection: ClientView) -> ConnectionInfo:
    return ConnectionInfo(connection_id=ConnectionId(connection.connection_id), client_id=connection.client_id)


def _destination_info(
    destination: Destination, connection_id: str | None, operation: DestinationOperation
) -> DestinationInfo:
    return DestinationInfo(
        connection_id=None if connection_id is None else ConnectionId(connection_id),
        destination=destination,
        operation_type=operation,
    )


def _domain(destination: Destination) -> str:
    return "Queue" if destination.is_queue else "Topic"


def _name(destination: Destination) -> str:
    """Return a destination's name as part of a topic's; a comma there would make a list of topics."""
    return destination.name.replace(",", "&sbquo;")


def _topic(subject: str) -> Destination:
    return topic(ADVISORY_PREFIX + subject)
