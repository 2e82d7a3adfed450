"""Masters at both ends of a bridge are killed under load, and what came out at the far end is counted.

A pair of brokers bridges to another pair, each on a store of its own, by `masterslave:`. Clients of the first pair send
persistent messages, a thousand a second together; a client of the second pair acknowledges what it receives. Whatever
was accepted must come, and twice only with the mark of redelivery.

`PYBROKER_KILLS=100` kills so often for each pair of brokers; a failure names its seed, and `PYBROKER_SEED` repeats it.
"""

import json
import os
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pybroker.client.sync import Connection, connect
from pybroker.testing import Cluster
from tests.client.brokers import Pair, PybrokerPair, StockPair, stock_classes
from tests.client.kills import PATIENCE_SECONDS, SEED, Ledger, Worker, consuming, finish, report, wait_until
from tests.conftest import Java

KILLS = int(os.environ.get("PYBROKER_KILLS", "3"))
PRODUCERS = 4
MESSAGES_PER_SECOND = 1000
RECEIVED_BETWEEN_KILLS = 2000
"""The limit to the messages that come over the bridge before the next kill."""
DISCOVERY = "initialReconnectDelay=100&maxReconnectDelay=500"

pytestmark = pytest.mark.timeout(120 + 15 * KILLS)


@contextmanager
def pybrokers(directory: Path, name: str, remote_uri: str = "") -> Generator[Pair]:
    """Run two of ours, with a bridge to another pair if its URI is given."""
    directory.mkdir()
    config = directory / "pybroker.toml"
    if remote_uri:
        config.write_text(f'[[network]]\nname = "kills"\nuri = "{masterslave(remote_uri)}"\n')
    with PybrokerPair(Cluster(settings={"broker_name": name}, config=config if remote_uri else None)) as pair:
        yield pair


@contextmanager
def stock_pair(java: Java, directory: Path, remote_uri: str = "") -> Generator[Pair]:
    """Run two stock ones, with a bridge to another pair if its URI is given."""
    policies = (f"network=kills:{masterslave(remote_uri)}",) if remote_uri else ()
    with StockPair(stock_classes(java), directory, policies) as pair:
        yield pair


def masterslave(failover_uri: str) -> str:
    """Return the discovery URI of a pair that clients know as `failover:`."""
    return f"masterslave:{failover_uri.removeprefix('failover:')}?{DISCOVERY}"


def producing(connection: Connection, name: str, ledger: Ledger) -> Callable[[threading.Event], None]:
    """Send one message after the other, each when it is due; after an interruption the next ones are not hurried."""

    def work(stopping: threading.Event) -> None:
        number, due, pause = 0, time.monotonic(), PRODUCERS / MESSAGES_PER_SECOND
        while not stopping.is_set():
            number += 1
            connection.send("KILLS", json.dumps([name, number]), timeout=PATIENCE_SECONDS)
            ledger.accept((name, number))
            due = max(due + pause, time.monotonic() - 1.0)
            threading.Event().wait(max(0.0, due - time.monotonic()))

    return work


def kill_in_turn(pairs: Sequence[Pair], ledger: Ledger, workers: Sequence[Worker]) -> list[int]:
    """Kill masters of either pair, each at a random moment while messages come; return how many of each."""
    chooser, kills = random.Random(SEED), [0 for _ in pairs]
    both = [*range(len(pairs))]
    for chosen in [*chooser.sample(both, len(both)), *chooser.choices(both, k=KILLS - len(both))]:
        goal = len(ledger.received) + chooser.randrange(1, RECEIVED_BETWEEN_KILLS)
        wait_until(lambda: len(ledger.received) >= goal, lambda: f"nothing comes, seed {SEED}", workers)  # noqa: B023
        pairs[chosen].kill()
        pairs[chosen].revive()
        kills[chosen] += 1
    return kills


def kill_and_count(near: Pair, far: Pair, name: str) -> Ledger:
    """Kill masters under load, and report what was counted.

    Args:
        near: the pair that has the connector.
        far: the one that it bridges to.
        name: of the row.
    """
    ledger = Ledger()
    connections = [connect(near.uri) for _ in range(PRODUCERS)] + [connect(far.uri)]
    consumer = Worker("consumer", consuming(connections[-1], "KILLS", "individual", ledger, prefetch=100))
    producers = [Worker(f"p{n}", producing(each, f"p{n}", ledger)) for n, each in enumerate(connections[:PRODUCERS])]
    begun = time.monotonic()
    kills = kill_in_turn([near, far], ledger, [*producers, consumer])
    rate = len(ledger.received) / (time.monotonic() - begun)
    finish(producers, [consumer], connections, ledger)
    report(ledger.row(name, sum(kills)))
    print(f"{kills[0]} kills at the near end, {kills[1]} at the far end; {rate:.0f} messages/s came; seed {SEED}")
    assert not ledger.missing(), f"seed {SEED}"
    return ledger


def test_kills_at_both_ends_lose_nothing(tmp_path: Path) -> None:
    with pybrokers(tmp_path / "far", "far") as far, pybrokers(tmp_path / "near", "near", far.uri) as near:
        ledger = kill_and_count(near, far, "pybroker to pybroker")
    assert not ledger.unflagged, ledger.stories()


@pytest.mark.component("activemq")
def test_kills_of_activemq_and_its_remote_lose_nothing(java: Java, tmp_path: Path) -> None:
    with pybrokers(tmp_path / "far", "far") as far, stock_pair(java, tmp_path / "near", far.uri) as near:
        ledger = kill_and_count(near, far, "ActiveMQ to pybroker")
    assert not ledger.unflagged, ledger.stories()


@pytest.mark.component("activemq")
def test_kills_of_the_remote_activemq_lose_nothing(java: Java, tmp_path: Path) -> None:
    """A stock broker does not store that it has given a message out, so that duplicates may be without the mark."""
    with stock_pair(java, tmp_path / "far") as far, pybrokers(tmp_path / "near", "near", far.uri) as near:
        kill_and_count(near, far, "pybroker to ActiveMQ")
