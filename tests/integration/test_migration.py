"""The page about moving a pair from ActiveMQ to pybroker: its commands in order, under load, and each way back."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pybroker.client.errors import LoginRefused, NotAuthorized
from pybroker.client.sync import connect
from tests.client.kills import PATIENCE_SECONDS
from tests.integration.migration import (
    Load,
    Machine,
    compare,
    follow,
    machines_on_a_share,
    machines_on_postgresql,
)
from tests.integration.migration_settings import USER
from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

pytestmark = pytest.mark.timeout(240)

ACTIVEMQ_SERVES = r"\) started"


class Pair:
    """The machines, with an ActiveMQ on each, `a`'s as the master; and the steps of the page."""

    def __init__(self, machines: Mapping[str, Machine], running: ExitStack) -> None:
        self.machines = machines
        self.a, self.b = machines["a"], machines["b"]
        for each in machines.values():
            running.enter_context(closing(each))
        self.a.run("systemctl start activemq")
        self.a.wait_for("activemq", ACTIVEMQ_SERVES)
        self.b.run("systemctl start activemq")
        self.load = running.enter_context(closing(Load([self.a, self.b])))
        self.load.publish("from ActiveMQ")
        self.load.go_on()
        for part in ("pybroker adopt /opt/activemq\n", "--out"):
            follow(part, machines)

    def replace_the_slave(self) -> None:
        with self.load.step("step 1", 10, 2):
            follow("# on b\nsystemctl disable --now activemq", self.machines)

    def restore_the_slave(self) -> None:
        with self.load.step("back from step 1", 15, 2):
            follow("# on b\nsystemctl disable --now pybroker &&", self.machines)

    def fail_over(self) -> None:
        with self.load.step("step 2", 10, 10):
            follow("# on a\nsystemctl disable --now activemq", self.machines)
            self.b.wait_for("pybroker", "listening on")
        self.load.publish("from pybroker")
        with pytest.raises(LoginRefused):
            connect(f"tcp://127.0.0.1:{self.b.openwire}", user=USER, password="another")
        with pytest.raises(NotAuthorized):
            self.load.connections["OpenWire"].send("SECRET", "x", timeout=PATIENCE_SECONDS)

    def replace_the_other(self) -> None:
        with self.load.step("step 3", 10, 2):
            follow("# on a\nsystemctl enable --now pybroker", self.machines)

    def go_back(self, part: str) -> None:
        self.load.schedule("due after the way back", 8)
        with self.load.step("back from step 2 or 3", 30, 30):
            follow(part, self.machines)
        self.load.publish("from ActiveMQ again")


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Brokers and clients that are closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.mark.component("activemq")
def test_the_page_on_a_shared_directory(running: ExitStack, tmp_path: Path) -> None:
    pair = Pair(machines_on_a_share(tmp_path), running)
    follow("pybroker doctor", pair.machines)
    pair.replace_the_slave()
    compare("but process 4711", pair.b)
    pair.restore_the_slave()
    pair.replace_the_slave()
    pair.load.schedule("due after the failover", 3)
    pair.fail_over()
    pair.go_back("--user activemq\n")
    pair.replace_the_slave()
    pair.fail_over()
    pair.replace_the_other()
    compare("master: b at", pair.a)
    pair.go_back("--user activemq\n")
    pair.load.end()


@pytest.mark.component("activemq-jdbc")
def test_the_page_on_postgresql(running: ExitStack, tmp_path: Path, postgres_database: PostgresDatabase) -> None:
    pair = Pair(machines_on_postgresql(tmp_path, postgres_database), running)
    pair.replace_the_slave()
    follow("pybroker doctor", pair.machines)
    compare("PostgreSQL JDBC Driver", pair.b)
    pair.restore_the_slave()
    pair.replace_the_slave()
    pair.fail_over()
    pair.replace_the_other()
    pair.go_back("--jobs-to")
    pair.load.end()
