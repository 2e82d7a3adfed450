"""A database that is away for a while, full, or slow: what was promised holds, and nothing uncertain is promised."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg2  # type: ignore[import-untyped]
import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import DatabaseUnavailable, LockNotHeld, StoreUnavailable
from pybroker.store.jdbc import statements as statements_module
from pybroker.store.jdbc.fence import CHECK, MESSAGES, Fence
from pybroker.store.jdbc.postgres import Copy, DatabaseConnection
from pybroker.store.jdbc.statements import COPY_ROWS_MIN
from tests.conformance.conftest import MemoryLives, bodies
from tests.conformance.test_job_store import job
from tests.conformance.test_store_model import Soak
from tests.pace import in_time
from tests.postgres.conftest import JdbcLives
from tests.postgres.test_jobs import JobLives
from tests.postgres.test_model import in_order

ORDERS = queue("ORDERS")
GRACE_SECONDS = 20.0
WAIT_SECONDS = 20.0
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

Execute = Callable[[DatabaseConnection, Any], None]


@pytest.fixture
def patient(adapter: Callable[..., JdbcLives]) -> JdbcLives:
    """A store that waits for its database, with one message in it."""
    lives = adapter(grace=GRACE_SECONDS)
    lives.open()
    return lives


@pytest.fixture
def sabotage(monkeypatch: pytest.MonkeyPatch) -> Callable[[Execute], list[bytes | Copy]]:
    """Lets the next commit be done by someone else; returns a list that its text will be in."""
    execute = DatabaseConnection.execute

    def arm(instead: Execute) -> list[bytes | Copy]:
        seen: list[bytes | Copy] = []

        def sabotaged(connection: DatabaseConnection, sql: Any, **options: Any) -> None:
            if seen or not is_commit(sql):
                execute(connection, sql, **options)
            else:
                seen.append(sql)
                instead(connection, sql)

        monkeypatch.setattr(DatabaseConnection, "execute", sabotaged)
        return seen

    return arm


def is_commit(sql: str | bytes | Copy) -> bool:
    """Return True if a message to the server is a batch: the fence is in it."""
    text = sql.sql if isinstance(sql, Copy) else sql
    return isinstance(text, bytes) and CHECK in text


def lose(connection: DatabaseConnection) -> None:
    """Let a connection break before the answer came."""
    connection.close()
    raise DatabaseUnavailable("here", "the connection was lost")


def add(lives: JdbcLives, message: Any) -> list[str]:
    """Add a message; return a list that gets its id when it is durable."""
    safe: list[str] = []
    lives.store.add(message)
    lives.store.when_durable(lambda: safe.append(message.message_id))
    return safe


def run_until_failure(lives: JdbcLives) -> Exception:
    lives.loop.run_until(lambda: bool(lives.failures))
    return lives.failures.pop()


def run_until_full(lives: JdbcLives) -> None:
    lives.loop.turn()
    while not lives.store.is_full:
        assert not lives.failures


def run_until_waiting(lives: JdbcLives) -> None:
    """Have the writer wait for a lock in the server."""
    lives.loop.turn()
    while lives.database.sql(WAITING) != "1":
        assert not lives.failures


# ---------------------------------------------------------------- connections that break


def test_a_lost_connection_is_made_again_and_no_one_notices(patient: JdbcLives, text_message: Any) -> None:
    first = add(patient, text_message(ORDERS, 1))
    patient.flush()
    patient.database.sql(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{patient.database.name}'"
        " AND pid <> pg_backend_pid()"
    )
    second = add(patient, text_message(ORDERS, 2))
    patient.flush()
    assert len(first) == len(second) == 1
    assert [each.message_id for each in patient.store.read(ORDERS, first + second)] == first + second


def test_a_restart_of_the_server_is_survived(patient: JdbcLives, text_message: Any) -> None:
    cluster = patient.database.cluster
    cluster.stop(signal.SIGQUIT)  # as in a crash
    safe = add(patient, text_message(ORDERS, 1))
    patient.loop.turn()
    assert not safe
    begun = time.monotonic()
    cluster.start()
    patient.flush()
    print(f"\nfrom the begin of the server's start to the receipt: {time.monotonic() - begun:.2f} s")
    assert safe


def test_after_the_grace_the_store_stops(adapter: Callable[..., JdbcLives], text_message: Any) -> None:
    lives = adapter(grace=1.0)
    lives.open()
    cluster = lives.database.cluster
    cluster.stop(signal.SIGINT)
    begun = time.monotonic()
    safe = add(lives, text_message(ORDERS, 1))
    assert isinstance(run_until_failure(lives), StoreUnavailable)
    seconds = time.monotonic() - begun
    cluster.start()
    assert seconds >= 1.0
    assert in_time(seconds, 5.0)
    assert not safe
    with pytest.raises(StoreUnavailable, match="stopped"):
        lives.store.add(text_message(ORDERS, 2))


def test_giving_up_does_not_wait_for_the_grace(patient: JdbcLives, text_message: Any) -> None:
    cluster = patient.database.cluster
    cluster.stop(signal.SIGINT)
    safe = add(patient, text_message(ORDERS, 1))
    patient.loop.turn()
    begun = time.monotonic()
    patient.store.abandon()
    seconds = time.monotonic() - begun
    cluster.start()
    assert in_time(seconds, 5.0)
    assert not safe


def test_jobs_survive_a_lost_connection(postgres_database: Any, text_message: Any) -> None:
    lives = JobLives(postgres_database, 1_000_000, grace=GRACE_SECONDS)
    lives.open()
    postgres_database.sql(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{postgres_database.name}'"
        " AND pid <> pg_backend_pid()"
    )
    lives.store.add(job("a"))
    lives.flush()
    lives.end()


# ---------------------------------------------------------------- commits of unknown outcome


def test_a_commit_without_an_answer_is_found_done(patient: JdbcLives, text_message: Any, sabotage: Any) -> None:
    def commit_and_lose(connection: DatabaseConnection, sql: bytes) -> None:
        connection.execute(sql)
        lose(connection)

    sabotage(commit_and_lose)
    safe = add(patient, text_message(ORDERS, 1))
    patient.flush()
    assert safe
    assert patient.database.sql("SELECT id, msgid_seq FROM activemq_msgs") == "1|1"


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_what_is_still_under_way_is_waited_for(
    patient: JdbcLives, text_message: Any, sabotage: Any, outcome: str
) -> None:
    """The server goes on with what it was sent, connection or not: its outcome counts, whichever it is."""
    session = psycopg2.connect(patient.database.url)
    with session.cursor() as cursor:
        cursor.execute("SELECT FROM pybroker_epoch WHERE id = 1 FOR SHARE")

    def leave_to_the_server(connection: DatabaseConnection, sql: bytes) -> None:
        with session.cursor() as cursor:
            cursor.execute(sql.partition(b";")[2])
        lose(connection)

    sabotage(leave_to_the_server)
    safe = add(patient, text_message(ORDERS, 1))
    run_until_waiting(patient)
    assert not safe
    getattr(session, outcome)()
    session.close()
    patient.flush()
    assert safe
    assert patient.database.sql("SELECT id, msgid_seq FROM activemq_msgs") == "1|1"


@pytest.mark.parametrize("count", [1, COPY_ROWS_MIN])
def test_what_reaches_the_server_late_has_no_effect(
    patient: JdbcLives, text_message: Any, sabotage: Any, count: int
) -> None:
    """A proxy or a router may hold a transaction back and deliver it when its sender has long gone on."""
    texts = sabotage(lambda connection, _: lose(connection))
    safe = [add(patient, text_message(ORDERS, number)) for number in range(1, count + 1)]
    patient.flush()
    assert isinstance(texts[0], Copy) is (count == COPY_ROWS_MIN)
    for (message_id,) in safe:
        patient.store.remove(ORDERS, message_id)
    patient.flush()
    lost = DatabaseConnection(patient.database.url)  # as the lost one was prepared
    Fence(MESSAGES, patient.store.epoch).prepare(lost)
    with pytest.raises(LockNotHeld):
        lost.execute(texts[0])
    lost.close()
    assert patient.database.sql("SELECT count(*) FROM activemq_msgs") == "0"


def test_another_master_during_the_outage_ends_it(patient: JdbcLives, text_message: Any, sabotage: Any) -> None:
    other = patient.make()
    texts = sabotage(lambda connection, _: other.recover() and lose(connection))
    safe = add(patient, text_message(ORDERS, 1))
    assert isinstance(run_until_failure(patient), LockNotHeld)
    assert texts
    assert not safe
    other.abandon()


def test_another_kind_of_master_during_the_outage_ends_it(patient: JdbcLives, text_message: Any, sabotage: Any) -> None:
    """An ActiveMQ raises no epoch. What it wrote under our ids is not taken for ours."""

    def write_as_activemq(connection: DatabaseConnection, _: bytes) -> None:
        patient.database.sql("INSERT INTO activemq_msgs VALUES (1, 'queue://ORDERS', 'ID:amq:1:1', 7, 0, '', 0, NULL)")
        lose(connection)

    sabotage(write_as_activemq)
    safe = add(patient, text_message(ORDERS, 1))
    failure = run_until_failure(patient)
    assert isinstance(failure, LockNotHeld)
    assert "id 1" in str(failure)
    assert not safe
    patient.database.sql("DELETE FROM activemq_msgs")


def test_the_lock_is_checked_before_a_commit_is_repeated(patient: JdbcLives, text_message: Any, sabotage: Any) -> None:
    def lose_lock_too(connection: DatabaseConnection, _: bytes) -> None:
        patient.is_master = False
        lose(connection)

    sabotage(lose_lock_too)
    safe = add(patient, text_message(ORDERS, 1))
    assert isinstance(run_until_failure(patient), LockNotHeld)
    assert not safe
    assert patient.database.sql("SELECT count(*) FROM activemq_msgs") == "0"


@pytest.mark.parametrize(("seed", "copied_from"), [(0, COPY_ROWS_MIN), (1, 1)])
def test_a_life_on_a_bad_line(
    postgres_database: Any, text_message: Any, seed: int, copied_from: int, monkeypatch: Any
) -> None:
    """Every third commit loses its connection, before or after the server has done it; nothing is seen of it."""
    monkeypatch.setattr(statements_module, "COPY_ROWS_MIN", copied_from)
    execute, count = DatabaseConnection.execute, iter(range(1_000_000))

    def flaky(connection: DatabaseConnection, sql: Any, **options: Any) -> None:
        number = next(count) if is_commit(sql) else 1
        if number % 3 == 0 and number % 2 == 0:
            lose(connection)
        execute(connection, sql, **options)
        if number % 3 == 0:
            lose(connection)

    monkeypatch.setattr(DatabaseConnection, "execute", flaky)
    memory, database = MemoryLives(prioritized=False), JdbcLives(postgres_database, grace=GRACE_SECONDS)
    for lives in (memory, database):
        lives.open()
    soak = Soak([memory.store, database.store], text_message, seed)
    soak.subscribe()
    for step in range(1, 301):
        soak.step()
        if step % 7 == 0:
            database.flush()
    database.flush()
    for each in (memory, database):
        each.crash()
    database.loop.turn()
    expected, found = memory.open(), database.open()
    assert in_order(found) == in_order(expected)
    assert bodies(database.store, found) == bodies(memory.store, expected)
    assert not database.store.damages
    assert not database.failures
    database.crash()


# ---------------------------------------------------------------- a full disk


FULL_DISK = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;"
    "CREATE TRIGGER full_disk BEFORE INSERT ON activemq_msgs EXECUTE FUNCTION refuse()"
)
FREE_DISK = "DROP TRIGGER full_disk ON activemq_msgs"


@pytest.mark.parametrize("text_bytes_max", [32 << 20, 1])
def test_a_full_disk_has_producers_refused_until_space_is_free(
    lives: JdbcLives, text_message: Any, monkeypatch: pytest.MonkeyPatch, text_bytes_max: int
) -> None:
    """A batch may be sent in several messages, and the transaction is still open when one of them fails."""
    monkeypatch.setattr(statements_module, "TEXT_BYTES_MAX", text_bytes_max)
    lives.database.sql(FULL_DISK)
    safe = [add(lives, text_message(ORDERS, number)) for number in range(1, COPY_ROWS_MIN + 1)]
    run_until_full(lives)
    assert not any(safe)
    lives.database.sql(FREE_DISK)
    lives.flush()
    assert all(safe)
    assert not lives.store.is_full


def test_an_orderly_end_on_a_full_disk_does_not_wait_for_ever(lives: JdbcLives, text_message: Any) -> None:
    lives.database.sql(FULL_DISK)
    safe = add(lives, text_message(ORDERS, 1))
    run_until_full(lives)
    with pytest.raises(StoreUnavailable, match="free space"):
        lives.close()
    lives.database.sql(FREE_DISK)
    assert not safe
    lives.loop.turn()
    lives.failures.clear()


# ---------------------------------------------------------------- slow reads


def test_a_read_that_takes_long_is_not_waited_for(adapter: Callable[..., JdbcLives], text_message: Any) -> None:
    lives = adapter(read_seconds=0.05)
    lives.open()
    readable: list[int] = []
    lives.store.on_readable = lambda: readable.append(1)
    safe = add(lives, text_message(ORDERS, 1))
    lives.flush()
    (message_id,) = safe
    with psycopg2.connect(lives.database.url) as session, session.cursor() as cursor:
        cursor.execute("LOCK TABLE activemq_msgs IN ACCESS EXCLUSIVE MODE")
        for _ in range(20):
            with pytest.raises(StoreUnavailable, match="not answered yet"):
                lives.store.read(ORDERS, [message_id])
        assert not readable
    session.close()
    lives.loop.run_until(lambda: bool(readable))
    assert [each.message_id for each in lives.store.read(ORDERS, [message_id])] == safe
    lives.options["read_seconds"] = WAIT_SECONDS


def test_the_next_page_is_there_before_it_is_requested(patient: JdbcLives, text_message: Any) -> None:
    messages = [text_message(ORDERS, number) for number in range(1, 31)]
    ids = [message.message_id for message in messages]
    for message in messages:
        patient.store.add(message)
    patient.flush()
    assert [each.message_id for each in patient.store.read(ORDERS, ids[:10])] == ids[:10]
    patient.store.read(ORDERS, ids[-1:])  # in the reader's thread it comes behind the look ahead
    with psycopg2.connect(patient.database.url) as session, session.cursor() as cursor:
        cursor.execute("LOCK TABLE activemq_msgs IN ACCESS EXCLUSIVE MODE")
        assert [each.message_id for each in patient.store.read(ORDERS, ids[10:20])] == ids[10:20]
    session.close()
    assert [each.message_id for each in patient.store.read(ORDERS, ids)] == ids, "and again, in any order"


def test_messages_can_be_read_again_once_the_database_is_back(patient: JdbcLives, text_message: Any) -> None:
    add(patient, text_message(ORDERS, 1))
    patient.flush()
    cluster = patient.database.cluster
    cluster.stop(signal.SIGINT)
    restart = threading.Thread(target=cluster.start)
    restart.start()
    found = patient.store.read(ORDERS, [text_message(ORDERS, 1).message_id])
    restart.join(WAIT_SECONDS)
    assert [each.message_id for each in found] == [text_message(ORDERS, 1).message_id]
