"""A queue whose messages leave memory by a spool: what stays in memory, and when a place is released."""

import pytest

from pybroker.broker.domain.openwire.message import view
from tests.unit.core.test_paging import SIZE, PagedWorld, small_pages


@pytest.fixture(autouse=True)
def _small_pages():
    with small_pages():
        yield


def test_spooled_messages_take_no_more_memory_than_stored_ones():
    world = PagedWorld(has_spool=True)
    for number in range(500):
        world.put(str(number), persistent=False)
        world.spool.work()
        assert world.queue.usage.used <= 9 * SIZE
    assert world.queue.pending.count == 500
    client = world.consume(prefetch=3)
    for _ in range(500):
        assert world.queue.usage.used <= 14 * SIZE
        client.ack()
        world.spool.work()
    assert client.names == [str(number) for number in range(500)]
    assert world.usage.used == 0
    assert world.spool.messages == {}
    assert world.disk.read_count == 0


def test_messages_being_spooled_are_counted_until_they_are_written():
    world = PagedWorld(has_spool=True)
    world.put(*map(str, range(9)), persistent=False)
    assert world.spool.is_writing
    assert world.queue.usage.used == 9 * SIZE
    client = world.consume(prefetch=4)
    world.spool.work()
    assert [view(each.message).content for each in world.queue.pending.in_memory()] == [b"4", b"5"], "the new front"
    assert len(world.spool.messages) == 3
    assert client.names == list("0123")


def test_spooled_messages_of_a_deleted_queue_are_released():
    world = PagedWorld(has_spool=True, has_loop=True)
    world.put(*map(str, range(9)), persistent=False)
    world.spool.work()
    world.put(*map(str, range(9)), persistent=False)
    assert world.spool.is_writing
    world.queue.close()
    world.turn()
    world.spool.work()
    while world.turn():
        pass
    assert world.spool.messages == {}
    assert world.usage.used == 0


def test_a_full_spool_leaves_messages_in_memory_and_order():
    world = PagedWorld(has_spool=True)
    world.spool.limit = 10
    for number in range(60):
        world.put(str(number), persistent=bool(number % 4))
        world.spool.work()
    assert len(world.spool.messages) in range(1, 11)
    client = world.consume(prefetch=100)
    assert client.names == [str(number) for number in range(60)]
