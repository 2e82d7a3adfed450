"""A pair moves from ActiveMQ to pybroker and back, and masters are killed, under the load of Java clients.

The commands are those of the page about the move. Java clients with a `failover:` URI send and receive all the time:
nothing that was confirmed is lost, and each producer's order is kept. Durable subscriptions, scheduled messages and XA
branches that were made with one broker go on with the next. The clients' longest wait in each step is printed.
"""

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.integration.migration import Machine, follow, machines_on_a_share, machines_on_postgresql
from tests.integration.migration_settings import PASSWORD, USER
from tests.java.checks import Programs
from tests.java.installations import RECONNECT
from tests.java.moving_clients import KEPT, LEFT, MovingClients
from tests.pace import in_time
from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

pytestmark = pytest.mark.timeout(240)

STEP_SECONDS, PAUSE_SECONDS = 40, 40
"""Bounds of a step and of the clients' waits in it: far above what is usual, so that only a hang is above them. An
ActiveMQ that is the slave tries the lock every 10 s."""


class JavaPair:
    """Two machines with an ActiveMQ on each, `a`'s as the master, and Java clients at work."""

    def __init__(self, programs: Programs, machines: dict[str, Machine], running: ExitStack, log: Path) -> None:
        self.machines = machines
        self.a, self.b = machines["a"], machines["b"]
        for each in machines.values():
            running.enter_context(closing(each))
        self.a.run("systemctl start activemq")
        self.a.wait_for("activemq", r"\) started")
        self.b.run("systemctl start activemq")
        addresses = ",".join(f"tcp://127.0.0.1:{each.openwire}" for each in machines.values())
        arguments = (f"failover:({addresses})?{RECONNECT}", USER, PASSWORD)
        self.clients = running.enter_context(closing(MovingClients(programs.command("Migration", *arguments), log)))
        self.clients.go_on()
        for part in ("pybroker adopt /opt/activemq\n", "--out"):
            follow(part, machines)

    @contextmanager
    def step(self, name: str, *, is_marked: bool = True) -> Generator[None]:
        """Measure a step until all clients work again; see `MovingClients.measured`."""
        with self.clients.measured(name, is_marked=is_marked) as times:
            yield
        assert in_time(times.step, STEP_SECONDS), f"{name}: {times.step:.1f} s"
        assert in_time(times.longest, PAUSE_SECONDS), f"{name}: clients waited {times.longest:.1f} s"

    def replace_the_slave(self) -> None:
        with self.step("the slave is replaced"):
            follow("# on b\nsystemctl disable --now activemq", self.machines)

    def kill_activemq(self) -> None:
        with self.step("ActiveMQ is killed"):
            self.a.kill("activemq")
            self.b.wait_for("pybroker", "listening on")

    def replace_the_other(self) -> None:
        with self.step("the other one is replaced"):
            follow("# on a\nsystemctl disable --now activemq", self.machines)
            follow("# on a\nsystemctl enable --now pybroker", self.machines)

    def end(self) -> None:
        """Judge what the clients have seen."""
        clients = self.clients
        clients.end()
        print(clients.table(), clients.summary(), sep="\n")
        clients.judge()
        assert clients.left("JAVA.LANE.>") == []
        assert clients.left("JAVA.SENT") == clients.sent_by_branches
        assert clients.left("JAVA.TAKEN") == clients.taken_back


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Brokers and clients that are closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.mark.component("activemq")
def test_java_clients_move_on_a_shared_directory(programs: Programs, running: ExitStack, tmp_path: Path) -> None:
    pair = JavaPair(programs, machines_on_a_share(tmp_path), running, tmp_path / "clients.log")
    clients = pair.clients
    clients.command("subscribe")
    clients.publish("1", "2", "3")
    clients.read_news("1", is_last=False)
    pair.replace_the_slave()
    clients.prepare("first", *KEPT, *LEFT)
    clients.schedule("first")
    pair.kill_activemq()
    clients.decide("first", *KEPT, *LEFT)
    clients.await_jobs()
    clients.publish("4")
    clients.read_news("2", "3", "4")
    pair.replace_the_other()
    clients.publish("5")

    with pair.step("the standby is replaced"):
        follow("# on a: replace the standby", pair.machines)
    clients.prepare("second", *LEFT)  # a connection that lives on repeats its branch, which ActiveMQ takes for another
    clients.schedule("second")
    with pair.step("pybroker is killed", is_marked=False):
        pair.b.kill("pybroker")
        pair.a.wait_for("activemq", r"\) started")
    clients.decide("second", *LEFT)
    clients.await_jobs()
    with pair.step("and replaced"):
        follow("# on b: fail over", pair.machines)
    clients.publish("6")
    clients.read_news("5", "6")
    pair.end()


@pytest.mark.component("activemq-jdbc")
def test_java_clients_move_on_postgresql(
    programs: Programs, running: ExitStack, tmp_path: Path, postgres_database: PostgresDatabase
) -> None:
    machines = machines_on_postgresql(tmp_path, postgres_database)
    pair = JavaPair(programs, machines, running, tmp_path / "clients.log")
    clients = pair.clients
    clients.command("subscribe")
    clients.publish("1", "2", "3")
    clients.read_news("1", is_last=False)
    pair.replace_the_slave()
    clients.prepare("first", *KEPT, *LEFT)
    pair.kill_activemq()
    clients.decide("first", *KEPT, *LEFT)
    clients.publish("4")
    clients.read_news("2", "3", "4")
    pair.replace_the_other()
    clients.publish("5")

    clients.prepare("second", *LEFT)
    clients.schedule("second")
    with pair.step("pybroker is killed"):
        pair.b.kill("pybroker")
        pair.a.wait_for("pybroker", "listening on")
    with pair.step("back to ActiveMQ", is_marked=False):
        follow("--jobs-to", machines)
    clients.decide("second", *LEFT)
    clients.await_jobs()
    clients.publish("6")
    clients.read_news("5", "6")
    pair.end()
