"""OpenWire over TLS: a broker that is trusted is connected to; no other is, nor is it tried again."""

import contextlib
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from pybroker.client import BrokerMissing, UntrustedBroker, connect
from tests.integration.cluster import BrokerProcess, free_port

PATIENCE = 30.0
VALID_FROM = datetime(2020, 1, 1, tzinfo=UTC)
EXPIRED = VALID_FROM + timedelta(days=1)


@contextlib.contextmanager
def secured(authority: trustme.CA, directory: Path, *options: str, not_after: datetime | None = None) -> Iterator[int]:
    """Run a broker with a certificate; yields its port."""
    issued = authority.issue_cert("127.0.0.1", not_before=VALID_FROM, not_after=not_after)
    directory.mkdir(exist_ok=True)
    issued.private_key_pem.write_to_path(directory / "key.pem")
    issued.cert_chain_pems[0].write_to_path(directory / "certificate.pem")
    port = free_port()
    files = ("--tls-certificate", str(directory / "certificate.pem"), "--tls-key", str(directory / "key.pem"))
    extra = ("--openwire-ssl", str(port), *files, *options)
    with contextlib.closing(BrokerProcess("memory:", name="a", port=free_port(), extra=extra)) as broker:
        broker.wait_for("listening on")
        yield port


def test_a_broker_is_trusted_only_with_its_authority(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with secured(authority, tmp_path) as port:
        with connect(f"ssl://127.0.0.1:{port}", ssl_context=context, timeout=PATIENCE) as connection:
            connection.send("queue://q", "x" * 100_000)
            with connection.consumer("queue://q") as consumer:
                assert consumer.receive(PATIENCE).body == "x" * 100_000
        for uri in (f"failover:(ssl://127.0.0.1:{port})", f"failover:(ssl://localhost:{port})"):
            with pytest.raises(UntrustedBroker):
                connect(uri, timeout=PATIENCE, ssl_context=context if "localhost" in uri else None)


@pytest.mark.parametrize("scheme", ["ssl", "stomp+ssl"])
@pytest.mark.parametrize("kind", ["stomp", "openwire"])
def test_a_port_without_tls_is_named(scheme: str, kind: str) -> None:
    ports = {"stomp": free_port(), "openwire": free_port()}
    node = BrokerProcess("memory:", name="a", port=ports["stomp"], extra=("--openwire", str(ports["openwire"])))
    with contextlib.closing(node) as broker:
        broker.wait_for("listening on")
        with pytest.raises(BrokerMissing, match=f"ssl://127.0.0.1:{ports[kind]}: answers without TLS: use"):
            connect(f"{scheme}://127.0.0.1:{ports[kind]}", timeout=PATIENCE)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_without_required_certificate_does_not_retry(tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    context = ssl.create_default_context()
    context.maximum_version = version
    authority.configure_trust(context)
    with secured(authority, tmp_path, "--tls-client-ca", str(tmp_path / "authority.pem")) as port:
        uri = f"failover:(ssl://127.0.0.1:{port})?maxReconnectDelay=50"
        with pytest.raises(UntrustedBroker, match="does not trust this client"):
            connect(uri, timeout=PATIENCE, ssl_context=context)
        authority.issue_cert("client").configure_cert(context)
        with connect(uri, timeout=PATIENCE, ssl_context=context) as connection:
            connection.send("queue://q", "x")


def test_an_expired_certificate_leaves_the_other_broker(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with (
        secured(authority, tmp_path / "expired", not_after=EXPIRED) as expired,
        secured(authority, tmp_path / "good") as good,
    ):
        uri = f"failover:(ssl://127.0.0.1:{expired},ssl://127.0.0.1:{good})?randomize=false&maxReconnectDelay=50"
        with connect(uri, timeout=PATIENCE, ssl_context=context) as connection:
            assert connection.broker == f"ssl://127.0.0.1:{good}"
            connection.send("queue://q", "x")
        with pytest.raises(UntrustedBroker, match="expired"):
            connect(f"failover:(ssl://127.0.0.1:{expired},tcp://127.0.0.1:1)", timeout=PATIENCE, ssl_context=context)
