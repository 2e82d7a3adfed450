"""A queue waits for more consumers before its dispatch starts; the test has the clock, and the turns of the loop."""

import pytest

from tests.timers import Callback, ManualTimers
from tests.unit.core.backlogs import Client, World


class Start:
    """A queue whose policy has it wait, with its timers."""

    def __init__(self, consumers: int, time_ms: int = 0) -> None:
        self.timers = ManualTimers()
        self.turns: list[Callback] = []
        self.world = World(consumers_before_dispatch_starts=consumers, time_before_dispatch_starts=time_ms)
        paging = self.world.usage.paging
        paging.after, paging.later = self.timers.after, self.turns.append

    def turn(self) -> None:
        """Run a later turn of the event loop."""
        turns, self.turns[:] = self.turns[:], []
        for callback in turns:
            callback()


@pytest.fixture
def pair() -> Start:
    """A queue that waits for two consumers, with four messages."""
    start = Start(2)
    start.world.put("0", "1", "2", "3")
    return start


def test_second_consumer_starts_dispatch_to_both(pair: Start) -> None:
    first = pair.world.consume()
    assert first.names == []
    second = pair.world.consume()
    pair.turn()
    assert (first.names, second.names) == (["0", "2"], ["1", "3"])
    assert pair.timers.seconds == []
    pair.world.put("4")
    assert first.names == ["0", "2", "4"]


@pytest.mark.parametrize(("consumers", "time_ms", "seconds"), [(2, 0, 1), (2, 5000, 5), (0, 300, 0.3)])
def test_first_consumer_waits_no_longer_than_the_time(consumers: int, time_ms: int, seconds: float) -> None:
    start = Start(consumers, time_ms)
    first = start.world.consume()
    start.world.put("0")
    assert (start.timers.seconds, first.names) == ([seconds], [])
    start.timers.elapse()
    assert first.names == ["0"]
    start.world.put("1")
    assert first.names == ["0", "1"]
    start.world.consume()
    assert start.timers.seconds == []


def test_time_alone_does_not_end_with_a_second_consumer() -> None:
    start = Start(0, 300)
    start.world.put("0", "1")
    first, second = start.world.consume(), start.world.consume()
    start.turn()
    assert (first.names, second.names) == ([], [])
    start.timers.elapse()
    assert (first.names, second.names) == (["0"], ["1"])


@pytest.mark.parametrize(("consumers", "time_ms"), [(0, 0), (1, 0), (1, 5000)])
def test_policy_without_a_wait_dispatches_at_once(consumers: int, time_ms: int) -> None:
    start = Start(consumers, time_ms)
    start.world.put("0")
    assert start.world.consume().names == ["0"]
    assert start.timers.seconds == []


def test_queue_waits_again_once_all_consumers_have_left(pair: Start) -> None:
    first, second = pair.world.consume(), pair.world.consume()
    pair.turn()
    first.close()
    assert second.names == ["1", "3", "0", "2"]
    second.close()
    third = pair.world.consume()
    assert (third.names, pair.timers.seconds) == ([], [1])
    pair.timers.elapse()
    assert third.names == ["0", "1", "2", "3"]


def test_wait_ends_with_its_last_consumer(pair: Start) -> None:
    pair.world.consume().close()
    assert pair.timers.seconds == []
    again = pair.world.consume()
    assert (again.names, pair.timers.seconds) == ([], [1])


def test_consumer_that_left_does_not_count(pair: Start) -> None:
    start = Start(3)
    start.world.put("0")
    first, second = start.world.consume(), start.world.consume()
    second.close()
    third = start.world.consume()
    start.turn()
    assert (first.names, third.names) == ([], [])
    start.world.consume()
    start.turn()
    assert first.names == ["0"]


def test_start_of_an_earlier_wait_does_nothing(pair: Start) -> None:
    first, second = pair.world.consume(), pair.world.consume()
    first.close()
    second.close()
    third = pair.world.consume()
    pair.turn()
    assert third.names == []


@pytest.mark.parametrize("details", [{"selector": "TRUE"}, {"exclusive": True}])
def test_consumers_of_all_kinds_wait(details: dict[str, object]) -> None:
    start = Start(2)
    start.world.put("0")
    start.world.put("1", group_id="g")
    first = start.world.consume(**details)
    start.world.put("2")
    assert first.names == []
    start.world.consume(selector="FALSE")
    start.turn()
    assert first.names == ["0", "1", "2"]


def test_paused_queue_stays_paused_when_the_wait_ends(pair: Start) -> None:
    first = pair.world.consume()
    pair.world.queue.pause(is_paused=True)
    pair.timers.elapse()
    assert first.names == []
    pair.world.queue.pause(is_paused=False)
    assert first.names == ["0", "1", "2", "3"]


def test_end_of_a_pause_does_not_end_the_wait(pair: Start) -> None:
    first = pair.world.consume()
    pair.world.queue.pause(is_paused=True)
    pair.world.queue.pause(is_paused=False)
    assert first.names == []


def test_returned_messages_wait_too(pair: Start) -> None:
    first: Client = pair.world.consume()
    pair.timers.elapse()
    first.close()
    second = pair.world.consume()
    assert second.names == []
    pair.timers.elapse()
    assert second.names == ["0", "1", "2", "3"]


def test_deleted_queue_has_no_timer(pair: Start) -> None:
    pair.world.consume()
    pair.world.queue.close()
    assert pair.timers.seconds == []


def test_queue_without_an_event_loop_does_not_wait(pair: Start) -> None:
    pair.world.usage.paging.after = None
    assert pair.world.consume().names == ["0", "1", "2", "3"]
