"""Thousands of consumers at the remote broker cost no more, each, than a few: counted in calls, not in time."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.interests import Interests
from tests.unit.domain.network.tables import Bridge, consumer, info

FEW, MANY = 50, 400
FACTOR_MAX = 1.5
"""What a consumer among many may cost in calls, compared with one among few."""


def calls(action: Callable[[], None]) -> int:
    """Return how many functions an action calls."""
    count = 0

    def counting(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    former = sys.getprofile()
    sys.setprofile(counting)
    try:
        action()
    finally:
        sys.setprofile(former)
    return count


def demand_calls(count: int, make: Callable[[int], Destination]) -> float:
    """Return the calls for each of so many consumers that come and leave."""
    bridge = Bridge()

    def come_and_leave() -> None:
        for number in range(count):
            bridge.table.consumer_added(info(consumer(number), make(number)))
        for number in range(count):
            bridge.table.consumer_removed(consumer(number))

    return calls(come_and_leave) / count


@pytest.mark.parametrize(
    "make",
    [
        lambda number: queue(f"A.{number}.>"),
        lambda number: topic(f"A.{number}.>"),
        lambda number: queue(f"*.{number}"),
        lambda number: queue(f"A.{number}"),
        lambda number: queue("A.>"),
    ],
    ids=["queue patterns", "topic patterns", "patterns with a star", "queues", "one pattern"],
)
def test_consumer_of_a_pattern_costs_the_same_among_many(make: Callable[[int], Destination]) -> None:
    assert demand_calls(MANY, make) < FACTOR_MAX * demand_calls(FEW, make)


def ring_calls(count: int) -> float:
    """Return the calls for each consumer that leaves where another way to it waits."""
    interests, connector = Interests(), NetworkConnector(name="nc", consumer_ttl=2)
    direct = Bridge(connector, remote="b", interests=interests)
    detour = Bridge(connector, remote="c", interests=interests)
    for number in range(count):
        direct.table.consumer_added(info(consumer(number), topic(f"T.{number}.>")))
        path = (consumer(number),)
        over = info(consumer(number, "c"), topic(f"T.{number}.>"), path=("id-b",), consumer_path=path)
        assert detour.table.consumer_added(over) == []

    def leave() -> None:
        for number in range(count):
            assert direct.table.consumer_removed(consumer(number))
            assert detour.table.reconsider() == [], "the news of the same end are about to come"
            assert detour.table.consumer_removed(consumer(number, "c")) == []

    return calls(leave) / count


def test_consumer_with_two_ways_leaves_at_the_same_cost_among_many() -> None:
    assert ring_calls(MANY) < FACTOR_MAX * ring_calls(FEW)


def deletion_calls(count: int) -> float:
    """Return the calls for each durable subscription that is deleted."""
    bridge = Bridge()
    for number in range(count):
        bridge.table.consumer_added(info(consumer(number), topic(f"T.{number}"), name=f"d{number}"))
        bridge.table.consumer_removed(consumer(number))

    def delete() -> None:
        for number in range(count):
            assert bridge.table.subscription_removed("client", f"d{number}")

    return calls(delete) / count


def test_durable_subscription_is_deleted_at_the_same_cost_among_many() -> None:
    assert deletion_calls(MANY) < FACTOR_MAX * deletion_calls(FEW)
