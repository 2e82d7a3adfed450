"""The blocking half of writing a journal: whole batches go in, data files come out. Used by one thread at a time.

```text
a data file while it is written (preallocated, as ActiveMQ does it)

0            logical end                                    file_bytes_max
+-------+-------+-----+- - - - - - - - - - - - - - - -+-----+
| batch | batch | EOF |            hole               | EOF |
+-------+-------+-----+- - - - - - - - - - - - - - - -+-----+
                ^ the next batch overwrites this marker
```

A file that is full, or left at a clean stop, is cut right behind its first EOF marker. Its meaning is the same, since
nobody reads behind a marker, but copies, archives and table readers then see exactly as many bytes as there are. A
crash that undoes the cut costs nothing, so it is not synced.

A sync of bytes that went into a hole has the file system sync its own journal too, as blocks were allocated. Where
each batch is synced the hole is therefore filled with zeros, half a megabyte ahead: that reads the same, and on ext4
eight producers that waited for their syncs sent half as many messages again. A file's first batch does not wait for it:
it is what a take-over writes.

Whether the journal is still this master's is asked here, because the files say it: `require_own`, decision 030.

Which location a record gets is not decided here: the writer knows before the bytes are written.

Source: KahaDB journal of ActiveMQ 5.17 (`DataFileAppender`, preallocation, `journalDiskSyncStrategy`).
"""

import enum
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pybroker.broker.domain.errors import LockNotHeld, StoreUnavailable
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import BATCH_BYTES_MAX, EOF_MARKER, FILE_BYTES_MAX, batch_header, data_file_name
from pybroker.store.journal.reserve import is_no_room

AHEAD_BYTES = 512 << 10
"""How much of the hole is filled at a time, ahead of the batches: one write of zeros for some hundred short batches."""

AHEAD_BATCH_BYTES_MAX = 64 << 10
"""With longer batches it is their bytes that take the time: nothing is filled for them, only to be written twice."""

AHEAD_FREE_BYTES_MIN = 64 << 20
"""With less room on the disk nothing is filled: zeros must not take what acknowledgements and a promotion will need."""


class SyncStrategy(enum.Enum):
    """When written batches are made to last; ActiveMQ's `journalDiskSyncStrategy`."""

    ALWAYS = "always"
    """After each batch, before anybody is told."""
    PERIODIC = "periodic"
    """At intervals: a power failure costs what was written since, a killed process nothing."""
    NEVER = "never"
    """When the operating system likes."""


class Preallocation(enum.Enum):
    """How a new data file begins; of ActiveMQ's `preallocationStrategy`, the two that make sense here."""

    SPARSE_FILE = "sparse_file"
    """At its full length with a hole: a sync then need not write a new length, which saves about a third of it."""
    NONE = "none"
    """Empty: for file systems that do not know holes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """How a journal is written. The defaults are ActiveMQ's.

    Attributes:
        sync: when batches are made to last.
        sync_interval_seconds: between syncs of the periodic strategy.
        file_bytes_max: a data file is closed when it would grow longer; one giant record may still be longer.
        batch_bytes_max: a batch is closed when it would reach this.
        preallocation: how a new data file begins.
        checksum: give each batch its Adler-32.
        compact_after_cleanups: cleanups in a row that find a file kept for its acknowledgements alone, before it is
            compacted; 0 never compacts.
        archive_directory: where data files go that are needed no more; None deletes them.
        store_bytes_max: what the journal may take before nothing more is accepted (`limit`); 0: no limit.
        reserve_bytes: room kept back for acknowledgements on a full disk (`reserve`); 0 keeps none.
        inline_seconds_max: disks whose writes take longer on average are never waited for on the event loop; 0: none.
            For that long nobody else is served.
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


class DiskFull(OSError):
    """A write found no room. Nothing behind it was written, so the same bytes may be written to the same place again.

    A *sync* that finds no room is a failed sync like any other: nobody knows what the kernel has dropped.
    """


class Appender:
    """Writes batches to the data file they belong to, one file at a time, each file new."""

    def __init__(self, files: JournalFiles, settings: JournalSettings) -> None:
        self._files = files
        self._settings = settings
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
        """Up to where the hole is filled, or was left a hole for lack of room."""
        self.unsynced = False
        """True while something was written that no sync has covered."""

    def write(self, file_id: int, offset: int, records: Sequence[bytes]) -> None:
        """Write encoded records as one batch, and make it last if the strategy says so.

        Args:
            file_id: the data file; one that is not open is created, and the one before it is finished.
            offset: where the batch control record goes: the file's logical end.
            records: what the batch holds.

        Raises:
            DiskFull: the same call may be made again; until it succeeds the file ends before the batch, as far as
                anybody was told, and the reader takes the rest for a torn tail.
            OSError: nothing may be written any more, since nobody knows what the file holds now.
            LockNotHeld: another master has begun the data file that was to be created, or replaced the one before it.
        """
        if file_id != self.file_id:
            self._open(file_id)
        body = records[0] if len(records) == 1 else b"".join(records)
        header = batch_header(len(body), zlib.adler32(body) if self._settings.checksum else 0)
        end = offset + len(header) + len(body)
        is_short = end - offset <= AHEAD_BATCH_BYTES_MAX
        try:
            if end >= self._ahead and self._syncs_each_batch and is_short and offset > 0:
                self._fill_ahead(end + len(EOF_MARKER))
            self._files.write(self._descriptor, (header, body, EOF_MARKER), offset)
        except OSError as error:
            raise _translated(error) from error
        self._end = end
        self.unsynced = True
        if self._syncs_each_batch:
            self.sync()

    def _fill_ahead(self, start: int) -> None:
        """Fill a piece of the hole from there on, short of the last marker.

        Raises:
            OSError: the file is not to be trusted. That there is no room is for the batch to find out.
        """
        start = max(start, self._ahead)
        self._ahead = min(start + AHEAD_BYTES, self._preallocate_bytes - len(EOF_MARKER))
        if start < self._ahead and self._files.free_bytes() >= AHEAD_FREE_BYTES_MIN:
            try:
                self._files.fill(self._descriptor, start, self._ahead)
            except OSError as error:
                if not is_no_room(error):
                    raise

    def sync(self) -> None:
        """Make everything written so far last."""
        if self.unsynced:
            self._files.sync(self._descriptor)
            self.unsynced = False

    def require_own(self) -> None:
        """Make sure that no other master has taken the journal over; what was synced before is then in what it reads.

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
        """Finish the open data file: sync it unless told never to, cut it behind its EOF marker, close it."""
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
        """Close the open data file as it is: what a writer does that may not touch it any more."""
        descriptor, self._descriptor = self._descriptor, -1
        self._own = None
        self._files.close_spare()
        if descriptor >= 0:
            self._files.close(descriptor)

    def claim(self, file_id: int) -> None:
        """Create a data file, in which nothing is yet: from here on nobody else can have its number.

        Raises:
            FileExistsError: another master has it, or an earlier try left it.
            OSError: it cannot be created; the number may be taken all the same.
        """
        self._begin(file_id, self._create(file_id, is_claim=True))

    def _open(self, file_id: int) -> None:
        """Go on in a new data file, unless another master has taken the number, or the file so far.

        The file so far stays open until it was found in its place: an inode that is closed and removed can come again.
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


def _translated(error: OSError) -> OSError:
    """Return the error to raise for a write's or a creation's."""
    kind = DiskFull if is_no_room(error) else OSError
    return kind(error.errno, error.strerror, error.filename)


def as_store_unavailable(error: OSError, directory: Path) -> StoreUnavailable:
    """Return the error that operators see for one of the operating system; the caller raises it `from` that."""
    return StoreUnavailable(
        f"{error.filename or directory}: {error.strerror or error}",
        path=str(error.filename or directory),
        hint="nothing is acknowledged any more; the broker gives the store up, and a standby or a restart takes over",
    )
