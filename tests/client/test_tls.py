"""OpenWire over TLS: a broker that is trusted is connected to; no other is, nor is it tried again."""

import contextlib
import ssl
from pathlib import Path

import pytest
import trustme

from pybroker.client import UntrustedBroker, connect
from tests.integration.cluster import BrokerProcess, free_port

PATIENCE = 30.0


def test_a_broker_is_trusted_only_with_its_authority(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    port = free_port()
    files = ("--tls-certificate", str(tmp_path / "certificate.pem"), "--tls-key", str(tmp_path / "key.pem"))
    broker = BrokerProcess("memory:", name="a", port=free_port(), extra=("--openwire-ssl", str(port), *files))
    with contextlib.closing(broker):
        broker.wait_for("listening on")
        with connect(f"ssl://127.0.0.1:{port}", ssl_context=context, timeout=PATIENCE) as connection:
            connection.send("queue://q", "x" * 100_000)
            with connection.consumer("queue://q") as consumer:
                assert consumer.receive(PATIENCE).body == "x" * 100_000
        for uri in (f"failover:(ssl://127.0.0.1:{port})", f"failover:(ssl://localhost:{port})"):
            with pytest.raises(UntrustedBroker):
                connect(uri, timeout=PATIENCE, ssl_context=context if "localhost" in uri else None)
