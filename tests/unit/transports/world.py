"""A server over real sockets, what its sessions received, and its clients: a scenario at a time, on any loop."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest

from pybroker.broker.domain.errors import BrokerError
from pybroker.transports.admission import AdmissionLimits
from pybroker.transports.proxied import Proxies
from pybroker.transports.server import ListenerProtocol, Server, Tls, bind
from pybroker.transports.session import Link

SECONDS = 10.0


class Session:
    """A session that records what it receives."""

    is_connected = True

    def __init__(self, link: Link) -> None:
        self.link = link
        self.received = b""
        self.is_lost = False
        self.is_slow = False
        self.has_handed_over = False
        self.farewell = b""
        self.error: BrokerError | None = None

    def receive(self, chunk: bytes) -> bool:
        self.received += chunk
        return False

    def proceed(self) -> bool:
        return False

    def written(self) -> None:
        self.is_slow = False

    def handed_over(self) -> None:
        self.has_handed_over = True

    def pause_writing(self) -> None:
        self.is_slow = True

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def on_timer(self) -> None:
        raise AssertionError("no one asked for a timer")

    def stopping(self) -> None:
        if self.farewell:
            self.link.write(self.farewell)

    def give_up(self, error: BrokerError) -> None:
        self.error = error
        self.link.close()

    def lost(self) -> None:
        assert not self.is_lost, "lost twice"
        self.is_lost = True


class World:
    """A server, its sessions in order, and the clients."""

    def __init__(
        self, limits: AdmissionLimits, tls: Tls | None = None, proxies: Proxies | None = None, denied: str = ""
    ) -> None:
        self.tls = tls
        self.proxies = proxies
        self.server = Server(limits=limits, is_welcome=lambda host: host != denied)
        self.sessions: list[Session] = []
        self.clients: list[socket.socket] = []
        self.faults: list[dict[str, object]] = []
        self.port = 0

    async def open(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.faults.append(context))
        bound = bind("127.0.0.1", 0, "stomp")
        self.port = bound.getsockname()[1]
        self.server.listen(
            ListenerProtocol(
                scheme="test", session=self.session, refusal=b"too many", tls=self.tls, proxies=self.proxies
            ),
            bound,
        )

    def session(self, link: Link) -> Session:
        self.sessions.append(Session(link))
        return self.sessions[-1]

    def connect(self) -> socket.socket:
        self.clients.append(socket.create_connection(("127.0.0.1", self.port)))
        self.clients[-1].setblocking(False)
        return self.clients[-1]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0)

    async def meet(self) -> tuple[socket.socket, Session]:
        """Connect a client; return both ends."""
        client, number = self.connect(), len(self.sessions)
        await self.until(lambda: len(self.sessions) > number)
        return client, self.sessions[number]

    async def read_to_end(self, client: socket.socket) -> bytes:
        loop, data = asyncio.get_running_loop(), b""
        async with asyncio.timeout(SECONDS):
            while chunk := await loop.sock_recv(client, 65536):
                data += chunk
        return data

    async def read_or_reset(self, client: socket.socket) -> bytes:
        """Read to the end, which a reset is too."""
        with contextlib.suppress(ConnectionResetError):
            return await self.read_to_end(client)
        return b""


def counted_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that gets the seconds of each pause in accepting."""
    pauses: list[float] = []
    pause = Server._pause

    def counted(server: Server, bound: socket.socket, seconds: float) -> None:
        pauses.append(seconds)
        pause(server, bound, seconds)

    monkeypatch.setattr(Server, "_pause", counted)
    return pauses


def run_on(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    scenario: Callable[[World], Awaitable[None]],
    *,
    connections_max: int = 100,
    limits: AdmissionLimits | None = None,
    tls: Tls | None = None,
    proxies: Proxies | None = None,
    denied: str = "",
) -> None:
    """Run a scenario; no callback may have failed, and nothing is left."""

    async def main() -> None:
        world = World(limits or AdmissionLimits.of(connections_max), tls, proxies, denied)
        await world.open()
        try:
            await scenario(world)
        finally:
            world.server.abort()
            await world.until(lambda: not world.server.connections)
            for client in world.clients:
                client.close()
        assert all(session.is_lost for session in world.sessions)
        assert world.faults == []

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
