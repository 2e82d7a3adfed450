"""Durable subscriptions whose clients stay away go after a while, and no others."""

import logging
from collections.abc import Callable

import pytest

from pybroker.broker.core.offline_durables import SLICE, OfflineDurables
from tests.unit.core.conftest import Inbox, World

TIMEOUT = 100.0


class Sweeper:
    """Sweeps a world whose seconds only the test moves."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seconds = 0.0
        self.turns: list[Callable[[], None]] = []
        world.broker.usage.paging.monotonic = lambda: self.seconds
        self.offline = OfflineDurables(world.broker, TIMEOUT)

    def after(self, seconds: float) -> None:
        self.seconds += seconds
        self.offline.sweep()

    @property
    def there(self) -> list[str]:
        return sorted(self.world.broker.durables)


@pytest.fixture
def sweeper(world: World) -> Sweeper:
    return Sweeper(world)


def visit(world: World, name: str = "s", destination: str = "topic://T", *, stays: bool = False) -> Inbox:
    """Subscribe as the client of that name, and leave."""
    client = world.client("me")
    inbox = client.subscribe(destination, subscription_name=name)
    if not stays:
        client.connection.close()
    return inbox


def test_offline_subscription_goes_with_its_messages(
    world: World, sweeper: Sweeper, caplog: pytest.LogCaptureFixture
) -> None:
    visit(world)
    world.client().send("topic://T", "1", "2")
    sweeper.after(1)
    sweeper.after(TIMEOUT - 1)
    assert sweeper.there == ["me:s"]
    with caplog.at_level(logging.INFO):
        sweeper.after(1)
    assert sweeper.there == []
    assert "removed the durable subscription me:s to topic://T, with 2 messages" in caplog.text
    assert world.broker.usage.used == 0
    assert visit(world).ids == []
    world.start()
    assert visit(world).ids == []


def test_time_counts_from_when_the_client_left(world: World, sweeper: Sweeper) -> None:
    visit(world, stays=True)
    for _ in range(5):
        sweeper.after(TIMEOUT)
    for connection in list(world.broker.connections()):
        connection.close()
    sweeper.after(TIMEOUT)
    sweeper.after(TIMEOUT - 1)
    assert sweeper.there == ["me:s"]
    sweeper.after(1)
    assert sweeper.there == []


def test_visit_between_two_sweeps_begins_the_time_again(world: World, sweeper: Sweeper) -> None:
    visit(world)
    for _ in range(10):
        sweeper.after(TIMEOUT - 1)
        visit(world)
    assert sweeper.there == ["me:s"]


def test_start_of_a_master_begins_the_time_again(world: World, sweeper: Sweeper) -> None:
    visit(world)
    sweeper.after(0)
    world.start()
    again = Sweeper(world)
    again.after(TIMEOUT * 5)
    assert again.there == ["me:s"]
    again.after(TIMEOUT)
    assert again.there == []


def test_setting_the_clock_of_the_day_removes_nothing(world: World, sweeper: Sweeper) -> None:
    visit(world)
    sweeper.after(1)
    world.now_ms += 10**10
    sweeper.after(1)
    assert sweeper.there == ["me:s"]


def test_subscription_made_again_is_another_one(world: World, sweeper: Sweeper) -> None:
    visit(world)
    sweeper.after(0)
    sweeper.seconds += TIMEOUT
    world.broker.unsubscribe("me", "s")
    visit(world)
    sweeper.after(TIMEOUT - 1)
    assert sweeper.there == ["me:s"]


def test_very_many_are_removed_in_pieces(world: World, sweeper: Sweeper) -> None:
    client = world.client("me")
    count = 2 * SLICE + 10
    for number in range(count):
        client.subscribe("topic://T", subscription_name=f"s{number}")
    client.connection.close()
    sweeper.after(1)
    world.broker.usage.paging.later = sweeper.turns.append
    ticks = iter(range(10**9))
    world.broker.usage.paging.monotonic = lambda: TIMEOUT + next(ticks)
    sweeper.offline.sweep()
    assert len(sweeper.there) == count - 1
    sweeper.offline.sweep()
    assert len(sweeper.turns) == 1, "one sweep at a time"
    for _ in range(3):
        sweeper.turns.pop()()
    assert len(sweeper.there) == count - 4
    world.broker.is_stopping = True
    sweeper.turns.pop()()
    assert (len(sweeper.there), sweeper.turns) == (count - 4, [])
