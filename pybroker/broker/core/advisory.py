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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pybroker.broker.domain.destination import Destination, DestinationType, topic
from pybroker.broker.domain.message import Message
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

if TYPE_CHECKING:
    from pybroker.broker.core.broker import Broker
    from pybroker.broker.core.connection import Connection
    from pybroker.broker.core.consumer import Consumer

PREFIX: Final = "ActiveMQ.Advisory."

PENDING_MAX: Final = 100_000
"""Advisories that wait for one listener: more than there may be destinations it is told of when it comes."""

_KINDS: Final = {
    DestinationType.QUEUE: "Queue",
    DestinationType.TOPIC: "Topic",
    DestinationType.TEMP_QUEUE: "TempQueue",
    DestinationType.TEMP_TOPIC: "TempTopic",
}

Publish = Callable[[Message], None]


def is_advisory(destination: Destination) -> bool:
    """Tell whether a destination is an advisory topic, or a pattern of such."""
    return destination.name.startswith(PREFIX)


class Advisories:
    """Tells what happens in a broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._sequence = 0
        self._producer_id = ProducerId(f"{broker.id}-advisory", 0, 0)

    # ------------------------------------------------------------ what happens

    def connected(self, connection: "Connection", *, left: bool = False) -> None:
        """Tell of a connection that came or left."""
        about: DataStructure = _connection_info(connection)
        if left:
            about = RemoveInfo(object_id=ConnectionId(connection.connection_id))
        self._tell("Connection", about)

    def created(self, destination: Destination, connection_id: str | None, *, deleted: bool = False) -> None:
        """Tell of a destination that came or went."""
        if not is_advisory(destination):
            operation = DestinationOperation.REMOVE if deleted else DestinationOperation.ADD
            self._tell(_KINDS[destination.type], _destination_info(destination, connection_id, operation))

    def consuming(self, consumer: "Consumer", *, left: bool = False) -> None:
        """Tell of a consumer that came or left."""
        destination = consumer.request.destination
        if is_advisory(destination):
            return
        about: DataStructure = consumer_info(consumer)
        if left:
            about = RemoveInfo(object_id=consumer_id(consumer))
        count = self._broker.consumer_count(destination)
        self._tell(f"Consumer.{_domain(destination)}.{_name(destination)}", about, {"consumerCount": count})

    def producing(
        self, connection: "Connection", producer_id: ProducerId, destination: Destination, *, left: bool = False
    ) -> None:
        """Tell of a producer that came or left."""
        if is_advisory(destination):
            return
        about: DataStructure = ProducerInfo(producer_id=producer_id, destination=destination)
        if left:
            about = RemoveInfo(object_id=producer_id)
        count = self._broker.producer_count(destination)
        self._tell(f"Producer.{_domain(destination)}.{_name(destination)}", about, {"producerCount": count})

    def concerning(self, event: str, message: Message, properties: Mapping[str, Value] | None = None) -> None:
        """Tell what became of a message, such as `Expired`, `MessageDLQd`, `NoConsumer`; without its body."""
        destination = message.destination
        if is_advisory(destination):
            return
        subject = f"{event}.{_domain(destination)}.{_name(destination)}"
        if self._is_heard(subject):
            bodiless = replace(from_store(message.data), content=None)
            self._tell(subject, bodiless, {"orignalMessageId": message.message_id, **(properties or {})})

    # ------------------------------------------------------------ what there is already

    def replay(self, consumer: "Consumer", publish: Publish) -> None:
        """Tell a new listener what there is of what it asks for."""
        wanted = (consumer.request.destination, *consumer.request.composite)
        if any(is_advisory(each) for each in wanted):
            for subject, about, properties in self._present():
                if self._broker.wants(consumer.request, _topic(subject)):
                    publish(self._message(subject, about, properties, consumer_id(consumer)))

    def _present(self) -> Iterator[tuple[str, DataStructure, Mapping[str, Value]]]:
        broker = self._broker
        for connection in broker.connections():
            yield "Connection", _connection_info(connection), {}
        for destination in [*broker.queues, *broker.topics]:
            if not is_advisory(destination):
                owner = broker.owner(destination)
                yield _KINDS[destination.type], _destination_info(destination, owner, DestinationOperation.ADD), {}
        for connection in broker.connections():
            for producer_id, target in connection.producers.items():
                if target is not None:
                    about = ProducerInfo(producer_id=producer_id, destination=target)
                    count = {"producerCount": broker.producer_count(target)}
                    yield f"Producer.{_domain(target)}.{_name(target)}", about, count
            for consumer in connection.consumers:
                target = consumer.request.destination
                if not is_advisory(target):
                    count = {"consumerCount": broker.consumer_count(target)}
                    yield f"Consumer.{_domain(target)}.{_name(target)}", consumer_info(consumer), count

    # ------------------------------------------------------------ private

    def _is_heard(self, subject: str) -> bool:
        return self._broker.is_heard(_topic(subject))

    def _tell(self, subject: str, about: DataStructure, properties: Mapping[str, Value] | None = None) -> None:
        if self._is_heard(subject):
            message = self._message(subject, about, properties or {}, None)
            self._broker.target(message.destination).send(message)

    def _message(
        self, subject: str, about: DataStructure, properties: Mapping[str, Value], target: ConsumerId | None
    ) -> Message:
        self._sequence += 1
        origin: dict[str, Value] = {
            "originBrokerId": self._broker.id,
            "originBrokerName": self._broker.name,
            "originBrokerURL": self._broker.url,
        }
        now = self._broker.clock()
        message = ActiveMQMessage(
            producer_id=self._producer_id,
            destination=_topic(subject),
            message_id=OpenWireMessageId(None, self._producer_id, self._sequence, self._broker.next_sequence()),
            jms_type="Advisory",
            priority=0,
            timestamp=now,
            marshalled_properties=encode_map({**origin, **properties}),
            data_structure=about,
            target_consumer_id=target,
            broker_in_time=now,
        )
        return routing(stored(message))


def consumer_id(consumer: "Consumer") -> ConsumerId:
    """Return a consumer's id; one whose protocol has none gets one that no other consumer has."""
    return consumer.request.consumer_id or ConsumerId(consumer.connection.connection_id, -1, id(consumer))


def consumer_info(consumer: "Consumer") -> ConsumerInfo:
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


def _connection_info(connection: "Connection") -> ConnectionInfo:
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
    return topic(PREFIX + subject)
