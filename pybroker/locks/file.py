"""The lock file of an ActiveMQ Classic store, so that pybroker and ActiveMQ exclude one another.

The process that holds a write lock on `<store>/lock` is the master. The file and the protocol are those of ActiveMQ's
`SharedFileLocker` (5.17):

```text
offset 0                8
+-----------------------+
| time of acquisition,  |   written and synced once by the new holder, right after it acquired the lock;
| ms since 1970, i64 BE |   never written, touched, truncated, replaced or deleted by a waiting process
+-----------------------+
locked range: the whole file, whatever its size (ActiveMQ locks byte 0, later bytes 0..7)
```

A master, ActiveMQ or pybroker, stops when the eight bytes, the modification time or the inode of the file are no
longer its own. This stops a former master, and it is why a waiting process must not touch the file.

The lock is an *open file description* lock (Linux, `F_OFD_SETLK`), not a classic POSIX one. Both exclude each
other, but a POSIX lock belongs to the process: it does not exclude two brokers in one process, and closing any
other descriptor of the file drops it. An OFD lock lives exactly as long as the descriptor it was taken on. A child
that is forked without exec shares that descriptor, so the lock would survive its parent. `fork_guard` therefore closes
every lock descriptor in such a child.

A waiting member blocks in the kernel, which wakes it within milliseconds after the holder has ended. A thread in such a
wait cannot be interrupted; `FileLock.acquire` describes how it is cancelled.

This module makes no decision about mastership. On local file systems it does not exclude users of `flock(2)`.
"""

import errno
import fcntl
import logging
import os
import stat
import struct
import threading
from concurrent.futures import CancelledError, Future
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from pybroker import fork_guard
from pybroker.broker.domain.big_endian import LONG
from pybroker.broker.domain.errors import BrokerError, LockError, LockNotHeld, StoreUnavailable
from pybroker.broker.domain.ports import Clock

_log = logging.getLogger(__name__)

UNKNOWN_PID = -1
"""Returned by `holder` when the process id is unknown: another machine, or an open file description lock."""

# Linux, asm-generic/fcntl.h; the same on every architecture. On other systems Python's `fcntl` lacks the names, and the
# numbers fail with EINVAL, which becomes an error with a remedy.
_F_OFD_GETLK, _F_OFD_SETLK, _F_OFD_SETLKW = 36, 37, 38
# struct flock: type, whence, start, len (0: to the end, however far that moves), pid (must be 0 for OFD locks).
_FLOCK = struct.Struct("@hhqqi0q")
_WHOLE_FILE_WRITE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_WHOLE_FILE_UNLOCK = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)

_CONTENTION = frozenset({errno.EAGAIN, errno.EACCES})
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})
_HINTS = {
    errno.EACCES: "give the broker's user read and write permission on the directory and on the file",
    errno.EPERM: "give the broker's user read and write permission on the directory and on the file",
    errno.EROFS: "mount the file system read-write",
    errno.EISDIR: "move that directory away: the lock must be a regular file",
    errno.ENOENT: "create the store's directory, or mount it",
    errno.ENOTDIR: "a part of the path is no directory: check the store's setting",
    errno.ENOSPC: "free space on the file system",
    errno.EDQUOT: "free space in the quota",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ESTALE: "the network file system lost the file: mount it again",
    errno.EIO: "the file system or its server fails: see the kernel's log",
}


RETRY_SECONDS = 1.0
"""Time between two tries of a waiting member while the file system refuses to lock."""

COARSE_SECONDS = 2.5
"""Longer than the coarsest time stamps of a file system: two seconds on FAT, a kernel tick (some ms) on ext4."""


class _HeldFile(NamedTuple):
    """An acquired lock: its descriptor, and the state of the file after it was stamped."""

    fd: int
    device: int
    inode: int
    modified_ns: int
    changed_ns: int
    stamp: bytes
    distinct_from: float
    """Time (`time.monotonic`) after which a change of the file has another time stamp than our own change."""


class FileLock:
    """ActiveMQ's lock on a store (a `LockProvider`).

    One thread at a time may call `acquire`. `cancel`, `check` and `release` may be called from any thread.
    """

    _unsupported_hint = (
        "mount NFS without nolock and with its lock service running, or start every member with --lock flock"
    )

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock, poll_seconds: float | None = None) -> None:
        """Create the provider. No file is touched.

        Args:
            path: the lock file, `<store>/lock` for a KahaDB store; its directory must exist.
            clock: gives the time that the new holder writes into the file.
            poll_seconds: time between two tries, for file systems where blocking waits fail. None: wait in the kernel.
        """
        self._path = os.fspath(path)
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._held: _HeldFile | None = None
        self._cancelled = threading.Event()
        self._mutex = threading.Lock()  # guards `_waiting`, and orders `cancel` and an acquisition
        self._waiting: Future[int] | None = None

    @property
    def name(self) -> str:
        """The path of the lock file."""
        return self._path

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free. Return True when this broker holds it and its stamp is on disk.

        Raises:
            StoreUnavailable: the file cannot be opened or written. The hint has the remedy.
            LockError: the file system does not support this kind of lock.
        """
        while self._held is None:
            fd = self._open()
            try:
                locked = self._lock(fd)
            except OSError as error:
                fork_guard.close(fd)
                raise self._locking_failed(error) from error
            if not locked:
                fork_guard.close(fd)
                return False
            self._claim(fd)
        return True

    def acquire(self) -> bool:
        """Wait for the lock and acquire it. Return False when `cancel` ended the wait.

        The wait in the kernel has a separate daemon thread, because no portable call ends it. After a cancel, this
        method returns at once. The thread stays until the holder has ended, releases the lock that it then acquires,
        and ends.

        An error of the first try is raised. A later error is logged, and the member tries again: a lock server that is
        away, or out of locks, may come back.

        Raises:
            StoreUnavailable: as `try_acquire`, at the first try.
            LockError: as `try_acquire`, at the first try.
        """
        is_acquired, logged = self.try_acquire(), ""
        while not (is_acquired or self._cancelled.is_set()):
            try:
                self._wait()
                is_acquired = self._held is not None or self.try_acquire()
                logged = ""
            except BrokerError as error:
                if str(error) != logged:
                    logged = str(error)
                    _log.warning("waiting goes on, with a try every %g s: %s", RETRY_SECONDS, error)
                self._cancelled.wait(RETRY_SECONDS)
        with self._mutex:
            if not self._cancelled.is_set():
                return True
            self._cancelled.clear()
        self.release()
        return False

    def cancel(self) -> None:
        """End the wait in another thread, or else the next wait, so that no cancel is lost to a race."""
        with self._mutex:
            self._cancelled.set()
            if self._waiting is not None:
                self._waiting.cancel()

    def check(self) -> None:
        """Verify that the lock is still held: the path has our file, with our stamp, unchanged since we wrote it.

        Costs one system call, a few microseconds on a local file system: while the inode's change time is that of our
        stamp, the file was not changed. The bytes are read as well when anything differs, and shortly after the
        acquisition, while a coarse time stamp could hide another change. On NFS the attributes may be as old as the
        mount's `actimeo` allows.

        Raises:
            LockNotHeld: it is not held, or the file cannot be examined (then with the cause).
        """
        held = self._held
        if held is None:
            raise LockNotHeld(f"{self._path}: the lock is not held by this broker")
        try:
            found = os.stat(self._path)  # noqa: PTH116 - per batch: a Path would double the cost
            if (
                found.st_ctime_ns == held.changed_ns
                and found.st_ino == held.inode
                and found.st_dev == held.device
                and monotonic() >= held.distinct_from
            ):
                return
            stamp = os.pread(held.fd, LONG.size, 0)
        except FileNotFoundError as error:
            raise self._lost("was removed") from error
        except OSError as error:
            raise self._lost(f"cannot be examined ({error.strerror})") from error
        if found.st_ino != held.inode or found.st_dev != held.device:
            raise self._lost("was replaced by another file")
        if stamp != held.stamp:
            raise self._lost("was overwritten, as a new master does")
        if found.st_mtime_ns != held.modified_ns:
            raise self._lost("was touched")

    def release(self) -> None:
        """Release the lock and leave the file unchanged. Does nothing when the lock is not held."""
        with self._mutex:
            held, self._held = self._held, None
        if held is not None:
            self._unlock_and_close(held.fd)

    # ------------------------------------------------------------ the kind of lock

    def _lock(self, fd: int) -> bool:
        """Lock the open file if it is free, and return True if it is locked now."""
        try:
            fcntl.fcntl(fd, _F_OFD_SETLK, _WHOLE_FILE_WRITE)
        except OSError as error:
            if error.errno in _CONTENTION:
                return False
            raise
        return True

    def _unlock(self, fd: int) -> None:
        """Unlock the open file, also where a forked child still shares it."""
        fcntl.fcntl(fd, _F_OFD_SETLK, _WHOLE_FILE_UNLOCK)

    # ------------------------------------------------------------ waiting

    def _wait(self) -> None:
        if self._poll_seconds is None:
            self._wait_in_kernel()
        else:
            self._cancelled.wait(self._poll_seconds)

    def _wait_in_kernel(self) -> None:
        """Wait for the holder's end and claim the lock. Returns without the lock after a cancel or a replaced file."""
        waiting: Future[int] = Future()
        with self._mutex:
            if self._cancelled.is_set():
                return
            self._waiting = waiting
        try:
            threading.Thread(target=self._lock_waiting, args=(waiting,), name=f"wait {self._path}", daemon=True).start()
            fd = waiting.result()
        except CancelledError:
            return
        except BaseException:  # an interrupt, or no thread could be started: the lock is no longer wanted
            waiting.cancel()
            waiting.add_done_callback(_close_won)
            raise
        finally:
            self._waiting = None
        self._claim(fd)

    def _lock_waiting(self, waiting: Future[int]) -> None:
        """Wait for the lock in its own thread, and pass the descriptor on unless the wait was cancelled."""
        try:
            fd = self._open()
            try:
                fcntl.fcntl(fd, _F_OFD_SETLKW, _WHOLE_FILE_WRITE)
            except OSError as error:
                fork_guard.close(fd)
                raise self._locking_failed(error) from error
        except BrokerError as error:
            if waiting.set_running_or_notify_cancel():
                waiting.set_exception(error)
            return
        if waiting.set_running_or_notify_cancel():
            waiting.set_result(fd)
        else:
            fork_guard.close(fd)

    # ------------------------------------------------------------ acquisition

    def _open(self) -> int:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._unavailable("cannot open the lock file", error) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # a pipe that is opened for reading and writing does not block
            os.close(fd)
            message = f"{self._path}: cannot open the lock file: it is no regular file"
            raise StoreUnavailable(message, path=self._path, hint="move it away")
        fork_guard.guard(fd)
        return fd

    def _claim(self, fd: int) -> None:
        """Stamp the file that was just locked, or close it when the path has another file by now."""
        try:
            self._held = self._stamp(fd) if self._is_at_path(fd) else None
        except OSError as error:
            raise self._unavailable("cannot write the lock file", error) from error
        finally:
            if self._held is None:
                fork_guard.close(fd)

    def _is_at_path(self, fd: int) -> bool:
        ours = os.fstat(fd)
        try:
            found = Path(self._path).stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(ours, found)

    def _stamp(self, fd: int) -> _HeldFile:
        stamp = LONG.pack(self._clock())
        if stamp == os.pread(fd, LONG.size, 0):
            # Acquired in the same millisecond as by the former master, which must see that the stamp is not its own.
            stamp = LONG.pack(LONG.unpack(stamp)[0] + 1)
        written = os.pwrite(fd, stamp, 0)
        if written != len(stamp):
            raise OSError(errno.EIO, f"wrote {written} of {len(stamp)} bytes")
        os.fsync(fd)
        status = os.fstat(fd)
        return _HeldFile(
            fd=fd,
            device=status.st_dev,
            inode=status.st_ino,
            modified_ns=status.st_mtime_ns,
            changed_ns=status.st_ctime_ns,
            stamp=stamp,
            distinct_from=monotonic() + COARSE_SECONDS,
        )

    def _unlock_and_close(self, fd: int) -> None:
        if not fork_guard.is_guarded(fd):
            return  # a forked child must not release its parent's lock
        for step in (
            self._unlock,
            fork_guard.close,
        ):  # on Linux each of them is enough, and a close that fails closes nevertheless
            try:
                step(fd)
            except OSError as error:
                # A master that steps down must finish doing so when the file system is gone.
                _log.warning("%s: %s while releasing the lock", self._path, error.strerror)

    # ------------------------------------------------------------ errors

    def _locking_failed(self, error: OSError) -> LockError | StoreUnavailable:
        if error.errno in _UNSUPPORTED:
            return LockError(
                f"{self._path}: the file system cannot lock this way ({error.strerror}); {self._unsupported_hint}"
            )
        return self._unavailable("cannot lock the lock file", error)

    def _unavailable(self, what: str, error: OSError) -> StoreUnavailable:
        hint = _HINTS.get(error.errno or 0, "")
        return StoreUnavailable(f"{self._path}: {what}: {error.strerror}", path=self._path, hint=hint)

    def _lost(self, what: str) -> LockNotHeld:
        return LockNotHeld(
            f"{self._path}: the lock file {what}; this broker must stop serving the store: "
            "see what touched the file, and leave it alone while a broker runs"
        )


def holder(path: str | os.PathLike[str]) -> int | None:
    """Find the holder of the lock. Nothing is created or changed.

    Returns:
        None when the lock is free or has no file; the process id of a holder with a POSIX lock on this machine, such as
        ActiveMQ; `UNKNOWN_PID` for an open file description lock, such as pybroker's, or a holder on another machine.

    Raises:
        StoreUnavailable: the file cannot be examined.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot_tell(path, error) from error
    try:
        answer = fcntl.fcntl(fd, _F_OFD_GETLK, _WHOLE_FILE_WRITE)
    except OSError as error:
        raise _cannot_tell(path, error) from error
    finally:
        os.close(fd)
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    if kind == fcntl.F_UNLCK:
        return None
    return pid if pid > 0 else UNKNOWN_PID


def is_locked(path: str | os.PathLike[str]) -> bool:
    """Return True if the lock is held. Nothing is created or changed; errors as `holder`."""
    return holder(path) is not None


def _cannot_tell(path: str | os.PathLike[str], error: OSError) -> StoreUnavailable:
    name = os.fspath(path)
    hint = _HINTS.get(error.errno or 0, "")
    return StoreUnavailable(f"{name}: cannot determine if it is locked: {error.strerror}", path=name, hint=hint)


def _close_won(waiting: Future[int]) -> None:
    if not waiting.cancelled() and waiting.exception() is None:
        fork_guard.close(waiting.result())
