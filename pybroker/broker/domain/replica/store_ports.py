"""Ports of the two ends of a replication stream to their data files.

All methods block, and are called in a thread other than the event loop's.

`pybroker.store.replica` implements them (`receiver`, `catch_up`).
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.replica.frames import BatchPiece, ReplacePiece
from pybroker.broker.domain.replica.manifest import MalformedFrame, Manifest
from pybroker.broker.domain.replica.operations import BeginFile, CutFile, FilePlace, Journal, RemoveFiles
from pybroker.broker.domain.replica.plan import PlanEntry

FileChange = BatchPiece | ReplacePiece | BeginFile | CutFile | RemoveFiles
"""A change of a follower's data files."""


class StreamMismatch(MalformedFrame):
    """The stream does not fit the follower's files: they must be compared again, on another connection."""


class FollowerDiskFull(StoreUnavailable):
    """The follower's disk is full. What was confirmed is there; it can connect again when there is space."""


class FollowerStore(Protocol):
    """A follower's data files. Used by one thread at a time."""

    @property
    def is_short_of_space(self) -> bool:
        """True while the reserve for a full disk is being used."""
        ...

    def examine(self) -> Manifest:
        """Make everything durable, and return the manifest; begins a new connection.

        Raises:
            StoreUnavailable: something cannot be read or synced.
        """
        ...

    def regain_space(self) -> bool:
        """Hold the reserve for a full disk again, if there is space for it; return True if it is held."""
        ...

    def checksum(self, journal: Journal, file_id: int, length: int) -> int:
        """Return the CRC-32 of the beginning of a file; 0 if it is shorter.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        ...

    def begin(self, epoch: int, plan: Sequence[PlanEntry]) -> None:
        """Carry out the plan's part that needs nothing of the master: cut, remove, drop.

        Raises:
            StreamMismatch: the plan is not one for these files; nothing was changed.
            FollowerDiskFull: there is no space for more; what the plan removes is removed.
            StoreUnavailable: a file cannot be changed.
        """
        ...

    def apply(self, changes: Sequence[FileChange], *, is_live: bool) -> None:
        """Make changes, in their order within each journal, and sync them: those of the message journal first.

        Args:
            changes: the changes.
            is_live: False for changes of the catch-up, whose sync may be put off. The first call with True ends it.

        Raises:
            StreamMismatch: one of them does not fit the files. Those before it may have been made.
            StoreUnavailable: something cannot be written or synced.
        """
        ...

    def part_checksum(self, journal: Journal, file_id: int, offset: int, length: int) -> int | None:
        """Return the CRC-32 of a part of a file, read from the disk; None if the file is gone, shorter, or damaged.

        A part that the disk cannot read any more is damage, which a repair replaces.

        Raises:
            StoreUnavailable: it cannot be read for another reason.
        """
        ...

    def record(self, journal: Journal, file_id: int, offset: int) -> bytes:
        """Return the record at an offset, with its header; nothing if there is none in a sound batch.

        Raises:
            StoreUnavailable: the file cannot be read, for another reason than damage.
        """
        ...

    def keep_replaced(self, journal: Journal, file_id: int) -> None:
        """Have a file's present content kept when a replacement for it has come."""
        ...

    def ends(self) -> Sequence[tuple[Journal, FilePlace]]:
        """Return where the journals end."""
        ...

    def close(self) -> None:
        """Sync and close all files; `examine` opens them again.

        Raises:
            StoreUnavailable: something cannot be synced, or could not be before.
        """
        ...


class MasterManifest(NamedTuple):
    """A master's manifest.

    Attributes:
        files: the manifest.
        inodes: in its order, the inode number of each file: a file with another one has been replaced since.
    """

    files: Manifest
    inodes: Sequence[int]


class CatchUpPart(NamedTuple):
    """Bytes of a data file.

    Attributes:
        content: whole batches, or a piece of one.
        left: bytes of a batch in pieces that follow.
    """

    content: bytes
    left: int


class DataFileSource(Protocol):
    """An open data file of the master. It can be read to its end, whatever happens to its name."""

    @property
    def inode(self) -> int:
        """Its inode number."""
        ...

    @property
    def size(self) -> int:
        """The file's length when it was opened."""
        ...

    def read(self, offset: int, end: int, left: int) -> CatchUpPart:
        """Return the next bytes, for one frame.

        Args:
            offset: where they begin: at a batch, or where the part before ended.
            end: where whole batches end.
            left: of the part before.

        Raises:
            StoreUnavailable: they cannot be read, or are not there.
        """
        ...

    def piece(self, offset: int, end: int) -> bytes:
        """Return the next bytes, without regard to batches.

        Raises:
            StoreUnavailable: they cannot be read, or are not there.
        """
        ...

    def checksum(self, length: int) -> int:
        """Return the CRC-32 of the beginning.

        Raises:
            StoreUnavailable: it cannot be read, or is not there.
        """
        ...

    def close(self) -> None:
        """Close it."""
        ...


class MasterStore(Protocol):
    """A master's data files. Used by several threads at a time."""

    def manifest(self) -> MasterManifest:
        """Return the manifest of what is there now.

        Raises:
            StoreUnavailable: something cannot be read.
        """
        ...

    def checksum(self, journal: Journal, file_id: int, length: int) -> int | None:
        """Return the CRC-32 of the beginning of a file; None if it is gone, or shorter.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        ...

    def part_checksum(self, journal: Journal, file_id: int, offset: int, length: int) -> int | None:
        """Return the CRC-32 of a part of a file, read from the disk; None if the file is gone, or shorter.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        ...

    def is_sound(self, journal: Journal, file_id: int, length: int) -> bool:
        """Return True if a file is there, and its records have the checksums that are in them.

        Of the journal's last file only those up to a length count.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        ...

    def open(self, journal: Journal, file_id: int) -> DataFileSource | None:
        """Open a file; None if it is gone.

        Raises:
            StoreUnavailable: it cannot be opened.
        """
        ...
