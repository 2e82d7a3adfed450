"""One database, a stock ActiveMQ and a pybroker, each the other's standby: killed in turn, and nothing is lost."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app.database_status import describe, read
from pybroker.broker.app.status import Exit
from pybroker.locks.postgres.timing import now
from tests.conftest import JAR_DIRECTORY, JDBC_JARS
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.test_postgres_start import received, send
from tests.postgres_cluster import PASSWORD, USER, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

pytestmark = pytest.mark.component("activemq-jdbc")

PROGRAM = Path(__file__).parent / "java" / "StockDatabaseBroker.java"


class ActiveMQ:
    """A stock broker in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process = process
        self.port = port

    def wait(self) -> None:
        """Return once it serves."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "listening\n"

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def activemq(java: Any, postgres_database: PostgresDatabase, tmp_path: Path) -> Iterator[Callable[[], ActiveMQ]]:
    """Starts stock brokers on the database."""
    jars = [str(JAR_DIRECTORY / jar) for jar in JDBC_JARS]
    tools = replace(java, class_path=os.pathsep.join([java.class_path, *jars]))
    where = f"127.0.0.1:{postgres_database.cluster.port}/{postgres_database.name}"
    url = f"jdbc:postgresql://{where}?user={USER}&password={PASSWORD}".replace(" ", "%20")
    with ExitStack() as stack:

        def start() -> ActiveMQ:
            port = free_port()
            command = tools.command(PROGRAM, url, str(tmp_path / "activemq"), str(port))
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return ActiveMQ(process, port)

        yield start


def test_activemq_and_pybroker_are_masters_in_turn(
    activemq: Callable[[], ActiveMQ], postgres_database: PostgresDatabase
) -> None:
    first = activemq()
    first.wait()
    send(first.port, b"to ActiveMQ")
    ours = BrokerProcess(postgres_database.url, name="ours", port=free_port())
    try:
        ours.wait_for("waiting for the lock")
        status = read(postgres_database.url)
        assert status.exit is Exit.STARTING
        assert "no pybroker is master, but PostgreSQL JDBC Driver from 127.0.0.1" in describe(status)[0]
        first.kill()
        killed_at = now()
        ours.wait_for("listening on")
        print(f"\nkill -9 of an ActiveMQ to pybroker's listeners: {(now() - killed_at) * 1000:.0f} ms")
        send(ours.port, b"to pybroker")
        second = activemq()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%'"
        deadline = now() + 30
        while postgres_database.sql(waiting) != "1":
            assert now() < deadline, "the second ActiveMQ never waited for the row"
        ours.kill()
        second.wait()
        assert received(second.port, 2) == [b"to ActiveMQ", b"to pybroker"]
    finally:
        ours.close()
