# mypy: disable-error-code="arg-type, assignment, attr-defined, misc, no-redef"
"""Locks in a real PostgreSQL: what every lock does, and what happens when processes, sessions, links and servers fail.

Times are printed; `pytest -s` shows them. The leases are short here, and the times scale with them.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg2  # type: ignore[import-untyped]
import pytest

from pybroker.broker.domain.errors import ConfigError, DatabaseUnavailable, LockNotHeld, StoreUnavailable
from pybroker.locks.postgres.lease import PostgresLeaseLock
from pybroker.locks.postgres.provider import Database, PostgresLock
from pybroker.locks.postgres.row import PostgresRowLock
from pybroker.locks.postgres.session import DatabaseSession, DatabaseTarget, StatementRefused
from pybroker.locks.postgres.timing import Timing, now
from tests.conformance import test_locks as conformance
from tests.conformance.test_locks import *  # noqa: F403 - the suite, run with the fixtures below
from tests.integration.postgres_lock_holder import make
from tests.integration.stalling_proxy import StallingProxy
from tests.pace import in_time
from tests.postgres_cluster import PASSWORD, PASSWORD_IN_URL, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

ROOT = Path(__file__).parents[2]
HOLDER = ROOT / "tests" / "integration" / "postgres_lock_holder.py"
KINDS = ["row", "lease", "advisory"]
LIMIT_SECONDS = 30.0  # far beyond anything that works
LEASE_SECONDS = 3.0

NewLock = Callable[[], PostgresLock]


# ---------------------------------------------------------------- the conformance suite's fixtures


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def new_lock(kind: str, postgres_database: PostgresDatabase) -> Iterator[NewLock]:
    made: list[PostgresLock] = []

    def new() -> PostgresLock:
        made.append(make(kind, postgres_database.url, LEASE_SECONDS, "same name"))
        return made[-1]

    yield new
    for lock in made:
        lock.release()


@pytest.fixture
def new_shared_lock(
    new_lock: NewLock, kind: str, postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> NewLock:
    @contextmanager
    def holder_process(lock: PostgresLock) -> Iterator[subprocess.Popen[str]]:
        with running(kind, postgres_database.url) as member:
            yield member.process

    monkeypatch.setattr(conformance, "holder_process", holder_process)
    return new_lock


# ---------------------------------------------------------------- members in processes of their own


class Member:
    """A process with a lock; see `postgres_lock_holder.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def send(self, words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()

    def check(self) -> str:
        """Return the answer to `check`: `ours`, or `lost` with the reason."""
        self.send("check")
        return self.read_line()


@contextmanager
def running(kind: str, url: str, lease_seconds: float = LEASE_SECONDS) -> Iterator[Member]:
    """Start a member, of the same name as all others; it has printed `waiting`."""
    command = [sys.executable, str(HOLDER), kind, url, str(lease_seconds), "same name"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stdin=pipe, stdout=pipe, text=True
    ) as process:
        try:
            member = Member(process)
            assert member.read_line() == "waiting"
            yield member
        finally:
            process.kill()


@pytest.fixture
def start(kind: str, postgres_database: PostgresDatabase) -> Iterator[Callable[..., Member]]:
    """Starts members on the database, or on another way to it."""
    with ExitStack() as stack:
        yield lambda url=postgres_database.url: stack.enter_context(running(kind, url))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def wins(lock: PostgresLock) -> float:
    """Wait for a lock; return when it was won."""
    assert lock.acquire()
    lock.check()
    return now()


def report(what: str, kind: str, seconds: float) -> None:
    print(f"\n{what:<58} {kind:<9} {seconds * 1000:8.1f} ms   (lease {LEASE_SECONDS:g} s)")


def wait_for_a_waiter(database: PostgresDatabase, kind: str) -> None:
    """Return once someone waits inside the server; who has a lease is waited for outside."""
    if kind != "lease":
        asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        until(lambda: database.sql(asked) == "1")


def duration_of(call: Callable[[], None]) -> float:
    began_at = now()
    call()
    return now() - began_at


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came true"


# ---------------------------------------------------------------- failures


def test_kill_of_the_holder(
    kind: str, start: Callable[..., Member], new_lock: NewLock, pool: ThreadPoolExecutor, postgres_database
) -> None:
    """Row and advisory lock: at once. Lease: when it has run out."""
    holder = start()
    assert holder.read_line() == "held"
    won = pool.submit(wins, new_lock())
    wait_for_a_waiter(postgres_database, kind)
    holder.process.kill()
    killed_at = now()
    seconds = won.result(LIMIT_SECONDS) - killed_at
    report("kill -9 of the holder to the lock being ours", kind, seconds)
    assert in_time(seconds, LEASE_SECONDS + 1 if kind == "lease" else 1)


def test_frozen_holder_detects_the_lost_lock_first(
    kind: str,
    start: Callable[..., Member],
    new_lock: NewLock,
    pool: ThreadPoolExecutor,
    postgres_database,
    tmp_path: Path,
) -> None:
    """SIGSTOP beyond the lease, then SIGCONT, with equal broker names: never are there two holders."""
    holder, trace = start(), tmp_path / "checked"
    assert holder.read_line() == "held"
    won = pool.submit(wins, new_lock())
    wait_for_a_waiter(postgres_database, kind)
    holder.send(f"watch {trace}")
    until(lambda: trace.exists() and bool(trace.read_text()))
    os.kill(holder.pid, signal.SIGSTOP)
    stopped_at = now()
    won_at = won.result(LIMIT_SECONDS)
    os.kill(holder.pid, signal.SIGCONT)
    thawed_at = now()
    word, lost_at, _ = holder.read_line().split(" ", 2)
    assert word == "lost"
    report("SIGSTOP of the holder to the lock being ours", kind, won_at - stopped_at)
    report("SIGCONT to the former holder's first refusal", kind, float(lost_at) - thawed_at)
    assert float(trace.read_text()) < won_at, "a thawed master still believed it held the lock"
    assert in_time(won_at - stopped_at, LEASE_SECONDS + 1)
    assert holder.check().startswith("lost")


@pytest.mark.parametrize("kind", ["row", "advisory"])
def test_frozen_standby_that_is_given_the_lock_does_not_keep_it(
    start: Callable[..., Member], new_lock: NewLock, pool: ThreadPoolExecutor, kind: str, postgres_database
) -> None:
    """The server passes the lock to the longest waiter, even if it is frozen. Once that one thaws, its win is stale."""
    lock = new_lock()
    assert lock.try_acquire()
    frozen = start()
    wait_for_a_waiter(postgres_database, kind)
    os.kill(frozen.pid, signal.SIGSTOP)
    released_at = now()
    lock.release()
    assert lock.acquire()
    seconds = now() - released_at
    report("release to a frozen standby to the lock being ours", kind, seconds)
    assert in_time(seconds, LEASE_SECONDS + 1)
    os.kill(frozen.pid, signal.SIGCONT)
    wait_for_a_waiter(postgres_database, kind)
    lock.check()
    lock.release()
    assert frozen.read_line() == "held", "not before"


def test_termination_of_the_locks_session(
    start: Callable[..., Member],
    new_lock: NewLock,
    pool: ThreadPoolExecutor,
    postgres_database: PostgresDatabase,
    kind: str,
) -> None:
    """The former holder learns it from its connection; a lease is renewed on another one."""
    lock = new_lock()
    assert lock.try_acquire()
    successor = start()
    wait_for_a_waiter(postgres_database, kind)
    postgres_database.sql(f"SELECT pg_terminate_backend({lock.backend_pid})")
    terminated_at = now()
    if kind == "lease":
        first = lock.backend_pid
        until(lambda: lock.backend_pid not in (None, first))
        lock.check()
        return
    with pytest.raises(LockNotHeld, match="terminating connection"):
        until(lambda: lock.check() is not None)
    seconds = now() - terminated_at
    report("pg_terminate_backend to the holder's first refusal", kind, seconds)
    assert in_time(seconds, 1), "the end of the stream is noticed at once"
    assert successor.read_line() == "held"
    report("pg_terminate_backend to the successor", kind, now() - terminated_at)


def test_black_holed_link(
    kind: str,
    start: Callable[..., Member],
    new_lock: NewLock,
    pool: ThreadPoolExecutor,
    postgres_database,
    tmp_path: Path,
) -> None:
    """A proxy stops moving bytes and closes nothing: the old master steps back before the server frees the lock."""
    with StallingProxy(postgres_database.cluster.port) as proxy:
        holder, trace = start(postgres_database.through(proxy.port)), tmp_path / "checked"
        assert holder.read_line() == "held"
        won = pool.submit(wins, new_lock())
        wait_for_a_waiter(postgres_database, kind)
        holder.send(f"watch {trace}")
        until(lambda: trace.exists() and bool(trace.read_text()))
        proxy.stall()
        stalled_at = now()
        lost_at = float(holder.read_line().split(" ", 2)[1])
        won_at = won.result(LIMIT_SECONDS)
    report("black hole to the holder's first refusal", kind, lost_at - stalled_at)
    report("black hole to the lock being ours", kind, won_at - stalled_at)
    assert float(trace.read_text()) < won_at, "two believed they held the lock"
    assert lost_at < won_at
    assert in_time(won_at - stalled_at, LEASE_SECONDS + 1)


@pytest.mark.alone
def test_check_does_not_wait_while_the_link_is_a_black_hole(kind: str, postgres_database: PostgresDatabase) -> None:
    with StallingProxy(postgres_database.cluster.port) as proxy:
        lock = make(kind, postgres_database.through(proxy.port), LEASE_SECONDS, "m")
        assert lock.acquire()
        proxy.stall()
        durations: list[float] = []
        with pytest.raises(LockNotHeld, match=r"not confirmed for|no answer in time"):
            until(lambda: durations.append(duration_of(lock.check)) is not None)
        assert in_time(max(durations), 0.5), "a scheduler's pause at most"
        seconds = duration_of(lock.release)
        report("release of a lost lock through a black hole", kind, seconds)
        assert in_time(seconds, 0.5)


def test_release_through_a_black_hole_does_not_hang(kind: str, postgres_database: PostgresDatabase) -> None:
    with StallingProxy(postgres_database.cluster.port) as proxy:
        lock = make(kind, postgres_database.through(proxy.port), LEASE_SECONDS, "m")
        assert lock.acquire()
        proxy.stall()
        seconds = duration_of(lock.release)
        report("release of a held lock through a black hole", kind, seconds)
        assert in_time(seconds, 2)


def test_waiter_on_a_black_holed_link_can_be_cancelled(
    kind: str, postgres_database: PostgresDatabase, new_lock: NewLock, pool: ThreadPoolExecutor
) -> None:
    holder = new_lock()
    assert holder.acquire()
    with StallingProxy(postgres_database.cluster.port) as proxy:
        waiter = make(kind, postgres_database.through(proxy.port), LEASE_SECONDS, "m")
        waiting = pool.submit(waiter.acquire)
        wait_for_a_waiter(postgres_database, kind)
        proxy.stall()
        asked_at = now()
        waiter.cancel()
        assert waiting.result(LIMIT_SECONDS) is False
        assert in_time(now() - asked_at, 6)
    holder.check()


def test_restart_of_the_database(kind: str, pool: ThreadPoolExecutor, postgres_database: PostgresDatabase) -> None:
    """A row lock is gone, and one of the two wins it again; a lease outlives the restart. No one stops waiting."""
    cluster = postgres_database.cluster
    longer = Timing.of(30.0, 0.5)  # than any restart takes; and a renewal is soon seen
    locks = [make(kind, postgres_database.url, longer, "same name") for _ in range(2)]
    assert locks[0].try_acquire()
    waiting = pool.submit(locks[1].acquire)
    wait_for_a_waiter(postgres_database, kind)
    begun_at = now()
    cluster.stop(signal.SIGINT)
    if kind != "lease":
        with pytest.raises(LockNotHeld):
            until(lambda: locks[0].check() is not None)
        assert not locks[0].try_acquire(), "unreachable, and known to have been there: to be waited for"
    cluster.start()
    report("restart of the database", kind, now() - begun_at)
    if kind != "lease":
        assert waiting.result(LIMIT_SECONDS)
        report("begin of the restart to the lock being ours", kind, now() - begun_at)
        locks[1].check()
        locks[1].release()
        return
    renewed_before = postgres_database.sql("SELECT time FROM activemq_lock")
    until(lambda: postgres_database.sql("SELECT time FROM activemq_lock") != renewed_before)
    locks[0].check()
    assert not waiting.done()
    locks[0].release()
    assert waiting.result(LIMIT_SECONDS)
    locks[1].release()


def test_crash_of_the_database_ends_no_wait(
    kind: str, new_lock: NewLock, pool: ThreadPoolExecutor, postgres_database: PostgresDatabase
) -> None:
    cluster = postgres_database.cluster
    lock = new_lock()
    assert lock.try_acquire()
    waiting = pool.submit(wins, new_lock())
    wait_for_a_waiter(postgres_database, kind)
    cluster.stop(signal.SIGQUIT)
    with pytest.raises(LockNotHeld):  # a lease, too, when the database is away for so long
        until(lambda: lock.check() is not None)
    lost_at = now()
    cluster.start()
    assert waiting.result(LIMIT_SECONDS) > lost_at


def test_cancelled_statement_ends_no_wait(
    kind: str, new_lock: NewLock, pool: ThreadPoolExecutor, postgres_database: PostgresDatabase
) -> None:
    """Monitors cancel long waits with `pg_cancel_backend`."""
    lock, waiter = new_lock(), new_lock()
    assert lock.try_acquire()
    waiting = pool.submit(waiter.acquire)
    waits = f"pid <> {lock.backend_pid} AND pid <> pg_backend_pid() AND datname = current_database()"
    for _ in range(2):
        wait_for_a_waiter(postgres_database, kind)
        postgres_database.sql(f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {waits}")
    wait_for_a_waiter(postgres_database, kind)
    assert not waiting.done()
    lock.release()
    assert waiting.result(LIMIT_SECONDS)
    waiter.release()


def test_statement_cancelled_at_the_connect_ends_no_wait(new_lock: NewLock, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[DatabaseSession] = []

    def cancel_once(session: DatabaseSession) -> None:
        if not cancelled:
            cancelled.append(session)
            raise StatementRefused("canceling statement due to user request", "57014")

    monkeypatch.setattr("pybroker.locks.postgres.provider.require_primary", cancel_once)
    assert new_lock().acquire()
    assert cancelled[0].is_closed


def test_connection_limit_is_reported_with_the_remedy(postgres_database: PostgresDatabase) -> None:
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} CONNECTION LIMIT 0")
    with pytest.raises(DatabaseUnavailable, match=r"too many connections for database.* CONNECTION LIMIT"):
        DatabaseSession(DatabaseTarget(postgres_database.url), Timing.of())


@pytest.mark.parametrize("kind", ["row", "lease"])
def test_locked_table_ends_no_wait(
    new_lock: NewLock, pool: ThreadPoolExecutor, postgres_database: PostgresDatabase
) -> None:
    """An operator locks the table, for example with ALTER TABLE, for longer than a statement waits for a lock."""
    first, lock = new_lock(), new_lock()
    assert first.try_acquire()
    first.release()
    lock._database.open().close()  # it was reached
    with contextlib.closing(psycopg2.connect(postgres_database.url)) as operator:
        operator.cursor().execute("LOCK TABLE activemq_lock")
        assert not lock.try_acquire(), "to be waited for"
        waiting = pool.submit(lock.acquire)
        assert not waiting.done()
    assert waiting.result(LIMIT_SECONDS)


def test_lease_on_a_locked_table_is_no_mistake_in_a_setting(postgres_database: PostgresDatabase) -> None:
    """Unlike a row lock, which another kind of member has."""
    lock = make("lease", postgres_database.url, LEASE_SECONDS, "m")
    with contextlib.closing(lock._database.open()) as session:
        lock._prepare(session)
        with contextlib.closing(psycopg2.connect(postgres_database.url)) as operator:
            operator.cursor().execute("LOCK TABLE activemq_lock")
            with pytest.raises(StatementRefused) as caught:
                lock._take(session)
    assert caught.value.is_transient


# ---------------------------------------------------------------- leases


def test_lease_goes_by_the_databases_clock(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member whose clock is an hour fast does not think that the lease ran out; nor does it write its own time."""
    first, second = (make("lease", postgres_database.url, LEASE_SECONDS, "m") for _ in range(2))
    assert first.try_acquire()
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9 + 3600)
    assert not second.try_acquire()
    first.release()
    assert second.try_acquire()
    left = postgres_database.sql("SELECT time - extract(epoch FROM clock_timestamp()) * 1000 FROM activemq_lock")
    assert 0 < float(left) <= LEASE_SECONDS * 1000
    second.release()


# The database's clock as it can be set: by so much behind.
CLOCK = """
CREATE SCHEMA clock; GRANT USAGE ON SCHEMA clock TO public;
CREATE TABLE clock.behind (by interval NOT NULL); GRANT SELECT ON clock.behind TO public;
INSERT INTO clock.behind VALUES ('0');
CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
  'SELECT pg_catalog.clock_timestamp() - by FROM clock.behind';
"""


def test_dead_holders_lease_ends_despite_clock_set_back(
    pool: ThreadPoolExecutor, postgres_database: PostgresDatabase
) -> None:
    postgres_database.sql(CLOCK)
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET search_path = public, clock, pg_catalog")
    dead = make("lease", postgres_database.url, LEASE_SECONDS, "dead")
    session = DatabaseSession(DatabaseTarget(postgres_database.url), Timing.of(LEASE_SECONDS))
    dead._prepare(session)
    assert dead._take(session)
    standby = make("lease", postgres_database.url, LEASE_SECONDS, "standby")
    assert isinstance(standby, PostgresLeaseLock)
    waiting = pool.submit(standby.acquire)
    until(lambda: standby._seen[0].startswith("dead@"))
    postgres_database.sql("UPDATE clock.behind SET by = '1 hour'")
    assert waiting.result(LIMIT_SECONDS)
    standby.check()
    standby.release()
    session.close()


def test_renewed_lease_is_kept_despite_clock_set_back(
    pool: ThreadPoolExecutor, postgres_database: PostgresDatabase
) -> None:
    postgres_database.sql(CLOCK)
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET search_path = public, clock, pg_catalog")
    lease = 1.5
    master, standby = (make("lease", postgres_database.url, lease, name) for name in ("master", "standby"))
    assert isinstance(standby, PostgresLeaseLock)
    assert master.try_acquire()
    waiting = pool.submit(standby.acquire)
    until(lambda: standby._seen[0].startswith("master@"))
    postgres_database.sql("UPDATE clock.behind SET by = '1 hour'")
    ends = {standby._seen}
    until(lambda: ends.add(standby._seen) or len(ends) > 6)  # more than two leases
    master.check()
    assert not waiting.done()
    master.release()
    assert waiting.result(LIMIT_SECONDS)
    standby.release()


def test_advisory_lock_of_another_process_is_not_ours(postgres_database: PostgresDatabase) -> None:
    """A pooler by transaction answers from whatever process of the server is free."""
    lock = make("advisory", postgres_database.url, LEASE_SECONDS, "m")
    assert lock.try_acquire()
    session = DatabaseSession(DatabaseTarget(postgres_database.url), Timing.of(LEASE_SECONDS))
    with pytest.raises(LockNotHeld, match="let it pool by session"):
        lock._confirm(session, 5.0)
    session.close()
    lock.check()
    lock.release()


def test_lease_is_renewed_well_before_it_ends(postgres_database: PostgresDatabase) -> None:
    lock = make("lease", postgres_database.url, LEASE_SECONDS, "m")
    assert lock.try_acquire()
    ends = {postgres_database.sql("SELECT time FROM activemq_lock")}
    began_at = now()
    while len(ends) < 4:
        ends.add(postgres_database.sql("SELECT time FROM activemq_lock"))
        lock.check()
    assert in_time(now() - began_at, LEASE_SECONDS * 1.5)
    began_at = now()
    lock.release()
    if now() - began_at < 1:  # else it has left this to the end of the lease, as it says
        assert postgres_database.sql("SELECT broker_name IS NULL, time FROM activemq_lock") == "t|0"


def test_lease_that_another_took_is_lost_at_the_next_renewal(postgres_database: PostgresDatabase) -> None:
    lock = make("lease", postgres_database.url, LEASE_SECONDS, "m")
    assert lock.try_acquire()
    postgres_database.sql("UPDATE activemq_lock SET broker_name = 'usurper'")
    with pytest.raises(LockNotHeld, match="names usurper"):
        until(lambda: lock.check() is not None)
    lock.release()
    assert postgres_database.sql("SELECT broker_name FROM activemq_lock") == "usurper"


def test_expired_free_lease_is_not_renewed(postgres_database: PostgresDatabase) -> None:
    lock = make("lease", postgres_database.url, LEASE_SECONDS, "m")
    assert lock.try_acquire()
    postgres_database.sql("UPDATE activemq_lock SET time = 1")
    with pytest.raises(LockNotHeld, match="ran out"):
        until(lambda: lock.check() is not None)
    lock.release()


def test_holders_are_unique_though_names_are_equal(postgres_database: PostgresDatabase) -> None:
    database = Database(postgres_database.url)
    first, second = (PostgresLeaseLock(database, member="x" * 300) for _ in range(2))
    assert first.holder != second.holder
    assert len(first.holder) <= 250


# ---------------------------------------------------------------- contradictions and bad input


def test_row_lock_refuses_a_valid_lease(postgres_database: PostgresDatabase) -> None:
    lease, row = (make(kind, postgres_database.url, LEASE_SECONDS, "m") for kind in ("lease", "row"))
    assert lease.try_acquire()
    for attempt in (row.try_acquire, row.acquire):
        with pytest.raises(ConfigError, match="has a lease, which a row lock does not exclude; use the same kind"):
            attempt()
    lease.check()
    lease.release()
    assert row.try_acquire(), "a lease that was given back is no contradiction"
    row.release()


def test_lease_refuses_a_row_lock(postgres_database: PostgresDatabase) -> None:
    row, lease = (make(kind, postgres_database.url, LEASE_SECONDS, "m") for kind in ("row", "lease"))
    assert row.try_acquire()
    with pytest.raises(ConfigError, match="row lock, which a lease does not exclude; use the same kind"):
        lease.try_acquire()
    row.check()
    row.release()


def test_unreachable_database_is_an_error_at_the_first_try(postgres_database: PostgresDatabase) -> None:
    url = postgres_database.through(1)
    with pytest.raises(DatabaseUnavailable, match=r"refused.*start PostgreSQL there") as caught:
        make("row", url, LEASE_SECONDS, "m").try_acquire()
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        (PASSWORD_IN_URL, "wr0ng", "password authentication failed.*check user and password"),
        (f":{PASSWORD_IN_URL}", "", "no password supplied.*put the password"),
        ("/test_", "/no_test_", "does not exist; create the database"),
        ("127.0.0.1", "no-such-host.invalid", "translate host name.*check the host's name"),
    ],
)
def test_wrong_urls_are_reported_with_the_remedy(
    postgres_database: PostgresDatabase, wrong: str, right: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    url = postgres_database.url.replace(wrong, right, 1)
    with pytest.raises(DatabaseUnavailable, match=message) as caught:
        make("lease", url, LEASE_SECONDS, "m").try_acquire()
    for secret in (PASSWORD, PASSWORD_IN_URL, "wr0ng"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize("kind", ["row", "lease"])
def test_missing_rights_are_reported_and_leave_nothing_behind(postgres_database: PostgresDatabase, kind: str) -> None:
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} OWNER TO postgres")
    lock = make(kind, postgres_database.url, LEASE_SECONDS, "m")
    with pytest.raises(ConfigError, match=r"permission denied.*GRANT CREATE"):
        lock.try_acquire()
    assert postgres_database.sql("SELECT to_regclass('activemq_lock') IS NULL") == "t"
    postgres_database.sql("CREATE TABLE activemq_lock (id bigint PRIMARY KEY, time bigint, broker_name varchar(250))")
    postgres_database.sql("GRANT SELECT ON activemq_lock TO pybroker")
    with pytest.raises(ConfigError, match=r"permission denied.*GRANT SELECT, INSERT, UPDATE"):
        lock.try_acquire()
    postgres_database.sql("GRANT INSERT, UPDATE ON activemq_lock TO pybroker")
    assert lock.try_acquire(), "the remedy must be one"
    lock.release()


def test_read_only_database_is_refused(kind: str, postgres_database: PostgresDatabase) -> None:
    postgres_database.sql(f"ALTER DATABASE {postgres_database.name} SET default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailable, match="read-only; name the primary"):
        make(kind, postgres_database.url, LEASE_SECONDS, "m").try_acquire()


@pytest.mark.parametrize("kind", ["row", "lease"])
def test_foreign_table_is_refused_and_stays_as_it_is(kind: str, postgres_database: PostgresDatabase) -> None:
    postgres_database.sql("CREATE TABLE activemq_lock (id text, owner text)")
    postgres_database.sql("ALTER TABLE activemq_lock OWNER TO pybroker")
    with pytest.raises(StoreUnavailable, match=r"not ActiveMQ's table.*rename that table"):
        make(kind, postgres_database.url, LEASE_SECONDS, "m").try_acquire()
    assert postgres_database.sql("SELECT count(*) FROM activemq_lock") == "0"


@pytest.mark.parametrize("kind", ["row", "lease"])
def test_members_that_start_together_create_one_row(
    kind: str, postgres_database: PostgresDatabase, pool: ThreadPoolExecutor
) -> None:
    barrier = threading.Barrier(8)
    locks = [make(kind, postgres_database.url, LEASE_SECONDS, "m") for _ in range(8)]

    def begin(lock: PostgresLock) -> bool:
        barrier.wait(LIMIT_SECONDS)
        return lock.try_acquire()

    assert sum(pool.map(begin, locks)) == 1
    assert postgres_database.sql("SELECT id, count(*) FROM activemq_lock GROUP BY id") == "1|1"
    for lock in locks:
        lock.release()


def test_the_servers_side_of_the_session_is_bounded(postgres_database: PostgresDatabase) -> None:
    """The keepalive settings sent to the server free the lock when a client vanishes."""
    session = DatabaseSession(DatabaseTarget(postgres_database.url), Timing.of(9.0))
    names = ["tcp_keepalives_idle", "tcp_user_timeout", "idle_in_transaction_session_timeout", "statement_timeout"]
    found = [session.run("SELECT current_setting(%s)", name)[0][0] for name in names]
    session.close()
    assert found == ["3", "9000", "9s", "9s"]


def test_name_shows_where_and_no_password(postgres_database: PostgresDatabase) -> None:
    lock = PostgresRowLock(Database(postgres_database.url))
    cluster = postgres_database.cluster
    assert lock.name == f"activemq_lock in postgresql://127.0.0.1:{cluster.port}/{postgres_database.name}"
