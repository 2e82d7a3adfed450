"""The only asyncio in the transports: listeners, and one `Link` per connection that moves a session's bytes.

Output gathers per connection and leaves in one write per turn of the event loop. The transport's own buffer limit is
zero, so `pause_writing` means exactly "the kernel takes no more", and a session learns by `written` when all it gave
has left the process: only then does it acknowledge what needs no answer from the client.

A close lingers: what was written is sent, the sending side shut, and the peer's bytes read and dropped for a moment.
Closing at once with unread bytes would make the kernel send a reset, and the peer would lose the ERROR that tells why.

```text
        close                     peer closes too, time is up
 OPEN ---------> LINGERING ------------------------------------> GONE
   |                                                              ^
   +---- peer closes, abort, too many refused already ------------+
```
"""

import asyncio
import enum
import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from pybroker.broker.domain.errors import ConfigError
from pybroker.transports.session import Link, Session

_log = logging.getLogger(__name__)

_FLUSH_BYTES = 256 << 10
"""Output beyond this is handed to the kernel within the turn, so that a long dispatch does not pile up in memory."""

_UNREAD_BYTES_MAX = 4 << 20
"""Output a peer leaves unread before it is not read either: a few ten thousand receipts."""

_LINGER_SECONDS = 2.0
"""How long a connection whose last bytes have left waits for its peer to close too."""

_STOP_LINGER_SECONDS = 0.3
"""The same when the broker stops, and a standby waits to take over."""

_STUCK_SECONDS = 10.0
"""How long a closing connection may take to get its last bytes out."""

_BACKLOG = 1024
"""Connections the kernel queues for accept: after a failover all clients come at once."""

_ACCEPTS_PER_TURN = 16
"""Connections taken from that queue per turn of the loop: whoever is served already waits for these only, and few
descriptors are open that nobody has judged yet."""

_REFUSED_MAX = 100
"""Refused connections that may linger over their refusal; more are cut, for the journal needs descriptors too."""

_REFUSAL_LOG_SECONDS = 1.0
"""At most one line per so much about refused connections."""

_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))
"""Seconds of silence, seconds between probes, probes: a peer that lost power is noticed after two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What a listener needs to know of the protocol it speaks.

    Attributes:
        name: for logs, such as `stomp`.
        session: makes the session of a new connection.
        refusal: what a client is told when there are too many connections.
    """

    name: str
    session: Callable[[Link], Session]
    refusal: bytes


class Server:
    """All listeners and connections of one broker."""

    def __init__(self, *, connections_max: int) -> None:
        self.connections: set[_Connection] = set()
        self.connections_max = connections_max
        self._listeners: list[asyncio.Server] = []
        self._is_closed = False
        self._refused: set[_Connection] = set()
        self._refusal_count = 0
        self._refusal_logged_at = -_REFUSAL_LOG_SECONDS

    async def listen(self, protocol: Protocol, bound: socket.socket) -> str:
        """Open a listener on a socket made by `bind`.

        Returns:
            Where it listens, such as `stomp://127.0.0.1:61613`.

        Raises:
            OSError: another process began to listen there in the meantime.
        """
        loop = asyncio.get_running_loop()
        # To asyncio "backlog" means two things: what the kernel queues, and how many are accepted per turn.
        listener = await loop.create_server(
            lambda: _Connection(self, protocol, loop), sock=bound, backlog=_ACCEPTS_PER_TURN
        )
        bound.listen(_BACKLOG)
        self._listeners.append(listener)
        host, port = bound.getsockname()[:2]
        return f"{protocol.name}://{host}:{port}"

    def close_listeners(self) -> None:
        """Accept nobody any more; ports are free in the next turn of the loop. Connections stay."""
        self._is_closed = True
        for listener in self._listeners:
            loop = asyncio.get_running_loop()
            for bound in listener.sockets:
                loop.remove_reader(bound.fileno())
            # A turn later: asyncio leaks a socket whose server closes after its accept and before its transport is
            # made, and the peer would wait on it. So the transport is made, and cut by `admit`.
            loop.call_soon(listener.close)
        self._listeners.clear()

    def abort(self) -> None:
        """Close listeners and cut every connection this instant, unsent bytes included."""
        self.close_listeners()
        for connection in [*self.connections, *self._refused]:
            connection.abort()

    def hold(self) -> None:
        """Read nothing more from any peer."""
        for connection in self.connections:
            connection.pause_reading()

    async def drain(self, seconds: float) -> None:
        """Close every connection once its output has left; cut those that take longer."""
        for connection in list(self._refused):
            connection.abort()
        for connection in list(self.connections):
            connection.close(_STOP_LINGER_SECONDS)
        if waiting := [connection.gone for connection in self.connections]:
            await asyncio.wait(waiting, timeout=seconds)
        self.abort()

    # ------------------------------------------------------------ as connections see it

    def admit(self, connection: "_Connection") -> bool:
        """Take a connection in; False when it was refused instead, or came when the listeners were closed already."""
        if self._is_closed:
            connection.abort()
            return False
        if len(self.connections) < self.connections_max:
            self.connections.add(connection)
            return True
        self._log_refusal(connection)
        if len(self._refused) < _REFUSED_MAX:
            self._refused.add(connection)
            connection.refuse()
        else:
            connection.abort()
        return False

    def forget(self, connection: "_Connection") -> None:
        """Let a connection go that is gone."""
        self.connections.discard(connection)
        self._refused.discard(connection)

    def _log_refusal(self, connection: "_Connection") -> None:
        self._refusal_count += 1
        now = connection.time()
        if now - self._refusal_logged_at < _REFUSAL_LOG_SECONDS:
            return
        self._refusal_logged_at = now
        _log.warning(
            "refused %s: %d connections are open already, raise connections_max if that is too few (%d refused so far)",
            connection.peer,
            self.connections_max,
            self._refusal_count,
        )


def bind(host: str, port: int, setting: str) -> socket.socket:
    """Return a bound TCP socket that does not listen yet; port 0 takes any free one.

    Raises:
        ConfigError: the address cannot be used; names the setting.
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigError(f"{host!r} is not an address of this machine", setting="bind", hint=str(error)) from error
    bound = socket.socket(family, kind, number)
    try:
        # Without it the ports of a killed master would stay unusable for a minute (TIME_WAIT).
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRNOTAVAIL:
            setting, hint = "bind", "use an address of this machine (see `ip address`), or 0.0.0.0 for all"
        elif error.errno == errno.EACCES:
            hint = "ports below 1024 need a privilege: choose a higher one"
        else:
            hint = "stop what uses it (see `ss -ltnp`), or choose another port, or 0 for any free one"
        raise ConfigError(f"cannot use {host} port {port}: {error.strerror}", setting=setting, hint=hint) from error
    return bound


class _Life(enum.Enum):
    """A connection's life."""

    OPEN = "converses"
    LINGERING = "sends its last bytes, hears nothing, waits for the peer to close"
    GONE = "closed, or cut and about to be"


class _Connection(asyncio.Protocol):
    """One TCP connection; a session's `Link`."""

    def __init__(self, server: Server, protocol: Protocol, loop: asyncio.AbstractEventLoop) -> None:
        self.peer = "?"
        self.gone: asyncio.Future[None] = loop.create_future()
        self._server = server
        self._protocol = protocol
        self._loop = loop
        self._transport: asyncio.Transport
        self._session: Session | None = None
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._flush_scheduled = False
        self._write_paused = False
        self._read_holds = 0
        self._unread_hold = False
        self._reading_since: float | None = None
        self._life = _Life.OPEN
        self._linger_seconds = 0.0
        self._timer: asyncio.TimerHandle | None = None  # OPEN: the session's; LINGERING: cuts the connection

    # ------------------------------------------------------------ link

    @property
    def reading_since(self) -> float | None:
        """Since when the peer is read; None while it is not."""
        return self._reading_since

    def write(self, data: bytes) -> None:
        """Queue bytes."""
        if self._life is not _Life.OPEN:
            return
        self._output.append(data)
        self._output_bytes += len(data)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        if self._output_bytes > _FLUSH_BYTES and not self._write_paused:
            self._send()
        elif self._output_bytes > _UNREAD_BYTES_MAX and not self._unread_hold:
            self._unread_hold = True
            self.pause_reading()

    def close(self, linger_seconds: float = _LINGER_SECONDS) -> None:
        """Close once what was written has left."""
        if self._life is not _Life.OPEN:
            return
        has_left = self._send()
        self._cancel_timer()
        self._life = _Life.LINGERING
        self._linger_seconds = linger_seconds
        self._loop.call_soon(self._lost)
        if has_left:
            self._shut()
        else:
            self._abort_at(self._loop.time() + _STUCK_SECONDS)
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def time(self) -> float:
        """Monotonic seconds."""
        return self._loop.time()

    def wake_at(self, when: float | None) -> None:
        """Have the session called at a time."""
        if self._life is _Life.OPEN:
            self._cancel_timer()
            if when is not None:
                self._timer = self._loop.call_at(when, self._on_timer)

    def pause_reading(self) -> None:
        """Read nothing until each pause was resumed."""
        self._read_holds += 1
        if self._read_holds == 1:
            self._reading_since = None
            if self._is_readable():
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take one pause back."""
        self._read_holds -= 1
        if self._read_holds == 0:
            self._reading_since = self._loop.time()
            if self._is_readable():
                self._transport.resume_reading()

    # ------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a conversation, or refuse it."""
        # A cast, not a check: uvloop's transports do what asyncio.Transport says and are no subclass of it.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=0)
        self.peer = _peer(transport)
        self._reading_since = self._loop.time()
        if self._server.admit(self):
            _keep_alive(transport)
            self._session = self._protocol.session(self)

    def data_received(self, data: bytes) -> None:
        """Hand the chunk to the session, whole."""
        if self._life is _Life.OPEN and self._session is not None:
            self._session.receive(data)

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self._write_paused = True
        if self._session is not None:
            self._session.pause_writing()

    def resume_writing(self) -> None:
        """The kernel took all."""
        self._write_paused = False
        if self._life is _Life.OPEN:
            self._flush()
        elif self._life is _Life.LINGERING:
            # Not from within the transport's own writing, where an error of ours would be taken for one of its own.
            self._loop.call_soon(self._shut)

    def connection_lost(self, exc: Exception | None) -> None:
        """Both sides are closed."""
        self._life = _Life.GONE
        self._cancel_timer()
        self._server.forget(self)
        self._lost()
        if not self.gone.done():
            self.gone.set_result(None)

    # ------------------------------------------------------------ server

    def refuse(self) -> None:
        """Say that there are too many, and close."""
        self.write(self._protocol.refusal)
        self.close()

    def abort(self) -> None:
        """Cut the connection; the session learns of it in the next turn."""
        self._life = _Life.GONE
        self._cancel_timer()
        self._transport.abort()

    # ------------------------------------------------------------ private

    def _is_readable(self) -> bool:
        """Tell whether reading may be switched: what lingers is read to the end."""
        return self._life is _Life.OPEN and not self._transport.is_closing()

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._life is not _Life.OPEN or self._write_paused or not self._send():
            return
        if self._unread_hold:
            self._unread_hold = False
            self.resume_reading()
        if self._session is not None:
            self._session.written()

    def _send(self) -> bool:
        """Give the output to the kernel; False when it did not take all."""
        if self._output:
            data = self._output[0] if len(self._output) == 1 else b"".join(self._output)
            self._output.clear()
            self._output_bytes = 0
            self._transport.write(data)
        return not self._write_paused

    def _shut(self) -> None:
        """Send the end, now that all bytes have left, and give the peer a moment to close too."""
        if self._life is not _Life.LINGERING or self._transport.is_closing():
            return
        try:
            self._transport.write_eof()
        except OSError as error:
            # The peer's reset has come (ENOTCONN) and the loop has not looked yet.
            _log.debug("%s: cut instead of closed: %s", self.peer, error)
            self.abort()
        else:
            self._abort_at(self._loop.time() + self._linger_seconds)

    def _abort_at(self, when: float) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_at(when, self.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._session is not None:
            self._session.on_timer()

    def _lost(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.lost()


def _peer(transport: asyncio.Transport) -> str:
    host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
    return f"{host}:{port}"


def _keep_alive(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
