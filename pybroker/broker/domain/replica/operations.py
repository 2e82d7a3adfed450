"""Operations on the data files of a store's journals, in the order in which the master makes them.

The master numbers them: a *sequence* counts the operations of its epoch over both journals, without gaps. So
"everything up to this sequence" is one number, and what the scheduler's journal records is never on a disk that lacks
the message journal's record on which it rests.

Each operation can be repeated: a second time it leaves the files as the first one did.

Source: specification of replication, 4.1 (frames 5 to 9).
"""

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple

MARKER: Final = b"-qMa4"
"""KahaDB's EOF marker, which follows the last batch of a data file."""

MARKER_BYTES: Final = len(MARKER)


class Journal(enum.IntEnum):
    """The journals of a store. The numbers are those of the stream."""

    MESSAGES = 0
    SCHEDULER = 1

    @property
    def register_name(self) -> str:
        """The journal's name in the register of the election."""
        return "kahadb" if self is Journal.MESSAGES else "scheduler"


class FilePlace(NamedTuple):
    """A place in a journal. Ordered as written.

    Attributes:
        file_id: the data file.
        offset: bytes from the file's beginning.
    """

    file_id: int
    offset: int


class BeginFile(NamedTuple):
    """The creation of an empty data file, whose number is higher than every other in the journal."""

    journal: Journal
    file_id: int


class WriteBatch(NamedTuple):
    """A batch at the logical end of the journal's newest data file.

    Attributes:
        journal: the journal.
        file_id: the data file.
        offset: where the batch begins: the end of the one before.
        content: control record and records as they are on disk, in pieces; no EOF marker. Each writer puts one behind
            the last batch of a write.
    """

    journal: Journal
    file_id: int
    offset: int
    content: Sequence[bytes | memoryview]


class CutFile(NamedTuple):
    """The end of a data file: nothing is appended to it any more.

    Attributes:
        journal: the journal.
        file_id: the data file.
        length: the length of the file from now on. Its last bytes are the EOF marker, so that the logical contents end
            `MARKER_BYTES` before.
    """

    journal: Journal
    file_id: int
    length: int


class ReplaceFile(NamedTuple):
    """Another content of a finished data file, after compaction.

    Attributes:
        journal: the journal.
        file_id: the data file.
        content: the whole file in pieces, its EOF marker included.
    """

    journal: Journal
    file_id: int
    content: Sequence[bytes | memoryview]


class RemoveFiles(NamedTuple):
    """The removal of data files that are not needed any more.

    Attributes:
        journal: the journal.
        file_ids: in ascending order. One that is not there is no error.
    """

    journal: Journal
    file_ids: Sequence[int]


Operation = BeginFile | WriteBatch | CutFile | ReplaceFile | RemoveFiles
