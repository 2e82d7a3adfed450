"""The size of a journal on disk, for a limit like ActiveMQ's `storeUsage`.

The data files count, the current one up to its logical end. The others change only when a data file is created, removed
or compacted, and are measured only then; in between the size is one addition.

A limit applies to what clients send. Acknowledgements, commits and the broker's own records may exceed it, since they
are what frees space.
"""

import contextlib

from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.reader import data_files


class JournalSize:
    """The size of one journal. Used on the event loop.

    Attributes:
        file_count: the number of its data files when its size was last asked for; 0 before.
        finished: the size of each data file but the current one at that time.
    """

    def __init__(self, files: JournalFiles) -> None:
        """Prepare; nothing is measured yet."""
        self.file_count = 0
        self.finished: dict[int, int] = {}
        self._files = files
        self._finished_bytes = 0
        self._seen = (-1, -1)

    def bytes(self, file_id: int, end: int, changes: int) -> int:
        """Return the size of the journal.

        Args:
            file_id: the current data file.
            end: its logical end.
            changes: how often finished data files were removed or compacted so far.
        """
        if self._seen != (file_id, changes):
            self._seen = (file_id, changes)
            self._finished_bytes = self._measured(below=file_id)
        return self._finished_bytes + end

    def _measured(self, below: int) -> int:
        """Return the size of the data files below one; the newest of them may still have its hole."""
        finished: dict[int, int] = {}
        for file_id, path in data_files(self._files.directory).items():
            if file_id < below:
                with contextlib.suppress(FileNotFoundError):  # removed in this moment
                    status = path.stat()
                    finished[file_id] = min(status.st_size, status.st_blocks * 512)
        self.finished = finished
        self.file_count = len(finished) + 1
        return sum(finished.values())
