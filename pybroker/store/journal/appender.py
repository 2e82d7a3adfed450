"""Writes batches into a journal's data files. Blocks, and is used by one thread at a time.

```text
a data file while it is written (preallocated, as ActiveMQ does it)

0            logical end                                    file_bytes_max
+-------+-------+-----+- - - - - - - - - - - - - - - -+-----+
| batch | batch | EOF |            hole               | EOF |
+-------+-------+-----+- - - - - - - - - - - - - - - -+-----+
                ^ the next batch overwrites this marker
```

A file that is full, or finished at a clean stop, is cut right behind its first EOF marker. No reader reads behind a
marker, but copies and archives then have no unused bytes. A crash that undoes the cut is harmless, so it is not synced.

A sync of bytes in a hole makes the file system sync its own journal too, since blocks were allocated. Where each batch
is synced the hole is therefore filled with zeros, half a megabyte ahead: that reads the same, and on ext4 it let eight
producers that waited for their syncs send 50% more messages. A file's first batch, which a take-over writes, does not
wait for it.

A batch of a large message is written in portions, each of which begins its way to the disk at once and then leaves the
page cache: the sync at the end finds little to do, and the file's pages are used again instead of new ones, which cost
a virtual machine several times the write. Other batches wait for this one: with 90 MB that was 0.3 to 0.5 seconds, and
is 0.1; with a load of 9 on two processors it was 1 to 2 seconds, and is 0.2 to 0.7. The batch's header comes last.
Until then the previous batch's EOF marker ends the file. So the checksum in the header is computed meanwhile, by
another thread and without the interpreter lock (GIL): it takes as long as the writes.

The files show if the journal is still this master's, so this module checks it: `require_own`, decision 030. The
records' locations come from the writer.

Source: KahaDB journal of ActiveMQ 5.17 (`DataFileAppender`, preallocation, `journalDiskSyncStrategy`).
"""

import enum
import os
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pybroker.broker.domain.errors import LockNotHeld, StoreError, StoreUnavailable
from pybroker.store.journal.activity import JournalActivity
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    EOF_MARKER,
    FILE_BYTES_MAX,
    batch_header,
    data_file_name,
)
from pybroker.store.journal.reserve import is_disk_full

AHEAD_BYTES = 512 << 10
"""Bytes of the hole filled at a time, ahead of the batches: one write of zeros for some hundred short batches."""

AHEAD_BATCH_BYTES_MAX = 64 << 10
"""Nothing is filled for longer batches: they would only write their bytes twice."""

AHEAD_FREE_BYTES_MIN = 64 << 20
"""With less free space no file is preallocated: acknowledgements and a promotion need it."""


PIECE_BYTES_MIN = 64 << 10
"""The length from which a message is written from its own bytes. A batch of 4 MB has at most 64 such."""

_PIECES_MAX = 1000
"""Buffers of one system call, below Linux's limit (`IOV_MAX`, 1024)."""

LARGE_BATCH_BYTES = 8 << 20
"""The length from which a batch is written in portions: only one with a large message is longer than 4 MB."""

PORTION_BYTES = 2 << 20
"""The length of a portion. With shorter ones the thread waits for the interpreter too often on a busy machine."""

PORTIONS_CACHED = 3
"""The portions that have the time of so many others to reach the disk, before they leave the page cache."""

_ADLER_BEGIN = 1
"""The Adler-32 of nothing."""


class SyncStrategy(enum.Enum):
    """Time at which written batches are synced; ActiveMQ's `journalDiskSyncStrategy`."""

    ALWAYS = "always"
    """After each batch, before any callback."""
    PERIODIC = "periodic"
    """At intervals: a power failure loses what was written since, a killed process loses nothing."""
    NEVER = "never"
    """Left to the operating system."""


class Preallocation(enum.Enum):
    """Initial content of a data file; two of ActiveMQ's `preallocationStrategy`."""

    SPARSE_FILE = "sparse_file"
    """At its full length with a hole: a sync then need not write a new length, which saves about a third of it."""
    NONE = "none"
    """Empty: for file systems without holes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """Settings of a journal. The defaults are ActiveMQ's.

    Attributes:
        sync: when batches are synced.
        sync_interval_seconds: between syncs of the periodic strategy.
        file_bytes_max: a data file is closed when it would grow longer; one giant record may still be longer.
        batch_bytes_max: a batch is closed when it would reach this.
        preallocation: how a new data file begins.
        checksum: give each batch its Adler-32.
        compact_after_cleanups: cleanups in a row that find a file kept for its acknowledgements alone, before it is
            compacted; 0 never compacts.
        archive_directory: receives data files that are no longer needed; None deletes them.
        store_bytes_max: size of the journal at which persistent messages are refused (`limit`); 0: no limit.
        reserve_bytes: space reserved for acknowledgements on a full disk (`reserve`); 0: none.
        inline_seconds_max: only disks with a shorter average write are written to on the event loop, which serves no
            client during the write; 0: none.
    """

    sync: SyncStrategy = SyncStrategy.ALWAYS
    sync_interval_seconds: float = 1.0
    file_bytes_max: int = FILE_BYTES_MAX
    batch_bytes_max: int = BATCH_BYTES_MAX
    preallocation: Preallocation = Preallocation.SPARSE_FILE
    checksum: bool = True
    compact_after_cleanups: int = 10
    archive_directory: Path | None = None
    reserve_bytes: int = 0
    store_bytes_max: int = 0
    inline_seconds_max: float = 0.002


class DiskFull(StoreError, OSError):
    """The disk has no space for a write. Nothing was written after it, so the same write may be tried again.

    A *sync* that fails for lack of space is a failed sync like any other: the kernel may have dropped any pages.
    """


class Appender:
    """Writes batches to their data files, one file at a time, each file new.

    Attributes:
        activity: counts what it does.
    """

    def __init__(self, files: JournalFiles, settings: JournalSettings, monotonic: Callable[[], float]) -> None:
        self.activity = JournalActivity()
        self._files = files
        self._settings = settings
        self._monotonic = monotonic
        self._syncs_each_batch = settings.sync is SyncStrategy.ALWAYS
        self._preallocate_bytes = settings.file_bytes_max if settings.preallocation is Preallocation.SPARSE_FILE else 0
        self.file_id = 0
        """The data file that is open; 0 before the first."""
        self._descriptor = -1
        self._own: os.stat_result | None = None
        """Device and inode number of the open data file; None when none is open."""
        self._name = self._next_name = ""
        self._end = 0
        self._ahead = 0
        """End of the filled part of the hole, or of what stays a hole for lack of space."""
        self.unsynced = False
        """True while something was written that no sync has covered."""

    def write(self, file_id: int, offset: int, records: Sequence[bytes], *, is_in_pieces: bool = False) -> None:
        """Write encoded records as one batch, and sync it if the strategy requires it.

        Args:
            file_id: the data file; if it is not open it is created, after the previous one was finished.
            offset: where the batch control record goes: the file's logical end.
            records: what the batch holds.
            is_in_pieces: records may be in pieces, some of them large: the long ones are not copied.

        Raises:
            DiskFull: the same call may be repeated; until it succeeds the file ends before the batch, and a reader
                treats the rest as a torn tail.
            OSError: nothing may be written any more, since the file's content is unknown.
            LockNotHeld: another master has created the next data file, or replaced the previous one.
        """
        if file_id != self.file_id:
            self._open(file_id)
        body = batch_body(records, is_in_pieces=is_in_pieces)
        length = sum(map(len, body))
        end = offset + BATCH_HEADER_BYTES + length
        is_short = end - offset <= AHEAD_BATCH_BYTES_MAX
        try:
            if end >= self._ahead and self._syncs_each_batch and is_short and offset > 0:
                self._fill_ahead(end + len(EOF_MARKER))
            if length < LARGE_BATCH_BYTES:
                header = batch_header(length, self._checksum(body))
                self._files.write(self._descriptor, (header, *body, EOF_MARKER), offset)
            else:
                self._write_large(body, offset, length)
        except OSError as error:
            raise _translated(error) from error
        self._end = end
        self.activity.written_bytes += end - offset
        self.unsynced = True
        if self._syncs_each_batch:
            self.sync()

    def _write_large(self, body: Sequence[bytes], offset: int, length: int) -> None:
        """Write a long batch in portions, its EOF marker behind them, and then its header."""
        files, descriptor = self._files, self._descriptor
        begin = at = offset + BATCH_HEADER_BYTES
        with ThreadPoolExecutor(1, "journal-checksum") as thread:
            checksum = thread.submit(self._checksum, body)
            for piece in body:
                view = memoryview(piece)
                for start in range(0, len(view), PORTION_BYTES):
                    portion = view[start : start + PORTION_BYTES]
                    files.write(descriptor, (portion,), at)
                    at += len(portion)
                    recent = max(begin, at - (PORTIONS_CACHED + 1) * PORTION_BYTES)
                    files.write_back(descriptor, recent, at - recent)
            files.write(descriptor, (EOF_MARKER,), at)
            files.write(descriptor, (batch_header(length, checksum.result()),), offset)

    def _checksum(self, body: Sequence[bytes]) -> int:
        """Return the checksum of a batch; 0 if it has none."""
        return body_checksum(body) if self._settings.checksum else 0

    def _fill_ahead(self, start: int) -> None:
        """Fill a piece of the hole from an offset on, at most up to the last marker.

        Raises:
            OSError: the file's content is unknown. A lack of space is ignored: the batch will meet it.
        """
        start = max(start, self._ahead)
        self._ahead = min(start + AHEAD_BYTES, self._preallocate_bytes - len(EOF_MARKER))
        if start < self._ahead and self._files.free_bytes() >= AHEAD_FREE_BYTES_MIN:
            try:
                self._files.fill(self._descriptor, start, self._ahead)
            except OSError as error:
                if not is_disk_full(error):
                    raise

    def sync(self) -> None:
        """Make everything written so far durable."""
        if self.unsynced:
            begun = self._monotonic()
            self._files.sync(self._descriptor)
            self.activity.add_sync(self._monotonic() - begun)
            self.unsynced = False

    def require_own(self) -> None:
        """Check that no other master has taken the journal over; a later one then reads all that was synced before.

        A new master first creates the data file behind the newest, then reads, and then replaces the newest.

        Raises:
            LockNotHeld: one has.
            OSError: the directory cannot be read.
        """
        self._require_own(self._next_name)

    def _require_own(self, next_name: str = "") -> None:
        assert self._own is not None, "a data file is open"
        new_owner = self._files.find_new_owner(self._name, self._own, next_name=next_name)
        if new_owner:
            raise self._taken_over(new_owner)

    def close(self) -> None:
        """Finish the open data file: sync it unless the strategy is never, cut it behind its EOF marker, close it."""
        self._finish()
        self.abandon()

    def _finish(self) -> None:
        """Sync the open data file and cut it; nothing happens when none is open."""
        if self._descriptor < 0:
            return
        if self._settings.sync is not SyncStrategy.NEVER:
            self.sync()
        self.unsynced = False
        self._files.truncate(self._descriptor, self._end + len(EOF_MARKER))

    def abandon(self) -> None:
        """Close the open data file as it is, for a writer that may no longer change it."""
        descriptor, self._descriptor = self._descriptor, -1
        self._own = None
        self._files.close_spare()
        if descriptor >= 0:
            self._files.close(descriptor)

    def claim(self, file_id: int) -> None:
        """Create an empty data file, which reserves its number.

        Raises:
            FileExistsError: another master has created it, or an earlier attempt.
            OSError: it cannot be created; the number may be taken nevertheless.
        """
        self._begin(file_id, self._create(file_id, is_claim=True))

    def _open(self, file_id: int) -> None:
        """Open a new data file, unless another master has taken its number or replaced the current file.

        The current file stays open until it was found in its place: the inode of a removed file may be used again.
        """
        self._finish()
        try:
            descriptor = self._create(file_id)
        except FileExistsError as error:
            if self._own is None:
                raise
            raise self._taken_over(self._files.path(file_id).name) from error
        if self._own is not None:
            try:
                self._require_own()
            except BaseException:
                self._files.discard(file_id, descriptor)
                raise
        self.abandon()
        self._begin(file_id, descriptor)

    def _create(self, file_id: int, *, is_claim: bool = False) -> int:
        try:
            return self._files.create(file_id, self._preallocate_bytes, is_claim=is_claim)
        except OSError as error:
            raise _translated(error) from error

    def _begin(self, file_id: int, descriptor: int) -> None:
        self.file_id, self._descriptor, self._own = file_id, descriptor, os.fstat(descriptor)
        self._name, self._next_name = data_file_name(file_id), data_file_name(file_id + 1)
        self._end = self._ahead = 0

    def _taken_over(self, name: str) -> LockNotHeld:
        return LockNotHeld(f"{self._files.directory}: another master has taken the journal over: {name} is its own")


def batch_body(records: Sequence[bytes], *, is_in_pieces: bool) -> Sequence[bytes]:
    """Return the bytes behind a batch's control record.

    Args:
        records: what the batch holds.
        is_in_pieces: some of them are large, and not to be copied.
    """
    if is_in_pieces:
        return _gathered(records)
    return (records[0] if len(records) == 1 else b"".join(records),)


def body_checksum(body: Sequence[bytes]) -> int:
    """Return the Adler-32 of a batch's body."""
    checksum = _ADLER_BEGIN
    for piece in body:
        checksum = zlib.adler32(piece, checksum)  # which releases the interpreter lock
    return checksum


def _gathered(records: Sequence[bytes]) -> Sequence[bytes]:
    """Return the bytes of records in few pieces: the long ones as they are, and the short ones between them joined."""
    pieces: list[bytes] = []
    short: list[bytes] = []
    for record in records:
        if len(record) < PIECE_BYTES_MIN:
            short.append(record)
        else:
            pieces += (b"".join(short), record)
            short = []
    pieces.append(b"".join(short))
    return pieces if len(pieces) <= _PIECES_MAX else (b"".join(pieces),)


def _translated(error: OSError) -> OSError:
    """Return the error to raise for a failed write or creation."""
    kind = DiskFull if is_disk_full(error) else OSError
    return kind(error.errno, error.strerror, error.filename)


def as_store_unavailable(error: OSError, directory: Path) -> StoreUnavailable:
    """Return the error that operators see for an error of the operating system."""
    return StoreUnavailable(
        f"{error.filename or directory}: {error.strerror or error}",
        path=str(error.filename or directory),
        hint="nothing is acknowledged any more; the broker closes the store, and a standby or a restart takes over",
    )
