"""The jobs of a scheduler in the order in which they are due, and by name."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from pybroker.broker.domain.jobs import Job

_STALE_SPARED: Final = 1000
"""Entries of jobs that are gone: this many, and as many as there are jobs, wait until their time comes."""


class Agenda:
    """Jobs by time in a heap. A job that is taken out leaves its entry there; entries without a job mean nothing."""

    __slots__ = ("_count", "_heap", "_jobs", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Job]] = []
        self._jobs: dict[str, tuple[Job, ...]] = {}
        self._count = 0
        self._sequence = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, job: Job) -> bool:
        return job in self._jobs.get(job.job_id, ())

    @property
    def next_time(self) -> int | None:
        """When the first job is due, in milliseconds since the epoch; None without any."""
        heap = self._heap
        while heap and heap[0][2] not in self:
            heappop(heap)
        return heap[0][0] if heap else None

    def add(self, job: Job) -> None:
        """Note a new job; those due at the same time stay in the order in which they came."""
        self._jobs[job.job_id] = (*self._jobs.get(job.job_id, ()), job)
        self._count += 1
        self.wake(job, job.next_time)

    def wake(self, job: Job, time: int) -> None:
        """Have a job come up at that time. It has come up before: it has no entry any more."""
        self._sequence += 1
        heappush(self._heap, (time, self._sequence, job))

    def take_due(self, now: int, limit: int) -> list[Job]:
        """Return the jobs due by now, earliest first, `limit` at most. They stay; `wake` or `discard` comes next."""
        due: list[Job] = []
        while len(due) < limit and (time := self.next_time) is not None and time <= now:
            due.append(heappop(self._heap)[2])
        return due

    def discard(self, job: Job) -> None:
        """Forget a job; nothing happens when it is gone already."""
        named = self._jobs.get(job.job_id, ())
        rest = tuple(each for each in named if each is not job)
        if len(rest) == len(named):
            return
        if rest:
            self._jobs[job.job_id] = rest
        else:
            del self._jobs[job.job_id]
        self._count -= 1
        if len(self._heap) > 2 * self._count + _STALE_SPARED:
            self._heap = [entry for entry in self._heap if entry[2] in self]
            heapify(self._heap)

    def named(self, job_id: str) -> Sequence[Job]:
        """Return the jobs of that name: one or none, but for ActiveMQ's."""
        return self._jobs.get(job_id, ())

    def between(self, start: int, end: int) -> list[Job]:
        """Return the jobs whose time is in a range, both ends included, earliest first."""
        found = [job for named in self._jobs.values() for job in named if start <= job.next_time <= end]
        found.sort(key=_time)
        return found


def _time(job: Job) -> int:
    return job.next_time
