# mypy: disable-error-code="arg-type,comparison-overlap"
"""Bookkeeping of what a client has still to acknowledge."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.transports.stomp.acknowledgements import AckId, Unacknowledged, parse_ack_id
from tests.compiled import interpreted

pytestmark = interpreted


@dataclass(eq=False)
class Delivery:
    message: Any
    redelivery_count: int = 0


def delivery(message_id: str) -> Delivery:
    return Delivery(SimpleNamespace(message_id=message_id))


def filled(*message_ids: str, by_message_id: bool = True) -> tuple[Unacknowledged, list[Delivery]]:
    waiting = Unacknowledged(by_message_id=by_message_id)
    deliveries = [delivery(message_id) for message_id in message_ids]
    assert [waiting.add(each) for each in deliveries] == list(range(1, len(deliveries) + 1))
    return waiting, deliveries


def test_one_is_taken_once() -> None:
    waiting, deliveries = filled("a", "b")
    assert waiting.take(1) == (1, deliveries[0])
    assert waiting.take(1) is None
    assert waiting.serial_of("a") is None
    assert len(waiting) == 1


def test_cumulative_takes_all_earlier_ones_and_no_later_one() -> None:
    waiting, deliveries = filled("a", "b", "c", "d")
    waiting.take(2)
    assert waiting.take_through(3) == [(1, deliveries[0]), (3, deliveries[2])]
    assert waiting.take_through(3) == []
    assert waiting.take_through(1) == []
    assert waiting.serial_of("d") == 4


def test_put_back_restores_order_and_names() -> None:
    waiting, _ = filled("a", "b", "c", "d", "e")
    first, second = waiting.take_through(2), waiting.take_through(4)
    waiting.put_back(first)
    waiting.put_back(second)
    assert [serial for serial, _ in waiting.take_through(4)] == [1, 2, 3, 4]
    assert waiting.serial_of("e") == 5


def test_copies_of_one_message_are_acknowledged_one_by_one() -> None:
    waiting, deliveries = filled("a", "b", "a", "a")
    taken = []
    while (serial := waiting.serial_of("a")) is not None:
        taken.append(waiting.take(serial))
    assert taken == [(1, deliveries[0]), (3, deliveries[2]), (4, deliveries[3])]
    assert waiting.serial_of("b") == 2


@pytest.mark.parametrize(("through", "left"), [(1, 3), (3, 4), (4, None)])
def test_a_message_whose_first_copies_are_acknowledged_together_is_the_next_one(through: int, left: int | None) -> None:
    waiting, _ = filled("a", "b", "a", "a")
    waiting.take_through(through)
    assert waiting.serial_of("a") == left
    assert len(waiting) == 4 - through


def test_a_later_copy_taken_first_leaves_the_first_its_name() -> None:
    waiting, _ = filled("a", "a", "a")
    waiting.take(2)
    assert waiting.serial_of("a") == 1
    waiting.take(1)
    assert waiting.serial_of("a") == 3
    waiting.take(3)
    assert waiting.serial_of("a") is None


def test_copies_put_back_are_found_again() -> None:
    waiting, _ = filled("a", "a")
    taken = waiting.take_through(2)
    waiting.put_back(taken)
    assert waiting.serial_of("a") == 1
    waiting.take(1)
    assert waiting.serial_of("a") == 2


def test_message_ids_are_not_kept_where_ack_ids_are_used() -> None:
    waiting, _ = filled("a", by_message_id=False)
    assert waiting.serial_of("a") is None
    assert waiting.take(1) is not None


@pytest.mark.parametrize(
    ("text", "ack_id"),
    [
        ("ID:h-1:2:3", AckId(2, 3)),
        ("ID:h-2:2:3", None),
        ("ID:h-1:2", None),
        ("ID:h-1", None),
        ("ID:h-12:2:3", None),
        ("ID:h-1:2:3:4", None),
        ("ID:h-1::3", None),
        ("ID:h-1:2:", None),
        ("xID:h-1:2:3", None),
        ("ID:h-1:x:3", None),
        ("ID:h-1:2:-3", None),
        ("ID:h-1:2:٣", None),
        ("ID:h-1:2:" + "9" * 5000, None),
        ("", None),
    ],
)
def test_ack_id_is_this_connections_or_none(text: str, ack_id: AckId | None) -> None:
    assert parse_ack_id(text, "ID:h-1") == ack_id
