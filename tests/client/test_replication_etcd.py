"""The election store of a replicated cluster fails under load: its nodes are killed and frozen, and its answers late.

`PYBROKER_ETCD_SECONDS=30` freezes the quorum for so long, and `PYBROKER_LATE_ANSWERS=100` has so many faults happen
while answers are late. A failure names its seed, and `PYBROKER_SEED` repeats the choices.

Source: specification of replication, section 14, checks 6 and 7.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.kills import SEED
from tests.client.replicated_load import SETTINGS, ReplicatedLoad
from tests.conftest import Java
from tests.etcd_cluster import EtcdCluster, EtcdNode, own_etcd, three_etcds
from tests.integration.linked_cluster import LinkedCluster
from tests.integration.replicated import LEASE
from tests.integration.replicated_register import ObservedCluster

__all__ = ["own_etcd", "three_etcds"]

QUORUM_SECONDS = float(os.environ.get("PYBROKER_ETCD_SECONDS", str(3 * LEASE)))
LATE_ANSWERS = int(os.environ.get("PYBROKER_LATE_ANSWERS", "3"))

pytestmark = [
    pytest.mark.component("etcd"),
    pytest.mark.timeout(240 + 5 * QUORUM_SECONDS + 30 * LATE_ANSWERS),
]


def compact(etcd: EtcdCluster) -> None:
    """Forget all of etcd's history, whatever watches have seen of it."""
    etcd.wait()
    revision = etcd.call("/v3/kv/range", {"key": "eA=="})["header"]["revision"]
    etcd.call("/v3/kv/compaction", {"revision": revision, "physical": True})


def freeze(nodes: list[EtcdNode], seconds: float, meanwhile: Callable[[], None]) -> None:
    for node in nodes:
        node.signal(signal.SIGSTOP)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        meanwhile()
    for node in nodes:
        node.signal(signal.SIGCONT)


def kill(etcd: EtcdCluster, nodes: list[EtcdNode], meanwhile: Callable[[], None]) -> None:
    for node in nodes:
        node.kill()
    meanwhile()
    for node in nodes:
        etcd.start(node)
    etcd.wait()


def test_clients_notice_nothing_of_failing_etcd_nodes(three_etcds: EtcdCluster, tmp_path: Path, java: Java) -> None:
    """With grace: no client is cut off, and sends go on all the time."""
    etcd = three_etcds
    with ObservedCluster(etcd, tmp_path, "ab", *SETTINGS) as cluster, ReplicatedLoad(cluster) as load:
        load.wait_received()
        epoch = cluster.record()["epoch"]
        leader = etcd.leader()
        kill(etcd, [leader], load.wait_received)
        compact(etcd)
        load.wait_received()
        leader = etcd.leader()
        followers = [node for node in etcd.nodes if node is not leader]
        freeze(followers, QUORUM_SECONDS, load.wait_received)
        compact(etcd)  # at once, so that watches which are behind lose what they have not read
        load.wait_received()
        freeze([etcd.leader(), followers[0]], QUORUM_SECONDS, load.wait_received)
        cluster.wait_recorded("a", "b")
        kill(etcd, etcd.nodes, load.wait_received)
        load.wait_received()
        assert load.interruptions == 0, cluster.describe()
        assert cluster.record()["epoch"] == epoch, cluster.describe()
        load.finish("etcd fails, with grace", 4, java)


def test_master_without_grace_stops_before_its_lease_ends(three_etcds: EtcdCluster, tmp_path: Path) -> None:
    """It resumes by itself, as soon as a quorum answers again."""
    etcd, silences = three_etcds, []
    settings = (*SETTINGS, "--no-replicate-grace")
    with ObservedCluster(etcd, tmp_path, "ab", *settings) as cluster, ReplicatedLoad(cluster) as load:
        for _ in range(2):
            load.wait_received()
            cluster.wait_recorded("a", "b")
            master = cluster.members[cluster.wait_serving()]
            frozen = [node for node in etcd.nodes if node is not etcd.nodes[0]]
            frozen_at = time.time()
            for node in frozen:
                node.signal(signal.SIGSTOP)
            master.lines.clear()
            master.wait_for("lost the lock: clients are cut off")
            threading.Event().wait(LEASE)
            silences.append(max(span.until for span in load.witness.spans) - frozen_at)
            for node in frozen:
                node.signal(signal.SIGCONT)
            load.wait_received()
        print(f"last answers {', '.join(f'{each:.2f}' for each in silences)} s after the freeze, lease {LEASE} s")
        assert max(silences) < LEASE, cluster.describe()
        load.finish("etcd fails, without grace", 2)


def test_master_that_is_alone_serves_again_after_its_lease(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    """Only its own store has what it has confirmed since it started."""
    with (
        ObservedCluster(own_etcd, tmp_path, "a", *SETTINGS, "--no-replicate-grace") as cluster,
        ReplicatedLoad(cluster) as load,
    ):
        load.wait_received()
        former = cluster.record()["durable"]  # empty until a renewal
        cluster.wait(lambda: cluster.record()["durable"] != former)
        master = cluster.members["a"]
        for node in own_etcd.nodes:
            node.signal(signal.SIGSTOP)
        master.lines.clear()
        master.wait_for("lost the lock: clients are cut off")
        for node in own_etcd.nodes:
            node.signal(signal.SIGCONT)
        load.wait_received()
        load.finish("alone, without grace", 1)


class Disturber:
    """Lets something happen to a member while the register is slow, so that it has to be changed just then."""

    def __init__(self, cluster: LinkedCluster, chooser: random.Random) -> None:
        self._cluster = cluster
        self._chooser = chooser
        self.counts: dict[str, int] = {}

    def disturb(self) -> None:
        kind = self._chooser.choice(("kill master", "freeze master", "freeze follower", "stall stream"))
        self.counts[kind] = self.counts.get(kind, 0) + 1
        master = self._cluster.wait_serving()
        (other,) = self._cluster.members.keys() - {master}
        seconds = self._chooser.uniform(0.5, 3) * LEASE
        if kind == "kill master":
            self._cluster.kill_together(master)
            self._pause(seconds)
            self._cluster.start(master)
        elif kind == "stall stream":
            link = self._cluster.to_member[master]
            way = self._chooser.choice((link.forth, link.back))
            way.stall()
            self._pause(seconds)
            way.flow()
        else:
            process = self._cluster.members[master if kind == "freeze master" else other].process
            process.send_signal(signal.SIGSTOP)
            self._pause(seconds)
            process.send_signal(signal.SIGCONT)

    def _pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)


def test_late_and_lost_answers_of_etcd_lose_nothing(own_etcd: EtcdCluster, tmp_path: Path, java: Java) -> None:
    """Requests are late by up to three leases, and one answer of ten is lost, while members fail."""
    chooser = random.Random(SEED)

    def delay() -> float:
        return chooser.uniform(0.0, 3 * LEASE) if chooser.random() < 0.3 else 0.0

    with LinkedCluster(own_etcd, tmp_path, "ab", *SETTINGS) as cluster, ReplicatedLoad(cluster) as load:
        disturber = Disturber(cluster, chooser)
        for _ in range(LATE_ANSWERS):
            load.wait_received()
            for link in cluster.to_store.values():
                link.forth.delay = delay
                link.back.loses = lambda: chooser.random() < 0.1
            disturber.disturb()
            load.wait_received()
            for link in cluster.to_store.values():
                link.forth.delay, link.back.loses = float, bool  # return 0.0, and False
            cluster.wait_recorded("a", "b")
        lost = sum(link.back.lost for link in cluster.to_store.values())
        print(f"{disturber.counts}, {lost} bytes of answers lost")
        load.finish("late answers of etcd", LATE_ANSWERS, java)
