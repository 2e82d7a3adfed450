"""Two members that both hold a lock, on one journal: what either of them confirms is in it, and stays there.

Either their locks are two, or the lock is in a database which the former master cannot reach any more. In each run
producers send to whichever member answers; in the end one member, by itself, has to find all that was confirmed.
`PYBROKER_FENCE_RUNS` is the number of runs (`make fences`).
"""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stalling_proxy import StallingProxy
from tests.integration.stomp_client import Disconnected, StompClient
from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database
from tests.soundness import assert_sound

__all__ = ["postgres_cluster", "postgres_database"]

RUNS = int(os.environ.get("PYBROKER_FENCE_RUNS", "1"))
QUEUE = "/queue/FENCED"
PRODUCERS = 4
SECONDS = 60

pytestmark = pytest.mark.timeout(300)


class Unchecked(BrokerProcess):
    """A member that starts beside one with another lock."""

    module = "tests.integration.unchecked"


class Producers:
    """Threads that send with receipts, each to any member that answers."""

    def __init__(self, *ports: int) -> None:
        self.confirmed: list[tuple[int, str]] = []
        """Port and body."""
        self.ports = ports
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=[number]) for number in range(PRODUCERS)]

    def __enter__(self) -> "Producers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(SECONDS)

    def until(self, port: int, count: int) -> None:
        """Wait until a member has confirmed so many more."""
        begun, deadline = self.count(port), time.monotonic() + SECONDS
        while self.count(port) < begun + count:
            assert time.monotonic() < deadline, f"{self.count(port) - begun} of {count} confirmed"
            self._stop.wait(0.001)

    def count(self, port: int) -> int:
        return sum(each == port for each, _ in self.confirmed)

    def _run(self, producer: int) -> None:
        number = 0
        while not self._stop.is_set():
            port = self.ports[(producer + number) % len(self.ports)]
            number += 1
            with contextlib.suppress(Disconnected), contextlib.closing(StompClient(port)) as client:
                while not self._stop.is_set():
                    number += 1
                    body = f"{producer}-{number}"
                    if client.request("SEND", body.encode(), destination=QUEUE, persistent="true").command != "RECEIPT":
                        break
                    self.confirmed.append((port, body))


def bodies(port: int) -> set[str]:
    """Consume all there is."""
    with contextlib.closing(StompClient(port)) as client:
        client.send("SUBSCRIBE", id="1", destination=QUEUE)
        found = set[str]()
        client.send("SEND", b"end", destination=QUEUE, persistent="true")
        while (body := client.read_until("MESSAGE").body.decode()) != "end":
            found.add(body)
        return found


def judge(store: Path, producers: Producers, *extra: str) -> None:
    """Have one member by itself read the store; all that was confirmed must be there."""
    with contextlib.closing(BrokerProcess(str(store), name="judge", port=free_port(), extra=extra)) as last:
        last.wait_for("listening on")
        confirmed = [body for _, body in producers.confirmed]
        lost = set(confirmed) - bodies(last.port)
        by_port = {port: producers.count(port) for port in producers.ports}
        print(f"\n{len(lost)} lost of {len(confirmed)} confirmed, by member: {sorted(by_port.values())}")
        assert not lost
        assert last.terminate() == 0
    assert_sound(store)


def locked_by(kind: str) -> tuple[str, ...]:
    return ("--lock", kind, "--lock-check", "100ms")


@pytest.fixture
def started() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def test_member_with_another_lock_is_refused(tmp_path: Path, started: contextlib.ExitStack) -> None:
    """Whichever starts second, with a master or a standby there; the error names the remedy."""
    store = tmp_path / "store"

    def start(name: str, kind: str) -> BrokerProcess:
        return started.enter_context(
            contextlib.closing(BrokerProcess(str(store), name=name, port=free_port(), extra=locked_by(kind)))
        )

    for first, second in (("file", "flock"), ("flock", "file")):
        master = start("master", first)
        master.wait_for("listening on")
        refused = start("refused", second)
        assert refused.join() != 0
        assert any(f"set `lock = '{first}'`" in line for line in refused.lines), refused.lines
        alike = start("alike", first)
        alike.wait_for("waiting for the lock")
        assert master.terminate() == 0
        alike.wait_for("listening on")
        assert alike.terminate() == 0
    start("alone", "file").wait_for("listening on")


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("kinds", [("file", "flock"), ("flock", "file")])
def test_mixed_locks_lose_nothing(tmp_path: Path, kinds: tuple[str, str], run: int) -> None:
    """The second starts unchecked; the first finds it when it stands by again, and ends."""
    store = tmp_path / "store"
    ports = free_port(), free_port()
    with (
        contextlib.closing(BrokerProcess(str(store), name="a", port=ports[0], extra=locked_by(kinds[0]))) as first,
        Producers(*ports) as producers,
    ):
        producers.until(ports[0], 50)
        with contextlib.closing(Unchecked(str(store), name="b", port=ports[1], extra=locked_by(kinds[1]))) as second:
            producers.until(ports[1], 50)
            assert first.join() != 0
            assert any("both could be master at once" in line for line in first.lines)
            second.kill()
    judge(store, producers)


@pytest.mark.parametrize("run", range(RUNS))
def test_unchecked_mixed_locks_lose_nothing(tmp_path: Path, run: int) -> None:
    """Both take the journal over from each other, again and again."""
    store = tmp_path / "store"
    ports = free_port(), free_port()
    with (
        contextlib.closing(Unchecked(str(store), name="a", port=ports[0], extra=locked_by("file"))) as first,
        Producers(*ports) as producers,
    ):
        producers.until(ports[0], 50)
        with contextlib.closing(Unchecked(str(store), name="b", port=ports[1], extra=locked_by("flock"))) as second:
            for _ in range(3):
                producers.until(ports[1], 50)
                producers.until(ports[0], 50)
            second.kill()
        first.kill()
    judge(store, producers)


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("event", ["restart", "session ends"])
@pytest.mark.parametrize("kind", ["postgres-row", "postgres-advisory"])
def test_stalled_database_loses_nothing(
    tmp_path: Path, postgres_database: PostgresDatabase, kind: str, event: str, run: int
) -> None:
    """The master's way to its lock is a black hole; the database frees the lock, and a standby takes over."""
    store = tmp_path / "store"
    ports = free_port(), free_port()

    def member(name: str, port: int, url: str) -> BrokerProcess:
        return BrokerProcess(str(store), name=name, port=port, extra=("--lock", kind, "--lock-url", url))

    with StallingProxy(postgres_database.cluster.port) as proxy, contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.closing(member("a", ports[0], postgres_database.through(proxy.port))))
        first.wait_for("listening on")
        second = stack.enter_context(contextlib.closing(member("b", ports[1], postgres_database.url)))
        second.wait_for("waiting for the lock")
        with Producers(*ports) as producers:
            producers.until(ports[0], 50)
            proxy.stall()
            if event == "restart":
                postgres_database.cluster.stop()
                postgres_database.cluster.start()
            else:
                postgres_database.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pybroker a%'"
                )
            producers.until(ports[1], 100)
        first.wait_for("another master has taken the journal over")
        first.kill()
        second.kill()
    judge(store, producers, "--lock", kind, "--lock-url", postgres_database.url)


@pytest.mark.parametrize("kind", ["postgres-row", "postgres-lease", "postgres-advisory"])
def test_standby_that_lost_its_share_begins_no_store(
    tmp_path: Path, postgres_database: PostgresDatabase, started: contextlib.ExitStack, kind: str
) -> None:
    """The lock is not on the share, and can be won without it: to serve an empty store would hide all there is."""
    store, away = tmp_path / "store", tmp_path / "away"

    def member(name: str) -> BrokerProcess:
        extra = ("--lock", kind, "--lock-url", postgres_database.url, "--lock-lease", "3s")
        return started.enter_context(
            contextlib.closing(BrokerProcess(str(store), name=name, port=free_port(), extra=extra))
        )

    master = member("master")
    master.wait_for("listening on")
    with contextlib.closing(StompClient(master.port)) as client:
        assert client.request("SEND", b"kept", destination=QUEUE, persistent="true").command == "RECEIPT"
    standby = member("standby")
    standby.wait_for("following db-1.log")
    store.rename(away)
    master.kill()
    assert standby.join() == 1
    assert any("cannot become master" in line and "mount" in line for line in standby.lines), standby.lines
    assert not list(store.rglob("db-*.log"))

    if store.exists():  # an entry in `members` at most
        shutil.rmtree(store)
    away.rename(store)
    new_master = member("new_master")
    new_master.wait_for("listening on")
    assert bodies(new_master.port) == {"kept"}
    assert new_master.terminate() == 0
