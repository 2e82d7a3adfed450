"""TLS over a connection.

The record layer runs in memory between the transport and the session, the same under every event loop; so what
`Connection` promises of its transport holds here too, and a failed handshake is one line in the log that says who and
why. Output is encrypted when it leaves, a turn's worth at once, not frame by frame.

```text
transport --ciphertext--> TlsChannel --plaintext--> session
transport <--ciphertext-- TlsChannel <--plaintext-- output of a turn
```
"""

import logging
import ssl

from pybroker.transports.connection import Connection, Life, MakeSession, Registry
from pybroker.transports.tls import TlsChannel, reason_of

_log = logging.getLogger(__name__)


class TlsConnection(Connection):
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
    ) -> None:
        super().__init__(registry, peer, make_session, refusal=b"")
        self._channel = TlsChannel(context)
        self._handshake_seconds = handshake_seconds
        self._was_heard = False
        self._said_end = False

    def data_received(self, data: bytes) -> None:
        """Hand what the chunk says to the session, whole."""
        if self._life is not Life.OPEN:
            return
        self._was_heard = True
        channel = self._channel
        was_established = channel.is_established
        try:
            plaintext = channel.decrypt(data)
        except ssl.SSLError as error:
            self._fail(reason_of(error))
            return
        if answer := channel.output():
            self._transport.write(answer)
        if channel.is_established and not was_established:
            self._cancel_timer()
            super()._begin()
        if plaintext:
            super().data_received(plaintext)
        if channel.is_ended:
            # As when the peer of a plain connection closes, which the loop sees a turn after its last bytes.
            self._loop.call_soon(self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Both sides are closed."""
        if self._was_heard and self._life is Life.OPEN and not self._channel.is_established:
            _log.info("%s: TLS handshake failed: the peer left in the middle of it", self.peer)
        super().connection_lost(exc)

    def _begin(self) -> None:
        """Give the peer its time for the handshake."""
        self._timer = self._loop.call_later(self._handshake_seconds, self._give_up)

    def _give_up(self) -> None:
        _log.info("%s: TLS handshake failed: not over within %g seconds", self.peer, self._handshake_seconds)
        self.abort()

    def _fail(self, reason: str) -> None:
        """Tell log and peer what is wrong, and close."""
        _log.info("%s: TLS %s failed: %s", self.peer, "record" if self._channel.is_established else "handshake", reason)
        if alert := self._channel.output():
            self._transport.write(alert)
        self._said_end = True
        self._output.clear()  # nothing can be encrypted any more
        self.close()

    def _put(self, data: bytes) -> None:
        self._transport.write(self._channel.encrypt(data))

    def _shut(self) -> None:
        if not self._said_end and not self._transport.is_closing():
            self._said_end = True
            if end := self._channel.end():
                self._transport.write(end)
        super()._shut()
