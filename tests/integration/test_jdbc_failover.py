# mypy: disable-error-code="attr-defined"
"""Two members on one database, under load, and all that can happen to them: who serves, since when, what is lost.

Producers and a consumer work all the time; in the end all that was accepted must have been received, and no member may
have accepted anything after another had begun to. Times are printed; `pytest -s` shows them. Leases are short here
where the times scale with them. `PYBROKER_FAILOVERS=all` adds variants that are left out of every day's run.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pybroker.locks.postgres.timing import LEASE_SECONDS, now
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stalling_proxy import StallingProxy
from tests.integration.stomp_client import StompClient
from tests.integration.test_kills import QUEUE, Consumer, Ledger, Producer, _empty_queue
from tests.pace import in_time
from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["postgres_cluster", "postgres_database"]

SHORT_LEASE_SECONDS = 3.0
WAIT_SECONDS = 60.0
BLACK_HOLE_SECONDS_MAX = 10.0
WARM_COUNT = 40
"""Messages accepted before anything happens, and again after."""


IS_LONG = os.environ.get("PYBROKER_FAILOVERS") == "all"


class ClockAhead(BrokerProcess):
    """A member on a machine whose clock is ten minutes ahead."""

    module = "tests.integration.clock_ahead"


class Acceptances(Ledger):
    """A ledger that also knows when each port accepted something first and last."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[int, float] = {}
        self.last: dict[int, float] = {}

    def accepted_by(self, port: int) -> None:
        with self.lock:
            self.first.setdefault(port, now())
            self.last[port] = now()

    def count(self) -> int:
        with self.lock:
            return len(self.accepted)


class Turnstile:
    """A gate that a sender passes for each message, until it is shut: then no message is under way."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_shut = False
        self._inside = 0

    def __enter__(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: not self._is_shut, WAIT_SECONDS)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        with self._changed:
            self._is_shut = True
            assert self._changed.wait_for(lambda: not self._inside, WAIT_SECONDS)
        try:
            yield
        finally:
            with self._changed:
                self._is_shut = False
                self._changed.notify_all()


class Sender(Producer):
    """A producer that records who accepted; one message at a time, so that a receipt is read as soon as it comes."""

    turnstile: Turnstile

    def work(self, client: StompClient) -> None:
        port = client._socket.getpeername()[1]
        while not self.stop_event.is_set():
            with self.turnstile:
                self.sequence += 1
                self.send(client, self.sequence)
                client.read_until("RECEIPT")
                self.ledger.accepted_by(port)
                self.ledger.accept([(self.name, self.sequence)], time.monotonic())


class Members:
    """A master, a standby of the same name, and their clients."""

    def __init__(self, master: BrokerProcess, standby: BrokerProcess) -> None:
        self.master, self.standby = master, standby
        self.ledger = Acceptances()
        self._stop, self._stop_consuming = threading.Event(), threading.Event()
        ports = [master.port, standby.port]
        self._producers = [Sender(f"p{n}", ports, self.ledger, self._stop, 0) for n in range(2)]
        self.turnstile = Turnstile()
        for producer in self._producers:
            producer.turnstile = self.turnstile
        self._consumer = Consumer("c", ports, self.ledger, self._stop_consuming, 0)

    def begin(self) -> None:
        """Have clients work, and wait until they do."""
        for client in (*self._producers, self._consumer):
            client.start()
        self.go_on()

    def go_on(self) -> None:
        """Wait until some more was accepted."""
        goal = self.ledger.count() + WARM_COUNT
        _wait(lambda: self.ledger.count() >= goal)

    def took_over(self, since: float) -> float:
        """Wait until the standby serves; return the seconds to its listeners."""
        self.standby.wait_for("listening on", WAIT_SECONDS)
        return now() - since

    def end(self, survivor: BrokerProcess) -> None:
        """Empty the queue, and check that nothing was lost, and that no one accepted anything behind another's back."""
        self._stop.set()
        _join(*self._producers)
        _wait(lambda: not self.ledger.missing())
        self._stop_consuming.set()
        with contextlib.closing(StompClient(survivor.port)) as client:  # something to wake up by
            client.request("SEND", destination=QUEUE, persistent="true", producer="end", sequence="1")
        _join(self._consumer)
        _empty_queue(survivor.port, self.ledger)
        assert not self.ledger.missing()
        assert not self.ledger.disorder
        first, last = self.ledger.first, self.ledger.last
        if self.standby.port in first:
            assert last[self.master.port] < first[self.standby.port], "the old master accepted something later on"
        print(f"{self.ledger.count()} accepted, none lost, {self.ledger.duplicates} redelivered")

    def stop(self) -> None:
        """Leave no thread behind, whatever has happened."""
        self._stop.set()
        self._stop_consuming.set()


Start = Callable[..., Members]


@pytest.fixture
def start(postgres_database: PostgresDatabase) -> Iterator[Start]:
    """Starts a master and a standby, of one name and one lock, and clients that work with them."""
    with ExitStack() as stack:

        def make(
            kind: str,
            lease_seconds: float = SHORT_LEASE_SECONDS,
            *,
            url: str = "",
            classes: tuple[type[BrokerProcess], type[BrokerProcess]] = (BrokerProcess, BrokerProcess),
        ) -> Members:
            extra = ("--lock", f"postgres-{kind}", "--lock-lease", f"{lease_seconds:g}s")
            master = classes[0](url or postgres_database.url, name="same", port=free_port(), extra=extra)
            stack.callback(master.close)
            master.wait_for("listening on")
            standby = classes[1](postgres_database.url, name="same", port=free_port(), extra=extra)
            stack.callback(standby.close)
            standby.wait_for("waiting for the lock")
            members = Members(master, standby)
            stack.callback(members.stop)
            members.begin()
            return members

        yield make


def _wait(condition: Callable[[], bool]) -> None:
    deadline = now() + WAIT_SECONDS
    while not condition():
        assert now() < deadline, "nothing moves any more"
        threading.Event().wait(0.002)


def _is_stopped(pid: int) -> bool:
    """Return True if a signal has stopped a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _join(*threads: Sender | Consumer) -> None:
    for thread in threads:
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive(), f"{thread.name} hangs"
        assert thread.failure is None, f"{thread.name}: {thread.failure!r}"


def report(what: str, kind: str, seconds: float, bound: float) -> None:
    print(f"\n{what:<62} {kind:<9} {seconds * 1000:8.1f} ms, at most {bound * 1000:.0f} ms")
    assert in_time(seconds, bound)


# ---------------------------------------------------------------- processes


@pytest.mark.parametrize("kind", ["row", "lease", *(["advisory"] if IS_LONG else [])])
def test_a_killed_master(start: Start, kind: str) -> None:
    members = start(kind)
    members.master.process.kill()
    seconds = members.took_over(now())
    report("kill -9 to the standby's listeners", kind, seconds, SHORT_LEASE_SECONDS + 1 if kind == "lease" else 1)
    members.go_on()
    members.end(members.standby)


@pytest.mark.parametrize("kind", ["lease", *(["row", "advisory"] if IS_LONG else [])])
def test_a_frozen_master_of_the_same_name_thaws(start: Start, kind: str) -> None:
    """It wakes up with its clients' messages in its sockets, and accepts none of them.

    Nothing is under way when it is frozen: what was committed by then might still be answered, and truly so.
    """
    members = start(kind)
    with members.turnstile.shut():
        os.kill(members.master.process.pid, signal.SIGSTOP)
        _wait(lambda: _is_stopped(members.master.process.pid))
    seconds = members.took_over(now())
    report("SIGSTOP to the standby's listeners", kind, seconds, SHORT_LEASE_SECONDS + 2)
    with contextlib.closing(StompClient(members.standby.port)) as client:
        assert client.request("SEND", b"", destination="/queue/OTHER", persistent="true").command == "RECEIPT"
    members.ledger.accepted_by(members.standby.port)
    os.kill(members.master.process.pid, signal.SIGCONT)
    members.master.wait_for("standing by again after losing the")
    members.go_on()
    members.end(members.standby)


def test_two_clocks_that_differ_by_minutes(start: Start, postgres_database: PostgresDatabase) -> None:
    """A lease is the database's time: by its own clock the standby would have taken it at once and for ever."""
    members = start("lease", classes=(BrokerProcess, ClockAhead))
    members.go_on()
    assert not any("listening on" in line for line in members.standby.lines)
    begun = now()
    members.master.process.kill()
    members.master.process.wait()
    left = postgres_database.sql("SELECT time / 1000.0 - extract(epoch FROM clock_timestamp()) FROM activemq_lock")
    seconds = members.took_over(begun)
    report("kill -9 to the listeners of a standby ten minutes ahead", "lease", seconds, SHORT_LEASE_SECONDS + 1)
    assert seconds > float(left), "what was left of the lease was waited for"
    members.go_on()
    members.end(members.standby)


@pytest.mark.skipif(not IS_LONG, reason="PYBROKER_FAILOVERS=all")
def test_a_master_ten_minutes_ahead_is_replaced_in_time(start: Start) -> None:
    members = start("lease", classes=(ClockAhead, BrokerProcess))
    begun = now()
    members.master.process.kill()
    report("kill -9 of a master ten minutes ahead", "lease", members.took_over(begun), SHORT_LEASE_SECONDS + 1)
    members.go_on()
    members.end(members.standby)


# ---------------------------------------------------------------- the database


def test_the_locks_session_is_ended_by_an_administrator(start: Start, postgres_database: PostgresDatabase) -> None:
    """The waiter inside the server has the lock at once; the old master may commit no more, though its store could."""
    members = start("row")
    begun = now()
    postgres_database.sql(
        "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
        " WHERE c.relname = 'activemq_lock' AND l.mode = 'RowShareLock' AND l.granted"
        " AND l.pid NOT IN (SELECT pid FROM pg_locks WHERE NOT granted)"
    )
    report("pg_terminate_backend to the standby's listeners", "row", members.took_over(begun), 1.0)
    members.master.wait_for("standing by again after losing the")
    members.go_on()
    members.end(members.standby)


@pytest.mark.parametrize("how", [signal.SIGQUIT, *([signal.SIGINT] if IS_LONG else [])], ids=lambda how: how.name)
def test_a_restart_of_the_database_under_load(
    start: Start, postgres_database: PostgresDatabase, how: signal.Signals
) -> None:
    """No one is cut off: who sends during it waits for the answer, and the master stays the master."""
    members = start("row", LEASE_SECONDS)
    cluster = postgres_database.cluster
    cluster.stop(how)
    cluster.start()
    begun = now()
    members.go_on()
    report("start of the database to the next 40 receipts", "row", now() - begun, LEASE_SECONDS)
    assert not any("standing by again" in line for line in members.master.lines)
    members.end(members.master)
    assert set(members.ledger.first) == {members.master.port}


def test_a_black_hole_between_master_and_database(start: Start, postgres_database: PostgresDatabase) -> None:
    """The link drops everything and closes nothing: with the defaults another member serves within ten seconds."""
    with StallingProxy(postgres_database.cluster.port) as proxy:
        members = start("row", LEASE_SECONDS, url=postgres_database.through(proxy.port))
        proxy.stall()
        begun = now()
        seconds = members.took_over(begun)
        report("black hole to the standby's listeners", "row", seconds, BLACK_HOLE_SECONDS_MAX)
        members.go_on()
        members.master.wait_for("standing by again after losing the")
        members.end(members.standby)
