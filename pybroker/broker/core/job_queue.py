"""A priority queue of scheduled jobs by due time, which also finds jobs by id."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final

from pybroker.broker.domain.jobs import Job

_STALE_SPARED: Final = 1000
"""Heap entries of removed jobs are deleted once there are more of them than this number plus the number of jobs."""

_MOVED: Final = 4
"""Entries that are looked at for each removed job, to delete those of removed jobs: a million at once take 0.4 s."""

_DROPPED_MAX: Final = 100
"""Entries of removed jobs that are deleted from the front at a time."""

_Heap = list[tuple[int, int, Job]]


class JobQueue:
    """Jobs in a heap by due time. The entry of a removed job stays in the heap and is ignored.

    When there are too many of these, all entries of jobs move to a new heap, a few for each job that is removed.
    """

    __slots__ = ("_count", "_counted", "_heap", "_jobs", "_left", "_sequence")

    def __init__(self, count: Callable[[int], None] | None = None) -> None:
        """Begin without jobs; `count` is called with each change of their number."""
        self._counted = count
        self._heap: _Heap = []
        self._left: _Heap = []
        """What is left of the former heap, which is a heap too."""
        self._jobs: dict[str, tuple[Job, ...]] = {}
        self._count = 0
        self._sequence = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, job: Job) -> bool:
        return job in self._jobs.get(job.job_id, ())

    @property
    def next_time(self) -> int | None:
        """The earliest due time, in milliseconds since the epoch; None if there are no jobs.

        After very many removals, for a while, it may be that of a removed job, which is earlier.
        """
        heap = self._first()
        return heap[0][0] if heap else None

    def add(self, job: Job) -> None:
        """Add a new job; jobs due at the same time keep the order in which they were added."""
        self._jobs[job.job_id] = (*self._jobs.get(job.job_id, ()), job)
        self._change(1)
        self.push(job, job.next_time)

    def push(self, job: Job, time: int) -> None:
        """Make a job due at that time; one that `pop_due` returned has no other entry in the heap."""
        self._sequence += 1
        heappush(self._heap, (time, self._sequence, job))

    def pop_due(self, now: int, limit: int) -> list[Job]:
        """Return at most `limit` due jobs, earliest first; `push` then queues a job again, and `discard` removes it.

        There may be further ones that are due while `next_time` says so.
        """
        due: list[Job] = []
        while len(due) < limit and (heap := self._first()) and heap[0][0] <= now and heap[0][2] in self:
            due.append(heappop(heap)[2])
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
        self._change(-1)
        self._compact()

    def by_id(self, job_id: str) -> Sequence[Job]:
        """Return the jobs of that id: at most one, except for jobs of an ActiveMQ."""
        return self._jobs.get(job_id, ())

    def named(self) -> list[tuple[Job, ...]]:
        """Return the jobs at this moment, those of one id together, in no order."""
        return list(self._jobs.values())

    def _change(self, change: int) -> None:
        self._count += change
        if self._counted is not None:
            self._counted(change)

    def _first(self) -> _Heap:
        """Return the heap with the earliest entry, behind some of removed jobs; an empty one if there are no jobs."""
        left = _DROPPED_MAX
        while True:
            heap = self._heap
            if self._left and (not heap or self._left[0] < heap[0]):
                heap = self._left
            if not heap or heap[0][2] in self or not left:
                return heap
            heappop(heap)
            left -= 1

    def _compact(self) -> None:
        """Delete entries of removed jobs, if these are many: look at some of the entries."""
        if not self._count:
            self._heap, self._left = [], []
        elif self._left:
            for _ in range(min(_MOVED, len(self._left))):
                entry = self._left.pop()  # the last one, without which the others are a heap as before
                if entry[2] in self:
                    heappush(self._heap, entry)
        elif len(self._heap) > 2 * self._count + _STALE_SPARED:
            self._heap, self._left = [], self._heap
