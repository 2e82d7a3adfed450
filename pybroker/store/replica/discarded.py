"""Keeps what a follower had and its master has not: links in `replica/discarded/EPOCH-N`.

None of it was confirmed by the cluster, or it is damaged. The operator finds it named in the log, and can read it with
the tools for journals. Of these directories the newest few stay.
"""

import logging
import os
import re
from pathlib import Path
from typing import Final

from pybroker.store.journal.files import JournalFiles, System
from pybroker.store.journal.reader import DataFileWalk, load
from pybroker.store.replica import DIRECTORY

DISCARDED: Final = "discarded"
_NAME: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,9})", re.ASCII)
_PART_BYTES: Final = 1 << 20

_log = logging.getLogger(__name__)


class DiscardedFiles:
    """Keeps the files of one catch-up; its directory is made for the first of them. Blocks."""

    def __init__(self, root: Path, epoch: int, kept_max: int, system: System) -> None:
        """Prepare; nothing is changed.

        Args:
            root: the store's directory.
            epoch: of the master.
            kept_max: so many directories stay; 0 keeps nothing.
            system: the operating system's files.
        """
        self._directory = root / DIRECTORY / DISCARDED
        self._epoch = epoch
        self._kept_max = kept_max
        self._system = system
        self._target: Path | None = None

    def keep(self, path: Path, file_id: int, length: int, reason: str) -> None:
        """Keep a file as it is now, and log how many of its records are lost.

        Args:
            path: the data file.
            file_id: its number.
            length: bytes of its beginning that the master has as well.
            reason: what happens to the file.

        Raises:
            OSError: it cannot be kept; it must not be changed then.
        """
        count = _record_count(path, file_id, length)
        if not self._kept_max:
            _log.warning("%s %s: %d records that the master has not are lost", path, reason, count)
            return
        target = self._made() / path.parent.name
        self._system.makedirs(target, exist_ok=True)
        files = JournalFiles(target, self._system)
        try:
            self._system.link(path, target / path.name)
        except FileExistsError:
            pass  # kept before an interruption of the same catch-up
        except OSError:  # another file system, or one without links
            files.put(target / path.name, _parts(path))
        for directory in (target, target.parent, self._directory, self._directory.parent):
            JournalFiles(directory, self._system).sync_directory()
        _log.warning("%s %s: %d records that the master has not are kept in %s", path, reason, count, target)

    def _made(self) -> Path:
        """Return this catch-up's directory, and remove those that are too old."""
        if self._target is None:
            found = sorted((int(match[1]), int(match[2])) for match in map(_NAME.fullmatch, self._names()) if match)
            number = 1 + max((number for epoch, number in found if epoch == self._epoch), default=0)
            for epoch, old in found[: max(0, len(found) + 1 - self._kept_max)]:
                self._remove(self._directory / f"{epoch}-{old}")
            self._target = self._directory / f"{self._epoch}-{number}"
            self._system.makedirs(self._target, exist_ok=True)
        return self._target

    def _names(self) -> list[str]:
        return [path.name for path in self._directory.iterdir()] if self._directory.is_dir() else []

    def _remove(self, directory: Path) -> None:
        """Remove one of these directories: two levels of directories, with files."""
        for parent, _, names in os.walk(directory, topdown=False):
            for name in names:
                self._system.unlink(Path(parent) / name)
            Path(parent).rmdir()
        _log.info("%s: removed, since newer ones are kept", directory)


def _record_count(path: Path, file_id: int, length: int) -> int:
    """Return how many records of a file follow its beginning."""
    return sum(1 for _ in DataFileWalk(load(path), file_id, start=length))


def _parts(path: Path) -> list[bytes]:
    content = load(path)
    return [content[start : start + _PART_BYTES] for start in range(0, len(content), _PART_BYTES)]
