"""A store's lock, for tools: checks if a master holds it, or acquires it.

The check changes nothing. It queries ActiveMQ's lock file by F_GETLK, and finds a lock by `flock`, which has no query,
in the kernel's table of locks.
"""

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pybroker.broker.app.machine import clock
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.locks.file import FileLock, holder, is_locked
from pybroker.locks.flock import FlockLock

LOCK_FILE = "lock"
FLOCK_FILE = "lock.flock"
_LOCKS = Path("/proc/locks")


def is_in_use(directory: Path) -> bool:
    """Return True if the lock of a journal's directory is held, as far as this machine knows."""
    try:
        return is_locked(directory / LOCK_FILE) or _is_flocked(directory / FLOCK_FILE)
    except StoreUnavailable:
        return False  # such as without rights on the lock file; only texts depend on this


@contextmanager
def locked(*directories: Path) -> Generator[Callable[[], None]]:
    """Hold the locks of journals' directories; yields a function that checks that they are still held.

    Raises:
        StoreUnavailable: a master holds one, or its file cannot be opened.
        LockError: the file system cannot lock.
    """
    with ExitStack() as held:
        locks: list[FileLock] = []
        for directory in directories:
            locks.append(FileLock(directory / LOCK_FILE, clock=clock))
            if (directory / FLOCK_FILE).exists():
                locks.append(FlockLock(directory / FLOCK_FILE, clock=clock))
        for lock in locks:
            if not lock.try_acquire():
                raise StoreUnavailable(
                    f"{lock.name} is held by {_who(lock.name)}",
                    path=lock.name,
                    hint="stop every member of the store first",
                )
            held.callback(lock.release)

        def check() -> None:
            for lock in locks:
                lock.check()

        yield check


def _who(path: str) -> str:
    pid = holder(path)
    return f"process {pid}" if pid is not None and pid > 0 else "a master"


def _is_flocked(path: Path) -> bool:
    try:
        found = path.stat()
        table = _LOCKS.read_text(encoding="ascii")
    except OSError:
        return False
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    return any(" FLOCK " in line and device in line.split() for line in table.splitlines())
