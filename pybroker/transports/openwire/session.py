"""The session of an OpenWire connection, sans-I/O: turns received bytes into calls to the broker, and frames to send.

It negotiates, connects, closes, and has the timers; `client` carries out the commands of a connected client, and
`states` has the state machine.

Source: OpenWire, "WireFormatInfo and negotiation", "Connecting", "Closing", "Inactivity"; ActiveMQ 5.17.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any, Final, cast

from pybroker.broker.domain import audit
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import BrokerError, InvalidClientId, ProtocolError, RequestError, ResourceLimit
from pybroker.broker.domain.inactivity import InactivityMonitor
from pybroker.broker.domain.network.cluster import ClusterPeers
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.rows import IncomingBridgeRow
from pybroker.broker.domain.openwire.commands import (
    BaseCommand,
    BrokerId,
    BrokerInfo,
    BrokerSubscriptionInfo,
    ConnectionControl,
    ConnectionId,
    ConnectionInfo,
    KeepAliveInfo,
    MessagePull,
    RemoveInfo,
    ShutdownInfo,
)
from pybroker.broker.domain.openwire.marshal.framing import FrameReader
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, agree, decode_offer, encode_offer
from pybroker.broker.domain.ports import BrokerPort, ConnectionPort
from pybroker.broker.domain.security import ANONYMOUS, WITHOUT_LOGINS, Authenticator, NotAuthenticated, User
from pybroker.transports.client_log import ClientLog
from pybroker.transports.fair_queue import FRAMES_PER_CLOCK
from pybroker.transports.frame_memory import UNRESERVED_BYTES
from pybroker.transports.login import PeerLogin
from pybroker.transports.openwire.client import OpenWireClient
from pybroker.transports.openwire.duplex import DuplexRequest, OpenDuplex, duplex_connector
from pybroker.transports.openwire.durable_sync import LIST_BYTES_MAX, EarlyLists, asked_for, subscription_infos
from pybroker.transports.openwire.faults import WrongState
from pybroker.transports.openwire.incoming import BridgeLogin, IncomingBridge, incoming_row
from pybroker.transports.openwire.ownership import ConnectionOwners, is_returning_bridge
from pybroker.transports.openwire.peer import Peer
from pybroker.transports.openwire.settings import OpenWireSettings
from pybroker.transports.openwire.states import TRANSITIONS, OpenWireEvent, OpenWireState
from pybroker.transports.session import INPUT_WAIT_SECONDS, Link, Session

_log = logging.getLogger(__name__)

_UNCONNECTED_FRAME_MAX: Final = 64 << 10
"""The limit to a frame before ConnectionInfo has been accepted: a WireFormatInfo has about 300 bytes, a ConnectionInfo
as much and its password, which may be a token of some kB."""

_NEVER = float("inf")
_ACK: Final = 22
_MESSAGE_MIN: Final = 23
_MESSAGE_MAX: Final = 29
_RESPONSE: Final = 30


_LOGIN_FACTOR: Final = 10
"""The time limit for a ConnectionInfo, in those for a WireFormatInfo: 5 minutes by default."""

_REFUSED_SECONDS: Final = 2.0
"""The time from a refused login to the close, as in ActiveMQ: a client whose transport connects again at once, for as
long as its password is wrong, tries no oftener."""

UNCONNECTED_FRAMES_MAX: Final = 16
"""The limit to frames other than KeepAliveInfo before a login."""

_CLOSED: Final = OpenWireState.CLOSED
"""A module constant: looking a member up in its enum costs more than comparing with it."""


class Sessions:
    """The OpenWire sessions of a broker.

    Attributes:
        by_id: those of connected clients, by connection id.
        bridges: those of bridges of other brokers, by client id.
        open_duplex: serves a bridge over which messages go both ways; None: such bridges are served one way.
        early_lists: what bridges have listed before their logins.
        owners: the clients of these and of former connections.
        peers: gets the brokers whose duplex bridges come and go; None: no listener sends their addresses to clients.
        on_bridge: called with the name of each broker whose bridge is admitted.
        reconnection_count: the connections whose client was connected before, to this broker or to another.
    """

    __slots__ = ("bridges", "by_id", "early_lists", "on_bridge", "open_duplex", "owners", "peers", "reconnection_count")

    def __init__(self, open_duplex: OpenDuplex | None = None, peers: ClusterPeers | None = None) -> None:
        self.open_duplex = open_duplex
        self.by_id: dict[str, OpenWireSession] = {}
        self.bridges: dict[str, OpenWireSession] = {}
        self.early_lists = EarlyLists()
        self.owners = ConnectionOwners()
        self.peers = peers
        self.on_bridge: Callable[[str], None] | None = None
        self.reconnection_count = 0

    def bridge_rows(self) -> "list[IncomingBridgeRow]":
        """Return the state of the bridges that other brokers have opened."""
        return [found.row for each in self.bridges.values() if (found := each.bridge) is not None]


class OpenWireSession(Session):
    """Serves one OpenWire connection.

    Attributes:
        client_id: the client's id; empty until it is connected.
        user: who the client is.
    """

    def __init__(
        self,
        *,
        broker: BrokerPort,
        link: Link,
        settings: OpenWireSettings,
        sessions: Sessions,
        authenticator: Authenticator = WITHOUT_LOGINS,
    ) -> None:
        """Send the WireFormatInfo, and wait for the peer's.

        Args:
            broker: admits the client.
            link: moves the bytes.
            settings: the offer and its limits.
            sessions: those of the whole broker; a client that reconnects closes its former one.
            authenticator: decides who the client is.
        """
        self._broker = broker
        self._link = link
        self._settings = settings
        self._sessions = sessions
        self._state = OpenWireState.NEGOTIATING
        self._peer: Peer | None = None
        self._client: OpenWireClient | None = None
        self._verbatim: OpenWireClient | None = None
        """The client, while it is connected and sends messages in the bytes that the store keeps."""
        self._connection_id = self.client_id = ""
        self.user = ANONYMOUS
        self._introduction: BrokerInfo | None = None
        """The peer is a bridge of this broker, which counts only once its ConnectionInfo is accepted."""
        self._duplex_connector: NetworkConnector | None = None
        """The connector of a bridge that wants messages to go both ways."""
        self._durables_asked_for: Sequence[Destination] | None = None
        """The topics whose durable subscriptions the bridge asks for; None: it does not ask."""
        self._theirs = b""
        """The frame with the durable subscriptions of a duplex bridge's broker, which comes before its login."""
        self._since_ms = 0  # the login of a bridge, since the epoch
        self._joined_id = ""
        """The broker id under which the peer's duplex bridge is reported; empty: it is not."""
        self._login = PeerLogin(link, authenticator)
        self._refusal: RequestError | None = None
        """The answer to all that comes between a refused login and the close."""
        self._unconnected_count = 0
        """Frames other than KeepAliveInfo before the login."""
        self._client_log = ClientLog()
        self._inactivity: InactivityMonitor | None = None
        self._wakes_at = 0.0
        self._wakes_for_pull = False
        self._connects_by = _NEVER
        """The time by which the peer must have a connection; infinite while it has one."""
        self._frames = FrameReader(_UNCONNECTED_FRAME_MAX)
        self._frame_bytes_max = _UNCONNECTED_FRAME_MAX
        """The agreed limit to a frame, from ConnectionInfo on."""
        self._has_reserved = False
        """True if memory is reserved for an unfinished frame."""
        self._handlers: dict[type, Callable[[Any], None]] = {
            BrokerInfo: self._introduce,
            ConnectionInfo: self._connect,
            RemoveInfo: self._remove,
            ShutdownInfo: self._shut_down,
            KeepAliveInfo: self._keep_alive,
            MessagePull: self._pull,
        }
        link.wake_at(link.time() + settings.connect_seconds)
        link.write(encode_offer(settings.offer))

    @property
    def state(self) -> OpenWireState:
        """The state of the connection."""
        return self._state

    # ------------------------------------------------------------ Session

    @property
    def is_connected(self) -> bool:
        """True while the peer has a connection."""
        return self._client is not None

    def receive(self, chunk: bytes) -> bool:
        """Carry out the frames that the chunk completes."""
        if self._state is _CLOSED:
            return False
        if self._inactivity is not None:
            self._inactivity.has_read = True
        frames = self._frames
        frames.feed(chunk)
        if self._has_reserved and not frames.unfinished:
            self._has_reserved = False
            self._link.release_frame()
        if frames.whole is not None:
            self._carry_out_whole(frames.whole)
            if self._is_over():
                return False
        return self._carry_out(frames)

    def proceed(self) -> bool:
        """Carry out the frames that are left."""
        return self._state is not _CLOSED and self._carry_out(self._frames)

    def written(self) -> None:
        """Resume delivery if the peer was slow."""
        if self._inactivity is not None:
            self._inactivity.wrote()
        if self._client is not None:
            try:
                self._client.written()
            except BrokerError as error:
                self._close_with_error(error)

    def handed_over(self) -> None:
        """Count all deliveries so far as possibly received, if the connection ends."""
        if self._client is not None:
            self._client.handed_over()

    def pause_writing(self) -> None:
        """Pause delivery until `written`."""
        if self._client is not None:
            self._client.pause()

    def hold(self) -> None:
        """Carry out no frame behind the present one."""
        self._frames.hold()

    def release(self) -> None:
        """Carry out frames again."""
        self._frames.release()

    def on_timer(self) -> None:
        """Close if the peer is silent for too long, send a KeepAliveInfo, and answer pulls that found nothing."""
        now = self._link.time()
        self._wakes_at = 0.0  # a loop may be early: then the same time is scheduled again
        if self._state is OpenWireState.NEGOTIATING and self._link.is_input_waiting:
            self._link.wake_at(now + INPUT_WAIT_SECONDS)
        elif self._state is OpenWireState.NEGOTIATING:
            self._close_with_error(
                ProtocolError(f"no WireFormatInfo within {self._settings.connect_seconds:g} seconds")
            )
        elif self._inactivity is not None and self._peer is not None:
            if self._inactivity.is_peer_dead(now, self._link.reading_since):
                self._close_with_error(ProtocolError(f"nothing was received for {self._inactivity.seconds:g} seconds"))
                return
            if now >= self._connects_by and self._refusal is not None:
                self._close()
                return
            if now >= self._connects_by:
                self._close_with_error(ProtocolError(f"no ConnectionInfo within {self._login_seconds:g} seconds"))
                return
            if self._inactivity.is_heartbeat_due(now):
                self._peer.send(KeepAliveInfo())
            try:
                if self._client is not None:
                    self._client.end_pulls(now)
            except BrokerError as error:
                self._close_with_error(error)
            else:
                self._schedule()

    def stopping(self) -> None:
        """Do nothing: a client learns it from the end of the connection, as ActiveMQ's do."""

    def give_up(self, error: BrokerError) -> None:
        """Close with an error, as a limit of all connections is reached."""
        self._close_with_error(error)

    def lost(self) -> None:
        """Remove the connection from the broker."""
        self._enter(OpenWireEvent.CLOSE)
        self._client_log.ended(self._link.ending)
        self._disconnect()

    # ------------------------------------------------------------ frames

    def _carry_out(self, frames: FrameReader) -> bool:
        """Carry out complete frames until the slice is over; return True if any may be left."""
        left, is_left = FRAMES_PER_CLOCK, False
        try:
            while frames.advance():
                data, start, stop = frames.data, frames.start, frames.stop
                client = self._verbatim
                data_type = data[start]
                if client is not None and _MESSAGE_MIN <= data_type <= _MESSAGE_MAX:
                    client.message(data, start, stop)
                elif client is not None and data_type == _ACK and (count := client.acknowledge(data, start, stop)):
                    frames.skip(count - 1)
                elif client is None or data_type != _RESPONSE or not client.answer(data, start, stop):
                    self._frame(data, start, stop)
                    if self._is_over():
                        return False
                    left = 1  # such a command may take long
                left -= 1
                if not left or EFFORT.is_large:
                    if frames.stop < len(frames.data) and self._link.is_slice_over():
                        is_left = True
                        break
                    left = FRAMES_PER_CLOCK
        except BrokerError as error:
            self._close_with_error(error)
            return False
        else:
            client = self._client
            if client is not None:
                client.end_of_chunk()
                if client.must_reconnect:
                    self._force_reconnect()
                elif client.pulling or self._wakes_for_pull:
                    self._schedule()
            if frames.unfinished > UNRESERVED_BYTES and frames.received > UNRESERVED_BYTES:
                self._has_reserved = True
                self._link.reserve_frame(frames.unfinished, frames.received)
            return is_left and not self._is_over()

    def _carry_out_whole(self, whole: BytesIO) -> None:
        """Carry out a large frame; its responses come with those of the frames behind it."""
        self._frames.whole = None
        client = self._verbatim
        try:
            is_message = _MESSAGE_MIN <= whole.getbuffer()[0] <= _MESSAGE_MAX
            if client is not None and is_message:
                client.whole_message(whole)
            elif self._client is not None and is_message:
                self._client.foreign_message(whole)
            else:
                data = whole.getvalue()
                self._frame(data, 0, len(data))
        except BrokerError as error:
            self._close_with_error(error)

    def _frame(self, chunk: bytes, start: int, stop: int) -> None:
        """Decode a frame, and carry it out."""
        if self._peer is None:
            self._agree(decode_offer(chunk[start:stop]))
            return
        if self._client is None and self._introduction is not None:
            if chunk[start] == BrokerSubscriptionInfo.DATA_TYPE:
                self._keep_list(chunk[start:stop])
                return
            if stop - start > _UNCONNECTED_FRAME_MAX:
                raise ProtocolError(f"a frame of {stop - start} bytes before a ConnectionInfo that is accepted")
        command = self._peer.wire.decode(chunk[start:stop])
        if not isinstance(command, BaseCommand):
            raise ProtocolError(f"a {type(command).__name__} where a command belongs")
        self._obey(command)

    def _obey(self, command: BaseCommand) -> None:
        if self._client is None and type(command) is not KeepAliveInfo and not self._counts():
            return
        handler = self._handlers.get(type(command))
        if handler is not None:
            handler(command)
        elif self._client is not None:
            self._client.obey(command)
        elif command.response_required:
            before = WrongState(f"{type(command).__name__} came before ConnectionInfo")
            self._refuse(command, before if self._refusal is None else NotAuthenticated("User is not authenticated."))
        else:
            _log.debug("%s: a %s before ConnectionInfo is ignored", self._link.peer, type(command).__name__)

    def _counts(self) -> bool:
        """Count a frame before the login; return False if there are too many, and the close comes soon.

        Raises:
            ProtocolError: there are too many.
        """
        self._unconnected_count += 1
        if self._unconnected_count <= UNCONNECTED_FRAMES_MAX:
            return True
        if self._refusal is None:
            raise ProtocolError(f"more than {UNCONNECTED_FRAMES_MAX} frames before a ConnectionInfo that is accepted")
        return False  # a client that repeats its state

    @property
    def _login_seconds(self) -> float:
        return _LOGIN_FACTOR * self._settings.connect_seconds

    def _enter(self, event: OpenWireEvent) -> None:
        self._state = TRANSITIONS.after(self._state, event)

    # ------------------------------------------------------------ beginning

    def _agree(self, offer: Offer) -> None:
        agreement = agree(self._settings.offer, offer)
        self._peer = peer = Peer(self._link, agreement.wire_format())
        self._frame_bytes_max = agreement.frame_bytes_max
        self._frames.frame_bytes_max = min(_UNCONNECTED_FRAME_MAX, agreement.frame_bytes_max)
        now = self._link.time()
        first = now + agreement.initial_delay_ms / 1000
        self._inactivity = InactivityMonitor(agreement.max_inactivity_ms / 1000, first, first)
        self._connects_by = now + self._login_seconds
        self._enter(OpenWireEvent.AGREE)
        peer.send(
            BrokerInfo(
                broker_id=BrokerId(self._broker.id),
                broker_name=self._broker.name,
                broker_url=self._settings.broker_url,
                peer_broker_infos=None if self._settings.cluster is None else self._settings.cluster.peer_infos,
            )
        )
        self._schedule()

    def _introduce(self, info: BrokerInfo) -> None:
        """Record that the peer is another broker's bridge, if it says so before its ConnectionInfo, and only once."""
        if self._client is not None:
            self._client.obey(info)
            return
        if info.network_connection and self._introduction is None:
            self._durables_asked_for = asked_for(info)
            self._duplex_connector = duplex_connector(info)
            self._introduction = replace(info, network_properties=None)  # which may have a password
            self._frames.frame_bytes_max = min(LIST_BYTES_MAX, self._frame_bytes_max)
        if info.response_required:
            self._refuse(info, WrongState("BrokerInfo came before ConnectionInfo"))

    def _keep_list(self, data: bytes) -> None:
        """Keep the durable subscriptions of a bridge's broker until its ConnectionInfo is accepted.

        Those of a bridge that goes one way are dropped: nothing is forwarded to its broker.
        """
        if not self._counts() or self._duplex_connector is None:
            return
        self._drop_list()
        if self._sessions.early_lists.keep(data):
            self._theirs = data
        else:
            peer = self._link.peer
            _log.warning("%s: its list of durable subscriptions is dropped, as too many wait for logins", peer)

    def _drop_list(self) -> None:
        self._sessions.early_lists.release(self._theirs)
        self._theirs = b""

    def _connect(self, info: ConnectionInfo) -> None:
        """Open the connection, once the client has logged in; if it is open already, respond again."""
        connection_id = "" if info.connection_id is None else info.connection_id.value or ""
        if self._client is not None and connection_id == self._connection_id:
            self._welcome(info, is_again=True)
        elif self._refusal is not None:
            self._refuse(info, self._refusal)
        else:
            self._login.begin(info.user_name, info.password, partial(self._decided, info, connection_id))

    def _decided(self, info: ConnectionInfo, connection_id: str, outcome: User | NotAuthenticated) -> None:
        """Open the connection for the user; refused, close soon."""
        assert self._peer is not None, "commands come after the format was agreed"
        if isinstance(outcome, NotAuthenticated):
            self._refuse_and_close_soon(info, outcome)
            return
        try:
            self._client = self._admit(info, connection_id, outcome)
        except RequestError as error:
            audit.refused(outcome.name, self._link.peer, str(error))
            if self._introduction is not None:  # it has sent further commands, and reads the cause before the close
                self._refuse_and_close_soon(info, error)
            else:
                self._refuse(info, error)
                self._close()
            return
        except BrokerError as error:
            self._close_with_error(error)
            return
        self._frames.frame_bytes_max = self._frame_bytes_max
        self._connects_by = _NEVER
        self._unconnected_count = 0
        self._schedule()
        if self._peer.is_verbatim:
            self._verbatim = self._client
        self._welcome(info)

    def _refuse_and_close_soon(self, info: ConnectionInfo, error: RequestError) -> None:
        """Answer a ConnectionInfo with an error, and close soon."""
        self._refusal = error
        self._refuse(info, error)
        self._connects_by = self._link.time() + _REFUSED_SECONDS
        self._schedule()

    def _welcome(self, info: ConnectionInfo, *, is_again: bool = False) -> None:
        """Answer a ConnectionInfo that the broker has admitted."""
        assert self._peer is not None, "commands come after the format was agreed"
        self._enter(OpenWireEvent.CONNECT)
        if info.response_required:
            self._peer.respond((info.command_id,))
        topics, self._durables_asked_for = self._durables_asked_for, None
        if topics is not None and self._client is not None and self._client.is_bridge:
            subscriptions = subscription_infos(self._broker.admin.durable_subscriptions(), topics, self._broker.id)
            if subscriptions is not None and self._peer.wire.version >= BrokerSubscriptionInfo.SINCE:
                self._peer.send(
                    BrokerSubscriptionInfo(
                        broker_id=BrokerId(self._broker.id),
                        broker_name=self._broker.name,
                        subscription_infos=subscriptions,
                    )
                )
        self._join_cluster(info)
        if self._client is not None and not is_again:
            self._client.begin()
            self._obey_list(self._peer)

    def _obey_list(self, peer: Peer) -> None:
        """Carry out the list that was kept."""
        data = self._theirs
        self._drop_list()
        if data and self._client is not None:
            try:
                self._client.obey(cast("BrokerSubscriptionInfo", peer.wire.decode(data)))
            except BrokerError as error:
                self._close_with_error(error)

    def _join_cluster(self, info: ConnectionInfo) -> None:
        """Send a client the brokers that it may use, and report a duplex bridge as a way to another one."""
        assert self._peer is not None, "commands come after the format was agreed"
        cluster, theirs, peers = self._settings.cluster, self._introduction, self._sessions.peers
        if info.manageable:
            static = self._settings.connected_brokers if info.fault_tolerant else ""
            control = ConnectionControl(connected_brokers=static, reconnect_to="")
            self._peer.send(control if cluster is None else cluster.greeting(info))
        if theirs is None:
            if cluster is not None:
                cluster.add(self._peer, info)
        elif peers is not None and theirs.duplex_connection and theirs.broker_id is not None and not self._joined_id:
            if self._client is None or not self._client.is_bridge or not theirs.broker_id.value:
                return
            self._joined_id = theirs.broker_id.value
            try:
                peers.joined(self._joined_id, theirs.broker_name or "", theirs.broker_url or "")
            except ValueError as error:
                _log.warning(
                    "clients do not get the address of broker %s, %s: %s",
                    theirs.broker_name,
                    theirs.broker_url,
                    error,
                )

    def _admit(self, info: ConnectionInfo, connection_id: str, user: User) -> OpenWireClient:
        if self._client is not None:
            raise WrongState(f"This connection is {self._connection_id} already")
        if not connection_id:
            raise WrongState("A connection without id")
        if not info.client_id:
            raise InvalidClientId("No clientID specified for connection request")
        assert self._peer is not None, "commands come after the format was agreed"
        self._sessions.owners.claim(connection_id, info.client_id, user.name)
        former = self._sessions.by_id.get(connection_id)
        if former is not None:
            # Also if its owner is no longer remembered; and no user may take the connection of another.
            if former.client_id != info.client_id or (former.user.name, former.user.is_guest) != (
                user.name,
                user.is_guest,
            ):
                raise InvalidClientId(f"Connection {connection_id} belongs to another client")
            former.close_superseded()
        self._replace_half_open(info.client_id, user)
        connection = self._broker.connect(connection_id, info.client_id, self._link, user)
        self._connection_id, self.client_id, self.user = connection_id, info.client_id, user
        self._sessions.by_id[connection_id] = self
        self._sessions.reconnection_count += info.failover_reconnect
        is_bridge = self._introduction is not None or is_returning_bridge(info)
        if is_bridge:
            self._sessions.bridges[info.client_id] = self
            self._since_ms = time.time_ns() // 10**6
        remedy = ""
        if is_bridge and not connection.is_administrator:
            is_bridge = False  # by ids of others it could make their messages pass for repetitions
            remedy = f"a bridge needs the right admin for all queues: add a group of user {user.name} to a rule for >"
            _log.warning("%s from %s is no bridge to this broker: %s", connection_id, self._link.peer, remedy)
        elif is_bridge and self._introduction is not None and self._sessions.on_bridge is not None:
            self._sessions.on_bridge(self._introduction.broker_name or "")
        protocol = f"OpenWire {self._peer.wire.version}"
        self._client_log.connected(connection_id, info.client_id, self._link.peer, protocol)
        if is_bridge and self._duplex_connector is not None and self._sessions.open_duplex is not None:
            return self._open_duplex(self._sessions.open_duplex, self._duplex_connector, connection)
        return OpenWireClient(
            connection,
            self._peer,
            next_sequence=self._broker.next_sequence,
            reconnected=info.failover_reconnect,
            is_bridge=is_bridge,
            has_login=user.is_certain,
            bridge_remedy=remedy,
            on_error=self.give_up,
        )

    def _open_duplex(
        self, open_duplex: OpenDuplex, connector: NetworkConnector, connection: ConnectionPort
    ) -> OpenWireClient:
        """Return a client that is a bridge over which messages go both ways."""
        introduction = self._introduction
        assert self._peer is not None, "commands come after the format was agreed"
        assert introduction is not None, "a connector comes with it"
        assert introduction.broker_id is not None, "a connector comes with it"
        try:
            return open_duplex(
                DuplexRequest(
                    connector=connector,
                    remote_id=introduction.broker_id.value or "",
                    remote_name=introduction.broker_name or "",
                    remote_url=introduction.broker_url or "",
                    connection=connection,
                    user=self.user,
                    peer=self._peer,
                    link=self._link,
                    on_deadline=self._schedule,
                    on_error=self._close_with_error,
                )
            )
        except BaseException:
            connection.close()
            raise

    def _replace_half_open(self, client_id: str, user: User) -> None:
        """Close a bridge's former connection, which this broker has not found dead yet: it has the client id.

        Only the same user's, from a broker of the same id or name. ActiveMQ refuses the new one until the former one
        has been silent for too long.
        """
        former, mine = self._sessions.bridges.get(client_id), self._introduction
        theirs = None if former is None else former.introduction
        if former is None or mine is None or theirs is None:
            return
        is_same_broker = (mine.broker_id is not None and mine.broker_id == theirs.broker_id) or (
            bool(mine.broker_name) and mine.broker_name == theirs.broker_name
        )
        if is_same_broker and (former.user.name, former.user.is_guest) == (user.name, user.is_guest):
            if mine.broker_id != theirs.broker_id:
                former.report_name_conflict(mine)
            former.close_superseded()

    @property
    def introduction(self) -> BrokerInfo | None:
        """The BrokerInfo of a bridge; None for a client."""
        return self._introduction

    @property
    def bridge(self) -> IncomingBridge | None:
        """The state of the bridge that it serves; None: it serves none."""
        client = self._client
        if client is None or not self._since_ms:
            return None
        user, address = self.user.name, self._link.peer
        login = BridgeLogin(self._connection_id, self.client_id, user, address, self._since_ms, client.bridge_remedy)
        return IncomingBridge(incoming_row(login, self._introduction, client.traffic), client.demand_rows())

    def report_name_conflict(self, other: BrokerInfo) -> None:
        """Report a broker of this one's name and connector, with another id: two would replace each other for ever."""
        cause = (
            f"another broker named {other.broker_name!r} has opened a bridge with the client id {self.client_id}: "
            "if it is not the same one after a restart, give each broker a broker_name of its own"
        )
        _log.warning("%s from %s: %s", self._connection_id, self._link.peer, cause)
        if self._peer is not None:
            self._peer.send_connection_error(InvalidClientId(cause))

    def close_superseded(self) -> None:
        """Close, as the client has reconnected on another socket before this one was known to be dead."""
        _log.info("%s from %s has reconnected on another socket", self._connection_id, self._link.peer)
        self._client_log.ended("the client has reconnected on another socket")
        self._close()

    # ------------------------------------------------------------ pulls, timers

    def _pull(self, pull: MessagePull) -> None:
        if self._client is not None:
            self._client.pull(pull, self._link.time())
        if pull.response_required and self._peer is not None:
            self._peer.respond((pull.command_id,))

    def _keep_alive(self, info: KeepAliveInfo) -> None:
        if info.response_required and self._peer is not None:
            self._peer.send(KeepAliveInfo())

    def _schedule(self) -> None:
        """Schedule `on_timer` for the next check, or the next pull that finds nothing."""
        if self._inactivity is None:
            return
        check = when = min(self._inactivity.next_check, self._connects_by)
        if self._client is not None:
            when = min(when, self._client.next_deadline)
        self._wakes_for_pull = when < check
        if when != self._wakes_at:
            self._wakes_at = when
            self._link.wake_at(None if when == _NEVER else when)

    # ------------------------------------------------------------ end

    def _remove(self, info: RemoveInfo) -> None:
        if self._client is None:
            if info.response_required and self._peer is not None:
                self._peer.respond((info.command_id,))
            return
        self._client.obey(info)
        if isinstance(info.object_id, ConnectionId) and info.object_id.value == self._connection_id:
            self._client.end_of_chunk()
            self._client_log.ended("RemoveInfo")
            self._forget()
            self._client.release_references()
            self._client = self._verbatim = None
            self._connects_by = self._link.time() + self._login_seconds
            self._frames.frame_bytes_max = min(_UNCONNECTED_FRAME_MAX, self._frame_bytes_max)
            self._enter(OpenWireEvent.REMOVE)
            self._schedule()

    def _shut_down(self, info: ShutdownInfo) -> None:
        self._client_log.ended("ShutdownInfo")
        self._close()

    def _refuse(self, command: BaseCommand, error: RequestError) -> None:
        assert self._peer is not None, "commands come after the format was agreed"
        if command.response_required:
            self._peer.refuse(command.command_id, error)
        else:
            self._peer.send_connection_error(error)

    def _close_with_error(self, error: Exception) -> None:
        """Report an error to log and peer, and close."""
        name = self._connection_id or "a connection"
        _log.warning("%s from %s closed: %s", name, self._link.peer, error)
        self._client_log.ended(str(error))
        if self._peer is not None:
            told = error if isinstance(error, (ResourceLimit, NotAuthenticated)) else ProtocolError(str(error))
            self._peer.send_connection_error(told)
        self._close()

    def _force_reconnect(self) -> None:
        """Close, so that the client's failover transport reconnects."""
        _log.info(
            "%s from %s must reconnect: its state differs since the last failover", self._connection_id, self._link.peer
        )
        self._client_log.ended("made to reconnect")
        self._close()

    def _close(self) -> None:
        self._enter(OpenWireEvent.CLOSE)
        self._link.wake_at(None)
        self._link.close()
        self._disconnect()

    def _disconnect(self) -> None:
        self._forget()
        self._drop_list()
        self._login.cancel()
        self._frames.clear()
        self._handlers = {}  # they refer to this session
        client, self._client = self._client, None
        self._verbatim = None
        if client is not None:
            try:
                client.close()
            except BrokerError as error:  # a store that failed: the next master rolls back open transactions
                _log.error("%s cannot be removed: %s", self._connection_id, error)

    def _is_over(self) -> bool:
        return self._state is _CLOSED

    def _forget(self) -> None:
        if self._settings.cluster is not None and self._peer is not None:
            self._settings.cluster.remove(self._peer)
        if self._joined_id and self._sessions.peers is not None:
            self._sessions.peers.left(self._joined_id)
            self._joined_id = ""
        if self._sessions.by_id.get(self._connection_id) is self:
            del self._sessions.by_id[self._connection_id]
        if self._sessions.bridges.get(self.client_id) is self:
            del self._sessions.bridges[self.client_id]
