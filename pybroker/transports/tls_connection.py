"""A connection with TLS.

The record layer runs in memory between the transport and the session, the same under every event loop; so what
`SocketConnection` promises of its transport holds here too, and a failed handshake is one line in the log, with peer
and reason. Output is encrypted when it leaves, a turn's worth at once, not frame by frame.

```text
transport --ciphertext--> TlsChannel --plaintext--> session
transport <--ciphertext-- TlsChannel <--plaintext-- output of a turn
```

Until the handshake is over, the bytes go through a thread, see `handshakes`.
"""

import logging
import ssl
from concurrent.futures import Future
from typing import Final, Protocol

from pybroker.transports.connection import (
    UNREAD_BYTES_MAX,
    ConnectionState,
    MakeSession,
    Piece,
    Registry,
    SocketConnection,
)
from pybroker.transports.handshakes import Handshakes
from pybroker.transports.tls import TlsChannel, reason_of

_log = logging.getLogger(__name__)

_CHUNK_BYTES: Final = 16 << 10
"""The size of a chunk after which the socket is read on in a later turn of the event loop, if it consists of short
records. Each takes a microsecond, and uvloop would read megabytes of them in one turn."""


class ClientHandshake(Protocol):
    """The handshake of a connection that this broker opens: who waits for it.

    Attributes:
        server_host: the host that was dialled.
    """

    server_host: str

    def established(self) -> None:
        """Called when it is over; later calls of `failed` are about records."""
        ...

    def failed(self, failure: str, error: ssl.SSLError | None) -> str:
        """Called when it has failed, or a record has; returns why, with the remedy."""
        ...


class TlsConnection(SocketConnection):
    """A connection whose bytes are encrypted. Its session begins after the handshake.

    It sends no refusal, which would need a handshake of a millisecond when there are too many connections already.
    """

    def __init__(
        self,
        registry: Registry,
        peer: str,
        make_session: MakeSession,
        *,
        context: ssl.SSLContext,
        handshake_seconds: float,
        handshakes: Handshakes,
        client: ClientHandshake | None = None,
    ) -> None:
        super().__init__(registry, peer, make_session, refusal=b"")
        self._channel = TlsChannel(context, server_host=None if client is None else client.server_host)
        self._client = client
        self._handshake_seconds = handshake_seconds
        self._handshakes = handshakes
        self._in_handshake = True
        self._step: Future[None] | None = None  # while it is set, the channel belongs to a thread
        self._unread = b""  # received during a step
        self._has_received = False
        self._has_answered = False
        self._is_ended = False  # the peer sends nothing more
        self._sent_end = False

    @property
    def certificate(self) -> str | None:
        """The subject of the peer's certificate; see `Link`."""
        return self._channel.peer_subject()

    @property
    def is_in_handshake(self) -> bool:
        """True until the handshake is over."""
        return self._in_handshake

    @property
    def is_idle(self) -> bool:
        """True if no input waits, nor is held, nor a step of the handshake computed."""
        return self._step is None and not self._is_waiting

    def data_received(self, data: bytes) -> None:
        """Decrypt the chunk, and pass the plaintext to the session."""
        if self._state is not ConnectionState.OPEN:
            return
        if self._in_handshake:
            self._advance_handshake(data)
            return
        try:
            plaintext = self._channel.decrypt(data)
        except ssl.SSLError as error:
            self._fail(error)
        else:
            if len(data) > _CHUNK_BYTES and 2 * len(plaintext) < len(data):
                self.pause_reading()
                self._loop.call_soon(self.resume_reading)
            self._decrypted(plaintext)

    def eof_received(self) -> bool:
        """React to the peer's end; True keeps the transport until the last bytes are decrypted."""
        self._is_ended = True
        if self._step is None:
            return False
        # Without an answer the peer cannot have sent any plaintext, and its handshake need not be computed.
        return self._has_answered or not self._step.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """React to the end of the connection."""
        is_awaited = self._has_received or self._client is not None
        if is_awaited and self._state is ConnectionState.OPEN and self._in_handshake:
            self._report("TLS handshake failed: the peer left before its end")
        if self._step is not None:
            self._step.cancel()
        super().connection_lost(exc)

    def _begin(self) -> None:
        """Start the time limit of the handshake."""
        self._timer = self._loop.call_later(self._handshake_seconds, self._give_up)
        if self._client is not None:
            self._advance_handshake(b"")

    def _give_up(self) -> None:
        self._report(f"TLS handshake failed: not over within {self._handshake_seconds:g} seconds")
        self.abort()

    def _report(self, failure: str, error: ssl.SSLError | None = None) -> None:
        """Log why the connection ends, or report it to who has opened it."""
        if self._client is not None:
            self.ending = self._client.failed(failure, error)
            return
        _log.info("%s: %s", self.peer, failure)

    def _advance_handshake(self, data: bytes) -> None:
        """Begin a step of the handshake, or keep the bytes until the present step is done."""
        self._has_received = True
        if self._step is None:
            self._step = self._handshakes.step(self._channel, data, self._on_step)
            return
        if not self._unread:
            self.pause_reading()  # so that at most one chunk is kept
        self._unread += data

    def _on_step(self, outcome: bytes | Exception) -> None:
        """Answer the peer after a step, and begin the session after the last one."""
        self._step = None
        if self._state is not ConnectionState.OPEN:
            return
        if isinstance(outcome, Exception):
            self._fail(outcome)
            return
        if self._channel.is_established:
            self._in_handshake = False
            self._cancel_timer()
            super()._begin()
            if self._client is not None:
                self._client.established()
        self._decrypted(outcome)
        if self._unread:
            data, self._unread = self._unread, b""
            self.resume_reading()
            self.data_received(data)

    def _decrypted(self, plaintext: bytes) -> None:
        """Pass plaintext on, and send the channel's output."""
        if answer := self._channel.output():
            self._has_answered = True
            self._transport.write(answer)
            if self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
                self._hold()  # TLS 1.3 answers every KeyUpdate, however many come
        if plaintext:
            super().data_received(plaintext)
        if (self._channel.is_ended or self._is_ended) and not self._is_waiting:
            self._close_in_next_turn()

    def _close_in_next_turn(self) -> None:
        """Close as when the peer of a plain connection closes, which the loop sees a turn after its last bytes."""
        self._loop.call_soon(self._transport.close)

    def _on_input_processed(self) -> None:
        """Close, if the peer's end came behind the input that waited."""
        super()._on_input_processed()
        if self._channel.is_ended or self._is_ended:
            self._close_in_next_turn()

    def _fail(self, error: Exception) -> None:
        """Log the error, send its alert, and close."""
        during = "handshake" if self._in_handshake else "record"
        if isinstance(error, ssl.SSLError):
            self._report(f"TLS {during} failed: {reason_of(error)}", error)
        else:
            _log.error("%s: TLS %s failed unexpectedly", self.peer, during, exc_info=error)
        if alert := self._channel.output():
            self._transport.write(alert)
        self._sent_end = True
        self._output.clear()  # nothing can be encrypted any more
        self.close()

    def _put(self, data: Piece) -> None:
        self._transport.write(self._channel.encrypt(data))

    def _shut(self) -> None:
        if not self._sent_end and self._step is None and not self._transport.is_closing():
            self._sent_end = True
            if end := self._channel.end():
                self._transport.write(end)
        super()._shut()
