# mypy: disable-error-code="arg-type,comparison-overlap"
"""Bookkeeping of what a client has still to acknowledge."""

import gc
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.piecewise import carry_out
from pybroker.transports.stomp.acknowledgements import AckId, KeptDeliveries, KeptTaken, parse_ack_id
from tests.compiled import interpreted

pytestmark = interpreted


@dataclass(eq=False)
class Delivery:
    message: Any
    redelivery_count: int = 0


def delivery(message_id: str) -> Delivery:
    return Delivery(SimpleNamespace(message_id=message_id))


def filled(*message_ids: str, by_message_id: bool = True) -> tuple[KeptDeliveries, list[Delivery]]:
    waiting = KeptDeliveries(by_message_id=by_message_id)
    deliveries = [delivery(message_id) for message_id in message_ids]
    assert [waiting.add(each) for each in deliveries] == list(range(1, len(deliveries) + 1))
    return waiting, deliveries


def by_serial(taken: KeptTaken | None) -> dict[int, Any]:
    assert taken is not None
    return taken.deliveries


def test_one_is_taken_once() -> None:
    waiting, deliveries = filled("a", "b")
    assert by_serial(waiting.take(1)) == {1: deliveries[0]}
    assert waiting.take(1) is None
    assert waiting.serial_of("a") is None
    assert len(waiting) == 1


def test_cumulative_takes_all_earlier_ones_and_no_later_one() -> None:
    waiting, deliveries = filled("a", "b", "c", "d")
    waiting.take(2)
    assert by_serial(waiting.take_through(3)) == {1: deliveries[0], 3: deliveries[2]}
    assert waiting.take_through(3) is None
    assert waiting.take_through(1) is None
    assert waiting.serial_of("d") == 4


def test_put_back_restores_order_and_names() -> None:
    waiting, _ = filled("a", "b", "c", "d", "e")
    first, second = by_serial(waiting.take_through(2)), by_serial(waiting.take_through(4))
    carry_out(waiting.put_back(KeptTaken(first)))
    carry_out(waiting.put_back(KeptTaken(second)))
    assert [*by_serial(waiting.take_through(4))] == [1, 2, 3, 4]
    assert waiting.serial_of("e") == 5


@pytest.mark.parametrize("taken_first", [[], [3, 1, 299, 150], list(range(2, 301, 3))])
@pytest.mark.parametrize("through", [0, 200, 300])
def test_many_put_back_in_pieces_are_in_order(taken_first: list[int], through: int) -> None:
    """Deliveries may come, or be removed as they cannot be rendered, between two pieces."""
    waiting, deliveries = filled(*map(str, range(300)))
    taken: dict[int, Any] = {}
    for serial in taken_first:
        taken |= by_serial(waiting.take(serial))
    if through and through not in taken:
        taken |= by_serial(waiting.take_through(through))
    removed = next((serial for serial in range(1, 300) if serial not in taken), None)
    steps = waiting.put_back(KeptTaken(taken)) if taken else ()
    counts = [len(waiting)]
    for _ in steps:
        counts.append(len(waiting))
        if len(counts) == 2:
            waiting.add(delivery("new"))
            if removed is not None:
                waiting.take(removed)
    assert all(after - before <= 65 for before, after in pairwise(counts)), "64 a step, and the new one"
    expected = {number: each for number, each in enumerate(deliveries, start=1) if number != removed or not taken}
    new = waiting.serial_of("new") if taken else waiting.add(delivery("new"))
    assert new == 301
    assert [*by_serial(waiting.take_through(301))] == [*expected, 301]
    assert waiting.serial_of("299") is None


def test_all_are_taken_without_an_object_for_each() -> None:
    """Tens of thousands of new objects would cause garbage collections within the turn."""
    waiting, deliveries = filled(*map(str, range(1000)), by_message_id=False)
    gc.collect()
    before = len(gc.get_objects())
    taken = waiting.take_through(1000)
    assert len(gc.get_objects()) - before < 100
    assert [*by_serial(taken).values()] == deliveries


def test_copies_of_one_message_are_acknowledged_one_by_one() -> None:
    waiting, deliveries = filled("a", "b", "a", "a")
    taken: list[Any] = []
    while (serial := waiting.serial_of("a")) is not None:
        taken += by_serial(waiting.take(serial)).values()
    assert taken == [deliveries[0], deliveries[2], deliveries[3]]
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
    carry_out(waiting.put_back(KeptTaken(by_serial(taken))))
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


@given(steps=st.lists(st.tuples(st.sampled_from(["add", "take", "through", "back"]), st.integers(0, 9)), max_size=40))
def test_a_message_id_names_its_first_delivery_that_is_left(steps: list[tuple[str, int]]) -> None:
    waiting, left, taken = KeptDeliveries(by_message_id=True), {}, KeptTaken({})
    for step, number in steps:
        if step == "add":
            made = delivery("abc"[number % 3])
            left[waiting.add(made)] = made
        elif step == "back" and taken.deliveries:
            carry_out(waiting.put_back(taken))
            left |= taken.deliveries
            taken = KeptTaken({})
        elif step in ("take", "through") and left:
            serial = sorted(left)[number % len(left)]
            removed = [serial] if step == "take" else [each for each in left if each <= serial]
            found = waiting.take(serial) if step == "take" else waiting.take_through(serial)
            assert by_serial(found) == {each: left.pop(each) for each in sorted(removed)}
            taken.add(found)
        for name in "abc":
            wanted = min((each for each, waits in left.items() if waits.message.message_id == name), default=None)
            assert waiting.serial_of(name) == wanted
