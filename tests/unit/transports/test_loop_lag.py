"""The longest turn of the last minute: which one it is, what it did, and one line in the log."""

import asyncio
import logging
from functools import partial

import pytest

from pybroker.transports.loop_lag import LOG_SECONDS, PERIOD_SECONDS, PERIODS, TICK_SECONDS, WARNING_SECONDS, LoopLag
from pybroker.transports.turn import Turn


class Clock:
    """A clock that work moves."""

    def __init__(self) -> None:
        self.now = 500.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


class Peer:
    """A connection whose input takes its time."""

    virtual_finish = 0.0
    is_sparse = True
    served_turn = 0

    def __init__(self, peer: str, clock: Clock, seconds: float) -> None:
        self.peer = peer
        self._clock = clock
        self._seconds = seconds

    def proceed(self) -> bool:
        self._clock.work(self._seconds)
        return False

    def drop_input(self) -> None: ...


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_longest_turn_is_that_of_the_last_minute() -> None:
    lag, now = LoopLag(), 1000.0
    lag.tick(now, 0.0)
    lag.record(now, 0.05, [("input", 0.05)])
    assert lag.last_minute(now).seconds == 0.05
    for period in range(PERIODS - 1):
        now += PERIOD_SECONDS
        lag.tick(now, 0.0)
        lag.record(now, 0.01 * (period + 1) / PERIODS, [("commit", 0.01)])
        assert lag.last_minute(now).seconds == 0.05
    now += 2 * PERIOD_SECONDS
    lag.tick(now, 0.0)
    assert 0 < lag.last_minute(now).seconds < 0.01
    assert lag.last_minute(now + 600).seconds == 0


def test_shorter_turn_of_a_period_does_not_replace_the_longest() -> None:
    lag = LoopLag()
    lag.record(1.0, 0.05, [("input", 0.05)])
    lag.record(2.0, 0.02, [("commit", 0.02)])
    assert lag.last_minute(3.0).cause == "input 50 ms"


def test_cause_names_the_parts_that_matter_longest_first() -> None:
    lag = LoopLag()
    lag.record(1.0, 0.1, [("input", 0.03), ("commit", 0.06), ("output", 0.01)])
    assert lag.last_minute(1.0).cause == "commit 60 ms, input 30 ms"


def test_long_turn_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    lag = LoopLag()
    lag.record(1.0, WARNING_SECONDS * 0.9, [("input", 0.09)])
    for _ in range(5):
        lag.record(2.0, 0.25, [("input of 10.0.0.1:5", 0.25)])
    lag.record(2.0 + LOG_SECONDS, 0.15, [("commit", 0.15)])
    assert caplog.messages == [
        "clients waited 250 ms for the event loop: input of 10.0.0.1:5 250 ms",
        "clients waited 150 ms for the event loop: commit 150 ms (4 more since the last such line)",
    ]


def test_late_tick_counts_unless_a_turn_explains_it() -> None:
    lag = LoopLag()
    lag.record(10.0, 0.3, [("commit", 0.3)])
    lag.tick(10.0 + TICK_SECONDS, 0.25)
    assert lag.last_minute(11.0).cause == "commit 300 ms"
    lag.tick(20.0, 0.4)
    assert lag.last_minute(20.0).cause == "timers, tasks or other threads 400 ms"


def run_turn(clock: Clock, *work: tuple[str, float], peers: tuple[Peer, ...] = ()) -> Turn:
    """Return the turn after work of these kinds."""
    loop = asyncio.new_event_loop()

    async def main() -> Turn:
        turn = Turn(loop, clock)
        for peer in peers:
            turn.input.add(peer)
        for kind, seconds in work:
            if kind == "direct":
                peer = Peer("10.0.0.9:1", clock, seconds)
                assert turn.input.begin(peer)
                peer.proceed()
                turn.input.end(peer)
            else:
                getattr(turn, kind)(partial(clock.work, seconds))
        await asyncio.sleep(0)
        return turn

    turn = loop.run_until_complete(main())
    loop.close()
    return turn


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("direct", "input of 10.0.0.9:1 80 ms"),
        ("commit", "commit 80 ms"),
        ("output", "output 80 ms"),
        ("defer", "deferred work 80 ms"),
    ],
)
def test_turn_names_what_it_did(clock: Clock, kind: str, cause: str) -> None:
    turn = run_turn(clock, ("direct", 0.004), ("commit", 0.003), ("output", 0.002), ("defer", 0.001), (kind, 0.08))
    longest = turn.longest()
    assert longest.cause.startswith(cause.rsplit(" ", 2)[0])
    assert longest.seconds == pytest.approx(0.09)


def test_queued_input_of_one_connection_is_named(clock: Clock) -> None:
    turn = run_turn(clock, peers=(Peer("10.0.0.1:5", clock, 0.04),))
    assert turn.longest().cause == "input of 10.0.0.1:5 40 ms"


def test_input_of_many_connections_names_none(clock: Clock) -> None:
    peers = tuple(Peer(f"10.0.0.{number}:5", clock, 0.001) for number in range(4))
    assert run_turn(clock, peers=peers).longest().cause == "input of several connections 4 ms"


def test_next_turn_is_not_blamed_for_the_last_one(clock: Clock) -> None:
    turn = run_turn(clock, ("direct", 0.05))
    assert turn.input.longest_owner is None
    assert turn.input.begun_at == 0


def test_periodic_task_is_measured_also_when_it_fails(clock: Clock) -> None:
    loop = asyncio.new_event_loop()
    turn = Turn(loop, clock)
    loop.close()

    def fail() -> None:
        clock.work(0.07)
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        turn.measure("periodic task sweep", fail)
    assert turn.longest().cause == "periodic task sweep 70 ms"


def test_posted_callback_is_measured(clock: Clock) -> None:
    loop = asyncio.new_event_loop()

    async def main() -> Turn:
        turn = Turn(loop, clock)
        turn.post(partial(clock.work, 0.06))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return turn

    turn = loop.run_until_complete(main())
    loop.close()
    assert turn.longest().cause == "confirmations of a commit 60 ms"
