"""Listeners, and the limits to the connections that they accept.

Connections are accepted here and not by the event loop's own server, so that every loop does it alike: so many per
turn, a pause when there are no descriptors left, and none half accepted when the listeners close.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pybroker.broker.domain.addresses import in_url
from pybroker.broker.domain.errors import ConfigError, ResourceLimit
from pybroker.transports.admission import Admission, AdmissionLimits, ListenerPlaces, ReachedLimit
from pybroker.transports.connection import MakeSession, SocketConnection
from pybroker.transports.frame_memory import FrameMemory
from pybroker.transports.handshakes import Handshakes
from pybroker.transports.output_memory import OutputMemory
from pybroker.transports.proxied import Proxies, ProxyHeaderReader
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

_WAIT_SECONDS = 0.05
"""The pause in accepting while newcomers have all their places and none is idle, or too many headers are awaited."""

_REFUSED_MAX = 100
"""The limit to refused connections that linger; more are aborted, because the journal needs descriptors too."""

_HEADERS_MAX = 50
"""The limit to connections whose proxy has not sent the header yet; they may come beyond `connections_max`."""

_REFUSALS = {
    ReachedLimit.CONNECTIONS: "refused %s: %d connections are open already, raise connections_max if that is too few "
    "(%d refused so far)",
    ReachedLimit.PER_ADDRESS: "refused %s: %d connections of its address are open already, raise "
    "connections_per_address if that is too few (%d refused so far)",
    ReachedLimit.UNCONNECTED: "refused %s: %d connections of its address have not sent a CONNECT or ConnectionInfo "
    "yet, raise unconnected_max if that is too few (%d refused so far)",
    ReachedLimit.NEWCOMERS: "refused %s: %d connections have not sent a CONNECT or ConnectionInfo yet, raise "
    "connections_max if that is too few (%d refused so far)",
    ReachedLimit.LISTENER: "refused %s: %d connections of that listener are open already, raise its connections_max if "
    "that is too few (%d refused so far)",
}
"""The line of the log for each cause: peer, limit, number of refused ones."""

_MAKES_WAY = (
    "it has sent no CONNECT or ConnectionInfo, and makes way for a new connection: raise unconnected_max or "
    "connections_max if they are too low"
)

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
        scheme: of its URL, such as `stomp`.
        session: makes the session of a new connection.
        name: its own name; empty: it is known by its scheme.
        refusal: sent to a client when there are too many connections; may be empty. Not sent over TLS.
        tls: None without encryption.
        proxies: the proxies that it is for, which announce the addresses of clients; None: it is for clients.
        is_welcome: returns True for an address that may connect to it; None: as at other listeners of the server.
        connections_max: most connections at a time, besides the limit to those of the server; None: no other limit.
    """

    scheme: str
    session: MakeSession
    name: str = ""
    refusal: bytes = b""
    tls: Tls | None = None
    proxies: Proxies | None = None
    is_welcome: Callable[[str], bool] | None = None
    connections_max: int | None = None


class Server:
    """All listeners and connections of one broker."""

    def __init__(
        self,
        *,
        limits: AdmissionLimits,
        is_welcome: Callable[[str], bool] | None = None,
        turn: Turn | None = None,
        frames: FrameMemory | None = None,
        unread: OutputMemory | None = None,
    ) -> None:
        self.connections: dict[SocketConnection, None] = {}  # in order of arrival, as the others below
        self.refused_count = 0
        """The connections that were refused, or made way for others."""
        self._is_welcome = is_welcome
        self._loop = asyncio.get_running_loop()
        self.turn = turn or Turn(self._loop)
        self.work_thread = WorkThread(self.turn.post_spread)
        self.frames = frames or FrameMemory()
        self.unread = unread or OutputMemory()
        self._listeners: dict[socket.socket, ListenerProtocol] = {}
        self._names: dict[MakeSession, str] = {}
        self._open: Counter[MakeSession] = Counter()
        """The number of connections of each listener."""
        self._places: dict[MakeSession, ListenerPlaces[SocketConnection]] = {}
        """The places of the listeners that have a limit of their own."""
        self._is_closed = False
        self._arriving: dict[socket.socket, None] = {}  # accepted, and without a transport yet
        self._arrivals: set[asyncio.Task[None]] = set()
        self._announcing: dict[ProxyHeaderReader, None] = {}  # without the address of their client yet
        self.handshakes = Handshakes(self._loop)
        self.admission = Admission[SocketConnection](limits)
        self._refused: dict[SocketConnection, None] = {}  # and those that made way for others

    def listener_of(self, connection: SocketConnection) -> str:
        """Return the name of the listener that a connection came through; empty if that is closed."""
        return self._names.get(connection.make_session, "")

    def connection_counts(self) -> dict[str, int]:
        """Return the number of open connections by the name of their listener."""
        counts = dict.fromkeys(self._names.values(), 0)
        for make_session, name in self._names.items():
            counts[name] += self._open[make_session]
        return counts

    def listen(self, protocol: ListenerProtocol, bound: socket.socket) -> str:
        """Open a listener on a socket made by `bind`, which belongs to the server from now on.

        Returns:
            The URL of the listener, such as `stomp://127.0.0.1:61613`, or `stomp://127.0.0.1:61613#NAME`.

        Raises:
            OSError: another process has begun to listen there.
        """
        bound.listen(_BACKLOG)
        self._listeners[bound] = protocol
        self._names[protocol.session] = protocol.name or protocol.scheme
        if protocol.connections_max is not None:
            self._places[protocol.session] = ListenerPlaces(protocol.connections_max)
        self._accept_from(bound)
        host, port = bound.getsockname()[:2]
        # A fragment, which clients ignore: they take such a URL as it is.
        return f"{protocol.scheme}://{in_url(host)}:{port}" + (f"#{protocol.name}" if protocol.name else "")

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
        for reader in list(self._announcing):
            reader.abort()

    def abort(self) -> None:
        """Close the listeners and abort every connection at once, without its unsent bytes."""
        self.close_listeners()
        self.turn.input.close()
        for connection in [*self.connections, *self._refused]:
            connection.abort()
        self.handshakes.close()
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
            connection.stop(_STOP_LINGER_SECONDS)
        if waiting := [connection.gone for connection in self.connections]:
            await asyncio.wait(waiting, timeout=seconds)
        self.abort()

    # ------------------------------------------------------------ as connections see it

    def admit(self, connection: SocketConnection) -> bool:
        """Add a connection; False if it was refused instead, or came after the listeners were closed."""
        if self._is_closed:
            connection.abort()
            return False
        places = self._places.get(connection.make_session)
        outcome = self.admission.add(connection, self._loop.time(), places)
        if isinstance(outcome, ReachedLimit):
            self.refused_count += 1
            if outcome is ReachedLimit.LISTENER and places is not None:
                peer, limit = f"{connection.peer} at {self.listener_of(connection)}", places.connections
            else:
                peer, limit = connection.peer, self.admission.limits.of_refusal(outcome)
            _log.warning(_REFUSALS[outcome], peer, limit, self.refused_count)
            self._dismiss(connection, connection.refuse)
            return False
        if outcome is not None:
            self.refused_count += 1
            self._remove(outcome)
            self._dismiss(outcome, partial(outcome.give_up, ResourceLimit(_MAKES_WAY)))
        self.connections[connection] = None
        self._open[connection.make_session] += 1
        return True

    def forget(self, connection: SocketConnection) -> None:
        """Remove a connection that is gone."""
        if connection in self.connections:
            self._remove(connection)
            self.admission.remove(connection)
        self._refused.pop(connection, None)

    def _remove(self, connection: SocketConnection) -> None:
        del self.connections[connection]
        self._open[connection.make_session] -= 1

    def begin_header(self, reader: ProxyHeaderReader) -> bool:
        """Add the reader of a proxy's header; False if it came after the listeners were closed."""
        if not self._is_closed:
            self._announcing[reader] = None
        return not self._is_closed

    def end_header(self, reader: ProxyHeaderReader) -> None:
        """Remove a reader, if it is still there."""
        self._announcing.pop(reader, None)

    def _dismiss(self, connection: SocketConnection, close: Callable[[], None]) -> None:
        """Close a connection that does not count any more; it lingers, so that its peer gets the answer."""
        if len(self._refused) < _REFUSED_MAX:
            self._refused[connection] = None
            close()
        else:
            connection.abort()

    # ------------------------------------------------------------ accepting

    def _accept_from(self, bound: socket.socket) -> None:
        if bound in self._listeners:
            self._loop.add_reader(bound, self._accept, bound)

    def _accept(self, bound: socket.socket) -> None:
        """Accept some of the connections that wait at a listener."""
        protocol = self._listeners[bound]
        for _ in range(_ACCEPTS_PER_TURN):
            if self._must_wait(protocol):
                self._pause(bound, _WAIT_SECONDS)
                return
            try:
                accepted, address = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Level-triggered: the loop would call this again at once, and for ever.
                _log.error("no connection can be accepted at the moment: %s", error.strerror)
                self._pause(bound, _ACCEPT_RETRY_SECONDS)
                return
            receiver = self._receiver(protocol, *address[:2])
            if receiver is None:
                accepted.close()
                continue
            self._arriving[accepted] = None
            arrival = self._loop.create_task(self._arrive(accepted, receiver))
            self._arrivals.add(arrival)
            arrival.add_done_callback(self._arrivals.discard)

    def _must_wait(self, protocol: ListenerProtocol) -> bool:
        """Return True while the kernel should keep the connections that wait at a listener."""
        if protocol.proxies is not None and len(self._announcing) >= _HEADERS_MAX:
            return True
        arriving = len(self._arrivals) + len(self._announcing)
        return self.admission.must_wait(self._loop.time(), arriving, has_handshake=protocol.tls is not None)

    def _pause(self, bound: socket.socket, seconds: float) -> None:
        self._loop.remove_reader(bound)
        self._loop.call_later(seconds, self._accept_from, bound)

    def _receiver(
        self, protocol: ListenerProtocol, host: str, port: int
    ) -> SocketConnection | ProxyHeaderReader | None:
        """Return what gets the first bytes of a peer; None if it may not connect."""
        if protocol.proxies is None:
            return self._connection(protocol, host, port) if self._allows(protocol, host) else None
        if not protocol.proxies.are_trusted(host):
            self.refused_count += 1
            _log.warning("refused %s: this port serves proxies only, those of proxy_networks", host)
            return None
        make = partial(self._proxied, protocol)
        return ProxyHeaderReader(self, (host, port), protocol.proxies.header_seconds, make)

    def _proxied(self, protocol: ListenerProtocol, host: str, port: int, *, is_proxy: bool) -> SocketConnection | None:
        """Return the connection of a proxy's client, or of the proxy itself; None if it may not connect."""
        return self._connection(protocol, host, port) if is_proxy or self._allows(protocol, host) else None

    def _allows(self, protocol: ListenerProtocol, host: str) -> bool:
        """Return True if an address may connect to a listener."""
        is_welcome = protocol.is_welcome or self._is_welcome
        if is_welcome is None or is_welcome(host):
            return True
        self.refused_count += 1
        _log.info("refused %s: its network is not one that may connect, by allow and deny", host)
        return False

    def _connection(self, protocol: ListenerProtocol, host: str, port: int) -> SocketConnection:
        peer = f"{in_url(host)}:{port}"
        if protocol.tls is None:
            return SocketConnection(self, peer, protocol.session, protocol.refusal)
        tls = protocol.tls
        return TlsConnection(
            self,
            peer,
            protocol.session,
            context=tls.context(),
            handshake_seconds=tls.handshake_seconds,
            handshakes=self.handshakes,
        )

    async def _arrive(self, accepted: socket.socket, receiver: SocketConnection | ProxyHeaderReader) -> None:
        """Attach the receiver to an accepted socket."""
        if accepted not in self._arriving:
            return  # the listeners were closed, and the socket with them
        del self._arriving[accepted]
        try:
            accepted.setblocking(False)
            for option in _KEEPALIVE:
                accepted.setsockopt(*option)
            await self._loop.connect_accepted_socket(lambda: receiver, accepted)
        except OSError as error:
            _log.debug("a connection was gone as soon as accepted: %s", error)
            accepted.close()


def bind(host: str, port: int, setting: str) -> socket.socket:
    """Return a bound TCP socket that does not listen yet; port 0 means any free one.

    Args:
        host: the address, or a name. Of a name with addresses of both kinds, that of IPv4 is used, as by Java: else
            `localhost` would be `::1` on most machines.
        port: the port.
        setting: the one that opens the listener, or the path of its table, such as `listeners.partners`.

    Raises:
        ConfigError: the address cannot be used; names the setting.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        setting = _address_setting(setting)
        raise ConfigError(f"{host!r} is not an address of this machine", setting=setting, hint=str(error)) from error
    family, kind, number, _, address = next((each for each in found if each[0] == socket.AF_INET), found[0])
    bound = socket.socket(family, kind, number)
    try:
        # Without it the ports of a killed master would stay unusable for a minute (TIME_WAIT).
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setblocking(False)
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRNOTAVAIL:
            setting, hint = (
                _address_setting(setting),
                "use an address of this machine (see `ip address`), or 0.0.0.0 for all",
            )
        elif error.errno == errno.EACCES:
            hint = "ports below 1024 need a privilege: choose a higher one"
        else:
            hint = "stop what uses it (see `ss -ltnp`), or choose another port, or 0 for any free one"
        raise ConfigError(f"cannot use {host} port {port}: {error.strerror}", setting=setting, hint=hint) from error
    return bound


def _address_setting(setting: str) -> str:
    """Return the setting of an address: a listener with a table has its own there, the others share `bind`."""
    return f"{setting}.host" if "." in setting else "bind"
