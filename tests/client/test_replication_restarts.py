"""All members of a replicated cluster are killed together, and scheduled messages outlive one failover after the other.

`PYBROKER_RESTARTS=50` kills all members so often, and `PYBROKER_SCHEDULED=1000` schedules so many messages, over a
failover for each hundred. A failure names its seed, and `PYBROKER_SEED` repeats the choices.

Source: specification of replication, section 14, checks 2 and 12.
"""

import json
import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from pybroker.client.sync import connect
from tests.client.kills import PATIENCE_SECONDS, SEED, Ledger, Worker, consuming, stop, wait_for_the_rest, wait_until
from tests.client.replicated_load import SETTINGS, ReplicatedLoad, check_stores
from tests.conftest import Java
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.integration.replicated_register import ObservedCluster

__all__ = ["own_etcd"]

RESTARTS = int(os.environ.get("PYBROKER_RESTARTS", "2"))
LATE_SECONDS = 10.0 if RESTARTS > 2 else 2.0
SCHEDULED = int(os.environ.get("PYBROKER_SCHEDULED", "200"))
FAILOVERS = SCHEDULED // 100

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(120 + 40 * RESTARTS + 60 * FAILOVERS)]


@pytest.mark.parametrize(("names", "minimum"), [("ab", 1), ("abc", 2)])
def test_kills_of_all_members_lose_nothing(
    own_etcd: EtcdCluster, tmp_path: Path, java: Java, names: str, minimum: int
) -> None:
    """All within 100 ms; they start in any order, and one of them late."""
    chooser = random.Random(SEED)
    settings = (*SETTINGS, "--replicate-min", str(minimum))
    with ObservedCluster(own_etcd, tmp_path, names, *settings) as cluster, ReplicatedLoad(cluster) as load:
        for _ in range(RESTARTS):
            load.wait_received()
            cluster.wait_recorded(*names)
            order = [*names]
            chooser.shuffle(order)
            threading.Event().wait(chooser.uniform(0.0, 0.5))
            for name in order:
                cluster.members[name].process.kill()
                threading.Event().wait(chooser.uniform(0.0, 0.09 / len(names)))
            cluster.kill_together(*names)
            chooser.shuffle(order)
            late = chooser.choice(order)
            for name in order:
                if name != late:
                    cluster.start(name)
                    threading.Event().wait(chooser.uniform(0.0, 1.0))
            threading.Event().wait(LATE_SECONDS)
            cluster.start(late)
        load.finish(f"all of {names} killed", RESTARTS, java)


def test_scheduled_messages_come_over_failovers(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    """Each comes; what comes twice has the same id, and is little: what a killed master had just sent."""
    chooser, ledger, ids = random.Random(SEED), Ledger(), Counter[str]()
    with ObservedCluster(own_etcd, tmp_path, "ab", *SETTINGS) as cluster:
        receiver = connect(cluster.uri, timeout=PATIENCE_SECONDS)
        consumer = Worker("c", consuming(receiver, "LATER", "individual", ledger))
        with connect(cluster.uri, timeout=PATIENCE_SECONDS) as connection:
            for number in range(SCHEDULED):
                properties = {"AMQ_SCHEDULED_DELAY": chooser.randint(100, 4000 * FAILOVERS)}
                connection.send("LATER", json.dumps(["s", number]), properties=properties, timeout=PATIENCE_SECONDS)
                ledger.accept(("s", number))
        for _ in range(FAILOVERS):
            cluster.wait_recorded("a", "b")
            seen = len(ledger.received)
            wait_until(
                lambda: len(ledger.received) > seen or not ledger.missing(),  # noqa: B023
                cluster.describe,
                [consumer],
            )
            threading.Event().wait(chooser.uniform(0.0, 0.5))
            master = cluster.wait_serving()
            cluster.kill_together(master)
            cluster.start(master)
        wait_for_the_rest(ledger, [consumer])
        cluster.wait_recorded("a", "b")
        stop([consumer])
        receiver.close()
        for key, count in ledger.received.items():
            if count > 1:
                ids.update({story.split()[2] for story in ledger.history[key]})
                assert len({story.split()[2] for story in ledger.history[key]}) == 1, ledger.history[key]
        print(f"{SCHEDULED} scheduled, {FAILOVERS} failovers, {ledger.duplicates} came again, seed {SEED}")
        assert not ledger.missing()
        assert ledger.duplicates <= 2 * FAILOVERS, ledger.stories()
        check_stores(cluster, "a", "b")
