# mypy: disable-error-code="arg-type, call-arg"
"""The journal is its own fence: regardless of the lock, a former master confirms nothing that a new one has not read.

All members here believe that they hold the lock. What one does is put between any two calls of the operating system
that the other makes, one place after the other, for the journal of messages and for that of scheduled ones.
"""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import BrokerError, LockNotHeld
from pybroker.broker.domain.jobs import Job, JobStore
from pybroker.broker.domain.ports import MessageStore
from pybroker.store.journal import writer
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.store import JournalStore
from pybroker.store.scheduler.store import JournalJobStore
from tests.compiled import interpreted
from tests.conformance.conftest import Loop
from tests.runtimes import runtime
from tests.unit.store.test_journal_store import message

QUEUE = queue("Q")
SETTINGS = JournalSettings(file_bytes_max=3000, batch_bytes_max=1500)
SECONDS = 20
SHORT, LONG = 10, 2500
"""Bodies: of the second kind each begins a data file."""

CALLS = ("open", "stat", "fstat", "listdir", "scandir", "pread", "pwritev", "fsync", "fdatasync", "replace", "unlink")


class Member:
    """A store whose lock is always held."""

    store: MessageStore | JobStore

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory
        self.loop = Loop()
        self.failures: list[Exception] = []
        self.options = {
            "settings": SETTINGS,
            "runtime": runtime(self.loop.call_soon, fence=lambda: self.check(), on_failure=self.failures.append),
            **options,
        }
        self.check: Callable[[], None] = lambda: None

    def open(self) -> set[str]:
        raise NotImplementedError

    def add(self, name: str, size: int) -> None:
        raise NotImplementedError

    def remove(self, name: str) -> None:
        raise NotImplementedError

    def confirms(self, name: str, size: int = SHORT) -> bool:
        """Store something; return True if it was confirmed."""
        try:
            self.add(name, size)
        except BrokerError:
            assert self.failures
            return False
        return self._is_confirmed()

    def rest(self) -> None:
        """Wait until the writer's thread has nothing to do."""
        resting = threading.Event()
        self.store._writer.submit(resting.set)  # type: ignore[union-attr]
        assert resting.wait(SECONDS)

    def forgets(self, name: str) -> bool:
        """Remove something, and clean up; return True if that was confirmed."""
        self.remove(name)
        assert self._is_confirmed()
        self.store.cleanup()
        self.loop.run_until(lambda: bool(self.failures) or not self.store.is_cleaning)  # type: ignore[union-attr]
        return not self.failures

    def _is_confirmed(self) -> bool:
        confirmed: list[bool] = []
        self.store.when_durable(lambda: confirmed.append(True))
        self.loop.run_until(lambda: bool(confirmed or self.failures))
        return bool(confirmed)


class Messages(Member):
    """A store of messages."""

    def open(self) -> set[str]:
        self.store = JournalStore(self.directory, **self.options)
        self._ids: dict[str, str] = {}
        return {name.rpartition(":")[2] for name in self.store.recover().queues.get(QUEUE, ())}

    def add(self, name: str, size: int) -> None:
        added = message(int(name), size)
        self._ids[name] = added.message_id
        self.store.add(added)

    def remove(self, name: str) -> None:
        self.store.remove(QUEUE, self._ids[name])


class Jobs(Member):
    """A store of scheduled messages."""

    def open(self) -> set[str]:
        self.store = JournalJobStore(self.directory, **self.options)
        self._jobs = {job.job_id: job for job in self.store.recover()}
        return set(self._jobs)

    def add(self, name: str, size: int) -> None:
        self._jobs[name] = Job(job_id=name, start_time=1, next_time=1000, data=message(int(name), size).data)
        self.store.add(self._jobs[name])

    def remove(self, name: str) -> None:
        self.store.remove(self._jobs[name])


class Interruption:
    """Calls `act` once, before the `ordinal`-th call of the operating system while it is on. Interpreted code only.

    Calls of other threads count unless `is_main_only`: then `act` may wait for them.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, act: Callable[[], None], ordinal: int, *, is_main_only: bool = False
    ) -> None:
        self.count = 0
        self._thread = threading.current_thread() if is_main_only else None
        self._act = act
        self._ordinal = ordinal
        self._is_on = False
        for name in CALLS:
            patch.setattr(os, name, self._around(getattr(os, name)))

    def __enter__(self) -> "Interruption":
        self._is_on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_on = False

    @property
    def has_happened(self) -> bool:
        return self.count >= self._ordinal

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if self._is_on and self._thread in (None, threading.current_thread()):
                self.count += 1
                if self.count == self._ordinal:
                    self._is_on = False
                    self._act()
                    self._is_on = True
            return call(*arguments, **options)

        return wrapped


@pytest.fixture(params=[Messages, Jobs])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """Make members on one directory; what the last one finds is sound."""
    made: list[Member] = []

    def make(**options: Any) -> Member:
        made.append(request.param(tmp_path / "kahadb", **options))
        return made[-1]

    yield make
    for member in made:
        if hasattr(member, "store"):
            member.store.abandon()


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep idle writers from looking by themselves, so that each run makes the same calls."""
    monkeypatch.setattr(writer, "OWNER_SECONDS", 3600.0)


def find(make: Callable[..., Member]) -> set[str]:
    """Return what yet another master finds."""
    member = make()
    found = member.open()
    member.store.abandon()
    return found


def every_place(make: Callable[..., Member], scenario: Callable[[int, Path], bool], directory: Path) -> None:
    """Go through a scenario, interrupted at one place after the other, until there is none."""
    places = 0
    while scenario(places + 1, directory / str(places)):
        places += 1
    assert places > 5


@interpreted
@pytest.mark.usefixtures("no_looks")
@pytest.mark.parametrize("size", [SHORT, LONG])
@pytest.mark.parametrize("kind", [Messages, Jobs])
def test_former_master_goes_on_at_any_place_of_a_promotion(kind: type[Member], size: int, tmp_path: Path) -> None:
    def scenario(ordinal: int, directory: Path) -> bool:
        confirmed = {"1"}
        former, new = kind(directory), kind(directory)
        former.open()
        assert former.confirms("1")
        former.rest()

        def go_on() -> None:
            for name in ("2", "3"):
                if former.confirms(name, size):
                    confirmed.add(name)

        with (
            pytest.MonkeyPatch.context() as patch,
            Interruption(patch, go_on, ordinal, is_main_only=True) as interruption,
        ):
            found = new.open()
        assert confirmed <= found, f"at call {ordinal}"
        assert new.confirms("8")
        assert not former.confirms("9"), f"at call {ordinal}"
        assert isinstance(former.failures[0], LockNotHeld)
        former.store.abandon()
        new.store.abandon()
        last = kind(directory)
        assert last.open() == found | {"8"}
        last.store.abandon()
        return interruption.has_happened

    every_place(kind, scenario, tmp_path)


@interpreted
@pytest.mark.usefixtures("no_looks")
@pytest.mark.parametrize("size", [SHORT, LONG])
@pytest.mark.parametrize("kind", [Messages, Jobs])
def test_new_master_takes_over_at_any_place_of_a_batch(kind: type[Member], size: int, tmp_path: Path) -> None:
    def scenario(ordinal: int, directory: Path) -> bool:
        former, new = kind(directory), kind(directory)
        former.open()
        assert former.confirms("1")
        former.rest()
        found: set[str] = set()

        def take_over() -> None:
            found.update(new.open())
            assert new.confirms("8", LONG)
            assert new.confirms("9", LONG)

        with pytest.MonkeyPatch.context() as patch, Interruption(patch, take_over, ordinal) as interruption:
            confirmed = {name for name in ("2", "3") if former.confirms(name, size)}
        if interruption.has_happened:
            assert {"1"} | confirmed <= found, f"at call {ordinal}"
            assert not former.confirms("7")
            new.store.abandon()
            last = kind(directory)
            assert last.open() == found | {"8", "9"}
            last.store.abandon()
        former.store.abandon()
        return interruption.has_happened

    every_place(kind, scenario, tmp_path)


def test_a_file_behind_removed_ones_is_not_begun(make: Callable[..., Member]) -> None:
    """A master that was frozen for long: its own file and the next numbers are gone, so they can be created again."""
    former, new = make(), make()
    former.open()
    assert former.confirms("1")
    new.open()
    new.remove("1") if isinstance(new, Jobs) else new.store.remove(QUEUE, former._ids["1"])  # type: ignore[attr-defined]
    for name in "3456":
        assert new.confirms(name, LONG)
    for name in "345":
        assert new.forgets(name)
    assert {1, 2, 3}.isdisjoint(data_files(new.directory))
    before = set(data_files(new.directory))
    assert not former.confirms("2", LONG)
    assert isinstance(former.failures[0], LockNotHeld)
    assert before == set(data_files(new.directory)), "what it began in vain is gone again"
    new.store.abandon()
    assert find(make) == {"6"}


def test_a_claim_that_was_overtaken_is_made_again(make: Callable[..., Member], monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of files was old when the highest number was read from it: since then two files came, one went."""
    former, new = make(), make()
    former.open()
    assert former.confirms("1")
    taken = max(data_files(former.directory))
    opens = os.open

    def opened_late(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_EXCL:
            monkeypatch.setattr(os, "open", opens)
            assert former.confirms("2", LONG)
            assert former.confirms("3", LONG)
            assert former.forgets("2")
            assert taken + 1 not in data_files(former.directory)
        return opens(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", opened_late)
    found = new.open()
    assert found == {"1", "3"}
    assert not former.confirms("4")
    new.store.abandon()
    assert find(make) == found


def test_promotion_that_fails_behind_its_claim_leaves_it(make: Callable[..., Member]) -> None:
    """Three members: the first to claim a number fails when the second has read, and has not sealed yet."""
    former, failing, new = make(), make(), make()
    former.open()
    assert former.confirms("1")
    has_claimed, may_fail = threading.Event(), threading.Event()
    errors: list[Exception] = []
    confirmed: list[bool] = []

    def fail() -> None:
        if len(data_files(failing.directory)) > 1:
            has_claimed.set()
            assert may_fail.wait(SECONDS)
            raise LockNotHeld("lost")

    def promote() -> None:
        try:
            failing.open()
        except LockNotHeld as error:
            errors.append(error)

    thread = threading.Thread(target=promote)

    def go_on() -> None:
        if len(data_files(failing.directory)) > 2 and not confirmed:
            may_fail.set()
            thread.join()
            confirmed.append(former.confirms("2"))

    failing.check, new.check = fail, go_on
    thread.start()
    assert has_claimed.wait(SECONDS)
    assert new.open() == {"1"}
    assert errors
    assert confirmed == [False]
    assert new.confirms("3")
    new.store.abandon()
    assert find(make) == {"1", "3"}


def test_an_idle_former_master_notices(make: Callable[..., Member]) -> None:
    former, new = make(), make()
    former.open()
    new.open()
    former.loop.run_until(lambda: bool(former.failures))
    assert isinstance(former.failures[0], LockNotHeld)
    assert not new.failures


def test_bytes_that_changed_since_the_replay_are_not_sealed(
    make: Callable[..., Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    former, new = make(settings=replace(SETTINGS, checksum=False)), make()
    former.open()
    assert former.confirms("1", 500)
    former.store.abandon()
    path = data_files(former.directory)[1]
    before = path.stat().st_ino

    def damage() -> None:
        data = path.read_bytes()
        path.write_bytes(data.replace(b"x" * 9, b"y" * 9, 1))

    checks = iter(range(100))
    new.check = lambda: damage() if next(checks) == 1 else None  # behind the claim and the reading
    with pytest.raises(BrokerError, match="other bytes than a moment ago"):
        new.open()
    assert path.stat().st_ino == before
