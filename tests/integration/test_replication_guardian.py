"""The guardian of a replicated master: its process is killed, and another member serves before the lease is over."""

import os
import statistics
import time
from pathlib import Path

import pytest

from pybroker.client.sync import connect
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.integration.replicated_register import ObservedCluster

__all__ = ["own_etcd"]

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(300)]

KILLS = int(os.environ.get("PYBROKER_KILLS", "3"))
SECONDS = 30.0
LONG_LEASE = ("--replicate-lease", "20s")
"""Far more than a take-over takes on a busy machine, so that one within it was the guardian's doing."""


def test_killed_master_is_replaced_before_its_lease_is_over(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    """`PYBROKER_KILLS` kills that often; the gaps are printed."""
    gaps = []
    with (
        ObservedCluster(own_etcd, tmp_path, "ab", *LONG_LEASE) as cluster,
        connect(cluster.uri, timeout=SECONDS) as connection,
    ):
        for number in range(KILLS):
            cluster.wait_recorded("a", "b")
            master = cluster.wait_serving()
            connection.send("ORDERS", str(number), timeout=SECONDS)
            wait_guarded(cluster, master)
            began_at = time.monotonic()
            cluster.members[master].process.kill()
            connection.send("ORDERS", "after", timeout=SECONDS)
            gaps.append(time.monotonic() - began_at)
            cluster.kill_together(master)
            cluster.start(master)
    print(
        f"gaps: median {statistics.median(gaps):.3f} s, longest {max(gaps):.3f} s, {[round(each, 3) for each in gaps]}"
    )
    assert max(gaps) < 10.0


def guardian(parent: int) -> int:
    """Return the process id of the guardian of a process; 0 without one."""
    for each in Path("/proc").iterdir():
        try:
            command = (each / "cmdline").read_bytes() if each.name.isdecimal() else b""
            if b"guardian_process.py" in command and f"PPid:\t{parent}\n" in (each / "status").read_text():
                return int(each.name)
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    return 0


def wait_guarded(cluster: ObservedCluster, name: str) -> int:
    """Wait until a member has a guardian, and return its process id."""
    parent = cluster.members[name].process.pid
    cluster.wait(lambda: guardian(parent) > 0)
    return guardian(parent)
