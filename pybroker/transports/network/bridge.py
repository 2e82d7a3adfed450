"""The initiator's half of a bridge: the conversation with the broker that this one has dialled, sans-I/O.

```text
this broker                                   the remote broker
WireFormatInfo                    -->  <--    WireFormatInfo
                                       <--    BrokerInfo
BrokerInfo, ConnectionInfo, SessionInfo,
ProducerInfo, ConsumerInfo of advisories -->
                                       <--    MessageDispatch of an advisory: a consumer begins, or ends
Message                           -->
                                       <--    Response: it is safe there, and acknowledged here
```

Nothing before the messages is answered: an error comes as a ConnectionError, and ends the bridge. The demand table
decides which subscriptions there are; each connection begins with an empty one.

Source: ActiveMQ 5.17, `DemandForwardingBridgeSupport`; network.md 3, 5, 6, 9.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import count
from typing import Any, Final

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import ADVISORY_PREFIX, Destination
from pybroker.broker.domain.errors import BrokerError, ProtocolError, RequestError
from pybroker.broker.domain.inactivity import InactivityMonitor
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.network.changes import BeginDemand, DeleteDurable, DemandChange, EndDemand, LocalDemand
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.demand import DemandTable
from pybroker.broker.domain.network.forwarding import forwarded
from pybroker.broker.domain.network.hops import may_pass
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.network.names import advisory_destination, inbound_client_id, outbound_client_id
from pybroker.broker.domain.network.overlap import OverlapFilter
from pybroker.broker.domain.network.permission import Permissions
from pybroker.broker.domain.network.properties import described, encode
from pybroker.broker.domain.openwire.commands import (
    AckType,
    BaseCommand,
    BrokerId,
    BrokerInfo,
    BrokerSubscriptionInfo,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    ExceptionResponse,
    KeepAliveInfo,
    MessageAck,
    MessageDispatch,
    OpenWireMessageId,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    Response,
    SessionId,
    SessionInfo,
    ShutdownInfo,
)
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.framing import FrameReader
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, agree, decode_offer, encode_offer
from pybroker.broker.domain.openwire.throwables import Throwable
from pybroker.broker.domain.ports import BrokerPort, ConnectionPort
from pybroker.broker.domain.security import ANONYMOUS, User
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription, NetworkSubscription
from pybroker.transports.fair_queue import FRAMES_PER_CLOCK
from pybroker.transports.network.demand_consumer import DemandConsumer
from pybroker.transports.openwire.peer import Peer
from pybroker.transports.session import Link, Session

_log = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 30.0
"""The limit to the time until the remote broker's BrokerInfo; ActiveMQ has none, and waits for ever."""

ENDING_SECONDS: Final = 30.0
"""The limit to the time for which a subscription that ends waits for answers."""

_VERBATIM: Final = WireFormat(version=12)
"""The form in which messages are kept and forwarded."""

_SESSION: Final = 1
_PRODUCER: Final = 1
_ADVISORY_CONSUMER: Final = 1

_INTERPRETED: Final = tuple(
    ADVISORY_PREFIX + each for each in ("Consumer.", "VirtualDestination.Consumer.", "TempQueue", "TempTopic")
)
"""Advisories that a bridge interprets, and never forwards."""

_FINAL: Final = frozenset(
    (
        "java.lang.SecurityException",
        "javax.jms.JMSSecurityException",
        "javax.jms.InvalidDestinationException",
        "org.apache.activemq.broker.region.policy.DestinationDoesNotExistException",
        "org.apache.activemq.DestinationDoesNotExistException",
        "org.apache.activemq.broker.region.DestinationDoesNotExistException",
    )
)
"""Exceptions after which the same message is refused again."""


class BridgeEnd(Enum):
    """Why a bridge has ended."""

    STOPPED = "stopped"
    LOST = "the connection was lost"
    REFUSED = "the remote broker refuses the bridge"
    ITSELF = "the remote broker is this broker itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """What a bridge is made with.

    Attributes:
        connector: its connector.
        offer: the wire format that this broker offers: loose and without caching, as the store keeps messages.
        broker_url: the address of this broker for clients of the other one.
        connection_id: the first part of the ids of its connections, unique; `:1` is local, `:2` at the remote broker.
        interests: shared by all bridges of this broker.
        subscriptions: returns the durable subscriptions of a client id.
        user: who the bridge is at this broker.
    """

    connector: NetworkConnector
    offer: Offer
    broker_url: str
    connection_id: str
    interests: Interests
    subscriptions: Callable[[str], Iterable[DurableSubscription]]
    user: User = ANONYMOUS


class BridgeSession(Session):
    """One connection of a bridge.

    Attributes:
        remote_name: the name of the remote broker; empty before its BrokerInfo.
        remote_id: its id.
        forwarded_count: messages that it has confirmed.
        end: why the bridge has ended; None: it has not.
        reason: the reason in words, for the log.
    """

    def __init__(
        self,
        *,
        broker: BrokerPort,
        link: Link,
        settings: BridgeSettings,
        call_soon: Callable[[Callable[[], None]], object],
        on_begin: Callable[["BridgeSession"], None],
        on_end: Callable[["BridgeSession"], None],
    ) -> None:
        """Send the WireFormatInfo, and wait for the remote broker.

        Args:
            broker: this broker.
            link: moves the bytes.
            settings: the bridge's.
            call_soon: calls back in a later turn of the event loop.
            on_begin: called once the bridge stands.
            on_end: called once, when the bridge has ended.
        """
        self.remote_name = self.remote_id = ""
        self.forwarded_count = 0
        self.end: BridgeEnd | None = None
        self.reason = ""
        self._broker = broker
        self._link = link
        self._settings = settings
        self._connector = settings.connector
        self._call_soon = call_soon
        self._on_begin = on_begin
        self._on_end = on_end
        self._permissions = Permissions(settings.connector)
        self._peer: Peer | None = None
        self._inactivity: InactivityMonitor | None = None
        self._frames = FrameReader(settings.offer.frame_bytes_max)
        self._begins_by = link.time() + HANDSHAKE_SECONDS
        self._connection: ConnectionPort | None = None
        self._table: DemandTable | None = None
        self._overlap: OverlapFilter | None = None
        self._consumers: dict[int, DemandConsumer] = {}
        self._ending: list[DemandConsumer] = []
        self._numbers = count(1)
        self._producer_id = ProducerId(f"{settings.connection_id}:2", _SESSION, _PRODUCER)
        self._command_id = 0
        self._unanswered: dict[int, tuple[DemandConsumer, Delivery]] = {}
        self._unconfirmed: deque[tuple[DemandConsumer, Delivery]] = deque()
        """Messages that need no answer, until they have left the process."""
        self._is_settling = False
        self._advisory_count = 0
        """Advisories since the last acknowledgement."""
        self._paused = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            BrokerInfo: self._begin,
            BrokerSubscriptionInfo: self._compare_subscriptions,
            MessageDispatch: self._hear,
            Response: self._answered,
            ExceptionResponse: self._refused,
            ConnectionErrorCommand: self._fail,
            KeepAliveInfo: self._keep_alive,
            ShutdownInfo: self._shut_down,
        }
        link.wake_at(self._begins_by)
        link.write(encode_offer(settings.offer))

    # ------------------------------------------------------------ Session

    @property
    def is_connected(self) -> bool:
        """True while the bridge stands."""
        return self._connection is not None

    def receive(self, chunk: bytes) -> bool:
        """Carry out the frames that the chunk completes."""
        if self.end is not None:
            return False
        if self._inactivity is not None:
            self._inactivity.has_read = True
        self._frames.feed(chunk)
        if self._frames.whole is not None:
            whole, self._frames.whole = self._frames.whole.getvalue(), None
            self._guarded(partial(self._frame, whole))
        return self.proceed()

    def proceed(self) -> bool:
        """Carry out the frames that are left."""
        frames, left = self._frames, FRAMES_PER_CLOCK
        while self.end is None and frames.advance():
            self._guarded(partial(self._frame, frames.data[frames.start : frames.stop]))
            left -= 1
            if not left:
                if self._link.is_slice_over():
                    return self.end is None
                left = FRAMES_PER_CLOCK
        return False

    def written(self) -> None:
        """Resume, and acknowledge what needs no answer."""
        if self._inactivity is not None:
            self._inactivity.wrote()
        if self._connection is not None:
            self._connection.written()
            self._settle()
            if self._paused:
                self._paused = False
                self._connection.resume()

    def handed_over(self) -> None:
        """Count all forwards so far as possibly received."""
        if self._connection is not None:
            self._connection.written()

    def pause_writing(self) -> None:
        """Forward nothing until `written`."""
        if self._connection is not None:
            self._paused = True
            self._connection.pause()

    def hold(self) -> None:
        """Carry out no frame behind the present one."""
        self._frames.hold()

    def release(self) -> None:
        """Carry out frames again."""
        self._frames.release()

    def on_timer(self) -> None:
        """End if the remote broker is silent for too long, send a KeepAliveInfo, resume and end subscriptions."""
        now = self._link.time()
        inactivity = self._inactivity
        if self._connection is None and now >= self._begins_by:
            self._close(BridgeEnd.LOST, f"no BrokerInfo came within {HANDSHAKE_SECONDS:g} seconds: is it a broker?")
            return
        if inactivity is not None and self._peer is not None:
            if inactivity.is_peer_dead(now, self._link.reading_since):
                self._close(BridgeEnd.LOST, f"nothing was received for {inactivity.seconds:g} seconds")
                return
            if inactivity.is_heartbeat_due(now):
                self._peer.send(KeepAliveInfo())
        self._guarded(partial(self._look_after, now))
        if self.end is None:
            self._schedule()

    def stopping(self) -> None:
        """Tell the remote broker."""
        if self._peer is not None and self.end is None:
            self._peer.send(ShutdownInfo())

    def give_up(self, error: BrokerError) -> None:
        """End with an error of this broker."""
        self._close(BridgeEnd.LOST, str(error))

    def lost(self) -> None:
        """Return what has no answer, and report the end."""
        self._end(BridgeEnd.LOST, self._link.ending or "the remote broker closed the connection")

    def stop(self) -> None:
        """End the bridge: nothing more is forwarded."""
        self.stopping()
        self._close(BridgeEnd.STOPPED, "stopped")

    # ------------------------------------------------------------ frames

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BrokerError as error:
            self._close(BridgeEnd.LOST, str(error))

    def _frame(self, data: bytes) -> None:
        if self._peer is None:
            self._agree(decode_offer(data))
            return
        command = self._peer.wire.decode(data)
        if not isinstance(command, BaseCommand):
            raise ProtocolError(f"a {type(command).__name__} where a command belongs")
        handler = self._handlers.get(type(command))
        if handler is not None:
            handler(command)
        else:
            _log.debug("%s: a %s is ignored", self._link.peer, type(command).__name__)

    def _agree(self, offer: Offer) -> None:
        agreement = agree(self._settings.offer, offer)
        self._peer = Peer(self._link, agreement.wire_format())
        now = self._link.time()
        first = now + agreement.initial_delay_ms / 1000
        self._inactivity = InactivityMonitor(agreement.max_inactivity_ms / 1000, first, first)
        self._schedule()

    def _begin(self, info: BrokerInfo) -> None:
        """Introduce this broker, once the other one has, and connect."""
        if self._connection is not None:
            return
        remote_id = "" if info.broker_id is None else info.broker_id.value or ""
        if not remote_id or not info.broker_name:
            raise ProtocolError("the remote broker does not say its id and its name")
        self.remote_id, self.remote_name = remote_id, info.broker_name
        if remote_id == self._broker.id:
            self._close(BridgeEnd.ITSELF, "the address is that of this broker itself")
            return
        connector, settings = self._connector, self._settings
        local_id = f"{settings.connection_id}:1"
        self._connection = connection = self._broker.connect(
            local_id,
            inbound_client_id(connector.name, self.remote_name, self._broker.name),
            self._link,
            settings.user,
            takes_over=True,
        )
        self._table = table = DemandTable(
            connector,
            self._permissions,
            settings.interests,
            local_broker_id=self._broker.id,
            remote_broker_id=remote_id,
            local_broker_name=self._broker.name,
            remote_broker_name=self.remote_name,
            local_connection_id=local_id,
            number=partial(next, self._numbers),
            wake=self._wake,
        )
        self._overlap = OverlapFilter(table.taking)
        self._introduce()
        self._on_begin(self)
        for subscription in settings.subscriptions(connection.client_id):
            self._change(table.restored(subscription))
        self._change(table.static())
        self._schedule()

    def _introduce(self) -> None:
        """Send what opens a bridge; nothing of it is answered."""
        connector, settings = self._connector, self._settings
        connection_id = f"{settings.connection_id}:2"
        self._send(
            BrokerInfo(
                broker_id=BrokerId(self._broker.id),
                broker_name=self._broker.name,
                broker_url=settings.broker_url,
                network_connection=True,
                duplex_connection=connector.duplex,
                network_properties=encode(described(connector, self._broker.name)),
            )
        )
        if connector.sync_durable_subs:
            self._send(BrokerSubscriptionInfo(broker_id=BrokerId(self._broker.id), broker_name=self._broker.name))
        self._send(
            ConnectionInfo(
                connection_id=ConnectionId(connection_id),
                client_id=outbound_client_id(connector.name, self._broker.name),
                user_name=connector.remote_user_name or connector.user_name or None,
                password=connector.remote_password or connector.password or None,
                client_master=True,
            )
        )
        self._send(SessionInfo(session_id=SessionId(connection_id, _SESSION)))
        self._send(ProducerInfo(producer_id=self._producer_id))
        if not connector.static_bridge:
            self._send(
                ConsumerInfo(
                    consumer_id=self._advisory_consumer_id,
                    destination=advisory_destination(connector),
                    prefetch_size=self._advisory_prefetch,
                    dispatch_async=True,
                )
            )

    def _send(self, command: BaseCommand) -> None:
        assert self._peer is not None, "the remote broker has introduced itself"
        command.command_id = self._next_command_id()
        self._peer.send(command)

    def _next_command_id(self) -> int:
        self._command_id += 1
        return self._command_id

    @property
    def _advisory_consumer_id(self) -> ConsumerId:
        return ConsumerId(f"{self._settings.connection_id}:2", _SESSION, _ADVISORY_CONSUMER)

    @property
    def _advisory_prefetch(self) -> int:
        return self._connector.advisory_prefetch_size or self._connector.prefetch_size

    # ------------------------------------------------------------ demand

    def _hear(self, dispatch: MessageDispatch) -> None:
        """Follow the demand of the remote broker, from an advisory."""
        message = dispatch.message
        if message is None or self._table is None:
            return
        match message.data_structure:
            case ConsumerInfo() as info:
                self._change(self._table.consumer_added(info))
            case RemoveInfo(object_id=ConsumerId() as consumer_id):
                self._change(self._table.consumer_removed(consumer_id))
            case RemoveSubscriptionInfo(client_id=client_id, subscription_name=str() as name):
                self._change(self._table.subscription_removed(client_id, name))
            case _:
                pass
        self._acknowledge_advisory(dispatch.destination, message.message_id)

    def _acknowledge_advisory(self, destination: Destination | None, message_id: OpenWireMessageId | None) -> None:
        """Acknowledge advisories, many at once."""
        self._advisory_count += 1
        if self._advisory_count > self._advisory_prefetch * self._connector.advisory_ack_percentage / 100:
            self._send(
                MessageAck(
                    ack_type=AckType.STANDARD,
                    consumer_id=self._advisory_consumer_id,
                    destination=destination,
                    last_message_id=message_id,
                    message_count=self._advisory_count,
                )
            )
            self._advisory_count = 0

    def _compare_subscriptions(self, info: BrokerSubscriptionInfo) -> None:
        if self._table is not None:
            self._change(self._table.remote_subscriptions(each for each in info.subscription_infos or () if each))

    def _wake(self) -> None:
        self._call_soon(self._reconsider)

    def _reconsider(self) -> None:
        if self._table is not None and self.end is None:
            self._guarded(partial(self._change, self._table.reconsider()))

    def _change(self, changes: Iterable[DemandChange]) -> None:
        """Carry out the changes of the demand table."""
        for change in changes:
            if isinstance(change, BeginDemand):
                self._subscribe(change.demand.number, self._request(change.demand))
            elif isinstance(change, EndDemand):
                self._unsubscribe(change.number, deletes_durable=change.deletes_durable)
            elif isinstance(change, DeleteDurable):
                self._delete_durable(change.subscription_name)
            elif (consumer := self._consumers.get(change.number)) is not None:
                # The new one begins before the other takes no more, so that no message of a topic is between them.
                again = replace(consumer.request, selector=change.selector, consumer_id=self._new_consumer_id())
                self._subscribe(change.number, again)
                self._wind_up(consumer, deletes_durable=False)

    def _new_consumer_id(self) -> ConsumerId:
        return ConsumerId(f"{self._settings.connection_id}:1", _SESSION, next(self._numbers))

    def _request(self, demand: LocalDemand) -> ConsumerRequest:
        return ConsumerRequest(
            destination=demand.destination,
            prefetch=self._connector.prefetch_size,
            selector=demand.selector,
            subscription_name=demand.subscription_name,
            no_local=demand.no_local,
            exclusive=demand.exclusive,
            priority=demand.priority,
            retroactive=demand.retroactive,
            pending_limit=demand.pending_limit,
            consumer_id=ConsumerId(f"{self._settings.connection_id}:1", _SESSION, demand.number),
            network=NetworkSubscription(
                remote_broker_id=self.remote_id,
                broker_path=demand.broker_path,
                consumer_path=demand.consumer_path,
                admits=self._admits,
            ),
        )

    def _admits(self, message: Message) -> bool:
        """Return True for a message that may go over the bridge."""
        if message.destination.name.startswith(_INTERPRETED) or not self._permissions.admits(message.destination):
            return False
        path = () if message.bridge is None else message.bridge.broker_path
        return may_pass(path, self.remote_id, self._connector.message_ttl)

    def _subscribe(self, number: int, request: ConsumerRequest) -> None:
        assert self._connection is not None, "demand comes after the connection"
        try:
            consumer = DemandConsumer(number, request, self._connection, self._forward)
        except RequestError as error:
            _log.warning("%s: no messages of %s go to %s: %s", self, request.destination, self.remote_name, error)
            return
        self._consumers[number] = consumer
        consumer.start()

    def _unsubscribe(self, number: int, *, deletes_durable: bool) -> None:
        consumer = self._consumers.pop(number, None)
        if consumer is not None:
            self._wind_up(consumer, deletes_durable=deletes_durable)

    def _wind_up(self, consumer: DemandConsumer, *, deletes_durable: bool) -> None:
        consumer.end(self._link.time() + ENDING_SECONDS, deletes_durable=deletes_durable)
        self._ending.append(consumer)
        self._end_idle()
        self._schedule()

    def _end_idle(self) -> None:
        """Close the subscriptions that end, and have all their answers."""
        if not self._ending:
            return
        now = self._link.time()
        for consumer in [each for each in self._ending if each.is_idle or (each.ends_by or 0.0) <= now]:
            self._ending.remove(consumer)
            consumer.close()
            name = consumer.request.subscription_name
            if consumer.deletes_durable and name is not None:
                self._delete_durable(name)

    def _delete_durable(self, name: str) -> None:
        assert self._connection is not None, "demand comes after the connection"
        try:
            self._connection.unsubscribe(self._connection.client_id, name)
        except RequestError as error:
            _log.warning("%s: the durable subscription %s stays: %s", self, name, error)

    # ------------------------------------------------------------ messages

    def _forward(self, consumer: DemandConsumer, delivery: Delivery) -> None:
        """Send a message, during a dispatch of this broker: nothing may be acknowledged before its end."""
        message = delivery.message
        assert self._peer is not None, "deliveries come after the connection"
        assert self._overlap is not None, "deliveries come after the connection"
        if not self._overlap.is_first(consumer.number, message.destination, message.message_id):
            self._settle_later(consumer, delivery)
            return
        is_answered = message.persistent or self._connector.always_sync_send
        command_id = self._next_command_id()
        data = forwarded(
            message,
            producer_id=self._producer_id,
            broker_id=self._broker.id,
            redelivery_count=delivery.redelivery_count,
            command_id=command_id,
            response_required=is_answered,
        )
        if self._peer.is_verbatim:
            self._link.write(INT.pack(len(data)))
            self._link.write(data)
        else:
            self._peer.send(_VERBATIM.decode(data))
        if is_answered:
            self._unanswered[command_id] = (consumer, delivery)
        else:
            self._settle_later(consumer, delivery)

    def _settle_later(self, consumer: DemandConsumer, delivery: Delivery) -> None:
        self._unconfirmed.append((consumer, delivery))
        if not self._is_settling:
            self._is_settling = True
            self._call_soon(self._settle)

    def _settle(self) -> None:
        """Acknowledge what the remote broker does not answer."""
        self._is_settling = False
        settled, self._unconfirmed = self._unconfirmed, deque()
        if self.end is None:
            for consumer, delivery in settled:
                self._guarded(partial(consumer.accepted, delivery))
            self._guarded(self._end_idle)

    def _answered(self, response: Response) -> None:
        found = self._unanswered.pop(response.correlation_id, None)
        if found is not None:
            consumer, delivery = found
            self.forwarded_count += 1
            consumer.accepted(delivery)
            self._end_idle()

    def _refused(self, response: ExceptionResponse) -> None:
        """Give up a message that will be refused again; otherwise let its subscription pause, and no other."""
        found = self._unanswered.pop(response.correlation_id, None)
        if found is None:
            return
        consumer, delivery = found
        cause = _cause(response.exception)
        _log.warning("%s: %s refuses %s: %s", self, self.remote_name, delivery.message.message_id, cause)
        if response.exception is not None and response.exception.class_name in _FINAL:
            consumer.refused(delivery, f"{self.remote_name} refuses it: {cause}")
        else:
            consumer.postponed(delivery, self._link.time())
            self._schedule()
        self._end_idle()

    # ------------------------------------------------------------ timers, end

    def _look_after(self, now: float) -> None:
        for consumer in list(self._consumers.values()):
            if consumer.resumes_at is not None and consumer.resumes_at <= now:
                consumer.resume()
        self._end_idle()

    def _schedule(self) -> None:
        times = [each.resumes_at for each in self._consumers.values() if each.resumes_at is not None]
        times += [each.ends_by for each in self._ending if each.ends_by is not None]
        if self._connection is None:
            times.append(self._begins_by)
        if self._inactivity is not None:
            times.append(self._inactivity.next_check)
        self._link.wake_at(min(times, default=None))

    def _keep_alive(self, info: KeepAliveInfo) -> None:
        if info.response_required and self._peer is not None:
            self._peer.send(KeepAliveInfo())

    def _fail(self, error: ConnectionErrorCommand) -> None:
        self.stopping()
        self._close(BridgeEnd.REFUSED, _cause(error.exception))

    def _shut_down(self, info: ShutdownInfo) -> None:
        self._close(BridgeEnd.LOST, "the remote broker stops")

    def _close(self, end: BridgeEnd, reason: str) -> None:
        if self.end is None:
            self._link.wake_at(None)
            self._link.close()
            self._end(end, reason)

    def _end(self, end: BridgeEnd, reason: str) -> None:
        """Return what has no answer, in its order, and report the end."""
        if self.end is not None:
            return
        self.end, self.reason = end, reason
        self._frames.clear()
        self._handlers = {}  # they refer to this session
        self._unanswered.clear()
        self._unconfirmed.clear()
        self._consumers.clear()
        self._ending.clear()
        if self._table is not None:
            self._table.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except BrokerError as error:  # a store that failed: what had no answer is delivered by the next master
                _log.error("%s cannot be removed: %s", self, error)
        self._on_end(self)

    def __str__(self) -> str:
        """Return the connector's name and the remote address, for logs."""
        return f"network connector {self._connector.name} to {self._link.peer}"


def _cause(exception: Throwable | None) -> str:
    if exception is None:
        return "no reason was given"
    return exception.message or exception.class_name or "no reason was given"
