"""Replicated members as their users start them, over a real etcd: first start, take-over, rejoin, too few replicas."""

import time
from pathlib import Path

import pytest

import pybroker
from pybroker.broker.app.status import describe, read
from pybroker.client.errors import NoRoom, Timeout
from pybroker.store.replica.identity import boot_id
from tests.etcd_cluster import EtcdCluster, etcd_cluster  # noqa: F401
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.replicated import LEASE, ReplicatedCluster

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(180)]

TWO_DISKS = ("--replicate-min", "2", "--replicate-timeout", "5s")
MARGIN_SECONDS = 8.0
"""For a busy machine, in which processes start late."""


def test_killed_master_is_replaced_and_comes_back_as_a_copy(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    with ReplicatedCluster(tmp_path, etcd_cluster.url()) as cluster:
        assert cluster.master() == "a"
        assert not cluster.status("b")["master"]
        cluster.wait_in_sync("a", "b")
        answer = describe(read(str(cluster.store("b"))))[0]
        assert answer.endswith(": a; this store's member is b, a standby")
        with pybroker.connect(cluster.uri) as connection:
            for number in range(50):
                connection.send("queue://Q", str(number))
            connection.send("queue://LATER", "later", properties={"AMQ_SCHEDULED_DELAY": 600_000})
            began = time.monotonic()
            cluster.kill("a")
            connection.send("queue://Q", "50", timeout=60)
            assert time.monotonic() - began < LEASE + MARGIN_SECONDS
            assert cluster.master() == "b"
            cluster.start("a")
            cluster.wait_in_sync("a", "b")
            connection.send("queue://Q", "51")
            cluster.kill("b")
            with connection.consumer("queue://Q") as consumer:
                received = [consumer.receive(timeout=60) for _ in range(52)]
                assert [each.body for each in received] == [str(number) for number in range(52)]
        cluster.start("b")
        cluster.wait_in_sync("a", "b")
        contents = cluster.wait_equal("a", "b")
        assert any(b"later" in content for content in contents.values())


def test_stopped_master_hands_over_at_once(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    with ReplicatedCluster(tmp_path, etcd_cluster.url()) as cluster, pybroker.connect(cluster.uri) as connection:
        connection.send("queue://Q", "first")
        assert cluster.members["a"].terminate() == 0
        connection.send("queue://Q", "second", timeout=60)
        heir = cluster.members["b"]
        assert "has released the cluster" in heir.wait_for("election: (.*): asking to become master")[1]
        with connection.consumer("queue://Q") as consumer:
            assert [consumer.receive(timeout=30).body for _ in range(2)] == ["first", "second"]


def test_members_that_stopped_in_order_serve_after_a_reboot_without_sync(
    tmp_path: Path,
    etcd_cluster: EtcdCluster,  # noqa: F811
) -> None:
    """A machine that fails loses what was not synced, so a store gets another id then; but not after a stop."""
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "ab", "--sync", "never") as cluster:
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "stays")
        for name in "ba":
            member = cluster.members.pop(name)
            assert member.terminate() == 0
            member.close()
            reboot(cluster.store(name))
        for name in "ab":
            cluster.start(name)
        cluster.wait_in_sync("a", "b")
        with pybroker.connect(cluster.uri) as connection, connection.consumer("queue://Q") as consumer:
            assert consumer.receive(timeout=30).body == "stays"


def test_machine_that_failed_without_sync_comes_back_as_a_copy(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "ab", "--sync", "never") as cluster:
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "stays")
        cluster.kill("b")
        reboot(cluster.store("b"))
        cluster.wait_in_sync("a")
        cluster.start("b")
        cluster.members["b"].wait_for("it gets another id")
        cluster.wait_in_sync("a", "b")


def reboot(store: Path) -> None:
    """Have a store find that its machine was started again."""
    identity = store / "replica" / "store.json"
    identity.write_text(identity.read_text().replace(boot_id(), "another-start-of-the-machine"))


def test_with_too_few_replicas_nothing_is_confirmed_and_new_sends_are_refused(
    tmp_path: Path,
    etcd_cluster: EtcdCluster,  # noqa: F811
) -> None:
    with (
        ReplicatedCluster(tmp_path, etcd_cluster.url(), "ab", *TWO_DISKS) as cluster,
        pybroker.connect(cluster.uri) as connection,
    ):
        connection.send("queue://Q", "on both disks")
        cluster.members["a"].lines.clear()  # at its start, too, there was one replica alone
        cluster.kill("b")
        with pytest.raises((Timeout, NoRoom)):
            connection.send("queue://Q", "on one disk", timeout=1)
        cluster.members["a"].wait_for("1 of 2 replicas in sync")
        with pytest.raises(NoRoom, match="1 of 2 replicas in sync"):
            connection.send("queue://Q", "refused", timeout=10)
        cluster.members["a"].lines.clear()
        cluster.start("b")
        cluster.members["a"].wait_for("enough replicas are in sync again")
        connection.send("queue://Q", "on both disks again", timeout=30)
        with connection.consumer("queue://Q") as consumer:
            bodies = [consumer.receive(timeout=30).body]
            while bodies[-1] != "on both disks again":
                bodies.append(consumer.receive(timeout=30).body)
        assert bodies in (
            ["on both disks", "on one disk", "on both disks again"],
            ["on both disks", "on both disks again"],
        )


def test_store_outside_the_set_does_not_serve(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    with ReplicatedCluster(tmp_path, etcd_cluster.url()) as cluster:
        cluster.kill("b")
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "only on a", timeout=30)
        cluster.wait_in_sync("a")
        cluster.kill("a")
        cluster.start("b")
        outsider = cluster.members["b"]
        outsider.wait_for("following")
        deadline = time.monotonic() + 4 * LEASE
        while time.monotonic() < deadline:
            outsider.drain(0.1)
        assert cluster.report("b")["role"] == "STANDBY"
        assert not cluster.report("b")["is_in_sync"]
        cluster.start("a")
        cluster.wait_in_sync("a", "b")
        assert cluster.master() == "a"


def test_store_with_messages_of_no_cluster_is_refused(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    register = etcd_cluster.url()
    port = free_port()
    alone = BrokerProcess(str(tmp_path / "c"), name="c", port=free_port(), extra=("--openwire", str(port)))
    alone.wait_for("clients are served")
    with pybroker.connect(f"tcp://127.0.0.1:{port}") as connection:
        connection.send("queue://Q", "stored alone")
    assert alone.terminate() == 0
    alone.close()
    with ReplicatedCluster(tmp_path, register, "a") as cluster:
        extra = ("--openwire", str(port), "--replicate", register, "--replicate-port", str(free_port()))
        stranger = BrokerProcess(str(tmp_path / "c"), name="c", port=free_port(), extra=extra)
        try:
            stranger.wait_for("this store has 1 message that cluster .* does not know")
        finally:
            stranger.close()
        assert cluster.master() == "a"
