"""Port of a journal to its copies on other members of a cluster."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pybroker.store.journal.sink import JournalBatch
from pybroker.store.sink import Replica


class ReplicatedJournal(Replica[JournalBatch], Protocol):
    """The copies of one journal: they get each batch, and learn which data files are removed and replaced.

    `pybroker.store.replica.sequencer` implements it.
    """

    @property
    def first_file(self) -> int:
        """The number of the data file that this promotion begins, which no member has used."""
        ...

    def may_begin(self, file_id: int) -> bool:
        """Return True if the number of a data file is reserved for this master. Called in any thread."""
        ...

    def opening(self, *, has_checksums: bool) -> None:
        """Prepare for the first batch. Called by the thread that recovers the journal.

        Args:
            has_checksums: each batch has an Adler-32.
        """
        ...

    def removed(self, file_ids: Sequence[int]) -> None:
        """Data files were removed from this disk, in this order. Called on the loop."""
        ...

    def read_elsewhere(self, file_id: int, offset: int, taken: Callable[[bytes], None]) -> None:
        """Ask the other members for a record that this disk does not give back. Called on the loop.

        Args:
            file_id: the data file.
            offset: where the record begins.
            taken: called once, on the loop, with the record and its header; with nothing if none has it.
        """
        ...

    def replaced(self, file_id: int, content: Sequence[bytes]) -> None:
        """A data file has another content on this disk: the whole of it, in pieces. Called on the loop."""
        ...
