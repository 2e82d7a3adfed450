"""A STOMP conversation, sans-I/O: chunks in, calls to the broker, frames and wishes out to the link.

Here are the conversation's beginning and end, its timers and its errors; `client` has what happens in between, and
`states` the table of both. Source: STOMP 1.2, "Connecting", "Heart-beating", "ERROR"; ActiveMQ 5.17 for what it
tolerates. Where ActiveMQ closes in silence, an ERROR says why.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from pybroker import __version__
from pybroker.broker.domain.errors import BrokerError, RequestError, ResourceLimit
from pybroker.broker.domain.ports import BrokerPort, Clock, ConnectionPort
from pybroker.broker.domain.stomp.codec import HEART_BEAT, FrameDecoder, encode_frame
from pybroker.broker.domain.stomp.errors import Broken, StompRequestError, describe
from pybroker.broker.domain.stomp.frames import Command, Frame, StompLimits, Version, shortened
from pybroker.transports.client_log import ClientLog
from pybroker.transports.session import Link, Session
from pybroker.transports.stomp.client import StompClient
from pybroker.transports.stomp.flow import BackpressureReason, Flow
from pybroker.transports.stomp.heartbeat import HeartBeat, agree
from pybroker.transports.stomp.refusals import Refusals
from pybroker.transports.stomp.states import TRANSITIONS, Reaction, StompState

_log = logging.getLogger(__name__)

SERVER = f"ActiveMQ/5.17.2 pybroker/{__version__}"
"""The `server` header of CONNECTED: by the specification a name with a version, a blank, and a comment. Clients choose
a dialect by the name (stomp-php by `activemq` anywhere in it), and here the dialect is that ActiveMQ's."""


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
        refusals: Refusals | None = None,
        server: str = SERVER,
    ) -> None:
        """Wait for CONNECT.

        Args:
            broker: admits the client.
            link: moves the bytes.
            connection_id: names the connection in message ids and `ack` headers; unique for ever.
            limits: what the peer may make the broker hold.
            clock: milliseconds since the epoch, for messages without a timestamp.
            server: the header of that name in CONNECTED.
            refusals: logs what finds no room, for all connections together; None: for this one.
        """
        self._broker = broker
        self._link = link
        self._connection_id = connection_id
        self._limits = limits
        self._clock = clock
        self._server = server
        self._refusals = refusals or Refusals()
        self._decoder = FrameDecoder(limits)
        self._decoder.body_bytes_max = min(limits.body_bytes, limits.stranger_body_bytes)
        self._version = Version.V1_0
        self._connection: ConnectionPort | None = None
        self._client: StompClient | None = None
        self._heart_beat: HeartBeat | None = None
        self._flow = Flow()
        self._client_log = ClientLog()
        self._enter(StompState.OPENED)
        self._link.wake_at(link.time() + limits.connect_seconds)

    @property
    def state(self) -> StompState:
        """Where the conversation stands."""
        return self._state

    # ------------------------------------------------------------ Session

    def receive(self, chunk: bytes) -> None:
        """Obey every frame the chunk completes."""
        if not self._handlers:
            return
        if self._heart_beat is not None:
            self._heart_beat.received(self._link.time())
        try:
            for frame in self._decoder.feed(chunk):
                self._obey(frame)
                if not self._handlers:
                    return
        except Broken as error:
            self._break_off(error)

    def written(self) -> None:
        """Settle what has left, and deliver again if the peer was slow."""
        if self._connection is not None:
            self._connection.written()
        if self._client is not None:
            self._client.settle()
        self._flow.clear(BackpressureReason.LINK)

    def handed_over(self) -> None:
        """Count what was delivered so far as seen, if the connection ends."""
        if self._connection is not None:
            self._connection.written()

    def pause_writing(self) -> None:
        """Deliver nothing more until `written`. What else is written, answers, the link bounds by not reading."""
        self._flow.jam(BackpressureReason.LINK)

    def on_timer(self) -> None:
        """Send a heart-beat, or give up a peer that is silent for too long."""
        now = self._link.time()
        if self._state is StompState.OPENED:
            self._break_off(
                Broken(
                    f"No CONNECT within {self._limits.connect_seconds:g} seconds",
                    "Begin with a CONNECT frame. This port speaks STOMP; is it meant?",
                )
            )
        elif self._heart_beat is not None and self._state is StompState.CONNECTED:
            self._beat(self._heart_beat, now)

    def lost(self) -> None:
        """Undo what the connection holds in the broker."""
        self._enter(StompState.CLOSED)
        self._client_log.ended(self._link.ending)
        self._disconnect()

    # ------------------------------------------------------------ frames

    def _enter(self, state: StompState) -> None:
        self._state = state
        self._handlers = self._handlers_of(state)

    def _handlers_of(self, state: StompState) -> Mapping[str, Callable[[Frame], None]]:
        """Return what carries out each command in a state; nothing where every command is ignored."""
        reactions: Mapping[Reaction, Callable[[Frame], None]] = {
            Reaction.CONNECT: self._connect,
            Reaction.LEAVE: self._leave,
            Reaction.REFUSE_NOT_CONNECTED: _refuse_not_connected,
            Reaction.REFUSE_ALREADY_CONNECTED: _refuse_already_connected,
        }
        handlers: dict[str, Callable[[Frame], None]] = {}
        for command in Command:
            reaction = TRANSITIONS[state, command].reaction
            if reaction is Reaction.OBEY:
                assert self._client is not None, "connected without a client"
                handlers[command] = self._client.handlers[command]
            elif reaction is not Reaction.IGNORE:
                handlers[command] = reactions[reaction]
        return handlers

    def _obey(self, frame: Frame) -> None:
        try:
            handler = self._handlers.get(frame.command)
            if handler is None:
                raise _unknown(frame.command)
            handler(frame)
        except RequestError as error:
            self._log_refusal(frame.command, error)
            self._write_error(error, frame.headers.get("receipt"))
        except BrokerError as error:
            self._break_off(error, frame.headers.get("receipt"))

    def _log_refusal(self, command: str, error: RequestError) -> None:
        if command == Command.SEND and isinstance(error, ResourceLimit):
            self._refusals.note(self._connection_id, error, self._link.time())
        else:
            _log.info("%s: %s refused: %s", self._connection_id, command, error)

    # ------------------------------------------------------------ CONNECT, DISCONNECT

    def _connect(self, frame: Frame) -> None:
        headers = frame.headers
        version = _negotiate(headers.get("accept-version"))
        agreement = agree(headers.get("heart-beat", "0,0"), minimum_ms=self._limits.heart_beat_min_ms)
        client_id = headers.get("client-id", self._connection_id)
        try:
            connection = self._broker.connect(self._connection_id, client_id, self._link)
        except RequestError as error:
            raise Broken(str(error), "Choose another client-id, or close the other connection first.") from error
        self._connection = connection
        self._flow.attach(connection)
        self._client = StompClient(
            connection=connection,
            version=version,
            limits=self._limits,
            clock=self._clock,
            next_sequence=self._broker.next_sequence,
            write=self._write,
            flow=self._flow,
        )
        answer = {"version": version.value, "heart-beat": str(agreement), "session": client_id, "server": self._server}
        asked = headers.get("request-id", headers.get("receipt"))
        if asked is not None:
            answer |= {"response-id": asked, "receipt-id": asked}
        # CONNECTED itself is written by the rules of 1.0, which escape nothing.
        self._write(encode_frame("CONNECTED", answer, b"", Version.V1_0))
        self._version = self._decoder.version = version
        self._decoder.body_bytes_max = self._limits.body_bytes
        now = self._link.time()
        self._heart_beat = HeartBeat(agreement, grace=self._limits.heart_beat_grace, now=now)
        self._link.wake_at(self._heart_beat.next_look())
        self._enter(TRANSITIONS[StompState.OPENED, Command.CONNECT].state)
        self._client_log.connected(self._connection_id, client_id, self._link.peer, f"STOMP {version.value}")

    def _leave(self, frame: Frame) -> None:
        """Answer DISCONNECT once everything before it is safe, and close."""
        self._enter(TRANSITIONS[self._state, Command.DISCONNECT].state)
        farewell = partial(self._farewell, frame.headers.get("receipt"))
        self._link.wake_at(None)
        self._client_log.ended("DISCONNECT")
        if self._connection is None:
            farewell()
        else:
            self._connection.when_durable(farewell)
            self._disconnect()

    def _farewell(self, receipt: str | None) -> None:
        if self._state is not StompState.LEAVING:
            return
        if receipt is not None:
            self._write(encode_frame("RECEIPT", {"receipt-id": receipt}, b"", self._version))
        self._enter(StompState.CLOSED)
        self._link.close()

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()

    # ------------------------------------------------------------ answers and timers

    def _write(self, data: bytes) -> None:
        if self._state is StompState.CLOSED:
            return
        self._link.write(data)
        if self._heart_beat is not None:
            self._heart_beat.wrote = True

    def _write_error(self, error: BrokerError, receipt: str | None) -> None:
        message, body = describe(error)
        headers = {"message": message, "content-type": "text/plain", "content-length": str(len(body))}
        if receipt is not None:
            headers["receipt-id"] = receipt
        self._write(encode_frame("ERROR", headers, body, self._version))

    def _break_off(self, error: BrokerError, receipt: str | None = None) -> None:
        """Say what was wrong, and close."""
        self._write_error(error, receipt)
        self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        """Close, and log why; to a peer that is silent nothing is sent but the end, as ActiveMQ does."""
        _log.warning("%s from %s closed: %s", self._connection_id, self._link.peer, reason)
        self._client_log.ended(reason)
        self._enter(StompState.CLOSED)
        self._link.wake_at(None)
        self._link.close()
        self._disconnect()

    def _beat(self, heart_beat: HeartBeat, now: float) -> None:
        reading_since = self._link.reading_since
        heart_beat.not_read_until(now if reading_since is None else reading_since)
        if heart_beat.is_peer_dead(now):
            self._give_up(
                f"nothing was received for {heart_beat.silence_seconds_max:g} seconds, though it promised more"
            )
            return
        if heart_beat.is_beat_due(now):
            self._link.write(HEART_BEAT)
        self._link.wake_at(heart_beat.next_look())


def _negotiate(accept_version: str | None) -> Version:
    """Return the highest version both speak. Absent means 1.0; items are not trimmed, as in ActiveMQ."""
    if accept_version is None:
        return Version.V1_0
    offered = accept_version.strip().split(",")
    for version in (Version.V1_2, Version.V1_1, Version.V1_0):
        if version.value in offered:
            return version
    raise Broken(
        f"Invalid Protocol version[{shortened(accept_version)}], supported versions are: [1.2, 1.1, 1.0]",
        "Write for example accept-version:1.0,1.1,1.2 (commas, no blanks).",
    )


def _refuse_not_connected(frame: Frame) -> None:
    raise StompRequestError("Not connected.", f"Send CONNECT, and wait for CONNECTED, before {frame.command}.")


def _refuse_already_connected(frame: Frame) -> None:
    raise StompRequestError(
        "Already connected.", "A connection is opened by one CONNECT; for another one, connect again."
    )


def _unknown(command: str) -> Broken:
    return Broken(
        f"Unknown STOMP action: {shortened(command)}",
        f"Commands are upper-case words: {', '.join(Command)}. Mind content-length: it counts bytes, not characters.",
    )
