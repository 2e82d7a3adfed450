"""The queue of scheduled jobs: its order, and the removal of very many of them."""

from random import Random

import pytest

from pybroker.broker.core import job_queue
from pybroker.broker.core.job_queue import JobQueue
from pybroker.broker.domain.jobs import Job


def made(name: str, time: int) -> Job:
    return Job(job_id=name, start_time=0, next_time=time, data=b"")


def entries(jobs: JobQueue) -> int:
    return len(jobs._heap) + len(jobs._left)


def drained(jobs: JobQueue, now: int) -> list[Job]:
    """Return the jobs that are due, as a caller gets them that comes again while some may be."""
    found: list[Job] = []
    while (time := jobs.next_time) is not None and time <= now:
        for job in jobs.pop_due(now, 3):
            jobs.discard(job)
            found.append(job)
    return found


@pytest.mark.parametrize("seed", range(200))
def test_any_history_gives_due_jobs_in_order(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    choose = Random(seed)
    for name, value in (("_STALE_SPARED", 3), ("_DROPPED_MAX", choose.choice([1, 2, 100])), ("_MOVED", 2)):
        monkeypatch.setattr(job_queue, name, value)
    jobs, expected = JobQueue(), list[tuple[int, int, Job]]()
    for number in range(300):
        kind = choose.random()
        if kind < 0.5:
            job = made(f"j{choose.randrange(40)}", choose.randrange(1000))
            jobs.add(job)
            expected.append((job.next_time, number, job))
        elif kind < 0.9 and expected:
            _, _, job = expected.pop(choose.randrange(len(expected)))
            jobs.discard(job)
            jobs.discard(job)
        elif kind < 0.95:
            now = choose.randrange(300)
            first = sorted((each for each in expected if each[0] <= now), key=lambda each: each[:2])
            assert drained(jobs, now) == [job for _, _, job in first]
            expected = [each for each in expected if each[0] > now]
        elif due := jobs.pop_due(1000, 1):  # it runs, and is due again
            expected = [each for each in expected if each[2] is not due[0]]
            jobs.push(due[0], 1000)
            expected.append((1000, number, due[0]))
        assert len(jobs) == len(expected)
        assert entries(jobs) <= 4 * len(expected) + 20
    assert drained(jobs, 1000) == [job for _, _, job in sorted(expected, key=lambda each: each[:2])]
    assert jobs.next_time is None


def test_removing_very_many_looks_at_few_entries_at_a_time() -> None:
    jobs = JobQueue()
    every = [made(f"j{number}", number) for number in range(20_000)]
    for job in every:
        jobs.add(job)
    most = 0
    for job in every[:-1]:
        before = entries(jobs)
        jobs.discard(job)
        most = max(most, before - entries(jobs))
    assert 0 < most <= job_queue._MOVED
    assert entries(jobs) < 2_000
    assert drained(jobs, 20_000) == [every[-1]]
    assert not entries(jobs)
