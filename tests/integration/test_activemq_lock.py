"""Our lock against the real thing: ActiveMQ's own locker and a whole ActiveMQ broker, in processes of their own."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.locks.file import FileLock, holder, is_locked
from pybroker.locks.flock import FlockLock

pytestmark = pytest.mark.component("activemq")

PROBE = Path(__file__).parent / "java" / "LockProbe.java"
OUR_HOLDER = Path(__file__).parents[1] / "conformance" / "lock_holder.py"
ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 30  # far beyond anything that works


def clock() -> int:
    return time.time_ns() // 1_000_000


class Peer:
    """A process that acquires the lock and reports about it, one word a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def check(self) -> str:
        """Return the answer of a LockProbe: `ours` if it believes it holds the lock, else `lost`."""
        assert self._process.stdin is not None
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        return self.read_line()

    def end(self) -> None:
        """Let it release the lock and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LIMIT_SECONDS)

    def kill(self) -> None:
        self._process.kill()


@contextmanager
def running(command: list[str]) -> Iterator[Peer]:
    """Start a peer; it has printed `waiting`."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        peer = Peer(process)
        try:
            assert peer.read_line() == "waiting"
            yield peer
        finally:
            process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def lock(path: Path) -> Iterator[FileLock]:
    lock = FileLock(path, clock=clock)
    yield lock
    lock.release()


@pytest.fixture
def activemq(java: Any, tmp_path: Path) -> Iterator[Any]:
    """Starts ActiveMQ processes on the store: `activemq("try" | "wait" | "broker")`."""
    with ExitStack() as stack:
        yield lambda kind: stack.enter_context(running(java.command(PROBE, kind, str(tmp_path))))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_locking_activemq_keeps_us_out_until_it_releases(activemq: Any, lock: FileLock, path: Path) -> None:
    peer = activemq("wait")
    assert peer.read_line() == "held"
    assert not lock.try_acquire()
    assert is_locked(path)
    assert holder(path) == peer.pid
    peer.end()
    assert lock.try_acquire()
    lock.check()


def test_we_keep_activemq_out(activemq: Any, lock: FileLock) -> None:
    assert lock.try_acquire()
    assert activemq("try").read_line() == "refused"
    lock.check()
    lock.release()
    assert activemq("try").read_line() == "held"


@pytest.mark.parametrize("kind", ["wait", "broker"])
def test_we_take_over_from_a_killed_activemq(
    activemq: Any, lock: FileLock, path: Path, pool: ThreadPoolExecutor, kind: str
) -> None:
    peer = activemq(kind)
    assert peer.read_line() == "held"
    assert not lock.try_acquire()
    its_stamp = path.read_bytes()
    waiting = pool.submit(lock.acquire)
    assert peer.check() == "ours", "a waiter must not disturb the master"
    peer.kill()
    assert waiting.result(LIMIT_SECONDS)
    lock.check()
    assert int.from_bytes(path.read_bytes(), "big") > int.from_bytes(its_stamp, "big")


@pytest.mark.parametrize("kind", ["wait", "broker"])
def test_activemq_takes_over_when_we_are_killed(activemq: Any, path: Path, kind: str) -> None:
    with running([sys.executable, str(OUR_HOLDER), "file", str(path)]) as ours:
        assert ours.read_line() == "held"
        peer = activemq(kind)
        ours.kill()
        assert peer.read_line() == "held"
        assert holder(path) == peer.pid


def test_activemq_takes_over_when_we_release(activemq: Any, lock: FileLock) -> None:
    assert lock.try_acquire()
    peer = activemq("broker")
    lock.check()
    lock.release()
    assert peer.read_line() == "held"


def test_a_former_activemq_master_stops_when_we_won_its_file(activemq: Any, lock: FileLock, path: Path) -> None:
    """The lock slipped from it, as after a lost lease; it sees that by the eight bytes and the time of our win."""
    peer = activemq("broker")
    assert peer.read_line() == "held"
    path.unlink()
    assert lock.try_acquire()
    assert peer.read_line() == "stopped"
    lock.check()


def test_we_notice_that_an_activemq_won_our_file(activemq: Any, lock: FileLock, path: Path) -> None:
    assert lock.try_acquire()
    path.unlink()
    peer = activemq("wait")
    assert peer.read_line() == "held"
    with pytest.raises(LockNotHeld, match="was replaced"):
        lock.check()
    assert peer.check() == "ours", "noticing must not disturb the new master"


def test_flock_does_not_keep_activemq_out(activemq: Any, tmp_path: Path) -> None:
    """The caveat of `pybroker.locks.flock`, and why `--lock file` is the default."""
    lock = FlockLock(tmp_path / "lock.flock", clock=clock)
    assert lock.try_acquire()
    assert activemq("try").read_line() == "held"
    lock.release()
