"""The begin of a batch: the sends it waits for, and those it does not."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.store.group_commit import GroupCommit
from pybroker.store.jdbc.fence import MESSAGES, Fence
from pybroker.store.jdbc.sink import COMMIT_POLICY, DatabaseSink, Tables
from tests.conformance.conftest import WAIT_SECONDS, Loop
from tests.runtimes import runtime

FENCE = Fence(MESSAGES, 7)


@dataclass
class Batch:
    byte_count: int = 0
    is_long: bool = False


class FakeDatabase:
    """Takes every commit, and counts what is in it."""

    is_closed = False

    def __init__(self) -> None:
        self.sizes: list[int | bytes] = []
        self.gate: threading.Event | None = None
        self.is_taken_over = False

    def execute(self, message: int | bytes, *, seconds: float | None = None) -> None:
        if self.gate is not None:
            assert self.gate.wait(WAIT_SECONDS)
        if self.is_taken_over:
            raise LockNotHeld("another broker has taken the database over")
        self.sizes.append(message)

    def interrupt(self) -> None:
        """Nothing is under way for long."""

    def close(self) -> None:
        """There is nothing to close."""


class Desk:
    """A writer with its surroundings."""

    def __init__(self) -> None:
        self.loop, self.database, self.batch = Loop(), FakeDatabase(), Batch()
        self.timers: list[Callable[[], None]] = []
        self.answered = 0
        world = runtime(
            self.loop.call_soon,
            on_failure=self._fail,
            call_later=lambda _, callback: self.timers.append(callback),
        )
        tables = Tables[Batch](lambda _, __, batch: [batch.byte_count], lambda _, __: False)  # type: ignore[list-item]
        connect: Any = None
        sink = DatabaseSink(self.database, connect, FENCE, tables, world)  # type: ignore[arg-type]
        self.writer = GroupCommit(self, sink, COMMIT_POLICY, world)
        self.writer.start()

    @property
    def open_bytes(self) -> int:
        return self.batch.byte_count

    def take(self) -> Batch:
        taken, self.batch = self.batch, Batch()
        return taken

    def _fail(self, error: Exception) -> None:
        raise error

    def _answer(self) -> None:
        self.answered += 1

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            self.batch.byte_count += 1
            self.writer.wake()
            self.writer.when_durable(self._answer)

    def run_until_answered(self, count: int) -> None:
        self.loop.run_until(lambda: self.answered == count)

    def turns(self) -> None:
        for _ in range(3):
            self.loop.turn()


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.writer.close()


def test_one_who_was_answered_is_served_at_once(desk: Desk) -> None:
    for number in range(1, 4):
        desk.send()
        desk.run_until_answered(number)
    assert desk.database.sizes == [1, 1, 1]
    assert not desk.timers


def test_a_batch_waits_for_those_who_were_just_answered(desk: Desk) -> None:
    desk.send(3)
    desk.run_until_answered(3)
    desk.send(2)
    desk.turns()
    assert desk.database.sizes == [3], "the third one may come yet"
    desk.send()
    desk.run_until_answered(6)
    assert desk.database.sizes == [3, 3]


def test_batch_waits_for_expected_sends_only_briefly(desk: Desk) -> None:
    desk.send(3)
    desk.run_until_answered(3)
    desk.send(2)
    desk.turns()
    desk.timers.pop()()
    desk.run_until_answered(5)
    assert desk.database.sizes == [3, 2]


def test_late_and_answered_callbacks_share_the_next_batch(desk: Desk) -> None:
    desk.send(2)
    desk.turns()  # on its way
    desk.send(2)
    desk.run_until_answered(2)
    desk.send(2)
    desk.run_until_answered(6)
    assert desk.database.sizes == [2, 4]


def test_callback_without_changes_waits_only_for_the_fence(desk: Desk) -> None:
    desk.writer.notify([desk._answer, desk._answer])
    assert not desk.answered
    desk.run_until_answered(2)
    assert desk.database.sizes == [FENCE.look]


def test_callbacks_during_a_fence_check_share_the_next(desk: Desk) -> None:
    desk.database.gate = threading.Event()
    for _ in range(4):
        desk.writer.notify([desk._answer])
        desk.turns()
    desk.database.gate.set()
    desk.run_until_answered(4)
    assert desk.database.sizes == [FENCE.look, FENCE.look]


def test_nothing_is_durable_before_earlier_waiters_are_notified(desk: Desk) -> None:
    notified: list[str] = []
    desk.writer.notify([lambda: notified.append("consumed")])
    desk.writer.when_durable(lambda: notified.append("durable"))
    desk.loop.run_until(lambda: len(notified) == 2)
    assert notified == ["consumed", "durable"]


def test_no_one_is_notified_behind_a_closed_fence(desk: Desk) -> None:
    desk.database.is_taken_over = True
    desk.writer.notify([desk._answer])
    with pytest.raises(LockNotHeld):
        desk.loop.run_until(lambda: bool(desk.answered))
    desk.writer.notify([desk._answer])
    desk.turns()
    assert not desk.answered
    with pytest.raises(LockNotHeld):
        desk.writer.close()
    desk.writer._failure = None
