"""Partitions between the members of a replicated cluster and their election store, in each direction by itself.

In network namespaces packets are lost, as by a cut cable; that takes root. Elsewhere, as in a container without
privileges, the other test has a proxy on each link, which holds bytes back: connections that live so long get them
later, as from TCP itself, but a new connection is accepted by a proxy at once.

`PYBROKER_PARTITIONS=20` has each kind of partition happen so often. A failure names its seed, and `PYBROKER_SEED`
repeats the choices.

Source: specification of replication, section 14, check 5.
"""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.kills import SEED
from tests.client.partitions import CUTS, ProxiedCluster, disturb, some_kinds
from tests.client.replicated_load import SETTINGS, ReplicatedLoad
from tests.conftest import Java
from tests.etcd_cluster import EtcdCluster, own_etcd

__all__ = ["own_etcd"]

ROOT = Path(__file__).parents[2]
PARTITIONS = int(os.environ.get("PYBROKER_PARTITIONS", "0"))
SECONDS = 120 + 15 * 20 * PARTITIONS

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(SECONDS + 30)]


def test_partitions_in_network_namespaces_lose_nothing() -> None:
    tools = all(shutil.which(tool) for tool in ("unshare", "nsenter", "ip"))
    probe = "test -c /dev/net/tun && ip link add near type veth peer name far && ip tuntap add dev probe mode tun"
    if not tools or subprocess.run(["unshare", "--net", "sh", "-c", probe], check=False).returncode:
        pytest.skip("this machine has no network namespaces for this user; the test with proxies runs everywhere")
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "tests.client.partitions", str(PARTITIONS)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYBROKER_SEED": str(SEED)},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr


def test_partitions_behind_proxies_lose_nothing(own_etcd: EtcdCluster, tmp_path: Path, java: Java) -> None:
    chooser = random.Random(SEED)
    kinds = CUTS * PARTITIONS if PARTITIONS else some_kinds(chooser)[1:4]
    chooser.shuffle(kinds)
    with ProxiedCluster(own_etcd, tmp_path, "ab", *SETTINGS) as cluster, ReplicatedLoad(cluster) as load:
        disturb(cluster, cluster, load, kinds)
        load.finish("partitions, by proxies", len(kinds), java)
