"""Declared queues, which exist while they are empty, and their metadata record."""

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.store.journal.commands import RemoveDestination, RemoveMessage, Trace, decode, encode
from pybroker.store.journal.declared_queues import DECLARED_PREFIX, DeclaredQueues, decode_declared, encode_declared
from pybroker.store.journal.format import Location
from pybroker.store.journal.state import StoreState

A, B = queue("Consumer.a.VirtualTopic.X"), queue("Consumer.b.VirtualTopic.X")


@pytest.fixture
def declared() -> DeclaredQueues:
    return DeclaredQueues()


@pytest.mark.parametrize("name", ["Q", 'a "b"\n\\', "grüße 世界 \ud800 \U0001f600", "x" * 70_000])
def test_a_metadata_record_names_queues_of_any_name(name: str) -> None:
    trace = decode(encode(encode_declared([queue(name), A])))
    assert isinstance(trace, Trace)
    assert trace.message is not None
    assert decode_declared(trace.message) == [queue(name), A]


@pytest.mark.parametrize("words", ["", "{", "{}", "1", "null", '"Q"', "[1, null, []]", '[""]', "[" * 100_000])
def test_a_metadata_record_of_another_form_names_none(words: str) -> None:
    assert decode_declared(DECLARED_PREFIX + words) == []
    state = StoreState()
    state.apply(Trace(DECLARED_PREFIX + words), Location(1, 28))
    assert state.destinations == {}


def test_the_file_of_the_latest_declaration_counts(declared: DeclaredQueues) -> None:
    for file_id in (3, 7, 5):
        declared.record(A, file_id)
    declared.record(B, 3)
    assert declared.last_recorded_in({3, 7}) == [B]
    assert declared.last_recorded_in({5}) == [A]
    declared.record(A, 7)
    assert declared.last_recorded_in({5}) == []
    assert declared.last_recorded_in({7}) == [A]


def test_forget_returns_every_file_that_declares_the_queue(declared: DeclaredQueues) -> None:
    for file_id in (3, 7):
        declared.record(A, file_id)
    assert set(declared.forget(A)) == {3, 7}
    assert A not in declared
    assert list(declared.forget(A)) == []
    assert declared.files == {3, 7}, "the metadata records are still there"


def test_removed_files_declare_nothing(declared: DeclaredQueues) -> None:
    declared.record(A, 3)
    declared.record(A, 7)
    declared.record(B, 3)
    declared.forget_files({3})
    assert declared.files == {7}
    assert set(declared.forget(A)) == {7}
    assert declared.last_recorded_in(set()) == [B], "no record holds it any more, so it has to be written again"


def test_a_declared_queue_exists_before_and_after_its_messages() -> None:
    state = StoreState()
    state.apply(encode_declared([A]), Location(1, 28))
    assert state.queues() == [A]
    state.add(B, "m:1", 1 << 64)
    state.add(A, "m:2", 1 << 64)
    assert state.queues() == [A, B]
    for destination, message_id in ((A, "m:2"), (B, "m:1")):
        state.apply(RemoveMessage(destination, message_id), Location(1, 90))
    assert state.queues() == [A]


def test_a_removal_answers_the_remarks() -> None:
    state = StoreState()
    state.apply(encode_declared([A]), Location(1, 28))
    state.apply(encode_declared([A, B]), Location(2, 28))
    state.apply(RemoveDestination(A), Location(4, 28))
    assert state.queues() == [B]
    assert state.usage.references == {4: {1, 2}}
    state.forget_files([1, 2])
    assert state.usage.references == {4: set()}
    assert state.declared.files == set()
