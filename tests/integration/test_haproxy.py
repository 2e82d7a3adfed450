"""Clients behind HAProxy as Debian has it, with `send-proxy-v2`, in front of plain listeners and of one with TLS."""

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

import pybroker
from tests.integration.cluster import BrokerProcess, Pair, free_port
from tests.integration.haproxy import haproxy
from tests.integration.test_health import health_port

pytestmark = pytest.mark.component("haproxy")

Start = Callable[..., BrokerProcess]
SECONDS = 30.0
CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
PORTS = ("stomp", "openwire", "stomp_ssl")

CONFIGURATION = """
defaults
    mode tcp
    timeout connect 5s
    timeout client 1m
    timeout server 1m
{listeners}
"""
LISTENER = """
listen {name}
    bind 127.0.0.1:{front}
    server broker 127.0.0.1:{back} send-proxy-v2 {check}
"""


class Installation:
    """A broker, and HAProxy in front of it.

    Attributes:
        broker: the broker.
        fronts: HAProxy's ports, by the setting of the broker's.
        authority: the file of the authority of the broker's certificate.
    """

    def __init__(self, broker: BrokerProcess, fronts: dict[str, int], authority: Path) -> None:
        self.broker = broker
        self.fronts = fronts
        self.authority = authority

    def connect(self, setting: str, host: str) -> socket.socket:
        """Connect to HAProxy from an address of this machine."""
        return socket.create_connection(("127.0.0.1", self.fronts[setting]), timeout=SECONDS, source_address=(host, 0))

    def encrypted(self, host: str) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.authority))
        return context.wrap_socket(self.connect("stomp_ssl", host), server_hostname="127.0.0.1")


@pytest.fixture(params=["asyncio", "uvloop"])
def behind(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> Iterator[Installation]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    backs, fronts = {name: free_port() for name in PORTS}, {name: free_port() for name in PORTS}
    broker = start(
        "--openwire", str(backs["openwire"]), f"--stomp-ssl={backs['stomp_ssl']}",
        f"--tls-certificate={tmp_path / 'server.pem'}", "--proxy-protocol=stomp, openwire, stomp_ssl",
        "--proxy-networks=127.0.0.1", "--deny=127.0.0.66", "--log-connections", f"--event-loop={request.param}",
        store="memory:", port=backs["stomp"],
    )  # fmt: skip
    broker.wait_for("listening on")
    listeners = "".join(
        LISTENER.format(name=name, front=fronts[name], back=backs[name], check=check)
        for name, check in zip(PORTS, ("check inter 50ms", "check check-send-proxy inter 50ms", ""), strict=True)
    )
    (tmp_path / "haproxy.cfg").write_text(CONFIGURATION.format(listeners=listeners))
    with haproxy(tmp_path / "haproxy.cfg", fronts.values()):
        yield Installation(broker, fronts, tmp_path / "authority.pem")


def test_clients_behind_haproxy_have_their_own_addresses(behind: Installation) -> None:
    with behind.connect("stomp", "127.0.0.5") as client:
        client.sendall(CONNECT)
        assert client.recv(1000).startswith(b"CONNECTED")
        behind.broker.wait_for(rf"from 127\.0\.0\.5:{client.getsockname()[1]} connected: STOMP 1\.2")
    with behind.encrypted("127.0.0.6") as client:
        client.sendall(CONNECT)
        assert client.recv(1000).startswith(b"CONNECTED")
        behind.broker.wait_for(rf"from 127\.0\.0\.6:{client.getsockname()[1]} connected: STOMP 1\.2")
    with pybroker.connect(f"tcp://127.0.0.1:{behind.fronts['openwire']}") as connection:
        connection.send("queue://x", "tea")
        with connection.consumer("queue://x") as consumer:
            received = consumer.receive(timeout=SECONDS)
            assert received is not None
            assert received.body == "tea"


def test_address_that_is_denied_is_closed_behind_haproxy(behind: Installation) -> None:
    with behind.connect("stomp", "127.0.0.66") as client:
        client.sendall(CONNECT)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1000) == b""
    behind.broker.wait_for(r"refused 127\.0\.0\.66: its network is not one that may connect, by allow and deny")


def test_client_past_haproxy_is_closed(behind: Installation) -> None:
    with socket.create_connection(("127.0.0.1", behind.broker.port), timeout=SECONDS) as client:
        client.sendall(CONNECT)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1000) == b""
    behind.broker.wait_for("127.0.0.1 closed: this port serves proxies only, and got no header of the PROXY protocol")


def test_health_checks_of_haproxy_are_not_logged(behind: Installation) -> None:
    for host in ("127.0.0.5", "127.0.0.6"):  # the checks come every 50 ms meanwhile
        with behind.encrypted(host) as client:
            client.sendall(CONNECT)
            assert client.recv(1000).startswith(b"CONNECTED")
    assert behind.broker.terminate() == 0
    assert not any("closed:" in line or "refused" in line for line in behind.broker.lines)


def test_clients_behind_haproxy_survive_the_end_of_a_master(tmp_path: Path) -> None:
    """With the configuration of the examples, of which only addresses and ports are replaced."""
    fronts = {61616: free_port(), 61613: free_port()}
    text = (Path(__file__).parents[2] / "examples" / "haproxy.cfg").read_text()
    for number, front in fronts.items():
        text = text.replace(f"bind :{number}", f"bind 127.0.0.1:{front}")
    with Pair(tmp_path / "store", "--health", "0") as pair:
        pair.wait_for_standby()
        for name, node in pair.nodes.items():
            for number in fronts:
                server = f"server {name} {name}.example:{number}"
                assert server in text
                text = text.replace(server, f"server {name} 127.0.0.1:{node.port} port {health_port(node)}")
        (tmp_path / "haproxy.cfg").write_text(text.replace(" port 8162", ""))
        uri = f"failover:(stomp://127.0.0.1:{fronts[61613]})?initialReconnectDelay=10&useExponentialBackOff=false"
        with haproxy(tmp_path / "haproxy.cfg", fronts.values()), pybroker.connect(uri) as connection:
            for number in range(20):
                connection.send("queue://x", str(number))
            began = time.monotonic()
            pair.wait_for_master().kill()
            connection.send("queue://x", "20")
            print(f"served again {time.monotonic() - began:.2f} s after the kill")
            with connection.consumer("queue://x") as consumer:
                received = [consumer.receive(timeout=SECONDS) for _ in range(21)]
            assert [each and each.body for each in received] == [str(number) for number in range(21)]
