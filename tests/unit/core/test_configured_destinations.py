"""Destinations that the settings name: they exist from the start, count, and stay."""

from collections.abc import Callable

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import World

NAMES = ("queue://ORDERS.IN", "topic://PRICES.EUR")


def there(world: World) -> set[str]:
    return {str(each) for each in (*world.broker.queues, *world.broker.topics)}


def sweep(world: World) -> None:
    """Let more time pass than a destination may be inactive."""
    for _ in range(3):
        world.now_ms += DestinationPolicy().inactive_timeout_before_gc
        world.broker.remove_inactive_destinations()


def test_they_exist_before_the_first_client() -> None:
    assert there(World(MemoryStore(), configured=NAMES)) == set(NAMES)


def test_they_keep_what_the_store_has_of_them() -> None:
    world = World(MemoryStore(), configured=NAMES)
    world.client("me").subscribe("topic://PRICES.*", subscription_name="d")
    world.client().send("queue://ORDERS.IN", "order")
    world.client().send("topic://PRICES.EUR", "price")
    world.start()
    assert there(world) == set(NAMES)
    assert world.client().subscribe("queue://ORDERS.IN").ids == ["order"]
    assert world.client("me").subscribe("topic://PRICES.*", subscription_name="d").ids == ["price"]


def test_wildcards_match_them() -> None:
    world = World(MemoryStore(), configured=NAMES)
    inbox = world.client().subscribe("queue://ORDERS.>")
    world.client().send("queue://ORDERS.IN", "order")
    assert inbox.ids == ["order"]


def test_they_count_against_the_limit() -> None:
    world = World(MemoryStore(), limits=Limits(destinations_max=3), configured=NAMES)
    world.client().send("queue://Q", "x")
    with pytest.raises(ResourceLimit, match="there are 3 destinations already"):
        world.client().send("queue://R", "x")


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (DestinationPolicy(), set(NAMES)),
        (DestinationPolicy(gc_inactive_destinations=False), {*NAMES, "queue://Q"}),
        (DestinationPolicy(gc_inactive_destinations=True), set[str]()),
    ],
)
def test_a_policy_alone_removes_them_when_unused(policy: DestinationPolicy, left: set[str]) -> None:
    world = World(MemoryStore(), policy, configured=NAMES)
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.connection.close()
    assert not inbox.ids
    sweep(world)
    assert there(world) == left


def test_near_the_limit_they_stay() -> None:
    turns: list[Callable[[], None]] = []
    world = World(MemoryStore(), limits=Limits(destinations_max=3), configured=NAMES)
    world.broker.usage.paging.later = turns.append
    world.client().send("queue://Q", "x")
    with pytest.raises(ResourceLimit):
        world.client().send("queue://R", "x")
    while turns:
        turns.pop(0)()
    assert there(world) == {*NAMES, "queue://Q"}


def test_a_deleted_one_is_there_again_after_a_start() -> None:
    world = World(MemoryStore(), configured=NAMES)
    world.client().send("queue://ORDERS.IN", "order")
    world.broker.destinations.remove(parse("queue://ORDERS.IN"))
    assert there(world) == {"topic://PRICES.EUR"}
    world.start()
    assert there(world) == set(NAMES)
    assert world.client().subscribe("queue://ORDERS.IN").ids == []


def test_a_queue_of_a_virtual_topic_gets_copies_at_once() -> None:
    world = World(MemoryStore(), configured=("queue://Consumer.a.VirtualTopic.T",))
    world.client().send("topic://VirtualTopic.T", "copied")
    assert world.client().subscribe("queue://Consumer.a.VirtualTopic.T").ids == ["copied"]
