"""Limits to connections at a running broker: floods of silent peers, storms of clients, addresses and users."""

import asyncio
import contextlib
import re
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import pybroker
from pybroker.client.errors import ClientError
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient
from tests.integration.test_logins import write_users

Start = Callable[..., BrokerProcess]
SECONDS = 30.0
CLIENTS = 1_000
CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\nlogin:alice\npasscode:sesame\n\n\0"


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.toml"
    write_users(path, alice="sesame", bob="open")
    return path


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow this process as many descriptors as the clients need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * CLIENTS + 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def silent(port: int, count: int, host: str = "127.0.0.9") -> ExitStack:
    """Open connections of an address that say nothing."""
    with ExitStack() as held:
        for _ in range(count):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS, source_address=(host, 0)))
        return held.pop_all()


def refused_count(broker: BrokerProcess) -> int:
    """Return the number of refused connections, as the summary has it."""
    broker.process.send_signal(signal.SIGUSR1)
    line = broker.wait_for("SIGUSR1: master").string
    found = re.search(r"(\d+) connections? refused", line)
    return int(found[1]) if found else 0


# ---------------------------------------------------------------- storms


async def log_in(port: int, host: str) -> asyncio.StreamWriter | None:
    """Connect and log in; None if that was refused."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    writer.write(CONNECT)
    try:
        answer = await reader.readuntil(b"\0")
    except (ConnectionError, asyncio.IncompleteReadError):
        answer = b""
    if answer.startswith(b"CONNECTED"):
        return writer
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return None


async def storm(port: int, hosts: list[str]) -> int:
    """Connect all clients at once, each until it gets in; return how often one was refused."""
    refusals = 0

    async def one(number: int) -> asyncio.StreamWriter:
        nonlocal refusals
        while (writer := await log_in(port, hosts[number % len(hosts)])) is None:
            refusals += 1
        return writer

    async with asyncio.timeout(SECONDS):
        writers = await asyncio.gather(*map(one, range(CLIENTS)))
        for writer in writers:
            writer.close()
            await writer.wait_closed()
    return refusals


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_storm_of_a_thousand_clients_gets_through_at_once(
    start: Start, users: Path, many_files: None, loop: str
) -> None:
    """After a failover all clients log in at a time: none of many addresses is refused."""
    options = ("--connections-max", str(CLIENTS * 5 // 4))  # all may be there before the first login is verified
    broker = start("--users-file", str(users), "--event-loop", loop, *options, store="memory:")
    broker.wait_for("listening on")
    hosts = [f"127.0.1.{number}" for number in range(1, 51)]
    assert asyncio.run(storm(broker.port, hosts)) == 0
    assert refused_count(broker) == 0


def test_storm_from_one_address_gets_through_by_trying_again(start: Start, users: Path, many_files: None) -> None:
    broker = start("--users-file", str(users), store="memory:")
    broker.wait_for("listening on")
    asyncio.run(storm(broker.port, ["127.0.0.1"]))


def test_storm_from_one_address_is_not_refused_with_a_higher_limit(start: Start, users: Path, many_files: None) -> None:
    broker = start("--users-file", str(users), "--unconnected-max", str(CLIENTS), store="memory:")
    broker.wait_for("listening on")
    assert asyncio.run(storm(broker.port, ["127.0.0.1"])) == 0
    assert refused_count(broker) == 0


# ---------------------------------------------------------------- floods


def test_silent_peers_of_many_addresses_do_not_fill_the_broker(start: Start) -> None:
    broker = start("--connections-max", "20", "--connections-reserved", "5", store="memory:")
    broker.wait_for("listening on")
    with ExitStack() as held:
        clients = [held.enter_context(closing(StompClient(broker.port))) for _ in range(3)]
        for number in range(15):
            held.enter_context(silent(broker.port, 1, f"127.0.2.{number + 1}"))
        for _ in range(5):  # each takes the place of the oldest silent one, a second after it came
            clients.append(held.enter_context(closing(StompClient(broker.port))))
        for client in clients:
            client.request("SEND", b"hello", destination="/topic/x")
        broker.wait_for("makes way for a new connection: raise unconnected_max or connections_max")
        assert refused_count(broker) > 0


def test_silent_peers_are_told_why_they_make_way(start: Start) -> None:
    openwire = free_port()
    broker = start("--connections-max=2", "--connections-reserved=1", "--openwire", str(openwire), store="memory:")
    broker.wait_for("listening on")
    offer = bytes.fromhex("0000001601 4163746976654d51 0000000c 01 00000004 00000000")
    with socket.create_connection(("127.0.0.1", openwire), timeout=SECONDS) as peer:
        peer.sendall(offer)
        received = peer.recv(10_000)
        with closing(StompClient(broker.port)):
            while chunk := peer.recv(10_000):
                received += chunk
    assert b"ResourceAllocationException" in received
    assert b"makes way for a new connection" in received


def test_silent_handshakes_make_way_too(start: Start, tmp_path: Path) -> None:
    import trustme

    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    port = free_port()
    broker = start(
        "--connections-max=8", f"--stomp-ssl={port}", f"--tls-certificate={tmp_path / 'server.pem'}", store="memory:"
    )
    broker.wait_for("listening on")
    with silent(port, 4), silent(port, 1):
        broker.wait_for(r"127\.0\.0\.9:\d+ closed: it has sent no CONNECT or ConnectionInfo, and makes way")


# ---------------------------------------------------------------- addresses and users


def own_address() -> str:
    """Return an address of this machine that is no loopback one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback ones")
        return str(probe.getsockname()[0])


def test_connections_of_one_address_have_a_limit(start: Start) -> None:
    host = own_address()
    broker = start(
        "--bind=0.0.0.0", "--anonymous=everywhere", "--connections-per-address=2", store="memory:"
    )  # fmt: skip
    broker.wait_for("listening on")
    with ExitStack() as held:
        for _ in range(4):  # of this host
            held.enter_context(closing(StompClient(broker.port)))
        for _ in range(2):
            held.enter_context(socket.create_connection((host, broker.port), timeout=SECONDS))
        with socket.create_connection((host, broker.port), timeout=SECONDS) as refused:
            assert b"too many of your address; try again later" in refused.recv(1000)
            assert refused.recv(1000) == b""
    broker.wait_for(rf"refused {host}:\d+: 2 connections of its address are open already, raise connections_per_add")


def test_connections_of_one_user_have_a_limit(start: Start, users: Path) -> None:
    openwire = free_port()
    broker = start(
        f"--users-file={users}", "--connections-per-user=2", "--openwire", str(openwire), store="memory:"
    )  # fmt: skip
    broker.wait_for("listening on")
    url = f"tcp://127.0.0.1:{openwire}"
    with ExitStack() as held:
        first = held.enter_context(closing(StompClient(broker.port, login="alice", passcode="sesame")))
        held.enter_context(pybroker.connect(url, user="alice", password="sesame"))
        with closing(StompClient(broker.port, is_connected=False)) as refused:
            refused.send("CONNECT", accept_version="1.2", host="h", login="alice", passcode="sesame")
            assert "User alice has 2 connections already" in refused.read().headers["message"]
        with pytest.raises(ClientError, match="User alice has 2 connections already"):
            pybroker.connect(url, user="alice", password="sesame")
        held.enter_context(pybroker.connect(url, user="bob", password="open"))
        assert refused_count(broker) == 2
        first.close()
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                held.enter_context(pybroker.connect(url, user="alice", password="sesame"))
                break
            except ClientError:
                assert time.monotonic() < deadline


# ---------------------------------------------------------------- proxies


def test_address_of_a_proxys_header_is_in_the_audit(start: Start, users: Path) -> None:
    broker = start(
        f"--users-file={users}", "--proxy-protocol=stomp", "--proxy-networks=127.0.0.1", store="memory:"
    )  # fmt: skip
    broker.wait_for("listening on")
    addresses = socket.inet_aton("192.0.2.7") + socket.inet_aton("192.0.2.1") + struct.pack(">HH", 50312, 61613)
    header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack(">H", len(addresses)) + addresses
    with socket.create_connection(("127.0.0.1", broker.port), timeout=SECONDS) as client:
        client.sendall(header + CONNECT)
        assert client.recv(1000).startswith(b"CONNECTED")
        broker.wait_for("'alice' logged in from 192.0.2.7")
        client.sendall(b"SEND\ndestination:/queue/x\nreceipt:1\n\n\0")
        assert client.recv(1000).startswith(b"RECEIPT")
    with socket.create_connection(("127.0.0.1", broker.port), timeout=SECONDS) as client:
        client.sendall(header + CONNECT.replace(b"sesame", b"wrong"))
        assert client.recv(1000).startswith(b"ERROR")
    broker.wait_for("login of 'alice' from 192.0.2.7 refused: wrong password")
