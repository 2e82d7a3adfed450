# mypy: disable-error-code="misc"
"""STOMP over TLS, end to end: `pybroker start`, certificates made for the test, stomp.py as it is."""

import contextlib
import datetime
import os
import queue
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import warnings
from typing import Any

import pytest
import stomp
import trustme

from tests.integration.cluster import BrokerProcess, free_port

PATIENCE_SECONDS = 20
SOON = datetime.timedelta(days=2, hours=12)


class Inbox(stomp.ConnectionListener):
    """Collects messages and receipts."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.receipts: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def on_message(self, frame):
        self.messages.put(frame)

    def on_receipt(self, frame):
        self.receipts.put(frame.headers["receipt-id"])


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """A directory with the PEM files of an authority, a server and a client."""
    directory, authority = tmp_path_factory.mktemp("pem"), trustme.CA()
    authority.cert_pem.write_to_path(directory / "authority.pem")
    for name, identity in (("server", "127.0.0.1"), ("client", "client")):
        issued = authority.issue_cert(identity)
        issued.private_key_pem.write_to_path(directory / f"{name}-key.pem")
        issued.cert_chain_pems[0].write_to_path(directory / f"{name}.pem")
    return directory


@pytest.fixture
def start_tls(start, pem):
    """Start a broker with a TLS port of some kind; returns it and the port."""

    def start_tls(*extra: str, setting: str = "stomp-ssl") -> tuple[BrokerProcess, int]:
        port = free_port()
        files = ("--tls-certificate", str(pem / "server.pem"), "--tls-key", str(pem / "server-key.pem"))
        broker = start(f"--{setting}", str(port), *files, *extra, store="memory:")
        broker.wait_for("listening on")
        return broker, port

    return start_tls


@contextlib.contextmanager
def connection(port: int, pem, **files: str):
    client = stomp.Connection12([("127.0.0.1", port)], reconnect_attempts_max=1)
    client.set_ssl([("127.0.0.1", port)], ca_certs=str(pem / "authority.pem"), **files)
    inbox = Inbox()
    client.set_listener("inbox", inbox)
    client.connect("user", "password", wait=True)
    yield client, inbox
    reader = client.transport.io_thread
    client.disconnect()
    # Over TLS stomp.py takes the broker's end of the connection for nothing to read, and reads again, for as long as
    # the process lives: three such threads made all tests after these three times as slow.
    client.transport.running = False
    reader.join(PATIENCE_SECONDS)
    assert not reader.is_alive()


def read_over_tls(port: int, context: ssl.SSLContext, request: bytes = b"") -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted,
    ):
        encrypted.sendall(request)
        return encrypted.recv(100)


def exchange(port: int, pem, **files: str) -> None:
    body = "grüße " * 50_000
    with connection(port, pem, **files) as (client, inbox):
        client.subscribe("/queue/Q", id="1", ack="auto")
        client.send("/queue/Q", body, receipt="r", persistent="true")
        assert inbox.receipts.get(timeout=PATIENCE_SECONDS) == "r"
        assert inbox.messages.get(timeout=PATIENCE_SECONDS).body == body


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_stomp_py_over_tls(start_tls, pem, loop):
    broker, port = start_tls("--event-loop", loop)
    exchange(port, pem)
    broker.wait_for(f"event loop: {loop}")
    broker.wait_for(rf"listening on stomp://.*, stomp\+ssl://127\.0\.0\.1:{port}, ")


def test_clients_show_certificates_where_an_authority_is_set(start_tls, pem):
    broker, port = start_tls("--tls-client-ca", str(pem / "authority.pem"))
    files = {"cert_file": str(pem / "client.pem"), "key_file": str(pem / "client-key.pem")}
    exchange(port, pem, **files)
    with pytest.raises(ssl.SSLError, match="certificate required"):
        read_over_tls(port, ssl.create_default_context(cafile=pem / "authority.pem"))
    broker.wait_for(r"127\.0\.0\.1:\d+: TLS handshake failed: peer did not return a certificate")
    exchange(port, pem, **files)


def test_stomp_on_the_port_for_every_protocol(start_tls, pem):
    _, port = start_tls(setting="auto-ssl")
    exchange(port, pem)


def test_openwire_over_tls(start_tls, pem):
    broker, port = start_tls(setting="openwire-ssl")
    broker.wait_for(rf"listening on stomp://.*, ssl://127\.0\.0\.1:{port}, ")
    info = bytes.fromhex("00000016 01 4163746976654d51 0000000c 01 00000004 00000000")
    answer = read_over_tls(port, ssl.create_default_context(cafile=pem / "authority.pem"), info)
    assert answer[4:13] == info[4:13]


def test_a_failed_handshake_is_one_line(start_tls, pem):
    broker, port = start_tls("--connect-timeout", "2s")  # in which an unknown client stays silent, and a client is done
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as unknown:
        unknown.sendall(b"CONNECT\n\n\0")
        while unknown.recv(1000):
            pass
    silent = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    with silent, contextlib.suppress(ConnectionResetError):
        assert silent.recv(1) == b""
    broker.wait_for("TLS handshake failed: not over within 2 seconds")
    exchange(port, pem)
    assert broker.terminate() == 0
    assert sum("TLS" in line for line in broker.lines) == 2


def shown(port: int) -> bytes:
    """Return the certificate that a new connection is shown."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port), timeout=PATIENCE_SECONDS))


def test_sighup_serves_a_renewed_certificate(start, pem, tmp_path):
    port = free_port()
    for name in ("server.pem", "server-key.pem"):
        shutil.copy(pem / name, tmp_path)
    files = ("--tls-certificate", str(tmp_path / "server.pem"), "--tls-key", str(tmp_path / "server-key.pem"))
    broker = start("--stomp-ssl", str(port), *files, store="memory:")
    broker.wait_for("listening on")
    former = shown(port)
    (tmp_path / "server.pem").write_text("none")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for("ERROR .* tls_certificate: there is no certificate in ")
    assert shown(port) == former
    renewed = trustme.CA().issue_cert("127.0.0.1", not_after=datetime.datetime.now(datetime.UTC) + SOON)
    renewed.private_key_pem.write_to_path(tmp_path / "server-key.pem")
    renewed.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for("INFO .* certificates read again")
    broker.wait_for("WARNING .* a certificate in .*server.pem .tls_certificate. expires in 2 days")
    assert shown(port) == ssl.PEM_cert_to_DER_cert(renewed.cert_chain_pems[0].bytes().decode())
    assert broker.terminate() == 0


def test_an_expired_certificate_is_a_warning_at_the_start(start, tmp_path):
    expired = trustme.CA().issue_cert("127.0.0.1", not_after=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
    expired.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    broker = start("--stomp-ssl", str(free_port()), "--tls-certificate", str(tmp_path / "both.pem"), store="memory:")
    broker.wait_for("WARNING .*both.pem .tls_certificate. expired on 2020-01-01 00:00:00 UTC")
    broker.wait_for("listening on")


def test_a_wrong_key_is_found_before_anything_is_touched(tmp_path, pem):
    store = tmp_path / "store"
    files = ["--tls-certificate", str(pem / "server.pem"), "--tls-key", str(pem / "client-key.pem")]
    command = [sys.executable, "-m", "pybroker.broker.app.cli", "start", "--store", str(store), "--stomp-ssl", "0"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYBROKER_")}
    done = subprocess.run([*command, *files], env=clean, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert re.fullmatch(r"pybroker: tls_key: the key in .* does not belong to .*server\.pem\n", done.stderr)
    assert not store.exists()


CIPHER = "ECDHE-ECDSA-AES128-GCM-SHA256"


def spoken(port: int, pem, version: ssl.TLSVersion, ciphers: str = "ALL:@SECLEVEL=0") -> str | None:
    """Return the cipher that a client of one version gets; None if it is refused."""
    context = ssl.create_default_context(cafile=pem / "authority.pem")
    context.set_ciphers(ciphers)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted:
                cipher = encrypted.cipher()
        except ssl.SSLError:
            return None
    assert cipher is not None
    return cipher[0]


def test_versions_and_ciphers_are_those_of_the_settings_also_after_sighup(start_tls, pem):
    broker, port = start_tls("--tls-ciphers", CIPHER)
    _, newer = start_tls("--tls-version-min", "1.3")
    versions = ssl.TLSVersion
    for _ in range(2):
        assert [spoken(port, pem, each) for each in (versions.TLSv1, versions.TLSv1_1)] == [None, None]
        assert spoken(port, pem, versions.TLSv1_2) == CIPHER
        assert spoken(port, pem, versions.TLSv1_2, "ECDHE-ECDSA-AES256-GCM-SHA384") is None
        assert str(spoken(port, pem, versions.TLSv1_3)).startswith("TLS_")
        assert spoken(newer, pem, versions.TLSv1_2) is None
        assert str(spoken(newer, pem, versions.TLSv1_3)).startswith("TLS_")
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for("certificates read again")


def test_ciphers_that_do_not_exist_end_the_start(start, pem):
    broker = start(
        "--stomp-ssl", str(free_port()), "--tls-certificate", str(pem / "server.pem"), "--tls-key",
        str(pem / "server-key.pem"), "--tls-ciphers", "ECDHE-RSA-AES256-GMC-SHA384", store="memory:",
    )  # fmt: skip
    assert broker.join() == 2
    assert any(
        "tls_ciphers: OpenSSL has no such ciphers of TLS 1.2: ECDHE-RSA-AES256-GMC" in line for line in broker.lines
    )
