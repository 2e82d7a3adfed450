"""Where a journal's batches go: the sink of a `GroupCommit` that writes data files.

The fence here is the lock, and the journal itself: it must not have been taken over, whatever the lock says (decision
030). Neither a write nor a sync is tried again after a failure: after a failed `fsync` the kernel may have dropped the
pages, and a later one that succeeds proves nothing.

A disk that is full is no failure. A write that found no room left nothing behind it, nobody was told of its batch, and
the reader takes what it left for a torn tail; so the thread writes the same bytes to the same place, again and again,
until they fit. What is appended meanwhile waits behind them. Nobody is called back, which is right: a producer's
answer has to wait, and the acknowledgements take effect at once in memory. That they reach the disk, and let data
files go, is what the `reserve` is for. While it is spent `is_full` is True, and the core refuses what is sent.
"""

import logging
from typing import NamedTuple

from pybroker.store.journal.appender import Appender, DiskFull, JournalSettings, SyncStrategy, as_store_unavailable
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.reserve import Reserve
from pybroker.store.runtime import Callback, StoreRuntime

ROOM_SECONDS = 0.2
"""How long a write that found no room waits for the next try, and a spent reserve to be held again."""

logger = logging.getLogger(__name__)


class JournalBatch(NamedTuple):
    """Records that are written together, and where."""

    file_id: int
    offset: int
    records: list[bytes]


class JournalSink:
    """Implements `Sink` and `InlineSink` on a journal's directory.

    Args:
        files: the journal's directory.
        settings: how to write.
        runtime: the world around; its fence is the lock's part of what is asked after each sync.
        on_shortage: called on the loop, again and again while the disk is full: whoever can should make room.
    """

    def __init__(
        self, files: JournalFiles, settings: JournalSettings, runtime: StoreRuntime, on_shortage: Callback | None
    ) -> None:
        self.is_full = False
        """True while the disk has no room for more than what makes room. The thread's; anybody may look."""
        self._files = files
        self._settings = settings
        self._runtime = runtime
        self._on_shortage = on_shortage
        self._appender = Appender(files, settings)
        self._reserve = Reserve(files, settings.reserve_bytes)
        self._sync_at = 0.0
        self._room_at = 0.0
        self._ending = runtime.event()

    # ------------------------------------------------------------ before there is a thread

    def claim(self, file_id: int) -> None:
        """Create the first data file already, so that nobody else can. Blocks.

        Raises:
            FileExistsError: somebody else has created it.
            OSError: it cannot be created.
        """
        self._appender.claim(file_id)

    def write_first(self, batch: JournalBatch, reserve: Reserve | None = None) -> None:
        """Write a batch, if need be on the reserve: a full disk must not keep a broker from serving consumers.

        Args:
            batch: what to begin with.
            reserve: spent when the disk is full; by default the sink's own.

        Raises:
            OSError: the file cannot be created or written.
        """
        try:
            self._append(batch)
        except DiskFull:
            if not (reserve or self._reserve).release():
                raise
            self._append(batch)

    def check_reserve(self) -> None:
        """Note at once, without a trial, whether there is room for everything."""
        self._set_full(is_full=not self._reserve.is_obtainable())

    # ------------------------------------------------------------ a sink

    def begin(self) -> None:
        """Hold the reserve."""
        self._hold_reserve()

    def write(self, batch: JournalBatch) -> float:
        """Write a batch, as often as it takes, and ask the fence; return how many seconds the last try took.

        Raises:
            DiskFull: there is no room, and no time left to wait for any.
            OSError: nobody knows what the file holds now.
            LockNotHeld: lock or journal are another master's.
        """
        while True:
            try:
                return self._write(batch)
            except DiskFull as error:
                self._run_short(error)
                self.fence()  # a master that lost its lock writes nothing more, and the reserve is for the new master
                if not self._reserve.release() and self._ending.wait(ROOM_SECONDS):
                    raise

    def may_write_inline(self, batch: JournalBatch) -> bool:
        """Return True if a batch goes into the open data file, with a sync: creating one takes several."""
        return (
            batch.file_id == self._appender.file_id and self._settings.sync is SyncStrategy.ALWAYS and not self.is_full
        )

    def write_inline(self, batch: JournalBatch) -> float | None:
        """Write a batch and ask the fence, once; return how many seconds that took, None: there is no room.

        Raises:
            OSError: nobody knows what the file holds now.
            LockNotHeld: lock or journal are another master's.
        """
        try:
            return self._write(batch)
        except DiskFull:
            return None

    def rest(self) -> float | None:
        """Do what is due: the periodic sync, and a look for room."""
        now = self._runtime.monotonic()
        seconds: float | None = None
        if self._settings.sync is SyncStrategy.PERIODIC and self._appender.unsynced:
            if now >= self._sync_at:
                self._appender.sync()
            else:
                seconds = self._sync_at - now
        if self.is_full and now >= self._room_at:
            self._hold_reserve()
        if self.is_full:
            seconds = ROOM_SECONDS if seconds is None else min(seconds, ROOM_SECONDS)
        return seconds

    def sync(self) -> None:
        """Make last what was written, unless the strategy is never to."""
        if self._settings.sync is not SyncStrategy.NEVER:
            self._appender.sync()

    def fence(self) -> None:
        """Make sure that lock and journal are still this master's. Blocks.

        Raises:
            LockNotHeld: either is not.
            OSError: the journal's directory cannot be read.
        """
        self._runtime.fence()
        self._appender.require_own()

    def hurry(self) -> None:
        """Wait for room no longer."""
        self._ending.set()

    def interrupt(self) -> None:
        """Wait for room no longer; a write under way cannot be cut short."""
        self._ending.set()

    def explain(self, error: Exception) -> Exception:
        """Return what operators see for an error of the operating system; any other as it is."""
        if not isinstance(error, OSError):
            return error
        failure = as_store_unavailable(error, self._files.directory)
        failure.__cause__ = error
        return failure

    def close(self, *, in_order: bool) -> None:
        """Finish the data file, or leave it as it is."""
        if in_order:
            self._appender.close()
        else:
            self._appender.abandon()

    def lend_reserve(self) -> bool:
        """Give the reserve to another writer on this disk; False when there is none. Blocks, in any thread.

        On return `is_full` is known, and as long as the reserve is away, it is held again as soon as it can be.
        """
        if not self._reserve.release():
            return False
        self._room_at = self._runtime.monotonic() + ROOM_SECONDS
        self._set_full(is_full=True)
        return True

    # ------------------------------------------------------------ private

    def _write(self, batch: JournalBatch) -> float:
        begun = self._append(batch)
        self.fence()
        return self._runtime.monotonic() - begun

    def _append(self, batch: JournalBatch) -> float:
        """Write a batch, and return when that began."""
        begun = self._runtime.monotonic()
        if not self._appender.unsynced:
            self._sync_at = begun + self._settings.sync_interval_seconds
        self._appender.write(batch.file_id, batch.offset, batch.records)
        return begun

    def _run_short(self, error: DiskFull) -> None:
        """Record that there is no room."""
        if not self.is_full:
            self.is_full = True
            self._room_at = 0.0
            logger.error(
                "%s: %s: persistent messages are refused until there is room; consumers are served",
                self._files.directory,
                error.strerror,
            )

    def _hold_reserve(self) -> None:
        """Hold the reserve, which says that there is room for everything."""
        self.fence()
        self._room_at = self._runtime.monotonic() + ROOM_SECONDS
        self._set_full(is_full=not self._reserve.hold())
        if self.is_full and self._on_shortage is not None:
            self._runtime.post(self._on_shortage)

    def _set_full(self, *, is_full: bool) -> None:
        """Note whether there is room for everything, and say so when that has changed."""
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
            logger.info("%s: there is room again: messages are accepted", directory)
