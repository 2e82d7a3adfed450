"""How far a standby is behind its master's journal, by what both of them publish."""

from collections.abc import Callable
from pathlib import Path

from pybroker.store.journal.format import data_file_name
from pybroker.store.members import Followed, MemberRecord, PublishedEnd

SizeOf = Callable[[int], int]
"""Returns the length of a data file by its number; 0 if it is gone."""


def lag_bytes(followed: Followed, end: PublishedEnd, size_of: SizeOf) -> int:
    """Return the bytes from a standby's position to the end of the journal, over all files in between; at least 0.

    A file that is gone counts as read. One that was made with its full length counts with what it has no records for.
    """
    if (end.file_id, end.offset) <= (followed.file_id, followed.offset):
        return 0
    if end.file_id == followed.file_id:
        return end.offset - followed.offset
    between = sum(map(size_of, range(followed.file_id + 1, end.file_id)))
    rest = max(0, size_of(followed.file_id) - followed.offset) if followed.file_id else 0
    return rest + between + end.offset


def lag_seconds(standby: MemberRecord) -> float | None:
    """Return for how long a standby has not been at the journal's end; None for another role, or if it is not known."""
    followed = standby.followed
    if followed is None:
        return None
    return max(standby.updated_ms - followed.at_ms, followed.behind_ms, 0) / 1000


def sizes_in(directory: Path) -> SizeOf:
    """Return a function that looks up the lengths of the data files in a journal's directory."""

    def size_of(file_id: int) -> int:
        try:
            return (directory / data_file_name(file_id)).stat().st_size
        except OSError:  # removed as no longer needed, or on a share that does not answer: it counts as read
            return 0

    return size_of
