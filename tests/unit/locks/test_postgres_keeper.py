# mypy: disable-error-code="comparison-overlap"
"""The thread that renews a lock, on a clock turned by hand and a session whose answers the test sets."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pybroker.broker.domain.errors import DatabaseUnavailable

pytest.importorskip("psycopg2", reason="install pybroker[postgres]")

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.locks.postgres import keeper as module
from pybroker.locks.postgres.keeper import Keeper
from pybroker.locks.postgres.session import Interrupt, Interrupted
from pybroker.locks.postgres.timing import Timing

WAIT_SECONDS = 20
TIMING = Timing.of(9.0)  # renewed every 3 s, good for 7.5 s


class FakeSession:
    """Sleeps until it is poked or interrupted."""

    is_closed = False
    backend_pid = 1

    def __init__(self) -> None:
        self.pokes = threading.Semaphore(0)
        self.asleep = threading.Event()

    def idle(self, seconds: float, interrupt: Interrupt) -> None:
        self.asleep.set()
        while not self.pokes.acquire(timeout=0.002):
            if interrupt.is_set():
                raise Interrupted
        self.asleep.clear()

    def set_interrupt(self, interrupt: Interrupt | None) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class World:
    """A clock, sessions, and what the database answers."""

    def __init__(self) -> None:
        self.time = 100.0
        self.answer: Callable[[], None] = lambda: None
        self.session = FakeSession()
        self.check_count = 0
        self.reopened = 0
        self.reopen: Callable[[], None] = lambda: None
        self.keepers: list[Keeper] = []

    def keep(self, *, outlives: bool = False, grace_seconds: float | None = None) -> Keeper:
        session: Any = self.session
        keeper = Keeper(
            session,
            name="lock",
            timing=TIMING,
            confirmed_at=self.time,
            confirm=self._confirm,
            reopen=self._reopen if outlives or grace_seconds is not None else None,
            grace_seconds=grace_seconds,
        )
        self.keepers.append(keeper)
        assert self.session.asleep.wait(WAIT_SECONDS)
        return keeper

    def confirm_once(self) -> None:
        """Have the thread check once, and return when it sleeps again or has ended."""
        self.session.asleep.clear()
        self.session.pokes.release()
        while not (self.session.asleep.wait(0.002) or not self.keepers[-1]._thread.is_alive()):
            pass

    def _confirm(self, session: Any, seconds: float) -> None:
        self.check_count += 1
        self.answer()

    def _reopen(self, seconds: float, interrupt: Interrupt) -> Any:
        self.reopened += 1
        self.reopen()
        self.session = FakeSession()
        return self.session


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    monkeypatch.setattr(module, "now", lambda: world.time)
    monkeypatch.setattr(Interrupt, "wait", lambda interrupt, seconds: wait(world, seconds))
    yield world
    for keeper in world.keepers:
        keeper.stop()


def wait(world: World, seconds: float) -> None:
    world.time += seconds


def fail(error: Exception) -> Callable[[], None]:
    def answer() -> None:
        raise error

    return answer


def unreachable() -> DatabaseUnavailable:
    return DatabaseUnavailable("here", "no answer in time")


@pytest.mark.parametrize("outlives", [False, True])
def test_check_fails_by_itself_once_the_time_is_over(world: World, outlives: bool) -> None:
    """The thread has not run yet, as after SIGCONT."""
    keeper = world.keep(outlives=outlives)
    world.time += 7.4
    keeper.check()
    world.time += 0.1
    with pytest.raises(LockNotHeld, match=r"not confirmed for 7\.5 s"):
        keeper.check()
    assert world.check_count == 0


def test_a_confirmation_counts_from_the_start_of_its_question(world: World) -> None:
    keeper = world.keep()
    world.time += 3

    def slowly() -> None:
        world.time += 2

    world.answer = slowly
    world.confirm_once()
    world.time = 103 + 7.4
    keeper.check()
    world.time = 103 + 7.5
    assert keeper.is_lost()


def test_a_confirmation_that_comes_too_late_revives_nothing(world: World) -> None:
    keeper = world.keep()
    world.time += 3

    def too_slowly() -> None:
        world.time += 5

    world.answer = too_slowly
    world.confirm_once()
    world.time = 100  # even if the clock showed otherwise
    with pytest.raises(LockNotHeld, match=r"took 5\.0 s, longer than the lock is valid"):
        keeper.check()


def test_a_thread_that_wakes_up_too_late_checks_no_more(world: World) -> None:
    keeper = world.keep()
    world.time += 8
    world.confirm_once()
    assert world.check_count == 0
    assert keeper.is_lost()


def test_a_lock_that_lives_in_its_session_dies_with_it(world: World) -> None:
    keeper = world.keep()
    world.answer = fail(unreachable())
    world.confirm_once()
    with pytest.raises(LockNotHeld, match="lock: no answer in time"):
        keeper.check()
    assert world.session.is_closed
    assert world.check_count == 1


def test_lock_outliving_its_session_is_confirmed_on_another(world: World) -> None:
    keeper = world.keep(outlives=True)
    broken = world.session

    def break_once() -> None:
        broken.is_closed = True
        world.answer = lambda: None
        raise unreachable()

    world.answer = break_once
    broken.pokes.release()
    while not world.reopened:
        assert keeper._thread.is_alive()
    assert world.session.asleep.wait(WAIT_SECONDS)
    keeper.check()
    assert world.check_count == 2


def test_other_sessions_are_tried_until_the_time_limit(world: World) -> None:
    keeper = world.keep(outlives=True)
    world.time += 3
    world.answer = fail(unreachable())
    world.confirm_once()
    assert keeper.is_lost()
    assert world.check_count > 10
    assert world.time == pytest.approx(107.5)


def test_a_lock_held_by_another_ends_it_at_once(world: World) -> None:
    keeper = world.keep(outlives=True)
    world.answer = fail(LockNotHeld("the row names another"))
    world.confirm_once()
    with pytest.raises(LockNotHeld, match="the row names another"):
        keeper.check()


def test_a_bug_in_the_thread_is_a_lost_lock(world: World, caplog: pytest.LogCaptureFixture) -> None:
    keeper = world.keep()
    world.answer = fail(ZeroDivisionError("oops"))
    world.confirm_once()
    with pytest.raises(LockNotHeld, match="oops"):
        keeper.check()
    assert "failed unexpectedly" in caplog.text


def test_stop_hands_the_session_over_while_the_lock_is_held(world: World) -> None:
    keeper = world.keep()
    assert keeper.stop() is world.session
    assert not world.session.is_closed


def test_stop_of_a_lost_lock_hands_nothing_over(world: World) -> None:
    keeper = world.keep()
    world.answer = fail(unreachable())
    world.confirm_once()
    assert keeper.stop() is None
    assert world.session.is_closed


# ---------------------------------------------------------------- in doubt


class Held:
    """Holds the keeper's thread at one place, where it waits for the test."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._go = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self._go.wait(WAIT_SECONDS)

    def go(self) -> None:
        self._go.set()


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.go()


def time_flies(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each look at the clock cost a hundredth of a second, with a twentieth left to the end of the hold."""
    world.time = 100 + TIMING.hold_seconds - 0.05

    def now() -> float:
        world.time += 0.01
        return world.time

    monkeypatch.setattr(module, "now", now)


def test_closed_session_is_a_doubt_at_once(world: World, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = world.keep(grace_seconds=2)

    def break_and_stop_there() -> None:
        world.session.close()
        held()
        raise unreachable()

    world.answer = break_and_stop_there
    world.session.pokes.release()
    assert held.reached.wait(WAIT_SECONDS)
    assert keeper.backend_pid is None
    keeper.check()
    time_flies(world, monkeypatch)
    with pytest.raises(LockNotHeld):
        keeper.check_surely()


def test_idle_closed_session_is_a_doubt_until_reacquired(world: World, held: Held) -> None:
    keeper = world.keep(grace_seconds=2)
    world.reopen = held
    world.session.close()
    world.session.pokes.release()
    assert held.reached.wait(WAIT_SECONDS)
    world.time += 2  # no longer than the grace, though the lock was to be good for 7.5 s
    with pytest.raises(LockNotHeld):
        keeper.check_surely()


@pytest.mark.parametrize("won", [True, False])
def test_check_in_doubt_returns_the_databases_answer(world: World, held: Held, won: bool) -> None:
    keeper = world.keep(grace_seconds=2)
    broken = world.session

    def break_once() -> None:
        world.answer = lambda: None
        broken.close()
        raise unreachable()

    def reopen() -> None:
        held()
        if not won:
            raise LockNotHeld("another member holds it now")

    world.answer, world.reopen = break_once, reopen
    broken.pokes.release()
    assert held.reached.wait(WAIT_SECONDS)
    threading.Timer(0.01, held.go).start()
    if won:
        keeper.check_surely()
        assert world.session is not broken
        assert world.check_count == 2
    else:
        with pytest.raises(LockNotHeld, match="another member holds it now"):
            keeper.check_surely()


def test_doubt_lasts_for_the_grace_despite_retries(world: World) -> None:
    keeper = world.keep(grace_seconds=2)
    world.time += 1
    world.session.close()
    world.reopen = fail(unreachable())
    world.confirm_once()
    assert keeper.is_lost()
    assert world.reopened > 5
    assert world.time == pytest.approx(103)


def test_lock_without_grace_is_lost_with_its_session(world: World, held: Held) -> None:
    keeper = world.keep()

    def break_and_stop_there() -> None:
        world.session.close()
        held()
        raise unreachable()

    world.answer = break_and_stop_there
    world.session.pokes.release()
    assert held.reached.wait(WAIT_SECONDS)
    threading.Timer(0.01, held.go).start()
    with pytest.raises(LockNotHeld, match="no answer in time"):
        keeper.check_surely()


def test_a_lock_released_in_doubt_keeps_no_one_waiting(world: World, held: Held) -> None:
    keeper = world.keep(grace_seconds=2)
    world.session.close()

    def interrupt() -> None:
        held()
        raise Interrupted

    world.reopen = interrupt
    world.session.pokes.release()
    assert held.reached.wait(WAIT_SECONDS)
    threading.Timer(0.01, held.go).start()
    with pytest.raises(LockNotHeld, match="ended before it was released"):
        keeper.check_surely()
