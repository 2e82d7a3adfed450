"""Scheduled delivery: keeps messages as jobs, sends them when they are due, and lets clients browse and cancel them.

It has neither clock nor timer: it passes `wake_at` the time of the next call of `fire`.

```text
send --> accepts? --> schedule: a job, appended to the job store        (answered once that is on disk)

fire --> due jobs are sent --> once the messages are on disk --> job store: rescheduled, or removed
```

The order of the last two steps ensures delivery at least once: after a crash in between, a message is sent again. If
the job runs once, the second message has the id of the first, and a queue that still holds the first drops the second.
Otherwise a consumer may have seen the first, so the second is marked (`RESENT`).

Where this differs from ActiveMQ:

* A job is due exactly after its delay, never earlier. ActiveMQ rounds by as much as half a second.
* A repetition is due `period` after the last one was due. ActiveMQ counts from when the last one was sent. In both, one
  immediate run replaces all runs that were missed while no broker was running.
* The id of a job is that of its message. So if a failover client sends a message again, it is scheduled once; ActiveMQ
  schedules it twice.
* In a transaction, schedules, browses and cancellations take effect at the commit; see `scheduling_queue`.

Source: ActiveMQ 5.17, `SchedulerBroker`, `JobSchedulerImpl`.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from typing import Final, NamedTuple, cast

from pybroker.broker.core import cron
from pybroker.broker.core.containment import attempt, contain
from pybroker.broker.core.cron import UtcOffset
from pybroker.broker.core.job_queue import JobQueue
from pybroker.broker.core.paging import severity
from pybroker.broker.core.piecewise import COPY_COST, PiecewiseWorker, Steps, carry_out
from pybroker.broker.core.scheduled import (
    JOB_ID,
    PERIOD_MIN,
    REDELIVERY_DELAY,
    delivered,
    described,
    large_delivered,
    number,
    outside_transaction,
    spawned,
    timetable,
    undeliverable,
)
from pybroker.broker.core.scheduled import is_scheduled as is_scheduled
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import (
    InvalidDestination,
    JournalCorrupt,
    NotReadYet,
    RequestError,
    ResourceLimit,
    StoreUnavailable,
)
from pybroker.broker.domain.jobs import TIME_MAX, InvalidSchedule, Job, JobStore
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import outline, routing
from pybroker.broker.domain.ports import Clock

MANAGEMENT: Final = "ActiveMQ.Scheduler.Management"
"""A message is a scheduler command if the name of its destination begins with this, in upper or lower case."""
ACTION: Final = "AMQ_SCHEDULER_ACTION"
ACTION_START: Final = "ACTION_START_TIME"
ACTION_END: Final = "ACTION_END_TIME"
BROWSE: Final = "BROWSE"
REMOVE: Final = "REMOVE"
REMOVE_ALL: Final = "REMOVEALL"

JOBS_MAX: Final = 1_000_000
"""Default limit. A job takes some 800 bytes of memory, without its message."""
FIRED_MAX: Final = 200
"""Messages sent at a time, which takes some ten milliseconds. Further ones wait until these are on disk, so that many
overdue jobs block neither the event loop nor the store."""
FIRED_BYTES_MAX: Final = 1 << 20
"""Bytes of jobs' messages after which no further one is sent, or described, in the same turn of the event loop."""
FIRED_SECONDS: Final = 0.005
"""The time after which no further one is sent, or described, in the same turn: each may have very many properties."""
SAME_ID_MAX: Final = 64
"""Jobs of one message id: a message sent to several destinations. Each is read when there is another one."""
BROWSES_MAX: Final = 16
"""Browses at a time; each holds a list of the jobs that it has yet to send."""
BROWSED_MAX: Final = 50
"""Descriptions of jobs that are sent in one turn of the event loop: some three milliseconds."""
FOUND_MAX: Final = 500
"""Jobs examined for a browse, or a cancellation, before the clock is read."""
_CANCEL_COST: Final = 5
"""A cancelled job takes as long as so many usual operations."""
RETRY_MS: Final = 1000
"""Milliseconds after which a message is sent again for which there was no space."""
READ_AGAIN_MS: Final = 200
"""Milliseconds after which a job's message is requested again that the store has not read yet."""
UNREADABLE_MS: Final = 60_000
"""Milliseconds after which a job's message is requested again if reading it failed: long enough not to fill the log,
short enough after a shared directory was unavailable for a while."""
WAKE_MS_MAX: Final = 10_000
"""Longest time between two looks at the clock, because the clock may be set."""

_log = logging.getLogger(__name__)


class _LargeRun(NamedTuple):
    """A run whose message is large: the job, its message, and the steps that make the message that is sent."""

    job: Job
    data: bytes
    steps: Generator[None, None, Message]


def _no_time() -> float:
    """Return the same time again and again; the default of `monotonic`: no turn is too long."""
    return 0.0


def _never() -> bool:
    """Return False; the default of `is_busy`."""
    return False


class Scheduler:
    """The scheduler of one broker.

    Args:
        jobs: the job store.
        send: sends a message as if a client had sent it outside a transaction, without scheduling it again. It raises
            `RequestError` if the message is invalid, or there is no space. Other errors end `fire`, and should end the
            broker.
        when_durable: calls back once everything sent so far is durable.
        monotonic: seconds, for the limit to what is done in one turn of the event loop.
        is_busy: returns True while copies of what was sent are being made; descriptions for browses wait then.
        clock: milliseconds since the epoch.
        wake_at: schedules the next call of `fire`, in milliseconds since the epoch, instead of the one scheduled
            before. None: cancels it.
        connection_id: the producer id of repeated messages begins with it; no broker may have used it before.
        jobs_max: number of jobs that clients may create.
        limited_by: the setting from which this number comes.
        count: called with each change of the number of jobs.
        dead_letter: gets a due message that cannot be sent, and the cause.
        offset_at: the time zone of cron entries.
    """

    # ------------------------------------------------------------ start and stop

    def __init__(
        self,
        *,
        jobs: JobStore,
        send: Callable[[Message], None],
        when_durable: Callable[[Callable[[], None]], None],
        is_busy: Callable[[], bool] = _never,
        monotonic: Callable[[], float] = _no_time,
        clock: Clock,
        wake_at: Callable[[int | None], None],
        connection_id: str,
        jobs_max: int = JOBS_MAX,
        limited_by: str = "jobs_max",
        count: Callable[[int], None] | None = None,
        dead_letter: Callable[[Message, str], None] | None = None,
        offset_at: UtcOffset = cron.local_offset,
    ) -> None:
        self._jobs = jobs
        self._send = send
        self._when_durable = when_durable
        self._is_busy = is_busy
        self._monotonic = monotonic
        self._clock = clock
        self._wake_at = wake_at
        self._producer_id = ProducerId(connection_id, 0, 0)
        self._sequence = 0
        self._jobs_max = jobs_max
        self._limited_by = limited_by
        self._dead_letter = dead_letter
        self._offset_at = offset_at
        self._job_queue = JobQueue(count)
        self._is_firing = False
        self._refusals: list[RequestError] = []
        """Errors of messages that could not be sent in this call of `fire`."""
        self._unreadable: list[str] = []
        """Errors of due messages that could not be read in this call of `fire`."""
        self._browses: deque[_Browse] = deque()
        self._gathering_count = 0
        """Browses whose jobs are being looked for."""
        self._cancelling_count = 0
        """Cancellations under way."""
        self._started: list[Job] = []
        """The jobs that runs of cron jobs have started since the first of them began."""
        self._loaded_bytes = 0
        """Bytes of the messages loaded in this turn."""
        self._large: _LargeRun | None = None
        """The run of a large message, which takes several turns."""
        self._browse_at = 0
        self._armed: int | None = None
        self._is_stopped = False
        self._crash_time = -1
        """Runs that were due until then may be those of a master that crashed before it recorded them."""
        self._made_again: set[str] = set()
        """The ids of jobs that may repeat one of a master that crashed, which may have run."""

    def load(self, jobs: Iterable[Job], *, after_crash: bool = False) -> None:
        """Add the jobs that the job store held; overdue ones are sent at the next call of `fire`.

        Args:
            jobs: the jobs.
            after_crash: the former master may have sent overdue ones, which are marked therefore.
        """
        if after_crash:
            self._crash_time = self._clock()
        for job in jobs:
            self._job_queue.add(job)
        self._arm()

    def stop(self) -> None:
        """Stop sending, because the stores are about to close, or this broker may no longer write to them.

        Jobs whose messages were sent are still updated when the message store calls back.
        """
        self._is_stopped = True
        self._arm()

    # ------------------------------------------------------------ clients

    def accepts(self, message: Message) -> bool:
        """Return True if a message must be passed to `schedule` instead of being sent.

        The caller has checked `is_scheduled`.

        Raises:
            InvalidSchedule: its scheduling properties are invalid.
            ResourceLimit: there are too many jobs, or browses.
        """
        EFFORT.is_large = True  # all properties are decoded, of which there may be thousands
        try:
            properties = outline(message).properties
        except MalformedOpenWire as error:
            raise InvalidSchedule(f"the message's properties do not decode: {error}") from error
        if is_management(message):
            _window(message)
            if properties.get(ACTION) == BROWSE and len(self._browses) + self._gathering_count >= BROWSES_MAX:
                raise ResourceLimit(f"{BROWSES_MAX} browses of the scheduler are under way: try again later")
            return True
        if timetable(properties) is None:
            return False
        if len(self._job_queue) >= self._jobs_max:
            raise ResourceLimit(
                f"{len(self._job_queue)} messages are scheduled, and {self._limited_by} allows {self._jobs_max}: "
                f"remove some, or raise {self._limited_by}"
            )
        return True

    def is_for(self, message: Message) -> bool:
        """Return True if a message is for the scheduler, without regard to limits; False if it is invalid."""
        EFFORT.is_large = True
        try:
            return is_management(message) or timetable(outline(message).properties) is not None
        except (MalformedOpenWire, InvalidSchedule):
            return False

    def schedule(self, message: Message, worker: PiecewiseWorker | None = None, *, may_have_run: bool = False) -> bool:
        """Schedule a message that `accepts` has accepted, its delay beginning now, or carry out a scheduler command.

        A job is durable after the job store's `when_durable`.

        Args:
            message: what a client sent.
            worker: carries a command about many jobs out in pieces, and has its answer wait; None: it is carried out
                at once.
            may_have_run: a master that crashed may have scheduled and sent the message.

        Returns:
            False if the message is scheduled already.

        Raises:
            RequestError: the message has no valid scheduling properties, or the job store cannot hold it.
        """
        if is_management(message):
            self._manage(message, worker)
            return True
        wanted = timetable(outline(message).properties)
        if wanted is None:
            raise InvalidSchedule("the message has no timetable")
        job_id = self._free_id(message)
        if job_id is None:
            _log.info("%s to %s is scheduled already", message.message_id, message.destination)
            return False
        if may_have_run:
            self._made_again.add(job_id)
        now = self._clock()
        self._add(
            Job(
                job_id=job_id,
                start_time=now,
                cron=wanted.cron,
                delay=wanted.delay,
                period=wanted.period,
                repeat=wanted.repeat,
                next_time=wanted.first_time(now, self._offset_at),
                data=outside_transaction(message),
            )
        )
        self._arm()
        return True

    # ------------------------------------------------------------ operators

    @property
    def job_count(self) -> int:
        """The number of jobs."""
        return len(self._job_queue)

    @property
    def has_space(self) -> bool:
        """True while there are fewer jobs than clients may create."""
        return len(self._job_queue) < self._jobs_max

    def named(self) -> list[tuple[Job, ...]]:
        """Return the jobs at this moment, those of one id together, in no order."""
        return self._job_queue.named()

    def read(self, job: Job) -> bytes:
        """Return a job's message; raises as `JobStore.load`."""
        return self._jobs.load(job)

    def remove(self, job_id: str, next_time: int | None) -> int:
        """Remove the jobs of an id, or those of them that are due at a time; return how many there were."""
        wanted = [job for job in self._job_queue.by_id(job_id) if next_time in (None, job.next_time)]
        for job in wanted:
            self._cancel(job)
        self._arm()
        return len(wanted)

    # ------------------------------------------------------------ firing

    def fire(self, now: int) -> None:
        """Send the messages that are due at that time, oldest first, and schedule the next call.

        Raises:
            StoreError: a store has failed.
        """
        self._armed = None
        if self._is_stopped:
            return
        self._answer_browses()
        if not self._is_firing and (time := self._job_queue.next_time) is not None and time <= now:
            self._is_firing = True
            done = [job for job in self._due(now) if self._run_contained(job, now)]
            if self._refusals:
                _log.warning("%d scheduled messages have to wait: %s", len(self._refusals), self._refusals[0])
                self._refusals.clear()
            if self._unreadable:
                _log.error("%d scheduled messages cannot be read now: %s", len(self._unreadable), self._unreadable[0])
                self._unreadable.clear()
            self._when_durable(partial(self._sent, done, now))
        self._arm()

    def _due(self, now: int) -> Iterator[Job]:
        """Yield the jobs that are due, as many as may be sent at a time."""
        self._loaded_bytes = 0
        ends_at = self._monotonic() + FIRED_SECONDS
        for _ in range(FIRED_MAX):
            due = self._job_queue.pop_due(now, 1)
            if not due:
                return
            yield due[0]
            if self._loaded_bytes >= FIRED_BYTES_MAX or self._monotonic() >= ends_at:
                return

    def _run_contained(self, job: Job, now: int) -> bool:
        """Send a job's message; return True if the run is done. An error of the message affects only this job."""
        try:
            return self._run(job, now)
        except Exception as error:
            contain(error, "scheduled delivery", about=f"job {job.job_id}")
            self._job_queue.discard(job)  # it stays in the store, and the next master recovers it
            return False

    def _run(self, job: Job, now: int) -> bool:
        if job.cron and job.repeat:
            return True  # nothing to send: `_complete_run` creates the job that repeats the message
        large = self._large
        data = large.data if large is not None and large.job is job else self._load(job, now)
        if data is None:
            return False
        try:
            message = self._make_message(job, data, now)
        except Exception as error:  # caused by the message, which does not decode or encode
            self._forget_large(job)
            return self._dead_letter_job(job, data, error)
        if message is None:
            self._job_queue.push(job, 0)  # before all others
            return False
        return self._deliver(job, data, message, now)

    def _make_message(self, job: Job, data: bytes, now: int) -> Message | None:
        """Return the message that a run sends; None if it is large, and takes further turns.

        Raises:
            Exception: the message does not decode or encode.
        """
        large = self._large
        if large is not None and large.job is job:
            self._loaded_bytes += FIRED_BYTES_MAX  # nothing else in this turn
            ends_at = self._monotonic() + FIRED_SECONDS
            while True:
                try:
                    next(large.steps)
                except StopIteration as ended:
                    self._large = None
                    return cast("Message", ended.value)
                if self._monotonic() >= ends_at:
                    return None
        is_resent = job.next_time <= self._crash_time or job.job_id in self._made_again
        if large is None and len(data) > FIRED_BYTES_MAX:
            steps = large_delivered(job, data, now, self._fresh_id(), is_resent=is_resent)
            self._large = _LargeRun(job, data, steps)
            return None
        return delivered(job, data, now, self._fresh_id(), is_resent=is_resent)

    def _forget_large(self, job: Job) -> None:
        if self._large is not None and self._large.job is job:
            self._large = None

    def _load(self, job: Job, now: int) -> bytes | None:
        """Return a job's message; None if it cannot be read now, which affects this job only."""
        try:
            data = self._jobs.load(job)
            self._loaded_bytes += len(data)
            return data
        except NotReadYet as error:
            _log.debug("scheduled message %s has to wait: %s", job.job_id, error)
            self._job_queue.push(job, now + READ_AGAIN_MS)
        except JournalCorrupt as error:
            _log.error("scheduled message %s cannot be read and is left where it is: %s", job.job_id, error)
            self._job_queue.discard(job)
        except StoreUnavailable as error:  # a read failed; a store whose writes fail reports that itself
            self._unreadable.append(f"{job.job_id}: {error}")
            self._job_queue.push(job, now + UNREADABLE_MS)
        return None

    def _dead_letter_job(self, job: Job, data: bytes, cause: Exception) -> bool:
        """Dead-letter a message that cannot be sent; return True if the run is done."""
        try:
            message = undeliverable(data)
        except MalformedOpenWire as error:
            _log.error("scheduled message %s is none and is left where it is: %s", job.job_id, error)
            self._job_queue.discard(job)
            return False
        _log.error("scheduled message %s to %s cannot be made again: %s", job.job_id, message.destination, cause)
        if self._dead_letter is not None:
            self._dead_letter(message, f"scheduled delivery failed: {cause}")
        return True

    def _deliver(self, job: Job, data: bytes, message: Message, now: int) -> bool:
        try:
            self._send(message)
        except InvalidDestination as error:
            _log.error("scheduled message %s is dropped, nothing can take it any more: %s", job.job_id, error)
        except RequestError as error:
            self._refusals.append(error)
            self._job_queue.push(job, now + RETRY_MS)
            return False
        except MalformedOpenWire as error:  # a copy for another destination cannot be made
            return self._dead_letter_job(job, data, error)
        return True

    def _sent(self, jobs: Sequence[Job], now: int) -> None:
        """Update jobs whose messages are durable, and look for further due jobs."""
        self._is_firing = False
        for job in jobs:
            if job in self._job_queue:  # False if it has been cancelled
                attempt(partial(self._complete_run, job, now), "updating a job that has run")
        self._arm()

    def _complete_run(self, job: Job, now: int) -> None:
        """Reschedule a job that has run, or remove it after its last run."""
        next_time = self._next_time(job, now)
        self._made_again.discard(job.job_id)
        try:
            started = self._spawned(job, now) if job.cron and job.repeat else None
        except StoreUnavailable as error:  # of a read, as in `_load`
            _log.log(severity(error), "job %s starts its repetitions later: %s", job.job_id, error)
            self._job_queue.push(job, now + (READ_AGAIN_MS if isinstance(error, NotReadYet) else UNREADABLE_MS))
            return
        if next_time is None:
            if started is not None:
                self._jobs.add(started)
            self._jobs.remove(job)
            self._job_queue.discard(job)
        else:
            self._jobs.reschedule(job, next_time, started)
            self._job_queue.push(job, next_time)
        if started is not None:
            self._job_queue.add(started)
            if self._cancelling_count:
                self._started.append(started)

    def _spawned(self, job: Job, now: int) -> Job | None:
        """Return the job that repeats a cron job's message; None if there are too many jobs, or it exists already."""
        if len(self._job_queue) >= self._jobs_max:
            _log.error(
                "job %s starts no repetitions: there are %d jobs, which is the limit", job.job_id, self._jobs_max
            )
            return None
        try:
            started = spawned(job, self._jobs.load(job), now)
        except JournalCorrupt as error:
            _log.error("job %s starts no repetitions, its message cannot be read: %s", job.job_id, error)
            return None
        return None if self._job_queue.by_id(started.job_id) else started

    def _next_time(self, job: Job, now: int) -> int | None:
        """Return when a job that has just run is due again; None after its last run."""
        if job.cron:
            try:
                return cron.parse(job.cron).next_after(now, self._offset_at)
            except InvalidSchedule as error:  # an ActiveMQ's job with a cron entry that this broker refuses
                _log.error("job %s is over: %s", job.job_id, error)
                return None
        if job.repeat == 0:
            return None
        period = max(job.period, PERIOD_MIN)
        return min(job.next_time + period if job.next_time + period > now else now + period, TIME_MAX)

    # ------------------------------------------------------------ management

    def _manage(self, message: Message, worker: PiecewiseWorker | None) -> None:
        fields = outline(message)
        action, job_id = fields.properties.get(ACTION), fields.properties.get(JOB_ID)
        start, end = _window(message)
        if action == BROWSE and fields.reply_to is not None:
            self._gathering_count += 1
            _work_off(self._browsing(fields.reply_to, start, end), worker)
        elif action == REMOVE and isinstance(job_id, str):
            for job in self._job_queue.by_id(job_id):
                self._cancel(job)
        elif action == REMOVE_ALL:
            _work_off(self._cancelling(start, end), worker)
        else:
            _log.warning("%s asks the scheduler for %r, and lacks what that needs", message.message_id, action)
        self._arm()

    def _cancel(self, job: Job) -> None:
        self._forget_large(job)
        self._made_again.discard(job.job_id)
        self._jobs.remove(job)
        self._job_queue.discard(job)

    def _cancelling(self, start: int, end: int) -> Steps:
        """Cancel the jobs that are due in a range of times; a crash before the answer may leave some of them.

        What a cron job starts meanwhile, before it is cancelled itself, is cancelled like the jobs that were there.
        """
        self._cancelling_count += 1
        index = len(self._started)
        try:
            for named in self._job_queue.named():
                for job in named:
                    yield self._cancel_within(job, start, end)
            while index < len(self._started):
                job = self._started[index]
                index += 1
                yield self._cancel_within(job, start, end)
        finally:
            self._cancelling_count -= 1
            if not self._cancelling_count:
                self._started.clear()
        self._arm()

    def _cancel_within(self, job: Job, start: int, end: int) -> int:
        """Cancel a job if it is due in a range of times, and return the cost."""
        if start <= job.next_time <= end and job in self._job_queue:
            self._cancel(job)
            return _CANCEL_COST
        return 1

    def _browsing(self, reply_to: Destination, start: int, end: int) -> Steps:
        """Look for the jobs that are due in a range of times, and begin to send their descriptions, earliest first."""
        found: list[list[Job]] = []
        try:
            every = self._job_queue.named()
            for first in range(0, len(every), FOUND_MAX):
                part = [job for named in every[first : first + FOUND_MAX] for job in named]
                found.append(sorted([job for job in part if start <= job.next_time <= end], key=_next_time))
                yield len(part)
        finally:
            self._gathering_count -= 1
        if self._is_stopped:
            return
        self._browses.append(_Browse(reply_to, merge(*found, key=_next_time)))
        self._answer_browses()
        self._arm()

    def _answer_browses(self) -> None:
        """Send job descriptions to the browses, oldest first, as many as one turn of the event loop has time for."""
        self._loaded_bytes = 0
        spent, ends_at = 0, self._monotonic() + FIRED_SECONDS
        while self._browses and spent < BROWSED_MAX * COPY_COST and self._loaded_bytes < FIRED_BYTES_MAX:
            if self._monotonic() >= ends_at:
                return
            if self._is_busy():
                self._browse_at = self._clock() + READ_AGAIN_MS
                return
            browse = self._browses[0]
            job = browse.job
            is_left = job is not None and job in self._job_queue  # False at the end, or if it was cancelled
            spent += COPY_COST if is_left else 1
            try:
                if job is None or (is_left and not self._send_description(job, browse.reply_to)):
                    self._browses.popleft()
                    continue
            except NotReadYet as error:
                _log.debug("a browse of the scheduler for %s has to wait: %s", browse.reply_to, error)
                self._browse_at = self._clock() + READ_AGAIN_MS
                return
            browse.advance()

    def _send_description(self, job: Job, reply_to: Destination) -> bool:
        """Send the description of a job to a browse; return False if the browse has to end.

        Raises:
            NotReadYet: the job's message is not read yet; to be called again.
        """
        self._sequence += 1
        try:
            data = self._jobs.load(job)
            self._loaded_bytes += len(data)
            message = described(job, data, reply_to, self._producer_id, self._sequence)
        except NotReadYet:
            raise
        except Exception as error:  # the message does not decode, or cannot be read
            _log.error("scheduled message %s cannot be shown: %s", job.job_id, error)
            return True
        try:
            self._send(message)
        except RequestError as error:
            _log.warning("a browse of the scheduler for %s ends: %s", reply_to, error)
            return False
        return True

    # ------------------------------------------------------------ private

    def _add(self, job: Job) -> None:
        self._jobs.add(job)
        self._job_queue.add(job)

    def _free_id(self, message: Message) -> str | None:
        """Return an unused job id for a message, None if the message is already scheduled.

        Each redelivery of a message has a job of its own: the last one may not be complete yet.
        """
        fields = outline(message)
        job_id = own_id = message.message_id
        if fields.redelivery_counter and REDELIVERY_DELAY in fields.properties:
            job_id = own_id = f"{message.message_id}~{fields.redelivery_counter}"
        count = 1
        while named := self._job_queue.by_id(job_id):
            if any(self._is_of(job, message) for job in named):
                return None
            EFFORT.is_large = True
            if count >= SAME_ID_MAX:
                raise ResourceLimit(f"{message.message_id} is scheduled for {count} destinations already")
            count += 1  # the message was sent to several destinations, or an ActiveMQ used the id for another job
            job_id = f"{own_id}-{count}"
        return job_id

    def _is_of(self, job: Job, message: Message) -> bool:
        """Return True if a job is for this message."""
        try:
            other = routing(self._jobs.load(job))
        except (JournalCorrupt, MalformedOpenWire):
            return False
        return (other.message_id, other.destination) == (message.message_id, message.destination)

    def _fresh_id(self) -> OpenWireMessageId:
        self._sequence += 1
        return OpenWireMessageId(None, self._producer_id, self._sequence)

    def _arm(self) -> None:
        """Schedule the next call of `fire`, or cancel it if there are no jobs and browses."""
        time = self._next_time_of_all()
        if time is None:
            if self._armed is not None:
                self._armed = None
                self._wake_at(None)
        elif self._armed is None or time < self._armed:
            self._armed = min(time, self._clock() + WAKE_MS_MAX)
            self._wake_at(self._armed)

    def _next_time_of_all(self) -> int | None:
        if self._is_stopped:
            return None
        job_time = None if self._is_firing else self._job_queue.next_time
        if not self._browses:
            return job_time
        browse_time = max(self._clock(), self._browse_at)
        return browse_time if job_time is None else min(browse_time, job_time)


class _Browse:
    """A browse whose jobs were found.

    Attributes:
        reply_to: gets the descriptions.
        job: the next job to describe; None after the last one.
    """

    __slots__ = ("_jobs", "job", "reply_to")

    def __init__(self, reply_to: Destination, jobs: Iterator[Job]) -> None:
        self.reply_to = reply_to
        self._jobs = jobs
        self.job: Job | None = None
        self.advance()

    def advance(self) -> None:
        """Go to the next job."""
        self.job = next(self._jobs, None)


def _next_time(job: Job) -> int:
    return job.next_time


def _work_off(steps: Steps, worker: PiecewiseWorker | None) -> None:
    if worker is None:
        carry_out(steps)
    else:
        worker.work_off(steps)


def is_management(message: Message) -> bool:
    """Return True if a message is a scheduler command."""
    return (
        not message.destination.is_temporary
        and message.destination.name[: len(MANAGEMENT)].lower() == _MANAGEMENT_LOWER
    )


_MANAGEMENT_LOWER = MANAGEMENT.lower()


def _window(message: Message) -> tuple[int, int]:
    """Return the range of times of a scheduler command. Raises `InvalidSchedule` if it is not a range."""
    properties = outline(message).properties
    start, end = number(properties, ACTION_START), number(properties, ACTION_END)
    return (0, TIME_MAX) if start is None or end is None else (start, end)
