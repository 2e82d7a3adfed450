"""Rules for the deletion of data files, one by one, on states built from commands."""

import random
from collections.abc import Sequence

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.journal import cleanup
from pybroker.store.journal.cleanup import SubscriptionFiles, removable, renewable, sequence_traces
from pybroker.store.journal.commands import (
    AddMessage,
    Command,
    Commit,
    Prepare,
    RemoveDestination,
    RemoveMessage,
    Rollback,
    Subscribe,
    Trace,
    Unsubscribe,
    UpdateMessage,
)
from pybroker.store.journal.format import Location
from pybroker.store.journal.state import StoreState, encode_sequences

QUEUE = queue("Q")
TOPIC = topic("T")
LOCAL = LocalTransactionId("ID:c:1", 1)
XA = XATransactionId(1, b"g", b"b")


def add(message_id: str, **fields: object) -> AddMessage:
    return AddMessage(QUEUE, message_id, b"data", **fields)  # type: ignore[arg-type]


def ack(message_id: str, **fields: object) -> RemoveMessage:
    return RemoveMessage(QUEUE, message_id, **fields)  # type: ignore[arg-type]


def publish(message_id: str) -> AddMessage:
    return AddMessage(TOPIC, message_id, b"data")


def acknowledge(message_id: str, key: str) -> RemoveMessage:
    return RemoveMessage(TOPIC, message_id, subscription_key=key)


def state_of(*files: Sequence[Command]) -> StoreState:
    """Return the state after data files 1, 2, … with these commands."""
    state = StoreState()
    for file_id, commands in enumerate(files, 1):
        for number, command in enumerate(commands):
            state.apply(command, Location(file_id, 28 + 100 * number))
    return state


def gone(*files: Sequence[Command]) -> list[int]:
    """Return what can go when one more file is being written behind these."""
    return removable(state_of(*files), range(1, len(files) + 2), len(files) + 1)


def test_a_file_without_anything_goes() -> None:
    assert gone([Trace("started")], []) == [1, 2]


def test_the_file_being_written_and_later_ones_stay() -> None:
    assert removable(state_of([], [], []), {1, 2, 3}, 2) == [1]


def test_a_live_message_keeps_its_file() -> None:
    assert gone([add("a")], [add("b"), ack("b")]) == [2]


def test_a_message_and_its_ack_go_together_message_first() -> None:
    assert gone([add("a")], [ack("a")]) == [1, 2]


def test_an_ack_stays_while_its_messages_file_stays() -> None:
    assert gone([add("a"), add("live")], [ack("a")]) == []


def test_acks_stay_along_chains() -> None:
    assert gone([add("a"), add("live")], [ack("a"), add("b")], [ack("b")], [add("c"), ack("c")]) == [4]


def test_an_ack_in_the_file_being_written_lets_the_message_go() -> None:
    state = state_of([add("a")], [ack("a")])
    assert removable(state, {1, 2}, 2) == [1]


def test_files_that_are_gone_hold_nothing_back() -> None:
    state = state_of([add("a"), add("live")], [ack("a")])
    assert removable(state, {2, 3}, 3) == [2]


def test_forgotten_files_are_forgotten() -> None:
    state = state_of([add("a")], [ack("a"), add("b")], [ack("b")])
    assert removable(state, {1, 2, 3}, 3) == [1, 2]
    state.forget_files([1, 2])
    assert removable(state, {3, 4}, 4) == [3]


def test_an_ack_of_an_updated_message_voids_both_records() -> None:
    updated = UpdateMessage(add("a"))
    assert gone([add("a")], [updated]) == [], "the first record has the message's place in the order"
    assert gone([add("a"), add("live")], [updated], [ack("a")]) == [2]
    assert gone([add("a")], [updated], [ack("a")]) == [1, 2, 3]


def test_an_ack_answers_duplicates_too() -> None:
    assert gone([add("a")], [add("a"), add("live")], [ack("a")]) == [1]


@pytest.mark.parametrize("transaction", [LOCAL, XA])
def test_an_unfinished_transaction_keeps_its_files(transaction: LocalTransactionId | XATransactionId) -> None:
    assert gone([add("a", transaction=transaction)], [], [add("b", transaction=transaction)], []) == [2, 4]


def test_a_prepared_transaction_keeps_its_files_and_the_prepare() -> None:
    assert gone([add("a", transaction=XA)], [], [Prepare(XA)]) == [2]


@pytest.mark.parametrize("outcome", [Commit(LOCAL), Rollback(LOCAL)])
def test_an_outcome_stays_while_its_operations_do(outcome: Command) -> None:
    assert gone([add("live"), ack("x", transaction=LOCAL)], [outcome]) == []


def test_a_prepare_that_stays_keeps_the_roll_back() -> None:
    assert gone([add("a", transaction=XA)], [Prepare(XA), add("live")], [Rollback(XA)]) == [1]


def test_a_committed_ack_and_its_commit_stay_with_the_message() -> None:
    assert gone([add("a"), add("live")], [ack("a", transaction=LOCAL)], [Commit(LOCAL)]) == []
    assert gone([add("a")], [ack("a", transaction=LOCAL)], [Commit(LOCAL)]) == [1, 2, 3]


def test_a_removed_destination_is_answered_like_its_messages() -> None:
    assert gone([add("a"), AddMessage(queue("OTHER"), "live", b"")], [RemoveDestination(QUEUE)]) == []
    assert gone([add("a")], [RemoveDestination(QUEUE)]) == [1, 2]


def test_a_subscription_keeps_its_making() -> None:
    assert gone([Subscribe(TOPIC, "s", b"info")], []) == [2]


def test_a_subscription_with_a_backlog_keeps_all_its_makings() -> None:
    changed = Subscribe(TOPIC, "s", b"other info")
    assert gone([Subscribe(TOPIC, "s", b"info")], [publish("a")], [changed], []) == [4]
    assert gone([Subscribe(TOPIC, "s", b"info")], [publish("a"), acknowledge("a", "s")], [changed], []) == [1, 2, 4]


def test_an_unsubscription_stays_while_the_making_does() -> None:
    assert gone([Subscribe(TOPIC, "s", b"info"), add("live")], [Unsubscribe(TOPIC, "s")]) == []
    assert gone([Subscribe(TOPIC, "s", b"info")], [Unsubscribe(TOPIC, "s")]) == [1, 2]


def test_an_ack_stays_while_another_subscription_is_pending() -> None:
    made = [Subscribe(TOPIC, "s", b"info"), Subscribe(TOPIC, "t", b"info")]
    assert gone(made, [publish("a")], [acknowledge("a", "s")], []) == [4]
    assert gone(made, [publish("a")], [acknowledge("a", "s"), acknowledge("a", "t")], []) == [2, 3, 4]


class TestRenewal:
    def test_a_subscription_that_alone_holds_a_file_is_written_again(self) -> None:
        made = Subscribe(TOPIC, "s", b"info")
        assert renewable(state_of([made], []), {1, 2, 3}, 3) == [made]

    def test_not_while_something_is_pending(self) -> None:
        assert renewable(state_of([Subscribe(TOPIC, "s", b"info")], [publish("a")]), {1, 2, 3}, 3) == []

    def test_not_when_the_file_stays_anyway(self) -> None:
        assert renewable(state_of([Subscribe(TOPIC, "s", b"info"), add("live")], []), {1, 2, 3}, 3) == []

    def test_not_when_it_is_in_the_file_being_written(self) -> None:
        assert renewable(state_of([Subscribe(TOPIC, "s", b"info")]), {1}, 1) == []

    def test_once_written_again_the_old_file_goes(self) -> None:
        state = state_of([Subscribe(TOPIC, "s", b"info")], [])
        (renewal,) = renewable(state, {1, 2, 3}, 3)
        state.apply(renewal, Location(3, 28))
        assert removable(state, {1, 2, 3}, 3) == [1, 2]

    def test_a_cleanup_writes_a_limited_number_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cleanup, "RENEWALS_MAX", 3)
        first = [Subscribe(TOPIC, f"s{number}", b"info") for number in range(4)]
        second = [Subscribe(TOPIC, f"t{number}", b"info") for number in range(3)]
        assert renewable(state_of(first, second), {1, 2, 3}, 3) == second


class TestVisitInPieces:
    """The state changes between the pieces of a visit; a replay of the files that stay finds the same state."""

    TOPICS = tuple(topic(f"T{number}") for number in range(4))
    KEYS = ("s", "t", "u")

    @pytest.fixture(autouse=True)
    def _one_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cleanup, "VISITED_AT_ONCE", 1)

    def test_one_that_gets_a_message_meanwhile_keeps_its_file(self) -> None:
        state = state_of([Subscribe(TOPIC, "s", b"info")], [])
        found = SubscriptionFiles.of(state, 3)
        state.apply(publish("a"), Location(3, 28))
        assert found.take_renewals({1, 2, 3}) == []
        assert removable(state, {1, 2, 3}, 3, found) == [2]

    def test_one_that_gets_a_message_and_is_written_again_meanwhile_keeps_its_file(self) -> None:
        state = state_of([Subscribe(TOPIC, "s", b"info")], [])
        found = SubscriptionFiles.of(state, 3)
        state.apply(publish("a"), Location(3, 28))
        state.apply(Subscribe(TOPIC, "s", b"other"), Location(3, 128))
        assert found.take_renewals({1, 2, 3}) == []
        assert removable(state, {1, 2, 3}, 3, found) == [2]

    def test_one_that_is_deleted_meanwhile_is_not_written_again(self) -> None:
        state = state_of([Subscribe(TOPIC, "s", b"info"), Subscribe(TOPIC, "t", b"info")], [])
        found = SubscriptionFiles.of(state, 3)
        state.apply(Unsubscribe(TOPIC, "s"), Location(3, 28))
        assert found.take_renewals({1, 2, 3}) == [Subscribe(TOPIC, "t", b"info")]

    @pytest.mark.parametrize("seed", range(300))
    def test_a_replay_finds_the_same_subscriptions_and_messages(self, seed: int) -> None:
        world = random.Random(seed)
        state, at, live = StoreState(), [1, 28], [0]
        journal: list[tuple[Location, Command]] = []

        def apply(command: Command) -> None:
            journal.append((Location(*at), command))
            state.apply(command, Location(*at))
            at[1] += 100

        def change() -> None:
            place, key = world.choice(self.TOPICS), world.choice(self.KEYS)
            contents = state.destinations.get(place)
            known = contents is not None and key in contents.subscriptions
            commands: list[Command] = [Subscribe(place, key, b"info")]
            if known and contents is not None:
                live[0] += 1
                commands.append(AddMessage(place, f"m{live[0]}", b"data"))
                pending = contents.subscriptions[key].pending
                commands += [RemoveMessage(place, each, subscription_key=key) for each in sorted(pending)[:1] * 4]
                if not pending:
                    commands.append(Unsubscribe(place, key))
            apply(world.choice(commands))
            if world.random() < 0.25:
                at[:] = [at[0] + 1, 28]

        for _ in range(40):
            change()
        found = SubscriptionFiles(state, at[0])
        for _ in found.visit():
            for _ in range(world.randrange(3)):
                change()
        for renewal in found.take_renewals(range(1, at[0] + 1)):
            apply(renewal)
        doomed = removable(state, range(1, at[0] + 1), found.keep_from, found)
        replayed = StoreState()
        for location, command in journal:
            if location.file_id not in doomed:
                replayed.apply(command, location)
        assert self.content(replayed) == self.content(state)

    @staticmethod
    def content(state: StoreState) -> dict[str, dict[str, set[str]]]:
        return {
            place.name: {key: subscription.pending for key, subscription in contents.subscriptions.items()}
            for place, contents in state.destinations.items()
            if contents.subscriptions
        }


class TestMetadataRecords:
    def test_state_recorded_only_in_doomed_files_is_written_again(self) -> None:
        state = state_of([add("p:1"), ack("p:1"), add("q:5"), ack("q:5")], [add("p:2")], [])
        assert list(sequence_traces(state, [1])) == [encode_sequences({"q": 5})]
        assert list(sequence_traces(state, [3])) == []

    def test_once_written_again_it_is_elsewhere(self) -> None:
        state = state_of([add("p:1"), ack("p:1")], [])
        (trace,) = sequence_traces(state, [1])
        state.apply(trace, Location(3, 28))
        assert list(sequence_traces(state, [1, 2])) == []
        assert list(sequence_traces(state, [3])) == [trace]

    def test_a_transaction_is_remembered_by_its_adds(self) -> None:
        state = state_of([add("p:1", transaction=LOCAL)], [Commit(LOCAL), ack("p:1")], [])
        assert removable(state, {1, 2, 3}, 3) == [1, 2]
        assert list(sequence_traces(state, [1])) == [encode_sequences({"p": 1})]

    def test_many_go_into_several_records(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cleanup, "TRACE_ENTRIES_MAX", 3)
        state = state_of([add(f"p{number}:1") for number in range(7)])
        written = list(sequence_traces(state, [1]))
        assert written[0] == encode_sequences({"p0": 1, "p1": 1, "p2": 1})
        assert len(written) == 3
