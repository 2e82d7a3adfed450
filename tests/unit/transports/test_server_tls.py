# mypy: disable-error-code="attr-defined, method-assign"
"""TLS over real sockets: conversations as on a plain port, and handshakes that fail for their own peer only."""

import asyncio
import contextlib
import gc
import logging
import re
import socket
import ssl
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from pybroker.transports import handshakes
from pybroker.transports.server import Tls
from pybroker.transports.tls import TlsChannel, server_context
from tests.unit.transports.certificates import Certificates
from tests.unit.transports.world import SECONDS, Session, World, counted_pauses

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Scenario = Callable[[World], Awaitable[None]]
Run = Callable[..., None]


class Place:
    """Runs scenarios behind TLS."""

    def __init__(self, run: Run, certificates: Certificates) -> None:
        self._run = run
        self.certificates = certificates
        self.trusting = certificates.client_context()

    def run(
        self, scenario: Scenario, *, handshake_seconds: float = SECONDS, client_ca: Path | None = None, **more: object
    ) -> None:
        context = server_context(self.certificates.both, client_ca=client_ca)
        self._run(scenario, tls=Tls(context=lambda: context, handshake_seconds=handshake_seconds), **more)

    async def connect(self, world: World, context: ssl.SSLContext | None = None) -> Streams:
        # A limit that is never reached: uvloop's client loses what it kept from a paused reader when the end comes.
        return await asyncio.open_connection(
            "127.0.0.1", world.port, ssl=context or self.trusting, server_hostname="localhost", limit=8 << 20
        )

    async def meet(self, world: World, context: ssl.SSLContext | None = None) -> tuple[Streams, Session]:
        number = len(world.sessions)
        client = await self.connect(world, context)
        await world.until(lambda: len(world.sessions) > number)
        return client, world.sessions[number]

    async def fail(self, world: World, context: ssl.SSLContext) -> None:
        """Connect in vain. In TLS 1.3 a client learns only by reading that its own certificate did not do."""
        try:
            reader, writer = await self.connect(world, context)
            with contextlib.closing(writer):
                assert await reader.read() == b""
        except (ssl.SSLError, ConnectionError):
            pass


@pytest.fixture
def place(run: Run, certificates: Certificates) -> Place:
    return Place(run, certificates)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines at info and above that the transports have written."""
    caplog.set_level(logging.INFO)
    return lambda: [line.getMessage() for line in caplog.records if line.name.startswith("pybroker")]


# ---------------------------------------------------------------- conversations


def test_bytes_go_both_ways_and_the_end_is_clean(place: Place) -> None:
    async def scenario(world: World) -> None:
        (reader, writer), session = await place.meet(world)
        writer.write(b"hello")
        await world.until(lambda: session.received == b"hello")
        session.link.write(b"good ")
        session.link.write(b"bye")
        session.link.close()
        assert await reader.read() == b"good bye"
        writer.close()
        await world.until(lambda: not world.server.connections)

    place.run(scenario)


def test_records_of_a_byte_are_read_over_several_turns(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = 0
    turns: list[int] = []
    decrypt = TlsChannel.decrypt

    def recorded(channel: TlsChannel, data: bytes) -> bytes:
        if len(data) > 16 << 10:
            turns.append(turn)
        return decrypt(channel, data)

    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()

        def next_turn() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(next_turn)

        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = place.trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(1 << 16))
        for _ in range(20_000):
            tls.write(b"x")
        monkeypatch.setattr(TlsChannel, "decrypt", recorded)
        next_turn()
        writer.write(outgoing.read())
        await world.until(lambda: bool(world.sessions) and len(world.sessions[0].received) == 20_000)
        assert turns
        assert len(set(turns)) == len(turns), "one chunk in a turn"
        writer.close()

    place.run(scenario)


def test_much_goes_both_ways(place: Place) -> None:
    async def scenario(world: World) -> None:
        (reader, writer), session = await place.meet(world)
        much = bytes(range(256)) * (16 << 10)
        writer.write(much)
        await world.until(lambda: len(session.received) == len(much))
        assert session.received == much
        session.link.write(much)
        assert session.is_slow, "the kernel does not take so much at once"
        assert await reader.readexactly(len(much)) == much
        await world.until(lambda: not session.is_slow)
        writer.close()

    place.run(scenario)


def test_long_pieces_are_encrypted_too(place: Place) -> None:
    async def scenario(world: World) -> None:
        (reader, writer), session = await place.meet(world)
        pieces = [b"head", bytes(range(256)) * 400, b"tail"] * 4
        for piece in pieces:
            session.link.write(piece)
        session.link.close()
        assert await reader.read() == b"".join(pieces)
        writer.close()
        await world.until(lambda: not world.server.connections)

    place.run(scenario)


def test_written_means_that_everything_has_left_the_process(place: Place) -> None:
    async def scenario(world: World) -> None:
        (reader, writer), session = await place.meet(world)
        waits: list[int] = []
        session.written = lambda: waits.append(session.link._transport.get_write_buffer_size())
        for _ in range(20):
            session.link.write(bytes(100_000))
            await asyncio.sleep(0)
        assert len(await reader.readexactly(2_000_000)) == 2_000_000
        await world.until(lambda: waits)
        assert set(waits) == {0}
        writer.close()

    place.run(scenario)


def test_a_peers_end_ends_the_session(place: Place) -> None:
    async def scenario(world: World) -> None:
        (_, writer), session = await place.meet(world)
        writer.write(b"last")
        writer.close()
        await world.until(lambda: session.is_lost)
        assert session.received == b"last"

    place.run(scenario)


def test_peer_that_ends_tls_and_keeps_the_socket_is_gone(place: Place) -> None:
    async def scenario(world: World) -> None:
        peer, session = await handshake(world, place.trusting)
        peer.tls.write(b"last")
        with contextlib.suppress(ssl.SSLWantReadError):
            peer.tls.unwrap()
        peer.flush()
        await world.until(lambda: session.is_lost)
        assert session.received == b"last"

    place.run(scenario)


def test_peer_that_reads_no_answers_is_not_read(place: Place) -> None:
    """TLS 1.3 answers each KeyUpdate; who sends nothing else and reads nothing would fill the memory."""

    async def scenario(world: World) -> None:
        peer, session = await handshake(world, place.trusting)
        answers = iter([bytes(1 << 20)] * 16)
        session.link._channel.output = lambda: next(answers, b"")
        async with asyncio.timeout(SECONDS):
            while session.link.reading_since is not None:
                peer.tls.write(b"x")
                peer.flush()
                await asyncio.sleep(0)
        async with asyncio.timeout(SECONDS):
            while session.link.reading_since is None:
                with contextlib.suppress(BlockingIOError):  # the last bytes are read, and the broker is yet to see it
                    peer.client.recv(1 << 20)
                await asyncio.sleep(0)

    place.run(scenario)


def test_tls_1_2_is_spoken_too(place: Place) -> None:
    context = place.certificates.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async def scenario(world: World) -> None:
        (_, writer), session = await place.meet(world, context)
        writer.write(b"hello")
        await world.until(lambda: session.received == b"hello")
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
        writer.close()

    place.run(scenario)


def test_a_stop_gets_all_out(place: Place) -> None:
    async def scenario(world: World) -> None:
        (reader, writer), session = await place.meet(world)
        session.link.write(b"receipt")
        drained = asyncio.ensure_future(world.server.drain(SECONDS))
        assert await reader.read() == b"receipt"
        writer.close()
        await drained

    place.run(scenario)


# ---------------------------------------------------------------- handshakes that fail


class Peer:
    """A TLS client whose bytes the test moves."""

    def __init__(self, client: socket.socket, context: ssl.SSLContext) -> None:
        self.client = client
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def flush(self) -> None:
        self.client.send(self._outgoing.read())

    def shake(self) -> bool:
        """Take what has come and answer; True once the handshake is over."""
        with contextlib.suppress(BlockingIOError):
            self._incoming.write(self.client.recv(65536))
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self.flush()
        return True


async def handshake(world: World, context: ssl.SSLContext) -> tuple[Peer, Session]:
    number = len(world.sessions)
    peer = Peer(world.connect(), context)
    await world.until(peer.shake)
    await world.until(lambda: len(world.sessions) > number)
    return peer, world.sessions[number]


def test_plain_text_on_a_tls_port_is_one_line(place: Place, log: Callable[[], list[str]]) -> None:
    async def scenario(world: World) -> None:
        (_, writer), session = await place.meet(world)
        unknown = world.connect()
        unknown.send(b"CONNECT\naccept-version:1.2\n\n\0")
        await world.read_or_reset(unknown)
        unknown.close()
        await world.until(lambda: len(world.server.connections) == 1)
        writer.write(b"still here")
        await world.until(lambda: session.received == b"still here")
        writer.close()

    place.run(scenario)
    (line,) = log()
    assert re.fullmatch(r"127\.0\.0\.1:\d+: TLS handshake failed: .+", line)


def test_slow_handshake_is_aborted_with_one_line(place: Place, log: Callable[[], list[str]]) -> None:
    async def scenario(world: World) -> None:
        silent = world.connect()
        assert await world.read_or_reset(silent) == b""
        await world.until(lambda: not world.server.connections)
        assert world.sessions == []

    place.run(scenario, handshake_seconds=0.05)
    (line,) = log()
    assert line.endswith("TLS handshake failed: not over within 0.05 seconds")


def test_the_time_limit_ends_with_the_handshake(place: Place) -> None:
    async def scenario(world: World) -> None:
        (_, writer), session = await place.meet(world)
        assert session.link._timer is None
        writer.close()

    place.run(scenario)


def test_peer_that_leaves_in_the_handshake_is_one_line(place: Place, log: Callable[[], list[str]]) -> None:
    async def scenario(world: World) -> None:
        peer = Peer(world.connect(), place.trusting)
        peer.shake()
        await world.until(lambda: any(each._has_received for each in world.server.connections))
        peer.client.close()
        await world.until(lambda: not world.server.connections)

    place.run(scenario)
    (line,) = log()
    assert line.endswith("TLS handshake failed: the peer left before its end")


def test_a_silent_health_check_is_not_logged(place: Place, log: Callable[[], list[str]]) -> None:
    async def scenario(world: World) -> None:
        check = world.connect()
        await world.until(lambda: world.server.connections)
        check.close()
        await world.until(lambda: not world.server.connections)

    place.run(scenario)
    assert log() == []


def test_a_client_that_does_not_trust_us_is_one_line(place: Place, log: Callable[[], list[str]]) -> None:
    sceptic = place.certificates.client_context(authority=place.certificates.strange_authority)

    async def scenario(world: World) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            await handshake(world, sceptic)
        world.clients[0].close()
        await world.until(lambda: not world.server.connections)
        assert world.sessions == []

    place.run(scenario)
    (line,) = log()
    assert "unknown ca" in line


def test_tls_1_1_is_refused(place: Place, log: Callable[[], list[str]]) -> None:
    old = place.certificates.client_context()
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1

    async def scenario(world: World) -> None:
        await place.fail(world, old)
        await world.until(lambda: not world.server.connections)

    place.run(scenario)
    (line,) = log()
    assert line.endswith("TLS handshake failed: unsupported protocol")


def test_a_broken_record_ends_the_conversation_with_one_line(place: Place, log: Callable[[], list[str]]) -> None:
    async def scenario(world: World) -> None:
        peer, session = await handshake(world, place.trusting)
        session.link.write(b"never sent")
        peer.client.send(b"\x17\x03\x03\x00\x20" + bytes(32))
        await world.until(lambda: session.is_lost)
        peer.client.close()

    place.run(scenario)
    (line,) = log()
    assert "TLS record failed: " in line


@pytest.mark.parametrize("kind", ["none", "strange"])
def test_client_certificate_is_required_with_an_authority(
    place: Place, kind: str, log: Callable[[], list[str]]
) -> None:
    certificates = place.certificates
    wrong = certificates.client_context(certificate=certificates.strange_client if kind == "strange" else None)
    right = certificates.client_context(certificate=certificates.client)

    async def scenario(world: World) -> None:
        await place.fail(world, wrong)
        (_, writer), session = await place.meet(world, right)
        writer.write(b"hello")
        await world.until(lambda: session.received == b"hello")
        writer.close()
        assert len(world.sessions) == 1

    place.run(scenario, client_ca=certificates.authority)
    (line,) = log()
    assert ("certificate verify failed" if kind == "strange" else "peer did not return a certificate") in line


def test_too_many_are_closed_without_a_handshake(place: Place) -> None:
    async def scenario(world: World) -> None:
        (_, writer), _ = await place.meet(world)
        assert await world.read_to_end(world.connect()) == b""
        writer.close()
        await world.until(lambda: not world.server.connections)
        (_, writer), _ = await place.meet(world)
        writer.close()

    place.run(scenario, connections_max=1)


# ---------------------------------------------------------------- handshakes beside the loop


class Gate:
    """Holds up the threads in which handshakes are computed."""

    def __init__(self) -> None:
        self.opening = threading.Event()
        self.opening.set()
        self.steps = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        decrypt = TlsChannel.decrypt

        def held(channel: TlsChannel, data: bytes) -> bytes:
            if not channel.is_established:
                self.steps += 1
                assert self.opening.wait(SECONDS), "the event loop waits for a handshake"
            return decrypt(channel, data)

        monkeypatch.setattr(TlsChannel, "decrypt", held)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr(handshakes, "_THREADS_MAX", 1)
    gate = Gate()
    gate.install(monkeypatch)
    yield gate
    gate.opening.set()


def test_a_handshake_in_progress_delays_no_other_client(place: Place, gate: Gate) -> None:
    async def scenario(world: World) -> None:
        (_, writer), session = await place.meet(world)
        gate.opening.clear()
        peer = Peer(world.connect(), place.trusting)
        peer.shake()
        await world.until(lambda: gate.steps == 3)
        writer.write(b"hello")
        await world.until(lambda: session.received == b"hello")
        gate.opening.set()
        await world.until(peer.shake)
        await world.until(lambda: len(world.sessions) == 2)
        writer.close()

    place.run(scenario)


def test_failed_handshake_is_freed_at_once(certificates: Certificates) -> None:
    """A flood of failed handshakes would take a hundred megabytes until the next collection."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        computed = handshakes.Handshakes(loop)
        channel = TlsChannel(server_context(certificates.both))
        failed = loop.create_future()
        computed.step(channel, bytes(100), lambda outcome: failed.set_result(isinstance(outcome, ssl.SSLError)))
        assert await failed
        computed.close()
        freed = weakref.ref(channel)
        del channel
        assert freed() is None

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_bytes_that_come_during_a_step_are_kept_in_order(place: Place, gate: Gate) -> None:
    async def scenario(world: World) -> None:
        gate.opening.clear()
        peer = Peer(world.connect(), place.trusting)
        with contextlib.suppress(ssl.SSLWantReadError):
            peer.tls.do_handshake()
        hello = peer._outgoing.read()
        for start in range(0, len(hello), 100):
            peer.client.send(hello[start : start + 100])
            await asyncio.sleep(0)
        await world.until(lambda: any(each._unread for each in world.server.connections))
        gate.opening.set()
        await world.until(peer.shake)
        await world.until(lambda: world.sessions)
        peer.tls.write(b"hello")
        peer.flush()
        await world.until(lambda: world.sessions[0].received == b"hello")

    place.run(scenario)


def test_bytes_right_behind_a_handshake_are_received(place: Place, gate: Gate) -> None:
    async def scenario(world: World) -> None:
        peer = Peer(world.connect(), place.trusting)
        peer.shake()
        await world.until(lambda: gate.steps == 1)
        gate.opening.clear()
        await world.until(peer.shake)
        peer.tls.write(b"last")
        peer.flush()
        peer.client.close()
        await world.until(lambda: gate.steps == 2)
        await asyncio.sleep(0)
        gate.opening.set()
        await world.until(lambda: world.sessions and world.sessions[0].is_lost)
        assert world.sessions[0].received == b"last"

    place.run(scenario)


def test_a_handshake_whose_peer_left_is_never_computed(place: Place, gate: Gate) -> None:
    async def scenario(world: World) -> None:
        gate.opening.clear()
        first, second = Peer(world.connect(), place.trusting), Peer(world.connect(), place.trusting)
        first.shake()
        await world.until(lambda: gate.steps == 1)
        second.shake()
        await world.until(lambda: sum(each._step is not None for each in world.server.connections) == 2)
        second.client.close()
        await world.until(lambda: len(world.server.connections) == 1)
        gate.opening.set()
        await world.until(first.shake)
        await world.until(lambda: world.sessions)
        assert gate.steps == 2, "the hello and the end of the first one's handshake"

    place.run(scenario)


def test_a_stop_drops_the_handshakes_that_wait(place: Place, gate: Gate) -> None:
    async def scenario(world: World) -> None:
        gate.opening.clear()
        peers = [Peer(world.connect(), place.trusting) for _ in range(3)]
        for peer in peers:
            peer.shake()
        await world.until(lambda: sum(each._step is not None for each in world.server.connections) == 3)
        threading.Timer(0.05, gate.opening.set).start()
        await world.server.drain(0)
        assert gate.steps == 1

    place.run(scenario)


def test_an_error_of_ours_in_a_handshake_is_logged(
    place: Place, monkeypatch: pytest.MonkeyPatch, log: Callable[[], list[str]]
) -> None:
    def fails(channel: TlsChannel, data: bytes) -> bytes:
        raise MemoryError

    monkeypatch.setattr(TlsChannel, "decrypt", fails)

    async def scenario(world: World) -> None:
        unknown = world.connect()
        unknown.send(b"hello")
        assert await world.read_or_reset(unknown) == b""
        unknown.close()
        await world.until(lambda: not world.server.connections)

    place.run(scenario)
    (line,) = log()
    assert line.endswith("TLS handshake failed unexpectedly")


def test_clients_wait_while_handshakes_are_at_their_limit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = counted_pauses(monkeypatch)

    async def scenario(world: World) -> None:
        silent = world.connect()
        await world.until(lambda: len(world.server.connections) == 1)  # though its handshake is not over
        patient = asyncio.ensure_future(place.meet(world))
        await world.until(lambda: pauses)
        assert len(world.server.connections) == 1
        silent.close()
        (_, writer), _ = await patient
        writer.close()

    place.run(scenario, connections_max=2)
