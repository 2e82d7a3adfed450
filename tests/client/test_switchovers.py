"""The master of a replicated cluster hands over on request, again and again under load, and nothing is lost.

`PYBROKER_SWITCHOVERS=100` switches so often.
"""

import itertools
import os
import shlex
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybroker.broker.app.cli import commands
from pybroker.client.sync import connect
from tests.client.kills import PATIENCE_SECONDS, Ledger, Worker, consuming, finish, report
from tests.client.test_replication_kills import SETTINGS, sending
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.integration.replicated_register import ObservedCluster
from tests.pages import block

__all__ = ["own_etcd"]

SWITCHOVERS = int(os.environ.get("PYBROKER_SWITCHOVERS", "6"))
MANAGEMENT = ("--management", "127.0.0.1:0")
LONG_LEASE = ("--replicate-lease", "20s")
"""Far more than a switchover takes, which must not wait for it."""

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(120 + 10 * SWITCHOVERS)]


def page_arguments(heir: str) -> list[str]:
    """Return the arguments of the page's command, for a certain member and the test's own addresses."""
    arguments = shlex.split(block("docs/replication.md", "sh", "pybroker switchover"))
    assert arguments[:4] == ["pybroker", "switchover", "--to", "b"]
    assert arguments[4] == "--url"
    return ["--to", heir, *arguments[6:]]


def switch_over(cluster: ObservedCluster, *arguments: str) -> Result:
    """Run the command, with the addresses of all members."""
    urls = [each.wait_for(r"management at (http://127.0.0.1:\d+)")[1] for each in cluster.members.values()]
    return CliRunner().invoke(commands, ["switchover", *arguments, "--yes", "--url", ",".join(urls)])


def probing(cluster: ObservedCluster, answered: list[float]) -> Callable[[threading.Event], None]:
    """Send one message after the other, and note when each was answered."""

    def work(stopping: threading.Event) -> None:
        with connect(cluster.uri, timeout=PATIENCE_SECONDS) as connection:
            while not stopping.wait(0.002):
                connection.send("PROBES", "", timeout=PATIENCE_SECONDS, properties={"JMSExpiration": "1"})
                answered.append(time.monotonic())

    return work


def test_switchovers_under_load_lose_nothing(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    with ObservedCluster(own_etcd, tmp_path, "ab", *SETTINGS, *MANAGEMENT, *LONG_LEASE) as cluster:
        processes = {name: each.process.pid for name, each in cluster.members.items()}
        ledger, answered = Ledger(), [time.monotonic()]
        connections = [connect(cluster.uri, timeout=PATIENCE_SECONDS) for _ in range(4)]
        producers = [Worker(name, sending(connections[n], name, ledger)) for n, name in enumerate(("p1", "p2"))]
        consumers = [Worker(f"c{n}", consuming(connections[n], "KILLS", "individual", ledger)) for n in (2, 3)]
        probe = Worker("probe", probing(cluster, answered))
        gaps = []
        for _ in range(SWITCHOVERS):
            cluster.wait_recorded("a", "b")
            heir = "b" if cluster.wait_serving() == "a" else "a"
            began_at, count = time.monotonic(), len(answered)
            found = switch_over(cluster, *page_arguments(heir))
            assert found.exit_code == 0, found.output
            cluster.wait_serving(heir)
            served = len(answered) + 1
            cluster.wait(lambda: len(answered) > served)  # noqa: B023
            times = answered[count - 1 :]
            gaps.append(max(later - earlier for earlier, later in itertools.pairwise(times)))
            assert times[-1] > began_at
        finish([*producers, probe], consumers, connections, ledger)
        print(f"without an answer: median {statistics.median(gaps):.3f} s, most {max(gaps):.3f} s, {SWITCHOVERS} times")
        report(ledger.row("switchovers", SWITCHOVERS))
        assert not ledger.missing()
        assert max(gaps) < 10.0, "far less than the lease"
        assert {name: each.process.pid for name, each in cluster.members.items()} == processes
        cluster.wait_recorded("a", "b")
        cluster.wait_logically_equal("a", "b")
        assert [cluster.members.pop(name).terminate() for name in ("a", "b")] == [0, 0]


def test_switchover_is_refused_with_the_reason(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    with ObservedCluster(own_etcd, tmp_path, "a", *MANAGEMENT) as cluster:
        cluster.wait_serving("a")
        assert "a is the master already" in switch_over(cluster, "--to", "a").output
        assert "b is not connected" in switch_over(cluster, "--to", "b").output
        assert "no other member is connected" in switch_over(cluster).output
        cluster.add("b", "--no-replicate-promote").wait_for("has caught up|standby: following")
        cluster.wait_recorded("a", "b")
        for arguments in ((), ("--to", "b")):
            found = switch_over(cluster, *arguments)
            assert found.exit_code == 1
            assert "b only has a copy: its replicate_promote is no" in found.output
        assert cluster.wait_serving() == "a"


def test_preferred_member_is_master_again_once_it_is_in_sync(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    with ObservedCluster(own_etcd, tmp_path, "ab", *LONG_LEASE) as cluster, connect(cluster.uri) as connection:
        connection.send("ORDERS", "first", timeout=PATIENCE_SECONDS)
        assert cluster.members["a"].terminate() == 0
        cluster.members.pop("a").close()
        cluster.wait_serving("b")
        cluster.start("a", "--replicate-failback", "1s")
        cluster.wait_serving("a")
        connection.send("ORDERS", "second", timeout=PATIENCE_SECONDS)
        with connection.consumer("ORDERS") as consumer:
            assert [consumer.receive(timeout=PATIENCE_SECONDS).body for _ in range(2)] == ["first", "second"]
        assert "handing over" in cluster.members["b"].wait_for("a asks to be master(.*)")[1]
