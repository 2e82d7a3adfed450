"""Java clients with a `failover:` address of replicated members, which are killed, and hand over, while they work.

Each member has a directory of its own. Nothing that was confirmed to the clients is lost, and each producer's order is
kept; a durable subscription, scheduled messages and XA branches that were prepared with one master go on with the next,
whether the branch's connection lives on or not. In the end the stores are equal, and a stock ActiveMQ opens each.

`PYBROKER_KILLS=12` has so many changes; a failure names its seed, and `PYBROKER_SEED` repeats the choices.
"""

import contextlib
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.client.kills import SEED
from tests.client.replicated_load import check_stores
from tests.conftest import Java
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.java.checks import Programs
from tests.java.installations import RECONNECT
from tests.java.moving_clients import KEPT, LEFT, MovingClients
from tests.java.replicated_members import SETTINGS, FollowedCluster
from tests.pace import in_time

__all__ = ["own_etcd"]

NO_DELAY = "&jms.redeliveryPolicy.initialRedeliveryDelay=0&jms.redeliveryPolicy.redeliveryDelay=0"

Change = Callable[[FollowedCluster, random.Random], None]
"""Changes the master."""

CHANGES_DEFAULT = 3
CHANGES = int(os.environ.get("PYBROKER_KILLS", CHANGES_DEFAULT))

pytestmark = [
    pytest.mark.component("activemq"),
    pytest.mark.component("etcd"),
    pytest.mark.timeout(240 + 60 * CHANGES),
]


def kill(cluster: FollowedCluster, chooser: random.Random) -> None:
    """Kill the master."""
    cluster.kill_master()


def hand_over(cluster: FollowedCluster, chooser: random.Random) -> None:
    """Have the master hand over."""
    cluster.switch_over()


def kill_and_hand_over(cluster: FollowedCluster, chooser: random.Random) -> None:
    """Have the third master in a row serve."""
    cluster.kill_master()
    cluster.switch_over()


def kill_all(cluster: FollowedCluster, chooser: random.Random) -> None:
    """Kill all members, and start them in any order."""
    cluster.wait_recorded("a", "b")
    cluster.kill_together("a", "b")
    for name in chooser.sample("ab", 2):
        cluster.start(name)


def test_java_clients_go_on_with_the_next_replicated_master(
    own_etcd: EtcdCluster, programs: Programs, java: Java, tmp_path: Path
) -> None:
    chooser = random.Random(SEED)
    ways = (kill, hand_over, kill_all)
    changes = ways if CHANGES == CHANGES_DEFAULT else chooser.choices(ways, k=CHANGES)
    with FollowedCluster(own_etcd, tmp_path, "ab", *SETTINGS) as cluster:
        with contextlib.closing(start(cluster, programs, tmp_path, "")) as clients:
            move(clients, cluster, chooser, changes)
        check_stores(cluster, "a", "b", java=java)


def test_java_clients_without_a_redelivery_delay_go_on_after_two_changes_at_once(
    own_etcd: EtcdCluster, programs: Programs, java: Java, tmp_path: Path
) -> None:
    """With it they wait for 5 s and more: see "Two failovers within a second" in docs/ha.md."""
    chooser = random.Random(SEED)
    with FollowedCluster(own_etcd, tmp_path, "ab", *SETTINGS) as cluster:
        with contextlib.closing(start(cluster, programs, tmp_path, NO_DELAY)) as clients:
            move(clients, cluster, chooser, [kill_and_hand_over] * max(1, CHANGES - 2))
        check_stores(cluster, "a", "b", java=java)
    assert all(in_time(each.consumers, 4.0) for each in clients.steps), clients.table()


def start(cluster: FollowedCluster, programs: Programs, directory: Path, options: str) -> MovingClients:
    addresses = ",".join(f"tcp://127.0.0.1:{port}" for port in cluster.openwire_ports)
    arguments = (f"failover:({addresses})?{RECONNECT}{options}", "user", "password")
    return MovingClients(programs.command("Migration", *arguments), directory / "clients.log")


def move(clients: MovingClients, cluster: FollowedCluster, chooser: random.Random, changes: Sequence[Change]) -> None:
    """Change the master again and again, and judge what the clients have seen."""
    clients.go_on()
    clients.command("subscribe")
    for number, change in enumerate(changes):
        name, news = f"change-{number}", tuple(f"{number}-{each}" for each in range(3))
        clients.publish(*news)
        clients.prepare(name, *KEPT, *LEFT)
        clients.schedule(name)
        with clients.measured(change.__name__):
            change(cluster, chooser)
        clients.decide(name, *KEPT, *LEFT)
        clients.await_jobs()
        clients.read_news(*news)
    clients.end()
    print(clients.table(), clients.summary(), f"seed {SEED}", sep="\n")
    clients.judge()
    assert clients.left("JAVA.LANE.>") == []
    assert clients.left("JAVA.SENT") == sorted(clients.sent_by_branches)
    assert clients.left("JAVA.TAKEN") == sorted(clients.taken_back)
