"""Appends records to a journal and knows their locations at once: plain arithmetic, without waiting for the disk.

How batches are gathered and written is `GroupCommit`'s, where they go is `JournalSink`'s. Which record goes into which
batch and data file is decided here, by ActiveMQ's own rotation rules.

Source: ActiveMQ 5.17, `DataFileAppender` (rotation, batch limits).
"""

from collections.abc import Sequence

from pybroker.store.group_commit import CommitPolicy, GroupCommit
from pybroker.store.journal.activity import JournalActivity
from pybroker.store.journal.appender import JournalSettings, as_store_unavailable
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import BATCH_HEADER_BYTES, EOF_MARKER, OFFSET_MAX, Location
from pybroker.store.journal.marks import MARK_BYTES, TimeMarks
from pybroker.store.journal.replicated import ReplicatedJournal
from pybroker.store.journal.reserve import Reserve
from pybroker.store.journal.sink import JournalBatch, JournalSink
from pybroker.store.runtime import Callback, StoreRuntime

RECORD_BYTES_MAX = OFFSET_MAX - BATCH_HEADER_BYTES - len(EOF_MARKER)
"""A record must fit into one data file, whose offsets are signed 32-bit integers."""

CONFIRM_SECONDS_MAX = 0.002
"""Average time from the own sync to the followers' confirmation, up to which they get one batch at a time."""

OWNER_SECONDS = 1.0
"""Interval at which an idle writer checks if another master has taken the journal over."""

SWITCH_INTERVAL_SECONDS = 50e-6
"""Value for `sys.setswitchinterval`, so that a busy event loop cannot starve the writer's thread.

A thread that waits for the interpreter lock asks for it only after one whole interval (5 ms by default) in which the
holder never released it. A busy event loop releases it in every turn, for a system call of a microsecond, and has the
lock back before the waiter has woken up; while its turns are shorter than the interval the waiter never requests it.
Measured: a batch that should take 200 µs took up to 16 seconds. Threads that do not wait cost nothing either way.
"""


class JournalWriter:
    """Appends to a journal, from one event loop. Begins a new data file, never goes on in an old one.

    Args:
        files: the journal's directory.
        file_id: of the first data file to create.
        settings: how to write.
        runtime: the world around.
        on_shortage: called on the loop, repeatedly while the disk is full, to free space.
        marks: the time marks that batches begin with; None writes none.
        replica: the journal's copies on other members; None: there are none.
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
        replica: ReplicatedJournal | None = None,
    ) -> None:
        self._files = files
        self._copies = replica
        self._settings = settings
        self._marks = marks
        self._sink = JournalSink(files, settings, runtime, on_shortage, None if replica is None else replica.may_begin)
        policy = CommitPolicy(
            noun="journal",
            writer="journal writer",
            inline_seconds_max=settings.inline_seconds_max,
            watch_seconds=OWNER_SECONDS,
            confirm_seconds_max=CONFIRM_SECONDS_MAX,
        )
        self._commits = GroupCommit(self, self._sink, policy, runtime, inline=self._sink, replica=replica)
        self._records: list[bytes] = []
        """Of the open batch; it is open when it has some."""
        self._is_in_pieces = False
        """True if a record of the open batch is in pieces."""
        self._begin = 0
        self._file_id = file_id
        self._end = 0
        self._end_max = -1

    # ------------------------------------------------------------ opening

    def claim(self) -> None:
        """Create the first data file, so that no other process can; `start` writes into it. Blocks.

        Raises:
            FileExistsError: it exists already.
            OSError: it cannot be created.
        """
        self._sink.claim(self._file_id)

    def close_claim(self) -> None:
        """Close the claimed file, which stays: its number is what keeps a former master from going on."""
        self._sink.close(in_order=False)

    def start(self, records: Sequence[bytes], reserve: Reserve | None = None) -> list[Location]:
        """Create the first data file unless it is claimed, write these records into it, and start the thread. Blocks.

        On return the records are durable, the fence has been passed once, and `is_full` is known: what a client sends
        first must not be accepted only because it was not checked yet.

        Args:
            records: what to begin with.
            reserve: spent when the disk is full; by default the writer's own.

        Raises:
            StoreUnavailable: the file cannot be created or written.
            LockNotHeld: the fence is closed.
        """
        sink = self._sink
        if self._copies is not None:
            self._copies.opening(has_checksums=self._settings.checksum)
        try:
            locations = [self.append(record) for record in records]
            self._commits.write_now(lambda batch: sink.write_first(batch, reserve))
            sink.fence()
            sink.check_reserve()
        except OSError as error:
            self.close_claim()
            raise as_store_unavailable(error, self._files.directory) from error
        except Exception:
            self.close_claim()
            raise
        self._commits.start()
        return locations

    def lend_reserve(self) -> bool:
        """Give the reserve to another writer on this disk; False when there is none. Blocks, in any thread.

        On return `is_full` is known, and as long as the reserve is away, it is held again as soon as it can be.
        """
        return self._sink.lend_reserve()

    # ------------------------------------------------------------ appending

    def append(self, record: bytes) -> Location:
        """Append an encoded record and return its location. Buffered: `when_durable` calls back when it is safe.

        Raises:
            StoreUnavailable: the writer has stopped.
            ValueError: the record is longer than a data file can be.
        """
        offset = self._end
        end = offset + len(record)
        if end > self._end_max:
            offset = self._begin_batch(len(record))
            end = offset + len(record)
        self._end = end
        self._records.append(record)
        return Location(self._file_id, offset)

    def append_pieces(self, pieces: Sequence[bytes]) -> Location:
        """Append an encoded record that comes in pieces, as `append` does; they are written as they are.

        For large messages: joining the pieces would copy them, which takes as long as the write, and as much memory.
        """
        offset = self._end
        size = sum(map(len, pieces))
        if offset + size > self._end_max:
            offset = self._begin_batch(size)
        self._end = offset + size
        self._records += pieces
        self._is_in_pieces = True
        return Location(self._file_id, offset)

    def _begin_batch(self, size: int) -> int:
        """Close the open batch, open one that begins with a record of this size, and return the record's offset.

        ActiveMQ's arithmetic, with its `<` and `<=`, except for a giant record in an empty file: ActiveMQ leaves the
        file empty.
        """
        commits, settings = self._commits, self._settings
        commits.require_running()
        if size > RECORD_BYTES_MAX:
            raise ValueError(f"a record of {size} bytes: a data file takes {RECORD_BYTES_MAX}")
        commits.send()
        if self._end and self._end + size >= settings.file_bytes_max:
            self._file_id += 1
            self._end = 0
        self._begin = self._end
        self._end_max = min(self._end + settings.batch_bytes_max - 1, settings.file_bytes_max)
        commits.wake()
        offset = self._begin + BATCH_HEADER_BYTES
        return offset if self._marks is None else self._mark(self._marks, offset, size)

    def _mark(self, marks: TimeMarks, offset: int, size: int) -> int:
        """Begin the open batch with a time mark if one is due and the record fits behind it; return where that goes."""
        if offset + MARK_BYTES + size <= self._end_max and (mark := marks.begin(self._file_id)):
            self._records.append(mark)
            offset += len(mark)
        return offset

    @property
    def open_bytes(self) -> int:
        """The length of the open batch, 0 when there is none."""
        return self._end - self._begin if self._records else 0

    def take(self) -> JournalBatch:
        """Return the open batch; the next record opens another."""
        batch = JournalBatch(self._file_id, self._begin, self._records, self._is_in_pieces)
        self._records = []
        self._is_in_pieces = False
        self._begin = self._end
        self._end_max = -1
        return batch

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
        return Location(self._file_id, self._begin)

    # ------------------------------------------------------------ writing, see `GroupCommit`

    def when_durable(self, callback: Callback) -> None:
        """Call back when all records appended so far are written (and synced, if the strategy requires it).

        At once when it already is. In order of the calls. Never after a failure.
        """
        self._commits.when_durable(callback)

    def require_fence(self) -> None:
        """Have the next callbacks wait for the fence, though nothing was appended."""
        self._commits.require_fence()

    def notify(self, callbacks: Sequence[Callback]) -> None:
        """Call back those who need not wait for the disk, if the fence allows it; a closed one stops the writer."""
        self._commits.notify(callbacks)

    def end_batch(self) -> None:
        """Make the next record begin a batch."""
        self._commits.send()

    def submit(self, job: Callback) -> None:
        """Run a job in the thread once all records appended so far are on disk, synced unless the strategy is `never`.

        With a replica they are confirmed too. The fence is checked just before. A job that raises fails the writer.
        """
        self._commits.submit(job)

    @property
    def is_replicated(self) -> bool:
        """True if the journal has copies, which must be told what is removed and replaced."""
        return self._copies is not None

    def tell_removed(self, file_ids: Sequence[int]) -> None:
        """Tell the copies that data files were removed. On the loop."""
        if self._copies is not None and file_ids:
            self._copies.removed(file_ids)

    def tell_replaced(self, file_id: int, content: Sequence[bytes]) -> None:
        """Tell the copies that a data file has another content. On the loop."""
        if self._copies is not None:
            self._copies.replaced(file_id, content)

    def write_waiting(self) -> None:
        """Write what was appended since a job began. For jobs in the thread, between their parts; blocks.

        Raises:
            Exception: it cannot be written; the job must end with it, which fails the writer.
        """
        self._commits.write_waiting()

    def fence(self) -> None:
        """Make sure that lock and journal are still this master's. For jobs in the thread; blocks.

        Raises:
            LockNotHeld: either is not.
            OSError: the journal's directory cannot be read.
        """
        self._sink.fence()

    @property
    def is_full(self) -> bool:
        """True while the disk has space only for records that free some."""
        return self._sink.is_full

    @property
    def activity(self) -> JournalActivity:
        """Counts of what was written and synced."""
        return self._sink.activity

    @property
    def write_seconds(self) -> float:
        """Seconds that a short write took lately, on the loop or in the thread; 0 before the first."""
        return self._commits.write_seconds

    @property
    def unwritten_bytes(self) -> int:
        """Bytes appended and not known to be written."""
        return self._commits.unwritten_bytes

    def close(self) -> None:
        """Write the rest, finish the data file, end the thread. Blocks. Harmless when repeated.

        Raises:
            StoreError: not everything could be written.
            LockNotHeld: the fence was closed.
        """
        self._commits.close()

    def abandon(self) -> None:
        """Stop without another write, as if killed: unwritten records are lost.

        For a master that lost its lock. No callback runs any more. A write under way is waited for, though not for
        long: a disk that hangs must not keep a master from giving up. Harmless when repeated, and after `close`.
        """
        self._commits.abandon()
