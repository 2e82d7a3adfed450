"""Connections of the simulated world: streams in order, late, cut when a process dies, accepted while it is frozen.

A process gets what `asyncio` and `socket` would give it: a bound socket that listens and accepts, and transports. A
client is outside of all processes: it is called with what arrives.

```text
client   connect -> (kernel of the host) -> backlog -> accept, by Server -> SimTransport <-> Connection, the session
         send    -> late, in pieces                                      -> data_received
```
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, cast

from pybroker.broker.domain.errors import ConfigError
from tests.simulation.world import Process, SimLoop, World

LATENCY_SECONDS = 0.0003
RETRY_SECONDS = 0.004


class Peer(Protocol):
    """A client's end of a connection."""

    def on_connected(self, link: "Link") -> None:
        """Learn that there is a connection."""
        ...

    def on_data(self, link: "Link", data: bytes) -> None:
        """Take some bytes."""
        ...

    def on_lost(self, link: "Link | None") -> None:
        """Learn that it is gone, or (None) that there is none."""
        ...


class Net:
    """All hosts and ports."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[tuple[str, int], SimSocket] = {}
        self._refused: list[Callable[[], None]] = []

    def connect(self, host: str, port: int, peer: Peer) -> None:
        """Have a client connect; it is called with what becomes of it."""
        self.world.after(self.world.duration(LATENCY_SECONDS), partial(self._arrive, (host, port), peer))

    def try_again(self, connect: Callable[[], None]) -> None:
        """Have a client connect again, once there is a listener anywhere: attempts in vain would be most events."""
        if any(each.is_listening for each in self.listeners.values()):
            self.world.after(self.world.duration(RETRY_SECONDS), connect)
        else:
            self._refused.append(connect)

    def listening(self) -> None:
        """Have those connect who could not."""
        refused, self._refused = self._refused, []
        for connect in refused:
            self.try_again(connect)

    def _arrive(self, address: tuple[str, int], peer: Peer) -> None:
        listener = self.listeners.get(address)
        back = self.world.duration(LATENCY_SECONDS)
        if listener is None or not listener.is_listening:
            self.world.after(back, partial(peer.on_lost, None))
            return
        link = Link(self.world, listener.process, peer)
        link.to_client(partial(peer.on_connected, link))
        listener.arrive(link)

    def bind(self, process: Process, host: str, port: int, setting: str) -> "SimSocket":
        """Return a bound socket.

        Raises:
            ConfigError: it is taken.
        """
        if (host, port) in self.listeners:
            cause = OSError(errno.EADDRINUSE, "taken")
            raise ConfigError(f"cannot use {host} port {port}", setting=setting) from cause
        listener = self.listeners[host, port] = SimSocket(self, process, (host, port))
        process.on_death.append(listener.close)
        return listener


class Link:
    """One connection."""

    def __init__(self, world: World, process: Process, peer: Peer) -> None:
        self.world = world
        self.peer = peer
        self.transport: SimTransport | None = None
        self.is_cut = False
        self.stall_share = world.random.choice((0, 0.02, 0.2))
        """Share of writes that the kernel refuses for a while."""
        self.process = process
        self._waiting: deque[bytes | None] = deque()
        """Data that came before the connection was accepted; None is the end."""
        self._latency = world.random.uniform(0.5, 2) * LATENCY_SECONDS
        # Of this connection alone: one host may cut all of them at once, and in whatever order it likes.
        self._farewell = world.random.uniform(0.5, 2) * LATENCY_SECONDS
        self._drops = world.random.random() < 0.5
        self._to_client_at = self._to_server_at = 0.0
        process.on_death.append(self.reset)

    # ------------------------------------------------------------ the client's side

    def send(self, data: bytes) -> None:
        """Send bytes to the broker, which get there in one piece or two."""
        if self.is_cut:
            return
        cut = self.world.random.randrange(len(data)) if self.world.random.random() < 0.2 else 0
        for piece in (data[:cut], data[cut:]):
            if piece:
                self._to_server(piece)

    def hang_up(self) -> None:
        """End the connection."""
        if not self.is_cut:
            self._to_server(None)
            self.is_cut = True

    def _to_server(self, piece: bytes | None) -> None:
        when = self._to_server_at = max(self._to_server_at, self.world.now + self.world.duration(self._latency))
        self.world.at(when, partial(self._received, piece), self.process)

    def _received(self, piece: bytes | None) -> None:
        if self.transport is None:
            self._waiting.append(piece)
        else:
            self.transport.arrive(piece)

    # ------------------------------------------------------------ the broker's side

    def accepted(self, transport: "SimTransport") -> None:
        self.transport = transport
        for piece in self._waiting:
            transport.arrive(piece)
        self._waiting.clear()

    def to_client(self, callback: Callable[[], None]) -> None:
        when = self._to_client_at = max(self._to_client_at, self.world.now + self.world.duration(self._latency))
        self.world.at(when, partial(self._unless_cut, callback))

    def deliver(self, data: bytes) -> None:
        self.to_client(partial(self.peer.on_data, self, data))

    def finish(self) -> None:
        """Let the client see the end behind what was sent."""
        self.to_client(self._lost)

    def reset(self) -> None:
        """Cut the connection; what is on its way arrives still, or not."""
        when = self.world.now + self._farewell
        self.world.at(when if self._drops else max(when, self._to_client_at), self._lost)

    def _unless_cut(self, callback: Callable[[], None]) -> None:
        if not self.is_cut:
            callback()

    def _lost(self) -> None:
        if not self.is_cut:
            self.is_cut = True
            self.peer.on_lost(self)


class SimSocket:
    """A bound socket, and what it accepts (as much of `socket.socket` as `Server` uses)."""

    def __init__(self, net: Net, process: Process, address: tuple[str, int], link: Link | None = None) -> None:
        self.process = process
        self.link = link
        self.is_listening = False
        self._net = net
        self._address = address
        self._backlog: deque[Link] = deque()
        self.watcher: Callable[[], None] | None = None

    def listen(self, backlog: int) -> None:
        self.is_listening = True
        self._net.listening()

    def arrive(self, link: Link) -> None:
        self._backlog.append(link)
        self._notify()

    def accept(self) -> tuple["SimSocket", tuple[str, int]]:
        if not self._backlog:
            raise BlockingIOError
        link = self._backlog.popleft()
        return SimSocket(self._net, self.process, self._address, link), ("10.1.0.1", 50000)

    def watch(self, callback: Callable[[], None] | None) -> None:
        """Have the event loop call back whenever there is someone to accept."""
        self.watcher = callback
        if self._backlog:
            self._notify()

    def _notify(self) -> None:
        if self.watcher is not None:
            self.process.world.after(0, self.watcher, self.process)

    def close(self) -> None:
        self.is_listening = False
        if self._net.listeners.get(self._address) is self:
            del self._net.listeners[self._address]
        for link in self._backlog:
            link.reset()
        self._backlog.clear()
        if self.link is not None and self.link.transport is None:
            self.link.reset()

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def setblocking(self, flag: bool) -> None:
        """Do nothing: no call waits."""

    def setsockopt(self, *option: int) -> None:
        """Do nothing."""

    def __enter__(self) -> "SimSocket":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class SimTransport(asyncio.Transport):
    """A connection as the event loop passes it to a protocol. Now and then its kernel accepts no more for a while."""

    def __init__(self, loop: "NetLoop", link: Link, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._link = link
        self._protocol = protocol
        self._is_closing = False
        self._is_reading = True
        self._arrived: list[bytes | None] = []
        self._unsent: list[bytes] = []
        self._is_stalled = False
        self._ends_when_sent = False

    # ------------------------------------------------------------ in

    def arrive(self, piece: bytes | None) -> None:
        """Accept data from the network, in any thread."""
        self._loop.call_soon_threadsafe(self._on_arrived, piece)

    def _on_arrived(self, piece: bytes | None) -> None:
        self._arrived.append(piece)
        self._pass_on()

    def _pass_on(self) -> None:
        while self._arrived and self._is_reading and not self._is_closing:
            piece = self._arrived.pop(0)
            if piece is not None:
                self._protocol.data_received(piece)
            elif not self._protocol.eof_received():
                self.close()

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._arrived:
            self._loop.call_soon(self._pass_on)

    def is_reading(self) -> bool:
        return self._is_reading

    # ------------------------------------------------------------ out

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        self._unsent.append(bytes(data))
        random = self._link.world.random
        if self._is_stalled:
            return
        if random.random() < self._link.stall_share:
            self._is_stalled = True
            self._loop.call_later(self._link.world.duration(0.005), self._unstall)
            self._protocol.pause_writing()
            return
        self._flush()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if self._is_stalled:
            self._ends_when_sent = True
        else:
            self._link.finish()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: whatever the kernel does not accept is too much."""

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._unsent))

    def _unstall(self) -> None:
        self._is_stalled = False
        self._flush()
        if self._ends_when_sent:
            self._link.finish()
        elif not self._is_closing:
            self._protocol.resume_writing()

    def _flush(self) -> None:
        for data in self._unsent:
            self._link.deliver(data)
        self._unsent.clear()

    # ------------------------------------------------------------ the end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.write_eof()
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._unsent.clear()
            self._link.reset()
            self._loop.call_soon(self._protocol.connection_lost, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class NetLoop(SimLoop):
    """The event loop of a process with connections."""

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        def run() -> None:
            self.call_soon_threadsafe(again)

        def again() -> None:
            if listener.watcher is run:
                callback(*args)
            if listener.watcher is run:
                listener.watch(run)  # level-triggered, as epoll is

        listener = cast("SimSocket", fd)
        listener.watch(run)

    def remove_reader(self, fd: Any) -> bool:
        cast("SimSocket", fd).watch(None)
        return True

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **options: Any) -> Any:
        protocol = protocol_factory()
        link = cast("SimSocket", sock).link
        assert link is not None
        transport = SimTransport(self, link, protocol)
        protocol.connection_made(transport)
        link.accepted(transport)
        return transport, protocol
