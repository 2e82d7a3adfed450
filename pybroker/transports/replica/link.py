"""A follower's connection to the master's server: handshake, frames, and how much waits to be sent."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from pybroker.broker.domain.addresses import peer_name
from pybroker.broker.domain.replica.frames import (
    FROM_FOLLOWER,
    Payload,
    RefusedFrame,
    StreamDecoder,
    StreamFrame,
    encode_frame,
)
from pybroker.broker.domain.replica.manifest import MalformedFrame
from pybroker.broker.domain.replica.seals import FrameSeal
from pybroker.transports.replica.handshake import GREETING_BYTES, Handshake

HIGH_WATER_BYTES: Final = 2 << 20
"""A catch-up pauses while so much waits to be sent."""

_log = logging.getLogger(__name__)


def set_options(connection: socket.socket, silence_seconds: float) -> None:
    """Have a connection send at once, and end when the other side has acknowledged nothing for some seconds."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if (user_timeout := getattr(socket, "TCP_USER_TIMEOUT", None)) is not None:  # Linux
        connection.setsockopt(socket.IPPROTO_TCP, user_timeout, max(1, int(silence_seconds * 1000)))


class LinkOwner(Protocol):
    """The session of a connection. Called on the loop."""

    def authenticated(self) -> None:
        """The other side knows the secret, if there is one: frames may be sent."""
        ...

    def received(self, frame: StreamFrame) -> None:
        """Take a frame.

        Raises:
            MalformedFrame: it may not come now; the connection is refused.
        """
        ...

    def lost(self, reason: str) -> None:
        """The connection has ended. Once."""
        ...


class FollowerLink(asyncio.Protocol):
    """One connection. Used on the loop.

    Args:
        handshake: a new one.
        owner: makes the session of the connection.
        clock: monotonic seconds.
        silence_seconds: for so long the other side may leave bytes unacknowledged.
        on_end: called when the connection has ended, after its session.
        check: checks the other side's certificate, with TLS; raises `MalformedFrame`.
    """

    def __init__(
        self,
        handshake: Handshake,
        owner: Callable[["FollowerLink"], LinkOwner],
        clock: Callable[[], float],
        silence_seconds: float,
        on_end: Callable[["FollowerLink"], None],
        check: Callable[[Mapping[str, Any] | None], None] | None = None,
    ) -> None:
        self._on_end = on_end
        self._check = check
        self._silence_seconds = silence_seconds
        self._handshake = handshake
        self._clock = clock
        self._received = bytearray()
        self._has_greeting = False
        self._decoder: StreamDecoder | None = None
        self._seal: FrameSeal | None = None
        self._transport: asyncio.Transport | None = None
        self._drained = asyncio.Event()
        self._drained.set()
        self._reason = ""
        self.peer = ""
        """The other side's address, for logs."""
        self.heard_at = clock()
        """When something came last."""
        self._new_owner = owner
        self._owner: LinkOwner | None = None

    # ------------------------------------------------------------ asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake. With TLS, that of TLS is over."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = peer_name(transport.get_extra_info("peername"))
        self.heard_at = self._clock()
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        set_options(transport.get_extra_info("socket"), self._silence_seconds)
        self._owner = self._new_owner(self)
        if self._check is not None:
            try:
                self._check(transport.get_extra_info("ssl_object").getpeercert())
            except MalformedFrame as error:
                self.refuse(str(error))

    def data_received(self, data: bytes) -> None:
        """Take bytes: of the handshake, and then of frames."""
        if self._reason or self._owner is None:
            return
        self.heard_at = self._clock()
        try:
            decoder = self._decoder
            if decoder is None:
                decoder, data = self._shake_hands(data)
            for frame in decoder.receive(data) if decoder is not None else ():
                if self.is_closed:
                    return
                self._owner.received(frame)
        except MalformedFrame as error:
            self.refuse(str(error))
        except Exception as error:
            _log.exception("%s: a follower's frame failed", self.peer)
            self.refuse(f"an error of the master: {type(error).__name__}")

    def pause_writing(self) -> None:
        """Have a catch-up wait."""
        self._drained.clear()

    def resume_writing(self) -> None:
        """Have it go on."""
        self._drained.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end."""
        self._drained.set()
        self._reason = self._reason or (str(exc) if exc else "the follower closed the connection")
        if self._owner is not None:
            self._owner.lost(self._reason)
        self._on_end(self)

    def _shake_hands(self, data: bytes) -> tuple[StreamDecoder | None, bytes]:
        """Go on with the handshake; return the decoder of what follows it when it is over, and that.

        Raises:
            MalformedFrame: it has failed.
        """
        shake, received = self._handshake, self._received
        received += data
        if not self._has_greeting:
            if len(received) < GREETING_BYTES:
                return None, b""
            shake.receive_greeting(bytes(received[:GREETING_BYTES]))
            del received[:GREETING_BYTES]
            self._has_greeting = True
            self._write(shake.greeting)
        if len(received) < shake.proof_bytes:
            return None, b""
        shake.check_proof(bytes(received[: shake.proof_bytes]))
        self._write(shake.proof())
        self._seal, receive = shake.seals()
        self._decoder = StreamDecoder(FROM_FOLLOWER, receive)
        assert self._owner is not None, "it was connected"
        rest = bytes(received[shake.proof_bytes :])
        received.clear()
        self._owner.authenticated()
        return self._decoder, rest

    # ------------------------------------------------------------ the session's side

    @property
    def seal(self) -> FrameSeal:
        """The seal of the frames that are sent, each of which has to be sent."""
        assert self._seal is not None, "the handshake is over"
        return self._seal

    @property
    def is_closed(self) -> bool:
        """True when nothing is sent or taken any more."""
        return bool(self._reason)

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait to be sent."""
        transport = self._transport
        return 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()

    def send(self, frame: StreamFrame) -> None:
        """Send a frame; it waits in memory if the connection takes no more."""
        if not self._reason:
            self._write(encode_frame(self.seal, frame))

    def send_pieces(self, pieces: Sequence[Payload]) -> None:
        """Send a frame that was encoded with `seal`."""
        if not self._reason:
            self._write(b"".join(pieces))

    async def drain(self) -> None:
        """Wait until the connection takes more.

        Raises:
            ConnectionError: it has ended.
        """
        await self._drained.wait()
        if self._reason:
            raise ConnectionError(self._reason)

    def refuse(self, reason: str) -> None:
        """Close the connection; the other side gets the reason, if it was authenticated and takes it at once."""
        if self._reason:
            return
        if self._seal is not None and not self.queued_bytes:
            self._write(encode_frame(self._seal, StreamFrame(0, RefusedFrame(reason))))
        self._reason = reason
        assert self._transport is not None, "it was connected"
        if self.queued_bytes:
            self._transport.abort()
        else:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        assert self._transport is not None, "it was connected"
        if data and not self._transport.is_closing():  # uvloop refuses to write then
            self._transport.write(data)
