"""Keeps what a follower had and its master has not: links in `replica/discarded/EPOCH-N`.

None of it was confirmed by the cluster, or it is damaged. The operator finds it named in the log, and can read it with
the tools for journals. What was kept in the newest few epochs stays. A second directory of an epoch is for another
version of a file: so an interrupted catch-up that is repeated adds nothing.
"""

import logging
import os
import re
from pathlib import Path
from typing import Final

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.journal.files import JournalFiles, System
from pybroker.store.journal.reader import DataFileWalk, load
from pybroker.store.replica import DIRECTORY

DISCARDED: Final = "discarded"
_NAME: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,9})", re.ASCII)
_PART_BYTES: Final = 1 << 20

_log = logging.getLogger(__name__)

_LOST = "%d records that the master has not, or not any more,"


class DiscardedFiles:
    """Keeps the files of one epoch. Blocks."""

    def __init__(self, root: Path, epoch: int, kept_max: int, system: System) -> None:
        """Prepare; nothing is changed.

        Args:
            root: the store's directory.
            epoch: of the master.
            kept_max: the files of so many epochs stay; 0 keeps nothing.
            system: the operating system's files.
        """
        self._directory = root / DIRECTORY / DISCARDED
        self._epoch = epoch
        self._kept_max = kept_max
        self._system = system

    def keep(self, path: Path, file_id: int, length: int, reason: str) -> int:
        """Keep a file as it is now, log how many of its records are lost, and return that number.

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
            _log.warning(f"%s %s: {_LOST} are lost", path, reason, count)
            return count
        self._remove_older()
        number = 1
        while (kept := self._place(number, path)).exists() and not kept.samefile(path):
            number += 1
        target = kept.parent
        self._system.makedirs(target, exist_ok=True)
        if not kept.exists():
            try:
                self._system.link(path, kept)
            except OSError:  # another file system, or one without links
                JournalFiles(target, self._system).put(kept, _parts(path))
        for directory in (target, target.parent, self._directory, self._directory.parent):
            JournalFiles(directory, self._system).sync_directory()
        _log.warning(f"%s %s: {_LOST} are kept in %s", path, reason, count, target)
        return count

    def _place(self, number: int, path: Path) -> Path:
        return self._directory / f"{self._epoch}-{number}" / path.parent.name / path.name

    def _remove_older(self) -> None:
        """Remove what was kept in earlier epochs than the newest few, of which this is one."""
        names = [path.name for path in self._directory.iterdir()] if self._directory.is_dir() else []
        found = [(int(match[1]), match[0]) for name in names if (match := _NAME.fullmatch(name))]
        epochs = sorted({self._epoch, *(epoch for epoch, _ in found)})
        for epoch, name in found:
            if epoch not in epochs[-self._kept_max :]:
                self._remove(self._directory / name)

    def _remove(self, directory: Path) -> None:
        """Remove one of these directories: two levels of directories, with files."""
        for parent, _, names in os.walk(directory, topdown=False):
            for name in names:
                self._system.unlink(Path(parent) / name)
            Path(parent).rmdir()
        _log.info("%s: removed, since newer ones are kept", directory)


def discarded_bytes(root: Path) -> int:
    """Return how much of the disk what was discarded takes; a file that the store still has as well takes nothing."""
    found = 0
    for parent, _, names in os.walk(root / DIRECTORY / DISCARDED):
        for name in names:
            try:
                status = os.lstat(Path(parent) / name)
            except OSError:  # an operator has removed it
                continue
            if status.st_nlink == 1:
                found += status.st_blocks * 512
    return found


def _record_count(path: Path, file_id: int, length: int) -> int:
    """Return how many records of a file follow its beginning; 0 if the disk cannot read it any more."""
    try:
        content = load(path)
    except StoreUnavailable as error:
        _log.error("the records of a discarded file are not counted: %s", error)
        return 0
    return sum(1 for _ in DataFileWalk(content, file_id, start=length))


def _parts(path: Path) -> list[bytes]:
    content = load(path)
    return [content[start : start + _PART_BYTES] for start in range(0, len(content), _PART_BYTES)]
