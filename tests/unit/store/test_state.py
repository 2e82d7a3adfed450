"""Effects of commands, rule by rule. Captured stores are compared in test_replay, random ones in the properties."""

import sys
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.journal.cleanup import SubscriptionFiles
from pybroker.store.journal.commands import (
    AckMessageFileMap,
    AddMessage,
    AddScheduledJob,
    Command,
    Commit,
    DestroyScheduler,
    Prepare,
    ProducerAudit,
    RemoveDestination,
    RemoveMessage,
    RemoveScheduledJob,
    RemoveScheduledJobs,
    RescheduleJob,
    RewrittenDataFile,
    Rollback,
    Subscribe,
    Trace,
    Unsubscribe,
    UpdateMessage,
)
from pybroker.store.journal.contents import Entry, PriorityClass
from pybroker.store.journal.format import OFFSET_MAX, Location
from pybroker.store.journal.state import SEQUENCES, StoreState, encode_sequences

Q, OTHER, T = queue("Q"), queue("OTHER"), topic("T")
LOCAL, SECOND_LOCAL = LocalTransactionId("ID:c", 1), LocalTransactionId("ID:c", 2)
XA = XATransactionId(1, b"g", b"b")


class Journal:
    """A state and the place where its next record would lie; `next_file` begins another data file."""

    def __init__(self) -> None:
        self.state = StoreState()
        self.at = Location(1, 28)

    def write(self, *commands: Command) -> None:
        for command in commands:
            self.state.apply(command, self.at)
            self.at = Location(self.at.file_id, self.at.offset + 100)

    def next_file(self) -> None:
        self.at = Location(self.at.file_id + 1, 28)

    def ids(self, destination: Any = Q, subscription_key: str | None = None) -> list[str]:
        return [entry.message_id for entry in self.state.entries(destination, subscription_key)]

    def references(self) -> dict[int, set[int]]:
        return {file_id: to for file_id, to in self.state.usage.references.items() if to}


@pytest.fixture
def journal() -> Journal:
    return Journal()


def add(message_id: str, destination: Any = Q, **fields: Any) -> AddMessage:
    return AddMessage(destination, message_id, b"12345", **fields)


def remove(message_id: str, transaction: TransactionId | None = None) -> RemoveMessage:
    return RemoveMessage(Q, message_id, transaction=transaction)


def publish(message_id: str, **fields: Any) -> AddMessage:
    return add(message_id, T, **fields)


def ack(message_id: str, key: str, transaction: TransactionId | None = None) -> RemoveMessage:
    return RemoveMessage(T, message_id, None, key, transaction)


def subscribe(key: str, *, retroactive: bool = False, info: bytes = b"info") -> Subscribe:
    return Subscribe(T, key, info, retroactive)


# ---------------------------------------------------------------- queues


def test_messages_are_in_the_order_in_which_they_were_added(journal: Journal) -> None:
    journal.write(add("b"), add("a"), add("c"), remove("a"))

    assert journal.ids() == ["b", "c"]


def test_an_entry_has_its_location_and_size(journal: Journal) -> None:
    journal.state.apply(add("a"), Location(OFFSET_MAX, OFFSET_MAX))

    expected = Entry("a", Location(OFFSET_MAX, OFFSET_MAX), 5, PriorityClass.DEFAULT)
    assert list(journal.state.entries(Q)) == [expected]


def test_priorities_make_three_classes_each_in_arrival_order(journal: Journal) -> None:
    journal.write(*(add(f"{priority}", priority=priority, priority_supported=True) for priority in range(10)))

    assert journal.ids() == ["5", "6", "7", "8", "9", "4", "0", "1", "2", "3"]


def test_priorities_do_not_count_where_they_are_not_supported(journal: Journal) -> None:
    journal.write(add("low", priority=0), add("high", priority=9))

    assert journal.ids() == ["low", "high"]


def test_a_duplicate_is_stored_once_in_its_first_place(journal: Journal) -> None:
    journal.write(add("a"), add("b"), add("a"))

    assert journal.ids() == ["a", "b"]


def test_the_same_id_may_lie_on_two_destinations(journal: Journal) -> None:
    journal.write(add("a"), add("a", OTHER), remove("a"))

    assert (journal.ids(), journal.ids(OTHER)) == ([], ["a"])
    assert journal.state.queues() == [OTHER]


def test_an_ack_of_an_unknown_message_does_nothing(journal: Journal) -> None:
    journal.write(remove("never there"), add("a"), remove("b"), remove("a"), remove("a"))

    assert journal.ids() == []
    assert journal.state.usage.live == {}


def test_contains_is_about_stored_messages(journal: Journal) -> None:
    journal.write(add("a"), add("b", transaction=LOCAL))

    assert journal.state.contains(Q, "a")
    assert not journal.state.contains(Q, "b")
    assert not journal.state.contains(OTHER, "a")


def test_an_update_keeps_the_place_and_moves_the_location(journal: Journal) -> None:
    journal.write(add("a"), add("b"))
    journal.next_file()
    journal.write(UpdateMessage(add("a")))

    assert [(entry.message_id, entry.location.file_id) for entry in journal.state.entries(Q)] == [("a", 2), ("b", 1)]


def test_an_update_of_an_unknown_message_is_an_add(journal: Journal) -> None:
    journal.write(UpdateMessage(add("a")))

    assert journal.ids() == ["a"]


def test_a_removed_destination_holds_nothing(journal: Journal) -> None:
    journal.write(add("a"), subscribe("s"), publish("t"), RemoveDestination(Q), RemoveDestination(T))

    assert journal.state.destinations == {}
    assert journal.state.usage.live == {}
    journal.write(add("a"), add("a"), UpdateMessage(add("a")), RemoveDestination(Q))
    assert journal.state.usage.live == {}
    journal.write(RemoveDestination(Q), add("b"))
    assert journal.ids() == ["b"]


@pytest.mark.parametrize(
    "command",
    [
        Trace("remark"),
        ProducerAudit(b""),
        AckMessageFileMap(b""),
        RewrittenDataFile(1),
        AddScheduledJob("JMS", "a", 0, "", 0, 0, 0, b"", 0),
        RescheduleJob("JMS", "a", 0, 0, 0),
        RemoveScheduledJob("JMS", "a", 0),
        RemoveScheduledJobs("JMS", 0, 0),
        DestroyScheduler("JMS"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_other_commands_leave_the_contents_alone(journal: Journal, command: Command) -> None:
    journal.write(add("a"), command)

    assert journal.ids() == ["a"]


# ---------------------------------------------------------------- topics


def test_a_topic_without_subscriptions_keeps_nothing(journal: Journal) -> None:
    journal.write(publish("a"))

    assert journal.ids(T) == []


def test_a_subscription_gets_what_comes_after_it(journal: Journal) -> None:
    journal.write(subscribe("one"), publish("a"), subscribe("two"), publish("b"))

    assert (journal.ids(T, "one"), journal.ids(T, "two")) == (["a", "b"], ["b"])


def test_a_retroactive_subscription_gets_pending_messages(journal: Journal) -> None:
    journal.write(subscribe("one"), publish("a"), publish("b"), ack("a", "one"), subscribe("two", retroactive=True))

    assert journal.ids(T, "two") == ["b"]


def test_a_message_is_removed_by_the_last_subscriptions_ack(journal: Journal) -> None:
    journal.write(subscribe("one"), subscribe("two"), publish("a"), publish("b"))
    journal.write(ack("b", "one"), ack("b", "one"), ack("b", "two"), ack("a", "two"))

    assert (journal.ids(T, "one"), journal.ids(T, "two"), journal.ids(T)) == (["a"], [], ["a"])


def test_an_ack_of_an_unknown_subscription_does_nothing(journal: Journal) -> None:
    journal.write(subscribe("one"), publish("a"), ack("a", "no one"))

    assert journal.ids(T, "one") == ["a"]
    assert journal.ids(T, "no one") == []


def test_a_removal_without_subscription_is_for_all(journal: Journal) -> None:
    journal.write(subscribe("one"), publish("a"), RemoveMessage(T, "a"), publish("b"), ack("b", "one"))

    assert (journal.ids(T), journal.ids(T, "one")) == ([], [])
    assert journal.state.usage.live == {}


def test_a_changed_subscription_keeps_what_it_has_pending(journal: Journal) -> None:
    journal.write(subscribe("one"), publish("a"), subscribe("one", info=b"changed"))

    assert journal.ids(T, "one") == ["a"]
    ((_, _, subscription),) = journal.state.subscriptions()
    assert (subscription.info, subscription.location) == (b"changed", Location(1, 228))


def test_an_ended_subscription_leaves_what_others_still_need(journal: Journal) -> None:
    journal.write(subscribe("one"), publish("a"), subscribe("two"), publish("b"), Unsubscribe(T, "one"))

    assert (journal.ids(T), journal.ids(T, "one"), journal.ids(T, "two")) == (["b"], [], ["b"])


def test_the_last_subscription_takes_the_topic_with_it(journal: Journal) -> None:
    journal.write(subscribe("one"), publish("a"), Unsubscribe(T, "one"), Unsubscribe(T, "one"))

    assert journal.state.destinations == {}
    assert journal.state.usage.live == {}


# ---------------------------------------------------------------- transactions


def test_a_commit_decides_the_order_not_the_sending(journal: Journal) -> None:
    journal.write(add("first sent", transaction=LOCAL), add("plain"), add("second sent", transaction=SECOND_LOCAL))
    journal.write(Commit(SECOND_LOCAL), Commit(LOCAL))

    assert journal.ids() == ["plain", "second sent", "first sent"]


def test_operations_take_effect_in_their_order(journal: Journal) -> None:
    journal.write(add("a", transaction=LOCAL), remove("a", LOCAL), add("b", transaction=LOCAL), Commit(LOCAL))

    assert journal.ids() == ["b"]


def test_a_transaction_has_no_effect_before_its_commit(journal: Journal) -> None:
    journal.write(add("a"), add("b", transaction=LOCAL), remove("a", LOCAL))
    assert journal.ids() == ["a"]

    journal.write(Rollback(LOCAL), Commit(LOCAL))
    assert journal.ids() == ["a"]


def test_the_end_of_an_unknown_transaction_does_nothing(journal: Journal) -> None:
    journal.write(Commit(LOCAL), Prepare(XA), Rollback(XA))

    assert (journal.state.inflight, journal.state.prepared) == ({}, {})


def test_a_prepared_transaction_hides_what_it_acknowledged(journal: Journal) -> None:
    journal.write(subscribe("one"), subscribe("two"), publish("t"), add("a"), add("b"))
    journal.write(remove("a", XA), add("c", transaction=XA), ack("t", "one", XA), Prepare(XA))

    assert journal.ids() == ["b"]
    assert (journal.ids(T, "one"), journal.ids(T, "two")) == ([], ["t"])
    assert journal.state.hidden(Q) == {"a"}
    assert [entry.message_id for entry in journal.state.entries(Q, include_hidden=True)] == ["a", "b"]
    assert [entry.message_id for entry in journal.state.entries(T, "one", include_hidden=True)] == ["t"]


def test_a_local_transaction_cannot_be_prepared(journal: Journal) -> None:
    journal.write(add("a", transaction=LOCAL), Prepare(LOCAL))

    assert journal.state.finish() == [LOCAL]
    assert journal.state.prepared == {}


# ---------------------------------------------------------------- producers' sequences


def last(journal: Journal) -> int:
    return journal.state.sequences.last("p")


def test_what_is_stored_counts_consumed_or_not(journal: Journal) -> None:
    journal.write(add("p:1"), add("p:2"), remove("p:2"))

    assert last(journal) == 2


@pytest.mark.parametrize("transaction", [LOCAL, XA])
def test_a_transaction_counts_from_its_commit_on(journal: Journal, transaction: TransactionId) -> None:
    journal.write(add("p:1"), add("p:2", transaction=transaction), Prepare(transaction))
    assert last(journal) == 1

    journal.write(Commit(transaction))
    assert last(journal) == 2


@pytest.mark.parametrize("transaction", [LOCAL, XA])
def test_a_transaction_rolled_back_never_counted(journal: Journal, transaction: TransactionId) -> None:
    journal.write(add("p:1"), add("p:2", transaction=transaction), Prepare(transaction), Rollback(transaction))

    assert last(journal) == 1


def test_a_topics_message_counts_though_its_subscription_is_gone(journal: Journal) -> None:
    # On replay the subscription's record may have been collected, and the message's file not.
    journal.write(publish("p:1"))

    assert last(journal) == 1


def test_an_update_counts_where_it_lies(journal: Journal) -> None:
    journal.write(add("p:1"))
    journal.next_file()
    journal.write(UpdateMessage(add("p:1")))

    assert journal.state.sequences.recorded_in({2}) == {"p": 1}


def test_a_remark_keeps_sequences(journal: Journal) -> None:
    journal.next_file()
    journal.write(encode_sequences({"p": 7, "grüße\ud800:1": 2}))

    assert last(journal) == 7
    assert journal.state.sequences.recorded_in({2}) == {"p": 7, "grüße\ud800:1": 2}


@pytest.mark.parametrize(
    "words", ["", "{", "[1]", '{"p": "1"}', '{"p": true}', '{"p": 1.5}', '{"p": null}', "[" * 100_000, '"p"']
)
def test_a_remark_in_other_words_changes_nothing(journal: Journal, words: str) -> None:
    journal.write(Trace(SEQUENCES + words), Trace("p:9"), Trace(None))

    assert last(journal) == -1


@pytest.mark.parametrize(("outcome", "left"), [(Commit(XA), ["b", "c"]), (Rollback(XA), ["a", "b"])])
def test_a_prepared_transaction_takes_effect_at_its_outcome(
    journal: Journal, outcome: Command, left: list[str]
) -> None:
    journal.write(add("a"), add("b"), remove("a", XA), add("c", transaction=XA), Prepare(XA), outcome)

    assert journal.ids() == left
    assert journal.state.prepared == {}


def test_finish_returns_the_unfinished_unprepared_transactions(journal: Journal) -> None:
    other = XATransactionId(2, b"g", b"b")
    journal.write(add("a", transaction=LOCAL), add("b", transaction=XA), add("c", transaction=other), Prepare(other))

    assert journal.state.finish() == [LOCAL, XA]
    assert (list(journal.state.inflight), list(journal.state.prepared)) == ([LOCAL, XA], [other])


def test_a_waiting_add_can_be_read_before_its_outcome(journal: Journal) -> None:
    journal.write(add("a", transaction=XA), Prepare(XA))

    (operation,) = journal.state.prepared[XA].operations
    assert operation.entry == Entry("a", Location(1, 28), 5, PriorityClass.DEFAULT)  # type: ignore[union-attr]


# ---------------------------------------------------------------- compacted files


def test_a_copied_ack_behind_its_commit_counts(journal: Journal) -> None:
    journal.state.expect_compacted_files()
    journal.write(add("a"), Commit(LOCAL))
    journal.next_file()
    journal.write(RewrittenDataFile(1), remove("a", LOCAL))

    assert journal.ids() == []
    assert journal.state.finish() == []


def test_a_copied_ack_of_an_uncommitted_transaction_does_not(journal: Journal) -> None:
    journal.state.expect_compacted_files()
    journal.write(add("a"), Rollback(LOCAL), Commit(SECOND_LOCAL))
    journal.next_file()
    journal.write(RewrittenDataFile(1), remove("a", LOCAL))

    assert journal.ids() == ["a"]
    assert journal.state.finish() == [LOCAL]


def test_a_copied_commit_adds_only_unacknowledged_messages(journal: Journal) -> None:
    journal.state.expect_compacted_files()
    journal.write(subscribe("one"), subscribe("two"))
    journal.write(*(each._replace(transaction=LOCAL) for each in (add("a"), add("b"), publish("t"), publish("u"))))
    journal.next_file()
    journal.write(remove("a"), ack("t", "one"), ack("u", "one"), ack("u", "two"))
    journal.next_file()
    journal.write(RewrittenDataFile(9), Commit(LOCAL))

    assert (journal.ids(), journal.ids(T, "one"), journal.ids(T, "two")) == (["b"], [], ["t"])
    assert journal.references() == {2: {1}, 3: {1}}


def test_a_message_sent_again_after_its_ack_is_a_new_one(journal: Journal) -> None:
    journal.state.expect_compacted_files()
    journal.write(remove("a"), add("a", transaction=LOCAL), Commit(LOCAL))

    assert journal.ids() == ["a"]


def test_a_reused_id_outside_compacted_files_is_a_new_one(journal: Journal) -> None:
    journal.state.expect_compacted_files()
    journal.write(add("a"), Commit(LOCAL), remove("a", LOCAL))

    assert journal.ids() == ["a"]


# ---------------------------------------------------------------- what files are needed for


def test_live_messages_are_counted_per_file(journal: Journal) -> None:
    journal.write(add("a"), add("b"))
    journal.next_file()
    journal.write(add("c"), remove("a"))
    assert journal.state.usage.live == {1: 1, 2: 1}


def test_every_version_of_a_live_message_counts(journal: Journal) -> None:
    """Its first record has its place in the order, its last one has its body."""
    journal.write(add("a"), add("a"))
    journal.next_file()
    journal.write(UpdateMessage(add("a")), UpdateMessage(add("a")), add("a"))
    assert journal.state.usage.live == {1: 1, 2: 2}

    journal.write(remove("a"))
    assert journal.state.usage.live == {}


def test_an_ack_refers_to_the_file_of_its_message(journal: Journal) -> None:
    journal.write(add("a"))
    journal.next_file()
    journal.write(add("b"), remove("a"), remove("b"))

    assert journal.references() == {2: {1}}


def test_an_ack_refers_to_every_record_that_adds_its_message(journal: Journal) -> None:
    """The first version, a duplicate, and an update."""
    for command in (add("a"), add("a"), UpdateMessage(add("a")), remove("a")):
        journal.write(command)
        journal.next_file()

    assert journal.references() == {4: {1, 2, 3}}


def test_every_subscriptions_ack_refers_to_the_message(journal: Journal) -> None:
    journal.write(subscribe("one"), subscribe("two"), publish("a"))
    for key in ("one", "two"):
        journal.next_file()
        journal.write(ack("a", key))

    assert journal.references() == {2: {1}, 3: {1}}


@pytest.mark.parametrize("outcome", [Commit(XA), Rollback(XA)])
def test_an_outcome_refers_to_all_records_of_its_transaction(journal: Journal, outcome: Command) -> None:
    for command in (add("a", transaction=XA), add("b", transaction=XA), Prepare(XA), outcome):
        journal.write(command)
        journal.next_file()

    assert journal.references() == {3: {1, 2}, 4: {1, 2, 3}}


def test_a_transactional_ack_refers_from_where_it_was_written(journal: Journal) -> None:
    journal.write(add("a"))
    journal.next_file()
    journal.write(remove("a", LOCAL))
    journal.next_file()
    journal.write(Commit(LOCAL))

    assert journal.references() == {2: {1}, 3: {2}}


def test_a_removed_destination_refers_to_all_it_held(journal: Journal) -> None:
    journal.write(add("a"), subscribe("one"))
    journal.next_file()
    journal.write(add("b"), publish("t"))
    journal.next_file()
    journal.write(RemoveDestination(Q))
    journal.next_file()
    journal.write(RemoveDestination(T))

    assert journal.references() == {3: {1, 2}, 4: {1, 2}}


def test_an_unsubscription_refers_to_every_subscribe_record(journal: Journal) -> None:
    for command in (subscribe("one"), subscribe("one"), publish("a"), Unsubscribe(T, "one")):
        journal.write(command)
        journal.next_file()

    assert journal.references() == {4: {1, 2, 3}}


def test_unfinished_transactions_name_their_files(journal: Journal) -> None:
    journal.write(add("a", transaction=LOCAL))
    journal.next_file()
    journal.write(add("b", transaction=XA))
    journal.next_file()
    journal.write(Prepare(XA))

    assert journal.state.transaction_files() == {1, 2, 3}


def test_a_subscription_needs_earlier_records_while_pending(
    journal: Journal,
) -> None:
    journal.write(subscribe("one"))
    journal.next_file()
    journal.write(publish("a"), subscribe("one", info=b"changed"))
    assert SubscriptionFiles.of(journal.state, keep_from=9).all == {1, 2}

    journal.write(ack("a", "one"))
    assert SubscriptionFiles.of(journal.state, keep_from=9).all == {2}


def test_files_that_are_gone_are_forgotten(journal: Journal) -> None:
    journal.write(add("a"), subscribe("one"))
    journal.next_file()
    journal.write(RewrittenDataFile(1), subscribe("one"), remove("a"))
    journal.next_file()
    journal.write(add("b"), subscribe("one"), publish("t"))

    journal.state.forget_files([1, 2])

    assert (journal.references(), journal.state.compacted) == ({}, set())
    assert SubscriptionFiles.of(journal.state, keep_from=9).all == {3}
    journal.next_file()
    journal.write(remove("b"))
    assert journal.references() == {4: {3}}


# ---------------------------------------------------------------- size


def test_a_stored_message_costs_little_memory() -> None:
    """Beyond its id: one int and one place in a dict, whatever the size of its body."""
    state = StoreState()
    for number in range(1000):
        state.apply(AddMessage(Q, f"ID:{number}", b"x" * 1000), Location(12, number))

    messages = state.destinations[Q].messages
    assert (sys.getsizeof(messages) + sum(map(sys.getsizeof, messages.values()))) / len(messages) < 100


def test_removal_of_a_destination_releases_all_its_files_and_refers_to_them() -> None:
    state = StoreState()
    for number in range(10):
        state.apply(AddMessage(Q, f"m{number}", b"x"), Location(1 + number % 3, number * 100))
    state.apply(AddMessage(OTHER, "other", b"x"), Location(2, 5000))
    state.apply(UpdateMessage(AddMessage(Q, "m0", b"y")), Location(4, 0))
    state.apply(RemoveDestination(Q), Location(5, 0))
    assert state.usage.live == {2: 1}
    assert state.usage.references[5] == {1, 2, 3, 4}, "the file of the message before its update as well"


def test_removal_in_the_file_of_its_messages_refers_to_no_file() -> None:
    state = StoreState()
    state.apply(AddMessage(Q, "m", b"x"), Location(1, 0))
    state.apply(RemoveDestination(Q), Location(1, 100))
    assert state.usage.live == {}
    assert state.usage.references == {}


def test_removal_of_many_messages_counts_some_at_a_time() -> None:
    state = StoreState()
    for number in range(10_000):
        state.apply(AddMessage(Q, f"m{number}", b"x"), Location(1 + number // 5_000, number * 100))
    state.begin_removal(Q, Location(3, 0))
    assert Q not in state.destinations
    assert state.usage.live == {1: 5_000, 2: 5_000}
    assert state.transaction_files() == {3}, "the record must not go before the messages"
    state.apply(AddMessage(Q, "m1", b"x"), Location(3, 100))
    live = []
    while state.continue_removals():
        live.append(sum(state.usage.live.values()))
    assert len(live) == 2
    assert live == sorted(live, reverse=True)
    assert state.usage.live == {3: 1}
    assert state.usage.references[3] == {1, 2}
    assert state.transaction_files() == set()
    assert state.contains(Q, "m1")
