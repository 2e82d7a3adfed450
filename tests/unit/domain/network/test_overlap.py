"""One copy of each topic message goes over a bridge."""

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.network import overlap
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.overlap import OverlapFilter
from tests.compiled import interpreted
from tests.unit.domain.network.tables import Bridge, consumer, info


def forwarded(bridge: Bridge, destination: Destination, message_ids: list[str]) -> list[tuple[int, str]]:
    """Dispatch messages to each subscription that takes them; return what is forwarded."""
    overlaps = OverlapFilter(bridge.table.taking)
    return [
        (number, message_id)
        for message_id in message_ids
        for number in bridge.table.taking(destination)
        if overlaps.is_first(number, destination, message_id)
    ]


@pytest.mark.parametrize("names", [("T.1", "T.>"), ("T.>", "T.1"), ("T.*", "*.1")])
def test_overlapping_subscriptions_forward_a_message_once(names: tuple[str, str]) -> None:
    bridge = Bridge()
    for number, name in enumerate(names):
        bridge.add(info(consumer(number), topic(name)))

    assert [each for _, each in forwarded(bridge, topic("T.1"), ["m1", "m2"])] == ["m1", "m2"]


def test_consumers_without_conduit_get_a_message_once() -> None:
    bridge = Bridge(NetworkConnector(conduit_subscriptions=False))
    for number in range(3):
        bridge.add(info(consumer(number), topic("T")))

    assert forwarded(bridge, topic("T"), ["m1", "m2"]) == [(1, "m1"), (1, "m2")]


def test_a_message_of_a_queue_is_always_forwarded() -> None:
    overlaps = OverlapFilter(lambda _: (1, 2))

    assert overlaps.is_first(1, queue("Q"), "m1")
    assert overlaps.is_first(2, queue("Q"), "m1")


def test_a_redelivered_message_is_forwarded_again() -> None:
    overlaps = OverlapFilter(lambda _: (1, 2))

    assert overlaps.is_first(1, topic("T"), "m1")
    assert overlaps.is_first(1, topic("T"), "m1")
    assert not overlaps.is_first(2, topic("T"), "m1")


@interpreted
def test_the_memory_of_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "REMEMBERED_MAX", 2)
    overlaps = OverlapFilter(lambda _: (1, 2))

    for number in range(3):
        assert overlaps.is_first(1, topic("T"), f"m{number}")

    assert [overlaps.is_first(2, topic("T"), f"m{number}") for number in (1, 2)] == [False, False]
    assert overlaps.is_first(2, topic("T"), "m0")
