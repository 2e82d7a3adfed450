"""The one line of a standby, `replicate = "tcp://…"`: it learns the cluster from its master, and keeps that (8.2)."""

import json
from pathlib import Path

import pytest

import pybroker
from tests.etcd_cluster import EtcdCluster, etcd_cluster  # noqa: F401
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.replicated import ReplicatedCluster

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(180)]


def test_standby_learns_the_cluster_and_starts_without_its_master(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    url = etcd_cluster.url()
    with ReplicatedCluster(tmp_path, url, "a") as cluster:
        cluster.add("b", register=cluster.address("a"))
        cluster.members["b"].wait_for("the election store of the cluster is etcd://")
        cluster.wait_in_sync("a", "b")
        with pybroker.connect(cluster.uri) as connection:
            connection.send("queue://Q", "kept")
        cluster.kill("b")
        cluster.kill("a")
        cluster.start("b")
        assert cluster.master() == "b"
        with pybroker.connect(cluster.uri) as connection, connection.consumer("queue://Q") as consumer:
            assert consumer.receive(timeout=30).body == "kept"
        kept = json.loads((cluster.store("b") / "replica" / "store.json").read_text())
        assert json.loads(kept["election"])["url"] == url
        cluster.start("a")
        cluster.wait_in_sync("a", "b")


def test_standby_waits_for_its_master_and_says_so(tmp_path: Path, etcd_cluster: EtcdCluster) -> None:  # noqa: F811
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "a") as cluster:
        address = cluster.address("a")
        cluster.kill("a")
        cluster.add("b", register=address)
        sentence = f"waiting for the master at {address.removeprefix('tcp://')}, from which it learns"
        cluster.members["b"].wait_for(sentence)
        cluster.wait_problem("b", sentence)
        assert cluster.members["b"].terminate() == 0
        cluster.members["b"].close()
        cluster.start("b")
        cluster.start("a")
        cluster.wait_in_sync("a", "b")


@pytest.mark.parametrize("url", ["tcp://a.example", "tcp://:61620", "tcp://a.example:0", "tcp://a.example:x"])
def test_what_is_no_address_is_refused(tmp_path: Path, url: str) -> None:
    extra = ("--replicate", url)
    member = BrokerProcess(str(tmp_path / "store"), name="b", port=free_port(), extra=extra)
    try:
        assert member.join() == 2
        assert "replicate: " in member.lines[-1]
        assert "write tcp://HOST:61620" in member.lines[-1]
    finally:
        member.close()
