"""A replicated cluster without its election store, with frozen members, and with a disk that was exchanged."""

import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from pybroker.client.errors import NoRoom, Timeout
from pybroker.client.sync import Connection, connect
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.integration.replicated import LEASE
from tests.integration.replicated_register import ObservedCluster

__all__ = ["own_etcd"]

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(180)]

SECONDS = 30.0


def receive_all(connection: Connection, count: int) -> list[str]:
    """Take so many messages, each acknowledged, and no more."""
    with connection.consumer("ORDERS", ack="individual") as consumer:
        found = []
        for _ in range(count):
            message = consumer.receive(timeout=SECONDS)
            found.append(str(message.body))
            message.ack()
        with pytest.raises(Timeout):
            consumer.receive(timeout=0.2)
    return found


def test_clients_notice_nothing_while_the_election_store_is_away(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    """The standby hears its master and promises not to stand, so that the master may go on (3.5)."""
    interruptions: list[Exception] = []
    with ObservedCluster(own_etcd, tmp_path) as cluster:
        epoch = cluster.record()["epoch"]
        with connect(cluster.uri, timeout=SECONDS, on_interrupted=interruptions.append) as connection:
            (node,) = own_etcd.nodes
            node.signal(signal.SIGSTOP)
            thawed_at = time.monotonic() + 3 * LEASE
            count = 0
            while time.monotonic() < thawed_at:
                connection.send("ORDERS", str(count), timeout=SECONDS)
                count += 1
            cluster.wait_report("a", lambda found: found["grace_active"])
            node.signal(signal.SIGCONT)
            cluster.wait_recorded("a", "b")
            cluster.wait_report("a", lambda found: not found["grace_active"])
            connection.send("ORDERS", str(count), timeout=SECONDS)
            assert receive_all(connection, count + 1) == [str(number) for number in range(count + 1)]
        assert not interruptions, cluster.describe()
        assert cluster.record()["epoch"] == epoch


def test_frozen_master_confirms_nothing_after_its_lease(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    """What it had in hand is sent again by its client, and stored once."""
    with ObservedCluster(own_etcd, tmp_path) as cluster:
        answered: list[int] = []

        def send() -> None:
            with connect(cluster.uri, timeout=SECONDS) as connection:
                for number in range(400):
                    connection.send("ORDERS", str(number), timeout=SECONDS)
                    answered.append(number)

        sender = threading.Thread(target=send)
        sender.start()
        cluster.wait(lambda: len(answered) > 100)
        process = cluster.members["a"].process
        process.send_signal(signal.SIGSTOP)
        cluster.wait_serving("b")
        process.send_signal(signal.SIGCONT)
        sender.join(SECONDS)
        assert len(answered) == 400, cluster.describe()
        cluster.wait_recorded("a", "b")
        with connect(cluster.uri, timeout=SECONDS) as connection:
            assert receive_all(connection, 400) == [str(number) for number in range(400)]
        cluster.members["a"].wait_for("lost the lock: clients are cut off")
        cluster.wait_logically_equal("a", "b")


def test_exchanged_disk_is_filled_and_not_promoted_before(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    """An empty directory has another id than the store that was there, so that it is not taken for it (3.1)."""
    with ObservedCluster(own_etcd, tmp_path) as cluster:
        former = cluster.store_id("b")
        with connect(cluster.uri, timeout=SECONDS) as connection:
            for number in range(50):
                connection.send("ORDERS", str(number), timeout=SECONDS)
        cluster.kill_together("a", "b")
        shutil.rmtree(cluster.store("b"))
        cluster.start("b")
        cluster.members["b"].wait_for("standby")
        end = time.monotonic() + 3 * LEASE
        cluster.wait(lambda: time.monotonic() > end or cluster.recorded_master() == "b")
        assert cluster.recorded_master() != "b", cluster.describe()
        assert former in cluster.record()["insync"]
        cluster.start("a")
        cluster.wait_serving("a")
        cluster.wait_recorded("a", "b")
        assert cluster.store_id("b") != former
        cluster.kill_together("a")
        cluster.wait_serving("b")
        with connect(cluster.uri, timeout=SECONDS) as connection:
            assert receive_all(connection, 50) == [str(number) for number in range(50)]


def test_record_that_too_few_have_is_not_answered(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    """Both are killed while one of them alone has it: it comes once or not at all, and both agree on that (4.3)."""
    with ObservedCluster(own_etcd, tmp_path, "ab", "--replicate-min", "2") as cluster:
        master = cluster.wait_serving()
        (other,) = {"a", "b"} - {master}
        with connect(cluster.uri, timeout=SECONDS) as connection:
            connection.send("ORDERS", "answered", timeout=SECONDS)
            cluster.members[other].process.send_signal(signal.SIGSTOP)
            with pytest.raises((Timeout, NoRoom)):  # a slow machine notices first that too few are in sync
                connection.send("ORDERS", "never answered", timeout=0.5)
        cluster.kill_together(master, other)
        cluster.start(other)
        cluster.members[other].wait_for("asking to become master|standby: following")
        cluster.start(master)
        cluster.wait_recorded("a", "b")
        with connect(cluster.uri, timeout=SECONDS) as connection:
            connection.send("ORDERS", "last", timeout=SECONDS)
            with connection.consumer("ORDERS", ack="individual") as consumer:
                bodies = [consumer.receive(timeout=SECONDS).body]
                while bodies[-1] != "last":
                    bodies.append(consumer.receive(timeout=SECONDS).body)
        assert bodies in (["answered", "last"], ["answered", "never answered", "last"])
        cluster.wait_logically_equal("a", "b")


def test_frozen_master_without_an_heir_serves_again(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    """Its lease is over, and no other member may stand: it knows how far its store reaches, and resumes."""
    with ObservedCluster(own_etcd, tmp_path, "a") as cluster:
        cluster.add("b", "--no-replicate-promote")
        cluster.wait_in_sync("a", "b")
        with connect(cluster.uri, timeout=SECONDS) as connection:
            for number in range(20):
                connection.send("ORDERS", str(number), timeout=SECONDS)
            cluster.wait_durable("a")
            epoch = cluster.record()["epoch"]
            process = cluster.members["a"].process
            process.send_signal(signal.SIGSTOP)
            time.sleep(2 * LEASE)  # the freeze itself
            process.send_signal(signal.SIGCONT)
            connection.send("ORDERS", "20", timeout=SECONDS)
            assert receive_all(connection, 21) == [str(number) for number in range(21)]
        assert cluster.record()["epoch"] > epoch, cluster.describe()
