"""Scheduled messages in the database, in a table of our own: the port `JobStore`.

ActiveMQ keeps its scheduler's jobs in files, whatever its message store is; here they share the fate of the messages.
Writing is as in `store`: one transaction for everything of a turn, behind the same fence, on a separate connection.

Messages are kept in memory up to a limit, at a recovery those that are due first. The others are read back when their
time has come.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pybroker.broker.domain.errors import JournalCorrupt, ResourceLimit, StoreUnavailable
from pybroker.broker.domain.jobs import Job
from pybroker.store.group_commit import ABANDON_SECONDS, GroupCommit
from pybroker.store.jdbc.changes import OPERATION_BYTES
from pybroker.store.jdbc.fence import JOBS, Fence
from pybroker.store.jdbc.limits import check_size
from pybroker.store.jdbc.postgres import Copy, DatabaseConnection, describe, statement_seconds
from pybroker.store.jdbc.reader import READ_SECONDS, JdbcBodyReader, bodies_of
from pybroker.store.jdbc.schema import ensure
from pybroker.store.jdbc.sink import COMMIT_POLICY, DatabaseSink, Tables
from pybroker.store.jdbc.state import PRODUCERS_ROWS_MAX
from pybroker.store.jdbc.statements import StatementWriter
from pybroker.store.producers import ProducerSequences
from pybroker.store.runtime import StoreRuntime

logger = logging.getLogger(__name__)

HELD_BYTES_MAX = 32 * 1024 * 1024
"""Limit on the messages kept in memory."""

_JOBS = (
    "SELECT id, job_id, start_time, cron, delay, period, repeat, next_time, run_count FROM pybroker_jobs ORDER BY id"
)

_MESSAGES = """
SELECT id, msg FROM (
    SELECT id, msg, sum(length(msg)) OVER (ORDER BY next_time, id) AS bytes FROM pybroker_jobs
) AS jobs WHERE bytes <= %d
"""

_BODIES = bodies_of("pybroker_jobs")

_PRODUCERS = "SELECT id, sequences FROM pybroker_job_producers ORDER BY id"

Move = tuple[int, int, int]
"""A job's progress: next time, repeat, run count."""


@dataclass(slots=True)
class JobChanges:
    """A batch: its net effect by the jobs' numbers.

    Attributes:
        added: new jobs, with their messages; where they stand is in `moved`.
        moved: where jobs stand.
        removed: jobs that are over.
        producers: the highest sequence number of each producer, where it has grown.
        producers_id: the number of this in the log of them; filled in when the batch is taken.
        starts_producer_log: `producers` are all; the former rows of the log are deleted.
    """

    byte_count: int = 0
    is_long: bool = False
    added: dict[int, tuple[Job, bytes]] = field(default_factory=dict[int, tuple[Job, bytes]])
    moved: dict[int, Move] = field(default_factory=dict[int, Move])
    removed: list[int] = field(default_factory=list[int])
    producers: dict[str, int] = field(default_factory=dict[str, int])
    producers_id: int = 0
    starts_producer_log: bool = False

    def count(self, byte_count: int = 0) -> None:
        """Note a change of that size."""
        self.byte_count += OPERATION_BYTES + byte_count


class _Gathering:
    """Implements `Source`: what has changed and is not on its way yet, and what producers last had scheduled."""

    def __init__(self) -> None:
        self.changes = JobChanges()
        self.sequences = ProducerSequences()
        self._producers_id = 0
        self._producers_rows = 0

    def restore_producers(self, number: int, text: str) -> None:
        """Read a row of what producers last had scheduled.

        Raises:
            ValueError, AttributeError: the text is none of ours.
        """
        self._producers_id = number
        self._producers_rows += 1
        self.sequences.restore(json.loads(text))

    def record(self, job: Job) -> None:
        """Record the sequence number of the message that a job is named after."""
        self.sequences.record(job.job_id)
        producer_id, _, text = job.job_id.rpartition(":")
        last = self.sequences.last(producer_id)
        if last >= 0 and str(last) == text:
            self.changes.producers[producer_id] = last

    @property
    def open_bytes(self) -> int:
        """Number of bytes to write."""
        return self.changes.byte_count

    def take(self) -> JobChanges:
        """Return the open batch, and begin the next one."""
        changes, self.changes = self.changes, JobChanges()
        if changes.producers:
            self._producers_rows += 1
            if self._producers_rows > PRODUCERS_ROWS_MAX:
                self._producers_rows = 1
                changes.starts_producer_log = True
                changes.producers = {producer_id: known[0] for producer_id, known in self.sequences.items()}
            self._producers_id += 1
            changes.producers_id = self._producers_id
        return changes


class JdbcJobStore:
    """Implements `JobStore` on the database of a `JdbcStore`, which has to be recovered first.

    Args:
        url: as the message store's.
        epoch: returns the message store's epoch.
        runtime: the world around.
        held_bytes_max: limit on the messages kept in memory.
        grace: how many seconds a database may be away before the store stops.
        read_seconds: how long `load` may block.

    Raises:
        ConfigError: the URL makes no sense.
    """

    def __init__(
        self,
        url: str,
        *,
        epoch: Callable[[], int],
        runtime: StoreRuntime,
        held_bytes_max: int = HELD_BYTES_MAX,
        grace: float = 0.0,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self.name = describe(url)
        """Address of the database, without user and password."""
        self._url = url
        self._epoch = epoch
        self._runtime = runtime
        self._held_bytes_max = held_bytes_max
        self._grace = grace
        self._read_seconds = read_seconds
        self._server = ""
        self._held_bytes = 0
        self._held: dict[int, int] = {}
        self._last_id = 0
        self._gathering = _Gathering()
        self._writer: GroupCommit[JobChanges] | None = None
        self._reader = self._new_reader()

    # ------------------------------------------------------------ opening

    def recover(self) -> Sequence[Job]:
        """Return the jobs, with as many of their messages as may be in memory. Blocks.

        Raises:
            StoreUnavailable: the database cannot be reached or read.
            LockNotHeld: another broker has taken over.
        """
        connection = DatabaseConnection(self._url)
        self._server = connection.server
        fence = Fence(JOBS, self._epoch())
        try:
            ensure(connection)
            fence.shut_out(connection)
            jobs = self._load(connection)
        except BaseException:
            connection.close()
            raise
        sink = DatabaseSink(
            connection,
            lambda seconds: DatabaseConnection(self._url, seconds=seconds, server=self._server),
            fence,
            _TABLES,
            self._runtime,
            grace=self._grace,
        )
        self._writer = GroupCommit(self._gathering, sink, COMMIT_POLICY, self._runtime)
        self._writer.start()
        return jobs

    def _load(self, connection: DatabaseConnection) -> list[Job]:
        jobs: dict[int, Job] = {}
        with connection.snapshot():
            for rows in connection.stream(_JOBS):
                for number, job_id, start_time, cron, delay, period, repeat, next_time, run_count in rows:
                    self._last_id = number
                    jobs[number] = Job(
                        job_id=job_id,
                        start_time=start_time,
                        cron=cron,
                        delay=delay,
                        period=period,
                        repeat=repeat,
                        next_time=next_time,
                        run_count=run_count,
                        data=None,
                        place=number,
                    )
            seconds = statement_seconds(self._held_bytes_max)
            for rows in connection.stream(_PRODUCERS):
                for number, text in rows:
                    self._restore_producers(number, text)
            for rows in connection.stream(_MESSAGES % self._held_bytes_max, seconds=seconds):
                for number, data in rows:
                    jobs[number].data = bytes(data)
                    self._held[number] = len(data)
        self._held_bytes = sum(self._held.values())
        return list(jobs.values())

    def _restore_producers(self, number: int, text: str) -> None:
        try:
            self._gathering.restore_producers(number, text)
        except (ValueError, AttributeError) as error:
            logger.error("%s: damaged: pybroker_job_producers, id %d: %s", self.name, number, error)

    # ------------------------------------------------------------ jobs

    def add(self, *jobs: Job) -> None:
        """Add new jobs.

        Raises:
            ResourceLimit: a text has a character that a database cannot hold, or the message is too large.
            StoreUnavailable: the store has stopped.
        """
        writer = self._opened()
        for job in jobs:
            _check_text(job.job_id + job.cron)
            check_size(job.data or b"")
        for job in jobs:
            self._add(writer, job)

    def load(self, job: Job) -> bytes:
        """Return a job's message. Blocks for `read_seconds` at most if it is not in memory.

        Raises:
            JournalCorrupt: it is not there any more; the other jobs are sound.
            NotReadYet: the database has not answered in time: ask again.
            StoreUnavailable: it cannot be read.
        """
        if job.data is not None:
            return job.data
        number = _number(job)
        data = self._reader.read([number], seconds=self._read_seconds).get(number)
        if data is None:
            path = f"{self.name} pybroker_jobs"
            raise JournalCorrupt(f"there is no job {job.job_id} any more", path=path, offset=number)
        return data

    def reschedule(self, job: Job, next_time: int, spawned: Job | None = None) -> None:
        """Move a job to a later time; with it appears what it spawned.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        writer = self._opened()
        job.advance(next_time)
        changes = self._gathering.changes
        changes.moved[_number(job)] = _move(job)
        changes.count()
        writer.wake()
        if spawned is not None:
            self._add(writer, spawned)

    def remove(self, job: Job) -> None:
        """Forget a job.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        writer = self._opened()
        number, changes = _number(job), self._gathering.changes
        changes.moved.pop(number, None)
        if changes.added.pop(number, None) is None:
            changes.removed.append(number)
        changes.count()
        self._held_bytes -= self._held.pop(number, 0)
        writer.wake()

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number of a job that was added for a producer, -1 for none that is remembered."""
        return self._gathering.sequences.last(producer_id)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all that was changed so far is committed."""
        if self._writer is not None:
            self._writer.when_durable(callback)

    @property
    def unwritten_bytes(self) -> int:
        """Bytes changed and not known to be committed."""
        return 0 if self._writer is None else self._writer.unwritten_bytes

    @property
    def is_full(self) -> bool:
        """True while the database's disk is full."""
        return self._writer is not None and self._writer.is_full

    # ------------------------------------------------------------ closing

    def cleanup(self) -> None:
        """Nothing is kept that is not needed."""

    def close(self) -> None:
        """Commit the rest and disconnect. Blocks.

        Raises:
            StoreError: not everything could be committed.
            LockNotHeld: a fence was closed.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            finally:
                self._close_reader()

    def abandon(self) -> None:
        """Stop at once, as if killed: commits and acknowledges nothing more."""
        if self._writer is not None:
            self._writer.abandon()
        self._close_reader()

    def _add(self, writer: GroupCommit[JobChanges], job: Job) -> None:
        data = job.data
        assert data is not None, "a new job has its message"
        self._last_id += 1
        job.place = number = self._last_id
        changes = self._gathering.changes
        changes.added[number] = (job, data)
        self._gathering.record(job)
        changes.moved[number] = _move(job)
        changes.count(len(data))
        writer.wake()
        self._held[number] = len(data)
        self._held_bytes += len(data)
        if self._held_bytes > self._held_bytes_max:
            writer.when_durable(partial(self._let_go, job, number))

    def _let_go(self, job: Job, number: int) -> None:
        """Leave a job's message to the database, which has it by now."""
        if number in self._held:
            self._held_bytes -= self._held.pop(number)
            job.data = None

    def _new_reader(self) -> JdbcBodyReader:
        """Return a new reader of messages; the caller limits how often."""
        return JdbcBodyReader(
            lambda: DatabaseConnection(self._url, server=self._server), self._runtime, lambda: None, _BODIES
        )

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, self._new_reader()
        reader.close(ABANDON_SECONDS)

    def _opened(self) -> GroupCommit[JobChanges]:
        if self._writer is None:
            raise StoreUnavailable(f"{self.name}: the store is not open")
        self._writer.require_running()
        return self._writer


def _is_done(_connection: DatabaseConnection, _changes: JobChanges) -> bool:
    """Return False, so that the batch is repeated: it changes nothing if it has taken effect."""
    return False


def _statements(connection: DatabaseConnection, check: bytes, changes: JobChanges) -> list[bytes | Copy]:
    """Return the messages to the server that a batch is."""
    writer = StatementWriter(connection)
    writer.allow(changes.byte_count)
    writer.add(check)
    with connection.translated():
        writer.delete("pybroker_jobs", ("id",), ((each,) for each in changes.removed))
        writer.rows(
            "INSERT INTO pybroker_jobs"
            " (id, job_id, start_time, cron, delay, period, next_time, repeat, run_count, msg) VALUES ",
            "(%s,%s,%s,%s,%s,%s,%s,%s,%s,%s)",
            (
                (number, job.job_id, job.start_time, job.cron, job.delay, job.period, *changes.moved[number], data)
                for number, (job, data) in changes.added.items()
            ),
            " ON CONFLICT DO NOTHING",
        )
        writer.rows(
            "UPDATE pybroker_jobs j SET next_time = v.next_time, repeat = v.repeat, run_count = v.run_count"
            " FROM (VALUES ",
            "(%s,%s,%s,%s)",
            ((number, *move) for number, move in changes.moved.items() if number not in changes.added),
            ") AS v (id, next_time, repeat, run_count) WHERE j.id = v.id",
        )
        if changes.starts_producer_log:
            writer.add(b"DELETE FROM pybroker_job_producers WHERE id < %d" % changes.producers_id)
        if changes.producers:
            row = (changes.producers_id, json.dumps(changes.producers))
            writer.rows("INSERT INTO pybroker_job_producers VALUES ", "(%s,%s)", [row], " ON CONFLICT DO NOTHING")
    return writer.messages()


_TABLES = Tables(_statements, _is_done)


def _move(job: Job) -> Move:
    return job.next_time, job.repeat, job.run_count


def _number(job: Job) -> int:
    assert isinstance(job.place, int), "a job of this store"
    return job.place


def _check_text(text: str) -> None:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ResourceLimit("the schedule has a character that a database cannot hold")
