"""Disk space reserved for a full disk.

A full disk must not stop consumers, who free space: their acknowledgements have to be written before a data file can be
removed. So a file beside the journal occupies some megabytes until the disk is full:

```text
            write fails for lack of space             space for all of the reserve again
  HELD ----------------------------------> SPENT -----------------------------------------> HELD
  sends accepted    (file removed)         sends refused; acknowledgements, commits and
                                           removals of data files go on, in its space
```

Sends are refused exactly while the reserve is not held, so that a nearly full disk does not alternate: the freed space
has to cover the whole reserve first. The file stays after the process, also a killed one; a promotion on a full disk
spends it to seal the former master's file.
"""

import errno
import logging
from collections.abc import Callable

from pybroker.store.journal.files import JournalFiles

RESERVE_NAME = "pybroker.reserve"
"""ActiveMQ ignores a file of that name."""

logger = logging.getLogger(__name__)


def is_disk_full(error: OSError) -> bool:
    """Return True if a file operation failed because the disk, or a quota, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """The reserve of one journal directory. Used by one thread at a time."""

    def __init__(self, files: JournalFiles, byte_count: int) -> None:
        """Prepare; nothing is changed. With 0 bytes `hold` removes the file of an earlier setting."""
        self._files = files
        self._path = files.directory / RESERVE_NAME
        self._byte_count = byte_count

    def is_obtainable(self) -> bool:
        """Return True if it is held, or the file system reports space for it. Changes nothing."""
        try:
            return not self._byte_count or self._is_there() or self._files.free_bytes() >= self._byte_count
        except OSError:  # `hold` reports it
            return True

    def hold(self) -> bool:
        """Allocate the reserve; return False if there is no space for it. Blocks.

        On a file system that cannot allocate the broker goes on without it, with a warning in the log.
        """
        try:
            if not self._byte_count:
                self._path.unlink(missing_ok=True)
            elif not self._is_there():
                # Checked first, since a failing allocation briefly takes all space from running writes.
                if self._files.free_bytes() < self._byte_count:
                    return False
                self._files.allocate(self._path, self._byte_count)
        except OSError as error:
            if is_disk_full(error):
                return False
            logger.warning("%s: no space can be reserved for a full disk: %s", self._path, error)
        return True

    def release(self) -> bool:
        """Free the reserve's space; return False if there is none. Blocks."""
        if not self._path.exists():
            return False
        self._files.remove(self._path)
        return True

    def spend_on(self, operation: Callable[[], None]) -> None:
        """Run an operation; if the disk is full, release the reserve and run it again.

        Raises:
            OSError: it failed for another reason, or the reserve did not suffice.
        """
        try:
            operation()
        except OSError as error:
            if not (is_disk_full(error) and self.release()):
                raise
            logger.warning("%s: the disk is full: the reserve was used", self._files.directory)
            operation()

    def _is_there(self) -> bool:
        """Return True if the file exists with all its blocks allocated."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return False
        return status.st_size == self._byte_count <= status.st_blocks * 512


class BorrowedReserve(Reserve):
    """The reserve of another journal on the same disk, for the take-over of a journal without reserve."""

    def __init__(self, files: JournalFiles, lender: Callable[[], bool]) -> None:
        """Prepare.

        Args:
            files: those of the journal without reserve.
            lender: releases the other one's reserve; returns False if there is none.
        """
        super().__init__(files, 0)
        self._lender = lender

    def release(self) -> bool:
        """Free the reserve's space; return False if there is none. Blocks."""
        return self._lender()
