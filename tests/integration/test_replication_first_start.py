"""First starts as a user types them, and stores that do not belong into a cluster: a sentence each (8.1, check 21)."""

import json
import shutil
from pathlib import Path

import pytest

import pybroker
from tests.etcd_cluster import EtcdCluster, etcd_cluster  # noqa: F401
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.replicated import LEASE, ReplicatedCluster

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(180)]


def fill(store: Path, count: int, *extra: str) -> None:
    """Make a store with messages, as a broker that was never replicated."""
    port = free_port()
    broker = BrokerProcess(str(store), name="old", port=free_port(), extra=("--openwire", str(port), *extra))
    try:
        broker.wait_for("clients are served")
        with pybroker.connect(f"tcp://127.0.0.1:{port}") as connection:
            for number in range(count):
                connection.send("queue://OLD", str(number))
        assert broker.terminate() == 0
    finally:
        broker.close()


def refusal(cluster: ReplicatedCluster, name: str) -> str:
    """Return the last line of a member that does not start."""
    member = cluster.members.pop(name)
    assert member.join() == 1, member.lines
    member.close()
    return member.lines[-1]


def test_existing_store_that_is_started_first_becomes_the_clusters(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    fill(tmp_path / "a", 3)
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "ab") as cluster, pybroker.connect(cluster.uri) as connection:
        cluster.kill("a")
        with connection.consumer("queue://OLD") as consumer:
            assert [consumer.receive(timeout=60).body for _ in range(3)] == ["0", "1", "2"]


def test_store_with_messages_of_its_own_is_refused_or_discarded(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    fill(tmp_path / "b", 3)
    before = (tmp_path / "b" / "kahadb" / "db-1.log").read_bytes()
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "a") as cluster:
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "of the cluster")
        cluster.add("b")
        line = refusal(cluster, "b")
        assert "this store has 3 messages that cluster test-" in line
        assert "whose master is a, does not know" in line
        assert "move it away, or add --replicate-discard" in line
        assert (tmp_path / "b" / "kahadb" / "db-1.log").read_bytes() == before, "nothing is changed"
        cluster.start("b", "--replicate-discard")
        cluster.wait_in_sync("a", "b")
        kept = tmp_path / "b" / "replica" / "discarded" / "store-1"
        cluster.members["b"].wait_for(f"the store that was here is kept in {kept}")
        assert (kept / "kahadb" / "db-1.log").read_bytes() == before
        cluster.wait_equal("a", "b")
        cluster.kill("b")
        cluster.start("b", "--replicate-discard")  # it belongs to the cluster now: nothing is discarded
        cluster.wait_in_sync("a", "b")
        assert [each.name for each in kept.parent.iterdir()] == ["store-1"]


def test_lost_record_stops_all_and_a_new_cluster_begins_by_hand(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    """By the steps of docs/replication.md, When the record does not fit."""
    register = etcd_cluster.url()
    with ReplicatedCluster(tmp_path, register, "ab") as cluster:
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "stays")
        etcd_cluster.delete(f"/pybroker/{register.rpartition('/')[2]}")
        for name in "ab":
            member = cluster.members[name]
            member.wait_for("ERROR .*it was lost.*: see docs/replication.md, When the record does not fit")
        for name in "ba":
            member = cluster.members.pop(name)
            assert member.terminate() == 0
            member.close()
        identity = cluster.store("a") / "replica" / "store.json"
        identity.rename(tmp_path / "store.json")
        cluster.start("a")
        cluster.members["a"].wait_for("clients are served")
        cluster.start("b", "--replicate-discard")
        cluster.wait_in_sync("a", "b")
        with pybroker.connect(cluster.uri) as connection, connection.consumer("queue://Q") as consumer:
            assert consumer.receive(timeout=60).body == "stays"


def test_copy_begins_a_new_cluster_when_the_machine_with_the_election_store_is_lost(
    tmp_path: Path,
    etcd_cluster: EtcdCluster,  # noqa: F811
) -> None:
    """By the steps of docs/replication.md, Two machines and no third place."""
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "a") as cluster:
        cluster.add("b", "--no-replicate-promote")
        cluster.wait_in_sync("a", "b")
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "kept")
        cluster.kill("a")
        cluster.members["b"].wait_for("replicate_promote is off for this member: waiting for a")
        cluster.kill("b")
        (cluster.store("b") / "replica" / "store.json").rename(tmp_path / "store.json")
        register = etcd_cluster.url()  # another name, in place of an etcd of its own
        cluster.add("b", register=register)
        cluster.members["b"].wait_for("clients are served")
        cluster.add("a", "--replicate-discard", register=register)
        cluster.wait_in_sync("a", "b")
        cluster.wait_equal("a", "b")
        assert (cluster.store("a") / "replica" / "discarded" / "store-1" / "store.json").exists()
        with pybroker.connect(cluster.uri) as connection, connection.consumer("queue://Q") as consumer:
            assert consumer.receive(timeout=60).body == "kept"


def test_store_of_another_cluster_is_refused_or_discarded(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    """As when two clusters have the same name: the election store was exchanged, or a disk comes from elsewhere."""
    for each in ("one", "two"):
        (tmp_path / each).mkdir()
    with ReplicatedCluster(tmp_path / "one", etcd_cluster.url(), "a") as one:
        with pybroker.connect(one.uri) as connection:
            connection.send("queue://Q", "of the first cluster")
        one.members["a"].terminate()
    shutil.move(tmp_path / "one" / "a", tmp_path / "two" / "b")
    with ReplicatedCluster(tmp_path / "two", etcd_cluster.url(), "a") as two:
        two.add("b")
        assert "this store belongs to another cluster than that of the name test-" in refusal(two, "b")
        two.start("b", "--replicate-discard")
        two.wait_in_sync("a", "b")
        kept = tmp_path / "two" / "b" / "replica" / "discarded" / "store-1"
        assert json.loads((kept / "store.json").read_text())["cluster"]
        assert b"of the first cluster" in (kept / "kahadb" / "db-1.log").read_bytes()


def test_nothing_is_discarded_while_the_election_store_is_away(tmp_path: Path) -> None:
    fill(tmp_path / "b", 1)
    extra = ("--replicate", f"etcd://127.0.0.1:{free_port()}/orders", "--replicate-discard")
    member = BrokerProcess(str(tmp_path / "b"), name="b", port=free_port(), extra=extra)
    try:
        assert member.join() == 1
        assert "the election store does not answer, so that it is not known" in member.lines[-1]
        assert (tmp_path / "b" / "kahadb" / "db-1.log").exists()
    finally:
        member.close()


def test_store_that_lacks_something_says_what_and_for_whom_it_waits(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    """A restored backup, an exchanged disk and a member that was left behind, while the master is down."""
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "ab", "--replicate-lease", f"{LEASE}s") as cluster:
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "both have it")
            cluster.kill("b")
            shutil.copytree(cluster.store("b"), tmp_path / "backup")
            cluster.wait_in_sync("a")
            connection.send("queue://Q", "a alone has it")
            cluster.wait_durable("a")
        cluster.kill("a")
        cluster.start("b")
        sentence = r"this store lacks what was confirmed up to db-\d+\.log, byte [\d,]+: waiting for a"
        cluster.members["b"].wait_for(sentence)
        cluster.wait_problem("b", "waiting for a")
        cluster.kill("b")
        shutil.rmtree(cluster.store("b"))
        cluster.start("b")
        cluster.members["b"].wait_for(sentence)
        cluster.kill("b")
        cluster.store("b").rename(tmp_path / "former")  # not removed: its inode numbers would be free for the copy
        shutil.copytree(tmp_path / "backup", cluster.store("b"))
        cluster.start("b")
        cluster.members["b"].wait_for("was copied or restored, so this store gets another id")
        cluster.members["b"].wait_for(sentence)
        cluster.start("a")
        cluster.wait_in_sync("a", "b")
        with pybroker.connect(cluster.uri) as connection, connection.consumer("queue://Q") as consumer:
            assert [consumer.receive(timeout=30).body for _ in range(2)] == ["both have it", "a alone has it"]


def test_backup_under_its_old_id_is_not_promoted(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    """As a snapshot of the disk brings it back, with the same inode numbers."""
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "ab") as cluster:
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "in the backup")
            files = sorted((cluster.store("b") / "kahadb").glob("db-*.log"))
            backup = {path: path.read_bytes() for path in files}
            connection.send("queue://Q", "not in it")
            cluster.wait_durable("a")
        cluster.kill("b")
        cluster.kill("a")
        for path, content in backup.items():
            path.write_bytes(content)
        cluster.start("b")
        cluster.members["b"].wait_for(
            r"this store ends at db-\d+\.log, byte [\d,]+, and lacks what was confirmed .*: waiting for"
        )
        cluster.start("a")
        cluster.wait_in_sync("a", "b")
        assert cluster.master() == "a"


def test_first_member_that_needs_a_second_one_says_so(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "") as cluster:
        cluster.add("a", "--replicate-min", "2")
        cluster.members["a"].wait_for("1 of 2 replicas in sync")
        cluster.wait_report("a", lambda found: found.get("in_sync") == 1)
        cluster.add("b", "--replicate-min", "2")
        cluster.wait_in_sync("a", "b")
