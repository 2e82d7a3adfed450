# mypy: disable-error-code="attr-defined"
"""A queue that could not be served, as its store was away: order and delivery once the store is back."""

from collections.abc import Iterator

import pytest

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from tests.unit.core.backlogs import World
from tests.unit.core.test_paging import Failing, PagedWorld, small_pages


@pytest.fixture
def failing() -> Iterator[PagedWorld]:
    with small_pages():
        world = PagedWorld()
        world.store = world.disk = Failing()
        world.restart(crash=True)
        world.put(*map(str, range(40)))
        yield world


@pytest.mark.parametrize("group_id", [None, "g"])
def test_new_message_does_not_overtake_what_cannot_be_read(failing: PagedWorld, group_id: str | None) -> None:
    failing.disk.is_away = True
    client = failing.consume(prefetch=100)
    if group_id is None:
        failing.consume(selector="n = 1", prefetch=0)
    failing.put("40", group_id=group_id)
    assert client.names == ["0", "1"]
    failing.disk.is_away = False
    failing.queue.remove_expired()
    assert client.names == [str(number) for number in range(41)]


def test_what_cannot_be_read_goes_to_all_consumers_with_capacity_later(failing: PagedWorld) -> None:
    failing.disk.is_away = True
    first, second = failing.consume(prefetch=100), failing.consume(prefetch=3)
    failing.disk.is_away = False
    second.consumer.dispatch()
    assert sorted(first.names + second.names, key=int) == [str(number) for number in range(40)]


def test_dead_letter_that_cannot_be_stored_does_not_stop_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.put("0", expiration=world.now_ms + 1)
    world.put("1", "2")
    world.now_ms += 2
    errors = [StoreUnavailable("no space left")]

    def fail_once(_: Message) -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(world, "send", fail_once)
    client = world.consume()
    assert client.names == []
    world.queue.remove_expired()
    assert client.names == ["1", "2"]
