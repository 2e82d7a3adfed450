"""Comparison and repair of replicated stores, the state of all members on each, and the metrics, over a real etcd."""

import random
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import pybroker
from pybroker.store.journal.reader import DataFileWalk
from tests.etcd_cluster import EtcdCluster, etcd_cluster  # noqa: F401
from tests.integration.cluster import free_port
from tests.integration.replicated import ReplicatedCluster

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(180)]

SMALL_FILES = ("--journal-file-max", "1mb", "--journal-batch-max", "256kb")
FLIPS = 100


def replica(cluster: ReplicatedCluster, act: str, name: str) -> tuple[int, str]:
    """Run `pybroker replica` for a member's store; return the exit code and what is printed."""
    command = [sys.executable, "-m", "pybroker.broker.app.cli", "replica", act, "--store", str(cluster.store(name))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_flipped_bytes_of_a_copy_are_found_and_repaired(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "ab", *SMALL_FILES) as cluster:
        with pybroker.connect(cluster.uri) as connection:
            for number in range(60):
                connection.send("queue://Q", f"{number} " + "x" * 100_000)
        contents = cluster.wait_equal("a", "b")
        assert replica(cluster, "verify", "b")[0] == 0
        newest = {journal: max(number for each, number in contents if each is journal) for journal, _ in contents}
        places = [
            (journal, number, offset)
            for (journal, number), content in contents.items()
            if number != newest[journal]
            for offset in range(len(content))
        ]
        flipped = random.Random(17).sample(places, FLIPS)
        for journal, number, offset in flipped:
            path = cluster.store("b") / journal.register_name / f"db-{number}.log"
            with path.open("r+b") as file:
                file.seek(offset)
                byte = file.read(1)
                file.seek(offset)
                file.write(bytes([byte[0] ^ 1]))
        damaged = {f"{journal.register_name}/db-{number}.log" for journal, number, _ in flipped}
        code, text = replica(cluster, "verify", "a")
        assert code == 3, text
        assert {line.partition(":")[0] for line in text.splitlines() if ": differs" in line} == damaged
        assert f"b: {len(damaged)} of {len(contents)} data files" in text
        assert replica(cluster, "repair", "a")[0] == 4
        code, text = replica(cluster, "repair", "b")
        assert code == 0, text
        assert {line.partition(":")[0] for line in text.splitlines() if "fetched" in line} == damaged
        assert replica(cluster, "verify", "a")[0] == 0
        cluster.wait_equal("a", "b")


def test_messages_that_are_damaged_at_the_master_come_from_a_copy(
    tmp_path: Path,
    etcd_cluster: EtcdCluster,  # noqa: F811
) -> None:
    """The new master reads its backlog from its disk, and that of a record's header is wrong (10)."""
    count = 30
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "ab") as cluster:
        with pybroker.connect(cluster.uri) as connection:
            for number in range(count):
                connection.send("queue://Q", f"message {number:02}")
        cluster.wait_equal("a", "b")
        cluster.kill("a")
        cluster.members["b"].wait_for("clients are served")
        damaged = damage(cluster.store("b"), b"message 07", b"message 19")
        cluster.start("a")
        cluster.wait_in_sync("a", "b")
        with pybroker.connect(cluster.uri) as connection, connection.consumer("queue://Q") as consumer:
            found = [consumer.receive(timeout=60).body for _ in range(count)]
        assert found == [f"message {number:02}" for number in range(count)]
        for offset in damaged:
            cluster.members["b"].wait_for(f"the record at offset {offset} is damaged on this disk, and was read from")


def damage(store: Path, *texts: bytes) -> list[int]:
    """Change the headers of the records that have these texts; return their offsets."""
    path = store / "kahadb" / "db-1.log"
    records = list(DataFileWalk(path.read_bytes(), 1))
    offsets = [next(location.offset for location, payload in records if text in payload) for text in texts]
    with path.open("r+b") as file:
        for offset in offsets:
            file.seek(offset + 4)
            file.write(b"\x09")
    return offsets


def test_each_member_shows_all_members_and_has_metrics(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    ports = {"a": free_port(), "b": free_port()}
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "") as cluster:
        for name, port in ports.items():
            cluster.add(name, "--management", f"127.0.0.1:{port}")
            cluster.master()
        cluster.wait_in_sync("a", "b")
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "counted")
        assert replica(cluster, "verify", "a")[0] == 0
        for name in ports:
            cluster.wait_report(
                name,
                lambda found: (
                    [(each["state"], each["lag_bytes"]) for each in found.get("members", ())]
                    == [("master", 0), ("in-sync", 0)]
                ),
            )
            shown = cluster.status(name)["ha"]["replica"]
            assert [(each["name"], each["lag_bytes"]) for each in shown["members"]] == [("a", 0), ("b", 0)]
            assert shown["master"] == "a"
            cluster.wait_report(name, lambda found: found.get("successors") == ["b"])
        metrics = {name: scrape(port) for name, port in ports.items()}
        for text in metrics.values():
            assert 'pybroker_replica_in_sync{member="b"} 1.0' in text
            assert "pybroker_replica_in_sync_count 2.0" in text
            assert "pybroker_replica_min 1.0" in text
            assert "pybroker_replica_register_seconds" in text
            assert "pybroker_replica_last_verified_seconds" in text
        assert 'pybroker_replica_promotions_total{cause="first"} 1.0' in metrics["a"]
        assert 'pybroker_replica_set_changes_total{reason="caught_up"} 1.0' in metrics["a"]
        assert "pybroker_replica_lease_left_seconds" in metrics["a"]
        assert "pybroker_replica_confirm_seconds_count" in metrics["a"]
        assert "pybroker_replica_lease_left_seconds" not in metrics["b"]


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
