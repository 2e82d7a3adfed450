"""Peers that go silent or elsewhere: SIGSTOP, names with new addresses, TLS that ends while TCP does not."""

import contextlib
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from pybroker.client import BrokerMissing, UntrustedBroker, connect
from pybroker.testing import Cluster
from tests.client.kills import (
    KILL_SECONDS,
    SEED,
    Ledger,
    Worker,
    consuming,
    nothing_left,
    producing,
    report,
    stop,
    wait_until,
)
from tests.client.test_tls import VALID_FROM, secured
from tests.integration.cluster import BrokerProcess, free_port
from tests.pace import in_time

pytestmark = pytest.mark.timeout(120 + 2 * KILL_SECONDS)

PATIENCE = 30.0
SILENCE_MS = 300
NESTED = (
    f"nested.wireFormat.maxInactivityDuration={SILENCE_MS}&nested.wireFormat.maxInactivityDurationInitalDelay=100"
    "&maxReconnectDelay=100"
)


# ---------------------------------------------------------------- SIGSTOP


def drain(uri: str, ledger: Ledger) -> None:
    """Consume what is left on a broker, up to a last message."""
    last = (uri, 1)
    with connect(uri) as connection:
        connection.send("KILLS", json.dumps(last), timeout=PATIENCE)
        drainer = Worker("drain", consuming(connection, "KILLS", "auto", ledger))
        wait_until(lambda: last in ledger.received, lambda: "the last message does not come", [drainer])
        stop([drainer])


@pytest.mark.parametrize("protocol", ["OpenWire", "STOMP"])
def test_a_stopped_broker_costs_a_pause_and_no_message(protocol: str) -> None:
    """Two brokers with stores of their own are stopped in turn; each time the client goes on with the other."""
    ledger, chooser, stops = Ledger(), random.Random(SEED), 0
    with Cluster(1) as one, Cluster(1) as two, nothing_left():
        members = [one.members[0], two.members[0]]
        uris = [member.uri if protocol == "OpenWire" else member.stomp_uri for member in members]
        uri = f"failover:({','.join(uris)})?{NESTED}"
        sending, receiving = connect(uri), connect(uri)
        workers = [
            Worker("p", producing(sending, "p", ledger)),
            Worker("c", consuming(receiving, "KILLS", "individual", ledger)),
        ]
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline:
            accepted = len(ledger.accepted)
            wait_until(lambda: len(ledger.accepted) > accepted + 20, lambda: "nothing is accepted", workers)  # noqa: B023
            threading.Event().wait(chooser.uniform(0.0, 0.2))
            served_by = sending.broker
            stopped = members[uris.index(served_by)] if served_by in uris else members[0]
            stopped.freeze()
            stops += 1
            accepted = len(ledger.accepted)
            wait_until(lambda: len(ledger.accepted) > accepted + 20, lambda: "it stays with a frozen broker", workers)  # noqa: B023
            stopped.thaw()
        stop(workers)
        sending.close()
        receiving.close()
        for each in uris:
            drain(each, ledger)
    report(ledger.row(f"pybroker, {protocol}, SIGSTOP", stops))
    assert not ledger.missing()
    assert stops > 0


@pytest.mark.parametrize("protocol", ["OpenWire", "STOMP"])
@pytest.mark.parametrize("backlog", ["accepts", "full"])
def test_a_silent_broker_leaves_time_for_the_next(protocol: str, backlog: str) -> None:
    """A process that is stopped accepts TCP; a machine that is off does not even answer to that."""
    with Cluster(1) as cluster, contextlib.ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        if backlog == "full":
            for _ in range(2):
                waiting = held.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(listener.getsockname())
        member = cluster.members[0]
        uri = member.uri if protocol == "OpenWire" else member.stomp_uri
        silent = f"{uri.partition(':')[0]}://127.0.0.1:{listener.getsockname()[1]}"
        with connect(f"failover:({silent},{uri})?randomize=false", timeout=4.0) as connection:
            assert connection.broker == uri


# ---------------------------------------------------------------- names


@contextlib.contextmanager
def brokers_at(port: int, *hosts: str) -> Iterator[list[BrokerProcess]]:
    """Run a broker at each of these addresses, all on one port."""
    with contextlib.ExitStack() as held:
        brokers: list[BrokerProcess] = []
        for host in hosts:
            extra = ("--openwire", str(port), "--bind", host)
            broker = BrokerProcess("memory:", name=host, port=free_port(), extra=extra)
            held.enter_context(contextlib.closing(broker))
            brokers.append(broker)
        for broker in brokers:
            broker.wait_for("listening on")
        yield brokers


def test_a_name_is_looked_up_for_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["127.0.0.2"]
    asked: list[str] = []

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    port = free_port()
    with brokers_at(port, "127.0.0.2", "127.0.0.3") as (first, _):
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        with connect(f"failover:(tcp://broker.example:{port})?maxReconnectDelay=50") as connection:
            connection.send("Q", "to the first")
            addresses.clear()  # the record is taken out of the zone ...
            first.kill()
            wait_until(lambda: len(asked) > 3, lambda: f"{asked}")
            addresses += ["127.0.0.2", "127.0.0.3"]  # ... and comes back with another machine
            connection.send("Q", "to the second", timeout=PATIENCE)
            connection.send("Q", "end", timeout=PATIENCE)
            with connection.consumer("Q") as consumer:
                assert [consumer.receive(PATIENCE).body for _ in range(2)] == ["to the second", "end"]


# ---------------------------------------------------------------- TLS


@pytest.mark.parametrize("sends_close_notify", [True, False], ids=["close_notify", "truncated"])
def test_tls_that_ends_is_a_lost_connection(sends_close_notify: bool) -> None:
    """The peer sends close_notify and leaves TCP open, or ends TCP without it."""
    authority = trustme.CA()
    ours, theirs = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(ours)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    over = threading.Event()

    def serve() -> None:
        with listener.accept()[0] as plain:
            encrypted = theirs.wrap_socket(plain, server_side=True, suppress_ragged_eofs=True)
            encrypted.recv(1000)  # the greeting
            if sends_close_notify:
                with contextlib.suppress(OSError):
                    plain = encrypted.unwrap()
                over.wait(PATIENCE)
            else:
                plain = socket.socket(fileno=encrypted.detach())
            plain.close()

    with nothing_left(), contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        server = Worker("server", lambda _: serve())
        uri = f"failover:(ssl://127.0.0.1:{listener.getsockname()[1]})?maxReconnectAttempts=1"
        began = time.monotonic()
        with pytest.raises(BrokerMissing):
            connect(uri, ssl_context=ours, timeout=PATIENCE)
        assert in_time(time.monotonic() - began, PATIENCE / 3)
        over.set()
        stop([server])


def test_a_client_certificate_that_has_expired_is_named(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    with secured(authority, tmp_path, "--tls-client-ca", str(tmp_path / "authority.pem")) as port:
        uri = f"failover:(ssl://127.0.0.1:{port})?maxReconnectDelay=50"
        for not_after, is_good in ((VALID_FROM + timedelta(days=1), False), (None, True)):
            context = ssl.create_default_context()
            authority.configure_trust(context)
            authority.issue_cert("client", not_before=VALID_FROM, not_after=not_after).configure_cert(context)
            if is_good:
                with connect(uri, timeout=PATIENCE, ssl_context=context) as connection:
                    connection.send("queue://q", "x")
            else:
                with pytest.raises(UntrustedBroker, match=r"does not trust this client.*EXPIRED"):
                    connect(uri, timeout=PATIENCE, ssl_context=context)
