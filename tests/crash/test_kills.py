# mypy: disable-error-code="assignment"
"""A store killed at each failpoint, and one that loses its power, keeps its promises."""

import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest

from pybroker.broker.domain.recovery import Recovery
from pybroker.store import group_commit
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.store import JournalStore
from tests.crash import children
from tests.crash.workload import PRODUCER_ID, SETTINGS, WAYS, Workload, judge, judge_sequence, written
from tests.runtimes import runtime
from tests.soundness import assert_sound

OPERATIONS = (
    "create data",
    "write data",
    "sync data",
    "truncate data",
    "sync directory",
    "create copy",
    "write copy",
    "sync copy",
    "rename copy",
    "unlink data",
    "create reserve",
    "allocate reserve",
)
ARCHIVING = ("rename data", "sync archive")
"""Operations of stores that archive files instead of deleting them."""

FAILPOINTS = [f"{moment} {operation}" for operation in (*OPERATIONS, *ARCHIVING) for moment in ("before", "after")]
FAILPOINTS.append("before unlink index")  # there is none to be unlinked


def seed_of(failpoint: str, ordinal: int) -> int:
    """Return a workload's seed; an odd one archives."""
    return 2 * ordinal + failpoint.endswith(ARCHIVING)


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
        runtime=runtime(turns.call_soon, on_failure=turns.failures.append),
    )
    return store, store.recover(), turns


def work(
    directory: Path, failpoint: str, seed: int, way: str, *, status: int = -signal.SIGKILL
) -> subprocess.CompletedProcess[str]:
    """Run a process that works on the directory until it comes to the failpoint, `NAME:ORDINAL`, or to its end."""
    done = children.run("tests.crash.child", str(directory), failpoint, str(seed), way)
    assert done.returncode == status, f"it was to end with {status} at {failpoint}: {done.stderr}"
    return done


def judge_directory(ledger: list[str], directory: Path) -> None:
    """Open the directory twice: both times the contents must be lawful, nothing damaged, and the same.

    `check` has to agree that nothing is, before anyone has opened it; afterwards the end of the test asks again.
    """
    if data_files(directory):
        assert_sound(directory)
    seen = []
    for _ in range(2):
        store, recovery, _ = opened(directory)
        for queue, message_ids in recovery.queues.items():
            assert [each.message_id for each in store.read(queue, message_ids)] == list(message_ids)
        store.abandon()
        assert not store.damages
        judge(ledger, recovery)
        judge_sequence(ledger, store.last_sequence(PRODUCER_ID))
        seen.append({str(queue): list(message_ids) for queue, message_ids in recovery.queues.items()})
    assert seen[0] == seen[1]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A journal's directory; a child needs a place beside it."""
    return tmp_path / "kahadb"


def test_the_list_of_failpoints_is_complete(directory: Path) -> None:
    reached: set[str] = set()
    for seed in (1, 2):
        work(directory, "nowhere:1", seed, "thread", status=0)
        lines = (directory.parent / "reached").read_text().splitlines()
        reached |= {line.rpartition(" ")[0] for line in lines}
    assert reached == set(FAILPOINTS)


@pytest.mark.parametrize(("ordinal", "way"), [(1, "thread"), (3, "inline"), (8, "thread")])
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_a_process_killed_at_a_failpoint(directory: Path, failpoint: str, ordinal: int, way: str) -> None:
    often = not failpoint.endswith(("copy", "reserve", "index"))
    done = work(directory, f"{failpoint}:{ordinal if often else 1}", seed_of(failpoint, ordinal), way)
    judge_directory(done.stdout.splitlines(), directory)
    assert not list(directory.glob("*.sealed")), "what a crash left half made is taken away"


TAKING_OVER = ("create copy", "write copy", "sync copy", "rename copy", "sync directory")
TAKING_OVER += ("create data", "write data", "sync data")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("operation", TAKING_OVER)
def test_a_process_killed_while_it_takes_over(directory: Path, operation: str, moment: str) -> None:
    first = work(directory, "after sync data:40", 2, "thread")
    second = work(directory, f"{moment} {operation}:1", 2, "thread")
    assert second.stdout == "", "it died before it did any work"
    judge_directory(first.stdout.splitlines(), directory)


ERRORS = [f"before {operation}" for operation in (*OPERATIONS, *ARCHIVING) if "reserve" not in operation]
FATAL = ("write data", "sync data", "create data", "truncate data")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("failpoint", ERRORS)
def test_an_input_output_error_ends_all_promises(directory: Path, failpoint: str, way: str) -> None:
    """It fails once the store has worked for a while: what was promised is there, and nothing is promised any more."""
    ordinal = 60 if failpoint.endswith(("write data", "sync data")) else 6
    done = work(directory, f"{failpoint}:{ordinal}:EIO", seed_of(failpoint, 1), way, status=0)
    ledger = done.stdout.splitlines()
    if failpoint.endswith(FATAL):
        assert ledger.count("failed") == 1
    if "failed" in ledger:
        assert not [line for line in ledger[ledger.index("failed") :] if line.startswith("done")]
    judge_directory([line for line in ledger if line != "failed"], directory)


@pytest.mark.parametrize("operation", TAKING_OVER)
def test_an_input_output_error_while_taking_over(directory: Path, operation: str) -> None:
    first = work(directory, "after sync data:40", 2, "thread")
    second = work(directory, f"before {operation}:1:EIO", 2, "thread", status=1)
    assert second.stdout == ""
    assert "StoreUnavailable" in second.stderr
    judge_directory(first.stdout.splitlines(), directory)


@pytest.mark.parametrize("way", WAYS)
def test_the_ledger_of_an_undisturbed_run_is_kept_to_the_letter(directory: Path, way: str) -> None:
    done = work(directory, "nowhere:1", 5, way, status=0)
    ledger = done.stdout.splitlines()
    answered = {line.removeprefix("done ") for line in ledger if line.startswith("done ")}
    assert len(ledger) > 500
    assert answered == {line.removeprefix("try ") for line in ledger if line.startswith("try ")}
    judge_directory(ledger, directory)


class VolatileFiles(JournalFiles):
    """A disk with a write cache: what was not synced when the power fails is on it sector by sector, or not."""

    SECTOR = 512

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory)
        self._random = random.Random(seed)
        self._cache: list[tuple[int, bytes, int]] = []
        self._creating = False

    def create(self, file_id: int, preallocate_bytes: int = 0, *, is_claim: bool = False) -> int:
        self._creating = True
        try:
            return super().create(file_id, preallocate_bytes, is_claim=is_claim)
        finally:
            self._creating = False

    def replace(self, file_id: int, content: Sequence[bytes | memoryview], *fence: Callable[[], None]) -> None:
        self._creating = True  # it syncs what it writes, before anyone sees it
        try:
            super().replace(file_id, content, *fence)
        finally:
            self._creating = False

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
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
    monkeypatch.setattr(group_commit, "INLINE_WAITERS_MAX", group_commit.INLINE_WAITERS_MAX)  # `written` sets it
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
