"""The shell around sessions, over real sockets: a connection's end, its pauses, and more connections than allowed."""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest

from pybroker.transports import server as server_module
from pybroker.transports.server import Protocol, Server, bind
from pybroker.transports.session import Link

SECONDS = 10.0


class Session:
    """Keeps what it is told."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.received = b""
        self.is_lost = False
        self.is_slow = False

    def receive(self, chunk: bytes) -> None:
        self.received += chunk

    def written(self) -> None:
        self.is_slow = False

    def pause_writing(self) -> None:
        self.is_slow = True

    def on_timer(self) -> None:
        raise AssertionError("nobody asked for a timer")

    def lost(self) -> None:
        assert not self.is_lost, "lost twice"
        self.is_lost = True


class World:
    """A server, its sessions in order, and the clients."""

    def __init__(self, connections_max: int) -> None:
        self.server = Server(connections_max=connections_max)
        self.sessions: list[Session] = []
        self.clients: list[socket.socket] = []
        self.faults: list[dict[str, object]] = []
        self.port = 0

    async def open(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.faults.append(context))
        bound = bind("127.0.0.1", 0, "stomp")
        self.port = bound.getsockname()[1]
        await self.server.listen(Protocol(name="test", session=self.session, refusal=b"too many"), bound)

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


def run(scenario: Callable[[World], Awaitable[None]], connections_max: int = 100) -> None:
    """Run a scenario; no callback may have failed, and nothing is left."""

    async def main() -> None:
        world = World(connections_max)
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

    asyncio.run(main())


def reset(client: socket.socket) -> None:
    """Close so that the kernel sends a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


# ---------------------------------------------------------------- ends


def test_a_close_sends_what_was_written_and_drops_what_still_comes() -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        session.link.write(b"last words")
        session.link.close()
        session.link.write(b"never")
        client.send(b"too late")
        assert await world.read_to_end(client) == b"last words"
        client.close()
        await world.until(lambda: not world.server.connections)
        assert session.received == b""

    run(scenario)


def test_a_close_right_after_the_peers_reset_raises_nothing() -> None:
    """The loop has not looked yet: shutting the socket fails with ENOTCONN."""

    async def scenario(world: World) -> None:
        client, session = await world.meet()
        reset(client)
        session.link.close()
        await world.until(lambda: not world.server.connections)
        assert session.is_lost

    run(scenario)


def test_a_stop_survives_a_peer_that_was_reset_while_it_was_not_read() -> None:
    async def scenario(world: World) -> None:
        (client, _), (other, session) = await world.meet(), await world.meet()
        world.server.hold()
        reset(client)
        session.link.write(b"receipt")
        drained = asyncio.ensure_future(world.server.drain(SECONDS))
        assert await world.read_to_end(other) == b"receipt"
        other.close()
        await drained

    run(scenario)


def test_an_abort_cuts_a_connection_that_is_being_closed() -> None:
    async def scenario(world: World) -> None:
        _, session = await world.meet()
        session.link.close()
        world.server.abort()
        session.link.close()
        await world.until(lambda: not world.server.connections)

    run(scenario)


def test_a_peer_that_reads_nothing_is_cut_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_STUCK_SECONDS", 0.05)

    async def scenario(world: World) -> None:
        _, session = await world.meet()
        session.link.write(bytes(16 << 20))
        session.link.close()
        assert session.is_slow
        await world.until(lambda: not world.server.connections)

    run(scenario)


def test_a_slow_peer_gets_all_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_LINGER_SECONDS", 0.05)

    async def scenario(world: World) -> None:
        client, session = await world.meet()
        session.link.write(bytes(16 << 20))
        session.link.close()
        assert len(await world.read_to_end(client)) == 16 << 20
        await world.until(lambda: not world.server.connections)  # though the client keeps its side open

    run(scenario)


@pytest.mark.parametrize("turns", range(8))
def test_nobody_is_half_accepted_after_an_abort(turns: int) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        for _ in range(turns):
            await asyncio.sleep(0)
        world.server.abort()
        assert await world.read_or_reset(client) == b""
        assert not world.server.connections

    run(scenario)


# ---------------------------------------------------------------- pauses


def test_reading_since_tells_the_last_unbroken_time() -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        link = session.link
        since = link.reading_since
        assert since is not None
        assert since <= link.time()
        link.pause_reading()
        link.pause_reading()
        link.resume_reading()
        client.send(b"x")
        assert link.reading_since is None
        resumed_at = link.time()
        link.resume_reading()
        assert link.reading_since is not None
        assert link.reading_since >= resumed_at
        await world.until(lambda: session.received == b"x")

    run(scenario)


def test_a_pause_of_a_closing_connection_does_not_hide_the_peers_close() -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        session.link.close(SECONDS * 10)  # type: ignore[call-arg] (the server's own close has it)
        world.server.hold()
        client.close()
        await world.until(lambda: not world.server.connections)

    run(scenario)


# ---------------------------------------------------------------- too many


def test_too_many_are_told_and_take_nobodys_place() -> None:
    async def scenario(world: World) -> None:
        first, _ = await world.meet()
        refused = world.connect()
        assert await world.read_to_end(refused) == b"too many"
        first.close()
        await world.until(lambda: not world.server.connections)
        await world.meet()  # though the refused one is still there
        assert len(world.sessions) == 2

    run(scenario, connections_max=1)


def test_only_so_many_refused_connections_linger(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "_REFUSED_MAX", 3)

    async def scenario(world: World) -> None:
        await world.meet()
        for _ in range(3):
            assert await world.read_to_end(world.connect()) == b"too many"
        assert await world.read_or_reset(world.connect()) == b""
        world.clients[1].close()
        await world.until(lambda: len(world.server._refused) == 2)
        assert await world.read_to_end(world.connect()) == b"too many"

    with caplog.at_level(logging.WARNING):
        run(scenario, connections_max=1)
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(lines) == 1, "one line per second"
    assert "1 connections are open already" in lines[0]


def test_a_stop_does_not_wait_for_refused_ones() -> None:
    async def scenario(world: World) -> None:
        first, session = await world.meet()
        refused = world.connect()
        assert await world.read_to_end(refused) == b"too many"
        session.link.close()
        first.close()
        await world.server.drain(SECONDS)
        await world.until(lambda: not world.server._refused)

    run(scenario, connections_max=1)
