"""A lock by `flock(2)`, through the filelock library: for file systems without open-file-description locks.

It excludes other pybroker brokers that use it and nobody else: **a real ActiveMQ does not see it.** On local file
systems `flock` and `fcntl` locks know nothing of each other, so a pair of one ActiveMQ and one pybroker must use
`pybroker.locks.file`. For the same reason every member of an installation must use the same kind of lock.

It locks a file of its own, such as `<store>/lock.flock`, never ActiveMQ's `lock`: the winner's stamp would make an
ActiveMQ master that watches its file believe it had lost it.

Of filelock it uses `lock_descriptor`, which locks a descriptor that stays ours. Its `FileLock` class would open the
file itself (truncating it, in versions before 3.30) and fall back to a mere marker file, which outlives a killed
holder, where `flock` is missing.
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
    """A `LockProvider` with all of `FileLock`'s discipline (stamp, checks, errors) on another kind of lock.

    It waits by polling: filelock offers no wait that could be cancelled.
    """

    _unsupported_hint = "keep the store on a file system that locks files"

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock, poll_seconds: float = 0.05) -> None:
        """Prepare, touching nothing.

        Args:
            path: a file of its own, such as `<store>/lock.flock`; its directory must exist.
            clock: what the winner writes into the file.
            poll_seconds: how often a waiter tries. A try costs some 10 µs, so the default is no burden.

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
    """Tell whether somebody holds the lock, without creating or changing anything.

    `flock` cannot be asked, only tried: for the instant of the question a shared lock is held, which at worst puts a
    waiter off until its next try.

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
    return StoreUnavailable(f"{name}: cannot tell whether it is locked: {error.strerror}", path=name)
