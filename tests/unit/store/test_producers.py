"""Memory of producers, and how long it lasts."""

import pytest

from pybroker.store import producers
from pybroker.store.producers import PRODUCER_ID_LENGTH_MAX, ProducerSequences

A, B, C = (f"ID:host-40001-1700000000000-3:1:1:{number}" for number in (1, 2, 3))


@pytest.fixture
def sequences() -> ProducerSequences:
    return ProducerSequences()


def test_nothing_is_known_of_a_producer_that_stored_nothing(sequences: ProducerSequences) -> None:
    sequences.record(f"{A}:1")
    assert sequences.last(B) == -1


def test_the_highest_number_counts_whatever_the_order(sequences: ProducerSequences) -> None:
    for number in (1, 3, 2):
        sequences.record(f"{A}:{number}", file_id=9 - number)
    assert sequences.last(A) == 3
    assert sequences.recorded_in({6}) == {A: 3}


def test_a_number_may_be_as_large_as_a_long(sequences: ProducerSequences) -> None:
    sequences.record(f"{A}:{2**63 - 1}", 2**31 - 1)
    assert sequences.last(A) == 2**63 - 1
    assert sequences.recorded_in({2**31 - 1}) == {A: 2**63 - 1}


@pytest.mark.parametrize("message_id", ["", "no number", "ID:c:1:1:x", f"{A}:", f"{A}:-5"])
def test_an_id_without_a_sequence_is_ignored(sequences: ProducerSequences, message_id: str) -> None:
    sequences.record(message_id)
    assert sequences.last(message_id.rpartition(":")[0]) < 0


def test_the_file_that_records_it_is_the_latest_of_equals(sequences: ProducerSequences) -> None:
    sequences.record(f"{A}:5", 1)
    sequences.record(f"{A}:5", 3)
    sequences.record(f"{A}:4", 4)
    assert (sequences.recorded_in({1, 4}), sequences.recorded_in({3})) == ({}, {A: 5})


def test_what_is_restored_counts_like_what_was_seen(sequences: ProducerSequences) -> None:
    sequences.record(f"{A}:5", 1)
    sequences.restore({A: 4, B: 7}, 2)
    assert (sequences.last(A), sequences.last(B)) == (5, 7)
    assert sequences.recorded_in({2}) == {B: 7}


def test_producers_that_send_are_remembered_and_others_forgotten(
    sequences: ProducerSequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 2)
    for number, each in enumerate((A, B, C, A, "ID:x:1:1", "ID:y:1:1"), 1):
        sequences.record(f"{each}:{number}")
    assert [sequences.last(each) for each in (A, B, C)] == [4, -1, 3]
    assert [sequences.last(each) for each in ("ID:x:1:1", "ID:y:1:1")] == [5, 6]


def test_a_lower_number_after_a_generation_takes_nothing_back(
    sequences: ProducerSequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 1)
    sequences.record(f"{A}:9", 1)
    sequences.record(f"{B}:1", 1)
    sequences.record(f"{A}:3", 2)
    assert sequences.last(A) == 9


def test_so_many_at_least_and_twice_as_many_at_most(
    sequences: ProducerSequences, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 10)
    for number in range(95):
        sequences.record(f"ID:c:1:{number}:1")
    known = [number for number in range(95) if sequences.last(f"ID:c:1:{number}") == 1]
    assert known == list(range(95 - len(known), 95))
    assert 10 <= len(known) <= 20


def test_a_strangely_long_id_is_not_remembered(sequences: ProducerSequences) -> None:
    longest = "x" * PRODUCER_ID_LENGTH_MAX
    sequences.record(f"{longest}:1")
    sequences.record(f"{longest}x:1")
    assert (sequences.last(longest), sequences.last(f"{longest}x")) == (1, -1)


# ---------------------------------------------------------------- what cannot have been stored


def test_later_messages_and_those_of_new_producers_are_beyond(sequences: ProducerSequences) -> None:
    sequences.record(f"{A}:5")
    mark = sequences.watermarks()
    sequences.record(f"{A}:9")
    sequences.record(f"{B}:1")
    assert [mark.is_beyond(f"{A}:{number}") for number in (4, 5, 6)] == [False, False, True]
    assert mark.is_beyond(f"{B}:1"), "it was stored later"


@pytest.mark.parametrize(
    "message_id", ["", "no number", f"{A}:", f"{A}:x", f"{A}:-5", f"{B}:-5", "x" * (PRODUCER_ID_LENGTH_MAX + 1) + ":1"]
)
def test_no_one_knows_of_an_id_that_is_not_remembered(sequences: ProducerSequences, message_id: str) -> None:
    sequences.record(f"{A}:5")
    sequences.record(message_id)
    assert not sequences.watermarks().is_beyond(message_id)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 9, 30])
def test_no_stored_message_is_beyond_with_forgotten_producers(
    sequences: ProducerSequences, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 4)
    stored = [f"ID:{number % count}:{number}" for number in range(40)]
    for message_id in stored:
        sequences.record(message_id)
    mark = sequences.watermarks()
    assert not any(map(mark.is_beyond, stored))
    assert mark.is_beyond("ID:new:1") == (count < 4)
