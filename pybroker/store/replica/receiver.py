"""A follower's data files: carries out a plan, and writes what the master sends exactly at the ends of its files.

```text
examine   sync everything, and read the manifest             -> HELLO
begin     carry out the plan: cut, remove, drop              <- PLAN
apply     write what one read of the socket brought, sync    <- FETCHED … LIVE, BATCH …   -> CONFIRM
close     close the files, everything in them synced
```

A process may be killed, and a machine may fail, at any point: then `examine` finds what is there. So

* bytes are only written behind a file's logical end, and an EOF marker behind them in the same write. A batch in pieces
  gets its control record last: until then the former marker ends the file;
* a cut or another content is a synced copy that is renamed into the file's place, and a link to the former one is kept
  first (`discarded`);
* before a file is removed or replaced, everything that came before is synced: the acknowledgements of the messages in
  it. And the message journal is written and synced before the scheduler's records that rest on it;
* a plan that passes through states which never were the master's (`is_orderly`) leaves the file `replica/unfinished`
  until the stream is live. A store with that file must not become the master.

An error of the operating system leaves the file's content unknown, so it ends the receiver. The exception is a
full disk, which is met before anything is synced: the reserve is spent, or the connection ends.

Used by one thread at a time. Blocks.
"""

import errno
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, assert_never

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.replica.frames import BatchPiece, ReplacePiece
from pybroker.broker.domain.replica.manifest import Manifest
from pybroker.broker.domain.replica.operations import (
    MARKER_BYTES,
    BeginFile,
    CutFile,
    FilePlace,
    Journal,
    RemoveFiles,
)
from pybroker.broker.domain.replica.plan import PlanAction, PlanEntry, is_orderly
from pybroker.broker.domain.replica.store_ports import FileChange, FollowerDiskFull, StreamMismatch
from pybroker.store.journal.clean_stop import INDEX_FILES
from pybroker.store.journal.files import OS, JournalFiles, System
from pybroker.store.journal.format import BATCH_HEADER_BYTES, EOF_MARKER
from pybroker.store.journal.reader import read_start
from pybroker.store.journal.reserve import Reserve, is_disk_full
from pybroker.store.journal.store_snapshot import SNAPSHOT_NAME
from pybroker.store.replica import DIRECTORY
from pybroker.store.replica.discarded import DISCARDED, DiscardedFiles, discarded_bytes
from pybroker.store.replica.incoming import IncomingFile
from pybroker.store.replica.manifest_files import FileFacts, ManifestFiles
from pybroker.store.replica.records import sound_record
from pybroker.store.scheduler.recovery import INDEX_FILES as JOB_INDEX_FILES

UNFINISHED_NAME: Final = "unfinished"

FILE_ID_MAX: Final = (1 << 31) - 1
"""The highest number of a data file: files with others are not found again."""

BUFFERS_MAX: Final = 1000
"""Buffers of one system call, below Linux's limit (`IOV_MAX`, 1024), with one for the EOF marker."""

UNSYNCED_BYTES_MAX: Final = 8 << 20
"""Bytes of the catch-up that are synced at once: more would keep the thread from answering pings."""

AHEAD_BYTES: Final = 512 << 10
"""Bytes of the hole that are filled at a time, as `Appender` does it: the sync then allocates no blocks."""

AHEAD_BATCH_BYTES_MAX: Final = 64 << 10
AHEAD_FREE_BYTES_MIN: Final = 64 << 20

_INDEXES: Final[Mapping[Journal, Sequence[str]]] = {
    Journal.MESSAGES: (*INDEX_FILES, SNAPSHOT_NAME),
    Journal.SCHEDULER: JOB_INDEX_FILES,
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """A follower's own settings.

    Attributes:
        preallocate_bytes: the length that a new data file has at first; 0: it grows with the writes.
        archive_directory: receives data files of the message journal that the master has collected; None deletes them.
        discarded_max: of the catch-ups that have discarded something, so many stay in `replica/discarded`.
        reserve_bytes: the message journal's reserve for a full disk; 0: none.
    """

    preallocate_bytes: int = 0
    archive_directory: Path | None = None
    discarded_max: int = 2
    reserve_bytes: int = 0


def is_unfinished(root: Path) -> bool:
    """Return True if a store is in the middle of a catch-up, in a state that must not be served."""
    return (root / DIRECTORY / UNFINISHED_NAME).exists()


def remove_mark(root: Path, system: System = OS) -> None:
    """Remove the mark of an unfinished catch-up, if there is one: the store is complete, or now the master's.

    Raises:
        OSError: it cannot be removed.
    """
    path = root / DIRECTORY / UNFINISHED_NAME
    if path.exists():
        JournalFiles(path.parent, system).remove(path)


class _OpenFile:
    """The data file of a journal that is being written.

    Attributes:
        file_id: its number.
        descriptor: its descriptor.
        end: the logical end of what is written.
        pending: bytes for that place that are not written yet.
        pending_bytes: their length.
        header: of a batch in pieces: its control record, which is written last; empty for none.
        piece_at: where its next piece goes.
        left: what is missing of it.
        filled: up to here the hole is filled.
        unsynced_bytes: what was written since the last sync.
    """

    __slots__ = (
        "descriptor",
        "end",
        "file_id",
        "filled",
        "header",
        "left",
        "pending",
        "pending_bytes",
        "piece_at",
        "unsynced_bytes",
    )

    def __init__(self, file_id: int, descriptor: int, end: int) -> None:
        self.file_id = file_id
        self.descriptor = descriptor
        self.end = self.filled = end
        self.pending: list[bytes | memoryview] = []
        self.pending_bytes = 0
        self.header: bytes = b""
        self.piece_at = self.left = 0
        self.unsynced_bytes = 0

    @property
    def next(self) -> int:
        """The offset in the data file at which the next bytes are written."""
        return self.piece_at if self.header else self.end + self.pending_bytes


class _JournalWriterState:
    """One journal of the follower.

    Attributes:
        files: its directory.
        ends: the logical ends of its data files.
        highest: the highest number of a data file that it ever had.
        file: the file that is being written; None before the first.
        incoming: a new content that arrives in pieces.
    """

    __slots__ = ("ends", "file", "files", "highest", "incoming")

    def __init__(self, files: JournalFiles) -> None:
        self.files = files
        self.ends: dict[int, int] = {}
        self.highest = 0
        self.file: _OpenFile | None = None
        self.incoming: IncomingFile | None = None


class ReplicaReceiver:
    """Implements `FollowerStore`.

    Args:
        root: the store's directory.
        journals: the directories of its journals; they are made when they are needed.
        settings: the follower's.
        system: the operating system's files.
        clock_ns: the clock that gives files their times.
    """

    def __init__(
        self,
        root: Path,
        journals: Mapping[Journal, Path],
        settings: ReceiverSettings | None = None,
        system: System = OS,
        clock_ns: Callable[[], int] | None = None,
    ) -> None:
        self._root = root
        self._settings = ReceiverSettings() if settings is None else settings
        self._system = system
        self._journals = {
            journal: _JournalWriterState(JournalFiles(path, system)) for journal, path in journals.items()
        }
        self._manifest_files = ManifestFiles(root, journals, system, *([clock_ns] if clock_ns else []))
        self._reserve = Reserve(self._journals[Journal.MESSAGES].files, self._settings.reserve_bytes)
        self._replaced: set[tuple[Journal, int]] = set()
        """Files whose former content is kept when the new one is there."""
        self._sizes: dict[tuple[Journal, int], int] = {}
        self._discarded: DiscardedFiles | None = None
        self._is_live = False
        self._failure: OSError | None = None
        self.is_short_of_space = False
        self.discarded_records = 0
        """Records that were cut off, dropped or replaced: the master has not got them."""

    # ------------------------------------------------------------ one connection

    def examine(self) -> Manifest:
        """Make everything durable, and return the manifest; begins a new connection.

        Raises:
            StoreUnavailable: something cannot be read or synced.
        """
        self._require_usable()
        try:
            self._close_files(sync=False)  # the manifest's reader syncs each file that may have changed
            self._make_directories()
            facts = self._read_facts()
        except OSError as error:
            raise self._failed(error) from error
        for journal, state in self._journals.items():
            state.ends = {each.entry.file_id: each.entry.length for each in facts if each.entry.journal is journal}
            state.highest = max(state.ends, default=0)
        self._sizes = {each.entry[:2]: each.size for each in facts}
        self._is_live = False
        self._discarded = None
        self._replaced = set()
        self.regain_space()
        return [each.entry for each in facts]

    def regain_space(self) -> bool:
        """Hold the reserve again, if there is space for it; return True if it is held, or there is none."""
        self.is_short_of_space = self._settings.reserve_bytes > 0 and not self._reserve.hold()
        return not self.is_short_of_space

    def checksum(self, journal: Journal, file_id: int, length: int) -> int:
        """Return the CRC-32 of the beginning of a file; 0 if it is shorter, which fits none.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        try:
            found = self._manifest_files.checksum(journal, file_id, length)
        except OSError as error:
            raise self._failed(error) from error
        return 0 if found is None else found

    def part_checksum(self, journal: Journal, file_id: int, offset: int, length: int) -> int | None:
        """Return the CRC-32 of a part of a file, read from the disk; None if the file is gone, shorter, or damaged.

        A disk that cannot read a part any more (EIO) has damaged the file, and not the receiver: a repair replaces it.

        Raises:
            StoreUnavailable: it cannot be read for another reason.
        """
        try:
            return self._manifest_files.part_checksum(journal, file_id, offset, length)
        except OSError as error:
            if error.errno == errno.EIO:
                path = self._journals[journal].files.path(file_id)
                _log.error("%s: %d bytes from %d on cannot be read: %s", path, length, offset, error)
                return None
            raise self._failed(error) from error

    def record(self, journal: Journal, file_id: int, offset: int) -> bytes:
        """Return the record at an offset, with its header; nothing if there is none in a sound batch.

        Raises:
            StoreUnavailable: the file cannot be read, for another reason than damage.
        """
        path = self._journals[journal].files.path(file_id)
        try:
            return sound_record(path, offset)
        except OSError as error:
            if error.errno in (errno.EIO, errno.ENOENT):
                _log.error("%s: the record at offset %d cannot be read for the master: %s", path, offset, error)
                return b""
            raise self._failed(error) from error

    def keep_replaced(self, journal: Journal, file_id: int) -> None:
        """Have a file's present content kept when a replacement for it has come."""
        self._replaced.add((journal, file_id))

    def begin(self, epoch: int, plan: Sequence[PlanEntry]) -> None:
        """Carry out the plan's part that needs nothing of the master: cut, remove, drop.

        Raises:
            StreamMismatch: the plan is not one for these files; nothing was changed.
            FollowerDiskFull: the reserve cannot be held, though what the plan removes is removed.
            StoreUnavailable: a file cannot be changed.
        """
        self._require_usable()
        self._require_fitting(plan)
        self._discarded = DiscardedFiles(self._root, epoch, self._settings.discarded_max, self._system)
        self._replaced = {entry[:2] for entry in plan if entry.action is PlanAction.REPLACE}
        try:
            if any(entry.action not in (PlanAction.KEEP, PlanAction.FETCH) for entry in plan):
                self._remove_indexes()
            # First, for the rest may need the space; and in their order, so that a crash is harmless.
            for entry in plan:
                if entry.action is PlanAction.REMOVE:
                    self._remove(entry.journal, (entry.file_id,))
            if not is_orderly(plan):
                self._with_space(partial(self._mark_unfinished, epoch))
            self._finish_kept(plan)
            for entry in sorted(plan, reverse=True):
                if entry.action is PlanAction.DROP:
                    self._drop(entry)
                elif entry.action is PlanAction.CUT:
                    self._cut(entry)
        except OSError as error:
            raise self._failed(error) from error
        if self.is_short_of_space and not self.regain_space():
            raise FollowerDiskFull(
                f"{self._root}: the disk has no space for the reserve of {self._settings.reserve_bytes:,} bytes",
                path=str(self._root),
                hint=f"nothing more is copied until there is space{_discarded_hint(self._root)}",
            )

    def apply(self, changes: Sequence[FileChange], *, is_live: bool) -> None:
        """Write what one read of the connection brought, and sync it.

        In the catch-up, syncs are put off until some megabytes have gathered, a file ends, or the stream is live.

        Args:
            changes: in their order.
            is_live: the last of them is an operation, or the catch-up ends with them.

        Raises:
            StreamMismatch: one of them does not fit the files. Those before it may have been made.
            StoreUnavailable: something cannot be written or synced.
        """
        self._require_usable()
        try:
            for journal, state in sorted(self._journals.items()):
                for change in changes:
                    if change.journal is journal:
                        self._apply_one(journal, state, change)
                self._flush(state)
                if is_live or (state.file is not None and state.file.unsynced_bytes >= UNSYNCED_BYTES_MAX):
                    self._sync(state)
        except OSError as error:
            raise self._failed(error) from error
        if is_live and not self._is_live:
            self._become_live()

    def ends(self) -> Sequence[tuple[Journal, FilePlace]]:
        """Return where the journals end."""
        return [
            (journal, FilePlace(state.highest, state.ends.get(state.highest, 0)))
            for journal, state in self._journals.items()
            if state.highest
        ]

    def close(self) -> None:
        """Sync and close all files. May be repeated.

        Raises:
            StoreUnavailable: something cannot be synced, or could not be before.
        """
        try:
            self._close_files(sync=self._failure is None)
        except OSError as error:
            raise self._failed(error) from error
        self._require_usable()

    # ------------------------------------------------------------ examination

    def _make_directories(self) -> None:
        """Make directories that are not there, and remove copies that an interruption has left."""
        for state in self._journals.values():
            directory = state.files.directory
            if not directory.is_dir():
                self._system.makedirs(directory, exist_ok=True)
                JournalFiles(directory.parent, self._system).sync_directory()
            if unfinished := state.files.unfinished():
                state.files.remove(*unfinished)
        directory = self._root / DIRECTORY
        if not directory.is_dir():
            self._system.makedirs(directory, exist_ok=True)
            JournalFiles(self._root, self._system).sync_directory()

    def _read_facts(self) -> list[FileFacts]:
        return self._manifest_files.read(sync=True)

    # ------------------------------------------------------------ the plan

    def _require_fitting(self, plan: Sequence[PlanEntry]) -> None:
        """Check that a plan is one for these files.

        Raises:
            StreamMismatch: it is not.
        """
        planned = {entry[:2] for entry in plan}
        for journal, state in self._journals.items():
            for file_id in state.ends:
                if (journal, file_id) not in planned:
                    raise StreamMismatch(f"db-{file_id}.log is not in the plan")
        for entry in plan:
            found = self._journals[entry.journal].ends.get(entry.file_id)
            match entry.action:
                case PlanAction.KEEP:
                    fits = found == entry.length
                case PlanAction.FETCH:
                    fits = (found or 0) == entry.length <= entry.total
                case PlanAction.CUT:
                    fits = found is not None and entry.length < found
                case PlanAction.REPLACE | PlanAction.REMOVE | PlanAction.DROP:
                    fits = found is not None
                case _:
                    assert_never(entry.action)
            if not fits or not entry.file_id:
                raise StreamMismatch(f"{entry} does not fit: db-{entry.file_id}.log has {found} bytes")

    def _mark_unfinished(self, epoch: int) -> None:
        directory = self._root / DIRECTORY
        content = json.dumps({"format": 1, "epoch": epoch}).encode() + b"\n"
        JournalFiles(directory, self._system).put(directory / UNFINISHED_NAME, (content,))

    def _remove_indexes(self) -> None:
        """Remove what describes the journals as they were: an index that does not fit is worse than none."""
        for journal, state in self._journals.items():
            directory = state.files.directory
            if found := [path for name in _INDEXES[journal] if (path := directory / name).exists()]:
                state.files.remove(*found)

    def _finish_kept(self, plan: Sequence[PlanEntry]) -> None:
        """Cut the files that are kept, and that are not the last ones of the master, behind their EOF markers."""
        newest = {
            entry.journal: entry.file_id for entry in plan if entry.action not in (PlanAction.REMOVE, PlanAction.DROP)
        }
        for entry in plan:
            is_finished = entry.file_id != newest.get(entry.journal)
            length = entry.length + MARKER_BYTES
            if entry.action is PlanAction.KEEP and is_finished and self._sizes[entry[:2]] != length:
                state = self._journals[entry.journal]
                self._open(state, entry.file_id)
                self._end_file(state)

    def _drop(self, entry: PlanEntry) -> None:
        state = self._journals[entry.journal]
        path = state.files.path(entry.file_id)
        assert self._discarded is not None, "a plan was begun"
        self.discarded_records += self._discarded.keep(path, entry.file_id, 0, "is dropped")
        state.files.remove(path)
        del state.ends[entry.file_id]

    def _cut(self, entry: PlanEntry) -> None:
        state = self._journals[entry.journal]
        path = state.files.path(entry.file_id)
        assert self._discarded is not None, "a plan was begun"
        self.discarded_records += self._discarded.keep(path, entry.file_id, entry.length, f"is cut at {entry.length}")
        content = read_start(path, entry.length)
        self._with_space(partial(state.files.replace, entry.file_id, (content, EOF_MARKER)))
        state.ends[entry.file_id] = entry.length

    def _become_live(self) -> None:
        """Remove the mark of an unfinished catch-up: everything is there, and synced."""
        self._is_live = True
        try:
            remove_mark(self._root, self._system)
        except OSError as error:
            raise self._failed(error) from error

    # ------------------------------------------------------------ changes

    def _apply_one(self, journal: Journal, state: _JournalWriterState, change: FileChange) -> None:
        match change:
            case BatchPiece():
                self._write(state, change)
            case BeginFile(file_id=file_id):
                self._begin_file(state, file_id)
            case CutFile(file_id=file_id, length=length):
                self._select(state, file_id)
                self._flush(state)
                if length != state.ends[file_id] + MARKER_BYTES:
                    raise StreamMismatch(f"db-{file_id}.log ends at {state.ends[file_id]}, and not before {length}")
                self._end_file(state)
            case ReplacePiece():
                self._replace(journal, state, change)
            case RemoveFiles(file_ids=file_ids):
                self._flush(state)
                self._sync(state)
                self._remove(journal, file_ids)
            case _:
                assert_never(change)

    def _select(self, state: _JournalWriterState, file_id: int) -> _OpenFile:
        """Return a file that is written to, opening it if another one is open.

        Raises:
            StreamMismatch: it is not there, or operations go to the journal's last file alone.
        """
        if state.file is None or state.file.file_id != file_id:
            if file_id not in state.ends or (self._is_live and file_id != state.highest):
                raise StreamMismatch(f"db-{file_id}.log is not the file that is written: that is {state.highest}")
            self._flush(state)
            self._sync(state)
            self._close(state)
            self._open(state, file_id)
        assert state.file is not None, "it was opened"
        return state.file

    def _write(self, state: _JournalWriterState, piece: BatchPiece) -> None:
        """Take bytes for the end of a file; short ones are gathered until the next flush."""
        file = self._select(state, piece.file_id)
        content, size = piece.content, len(piece.content)
        if piece.offset != file.next or not size:
            raise StreamMismatch(f"db-{file.file_id}.log ends at {file.next}, and the bytes are for {piece.offset}")
        if not file.header and not piece.left:
            if len(file.pending) >= BUFFERS_MAX:
                self._flush(state)
            file.pending.append(content)
            file.pending_bytes += size
            return
        self._flush(state)
        if file.header:
            if file.left != size + piece.left:
                raise StreamMismatch(f"db-{file.file_id}.log: {piece.left} bytes are left of a batch, not {file.left}")
            rest, at = content, piece.offset
        elif size > BATCH_HEADER_BYTES:
            file.header = bytes(content[:BATCH_HEADER_BYTES])
            rest, at = memoryview(content)[BATCH_HEADER_BYTES:], piece.offset + BATCH_HEADER_BYTES
        else:
            raise StreamMismatch(f"db-{file.file_id}.log: the first piece of a batch has no record")
        self._put(state, file.descriptor, (rest,), at)
        file.unsynced_bytes += size
        file.piece_at, file.left = piece.offset + size, piece.left
        if not file.left:
            self._put(state, file.descriptor, (EOF_MARKER,), file.piece_at)
            self._put(state, file.descriptor, (file.header,), file.end)
            file.end, file.header = file.piece_at, b""
            state.ends[file.file_id] = file.end

    def _flush(self, state: _JournalWriterState) -> None:
        """Write the gathered bytes with an EOF marker behind them."""
        file = state.file
        if file is None or not file.pending:
            return
        end = file.end + file.pending_bytes
        self._fill_ahead(state, file, end + MARKER_BYTES)
        self._put(state, file.descriptor, (*file.pending, EOF_MARKER), file.end)
        file.unsynced_bytes += file.pending_bytes
        file.end, file.pending, file.pending_bytes = end, [], 0
        state.ends[file.file_id] = end

    def _fill_ahead(self, state: _JournalWriterState, file: _OpenFile, end: int) -> None:
        """Fill a piece of the hole, if short batches are written; see `Appender`."""
        if end < file.filled or not self._is_live or file.pending_bytes > AHEAD_BATCH_BYTES_MAX or not file.end:
            return
        start = max(end, file.filled)
        file.filled = min(start + AHEAD_BYTES, self._settings.preallocate_bytes - MARKER_BYTES)
        if start < file.filled and state.files.free_bytes() >= AHEAD_FREE_BYTES_MIN:
            try:
                state.files.fill(file.descriptor, start, file.filled)
            except OSError as error:
                if not is_disk_full(error):
                    raise

    def _put(
        self, state: _JournalWriterState, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        self._with_space(partial(state.files.write, descriptor, buffers, offset))

    def _with_space(self, operation: Callable[[], None]) -> None:
        """Run an operation that needs space, with the reserve's if there is no other."""
        try:
            operation()
        except OSError as error:
            if not is_disk_full(error):
                raise
            self.is_short_of_space = True
            if not self._reserve.release():
                raise
            _log.warning("%s: the disk is full: the reserve was used", self._root)
            operation()

    def _sync(self, state: _JournalWriterState) -> None:
        file = state.file
        if file is not None and file.unsynced_bytes:
            self._sync_file(state, file)

    def _sync_file(self, state: _JournalWriterState, file: _OpenFile) -> None:
        """Sync a file. A failure is final, also one for lack of space: the kernel may have dropped any pages."""
        try:
            state.files.sync(file.descriptor)
        except OSError as error:
            self._failure = error
            raise
        file.unsynced_bytes = 0

    # ------------------------------------------------------------ files

    def _begin_file(self, state: _JournalWriterState, file_id: int) -> None:
        """Create a file; in the catch-up also one that is not the last."""
        if not 0 < file_id <= FILE_ID_MAX:
            raise StreamMismatch(f"{file_id} is no number of a data file")
        if file_id in state.ends or (self._is_live and file_id <= state.highest):
            raise StreamMismatch(f"db-{file_id}.log is begun, and db-{state.highest}.log is there")
        self._flush(state)
        self._sync(state)
        self._close(state)
        space = self._settings.preallocate_bytes if self._is_live else 0

        def create() -> None:
            descriptor = state.files.create(file_id, space)
            state.file = _OpenFile(file_id, descriptor, 0)

        self._with_space(create)
        state.ends[file_id] = 0
        state.highest = max(state.highest, file_id)

    def _open(self, state: _JournalWriterState, file_id: int) -> None:
        """Open a file behind whose end nothing counts."""
        self._close(state)
        descriptor = self._system.open(state.files.path(file_id), os.O_RDWR | os.O_CLOEXEC)
        state.file = _OpenFile(file_id, descriptor, state.ends[file_id])

    def _end_file(self, state: _JournalWriterState) -> None:
        """Cut the open file behind its EOF marker, which is written again, and close it."""
        file = state.file
        assert file is not None, "a file is open"
        if file.header:
            raise StreamMismatch(f"db-{file.file_id}.log ends within a batch")
        self._put(state, file.descriptor, (EOF_MARKER,), file.end)
        self._sync_file(state, file)
        state.files.truncate(file.descriptor, file.end + MARKER_BYTES)
        self._close(state)

    def _replace(self, journal: Journal, state: _JournalWriterState, piece: ReplacePiece) -> None:
        """Take a piece of another content; with the last one it takes the file's place."""
        if state.incoming is None or piece.offset == 0:
            self._abandon_incoming(state)
            path = state.files.path(piece.file_id)
            is_last = state.file is not None and state.file.file_id == piece.file_id
            if piece.length < MARKER_BYTES or not piece.file_id or (self._is_live and is_last):
                raise StreamMismatch(f"db-{piece.file_id}.log cannot have another content of {piece.length} bytes")
            state.incoming = IncomingFile(path, piece, self._system)
        incoming = state.incoming
        self._with_space(partial(incoming.write, piece))
        if not incoming.is_complete:
            return
        incoming.sync()
        self._flush(state)
        self._sync(state)
        if state.file is not None and state.file.file_id == piece.file_id:
            self._close(state)
        if (journal, piece.file_id) in self._replaced:
            assert self._discarded is not None, "a plan was begun"
            if incoming.path.exists():  # else it was lost, and is repaired
                reason = "differs from the master's and is replaced"
                self.discarded_records += self._discarded.keep(incoming.path, piece.file_id, 0, reason)
            self._replaced.discard((journal, piece.file_id))
        incoming.finish()
        state.incoming = None
        state.files.sync_directory()
        state.ends[piece.file_id] = piece.length - MARKER_BYTES
        state.highest = max(state.highest, piece.file_id)

    def _remove(self, journal: Journal, file_ids: Sequence[int]) -> None:
        """Remove files, or archive them, in ascending order; one that is gone is no error."""
        state = self._journals[journal]
        for file_id in file_ids:
            if self._is_live and file_id == state.highest:
                raise StreamMismatch(f"db-{file_id}.log is removed, and is the file that is written")
            if state.ends.pop(file_id, None) is None:
                continue
            if state.file is not None and state.file.file_id == file_id:
                self._close(state)
            path, target = state.files.path(file_id), self._settings.archive_directory
            if target is None or journal is not Journal.MESSAGES:
                state.files.remove(path)
            else:
                state.files.archive(path, target)

    def _close_files(self, *, sync: bool) -> None:
        for state in self._journals.values():
            self._abandon_incoming(state)
            try:
                if sync:
                    self._flush(state)
                    self._sync(state)
            finally:
                self._close(state)

    def _close(self, state: _JournalWriterState) -> None:
        """Close the open file as it is."""
        file, state.file = state.file, None
        if file is not None:
            state.files.close(file.descriptor)

    def _abandon_incoming(self, state: _JournalWriterState) -> None:
        incoming, state.incoming = state.incoming, None
        if incoming is not None:
            incoming.abandon()

    # ------------------------------------------------------------ failures

    def _require_usable(self) -> None:
        if self._failure is not None:
            raise _unavailable(self._failure, self._root)

    def _failed(self, error: OSError) -> StoreUnavailable:
        """Return the error to raise. A full disk ends the connection, any other error the receiver."""
        if self._failure is None and is_disk_full(error):
            for state in self._journals.values():
                if state.file is not None:  # the bytes were not confirmed, and `close` must not fail for them
                    state.file.pending, state.file.pending_bytes = [], 0
            return _unavailable(error, self._root, FollowerDiskFull)
        self._failure = error
        return _unavailable(error, self._root)


def _unavailable(error: OSError, root: Path, kind: type[StoreUnavailable] = StoreUnavailable) -> StoreUnavailable:
    removable = _discarded_hint(root) if kind is FollowerDiskFull else ""
    return kind(
        f"{error.filename or root}: {error.strerror or error}",
        path=str(error.filename or root),
        hint=f"nothing is confirmed to the master any more; it goes on without this member{removable}",
    )


def _discarded_hint(root: Path) -> str:
    """Return what may be removed to make space: what a former master had alone, and no reader of the store needs."""
    found = discarded_bytes(root)
    return f"; {found:,} bytes are in {root / DIRECTORY / DISCARDED}, and may be moved or removed" if found else ""
