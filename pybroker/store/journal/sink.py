"""Writes a journal's batches into data files: the sink of its `GroupCommit`.

The fence checks the lock, and that no other master has taken the journal over in spite of the lock (decision 030).
Neither a write nor a sync is tried again after a failure: after a failed `fsync` the kernel may have dropped the pages,
and a later one that succeeds proves nothing.

A full disk is not a failure. A write without space wrote nothing after it, its batch was not confirmed, and a reader
treats the remains as a torn tail; so the thread repeats the write until it fits, and later records wait. Producers are
not answered until then, and acknowledgements take effect in memory at once. The `reserve` lets them reach the disk, so
that data files can be removed. While it is spent `is_full` is True, and the core refuses persistent messages.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.journal.appender import Appender, DiskFull, JournalSettings, SyncStrategy, as_store_unavailable
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.reserve import Reserve
from pybroker.store.runtime import Callback, StoreRuntime

NUMBER_SECONDS = 0.05
"""Seconds until a data file whose number was not reserved is tried again."""

SPACE_SECONDS = 0.2
"""Seconds until a write that found no space, or the allocation of a spent reserve, is tried again."""

logger = logging.getLogger(__name__)


class JournalBatch(NamedTuple):
    """Records that are written together, and their place.

    Attributes:
        file_id: the data file.
        offset: where in it the batch begins.
        records: the records, one after the other.
        is_in_pieces: True if some of them are in pieces, which must not be joined.
    """

    file_id: int
    offset: int
    records: list[bytes]
    is_in_pieces: bool = False


class JournalSink:
    """Implements `Sink` and `InlineSink` on a journal's directory.

    Args:
        files: the journal's directory.
        settings: how to write.
        runtime: the event loop, clock and lock; its fence is called after each sync.
        on_shortage: called on the loop, repeatedly while the disk is full, to free space.
        may_begin: returns True if the data file of a number may be created; called in the thread. None: each may.
    """

    def __init__(
        self,
        files: JournalFiles,
        settings: JournalSettings,
        runtime: StoreRuntime,
        on_shortage: Callback | None,
        may_begin: Callable[[int], bool] | None = None,
    ) -> None:
        self.is_full = False
        """True while the disk has space only for acknowledgements. Set by the thread; may be read anywhere."""
        self._files = files
        self._settings = settings
        self._runtime = runtime
        self._on_shortage = on_shortage
        self._may_begin = may_begin
        self._appender = Appender(files, settings, runtime.monotonic)
        self.activity = self._appender.activity
        """Counts what is written and synced."""
        self._reserve = Reserve(files, settings.reserve_bytes)
        self._sync_at = 0.0
        self._space_at = 0.0
        self._ending = runtime.event()

    # ------------------------------------------------------------ before there is a thread

    def claim(self, file_id: int) -> None:
        """Create the first data file, so that no other process can. Blocks.

        Raises:
            StoreUnavailable: its number is not reserved.
            FileExistsError: it exists already.
            OSError: it cannot be created.
        """
        if not self._is_allowed(file_id):
            raise self._not_reserved(file_id)
        self._appender.claim(file_id)

    def write_first(self, batch: JournalBatch, reserve: Reserve | None = None) -> None:
        """Write the first batch, on a full disk with the reserve's space: consumers must be served even then.

        Args:
            batch: the first records.
            reserve: spent when the disk is full; by default the sink's own.

        Raises:
            StoreUnavailable: the number of the batch's data file is not reserved.
            OSError: the file cannot be created or written.
        """
        if not self._is_allowed(batch.file_id):
            raise self._not_reserved(batch.file_id)
        try:
            self._append(batch)
        except DiskFull:
            if not (reserve or self._reserve).release():
                raise
            self._append(batch)

    def check_reserve(self) -> None:
        """Set `is_full` from the free space, without an allocation."""
        self._set_full(is_full=not self._reserve.is_obtainable())

    # ------------------------------------------------------------ a sink

    def begin(self) -> None:
        """Hold the reserve."""
        self._hold_reserve()

    def write(self, batch: JournalBatch) -> float:
        """Write a batch, repeatedly while the disk is full, and call the fence; return the last try's seconds.

        A batch for a new data file waits until the number of that is reserved.

        Raises:
            StoreUnavailable: the number is not reserved, and the writer is closing.
            DiskFull: there is no space, and the writer is closing.
            OSError: the file's content is unknown.
            LockNotHeld: lock or journal are another master's.
        """
        if not self._is_allowed(batch.file_id):
            self._await_number(batch.file_id)
        while True:
            try:
                return self._write(batch)
            except DiskFull as error:
                self._run_short(error)
                self.fence()  # a master that lost its lock writes no more, and leaves the reserve to the new master
                if not self._reserve.release() and self._ending.wait(SPACE_SECONDS):
                    raise

    def may_write_inline(self, batch: JournalBatch) -> bool:
        """Return True if a batch goes into the open data file and is synced: a new file needs several syncs."""
        return (
            batch.file_id == self._appender.file_id and self._settings.sync is SyncStrategy.ALWAYS and not self.is_full
        )

    def write_inline(self, batch: JournalBatch) -> float | None:
        """Write a batch and call the fence, once; return the seconds it took, or None if the disk is full.

        Raises:
            OSError: the file's content is unknown.
            LockNotHeld: lock or journal are another master's.
        """
        try:
            return self._write(batch)
        except DiskFull:
            return None

    def rest(self) -> float | None:
        """Do the periodic sync and try to hold the reserve, if either is due."""
        now = self._runtime.monotonic()
        seconds: float | None = None
        if self._settings.sync is SyncStrategy.PERIODIC and self._appender.unsynced:
            if now >= self._sync_at:
                self._appender.sync()
            else:
                seconds = self._sync_at - now
        if self.is_full and now >= self._space_at:
            self._hold_reserve()
        if self.is_full:
            seconds = SPACE_SECONDS if seconds is None else min(seconds, SPACE_SECONDS)
        return seconds

    def sync(self) -> None:
        """Make everything written durable, unless the strategy is never."""
        if self._settings.sync is not SyncStrategy.NEVER:
            self._appender.sync()

    def fence(self) -> None:
        """Check that lock and journal are still this master's. Blocks.

        Raises:
            LockNotHeld: either is not.
            OSError: the journal's directory cannot be read.
        """
        self._runtime.fence()
        self._appender.require_own()

    def hurry(self) -> None:
        """Stop waiting for space."""
        self._ending.set()

    def interrupt(self) -> None:
        """Stop waiting for space; a running write cannot be interrupted."""
        self._ending.set()

    def explain(self, error: Exception) -> Exception:
        """Return the operator's error for one of the operating system; any other unchanged."""
        if not isinstance(error, OSError):
            return error
        failure = as_store_unavailable(error, self._files.directory)
        failure.__cause__ = error
        return failure

    def close(self, *, in_order: bool) -> None:
        """Finish the data file, or close it as it is."""
        if in_order:
            self._appender.close()
        else:
            self._appender.abandon()

    def lend_reserve(self) -> bool:
        """Release the reserve for another writer on this disk; return False if there is none. Blocks, in any thread.

        On return `is_full` is set, and the reserve is held again as soon as there is space.
        """
        if not self._reserve.release():
            return False
        self._space_at = self._runtime.monotonic() + SPACE_SECONDS
        self._set_full(is_full=True)
        return True

    # ------------------------------------------------------------ private

    def _is_allowed(self, file_id: int) -> bool:
        """Return True unless the data file would be a new one whose number is not reserved."""
        may_begin = self._may_begin
        return may_begin is None or file_id == self._appender.file_id or may_begin(file_id)

    def _await_number(self, file_id: int) -> None:
        """Wait until a data file may be begun: numbers are used once by all members of a cluster."""
        logger.warning("%s waits: its number is not reserved yet", self._files.path(file_id))
        while not self._is_allowed(file_id):
            self.fence()
            if self._ending.wait(NUMBER_SECONDS):
                raise self._not_reserved(file_id)
        logger.info("%s: its number is reserved now", self._files.path(file_id))

    def _not_reserved(self, file_id: int) -> StoreUnavailable:
        path = self._files.path(file_id)
        return StoreUnavailable(
            f"{path} may not be begun: its number is not reserved for this member",
            path=str(path),
            hint="members of a cluster use each number once, and reserve them in the election store: see why it does "
            "not answer",
        )

    def _write(self, batch: JournalBatch) -> float:
        begun = self._append(batch)
        self.fence()
        return self._runtime.monotonic() - begun

    def _append(self, batch: JournalBatch) -> float:
        """Write a batch, and return its start time."""
        begun = self._runtime.monotonic()
        if not self._appender.unsynced:
            self._sync_at = begun + self._settings.sync_interval_seconds
        self._appender.write(batch.file_id, batch.offset, batch.records, is_in_pieces=batch.is_in_pieces)
        return begun

    def _run_short(self, error: DiskFull) -> None:
        """Set `is_full`."""
        if not self.is_full:
            self.is_full = True
            self._space_at = 0.0
            logger.error(
                "%s: %s: persistent messages are refused until there is space; consumers are served",
                self._files.directory,
                error.strerror,
            )

    def _hold_reserve(self) -> None:
        """Try to hold the reserve; if it is held there is enough space."""
        self.fence()
        self._space_at = self._runtime.monotonic() + SPACE_SECONDS
        self._set_full(is_full=not self._reserve.hold())
        if self.is_full and self._on_shortage is not None:
            self._runtime.post(self._on_shortage)

    def _set_full(self, *, is_full: bool) -> None:
        """Set `is_full`, and log a change."""
        if is_full is self.is_full:
            return
        self.is_full = is_full
        directory = self._files.directory
        if is_full:
            reserve = self._settings.reserve_bytes
            logger.error(
                "%s: less than %d bytes are free: nothing persistent is accepted until there are", directory, reserve
            )
        else:
            logger.info("%s: there is space again: messages are accepted", directory)
