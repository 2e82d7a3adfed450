"""Scheduled messages: what a job is, and the port of the store that keeps jobs until their time.

A job is a message with a timetable. It is named by `job_id`, but only id and time together are unique: ActiveMQ numbers
its jobs anew at each start, so one producer may own two jobs of the same name at different times.

All times are milliseconds since the epoch, all durations milliseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pybroker.broker.domain.errors import ClientError

FOR_EVER = -1
"""A `repeat` without end."""
TIME_MAX = 2**63 - 1
"""Times are signed 64-bit numbers in every store; later than ever is this late."""


class InvalidSchedule(ClientError):
    """A message whose timetable makes no sense: JMS's `MessageFormatException`."""


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One scheduled message. Its store moves it; nobody else changes it.

    Attributes:
        job_id: its name.
        start_time: when it was scheduled.
        cron: times as a crontab has them, empty for none.
        delay: before the first run.
        period: between runs.
        repeat: runs that are left after the next one; `FOR_EVER` without end. With `cron`: of each instant.
        next_time: when it is due, as the store knows it.
        run_count: how often it has run.
        data: the message, OpenWire v11 from its data type on; None when only the store has it: see `JobStore.load`.
        place: its store's own note of where it lies; means nothing to anybody else.
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
        """Note a run and the time of the next one; for stores."""
        self.next_time = next_time
        self.run_count += 1
        if not self.cron and self.repeat > 0:
            self.repeat -= 1


class JobStore(Protocol):
    """What keeps jobs beyond the process. Appends are buffered and ordered; `when_durable` says when they are safe."""

    def recover(self) -> Sequence[Job]:
        """Open the store and return its jobs. Blocks; called once, before anything else."""
        ...

    def add(self, *jobs: Job) -> None:
        """Append new jobs."""
        ...

    def load(self, job: Job) -> bytes:
        """Return a job's message. May read from disk.

        Raises:
            JournalCorrupt: it cannot be had any more; the other jobs are sound.
            StoreUnavailable: the store cannot be read.
        """
        ...

    def reschedule(self, job: Job, next_time: int, spawned: Job | None = None) -> None:
        """Append that a job has run and is due again at a later time, and change it accordingly.

        Args:
            job: one of the store's.
            next_time: when it is due again.
            spawned: a new job to be added in the same step; a crash leaves both or neither.
        """
        ...

    def remove(self, job: Job) -> None:
        """Append that a job is done or cancelled."""
        ...

    def remove_between(self, start: int, end: int, jobs: Sequence[Job]) -> None:
        """Append that the jobs due in a range of times, both ends included, are cancelled: all of those in `jobs`."""
        ...

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number of a job that was added for a producer, whether or not it is still there.

        A job is named after its message. The message store cannot answer this: each store writes by itself, so after a
        crash one of them may have what a producer sent later, and the other not what it sent before.

        Args:
            producer_id: `<connection id>:<session>:<producer>`, a message id without its sequence.

        Returns:
            The number, -1 for a producer that is not remembered.
        """
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all that was appended so far is safe; at once when it already is. Never after a failure."""
        ...

    @property
    def unwritten_bytes(self) -> int:
        """How much was appended and is not on disk yet."""
        ...

    @property
    def is_full(self) -> bool:
        """True while there is no room for more: what is sent must be refused, what makes room goes on."""
        ...

    def cleanup(self) -> None:
        """Let go of storage that nothing needs any more; called every now and then, never blocks."""
        ...

    def close(self) -> None:
        """Write what is left and let go. Blocks."""
        ...

    def abandon(self) -> None:
        """Let go at once, as if killed: for a master that lost its lock. Writes and acknowledges nothing more."""
        ...
