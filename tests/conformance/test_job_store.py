"""Contract of every job store, over journal and memory alike; and the scheduler on top of each, against a model."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.broker.domain.jobs import FOR_EVER, Job, JobStore
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.scheduler.memory import MemoryJobStore
from pybroker.store.scheduler.store import JournalJobStore
from tests.runtimes import runtime

WAIT_SECONDS = 20.0
SMALL = JournalSettings(file_bytes_max=2000, batch_bytes_max=900, compact_after_cleanups=1)
"""Files and batches that a handful of jobs fills."""
CHECK_OVERLOOKS = "damaged record"
"""A job's message is opaque to a store: most are no messages here."""


class MemoryLives:
    """A memory store, whose contents outlive its closing."""

    def __init__(self) -> None:
        self.store: JobStore = MemoryJobStore()

    def open(self) -> Sequence[Job]:
        return self.store.recover()

    def flush(self) -> None:
        """Everything is durable."""

    def cleanup(self) -> None:
        self.store.cleanup()

    def crash(self) -> None:
        self.store.abandon()

    def end(self) -> None:
        """Nothing is left to check."""


class JournalLives:
    """A scheduler's directory and the stores that own it, one after the other."""

    store: JournalJobStore

    def __init__(self, directory: Path, *, held_bytes_max: int = 500) -> None:
        self.directory = directory
        self.ready: list[Callable[[], None]] = []
        self.arrived = threading.Condition()
        self.failures: list[Exception] = []
        self.is_master = True
        self.held_bytes_max = held_bytes_max

    def open(self) -> Sequence[Job]:
        self.is_master = True
        self.store = JournalJobStore(
            self.directory,
            settings=SMALL,
            runtime=runtime(self.call_soon, fence=self.check, on_failure=self.failures.append),
            held_bytes_max=self.held_bytes_max,
        )
        jobs = self.store.recover()
        assert not self.store.damages
        return jobs

    def check(self) -> None:
        if not self.is_master:
            raise LockNotHeld("the lock was taken away")

    def call_soon(self, callback: Callable[[], None]) -> None:
        with self.arrived:
            self.ready.append(callback)
            self.arrived.notify()

    def run_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            with self.arrived:
                assert self.arrived.wait_for(lambda: self.ready, WAIT_SECONDS), "nothing happens any more"
                ready, self.ready = self.ready, []
            for callback in ready:
                callback()

    def flush(self) -> None:
        self.run_until(lambda: self.store.unwritten_bytes == 0)

    def cleanup(self) -> None:
        self.store.cleanup()
        self.flush()
        self.run_until(lambda: not self.store.is_cleaning)

    def crash(self) -> None:
        self.is_master = False
        self.store.abandon()
        self.ready.clear()

    def end(self) -> None:
        """Check that the journal is sound, and that a last crash changes nothing."""
        self.crash()
        before = facts(self.open(), self.store)
        self.crash()
        assert facts(self.open(), self.store) == before
        self.crash()
        assert not self.failures


Lives = MemoryLives | JournalLives


@pytest.fixture(params=["memory", "journal", "journal-without-memory"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lives]:
    made: Lives
    if request.param == "memory":
        made = MemoryLives()
    else:
        made = JournalLives(tmp_path / "scheduler", held_bytes_max=0 if "without" in request.param else 500)
    made.open()
    yield made
    made.end()


def job(job_id: str, next_time: int = 1000, **fields: Any) -> Job:
    data = fields.pop("data", f"message of {job_id}".encode())
    return Job(job_id=job_id, start_time=1, next_time=next_time, data=data, **fields)


def facts(jobs: Sequence[Job], store: JobStore) -> list[tuple[Any, ...]]:
    """Return jobs in comparable form."""
    return sorted(
        (j.job_id, j.next_time, j.start_time, j.cron, j.delay, j.period, j.repeat, store.load(j)) for j in jobs
    )


def reopen(lives: Lives) -> Sequence[Job]:
    lives.store.close()
    return lives.open()


def crash(lives: Lives) -> Sequence[Job]:
    lives.flush()
    lives.crash()
    return lives.open()


BETWEEN = pytest.mark.parametrize("next_life", [reopen, crash])


@BETWEEN
def test_jobs_come_back_whole(lives: Lives, next_life: Any) -> None:
    made = [
        job("ID:a:1:1:1", 5, cron="0 3 * * *", delay=7, period=8, repeat=9),
        job("ID:a:1:1:2", 2**63 - 1, repeat=FOR_EVER, period=10, data=b"\0\xff" * 700),
        job("grüße", data=b""),
    ]
    lives.store.add(*made)
    expected = facts(made, lives.store)
    assert facts(next_life(lives), lives.store) == expected


@BETWEEN
def test_what_is_over_stays_over(lives: Lives, next_life: Any) -> None:
    jobs = [job(f"j{number}", number) for number in range(20)]
    lives.store.add(*jobs)
    for each in jobs[::2]:
        lives.store.remove(each)
    assert sorted(j.next_time for j in next_life(lives)) == list(range(1, 20, 2))


@BETWEEN
def test_a_job_that_ran_is_due_later_and_has_fewer_runs(lives: Lives, next_life: Any) -> None:
    bounded, endless, timed = job("b", repeat=3), job("e", repeat=FOR_EVER), job("c", cron="* * * * *", repeat=3)
    lives.store.add(bounded, endless, timed)
    for time in (2000, 3000):
        for each in (bounded, endless, timed):
            lives.store.reschedule(each, time)
    assert [(j.next_time, j.repeat) for j in (bounded, endless, timed)] == [(3000, 1), (3000, FOR_EVER), (3000, 3)]
    found = {j.job_id: (j.next_time, j.repeat) for j in next_life(lives)}
    assert found == {"b": (3000, 1), "e": (3000, FOR_EVER), "c": (3000, 3)}


@BETWEEN
def test_what_a_run_spawned_is_there_with_it(lives: Lives, next_life: Any) -> None:
    parent = job("p", cron="* * * * *", repeat=2)
    lives.store.add(parent)
    lives.store.reschedule(parent, 2000, job("child", 1500, repeat=2))
    assert sorted((j.job_id, j.next_time) for j in next_life(lives)) == [("child", 1500), ("p", 2000)]


@BETWEEN
def test_jobs_of_one_name_differ_by_their_time(lives: Lives, next_life: Any) -> None:
    """ActiveMQ's counter begins again with each start, so a producer that stays can have two of a name."""
    first, second = job("same", 1000, data=b"first", repeat=5), job("same", 9000, data=b"second", repeat=5)
    lives.store.add(first, second)
    lives.store.reschedule(second, 9500)
    lives.store.reschedule(first, 1500)
    (left,) = [j for j in next_life(lives) if lives.store.load(j) == b"second"]
    lives.store.remove(left)
    assert [(j.next_time, lives.store.load(j)) for j in next_life(lives)] == [(1500, b"first")]


def test_callbacks_run_once_it_is_durable(lives: Lives) -> None:
    notified: list[int] = []
    lives.store.add(job("a"))
    lives.store.when_durable(lambda: notified.append(1))
    lives.store.add(job("b"))
    lives.store.when_durable(lambda: notified.append(2))
    lives.flush()
    assert notified == [1, 2]
    lives.store.when_durable(lambda: notified.append(3))
    assert notified == [1, 2, 3]


@pytest.mark.parametrize("seed", range(6))
def test_any_history_comes_back(lives: Lives, seed: int) -> None:
    """Random work, cleanups, crashes and clean stops: each run begins with what the one before ended with."""
    choose = random.Random(seed)
    now = 1000
    live: list[Job] = []
    for step in range(400):
        now += choose.randrange(3)
        kind = choose.choice(("add", "add", "move", "move", "move", "remove", "range", "life", "cleanup"))
        if kind == "add":
            repeat = choose.choice((0, 3, FOR_EVER))
            size = choose.choice((0, 50, 400))
            live.append(job(f"j{step}", now + choose.randrange(100), repeat=repeat, data=bytes(size)))
            lives.store.add(live[-1])
        elif kind == "move" and live:
            moving = choose.choice(live)
            born = job(f"child{step}", now + 5) if choose.random() < 0.2 else None
            lives.store.reschedule(moving, max(moving.next_time, now) + choose.randrange(50), born)
            live += [born] if born is not None else []
        elif kind == "remove" and live:
            lives.store.remove(live.pop(choose.randrange(len(live))))
        elif kind == "range" and step % 4 == 0:
            gone = [j for j in live if now <= j.next_time <= now + 10]
            for each in gone:
                lives.store.remove(each)
            live = [j for j in live if j not in gone]
        elif kind == "cleanup":
            lives.cleanup()
        elif kind == "life" and choose.random() < 0.4:
            expected = facts(live, lives.store)
            live = list(choose.choice((reopen, crash))(lives))
            assert facts(live, lives.store) == expected
    expected = facts(live, lives.store)
    assert facts(crash(lives), lives.store) == expected


class TestLastSequence:
    """The last of a producer's messages that became a job, whatever became of the jobs since."""

    PRODUCER = "ID:a-1:1:1:1"

    def add(self, lives: Lives, *numbers: int) -> list[Job]:
        jobs = [job(f"{self.PRODUCER}:{number}", number) for number in numbers]
        lives.store.add(*jobs)
        return jobs

    @BETWEEN
    def test_a_job_counts_also_when_it_is_over(self, lives: Lives, next_life: Any) -> None:
        assert lives.store.last_sequence(self.PRODUCER) == -1
        _, second = self.add(lives, 3, 7)
        lives.store.remove(second)
        assert lives.store.last_sequence(self.PRODUCER) == 7
        next_life(lives)
        assert lives.store.last_sequence(self.PRODUCER) == 7
        assert lives.store.last_sequence("ID:another:1:1") == -1

    @BETWEEN
    def test_last_sequence_survives_deletion_of_its_files(self, lives: Lives, next_life: Any) -> None:
        (over,) = self.add(lives, 5)
        lives.store.remove(over)
        for round_number in range(6):
            fillers = [job(f"filler {round_number} {number}", data=bytes(400)) for number in range(10)]
            lives.store.add(*fillers)
            for each in fillers:
                lives.store.remove(each)
            lives.flush()
            lives.cleanup()
            lives.flush()
        next_life(lives)
        assert lives.store.last_sequence(self.PRODUCER) == 5

    def test_other_names_do_not_count(self, lives: Lives) -> None:
        lives.store.add(job("grüße"), job(f"{self.PRODUCER}:4-2"), job(f"{self.PRODUCER}:9@1700"))
        assert lives.store.last_sequence(self.PRODUCER) == -1
