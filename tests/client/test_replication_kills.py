"""Members of a replicated cluster are killed and frozen under load, and what was accepted is counted.

Each member has a directory of its own. The data files are small, so that kills also meet new files, removals and
compaction. Whatever was accepted must come; in the end all stores must be equal,
and a stock ActiveMQ must open each.

`PYBROKER_KILLS=50` interrupts so often; a failure names its seed, and `PYBROKER_SEED` repeats the choices.
"""

import os
import random
import signal
import threading
from pathlib import Path

import pytest

from pybroker.client.sync import connect
from tests.client.kills import (
    PATIENCE_SECONDS,
    SEED,
    Ledger,
    Worker,
    consuming,
    finish,
    producing_in_transactions,
    report,
    wait_until,
)
from tests.client.replicated_load import check_stores, sending
from tests.conftest import Java
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.integration.replicated import LEASE
from tests.integration.replicated_register import LeaseCluster, ObservedCluster
from tests.kubernetes_cluster import KubernetesCluster, kubernetes_cluster

__all__ = ["kubernetes_cluster", "own_etcd"]

BODY_BYTES, PAUSE_SECONDS = 4096, 0.003
"""Each message, and the time to the next one: data files of 1 MB are full soon."""

KILLS = int(os.environ.get("PYBROKER_KILLS", "4"))
SETTINGS = ("--journal-file-max", "1mb", "--journal-batch-max", "256kb", "--cleanup-interval", "300ms")

SIZES = (("ab", 1), ("abc", 2))
"""The members of a cluster, and how many stores must have what is confirmed."""

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(120 + 30 * KILLS)]


class Disturber:
    """Kills and freezes members, each time at a random moment, and heals the cluster again."""

    def __init__(self, cluster: ObservedCluster, names: str) -> None:
        self._cluster = cluster
        self._names = names
        self._chooser = random.Random(SEED)
        self.counts: dict[str, int] = {}
        self._kinds = (self.kill_master, self.kill_follower, self.kill_all, self.freeze_master, self.freeze_follower)

    def disturb(self) -> None:
        """Disturb the cluster once all its stores are in sync, and repair what was done."""
        chosen = self._chooser.choice(self._kinds)
        self._cluster.wait_recorded(*self._names)
        self._pause(0.0, 0.7)
        self.counts[chosen.__name__] = self.counts.get(chosen.__name__, 0) + 1
        chosen()

    def kill_master(self) -> None:
        self._kill(self._cluster.wait_serving())

    def kill_follower(self) -> None:
        self._kill(self._follower())

    def kill_all(self) -> None:
        names = [*self._names]
        self._cluster.kill_together(*names)
        self._chooser.shuffle(names)
        for name in names:
            self._pause(0.0, 1.0)
            self._cluster.start(name)

    def freeze_master(self) -> None:
        self._freeze(self._cluster.wait_serving())

    def freeze_follower(self) -> None:
        self._freeze(self._follower())

    def _follower(self) -> str:
        master = self._cluster.wait_serving()
        return self._chooser.choice([name for name in self._names if name != master])

    def _kill(self, name: str) -> None:
        self._cluster.kill_together(name)
        self._pause(0.0, 2 * LEASE)
        self._cluster.start(name)

    def _freeze(self, name: str) -> None:
        process = self._cluster.members[name].process
        process.send_signal(signal.SIGSTOP)
        self._pause(0.2 * LEASE, 2 * LEASE)
        process.send_signal(signal.SIGCONT)

    def _pause(self, least: float, most: float) -> None:
        threading.Event().wait(self._chooser.uniform(least, most))


@pytest.mark.parametrize(("names", "minimum"), SIZES)
def test_kills_and_freezes_lose_nothing(
    own_etcd: EtcdCluster, tmp_path: Path, java: Java, names: str, minimum: int
) -> None:
    with ObservedCluster(own_etcd, tmp_path, names, "--replicate-min", str(minimum), *SETTINGS) as cluster:
        kill_and_freeze(cluster, java, names)


@pytest.mark.component("kubernetes")
@pytest.mark.parametrize(("names", "minimum"), SIZES)
def test_kills_and_freezes_with_a_lease_of_kubernetes_lose_nothing(
    kubernetes_cluster: KubernetesCluster, tmp_path: Path, java: Java, names: str, minimum: int
) -> None:
    with LeaseCluster(kubernetes_cluster, tmp_path, names, "--replicate-min", str(minimum), *SETTINGS) as cluster:
        kill_and_freeze(cluster, java, names)


def kill_and_freeze(cluster: ObservedCluster, java: Java, names: str) -> None:
    """Kill and freeze members under load, and check what was accepted, and the stores."""
    ledger = Ledger()
    connections = [connect(cluster.uri, timeout=PATIENCE_SECONDS) for _ in range(6)]
    producers = [
        Worker("p1", sending(connections[0], "p1", ledger, pause=PAUSE_SECONDS, size=BODY_BYTES)),
        Worker("p2", sending(connections[1], "p2", ledger, pause=PAUSE_SECONDS, size=BODY_BYTES)),
        Worker(
            "later",
            sending(connections[2], "later", ledger, delay_ms=1500, pause=PAUSE_SECONDS, size=BODY_BYTES),
        ),
        Worker("tx", producing_in_transactions(connections[3], "tx", ledger, pause=0.01)),
    ]
    consumers = [Worker(f"c{n}", consuming(connections[n], "KILLS", "individual", ledger)) for n in (4, 5)]
    disturber = Disturber(cluster, names)
    for _ in range(KILLS):
        goal = len(ledger.received) + 50
        wait_until(
            lambda: len(ledger.received) >= goal,  # noqa: B023
            lambda: f"nothing comes, seed {SEED}\n{cluster.describe()}",
            [*producers, *consumers],
        )
        disturber.disturb()
    cluster.wait_recorded(*names)
    finish(producers, consumers, connections, ledger)
    print(f"{disturber.counts}, seed {SEED}")
    report(ledger.row(f"replicated {names}", KILLS))
    assert not ledger.missing(), f"seed {SEED}"
    assert not ledger.half(), f"seed {SEED}"
    assert not ledger.refused & ledger.received.keys(), f"seed {SEED}"
    check_stores(cluster, *names, java=java)
