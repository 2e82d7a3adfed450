"""Our locks in a database against the real thing: a whole ActiveMQ with its JDBC store, in a process of its own."""

import dataclasses
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.postgres.provider import PostgresLock
from pybroker.locks.postgres.timing import now
from tests.conftest import JAR_DIRECTORY, JDBC_JARS
from tests.integration.postgres_lock_holder import make
from tests.integration.test_postgres_locks import LEASE_SECONDS, Member, report, until, wait_for_a_waiter, wins
from tests.pace import in_time
from tests.postgres_cluster import PASSWORD, USER, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

pytestmark = [pytest.mark.component("activemq-jdbc"), pytest.mark.alone]  # on a busy machine ActiveMQ loses its lock

PROBE = Path(__file__).parent / "java" / "DatabaseLockProbe.java"
LIMIT_SECONDS = 60


@pytest.fixture(params=["row", "lease"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def activemq(java: Any, postgres_database: PostgresDatabase) -> Iterator[Callable[[str], Member]]:
    """Starts ActiveMQ with a kind of lock; it has printed `waiting`."""
    jars = [str(JAR_DIRECTORY / jar) for jar in JDBC_JARS]
    with_driver = dataclasses.replace(java, class_path=os.pathsep.join([java.class_path, *jars]))
    where = f"jdbc:postgresql://127.0.0.1:{postgres_database.cluster.port}/{postgres_database.name}"
    with ExitStack() as stack:

        def start(kind: str) -> Member:
            lease_ms = str(round(LEASE_SECONDS * 1000))
            command = with_driver.command(PROBE, kind, where, USER, PASSWORD, lease_ms)
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            member = Member(process)
            assert member.read_line() == "waiting"
            return member

        yield start


@pytest.fixture
def lock(kind: str, postgres_database: PostgresDatabase) -> Iterator[PostgresLock]:
    lock = make(kind, postgres_database.url, LEASE_SECONDS, "stock")  # as ActiveMQ's name: it must not matter
    yield lock
    lock.release()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_activemq_keeps_us_out_and_its_death_lets_us_in(
    kind: str, activemq: Any, lock: PostgresLock, pool: ThreadPoolExecutor, postgres_database: PostgresDatabase
) -> None:
    master = activemq(kind)
    assert master.read_line() == "held"
    assert not lock.try_acquire()
    won = pool.submit(wins, lock)
    wait_for_a_waiter(postgres_database, kind)
    assert master.check() == "ours", "a waiter must not disturb the master"
    master.process.kill()
    killed_at = now()
    seconds = won.result(LIMIT_SECONDS) - killed_at
    report("kill -9 of an ActiveMQ to the lock being ours", kind, seconds)
    assert in_time(seconds, LEASE_SECONDS + 1 if kind == "lease" else 2)


def test_we_keep_activemq_out_until_we_release(
    kind: str, activemq: Any, lock: PostgresLock, postgres_database: PostgresDatabase
) -> None:
    assert lock.try_acquire()
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET log_min_duration_statement = 0")
    logged = len(postgres_database.cluster.log.read_bytes())
    standby = activemq(kind)
    if kind == "row":
        wait_for_a_waiter(postgres_database, kind)
    else:
        until(lambda: has_tried(postgres_database, logged))
        assert postgres_database.sql("SELECT broker_name FROM activemq_lock") != "stock"
    lock.check()
    lock.release()
    released_at = now()
    assert standby.read_line() == "held"
    report("release to an ActiveMQ serving", kind, now() - released_at)
    assert not lock.try_acquire()


def has_tried(database: PostgresDatabase, offset: int) -> bool:
    """Return True if an ActiveMQ has run a statement for its lease; it connects for that, and is gone in a moment.

    It is in the server's log, behind an offset: a look at the sessions may always fall in between.
    """
    lines = database.cluster.log.read_bytes()[offset:].decode().splitlines()
    return any("duration: " in line and "update activemq_lock" in line.lower() for line in lines if "JDBC" in line)


def test_mixed_kinds_are_refused(activemq: Any, postgres_database: PostgresDatabase) -> None:
    """ActiveMQ with its default, the row lock, and we with a lease: the two would not exclude each other."""
    master = activemq("row")
    assert master.read_line() == "held"
    lease = make("lease", postgres_database.url, LEASE_SECONDS, "m")
    with pytest.raises(ConfigError, match="postgres-row, if one is an ActiveMQ"):
        lease.try_acquire()
    assert master.check() == "ours"
