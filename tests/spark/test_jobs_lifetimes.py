# mypy: disable-error-code="assignment, attr-defined, operator"
"""Replaying each message for itself comes to what replaying the whole journal comes to. No Spark here."""

from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.spark_jobs.lifetimes import (
    ACK,
    ADD,
    FILE_SHIFT,
    REMOVE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    UPDATE,
    Lifetime,
    RecordEvent,
    replay,
    subscription_lifetimes,
)
from pybroker.store.journal.commands import (
    AddMessage,
    Command,
    RemoveDestination,
    RemoveMessage,
    Subscribe,
    Unsubscribe,
    UpdateMessage,
)
from pybroker.store.journal.contents import FILE_SHIFT as PACKED_FILE_SHIFT
from pybroker.store.journal.format import Location
from pybroker.store.journal.state import StoreState

QUEUE, TOPIC = queue("Q"), topic("T")
KEYS = ("a:1", "b:2", "c:3")
IDS = ("m1", "m2", "m3")

destinations = st.sampled_from([QUEUE, TOPIC])
message_ids = st.sampled_from(IDS)
keys = st.sampled_from(KEYS)
adds = st.tuples(destinations, message_ids).map(lambda each: AddMessage(*each, b"data"))
commands: st.SearchStrategy[Command] = st.one_of(
    adds,
    adds,
    adds.map(UpdateMessage),
    message_ids.map(lambda message_id: RemoveMessage(QUEUE, message_id)),
    st.tuples(message_ids, st.none() | keys).map(lambda each: RemoveMessage(TOPIC, each[0], None, each[1])),
    st.tuples(keys, st.booleans()).map(lambda each: Subscribe(TOPIC, each[0], b"", each[1])),
    keys.map(lambda key: Unsubscribe(TOPIC, key)),
    destinations.map(RemoveDestination),
)


@given(st.lists(commands, max_size=40), st.integers(1, 5))
def test_lifetimes_of_messages_agree_with_the_store(journal: list[Command], per_file: int) -> None:
    places = [Location(1 + number // per_file, 33 * (1 + number)) for number in range(len(journal))]
    state = StoreState()
    for command, place in zip(journal, places, strict=True):
        state.apply(command, place)

    own, around = _events(journal, places)
    found = {key: replay(events, around[key[0]], is_topic=key[0].is_topic) for key, events in own.items()}

    live = {key: lifetimes[-1] for key, lifetimes in found.items() if lifetimes and lifetimes[-1].ended_at is None}
    assert {
        key: (lifetime.location >> FILE_SHIFT, lifetime.pending, lifetime.superseded) for key, lifetime in live.items()
    } == {
        (destination, message_id): (
            packed >> PACKED_FILE_SHIFT,
            _pending(state, destination, message_id),
            contents.superseded.get(message_id, set()),
        )
        for destination, contents in state.destinations.items()
        for message_id, packed in contents.messages.items()
    }
    for destination, contents in state.destinations.items():
        ordered = sorted((lifetime.added_at, key[1]) for key, lifetime in live.items() if key[0] == destination)
        assert [message_id for _, message_id in ordered] == list(contents.messages)
    assert _references(found, around) == {by: of for by, of in state.usage.references.items() if of}


@given(st.lists(commands, max_size=40))
def test_subscriptions_come_to_what_the_store_comes_to(journal: list[Command]) -> None:
    places = [Location(1 + number // 3, 33 * (1 + number)) for number in range(len(journal))]
    state = StoreState()
    for command, place in zip(journal, places, strict=True):
        state.apply(command, place)

    lifetimes = subscription_lifetimes(_events(journal, places)[1][TOPIC])

    existing = {
        lifetime.key: (lifetime.location >> FILE_SHIFT, lifetime.files)
        for lifetime in lifetimes
        if lifetime.ended is None
    }
    assert existing == {key: (each.location.file_id, each.files) for _, key, each in state.subscriptions()}


def _events(
    journal: Sequence[Command], places: Sequence[Location]
) -> tuple[dict[tuple[Destination, str], list[RecordEvent]], dict[Destination, list[RecordEvent]]]:
    own: defaultdict[tuple[Destination, str], list[RecordEvent]] = defaultdict(list)
    around: defaultdict[Destination, list[RecordEvent]] = defaultdict(list)
    for command, (file_id, offset) in zip(journal, places, strict=True):
        pos = file_id << FILE_SHIFT | offset
        match command:
            case AddMessage(destination, message_id):
                own[destination, message_id].append(RecordEvent(pos, pos, ADD))
            case UpdateMessage(AddMessage(destination, message_id)):
                own[destination, message_id].append(RecordEvent(pos, pos, UPDATE))
            case RemoveMessage(destination, message_id, _, key):
                own[destination, message_id].append(RecordEvent(pos, pos, ACK, subscription=key))
            case Subscribe(destination, key, _, retroactive):
                around[destination].append(RecordEvent(pos, pos, SUBSCRIBE, subscription=key, special=retroactive))
            case Unsubscribe(destination, key):
                around[destination].append(RecordEvent(pos, pos, UNSUBSCRIBE, subscription=key))
            case RemoveDestination(destination):
                around[destination].append(RecordEvent(pos, pos, REMOVE))
            case _:
                raise AssertionError(command)
    return own, around


def _pending(state: StoreState, destination: Destination, message_id: str) -> set[str]:
    subscriptions = state.destinations[destination].subscriptions
    return {key for key, subscription in subscriptions.items() if message_id in subscription.pending}


def _references(
    found: dict[tuple[Destination, str], list[Lifetime]], around: dict[Destination, list[RecordEvent]]
) -> dict[int, set[int]]:
    references: defaultdict[int, set[int]] = defaultdict(set)
    for lifetimes in found.values():
        for lifetime in lifetimes:
            for by, of in lifetime.voided:
                references[by].add(of)
    for lifetime in subscription_lifetimes(around[TOPIC]):
        if lifetime.ended is not None:
            by = lifetime.ended >> FILE_SHIFT
            references[by] |= lifetime.files - {by}
    return {by: of for by, of in references.items() if of}


def test_an_early_acknowledgement_waits_for_a_copied_commit() -> None:
    ack = RecordEvent(10, 10, ACK)

    assert replay([ack, RecordEvent(20, 5, ADD, special=True)])[0].ended_pos == 10
    assert replay([ack, RecordEvent(20, 5, ADD)])[0].ended_at is None


def test_ack_in_a_transaction_counts_at_its_record() -> None:
    far = 3 << FILE_SHIFT
    events = [RecordEvent(10, 10, ADD), RecordEvent(far, far, "met"), RecordEvent(far + 9, far, ACK)]

    (lifetime,) = replay(events)

    assert lifetime.counted == [(far, 0)]
    assert lifetime.voided == [(3, 0)]


def test_a_message_sent_again_after_it_was_consumed_lives_again() -> None:
    first, second = replay([RecordEvent(1, 1, ADD, time=5), RecordEvent(2, 2, ACK, time=9), RecordEvent(3, 3, ADD)])

    assert (first.added_time, first.ended_time, first.ended_by) == (5, 9, "acknowledged")
    assert second.ended_at is None


def test_a_message_for_no_one_has_no_life() -> None:
    assert replay([RecordEvent(1, 1, ADD)], is_topic=True) == []


@pytest.mark.parametrize("kind", ["removed", ""])
def test_an_unknown_event_is_a_mistake_of_ours(kind: str) -> None:
    with pytest.raises(AssertionError):
        replay([RecordEvent(1, 1, kind)])
