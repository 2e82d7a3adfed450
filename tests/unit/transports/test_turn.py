# mypy: disable-error-code="arg-type"
"""The end of a turn: disk before output, newest output first, and no one pays for another's bug."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from pybroker.transports.turn import (
    DEFERRED_PIECES,
    DEFERRED_SECONDS,
    GIVE_WAY_SECONDS,
    OUTPUT_SECONDS,
    PATIENCE_SECONDS,
    SPREAD_SECONDS,
    Turn,
)

Loop = asyncio.AbstractEventLoop


def run_turn(loop: Loop, act: Callable[[Turn, list[str]], None]) -> list[str]:
    """Return what was done, in its order, after `act` and the turn's end."""
    log: list[str] = []

    async def live() -> None:
        turn = Turn(loop)
        act(turn, log)
        assert not log, "nothing is done before the turn's end"
        await asyncio.sleep(0)

    loop.run_until_complete(live())
    return log


@pytest.fixture
def loop() -> Any:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_what_must_last_is_written_before_output_leaves(loop: Loop) -> None:
    def act(turn: Turn, log: list[str]) -> None:
        turn.output(lambda: log.append("output"))
        turn.commit(lambda: log.append("commit"))

    assert run_turn(loop, act) == ["commit", "output"]


def test_responses_of_a_commit_leave_first_in_its_turn(loop: Loop) -> None:
    def act(turn: Turn, log: list[str]) -> None:
        turn.output(lambda: log.append("dispatch"))
        turn.commit(lambda: turn.output(lambda: log.append("response")))

    assert run_turn(loop, act) == ["response", "dispatch"]


def test_commit_scheduled_by_a_commit_runs_before_output(loop: Loop) -> None:
    def act(turn: Turn, log: list[str]) -> None:
        turn.output(lambda: log.append("output"))
        turn.commit(lambda: turn.commit(lambda: log.append("second")))

    assert run_turn(loop, act) == ["second", "output"]


def test_a_bug_in_one_is_reported_and_the_others_are_done(loop: Loop) -> None:
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

    def act(turn: Turn, log: list[str]) -> None:
        turn.commit(lambda: 1 // 0)
        turn.commit(lambda: log.append("commit"))
        turn.output(lambda: 1 // 0)
        turn.output(lambda: log.append("output"))

    assert run_turn(loop, act) == ["commit", "output"]
    assert len(reported) == 2


def test_posted_callback_runs_and_its_output_leaves(loop: Loop) -> None:
    log: list[str] = []

    async def live() -> None:
        turn = Turn(loop)
        done = asyncio.Event()

        def posted() -> None:
            turn.output(lambda: (log.append("output"), done.set(), None)[2])
            log.append("posted")

        thread = threading.Thread(target=turn.post, args=(posted,))
        thread.start()
        async with asyncio.timeout(10):
            await done.wait()
        thread.join()

    loop.run_until_complete(live())
    assert log == ["posted", "output"]


class Clock:
    """A clock that stands still until a piece of work takes its time."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def test_deferred_work_follows_the_output_and_commits_with_the_next_turn(loop: Loop) -> None:
    log: list[str] = []

    async def live() -> None:
        turn = Turn(loop)
        turn.output(lambda: log.append("output"))
        turn.commit(lambda: log.append("commit"))
        turn.defer(lambda: (turn.commit(lambda: log.append("its commit")), log.append("piece"), None)[2])
        await asyncio.sleep(0)
        loop.call_soon(turn.commit, lambda: log.append("other commit"))
        await asyncio.sleep(0)
        assert log == ["commit", "output", "piece", "its commit"]

    loop.run_until_complete(live())


def test_deferred_work_beyond_the_time_limit_continues_in_the_next_turn(loop: Loop) -> None:
    clock, log = Clock(), list[int]()

    def piece(number: int) -> None:
        clock.now += DEFERRED_SECONDS * 0.4
        log.append(number)

    async def live() -> list[int]:
        turn = Turn(loop, clock)
        for number in range(7):
            turn.defer(partial(piece, number))
        done = []
        while len(log) < 7:
            await asyncio.sleep(0)
            done.append(len(log))
        return done

    assert loop.run_until_complete(live()) == [3, 6, 7], "a piece that is begun is finished, and no other is begun"
    assert log == list(range(7)), "first in, first out"


def test_deferred_work_beyond_the_piece_limit_continues_in_the_next_turn(loop: Loop) -> None:
    log: list[int] = []

    async def live() -> None:
        turn = Turn(loop, Clock())
        for number in range(DEFERRED_PIECES + 1):
            turn.defer(partial(log.append, number))
        await asyncio.sleep(0)
        assert len(log) == DEFERRED_PIECES
        await asyncio.sleep(0)

    loop.run_until_complete(live())
    assert log == list(range(DEFERRED_PIECES + 1))


def test_piece_that_defers_itself_continues_behind_the_others(loop: Loop) -> None:
    clock, log = Clock(), list[str]()

    async def live() -> None:
        turn = Turn(loop, clock)

        def endless() -> None:
            clock.now += DEFERRED_SECONDS * 0.4
            log.append("endless")
            turn.defer(endless)

        turn.defer(endless)
        turn.defer(lambda: log.append("other"))
        await asyncio.sleep(0)
        assert log == ["endless", "other", "endless", "endless"]
        turn.defer(lambda: log.append("later"))
        await asyncio.sleep(0)
        assert log[4:] == ["endless", "later", "endless", "endless"]

    loop.run_until_complete(live())


def test_error_in_a_piece_is_reported_and_the_others_run(loop: Loop) -> None:
    reported: list[str] = []
    loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

    def act(turn: Turn, log: list[str]) -> None:
        turn.defer(lambda: 1 // 0)
        turn.defer(lambda: log.append("piece"))
        turn.output(lambda: log.append("output"))

    assert run_turn(loop, act) == ["output", "piece"]
    assert len(reported) == 1


def test_posted_callback_does_not_extend_the_time_of_deferred_work(loop: Loop) -> None:
    log: list[str] = []

    async def live() -> None:
        turn = Turn(loop, Clock())
        turn.post(lambda: turn.defer(lambda: log.append("piece")))
        turn.post(lambda: log.append("posted"))
        await asyncio.sleep(0)
        assert log == ["posted"]
        await asyncio.sleep(0)

    loop.run_until_complete(live())
    assert log == ["posted", "piece"]


def test_output_to_thousands_is_divided_and_that_of_the_next_turn_goes_first(loop: Loop) -> None:
    clock, log = Clock(), list[str]()

    def flush(name: str) -> None:
        clock.now += 0.00005
        log.append(name)

    async def live() -> int:
        turn = Turn(loop, clock)
        for number in range(2000):
            turn.output(partial(flush, str(number)))
        begun = clock.now
        await asyncio.sleep(0)
        assert clock.now - begun < 2 * OUTPUT_SECONDS + 0.002
        first = len(log)
        turn.output(partial(flush, "response"))
        await asyncio.sleep(0)
        assert log[first] == "response"
        turns = 2
        while len(log) < 2001:
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert loop.run_until_complete(live()) < 2000 * 0.00005 / OUTPUT_SECONDS + 3
    assert sorted(log) == sorted([*map(str, range(2000)), "response"]), "each once"
    rest = [int(each) for each in log if each != "response"]
    assert rest == sorted(rest, reverse=True)


def test_output_that_is_written_while_late_output_is_goes_with_the_next_turn(loop: Loop) -> None:
    clock, log = Clock(), list[int]()

    async def live() -> None:
        turn = Turn(loop, clock)

        def flush(number: int) -> None:
            clock.now += 0.0005
            log.append(number)
            if number < 100:
                turn.output(partial(flush, number + 100))

        for number in range(100):
            turn.output(partial(flush, number))
        for _ in range(300):
            await asyncio.sleep(0)

    loop.run_until_complete(live())
    assert sorted(log) == list(range(200))


def test_timers_of_thousands_are_spread_over_turns_in_order(loop: Loop) -> None:
    clock, log = Clock(), list[int]()

    def expire(turn: Turn, number: int) -> None:
        clock.now += 0.0005
        log.append(number)
        if number == 0:
            turn.spread(partial(expire, turn, 1000))

    async def live() -> None:
        turn = Turn(loop, clock)
        for number in range(1000):
            turn.spread(partial(expire, turn, number))
        while len(log) < 1001:
            before, begun = len(log), clock.now
            await asyncio.sleep(0)
            assert len(log) > before
            assert clock.now - begun <= SPREAD_SECONDS + 0.001

    loop.run_until_complete(live())
    assert log == list(range(1001))


def test_what_a_thread_has_done_is_spread_over_turns(loop: Loop) -> None:
    """60 rendered messages of 3 MB, each written to a client with TLS, come back at the same moment."""
    clock, log = Clock(), list[int]()

    def write(number: int) -> None:
        clock.now += SPREAD_SECONDS / 2
        log.append(number)

    async def live() -> None:
        turn = Turn(loop, clock)
        for number in range(60):
            turn.post_spread(partial(write, number))
        await asyncio.sleep(0)
        while len(log) < 60:
            begun = clock.now
            await asyncio.sleep(0)
            assert clock.now - begun <= 1.5 * SPREAD_SECONDS

    loop.run_until_complete(live())
    assert log == list(range(60))


class TestGivingWay:
    """Short turns, each with a piece of 0.1 ms, in which the pauses for a thread are counted."""

    def pauses_of(self, loop: Loop, seconds: float, working: int) -> list[float]:
        clock, pauses = Clock(), list[float]()

        def sleep(duration: float) -> None:
            assert duration == 0
            pauses.append(round(clock.now - 100.0, 6))

        async def live() -> None:
            turn = Turn(loop, clock, sleep)
            turn.give_way(working)
            while clock.now < 100.0 + seconds:
                turn.defer(partial(clock.advance, 0.0001))
                await asyncio.sleep(0)

        loop.run_until_complete(live())
        return pauses

    def test_no_pause_without_a_thread_that_works(self, loop: Loop) -> None:
        assert not self.pauses_of(loop, 0.1, 0)

    def test_no_pause_while_a_thread_may_be_done_soon(self, loop: Loop) -> None:
        assert not self.pauses_of(loop, PATIENCE_SECONDS * 0.9, 1)

    def test_a_pause_at_intervals_until_the_thread_is_done(self, loop: Loop) -> None:
        pauses = self.pauses_of(loop, 0.01, 1)
        assert pauses[0] == pytest.approx(PATIENCE_SECONDS, abs=0.0002)
        assert all(b - a == pytest.approx(GIVE_WAY_SECONDS, abs=0.0002) for a, b in pairwise(pauses))
        assert len(pauses) == pytest.approx((0.01 - PATIENCE_SECONDS) / GIVE_WAY_SECONDS, abs=1)

    def test_no_pause_once_the_thread_is_done(self, loop: Loop) -> None:
        pauses, clock = list[float](), Clock()

        async def live() -> None:
            turn = Turn(loop, clock, pauses.append)
            turn.give_way(1)
            turn.give_way(-1)
            clock.now += 1.0
            turn.defer(lambda: None)
            await asyncio.sleep(0)

        loop.run_until_complete(live())
        assert not pauses

    def test_a_long_turn_pauses_between_its_pieces(self, loop: Loop) -> None:
        clock, log = Clock(), list[str]()

        def piece() -> None:
            clock.now += DEFERRED_SECONDS * 0.3
            log.append("piece")

        async def live() -> None:
            turn = Turn(loop, clock, lambda _: log.append("pause"))
            turn.give_way(1)
            clock.now += PATIENCE_SECONDS
            for _ in range(3):
                turn.defer(piece)
            await asyncio.sleep(0)

        loop.run_until_complete(live())
        assert log == ["piece", "pause", "piece", "pause", "piece", "pause"]


@pytest.mark.parametrize("end", ["none", "cancelled", "ended", "ended before"])
def test_timer_calls_back_once_unless_it_is_cancelled(loop: Loop, end: str) -> None:
    log: list[str] = []

    async def live() -> None:
        turn = Turn(loop)
        if end == "ended before":
            turn.end_timers()
        cancel = turn.after(0.001, partial(log.append, "called"))
        if end == "cancelled":
            cancel()
        if end == "ended":
            turn.end_timers()
        is_over = asyncio.Event()
        loop.call_later(0.002, is_over.set)
        await is_over.wait()
        await asyncio.sleep(0)
        cancel()

    loop.run_until_complete(live())
    assert log == (["called"] if end == "none" else [])
