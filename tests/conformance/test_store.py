"""Contract of every `MessageStore`."""

from dataclasses import replace
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import RemovalReason
from pybroker.broker.domain.recovery import PreparedAck, PreparedSend
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId, XATransactionId
from tests.conformance.lives import (
    BETWEEN,
    BILLS,
    ORDERS,
    OTHER_TX,
    PRICES,
    TX,
    XA,
    MakeMessage,
    backlog,
    crash,
    ids,
    reopen,
    subscription,
)


class TestQueues:
    def test_a_new_store_is_empty(self, adapter: Any) -> None:
        recovery = adapter().open()
        assert not recovery.queues
        assert not recovery.backlogs
        assert not recovery.prepared
        assert recovery.delivered == frozenset()

    @BETWEEN
    def test_messages_come_back_whole_and_in_order(self, lives: Any, text_message: MakeMessage, next_life: Any) -> None:
        sent = [text_message(ORDERS, number, f"grüße {number}" * 10) for number in range(50)]
        for message in sent:
            lives.store.add(message)
        recovered = next_life(lives).queues
        assert list(recovered) == [ORDERS]
        for before, after in zip(sent, lives.store.read(ORDERS, recovered[ORDERS]), strict=True):
            assert (after.message_id, after.destination, after.data) == (before.message_id, ORDERS, before.data)
            assert after.persistent
            assert after.priority == 4
            assert after.connection_id == "ID:testhost-40001-1700000000000-3:1"

    def test_page_ends_with_the_message_that_fills_it(self, lives: Any, text_message: MakeMessage) -> None:
        sent = [
            text_message(ORDERS, number, "x" * size) for number, size in enumerate((10, 10, 90_000, 10, 70_000, 10))
        ]
        for message in sent:
            lives.store.add(message)
        left = reopen(lives).queues[ORDERS]
        assert ids(left) == ids(sent)
        lives.store.remove(ORDERS, sent[3].message_id)
        pages: list[list[str]] = []
        while left:
            messages, looked_at = lives.store.read_page(ORDERS, left, 50_000)
            pages.append(ids(messages))
            left = left[looked_at:]
        assert pages == [ids(sent[:3]), ids(sent[4:5]), ids(sent[5:])]

    @BETWEEN
    def test_forgetting_a_queue_removes_nothing(self, lives: Any, text_message: MakeMessage, next_life: Any) -> None:
        for destination in (ORDERS, BILLS):
            lives.store.add(text_message(destination, 1))
        lives.store.remove(BILLS, text_message(BILLS, 1).message_id)
        lives.store.declare(queue("KEPT"))
        for destination in (ORDERS, BILLS, queue("KEPT"), queue("UNKNOWN")):
            lives.store.forget_empty(destination)
        lives.store.add(text_message(ORDERS, 2))
        lives.store.add(text_message(BILLS, 3))
        found = next_life(lives).queues
        assert {place: ids(found[place]) for place in found} == {
            ORDERS: ids([text_message(ORDERS, 1), text_message(ORDERS, 2)]),
            BILLS: ids([text_message(BILLS, 3)]),
            queue("KEPT"): [],
        }

    @BETWEEN
    def test_what_was_consumed_stays_consumed(self, lives: Any, text_message: MakeMessage, next_life: Any) -> None:
        sent = [text_message(ORDERS, number) for number in range(6)]
        for message in sent:
            lives.store.add(message)
        for message in (sent[4], sent[0], sent[5]):
            lives.store.remove(ORDERS, message.message_id)
        assert ids(next_life(lives).queues[ORDERS]) == ids(sent[1:4])

    def test_a_queue_that_was_emptied_is_not_mentioned(self, lives: Any, text_message: MakeMessage) -> None:
        message = text_message(ORDERS, 1)
        lives.store.add(message)
        lives.store.remove(ORDERS, message.message_id)
        assert not reopen(lives).queues.get(ORDERS)

    def test_removal_in_a_later_run_is_kept(self, lives: Any, text_message: MakeMessage) -> None:
        sent = [text_message(ORDERS, number) for number in range(3)]
        for message in sent:
            lives.store.add(message)
        reopen(lives)
        lives.store.remove(ORDERS, sent[1].message_id)
        lives.store.add(text_message(ORDERS, 9))
        assert ids(crash(lives).queues[ORDERS]) == [*ids(sent[::2]), text_message(ORDERS, 9).message_id]

    def test_removing_what_is_unknown_is_harmless(self, lives: Any, text_message: MakeMessage) -> None:
        message = text_message(ORDERS, 1)
        lives.store.remove(ORDERS, "ID:no one:1:1:1")
        lives.store.remove(BILLS, message.message_id)
        lives.store.add(message)
        assert ids(reopen(lives).queues[ORDERS]) == [message.message_id]

    def test_message_repeated_after_failover_is_stored_once(self, lives: Any, text_message: MakeMessage) -> None:
        message = text_message(ORDERS, 1)
        lives.store.add(message)
        lives.store.add(message)
        reopen(lives)
        lives.store.add(message)
        assert ids(reopen(lives).queues[ORDERS]) == [message.message_id]

    def test_a_message_sent_again_after_it_was_removed_is_a_new_one(
        self, lives: Any, text_message: MakeMessage
    ) -> None:
        # Duplicate detection is the core's decision, not the store's.
        message = text_message(ORDERS, 1)
        lives.store.add(message)
        lives.store.remove(ORDERS, message.message_id)
        lives.store.add(message)
        assert ids(reopen(lives).queues[ORDERS]) == [message.message_id]

    def test_the_same_id_in_two_queues_is_two_messages(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.add(text_message(ORDERS, 1))
        lives.store.add(text_message(BILLS, 1))
        lives.store.remove(ORDERS, text_message(ORDERS, 1).message_id)
        recovery = reopen(lives)
        assert not recovery.queues.get(ORDERS)
        assert len(recovery.queues[BILLS]) == 1

    def test_removing_a_destination_removes_what_it_holds(self, lives: Any, text_message: MakeMessage) -> None:
        for number in range(3):
            lives.store.add(text_message(ORDERS, number))
            lives.store.add(text_message(BILLS, number))
        lives.store.remove_destination(ORDERS)
        lives.store.add(text_message(ORDERS, 7))
        recovery = crash(lives)
        assert ids(recovery.queues[ORDERS]) == [text_message(ORDERS, 7).message_id]
        assert len(recovery.queues[BILLS]) == 3

    def test_a_giant_message(self, lives: Any, text_message: MakeMessage) -> None:
        giant = text_message(ORDERS, 1, "x" * 100_000)
        lives.store.add(text_message(ORDERS, 0))
        lives.store.add(giant)
        lives.store.add(text_message(ORDERS, 2))
        found = lives.store.read(ORDERS, reopen(lives).queues[ORDERS])
        assert [len(each.data) for each in found] == [
            len(text_message(ORDERS, 0).data),
            len(giant.data),
            len(found[2].data),
        ]
        assert found[1].data == giant.data


class TestPriorities:
    PRIORITIES = (4, 9, 0, 4, 5, 3, 9, 1)

    def recovered(self, lives: Any, text_message: MakeMessage) -> list[int]:
        lives.open()
        for number, priority in enumerate(self.PRIORITIES):
            lives.store.add(text_message(ORDERS, number, priority=priority))
        return [message.priority for message in lives.store.read(ORDERS, reopen(lives).queues[ORDERS])]

    def test_without_priority_support_arrival_counts(self, adapter: Any, text_message: MakeMessage) -> None:
        assert self.recovered(adapter(prioritized=False), text_message) == list(self.PRIORITIES)

    def test_with_it_three_classes_come_in_order_of_arrival_each(self, adapter: Any, text_message: MakeMessage) -> None:
        assert self.recovered(adapter(prioritized=True), text_message) == [9, 5, 9, 4, 4, 0, 3, 1]


class TestTransactions:
    @BETWEEN
    @pytest.mark.parametrize("transaction", [TX, XA], ids=["local", "xa"])
    def test_a_commit_makes_all_operations_count(
        self, lives: Any, text_message: MakeMessage, next_life: Any, transaction: TransactionId
    ) -> None:
        old = text_message(ORDERS, 1)
        lives.store.add(old)
        lives.store.add(text_message(ORDERS, 2), transaction)
        lives.store.add(text_message(BILLS, 3), transaction)
        lives.store.remove(ORDERS, old.message_id, transaction)
        lives.store.commit(transaction)
        recovery = next_life(lives)
        assert ids(recovery.queues[ORDERS]) == [text_message(ORDERS, 2).message_id]
        assert ids(recovery.queues[BILLS]) == [text_message(BILLS, 3).message_id]

    @BETWEEN
    def test_a_rollback_makes_none_count(self, lives: Any, text_message: MakeMessage, next_life: Any) -> None:
        old = text_message(ORDERS, 1)
        lives.store.add(old)
        lives.store.add(text_message(ORDERS, 2), TX)
        lives.store.remove(ORDERS, old.message_id, TX)
        lives.store.rollback(TX)
        assert ids(next_life(lives).queues[ORDERS]) == [old.message_id]

    @BETWEEN
    @pytest.mark.parametrize("transaction", [TX, XA], ids=["local", "xa"])
    def test_a_transaction_left_open_never_happened(
        self, lives: Any, text_message: MakeMessage, next_life: Any, transaction: TransactionId
    ) -> None:
        old = text_message(ORDERS, 1)
        lives.store.add(old)
        lives.store.add(text_message(ORDERS, 2), transaction)
        lives.store.remove(ORDERS, old.message_id, transaction)
        recovery = next_life(lives)
        assert ids(recovery.queues[ORDERS]) == [old.message_id]
        assert not recovery.prepared
        # Its end, should a client still send it, finds nothing to do.
        lives.store.commit(transaction)
        assert ids(next_life(lives).queues[ORDERS]) == [old.message_id]

    def test_the_order_of_commits_decides_the_order_of_messages(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.add(text_message(ORDERS, 1), TX)
        lives.store.add(text_message(ORDERS, 2), OTHER_TX)
        lives.store.add(text_message(ORDERS, 3))
        lives.store.add(text_message(ORDERS, 4), TX)
        lives.store.commit(OTHER_TX)
        lives.store.commit(TX)
        expected = [text_message(ORDERS, number).message_id for number in (3, 2, 1, 4)]
        assert ids(reopen(lives).queues[ORDERS]) == expected

    def test_a_transaction_id_may_be_used_again(self, lives: Any, text_message: MakeMessage) -> None:
        # A failover client replays its open transaction under the same id.
        lives.store.add(text_message(ORDERS, 1), TX)
        crash(lives)
        lives.store.add(text_message(ORDERS, 1), TX)
        lives.store.commit(TX)
        assert ids(crash(lives).queues[ORDERS]) == [text_message(ORDERS, 1).message_id]

    def test_a_committed_acknowledgement_of_a_subscription(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.subscribe(subscription("a"))
        for number in (1, 2):
            lives.store.add(text_message(PRICES, number), TX)
        lives.store.commit(TX)
        lives.store.acknowledge(PRICES, "client:a", text_message(PRICES, 1).message_id, OTHER_TX)
        assert len(backlog(crash(lives), "client:a")) == 2
        lives.store.acknowledge(PRICES, "client:a", text_message(PRICES, 1).message_id, OTHER_TX)
        lives.store.commit(OTHER_TX)
        assert backlog(crash(lives), "client:a") == [text_message(PRICES, 2).message_id]


class TestPrepared:
    """An XA transaction in doubt survives whatever happens, until its outcome comes."""

    @pytest.fixture
    def old(self, text_message: MakeMessage) -> Message:
        return text_message(ORDERS, 1)

    @pytest.fixture
    def new(self, text_message: MakeMessage) -> list[Message]:
        return [text_message(BILLS, 2), text_message(ORDERS, 3)]

    @pytest.fixture
    def in_doubt(self, lives: Any, old: Message, new: list[Message]) -> Any:
        """Lives with one prepared transaction that sends two messages and consumes one."""
        lives.store.add(old)
        for message in new:
            lives.store.add(message, XA)
        lives.store.remove(ORDERS, old.message_id, XA)
        lives.store.prepare(XA)
        return lives

    @BETWEEN
    def test_a_prepared_transaction_is_recovered_whole(
        self, in_doubt: Any, next_life: Any, old: Message, new: list[Message]
    ) -> None:
        for _ in range(2):
            recovery = next_life(in_doubt)
            (prepared,) = recovery.prepared
            assert prepared.transaction_id == XA
            assert list(prepared.sent) == [PreparedSend(each.destination, each.message_id) for each in new]
            assert list(prepared.acknowledged) == [PreparedAck(ORDERS, old.message_id)]
            assert {q: ids(messages) for q, messages in recovery.queues.items()} == {ORDERS: [old.message_id]}

    @BETWEEN
    @pytest.mark.parametrize("lives_between", [0, 1, 3])
    def test_its_commit_counts(self, in_doubt: Any, next_life: Any, lives_between: int, new: list[Message]) -> None:
        for _ in range(lives_between):
            next_life(in_doubt)
        in_doubt.store.commit(XA)
        recovery = next_life(in_doubt)
        assert not recovery.prepared
        assert {q: ids(messages) for q, messages in recovery.queues.items()} == {
            BILLS: ids(new[:1]),
            ORDERS: ids(new[1:]),
        }
        assert [each.data for each in in_doubt.store.read(BILLS, ids(new[:1]))] == [new[0].data]

    @BETWEEN
    @pytest.mark.parametrize("lives_between", [0, 1, 3])
    def test_prepared_queue_message_is_read_after_its_commit(
        self, in_doubt: Any, next_life: Any, lives_between: int, new: list[Message]
    ) -> None:
        for _ in range(lives_between):
            next_life(in_doubt)
        in_doubt.store.commit(XA)
        in_doubt.flush()
        assert [each.data for each in in_doubt.store.read(BILLS, ids(new[:1]))] == [new[0].data]
        assert [each.data for each in in_doubt.store.read(ORDERS, ids(new[1:]))] == [each.data for each in new[1:]]

    @BETWEEN
    def test_retroactive_subscription_gets_what_is_stored(
        self, lives: Any, text_message: MakeMessage, next_life: Any
    ) -> None:
        lives.store.subscribe(subscription("first"))
        sent = [text_message(PRICES, number) for number in range(4)]
        for message in sent[:3]:
            lives.store.add(message)
        lives.store.acknowledge(PRICES, "client:first", sent[0].message_id)
        assert list(lives.store.subscribe(subscription("plain"))) == []
        assert ids(lives.store.subscribe(subscription("late"), retroactive=True)) == ids(sent[1:3])
        assert list(lives.store.subscribe(subscription("late"), retroactive=True)) == []
        lives.store.acknowledge(PRICES, "client:first", sent[1].message_id)
        lives.store.add(sent[3])
        lives.store.acknowledge(PRICES, "client:late", sent[2].message_id)
        recovery = next_life(lives)
        assert backlog(recovery, "client:first") == ids(sent[2:])
        assert backlog(recovery, "client:plain") == ids(sent[3:])
        assert backlog(recovery, "client:late") == [sent[1].message_id, sent[3].message_id]
        assert ids(lives.store.read(PRICES, backlog(recovery, "client:late"))) == backlog(recovery, "client:late")

    @BETWEEN
    def test_subscription_continues_under_another_name(
        self, lives: Any, text_message: MakeMessage, next_life: Any
    ) -> None:
        lives.store.subscribe(subscription("other"))
        sent = [text_message(PRICES, number) for number in range(4)]
        lives.store.add(sent[0])
        lives.store.subscribe(subscription("former"))
        for message in sent[1:3]:
            lives.store.add(message)
        lives.store.acknowledge(PRICES, "client:former", sent[1].message_id)
        assert ids(lives.store.subscribe(subscription("new"), retroactive=True)) == ids(sent[:3])
        for message in sent[:2]:  # which are not in the backlog of the former one
            lives.store.acknowledge(PRICES, "client:new", message.message_id, None, RemovalReason.UNMATCHED)
        lives.store.unsubscribe(PRICES, "client:former")
        lives.store.add(sent[3])
        recovery = next_life(lives)
        assert {each.subscription.name for each in recovery.backlogs} == {"other", "new"}
        assert backlog(recovery, "client:new") == ids(sent[2:])
        assert backlog(recovery, "client:other") == ids(sent)
        assert ids(lives.store.read(PRICES, backlog(recovery, "client:new"))) == ids(sent[2:])

    @BETWEEN
    def test_prepared_topic_message_is_recovered_whole(
        self, lives: Any, text_message: MakeMessage, next_life: Any
    ) -> None:
        lives.store.subscribe(subscription("s"))
        message = text_message(PRICES, 7)
        lives.store.add(message, XA)
        lives.store.prepare(XA)
        (prepared,) = next_life(lives).prepared
        ((place, message_id, found),) = prepared.sent
        assert (place, message_id, found.data) == (PRICES, message.message_id, message.data)

    @BETWEEN
    @pytest.mark.parametrize("lives_between", [0, 1, 3])
    def test_its_roll_back_counts(self, in_doubt: Any, next_life: Any, lives_between: int, old: Message) -> None:
        for _ in range(lives_between):
            next_life(in_doubt)
        in_doubt.store.rollback(XA)
        recovery = next_life(in_doubt)
        assert not recovery.prepared
        assert {q: ids(messages) for q, messages in recovery.queues.items()} == {ORDERS: [old.message_id]}

    @BETWEEN
    def test_a_durable_subscriptions_acknowledgement(
        self, lives: Any, next_life: Any, text_message: MakeMessage
    ) -> None:
        sent = [text_message(PRICES, number) for number in (1, 2)]
        for name in ("a", "b"):
            lives.store.subscribe(subscription(name))
        for message in sent:
            lives.store.add(message)
        lives.store.acknowledge(PRICES, "client:a", sent[0].message_id, XA)
        lives.store.prepare(XA)
        recovery = next_life(lives)
        assert list(recovery.prepared[0].acknowledged) == [PreparedAck(PRICES, sent[0].message_id, "client:a")]
        assert backlog(recovery, "client:a") == backlog(recovery, "client:b") == ids(sent)
        lives.store.commit(XA)
        recovery = next_life(lives)
        assert backlog(recovery, "client:a") == ids(sent[1:])
        assert backlog(recovery, "client:b") == ids(sent)

    def test_what_went_by_another_way_is_acknowledged_no_more(self, in_doubt: Any) -> None:
        in_doubt.store.remove_destination(ORDERS)
        (prepared,) = crash(in_doubt).prepared
        assert not prepared.acknowledged
        assert len(prepared.sent) == 2

    def test_several_come_in_the_order_of_their_preparation(self, lives: Any, text_message: MakeMessage) -> None:
        first, second, third = (XATransactionId(7, b"g", bytes([number])) for number in (1, 2, 3))
        for number, transaction in enumerate((first, second, third)):
            lives.store.add(text_message(ORDERS, number), transaction)
        lives.store.prepare(third)
        lives.store.prepare(first)
        recovery = crash(lives)  # the second was not prepared: it never happened
        assert [each.transaction_id for each in recovery.prepared] == [third, first]
        lives.store.commit(first)
        lives.store.commit(third)
        assert ids(crash(lives).queues[ORDERS]) == [text_message(ORDERS, number).message_id for number in (0, 2)]

    def test_one_that_did_nothing_leaves_nothing(self, lives: Any) -> None:
        lives.store.prepare(XA)
        assert not crash(lives).prepared

    def test_a_prepared_transaction_outlives_the_cleanup_around_it(
        self, in_doubt: Any, text_message: MakeMessage, snapshot: Any, new: list[Message]
    ) -> None:
        for number in range(100, 160):
            in_doubt.store.add(text_message(ORDERS, number, "x" * 300))
            in_doubt.store.remove(ORDERS, text_message(ORDERS, number).message_id)
        in_doubt.flush()
        for _ in range(5):
            in_doubt.cleanup()
        before = snapshot(crash(in_doubt))
        assert ids(in_doubt.open().prepared[0].sent) == ids(new)
        in_doubt.store.commit(XA)
        in_doubt.flush()
        for _ in range(5):
            in_doubt.cleanup()
        after = crash(in_doubt)
        assert before["prepared"]
        assert not after.prepared
        assert {q: ids(messages) for q, messages in after.queues.items()} == {BILLS: ids(new[:1]), ORDERS: ids(new[1:])}


class TestLastSequence:
    """Repeated sends of a failover client are known by their number."""

    PRODUCER = "ID:testhost-40001-1700000000000-3:1:1:1"

    def test_nothing_is_known_of_a_new_producer(self, lives: Any) -> None:
        assert lives.store.last_sequence(self.PRODUCER) == -1

    @BETWEEN
    def test_what_was_stored_is_known_consumed_or_not(
        self, lives: Any, text_message: MakeMessage, next_life: Any
    ) -> None:
        lives.store.add(text_message(ORDERS, 4))
        lives.store.add(text_message(BILLS, 5))
        lives.flush()  # what is consumed before it was written was never stored, though an orderly stop records it
        lives.store.remove(BILLS, text_message(BILLS, 5).message_id)
        assert lives.store.last_sequence(self.PRODUCER) == 5
        next_life(lives)
        assert lives.store.last_sequence(self.PRODUCER) == 5
        assert lives.store.last_sequence(self.PRODUCER[:-1]) == -1

    @BETWEEN
    @pytest.mark.parametrize("transaction", [TX, XA], ids=["local", "xa"])
    def test_a_transaction_counts_from_its_commit_on(
        self, lives: Any, text_message: MakeMessage, next_life: Any, transaction: TransactionId
    ) -> None:
        lives.store.add(text_message(ORDERS, 1))
        lives.store.add(text_message(ORDERS, 2), transaction)
        assert lives.store.last_sequence(self.PRODUCER) == 1
        next_life(lives)
        # It never happened: the client sends it again, under the same ids.
        assert lives.store.last_sequence(self.PRODUCER) == 1
        lives.store.add(text_message(ORDERS, 2), transaction)
        lives.store.commit(transaction)
        assert lives.store.last_sequence(self.PRODUCER) == 2
        next_life(lives)
        assert lives.store.last_sequence(self.PRODUCER) == 2

    @BETWEEN
    def test_a_prepared_transaction_counts_from_its_commit_on(
        self, lives: Any, text_message: MakeMessage, next_life: Any
    ) -> None:
        lives.store.add(text_message(ORDERS, 1), XA)
        lives.store.prepare(XA)
        next_life(lives)
        assert lives.store.last_sequence(self.PRODUCER) == -1
        lives.store.commit(XA)
        assert lives.store.last_sequence(self.PRODUCER) == 1

    def test_what_was_rolled_back_never_counted(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.add(text_message(ORDERS, 1), TX)
        lives.store.rollback(TX)
        assert lives.store.last_sequence(self.PRODUCER) == -1
        crash(lives)
        assert lives.store.last_sequence(self.PRODUCER) == -1

    def test_topics_message_counts_with_a_subscriber(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.add(text_message(PRICES, 1))
        assert lives.store.last_sequence(self.PRODUCER) == -1
        lives.store.subscribe(subscription("a"))
        lives.store.add(text_message(PRICES, 2))
        lives.store.unsubscribe(PRICES, "client:a")
        assert lives.store.last_sequence(self.PRODUCER) == 2
        crash(lives)
        assert lives.store.last_sequence(self.PRODUCER) == 2

    @BETWEEN
    def test_last_sequence_outlives_the_messages_file(
        self, lives: Any, text_message: MakeMessage, next_life: Any
    ) -> None:
        producers = [f"ID:client-{number}:1:1:1" for number in range(5)]
        for producer in producers:
            lives.store.add(replace(text_message(ORDERS, 1), message_id=f"{producer}:7"))
            lives.store.remove(ORDERS, f"{producer}:7")
        for round_ in range(4):
            for number in range(60):
                lives.store.add(text_message(ORDERS, number, "x" * 300))
                lives.store.remove(ORDERS, text_message(ORDERS, number).message_id)
            lives.flush()
            lives.cleanup()
            if round_ % 2:
                next_life(lives)
        assert [lives.store.last_sequence(producer) for producer in producers] == [7] * 5


class TestDurableSubscriptions:
    def test_topics_message_without_subscriber_is_not_kept(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.add(text_message(PRICES, 1))
        lives.store.subscribe(subscription("a"))
        assert backlog(reopen(lives), "client:a") == []

    @BETWEEN
    def test_subscription_keeps_its_unacknowledged_messages(
        self, lives: Any, text_message: MakeMessage, next_life: Any
    ) -> None:
        sent = [text_message(PRICES, number) for number in range(6)]
        lives.store.subscribe(subscription("a"))
        for message in sent[:3]:
            lives.store.add(message)
        lives.store.subscribe(subscription("b"))
        for message in sent[3:]:
            lives.store.add(message)
        for number in (4, 0, 3):  # individually, out of order
            lives.store.acknowledge(PRICES, "client:a", sent[number].message_id)
        lives.store.acknowledge(PRICES, "client:b", sent[3].message_id)
        recovery = next_life(lives)
        assert backlog(recovery, "client:a") == ids([sent[1], sent[2], sent[5]])
        assert backlog(recovery, "client:b") == ids([sent[4], sent[5]])
        assert not recovery.queues

    def test_everything_about_it_comes_back(self, lives: Any) -> None:
        made = DurableSubscription(
            client_id="clé",
            name="nom:2",
            destination=PRICES,
            subscribed_destination=topic("PRICES.>"),
            selector="price > 5 AND currency = '€'",
            no_local=True,
            user="zoë",
        )
        lives.store.subscribe(made)
        (found,) = reopen(lives).backlogs
        assert found.subscription == made

    def test_one_wildcard_subscription_has_a_backlog_per_topic(self, lives: Any, text_message: MakeMessage) -> None:
        other = topic("PRICES.US")
        for destination in (PRICES, other):
            lives.store.subscribe(
                DurableSubscription(
                    client_id="client", name="a", destination=destination, subscribed_destination=topic("PRICES.*")
                )
            )
        lives.store.add(text_message(PRICES, 1))
        lives.store.add(text_message(other, 2))
        lives.store.acknowledge(PRICES, "client:a", text_message(PRICES, 1).message_id)
        found = {b.subscription.destination: ids(b.message_ids) for b in reopen(lives).backlogs}
        assert found == {PRICES: [], other: [text_message(other, 2).message_id]}

    def test_changing_one_keeps_its_backlog(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.subscribe(subscription("a"))
        lives.store.add(text_message(PRICES, 1))
        lives.store.subscribe(subscription("a", selector="x = 1"))
        lives.store.add(text_message(PRICES, 2))
        recovery = reopen(lives)
        assert len(backlog(recovery, "client:a")) == 2
        assert recovery.backlogs[0].subscription.selector == "x = 1"

    @BETWEEN
    def test_unsubscribing_drops_one_backlog_and_no_other(
        self, lives: Any, text_message: MakeMessage, next_life: Any
    ) -> None:
        lives.store.subscribe(subscription("a"))
        lives.store.subscribe(subscription("b"))
        lives.store.add(text_message(PRICES, 1))
        lives.store.unsubscribe(PRICES, "client:a")
        recovery = next_life(lives)
        assert backlog(recovery, "client:b") == [text_message(PRICES, 1).message_id]
        assert len(recovery.backlogs) == 1
        lives.store.unsubscribe(PRICES, "client:b")
        lives.store.add(text_message(PRICES, 2))
        assert not next_life(lives).backlogs

    def test_subscribing_again_begins_without_backlog(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.subscribe(subscription("a"))
        lives.store.add(text_message(PRICES, 1))
        lives.store.unsubscribe(PRICES, "client:a")
        lives.store.subscribe(subscription("a"))
        assert backlog(crash(lives), "client:a") == []

    def test_unsubscribing_what_is_unknown_is_harmless(self, lives: Any) -> None:
        lives.store.subscribe(subscription("a"))
        lives.store.unsubscribe(PRICES, "client:no one")
        lives.store.unsubscribe(topic("NOWHERE"), "client:a")
        assert len(reopen(lives).backlogs) == 1

    def test_removing_a_topic_ends_its_subscriptions(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.subscribe(subscription("a"))
        lives.store.add(text_message(PRICES, 1))
        lives.store.remove_destination(PRICES)
        assert not reopen(lives).backlogs

    def test_acknowledging_what_is_unknown_is_harmless(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.subscribe(subscription("a"))
        lives.store.add(text_message(PRICES, 1))
        lives.store.acknowledge(PRICES, "client:a", "ID:no one:1:1:1")
        lives.store.acknowledge(PRICES, "client:no one", text_message(PRICES, 1).message_id)
        lives.store.acknowledge(topic("NOWHERE"), "client:a", text_message(PRICES, 1).message_id)
        assert len(backlog(reopen(lives), "client:a")) == 1

    def test_a_message_sent_again_is_pending_once(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.subscribe(subscription("a"))
        lives.store.add(text_message(PRICES, 1))
        lives.store.add(text_message(PRICES, 1))
        lives.store.acknowledge(PRICES, "client:a", text_message(PRICES, 1).message_id)
        assert backlog(reopen(lives), "client:a") == []


class TestDurability:
    def test_callbacks_come_in_order_of_the_calls(self, lives: Any, text_message: MakeMessage) -> None:
        log: list[int] = []
        for number in range(30):
            lives.store.add(text_message(ORDERS, number, "x" * 200))
            lives.store.when_durable(lambda number=number: log.append(number))
        lives.flush()
        assert log == list(range(30))

    def test_with_nothing_appended_a_callback_is_immediate(self, lives: Any) -> None:
        lives.flush()
        log: list[str] = []
        lives.store.when_durable(lambda: log.append("now"))
        assert log == ["now"]

    def test_what_a_callback_promised_survives_a_crash(self, lives: Any, text_message: MakeMessage) -> None:
        safe: list[str] = []
        for number in range(20):
            message = text_message(ORDERS, number, "x" * 300)
            lives.store.add(message)
            lives.store.when_durable(lambda text=message.message_id: safe.append(text))
        lives.flush()
        lives.store.add(text_message(ORDERS, 99))
        lives.crash()
        recovered = ids(lives.open().queues[ORDERS])
        assert recovered[: len(safe)] == safe
        assert len(safe) == 20

    def test_unwritten_bytes_go_back_to_zero(self, lives: Any, text_message: MakeMessage) -> None:
        for number in range(20):
            lives.store.add(text_message(ORDERS, number))
        lives.flush()
        assert lives.store.unwritten_bytes == 0


class TestDelivered:
    def test_a_clean_stop_records_what_consumers_have_seen(self, lives: Any, text_message: MakeMessage) -> None:
        sent = [text_message(ORDERS, number) for number in range(4)]
        for message in sent:
            lives.store.add(message)
        lives.close(delivered=ids(sent[:2]))
        recovery = lives.open()
        assert recovery.delivered == frozenset(ids(sent[:2]))
        assert ids(recovery.queues[ORDERS]) == ids(sent)

    def test_clean_stop_may_record_that_no_message_was_seen(self, lives: Any, text_message: MakeMessage) -> None:
        lives.store.add(text_message(ORDERS, 1))
        lives.close()
        assert lives.open().delivered == frozenset()

    def test_a_crash_records_nothing(self, lives: Any, text_message: MakeMessage) -> None:
        message = text_message(ORDERS, 1)
        lives.store.add(message)
        lives.close(delivered=[message.message_id])
        lives.open()
        assert crash(lives).delivered is None


class TestCleanup:
    def test_cleanup_changes_nothing_visible(self, lives: Any, text_message: MakeMessage, snapshot: Any) -> None:
        lives.store.subscribe(subscription("a"))
        sent = [text_message(ORDERS, number, "x" * 500) for number in range(60)]
        for message in sent:
            lives.store.add(message)
            lives.store.add(text_message(PRICES, int(message.message_id.rpartition(":")[2]), "y" * 200))
        for message in sent[:20] + sent[21:50]:
            lives.store.remove(ORDERS, message.message_id)
        for number in range(55):
            lives.store.acknowledge(PRICES, "client:a", text_message(PRICES, number).message_id)
        before = snapshot(crash(lives))
        lives.cleanup()
        assert snapshot(crash(lives)) == before
        lives.cleanup()
        assert snapshot(reopen(lives)) == before
