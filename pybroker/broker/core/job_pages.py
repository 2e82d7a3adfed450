"""Pages of the scheduled messages for operators, by the times at which they are due.

All jobs are looked at for each page, some in each turn of the event loop: they are in no order by which a place among
them could be found, and a job may be rescheduled at any time. Of each part only the first ones are kept.
"""

from contextlib import suppress
from heapq import nsmallest
from typing import Final

from pybroker.broker.core.operation import OperationSteps, SteppedOperation
from pybroker.broker.core.scheduler import FOUND_MAX, Scheduler
from pybroker.broker.domain.errors import JournalCorrupt, MalformedData, StoreUnavailable
from pybroker.broker.domain.jobs import Job
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import routing
from pybroker.broker.domain.operations import PAGE_COUNT_MAX, JobCursor, JobPage, ScheduledJob

_LOAD_COST: Final = 10
"""Reading the message of a job takes as long as so many usual operations."""

_COMPARE_COST: Final = 2
"""Jobs that are looked at in the time of one usual operation."""


class JobPageReader:
    """Reads one page.

    Args:
        operation: the operation of which it is the work.
        scheduler: has the jobs; None: there are none.
        cursor: the position behind which the page begins.
        count: jobs of the page.
    """

    def __init__(self, operation: SteppedOperation, scheduler: Scheduler | None, cursor: JobCursor, count: int) -> None:
        self._operation = operation
        self._scheduler = scheduler
        self._cursor = cursor
        self._count = max(1, min(count, PAGE_COUNT_MAX))
        self._shown: list[ScheduledJob] = []
        self._has_more = False

    @property
    def page(self) -> JobPage:
        """The page as far as it was read."""
        last = self._shown[-1] if self._shown and self._has_more else None
        return JobPage(
            jobs=self._shown,
            total=0 if self._scheduler is None else self._scheduler.job_count,
            cursor=None if last is None else JobCursor(last.next_time, last.job_id),
        )

    def steps(self) -> OperationSteps:
        """Return the steps that read it."""
        scheduler = self._scheduler
        if scheduler is None:
            return
        first: list[tuple[JobCursor, int, Job]] = []
        every = scheduler.named()
        for start in range(0, len(every), FOUND_MAX):
            if self._operation.is_ending:
                return
            part = [job for named in every[start : start + FOUND_MAX] for job in named]
            behind = [(place, id(job), job) for job in part if (place := _place(job)) > self._cursor]
            first = nsmallest(self._count + 1, [*first, *behind])
            self._operation.examined += len(part)
            yield len(part) // _COMPARE_COST
        self._has_more = len(first) > self._count
        for _, _, job in first[: self._count]:
            if self._operation.is_ending:
                return
            yield from self._show(scheduler, job)

    def _show(self, scheduler: Scheduler, job: Job) -> OperationSteps:
        """Add a job to the page; one that cannot be read now is shown without its message."""
        message: Message | None = None
        with suppress(StoreUnavailable, JournalCorrupt, MalformedData):
            message = routing(scheduler.read(job))
        self._shown.append(
            ScheduledJob(
                job_id=job.job_id,
                next_time=job.next_time,
                start_time=job.start_time,
                cron=job.cron,
                delay=job.delay,
                period=job.period,
                repeat=job.repeat,
                run_count=job.run_count,
                message=message,
            )
        )
        self._operation.affected += 1
        yield _LOAD_COST


def _place(job: Job) -> JobCursor:
    return JobCursor(job.next_time, job.job_id)
