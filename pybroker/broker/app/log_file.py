"""A log file that follows its name: it is opened again once it was renamed or removed, as by logrotate(8).

Each line asks for the status of the name, some 2 µs, so that no line goes to a renamed file and no signal is needed.
Other programs may write to the file too: lines are appended, each by one call.
"""

import errno
import os
from pathlib import Path
from typing import Final

from pybroker.broker.app.log_output import LogOutput
from pybroker.broker.domain.errors import ConfigError

_MODE: Final = 0o640
"""Its owner and group may read it: it has names and addresses of clients."""

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Not waiting for the reader of a named pipe; a regular file knows no waiting."""


class LogFile(LogOutput):
    """Lines on their way to a file.

    Attributes:
        failure: the reason why the file could not be opened again, until it is; empty if it could.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or create it.

        Raises:
            ConfigError: it cannot be opened.
        """
        self.failure = ""
        self._path = os.fspath(path.absolute())
        try:
            self._own = os.open(self._path, _FLAGS, _MODE)
        except OSError as error:
            raise _refused(path, error) from error
        super().__init__(self._own)

    def write(self, line: bytes) -> None:
        """Write a line to the file that has the name now."""
        if not self._has_name():
            self._open_again()
        super().write(line)

    def close(self) -> None:
        """Write what is left, and close the file."""
        super().close()
        os.close(self._own)

    def _has_name(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._own))  # noqa: PTH116 (a Path is slower)
        except OSError:  # there is no file of this name; of other errors opening it reports the reason
            return False

    def _open_again(self) -> None:
        """Replace the file under its descriptor; go on with the renamed one if that fails."""
        try:
            opened = os.open(self._path, _FLAGS, _MODE)
        except OSError as error:
            self.failure = f"{self._path} cannot be opened again, and lines go on to the renamed file: {error.strerror}"
            return
        os.dup2(opened, self._own, inheritable=False)
        os.close(opened)
        self.failure = ""


def check(path: Path) -> None:
    """Check that a log file could be opened, without making it.

    Raises:
        ConfigError: it could not.
    """
    there = path if path.exists() else path.absolute().parent
    if not os.access(there, os.W_OK):
        number = errno.EACCES if there.exists() else errno.ENOENT
        raise _refused(path, OSError(number, os.strerror(number)))


def _refused(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path.absolute()} cannot be opened: {error.strerror}",
        setting="log_file",
        hint="create its directory, and give this user the right to write there",
    )
