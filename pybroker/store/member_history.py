r"""A member's history beside its entry in the store: what it has become, and when it was not well.

```text
<store>/members/<name>.history     one JSON object a line, the oldest first; at most twice `HISTORY_MAX` lines
```

Lines are appended, each in one write; when there are too many, the file is replaced by one with the newest. A line that
cannot be read, such as one that a crash has torn, is left out. Nothing depends on the file: a member serves without it.
"""

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any, Final, cast

from pybroker import regular
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.members import HISTORY_SUFFIX

HISTORY_MAX: Final = 200
"""The newest entries, which are kept: months of a quiet pair."""

LINE_MAX: Final = 2_000
"""The length of a line; a longer one is not written."""

_UNKNOWN: Final = 2 * HISTORY_MAX
"""Stands for a number of lines that is not known, so that the next entry replaces the file."""

Entry = dict[str, Any]
"""An entry: values by name, as JSON has them."""


def read_history(directory: Path, name: str) -> list[Entry]:
    """Return the entries of a member's history, the oldest first; none if it has no history.

    Raises:
        StoreUnavailable: the file cannot be read.
    """
    path = directory / (name + HISTORY_SUFFIX)
    try:
        with open(path, "rb", opener=regular.opener) as stream:
            lines = stream.read(2 * HISTORY_MAX * LINE_MAX).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unavailable(path, "read", error) from error
    return [entry for line in lines if (entry := _decoded(line)) is not None][-HISTORY_MAX:]


class HistoryFile:
    """The history of this member, which it alone writes. Not for two threads at a time."""

    def __init__(self, directory: Path, name: str) -> None:
        """Take over what is there; a file that cannot be read is replaced.

        Args:
            directory: of all members, `<store>/members`.
            name: of the member.
        """
        self._path = directory / (name + HISTORY_SUFFIX)
        self._entries: list[Entry] = []
        with contextlib.suppress(StoreUnavailable):
            self._entries = read_history(directory, name)
        self.earlier = list(self._entries)
        """The entries that were there at the beginning."""
        self._line_count = _UNKNOWN

    def append(self, entry: Entry) -> None:
        """Add an entry. Blocks for a disk sync.

        Raises:
            StoreUnavailable: it could not be written; the next entry replaces the file.
        """
        self._entries = [*self._entries, entry][-HISTORY_MAX:]
        line_count, self._line_count = self._line_count, _UNKNOWN
        try:
            if line_count + 1 > 2 * HISTORY_MAX:
                self._write(self._path.with_suffix(".new"), os.O_TRUNC, b"".join(map(_encoded, self._entries)))
                self._path.with_suffix(".new").replace(self._path)
                self._line_count = len(self._entries)
            else:
                self._write(self._path, os.O_APPEND, _encoded(entry))
                self._line_count = line_count + 1
        except OSError as error:
            raise _unavailable(self._path, "written", error) from error

    @staticmethod
    def _write(path: Path, flag: int, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flag, 0o666)
        try:
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(fd)
        finally:
            os.close(fd)


def _encoded(entry: Entry) -> bytes:
    line = json.dumps(entry).encode()
    return line + b"\n" if len(line) < LINE_MAX else b""


def _decoded(line: bytes) -> Entry | None:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("Entry", value) if isinstance(value, dict) else None


def _unavailable(path: Path, what: str, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"{path}: the history cannot be {what}: {error.strerror}", path=str(path))
