"""A sweep for expired messages in pieces: each is found once, whatever the queue does between two pieces."""

from collections import deque
from collections.abc import Callable

import pytest

from pybroker.broker.core.stored import EXPIRED_COST, EXPIRY_PIECE
from tests.unit.core.backlogs import World

COUNT = 3 * EXPIRY_PIECE // EXPIRED_COST


@pytest.fixture(params=[False, True])
def world(request: pytest.FixtureRequest) -> World:
    return World(prioritized_messages=request.param)


@pytest.fixture
def deferred(world: World) -> deque[Callable[[], None]]:
    pieces: deque[Callable[[], None]] = deque()
    world.usage.paging.later = pieces.append
    return pieces


def fill(world: World, count: int = COUNT) -> None:
    for number in range(count):
        world.put(str(number), priority=number % 10, expiration=world.now_ms + 5)
        world.put("lasting", expiration=world.now_ms + 1000)
    world.now_ms += 10


def run(pieces: deque[Callable[[], None]]) -> int:
    count = 0
    while pieces:
        pieces.popleft()()
        count += 1
    return count


def test_expired_messages_are_removed_in_pieces(world, deferred):
    fill(world)
    world.queue.remove_expired()
    assert COUNT < world.queue.pending.count < 2 * COUNT
    assert run(deferred) >= 2
    assert len(world.letters) == world.queue.pending.count == COUNT
    world.queue.remove_expired()
    assert not deferred


def test_messages_that_expire_later_are_found_by_the_next_sweep(world, deferred):
    fill(world)
    world.queue.remove_expired()
    world.put("new", expiration=world.now_ms + 1)
    run(deferred)
    world.now_ms += 5
    world.queue.remove_expired()
    run(deferred)
    assert len(world.letters) == COUNT + 1
    world.now_ms += 5000
    world.queue.remove_expired()
    run(deferred)
    assert not world.queue.pending.count


def test_consumer_between_two_pieces_gets_what_has_not_expired(world, deferred):
    fill(world)
    world.queue.remove_expired()
    consumer = world.consume(prefetch=10_000)
    run(deferred)
    assert consumer.names == ["lasting"] * COUNT
    assert len(world.letters) == COUNT


def test_queue_deleted_between_two_pieces_ends_the_sweep(world, deferred):
    fill(world)
    world.queue.remove_expired()
    found = len(world.letters)
    world.queue.close()
    run(deferred)
    assert len(world.letters) == found


def test_sweep_without_an_event_loop_is_done_at_once(world):
    fill(world)
    world.queue.remove_expired()
    assert world.queue.pending.count == COUNT


@pytest.mark.parametrize(("period", "expected"), [(None, [1, 2, 3, 4]), (1000, [1, 1, 1, 4]), (0, [0, 0, 0, 0])])
def test_policy_says_how_often_a_queue_is_searched(period: int | None, expected: list[int]) -> None:
    world = World(expire_messages_period=period)
    world.now_ms = 10**12
    found = []
    for number in range(4):
        world.put(str(number), expiration=world.now_ms + 1)
        world.now_ms += 2 if number < 2 else 449
        world.queue.remove_expired()
        found.append(len(world.letters))
    assert found == expected
    world.consume()
    assert len(world.letters) == 4, "at the latest when their turn comes"
