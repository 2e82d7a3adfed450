"""The `[[listeners]]` tables at a running broker: several listeners of a kind, each with its own limits and TLS."""

import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from pybroker.broker.app import status
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, encode_offer
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.openwire_client import OpenWireClient
from tests.integration.stomp_client import StompClient
from tests.unit.transports.certificates import Certificates

Start = Callable[..., BrokerProcess]
SECONDS = 30.0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(directory=tmp_path_factory.mktemp("pem"))


@pytest.fixture
def serve(start: Start, tmp_path: Path) -> Callable[..., BrokerProcess]:
    """Start a broker with tables, each of which is given by its lines."""

    def serve(*tables: str, store: str = "memory:", plain: str = "") -> BrokerProcess:
        config = tmp_path / "broker.toml"
        config.write_text(plain + "\n" + "\n".join(f"[[listeners]]\n{each}\n" for each in tables))
        broker = start("--config", str(config), store=store)
        broker.wait_for("listening on")
        return broker

    return serve


def wire_format(port: int, context: ssl.SSLContext | None, host: str = "127.0.0.1") -> bytes:
    """Return the beginning of the broker's WireFormatInfo, its answer to that of a client.

    Raises:
        ssl.SSLError: the client is refused.
    """
    with socket.create_connection((host, port), timeout=SECONDS) as plain:
        connection = plain if context is None else context.wrap_socket(plain, server_hostname="127.0.0.1")
        with connection:
            connection.sendall(encode_offer(Offer(max_inactivity_ms=0)))
            head = connection.recv(4)
            answer = b""
            while len(answer) < int.from_bytes(head) and (chunk := connection.recv(1000)):
                answer += chunk
            return answer


def shown(port: int) -> bytes:
    """Return the certificate that a new connection is shown."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port), timeout=SECONDS))


def test_openwire_listeners_with_different_limits_and_demands(serve: Start, files: Certificates) -> None:
    need, want, plain = free_port(), free_port(), free_port()
    tls = f"protocol = 'openwire'\ntls = true\ntls_client_ca = '{files.authority}'\n"
    broker = serve(
        f"{tls}name = 'need'\nport = {need}\nframe_max = '1mb'",
        f"{tls}name = 'want'\nport = {want}\nframe_max = '2mb'\ntls_client_auth = 'want'",
        f"protocol = 'openwire'\nname = 'plain'\nport = {plain}\nframe_max = '3mb'",
        plain=f"tls_certificate = '{files.both}'",
    )
    named = rf"ssl://127\.0\.0\.1:{need}#need, ssl://127\.0\.0\.1:{want}#want, tcp://127\.0\.0\.1:{plain}#plain"
    broker.wait_for(rf"listening on .*{named}")
    stranger, client = files.client_context(), files.client_context(files.client)
    with pytest.raises(ssl.SSLError, match="certificate required"):
        wire_format(need, stranger)
    answers = {
        1: wire_format(need, client),
        2: wire_format(want, stranger),
        3: wire_format(plain, None),
    }
    for megabytes, answer in answers.items():
        assert (megabytes << 20).to_bytes(8) in answer
    assert (2 << 20).to_bytes(8) in wire_format(want, client)


def test_an_authority_of_one_listener_does_not_count_at_another(serve: Start, files: Certificates) -> None:
    ours, strange = free_port(), free_port()
    tls = f"protocol = 'openwire'\ntls = true\ntls_certificate = '{files.both}'\n"
    serve(
        f"{tls}port = {ours}\ntls_client_ca = '{files.authority}'",
        f"{tls}port = {strange}\ntls_client_ca = '{files.strange_authority}'",
    )
    assert wire_format(ours, files.client_context(files.client))
    assert wire_format(strange, files.client_context(files.strange_client))
    with pytest.raises(ssl.SSLError, match="unknown ca"):
        wire_format(strange, files.client_context(files.client))


def test_every_interface_of_ipv4_and_of_both(serve: Start) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this kernel has no IPv6")
    ipv4, both = free_port(), free_port()
    serve(
        f"protocol = 'openwire'\nhost = '0.0.0.0'\nport = {ipv4}", f"protocol = 'openwire'\nhost = '::'\nport = {both}"
    )
    for port, host in ((ipv4, "127.0.0.1"), (both, "127.0.0.1"), (both, "::1")):
        assert wire_format(port, None, host)
    with pytest.raises(ConnectionRefusedError):
        wire_format(ipv4, None, "::1")


def test_a_full_listener_refuses_while_another_is_open(serve: Start) -> None:
    small, large = free_port(), free_port()
    broker = serve(
        f"protocol = 'stomp'\nname = 'small'\nport = {small}\nconnections_max = 1",
        f"protocol = 'stomp'\nname = 'large'\nport = {large}",
    )
    with closing(StompClient(small)), socket.create_connection(("127.0.0.1", small), timeout=SECONDS) as late:
        with late.makefile("rb") as stream:
            assert b"This broker has its 1000 connections already, its port has its 1," in stream.read()
        broker.wait_for("refused .* at small: 1 connections of that listener are open already")
        with closing(StompClient(large)), closing(StompClient(large)), closing(StompClient(broker.port)):
            pass


def test_the_certificate_of_one_listener_is_renewed(serve: Start, files: Certificates, tmp_path: Path) -> None:
    own, other = free_port(), free_port()
    shutil.copy(files.both, tmp_path / "own.pem")
    broker = serve(
        f"protocol = 'stomp'\ntls = true\nport = {own}\ntls_certificate = '{tmp_path / 'own.pem'}'",
        f"protocol = 'openwire'\ntls = true\nport = {other}\ntls_certificate = '{files.both}'",
    )
    former = shown(own)
    assert shown(other) == former
    renewed = trustme.CA().issue_cert("127.0.0.1")
    renewed.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for("INFO .* certificates read again, for new connections: .*/both.pem")
    assert shown(own) == ssl.PEM_cert_to_DER_cert(renewed.cert_chain_pems[0].bytes().decode())
    assert shown(other) == former


def test_ipv6_beside_ipv4_at_one_port(serve: Start) -> None:
    port = free_port()
    broker = serve(
        f"protocol = 'openwire'\nhost = '127.0.0.1'\nport = {port}",
        f"protocol = 'openwire'\nhost = '::1'\nport = {port}\nframe_max = '2mb'",
    )
    broker.wait_for(rf"tcp://127\.0\.0\.1:{port}#openwire, tcp://\[::1\]:{port}#openwire_2")
    assert (2 << 20).to_bytes(8) not in wire_format(port, None)
    assert (2 << 20).to_bytes(8) in wire_format(port, None, "::1")
    with closing(OpenWireClient(port, "c")) as client:
        info = next(each for each in client.others if type(each).__name__ == "BrokerInfo")
        assert info.broker_url == f"tcp://127.0.0.1:{port}"


def test_networks_of_one_listener(serve: Start) -> None:
    closed, opened = free_port(), free_port()
    broker = serve(
        f"protocol = 'stomp'\nport = {closed}\nallow = '10.0.0.0/8'",
        f"protocol = 'stomp'\nport = {opened}",
    )
    with socket.create_connection(("127.0.0.1", closed), timeout=SECONDS) as refused:
        assert refused.recv(1) == b""
    broker.wait_for("refused 127.0.0.1: its network is not one that may connect")
    with closing(StompClient(opened)):
        pass


def test_status_shows_the_names_of_listeners(serve: Start, tmp_path: Path) -> None:
    port = free_port()
    broker = serve(f"protocol = 'stomp'\nname = 'partners'\nport = {port}", store=str(tmp_path / "store"))
    expected = f"master: a at stomp://127.0.0.1:{broker.port}, stomp://127.0.0.1:{port}#partners"
    deadline = time.monotonic() + SECONDS
    while expected not in (lines := status.describe(status.read(str(tmp_path / "store")))):
        assert time.monotonic() < deadline, lines
