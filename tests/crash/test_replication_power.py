"""The power of replicated members' disks is cut under load: what was not synced is lost, and nothing that was accepted.

`PYBROKER_POWER_CUTS=50` cuts so often. A failure names its seed, and `PYBROKER_SEED` repeats the choices.

Source: specification of replication, section 14, check 3.
"""

import os
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.client.kills import SEED
from tests.client.replicated_load import SETTINGS, ReplicatedLoad
from tests.conftest import Java
from tests.crash.power import PowerlessDisk
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.integration.replicated_register import ObservedCluster

__all__ = ["own_etcd"]

CUTS = int(os.environ.get("PYBROKER_POWER_CUTS", "3"))

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(120 + 40 * CUTS)]


class DiskCluster(ObservedCluster):
    """Members whose stores are on file systems of their own."""

    def store(self, name: str) -> Path:
        return self.directory / name / "store"


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[str, PowerlessDisk]]:
    with ExitStack() as held:
        try:
            yield {name: held.enter_context(PowerlessDisk(tmp_path, name)) for name in "ab"}
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"this machine mounts no ext4; test_receiver_crashes has a model of such a disk: {error}")


def test_power_cut_loses_what_was_not_synced(disks: dict[str, PowerlessDisk]) -> None:
    """Else the other test would show nothing."""
    disk = disks["a"]
    for name in ("synced", "not synced"):
        with (disk.where / name).open("wb") as file:
            file.write(b"x" * 100_000)
            file.flush()
            if name == "synced":
                os.fsync(file.fileno())
    with (disk.where / "synced").open("ab") as file:
        file.write(b"not synced")
    disk.cut()
    disk.restore()
    assert (disk.where / "synced").read_bytes() == b"x" * 100_000
    lost = disk.where / "not synced"
    assert not lost.exists() or not lost.read_bytes().strip(b"\0")


def test_power_cuts_lose_nothing_that_was_accepted(
    own_etcd: EtcdCluster, tmp_path: Path, java: Java, disks: dict[str, PowerlessDisk]
) -> None:
    """All members lose their power, most of the time, or one of them."""
    chooser = random.Random(SEED)
    with DiskCluster(own_etcd, tmp_path, "ab", *SETTINGS) as cluster, ReplicatedLoad(cluster) as load:
        for _ in range(CUTS):
            load.wait_received()
            cluster.wait_recorded("a", "b")
            threading.Event().wait(chooser.uniform(0.0, 0.5))
            master = cluster.wait_serving()
            other = "b" if master == "a" else "a"
            struck = chooser.choice(([master, other], [master, other], [master], [other]))
            chooser.shuffle(struck)
            for name in struck:
                cluster.members[name].process.kill()
            for name in struck:
                disks[name].cut()
            cluster.kill_together(*struck)
            for name in struck:
                disks[name].restore()
            chooser.shuffle(struck)
            for name in struck:
                threading.Event().wait(chooser.uniform(0.0, 1.0))
                cluster.start(name)
        load.finish("power cuts", CUTS, java)
