# mypy: disable-error-code="attr-defined, method-assign"
"""The shell around sessions, over real sockets: a connection's end, its pauses, and more connections than allowed."""

import asyncio
import itertools
import logging
import resource
import socket
import struct
from collections.abc import Callable
from typing import cast

import pytest

from pybroker.broker.domain.errors import ConfigError, ResourceLimit
from pybroker.transports import connection as connection_module
from pybroker.transports import server as server_module
from pybroker.transports.connection import SocketConnection
from pybroker.transports.frame_memory import FrameMemory
from pybroker.transports.output_memory import OutputMemory
from pybroker.transports.server import ListenerProtocol, bind
from pybroker.transports.session import Link
from tests.compiled import interpreted
from tests.unit.transports.world import SECONDS, Session, World

Run = Callable[..., None]


def reset(client: socket.socket) -> None:
    """Close so that the kernel sends a reset."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


# ---------------------------------------------------------------- ends


def test_close_sends_output_and_drops_input(run: Run) -> None:
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


def test_a_close_right_after_the_peers_reset_raises_nothing(run: Run) -> None:
    """The loop has not looked yet: shutting the socket fails with ENOTCONN."""

    async def scenario(world: World) -> None:
        client, session = await world.meet()
        reset(client)
        session.link.close()
        await world.until(lambda: not world.server.connections)
        assert session.is_lost

    run(scenario)


def test_stop_has_sessions_write_their_last_bytes(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        session.farewell = b"the broker stops"
        drained = asyncio.ensure_future(world.server.drain(SECONDS))
        assert await world.read_to_end(client) == b"the broker stops"
        client.close()
        await drained

    run(scenario)


def test_stop_survives_a_peer_reset_while_not_read(run: Run) -> None:
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


def test_an_abort_cuts_a_connection_that_is_being_closed(run: Run) -> None:
    async def scenario(world: World) -> None:
        _, session = await world.meet()
        session.link.close()
        world.server.abort()
        session.link.close()
        await world.until(lambda: not world.server.connections)

    run(scenario)


def test_a_peer_that_reads_nothing_is_cut_in_the_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_STUCK_SECONDS", 0.05)

    async def scenario(world: World) -> None:
        _, session = await world.meet()
        session.link.write(bytes(16 << 20))
        session.link.close()
        assert session.is_slow
        assert session.has_handed_over, "the kernel took a part"
        await world.until(lambda: not world.server.connections)

    run(scenario)


def test_connections_are_counted_by_listener(run: Run) -> None:
    async def scenario(world: World) -> None:
        assert world.server.connection_counts() == {"test": 0}
        client, session = await world.meet()
        await world.meet()
        assert world.server.connection_counts() == {"test": 2}
        session.link.close()
        assert await world.read_to_end(client) == b""
        await world.until(lambda: len(world.server.connections) == 1)
        assert world.server.connection_counts() == {"test": 1}

    run(scenario)


def test_a_full_listener_leaves_the_others_open(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        def named_session(link: Link) -> Session:
            return world.session(link)

        bound = bind("127.0.0.1", 0, "listeners.small")
        protocol = ListenerProtocol(
            scheme="stomp", name="small", session=named_session, refusal=b"full", connections_max=1
        )
        url = world.server.listen(protocol, bound)
        first_port, world.port = world.port, bound.getsockname()[1]
        assert url == f"stomp://127.0.0.1:{world.port}#small"
        await world.meet()
        assert await world.read_to_end(world.connect()) == b"full"
        world.port = first_port
        await world.meet()
        assert world.server.connection_counts() == {"test": 1, "small": 1}
        assert " at small: 1 connections of that listener are open already" in caplog.text

    run(scenario)


@pytest.mark.parametrize(("setting", "named"), [("stomp", "bind"), ("listeners.partners", "listeners.partners.host")])
def test_an_address_of_another_machine_names_its_setting(setting: str, named: str) -> None:
    with pytest.raises(ConfigError, match="192\\.0\\.2\\.1") as caught:
        bind("192.0.2.1", 0, setting)
    assert caught.value.setting == named


def test_a_listener_has_networks_of_its_own(run: Run) -> None:
    async def scenario(world: World) -> None:
        bound = bind("127.0.0.1", 0, "listeners.closed")
        closed = ListenerProtocol(scheme="stomp", session=world.session, is_welcome=lambda host: host != "127.0.0.1")
        world.server.listen(closed, bound)
        await world.meet()
        world.port = bound.getsockname()[1]
        assert await world.read_or_reset(world.connect()) == b""
        assert len(world.sessions) == 1

    run(scenario)


def test_handed_over_is_called_before_a_close(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        session.link.write(b"last")
        session.link.close()
        assert session.has_handed_over
        assert await world.read_to_end(client) == b"last"

    run(scenario)


def test_a_slow_peer_gets_all_before_the_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_LINGER_SECONDS", 0.05)

    async def scenario(world: World) -> None:
        client, session = await world.meet()
        session.link.write(bytes(16 << 20))
        session.link.close()
        assert len(await world.read_to_end(client)) == 16 << 20
        await world.until(lambda: not world.server.connections)  # though the client keeps its side open

    run(scenario)


@pytest.mark.parametrize("turns", range(8))
def test_no_connection_is_half_accepted_after_an_abort(run: Run, turns: int) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        for _ in range(turns):
            await asyncio.sleep(0)
        world.server.abort()
        assert await world.read_or_reset(client) == b""
        assert not world.server.connections

    run(scenario)


def test_written_means_that_everything_has_left_the_process(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        left: list[int] = []
        session.written = lambda: left.append(session.link._transport.get_write_buffer_size())
        for _ in range(20):
            session.link.write(bytes(400_000))
            await asyncio.sleep(0)
        session.link.close()
        assert left == [0] * len(left)
        assert len(await world.read_to_end(client)) == 8_000_000

    run(scenario)


def test_written_is_called_once_the_kernel_took_all(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        session.link.write(bytes(16 << 20))
        assert session.is_slow, "at once, though the loop has not turned"
        assert session.link.unsent_bytes > 0
        reading = asyncio.ensure_future(world.read_to_end(client))
        await world.until(lambda: not session.is_slow)
        assert session.link.unsent_bytes == 0
        session.link.close()
        assert len(await reading) == 16 << 20

    run(scenario)


@interpreted
def test_much_output_is_handed_over_in_chunks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    put = SocketConnection._put

    def put_and_look(self: SocketConnection, data: bytes) -> None:
        put(self, data)
        kept.append(self._transport.get_write_buffer_size())

    monkeypatch.setattr(SocketConnection, "_put", put_and_look)

    async def scenario(world: World) -> None:
        client, session = await world.meet()
        pieces = [b"a" * 1000, b"b" * (8 << 20), b"c" * 300_000, b"d"]
        for piece in pieces:
            session.link.write(piece)
        reading = asyncio.ensure_future(world.read_to_end(client))
        await world.until(lambda: not session.is_slow and not session.link.unsent_bytes)
        session.link.close()
        assert await reading == b"".join(pieces)
        assert max(kept) <= 256 << 10

    run(scenario)


def test_wait_for_a_turn_does_not_end_that_for_the_kernel(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        session.link.write(bytes(600_000))
        assert session.is_slow, "the rest waits for the next turn"
        transport = session.link._transport
        transport.write(bytes(16 << 20))  # as TLS answers a KeyUpdate
        held = transport.get_write_buffer_size()
        assert held
        for _ in range(5):
            await asyncio.sleep(0)
            assert session.is_slow
            assert transport.get_write_buffer_size() <= held
        reading = asyncio.ensure_future(world.read_to_end(client))
        await world.until(lambda: not session.is_slow)
        assert session.link.unsent_bytes == 0
        session.link.close()
        assert len(await reading) == 600_000 + (16 << 20)

    run(scenario)


def test_what_is_left_at_the_close_is_sent_in_later_turns(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        session.link.write(bytes(20 << 20))
        session.link.close()
        assert len(await world.read_to_end(client)) == 20 << 20

    run(scenario)


@interpreted
def test_a_turns_output_leaves_in_one_write(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    puts: list[bytes] = []
    put = SocketConnection._put
    monkeypatch.setattr(SocketConnection, "_put", lambda self, data: (puts.append(data), put(self, data)))

    async def scenario(world: World) -> None:
        client, session = await world.meet()
        for number in range(10):
            session.link.write(b"%d" % number)
        assert puts == []
        session.link.close()
        assert await world.read_to_end(client) == b"0123456789"
        assert puts == [b"0123456789"]

    run(scenario)


class Spy:
    """A transport that records what it has to send."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.calls: list[list[bytes]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        self.calls.append([data])
        self._transport.write(data)

    def writelines(self, pieces: list[bytes]) -> None:
        self.calls.append(list(pieces))
        self._transport.writelines(pieces)


def test_long_pieces_are_not_copied_where_the_loop_can_gather(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        spy = session.link._transport = Spy(session.link._transport)
        pieces = [b"head", b"x" * 100_000, b"tail", b"head", b"y" * 50_000, b"tail"]
        for piece in pieces:
            session.link.write(piece)
        session.link.close()
        assert await world.read_to_end(client) == b"".join(pieces)
        (left,) = spy.calls
        if isinstance(spy._transport, asyncio.Transport):
            assert left == [b"".join(pieces)]
        else:
            assert [id(piece) for piece in left] == [id(piece) for piece in pieces]

    run(scenario)


def test_short_pieces_are_joined_also_beside_a_long_one(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        spy = session.link._transport = Spy(session.link._transport)
        pieces = [b"x" * 100_000, *(b"%d" % number for number in range(100))]
        for piece in pieces:
            session.link.write(piece)
        session.link.close()
        assert await world.read_to_end(client) == b"".join(pieces)
        assert spy.calls == [[b"".join(pieces)]]

    run(scenario)


def test_long_pieces_wait_for_a_slow_peer_like_any(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        pieces = [b"head", bytes(1 << 20), b"tail"] * 16
        for piece in pieces:
            session.link.write(piece)
        assert session.is_slow, "at once, though the loop has not turned"
        assert session.link.unsent_bytes > 0
        reading = asyncio.ensure_future(world.read_to_end(client))
        await world.until(lambda: not session.is_slow)
        assert session.link._transport.get_write_buffer_size() == 0
        session.link.close()
        assert await reading == b"".join(pieces)

    run(scenario)


def test_long_pieces_to_a_peer_that_was_reset_raise_nothing(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        reset(client)
        for piece in [b"head", bytes(300_000), b"tail"] * 4:
            session.link.write(piece)
        await world.until(lambda: not world.server.connections)
        assert session.is_lost

    run(scenario)


# ---------------------------------------------------------------- accepting


def test_the_port_is_free_as_soon_as_the_listeners_are_closed(run: Run) -> None:
    async def scenario(world: World) -> None:
        _, session = await world.meet()
        world.server.close_listeners()
        bind("127.0.0.1", world.port, "stomp").close()
        assert not session.is_lost, "connections stay"

    run(scenario)


def test_a_name_with_addresses_of_both_kinds_means_that_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does `tcp://localhost:61616` in an ActiveMQ, and its clients use 127.0.0.1."""
    of_ipv4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    of_ipv6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [of_ipv6, of_ipv4])
    bound = bind("localhost", 0, "stomp")
    assert bound.getsockname()[0] == "127.0.0.1"
    bound.close()


def test_dead_peers_are_probed_for(run: Run) -> None:
    async def scenario(world: World) -> None:
        _, session = await world.meet()
        served = session.link._transport.get_extra_info("socket")
        assert served.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0

    run(scenario)


def test_only_so_many_are_accepted_per_turn(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_ACCEPTS_PER_TURN", 3)

    async def scenario(world: World) -> None:
        for _ in range(10):
            world.connect()
        seen = set()
        while len(world.sessions) < 10:
            await asyncio.sleep(0)
            seen.add(len(world.sessions))
        steps = sorted(seen)
        assert all(later - earlier <= 3 for earlier, later in itertools.pairwise(steps))

    run(scenario)


def test_accepting_resumes_after_a_lack_of_descriptors(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "_ACCEPT_RETRY_SECONDS", 0.01)

    async def scenario(world: World) -> None:
        client = world.connect()
        with socket.socket() as probe:
            first_free = probe.fileno()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first_free, limits[1]))
        try:
            await world.until(lambda: "no connection can be accepted" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await world.until(lambda: world.sessions)
        client.send(b"x")
        await world.until(lambda: world.sessions[0].received == b"x")

    run(scenario)
    assert caplog.messages == ["no connection can be accepted at the moment: Too many open files"]


def test_ipv6(run: Run) -> None:
    async def scenario(world: World) -> None:
        try:
            bound = bind("::1", 0, "stomp")
        except ConfigError as error:
            pytest.skip(f"this machine has no IPv6: {error}")
        where = world.server.listen(ListenerProtocol(scheme="stomp", session=world.session), bound)
        assert where == f"stomp://[::1]:{bound.getsockname()[1]}"
        world.clients.append(socket.create_connection(bound.getsockname()[:2]))
        await world.until(lambda: world.sessions)
        assert world.sessions[0].link.peer.startswith("[::1]:")

    run(scenario)


# ---------------------------------------------------------------- pauses


def test_reading_since_is_the_start_of_unbroken_reading(run: Run) -> None:
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


def test_pause_while_closing_does_not_hide_the_peers_close(run: Run) -> None:
    async def scenario(world: World) -> None:
        client, session = await world.meet()
        session.link.close(SECONDS * 10)  # type: ignore[call-arg]  # the server's own close has it
        world.server.hold()
        client.close()
        await world.until(lambda: not world.server.connections)

    run(scenario)


# ---------------------------------------------------------------- too many


def test_refused_connections_do_not_count_for_the_limit(run: Run) -> None:
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
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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
    assert len(lines) == 5
    assert "1 connections are open already" in lines[0]


def test_a_stop_does_not_wait_for_refused_ones(run: Run) -> None:
    async def scenario(world: World) -> None:
        first, session = await world.meet()
        refused = world.connect()
        assert await world.read_to_end(refused) == b"too many"
        session.link.close()
        first.close()
        await world.server.drain(SECONDS)
        await world.until(lambda: not world.server._refused)

    run(scenario, connections_max=1)


# ---------------------------------------------------------------- memory of frames


def test_connection_without_memory_for_its_frame_is_not_read(run: Run) -> None:
    async def scenario(world: World) -> None:
        world.server.frames = FrameMemory(2000)
        (_, first), (client, second) = await world.meet(), await world.meet()
        first.link.reserve_frame(900, 100)
        second.link.reserve_frame(900, 100)
        assert second.link.reading_since is None
        client.send(b"more")
        first.link.release_frame()
        await world.until(lambda: second.received == b"more")

    run(scenario)


@pytest.mark.parametrize("ends", ["close", "abort", "reset"])
def test_connection_that_ends_releases_memory_of_its_frame(run: Run, ends: str) -> None:
    async def scenario(world: World) -> None:
        world.server.frames = frames = FrameMemory(2000)
        client, session = await world.meet()
        session.link.reserve_frame(900, 100)
        if ends == "close":
            session.link.close()
            assert frames.reserved_bytes == 0
        elif ends == "abort":
            session.link.abort()
        else:
            reset(client)
        await world.until(lambda: frames.reserved_bytes == 0)

    run(scenario)


def test_connection_that_is_given_up_passes_the_error_to_its_session(run: Run) -> None:
    async def scenario(world: World) -> None:
        world.server.frames = frames = FrameMemory(2000)
        (_, first), (_, second), (client, third) = [await world.meet() for _ in range(3)]
        first.link.reserve_frame(900, 100)
        second.link.reserve_frame(900, 600)
        third.link.reserve_frame(900, 600)
        assert isinstance(third.error, ResourceLimit)
        assert await world.read_to_end(client) == b""
        assert (frames.reserved_bytes, frames.waiting_count) == (900, 1)

    run(scenario)


# ---------------------------------------------------------------- memory of unread output


def test_output_that_the_peer_leaves_unread_is_counted(run: Run) -> None:
    async def scenario(world: World) -> None:
        world.server.unread = unread = OutputMemory(1 << 30)
        client, session = await world.meet()
        session.link.write(bytes(20 << 20))
        await world.until(lambda: session.is_slow)
        assert 0 < unread.total <= 20 << 20
        before = unread.total
        session.link.write(bytes(100_000))
        assert unread.total == before + 100_000
        reading = asyncio.ensure_future(world.read_to_end(client))
        await world.until(lambda: not session.is_slow)
        assert unread.total == 0
        session.link.close()
        assert len(await reading) == (20 << 20) + 100_000

    run(scenario)


def test_end_of_a_long_piece_is_counted_as_the_piece_that_others_share(run: Run) -> None:
    async def scenario(world: World) -> None:
        world.server.unread = unread = OutputMemory(1 << 30)
        piece = bytes((512 << 10) + 1000)  # of which 1,000 bytes are left for another turn
        sessions = [(await world.meet())[1] for _ in range(3)]
        for session in sessions:  # all within one turn
            session.link.write(piece)
            assert session.link.unsent_bytes >= 1000
        assert unread.total <= 2 * len(piece)

    run(scenario)


class FullTransport:
    """A transport whose kernel takes nothing more before the protocol resumes."""

    def __init__(self, link: SocketConnection) -> None:
        self._link = link
        self._transport = link._transport
        self.pieces: list[bytes | memoryview] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    @property
    def kept(self) -> int:
        """The bytes of the objects that the pieces keep in memory."""
        return sum([memoryview(piece.obj if isinstance(piece, memoryview) else piece).nbytes for piece in self.pieces])

    def write(self, piece: bytes | memoryview) -> None:
        self.writelines([piece])

    def writelines(self, pieces: list[bytes | memoryview]) -> None:
        self.pieces = pieces
        self._link.pause_writing()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.pieces))


@pytest.mark.parametrize("others", [(), (b"o" * 20_000,), (bytes(400_000),)])
@pytest.mark.parametrize("size", [1_000_000, 1 << 20, 3_000_000])
def test_long_piece_of_which_the_transport_has_the_end_is_counted(
    run: Run, size: int, others: tuple[bytes, ...]
) -> None:
    async def scenario(world: World) -> None:
        world.server.unread = unread = OutputMemory(1 << 30)
        _, session = await world.meet()
        link = cast("SocketConnection", session.link)
        full = FullTransport(link)
        link._transport = cast("asyncio.Transport", full)
        for piece in (bytes(size), *others):
            link.write(piece)
        while link._output:
            assert unread.total >= full.kept - (256 << 10)
            full.pieces = []
            link.resume_writing()
            await asyncio.sleep(0)
        assert unread.total >= full.kept - (256 << 10)
        link._transport = full._transport

    run(scenario)


def test_peer_is_not_read_once_the_share_of_unread_output_is_used(run: Run) -> None:
    async def scenario(world: World) -> None:
        world.server.unread = OutputMemory(1000)
        _, session = await world.meet()
        session.link.write(bytes(20 << 20))
        await world.until(lambda: session.is_slow)
        assert session.link.reading_since is not None
        session.link.write(bytes(100_000))
        assert session.link.reading_since is None

    run(scenario)


def test_readers_far_above_the_share_lose_their_connections(run: Run) -> None:
    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()
        unread = OutputMemory(1000, call_later=lambda seconds, callback: loop.call_later(seconds / 100, callback))
        world.server.unread = unread
        _, first = await world.meet()
        _, second = await world.meet()
        first.link.write(bytes(20 << 20))
        second.link.write(bytes(20 << 20))
        await world.until(lambda: first.is_lost or second.is_lost)
        assert first.is_lost != second.is_lost  # the last one may take its output
        assert unread.total > 0

    run(scenario)
