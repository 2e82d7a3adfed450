"""Disks of replicated members that fill up, or fail: each side does what the table of the specification says.

Source: specification of replication, section 10, and section 14, check 16.
"""

import contextlib
import subprocess
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.client.kills import wait_until
from tests.client.replicated_load import SETTINGS, ReplicatedLoad, check_stores
from tests.crash.test_failing_disk import FailingBroker
from tests.crash.test_full_file_system import BODY, consume, fill, send, send_in_the_end
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.integration.cluster import BrokerProcess
from tests.integration.replicated_register import ObservedCluster
from tests.integration.stomp_client import StompClient
from tests.pace import in_time

__all__ = ["own_etcd"]

ROOT = Path(__file__).parents[2]
LONG_LEASE = ("--replicate-lease", "20s")
"""Far more than a take-over takes, so that one within it was not at its end."""
SMALL = ("--journal-file-max", "1mb", "--journal-batch-max", "64kb", "--disk-reserve", "2mb")

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(240)]


class DiskCluster(ObservedCluster):
    """Members whose stores are in directories below their mount points, and whose disks may fail.

    Attributes:
        failpoints: what fails in a member's process once its trigger is there, by name, as `broker_child` takes it.
    """

    failpoints: Mapping[str, str] = MappingProxyType({})

    def store(self, name: str) -> Path:
        return self.directory / name / "store"

    def launch(self, name: str, port: int, extra: tuple[str, ...]) -> BrokerProcess:
        self.store(name).mkdir(parents=True, exist_ok=True)
        if name not in self.failpoints:
            return super().launch(name, port, extra)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(ROOT)
            patch.setenv("FAILPOINT", self.failpoints[name])
            patch.setenv("FAILPOINT_ROOT", str(self.store(name)))
            patch.setenv("FAILPOINT_TRIGGER", str(self.trigger(name)))
            return FailingBroker(str(self.store(name)), name=name, port=port, extra=extra)

    def trigger(self, name: str) -> Path:
        return self.directory / f"{name} fails"


@contextlib.contextmanager
def small_file_system(where: Path, megabytes: int = 8) -> Generator[None]:
    """Mount an empty file system of a small size."""
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(where)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine mounts no small file system: {done.stderr}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def stomp(cluster: ObservedCluster, name: str) -> StompClient:
    return StompClient(cluster.stomp_addresses()[name][1])


# ---------------------------------------------------------------- full disks


def test_full_disk_of_the_master_refuses_sends_and_serves_consumers(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    """Acknowledgements go on the reserve, to both stores; when there is space again, sends go on."""
    with small_file_system(tmp_path / "a"), DiskCluster(own_etcd, tmp_path, "ab", *SMALL) as cluster:
        assert cluster.wait_serving() == "a", cluster.describe()
        client = stomp(cluster, "a")
        refused = fill(client)
        assert refused > 100
        cluster.members["a"].wait_for("persistent messages are refused until there is space")
        assert not send(client, refused)
        consume(client, range(refused // 2))
        cluster.members["a"].wait_for("there is space again")
        wait_until(lambda: send(client, refused), cluster.describe)
        cluster.wait_recorded("a", "b")
        client.close()
        cluster.kill_together("a")
        cluster.wait_serving("b")
        client = stomp(cluster, "b")
        consume(client, range(refused // 2, refused + 1))
        client.close()
        cluster.start("a")
        check_stores(cluster, "a", "b")


@pytest.mark.parametrize("more", [0, 200])
def test_full_disk_of_a_follower_takes_it_out_of_the_set(own_etcd: EtcdCluster, tmp_path: Path, more: int) -> None:
    """The master goes on without it, and it is back when there is space: with more messages not even for its copy."""
    with small_file_system(tmp_path / "b"), DiskCluster(own_etcd, tmp_path, "ab", *SMALL) as cluster:
        assert cluster.wait_serving() == "a"
        alone = {cluster.store_id("a")}
        client, longest, count = stomp(cluster, "a"), 0.0, 0
        while count < 200 or set(cluster.record()["insync"]) != alone:
            began = time.monotonic()
            assert send(client, count), cluster.describe()
            longest = max(longest, time.monotonic() - began)
            count += 1
            assert count < 1000, cluster.describe()
        print(f"{count * len(BODY) / 1e6:.1f} MB when it left, longest send {longest:.2f} s")
        for number in range(count, count + more):
            assert send(client, number)
        count += more
        cluster.members["b"].wait_for("the disk is full, so the master" if more else "the reserve was used")
        consume(client, range(count))
        began = time.monotonic()
        cluster.wait_recorded("a", "b")
        print(f"back in the set {time.monotonic() - began:.1f} s after the last message was consumed")
        send_in_the_end(cluster.members["a"], client, count)
        client.close()
        assert sum("the disk is full, so" in line for line in cluster.members["b"].lines) == (more > 0)
        cluster.kill_together("a")
        cluster.wait_serving("b")
        client = stomp(cluster, "b")
        consume(client, range(count, count + 1))
        client.close()
        cluster.start("a")
        check_stores(cluster, "a", "b")


# ---------------------------------------------------------------- failing disks


@pytest.mark.parametrize("operation", ["write data", "sync data"])
def test_failing_disk_of_a_follower_ends_it(own_etcd: EtcdCluster, tmp_path: Path, operation: str) -> None:
    """It is never retried; the master goes on alone, and clients see nothing but a pause."""
    with FailingCluster(own_etcd, tmp_path, "b", operation) as cluster, ReplicatedLoad(cluster) as load:
        load.wait_received()
        assert cluster.wait_serving() == "a"
        epoch = cluster.record()["epoch"]
        cluster.trigger("b").touch()
        failed = cluster.members.pop("b")
        assert failed.join() != 0, failed.lines
        cluster.logs += failed.lines
        assert any("ERROR" in line and "this member ends, as its store" in line for line in failed.lines), failed.lines
        load.wait_received()
        assert set(cluster.record()["insync"]) == {cluster.store_id("a")}
        assert load.interruptions == 0, cluster.describe()
        assert cluster.record()["epoch"] == epoch
        cluster.repair("b")
        load.finish(f"follower: {operation} fails", 1)


@pytest.mark.parametrize("operation", ["write data", "sync data"])
def test_failing_disk_of_the_master_hands_over_at_once(own_etcd: EtcdCluster, tmp_path: Path, operation: str) -> None:
    """It steps down, releases the cluster, and ends with an error."""
    with FailingCluster(own_etcd, tmp_path, "a", operation, *LONG_LEASE) as cluster, ReplicatedLoad(cluster) as load:
        load.wait_received()
        assert cluster.wait_serving() == "a"
        began = time.monotonic()
        cluster.trigger("a").touch()
        failed = cluster.members.pop("a")
        cluster.wait_serving("b")
        seconds = time.monotonic() - began
        assert failed.join() != 0, failed.lines
        cluster.logs += failed.lines
        print(f"b served {seconds:.2f} s after the disk of a began to fail")
        assert in_time(seconds, 4.0), "less than a stop waits for confirmations"
        assert not any("not everything was confirmed" in line for line in failed.lines), failed.lines
        load.wait_received()
        cluster.repair("a")
        load.finish(f"master: {operation} fails", 1)


class FailingCluster(DiskCluster):
    """Two members, of which the disk of one fails at some operation, with EIO, once that is triggered."""

    def __init__(self, etcd: EtcdCluster, directory: Path, name: str, operation: str, *extra: str) -> None:
        self.failpoints = {name: f"before {operation}:1:EIO"}
        super().__init__(etcd, directory, "ab", *SETTINGS, *extra)

    def repair(self, name: str) -> None:
        """Start a member whose disk works again."""
        self.failpoints = {}
        self.start(name)
