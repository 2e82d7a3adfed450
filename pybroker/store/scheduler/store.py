"""A job store that is ActiveMQ's scheduler directory: a KahaDB journal beside that of the messages.

```text
recover   read the journal, take the directory over (see `journal.takeover`), return the jobs
add …     encode -> append to the open batch -> apply to the state          (no I/O, no waiting)
cleanup   select files from the state -> once all is durable: remove them, in the writer's thread
close     write the rest, and a record of the clean stop
```

A job's move is one record while its `AddScheduledJob` is in the file being written. Later the job is *renewed*: ended
and added again in the new file, which frees the old one and needs no index. Both records share a batch, which any
recovery reads whole or not at all.

Messages are kept in memory up to a limit; others are read back from the journal when they are due.

Source: ActiveMQ 5.17, `JobSchedulerStoreImpl`. Its scheduler journal is not synced by default; this one is.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pybroker import __version__, regular
from pybroker.broker.domain.errors import JournalCorrupt, StoreUnavailable
from pybroker.broker.domain.jobs import Job
from pybroker.store.journal.appender import PIECE_BYTES_MIN, JournalSettings
from pybroker.store.journal.cleanup import TRACE_ENTRIES_MAX
from pybroker.store.journal.commands import (
    Command,
    RemoveScheduledJob,
    RescheduleJob,
    Trace,
    encode,
    encode_job_pieces,
    find_payload,
)
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import Location, encode_record
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.reader import Damage, data_files, unavailable
from pybroker.store.journal.replicated import ReplicatedJournal
from pybroker.store.journal.reserve import BorrowedReserve
from pybroker.store.journal.state import encode_sequences
from pybroker.store.journal.takeover import TakeOver
from pybroker.store.journal.writer import JournalWriter
from pybroker.store.runtime import StoreRuntime
from pybroker.store.scheduler.recovery import CLEAN_STOP, INDEX_FILES, JobReading
from pybroker.store.scheduler.state import SCHEDULER, JobState, add_command, place, removable, renewable

_FIRST_READ_BYTES: Final = 256 << 10
"""The bytes of a record that are read at once; the head of a job has no more."""

HELD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Limit on the messages kept in memory."""
RENEWALS_MAX: Final = 200
"""Greatest number of jobs that one cleanup rewrites."""
RENEWED_SHARE: Final = 4
"""A file is emptied when at most a quarter of it is live jobs."""

logger = logging.getLogger(__name__)


class _Renewal(NamedTuple):
    """A job, and the two records that end it (empty if the journal has it nowhere) and make it again."""

    job: Job
    records: tuple[bytes, bytes]


class JournalJobStore:
    """Implements `JobStore` on a directory. The opening process holds its store's lock.

    Args:
        directory: ActiveMQ's `scheduler` directory, or an empty or missing one.
        runtime: clock, threads and the lock's fence.
        settings: how batches are written and synced.
        files: the directory's file operations, another object in tests of failures.
        held_bytes_max: limit on the messages kept in memory.
        may_create: begin a new journal in a directory that has none.
        lender: frees space when the disk is full at the take-over, see `BorrowedReserve`.
        replica: the journal's copies on other members; None: there are none.
    """

    def __init__(
        self,
        directory: Path,
        *,
        runtime: StoreRuntime,
        settings: JournalSettings | None = None,
        files: JournalFiles | None = None,
        held_bytes_max: int = HELD_BYTES_MAX,
        may_create: bool = True,
        lender: Callable[[], bool] = lambda: False,
        replica: ReplicatedJournal | None = None,
    ) -> None:
        self.directory = directory
        self.damages: Sequence[Damage] = ()
        """Damage found by the recovery, apart from a torn tail: lost, and logged record by record."""
        self.is_cleaning = False
        """True while the writer's thread has files to remove."""
        self._runtime = runtime
        self._settings = settings or JournalSettings()
        self._files = files or JournalFiles(directory)
        self._held_bytes_max = held_bytes_max
        self._may_create = may_create
        self._replica = replica
        self._reserve = BorrowedReserve(self._files, lender)
        self._held_bytes = 0
        self._state = JobState()
        self._file_ids: set[int] = set()
        self._newest_id = 0
        self._fruitless_count = 0
        self._is_open = False
        self._writer = self._new_writer(1)

    # ------------------------------------------------------------ opening

    def recover(self) -> Sequence[Job]:
        """Read the journal, take the directory over, and return the jobs. Blocks.

        Until all of the journal is read, nothing changes on disk except for an empty new data file, which stays after a
        failure.

        Raises:
            StoreUnavailable: the directory cannot be read or written, another process creates files in it, or there is
                no journal where there must be one.
            JournalCorrupt: the directory holds no journal.
            LockNotHeld: the lock was lost.
        """
        take_over = TakeOver(
            self._files,
            self._new_writer,
            check=self._runtime.fence,
            reserve=self._reserve,
            index_files=INDEX_FILES,
            may_create=self._may_create,
            first_file=0 if self._replica is None else self._replica.first_file,
        )
        return take_over.run(self._start_reading, self._begin).result.jobs

    def _start_reading(self) -> JobReading:
        return JobReading(self.directory, held_bytes_max=self._held_bytes_max)

    def _begin(self, reading: JobReading) -> None:
        """Write into the new data file the new master's name, and corrections of stale jobs."""
        result = reading.result
        self.damages = result.damages
        self._state = reading.state
        self._newest_id = self._writer.file_id
        self._file_ids = set(data_files(self.directory))
        self._held_bytes = sum(len(job.data or b"") for job in self._state.jobs())
        now = datetime.fromtimestamp(self._runtime.clock() / 1000, UTC).isoformat(timespec="milliseconds")
        commands: list[Command] = [Trace(f"pybroker {__version__} started {now}")]
        commands += [RemoveScheduledJob(SCHEDULER, job_id, time) for job_id, time in result.stale_jobs]
        moved = [job for job in result.jobs if place(job).journal_time != job.next_time]
        renewals = [renewal for job in moved if (renewal := self._renewal(job)) is not None]
        steps = [b"".join(renewal.records) for renewal in renewals]
        locations = self._writer.start([encode_record(encode(command)) for command in commands] + steps, self._reserve)
        for renewal, location in zip(renewals, locations[len(commands) :], strict=True):
            self._renewed(renewal, _behind(location, renewal.records[0]))
        self._is_open = True

    def _new_writer(self, file_id: int) -> JournalWriter:
        """Replace the writer by one that begins with the data file of that number."""
        self._writer = JournalWriter(
            self._files,
            file_id=file_id,
            settings=self._settings,
            runtime=self._runtime,
            on_shortage=self._make_space,
            replica=self._replica,
        )
        return self._writer

    # ------------------------------------------------------------ jobs

    def add(self, *jobs: Job) -> None:
        """Append new jobs.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        for job in jobs:
            pieces = encode_job_pieces(add_command(job, self.load(job)))
            size = sum(map(len, pieces))
            if size < PIECE_BYTES_MIN:
                location = self._writer.append(b"".join(pieces))
            else:
                location = self._writer.append_pieces(pieces)
            self._made(job, location, size)

    def load(self, job: Job) -> bytes:
        """Return a job's message. Reads it from disk if it is not in memory.

        Raises:
            JournalCorrupt: another record is where the job was.
            StoreUnavailable: the file cannot be read.
        """
        if job.data is not None:
            return job.data
        where = place(job)
        path = self._files.path(where.location.file_id)
        try:
            with open(path, "rb", buffering=0, opener=regular.opener) as file:
                file.seek(where.location.offset)
                record = file.read(min(where.size, _FIRST_READ_BYTES))
                job_id, offset, size = find_payload(record)
                if offset + size <= len(record):
                    data = record[offset : offset + size]
                else:  # a large message is read without a copy
                    file.seek(where.location.offset + offset)
                    data = file.read(size)
            if job_id == job.job_id and len(data) == size:
                return data
            reason = "another record where a job should be"
        except OSError as error:
            raise unavailable(path, error) from error
        except MalformedRecord as error:
            reason = f"a job does not decode: {error}"
        hint = "the file was changed by someone else, or the disk is failing: check it, and restore a copy"
        raise JournalCorrupt(reason, path=str(path), offset=where.location.offset, hint=hint)

    def reschedule(self, job: Job, next_time: int, spawned: Job | None = None) -> None:
        """Append that a job has run and is due again, and add what it spawned in the same step.

        Raises:
            StoreUnavailable: the store has stopped, or a message cannot be read.
        """
        where = place(job)
        journal_time = next_time if where.journal_time is None else where.journal_time
        birth = b"" if spawned is None else _making(spawned, self.load(spawned))
        job.advance(next_time)
        renewal = None if where.location.file_id == self._writer.file_id else self._renewal(job)
        if renewal is None:
            move = RescheduleJob(where.scheduler, job.job_id, journal_time, next_time, job.run_count)
            record = encode_record(encode(move))
            location = self._writer.append(record + birth)
            where.journal_time = next_time
            self._state.move(job, location.file_id)
        else:
            record = b"".join(renewal.records)
            location = self._writer.append(record + birth)
            self._renewed(renewal, _behind(location, renewal.records[0]))
        if spawned is not None:
            self._made(spawned, _behind(location, record), len(birth))

    def remove(self, job: Job) -> None:
        """Append that a job is done or cancelled.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        self._forget(job, self._writer.append(_ending(job)))

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number of a job that was added for a producer, -1 for an unknown one."""
        return self._state.sequences.last(producer_id)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all records appended so far are written and, if the strategy requires it, synced."""
        self._writer.when_durable(callback)

    @property
    def unwritten_bytes(self) -> int:
        """Bytes appended and not known to be written."""
        return self._writer.unwritten_bytes

    @property
    def is_full(self) -> bool:
        """True while the disk has space only for records that free some."""
        return self._writer.is_full

    def _renewal(self, job: Job) -> _Renewal | None:
        """Return the records that end a job and add it as it is now; None if its message cannot be read.

        The message is kept in memory from then on, because appended records cannot be read back at once.
        """
        try:
            data = self.load(job)
        except (JournalCorrupt, StoreUnavailable) as error:
            logger.error("job %s stays where it is: %s", job.job_id, error)
            return None
        if job.data is None:
            job.data = data
            self._held_bytes += len(data)
        where = place(job)
        ending = b"" if where.journal_time is None else _ending(job)
        return _Renewal(job, (ending, _making(job, data, where.scheduler)))

    def _renewed(self, renewal: _Renewal, location: Location) -> None:
        """Record that a job was added again at that location."""
        job = renewal.job
        scheduler = place(job).scheduler
        self._state.remove(job, location.file_id)
        self._state.add(job, scheduler, location, len(renewal.records[1]))
        self._limit(job, location)

    def _made(self, job: Job, location: Location, size: int) -> None:
        """Record a new job's location."""
        self._state.add(job, SCHEDULER, location, size)
        self._held_bytes += len(job.data or b"")
        self._limit(job, location)

    def _limit(self, job: Job, location: Location) -> None:
        """Drop a job's message from memory, if the limit is reached, once it can be read back."""
        if self._held_bytes > self._held_bytes_max:
            self._writer.when_durable(partial(self._let_go, job, location))

    def _let_go(self, job: Job, location: Location) -> None:
        if job.data is not None and job in self._state and place(job).location == location:
            self._held_bytes -= len(job.data)
            job.data = None

    def _forget(self, job: Job, location: Location) -> None:
        """Record that the record at a location ends a job."""
        self._state.remove(job, location.file_id)
        self._held_bytes -= len(job.data or b"")

    # ------------------------------------------------------------ cleaning up and closing

    def cleanup(self) -> None:
        """Remove (or archive) unneeded data files, once all records appended so far are durable.

        If nothing could be removed for a while, the jobs of a file with mostly void records are renewed.
        """
        if self.is_cleaning or not self._is_open:
            return
        if self._remove_files():
            self._fruitless_count = 0
            return
        self._fruitless_count += 1
        if 0 < self._settings.compact_after_cleanups <= self._fruitless_count:
            bytes_max = self._settings.file_bytes_max // RENEWED_SHARE
            for job in renewable(self._state, self._writer.file_id, bytes_max=bytes_max, jobs_max=RENEWALS_MAX):
                self._renew(job)

    def _renew(self, job: Job) -> None:
        renewal = self._renewal(job)
        if renewal is not None:
            location = self._writer.append(b"".join(renewal.records))
            self._renewed(renewal, _behind(location, renewal.records[0]))

    def close(self) -> None:
        """Clean up, write the rest, and close the files. Blocks.

        Raises:
            StoreError: not everything could be written.
            LockNotHeld: the lock was lost before.
        """
        if self._is_open:
            self._is_open = False
            if not self.is_cleaning:
                self._remove_files()
            self._writer.end_batch()
            self._writer.append(encode_record(encode(Trace(CLEAN_STOP))))
            self._writer.close()

    def abandon(self) -> None:
        """Stop at once, as if killed: for a master that lost its lock. Writes and acknowledges nothing more."""
        self._is_open = False
        self._writer.abandon()

    def _make_space(self) -> None:
        """Remove unneeded data files now."""
        if self._is_open and not self.is_cleaning:
            self._remove_files()

    def _remove_files(self) -> bool:
        """Start removing unneeded data files; return True if there are any."""
        self._file_ids.update(range(self._newest_id + 1, self._writer.file_id + 1))
        self._newest_id = self._writer.file_id
        doomed = removable(self._state, self._file_ids, self._writer.file_id)
        if doomed:
            self._keep_sequences(doomed)
            self.is_cleaning = True
            self._writer.submit(partial(self._delete, doomed))
        return bool(doomed)

    def _keep_sequences(self, file_ids: Collection[int]) -> None:
        """Rewrite the producers' sequence numbers that only these files have."""
        sequences = list(self._state.sequences.recorded_in(file_ids).items())
        for start in range(0, len(sequences), TRACE_ENTRIES_MAX):
            numbers = dict(sequences[start : start + TRACE_ENTRIES_MAX])
            location = self._writer.append(encode_record(encode(encode_sequences(numbers))))
            self._state.sequences.restore(numbers, location.file_id)

    def _delete(self, file_ids: Iterable[int]) -> None:
        """Remove files, in the writer's thread. A failure ends this cleanup, not the broker."""
        deleted: list[int] = []
        for file_id in file_ids:
            try:
                self._writer.fence()
                path = self._files.path(file_id)
                if self._settings.archive_directory is None:
                    self._files.remove(path)
                else:
                    self._files.archive(path, self._settings.archive_directory)
            except OSError as error:
                logger.warning("%s: this cleanup ends early, the next one tries again: %s", self.directory, error)
                break
            deleted.append(file_id)
            self._writer.write_waiting()
        self._runtime.post(partial(self._deleted, deleted))

    def _deleted(self, file_ids: Sequence[int]) -> None:
        self.is_cleaning = False
        self._writer.tell_removed(file_ids)
        self._file_ids.difference_update(file_ids)
        self._state.forget_files(file_ids)
        logger.info("%s: %d data files were no longer needed", self.directory, len(file_ids))


def _making(job: Job, data: bytes, scheduler: str = SCHEDULER) -> bytes:
    """Return the record that adds a job as it is now."""
    return b"".join(encode_job_pieces(add_command(job, data, scheduler)))


def _ending(job: Job) -> bytes:
    """Return the record that ends a job where the journal has it."""
    where = place(job)
    time = job.next_time if where.journal_time is None else where.journal_time
    return encode_record(encode(RemoveScheduledJob(where.scheduler, job.job_id, time)))


def _behind(location: Location, record: bytes) -> Location:
    """Return the location of the record that follows one appended in the same step."""
    return Location(location.file_id, location.offset + len(record))
