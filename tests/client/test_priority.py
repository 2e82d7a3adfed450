"""`priorityBackup`: with the preferred broker back, the client returns to it, once, and nothing is lost."""

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from pybroker.client.sync import connect
from pybroker.testing import Cluster
from tests.client.kills import PATIENCE_SECONDS, Worker, stop, wait_until


@pytest.fixture
def preferred() -> Iterator[Cluster]:
    """A broker with a store of its own."""
    with Cluster(1) as cluster:
        yield cluster


@pytest.fixture
def other() -> Iterator[Cluster]:
    with Cluster(1) as cluster:
        yield cluster


def drain(uri: str, received: Counter[object], flagged: set[object]) -> None:
    with connect(uri) as connection, connection.consumer("Q") as consumer:
        connection.send("Q", "end", timeout=PATIENCE_SECONDS)
        while (message := consumer.receive(PATIENCE_SECONDS)).body != "end":
            received[message.body] += 1
            if message.redelivered:
                flagged.add(message.body)


@pytest.mark.parametrize("named", [False, True], ids=["the URI's first", "priorityURIs"])
def test_the_client_returns_without_loss_or_flapping(preferred: Cluster, other: Cluster, named: bool) -> None:
    home, away = preferred.members[0], other.members[0]
    resumed: list[str] = []
    listed = f"{away.uri},{home.uri}" if named else f"{home.uri},{away.uri}"
    query = f"&priorityURIs={home.uri}" if named else ""
    uri = f"failover:({listed})?priorityBackup=true&maxReconnectDelay=200{query}"
    accepted: list[str] = []
    with connect(uri, on_resumed=resumed.append) as connection:
        assert connection.broker == home.uri

        def produce(stopping: threading.Event) -> None:
            while not stopping.is_set():
                body = f"m{len(accepted)}"
                connection.send("Q", body, timeout=PATIENCE_SECONDS)
                accepted.append(body)

        producer = Worker("producer", produce)
        try:
            more_than(accepted, 20, producer)
            home.kill9()
            wait_until(lambda: resumed == [away.uri], lambda: f"{resumed}", [producer])
            more_than(accepted, len(accepted) + 20, producer)
            home.restart()
            wait_until(lambda: connection.broker == home.uri, lambda: f"it stays with {connection.broker}", [producer])
            more_than(accepted, len(accepted) + 200, producer)
        finally:
            stop([producer])
        assert resumed == [away.uri, home.uri], "there and back, and no more"
    received, flagged = Counter[object](), set[object]()
    for broker in (home, away):
        drain(broker.uri, received, flagged)
    assert received.keys() >= set(accepted)
    # The one send that was under way when the first broker died may be on both.
    duplicates = {body for body, count in received.items() if count > 1}
    assert len(duplicates) <= 1


def more_than(accepted: list[str], count: int, producer: Worker) -> None:
    wait_until(lambda: len(accepted) > count, lambda: f"stuck at {len(accepted)}", [producer])


def test_in_a_pair_on_one_store_the_client_stays_with_the_master() -> None:
    """The preferred broker is back, but as a standby: there is nothing to return to."""
    resumed: list[str] = []
    with Cluster() as cluster:
        home, away = cluster.members
        uri = f"{cluster.uri}?priorityBackup=true&maxReconnectDelay=50"
        with connect(uri, on_resumed=resumed.append) as connection:
            assert connection.broker == home.uri
            home.kill9()
            connection.send("Q", "one", timeout=PATIENCE_SECONDS)
            home.restart()
            cluster.wait_standby()
            for number in range(50):
                connection.send("Q", f"{number}", timeout=PATIENCE_SECONDS)
            assert resumed == [away.uri]
            away.kill9()
            connection.send("Q", "two", timeout=PATIENCE_SECONDS)
            assert resumed == [away.uri, home.uri]
