"""The session of an MQTT connection, sans-I/O: turns received bytes into calls to the broker, and packets to send.

It connects, disconnects, and has the timer, the will and the errors; `client` carries out the packets of a connected
client, and `states` has the states. Source: MQTT 3.1.1 and 5.0; ActiveMQ 5.17 for names in the store.
"""

import logging
from functools import partial
from typing import Final

from pybroker.broker.domain import audit
from pybroker.broker.domain.errors import BrokerError, InvalidClientId, RequestError, SessionTakenOver
from pybroker.broker.domain.mqtt.codec import PING_RESPONSE, PacketDecoder, encode_connack, encode_disconnect
from pybroker.broker.domain.mqtt.errors import MqttProtocolError
from pybroker.broker.domain.mqtt.packets import (
    LEVEL_5,
    AcknowledgementPacket,
    AuthPacket,
    ConnectPacket,
    DisconnectPacket,
    MqttLimits,
    Packet,
    PacketType,
    PingPacket,
    PublishPacket,
    SubscribePacket,
    Will,
)
from pybroker.broker.domain.mqtt.properties import NO_PROPERTIES, MqttProperties
from pybroker.broker.domain.mqtt.reason_codes import ReasonCode
from pybroker.broker.domain.mqtt.topics import SHARE, InvalidTopic, check_name
from pybroker.broker.domain.mqtt.wire import shortened_text
from pybroker.broker.domain.ports import BrokerPort, Clock, ConnectionPort
from pybroker.broker.domain.security import (
    ANONYMOUS,
    WITHOUT_LOGINS,
    AccessDenied,
    Authenticator,
    NotAuthenticated,
    User,
)
from pybroker.transports.client_log import ClientLog
from pybroker.transports.detect import HEAD_BYTES, DetectedProtocol, other_protocol
from pybroker.transports.login import PeerLogin
from pybroker.transports.mqtt.client import MqttClient, reason_of
from pybroker.transports.mqtt.delayed_will import delayed_will
from pybroker.transports.mqtt.mapping import PublishReader, PublishWriter
from pybroker.transports.mqtt.outgoing import OutgoingDeliveries
from pybroker.transports.mqtt.session_state import SessionState
from pybroker.transports.mqtt.session_states import SessionStates
from pybroker.transports.mqtt.states import MqttState
from pybroker.transports.mqtt.subscription_strategy import DURABLE_SUBSCRIPTIONS, SubscriptionStrategy
from pybroker.transports.mqtt.topic_aliases import ALIASES_MAX
from pybroker.transports.packet_loop import PacketLoop
from pybroker.transports.session import INPUT_WAIT_SECONDS, Link

_log = logging.getLogger(__name__)

_VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5"}

_GRACE: Final = 1.5
"""The silence after which a client is lost, as a multiple of its keep-alive (MQTT 3.1.2.10)."""

_NEVER: Final = 0xFFFF_FFFF
"""The session expiry interval of a session that does not end."""

_AROUND_BYTES: Final = 16
"""The bytes of a DISCONNECT or CONNACK around a reason string, at most."""

_HANDLED: Final = frozenset((PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP))


class MqttSession:
    """Serves one MQTT connection."""

    def __init__(
        self,
        *,
        broker: BrokerPort,
        link: Link,
        connection_id: str,
        limits: MqttLimits,
        clock: Clock,
        states: SessionStates,
        authenticator: Authenticator = WITHOUT_LOGINS,
        strategy: SubscriptionStrategy = DURABLE_SUBSCRIPTIONS,
    ) -> None:
        """Wait for CONNECT.

        Args:
            broker: admits the client.
            link: moves the bytes.
            connection_id: identifies the connection in message ids; never used again.
            limits: the limits to packets and objects of the peer.
            clock: milliseconds since the epoch.
            states: the sessions without a connection.
            authenticator: decides who the client is.
            strategy: as what the core has topics and subscriptions.
        """
        self._strategy = strategy
        self._broker = broker
        self._link = link
        self._connection_id = connection_id
        self._limits = limits
        self._clock = clock
        self._states = states
        self._login = PeerLogin(link, authenticator)
        self._decoder = PacketDecoder(limits)
        self._loop = PacketLoop(link, self._decoder, self._obey, self._fail)
        self._state = MqttState.OPENED
        self._is_held = False
        self._connection: ConnectionPort | None = None
        self._client: MqttClient | None = None
        self._session = SessionState()
        self._user = ANONYMOUS
        self._expiry_seconds: int | None = 0
        """The seconds for which the session outlives the connection; None: for ever."""
        self._packet_bytes_max: int | None = None
        """Most bytes of a packet that the client accepts; None: no limit."""
        self._head = b""
        """The first bytes of the last chunk before CONNECT was carried out."""
        self._will: Will | None = None
        self._silence_seconds_max: float | None = None
        self._received_at = link.time()
        self._is_slow = self._is_full = False
        self._client_log = ClientLog()
        self._link.wake_at(self._received_at + limits.connect_seconds)

    @property
    def state(self) -> MqttState:
        """The state of the connection."""
        return self._state

    # ------------------------------------------------------------ Session

    @property
    def is_connected(self) -> bool:
        """True once CONNECT was answered."""
        return self._state is MqttState.CONNECTED

    def receive(self, chunk: bytes) -> bool:
        """Carry out the packets that the chunk completes."""
        if not self._loop.is_deaf:
            self._received_at = self._link.time()
        if self._state is MqttState.OPENED:
            self._head = chunk[:HEAD_BYTES]
        return self._loop.receive(chunk)

    def proceed(self) -> bool:
        """Carry out complete packets until the slice is over; return True if any may be left."""
        return self._loop.proceed()

    def written(self) -> None:
        """Acknowledge messages with QoS 0, and resume delivery if the peer was slow."""
        if self._connection is not None:
            self._connection.written()
        if self._client is not None:
            self._client.outgoing.acknowledge_sent()
        self._is_slow = False
        if self._client is not None:
            self._client.outgoing.is_paused = False
        self._resume()  # which may deliver more than the peer takes, so that it is slow again
        if self._client is not None:
            self._client.outgoing.drain()

    def handed_over(self) -> None:
        """Count all deliveries so far as possibly received, if the connection ends."""
        if self._connection is not None:
            self._connection.written()

    def pause_writing(self) -> None:
        """Pause delivery until `written`; the link bounds the answers, as it stops reading."""
        self._is_slow = True
        if self._client is not None:
            self._client.outgoing.is_paused = True
        if self._connection is not None:
            self._connection.pause()

    def hold(self) -> None:
        """Carry out no packet behind the present one."""
        self._is_held = self._loop.is_deaf = True

    def release(self) -> None:
        """Carry out packets again."""
        self._is_held = False
        self._loop.is_deaf = self._state is MqttState.CLOSED

    def on_timer(self) -> None:
        """Close if the peer is silent for too long."""
        now = self._link.time()
        match self._state:
            case MqttState.OPENED if self._link.is_input_waiting:
                self._link.wake_at(now + INPUT_WAIT_SECONDS)
            case MqttState.OPENED:
                self._close(f"no CONNECT within {self._limits.connect_seconds:g} seconds")
            case MqttState.CONNECTED:
                self._check(now)
            case _:
                pass

    def stopping(self) -> None:
        """Tell a client of MQTT 5 that the broker stops. The will is not published: clients find the next master."""
        self._will = None
        if self._state is MqttState.CONNECTED and self._decoder.level >= LEVEL_5:
            self._write(encode_disconnect(ReasonCode.SERVER_SHUTTING_DOWN))

    def give_up(self, error: BrokerError) -> None:
        """Close, as another connection has the client id, or a limit of all connections is reached."""
        self._fail(error)

    def lost(self) -> None:
        """Remove the connection from the broker, and publish the will."""
        self._end(with_will=True)
        self._client_log.ended(self._link.ending)
        self._enter(MqttState.CLOSED)
        self._client = None

    # ------------------------------------------------------------ packets

    def _enter(self, state: MqttState) -> None:
        self._state = state
        self._loop.is_deaf = self._is_held or state is MqttState.CLOSED

    def _obey(self, packet: Packet) -> None:
        """Carry out a packet.

        Raises:
            BrokerError: the connection ends.
        """
        client = self._client
        if client is None:
            if not isinstance(packet, ConnectPacket):
                raise MqttProtocolError(f"{type(packet).__name__} came before CONNECT")
            self._connect(packet)
            return
        match packet:
            case PublishPacket():
                client.publish(packet)
            case AcknowledgementPacket() if packet.type in _HANDLED:
                client.outgoing.acknowledged(packet)
            case AcknowledgementPacket():
                client.release(packet)
            case PingPacket():
                self._write(PING_RESPONSE)
                client.outgoing.end_release()
            case SubscribePacket():
                client.subscribe(packet)
            case DisconnectPacket():
                self._leave(packet)
            case AuthPacket():
                raise MqttProtocolError("AUTH without an authentication method")
            case ConnectPacket():
                raise MqttProtocolError("CONNECT came twice")
            case _:
                client.unsubscribe(packet)

    # ------------------------------------------------------------ CONNECT

    def _connect(self, packet: ConnectPacket) -> None:
        """Begin the login, which `_decided` continues."""
        self._packet_bytes_max = packet.properties.maximum_packet_size
        if packet.properties.authentication_method is not None:
            raise MqttProtocolError("CONNECT asks for an extended authentication", ReasonCode.BAD_AUTHENTICATION_METHOD)
        if packet.properties.authentication_data is not None:
            raise MqttProtocolError("CONNECT has authentication data without a method")
        if not packet.client_id and not packet.clean and packet.level < LEVEL_5:
            raise MqttProtocolError(
                "CONNECT without a client id begins no session that lasts: set clean session",
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            )
        if packet.client_id.startswith(SHARE):
            raise MqttProtocolError(
                f"A client id cannot begin with {SHARE}: shared subscriptions have such ones",
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            )
        if packet.will is not None:
            try:
                check_name(packet.will.topic)
                if packet.will.properties.response_topic is not None:
                    check_name(packet.will.properties.response_topic)
            except InvalidTopic as error:
                raise MqttProtocolError(f"The will is refused: {error}", ReasonCode.TOPIC_NAME_INVALID) from error
        try:
            password = None if packet.password is None else packet.password.decode()
        except UnicodeDecodeError as error:
            raise MqttProtocolError("The password is no UTF-8", ReasonCode.BAD_USER_NAME_OR_PASSWORD) from error
        self._login.begin(packet.user, password, partial(self._decided, packet))

    def _decided(self, packet: ConnectPacket, outcome: User | NotAuthenticated) -> None:
        """Open the connection for the user; refused, close."""
        if isinstance(outcome, NotAuthenticated):
            self._refuse(outcome, ReasonCode.BAD_USER_NAME_OR_PASSWORD, logging.INFO)
            return
        client_id = packet.client_id or self._connection_id
        try:
            connection = self._broker.connect(self._connection_id, client_id, self._link, outcome, takes_over=True)
        except BrokerError as error:
            audit.refused(outcome.name, self._link.peer, str(error))
            is_invalid = isinstance(error, InvalidClientId)
            self._refuse(error, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID if is_invalid else ReasonCode.SERVER_BUSY)
            return
        self._connection = connection
        self._enter(MqttState.CONNECTING)
        if self._is_slow:
            connection.pause()
        self._user = outcome
        if packet.level >= LEVEL_5:
            self._expiry_seconds = _expiry_seconds(packet.properties.session_expiry or 0)
        elif not packet.clean:
            self._expiry_seconds = None
        self._link.wake_at(None)
        self._link.hold_input()
        # A former connection of this client may have to close first.
        connection.when_carried_out(partial(self._begin, packet, connection))

    def _begin(self, packet: ConnectPacket, connection: ConnectionPort) -> None:
        """Begin the session, or continue it, and answer once that is durable."""
        if self._state is not MqttState.CONNECTING:
            return
        if packet.clean:
            self._states.end(connection.client_id)
            self._go_on(packet, connection, None)
            return
        go_on = partial(self._go_on, packet, connection)
        former = self._states.resume(connection.client_id, self._user)
        if former is None:
            self._states.load(connection.client_id, self._user, go_on)
        else:
            go_on(former)

    def _go_on(self, packet: ConnectPacket, connection: ConnectionPort, former: SessionState | None) -> bool:
        """Go on with the session of the client; None: with a new one. Return False if the client is lost already."""
        if self._state is not MqttState.CONNECTING:
            return False
        if former is not None:
            self._session = former
        properties = packet.properties
        self._client = client = MqttClient(
            connection=connection,
            level=packet.level,
            state=self._session,
            is_durable=self._expiry_seconds != 0,
            limits=self._limits,
            groups=self._states.shared,
            strategy=self._strategy,
            user=self._user,
            give_up=self.give_up,
            reader=PublishReader(self._connection_id, self._clock, self._broker.next_sequence, strategy=self._strategy),
            outgoing=OutgoingDeliveries(
                level=packet.level,
                state=self._session,
                writer=PublishWriter(
                    packet.level, self._clock, body_bytes_max=self._limits.packet_bytes, strategy=self._strategy
                ),
                write=self._write,
                window=properties.receive_maximum,
                packet_bytes_max=properties.maximum_packet_size,
                topic_aliases_max=properties.topic_alias_maximum,
                hold=self._hold_deliveries,
                wake=self._wake,
            ),
            write=self._write,
            record=self._record,
            link=self._link,
        )
        if packet.clean:
            client.delete_session()
            self._await_acceptance(packet, client, False)
        else:
            client.restore(partial(self._await_acceptance, packet, client), has_state=former is not None)
        return True

    def _await_acceptance(self, packet: ConnectPacket, client: MqttClient, is_present: bool, /) -> None:
        """Answer CONNECT once the session is durable."""
        if self._connection is not None:
            self._record()
            self._connection.when_durable(partial(self._accept, packet, client, is_present=is_present))

    def _record(self) -> None:
        """Append the record of a session that outlives the connection, if it has changed."""
        if self._expiry_seconds != 0 and self._connection is not None:
            self._states.record(
                self._connection.client_id, self._session, user=self._user, expiry_seconds=self._expiry_seconds
            )

    def _accept(self, packet: ConnectPacket, client: MqttClient, *, is_present: bool) -> None:
        """Answer CONNECT, and begin deliveries."""
        if self._state is not MqttState.CONNECTING:
            return
        answer = MqttProperties()
        if not packet.client_id:
            answer.assigned_client_id = self._connection_id
        answer.maximum_packet_size = self._limits.packet_bytes
        answer.receive_maximum = self._limits.receive_maximum
        answer.topic_alias_maximum = ALIASES_MAX
        keep_alive, keep_alive_max = packet.keep_alive, self._limits.keep_alive_max
        if packet.level >= LEVEL_5 and keep_alive_max and not 0 < keep_alive <= keep_alive_max:
            answer.server_keep_alive = keep_alive = keep_alive_max
        connack = encode_connack(packet.level, ReasonCode.SUCCESS, session_present=is_present, properties=answer)
        if self._packet_bytes_max is not None and len(connack) > self._packet_bytes_max:
            self._close(f"CONNACK takes {len(connack)} bytes, and the client accepts {self._packet_bytes_max}")
            return
        self._enter(MqttState.CONNECTED)
        self._will = packet.will
        self._decoder.packet_bytes_max = self._limits.packet_bytes
        self._write(connack)
        if keep_alive:
            self._silence_seconds_max = keep_alive * _GRACE
            self._received_at = self._link.time()
            self._link.wake_at(self._received_at + self._silence_seconds_max)
        version = _VERSIONS[packet.level]
        client_id = packet.client_id or self._connection_id
        self._client_log.connected(self._connection_id, client_id, self._link.peer, f"MQTT {version}")
        client.start()
        self._link.release_input()  # last: it may process input at once

    # ------------------------------------------------------------ flow

    def _hold_deliveries(self, held: bool, /) -> None:
        """Pause the core's deliveries while the window is full."""
        if held == self._is_full:
            return
        self._is_full = held
        if held and self._connection is not None:
            self._connection.pause()
        self._resume()

    def _resume(self) -> None:
        if not self._is_slow and not self._is_full and self._connection is not None:
            self._connection.resume()

    def _wake(self) -> None:
        """Have `on_timer` called soon."""
        self._link.wake_at(self._link.time())

    def _check(self, now: float) -> None:
        """Reject what could not be sent, and close if the peer is silent for too long."""
        if self._client is not None:
            self._client.outgoing.settle_unsent()
        if self._silence_seconds_max is None:
            return
        reading_since = self._link.reading_since
        self._received_at = max(self._received_at, now if reading_since is None else reading_since)
        if now - self._received_at >= self._silence_seconds_max:
            error = MqttProtocolError(
                f"nothing was received for {self._silence_seconds_max:g} seconds, 1.5 times its keep-alive",
                ReasonCode.KEEP_ALIVE_TIMEOUT,
            )
            self._fail(error)
        else:
            self._link.wake_at(self._received_at + self._silence_seconds_max)

    # ------------------------------------------------------------ end

    def _leave(self, packet: DisconnectPacket) -> None:
        """End the conversation as the client asks, once all earlier changes are on disk."""
        expiry = packet.properties.session_expiry
        if expiry is not None:
            if expiry and self._expiry_seconds == 0:
                raise MqttProtocolError("DISCONNECT prolongs a session that was to end with its connection")
            self._expiry_seconds = _expiry_seconds(expiry)
        self._client_log.ended("DISCONNECT")
        if self._client is not None:
            self._client.finish_deferred()
        self._end(with_will=packet.reason is ReasonCode.DISCONNECT_WITH_WILL)
        self._enter(MqttState.CLOSED)
        self._link.wake_at(None)
        self._link.close()

    def _end(self, *, with_will: bool) -> None:
        """Close the connection in the broker. Harmless when repeated."""
        self._login.cancel()
        self._loop.end()
        connection, self._connection = self._connection, None
        if connection is None:
            return
        client = self._client
        if client is None:
            connection.close()
            return
        will, self._will = self._will, None
        delayed = None
        if with_will and will is not None:
            if will.properties.will_delay and self._expiry_seconds != 0:
                delayed = delayed_will(
                    will,
                    broker=self._broker,
                    connection_id=self._connection_id,
                    peer=self._link.peer,
                    user=self._user,
                    clock=self._clock,
                    strategy=self._strategy,
                )
            else:
                client.publish_will(will)
        if self._expiry_seconds == 0:
            client.delete_session()
            self._states.erase(connection.client_id)
        else:
            client.outgoing.remember()
            self._states.keep(
                connection.client_id,
                self._session,
                user=self._user,
                expiry_seconds=self._expiry_seconds,
                will=delayed,
            )
        client.close()

    def _refuse(self, error: BrokerError, reason: ReasonCode, level: int = logging.WARNING) -> None:
        """Refuse CONNECT, and close."""
        properties = self._reason_string(error)
        connack = encode_connack(self._decoder.level, reason, session_present=False, properties=properties)
        if self._packet_bytes_max is None or len(connack) <= self._packet_bytes_max:
            self._write(connack)
        self._close(str(error), level)

    def _fail(self, error: BrokerError) -> None:
        """Close with an error: in MQTT 5 the client gets it; before, a refusal of CONNECT alone has an answer."""
        reason = _reason(error)
        level = self._decoder.level
        text = str(error)
        if self._state is MqttState.OPENED:
            text = other_protocol(self._head, DetectedProtocol.MQTT) or text
            if level >= LEVEL_5 or reason in _CONNECT_REFUSALS:
                self._refuse(error, reason)
                return
        elif self._state is MqttState.CONNECTING:  # CONNACK must come before DISCONNECT
            if level >= LEVEL_5:
                self._refuse(error, ReasonCode.SERVER_BUSY if reason is ReasonCode.SESSION_TAKEN_OVER else reason)
                return
        elif level >= LEVEL_5:
            self._write(encode_disconnect(reason, self._reason_string(error)))
        self._close(text, logging.INFO if isinstance(error, SessionTakenOver | AccessDenied) else logging.WARNING)

    def _reason_string(self, error: BrokerError) -> MqttProperties:
        if self._decoder.level < LEVEL_5:
            return NO_PROPERTIES
        properties = MqttProperties()
        properties.reason_string = text = shortened_text(str(error).replace("\0", "\ufffd"))
        limit = self._packet_bytes_max
        return properties if limit is None or len(text.encode()) + _AROUND_BYTES <= limit else NO_PROPERTIES

    def _close(self, reason: str, level: int = logging.WARNING) -> None:
        """Log the reason, publish the will, and close."""
        if self._state is MqttState.CLOSED:
            return
        _log.log(level, "%s from %s closed: %s", self._connection_id, self._link.peer, reason)
        self._client_log.ended(reason)
        self._link.wake_at(None)
        self._end(with_will=True)
        self._enter(MqttState.CLOSED)
        self._link.close()

    def _write(self, data: bytes) -> None:
        if self._state is not MqttState.CLOSED:
            self._link.write(data)


def _expiry_seconds(interval: int) -> int | None:
    """Return the seconds of a session expiry interval; None: the session does not end."""
    return None if interval == _NEVER else interval


_CONNECT_REFUSALS: Final = (
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
)
"""The refusals of CONNECT that have an answer in MQTT 3.1.1."""


def _reason(error: BrokerError) -> ReasonCode:
    match error:
        case MqttProtocolError():
            return error.reason
        case SessionTakenOver():
            return ReasonCode.SESSION_TAKEN_OVER
        case NotAuthenticated():
            return ReasonCode.NOT_AUTHORIZED
        case RequestError():
            return reason_of(error)
        case _:
            return ReasonCode.UNSPECIFIED_ERROR
