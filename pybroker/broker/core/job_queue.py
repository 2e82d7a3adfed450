"""A priority queue of scheduled jobs by due time, which also finds jobs by id."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from pybroker.broker.domain.jobs import Job

_STALE_SPARED: Final = 1000
"""Heap entries of removed jobs are deleted once there are more of them than this number plus the number of jobs."""


class JobQueue:
    """Jobs in a heap by due time. The entry of a removed job stays in the heap and is ignored."""

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
        """The earliest due time, in milliseconds since the epoch; None if there are no jobs."""
        heap = self._heap
        while heap and heap[0][2] not in self:
            heappop(heap)
        return heap[0][0] if heap else None

    def add(self, job: Job) -> None:
        """Add a new job; jobs due at the same time keep the order in which they were added."""
        self._jobs[job.job_id] = (*self._jobs.get(job.job_id, ()), job)
        self._count += 1
        self.push(job, job.next_time)

    def push(self, job: Job, time: int) -> None:
        """Make a job due at that time; one that `pop_due` returned has no other entry in the heap."""
        self._sequence += 1
        heappush(self._heap, (time, self._sequence, job))

    def pop_due(self, now: int, limit: int) -> list[Job]:
        """Return at most `limit` due jobs, earliest first; `push` then queues a job again, and `discard` removes it."""
        due: list[Job] = []
        while len(due) < limit and (time := self.next_time) is not None and time <= now:
            due.append(heappop(self._heap)[2])
        return due

    def discard(self, job: Job) -> None:
        """Remove a job; do nothing if it has been removed before."""
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

    def by_id(self, job_id: str) -> Sequence[Job]:
        """Return the jobs of that id: at most one, except for jobs of an ActiveMQ."""
        return self._jobs.get(job_id, ())

    def named(self) -> list[tuple[Job, ...]]:
        """Return the jobs at this moment, those of one id together, in no order."""
        return list(self._jobs.values())
