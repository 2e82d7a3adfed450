"""Advisory messages: publishes the events of the broker on topics.

```text
ActiveMQ.Advisory.Connection                                       ConnectionInfo, RemoveInfo
ActiveMQ.Advisory.Queue  .Topic  .TempQueue  .TempTopic            DestinationInfo: created, deleted
ActiveMQ.Advisory.Consumer.Queue.NAME   .Consumer.Topic.NAME       ConsumerInfo, RemoveInfo; consumerCount;
                                                                   of a durable one's deletion RemoveSubscriptionInfo
ActiveMQ.Advisory.Producer.Queue.NAME   .Producer.Topic.NAME       ProducerInfo, RemoveInfo; producerCount
ActiveMQ.Advisory.Expired.Queue.NAME    .MessageDLQd.Queue.NAME    the message, without its body
ActiveMQ.Advisory.VirtualDestination.Consumer.…                    see `virtual_advisories`
ActiveMQ.Advisory.NetworkBridge                                    BrokerInfo of the peer; started, and at the start
                                                                   createdByDuplex and remoteIp
ActiveMQ.Advisory.NetworkBridge.ForwardFailure                     the message, without its body; cause
```

Where the policy of a destination asks for it, for `Queue.NAME` and `Topic.NAME` each:

```text
ActiveMQ.Advisory.MessageDelivered.     .MessageConsumed.          the message, without its body; orignalMessageId,
                                                                   orignalDestination
ActiveMQ.Advisory.MessageDiscarded.                                the same; consumerId, discardedCount
ActiveMQ.Advisory.NoConsumer.                                      the message itself
ActiveMQ.Advisory.SlowConsumer.                                    ConsumerInfo; consumerId
ActiveMQ.Advisory.FULL.                                            nothing; usageName, usageCount
ActiveMQ.Advisory.FastProducer.                                    ProducerInfo; producerId
```

A JMS client needs those about temporary destinations: it sends to no temporary destination without an advisory of its
creation. A new subscriber gets advisories about what exists already, which no other subscriber gets again: a piece at
once, and the others in later turns of the event loop, each as the subscriber reads. What is gone by then has no
advisory. Meanwhile the other consumers of a JMS client's connection get nothing, and its commands are not answered, so
that no request comes before the advisory about the queue of its reply. Without a listener no advisory is made. There
are no advisories about advisory topics.

Source: ActiveMQ 5.17, `AdvisoryBroker`, `AdvisorySupport`; OpenWire, the commands that are their subjects.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.containment import contain
from pybroker.broker.core.paging import PIECE_SECONDS
from pybroker.broker.core.runtime import CoreRuntime
from pybroker.broker.core.topic import Topic, TopicSubscription
from pybroker.broker.domain.admin import Admin, ClientView, ConsumerView
from pybroker.broker.domain.destination import (
    ADVISORY_PREFIX,
    Destination,
    DestinationType,
    is_advisory,
    matches,
    patterns_overlap,
    topic,
)
from pybroker.broker.domain.destination_map import NameMap, PatternMap
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.network.peers import BridgePeer
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.commands import (
    ActiveMQMessage,
    BrokerId,
    BrokerInfo,
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
    RemoveSubscriptionInfo,
)
from pybroker.broker.domain.openwire.marshal.transcode import from_store, stored
from pybroker.broker.domain.openwire.message import outline, to_message
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.openwire.values import Long, Value, encode_map
from pybroker.broker.domain.ports import Clock
from pybroker.broker.domain.subscription import DurableSubscription

PENDING_MAX: Final = 100_000
"""Advisories that may wait for one listener: more than the destinations that a new listener gets advisories about."""

_KINDS: Final = {
    DestinationType.QUEUE: "Queue",
    DestinationType.TOPIC: "Topic",
    DestinationType.TEMP_QUEUE: "TempQueue",
    DestinationType.TEMP_TOPIC: "TempTopic",
}

EXISTING_PIECE: Final = 25
"""Advisories about what exists that one piece of work makes, some 30 us each, beside the clock that ends it."""

TEMPORARY_FIRST: Final = 400
"""Advisories about temporary destinations that their subscriber gets at once, as most brokers have no more."""

CLIENTS_OWN_SESSION: Final = -1
"""The session of consumers that a client makes for itself: those of Java, .NET and C++ listen to temporary destinations
so. They acknowledge on their own, and send no reply to a temporary queue that was not announced to them."""

EXISTING_WAITING_MAX: Final = 1000
"""Advisories about what exists are made once fewer wait for their subscriber, so that its pace limits their memory."""

_BRIDGE: Final = "NetworkBridge"
_FORWARD_FAILURE: Final = "NetworkBridge.ForwardFailure"
_ORIGINAL: Final = "orignalDestination"  # as ActiveMQ spells it

_ABOUT_TEMPORARY: Final = (ADVISORY_PREFIX + "TempQueue", ADVISORY_PREFIX + "TempTopic")
_ABOUT_MESSAGES: Final = ("MessageDelivered", "MessageConsumed", "NoConsumer", "SlowConsumer")
"""The advisories that a policy has a destination announce for its messages, each only while it has a listener."""
_UNLIMITED: Final = float("inf")

Advisory = tuple[str, DataStructure, Mapping[str, Value]]
"""The contents of an advisory: the end of its topic's name, the command it carries, and its own properties."""


class OriginBroker(Protocol):
    """The broker that advisories name as their origin. Some of its properties are known only once its store is open."""

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
        """The prefix of the ids of messages that this run of the broker sends itself."""
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
        """Return the next broker sequence number."""
        ...


class Advisories(Observer):
    """Publishes the events of a broker on topics that have listeners.

    Args:
        broker: the broker that is observed.
        admin: its destinations and the counts of their consumers.
        topics: its topics, a live view.
        runtime: its policies; its observers, which are asked again after listeners have changed; and its paging, which
            defers the advisories about what exists to later turns of the event loop.
    """

    def __init__(
        self,
        broker: OriginBroker,
        admin: Admin,
        topics: Mapping[Destination, Topic],
        runtime: CoreRuntime,
    ) -> None:
        self._broker = broker
        self._policy = runtime.policy
        self._listeners_changed = runtime.observers.advance_generation
        self._admin = admin
        self._topics = topics
        self._paging = runtime.usage.paging
        self._sequence = 0
        self._producer_id = ProducerId(broker.run_id, 0, 0)
        self._listeners: PatternMap[TopicSubscription] = PatternMap()
        """Consumers of patterns that cover advisory topics. They get advisories even if the topic does not exist."""
        self._subscriptions: dict[ConsumerView, TopicSubscription] = {}
        """The subscriptions of these consumers."""
        self._connections: dict[ClientView, None] = {}
        self._consumers: _Index[ConsumerView] = _Index()
        self._producers: _Index[tuple[ProducerId, Destination]] = _Index()
        self._bridges: dict[BridgePeer, None] = {}
        self._unfinished: deque[_Existing] = deque()
        """New subscribers that have not got all advisories about what exists, in turns."""
        self._is_deferred = False
        self.existing_elsewhere: Callable[[Sequence[Destination]], Iterator[Advisory]] | None = None
        """Returns what exists of other kinds, whose events have an observer of their own, from the topics that a
        subscriber wants; None: there are no others."""

    @property
    def broker_id(self) -> str:
        """The id of the broker."""
        return self._broker.id

    # ------------------------------------------------------------ events

    def connection_added(self, connection: ClientView) -> None:
        """Publish that a client has connected."""
        self._connections[connection] = None
        if self.has_listener("Connection"):
            self.publish("Connection", _connection_info(connection))

    def connection_removed(self, connection: ClientView) -> None:
        """Publish that a client has disconnected."""
        self._connections.pop(connection, None)
        if self.has_listener("Connection"):
            self.publish("Connection", RemoveInfo(object_id=ConnectionId(connection.connection_id)))

    def destination_added(self, destination: Destination, owner: str | None) -> None:
        """Publish that a destination was created."""
        self._report_listener(destination)  # a durable subscription to a pattern may cover it
        self._publish_destination(destination, owner, DestinationOperation.ADD)

    def destination_removed(self, destination: Destination, owner: str | None) -> None:
        """Publish that a destination was deleted."""
        self._publish_destination(destination, owner, DestinationOperation.REMOVE)

    def consumer_added(self, consumer: ConsumerView) -> None:
        """Publish that a consumer has subscribed."""
        self._report_listener(*consumer.request.destinations)
        if not is_advisory(consumer.request.destination):
            self._consumers.add(_consumer_subject(consumer), consumer)
        self._publish_consumer(consumer, consumer_info)

    def consumer_removed(self, consumer: ConsumerView) -> None:
        """Publish that a consumer has closed, and remove it from the listeners."""
        subscription = self._subscriptions.pop(consumer, None)
        if subscription is not None:
            for each in consumer.request.destinations:
                self._listeners.remove(each, subscription)
        self._report_listener(*consumer.request.destinations)
        if not is_advisory(consumer.request.destination):
            self._consumers.remove(_consumer_subject(consumer), consumer)
        self._publish_consumer(consumer, lambda left: RemoveInfo(object_id=consumer_id(left)))

    def durable_removed(self, subscription: DurableSubscription) -> None:
        """Publish that a durable subscription was deleted, which bridges of other brokers wait for."""
        topic = subscription.subscribed_destination
        subject = f"Consumer.{_domain(topic)}.{_name(topic)}"
        if not is_advisory(topic) and self.has_listener(subject):
            about = RemoveSubscriptionInfo(client_id=subscription.client_id, subscription_name=subscription.name)
            self.publish(subject, about, {"consumerCount": self._admin.consumer_count(topic)})

    def producer_added(self, producer_id: ProducerId, destination: Destination) -> None:
        """Publish that a producer was added."""
        if not is_advisory(destination):
            self._producers.add(_producer_subject(destination), (producer_id, destination))
        self._publish_producer(destination, ProducerInfo(producer_id=producer_id, destination=destination))

    def producer_removed(self, producer_id: ProducerId, destination: Destination) -> None:
        """Publish that a producer was removed."""
        if not is_advisory(destination):
            self._producers.remove(_producer_subject(destination), (producer_id, destination))
        self._publish_producer(destination, RemoveInfo(object_id=producer_id))

    def message_expired(self, message: Message) -> None:
        """Publish that a message has expired."""
        self._publish_message("Expired", message)

    def message_dead_lettered(self, message: Message, cause: str) -> None:
        """Publish that a message was dead-lettered; the cause is in the dead letter."""
        self._publish_message("MessageDLQd", message)

    def uses_messages_of(self, destination: Destination) -> bool:
        """Return True if an advisory about messages of a destination, or about slow consumers, has a listener."""
        name = f"{_domain(destination)}.{_name(destination)}"
        return not is_advisory(destination) and any([self.has_listener(f"{kind}.{name}") for kind in _ABOUT_MESSAGES])

    def message_accepted(self, message: Message) -> None:
        """Publish that a destination has accepted a message."""
        self._publish_message("MessageDelivered", message, {_ORIGINAL: str(message.destination)})

    def message_consumed(self, message: Message) -> None:
        """Publish that a message was acknowledged."""
        self._publish_message("MessageConsumed", message, {_ORIGINAL: str(message.destination)})

    def message_discarded(self, consumer: ConsumerView, message: Message, count: int) -> None:
        """Publish that a message was dropped for a slow consumer."""
        about: dict[str, Value] = {"consumerId": str(consumer_id(consumer)), "discardedCount": count}
        self._publish_message("MessageDiscarded", message, about | {_ORIGINAL: str(message.destination)})

    def message_unclaimed(self, message: Message) -> None:
        """Publish a message itself that is sent to a destination without consumers."""
        destination = message.destination
        subject = f"NoConsumer.{_domain(destination)}.{_name(destination)}"
        if is_advisory(destination) or not self.has_listener(subject):
            return
        try:
            copy = to_message(replace(outline(message), destination=_topic(subject)))
        except Exception as error:  # as in `_publish_message`
            contain(error, "making an advisory", message)
            return
        self._send(copy)

    def consumer_slow(self, consumer: ConsumerView, destination: Destination) -> None:
        """Publish that messages wait for a consumer whose window is full."""
        subject = f"SlowConsumer.{_domain(destination)}.{_name(destination)}"
        if not is_advisory(destination) and self.has_listener(subject):
            self.publish(subject, consumer_info(consumer), {"consumerId": str(consumer_id(consumer))})

    def memory_full(self, message: Message, used_bytes: int) -> None:
        """Publish that a memory limit is reached, and whose message has met it."""
        destination = message.destination
        policy, name = self._policy(destination), f"{_domain(destination)}.{_name(destination)}"
        if is_advisory(destination):
            return
        if policy.advisory_when_full and self.has_listener(f"FULL.{name}"):
            about: dict[str, Value] = {"usageName": str(destination), "usageCount": Long(used_bytes)}
            self.publish(f"FULL.{name}", None, about)
        if policy.advisory_for_fast_producers and self.has_listener(f"FastProducer.{name}"):
            producer_id = outline(message).producer_id
            info = None if producer_id is None else ProducerInfo(producer_id=producer_id, destination=destination)
            self.publish(f"FastProducer.{name}", info, {"producerId": str(producer_id)})

    def bridge_started(self, peer: BridgePeer) -> None:
        """Publish that a bridge to another broker has begun to work."""
        self._bridges[peer] = None
        if self.has_listener(_BRIDGE):
            self.publish(_BRIDGE, _broker_info(peer), _of_start(peer))

    def bridge_stopped(self, peer: BridgePeer) -> None:
        """Publish that a bridge has ended."""
        self._bridges.pop(peer, None)
        if self.has_listener(_BRIDGE):
            self.publish(_BRIDGE, _broker_info(peer), {"started": False})

    def forward_failed(self, message: Message, cause: str) -> None:
        """Publish that the remote broker of a bridge has refused a message."""
        self._publish_with_message(_FORWARD_FAILURE, message, {"cause": cause})

    def _publish_destination(
        self, destination: Destination, owner: str | None, operation: DestinationOperation
    ) -> None:
        if not is_advisory(destination) and self.has_listener(_KINDS[destination.type]):
            self.publish(_KINDS[destination.type], _destination_info(destination, owner, operation))

    def _publish_consumer(self, consumer: ConsumerView, about: Callable[[ConsumerView], DataStructure]) -> None:
        destination = consumer.request.destination
        subject = _consumer_subject(consumer)
        if not is_advisory(destination) and self.has_listener(subject):
            self.publish(subject, about(consumer), {"consumerCount": self._admin.consumer_count(destination)})

    def _publish_producer(self, destination: Destination, about: DataStructure) -> None:
        subject = _producer_subject(destination)
        if not is_advisory(destination) and self.has_listener(subject):
            self.publish(subject, about, {"producerCount": self._admin.producer_count(destination)})

    def _publish_message(self, event: str, message: Message, about: Mapping[str, Value] | None = None) -> None:
        """Publish an event of one message, with the message, which has its body only if the policy asks for that."""
        destination = message.destination
        if is_advisory(destination):
            return
        properties = {"orignalMessageId": message.message_id, **(about or {})}
        self._publish_with_message(f"{event}.{_domain(destination)}.{_name(destination)}", message, properties)

    def _publish_with_message(self, subject: str, message: Message, properties: Mapping[str, Value]) -> None:
        if not self.has_listener(subject):
            return
        try:
            subject_message = from_store(message.data)
            if not self._policy(message.destination).include_body_for_advisory:
                subject_message = replace(subject_message, content=None)
        except Exception as error:  # caused by the message; only this advisory is affected
            contain(error, "making an advisory", message)
            return
        self.publish(subject, subject_message, properties)

    # ------------------------------------------------------------ what exists already

    def publish_existing(self, consumer: BrokerConsumer, subscription: TopicSubscription) -> None:
        """Send a new consumer the advisories that it subscribes to, about what exists already."""
        if consumer.request.leaves_out_reserved:
            return
        if any(
            each.is_pattern and patterns_overlap(each.name, ADVISORY_PREFIX + ">")
            for each in consumer.request.destinations
        ):
            self._subscriptions[consumer] = subscription
            for each in consumer.request.destinations:
                self._listeners.add(each, subscription)
        wanted = [each for each in consumer.request.destinations if is_advisory(each)]
        if wanted:
            existing = _Existing(consumer, subscription, self._existing(wanted))
            if all(each.name in _ABOUT_TEMPORARY for each in wanted):
                is_unfinished = self._publish_piece(existing, TEMPORARY_FIRST, _UNLIMITED)
                if _is_clients_own(consumer) and (is_unfinished or subscription.waiting_count > consumer.prefetch):
                    consumer.connection.serve_first(consumer)
                    if not is_unfinished:
                        self._finish(existing)
            else:
                is_unfinished = self._publish_piece(existing)
            if is_unfinished:
                self._unfinished.append(existing)
                self._defer()

    def _publish_piece(self, existing: "_Existing", left: int = EXISTING_PIECE, seconds: float = PIECE_SECONDS) -> bool:
        """Send some advisories to a new subscriber; return True if there may be more."""
        if existing.subscription.is_closed:
            return False
        paging, reader = self._paging, existing.consumer.connection
        ends_at = paging.monotonic() + seconds
        for subject, about, properties in existing.advisories:
            if reader.rights is None or reader.may_read(_topic(subject)):
                self._publish_to(existing, subject, about, properties)
            left -= 1
            if paging.later is not None and (left <= 0 or paging.monotonic() >= ends_at):
                return True
        return False

    def _publish_to(
        self, existing: "_Existing", subject: str, about: DataStructure, properties: Mapping[str, Value]
    ) -> None:
        try:
            message = self._message(subject, about, properties, consumer_id(existing.consumer))
        except Exception as error:  # as in `publish`
            contain(error, "making an advisory")
        else:
            existing.subscription.publish(message)

    def _defer(self) -> None:
        if self._unfinished and not self._is_deferred:
            self._is_deferred = self._paging.defer(self._continue)

    def _continue(self) -> None:
        """Send some advisories to the next new subscriber that reads what it has got."""
        self._is_deferred = False
        existing = self._unfinished.popleft()
        subscription = existing.subscription
        try:
            if subscription.waiting_count >= EXISTING_WAITING_MAX:
                subscription.when_drained = partial(self._resume, existing)
            elif self._publish_piece(existing):
                self._unfinished.append(existing)
            else:
                self._finish(existing)
        except BaseException:
            existing.consumer.connection.serve_all(existing.consumer)
            raise
        finally:  # an error ends this subscriber's advisories, not those of the others
            self._defer()

    def _finish(self, existing: "_Existing") -> None:
        """Have the other consumers of a connection served again once a new subscriber has everything."""
        consumer, subscription = existing.consumer, existing.subscription
        if consumer.connection.first is not consumer:
            return
        if subscription.waiting_count:
            subscription.when_drained = partial(self._finish_later, consumer)
        else:
            consumer.connection.serve_all(consumer)

    def _finish_later(self, consumer: BrokerConsumer) -> None:
        """Have the others served in a later turn: the subscription is delivering at this time."""
        serve = partial(consumer.connection.serve_all, consumer)
        if not self._paging.defer(serve):
            serve()

    def _resume(self, existing: "_Existing") -> None:
        self._unfinished.append(existing)
        self._defer()

    def _existing(self, wanted: Sequence[Destination]) -> Iterator[Advisory]:
        """Yield the advisories about what exists when they are yielded, of what existed at the first.

        Only what matches is iterated over: after a failover, thousands of clients subscribe.
        """

        def wants(subject: str) -> bool:
            return any(matches(each.name, ADVISORY_PREFIX + subject) for each in wanted)

        if wants("Connection"):
            for connection in [*self._connections]:
                if connection in self._connections:
                    yield "Connection", _connection_info(connection), {}
        kinds = {kind for kind, subject in _KINDS.items() if wants(subject)}
        for destination in self._destinations(kinds):
            if destination.type in kinds and not is_advisory(destination) and self._admin.exists(destination):
                owner = self._admin.owner(destination)
                yield _KINDS[destination.type], _destination_info(destination, owner, DestinationOperation.ADD), {}
        for peer in [*self._bridges] if wants(_BRIDGE) else ():
            if peer in self._bridges:
                yield _BRIDGE, _broker_info(peer), _of_start(peer)
        for subject, (producer_id, target) in self._producers.matching(wanted):
            count = {"producerCount": self._admin.producer_count(target)}
            yield subject, ProducerInfo(producer_id=producer_id, destination=target), count
        for subject, consumer in self._consumers.matching(wanted):
            count = {"consumerCount": self._admin.consumer_count(consumer.request.destination)}
            yield subject, consumer_info(consumer), count
        if self.existing_elsewhere is not None:
            yield from self.existing_elsewhere(wanted)

    def _destinations(self, kinds: Collection[DestinationType]) -> list[Destination]:
        """Return the destinations that exist now; only temporary ones if no others are wanted, as by JMS clients."""
        if not kinds:
            return []
        is_all = DestinationType.QUEUE in kinds or DestinationType.TOPIC in kinds
        return [*(self._admin.destinations() if is_all else self._admin.temporaries())]

    # ------------------------------------------------------------ private

    def _report_listener(self, *destinations: Destination) -> None:
        """Report that the listeners have changed, if a consumer of these destinations can be one.

        Each connection of a JMS client listens to temporary destinations, which concerns no messages.
        """
        if any([_may_be_about_messages(each) for each in destinations]):
            self._listeners_changed()

    def has_listener(self, subject: str) -> bool:
        """Return True if an advisory has a listener."""
        where = _topic(subject)
        existing = self._topics.get(where)
        if existing is not None:
            return existing.is_in_use
        return self._listeners.covers(where)

    def publish(self, subject: str, about: DataStructure | None, properties: Mapping[str, Value] | None = None) -> None:
        """Send an advisory to its listeners. No topic is created for it, or the number of topics would grow forever."""
        try:
            message = self._message(subject, about, properties or {}, None)
        except Exception as error:  # for example, a name is too long; only this advisory is affected
            contain(error, "making an advisory")
            return
        self._send(message)

    def _send(self, message: Message) -> None:
        existing = self._topics.get(message.destination)
        if existing is not None:
            existing.send(message)
            return
        for subscription in self._listeners.covering(message.destination):
            if subscription.consumer.connection.may_read(message.destination):
                subscription.publish(message)

    def _message(
        self, subject: str, about: DataStructure | None, properties: Mapping[str, Value], target: ConsumerId | None
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


class _Existing(NamedTuple):
    """A new subscriber, and the advisories about what exists that it has yet to get."""

    consumer: BrokerConsumer
    subscription: TopicSubscription
    advisories: Iterator[Advisory]


_MemberT = TypeVar("_MemberT")


class _Subject(Generic[_MemberT]):
    """The subject of one advisory topic: the consumers, or producers, of one destination."""

    __slots__ = ("members", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[_MemberT, None] = {}


class _Index(Generic[_MemberT]):
    """Consumers, or producers, by the advisory topic about them."""

    def __init__(self) -> None:
        self._subjects: dict[str, _Subject[_MemberT]] = {}
        self._names: NameMap[_Subject[_MemberT]] = NameMap()

    def add(self, name: str, member: _MemberT) -> None:
        """Add a member to a subject."""
        subject = self._subjects.get(name)
        if subject is None:
            subject = self._subjects[name] = _Subject(name)
            self._names.add(_topic(name), subject)
        subject.members[member] = None

    def remove(self, name: str, member: _MemberT) -> None:
        """Remove a member from a subject; do nothing if it has no such member."""
        subject = self._subjects.get(name)
        if subject is not None:
            subject.members.pop(member, None)
            if not subject.members:
                del self._subjects[name]
                self._names.remove(_topic(name))

    def matching(self, wanted: Sequence[Destination]) -> Iterator[tuple[str, _MemberT]]:
        """Yield what these patterns of advisory topics cover; members that are removed in between are left out."""
        for subject in dict.fromkeys(subject for each in wanted for subject in self._names.covered_by(each)):
            for member in [*subject.members]:
                if member in subject.members:
                    yield subject.name, member


def _is_clients_own(consumer: BrokerConsumer) -> bool:
    named = consumer.request.consumer_id
    return named is not None and named.session_id == CLIENTS_OWN_SESSION


def consumer_id(consumer: ConsumerView) -> ConsumerId:
    """Return a consumer's id. If its protocol has none, return an id that no other consumer has."""
    return consumer.request.consumer_id or ConsumerId(consumer.connection.connection_id, -1, id(consumer))


def consumer_info(consumer: ConsumerView) -> ConsumerInfo:
    """Return a consumer's request as the OpenWire command."""
    request, network = consumer.request, consumer.request.network
    return ConsumerInfo(
        consumer_id=consumer_id(consumer),
        destination=_requested(consumer),
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
        broker_path=None if network is None else tuple(map(BrokerId, network.broker_path)),
        network_subscription=network is not None,
        network_consumer_path=None if network is None else network.consumer_path,
    )


def _connection_info(connection: ClientView) -> ConnectionInfo:
    return ConnectionInfo(connection_id=ConnectionId(connection.connection_id), client_id=connection.client_id)


def _broker_info(peer: BridgePeer) -> BrokerInfo:
    """Return the introduction of a remote broker, without what it says of its connector, which may have passwords."""
    return BrokerInfo(
        broker_id=BrokerId(peer.broker_id),
        broker_name=peer.broker_name,
        broker_url=peer.broker_url,
        network_connection=True,
    )


def _of_start(peer: BridgePeer) -> Mapping[str, Value]:
    """Return the properties of the advisory that a bridge has started."""
    return {"started": True, "createdByDuplex": peer.is_duplex, "remoteIp": f"tcp://{peer.address}"}


def _destination_info(
    destination: Destination, connection_id: str | None, operation: DestinationOperation
) -> DestinationInfo:
    return DestinationInfo(
        connection_id=None if connection_id is None else ConnectionId(connection_id),
        destination=destination,
        operation_type=operation,
    )


def _may_be_about_messages(destination: Destination) -> bool:
    if destination.is_queue or destination.name in _ABOUT_TEMPORARY:
        return False
    return is_advisory(destination) or patterns_overlap(destination.name, ADVISORY_PREFIX + ">")


def _requested(consumer: ConsumerView) -> Destination:
    """Return the destination of a consumer as its client gave it, with all its parts."""
    request = consumer.request
    if not request.composite:
        return request.destination
    return request.destination._replace(name=",".join([each.name for each in request.destinations]))


def _consumer_subject(consumer: ConsumerView) -> str:
    destination = _requested(consumer)
    return f"Consumer.{_domain(destination)}.{_name(destination)}"


def _producer_subject(destination: Destination) -> str:
    return f"Producer.{_domain(destination)}.{_name(destination)}"


def _domain(destination: Destination) -> str:
    return "Queue" if destination.is_queue else "Topic"


def _name(destination: Destination) -> str:
    """Return a destination's name as part of a topic's name. A comma is escaped: it would make a composite topic."""
    return destination.name.replace(",", "&sbquo;")


def _topic(subject: str) -> Destination:
    return topic(ADVISORY_PREFIX + subject)
