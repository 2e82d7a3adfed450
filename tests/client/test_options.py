"""Failover options on the wire: what each does to a connection, to real brokers. The others are in the unit tests."""

import asyncio
import gc
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pybroker.client.errors import BrokerMissing, ConnectionLost, Timeout, TransactionRolledBack
from pybroker.client.sync import Connection, connect
from pybroker.testing import Broker, Cluster

PATIENCE = 30.0
DEAD = "tcp://127.0.0.1:1"


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Broker, Broker]]:
    with Broker() as one, Broker() as other:
        yield one, other


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def failover(*uris: str, **options: object) -> str:
    query = "&".join(f"{name}={str(value).lower()}" for name, value in options.items())
    return f"failover:({','.join(uris)})?{query}"


class Listener(threading.Thread):
    """Accepts connections, counts them, and sends nothing."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.uri = f"tcp://127.0.0.1:{self.server.getsockname()[1]}"
        self.is_called = threading.Event()
        self._accepted: list[socket.socket] = []
        self.start()

    def run(self) -> None:
        while True:
            try:
                self._accepted.append(self.server.accept()[0])
            except OSError:
                return
            self.is_called.set()

    def close(self) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.join()
        for accepted in self._accepted:
            accepted.close()


# ---------------------------------------------------------------- which broker


def test_randomize_spreads_connections_and_false_takes_the_first(two: tuple[Broker, Broker]) -> None:
    one, other = two
    for randomize, expected in ((True, {one.uri, other.uri}), (False, {one.uri})):
        reached = set[str | None]()
        for _ in range(16):
            with connect(failover(one.uri, other.uri, randomize=randomize)) as connection:
                reached.add(connection.broker)
        assert reached == expected


def test_a_file_with_brokers_is_enough_to_find_one(two: tuple[Broker, Broker], tmp_path: Path) -> None:
    brokers = tmp_path / "brokers"
    brokers.write_text(f"{two[0].uri}\n")
    for url in (brokers, brokers.as_uri()):
        with connect(failover(DEAD, updateURIsURL=url)) as connection:
            assert connection.broker == two[0].uri
    with pytest.raises(BrokerMissing):
        connect(failover(DEAD, updateURIsURL=brokers, updateURIsSupported=False, maxReconnectAttempts=1))


def test_backup_holds_a_connection_to_another_broker(two: tuple[Broker, Broker]) -> None:
    for backup in (True, False):
        with (
            closing(Listener()) as spare,
            connect(failover(two[0].uri, spare.uri, backup=backup, randomize=False)) as connection,
        ):
            connection.send("Q", "x")
            assert spare.is_called.wait(PATIENCE if backup else 0.2) is backup


# ---------------------------------------------------------------- how often, how long


@pytest.mark.parametrize("option", ["maxReconnectAttempts", "startupMaxReconnectAttempts"])
def test_attempts_are_limited(option: str) -> None:
    with pytest.raises(BrokerMissing, match="2 attempts"):
        connect(failover(DEAD, **{option: 2}))


def test_connections_that_come_about_nowhere_leave_nothing_over() -> None:
    """Their thread ends by itself while they are closed; what is left over then is reported as an error."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(400):
            with pytest.raises(BrokerMissing):
                connect(failover(DEAD, maxReconnectAttempts=1))
    finally:
        sys.setswitchinterval(interval)
    gc.collect()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"reconnectDelayExponent": 3}, [0.05, 0.15, 0.45]),
        ({"backOffMultiplier": 3}, [0.05, 0.15, 0.45]),
        ({"useExponentialBackOff": False}, [0.05, 0.05, 0.05]),
        ({"maxReconnectDelay": 80}, [0.05, 0.08, 0.08]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_reconnect_delays_follow_the_options(
    options: dict[str, object], expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three pauses, before the fourth attempt."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("pybroker.client.link.asyncio.sleep", pause)
    with pytest.raises(BrokerMissing, match="4 attempts"):
        connect(failover(DEAD, maxReconnectAttempts=4, initialReconnectDelay=50, **options))
    assert pauses == pytest.approx(expected)


def test_no_attempts_leave_a_broken_connection_broken(cluster: Cluster) -> None:
    uris = [member.uri for member in cluster.members]
    with connect(failover(*uris, maxReconnectAttempts=0, randomize=False)) as connection:
        cluster.kill9("master")
        with pytest.raises(ConnectionLost):
            connection.send("Q", "x", timeout=PATIENCE)


def test_the_initial_delay_comes_before_the_first_attempt(cluster: Cluster) -> None:
    with connect(cluster.uri + "?initialReconnectDelay=1000") as connection:
        began = time.monotonic()
        cluster.kill9("master")
        connection.send("Q", "x", timeout=PATIENCE)
        assert time.monotonic() - began >= 1.0


def test_timeout_bounds_every_call(cluster: Cluster) -> None:
    uri = cluster.uri + "?timeout=300"
    with connect(uri, timeout=PATIENCE) as connection, connection.consumer("Q", timeout=PATIENCE) as consumer:
        producer = connection.producer("Q", timeout=PATIENCE)
        for member in cluster.members:
            cluster.kill9(member)
        for call in (
            lambda: connection.send("Q", "x"),
            lambda: producer.send("x"),
            lambda: connection.request("Q", "x"),
            lambda: connection.consumer("Q2"),
            lambda: connection.producer("Q2"),
            lambda: connection.temporary_destination(),
            lambda: next(connection.browse("Q")),
            lambda: consumer.receive(),
        ):
            with pytest.raises(Timeout):
                call()
    with pytest.raises(Timeout):
        connect(uri)


@pytest.mark.parametrize(("every", "warned"), [(0, 0), (3, 2)])
def test_warnings_come_at_the_configured_interval(every: int, warned: int, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BrokerMissing):
        connect(failover(DEAD, maxReconnectAttempts=5, warnAfterReconnectAttempts=every))
    assert caplog.text.count("no connection to") == warned


def test_nio_is_logged_as_tcp(two: tuple[Broker, Broker], caplog: pytest.LogCaptureFixture) -> None:
    with connect(two[0].uri.replace("tcp:", "nio:")):
        assert "taken as tcp:" in caplog.text


def test_frozen_broker_is_detected_after_the_inactivity_limit(cluster: Cluster) -> None:
    interrupted = threading.Event()
    nested = "nested.wireFormat.maxInactivityDuration=500&nested.wireFormat.maxInactivityDurationInitalDelay=100"
    with connect(f"{cluster.uri}?{nested}", on_interrupted=lambda _: interrupted.set()) as connection:
        connection.send("Q", "x")
        frozen = cluster.freeze("master")
        assert interrupted.wait(PATIENCE)
        frozen.kill9()
        connection.send("Q", "y", timeout=PATIENCE)


# ---------------------------------------------------------------- what comes back


def lost_on_its_way(cluster: Cluster, options: str, count: int) -> list[object]:
    """Send messages without answer that a dead broker swallows; return those that come on the next."""
    with connect(f"{cluster.uri}?{options}") as connection:
        connection.send("Q", "before")
        with connection.consumer("Q") as consumer:
            assert consumer.receive(PATIENCE).body == "before"
        cluster.partition("master")
        for number in range(count):
            connection.send("Q", number.to_bytes(), persistent=False)
        cluster.kill9("master")
        cluster.heal()
        connection.send("Q", "after", timeout=PATIENCE)
        return bodies_until(connection, "after")


def bodies_until(connection: Connection, last: str) -> list[object]:
    bodies: list[object] = []
    with connection.consumer("Q") as consumer:
        while (message := consumer.receive(PATIENCE)).body != last:
            if message.body != "before":
                bodies.append(message.body)
    return bodies


def test_messages_without_answer_are_lost_with_the_broker(cluster: Cluster) -> None:
    assert lost_on_its_way(cluster, "", 3) == []


def test_track_messages_sends_them_again(cluster: Cluster) -> None:
    assert lost_on_its_way(cluster, "trackMessages=true", 3) == [b"\0", b"\1", b"\2"]


def test_the_cache_keeps_the_latest(cluster: Cluster) -> None:
    kept = lost_on_its_way(cluster, "trackMessages=true&maxCacheSize=2500", 5)
    assert kept == [b"\3", b"\4"]


@pytest.mark.parametrize("tracks", [True, False])
def test_tracked_transaction_is_resent_after_a_failover(cluster: Cluster, tracks: bool) -> None:
    with connect(f"{cluster.uri}?trackTransactionProducers={str(tracks).lower()}") as connection:
        transaction = connection.transaction()
        transaction.send("Q", "one")
        cluster.kill9("master")
        connection.send("OTHER", "x", timeout=PATIENCE)
        if tracks:
            transaction.send("Q", "two")
            transaction.commit()
            with connection.consumer("Q") as consumer:
                assert [consumer.receive(PATIENCE).body for _ in range(2)] == ["one", "two"]
        else:
            with pytest.raises(TransactionRolledBack):
                transaction.send("Q", "two")
