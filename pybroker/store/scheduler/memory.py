"""A job store in memory, for brokers without persistence, and as the journal's model in tests."""

from collections.abc import Callable, Sequence

from pybroker.broker.domain.jobs import Job
from pybroker.store.producers import ProducerSequences


class MemoryJobStore:
    """Implements `JobStore`. Nothing survives the process."""

    def __init__(self) -> None:
        self._jobs: dict[Job, None] = {}
        self._sequences = ProducerSequences()

    def recover(self) -> Sequence[Job]:
        """Return the stored jobs."""
        return list(self._jobs)

    def add(self, *jobs: Job) -> None:
        """Keep new jobs."""
        self._jobs.update(dict.fromkeys(jobs))
        for job in jobs:
            self._sequences.record(job.job_id)

    def load(self, job: Job) -> bytes:
        """Return a job's message."""
        assert job.data is not None, "kept in memory"
        return job.data

    def reschedule(self, job: Job, next_time: int, spawned: Job | None = None) -> None:
        """Move a job to a later time; with it appears what it spawned."""
        job.advance(next_time)
        if spawned is not None:
            self.add(spawned)

    def remove(self, job: Job) -> None:
        """Forget a job."""
        self._jobs.pop(job, None)

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number of a job that was added for a producer, -1 for none."""
        return self._sequences.last(producer_id)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back at once."""
        callback()

    @property
    def unwritten_bytes(self) -> int:
        """Always 0."""
        return 0

    @property
    def is_full(self) -> bool:
        """Always False: memory has other limits."""
        return False

    def cleanup(self) -> None:
        """Do nothing: nothing unneeded is kept."""

    def close(self) -> None:
        """Keep everything for the next `recover`."""

    def abandon(self) -> None:
        """No other process can take this store over, so nothing happens."""
