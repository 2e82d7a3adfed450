"""Servers that are not what they seem: poolers by transaction, replicas, and commits that are not replicated."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import DatabaseUnavailable, LockNotHeld, StoreUnavailable
from pybroker.store.jdbc.fence import MESSAGES, Fence
from pybroker.store.jdbc.postgres import DatabaseConnection, require_session
from pybroker.store.jdbc.schema import SCHEMA_LOCK, ensure
from tests.integration.cluster import free_port
from tests.postgres.conftest import JdbcLives
from tests.postgres.pooler import TransactionPooler
from tests.postgres_cluster import PostgresCluster, PostgresDatabase

ORDERS = queue("ORDERS")
LOCK_WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
SYNC_WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def pooler(postgres_database: PostgresDatabase) -> Iterator[TransactionPooler]:
    """A pooler by transaction before an empty database."""
    made = TransactionPooler(postgres_database)
    yield made
    made.close()


def test_pooling_by_transaction_is_refused_at_the_start(pooler: TransactionPooler) -> None:
    lives = JdbcLives(pooler.database)
    with pytest.raises(StoreUnavailable, match=r"pools by transaction; .*pool_mode = session"):
        lives.make(url=pooler.url).recover()


def test_pooling_by_transaction_found_late_writes_nothing(
    pooler: TransactionPooler, text_message: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next transaction after another client's gets a session of the server that has no fence."""
    monkeypatch.setattr("pybroker.store.jdbc.store.require_session", lambda *_: None)
    lives = JdbcLives(pooler.database, url=pooler.url)
    lives.open()
    others = [DatabaseConnection(pooler.url) for _ in range(3)]
    for other in others:
        other.execute("BEGIN")
    lives.store.add(text_message(ORDERS, 1))
    lives.loop.run_until(lambda: bool(lives.failures))
    assert "pool_mode = session" in str(lives.failures.pop())
    for other in others:
        other.close()
    assert lives.database.sql("SELECT count(*) FROM activemq_msgs") == "0"
    lives.crash()


def test_direct_connection_is_no_pooler(postgres_database: PostgresDatabase) -> None:
    connection = DatabaseConnection(postgres_database.url)
    assert not connection.is_pooled
    require_session(connection, lambda: pytest.fail("a second connection was opened"))
    connection.close()


def test_fence_of_one_mastership_is_no_other_ones(lives: JdbcLives) -> None:
    """A session of the server may have been another client's, whose prepared statements it still has."""
    connection = DatabaseConnection(lives.database.url)
    Fence(MESSAGES, lives.store.epoch).prepare(connection)
    former = Fence(MESSAGES, lives.store.epoch - 1)
    with pytest.raises(StoreUnavailable, match="does not exist"):
        connection.execute(former.check)
    former.prepare(connection)
    with pytest.raises(LockNotHeld):
        connection.execute(former.check)
    connection.close()


def test_members_that_start_together_create_the_tables_once(postgres_database: PostgresDatabase) -> None:
    """The server's transactions are serializable by default, and would not see what they waited for."""
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET default_transaction_isolation = 'serializable'")
    holder = DatabaseConnection(postgres_database.url)
    holder.execute(f"SELECT pg_advisory_lock({SCHEMA_LOCK})")
    members = [DatabaseConnection(postgres_database.url) for _ in range(2)]
    with ThreadPoolExecutor() as pool:
        created = [pool.submit(ensure, member) for member in members]
        while postgres_database.sql(LOCK_WAITS) != "2":
            assert not any(each.done() for each in created)
        holder.close()
        assert [each.result() for each in created] == [False, False]
    for member in members:
        member.close()


# ---------------------------------------------------------------- replicas


@pytest.fixture
def synchronous(postgres_cluster: PostgresCluster) -> Iterator[Callable[[str], None]]:
    """Sets which replica commits wait for."""

    def set_(name: str) -> None:
        postgres_cluster.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        postgres_cluster.sql("SELECT pg_reload_conf()")
        while postgres_cluster.sql("SHOW synchronous_standby_names") != name:
            pass

    yield set_
    set_("")


def test_cancelled_wait_for_a_replica_is_no_commit(
    adapter: Callable[..., JdbcLives], synchronous: Callable[[str], None], text_message: Any
) -> None:
    lives = adapter(grace=60.0)
    lives.open()
    synchronous("absent")
    safe: list[str] = []
    lives.store.add(text_message(ORDERS, 1))
    lives.store.when_durable(lambda: safe.append("1"))
    lives.loop.turn()
    while lives.database.sql(SYNC_WAITS) != "1":
        assert not lives.failures
    lives.database.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    while lives.database.sql(SYNC_WAITS) != "1":  # raising the attempt's number waits, too
        lives.loop.turn()
        assert not safe
        assert not lives.failures
    synchronous("")
    lives.flush()
    assert safe
    assert lives.database.sql("SELECT id, msgid_seq FROM activemq_msgs") == "1|1"


def test_warning_without_synchronous_replicas_is_only_logged(
    lives: JdbcLives, caplog: pytest.LogCaptureFixture
) -> None:
    connection = DatabaseConnection(lives.database.url)
    connection.execute("DO $$ BEGIN RAISE WARNING 'of a trigger'; END $$")
    assert "of a trigger" in caplog.text
    assert not connection.is_closed
    connection.close()


class Replica:
    """A copy of a server that follows it, asynchronously, until it is promoted."""

    def __init__(self, primary: PostgresCluster) -> None:
        self.primary = primary
        self.port = free_port()
        self.directory = primary.directory / "replica"
        primary._run(
            "pg_basebackup", "-h", str(primary.directory), "-p", str(primary.port), "-U", "postgres", "-D",
            str(self.directory), "-R", "--checkpoint=fast", "--no-sync",
        )  # fmt: skip
        self._pg_ctl("start", "-l", str(primary.directory / "replica.log"), "-o", f"-p {self.port}")

    def sql(self, statement: str, database: str = "postgres") -> str:
        port, self.primary.port = self.primary.port, self.port
        try:
            return self.primary.sql(statement, database)
        finally:
            self.primary.port = port

    def _pg_ctl(self, what: str, *arguments: str) -> None:
        options = f"-k {self.primary.directory}"
        arguments = tuple(f"{each} {options}" if each.startswith("-p ") else each for each in arguments)
        self.primary._run("pg_ctl", what, "-w", "-D", str(self.directory), *arguments)

    def catch_up(self) -> None:
        """Wait until all that is committed is there."""
        wanted = self.primary.sql("SELECT pg_current_wal_lsn()")
        while self.sql(f"SELECT pg_last_wal_replay_lsn() >= '{wanted}'") != "t":
            pass

    def promote(self) -> None:
        self._pg_ctl("promote")

    def remove(self) -> None:
        self._pg_ctl("stop", "-m", "immediate")
        shutil.rmtree(self.directory)


@pytest.fixture
def replica(postgres_cluster: PostgresCluster, postgres_database: PostgresDatabase) -> Iterator[Replica]:
    """A replica of the server with an empty database."""
    made = Replica(postgres_cluster)
    yield made
    made.remove()


def test_replica_is_refused(replica: Replica, postgres_database: PostgresDatabase) -> None:
    with pytest.raises(DatabaseUnavailable, match=r"this is a replica.* name the primary server"):
        DatabaseConnection(postgres_database.through(replica.port))


def test_promoted_replica_ends_the_mastership(
    replica: Replica, postgres_database: PostgresDatabase, text_message: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server lacks confirmed messages, so its contents have to be read instead of trusting memory."""
    lives = JdbcLives(postgres_database, grace=60.0)
    lives.open()
    lives.store.add(text_message(ORDERS, 1))
    lives.flush()
    replica.catch_up()
    replica.sql("SELECT pg_wal_replay_pause()")
    lives.store.add(text_message(ORDERS, 2))
    lives.flush()
    lives.store._url = postgres_database.through(replica.port)  # as a name or an address that moves
    backends = f"datname = '{postgres_database.name}' AND pid <> pg_backend_pid()"
    walsender = "SELECT pg_terminate_backend(pid) FROM pg_stat_replication"
    postgres_database.sql(f"{walsender}; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {backends}")
    replica.promote()
    safe: list[str] = []
    lives.store.add(text_message(ORDERS, 3))
    lives.store.when_durable(lambda: safe.append("3"))
    lives.loop.run_until(lambda: bool(lives.failures))
    failure = lives.failures.pop()
    assert isinstance(failure, LockNotHeld)
    assert "a replica was promoted" in str(failure)
    assert not safe
    lives.crash()
