"""Reads a scheduler's journal at a take-over.

It is read once before its next data file is claimed, so that a refused journal stays unchanged, and again if records
were appended before the claim.
"""

import logging
from pathlib import Path
from typing import Final
from zlib import crc32

from pybroker.store.journal.format import data_file_name
from pybroker.store.journal.reader import DataFileWalk, data_files, load
from pybroker.store.journal.takeover import JournalEnd
from pybroker.store.scheduler.replay import JobReplayResult, replay
from pybroker.store.scheduler.state import JobState

CLEAN_STOP: Final = "pybroker clean stop"
INDEX_FILES: Final = ("scheduleDB.data", "scheduleDB.redo", "scheduleDB.free")
"""ActiveMQ's."""

logger = logging.getLogger(__name__)


class JobReading:
    """Implements `StoreReading` for scheduled messages.

    Attributes:
        state: the replayed jobs. A new object whenever the journal is read again.
        result: the replay's result.
    """

    state: JobState
    result: JobReplayResult

    def __init__(self, directory: Path, *, held_bytes_max: int) -> None:
        """Prepare; nothing is read yet.

        Args:
            directory: the scheduler's.
            held_bytes_max: limit on the messages kept in memory.
        """
        self._directory = directory
        self._held_bytes_max = held_bytes_max

    def read(self) -> None:
        """Read the journal."""
        self._replay()

    def finish(self, below: int) -> JournalEnd:
        """Read all again if anything was appended to the files below a claimed number."""
        if not self._is_still_all(below):
            self._replay(below)
        result = self.result
        logger.info("%s: %d jobs in %d records", self._directory, len(result.jobs), result.record_count)
        return JournalEnd(
            damages=result.damages,
            torn_tails=result.torn_tails,
            open_ends=result.open_ends,
            is_clean=result.last_trace == CLEAN_STOP,
            flaw=self._flaw,
        )

    def _replay(self, below: int | None = None) -> None:
        self.state = JobState()
        self.result = replay(self._directory, self.state, held_bytes_max=self._held_bytes_max, below=below)

    def _is_still_all(self, below: int) -> bool:
        """Return True if nothing was appended between a replay and the claim."""
        found = {file_id for file_id in data_files(self._directory) if file_id < below}
        return found == self.result.checksums.keys() and not any(
            next(DataFileWalk(load(self._directory / data_file_name(file_id)), file_id, start=end).batches(), None)
            for file_id, end in self.result.open_ends.items()
        )

    def _flaw(self, file_id: int, content: bytes) -> int | None:
        """Return 0 for a file that differs from what was replayed; a checksum of all of it does not show where."""
        return None if crc32(content) == self.result.checksums[file_id] else 0
