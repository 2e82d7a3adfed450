"""The state of a scheduler's journal: live jobs by data file, and the files that void records of others. Pure.

A data file must stay while it is being written, while it has the `AddScheduledJob` of a live job, and while it moves or
ends a job whose `AddScheduledJob` is in a file that stays: otherwise the job would come back. The last rule runs along
chains.

```text
db-3 (live jobs) <--moves, ends-- db-7 <--ends-- db-9        all three stay
db-4             <--ends--------- db-5                       both go, db-4 first
```

A chain can keep many files; rewriting the live job at its end frees them.

Source: ActiveMQ 5.17, `JobSchedulerStoreImpl.checkpointUpdate`. That deletes all moves except for the last one of each
job: its index has them, its journal no longer does; see `replay`.
"""

from collections.abc import Iterable, Iterator, Sequence

from pybroker.broker.domain.jobs import Job
from pybroker.store.journal.commands import AddScheduledJob
from pybroker.store.journal.format import Location
from pybroker.store.producers import ProducerSequences

SCHEDULER = "JMS"
"""ActiveMQ's name of the broker's own scheduler. Jobs of others are kept and never run."""


class JobLocation:
    """Location of the record that added a job.

    Attributes:
        scheduler: the scheduler's name.
        location: the record.
        size: its bytes, header included.
        journal_time: the job's time in the journal; None if the journal lacks the job. It is the job's own time, except
            for jobs whose moves were lost: see `replay`.
    """

    __slots__ = ("journal_time", "location", "scheduler", "size")

    def __init__(self, scheduler: str, location: Location, size: int, journal_time: int | None) -> None:
        self.scheduler = scheduler
        self.location = location
        self.size = size
        self.journal_time = journal_time


def place(job: Job) -> JobLocation:
    """Return the location of a job of this store."""
    assert isinstance(job.place, JobLocation), "a job of this store"
    return job.place


def add_command(job: Job, data: bytes, scheduler: str = SCHEDULER) -> AddScheduledJob:
    """Return the command that adds a job as it is now."""
    return AddScheduledJob(
        scheduler=scheduler,
        job_id=job.job_id,
        start_time=job.start_time,
        cron_entry=job.cron,
        delay=job.delay,
        period=job.period,
        repeat=job.repeat,
        payload=data,
        next_execution_time=job.next_time,
    )


class JobState:
    """Live jobs by the data file that adds them, and references between files.

    Attributes:
        live: jobs by data file.
        references: by data file, the files whose records it voids.
        sequences: the highest number of a message of each producer that became a job; a job is named after its message.
    """

    def __init__(self) -> None:
        self.live: dict[int, dict[Job, None]] = {}
        self.references: dict[int, set[int]] = {}
        self.sequences = ProducerSequences()

    def __contains__(self, job: Job) -> bool:
        where = job.place
        return isinstance(where, JobLocation) and job in self.live.get(where.location.file_id, ())

    def jobs(self) -> Iterator[Job]:
        """Yield all jobs, in the order of their records."""
        for jobs in self.live.values():
            yield from jobs

    def add(self, job: Job, scheduler: str, location: Location, size: int) -> None:
        """Record the location and size of the record that adds a job."""
        job.place = JobLocation(scheduler, location, size, job.next_time)
        self.sequences.record(job.job_id, location.file_id)
        self.live.setdefault(location.file_id, {})[job] = None

    def move(self, job: Job, file_id: int) -> None:
        """Record that a record in that file moves a job."""
        self.sequences.record(job.job_id, file_id)
        self._refer(file_id, place(job).location.file_id)

    def remove(self, job: Job, file_id: int) -> None:
        """Record that a record in that file ends a job."""
        self.sequences.record(job.job_id, file_id)
        made_in = place(job).location.file_id
        jobs = self.live[made_in]
        del jobs[job]
        if not jobs:
            del self.live[made_in]
        self._refer(file_id, made_in)

    def _refer(self, file_id: int, made_in: int) -> None:
        if file_id != made_in:
            self.references.setdefault(file_id, set()).add(made_in)

    def forget_files(self, file_ids: Iterable[int]) -> None:
        """Record that files are gone."""
        gone = set(file_ids)
        for file_id in gone:
            self.references.pop(file_id, None)
        for referred in self.references.values():
            referred -= gone


def removable(state: JobState, file_ids: Iterable[int], keep_from: int) -> list[int]:
    """Return the data files that can be removed, in the order in which they must be.

    Args:
        state: with all appended records applied; the files may be removed once those are on disk.
        file_ids: the files there are.
        keep_from: the one that is being written.
    """
    existing = set(file_ids)
    candidates = {file_id for file_id in existing if file_id < keep_from and file_id not in state.live}
    referrers: dict[int, list[int]] = {}
    for file_id in candidates:
        for referred in state.references.get(file_id, ()):
            referrers.setdefault(referred, []).append(file_id)
    staying = list(existing - candidates)
    while staying:
        for file_id in referrers.get(staying.pop(), ()):
            if file_id in candidates:
                candidates.remove(file_id)
                staying.append(file_id)
    return sorted(candidates)


def renewable(state: JobState, keep_from: int, *, bytes_max: int, jobs_max: int) -> Sequence[Job]:
    """Return jobs worth rewriting: those of the oldest file with mostly void records.

    Args:
        state: as above.
        keep_from: the file that is being written.
        bytes_max: a file with more bytes of live jobs is skipped.
        jobs_max: how many at a time.
    """
    for file_id in sorted(state.live):
        if file_id >= keep_from:
            break
        jobs = state.live[file_id]
        if sum(place(job).size for job in jobs) <= bytes_max:
            return list(jobs)[:jobs_max]
    return ()
