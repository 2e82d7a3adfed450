# mypy: disable-error-code="misc, name-defined"
"""The file lock's own promises: the eight bytes, no traces, no leaks, errors with remedies."""

import errno
import fcntl
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pybroker.broker.domain.errors import ConfigError, LockError, LockNotHeld, StoreUnavailable
from pybroker.locks import file, flock
from pybroker.locks.file import UNKNOWN_PID, FileLock, holder, is_locked
from pybroker.locks.flock import FlockLock
from tests.descriptors import targets

NOW_MS = 1_700_000_000_000
LIMIT_SECONDS = 20  # far beyond anything that works


def clock() -> int:
    return NOW_MS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(params=[FileLock, FlockLock])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileLock]:
    """A lock that is held, of either kind."""
    lock: FileLock = request.param(tmp_path / "some.lock", clock=clock)
    assert lock.try_acquire()
    yield lock
    lock.release()


def until(condition: Callable[[], bool]) -> None:
    """Give other threads and processes the processor until the condition holds."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        os.sched_yield()


def waiters(path: Path) -> int:
    """Count those the kernel has queued for a lock on the file."""
    inode = f":{path.stat().st_ino} "
    return sum("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def helper_threads(path: Path) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"wait {path}"]


def descriptors_of(path: Path) -> int:
    return sum(each.removesuffix(" (deleted)") == str(path) for each in targets())


# ---------------------------------------------------------------- the file


def test_the_winner_writes_the_time_as_eight_bytes_big_endian(held: FileLock) -> None:
    assert Path(held.name).read_bytes() == struct.pack(">q", NOW_MS)


def test_acquisition_in_the_same_millisecond_changes_the_bytes(path: Path) -> None:
    first, second = FileLock(path, clock=clock), FileLock(path, clock=clock)
    assert first.try_acquire()
    first.release()
    assert second.try_acquire()
    assert path.read_bytes() == struct.pack(">q", NOW_MS + 1)


def test_the_stamp_survives_a_file_full_of_ones(path: Path) -> None:
    path.write_bytes(b"\xff" * 20)
    lock = FileLock(path, clock=clock)
    assert lock.try_acquire()
    lock.check()
    assert path.read_bytes() == struct.pack(">q", NOW_MS) + b"\xff" * 12


def test_waiting_trying_and_checking_leave_no_trace(path: Path, pool: ThreadPoolExecutor) -> None:
    master, waiter = FileLock(path, clock=clock), FileLock(path, clock=lambda: NOW_MS + 5)
    assert master.try_acquire()

    def trace() -> tuple[object, ...]:
        status = path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, path.read_bytes()

    before = trace()
    assert not waiter.try_acquire()
    waiting = pool.submit(waiter.acquire)
    until(lambda: waiters(path) == 1)
    assert is_locked(path)
    waiter.cancel()
    assert not waiting.result(LIMIT_SECONDS)
    assert trace() == before
    master.check()
    assert list(path.parent.iterdir()) == [path]


def test_release_leaves_the_file_as_the_master_wrote_it(held: FileLock) -> None:
    held.release()
    assert Path(held.name).read_bytes() == struct.pack(">q", NOW_MS)


# ---------------------------------------------------------------- check


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    copy.replace(path)


def touch(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def overwrite(path: Path) -> None:
    modified_ns = path.stat().st_mtime_ns
    with path.open("r+b") as lock_file:
        lock_file.write(struct.pack(">q", NOW_MS + 1))
    os.utime(path, ns=(modified_ns, modified_ns))


def truncate(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove, "was removed"),
        (replace, "was replaced"),
        (touch, "was touched"),
        (overwrite, "was overwritten"),
        (truncate, "was overwritten"),
    ],
)
def test_check_reports_what_happened_to_the_file(held: FileLock, damage: Callable[[Path], None], message: str) -> None:
    held.check()
    damage(Path(held.name))
    with pytest.raises(LockNotHeld, match=f"{held.name}: the lock file {message}.*must stop serving"):
        held.check()


@pytest.mark.parametrize("damage", [remove, replace, touch, overwrite, truncate])
def test_check_detects_changes_by_ctime_once_times_differ(
    held: FileLock, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "monotonic", lambda: time.monotonic() + file.COARSE_SECONDS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", None)  # not needed
        held.check()
    until(lambda: time.time_ns() - Path(held.name).stat().st_ctime_ns > 50_000_000)  # more than a kernel's tick
    damage(Path(held.name))
    with pytest.raises(LockNotHeld):
        held.check()


def test_check_keeps_the_file_systems_error_as_the_cause(held: FileLock, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(path: str) -> os.stat_result:
        raise OSError(errno.ESTALE, "Stale file handle", path)

    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", stale)
        with pytest.raises(LockNotHeld, match="cannot be examined \\(Stale file handle\\)") as caught:
            held.check()
    assert isinstance(caught.value.__cause__, OSError)


def test_lock_with_replaced_file_is_reported_lost(path: Path) -> None:
    first, second = FileLock(path, clock=clock), FileLock(path, clock=clock)
    assert first.try_acquire()
    path.unlink()
    assert second.try_acquire()
    second.check()
    with pytest.raises(LockNotHeld):
        first.check()


# ---------------------------------------------------------------- waiting in the kernel


def test_blocked_wait_is_cancelled_at_once(path: Path, pool: ThreadPoolExecutor) -> None:
    master, waiter, next_one = (FileLock(path, clock=clock) for _ in range(3))
    assert master.try_acquire()
    waiting = pool.submit(waiter.acquire)
    until(lambda: waiters(path) == 1)
    waiter.cancel()
    assert waiting.result(LIMIT_SECONDS) is False
    (helper,) = helper_threads(path)

    master.release()
    helper.join(LIMIT_SECONDS)
    assert not helper_threads(path)
    assert descriptors_of(path) == 0
    assert next_one.try_acquire()
    assert path.read_bytes() == struct.pack(">q", NOW_MS + 1), "only the two masters wrote"


def test_provider_waits_again_after_a_cancelled_wait(path: Path, pool: ThreadPoolExecutor) -> None:
    master, waiter = FileLock(path, clock=clock), FileLock(path, clock=clock)
    assert master.try_acquire()
    first = pool.submit(waiter.acquire)
    until(lambda: waiters(path) == 1)
    waiter.cancel()
    assert first.result(LIMIT_SECONDS) is False
    second = pool.submit(waiter.acquire)
    until(lambda: waiters(path) == 2)
    master.release()
    assert second.result(LIMIT_SECONDS)
    waiter.check()
    until(lambda: not helper_threads(path))
    assert descriptors_of(path) == 1


def test_waiter_on_a_replaced_file_waits_for_the_new_one(path: Path, pool: ThreadPoolExecutor) -> None:
    old_master, new_master, waiter = (FileLock(path, clock=clock) for _ in range(3))
    assert old_master.try_acquire()
    waiting = pool.submit(waiter.acquire)
    until(lambda: waiters(path) == 1)
    path.unlink()
    assert new_master.try_acquire()

    old_master.release()  # wakes the waiter, for a file that has no name any more
    until(lambda: waiters(path) == 1)
    new_master.check()
    assert not waiting.done()

    new_master.release()
    assert waiting.result(LIMIT_SECONDS)
    waiter.check()
    assert descriptors_of(path) == 1


def test_an_interrupted_wait_gives_back_what_it_wins_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master, waiter = FileLock(path, clock=clock), FileLock(path, clock=clock)
    assert master.try_acquire()

    class Interrupted(file.Future[int]):
        def result(self, timeout: float | None = None) -> int:
            until(lambda: waiters(path) == 1)
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(file, "Future", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            waiter.acquire()
    (helper,) = helper_threads(path)
    master.release()
    helper.join(LIMIT_SECONDS)
    assert descriptors_of(path) == 0
    assert waiter.try_acquire()


# ---------------------------------------------------------------- reading who holds it


def test_checking_creates_nothing(path: Path) -> None:
    assert holder(path) is None
    assert not is_locked(path)
    assert not path.exists()


def test_a_holder_by_open_file_description_has_no_process_id(path: Path) -> None:
    lock = FileLock(path, clock=clock)
    assert lock.try_acquire()
    assert holder(path) == UNKNOWN_PID
    assert is_locked(path)
    lock.release()
    assert holder(path) is None
    assert not is_locked(path)


def test_a_posix_holder_is_named_and_excludes_us(path: Path) -> None:
    """A classic POSIX lock on the first eight bytes is what a JVM acquires."""
    program = (
        "import fcntl, sys; lock_file = open(sys.argv[1], 'wb'); fcntl.lockf(lock_file, fcntl.LOCK_EX, 8); "
        "print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert holder(path) == process.pid
        assert not FileLock(path, clock=clock).try_acquire()
        process.kill()


def test_checking_an_unreadable_path_reports_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot determine if it is locked"):
        is_locked(tmp_path / "file" / "lock")


# ---------------------------------------------------------------- errors and remedies


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "read and write permission"),
        (errno.EROFS, "read-write"),
        (errno.ENOSPC, "free space"),
        (errno.EMFILE, "ulimit"),
    ],
)
def test_a_file_that_cannot_be_opened_comes_with_a_remedy(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def fail(path: str, *_: object) -> int:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(StoreUnavailable, match=f"{os.strerror(number)}.*{remedy}") as caught:
        FileLock(path, clock=clock).try_acquire()
    assert caught.value.path == str(path)
    assert remedy in caught.value.hint


def test_a_directory_in_the_place_of_the_lock_file_is_reported(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreUnavailable, match="must be a regular file"):
        FileLock(path, clock=clock).acquire()


def test_pipe_in_the_place_of_the_lock_file_is_refused(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(StoreUnavailable, match="cannot open the lock file: it is no regular file"):
        FileLock(path, clock=clock).try_acquire()
    assert not is_locked(path)


def test_a_missing_store_directory_is_reported_and_not_created(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="create the store's directory, or mount it"):
        FileLock(path / "missing" / "lock", clock=clock).acquire()
    assert not path.exists()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOLCK, errno.ENOTSUP])
def test_file_system_without_locks_is_reported_with_a_hint(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "fcntl", fail)
    with pytest.raises(LockError, match="--lock flock"):
        FileLock(path, clock=clock).acquire()
    assert descriptors_of(path) == 0


@pytest.mark.parametrize("poll_seconds", [None, 0.01])
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO, errno.ESTALE])
def test_wait_outlasts_errors_that_pass(
    path: Path,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
    poll_seconds: float | None,
) -> None:
    """A lock server that has run out of locks, or is away, must not be the end of the last standby."""
    real = fcntl.fcntl
    waited: list[int] = []

    def fail_at_times(fd: int, command: int, argument: bytes) -> bytes:
        if command == (file._F_OFD_SETLK if poll_seconds else file._F_OFD_SETLKW):
            waited.append(fd)
            if 1 < len(waited) < 5:
                raise OSError(number, os.strerror(number))
            if len(waited) == 5:
                master.release()
        return real(fd, command, argument)

    master = FileLock(path, clock=clock)
    assert master.try_acquire()
    monkeypatch.setattr(file, "RETRY_SECONDS", 0.001)
    waited += [] if poll_seconds else [0]  # the first try is none of the kernel's wait
    monkeypatch.setattr(fcntl, "fcntl", fail_at_times)
    waiter = FileLock(path, clock=clock, poll_seconds=poll_seconds)
    assert pool.submit(waiter.acquire).result(20)
    waiter.check()
    assert len(waited) >= 5
    assert caplog.text.count("waiting goes on") == 1
    waiter.release()
    until(lambda: not helper_threads(path))
    assert descriptors_of(path) == 0


def test_wait_that_meets_errors_can_be_cancelled(
    path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = fcntl.fcntl

    def fail_to_wait(fd: int, command: int, argument: bytes) -> bytes:
        if command == file._F_OFD_SETLKW:
            raise OSError(errno.ENOLCK, "No locks available")
        return real(fd, command, argument)

    master = FileLock(path, clock=clock)
    assert master.try_acquire()
    monkeypatch.setattr(fcntl, "fcntl", fail_to_wait)
    waiter = FileLock(path, clock=clock)
    waiting = pool.submit(waiter.acquire)
    until(lambda: "waiting goes on" in caplog.text)
    waiter.cancel()
    assert waiting.result(20) is False
    until(lambda: not helper_threads(path))
    assert descriptors_of(path) == 1


def test_a_lock_that_cannot_be_stamped_is_given_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", full)
        with pytest.raises(StoreUnavailable, match=r"No space left.*free space"):
            FileLock(path, clock=clock).try_acquire()
    assert not is_locked(path)
    assert descriptors_of(path) == 0


def test_a_stamp_that_is_not_on_disk_is_no_win(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            FileLock(path, clock=clock).try_acquire()
    assert not is_locked(path)


def test_holder_releases_despite_a_failing_file_system(
    held: FileLock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(held, "_unlock", fail)
    held.release()
    assert "Input/output error while releasing the lock" in caplog.text
    assert descriptors_of(Path(held.name)) == 0
    assert type(held)(held.name, clock=clock).try_acquire(), "the close gave it up"


# ---------------------------------------------------------------- flock


def test_flock_does_not_touch_activemqs_lock_file(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lock\.flock"):
        FlockLock(path, clock=clock)
    assert not path.exists()


def test_flock_query_creates_nothing_and_blocks_no_acquire(tmp_path: Path) -> None:
    path = tmp_path / "lock.flock"
    assert not flock.is_locked(path)
    assert not path.exists()
    lock = FlockLock(path, clock=clock)
    assert lock.try_acquire()
    assert flock.is_locked(path)
    lock.check()
    lock.release()
    assert not flock.is_locked(path)
    assert lock.try_acquire()
    lock.release()


def test_a_flock_on_an_unreadable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot determine if it is locked"):
        flock.is_locked(tmp_path / "file" / "lock.flock")


def test_flock_and_posix_lock_are_independent_locally(tmp_path: Path) -> None:
    """The caveat in the documentation; on NFS it is otherwise."""
    by_flock = FlockLock(tmp_path / "some.lock", clock=clock)
    assert by_flock.try_acquire()
    assert not is_locked(tmp_path / "some.lock")
