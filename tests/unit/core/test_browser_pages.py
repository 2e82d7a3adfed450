"""A browser walks through a queue that changes between its pages: each message once, in order, without a copy."""

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.browser import BrowserSnapshot
from pybroker.broker.core.paging import PAGE_MAX
from tests.unit.core.backlogs import Client, World


class Walk:
    """A browser with a wide window, whose pages the test reads one by one."""

    def __init__(self, world: World, limit: int = 0, **request: object) -> None:
        self._deferred: deque[Callable[[], None]] = deque()
        world.usage.paging.later = self._deferred.append
        self.ended = False
        self.client: Client = world._client("queue://Q", {"browser": True, "prefetch": 100_000} | request)
        BrowserSnapshot([world.queue], self.client.consumer, self._end, limit)
        self.client.consumer.start()

    def _end(self) -> None:
        self.ended = True

    def next_page(self) -> None:
        self._deferred.popleft()()

    def finish(self) -> list[str]:
        while self._deferred:
            self.next_page()
        assert self.ended
        return self.client.names


def numbers(*counts: int) -> list[str]:
    return [str(number) for number in range(*counts)]


def test_queue_in_memory_is_shown_a_page_per_turn():
    world = World()
    world.put(*numbers(3 * PAGE_MAX))
    walk = Walk(world)
    assert walk.client.names == numbers(PAGE_MAX)
    world.put("late")
    assert walk.finish() == numbers(3 * PAGE_MAX)


@pytest.mark.parametrize(("count", "shown"), [(2, 2), (3, 3), (4, 3), (3 * PAGE_MAX, 3)])
def test_limit_ends_a_browse_before_the_queue(count: int, shown: int) -> None:
    world = World()
    world.put(*numbers(count))
    walk = Walk(world, limit=3)
    assert walk.finish() == numbers(shown)
    walk.client.ack()
    assert walk.client.names == numbers(shown)


def test_limit_of_a_browse_is_reached_in_a_later_page() -> None:
    world = World()
    world.put(*numbers(3 * PAGE_MAX))
    walk = Walk(world, limit=PAGE_MAX + 1)
    assert walk.client.names == numbers(PAGE_MAX)
    assert walk.finish() == numbers(PAGE_MAX + 1)


def test_limit_of_a_browse_counts_messages_that_match() -> None:
    world = World()
    for number in range(10):
        world.put(str(number), priority=number % 10)
    walk = Walk(world, limit=2, selector="JMSPriority > 4")
    assert walk.finish() == ["5", "6"]


def test_message_that_is_delivered_between_two_pages_is_shown():
    world = World()
    world.put(*numbers(3 * PAGE_MAX))
    walk = Walk(world)
    world.usage.paging.later = None
    world.consume(prefetch=2 * PAGE_MAX)
    assert walk.finish() == numbers(3 * PAGE_MAX)


def test_message_that_returns_between_two_pages_is_shown_once():
    world = World()
    consumer = world.consume(prefetch=2 * PAGE_MAX)
    world.put(*numbers(3 * PAGE_MAX))
    walk = Walk(world)
    consumer.close()
    assert walk.finish() == numbers(3 * PAGE_MAX)


def test_message_that_is_consumed_before_its_page_is_not_shown():
    world = World()
    consumer = world.consume(prefetch=PAGE_MAX + 2)
    world.put(*numbers(PAGE_MAX + 2))
    walk = Walk(world)
    consumer.ack(PAGE_MAX + 1)
    assert walk.finish() == [*numbers(PAGE_MAX), str(PAGE_MAX + 1)]


@given(
    prefetches=st.lists(st.integers(1, 2 * PAGE_MAX), max_size=3),
    count=st.integers(0, 3 * PAGE_MAX),
    closed=st.sets(st.integers(0, 2)),
    prioritized=st.booleans(),
)
def test_walk_shows_every_message_once_and_in_order(prefetches, count, closed, prioritized):
    world = World(prioritized_messages=prioritized, max_redeliveries=-1)
    for number in range(count):
        world.put(str(number), priority=number % 10)
    walk = Walk(world)
    consumers = [world.consume(prefetch=prefetch) for prefetch in prefetches]
    for number in closed:
        if walk._deferred:
            walk.next_page()
        if number < len(consumers):
            consumers[number].close()
    assert walk.finish() == numbers(count)
