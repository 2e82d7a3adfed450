"""A full disk: producers are refused, consumers served, and it goes on by itself; also when it is killed while full."""

import errno
import logging
import random
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from pybroker.broker.domain.errors import LockNotHeld, StoreUnavailable
from pybroker.broker.domain.jobs import Job
from pybroker.store.journal import sink
from pybroker.store.journal.appender import JournalSettings, Preallocation
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.reserve import RESERVE_NAME, Reserve
from pybroker.store.journal.store import JournalStore
from pybroker.store.journal.store_snapshot import SNAPSHOT_NAME
from pybroker.store.scheduler.store import JournalJobStore
from tests.crash.disks import SmallDisk
from tests.crash.test_kills import Turns as HandTurned
from tests.crash.test_kills import judge_directory
from tests.crash.workload import ORDERS, Workload, message
from tests.runtimes import runtime

SETTINGS = JournalSettings(
    file_bytes_max=6000,
    batch_bytes_max=2500,
    preallocation=Preallocation.NONE,
    compact_after_cleanups=2,
    reserve_bytes=12_000,
)
CAPACITY = 60_000
UNWRITTEN_BYTES_MAX = 4000
SECONDS = 20


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "SPACE_SECONDS", 0.002)


class Turns(HandTurned):
    """The same, for what a thread does without notifying the loop."""

    def run_until(self, condition: Callable[[], object]) -> None:
        """Run turns until a condition holds."""
        deadline = monotonic() + SECONDS
        while not condition():
            assert monotonic() < deadline, "it never came to that"
            with self.arrived:
                self.arrived.wait_for(lambda: self.ready, 0.001)
            if self.ready:
                self.turn()


class Member:
    """A store on a disk, its loop turned by hand."""

    def __init__(self, disk: JournalFiles, settings: JournalSettings = SETTINGS, **options: Any) -> None:
        self.turns = Turns()
        self.fence: Exception | None = None
        self.store = JournalStore(
            disk.directory,
            settings=settings,
            files=disk,
            runtime=runtime(self.turns.call_soon, fence=self._check, on_failure=self.turns.failures.append),
            **options,
        )
        self.recovery = self.store.recover()
        self.done: list[str] = []
        self._reserve = disk.directory / RESERVE_NAME
        self._numbers = count(1)

    def _check(self) -> None:
        if self.fence is not None:
            raise self.fence

    def send(self, size: int = 900) -> int:
        number = next(self._numbers)
        self.store.add(message(ORDERS, number, size))
        self.store.when_durable(lambda: self.done.append(f"send {number}"))
        return number

    def consume(self, number: int) -> None:
        self.store.remove(ORDERS, message(ORDERS, number).message_id)
        self.store.when_durable(lambda: self.done.append(f"consume {number}"))

    def fill(self) -> int:
        """Send until the disk is full, as producers do that wait for their answers; return how many were sent."""
        while not self.store.is_full:
            last = self.send()
            self.turns.run_until(lambda: self.store.is_full or not self.store.unwritten_bytes)
        return last

    @property
    def holds_reserve(self) -> bool:
        """True if the reserve has its space: its file is there before its blocks are."""
        path = self._reserve
        return path.exists() and path.stat().st_size == SETTINGS.reserve_bytes

    def until(self, condition: Callable[[], object]) -> None:
        self.turns.run_until(condition)
        assert not self.turns.failures


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    return SmallDisk(tmp_path, CAPACITY)


# ------------------------------------------------------------ one store


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_consumers_free_the_space_that_producers_wait_for(
    tmp_path: Path, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SmallDisk(tmp_path, CAPACITY, number)
    member = Member(disk)
    member.until(lambda: member.holds_reserve)

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "messages are" in record.getMessage()]

    with caplog.at_level(logging.INFO):
        last = member.fill()
        member.until(lambda: f"send {last}" in member.done)
        assert not (tmp_path / RESERVE_NAME).exists(), "what was under way is written on the reserve"
        for each in range(1, last + 1):
            member.consume(each)
        member.until(lambda: f"consume {last}" in member.done)
        member.until(lambda: not member.store.is_full)
        member.until(lambda: len(lines()) >= 2)
    assert len(lines()) == 2, "one line when it begins, one when it is over"
    member.until(lambda: member.holds_reserve)
    again = member.send()
    member.until(lambda: f"send {again}" in member.done)
    member.store.close()


def test_without_a_reserve_a_batch_waits_for_free_space(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path, 20_000)
    member = Member(disk, JournalSettings(preallocation=Preallocation.NONE))
    last = member.fill()
    assert f"send {last}" not in member.done
    member.consume(1)
    refusals = disk.refusals
    member.until(lambda: disk.refusals > refusals + 3)
    assert "consume 1" not in member.done
    disk.capacity += 20_000
    member.until(lambda: "consume 1" in member.done)
    assert f"send {last}" in member.done
    member.until(lambda: not member.store.is_full)
    member.store.close()
    new_master = Member(disk)
    assert len(new_master.recovery.queues[ORDERS]) == last - 1
    new_master.store.close()


def test_a_waiting_batch_of_a_killed_master_is_not_confirmed(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path, 20_000)
    member = Member(disk, JournalSettings(preallocation=Preallocation.NONE))
    last = member.fill()
    member.store.abandon()
    assert f"send {last}" not in member.done
    assert not member.turns.failures
    disk.capacity += 40_000
    new_master = Member(disk)
    assert not new_master.store.damages, "what the failed write left is a torn tail"
    found = [int(each.rpartition(":")[2]) for each in new_master.recovery.queues[ORDERS]]
    assert found == list(range(1, len(found) + 1))
    assert {f"send {each}" for each in found} >= set(member.done)
    new_master.store.close()


def test_a_stop_does_not_wait_for_space(tmp_path: Path) -> None:
    member = Member(SmallDisk(tmp_path, 20_000), JournalSettings(preallocation=Preallocation.NONE))
    member.fill()
    with pytest.raises(StoreUnavailable, match="No space left"):
        member.store.close()


def test_a_stop_on_the_reserve_loses_nothing(disk: SmallDisk) -> None:
    member = Member(disk)
    last = member.fill()
    member.consume(1)
    member.store.close()
    new_master = Member(disk)
    assert len(new_master.recovery.queues[ORDERS]) == last - 1
    assert new_master.recovery.delivered is not None
    new_master.store.close()


def test_a_master_that_lost_its_lock_stops_waiting_for_space(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path, 20_000)
    member = Member(disk, JournalSettings(preallocation=Preallocation.NONE))
    last = member.fill()
    member.fence = LockNotHeld("taken by another")
    member.turns.run_until(lambda: member.turns.failures)
    assert member.turns.failures == [member.fence]
    disk.capacity += 20_000
    assert f"send {last}" not in member.done
    member.store.abandon()


def test_a_promotion_on_a_full_disk_spends_the_reserve(disk: SmallDisk) -> None:
    former = Member(disk)
    last = former.fill()
    former.until(lambda: f"send {last}" in former.done)
    former.store.abandon()
    (disk.directory / RESERVE_NAME).unlink(missing_ok=True)
    JournalFiles(disk.directory).allocate(disk.directory / RESERVE_NAME, SETTINGS.reserve_bytes)
    disk.capacity -= disk.free()
    new_master = Member(disk)
    assert len(new_master.recovery.queues[ORDERS]) == last
    new_master.until(lambda: new_master.store.is_full)
    for number in range(1, last + 1):
        new_master.consume(number)
    new_master.until(lambda: f"consume {last}" in new_master.done)
    new_master.until(lambda: not new_master.store.is_full)
    new_master.store.close()


def test_a_file_without_space_is_made_once_there_is_some(tmp_path: Path) -> None:
    """The creation fails, not a write into the file: nothing half made is in the way of the next try."""

    class NoNewFiles(SmallDisk):
        is_full = False

        def sync_directory(self) -> None:
            if self.is_full:
                self._refuse(self.directory)
            super().sync_directory()

    disk = NoNewFiles(tmp_path, CAPACITY)
    member = Member(disk, JournalSettings(file_bytes_max=2000, preallocation=Preallocation.NONE))
    disk.is_full = True
    last = member.fill()
    member.until(lambda: disk.refusals > 3)
    disk.is_full = False
    member.until(lambda: f"send {last}" in member.done)
    member.store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"db-{n}.log" for n in range(1, 3 + (last > 2))]


def test_producers_wait_while_the_reserve_does_not_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = SmallDisk(tmp_path, SETTINGS.reserve_bytes)
    member = Member(disk)
    member.until(lambda: member.store.is_full)
    assert "less than 12000 bytes are free" in caplog.text
    disk.capacity += 1000
    member.until(lambda: not member.store.is_full)
    member.store.close()


def test_free_space_is_known_before_anyone_is_served(tmp_path: Path) -> None:
    """The writer's thread may come late to look. What is accepted until then stands in the way of those behind it."""
    looked = threading.Event()

    class BusyMachine(SmallDisk):
        def free_bytes(self) -> int:
            if threading.current_thread().name == "journal-writer":
                assert looked.wait(SECONDS)
            return super().free_bytes()

    disk = BusyMachine(tmp_path, SETTINGS.reserve_bytes)
    member = Member(disk)
    assert member.store.is_full
    looked.set()
    disk.capacity += 1000
    member.until(lambda: not member.store.is_full)
    member.store.close()


def test_an_index_leaves_the_space_to_those_who_need_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = SmallDisk(tmp_path, 10 * CAPACITY)
    member = Member(disk, snapshot_bytes_min=0)
    member.until(lambda: member.holds_reserve)
    index = tmp_path / SNAPSHOT_NAME

    def checkpoint() -> None:
        member.store.write_snapshot()
        member.until(lambda: not member.store.unwritten_bytes and not member.store._snapshot_writer.is_busy)

    for _ in range(100):
        member.send(100)
    checkpoint()
    size, inode = index.stat().st_size, index.stat().st_ino
    assert size > 5000
    disk.capacity -= disk.free() - SETTINGS.reserve_bytes - SETTINGS.batch_bytes_max - size // 2
    checkpoint()
    assert "the disk has no space to spare" in caplog.text
    assert index.stat().st_ino == inode, "the old one stays, and is as good as it was"
    assert not list(tmp_path.glob("*.new"))
    assert not member.store.is_full
    disk.capacity += size
    checkpoint()
    assert index.stat().st_ino != inode
    last = member.fill()
    inode = index.stat().st_ino
    member.until(lambda: f"send {last}" in member.done)
    assert disk.free() >= 0
    member.store.close()
    assert disk.free() >= 0, "a full disk gets no index at a stop either"
    assert index.stat().st_ino == inode
    new_master = Member(disk)
    assert len(new_master.recovery.queues[ORDERS]) == last
    new_master.store.close()


def test_the_reserve_outlives_a_run_but_not_its_setting(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path)
    path = tmp_path / RESERVE_NAME
    assert Reserve(files, 4096).hold()
    inode = path.stat().st_ino
    assert Reserve(files, 4096).hold()
    assert (path.stat().st_ino, path.stat().st_blocks * 512) == (inode, 4096)
    assert Reserve(files, 8192).hold()
    assert path.stat().st_blocks * 512 == 8192
    assert Reserve(files, 0).hold()
    assert not path.exists()


def test_a_file_system_without_reservation_is_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / RESERVE_NAME).mkdir()
    assert Reserve(JournalFiles(tmp_path), 8192).hold()
    assert "no space can be reserved" in caplog.text


def test_the_scheduler_waits_for_space_as_well(tmp_path: Path) -> None:
    turns = Turns()
    disk = SmallDisk(tmp_path, 20_000)
    jobs = JournalJobStore(
        tmp_path,
        settings=JournalSettings(preallocation=Preallocation.NONE),
        files=disk,
        runtime=runtime(turns.call_soon, on_failure=turns.failures.append),
    )
    jobs.recover()
    done: list[str] = []
    for number in count():
        if jobs.is_full:
            break
        name = f"job-{number}"
        data = message(ORDERS, number, 900).data
        jobs.add(Job(job_id=name, start_time=1, cron="", delay=1, period=0, repeat=0, next_time=2, data=data))
        jobs.when_durable(partial(done.append, name))
        turns.run_until(lambda: jobs.is_full or not jobs.unwritten_bytes)
    assert name not in done
    disk.capacity += 20_000
    turns.run_until(lambda: name in done and not jobs.is_full)
    jobs.close()


def test_the_scheduler_is_taken_over_on_the_other_stores_reserve(tmp_path: Path) -> None:
    """Its journal has none of its own, and must not keep a master from serving consumers, who free space."""
    turns = Turns()
    disk = SmallDisk(tmp_path, 40_000)

    def store(lender: Callable[[], bool]) -> JournalJobStore:
        return JournalJobStore(
            tmp_path,
            settings=JournalSettings(preallocation=Preallocation.NONE),
            files=disk,
            runtime=runtime(turns.call_soon, on_failure=turns.failures.append),
            lender=lender,
        )

    def lend() -> bool:
        disk.capacity += 20_000
        return True

    first = store(lambda: False)
    first.recover()
    data = message(ORDERS, 1, 900).data
    for number in range(10):
        first.add(
            Job(job_id=f"job-{number}", start_time=1, cron="", delay=1, period=0, repeat=0, next_time=2, data=data)
        )
    done: list[bool] = []
    first.when_durable(lambda: done.append(True))
    turns.run_until(lambda: done)
    first.abandon()

    disk.capacity -= disk.free() - 100  # enough for a claim, and not for a copy of the file before it
    last = store(lambda: False)
    with pytest.raises(StoreUnavailable, match="No space left"):
        last.recover()
    last.abandon()
    last = store(lend)
    assert len(last.recover()) == 10
    last.close()


def test_a_lent_reserve_refuses_sends_until_it_is_held_again(disk: SmallDisk) -> None:
    member = Member(disk)
    member.until(lambda: member.holds_reserve)
    disk.capacity -= disk.free() + 1000  # what another program took since: lent, the reserve does not fit again
    assert member.store.lend_reserve()
    assert member.store.is_full
    assert not member.holds_reserve
    assert not member.store.lend_reserve(), "there is none"
    disk.capacity += 1000
    member.until(lambda: member.holds_reserve and not member.store.is_full)
    member.store.close()


# ------------------------------------------------------------ under load, with kills


class Greedy(Workload):
    """Sends more than it consumes, unless it is refused."""

    def step(self) -> None:
        if self._store.is_full:
            self._random.choice((self._consume, self._acknowledge, self._consume_in_transaction, self._decide))()
        else:
            super().step()
            self._send()


@pytest.mark.parametrize("seed", range(12))
def test_whenever_it_is_killed_what_was_promised_is_there(tmp_path: Path, seed: int) -> None:
    disk = SmallDisk(tmp_path, CAPACITY)
    member = Member(disk)
    ledger: list[str] = []
    workload = Greedy(member.store, ledger.append, seed)
    workload.begin()
    shortages = full_steps = 0
    steps = random.Random(seed).randint(300, 900)
    for step in range(steps):
        workload.step()
        if step % 4 == 0 and member.turns.ready:
            member.turns.turn()
        if step % 25 == 24:
            member.store.cleanup()
        if member.store.unwritten_bytes > UNWRITTEN_BYTES_MAX:  # as the core slows producers down
            member.until(lambda: not member.store.unwritten_bytes or member.store.is_full)
        if member.store.is_full:
            shortages += not full_steps
            full_steps += 1
            if full_steps % 60 == 0:  # too little was consumed: an operator lends a hand
                disk.capacity += 10_000
                member.until(lambda: not member.store.unwritten_bytes)
        else:
            full_steps = 0
    member.store.abandon()
    assert not member.turns.failures
    assert shortages, "the disk was never full: the test shows nothing"
    judge_directory(ledger, tmp_path)


def test_the_reserve_is_not_tried_where_it_cannot_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial uses all the free space for a moment: a promotion once failed because of that."""
    files = JournalFiles(tmp_path)
    monkeypatch.setattr(files, "free_bytes", lambda: 8191)
    assert not Reserve(files, 8192).hold()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(files, "free_bytes", lambda: 8192)
    assert Reserve(files, 8192).hold()
