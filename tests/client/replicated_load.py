"""Load on a replicated cluster while a test disturbs it, and what must be true of it in the end.

    with ObservedCluster(...) as cluster, ReplicatedLoad(cluster) as load:
        load.wait_received(50)
        ...                     # faults
        load.finish("fault", count)

`finish` checks what each acceptance check of the specification of replication (section 14) ends with: nothing accepted
is missing, nothing came twice without a mark, no transaction in part, no two members answered clients at once, all
stores are logically equal, and `pybroker journal check` finds no damage in any. With `java` each store is opened by a
stock ActiveMQ as well.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Self

from pybroker.client import NoRoom
from pybroker.client.sync import Connection, connect
from tests.client.kills import (
    PATIENCE_SECONDS,
    SEED,
    Ledger,
    Worker,
    consuming,
    finish,
    producing_in_transactions,
    report,
    wait_until,
)
from tests.client.opened_stores import check_in_activemq, leave_messages
from tests.client.witness import Witness
from tests.conftest import Java
from tests.integration.forked import run_forked
from tests.integration.replicated_register import ObservedCluster

BODY_BYTES = 2048
SETTINGS = ("--journal-file-max", "1mb", "--journal-batch-max", "256kb", "--cleanup-interval", "300ms")
"""Small data files, so that faults also meet new files and removals."""


def sending(
    connection: Connection,
    name: str,
    ledger: Ledger,
    *,
    delay_ms: int = 0,
    pause: float = 0.005,
    size: int = BODY_BYTES,
) -> Callable[[threading.Event], None]:
    """Send one message after the other, some of them for later.

    Where too few members are in sync a send is refused, and stored nowhere: it is sent again.
    """
    properties = {"AMQ_SCHEDULED_DELAY": delay_ms} if delay_ms else {}

    def work(stopping: threading.Event) -> None:
        number = 0
        while not stopping.wait(pause):
            number += 1
            body = json.dumps([name, number]).ljust(size)
            try:
                connection.send("KILLS", body, properties=properties, timeout=PATIENCE_SECONDS)
            except NoRoom:
                number -= 1
            else:
                ledger.accept((name, number))

    return work


class ReplicatedLoad:
    """Producers and consumers that fail over, and a witness with a connection to each member.

    Attributes:
        ledger: what was accepted and what came.
        interruptions: how often a connection of the producers and consumers was cut off.
    """

    def __init__(self, cluster: ObservedCluster, *, has_scheduled: bool = True) -> None:
        """Start everything; the cluster has a master, or will have one soon.

        Args:
            cluster: the members.
            has_scheduled: some messages are for later, by the members' clocks.
        """
        self._cluster = cluster
        self.ledger = Ledger()
        self.interruptions = 0
        self._connections = [
            connect(cluster.uri, timeout=PATIENCE_SECONDS, on_interrupted=self._count) for _ in range(4)
        ]
        sender, later, in_transactions, receiver = self._connections
        self.producers = [
            Worker("p1", sending(sender, "p1", self.ledger)),
            Worker("later", sending(later, "later", self.ledger, delay_ms=1000 * has_scheduled, pause=0.02)),
            Worker("tx", producing_in_transactions(in_transactions, "tx", self.ledger, pause=0.02)),
        ]
        self.consumers = [Worker("c", consuming(receiver, "KILLS", "individual", self.ledger))]
        self.witness = Witness(cluster.stomp_addresses())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self.producers, *self.consumers):
            worker.stop()
        for connection in self._connections:
            connection.close()
        self.witness.close()

    def _count(self, error: Exception) -> None:
        self.interruptions += 1

    def wait_received(self, count: int = 50) -> None:
        """Wait until so many more messages have come."""
        goal = sum(self.ledger.received.values()) + count

        def has_come() -> bool:
            self._cluster.drain()
            return sum(self.ledger.received.values()) >= goal

        wait_until(
            has_come,
            lambda: f"nothing comes, seed {SEED}\n{self._cluster.describe()}",
            [*self.producers, *self.consumers],
        )

    def finish(self, name: str, count: int, java: Java | None = None) -> None:
        """End the load, check everything, and stop the members in order.

        Args:
            name: of the row that is printed.
            count: how many faults there were.
            java: runs an ActiveMQ that opens the stores.
        """
        cluster, ledger, names = self._cluster, self.ledger, [*self._cluster.stomp_addresses()]
        for each in names:
            if each not in cluster.members:
                cluster.start(each)
        cluster.wait_recorded(*names)
        self.wait_received()
        finish(self.producers, self.consumers, self._connections, ledger)
        self.witness.close()
        report(ledger.row(name, count))
        print(f"{self.witness.summary()}; {self.interruptions} interruptions; seed {SEED}")
        story = f"seed {SEED}\n{cluster.describe()}"
        assert not ledger.missing(), story
        assert not ledger.half(), story
        assert not ledger.refused & ledger.received.keys(), story
        assert not self.unmarked(), f"{ledger.stories()}\n{story}"
        assert not self.witness.overlaps(), f"{self.witness.overlaps()}\n{story}"
        check_stores(cluster, *names, java=java)

    def unmarked(self) -> Counter[str]:
        """Return by producer how many messages came again without a mark; those for later may, see `finish`.

        A master that dies between the send of a scheduled message and the record of it leaves it to the next one, which
        sends it again under the same id, and cannot know that it was seen.
        """
        return Counter(producer for producer, _ in self.ledger.unflagged if producer != "later")


def check_stores(cluster: ObservedCluster, *names: str, java: Java | None = None) -> None:
    """Check that all stores are logically equal, stop the members, and check each store for damage.

    With `java` an ActiveMQ opens each store.
    """
    if java is not None:
        leave_messages(cluster)
    cluster.wait_recorded(*names)
    for name in names[1:]:
        cluster.wait_logically_equal(names[0], name)
    codes = {name: cluster.members.pop(name).terminate() for name in names}
    assert set(codes.values()) == {0}, f"{codes}\n{cluster.describe()}"
    for name in names:
        for directory in ("kahadb", "scheduler"):
            if any((cluster.store(name) / directory).glob("db-*.log")):
                checked = run_forked("journal", "check", str(cluster.store(name) / directory))
                assert checked.returncode == 0, f"{name}, {directory}: {checked.stdout}"
    if java is not None:
        check_in_activemq(java, cluster, *names)
