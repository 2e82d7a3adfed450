"""The session of a STOMP connection, sans-I/O: turns received bytes into calls to the broker, and frames to send.

It connects, disconnects, and has the timers and errors; `client` carries out the commands of a connected client, and
`states` has the state machine. Source: STOMP 1.2, "Connecting", "Heart-beating", "ERROR"; ActiveMQ 5.17 for its
tolerance. Where ActiveMQ closes without a frame, an ERROR gives the cause.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from pybroker import __version__
from pybroker.broker.domain import audit
from pybroker.broker.domain.errors import BrokerError, InvalidClientId, RequestError
from pybroker.broker.domain.ports import BrokerPort, Clock, ConnectionPort
from pybroker.broker.domain.security import WITHOUT_LOGINS, AccessDenied, Authenticator, NotAuthenticated, User
from pybroker.broker.domain.stomp.codec import HEART_BEAT, FrameDecoder, encode_frame
from pybroker.broker.domain.stomp.errors import StompProtocolError, StompRequestError, describe
from pybroker.broker.domain.stomp.frames import Command, Frame, StompLimits, Version, shortened
from pybroker.transports.client_log import ClientLog
from pybroker.transports.login import PeerLogin
from pybroker.transports.packet_loop import PacketLoop
from pybroker.transports.session import INPUT_WAIT_SECONDS, Link, Session
from pybroker.transports.stomp.client import StompClient
from pybroker.transports.stomp.flow import BackpressureReason, Flow
from pybroker.transports.stomp.heartbeat import HeartBeat, HeartbeatIntervals, negotiate
from pybroker.transports.stomp.mapping import INLINE_BYTES_MAX, LargeMessage
from pybroker.transports.stomp.states import TRANSITIONS, Reaction, StompState

_log = logging.getLogger(__name__)

SERVER = f"ActiveMQ/5.17.2 pybroker/{__version__}"
"""The `server` header of CONNECTED: by the specification a name with a version, a blank, and a comment. Clients choose
a dialect by the name (stomp-php by `activemq` anywhere in it), and this broker speaks ActiveMQ's."""


class StompSession(Session):
    """Serves one STOMP connection."""

    def __init__(
        self,
        *,
        broker: BrokerPort,
        link: Link,
        connection_id: str,
        limits: StompLimits,
        clock: Clock,
        server: str = SERVER,
        authenticator: Authenticator = WITHOUT_LOGINS,
    ) -> None:
        """Wait for CONNECT.

        Args:
            broker: admits the client.
            link: moves the bytes.
            connection_id: identifies the connection in message ids and `ack` headers; never used again.
            limits: the limits to frames and objects of the peer.
            clock: milliseconds since the epoch, for messages without a timestamp.
            server: the header of that name in CONNECTED.
            authenticator: decides who the client is.
        """
        self._broker = broker
        self._link = link
        self._connection_id = connection_id
        self._limits = limits
        self._clock = clock
        self._server = server
        self._login = PeerLogin(link, authenticator)
        self._decoder = FrameDecoder(limits)
        self._loop = PacketLoop(link, self._decoder, self._obey, self._close_with_error)
        self._large: LargeMessage | None = None
        """The message of the present frame, while a thread builds it."""
        self._decoder.body_bytes_max = min(limits.body_bytes, limits.unconnected_body_bytes)
        self._decoder.head_bytes_max = min(limits.head_bytes, limits.unconnected_head_bytes)
        self._version = Version.V1_0
        self._connection: ConnectionPort | None = None
        self._client: StompClient | None = None
        self._heart_beat: HeartBeat | None = None
        self._flow = Flow()
        self._client_log = ClientLog()
        self._is_held = False
        self._enter(StompState.OPENED)
        self._link.wake_at(link.time() + limits.connect_seconds)

    @property
    def state(self) -> StompState:
        """The state of the connection."""
        return self._state

    # ------------------------------------------------------------ Session

    @property
    def is_connected(self) -> bool:
        """True once CONNECT was answered."""
        return self._client is not None

    def receive(self, chunk: bytes) -> bool:
        """Carry out the frames that the chunk completes."""
        if self._heart_beat is not None:
            self._heart_beat.received(self._link.time())
        return self._loop.receive(chunk)

    def proceed(self) -> bool:
        """Carry out complete frames until the slice is over; return True if any may be left."""
        return self._loop.proceed()

    def written(self) -> None:
        """Acknowledge messages in mode auto, and resume delivery if the peer was slow."""
        if self._connection is not None:
            self._connection.written()
        if self._client is not None:
            self._client.acknowledge_sent()
        self._flow.resume(BackpressureReason.LINK)
        if self._client is not None:
            self._client.resume_rendering()

    def handed_over(self) -> None:
        """Count all deliveries so far as possibly received, if the connection ends."""
        if self._connection is not None:
            self._connection.written()

    def pause_writing(self) -> None:
        """Pause delivery until `written`; the link bounds the answers, as it stops reading."""
        self._flow.pause(BackpressureReason.LINK)

    def hold(self) -> None:
        """Carry out no frame behind the present one."""
        self._is_held = self._loop.is_deaf = True

    def release(self) -> None:
        """Carry out frames again."""
        self._is_held = False
        self._loop.is_deaf = not self._handlers

    def on_timer(self) -> None:
        """Send a heart-beat, or close if the peer is silent for too long."""
        now = self._link.time()
        if self._state is StompState.OPENED and self._link.is_input_waiting:
            self._link.wake_at(now + INPUT_WAIT_SECONDS)
        elif self._state is StompState.OPENED:
            self._close_with_error(
                StompProtocolError(
                    f"No CONNECT within {self._limits.connect_seconds:g} seconds",
                    "Begin with a CONNECT frame. This port speaks STOMP: check the client's port.",
                )
            )
        elif self._heart_beat is not None and self._state is StompState.CONNECTED:
            self._beat(self._heart_beat, now)

    def stopping(self) -> None:
        """Do nothing: STOMP has no frame for it."""

    def give_up(self, error: BrokerError) -> None:
        """Close with an ERROR, as a limit of all connections is reached."""
        self._close_with_error(error)

    def lost(self) -> None:
        """Remove the connection from the broker."""
        self._enter(StompState.CLOSED)
        self._client_log.ended(self._link.ending)
        self._disconnect()
        client, self._client = self._client, None
        if client is not None:
            client.release_references()

    # ------------------------------------------------------------ frames

    def _starts_building(self, frame: Frame) -> bool:
        """Return True if a thread builds the message of a SEND; the peer is not read until the frame comes again."""
        client = self._client
        if client is None or frame.command != Command.SEND:
            return False
        large = self._large
        if large is None:
            self._large = large = client.prepare(frame)
            if large is None:
                return False
            self._link.pause_reading()
            self._link.in_thread(large.build, self._link.resume_reading)
        if not large.is_done:
            return True
        self._large = None
        client.use(large)  # it is for this frame
        return False

    def _enter(self, state: StompState) -> None:
        self._state = state
        self._handlers = self._handlers_of(state)
        self._loop.is_deaf = self._is_held or not self._handlers

    def _handlers_of(self, state: StompState) -> Mapping[str, Callable[[Frame], None]]:
        """Return the handlers of commands in a state; empty where every command is ignored."""
        reactions: Mapping[Reaction, Callable[[Frame], None]] = {
            Reaction.CONNECT: self._connect,
            Reaction.LEAVE: self._leave,
            Reaction.REFUSE_NOT_CONNECTED: _refuse_not_connected,
            Reaction.REFUSE_ALREADY_CONNECTED: _refuse_already_connected,
        }
        handlers: dict[str, Callable[[Frame], None]] = {}
        for command, reaction in _reactions_in(state):
            if reaction is Reaction.OBEY:
                assert self._client is not None, "connected without a client"
                handlers[command] = self._client.handlers[command]
            else:
                handlers[command] = reactions[reaction]
        return handlers

    def _obey(self, frame: Frame) -> bool:
        """Carry out a frame; return True if it must come again, as a thread builds its message."""
        if len(frame.body) > INLINE_BYTES_MAX and self._starts_building(frame):
            return True
        try:
            handler = self._handlers.get(frame.command)
            if handler is None:
                raise _unknown(frame.command)
            handler(frame)
        except RequestError as error:
            if not isinstance(error, AccessDenied):  # which has a line in the audit log
                _log.info("%s: %s refused: %s", self._connection_id, frame.command, error)
            self._write_error(error, frame.headers.get("receipt"))
        except BrokerError as error:
            self._close_with_error(error, frame.headers.get("receipt"))
        return False

    def _refuse_send(self, error: RequestError, receipt: str | None) -> None:
        _log.info("%s: SEND refused: %s", self._connection_id, error)
        self._write_error(error, receipt)

    # ------------------------------------------------------------ CONNECT, DISCONNECT

    def _connect(self, frame: Frame) -> None:
        headers = frame.headers
        version = _negotiate(headers.get("accept-version"))
        intervals = negotiate(headers.get("heart-beat", "0,0"), minimum_ms=self._limits.heart_beat_min_ms)
        decided = partial(self._decided, headers, version, intervals)
        self._login.begin(headers.get("login"), headers.get("passcode"), decided)

    def _decided(
        self,
        headers: Mapping[str, str],
        version: Version,
        intervals: HeartbeatIntervals,
        outcome: User | NotAuthenticated,
    ) -> None:
        """Open the connection for the user; refused, close."""
        if isinstance(outcome, NotAuthenticated):
            self._write_error(outcome, None)
            self._close(str(outcome), logging.INFO)
            return
        client_id = headers.get("client-id", self._connection_id)
        try:
            self._connection = connection = self._broker.connect(self._connection_id, client_id, self._link, outcome)
        except BrokerError as error:
            audit.refused(outcome.name, self._link.peer, str(error))
            if isinstance(error, InvalidClientId):
                remedy = "Choose another client-id, or close the other connection first."
                error = StompProtocolError(str(error), remedy)
            self._close_with_error(error, headers.get("receipt"))
            return
        self._flow.attach(connection)
        self._client = StompClient(
            connection=connection,
            version=version,
            limits=self._limits,
            clock=self._clock,
            next_sequence=self._broker.next_sequence,
            write=self._write,
            write_pieces=self._write_pieces,
            flow=self._flow,
            refuse=self._refuse_send,
            in_thread=self._link.in_thread,
        )
        answer = {"version": version.value, "heart-beat": str(intervals), "session": client_id, "server": self._server}
        request_id = headers.get("request-id", headers.get("receipt"))
        if request_id is not None:
            answer |= {"response-id": request_id, "receipt-id": request_id}
        # CONNECTED itself is written as in 1.0, without escapes.
        self._write(encode_frame("CONNECTED", answer, b"", Version.V1_0))
        self._version = self._decoder.version = version
        self._decoder.body_bytes_max = self._limits.body_bytes
        self._decoder.head_bytes_max = self._limits.head_bytes
        now = self._link.time()
        self._heart_beat = HeartBeat(intervals, grace=self._limits.heart_beat_grace, now=now)
        self._link.wake_at(self._heart_beat.next_check())
        self._enter(TRANSITIONS[StompState.OPENED, Command.CONNECT].state)
        self._client_log.connected(self._connection_id, client_id, self._link.peer, f"STOMP {version.value}")

    def _leave(self, frame: Frame) -> None:
        """Answer DISCONNECT once all earlier changes are on disk, and close."""
        self._enter(TRANSITIONS[self._state, Command.DISCONNECT].state)
        finish = partial(self._finish, frame.headers.get("receipt"))
        self._link.wake_at(None)
        self._client_log.ended("DISCONNECT")
        if self._connection is None or self._client is None:
            finish()
        else:
            self._client.finish_deferred()
            self._client.end_deliveries()
            self._connection.when_durable(finish)
            self._disconnect()

    def _finish(self, receipt: str | None) -> None:
        if self._state is not StompState.LEAVING:
            return
        if receipt is not None:
            self._write(encode_frame("RECEIPT", {"receipt-id": receipt}, b"", self._version))
        self._enter(StompState.CLOSED)
        self._link.close()

    def _disconnect(self) -> None:
        self._login.cancel()
        self._loop.end()
        if self._large is not None:
            self._large.drop()
            self._large = None
        if self._client is not None:
            self._client.close()

    # ------------------------------------------------------------ answers and timers

    def _write(self, data: bytes) -> None:
        if self._state is StompState.CLOSED:
            return
        self._link.write(data)
        if self._heart_beat is not None:
            self._heart_beat.wrote = True

    def _write_pieces(self, pieces: Sequence[bytes]) -> None:
        if self._state is StompState.CLOSED:
            return
        self._link.write_pieces(pieces)
        if self._heart_beat is not None:
            self._heart_beat.wrote = True

    def _write_error(self, error: BrokerError, receipt: str | None) -> None:
        message, body = describe(error)
        headers = {"message": message, "content-type": "text/plain", "content-length": str(len(body))}
        if receipt is not None:
            headers["receipt-id"] = receipt
        self._write(encode_frame("ERROR", headers, body, self._version))

    def _close_with_error(self, error: BrokerError, receipt: str | None = None) -> None:
        """Send an ERROR, log it, and close."""
        self._write_error(error, receipt)
        self._close(f"{error}: {error.remedy}" if isinstance(error, StompProtocolError) else str(error))

    def _close(self, reason: str, level: int = logging.WARNING) -> None:
        """Log the reason, and close; a silent peer gets no ERROR, as in ActiveMQ."""
        _log.log(level, "%s from %s closed: %s", self._connection_id, self._link.peer, reason)
        self._client_log.ended(reason)
        self._enter(StompState.CLOSED)
        self._link.wake_at(None)
        self._link.close()
        self._disconnect()

    def _beat(self, heart_beat: HeartBeat, now: float) -> None:
        reading_since = self._link.reading_since
        heart_beat.not_read_until(now if reading_since is None else reading_since)
        if heart_beat.is_peer_dead(now):
            self._close(
                f"nothing was received for {heart_beat.silence_seconds_max:g} seconds, against its heart-beat header"
            )
            return
        if heart_beat.is_beat_due(now):
            self._link.write(HEART_BEAT)
        self._link.wake_at(heart_beat.next_check())


@cache
def _reactions_in(state: StompState) -> Sequence[tuple[Command, Reaction]]:
    """Return the commands that are not ignored in a state: looked up once, and not for each connection of a flood."""
    reactions = ((command, TRANSITIONS[state, command].reaction) for command in Command)
    return [(command, reaction) for command, reaction in reactions if reaction is not Reaction.IGNORE]


def _negotiate(accept_version: str | None) -> Version:
    """Return the highest common version; without a header 1.0. Items are not trimmed, as in ActiveMQ."""
    if accept_version is None:
        return Version.V1_0
    offered = accept_version.strip().split(",")
    for version in (Version.V1_2, Version.V1_1, Version.V1_0):
        if version.value in offered:
            return version
    raise StompProtocolError(
        f"Invalid Protocol version[{shortened(accept_version)}], supported versions are: [1.2, 1.1, 1.0]",
        "Write for example accept-version:1.0,1.1,1.2 (commas, no blanks).",
    )


def _refuse_not_connected(frame: Frame) -> None:
    raise StompRequestError("Not connected.", f"Send CONNECT, and wait for CONNECTED, before {frame.command}.")


def _refuse_already_connected(frame: Frame) -> None:
    raise StompRequestError("Already connected.", "Send CONNECT once; open another connection for another client.")


def _unknown(command: str) -> StompProtocolError:
    return StompProtocolError(
        f"Unknown STOMP action: {shortened(command)}",
        f"Commands are upper-case words: {', '.join(Command)}. Mind content-length: it counts bytes, not characters.",
    )
