# mypy: disable-error-code="arg-type"
"""A few bytes of each delivery answer to STOMP's ids as the deliveries themselves do."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.piecewise import carry_out
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.transports.stomp.acknowledgements import KeptDeliveries, KeptTaken
from pybroker.transports.stomp.counted_deliveries import CountedDeliveries, CountedTaken, tracked_bytes, window_max

_IDS = ("a", "b", "c")

STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "take", "through", "back"]), st.integers(0, 12)), max_size=60)


@dataclass
class Counting:
    """A consumer that records what it is asked to acknowledge."""

    acknowledged: list[tuple[int, Any]] = field(default_factory=list)

    def acknowledge_oldest(self, count: int, transaction: Any = None) -> int:
        self.acknowledged.append((count, transaction))
        return count


def delivery(message_id: str) -> Delivery:
    return Delivery(Message(message_id=message_id, destination=queue("q"), data=b"", persistent=False))


@given(steps=STEPS, by_message_id=st.booleans())
def test_counted_deliveries_behave_like_kept_ones(steps: list[tuple[str, int]], by_message_id: bool) -> None:
    counted, kept = CountedDeliveries(by_message_id=by_message_id), KeptDeliveries(by_message_id=by_message_id)
    taken: list[tuple[CountedTaken, KeptTaken]] = []
    for what, value in steps:
        if what == "add":
            each = delivery(_IDS[value % len(_IDS)])
            assert counted.add(each) == kept.add(each)
        elif what == "back":
            put_back, taken = taken[:value], taken[value:]
            for mine, model in put_back[1:]:
                put_back[0][0].add(mine)
                put_back[0][1].add(model)
            for mine, model in put_back[:1]:
                carry_out(counted.put_back(mine))
                carry_out(kept.put_back(model))
        else:
            method = "take" if what == "take" else "take_through"
            mine, model = getattr(counted, method)(value), getattr(kept, method)(value)
            assert (mine is None) == (model is None)
            if mine is not None:
                taken.append((mine, model))
        assert len(counted) == len(kept)
        for message_id in _IDS:
            assert counted.serial_of(message_id) == kept.serial_of(message_id)
            if by_message_id:
                assert [mine.includes(message_id) for mine, _ in taken] == [
                    model.includes(message_id) for _, model in taken
                ]
    for serial in range(60):
        assert (counted.take(serial) is None) == (kept.take(serial) is None)


@pytest.mark.parametrize("by_message_id", [True, False])
def test_memory_of_a_delivery_is_what_it_counts(by_message_id: bool) -> None:
    counted = CountedDeliveries(by_message_id=by_message_id)
    for _ in range(1000):
        counted.add(delivery("a"))
    assert len(counted._serials) + len(counted._hashes) == 1000 * tracked_bytes(by_message_id=by_message_id)


def test_as_many_are_acknowledged_or_rejected_as_are_taken() -> None:
    consumer, counted = Counting(), CountedDeliveries(by_message_id=True)
    for _ in range(5):
        counted.add(delivery("a"))
    transaction = LocalTransactionId("c", 1)
    for taken in (counted.take_through(3), counted.take(5)):
        assert taken is not None
        taken.acknowledge(consumer, transaction)
    taken = counted.take(4)
    assert taken is not None
    taken.reject(consumer, "no use")
    assert consumer.acknowledged == [(3, transaction), (1, transaction), (1, None)]


@pytest.mark.parametrize("by_message_id", [True, False])
def test_oldest_are_forgotten_beyond_a_window(by_message_id: bool) -> None:
    counted = CountedDeliveries(by_message_id=by_message_id)
    window = window_max(by_message_id=by_message_id)
    all_taken: CountedTaken | None = None
    for _ in range(3):
        for number in range(window):
            counted.add(delivery(str(number)))
        taken = counted.take_through(counted.add(delivery("last")))
        assert taken is not None
        if all_taken is None:
            all_taken = taken
        else:
            all_taken.add(taken)
    assert all_taken is not None
    assert (len(all_taken), all_taken.forgotten) == (window, 2 * window + 3)
    counted.add(delivery("later"))
    carry_out(counted.put_back(all_taken))
    assert (len(counted), all_taken.forgotten) == (window, 2 * window + 4)
    first = 2 * (window + 1) + 3
    assert counted.take(first - 1) is None
    assert counted.take(first) is not None
    if by_message_id:
        assert counted.serial_of("3") == first + 1
        assert counted.serial_of("later") == 3 * (window + 1) + 1
