"""Lists data files and cuts them into pieces: planned once, and then read in parallel.

A piece ends where a batch ends, so no reader depends on another one. Planning hops from one batch control record to the
next and reads nothing else; at damage, or at the end of the records, the rest of the file is one piece.

A journal that a broker is writing may be planned and read: data files only grow, or vanish whole.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pybroker import regular
from pybroker.broker.domain.errors import StoreError, StoreUnavailable
from pybroker.store.directories import SCHEDULER, find_journal
from pybroker.store.journal.commands import CommandType
from pybroker.store.journal.format import BATCH_HEADER, BATCH_HEADER_BYTES, BATCH_MAGIC, RECORD_HEADER_BYTES
from pybroker.store.journal.reader import data_files

ARCHIVE: Final = "data-archive"
"""ActiveMQ's default directory for collected data files, inside the store's directory."""
_LOCK = "lock"
"""The lock file: a broker that has just started has one, and no data file yet."""
_HOP_BYTES = 256 * 1024
"""Bytes per read while planning, for small batches; a longer batch is skipped."""


class NoJournal(StoreError):
    """Raised for a directory that is missing, or holds no journal.

    Attributes:
        directory: its path.
    """

    def __init__(self, message: str, directory: Path) -> None:
        super().__init__(f"{directory}: {message}")
        self.directory = directory


class Piece(NamedTuple):
    """A stretch of a data file, to be read by one worker.

    Attributes:
        directory: as the reader named it.
        path: of the data file.
        file_id: of the data file.
        start: offset of the first batch.
        end: batches that begin here or behind are another's; None: to the end of the file.
        growing: it may be written to, so a torn batch at its end may be one that is being written.
    """

    directory: str
    path: str
    file_id: int
    start: int = 0
    end: int | None = None
    growing: bool = False


def journal_of(directory: Path) -> Path:
    """Return the directory with the data files: inside a broker's data directory, the one of the message journal.

    A directory that holds data files itself, and one without a journal, is returned as it is.

    Raises:
        StoreUnavailable: it cannot be read.
    """
    if directory.is_dir() and not data_files(directory) and (found := find_journal(directory)).is_dir():
        return found
    return directory


def list_files(directory: Path, *, archive: bool = False) -> dict[int, Path]:
    """Return a journal's data files by id, ascending; none if the directory is empty.

    Args:
        directory: with the data files in it.
        archive: the files in its `data-archive` as well.

    Raises:
        NoJournal: it is missing, or has files but no data file.
        StoreUnavailable: it cannot be read.
    """
    if not directory.exists():
        raise NoJournal("there is no such directory", directory)
    if not directory.is_dir():
        raise NoJournal("this is a file; name the directory with the data files, db-<number>.log", directory)
    files = data_files(directory)
    archived = directory / ARCHIVE
    if archive and archived.is_dir():
        files = dict(sorted((data_files(archived) | files).items()))
    if not files:
        _check_empty(directory)
    return files


def _check_empty(directory: Path) -> None:
    names = sorted(path.name for path in directory.iterdir())
    inside = [path for path in (find_journal(directory), directory / SCHEDULER) if path.is_dir()]
    if inside:
        raise NoJournal(f"no data file (db-<number>.log) is here; the journal may be in {inside[0]}", directory)
    if names and _LOCK not in names:
        raise NoJournal("no KahaDB journal: no data file (db-<number>.log) is among what it holds", directory)


def growing(files: Mapping[int, Path]) -> frozenset[int]:
    """Return the data files that a broker may be writing to: the newest, and those that ActiveMQ may write before.

    ActiveMQ copies acknowledgements into a new file with the highest number, and goes on in the one before.
    """
    found: set[int] = set()
    for file_id in sorted(files, reverse=True):
        found.add(file_id)
        if not _is_set_aside(files[file_id]):
            break
    return frozenset(found)


def _is_set_aside(path: Path) -> bool:
    """Return True for a data file that is empty, or begins like one with copies of acknowledgements."""
    try:
        with open(path, "rb", buffering=0, opener=regular.opener) as file:
            start = file.read(BATCH_HEADER_BYTES + RECORD_HEADER_BYTES + 1)
    except OSError:
        return True  # removed since, so it was not the one being written
    return not start.startswith(BATCH_MAGIC) or start.endswith(bytes((CommandType.REWRITTEN_DATA_FILE,)))


def plan(
    directory: str,
    files: Mapping[int, Path],
    piece_bytes: int | None,
    takes: Callable[[int], bool] = lambda _: True,
) -> list[Piece]:
    """Return the pieces in which a journal's files are read, in the journal's order.

    Args:
        directory: the journal's name in the pieces.
        files: its data files.
        piece_bytes: least length of a piece; None: a file is one piece.
        takes: returns True for the id of a file to read.
    """
    written = growing(files)
    pieces: list[Piece] = []
    for file_id, path in files.items():
        if takes(file_id):
            cuts = [0] if piece_bytes is None else _cuts(path, piece_bytes)
            for start, end in zip(cuts, [*cuts[1:], None], strict=True):
                pieces.append(Piece(directory, str(path), file_id, start, end, file_id in written))
    return pieces


def _cuts(path: Path, piece_bytes: int) -> Sequence[int]:
    """Return the offsets of the batches with which pieces begin; a file that is gone by now is still one piece."""
    cuts = [0]
    try:
        if path.stat().st_size <= piece_bytes:
            return cuts
        with open(path, "rb", buffering=0, opener=regular.opener) as file:
            for offset in Hop(file.fileno(), 0):
                if offset - cuts[-1] >= piece_bytes:
                    cuts.append(offset)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror or error}", path=str(path)) from error
    return cuts


class Hop:
    """Goes from control record to control record by their lengths, without reading the records.

    Attributes:
        data: bytes of the file that were read last.
        base: where in the file they begin.
        reached: where the next control record should be.
    """

    def __init__(self, descriptor: int, start: int, limit: int | None = None) -> None:
        self.data = b""
        self.base = start
        self._descriptor = descriptor
        self.reached = start
        self._limit = limit

    def __iter__(self) -> "Hop":
        return self

    def __next__(self) -> int:
        offset = self.reached
        if self._limit is not None and offset >= self._limit:
            raise StopIteration
        if offset + BATCH_HEADER_BYTES > self.base + len(self.data):
            self.data, self.base = os.pread(self._descriptor, _HOP_BYTES, offset), offset
            if len(self.data) < BATCH_HEADER_BYTES:
                raise StopIteration
        length: int
        magic, length, _ = BATCH_HEADER.unpack_from(self.data, offset - self.base)
        if magic != BATCH_MAGIC or length <= 0:
            raise StopIteration
        self.reached = offset + BATCH_HEADER_BYTES + length
        return offset
