"""Room kept back for the day the disk is full.

A full disk must not stop those who make room: consumers, whose acknowledgements have to be written before a data file
can go. So a file beside the journal holds some megabytes that nobody needs, until there are no others:

```text
            write fails for lack of room              room for all of the reserve again
  HELD ----------------------------------> SPENT -----------------------------------------> HELD
  sends accepted    (file removed)         sends refused; acknowledgements, commits and
                                           removals of data files go on, on what it gave
```

Sends are refused exactly as long as the reserve is not held, so a disk that is nearly full does not waver: what was
freed has to cover the whole reserve first. The file outlives the process, also a killed one; a promotion that finds
the disk full spends it on sealing the predecessor's file.
"""

import errno
import logging
from collections.abc import Callable

from pybroker.store.journal.files import JournalFiles

RESERVE_NAME = "pybroker.reserve"
"""ActiveMQ looks at no file of that name."""

logger = logging.getLogger(__name__)


def is_no_room(error: OSError) -> bool:
    """Return True if a file operation failed because the disk, or a quota, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """The reserve of one journal directory. Used by one thread at a time."""

    def __init__(self, files: JournalFiles, byte_count: int) -> None:
        """Prepare; nothing is touched. Without bytes there is no reserve, and a file of an earlier setting goes."""
        self._files = files
        self._path = files.directory / RESERVE_NAME
        self._byte_count = byte_count

    def is_obtainable(self) -> bool:
        """Return True if it is held or there is room for it, as far as that can be told at once. Changes nothing."""
        try:
            return not self._byte_count or self._is_there() or self._files.free_bytes() >= self._byte_count
        except OSError:  # `hold` says so
            return True

    def hold(self) -> bool:
        """Have the reserve held; False when there is no room for it. Blocks.

        A file system that cannot do it has the broker go on without, and a warning in the log.
        """
        try:
            if not self._byte_count:
                self._path.unlink(missing_ok=True)
            elif not self._is_there():
                # Asked first, since a trial takes all there is for a moment, from whoever writes just then.
                if self._files.free_bytes() < self._byte_count:
                    return False
                self._files.allocate(self._path, self._byte_count)
        except OSError as error:
            if is_no_room(error):
                return False
            logger.warning("%s: no room can be kept for a full disk: %s", self._path, error)
        return True

    def release(self) -> bool:
        """Give the room to those who need it now; False when there is none to give. Blocks."""
        if not self._path.exists():
            return False
        self._files.remove(self._path)
        return True

    def spend_on(self, operation: Callable[[], None]) -> None:
        """Do something that takes room; should there be none, again on the reserve.

        Raises:
            OSError: it failed for another reason, or the reserve did not suffice.
        """
        try:
            operation()
        except OSError as error:
            if not (is_no_room(error) and self.release()):
                raise
            logger.warning("%s: the disk is full: this was done on the reserve", self._files.directory)
            operation()

    def _is_there(self) -> bool:
        """Return True if a predecessor left it as it has to be, room included."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return False
        return status.st_size == self._byte_count <= status.st_blocks * 512


class BorrowedReserve(Reserve):
    """The reserve of another journal on the same disk, for the take-over of one that has none of its own."""

    def __init__(self, files: JournalFiles, lender: Callable[[], bool]) -> None:
        """Prepare.

        Args:
            files: those of the journal without reserve.
            lender: gives the other one's room, and returns False when there is none to give.
        """
        super().__init__(files, 0)
        self._lender = lender

    def release(self) -> bool:
        """Give the room to those who need it now; False when there is none to give. Blocks."""
        return self._lender()
