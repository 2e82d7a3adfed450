"""Group commit: the event loop appends records and knows their locations at once; one thread makes them last.

```text
event loop   append append append | append append ...    | callbacks of batch 1
             `------ batch 1 -----'`--- batch 2 (open) ---'^
                     | end of the loop's turn              | posted
writer thread        `-> write, sync, fence ---------------'-> batch 2 -> ...
```

* Everything appended in one turn of the loop is one batch. While a batch is being written, whatever arrives is the
  next one: the slower the disk and the busier the broker, the larger the batches.
* A batch that nobody waits for, of acknowledgements mostly, is left open for a few milliseconds: to sync it at once
  would make the next producer wait for that sync before its own.
* No lock and no queue entry per record: the open batch belongs to the loop, a closed one to the thread.
* Locations are plain arithmetic over sizes (ActiveMQ's own rotation rules), so nobody waits for the disk to learn one.
* The fence runs after the sync and before any callback: the lock must be held, and the journal must not have been taken
  over, whatever the lock says (decision 030). A master that lost either may write into its own file, but acknowledges
  nothing.
* A failed write, sync or fence is never retried: after a failed `fsync` the kernel may have dropped the pages, and a
  later one that succeeds proves nothing. The writer stops, nobody is called back any more, one failure is reported.
  Only a write that found no room is another matter, see below.

A batch through the thread costs one hop each way, and several hand-overs of the interpreter lock to a thread that the
loop competes with: where the disk is quick, that is more than the write. So a short batch that few wait for is written
inline, on the loop: the strategy is `always`, the thread has nothing to do, at most `INLINE_WAITERS_MAX` wait, it is
small, needs no new file, and such writes took less than `JournalSettings.inline_seconds_max` on average of late. A disk
that is slow gets its batches through the thread, and a trial now and then. Order, fence and failures are the same on
both ways. What is given up: should a disk that was quick until now hang in such a write, the loop hangs with it.

A disk that is full is no failure. A write that found no room left nothing behind it, nobody was told of its batch, and
the reader takes what it left for a torn tail; so the thread writes the same bytes to the same place, again and again,
until they fit. What is appended meanwhile waits behind them. Nobody is called back, which is right: a producer's
answer has to wait, and the acknowledgements take effect at once in memory. That they reach the disk, and let data
files go, is what the `reserve` is for. While it is spent `is_full` is True, and the core refuses what is sent.

Source: ActiveMQ 5.17, `DataFileAppender` (rotation, batch limits).
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty

from pybroker.broker.domain.errors import LockError, StoreError, StoreUnavailable
from pybroker.store.journal.appender import Appender, DiskFull, JournalSettings, SyncStrategy, explained
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import BATCH_HEADER_BYTES, EOF_MARKER, OFFSET_MAX, Location
from pybroker.store.journal.marks import MARK_BYTES, TimeMarks
from pybroker.store.journal.reserve import Reserve
from pybroker.store.runtime import Callback, StoreRuntime, Worker

RECORD_BYTES_MAX = OFFSET_MAX - BATCH_HEADER_BYTES - len(EOF_MARKER)
"""A record must fit into one data file, whose offsets are signed 32-bit integers."""

ABANDON_SECONDS = 1.0
"""How long giving up waits for a write under way. The heir seals the file, so a later end of it does no harm."""

IDLE_SECONDS = 0.005
"""How long records that nobody waits for, acknowledgements mostly, wait for others to share a sync with."""

IDLE_BYTES_MAX = 256 * 1024
"""Beyond that much they are written anyway."""

INLINE_BYTES_MAX = 256 * 1024
"""What a disk takes hardly longer for than for a single record."""

INLINE_WAITERS_MAX = 64
"""With more clients the next batch fills while this one is written, and the thread is the quicker way."""

TRIAL_EVERY = 64
"""Batches that a slow disk gets through the thread before one is tried on the loop: it may have become quick."""

NEWEST_SHARE = 1 / 8
"""Of the newest write in the moving average. One of ten milliseconds counts against a quick disk for ten more."""

ROOM_SECONDS = 0.2
"""How long a write that found no room waits for the next try, and a spent reserve to be held again."""

OWNER_SECONDS = 1.0
"""How often a writer without batches looks whether another master has taken the journal over."""

SWITCH_INTERVAL_SECONDS = 50e-6
"""What an application passes to `sys.setswitchinterval`, so that a busy event loop cannot starve the writer's thread.

A thread that waits for the interpreter lock asks for it only after one whole interval (5 ms by default) in which the
holder did not let go at all. A busy event loop lets go in every turn, for a system call of a microsecond, and has
the lock back before the waiter has woken up; while its turns are shorter than the interval the waiter never asks.
Measured: a batch that should take 200 µs took up to 16 seconds. Threads that do not wait cost nothing either way.
"""

logger = logging.getLogger(__name__)


class _Batch:
    """Records that are written together, and who wants to know when."""

    __slots__ = ("byte_count", "callbacks", "file_id", "offset", "records")

    def __init__(self, file_id: int, offset: int) -> None:
        self.file_id = file_id
        self.offset = offset
        self.byte_count = 0
        self.records: list[bytes] = []
        self.callbacks: list[Callback] = []


class JournalWriter:
    """Appends to a journal, from one event loop. Begins a new data file, never goes on in an old one.

    Args:
        files: the journal's directory.
        file_id: of the first data file to create.
        settings: how to write.
        runtime: the world around; its fence is the lock's part of what is asked after each sync by whoever wrote.
        on_shortage: called on the loop, again and again while the disk is full: whoever can should make room.
        marks: the time marks that batches begin with; None writes none.
    """

    def __init__(
        self,
        files: JournalFiles,
        *,
        file_id: int,
        settings: JournalSettings,
        runtime: StoreRuntime,
        on_shortage: Callback | None = None,
        marks: TimeMarks | None = None,
    ) -> None:
        self._files = files
        self._settings = settings
        self._runtime = runtime
        self._on_shortage = on_shortage
        self._marks = marks
        self._appender = Appender(files, settings)
        self._reserve = Reserve(files, settings.reserve_bytes)
        self._room_at = 0.0
        self._owner_at = runtime.monotonic() + OWNER_SECONDS
        self._ending = runtime.event()
        self.is_full = False
        """True while the disk has no room for more than what makes room. The thread's; anybody may look."""
        self._inbox = runtime.inbox()
        self._runner: Worker | None = None  # not `_thread`: compiled, that is a keyword of gcc
        self._inline_seconds = 0.0
        self._write_seconds = 0.0
        self._until_trial = 0
        self._failure: Exception | None = None
        self._abandoned = False
        # What follows belongs to the loop. A batch is open when it has records.
        self._open = _Batch(file_id, 0)
        self._records = self._open.records
        self._file_id = file_id
        self._end = 0
        self._end_max = -1
        self._newest = self._open
        self._queued_count = 0
        self._queued_bytes = 0
        self._submitted_count = 0
        self._done_count = 0  # but this is the thread's
        self._turn_end_scheduled = True  # by `start`, until it has run
        self._is_idling = False
        self._close_to: Callable[[_Batch], None] = self._enqueue
        self._stopped: StoreError | None = None
        self._has_failed = False

    # ------------------------------------------------------------ the loop's side

    def claim(self) -> None:
        """Create the first data file already, so that nobody else can: `start` writes into it. Blocks.

        Raises:
            FileExistsError: somebody else has created it.
            OSError: it cannot be created.
        """
        self._appender.claim(self._file_id)

    def close_claim(self) -> None:
        """Close the claimed file, which stays: its number is what keeps a former master from going on."""
        self._appender.abandon()

    def start(self, records: Sequence[bytes], reserve: Reserve | None = None) -> list[Location]:
        """Create the first data file unless it is claimed, write these records into it, and start the thread. Blocks.

        On return the records are durable, the fence has been passed once, and `is_full` is known: what a client sends
        first must not be accepted only because nobody has looked yet.

        Args:
            records: what to begin with.
            reserve: spent when the disk is full; by default the writer's own.

        Raises:
            StoreUnavailable: the file cannot be created or written.
            LockNotHeld: the fence is closed.
        """
        batches: list[_Batch] = []
        self._close_to = batches.append
        locations = [self.append(record) for record in records]
        self._close_open()
        try:
            for batch in batches:
                self._write_at_start(batch, reserve or self._reserve)
            self.fence()
            self._note_room(is_full=not self._reserve.is_in_reach())
        except OSError as error:
            self._appender.abandon()
            raise explained(error, self._files.directory) from error
        except Exception:
            self._appender.abandon()
            raise
        self._close_to = self._enqueue
        self._turn_end_scheduled = False
        self._runner = self._runtime.spawn("journal-writer", self._run)
        return locations

    def _write_at_start(self, batch: _Batch, reserve: Reserve) -> None:
        """Write a batch, if need be on the reserve: a full disk must not keep a broker from serving consumers."""
        try:
            self._appender.write(batch.file_id, batch.offset, batch.records)
        except DiskFull:
            if not reserve.release():
                raise
            self._appender.write(batch.file_id, batch.offset, batch.records)

    def lend_reserve(self) -> bool:
        """Give the reserve to another writer on this disk; False when there is none. Blocks, in any thread.

        On return `is_full` is known, and as long as the reserve is away, it is held again as soon as it can be.
        """
        if not self._reserve.release():
            return False
        self._room_at = self._runtime.monotonic() + ROOM_SECONDS
        self._note_room(is_full=True)
        return True

    def append(self, record: bytes) -> Location:
        """Append an encoded record and return where it will be. Buffered: `when_durable` says when it is safe.

        Raises:
            StoreUnavailable: the writer has stopped.
            ValueError: the record is longer than a data file can be.
        """
        offset = self._end
        end = offset + len(record)
        if end > self._end_max:
            offset = self._begin_batch(record)
            end = offset + len(record)
        self._end = end
        self._records.append(record)
        return Location(self._file_id, offset)

    def when_durable(self, callback: Callback) -> None:
        """Call back when all that was appended so far is written (and synced, if the strategy says so).

        At once when it already is. In order of the calls. Never after a failure. What a callback raises is logged and
        goes no further, but for errors of a store or of the lock: they end the writer once the others were called.
        """
        if self._records:
            self._open.callbacks.append(callback)
            if not self._turn_end_scheduled and not self._queued_count:  # until now nobody waited
                self._turn_end_scheduled = True
                self._runtime.call_soon(self._turn_ended)
        elif self._queued_count:
            self._newest.callbacks.append(callback)
        elif self._stopped is None:
            callback()

    def tell(self, callbacks: Sequence[Callback]) -> None:
        """Call back those who need not wait for the disk, if the fence allows it; a closed one stops the writer."""
        if self._stopped is not None:
            return
        try:
            # Not the journal: what was consumed before it was written is nothing that can get lost.
            self._runtime.fence()
        except Exception as error:  # LockNotHeld; what the thread is at fails in the same way, or is never told
            logger.error("the journal writer stops: %s", error)
            self._failed(error)
        else:
            self._call(callbacks)

    @property
    def write_seconds(self) -> float:
        """How long a short write took of late, on the loop or in the thread, in seconds; 0 before the first."""
        return self._write_seconds

    def fence(self) -> None:
        """Make sure that lock and journal are still this master's. For jobs in the thread; blocks.

        Raises:
            LockNotHeld: either is not.
            OSError: the journal's directory cannot be read.
        """
        self._runtime.fence()
        self._appender.require_own()

    def end_batch(self) -> None:
        """Make the next record begin a batch."""
        self._close_open()

    def submit(self, job: Callback) -> None:
        """Have the thread run a job once everything appended so far is on disk, whatever the strategy says about when.

        Only the strategy `never` has its way. The fence is asked just before. A job that raises fails the writer.
        """
        if self._stopped is None:
            self._close_open()
            self._submitted_count += 1
            self._inbox.put(job)

    @property
    def unwritten_bytes(self) -> int:
        """Bytes appended and not known to be written."""
        return self._queued_bytes + self._open_bytes()

    def close(self) -> None:
        """Write what is left, finish the data file, end the thread. Blocks. Harmless when repeated.

        Raises:
            StoreError: not everything could be written.
            LockNotHeld: the fence was closed.
        """
        if self._stopped is None:
            self._close_open()
            self._stop(StoreUnavailable("the journal is closed"))
            self._inbox.put(None)
            self._ending.set()
        if self._runner is not None:
            self._runner.join()
        if self._failure is not None:
            raise self._failure

    def abandon(self) -> None:
        """Stop without writing anything more, as if killed: what is not on disk yet never will be.

        For a master that lost its lock. Nobody is called back any more. A write under way is waited for, though not for
        long: a disk that hangs must not keep a master from giving up. Harmless when repeated, and after `close`.
        """
        self._abandoned = True
        self._stop(StoreUnavailable("the journal was given up"))
        self._inbox.put(None)
        self._ending.set()
        if self._runner is not None:
            self._runner.join(ABANDON_SECONDS)

    @property
    def file_id(self) -> int:
        """The data file that the newest record is in."""
        return self._file_id

    @property
    def end(self) -> int:
        """Where the newest record ends in its data file."""
        return self._end

    @property
    def batch(self) -> Location:
        """Where the open batch begins, or the next one will if none is open and it needs no new data file."""
        return Location(self._open.file_id, self._open.offset)

    def _begin_batch(self, record: bytes) -> int:
        """Close the open batch, open one that begins with this record, and return the record's offset."""
        if self._stopped is not None:
            raise self._stopped
        size = len(record)
        if size > RECORD_BYTES_MAX:
            raise ValueError(f"a record of {size} bytes: a data file takes {RECORD_BYTES_MAX}")
        self._close_open()
        self._open_batch(size)
        if not self._queued_count and not self._turn_end_scheduled:
            self._turn_end_scheduled = True
            self._runtime.call_soon(self._turn_ended)
        offset = self._end + BATCH_HEADER_BYTES
        return offset if self._marks is None else self._mark(self._marks, offset, size)

    def _mark(self, marks: TimeMarks, offset: int, size: int) -> int:
        """Begin the open batch with a time mark if one is due and the record fits behind it; return where that goes."""
        if offset + MARK_BYTES + size <= self._end_max and (mark := marks.begin(self._file_id)):
            self._records.append(mark)
            offset += len(mark)
        return offset

    def _open_batch(self, size: int) -> None:
        """Open a batch for a first record of that size, in a new data file if need be.

        ActiveMQ's arithmetic, with its `<` and `<=`, but for a giant record in a file that holds nothing yet:
        ActiveMQ leaves the file empty.
        """
        settings = self._settings
        if self._end and self._end + size >= settings.file_bytes_max:
            self._file_id += 1
            self._end = 0
        self._open = _Batch(self._file_id, self._end)
        self._records = self._open.records
        self._end_max = min(self._end + settings.batch_bytes_max - 1, settings.file_bytes_max)

    def _close_open(self) -> None:
        """Give the open batch away, if there is one."""
        if self._records:
            self._close_to(self._take_open())

    def _take_open(self) -> _Batch:
        """Return the open batch; the next record opens another."""
        batch = self._open
        batch.byte_count = self._open_bytes()
        self._open = _Batch(self._file_id, self._end)
        self._records = self._open.records
        self._end_max = -1
        return batch

    def _open_bytes(self) -> int:
        """Return the length of the open batch, 0 when there is none."""
        return self._end - self._open.offset

    def _enqueue(self, batch: _Batch) -> None:
        """Pass a closed batch to the thread."""
        self._newest = batch
        self._queued_count += 1
        self._queued_bytes += batch.byte_count
        self._inbox.put(batch)

    def _turn_ended(self) -> None:
        """Have this turn's records written, unless the thread is busy: then `_written` will."""
        self._turn_end_scheduled = False
        if self._queued_count or self._stopped is not None:
            return
        if self._may_wait():
            self._write_later()
        elif self._is_better_inline():
            self._write_inline(self._take_open())
        else:
            self._close_open()

    def _look_for_owner(self) -> None:
        """Have the fence asked: by the thread, and as a job, since the loop writes nothing meanwhile."""
        if not self._queued_count:
            self.submit(_nothing)

    def _may_wait(self) -> bool:
        """Tell whether nobody waits for the open batch, which so may take along what somebody will."""
        has_timer = self._runtime.call_later is not None
        return has_timer and not self._open.callbacks and self._open_bytes() <= IDLE_BYTES_MAX

    def _write_later(self) -> None:
        if (call_later := self._runtime.call_later) is not None and not self._is_idling:
            self._is_idling = True
            call_later(IDLE_SECONDS, partial(self._idled, self._open))

    def _idled(self, batch: _Batch) -> None:
        """Have a batch written that nobody waits for; if it is written, give the next one as much time."""
        self._is_idling = False
        if self._queued_count or self._stopped is not None or not self._records:
            return
        if batch is self._open or not self._may_wait():
            self._close_open()
        else:
            self._write_later()

    def _is_better_inline(self) -> bool:
        """Tell whether the open batch is one for the loop itself; the thread has no batch to write."""
        batch = self._open
        return (
            0 < len(batch.callbacks) <= INLINE_WAITERS_MAX
            and self._open_bytes() <= INLINE_BYTES_MAX
            and self._submitted_count == self._done_count
            and batch.file_id == self._appender.file_id  # creating one takes several syncs
            and self._settings.sync is SyncStrategy.ALWAYS
            and not self.is_full
            and self._is_disk_quick()
        )

    def _is_disk_quick(self) -> bool:
        """Tell whether writes on the loop were short of late; now and then one is tried to see if they are again."""
        seconds_max = self._settings.inline_seconds_max
        if self._inline_seconds < seconds_max:
            return True
        self._until_trial = (self._until_trial or TRIAL_EVERY) - 1
        return not self._until_trial and seconds_max > 0

    def _write_inline(self, batch: _Batch) -> None:
        """Do what the thread does with a batch, here and now."""
        self._newest = batch
        try:
            seconds = self._write(batch)
        except DiskFull:
            self._enqueue(batch)  # the thread has the time to wait for room
        except Exception as error:  # as in `_run`
            failure = self._note_failure(error)
            self._inbox.put(None)
            self._failed(failure)
        else:
            self._inline_seconds += (seconds - self._inline_seconds) * NEWEST_SHARE
            self._call(batch.callbacks)

    def _written(self, batch: _Batch) -> None:
        """Tell those who wait for a batch; then what has arrived meanwhile is due."""
        if self._abandoned:
            return
        self._queued_count -= 1
        self._queued_bytes -= batch.byte_count
        if self._records and not self._queued_count and not self._turn_end_scheduled:
            self._turn_end_scheduled = True
            self._runtime.call_soon(self._turn_ended)
        self._call(batch.callbacks)

    def _call(self, callbacks: Sequence[Callback]) -> None:
        failure: Exception | None = None
        for callback in callbacks:
            try:
                callback()
            except (StoreError, LockError, OSError) as error:  # the others still learn that their records are safe
                logger.exception("a callback failed")
                failure = failure or error
            except Exception:  # of what one client asked for, who is not answered; what is written is as good as before
                logger.exception("a callback failed, and the journal goes on")
        if failure is not None:
            self._failed(failure)

    def _failed(self, error: Exception) -> None:
        """Stop for good and say why, once."""
        if self._has_failed:
            return
        self._has_failed = True
        reason = StoreUnavailable(f"the journal has stopped: {error}")
        reason.__cause__ = error
        self._stop(reason)
        self._runtime.on_failure(error)

    def _stop(self, reason: StoreError) -> None:
        """Refuse everything from now on."""
        self._stopped = reason
        self._end_max = -1

    # ------------------------------------------------------------ the thread's side

    def _run(self) -> None:
        """Do what arrives, in order, until the end or the first failure."""
        try:
            self._look_for_room()
            self._work()
            if self._abandoned:
                self._appender.abandon()
            else:
                self._appender.close()
        except Exception as error:  # the fence's LockNotHeld; whatever else it is, going on would be worse
            self._runtime.post(partial(self._failed, self._note_failure(error)))

    def _work(self) -> None:
        """Take and do, until told to end."""
        appender = self._appender
        deadline = self._runtime.monotonic() + self._settings.sync_interval_seconds
        while True:
            item = self._take(deadline)
            if item is None or self._abandoned:
                return
            if isinstance(item, _Batch):
                if not appender.unsynced:
                    deadline = self._runtime.monotonic() + self._settings.sync_interval_seconds
                self._write_patiently(item)
                self._runtime.post(partial(self._written, item))
            else:
                self._sync_unless_never()
                self.fence()
                item()
                self._done_count += 1

    def _take(self, deadline: float) -> "_Batch | Callback | None":
        """Wait for the next thing to do; meanwhile do what is due: the periodic sync, looks for room and owner."""
        while True:
            now = self._runtime.monotonic()
            due = [OWNER_SECONDS]
            if now >= self._owner_at:
                self._owner_at = now + OWNER_SECONDS
                self._runtime.post(self._look_for_owner)
            if self._settings.sync is SyncStrategy.PERIODIC and self._appender.unsynced:
                if now >= deadline:
                    self._appender.sync()
                else:
                    due.append(deadline - now)
            if self.is_full and now >= self._room_at:
                self._look_for_room()
            if self.is_full:
                due.append(ROOM_SECONDS)
            try:
                item: _Batch | Callback | None = self._inbox.get(timeout=min(due))
                return item
            except Empty:
                continue  # something is due

    def _sync_unless_never(self) -> None:
        if self._settings.sync is not SyncStrategy.NEVER:
            self._appender.sync()

    def _write_patiently(self, batch: _Batch) -> None:
        """Write a batch, as often as it takes.

        Raises:
            DiskFull: there is no room, and no time left to wait for any.
        """
        while True:
            try:
                self._write(batch)
                return
            except DiskFull as error:
                self._run_short(error)
                self.fence()  # a master that lost its lock writes nothing more, and the reserve is for the new master
                if not self._reserve.release() and self._ending.wait(ROOM_SECONDS):
                    raise

    def _run_short(self, error: DiskFull) -> None:
        """Note that there is no room."""
        if not self.is_full:
            self.is_full = True
            self._room_at = 0.0
            logger.error(
                "%s: %s: persistent messages are refused until there is room; consumers are served",
                self._files.directory,
                error.strerror,
            )

    def _look_for_room(self) -> None:
        """Hold the reserve, which says that there is room for everything."""
        self.fence()
        self._room_at = self._runtime.monotonic() + ROOM_SECONDS
        self._note_room(is_full=not self._reserve.hold())
        if self.is_full and self._on_shortage is not None:
            self._runtime.post(self._on_shortage)

    def _note_room(self, *, is_full: bool) -> None:
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

    # ------------------------------------------------------------ whoever has the disk

    def _write(self, batch: _Batch) -> float:
        """Make a batch last, and ask the fence; return how many seconds that took."""
        begun = self._runtime.monotonic()
        self._appender.write(batch.file_id, batch.offset, batch.records)
        self.fence()
        seconds = self._runtime.monotonic() - begun
        if batch.byte_count <= INLINE_BYTES_MAX:
            self._write_seconds += (seconds - self._write_seconds) * NEWEST_SHARE
        return seconds

    def _note_failure(self, error: Exception) -> Exception:
        """Let go of the file as it is; return the failure to report, once."""
        failure = error
        if isinstance(error, OSError):
            failure = explained(error, self._files.directory)
            failure.__cause__ = error
        self._failure = failure
        logger.error("the journal writer stops: %s", failure)
        self._appender.abandon()
        return failure


def _nothing() -> None:
    """Do nothing behind the fence."""
