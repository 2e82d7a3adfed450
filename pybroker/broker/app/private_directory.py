"""A directory for files with secrets that a process makes for itself, and that no other user may read.

```text
TEMPORARY/pybroker-UID/              0700, of this user; pybroker-UID-XXXXXXXX where another has made that
    lock                             held while a directory is made or removed
    XXXXXXXX/                        one for each process
        lock                         held as long as the process lives
```

The kernel releases a lock when its process ends, by `kill -9` too. A directory whose lock is free has no owner any
longer, and is removed when the next one is made.

TEMPORARY is a service's directory under `/run`, where systemd has made one, else the system's for temporary files, in
which any user may have made any name first. `XDG_RUNTIME_DIR` is not used: it is removed when its user logs out, under
a broker that goes on.
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
        temporary: the directory for temporary files; None: the service's, or the system's.

    Raises:
        ConfigError: it cannot be made.
    """
    within = _temporary() if temporary is None else temporary
    try:
        parents = _own_parents(within)
        for parent in parents:
            with _locked(parent / _LOCK):
                for each in parent.iterdir():
                    if each.is_dir() and not each.is_symlink():
                        _remove_if_free(each)
        parent = parents[0] if parents else Path(tempfile.mkdtemp(prefix=f"{_name()}-", dir=within))
        with _locked(parent / _LOCK):
            path = Path(tempfile.mkdtemp(dir=parent))
            lock = _opened(path / _LOCK)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(
            f"{within} cannot be used: {error.strerror}", setting="TMPDIR", hint="name a directory of this user there"
        ) from error
    return PrivateDirectory(path, lock)


def _temporary() -> Path:
    service = Path(os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0])
    return service if service.is_absolute() and service.is_dir() else Path(tempfile.gettempdir())


def _name() -> str:
    return f"pybroker-{os.getuid()}"


def _own_parents(temporary: Path) -> list[Path]:
    """Return the parents that this user alone may use; the plain name is made if no one has it."""
    plain = temporary / _name()
    with suppress(FileExistsError):  # of whomever: that is checked next
        plain.mkdir(mode=0o700)
    return [each for each in (plain, *sorted(temporary.glob(f"{_name()}-*"))) if _is_own(each)]


def _is_own(parent: Path) -> bool:
    status = parent.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077


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
