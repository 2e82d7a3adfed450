"""Recovers the jobs of a scheduler's journal from its data files. Nothing is changed on disk.

| record               | effect                                                               |
|----------------------|----------------------------------------------------------------------|
| AddScheduledJob      | a job, unless one of that name is there at that time                 |
| RescheduleJob        | the job of that name at that time moves to another                   |
| RemoveScheduledJob   | the job of that name at that time is over; at -1: wherever it is     |
| RemoveScheduledJobs  | all jobs in a range of times are over                                |
| DestroyScheduler     | all jobs are over                                                    |

Records about what is not there are ignored. One case needs more: ActiveMQ's garbage collection keeps only the last move
of a job, and leaves the rest to its index. Its own recovery without the index puts such a job back to its first time,
overdue. Here a record about a repeating job at a later time than the known one is applied as if the lost moves were
there, since jobs only move forward. `JobLocation.journal_time` keeps the time in the journal, so that the store can
write the corrected one.

Damage is collected; only records of a newer version end a replay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

from pybroker.broker.domain.errors import JournalCorrupt
from pybroker.broker.domain.jobs import Job
from pybroker.store.journal.commands import (
    AddScheduledJob,
    Command,
    CommandType,
    DestroyScheduler,
    RemoveScheduledJob,
    RemoveScheduledJobs,
    RescheduleJob,
    Trace,
    decode,
)
from pybroker.store.journal.format import RECORD_HEADER_BYTES, Location
from pybroker.store.journal.malformed import MalformedRecord, UnknownCommand
from pybroker.store.journal.reader import Damage, DataFileWalk, load
from pybroker.store.journal.replay import inspect
from pybroker.store.journal.state import SEQUENCES, decode_sequences
from pybroker.store.scheduler.state import SCHEDULER, JobState, place

ANY_TIME: Final = -1


@dataclass(slots=True, kw_only=True)
class JobReplayResult:
    """Result of a replay.

    Attributes:
        jobs: the broker's own jobs.
        stale_jobs: name and time of jobs that are over, although the journal alone still has them.
        record_count: records read.
        damages: bytes that should have been usable, and are not: something was lost.
        torn_tails: unusable bytes where the last write may have been going on; nothing there was ever acknowledged.
        open_ends: the files that may have been written last, and where each of them logically ends: a new master seals
            them.
        checksums: CRC-32 of those files up to there.
        last_trace: text of the last record, if it is a `Trace`; otherwise None.
    """

    jobs: Sequence[Job] = ()
    stale_jobs: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    record_count: int = 0
    damages: list[Damage] = field(default_factory=list[Damage])
    torn_tails: list[Damage] = field(default_factory=list[Damage])
    open_ends: dict[int, int] = field(default_factory=dict[int, int])
    checksums: dict[int, int] = field(default_factory=dict[int, int])
    last_trace: str | None = None


def replay(directory: Path, state: JobState, *, held_bytes_max: int, below: int | None = None) -> JobReplayResult:
    """Apply all records of a directory's journal to a fresh state.

    Args:
        directory: the scheduler's.
        state: an empty state.
        held_bytes_max: limit on the messages kept in memory.
        below: the new master's first file, which is not read, nor those behind it.

    Raises:
        StoreUnavailable: the directory or a file cannot be read.
        JournalCorrupt: the data files are no journal, or hold commands of a newer version.
    """
    run = _Replay(state, held_bytes_max)
    for file_id, path in inspect(directory).items():
        if below is None or file_id < below:
            run.read(file_id, path)
    run.finish()
    run.result.jobs = [job for job in state.jobs() if place(job).scheduler == SCHEDULER]
    return run.result


class _Replay:
    def __init__(self, state: JobState, held_bytes_max: int) -> None:
        self.result = JobReplayResult()
        self._state = state
        self._holdable_bytes = held_bytes_max
        self._ends: dict[int, int] = {}
        self._schedulers: dict[str, dict[str, list[Job]]] = {}

    def read(self, file_id: int, path: Path) -> None:
        result = self.result
        data = load(path)
        walk = DataFileWalk(data, file_id)
        for location, payload in walk:
            try:
                command = decode(payload)
            except UnknownCommand as error:
                raise JournalCorrupt(
                    f"{error} in a sound record",
                    path=str(path),
                    offset=location.offset,
                    hint="a newer version wrote this store: start that one; this one changed nothing in the journal",
                ) from error
            except MalformedRecord as error:
                self._damaged(location, payload, f"a record does not decode: {error}")
                continue
            result.record_count += 1
            result.last_trace = command.message if isinstance(command, Trace) else None
            self._apply(command, location, payload)
        result.damages += walk.damages
        self._ends[file_id] = walk.end
        with memoryview(data) as view:
            result.checksums[file_id] = crc32(view[: walk.end])

    def finish(self) -> None:
        """Separate torn tails from damage, once the files that may have been written last are known.

        These are the highest one, and the next one below empty ones, which their masters only claimed.
        """
        result = self.result
        damaged = {damage.file_id for damage in result.damages}
        for file_id in reversed(self._ends):
            result.open_ends[file_id] = self._ends[file_id]
            if self._ends[file_id] or file_id in damaged:
                break
        found, result.damages = result.damages, []
        for damage in found:
            is_torn = damage.at_end and damage.file_id in result.open_ends
            (result.torn_tails if is_torn else result.damages).append(damage)

    def _damaged(self, location: Location, payload: bytes, reason: str) -> None:
        length = RECORD_HEADER_BYTES + len(payload)
        self.result.damages.append(Damage(location.file_id, location.offset, length, reason))

    def _apply(self, command: Command, location: Location, payload: bytes) -> None:
        match command:
            case AddScheduledJob():
                self._add(command, location, len(payload))
            case RescheduleJob(scheduler, job_id, time, _, _):
                job = self._find(scheduler, job_id, time)
                if job is not None:
                    self._move(job, command, location.file_id)
            case RemoveScheduledJob(scheduler, job_id, time):
                named = list(self._jobs(scheduler).get(job_id, ()))
                found = self._find(scheduler, job_id, time)
                for job in named if time == ANY_TIME else [found] if found is not None else []:
                    self._remove(job, location.file_id, literally=time in (ANY_TIME, place(job).journal_time))
            case RemoveScheduledJobs(scheduler, start, end):
                self._remove_between(scheduler, start, end, location.file_id)
            case DestroyScheduler(scheduler):
                for job in self._all(scheduler):
                    self._remove(job, location.file_id, literally=True)
            case Trace(text) if text is not None and text.startswith(SEQUENCES):
                self._state.sequences.restore(decode_sequences(text), location.file_id)
            case Trace():
                pass
            case _:
                self._damaged(location, payload, f"a {CommandType(payload[0]).name} record in a scheduler's journal")

    def _add(self, command: AddScheduledJob, location: Location, payload_bytes: int) -> None:
        named = self._jobs(command.scheduler).setdefault(command.job_id, [])
        if any(place(job).journal_time == command.next_execution_time for job in named):
            return
        is_held = len(command.payload) <= self._holdable_bytes
        self._holdable_bytes -= len(command.payload) if is_held else 0
        job = Job(
            job_id=command.job_id,
            start_time=command.start_time,
            cron=command.cron_entry,
            delay=command.delay,
            period=command.period,
            repeat=command.repeat,
            next_time=command.next_execution_time,
            data=command.payload if is_held else None,
        )
        named.append(job)
        self._state.add(job, command.scheduler, location, RECORD_HEADER_BYTES + payload_bytes)

    def _move(self, job: Job, command: RescheduleJob, file_id: int) -> None:
        where = place(job)
        if where.journal_time == command.execution_time:
            where.journal_time = command.next_execution_time
        elif job.repeat > 0:  # runs whose records are gone
            job.repeat = max(1, job.repeat - max(0, command.rescheduled_count - job.run_count - 1))
        job.advance(command.next_execution_time)
        job.run_count = command.rescheduled_count
        self._state.move(job, file_id)

    def _remove(self, job: Job, file_id: int, *, literally: bool) -> None:
        where = place(job)
        named = self._jobs(where.scheduler)[job.job_id]
        named.remove(job)
        if not named:
            del self._jobs(where.scheduler)[job.job_id]
        if not literally and where.journal_time is not None and where.scheduler == SCHEDULER:
            self.result.stale_jobs.append((job.job_id, where.journal_time))
        if job.data is not None:
            self._holdable_bytes += len(job.data)
        self._state.remove(job, file_id)

    def _remove_between(self, scheduler: str, start: int, end: int, file_id: int) -> None:
        for job in self._all(scheduler):
            where = place(job)
            is_told = where.journal_time is not None and start <= where.journal_time <= end
            if start <= job.next_time <= end:
                self._remove(job, file_id, literally=is_told)
            elif is_told:
                where.journal_time = None
                self._state.move(job, file_id)

    def _find(self, scheduler: str, job_id: str, time: int) -> Job | None:
        """Return the job that a record about a name and a time means."""
        named = self._jobs(scheduler).get(job_id, ())
        for job in named:
            if place(job).journal_time == time:
                return job
        earlier = [job for job in named if (job.cron or job.repeat) and job.next_time <= time]
        return max(earlier, key=lambda job: job.next_time, default=None)

    def _all(self, scheduler: str) -> list[Job]:
        return [job for named in self._jobs(scheduler).values() for job in named]

    def _jobs(self, scheduler: str) -> dict[str, list[Job]]:
        return self._schedulers.setdefault(scheduler, {})
