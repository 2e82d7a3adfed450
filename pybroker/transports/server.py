"""Listeners, and the limits to the connections that they accept.

Connections are accepted here and not by the event loop's own server, so that every loop does it alike: so many per
turn, a pause when there are no descriptors left, and none half accepted when the listeners close.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from pybroker.broker.domain.errors import ConfigError
from pybroker.transports.connection import MakeSession, SocketConnection
from pybroker.transports.frame_memory import FrameMemory
from pybroker.transports.handshakes import Handshakes
from pybroker.transports.newcomers import Newcomers
from pybroker.transports.output_memory import OutputMemory
from pybroker.transports.tls_connection import TlsConnection
from pybroker.transports.turn import Turn
from pybroker.transports.work_thread import WorkThread

_log = logging.getLogger(__name__)

_STOP_LINGER_SECONDS = 0.3
"""The time for which a connection lingers when the broker stops; short, because a standby waits to take over."""

_BACKLOG = 1024
"""Connections the kernel queues for accept: after a failover all clients come at once."""

_ACCEPTS_PER_TURN = 16
"""Connections taken from that queue per turn of the loop, so that connected clients wait for few, and few descriptors
are open before their connections are counted."""

_ACCEPT_RETRY_SECONDS = 1.0
"""The pause in accepting after the kernel had no descriptor or memory."""

_REFUSED_MAX = 100
"""The limit to refused connections that linger; more are aborted, because the journal needs descriptors too."""

_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6),
)
"""Seconds of silence, seconds between probes, probes: a peer that lost power is detected after two minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The TLS settings of a listener.

    Attributes:
        context: returns certificates and rules for a new connection; they may be replaced at any time.
        handshake_seconds: how long a client may take for the handshake.
    """

    context: Callable[[], ssl.SSLContext]
    handshake_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerProtocol:
    """The protocol of a listener.

    Attributes:
        name: for URLs and logs, such as `stomp`.
        session: makes the session of a new connection.
        refusal: sent to a client when there are too many connections; may be empty. Not sent over TLS.
        tls: None without encryption.
    """

    name: str
    session: MakeSession
    refusal: bytes = b""
    tls: Tls | None = None


class Server:
    """All listeners and connections of one broker."""

    def __init__(
        self,
        *,
        connections_max: int,
        unconnected_max: int = 0,
        is_welcome: Callable[[str], bool] | None = None,
        turn: Turn | None = None,
        frames: FrameMemory | None = None,
        unread: OutputMemory | None = None,
    ) -> None:
        self.connections: dict[SocketConnection, None] = {}  # in order of arrival, as the others below
        self.connections_max = connections_max
        self._is_welcome = is_welcome
        self._loop = asyncio.get_running_loop()
        self.turn = turn or Turn(self._loop)
        self.work_thread = WorkThread(self.turn.post)
        self.frames = frames or FrameMemory()
        self.unread = unread or OutputMemory()
        self._listeners: dict[socket.socket, ListenerProtocol] = {}
        self._is_closed = False
        self._arriving: dict[socket.socket, None] = {}  # accepted, and without a transport yet
        self._arrivals: set[asyncio.Task[None]] = set()
        # Half of the connections: the other half stays for clients of plain listeners.
        self._handshakes = Handshakes(self._loop, limit=max(1, connections_max // 2))
        # By default half of the connections, so that the rest stays for clients of other addresses.
        self._newcomers = Newcomers(unconnected_max or max(1, connections_max // 2))
        self._refused: dict[SocketConnection, None] = {}
        self._refusal_count = 0

    def listen(self, protocol: ListenerProtocol, bound: socket.socket) -> str:
        """Open a listener on a socket made by `bind`, which belongs to the server from now on.

        Returns:
            The URL of the listener, such as `stomp://127.0.0.1:61613`.

        Raises:
            OSError: another process has begun to listen there.
        """
        bound.listen(_BACKLOG)
        self._listeners[bound] = protocol
        self._accept_from(bound)
        host, port = bound.getsockname()[:2]
        return f"{protocol.name}://{in_url(host)}:{port}"

    def close_listeners(self) -> None:
        """Stop accepting, and free the ports. Connections stay."""
        self._is_closed = True
        for bound in self._listeners:
            self._loop.remove_reader(bound)
            bound.close()
        self._listeners.clear()
        for arriving in self._arriving:
            arriving.close()
        self._arriving.clear()

    def abort(self) -> None:
        """Close the listeners and abort every connection at once, without its unsent bytes."""
        self.close_listeners()
        self.turn.input.close()
        for connection in [*self.connections, *self._refused]:
            connection.abort()
        self._handshakes.close()
        self.work_thread.close()

    def hold(self) -> None:
        """Stop reading from every peer, and drop the input that waits."""
        self.turn.input.close()
        for connection in self.connections:
            connection.pause_reading()

    async def drain(self, seconds: float) -> None:
        """Close every connection after its output has left; abort those that take longer."""
        for connection in list(self._refused):
            connection.abort()
        for connection in list(self.connections):
            connection.ending = connection.ending or "the broker stops"
            connection.close(_STOP_LINGER_SECONDS)
        if waiting := [connection.gone for connection in self.connections]:
            await asyncio.wait(waiting, timeout=seconds)
        self.abort()

    # ------------------------------------------------------------ as connections see it

    def admit(self, connection: SocketConnection) -> bool:
        """Add a connection; False if it was refused instead, or came after the listeners were closed."""
        if self._is_closed:
            connection.abort()
            return False
        if len(self.connections) >= self.connections_max:
            self._log_refusal(connection)
        elif not self._newcomers.add(connection):
            _log.warning(
                "refused %s: %d connections of its address have not sent a CONNECT or ConnectionInfo yet, raise "
                "unconnected_max if that is too few",
                connection.peer,
                self._newcomers.limit,
            )
        else:
            self.connections[connection] = None
            return True
        if len(self._refused) < _REFUSED_MAX:
            self._refused[connection] = None
            connection.refuse()
        else:
            connection.abort()
        return False

    def forget(self, connection: SocketConnection) -> None:
        """Remove a connection that is gone."""
        if connection in self.connections:
            del self.connections[connection]
            self._newcomers.remove(connection)
        self._refused.pop(connection, None)

    def _log_refusal(self, connection: SocketConnection) -> None:
        self._refusal_count += 1
        _log.warning(
            "refused %s: %d connections are open already, raise connections_max if that is too few (%d refused so far)",
            connection.peer,
            self.connections_max,
            self._refusal_count,
        )

    # ------------------------------------------------------------ accepting

    def _accept_from(self, bound: socket.socket) -> None:
        if bound in self._listeners:
            self._loop.add_reader(bound, self._accept, bound)

    def _accept(self, bound: socket.socket) -> None:
        """Accept some of the connections that wait at a listener."""
        protocol = self._listeners[bound]
        if protocol.tls is not None and self._handshakes.is_full:
            self._loop.remove_reader(bound)
            self._handshakes.when_ended(lambda: self._accept_from(bound))
            return
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, address = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Level-triggered: the loop would call this again at once, and for ever.
                _log.error("no connection can be accepted at the moment: %s", error.strerror)
                self._loop.remove_reader(bound)
                self._loop.call_later(_ACCEPT_RETRY_SECONDS, self._accept_from, bound)
                return
            if self._is_welcome is not None and not self._is_welcome(address[0]):
                _log.info("refused %s: its network is not one that may connect, by allow and deny", address[0])
                accepted.close()
                continue
            connection = self._connection(protocol, f"{in_url(address[0])}:{address[1]}")
            self._arriving[accepted] = None
            arrival = self._loop.create_task(self._arrive(accepted, connection))
            self._arrivals.add(arrival)
            arrival.add_done_callback(self._arrivals.discard)

    def _connection(self, protocol: ListenerProtocol, peer: str) -> SocketConnection:
        if protocol.tls is None:
            return SocketConnection(self, peer, protocol.session, protocol.refusal)
        tls = protocol.tls
        return TlsConnection(
            self,
            peer,
            protocol.session,
            context=tls.context(),
            handshake_seconds=tls.handshake_seconds,
            handshakes=self._handshakes,
        )

    async def _arrive(self, accepted: socket.socket, connection: SocketConnection) -> None:
        """Attach a connection to an accepted socket."""
        if accepted not in self._arriving:
            return  # the listeners were closed, and the socket with them
        del self._arriving[accepted]
        try:
            accepted.setblocking(False)
            for option in _KEEPALIVE:
                accepted.setsockopt(*option)
            await self._loop.connect_accepted_socket(lambda: connection, accepted)
        except OSError as error:
            _log.debug("%s: gone as soon as accepted: %s", connection.peer, error)
            accepted.close()


def bind(host: str, port: int, setting: str) -> socket.socket:
    """Return a bound TCP socket that does not listen yet; port 0 means any free one.

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


def in_url(host: str) -> str:
    """Return an address in the form of URLs."""
    return f"[{host}]" if ":" in host else host
