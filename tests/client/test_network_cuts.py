"""A bridge of two pybrokers is cut, frozen and stopped under load: nothing is lost, and nothing comes twice unmarked.

`PYBROKER_CUTS=200` cuts so often; a failure names its seed, and `PYBROKER_SEED` repeats it.
"""

import json
import os
import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from pybroker.client.sync import Connection, Sending, connect
from pybroker.testing import Cluster
from tests.client.kills import PATIENCE_SECONDS, SEED, Ledger, Worker, consuming, report, stop, wait_until
from tests.client.kills import wait_for_the_rest as wait_for_rest
from tests.integration.cutting_proxy import CuttingProxy

MESSAGES: Final = int(os.environ.get("PYBROKER_MESSAGES", "10000"))
CUTS: Final = int(os.environ.get("PYBROKER_CUTS", "20"))
AHEAD: Final = 200
"""Messages that the producer has on their way."""
DISCOVERY: Final = "initialReconnectDelay=50&maxReconnectDelay=200"
_INITIAL: Final = "wireFormat.maxInactivityDurationInitalDelay=1000"  # codespell:ignore
INACTIVITY: Final = f"wireFormat.maxInactivityDuration=1000&{_INITIAL}"

pytestmark = pytest.mark.timeout(180)


@contextmanager
def broker(directory: Path, name: str, uri: str = "") -> Generator[Cluster]:
    """Run a broker with a store of its own, with a bridge if an address is given."""
    config = directory / f"{name}.toml"
    if uri:
        config.write_text(f'[[network]]\nname = "cuts"\nuri = "{uri}"\n')
    with Cluster(1, settings={"broker_name": name}, config=config if uri else None) as cluster:
        yield cluster


def port_of(cluster: Cluster) -> int:
    return cluster.members[0].openwire_port


def sending(connection: Connection, count: int, ledger: Ledger) -> Callable[[threading.Event], None]:
    """Send so many persistent messages, many of them at once, and record those that were answered."""

    def work(stopping: threading.Event) -> None:
        flying = [(n, connection.begin_send("CUTS", json.dumps(["p", n]))) for n in range(1, 1 + min(count, AHEAD))]
        for number in range(1 + AHEAD, 1 + count):
            accept(*flying.pop(0))
            if stopping.is_set():
                break
            flying.append((number, connection.begin_send("CUTS", json.dumps(["p", number]))))
        for each in flying:
            accept(*each)

    def accept(number: int, begun: Sending) -> None:
        begun.wait(PATIENCE_SECONDS)
        ledger.accept(("p", number))

    return work


class Flow:
    """Messages from a producer at the near broker to a consumer at the far one."""

    def __init__(self, near: Cluster, far: Cluster, count: int = MESSAGES) -> None:
        self.ledger = Ledger()
        self._connections = [connect(each.uri) for each in (near, far)]
        self.consumer = Worker(
            "consumer", consuming(self._connections[1], "CUTS", "individual", self.ledger, prefetch=100)
        )
        self.producer = Worker("producer", sending(self._connections[0], count, self.ledger))
        self._began = time.monotonic()

    def until_received(self, count: int) -> None:
        workers = (self.producer, self.consumer)
        wait_until(lambda: len(self.ledger.received) >= count, lambda: f"nothing comes, seed {SEED}", workers)

    def finish(self, name: str, interruptions: int) -> None:
        """Wait for all, and check the count."""
        self.producer.join()
        assert self.producer.failure is None, self.producer.failure
        wait_for_rest(self.ledger, [self.consumer])
        seconds = time.monotonic() - self._began
        stop([self.consumer])
        for each in self._connections:
            each.close()
        report(self.ledger.row(name, interruptions))
        print(f"{len(self.ledger.received) / seconds:.0f} messages/s, {seconds:.1f} s, seed {SEED}")
        assert not self.ledger.missing(), f"seed {SEED}"
        assert not self.ledger.unflagged, self.ledger.stories()
        assert not self.ledger.disorder, self.ledger.disorder[:5]


def test_twenty_cuts_lose_none_of_ten_thousand(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    with (
        broker(tmp_path, "far") as far,
        CuttingProxy(port_of(far)) as proxy,
        broker(tmp_path, "near", f"static:(tcp://127.0.0.1:{proxy.port})?{DISCOVERY}") as near,
    ):
        flow = Flow(near, far)
        for goal in sorted(dice.sample(range(1, MESSAGES - 2 * AHEAD), CUTS)):
            flow.until_received(goal)
            wait_until(lambda: proxy.cut() > 0, lambda: "the bridge does not dial again")
        flow.finish("bridge is cut", CUTS)


@pytest.mark.parametrize("frozen", ["near", "far"])
def test_frozen_broker_loses_nothing_and_doubles_nothing(tmp_path: Path, frozen: str) -> None:
    """It is frozen for longer than the limit to inactivity, wakes up, and finds a bridge that the other has ended."""
    with broker(tmp_path, "far") as far:
        uri = f"static:(tcp://127.0.0.1:{port_of(far)}?{INACTIVITY})?{DISCOVERY}"
        with broker(tmp_path, "near", uri) as near:
            flow = Flow(near, far, 3000)
            for goal in (300, 1200):
                flow.until_received(goal)
                stopped, other = (near, far) if frozen == "near" else (far, near)
                before = len(other.members[0].log)
                stopped.freeze()
                wait_until(
                    lambda: any("nothing was received for 1 seconds" in line for line in other.members[0].log[before:]),  # noqa: B023
                    lambda: "the other broker does not notice",
                )
                stopped.thaw()
            flow.finish(f"{frozen} broker is frozen", 2)


@pytest.mark.parametrize("stopped", ["near", "far"])
def test_stop_and_start_of_a_broker_loses_nothing(tmp_path: Path, stopped: str) -> None:
    with broker(tmp_path, "far") as far:
        uri = f"static:(tcp://127.0.0.1:{port_of(far)})?{DISCOVERY}"
        with broker(tmp_path, "near", uri) as near:
            flow = Flow(near, far, 3000)
            for goal in (300, 1200):
                flow.until_received(goal)
                cluster = near if stopped == "near" else far
                cluster.stop()
                cluster.restart(cluster.members[0].name)
            flow.finish(f"{stopped} broker is stopped", 2)
