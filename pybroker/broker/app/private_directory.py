"""A directory for files with secrets that a process makes for itself, and that no other user may read.

```text
TEMPORARY/pybroker-UID/              0700, of this user
    lock                             held while a directory is made or removed
    XXXXXXXX/                        one for each process
        lock                         held as long as the process lives
```

The kernel releases a lock when its process ends, by `kill -9` too. A directory whose lock is free has no owner any
longer, and is removed when the next one is made.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from pybroker.broker.domain.errors import ConfigError

_LOCK = "lock"


class PrivateDirectory:
    """A directory of this process.

    Attributes:
        path: its name.
    """

    def __init__(self, path: Path, lock: int) -> None:
        """Own a directory whose lock is held by a file descriptor."""
        self.path = path
        self._lock = lock

    def close(self) -> None:
        """Remove the directory; a second call has no effect.

        Other processes look at it only while they hold the lock of its parent: without that, one could make the file
        `lock` again in a directory that is half removed.
        """
        if self._lock < 0:
            return
        try:
            with suppress(FileNotFoundError), _locked(self.path.parent / _LOCK):  # a cleaner of TEMPORARY was there
                shutil.rmtree(self.path)
        finally:
            os.close(self._lock)
            self._lock = -1


def private_directory(temporary: Path | None = None) -> PrivateDirectory:
    """Make a directory, and remove those of processes that have ended.

    Args:
        temporary: the directory for temporary files; None: the system's.

    Raises:
        ConfigError: it cannot be made, or another user has made its parent.
    """
    parent = (temporary or Path(tempfile.gettempdir())) / f"pybroker-{os.getuid()}"
    try:
        parent.mkdir(mode=0o700, exist_ok=True)
        _require_own(parent)
        with _locked(parent / _LOCK):
            for each in parent.iterdir():
                if each.is_dir() and not each.is_symlink():
                    _remove_if_free(each)
            path = Path(tempfile.mkdtemp(dir=parent))
            lock = _opened(path / _LOCK)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(
            f"{parent} cannot be used: {error.strerror}", setting="TMPDIR", hint="name a directory of this user there"
        ) from error
    return PrivateDirectory(path, lock)


def _require_own(parent: Path) -> None:
    status = parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(
            f"{parent} is not a directory that this user alone may use", setting="TMPDIR", hint="remove it"
        )


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


@contextmanager
def _locked(path: Path) -> Generator[None]:
    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_if_free(directory: Path) -> None:
    descriptor = _opened(directory / _LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # its process lives
    else:
        shutil.rmtree(directory)
    finally:
        os.close(descriptor)
