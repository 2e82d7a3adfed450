"""The session of an AMQP connection, sans-I/O: turns received bytes into calls to the broker, and frames to send.

It has the protocol headers, SASL, open and close, the timers and the errors; `client` carries out the frames of an open
connection, and `states` has the states. Source: AMQP 1.0, parts 2 and 5; ActiveMQ 5.17 for what the broker's open says.
"""

import logging
import platform
from collections.abc import Iterator
from functools import partial
from typing import Final

from pybroker.broker.domain import audit
from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_BYTES_MIN_MAX,
    SASL_HEADER,
    AmqpFrameDecoder,
    AmqpHeaderSeen,
    AmqpInput,
    AmqpLimits,
    encode_frame,
)
from pybroker.broker.domain.amqp.performatives import (
    AmqpClose,
    AmqpErrorCondition,
    AmqpFields,
    AmqpOpen,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)
from pybroker.broker.domain.amqp.values import Symbol
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import BrokerError, InvalidClientId
from pybroker.broker.domain.ports import BrokerPort, Clock, ConnectionPort
from pybroker.broker.domain.security import (
    WITHOUT_LOGINS,
    AccessDenied,
    Authenticator,
    NotAuthenticated,
    User,
)
from pybroker.transports.amqp import sasl
from pybroker.transports.amqp.client import AmqpClient
from pybroker.transports.amqp.inbound import AmqpTransformer
from pybroker.transports.amqp.outbound import TransferWriter
from pybroker.transports.amqp.peer import AmqpPeer
from pybroker.transports.amqp.refusals import CONNECTION_FORCED, FRAMING_ERROR, NOT_ALLOWED, RESOURCE_LIMIT
from pybroker.transports.amqp.refusals import error_condition as condition
from pybroker.transports.amqp.states import AmqpState
from pybroker.transports.client_log import ClientLog
from pybroker.transports.detect import HEAD_BYTES, DetectedProtocol, other_protocol
from pybroker.transports.fair_queue import FRAMES_PER_CLOCK
from pybroker.transports.frame_memory import UNRESERVED_BYTES
from pybroker.transports.login import PeerLogin
from pybroker.transports.session import INPUT_WAIT_SECONDS, Link

_log = logging.getLogger(__name__)

_AMQP_ID: Final = 0
_TLS_ID: Final = 2
_SASL_ID: Final = 3
_VERSION: Final = (1, 0, 0)

_WAITING: Final = (AmqpState.OPENED, AmqpState.SASL, AmqpState.SECURED, AmqpState.OPENING)
"""The states in which the client has to send something."""

_CONNECTED: Final = (AmqpState.CONNECTED, AmqpState.CLOSING)
"""The states in which the broker has answered open, and may send frames."""

_SASL_FRAME_BYTES_MAX: Final = FRAME_BYTES_MIN_MAX
"""The largest frame of SASL (5.3.2): a client without a name must not have the broker hold more."""

_KEPT_ALIVE_PART: Final = 3
"""A frame is due in each such part of the idle time-out of the client: an empty one if there is no other."""
_IDLE_SECONDS_MIN: Final = 0.05

_OFFERED: Final = (Symbol("ANONYMOUS-RELAY"), Symbol("DELAYED_DELIVERY"))
_FAILED: Final[AmqpFields] = {Symbol("amqp:connection-establishment-failed"): True}
_CHANNEL_MAX: Final = 255


def self_description(version: str) -> AmqpFields:
    """Return what a broker says of itself in its open; the names are ActiveMQ's.

    Args:
        version: this program's.
    """
    return {
        Symbol("product"): "pybroker",
        Symbol("version"): version,
        Symbol("platform"): f"Python/{platform.python_version()}",
        Symbol("queue-prefix"): "queue://",
        Symbol("topic-prefix"): "topic://",
    }


class AmqpSession:
    """Serves one AMQP connection."""

    def __init__(
        self,
        *,
        broker: BrokerPort,
        link: Link,
        connection_id: str,
        limits: AmqpLimits,
        clock: Clock,
        transformer: AmqpTransformer,
        properties: AmqpFields,
        authenticator: Authenticator = WITHOUT_LOGINS,
    ) -> None:
        """Wait for a protocol header.

        Args:
            broker: admits the client.
            link: moves the bytes.
            connection_id: identifies the connection in message ids; never used again.
            limits: the limits to frames and objects of the peer.
            clock: milliseconds since the epoch.
            transformer: the form in which messages are stored.
            properties: what the broker says of itself in its open.
            authenticator: decides who the client is.
        """
        self._broker = broker
        self._link = link
        self._connection_id = connection_id
        self._limits = limits
        self._clock = clock
        self._transformer = transformer
        self._properties = properties
        self._login = PeerLogin(link, authenticator)
        self._decoder = AmqpFrameDecoder(limits)
        self._decoder.frame_bytes_max = _SASL_FRAME_BYTES_MAX
        self._input: Iterator[AmqpInput] = iter(())
        """The headers and frames of the last chunk that are left."""
        self._has_reserved = False
        self._head = b""
        """The first bytes of the last chunk before a protocol header."""
        self._state = AmqpState.OPENED
        self._is_held = False
        self._connection: ConnectionPort | None = None
        self._client: AmqpClient | None = None
        self._user: User | None = None
        """The authenticated user; None before the SASL outcome."""
        self._is_slow = False
        self._has_opened = False
        """True once the broker's open was sent."""
        self._has_written = False
        """True if something was sent since the last look at the client's idle time-out."""
        self._keep_alive_seconds: float | None = None
        self._keep_alive_at = 0.0
        self._received_at = link.time()
        self._calls_at: float | None = None
        """The time of the next `AmqpClient.on_timer`; None: it has nothing to do."""
        self._connects_until = self._received_at + limits.connect_seconds
        self._client_log = ClientLog()
        self._link.wake_at(self._connects_until)

    @property
    def state(self) -> AmqpState:
        """The state of the connection."""
        return self._state

    # ------------------------------------------------------------ Session

    @property
    def is_connected(self) -> bool:
        """True once open was answered."""
        return self._state in _CONNECTED

    def receive(self, chunk: bytes) -> bool:
        """Carry out the frames that the chunk completes."""
        if self._is_deaf():
            return False
        self._received_at = self._link.time()
        if self._state is AmqpState.OPENED:
            self._head = chunk[:HEAD_BYTES]
        self._input = self._decoder.feed(chunk)
        return self.proceed()

    def proceed(self) -> bool:
        """Carry out complete frames until the slice is over; return True if any may be left."""
        if self._is_deaf():
            return False
        left = FRAMES_PER_CLOCK
        try:
            for each in self._input:
                self._obey(each)
                if self._is_deaf():
                    self._end_of_chunk()
                    return False
                left -= 1
                if not left or EFFORT.is_large:
                    if self._link.is_slice_over():
                        self._end_of_chunk()
                        return True
                    left = FRAMES_PER_CLOCK
        except BrokerError as error:
            self._end_of_chunk()
            self._fail(error)
        else:
            self._end_of_chunk()
            self._reserve()
        return False

    def _end_of_chunk(self) -> None:
        if self._client is not None:
            self._client.end_of_chunk()

    def _reserve(self) -> None:
        """Reserve memory for a frame, or a message of several frames, of which only a part has come."""
        decoder = self._decoder
        parts = 0 if self._client is None else self._client.peer.partial_bytes
        received = decoder.received + parts
        if received > UNRESERVED_BYTES:
            self._has_reserved = True
            self._link.reserve_frame(decoder.unfinished + parts, received)
        elif self._has_reserved:
            self._has_reserved = False
            self._link.release_frame()

    def written(self) -> None:
        """Settle deliveries that were settled by being sent, and resume delivery if the peer was slow."""
        self._is_slow = False
        if self._client is not None:
            self._client.written()
        elif self._connection is not None:
            self._connection.written()
            self._connection.resume()

    def handed_over(self) -> None:
        """Count all deliveries so far as possibly received, if the connection ends."""
        if self._connection is not None:
            self._connection.written()

    def pause_writing(self) -> None:
        """Pause delivery until `written`; the link bounds the answers, as it stops reading."""
        self._is_slow = True
        if self._client is not None:
            self._client.pause()
        elif self._connection is not None:
            self._connection.pause()

    def hold(self) -> None:
        """Carry out no frame behind the present one."""
        self._is_held = True

    def release(self) -> None:
        """Carry out frames again."""
        self._is_held = False

    def on_timer(self) -> None:
        """Close if the peer is silent for too long; send something if the broker is."""
        now = self._link.time()
        if self._state in _WAITING:
            if self._link.is_input_waiting:
                self._link.wake_at(now + INPUT_WAIT_SECONDS)
            elif now >= self._connects_until:
                self._close(f"no open within {self._limits.connect_seconds:g} seconds")
            else:
                self._link.wake_at(self._connects_until)
        elif self._state in _CONNECTED:
            self._check(now)

    def stopping(self) -> None:
        """Tell the client that the broker stops."""
        if self._state is AmqpState.CONNECTED:
            error = AmqpError("The broker stops: connect to the next master", CONNECTION_FORCED)
            self._write(encode_frame(0, AmqpClose(error=condition(error))))

    def give_up(self, error: BrokerError) -> None:
        """Close with an error that no frame brings about."""
        self._fail(error)

    def lost(self) -> None:
        """Remove the connection from the broker."""
        self._end()
        self._client_log.ended(self._link.ending)
        self._state = AmqpState.CLOSED

    # ------------------------------------------------------------ headers and SASL

    def _is_deaf(self) -> bool:
        """Return True while no frame is carried out."""
        return self._is_held or self._state in (AmqpState.CLOSING, AmqpState.CLOSED)

    def _obey(self, received: AmqpInput) -> None:
        """Carry out a header or frame.

        Raises:
            BrokerError: the connection ends.
        """
        if isinstance(received, AmqpHeaderSeen):
            self._negotiate(received)
            return
        performative = received.performative
        match self._state:
            case AmqpState.CONNECTED if isinstance(performative, AmqpClose):
                self._leave(performative)
            case AmqpState.CONNECTED if self._client is not None:
                self._client.obey(received)
            case AmqpState.OPENING if isinstance(performative, AmqpOpen) and not received.channel:
                self._open(performative)
            case AmqpState.SASL if isinstance(performative, SaslInit):
                self._authenticate(performative)
            case _ if performative is not None:
                raise AmqpError(f"{type(performative).__name__} while the broker {self._state.value}", NOT_ALLOWED)
            case _:
                pass

    def _negotiate(self, header: AmqpHeaderSeen) -> None:
        """Answer a protocol header; close after the broker's if it is another one (2.2)."""
        state, is_version = self._state, header[1:] == _VERSION
        if state is AmqpState.OPENED and header.protocol_id == _SASL_ID and is_version:
            self._state = AmqpState.SASL
            self._write(SASL_HEADER)
            offered = tuple(Symbol(each) for each in sasl.MECHANISMS)
            self._write(encode_frame(0, SaslMechanisms(sasl_server_mechanisms=offered)))
        elif state in (AmqpState.OPENED, AmqpState.SECURED) and header.protocol_id == _AMQP_ID and is_version:
            self._state = AmqpState.OPENING
            self._write(AMQP_HEADER)
            self._decoder.frame_bytes_max = self._limits.frame_bytes_max
        elif state in (AmqpState.OPENED, AmqpState.SECURED):
            self._write(AMQP_HEADER if state is AmqpState.SECURED else SASL_HEADER)
            self._close(_other_header(header))
        else:
            raise AmqpError("A protocol header came again", FRAMING_ERROR)

    def _authenticate(self, init: SaslInit) -> None:
        """Begin the login, which `_decided` continues."""
        try:
            user, password = sasl.credentials(init)
        except sasl.InvalidSasl as error:
            self._refuse_login(str(error), error.code)
            return
        self._state = AmqpState.LOGIN
        self._login.begin(user, password, self._decided)

    def _decided(self, outcome: User | NotAuthenticated) -> None:
        if self._state is not AmqpState.LOGIN:
            return
        if isinstance(outcome, NotAuthenticated):
            self._refuse_login(str(outcome), sasl.AUTHENTICATION_FAILED)
            return
        self._user = outcome
        self._state = AmqpState.SECURED
        self._link.wake_at(max(self._link.time(), self._connects_until))
        self._write(encode_frame(0, SaslOutcome(code=sasl.OK)))

    def _refuse_login(self, reason: str, code: int) -> None:
        self._write(encode_frame(0, SaslOutcome(code=code)))
        self._close(reason, logging.INFO)

    # ------------------------------------------------------------ open

    def _open(self, performative: AmqpOpen) -> None:
        """Admit the client; one that has come without SASL logs in now."""
        self._state = AmqpState.CONNECTING
        if performative.max_frame_size is not None and performative.max_frame_size < FRAME_BYTES_MIN_MAX:
            raise AmqpError(
                f"open has a max-frame-size of {performative.max_frame_size}: {FRAME_BYTES_MIN_MAX} is the smallest",
                FRAMING_ERROR,
            )
        if self._user is None:
            self._login.begin(None, None, partial(self._logged_in, performative))
        else:
            self._logged_in(performative, self._user)

    def _logged_in(self, performative: AmqpOpen, outcome: User | NotAuthenticated) -> None:
        if self._state is not AmqpState.CONNECTING:
            return
        if isinstance(outcome, NotAuthenticated):
            self._fail(outcome)
            return
        client_id = performative.container_id or self._connection_id
        try:
            connection = self._broker.connect(self._connection_id, client_id, self._link, outcome)
        except BrokerError as error:
            audit.refused(outcome.name, self._link.peer, str(error))
            self._fail(error)
            return
        self._user = outcome
        self._connection = connection
        if self._is_slow:
            connection.pause()
        self._link.wake_at(None)
        self._link.hold_input()
        # A former connection of this client may still be closing.
        connection.when_carried_out(partial(self._accept, performative, connection))

    def _accept(self, performative: AmqpOpen, connection: ConnectionPort) -> None:
        """Answer open."""
        if self._state is not AmqpState.CONNECTING:
            return
        limits = self._limits
        self._state = AmqpState.CONNECTED
        frame_bytes_max = performative.max_frame_size or limits.frame_bytes_max
        peer = AmqpPeer(
            connection=connection,
            limits=limits,
            writer=TransferWriter(self._clock, body_bytes_max=limits.message_bytes_max),
            # Larger frames would save nothing, and keep other links of the client waiting.
            frame_bytes_max=min(frame_bytes_max, limits.frame_bytes_max),
            clock=self._clock,
            next_sequence=self._broker.next_sequence,
            transformer=self._transformer,
            has_login=self._user is not None and self._user.is_certain,
            write=self._write,
            wake=self._wake,
        )
        self._client = AmqpClient(peer)
        if self._is_slow:
            self._client.pause()
        self._write(encode_frame(0, self._own_open(self._broker.name)))
        now = self._link.time()
        if performative.idle_time_out:
            self._keep_alive_seconds = max(performative.idle_time_out / 1000 / _KEPT_ALIVE_PART, _IDLE_SECONDS_MIN)
            self._keep_alive_at = now + self._keep_alive_seconds
        self._received_at = now
        self._arm(now)
        client_id = performative.container_id or self._connection_id
        self._client_log.connected(self._connection_id, client_id, self._link.peer, "AMQP 1.0")
        self._link.release_input()  # last: it may process input at once

    def _own_open(self, container_id: str, properties: AmqpFields | None = None) -> AmqpOpen:
        self._has_opened = True
        limits = self._limits
        return AmqpOpen(
            container_id=container_id,
            max_frame_size=limits.frame_bytes_max,
            channel_max=min(limits.channels - 1, _CHANNEL_MAX),
            idle_time_out=round(limits.idle_seconds * 500) or None if properties is None else None,
            offered_capabilities=_OFFERED if properties is None else None,
            properties=self._properties if properties is None else properties,
        )

    # ------------------------------------------------------------ timers

    def _arm(self, now: float) -> None:
        """Have `on_timer` called when something is due."""
        due: list[float] = []
        if self._limits.idle_seconds and self._state is AmqpState.CONNECTED:
            due.append(self._received_at + self._limits.idle_seconds)
        if self._keep_alive_seconds is not None:
            due.append(self._keep_alive_at)
        if self._calls_at is not None:
            due.append(self._calls_at)
        self._link.wake_at(max(now, min(due)) if due else None)

    def _wake(self, seconds: float) -> None:
        """Have `AmqpClient.on_timer` called in so many seconds, or sooner."""
        now = self._link.time()
        if self._calls_at is None or now + seconds < self._calls_at:
            self._calls_at = now + seconds
            self._arm(now)

    def _check(self, now: float) -> None:
        if self._calls_at is not None and now >= self._calls_at:
            self._calls_at = None
            if self._client is not None:
                self._client.on_timer()
        if self._keep_alive_seconds is not None and now >= self._keep_alive_at:
            self._keep_alive_at = now + self._keep_alive_seconds
            if not self._has_written:
                self._write(EMPTY_FRAME)
            self._has_written = False
        if self._limits.idle_seconds and self._state is AmqpState.CONNECTED:
            reading_since = self._link.reading_since
            self._received_at = max(self._received_at, now if reading_since is None else reading_since)
            if now - self._received_at >= self._limits.idle_seconds:
                text = f"nothing was received for {self._limits.idle_seconds:g} seconds, twice the idle time-out"
                self._fail(AmqpError(text, RESOURCE_LIMIT))
                return
        if self._state in _CONNECTED:
            self._arm(now)

    # ------------------------------------------------------------ end

    def _leave(self, performative: AmqpClose) -> None:
        """End the conversation as the client asks: what comes behind its close is discarded (2.4.6)."""
        if performative.error is not None:
            _log.info("%s: the client closes with %s", self._connection_id, performative.error.condition)
        self._end_of_chunk()
        self._client_log.ended("close")
        connection = self._connection
        if connection is None:
            return
        self._state = AmqpState.CLOSING
        self._decoder.clear()
        self._input = iter(())
        self._reserve()
        # What it has sent is answered, or refused; then the broker has nothing more of it.
        if self._client is not None:
            self._client.finish_deferred()
        connection.when_durable(self._answer_close)

    def _answer_close(self) -> None:
        if self._state is not AmqpState.CLOSING:
            return
        self._write(encode_frame(0, AmqpClose()))
        self._end()
        self._state = AmqpState.CLOSED
        self._link.wake_at(None)
        self._link.close()

    def _end(self) -> None:
        """Close the connection in the broker. Harmless when repeated."""
        self._login.cancel()
        self._decoder.clear()
        self._input = iter(())  # the garbage collection that finds this session may come late
        connection, self._connection = self._connection, None
        client, self._client = self._client, None
        if client is not None:
            client.close()
        elif connection is not None:
            connection.close()

    def _fail(self, error: BrokerError) -> None:
        """Close with an error. What comes before open gets one, so that the client sees the error."""
        level = (
            logging.INFO if isinstance(error, AccessDenied | NotAuthenticated | InvalidClientId) else logging.WARNING
        )
        reason = str(error)
        match self._state:
            case AmqpState.CLOSED:
                return
            case AmqpState.OPENED:
                self._write(SASL_HEADER)
                reason = other_protocol(self._head, DetectedProtocol.AMQP) or reason
            case AmqpState.OPENING | AmqpState.CONNECTING | AmqpState.CONNECTED | AmqpState.CLOSING:
                if not self._has_opened:
                    self._write(encode_frame(0, self._own_open("", _FAILED)))
                self._write(encode_frame(0, AmqpClose(error=self._condition(error))))
            case _:
                pass
        self._close(reason, level)

    def _condition(self, error: BrokerError) -> AmqpErrorCondition:
        info: AmqpFields | None = None
        if isinstance(error, InvalidClientId):
            info = {Symbol("invalid-field"): Symbol("container-id")}
        return condition(error, info)

    def _close(self, reason: str, level: int = logging.WARNING) -> None:
        """Log the reason, and close."""
        if self._state is AmqpState.CLOSED:
            return
        _log.log(level, "%s from %s closed: %s", self._connection_id, self._link.peer, reason)
        self._client_log.ended(reason)
        self._link.wake_at(None)
        self._end()
        self._state = AmqpState.CLOSED
        self._link.close()

    def _write(self, data: bytes) -> None:
        if self._state is not AmqpState.CLOSED:
            self._has_written = True
            self._link.write(data)


def _other_header(header: AmqpHeaderSeen) -> str:
    """Return the reason to close a connection with the protocol header of another version."""
    version = header[1:]
    if version == (0, 9, 1):
        return "it speaks AMQP 0-9-1, as clients of RabbitMQ do, and AMQP 1.0 is spoken here: use a client of that"
    if header.protocol_id == _TLS_ID:
        return "it asks for TLS inside of AMQP: use a port with TLS"
    return f"it asks for protocol {header.protocol_id}, version {'.'.join(map(str, version))}: AMQP 1.0 is spoken here"
