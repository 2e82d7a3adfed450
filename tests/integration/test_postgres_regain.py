"""A lock that ended with its session is acquired again, or not: judged by the database's answers."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.locks.postgres import provider
from pybroker.locks.postgres.advisory import PostgresAdvisoryLock
from pybroker.locks.postgres.provider import Database, PostgresLock
from pybroker.locks.postgres.row import PostgresRowLock
from pybroker.locks.postgres.timing import Timing, now
from tests.pace import in_time
from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

KINDS = {"row": PostgresRowLock, "advisory": PostgresAdvisoryLock}
SECONDS = 20.0  # far beyond anything that works
GRACE_SECONDS = SECONDS
TIMING = Timing.of(3 * SECONDS, 2.0)
"""A lease that a restart of the server does not outlast, be the machine busy."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(postgres_database: PostgresDatabase) -> Iterator[Callable[..., PostgresLock]]:
    """Makes locks in one database, and releases them at the end."""
    with ExitStack() as stack:

        def make(kind: str, grace_seconds: float = GRACE_SECONDS) -> PostgresLock:
            lock = KINDS[kind](Database(postgres_database.url, TIMING, grace_seconds=grace_seconds))
            stack.callback(lock.release)
            return lock

        yield make


def end_session(lock: PostgresLock, database: PostgresDatabase, then: str = "") -> None:
    """Have the server end the lock's session, and do something before anyone else can."""
    database.sql(f"BEGIN; SELECT pg_terminate_backend({lock.backend_pid}); {then}; COMMIT")


def until_noticed(lock: PostgresLock, old_pid: int | None) -> None:
    """Wait until the lock's keeper knows that the session ended."""
    deadline = now() + SECONDS
    while lock.backend_pid == old_pid:
        assert now() < deadline
        threading.Event().wait(0.001)


def until_lost(check: Callable[[], None]) -> None:
    """Check until the lock is lost."""
    deadline = now() + SECONDS
    with contextlib.suppress(LockNotHeld):
        while now() < deadline:
            check()
    with pytest.raises(LockNotHeld):
        check()


def test_lock_without_another_holder_in_between_is_regained(
    make: Callable[..., PostgresLock], kind: str, postgres_database: PostgresDatabase
) -> None:
    lock = make(kind)
    assert lock.acquire()
    old_pid = lock.backend_pid
    end_session(lock, postgres_database)
    until_noticed(lock, old_pid)
    lock.check()  # not lost
    began_at = now()
    lock.check_surely()
    print(f"\nsession ended to lock won again, {kind}: {(now() - began_at) * 1000:.1f} ms")
    assert lock.backend_pid not in (None, old_pid)
    assert not make(kind).try_acquire()


def test_a_restart_of_the_server_is_survived_twice(
    make: Callable[..., PostgresLock], kind: str, postgres_database: PostgresDatabase
) -> None:
    lock = make(kind)
    assert lock.acquire()
    for _ in range(2):
        old_pid = lock.backend_pid
        postgres_database.cluster.stop()
        until_noticed(lock, old_pid)
        postgres_database.cluster.start()
        lock.check_surely()
        assert not make(kind).try_acquire()


def test_a_row_that_someone_had_in_between_is_lost(
    make: Callable[..., PostgresLock], postgres_database: PostgresDatabase
) -> None:
    """He may be an ActiveMQ, which raises no epoch: the row itself shows it."""
    lock = make("row")
    assert lock.acquire()
    old_pid = lock.backend_pid
    end_session(lock, postgres_database, then="SELECT 1 FROM activemq_lock FOR UPDATE")
    until_noticed(lock, old_pid)
    with pytest.raises(LockNotHeld, match="another member held it in between"):
        lock.check_surely()
    with pytest.raises(LockNotHeld):
        lock.check()
    assert lock.acquire()  # it is free: another life may have it


def test_former_session_that_the_server_keeps_is_terminated(kind: str, postgres_database: PostgresDatabase) -> None:
    """This end of the connection broke, as after the restart of a proxy; the server has not noticed."""
    with DroppingProxy(postgres_database.cluster.port) as proxy:
        database = Database(postgres_database.through(proxy.port), TIMING, grace_seconds=GRACE_SECONDS)
        lock = KINDS[kind](database)
        assert lock.acquire()
        old_pid = lock.backend_pid
        proxy.drop_clients()
        until_noticed(lock, old_pid)
        lock.check_surely()
        assert lock.backend_pid != old_pid
        deadline = now() + SECONDS
        while postgres_database.sql(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {old_pid}") != "0":
            assert now() < deadline, "its lock is gone, but the session stays"
        lock.release()


class DroppingProxy:
    """A TCP proxy of the loopback that can close its clients' ends alone."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._clients: list[socket.socket] = []
        self._servers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "DroppingProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._clients, *self._servers):
            each.close()

    def drop_clients(self) -> None:
        """Close what was accepted so far; the server's ends stay open."""
        for each in self._clients:
            each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target_port))
                self._clients.append(client)
                self._servers.append(server)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._move, args=(source, sink), daemon=True).start()

    def _move(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                sink.sendall(chunk)


def test_a_lock_that_someone_has_is_lost(
    make: Callable[..., PostgresLock], kind: str, postgres_database: PostgresDatabase
) -> None:
    lock, other = make(kind), make(kind, 0)
    assert lock.acquire()
    waiting = threading.Thread(target=other.acquire)
    waiting.start()
    deadline = now() + SECONDS
    while postgres_database.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") != "1":
        assert now() < deadline
    old_pid = lock.backend_pid
    end_session(lock, postgres_database)
    until_noticed(lock, old_pid)
    with pytest.raises(LockNotHeld, match="another member holds it now"):
        lock.check_surely()
    waiting.join()
    other.check()


def test_past_the_grace_it_is_lost(
    make: Callable[..., PostgresLock], kind: str, postgres_database: PostgresDatabase
) -> None:
    lock = make(kind, 0.5)
    assert lock.acquire()
    began_at = now()
    postgres_database.cluster.stop()
    stopped_at = now()
    try:
        until_lost(lock.check_surely)
        assert now() - began_at > 0.4
        assert in_time(now() - stopped_at, 3)
        with pytest.raises(LockNotHeld):
            lock.check()
    finally:
        postgres_database.cluster.start()


def test_without_a_grace_it_is_lost_at_once(
    make: Callable[..., PostgresLock], kind: str, postgres_database: PostgresDatabase
) -> None:
    lock = make(kind, 0)
    assert lock.acquire()
    old_pid = lock.backend_pid
    end_session(lock, postgres_database)
    until_noticed(lock, old_pid)
    until_lost(lock.check)


def test_a_standby_lets_the_former_master_go_first(
    make: Callable[..., PostgresLock], kind: str, postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "_HEAD_START_SECONDS", SECONDS)  # a busy master may need more than its second
    master, standby = make(kind), make(kind)
    assert master.acquire()
    waiting = threading.Thread(target=standby.acquire)
    waiting.start()
    deadline = now() + SECONDS
    while postgres_database.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") != "1":
        assert now() < deadline
    old_pid = master.backend_pid
    postgres_database.cluster.stop()
    until_noticed(master, old_pid)
    postgres_database.cluster.start()
    master.check_surely()
    standby.cancel()
    waiting.join()
    with pytest.raises(LockNotHeld):
        standby.check()
