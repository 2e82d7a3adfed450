"""The watch over a pair: what it reports and when, and that a store that hangs is its finding."""

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest

from pybroker.broker.app import pair_watch
from pybroker.broker.app.ha_events import HaEvent, HaEventKind
from pybroker.broker.app.pair_examination import OwnFacts
from pybroker.broker.app.pair_judgement import PairFacts
from pybroker.broker.app.pair_watch import PairWatch
from pybroker.broker.domain.admin import Totals
from pybroker.broker.domain.network.rows import BridgeRow, IncomingBridgeRow
from pybroker.broker.domain.role import Role
from pybroker.store.members import Followed, PublishedEnd

SECONDS = 20.0


class Run:
    """A run of a member."""

    def __init__(self, role: Role = Role.STANDBY, *, is_waiting: bool = True) -> None:
        self.role = role
        self.is_waiting = is_waiting

    def journal_problem(self) -> str:
        return ""

    def followed(self) -> Followed | None:
        return None

    def totals(self) -> Totals | None:
        return None

    def bridges(self) -> Sequence[BridgeRow]:
        return ()

    def incoming_bridges(self) -> Sequence[IncomingBridgeRow]:
        return ()

    def journal_end(self) -> PublishedEnd | None:
        return None

    def lock_times(self) -> tuple[int, int]:
        return 0, 0


class Pair:
    """A pair whose state the test sets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.problem = ""
        self.failure: Exception | None = None
        self.answers = threading.Event()
        self.looks = 0
        self.changes = 0
        self.events: list[HaEvent] = []
        self.watch = PairWatch("b", self.examine, self.events.append)
        self.watch.node = Run()
        self.watch.changed = self.count_change

    def examine(self, own: OwnFacts) -> PairFacts:
        assert self.answers.wait(SECONDS)
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        facts = PairFacts(role=own.role, name=own.name, now=own.now, directory="")
        return replace(facts, store_problem=self.problem)

    def hang(self) -> None:
        """Have the store hang, from now on a finding: until then a look that a busy machine delays may be none."""
        self.answers.clear()
        self._patch.setattr(pair_watch, "HANG_SECONDS", 0.1)

    def answer(self) -> None:
        """Have the store answer again."""
        self._patch.setattr(pair_watch, "HANG_SECONDS", SECONDS)
        self.answers.set()

    def count_change(self) -> None:
        self.changes += 1

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def look(self) -> None:
        """Wait for two looks: the second one begins after this."""
        seen = self.looks
        await self.until(lambda: self.looks > seen + 1)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.watch.run())
        try:
            yield
        finally:
            self.answers.set()
            task.cancel()


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr(pair_watch, "LOOK_SECONDS", 0.005)
    pair = Pair(monkeypatch)
    pair.answer()
    return pair


def kinds(pair: Pair) -> list[HaEventKind]:
    return [each.kind for each in pair.events]


def test_a_degraded_pair_is_reported_once_and_so_is_its_end(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with pair.running():
            await pair.look()
            assert pair.events == []
            assert pair.watch.examined().clean_ms > 0
            pair.problem = "the lock cannot be opened"
            await pair.until(lambda: pair.events)
            for _ in range(5):
                await pair.look()
            assert pair.watch.obstacle() == pair.problem
            assert pair.watch.examined().checked_ms > pair.watch.examined().clean_ms
            pair.problem = ""
            await pair.until(lambda: len(pair.events) > 1)
            await pair.look()

    caplog.set_level("INFO", logger=pair_watch.__name__)
    asyncio.run(scenario())
    assert kinds(pair) == [HaEventKind.DEGRADED, HaEventKind.HEALTHY]
    assert pair.events[0].reasons == ("the lock cannot be opened",)
    degraded, healthy = [record.getMessage() for record in caplog.records]
    assert degraded == "degraded: this standby could not serve if it became master now: the lock cannot be opened"
    assert re.fullmatch(r"healthy again after \d+ s", healthy)
    assert pair.changes == 3  # the first look, and both changes: the entry is written at once


def test_a_store_that_hangs_is_the_finding_until_it_answers(pair: Pair) -> None:
    async def scenario() -> None:
        async with pair.running():
            await pair.look()
            pair.hang()
            await pair.until(lambda: pair.events)
            assert re.fullmatch(r"the store has not answered for \d+ s", pair.watch.obstacle())
            checked = pair.watch.examined().checked_ms
            await asyncio.sleep(0)
            assert pair.watch.examined().checked_ms == checked
            pair.answer()
            await pair.until(lambda: len(pair.events) > 1)

    asyncio.run(scenario())
    assert kinds(pair) == [HaEventKind.DEGRADED, HaEventKind.HEALTHY]


def test_a_watch_that_ends_does_not_wait_for_a_hanging_store(pair: Pair) -> None:
    async def scenario() -> None:
        task = asyncio.create_task(pair.watch.run())
        await pair.look()
        pair.hang()
        await pair.until(lambda: pair.events)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    pair.answers.set()


def test_a_member_that_has_not_tried_the_lock_yet_finds_nothing(pair: Pair) -> None:
    async def run() -> None:
        pair.problem = "there is no lock file"
        pair.watch.node = node = Run(is_waiting=False)
        async with pair.running():
            for _ in range(5):  # intervals of looks
                await asyncio.sleep(pair_watch.LOOK_SECONDS)
            assert pair.looks == 0
            node.is_waiting = True
            await pair.until(lambda: pair.events)

    asyncio.run(run())


def test_a_master_has_no_obstacle_but_warnings(pair: Pair) -> None:
    async def scenario() -> None:
        pair.watch.node = Run(Role.MASTER)
        pair.problem = "the members cannot be read"
        async with pair.running():
            await pair.until(lambda: pair.events)

    asyncio.run(scenario())
    assert pair.watch.obstacle() == ""
    assert pair.watch.examined().warnings == ("the members cannot be read",)


def test_a_member_that_changes_its_role_stays_as_it_was(pair: Pair) -> None:
    """What was wrong with a standby is neither wrong with the master that it becomes, nor mended by that."""

    async def scenario() -> None:
        run = Run()
        pair.watch.node = run
        pair.problem = "wrong"
        async with pair.running():
            await pair.until(lambda: pair.events)
            run.role = Role.PROMOTING
            await asyncio.sleep(0.05)
            assert kinds(pair) == [HaEventKind.DEGRADED]
            run.role, pair.problem = Role.MASTER, ""
            await pair.until(lambda: len(pair.events) > 1)

    asyncio.run(scenario())
    assert pair.events[1].role is Role.MASTER


def test_an_unexpected_error_is_a_finding_and_logged(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        pair.failure = RuntimeError("a bug")
        async with pair.running():
            await pair.until(lambda: pair.events)
            pair.failure = None
            await pair.until(lambda: len(pair.events) > 1)

    asyncio.run(scenario())
    assert pair.events[0].reasons == ("unexpected: RuntimeError('a bug')",)
    assert "looking at the pair failed unexpectedly" in caplog.text
