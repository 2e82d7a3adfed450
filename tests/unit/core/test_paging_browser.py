# mypy: disable-error-code="attr-defined"
"""Browsers of queues whose messages are in the store: page after page, and whatever the store is up to."""

from collections.abc import Iterator
from itertools import count
from unittest import mock

import pytest

from pybroker.broker.core import browser as browser_module
from pybroker.broker.core.browser import BrowserSnapshot
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from tests.unit.core.backlogs import Client
from tests.unit.core.test_paging import SIZE, Failing, PagedWorld, small_pages


@pytest.fixture(autouse=True)
def _small_pages() -> Iterator[None]:
    with small_pages():
        yield


@pytest.fixture
def failing() -> PagedWorld:
    world = PagedWorld()
    world.store = world.disk = Failing()
    world.restart(crash=True)
    world.put(*map(str, range(40)))
    return world


def browse(world: PagedWorld, **request: object) -> tuple[Client, list[str]]:
    client = world._client("queue://Q", {"browser": True, **request})
    ended: list[str] = []
    BrowserSnapshot([world.queue], client.consumer, lambda: ended.append("end"))
    client.consumer.start()
    return client, ended


def test_a_browser_pages_through():
    world = PagedWorld()
    consumer = world.consume(prefetch=3)
    world.put(*map(str, range(100)))
    client, ended = browse(world)
    assert client.names == [str(number) for number in range(100)]
    assert ended == ["end"]
    assert world.queue.pending.count == 97
    assert world.queue.usage.used <= 11 * SIZE
    assert len(consumer.names) == 3


def test_browser_sees_waiting_messages_and_no_newer_ones():
    world = PagedWorld()
    world.put(*map(str, range(100)))
    client, ended = browse(world, prefetch=10)
    consumer = world.consume(prefetch=40)
    while consumer.unsettled and len(consumer.names) < 60:
        consumer.ack()
    world.put("new")
    while not ended:
        client.ack()
    consumed = len(consumer.names)
    assert "new" not in client.names
    assert client.names[-(100 - consumed) :] == [str(number) for number in range(consumed, 100)]
    assert len(set(client.names)) == len(client.names)


def test_a_browser_with_a_selector_looks_at_a_page_per_turn():
    world = PagedWorld(has_loop=True)
    world.put(*map(str, range(50)), properties={"n": 1})
    world.put("wanted", properties={"n": 2})
    with mock.patch.object(browser_module, "PAGE_MAX", 4):
        client, ended = browse(world, selector="n = 2")
        turns = 0
        while world.turn():
            turns += 1
    assert client.names == ["wanted"]
    assert ended == ["end"]
    assert turns >= 51 // 4


def test_browser_of_priority_queue_sees_order_of_arrival():
    world = PagedWorld(prioritized_messages=True)
    for number in range(60):
        world.put(str(number), priority=number % 10)
    client, ended = browse(world)
    assert client.names == [str(number) for number in range(60)]
    assert ended == ["end"]


@pytest.mark.parametrize("selector", [None, "n IS NULL"])
@pytest.mark.parametrize("shown", [2, 3, 25])
def test_browser_waits_for_unreadable_messages(failing, monkeypatch, shown, selector):
    monkeypatch.setattr(browser_module, "PAGE_MAX", 4)
    failing.disk.is_away = shown == 2  # the front is in memory
    client, ended = browse(failing, prefetch=1, selector=selector)
    while len(client.names) < shown:
        client.ack()
    failing.disk.is_away = True
    while client.unsettled:
        client.ack()
    failing.queue.remove_expired()
    assert not ended, "it asks again, in vain"
    assert len(client.names) < 40
    failing.disk.is_away = False
    failing.queue.remove_expired()
    while client.unsettled:
        client.ack()
    assert client.names == [str(number) for number in range(40)]
    assert ended == ["end"]


def test_a_browser_that_goes_while_it_waits_is_forgotten(failing):
    failing.disk.is_away = True
    client, ended = browse(failing)
    client.consumer.close()
    failing.disk.is_away = False
    seen = list(client.names)
    failing.queue.remove_expired()
    assert client.names == seen
    assert not ended
    assert not failing.queue.paging.waiting


def test_browser_ends_when_its_message_is_consumed(failing: PagedWorld) -> None:
    failing.disk.is_away = True
    client, ended = browse(failing, prefetch=100)
    failing.disk.is_away = False
    consumer = failing.consume(prefetch=100)
    while consumer.unsettled:
        consumer.ack()
    assert not failing.queue.pending.is_paged
    failing.queue.remove_expired()
    assert ended == ["end"]
    assert client.names == ["0", "1"], "what was there when it read a page"


def test_a_browser_gets_on_though_every_other_read_fails(failing):
    """Messages read before a page failed are shown: else the browse would begin again for ever."""
    read, calls = failing.disk.read, count()

    def read_now_and_then(destination: Destination, message_ids: "list[str]") -> list[Message]:
        failing.disk.is_away = next(calls) % 2 == 1
        return read(destination, message_ids)

    failing.disk.read = read_now_and_then
    client, ended = browse(failing, prefetch=100)
    for _ in range(40):
        failing.queue.paging.retry_waiting()
    assert client.names == [str(number) for number in range(40)]
    assert ended == ["end"]
