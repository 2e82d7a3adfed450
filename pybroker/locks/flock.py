"""A lock by `flock(2)`, through the filelock library: for file systems without open-file-description locks.

It excludes only pybroker brokers that use it as well: **ActiveMQ does not see it.** On local file systems, `flock` and
`fcntl` locks are independent of each other. So a pair of one ActiveMQ and one pybroker must use `pybroker.locks.file`,
and all members of an installation must use the same kind of lock.

The lock file is separate, such as `<store>/lock.flock`, and never ActiveMQ's `lock`: the stamp of a new master would
make an ActiveMQ master that watches its file stop.

filelock's `lock_descriptor` locks a descriptor that the caller keeps. Its `FileLock` class is not used: it opens the
file itself (before 3.30 it also truncates it), and where `flock` is missing it falls back to a marker file, which
outlives a killed holder.
"""

import errno
import fcntl
import os
from pathlib import Path

import filelock

from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.broker.domain.ports import Clock
from pybroker.locks.file import FileLock


class FlockLock(FileLock):
    """A `LockProvider` with the stamp, the checks and the errors of `FileLock`, on an `flock` lock.

    It waits by polling, since filelock offers no wait that can be cancelled.
    """

    _unsupported_hint = "keep the store on a file system that locks files"

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock, poll_seconds: float = 0.05) -> None:
        """Create the provider. No file is touched.

        Args:
            path: the lock file, such as `<store>/lock.flock`; its directory must exist.
            clock: gives the time that the new holder writes into the file.
            poll_seconds: time between two tries of a waiting member. One try costs about 10 µs.

        Raises:
            ConfigError: the path is that of ActiveMQ's lock file.
        """
        if Path(path).name == "lock":
            raise ConfigError(
                f"{os.fspath(path)} is ActiveMQ's lock file, which flock must not touch",
                setting="lock",
                hint="use another file name, such as lock.flock",
            )
        super().__init__(path, clock=clock, poll_seconds=poll_seconds)

    def _lock(self, fd: int) -> bool:
        return filelock.lock_descriptor(fd, blocking=False)

    def _unlock(self, fd: int) -> None:
        filelock.unlock_descriptor(fd)


def is_locked(path: str | os.PathLike[str]) -> bool:
    """Return True if the lock is held. Nothing is created or changed.

    `flock` has no query, so a shared lock is taken for an instant. At worst, a waiting member fails once because of it
    and acquires the lock at its next try.

    Raises:
        StoreUnavailable: the file cannot be examined.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _cannot_tell(path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return True
        raise _cannot_tell(path, error) from error
    finally:
        os.close(fd)
    return False


def _cannot_tell(path: str | os.PathLike[str], error: OSError) -> StoreUnavailable:
    name = os.fspath(path)
    return StoreUnavailable(f"{name}: cannot determine if it is locked: {error.strerror}", path=name)
