"""TLS over a connection.

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

from pybroker.transports.connection import UNREAD_BYTES_MAX, Life, MakeSession, Registry, SocketConnection
from pybroker.transports.handshakes import Handshakes
from pybroker.transports.tls import TlsChannel, reason_of

_log = logging.getLogger(__name__)


class TlsConnection(SocketConnection):
    """A connection whose bytes are encrypted. Its session begins when the handshake is over.

    Nobody is refused in words: they would need a handshake, which costs a millisecond, when there are too many already.
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
    ) -> None:
        super().__init__(registry, peer, make_session, refusal=b"")
        self._channel = TlsChannel(context)
        self._handshake_seconds = handshake_seconds
        self._handshakes = handshakes
        self._is_shaking = False  # from the admission to the end of the handshake
        self._step: Future[None] | None = None  # while it is there, the channel belongs to a thread
        self._unread = b""  # came while a step was under way
        self._was_heard = False
        self._was_answered = False
        self._is_ended = False  # the peer sends nothing more
        self._said_end = False

    def data_received(self, data: bytes) -> None:
        """Hand what the chunk says to the session, whole."""
        if self._life is not Life.OPEN:
            return
        if self._is_shaking:
            self._shake(data)
            return
        try:
            plaintext = self._channel.decrypt(data)
        except ssl.SSLError as error:
            self._fail(error)
        else:
            self._decrypted(plaintext)

    def eof_received(self) -> bool:
        """Learn that the peer sends nothing more; True keeps the transport until its last bytes are decrypted."""
        self._is_ended = True
        if self._step is None:
            return False
        # Without an answer the peer cannot have said anything yet, and its handshake need not be computed.
        return self._was_answered or not self._step.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Both sides are closed."""
        if self._was_heard and self._life is Life.OPEN and self._is_shaking:
            _log.info("%s: TLS handshake failed: the peer left in the middle of it", self.peer)
        if self._step is not None:
            self._step.cancel()
        self._end_handshake()
        super().connection_lost(exc)

    def _begin(self) -> None:
        """Give the peer its time for the handshake."""
        self._is_shaking = True
        self._handshakes.begin()
        self._timer = self._loop.call_later(self._handshake_seconds, self._give_up)

    def _give_up(self) -> None:
        _log.info("%s: TLS handshake failed: not over within %g seconds", self.peer, self._handshake_seconds)
        self.abort()

    def _shake(self, data: bytes) -> None:
        """Take the handshake one step on, or keep bytes until the step under way is done."""
        self._was_heard = True
        if self._step is None:
            self._step = self._handshakes.step(self._channel, data, self._shaken)
            return
        if not self._unread:
            self.pause_reading()  # so that at most one chunk waits here
        self._unread += data

    def _shaken(self, outcome: bytes | Exception) -> None:
        """Go on after a step: answer the peer, and begin the session once the handshake is over."""
        self._step = None
        if self._life is not Life.OPEN:
            return
        if isinstance(outcome, Exception):
            self._fail(outcome)
            return
        if self._channel.is_established:
            self._end_handshake()
            self._cancel_timer()
            super()._begin()
        self._decrypted(outcome)
        if self._unread:
            data, self._unread = self._unread, b""
            self.resume_reading()
            self.data_received(data)

    def _end_handshake(self) -> None:
        if self._is_shaking:
            self._is_shaking = False
            self._handshakes.end()

    def _decrypted(self, plaintext: bytes) -> None:
        """Hand plaintext on, and send what the channel has to say."""
        if answer := self._channel.output():
            self._was_answered = True
            self._transport.write(answer)
            if self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
                self._hold()  # TLS 1.3 answers every KeyUpdate, however many come
        if plaintext:
            super().data_received(plaintext)
        if self._channel.is_ended or self._is_ended:
            # As when the peer of a plain connection closes, which the loop sees a turn after its last bytes.
            self._loop.call_soon(self._transport.close)

    def _fail(self, error: Exception) -> None:
        """Tell log and peer what is wrong, and close."""
        during = "handshake" if self._is_shaking else "record"
        if isinstance(error, ssl.SSLError):
            _log.info("%s: TLS %s failed: %s", self.peer, during, reason_of(error))
        else:
            _log.error("%s: TLS %s failed unexpectedly", self.peer, during, exc_info=error)
        if alert := self._channel.output():
            self._transport.write(alert)
        self._said_end = True
        self._output.clear()  # nothing can be encrypted any more
        self.close()

    def _put(self, data: bytes) -> None:
        self._transport.write(self._channel.encrypt(data))

    def _shut(self) -> None:
        if not self._said_end and self._step is None and not self._transport.is_closing():
            self._said_end = True
            if end := self._channel.end():
                self._transport.write(end)
        super()._shut()
