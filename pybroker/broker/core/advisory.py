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
from typing import TYPE_CHECKING, Final

from pybroker.broker.core.containment import contain
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
    from pybroker.broker.core.consumer import Consumer, Owner
    from pybroker.broker.core.topic import TopicSubscription

PENDING_MAX: Final = 100_000
"""Advisories that wait for one listener: more than there may be destinations it is told of when it comes."""

_KINDS: Final = {
    DestinationType.QUEUE: "Queue",
    DestinationType.TOPIC: "Topic",
    DestinationType.TEMP_QUEUE: "TempQueue",
    DestinationType.TEMP_TOPIC: "TempTopic",
}

Publish = Callable[[Message], None]

_Told = tuple[str, DataStructure, Mapping[str, Value]]
"""What an advisory is about: the end of its topic's name, its subject, its own properties."""


class Advisories:
    """Tells what happens in a broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._sequence = 0
        self._producer_id = ProducerId(broker.run_id, 0, 0)
        self._producer_counts: Counter[Destination] = Counter()
        self._listeners: dict[Consumer, TopicSubscription] = {}
        """Consumers of patterns that cover advisory topics, which need not exist to be heard by these."""

    # ------------------------------------------------------------ who listens

    def listen(self, consumer: "Consumer", subscription: "TopicSubscription") -> None:
        """Learn of a consumer of patterns of topics."""
        wanted = (consumer.request.destination, *consumer.request.composite)
        if any(meets(each.name, ADVISORY_PREFIX + ">") for each in wanted):
            self._listeners[consumer] = subscription

    def unlisten(self, consumer: "Consumer") -> None:
        """Forget a consumer, if it was one of those."""
        self._listeners.pop(consumer, None)

    # ------------------------------------------------------------ what happens

    def connected(self, connection: "Owner", *, left: bool = False) -> None:
        """Tell of a connection that came or left."""
        if self._is_heard("Connection"):
            about = (
                RemoveInfo(object_id=ConnectionId(connection.connection_id)) if left else _connection_info(connection)
            )
            self._tell("Connection", about)

    def created(self, destination: Destination, connection_id: str | None, *, deleted: bool = False) -> None:
        """Tell of a destination that came or went."""
        if not is_advisory(destination) and self._is_heard(_KINDS[destination.type]):
            operation = DestinationOperation.REMOVE if deleted else DestinationOperation.ADD
            self._tell(_KINDS[destination.type], _destination_info(destination, connection_id, operation))

    def consuming(self, consumer: "Consumer", *, left: bool = False) -> None:
        """Tell of a consumer that came or left."""
        destination = consumer.request.destination
        subject = f"Consumer.{_domain(destination)}.{_name(destination)}"
        if is_advisory(destination) or not self._is_heard(subject):
            return
        about = RemoveInfo(object_id=consumer_id(consumer)) if left else consumer_info(consumer)
        self._tell(subject, about, {"consumerCount": self._broker.consumer_count(destination)})

    def producing(self, producer_id: ProducerId, destination: Destination, *, left: bool = False) -> None:
        """Tell of a producer that came or left. Told of each, because it counts them."""
        counts = self._producer_counts
        counts[destination] += -1 if left else 1
        if not counts[destination]:
            del counts[destination]
        subject = f"Producer.{_domain(destination)}.{_name(destination)}"
        if is_advisory(destination) or not self._is_heard(subject):
            return
        about = ProducerInfo(producer_id=producer_id, destination=destination)
        self._tell(
            subject, RemoveInfo(object_id=producer_id) if left else about, {"producerCount": counts[destination]}
        )

    def concerning(self, event: str, message: Message, properties: Mapping[str, Value] | None = None) -> None:
        """Tell what became of a message, such as `Expired`, `MessageDLQd`, `NoConsumer`; without its body."""
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
        self._tell(subject, bodiless, {"orignalMessageId": message.message_id, **(properties or {})})

    # ------------------------------------------------------------ what there is already

    def replay(self, consumer: "Consumer", publish: Publish) -> None:
        """Tell a new listener what there is of what it asks for."""
        wanted = [each for each in (consumer.request.destination, *consumer.request.composite) if is_advisory(each)]

        def wants(subject: str) -> bool:
            return any(matches(each.name, ADVISORY_PREFIX + subject) for each in wanted)

        def may_want(subjects: str) -> bool:
            return any(meets(each.name, ADVISORY_PREFIX + subjects) for each in wanted)

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
                    publish(message)

    def _present_connections(self) -> Iterator[_Told]:
        for connection in self._broker.connections():
            yield "Connection", _connection_info(connection), {}

    def _present_destinations(self, kinds: Collection[DestinationType]) -> Iterator[_Told]:
        broker = self._broker
        for destination in chain(broker.queues, broker.topics) if kinds else ():
            if destination.type in kinds and not is_advisory(destination):
                owner = broker.owner(destination)
                yield _KINDS[destination.type], _destination_info(destination, owner, DestinationOperation.ADD), {}

    def _present_producers(self) -> Iterator[_Told]:
        for connection in self._broker.connections():
            for producer_id, target in connection.producers.items():
                if target is not None and not is_advisory(target):
                    about = ProducerInfo(producer_id=producer_id, destination=target)
                    yield (
                        f"Producer.{_domain(target)}.{_name(target)}",
                        about,
                        {"producerCount": self._producer_counts[target]},
                    )

    def _present_consumers(self) -> Iterator[_Told]:
        for connection in self._broker.connections():
            for consumer in connection.consumers:
                target = consumer.request.destination
                if not is_advisory(target):
                    count = {"consumerCount": self._broker.consumer_count(target)}
                    yield f"Consumer.{_domain(target)}.{_name(target)}", consumer_info(consumer), count

    # ------------------------------------------------------------ private

    def _is_heard(self, subject: str) -> bool:
        """Tell whether anybody would get an advisory."""
        where = _topic(subject)
        existing = self._broker.topics.get(where)
        if existing is not None:
            return existing.is_in_use
        return any(self._broker.wants(listener.request, where) for listener in self._listeners)

    def _tell(self, subject: str, about: DataStructure, properties: Mapping[str, Value] | None = None) -> None:
        """Tell those who hear it. No topic is made for that: there would soon be one for all that ever was."""
        try:
            message = self._message(subject, about, properties or {}, None)
        except Exception as error:  # a name too long, say: nothing else is touched here
            contain(error, "making an advisory")
            return
        existing = self._broker.topics.get(message.destination)
        if existing is not None:
            existing.send(message)
            return
        for listener, subscription in list(self._listeners.items()):
            if self._broker.wants(listener.request, message.destination):
                subscription.publish(message)

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


def _connection_info(connection: "Owner") -> ConnectionInfo:
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
