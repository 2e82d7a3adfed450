"""Listeners for proxies over real sockets: the address of the header counts, and none is served without a header."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

import pytest

from pybroker.transports import server as server_module
from pybroker.transports.admission import AdmissionLimits
from pybroker.transports.proxied import Proxies
from pybroker.transports.server import Tls
from pybroker.transports.tls import server_context
from tests.unit.transports.certificates import Certificates
from tests.unit.transports.test_proxy_protocol import header, ipv4, ipv6
from tests.unit.transports.world import SECONDS, World, counted_pauses

Run = Callable[..., None]
PROXIES = Proxies(are_trusted=lambda host: host == "127.0.0.1", header_seconds=SECONDS)
ANNOUNCED = header(0x21, 0x11, ipv4("192.0.2.7"))


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines at info and above that the transports have written."""
    caplog.set_level(logging.INFO)
    return lambda: [line.getMessage() for line in caplog.records if line.name.startswith("pybroker")]


@pytest.mark.parametrize(
    ("data", "peer"),
    [
        (ANNOUNCED, "192.0.2.7:50312"),
        (header(0x21, 0x21, ipv6()), "[2001:db8::7]:50312"),
        (header(0x21, 0x11, ipv4("127.0.0.9")), "127.0.0.9:50312"),
    ],
)
def test_the_address_of_the_header_is_the_peers(run: Run, data: bytes, peer: str) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        client.send(data + b"hello")
        await world.until(lambda: world.sessions and world.sessions[0].received == b"hello")
        assert world.sessions[0].link.peer == peer
        world.sessions[0].link.write(b"bye")
        world.sessions[0].link.close()
        assert await world.read_to_end(client) == b"bye"
        client.close()
        await world.until(lambda: not world.server.connections)

    run(scenario, proxies=PROXIES)


@pytest.mark.parametrize("data", [header(0x20, 0, b""), header(0x21, 0x31, bytes(216)), header(0x21, 0, b"")])
def test_without_an_address_the_proxys_counts(run: Run, data: bytes) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        client.send(data)
        await world.until(lambda: world.sessions)
        host, port = client.getsockname()
        assert world.sessions[0].link.peer == f"{host}:{port}"

    run(scenario, proxies=PROXIES, denied="127.0.0.1")  # proxy_networks has it: a health check must not fail


def test_header_that_comes_byte_by_byte(run: Run) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in ANNOUNCED:
            assert not world.sessions
            client.send(bytes((byte,)))
            for _ in range(3):
                await asyncio.sleep(0)
        client.send(b"hello")
        await world.until(lambda: world.sessions and world.sessions[0].received == b"hello")

    run(scenario, proxies=PROXIES)


def test_header_and_end_in_one(run: Run) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        client.send(ANNOUNCED + b"last")
        client.close()
        await world.until(lambda: world.sessions and world.sessions[0].is_lost)
        assert world.sessions[0].received == b"last"

    run(scenario, proxies=PROXIES)


def test_tls_begins_behind_the_header(run: Run, certificates: Certificates) -> None:
    context = server_context(certificates.both)

    async def scenario(world: World) -> None:
        client = world.connect()
        client.send(ANNOUNCED)
        reader, writer = await asyncio.open_connection(
            sock=client, ssl=certificates.client_context(), server_hostname="localhost"
        )
        writer.write(b"hello")
        await world.until(lambda: world.sessions and world.sessions[0].received == b"hello")
        assert world.sessions[0].link.peer == "192.0.2.7:50312"
        world.sessions[0].link.write(b"bye")
        world.sessions[0].link.close()
        assert await reader.read() == b"bye"
        writer.close()
        await world.until(lambda: not world.server.connections)

    run(scenario, proxies=PROXIES, tls=Tls(context=lambda: context, handshake_seconds=SECONDS))


def test_header_and_client_hello_in_one(run: Run, certificates: Certificates) -> None:
    context = server_context(certificates.both)

    async def scenario(world: World) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = certificates.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        client = world.connect()
        client.send(ANNOUNCED + outgoing.read())
        answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 65536), SECONDS)
        assert answer[:2] == b"\x16\x03"

    run(scenario, proxies=PROXIES, tls=Tls(context=lambda: context, handshake_seconds=SECONDS))


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"CONNECT\n\n\0", "no header of the PROXY protocol"),
        (b"PROXY TCP4 192.0.2.7 192.0.2.1 1 2\r\n", "a header of version 1, where version 2 is needed"),
        (header(0x21, 0x11, b""), "a header of 0 bytes for the addresses of family 0x11"),
    ],
)
def test_peer_without_a_header_is_closed_with_one_line(
    run: Run, log: Callable[[], list[str]], data: bytes, reason: str
) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        client.send(data)
        assert await world.read_or_reset(client) == b""
        assert not world.sessions

    run(scenario, proxies=PROXIES)
    (line,) = log()
    assert line.startswith(f"127.0.0.1 closed: this port serves proxies only, and got {reason}")


def test_peer_that_sends_no_header_in_time_is_closed(run: Run, log: Callable[[], list[str]]) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        client.send(ANNOUNCED[:20])
        assert await world.read_or_reset(client) == b""
        assert not world.server._announcing

    run(scenario, proxies=Proxies(are_trusted=lambda _: True, header_seconds=0.05))
    (line,) = log()
    assert "got no header within 0.05 seconds" in line


def test_a_health_check_that_connects_and_leaves_is_not_logged(run: Run, log: Callable[[], list[str]]) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        await world.until(lambda: world.server._announcing)
        client.close()
        await world.until(lambda: not world.server._announcing)

    run(scenario, proxies=PROXIES)
    assert log() == []


def test_proxy_that_leaves_in_its_header_is_one_line(run: Run, log: Callable[[], list[str]]) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        client.send(ANNOUNCED[:20])
        client.close()
        await world.until(log)
        await world.until(lambda: not world.server._announcing)

    run(scenario, proxies=PROXIES)
    assert log() == ["127.0.0.1 closed: the proxy left before the end of its header"]


def test_peer_that_is_no_trusted_proxy_is_refused_unread(run: Run, log: Callable[[], list[str]]) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        assert await world.read_or_reset(client) == b""
        assert world.server.refused_count == 1

    run(scenario, proxies=Proxies(are_trusted=lambda _: False, header_seconds=SECONDS))
    assert log() == ["refused 127.0.0.1: this port serves proxies only, those of proxy_networks"]


def test_deny_is_for_the_address_of_the_header(run: Run, log: Callable[[], list[str]]) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        client.send(ANNOUNCED)
        assert await world.read_or_reset(client) == b""
        assert not world.sessions

    run(scenario, proxies=PROXIES, denied="192.0.2.7")
    assert log() == ["refused 192.0.2.7: its network is not one that may connect, by allow and deny"]


def test_limits_are_for_the_address_of_the_header(run: Run) -> None:
    async def scenario(world: World) -> None:
        first = world.connect()
        first.send(ANNOUNCED)
        await world.until(lambda: world.sessions)
        refused = world.connect()
        refused.send(ANNOUNCED)
        assert await world.read_to_end(refused) == b"too many"
        other = world.connect()
        other.send(header(0x21, 0x11, ipv4("192.0.2.8")))
        await world.until(lambda: len(world.sessions) == 2)

    run(scenario, proxies=PROXIES, limits=AdmissionLimits.of(100, per_address=1))


def test_loopback_address_from_another_machine_is_the_proxys(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client on the proxy's machine must not count as one of this machine, which may need no login."""
    monkeypatch.setattr("pybroker.transports.proxied.is_loopback", lambda host: host == "127.0.0.9")

    async def scenario(world: World) -> None:
        client = world.connect()
        client.send(header(0x21, 0x11, ipv4("127.0.0.9")))
        await world.until(lambda: world.sessions)
        assert world.sessions[0].link.peer.startswith("127.0.0.1:")

    run(scenario, proxies=PROXIES)


def test_so_many_headers_are_awaited_at_a_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_HEADERS_MAX", 2)
    pauses = counted_pauses(monkeypatch)

    async def scenario(world: World) -> None:
        silent = [world.connect() for _ in range(2)]
        await world.until(lambda: len(world.server._announcing) == 2)
        third = world.connect()
        third.send(ANNOUNCED)
        pauses.clear()
        await world.until(lambda: pauses)
        assert not world.sessions
        silent[0].close()
        await world.until(lambda: world.sessions)

    run(scenario, proxies=PROXIES)


@pytest.mark.parametrize("turns", range(6))
def test_no_reader_is_left_after_an_abort(run: Run, turns: int) -> None:
    async def scenario(world: World) -> None:
        client = world.connect()
        for _ in range(turns):
            await asyncio.sleep(0)
        world.server.abort()
        assert await world.read_or_reset(client) == b""
        assert not world.server._announcing

    run(scenario, proxies=PROXIES)
