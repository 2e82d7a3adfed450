"""A store goes from a stock ActiveMQ to a replicated cluster and back: all members have what it holds."""

from contextlib import closing
from pathlib import Path

import pytest

import pybroker
from tests.etcd_cluster import EtcdCluster, etcd_cluster  # noqa: F401
from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.replicated import ReplicatedCluster
from tests.java.checks import Programs

pytestmark = [pytest.mark.component("activemq"), pytest.mark.component("etcd"), pytest.mark.timeout(240)]


def stop(activemq: ActiveMQProcess) -> None:
    """End a broker in order, so that its store is closed."""
    assert activemq.process.stdin is not None
    activemq.process.stdin.close()
    assert activemq.process.wait(timeout=60) == 0


def test_an_activemq_goes_on_with_a_members_store(
    programs: Programs,
    etcd_cluster: EtcdCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    with ReplicatedCluster(tmp_path, etcd_cluster.url()) as cluster:
        with pybroker.connect(cluster.uri) as connection:
            for number in range(30):
                connection.send("queue://Q", str(number))
            connection.send("queue://LATER", "later", properties={"AMQ_SCHEDULED_DELAY": 600_000})
        for name in "ab":  # the last one that stops has everything
            assert cluster.members.pop(name).terminate() == 0
        with closing(ActiveMQProcess(programs.class_path, cluster.store("b"))) as activemq:
            with pybroker.connect(activemq.wait().uri) as connection:
                with connection.consumer("queue://Q") as consumer:
                    for number in range(20):
                        assert consumer.receive(timeout=30).body == str(number)
                for number in range(30, 40):
                    connection.send("queue://Q", str(number))
            stop(activemq)
        cluster.start("b")
        assert cluster.master() == "b"
        cluster.start("a")
        cluster.wait_in_sync("a", "b")
        contents = cluster.wait_equal("a", "b")
        assert any(b"later" in content for content in contents.values())
        cluster.kill("b")
        with pybroker.connect(cluster.uri) as connection, connection.consumer("queue://Q") as consumer:
            assert [consumer.receive(timeout=60).body for _ in range(20)] == [str(number) for number in range(20, 40)]
        assert cluster.master() == "a"


def test_the_store_of_an_activemq_becomes_that_of_a_cluster(
    programs: Programs,
    etcd_cluster: EtcdCluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "") as cluster:
        with closing(ActiveMQProcess(programs.class_path, cluster.store("a"))) as activemq:
            with pybroker.connect(activemq.wait().uri) as connection:
                for number in range(20):
                    connection.send("queue://Q", str(number))
            stop(activemq)
        cluster.add("a")
        assert cluster.master() == "a"
        cluster.add("b")
        cluster.wait_in_sync("a", "b")
        cluster.wait_equal("a", "b")
        cluster.kill("a")
        with pybroker.connect(cluster.uri) as connection, connection.consumer("queue://Q") as consumer:
            assert [consumer.receive(timeout=60).body for _ in range(20)] == [str(number) for number in range(20)]
