"""`pybroker promote`: a standby was left behind, and the store with everything is lost (6.1, acceptance check 9)."""

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pybroker
from pybroker.client.errors import Timeout
from tests.etcd_cluster import EtcdCluster, etcd_cluster, own_etcd  # noqa: F401
from tests.integration.replicated import ReplicatedCluster
from tests.pages import block

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(240)]

LOST = 5


def promote(cluster: ReplicatedCluster, name: str, *arguments: str) -> tuple[int, str, str]:
    """Run `pybroker promote` for a member; return the exit code, and what is printed."""
    command = [
        sys.executable,
        "-m",
        "pybroker.broker.app.cli",
        "promote",
        "--store",
        str(cluster.store(name)),
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def of_the_page(line: int) -> list[str]:
    """Return the arguments of a command of docs/replication.md, behind the store."""
    words = shlex.split(block("docs/replication.md", "sh", "pybroker promote").splitlines()[line])
    assert words[:4] == ["pybroker", "promote", "--store", "/var/lib/pybroker"]
    return words[4:]


def leave_behind(cluster: ReplicatedCluster) -> None:
    """Have a and b store two messages, and a alone some more."""
    with pybroker.connect(cluster.uri) as connection:
        for text in ("first", "second"):
            connection.send("queue://Q", text)
        cluster.kill("b")
        cluster.wait_in_sync("a")
        for number in range(LOST):
            connection.send("queue://Q", f"a alone has {number}")
        cluster.wait_durable("a")


def received(cluster: ReplicatedCluster, count: int) -> list[Any]:
    with pybroker.connect(cluster.uri) as connection, connection.consumer("queue://Q") as consumer:
        found = [consumer.receive(timeout=30).body for _ in range(count)]
        with pytest.raises(Timeout):
            consumer.receive(timeout=0.5)
        return found


def test_store_that_was_left_behind_is_promoted_at_an_operators_word(
    tmp_path: Path,
    etcd_cluster: EtcdCluster,  # noqa: F811
) -> None:
    with ReplicatedCluster(tmp_path, etcd_cluster.url(), "ab") as cluster:
        leave_behind(cluster)
        code, _, text = promote(cluster, "a", "--accept-loss", "--yes")
        assert (code, text) == (4, "cannot be promoted: this member is the master\n")
        cluster.kill("a")
        cluster.store("a").rename(tmp_path / "lost")
        cluster.start("b")
        cluster.members["b"].wait_for(
            r"this store lacks what was confirmed up to db-\d+\.log, byte [\d,]+: waiting for a"
        )
        cluster.wait_problem("b", "waiting for a")

        assert promote(cluster, "b", "--yes")[0] == 2
        code, shown, text = promote(cluster, "b", *of_the_page(0))
        assert code == 3
        assert "b would become the master of cluster test-" in shown
        assert "its store ends at         db-1.log, byte" in shown
        assert "which is in the store of  a\n" in shown
        assert "The former master a (127.0.0.1:" in shown
        assert "nothing was changed" in text
        assert promote(cluster, "b", "--accept-loss")[0] == 2, "there is no terminal for the question"
        cluster.wait_report("b", lambda found: found.get("role") == "STANDBY")

        code, shown, text = promote(cluster, "b", *of_the_page(1), "--yes", "--json")
        assert code == 0, text
        answer = json.loads(shown)
        (end, *_), (confirmed, *_) = (answer["loss"][each]["kahadb"] for each in ("store_ends", "confirmed_ends"))
        assert (answer["loss"]["member"], answer["loss"]["master"], answer["is_serving"]) == ("b", "a", True)
        assert answer["loss"]["store_ends"]["kahadb"] < answer["loss"]["confirmed_ends"]["kahadb"]
        assert answer["epoch"] > max(end, confirmed)
        assert answer["loss"]["written_ms"] > 1e12
        cluster.members["b"].wait_for(
            r"an operator has this store become the master: what was confirmed after db-1\.log"
        )
        cluster.wait_in_sync("b")
        assert received(cluster, 2) == ["first", "second"]

        (tmp_path / "lost").rename(cluster.store("a"))
        cluster.start("a")
        cluster.wait_in_sync("a", "b")
        assert cluster.master() == "b"
        cluster.wait_equal("a", "b")
        kept = [path.read_bytes() for path in (cluster.store("a") / "replica" / "discarded").glob("*/kahadb/db-*.log")]
        for number in range(LOST):
            assert any(f"a alone has {number}".encode() in content for content in kept)
        cluster.kill("b")
        assert cluster.master() == "a", "the store that was put back is in sync"


def test_promotion_is_refused_while_a_master_lives_and_where_the_member_stands_by_itself(
    tmp_path: Path,
    own_etcd: EtcdCluster,  # noqa: F811
) -> None:
    with ReplicatedCluster(tmp_path, own_etcd.url(), "ab") as cluster:
        code, _, text = promote(cluster, "b", "--accept-loss", "--yes")
        assert code == 4
        assert "cannot be promoted: this store is in sync: this member becomes master by itself" in text
        leave_behind(cluster)
        cluster.kill("a")
        cluster.start("a", "--replicate-url", "127.0.0.1:9")  # b does not reach it, and sees its renewals
        cluster.wait_report("a", lambda found: found.get("role") == "MASTER")
        cluster.start("b")
        cluster.members["b"].wait_for("following 127.0.0.1:9")
        code, _, text = promote(cluster, "b", "--accept-loss", "--yes")
        assert (code, text.splitlines()[-1]) == (4, "cannot be promoted: a is the master, and renews its lease")
        (node,) = own_etcd.nodes
        node.signal(signal.SIGSTOP)
        try:
            code, _, text = promote(cluster, "b", "--accept-loss", "--yes")
            assert code == 4
            assert "cannot be promoted: the election store does not answer" in text
        finally:
            node.signal(signal.SIGCONT)
        cluster.kill("b")
        cluster.add("c")
        cluster.wait_report("c", lambda found: bool(found.get("cluster")))  # it has read the register
        code, _, text = promote(cluster, "c", "--accept-loss", "--yes")
        assert code == 4
        assert "this store has nothing of cluster test-" in text, text
