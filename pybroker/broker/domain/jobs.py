"""Scheduled messages: jobs, and the port of the store that keeps them until they are due.

A job is a message with scheduled times. Its `job_id` need not be unique, only id and time together are: ActiveMQ
restarts the numbers of its jobs at each start, so two jobs may have the same id and different times.

All times are milliseconds since the epoch, all durations milliseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pybroker.broker.domain.errors import RequestError

FOR_EVER = -1
"""The value of `repeat` for a job that repeats without end."""
TIME_MAX = 2**63 - 1
"""The latest time, because every store keeps times as signed 64-bit numbers."""


class InvalidSchedule(RequestError):
    """A message whose scheduling properties are invalid: JMS's `MessageFormatException`."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One scheduled message. Only its store changes it.

    Attributes:
        job_id: its id.
        start_time: when it was scheduled.
        cron: a crontab entry, empty for none.
        delay: time before the first run.
        period: time between runs.
        repeat: number of runs after the next one; `FOR_EVER`: without end. With `cron`: of runs for each of its times.
        next_time: when it is due, as recorded in the store.
        run_count: number of past runs.
        data: the message in OpenWire v11, from its data type on; None if only the store has it, see `JobStore.load`.
        place: private to its store: where the job is stored.
    """

    job_id: str
    start_time: int
    cron: str = ""
    delay: int = 0
    period: int = 0
    repeat: int = 0
    next_time: int
    run_count: int = 0
    data: bytes | None
    place: object = None

    def advance(self, next_time: int) -> None:
        """Record a run, and the time of the next one; called by stores only."""
        self.next_time = next_time
        self.run_count += 1
        if not self.cron and self.repeat > 0:
            self.repeat -= 1


class JobStore(Protocol):
    """Keeps jobs across crashes. Appends are buffered and ordered; `when_durable` calls back once they are durable."""

    def recover(self) -> Sequence[Job]:
        """Open the store and return its jobs. Blocks; called once, before anything else."""
        ...

    def add(self, *jobs: Job) -> None:
        """Append new jobs."""
        ...

    def load(self, job: Job) -> bytes:
        """Return a job's message. May read from disk.

        Raises:
            JournalCorrupt: the message is damaged; other jobs are not affected.
            StoreUnavailable: the store cannot be read now.
        """
        ...

    def reschedule(self, job: Job, next_time: int, spawned: Job | None = None) -> None:
        """Append that a job has run and is due again at a later time, and change the job.

        Args:
            job: a job of this store.
            next_time: when it is due again.
            spawned: a new job to add atomically; after a crash both changes are stored, or neither.
        """
        ...

    def remove(self, job: Job) -> None:
        """Append the removal of a job that is done or cancelled."""
        ...

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number of a job that was ever added for a producer.

        The id of a job is that of its message. The message store cannot answer this: the two stores write
        independently, so after a crash one may have a later message of a producer, while the other has lost an earlier
        one.

        Args:
            producer_id: `<connection id>:<session>:<producer>`, a message id without its sequence.

        Returns:
            The number, -1 for a producer that is not remembered.
        """
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything appended so far is durable, at once if it is; never after a failed write."""
        ...

    @property
    def unwritten_bytes(self) -> int:
        """Bytes appended and not yet on disk."""
        ...

    @property
    def is_full(self) -> bool:
        """True while the disk is full: new jobs must be refused; removals are accepted."""
        ...

    def cleanup(self) -> None:
        """Delete data that is no longer needed; called periodically, never blocks."""
        ...

    def close(self) -> None:
        """Write all buffered records, and close the store. Blocks."""
        ...

    def abandon(self) -> None:
        """Close the store without writing, as if killed: for a master that lost its lock. Runs no more callbacks."""
        ...
