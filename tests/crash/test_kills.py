"""A store killed at each failpoint, and one that loses its power, keeps its promises."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from pybroker.broker.domain.ports import Recovery
from pybroker.store.journal import writer
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.store import JournalStore
from tests.crash.workload import PRODUCER_ID, SETTINGS, WAYS, Workload, judge, judge_sequence, written

ROOT = Path(__file__).parents[2]
FAILPOINTS = (
    "before_batch_write",
    "after_write_before_sync",
    "after_sync",
    "before_unlink",
    "after_create_before_directory_sync",
)


class Turns:
    """An event loop's scheduling calls, turned by hand."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.failures: list[Exception] = []
        self.arrived = threading.Condition()

    def call_soon(self, callback: Callable[[], None]) -> None:
        with self.arrived:
            self.ready.append(callback)
            self.arrived.notify()

    def turn(self) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.ready, 20), "nothing happens any more"
            ready, self.ready = self.ready, []
        for callback in ready:
            callback()


def opened(
    directory: Path, files: JournalFiles | None = None, settings: JournalSettings = SETTINGS
) -> tuple[JournalStore, Recovery, Turns]:
    turns = Turns()
    store = JournalStore(
        directory,
        settings=settings,
        files=files,
        check=lambda: None,
        call_soon=turns.call_soon,
        post=turns.call_soon,
        on_failure=turns.failures.append,
        clock=lambda: 1_700_000_000_000,
    )
    return store, store.recover(), turns


def work(
    directory: Path, failpoint: str, ordinal: int, way: str, *, status: int = -signal.SIGKILL
) -> subprocess.CompletedProcess[str]:
    """Run a process that works on the directory until it comes to the failpoint for the n-th time."""
    command = [sys.executable, "-m", "tests.crash.child", str(directory), failpoint, str(ordinal), str(ordinal), way]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, f"it was to end with {status} at {failpoint}: {done.stderr}"
    return done


def judge_directory(ledger: list[str], directory: Path) -> None:
    """Open the directory twice: both times the contents must be lawful, nothing damaged, and the same."""
    seen = []
    for _ in range(2):
        store, recovery, _ = opened(directory)
        store.abandon()
        assert store.damages == []
        judge(ledger, recovery)
        judge_sequence(ledger, store.last_sequence(PRODUCER_ID))
        seen.append({str(queue): [m.message_id for m in messages] for queue, messages in recovery.queues.items()})
    assert seen[0] == seen[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ordinal", [1, 2, 3, 9])
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_a_process_killed_at_a_failpoint(tmp_path: Path, failpoint: str, ordinal: int, way: str) -> None:
    done = work(tmp_path, failpoint, ordinal, way)
    judge_directory(done.stdout.splitlines(), tmp_path)


@pytest.mark.parametrize("failpoint", ["before_replace", "after_replace", "before_batch_write", "before_unlink"])
def test_a_process_killed_while_it_takes_over(tmp_path: Path, failpoint: str) -> None:
    first = work(tmp_path, "after_sync", 40, "thread")
    second = work(tmp_path, failpoint, 1, "thread")
    assert second.stdout == "", "it died before it did any work"
    judge_directory(first.stdout.splitlines(), tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_the_ledger_of_an_undisturbed_run_is_kept_to_the_letter(tmp_path: Path, way: str) -> None:
    done = work(tmp_path, "nowhere", 5, way, status=0)
    ledger = done.stdout.splitlines()
    answered = {line.removeprefix("done ") for line in ledger if line.startswith("done ")}
    assert len(ledger) > 500
    assert answered == {line.removeprefix("try ") for line in ledger if line.startswith("try ")}
    judge_directory(ledger, tmp_path)


class VolatileFiles(JournalFiles):
    """A disk with a write cache: what was not synced when the power fails is on it sector by sector, or not."""

    SECTOR = 512

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory)
        self._random = random.Random(seed)
        self._cache: list[tuple[int, bytes, int]] = []
        self._creating = False

    def create(self, file_id: int, preallocate_bytes: int = 0) -> int:
        self._creating = True
        try:
            return super().create(file_id, preallocate_bytes)
        finally:
            self._creating = False

    def write(self, descriptor: int, buffers: Sequence[bytes], offset: int) -> None:
        if self._creating:
            super().write(descriptor, buffers, offset)
        else:
            self._cache.append((descriptor, b"".join(buffers), offset))

    def sync(self, descriptor: int) -> None:
        self._flush()
        super().sync(descriptor)

    def _flush(self) -> None:
        for descriptor, data, offset in self._cache:
            os.pwrite(descriptor, data, offset)
        self._cache.clear()

    def fail(self) -> None:
        """Let any part of the cache reach the disk, in no particular order."""
        sectors = []
        for descriptor, data, offset in self._cache:
            position = 0
            while position < len(data):
                end = min(len(data), position + self.SECTOR - (offset + position) % self.SECTOR)
                sectors.append((descriptor, data[position:end], offset + position))
                position = end
        for descriptor, data, offset in self._random.sample(sectors, self._random.randint(0, len(sectors))):
            os.pwrite(descriptor, data, offset)
        self._cache.clear()


class FailingFiles(VolatileFiles):
    """Loses its power at the n-th write, between the write and its sync."""

    def __init__(self, directory: Path, seed: int, ordinal: int) -> None:
        super().__init__(directory, seed)
        self._left = ordinal

    def sync(self, descriptor: int) -> None:
        self._left -= 1
        if self._left <= 0:
            self.fail()
            raise OSError("no power")
        super().sync(descriptor)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(25))
def test_a_power_failure_between_write_and_sync(
    tmp_path: Path, seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "INLINE_WAITERS_MAX", writer.INLINE_WAITERS_MAX)  # put back behind `written`
    store, _, turns = opened(tmp_path, FailingFiles(tmp_path, seed, ordinal=2 + seed * 2), written(way))
    ledger: list[str] = []
    workload = Workload(store, ledger.append, seed)
    workload.begin()
    for step in count():
        workload.step()
        if step % 4 == 0 and store.unwritten_bytes:
            turns.turn()
        if turns.failures:
            break
        if step % 40 == 0:
            store.cleanup()
    turns.ready.clear()  # callbacks of a dead process
    judge_directory(ledger, tmp_path)
