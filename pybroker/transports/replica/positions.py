"""How far the master's journals reach, as the operations that were shipped say it."""

from pybroker.broker.domain.replica.operations import (
    MARKER_BYTES,
    BeginFile,
    CutFile,
    FilePlace,
    Journal,
    Operation,
    RemoveFiles,
    ReplaceFile,
    WriteBatch,
)


class JournalPositions:
    """The ends of both journals, and of the data files that were begun since the beginning of the epoch.

    Attributes:
        ends: the end of each journal that had an operation.
    """

    def __init__(self) -> None:
        self.ends: dict[Journal, FilePlace] = {}
        self._lengths: dict[tuple[Journal, int], int] = {}

    def apply(self, operation: Operation) -> int:
        """Take the next operation, and return how many bytes it appends."""
        match operation:
            case WriteBatch(journal, file_id, offset, content):
                size = sum(map(len, content))
                self._set_end(journal, file_id, offset + size)
                return size
            case BeginFile(journal, file_id):
                self._set_end(journal, file_id, 0)
            case ReplaceFile(journal, file_id, content):
                if (journal, file_id) in self._lengths:
                    self._lengths[journal, file_id] = sum(map(len, content)) - MARKER_BYTES
            case RemoveFiles(journal, file_ids):
                for file_id in file_ids:
                    self._lengths.pop((journal, file_id), None)
            case CutFile():
                pass  # the next file begins
        return 0

    def length(self, journal: Journal, file_id: int) -> int | None:
        """Return where a file's logical contents end; None if it had no batch in this epoch, or is gone."""
        return self._lengths.get((journal, file_id))

    def files_behind(self, journal: Journal, file_id: int) -> list[int]:
        """Return the files that were begun behind another one, in ascending order."""
        return sorted(number for each, number in self._lengths if each is journal and number > file_id)

    def _set_end(self, journal: Journal, file_id: int, end: int) -> None:
        self.ends[journal] = FilePlace(file_id, end)
        self._lengths[journal, file_id] = end
