"""Contract of every `LockProvider`."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.broker.domain.ports import LockProvider
from pybroker.locks.file import FileLock
from pybroker.locks.flock import FlockLock
from pybroker.locks.memory import LockRegistry, MemoryLock

HOLDER = Path(__file__).parent / "lock_holder.py"
ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 20  # far beyond anything that works

NewLock = Callable[[], LockProvider]


def clock() -> int:
    return 1_700_000_000_000


def maker(kind: str, directory: Path) -> NewLock:
    """Return what makes providers that contend for one and the same lock."""
    registry = LockRegistry()
    makers: dict[str, NewLock] = {
        "file": lambda: FileLock(directory / "lock", clock=clock),
        "file polling": lambda: FileLock(directory / "lock", clock=clock, poll_seconds=0.001),
        "flock": lambda: FlockLock(directory / "lock.flock", clock=clock, poll_seconds=0.001),
        "memory": lambda: MemoryLock(registry),
    }
    return makers[kind]


@pytest.fixture(params=["file", "file polling", "flock", "memory"])
def new_lock(request: pytest.FixtureRequest, tmp_path: Path) -> NewLock:
    return maker(request.param, tmp_path)


@pytest.fixture(params=["file", "file polling", "flock"])
def new_shared_lock(request: pytest.FixtureRequest, tmp_path: Path) -> NewLock:
    """Makes providers that other processes can contend with."""
    return maker(request.param, tmp_path)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@contextmanager
def holder_process(lock: LockProvider) -> Iterator[subprocess.Popen[str]]:
    """Start another process that waits for the lock; it has printed `waiting`."""
    command = [sys.executable, str(HOLDER), "flock" if isinstance(lock, FlockLock) else "file", lock.name]
    with subprocess.Popen(
        command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert read_word(process) == "waiting"
        yield process
        process.kill()


def read_word(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def send(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


# ---------------------------------------------------------------- one holder


def test_a_free_lock_is_taken_and_excludes_a_second_taker(new_lock: NewLock) -> None:
    first, second = new_lock(), new_lock()
    assert first.name == second.name
    assert first.try_acquire()
    assert not second.try_acquire()
    first.check()
    with pytest.raises(LockNotHeld):
        second.check()


def test_a_release_lets_the_next_one_in(new_lock: NewLock) -> None:
    first, second = new_lock(), new_lock()
    assert first.acquire()
    first.release()
    assert second.acquire()
    second.check()
    with pytest.raises(LockNotHeld):
        first.check()


def test_taking_what_one_has_already_changes_nothing(new_lock: NewLock) -> None:
    lock, other = new_lock(), new_lock()
    assert lock.try_acquire()
    assert lock.try_acquire()
    assert lock.acquire()
    lock.check()
    lock.release()
    assert other.try_acquire()


def test_release_without_the_lock_leaves_the_holders(new_lock: NewLock) -> None:
    holder, other = new_lock(), new_lock()
    other.release()
    assert holder.try_acquire()
    other.release()
    holder.check()
    assert not other.try_acquire()
    holder.release()
    holder.release()
    with pytest.raises(LockNotHeld):
        holder.check()


def test_a_provider_can_win_again_and_again(new_lock: NewLock) -> None:
    lock = new_lock()
    for _ in range(3):
        assert lock.acquire()
        lock.check()
        lock.release()


def test_of_many_waiters_one_at_a_time_is_in(new_lock: NewLock, pool: ThreadPoolExecutor) -> None:
    inside: list[int] = []
    crowds: list[int] = []

    def visit(number: int) -> None:
        lock = new_lock()
        for _ in range(10):
            assert lock.acquire()
            inside.append(number)
            crowds.append(len(inside))
            lock.check()
            inside.remove(number)
            lock.release()

    for done in [pool.submit(visit, number) for number in range(8)]:
        done.result(LIMIT_SECONDS)
    assert crowds == [1] * 80


# ---------------------------------------------------------------- waiting and cancelling


def test_waiter_gets_the_lock_at_its_release(new_lock: NewLock, pool: ThreadPoolExecutor) -> None:
    holder, waiter = new_lock(), new_lock()
    order: list[str] = []
    begun = threading.Event()

    def wait() -> bool:
        begun.set()
        won = waiter.acquire()
        order.append("won")
        return won

    assert holder.try_acquire()
    waiting = pool.submit(wait)
    assert begun.wait(LIMIT_SECONDS)
    order.append("released")
    holder.release()
    assert waiting.result(LIMIT_SECONDS)
    assert order == ["released", "won"]
    waiter.check()


def test_cancel_ends_a_wait_while_the_holder_keeps_the_lock(new_lock: NewLock, pool: ThreadPoolExecutor) -> None:
    holder, waiter, third = new_lock(), new_lock(), new_lock()
    assert holder.try_acquire()
    waiting = pool.submit(waiter.acquire)
    waiter.cancel()
    assert waiting.result(LIMIT_SECONDS) is False
    holder.check()
    with pytest.raises(LockNotHeld):
        waiter.check()
    holder.release()
    assert pool.submit(third.acquire).result(LIMIT_SECONDS), "a cancelled waiter must not keep what it won"


def test_a_cancel_that_comes_too_early_ends_the_next_wait_only(new_lock: NewLock) -> None:
    lock, other = new_lock(), new_lock()
    lock.cancel()
    assert not lock.acquire()
    assert other.try_acquire(), "the cancelled one must not hold it"
    other.release()
    assert lock.acquire()


def test_one_cancelled_waiter_leaves_the_others_waiting(new_lock: NewLock, pool: ThreadPoolExecutor) -> None:
    holder, gone, patient = new_lock(), new_lock(), new_lock()
    assert holder.try_acquire()
    leaving, staying = pool.submit(gone.acquire), pool.submit(patient.acquire)
    gone.cancel()
    assert leaving.result(LIMIT_SECONDS) is False
    assert not staying.done()
    holder.release()
    assert staying.result(LIMIT_SECONDS)


# ---------------------------------------------------------------- other processes


def test_processes_exclude_each_other_both_ways(new_shared_lock: NewLock) -> None:
    ours = new_shared_lock()
    assert ours.try_acquire()
    with holder_process(ours) as theirs:
        ours.release()
        assert read_word(theirs) == "held"
        assert not ours.try_acquire()
        send(theirs, "release")
        assert read_word(theirs) == "released"
        assert ours.try_acquire()


def test_a_waiter_takes_over_when_the_holder_is_killed(new_shared_lock: NewLock, pool: ThreadPoolExecutor) -> None:
    ours = new_shared_lock()
    with holder_process(ours) as theirs:
        assert read_word(theirs) == "held"
        waiting = pool.submit(ours.acquire)
        assert not waiting.done()
        theirs.send_signal(signal.SIGKILL)
        assert waiting.result(LIMIT_SECONDS)
        ours.check()


def test_a_waiting_process_takes_over_when_the_lock_is_released(new_shared_lock: NewLock) -> None:
    ours = new_shared_lock()
    assert ours.try_acquire()
    with holder_process(ours) as theirs:
        ours.check()  # a process that waits changes nothing
        ours.release()
        assert read_word(theirs) == "held"


def test_a_forked_child_does_not_keep_a_killed_holders_lock(new_shared_lock: NewLock, pool: ThreadPoolExecutor) -> None:
    ours = new_shared_lock()
    with holder_process(ours) as theirs:
        assert read_word(theirs) == "held"
        send(theirs, "fork")
        assert read_word(theirs) == "forked"
        theirs.send_signal(signal.SIGKILL)
        assert pool.submit(ours.acquire).result(LIMIT_SECONDS), "the child, still alive, holds the lock"
