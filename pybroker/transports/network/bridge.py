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

With `duplex` the remote broker does the same over this connection, from its ConnectionInfo on; see `duplex_client`.

Nothing before the messages is answered: an error comes as a ConnectionError, and ends the bridge. The demand table
decides which subscriptions there are; each connection begins with an empty one.

Source: ActiveMQ 5.17, `DemandForwardingBridgeSupport`; network.md 3, 8, 9.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from io import BytesIO
from typing import Any, Final

from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import BrokerError, ProtocolError
from pybroker.broker.domain.inactivity import InactivityMonitor
from pybroker.broker.domain.network.cluster import ClusterPeers
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.network.introduction import introduced
from pybroker.broker.domain.network.names import inbound_duplex_client_id, outbound_client_id
from pybroker.broker.domain.network.properties import asking, described, encode
from pybroker.broker.domain.network.rows import DemandRow
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.commands import (
    ActiveMQMessage,
    BaseCommand,
    BrokerId,
    BrokerInfo,
    BrokerSubscriptionInfo,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ExceptionResponse,
    KeepAliveInfo,
    MessageDispatch,
    RemoveInfo,
    Response,
    ShutdownInfo,
)
from pybroker.broker.domain.openwire.marshal.framing import FrameReader
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, agree, decode_offer, encode_offer
from pybroker.broker.domain.ports import BrokerPort
from pybroker.broker.domain.security import NETWORK_CONNECTOR, User
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.transports.fair_queue import FRAMES_PER_CLOCK
from pybroker.transports.network.demand_consumer import DemandConsumer
from pybroker.transports.network.duplex_client import DuplexClient
from pybroker.transports.network.forwarding_half import ForwardingHalf, cause_of
from pybroker.transports.network.forwarding_settings import ForwardingSettings
from pybroker.transports.network.remote_text import FIRST_BYTES, no_wire_format, one_bridge_of, protocol_hint
from pybroker.transports.openwire.durable_sync import subscription_infos
from pybroker.transports.openwire.peer import Peer, answered_command
from pybroker.transports.session import Link, Session

_log = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 30.0
"""The limit to the time until the remote broker's BrokerInfo, and then to that until it accepts the login; ActiveMQ has
none, and waits for ever."""

_ENDED_AT_ONCE: Final = (
    "its log has the reason, as an ActiveMQ sends none; it may be the password, or that it admits no anonymous client, "
    "and then takes one-way bridges only"
)
"""The remedy for an ActiveMQ whose own half of the bridge fails: it sends a ShutdownInfo without the cause."""

_MESSAGE_MIN: Final = ActiveMQMessage.DATA_TYPE
_MESSAGE_MAX: Final = 29
"""The data types of messages, one after the other."""


class BridgeEnd(Enum):
    """Why a bridge has ended."""

    STOPPED = "stopped"
    LOST = "the connection was lost"
    REFUSED = "the remote broker refuses the bridge"
    ITSELF = "the remote broker is this broker itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """The settings of one bridge.

    Attributes:
        connector: its connector.
        offer: the wire format that this broker offers: loose and without caching, as the store keeps messages.
        broker_url: the address of this broker for clients of the other one.
        connection_id: the first part of the ids of its connections, unique. `:1` is local, the last one is at the
            remote broker: `:2`, or `:3` if `:2` sends what a duplex bridge brings.
        interests: shared by all bridges of this broker.
        subscriptions: returns the durable subscriptions of a client id.
        announce: notifies the observers of this broker.
        peers: gets the remote broker while the bridge stands; None: clients get no addresses.
        user: who the bridge is at this broker.
    """

    connector: NetworkConnector
    offer: Offer
    broker_url: str
    connection_id: str
    interests: Interests
    subscriptions: Callable[[str], Iterable[DurableSubscription]]
    announce: Callable[[Callable[[Observer], None]], None]
    user: User = NETWORK_CONNECTOR
    peers: ClusterPeers | None = None


class BridgeSession(Session):
    """One connection of a bridge.

    Attributes:
        remote_name: the name of the remote broker; empty before its BrokerInfo.
        remote_id: its id.
        remote_url: its address for clients.
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
            on_begin: called once, when the remote broker has accepted the login.
            on_end: called once, when the bridge has ended.
        """
        self.remote_name = self.remote_id = self.remote_url = ""
        self.end: BridgeEnd | None = None
        self.reason = ""
        self._broker = broker
        self._link = link
        self._settings = settings
        self._connector = settings.connector
        self._call_soon = call_soon
        self._on_begin = on_begin
        self._on_end = on_end
        self._peer: Peer | None = None
        self._first_bytes = b""
        self._inactivity: InactivityMonitor | None = None
        self._frames = FrameReader(settings.offer.frame_bytes_max)
        self._begins_by = link.time() + HANDSHAKE_SECONDS
        self._is_accepted = False
        self._half: ForwardingHalf | None = None
        self._duplex: DuplexClient | None = None
        """The remote broker as a client of this one; None: messages go one way."""
        self._has_answered = False
        """True once a KeepAliveInfo came back, behind what introduces this broker."""
        self._command_id = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            BrokerInfo: self._begin,
            ConnectionInfo: self._register,
            RemoveInfo: self._remove,
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
        return self._half is not None and self.end is None

    @property
    def forwarded_count(self) -> int:
        """Messages that the remote broker has confirmed."""
        return 0 if self._half is None else self._half.forwarded_count

    @property
    def sent_count(self) -> int:
        """The messages that were sent to the remote broker."""
        return 0 if self._half is None else self._half.sent_count

    @property
    def received_count(self) -> int:
        """The messages that the remote broker has sent; 0 unless they go both ways."""
        return 0 if self._duplex is None else self._duplex.received_count

    @property
    def demand(self) -> Sequence[DemandConsumer]:
        """The demand subscriptions, those that end included."""
        return () if self._half is None or self.end is not None else self._half.demand

    def demand_rows(self) -> Iterable[DemandRow]:
        """Return the state of the demand subscriptions."""
        return () if self._half is None or self.end is not None else self._half.demand_rows()

    def receive(self, chunk: bytes) -> bool:
        """Carry out the frames that the chunk completes."""
        if self.end is not None:
            return False
        if self._inactivity is not None:
            self._inactivity.has_read = True
        if len(self._first_bytes) < FIRST_BYTES:
            self._first_bytes += chunk[: FIRST_BYTES - len(self._first_bytes)]
        self._frames.feed(chunk)
        if self._frames.whole is not None:
            whole, self._frames.whole = self._frames.whole, None
            self._guarded(partial(self._whole_frame, whole))
        return self.proceed()

    def proceed(self) -> bool:
        """Carry out the frames that are left."""
        frames, left = self._frames, FRAMES_PER_CLOCK
        try:
            while self.end is None and frames.advance():
                if not self._is_answer(frames.data, frames.start, frames.stop):
                    self._guarded(partial(self._frame, frames.data, frames.start, frames.stop))
                left -= 1
                if not left or EFFORT.is_large:
                    if self._link.is_slice_over():
                        self._end_of_chunk()
                        return self.end is None
                    left = FRAMES_PER_CLOCK
        except BrokerError as error:  # an impossible frame
            self._close_with(error)
        self._end_of_chunk()
        return False

    def _end_of_chunk(self) -> None:
        """Answer the messages so far together, once they are safe; acknowledge together what was answered."""
        if self.end is not None:
            return
        if self._duplex is not None:
            self._guarded(self._duplex.end_of_chunk)
        elif self._half is not None:
            self._guarded(self._half.end_of_chunk)

    def written(self) -> None:
        """Resume, and acknowledge what needs no answer."""
        if self._inactivity is not None:
            self._inactivity.wrote()
        if self._duplex is not None:
            self._guarded(self._duplex.written)
        elif self._half is not None:
            self._guarded(self._half.written)

    def handed_over(self) -> None:
        """Count all forwards so far as possibly received."""
        if self._duplex is not None:
            self._duplex.handed_over()
        elif self._half is not None:
            self._half.handed_over()

    def pause_writing(self) -> None:
        """Forward nothing until `written`."""
        if self._duplex is not None:
            self._duplex.pause()
        elif self._half is not None:
            self._half.pause()

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
        if self._half is None and now >= self._begins_by:
            self._close(BridgeEnd.LOST, f"no BrokerInfo came within {HANDSHAKE_SECONDS:g} seconds: is it a broker?")
            return
        if not self._is_accepted and now >= self._begins_by:
            self._close(BridgeEnd.LOST, f"the login was not answered within {HANDSHAKE_SECONDS:g} seconds")
            return
        if inactivity is not None and self._peer is not None:
            if inactivity.is_peer_dead(now, self._link.reading_since):
                self._close(BridgeEnd.LOST, f"nothing was received for {inactivity.seconds:g} seconds")
                return
            if inactivity.is_heartbeat_due(now):
                self._peer.send(KeepAliveInfo())
        if self._half is not None:
            self._guarded(partial(self._half.on_timer, now))
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
        reason = self._link.ending or "the remote broker closed the connection"
        if self._peer is None and reason == "the remote broker closed the connection":
            reason += f" before its WireFormatInfo: {protocol_hint(self._first_bytes)}"
        self._end(BridgeEnd.LOST, reason)

    def stop(self) -> None:
        """End the bridge: nothing more is forwarded."""
        self.stopping()
        self._close(BridgeEnd.STOPPED, "stopped")

    # ------------------------------------------------------------ frames

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BrokerError as error:
            self._close_with(error)

    def _close_with(self, error: BrokerError) -> None:
        """Close after an error; before the wire format is agreed, the other side may be no broker."""
        reason = str(error) if self._peer is not None else no_wire_format(error, self._first_bytes)
        self._close(BridgeEnd.LOST, reason)

    def _whole_frame(self, whole: BytesIO) -> None:
        """Carry out a large frame."""
        peer, duplex = self._peer, self._duplex
        if duplex is None or peer is None or not _MESSAGE_MIN <= whole.getbuffer()[0] <= _MESSAGE_MAX:
            data = whole.getvalue()
            self._frame(data, 0, len(data))
        elif peer.is_verbatim:
            duplex.whole_message(whole)
        else:
            duplex.foreign_message(whole)

    def _is_answer(self, chunk: bytes, start: int, stop: int) -> bool:
        """Carry out a frame if it is the answer to a message, as nearly all are; return False for any other."""
        half, peer = self._half, self._peer
        if half is None or peer is None or not peer.is_loose or half.awaits_acceptance:
            return False
        command_id = answered_command(chunk, start, stop)
        if command_id < 0:
            return False
        half.answered(command_id)
        return True

    def _frame(self, chunk: bytes, start: int, stop: int) -> None:
        """Carry out a frame, from its data type at `start` to its end at `stop`."""
        duplex = self._duplex
        if self._peer is None:
            self._agree(decode_offer(chunk[start:stop]))
            return
        if duplex is not None and self._peer.is_verbatim and _MESSAGE_MIN <= chunk[start] <= _MESSAGE_MAX:
            duplex.message(chunk, start, stop)
            return
        command = self._peer.wire.decode(chunk[start:stop])
        if not isinstance(command, BaseCommand):
            raise ProtocolError(f"a {type(command).__name__} where a command belongs")
        handler = self._handlers.get(type(command))
        if handler is not None:
            handler(command)
        elif duplex is not None:
            duplex.obey(command)
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
        if self._half is not None:
            return
        remote_id, remote_name = introduced(info)
        self.remote_id, self.remote_name, self.remote_url = remote_id, remote_name, info.broker_url or ""
        if remote_id == self._broker.id:
            self._close(BridgeEnd.ITSELF, "the address is that of this broker itself")
            return
        settings = self._settings
        assert self._peer is not None, "the wire format is agreed before the first command"
        with one_bridge_of(self._connector.name, remote_name):
            self._half = ForwardingHalf(
                broker=self._broker,
                link=self._link,
                peer=self._peer,
                settings=ForwardingSettings(
                    connector=self._connector,
                    remote_id=remote_id,
                    remote_name=self.remote_name,
                    local_connection_id=f"{settings.connection_id}:1",
                    remote_connection_id=f"{settings.connection_id}:{3 if self._connector.duplex else 2}",
                    interests=settings.interests,
                    subscriptions=settings.subscriptions,
                    announce=settings.announce,
                    user=settings.user,
                    label=str(self),
                    remote_url=info.broker_url or "",
                ),
                next_command_id=self._next_command_id,
                call_soon=self._call_soon,
                on_deadline=self._schedule,
                on_error=self.give_up,
                on_accepted=self._accepted,
            )
        if self._connector.duplex:
            self._open_duplex(self._half, self._peer)
        self._begins_by = self._link.time() + HANDSHAKE_SECONDS
        self._introduce()
        self._half.introduce()
        if self._duplex is not None:
            self._peer.send(KeepAliveInfo(response_required=True))
        self._half.start()
        self._schedule()

    def _accepted(self) -> None:
        self._is_accepted = True
        self._schedule()
        self._on_begin(self)

    def _introduce(self) -> None:
        """Send what opens a bridge; nothing of it is answered."""
        connector, settings = self._connector, self._settings
        self._send(
            BrokerInfo(
                broker_id=BrokerId(self._broker.id),
                broker_name=self._broker.name,
                broker_url=settings.broker_url,
                network_connection=True,
                duplex_connection=connector.duplex,
                network_properties=encode((described if connector.duplex else asking)(connector, self._broker.name)),
            )
        )
        if connector.sync_durable_subs and self._peer is not None:
            self._send_subscriptions(self._peer)

    def _open_duplex(self, half: ForwardingHalf, peer: Peer) -> None:
        """Be ready for what the remote broker forwards."""
        settings = self._settings
        connection = self._broker.connect(
            f"{settings.connection_id}:2",
            inbound_duplex_client_id(self._connector, self.remote_name, self._broker.name),
            self._link,
            settings.user,
        )
        self._duplex = DuplexClient(connection, peer, half, next_sequence=self._broker.next_sequence)

    def _register(self, info: ConnectionInfo) -> None:
        """Make the remote broker a client of this one, under the name that its connector has here.

        It does not choose the name, by which it could take over the connection of another client.
        """
        duplex = self._duplex
        if duplex is None or duplex.is_registered or info.connection_id is None:
            return
        client_id = outbound_client_id(self._connector, self.remote_name)
        connection_id = info.connection_id.value or ""
        duplex.register(self._broker.connect(connection_id, client_id, self._link, self._settings.user))
        self._accept_duplex()

    def _accept_duplex(self) -> None:
        """Count the login as accepted, once the remote broker's half and the answer to a KeepAliveInfo are here.

        An ActiveMQ does not answer the producer of a duplex bridge. It sends its half before it looks at the login, and
        the answer behind it; a pybroker sends the half after the login. So both together prove it with either.
        """
        duplex = self._duplex
        if self._has_answered and duplex is not None and duplex.is_registered and self._half is not None:
            self._half.accepted()

    def _send_subscriptions(self, peer: Peer) -> None:
        """List the durable subscriptions of this broker, which the other half of a duplex bridge needs."""
        if peer.wire.version >= BrokerSubscriptionInfo.SINCE:
            states = self._broker.admin.durable_subscriptions()
            topics = [each for each in self._connector.dynamically_included if each.is_topic] or [topic(">")]
            subscriptions = subscription_infos(states, topics, self._broker.id)
            if subscriptions is not None:
                self._send(
                    BrokerSubscriptionInfo(
                        broker_id=BrokerId(self._broker.id),
                        broker_name=self._broker.name,
                        subscription_infos=subscriptions,
                    )
                )

    def _send(self, command: BaseCommand) -> None:
        assert self._peer is not None, "the remote broker has introduced itself"
        command.command_id = self._next_command_id()
        self._peer.send(command)

    def _next_command_id(self) -> int:
        self._command_id += 1
        return self._command_id

    # ------------------------------------------------------------ advisories, answers

    def _hear(self, dispatch: MessageDispatch) -> None:
        """Follow the demand of the remote broker, from an advisory."""
        if dispatch.message is not None and self._half is not None:
            self._half.advised(dispatch.message, dispatch.destination)

    def _remove(self, info: RemoveInfo) -> None:
        """End the bridge if the remote broker removes its connection; otherwise remove its consumer of advisories."""
        if isinstance(info.object_id, ConnectionId):
            self._close(BridgeEnd.LOST, "the remote broker has removed its connection")
        elif self._duplex is not None:
            self._duplex.obey(info)

    def _compare_subscriptions(self, info: BrokerSubscriptionInfo) -> None:
        if self._half is not None:
            self._half.compare_subscriptions(info.subscription_infos)

    def _answered(self, response: Response) -> None:
        if self._half is not None:
            self._half.answered(response.correlation_id)

    def _refused(self, response: ExceptionResponse) -> None:
        if self._half is not None:
            self._half.refused(response)

    # ------------------------------------------------------------ timers, end

    def _schedule(self) -> None:
        if self.end is not None:
            return
        times = [] if self._half is None else self._half.deadlines
        if not self._is_accepted:
            times.append(self._begins_by)
        if self._inactivity is not None:
            times.append(self._inactivity.next_check)
        self._link.wake_at(min(times, default=None))

    def _keep_alive(self, info: KeepAliveInfo) -> None:
        if info.response_required:
            if self._peer is not None:
                self._peer.send(KeepAliveInfo())
        else:
            self._has_answered = self._half is not None
            self._accept_duplex()

    def _fail(self, error: ConnectionErrorCommand) -> None:
        self.stopping()
        self._close(BridgeEnd.REFUSED, cause_of(error.exception))

    def _shut_down(self, info: ShutdownInfo) -> None:
        reason = "the remote broker stops"
        if self._duplex is not None and self._half is not None and self._half.awaits_acceptance:
            reason = f"the remote broker ends the duplex bridge before it is up: {_ENDED_AT_ONCE}"
        self._close(BridgeEnd.LOST, reason)

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
        duplex, self._duplex = self._duplex, None
        try:
            if duplex is not None:
                duplex.close()
            elif self._half is not None:
                self._half.close()
        except BrokerError as error:  # a store that failed: what had no answer is delivered by the next master
            _log.error("%s cannot be removed: %s", self, error)
        self._on_end(self)

    def __str__(self) -> str:
        """Return the connector's name and the remote address, for logs."""
        return f"network connector {self._connector.name} to {self._link.peer}"
