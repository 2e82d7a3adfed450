"""A limit on what a journal takes on disk, as ActiveMQ's `storeUsage`.

Counted are the data files, the one that is being written as far as it is written. The others change only when a data
file is begun, removed or compacted, so only then are they looked at; in between it is a comparison.

The limit is one on what clients send. Acknowledgements, commits and the broker's own records go beyond it, or nothing
would ever become less.
"""

import contextlib

from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.reader import data_files


class StoreLimit:
    """The limit of one journal. Lives on the loop."""

    def __init__(self, files: JournalFiles, byte_count: int) -> None:
        """Prepare; nothing is looked at."""
        self._files = files
        self._byte_count = byte_count
        self._finished_bytes = 0
        self._seen = (-1, -1)

    def is_reached(self, file_id: int, end: int, changes: int) -> bool:
        """Tell whether the journal takes as much as it may.

        Args:
            file_id: the data file that is being written.
            end: how far it is written.
            changes: how often finished data files were removed or compacted so far.
        """
        if self._seen != (file_id, changes):
            self._seen = (file_id, changes)
            self._finished_bytes = self._measured(below=file_id)
        return self._finished_bytes + end >= self._byte_count

    def _measured(self, below: int) -> int:
        """Return what data files below one take; the newest of them may still have its hole."""
        total = 0
        for file_id, path in data_files(self._files.directory).items():
            if file_id < below:
                with contextlib.suppress(FileNotFoundError):  # removed in this moment
                    status = path.stat()
                    total += min(status.st_size, status.st_blocks * 512)
        return total
