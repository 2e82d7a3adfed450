"""Messages in an index's columns are used like the dictionary they become, and enter it no sooner than they must."""

from array import array
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import queue
from pybroker.store.journal.contents import FILE_SHIFT
from pybroker.store.journal.snapshot_messages import Slice, SnapshotMessages
from pybroker.store.journal.state import StoreState
from pybroker.store.producers import ProducerSequences

FILE = 7 << FILE_SHIFT


def message_id(number: int) -> str:
    """Return an id of the one producer; of numbers that end in 9, one without a position."""
    return f"{number}" if number % 10 == 9 else f"ID:p:1:1:1:{number}"


def indexed(numbers: Sequence[int], slice_size: int = 3) -> SnapshotMessages:
    """Return messages by number, as an index has them: each has its number for an entry, in data file 7."""
    sequences = ProducerSequences()
    for number in numbers:
        sequences.record(message_id(number))
    parts = [numbers[start : start + slice_size] for start in range(0, len(numbers), slice_size)]
    return SnapshotMessages(
        (Slice(list(map(message_id, part)), array("Q", part), [(FILE, len(part))]) for part in parts),
        sequences.watermarks(),
    )


def waiting(messages: SnapshotMessages) -> int:
    """Return how many are not entered."""
    return sum(len(each.ids) for each in messages._slices)


NUMBERS = st.integers(0, 40)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(("has", "get", "set", "pop", "delete", "list", "enter")), NUMBERS), max_size=40
)


@given(
    stored=st.lists(NUMBERS, unique=True), operations=OPERATIONS, slice_size=st.integers(1, 5), reverse=st.booleans()
)
def test_snapshot_messages_behave_like_a_dictionary(
    stored: list[int], operations: list[tuple[str, int]], slice_size: int, reverse: bool
) -> None:
    model = {message_id(number): FILE | number for number in stored}
    messages = indexed(stored, slice_size)
    for step, (operation, number) in enumerate(operations):
        name = message_id(number)
        match operation:
            case "has":
                assert (name in messages) == (name in model)
            case "get":
                assert messages.get(name) == model.get(name)
            case "set":
                messages[name] = model[name] = step
            case "pop":
                assert messages.pop(name, None) == model.pop(name, None)
            case "delete" if name not in model:
                with pytest.raises(KeyError):
                    del messages[name]
            case "delete":
                del messages[name], model[name]
            case "list":
                assert list(messages) == list(model)
            case _:
                if not messages.is_materialised:
                    messages.load_next()
        assert len(messages) == len(model)
        assert bool(messages) == bool(model)
    if reverse:
        assert list(reversed(messages)) == list(reversed(model))
    assert list(messages.items()) == list(model.items())
    assert list(messages.values()) == list(model.values())
    assert list(messages.materialised().items()) == list(model.items())


def test_to_list_them_enters_none() -> None:
    messages = indexed(range(9))
    assert len(list(messages)) == len(messages) == waiting(messages) == 9


def test_what_is_consumed_in_front_enters_no_more_than_its_slice() -> None:
    messages = indexed(range(9))
    assert messages.pop(message_id(0)) == FILE
    assert waiting(messages) == 6
    assert message_id(2) in messages
    assert waiting(messages) == 6
    assert message_id(3) in messages
    assert waiting(messages) == 3


@pytest.mark.parametrize("name", [message_id(10), "ID:q:1:1:1:1", "ID:q:1:1:1:0"])
def test_what_is_sent_again_is_known_to_be_new_without_a_look(name: str) -> None:
    messages = indexed(range(9))
    assert name not in messages
    messages[name] = 1
    assert messages[name] == 1
    assert waiting(messages) == 9
    assert list(messages) == [*map(message_id, range(9)), name]


@pytest.mark.parametrize("name", ["", "no number", "ID:q:1:1:1:-1", "x" * 600 + ":1", message_id(4) + "0"[1:]])
def test_an_id_without_a_position_is_searched_until_found(name: str) -> None:
    messages = indexed(range(9))
    found = name in messages
    assert found == (name == message_id(4))
    assert waiting(messages) == (3 if found else 0)


def test_what_is_not_text_is_not_there() -> None:
    unlike: Any = 4
    messages = indexed(range(9))
    assert unlike not in messages
    assert waiting(messages) == 9


def test_a_state_is_materialised_slice_by_slice_amid_lookups() -> None:
    state = StoreState()
    long, longer = queue("LONG"), queue("LONGER")
    state.queue_messages(queue("PLAIN"))["a"] = 1
    for where, count in ((long, 6), (longer, 12)):
        state.queue_messages(where)
        state.destinations[where].messages = indexed(range(count))
    steps = state.materialising()
    next(steps)
    assert isinstance(state.destinations[long].messages, SnapshotMessages)
    assert "no number" not in state.destinations[long].messages, "which enters the rest"
    next(steps)
    assert type(state.destinations[long].messages) is dict
    assert sum(1 for _ in steps) == 4
    assert type(state.destinations[longer].messages) is dict
    assert state.destinations[longer].messages == {message_id(number): FILE | number for number in range(12)}
    assert state.queue_messages(queue("PLAIN")) == {"a": 1}
