"""Page-outs of many messages, which are done in pieces: other clients wait for one piece."""

from collections.abc import Iterator
from unittest import mock

import pytest

from pybroker.broker.core import stored as stored_module
from pybroker.broker.core.delivered import DeliveredMessages
from tests.compiled import interpreted
from tests.unit.core.test_paging import SIZE, PagedWorld, small_pages

pytestmark = interpreted


@pytest.fixture(autouse=True)
def _small_pages() -> Iterator[None]:
    with small_pages():
        yield


def test_returned_messages_are_paged_out_in_pieces() -> None:
    world = PagedWorld(has_loop=True)
    first, second = world.consume(prefetch=30), world.consume(prefetch=30)
    names = [str(number) for number in range(60)]
    world.put(*names)
    with mock.patch.object(stored_module, "PAGE_OUT_PIECE", 10):
        first.close()
        second.close()
        counts = [len(list(world.queue.pending.in_memory()))]
        while world.turn():
            counts.append(len(list(world.queue.pending.in_memory())))
    assert counts == [50, 40, 30, 20, 10, 2]
    assert world.queue.usage.used == world.usage.used == 2 * SIZE
    third = world.consume(prefetch=60)
    while world.turn():
        pass
    assert third.names == names


def test_deliveries_page_out_after_all_pieces_of_backlogs() -> None:
    world = PagedWorld(has_loop=True)
    world.queue._page_out_at = 100 * SIZE
    world.put(*map(str, range(20)))
    world.usage.limit = world.usage.watermark = SIZE
    left: list[int] = []

    def page_out(*_: object) -> None:
        left.append(len(list(world.queue.pending.in_memory())))

    with (
        mock.patch.object(stored_module, "PAGE_OUT_PIECE", 5),
        mock.patch.object(DeliveredMessages, "page_out", page_out),
    ):
        client = world.consume(prefetch=3)
        world.usage.request_page_out(world.store.when_durable)
        while world.turn():
            pass
    assert len(client.got) == 3
    assert left == [0]
