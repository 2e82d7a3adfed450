"""Effects of operations on the tables: the net effect of a batch."""

from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import InvalidDestination
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.openwire.objects import without_size_prefix
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.jdbc.changes import LaneRow, SubscriptionKey
from pybroker.store.jdbc.stamp import stamped, unstamped
from pybroker.store.jdbc.state import PRODUCERS_ROWS_MAX, JdbcState
from pybroker.store.jdbc.xid import Mark, MarkKind, decode, encode
from tests.conformance.conftest import text_message

ORDERS, PRICES = queue("ORDERS"), topic("PRICES")
TX, XA = LocalTransactionId("ID:c:1", 1), XATransactionId(1, b"g", b"b")
ROW = SubscriptionKey("topic://PRICES", "c", "n")


@pytest.fixture
def state() -> JdbcState:
    return JdbcState()


def subscribe(state: JdbcState) -> None:
    state.subscribe(
        DurableSubscription(client_id="c", name="n", destination=PRICES, subscribed_destination=PRICES, selector="a")
    )


def add(state: JdbcState, *numbers: int, destination: Any = ORDERS, transaction: Any = None) -> list[str]:
    messages = [text_message(destination, number) for number in numbers]
    for message in messages:
        state.add(message, transaction)
    return [message.message_id for message in messages]


def test_what_is_consumed_before_it_is_written_is_never_written(state: JdbcState) -> None:
    first, second = add(state, 1, 2)
    state.remove(ORDERS, first, None)
    changes = state.take()
    assert list(changes.inserted) == [2]
    assert changes.inserted[2].container == "queue://ORDERS"
    assert (changes.inserted[2].producer_id + ":2", changes.inserted[2].producer_sequence) == (second, 2)
    assert not changes.deleted
    assert changes.touched, "the producer is recorded once the fence was passed"


def test_what_was_written_is_deleted_by_its_id(state: JdbcState) -> None:
    (first,) = add(state, 1)
    state.take()
    state.remove(ORDERS, first, None)
    changes = state.take()
    assert changes.deleted == [1]
    assert not changes.inserted


def test_transaction_gets_its_ids_at_the_commit(state: JdbcState) -> None:
    add(state, 1, 2, transaction=TX)
    assert not state.take().touched
    add(state, 3)
    state.commit(TX)
    assert {each: row.producer_sequence for each, row in state.take().inserted.items()} == {1: 3, 2: 1, 3: 2}


def test_a_prepared_message_is_renumbered_by_its_commit(state: JdbcState) -> None:
    add(state, 1, transaction=XA)
    state.prepare(XA)
    changes = state.take()
    assert changes.inserted[1].xid == encode(Mark(XA, MarkKind.SENT))
    data = without_size_prefix(changes.inserted[1].data)
    assert view(routing(data)).transaction_id == XA, "an ActiveMQ looks for it there"
    add(state, 2)
    state.commit(XA)
    assert state.take().renumbered == {3: (1, "queue://ORDERS")}


def test_prepare_and_commit_in_one_batch_is_an_insert(state: JdbcState) -> None:
    add(state, 1, transaction=XA)
    state.prepare(XA)
    state.commit(XA)
    changes = state.take()
    assert [(each, row.xid) for each, row in changes.inserted.items()] == [(2, None)]
    assert not changes.renumbered


def test_removed_destination_drops_unwritten_changes(state: JdbcState) -> None:
    add(state, 1)
    state.take()
    add(state, 2)
    add(state, 9, transaction=XA)
    state.prepare(XA)
    state.remove_destination(ORDERS)
    add(state, 3)
    changes = state.take()
    assert changes.cleared == {"queue://ORDERS": 3}
    assert sorted(changes.inserted) == [3, 4], "what a transaction in doubt has sent stays"


def test_a_cursor_does_not_pass_what_is_pending(state: JdbcState) -> None:
    subscribe(state)
    messages = add(state, 1, 2, 3, destination=PRICES)
    changes = state.take()
    assert changes.subscriptions[ROW].description == ("topic://PRICES", "a", False, None)
    assert changes.subscriptions[ROW].lanes == (LaneRow(0, 0, None),)
    state.acknowledge(PRICES, "c:n", messages[1], None)
    changes = state.take()
    assert changes.subscriptions[ROW] == ((LaneRow(0, 0, None),), None)
    assert changes.deleted == [2], "no one waits for it any more"
    assert not changes.apart, "so no one need know that it was acknowledged"
    state.acknowledge(PRICES, "c:n", messages[0], None)
    assert state.take().subscriptions[ROW].lanes == (LaneRow(2, 0, None),)


def test_prepared_ack_has_the_later_cursor(state: JdbcState) -> None:
    subscribe(state)
    messages = add(state, 1, 2, 3, destination=PRICES)
    for message_id in (messages[0], messages[2]):
        state.acknowledge(PRICES, "c:n", message_id, XA)
    state.prepare(XA)
    changes = state.take()
    (lane,) = changes.subscriptions[ROW].lanes
    assert lane.last_acked_id == 0
    assert decode(lane.xid or "") == Mark(XA, MarkKind.ACKNOWLEDGED, 1, 0)
    assert {key.sequence for key in changes.apart} == {1, 3}


def test_a_stamp_can_be_taken_off() -> None:
    data = text_message(ORDERS, 1, "p" * 300).data  # whose body looks like a transaction's id
    assert unstamped(data) == data
    assert stamped(data, XA) != data
    assert unstamped(stamped(data, XA)) == data
    body = text_message(ORDERS, 1, "\x01p").data
    assert unstamped(body) == body


PRODUCER = text_message(ORDERS, 1).message_id.rpartition(":")[0]


def consume(state: JdbcState, *numbers: int) -> None:
    for number in numbers:
        (message_id,) = add(state, number)
        state.take()
        state.remove(ORDERS, message_id, None)


def test_producers_number_is_logged_when_its_message_goes(state: JdbcState) -> None:
    first, second = add(state, 1, 3)
    assert not state.take().producers, "the messages' rows hold it"
    state.remove(ORDERS, second, None)
    assert state.take().producers == {PRODUCER: 3}
    state.remove(ORDERS, first, None)
    assert not state.take().producers, "the log holds it"


def test_a_number_is_logged_before_all_rows_of_a_destination_go(state: JdbcState) -> None:
    add(state, 1, 2)
    state.take()
    state.remove_destination(ORDERS)
    assert state.take().producers == {PRODUCER: 2}


def test_number_is_logged_at_the_last_durables_ack(state: JdbcState) -> None:
    subscribe(state)
    (message_id,) = add(state, 1, destination=PRICES)
    (subscription,) = state.contents[PRICES].subscriptions
    assert not state.take().producers
    state.acknowledge(PRICES, subscription, message_id, None)
    assert state.take().producers == {PRODUCER: 1}


def test_a_number_is_logged_at_once_when_its_message_gets_no_row(state: JdbcState) -> None:
    subscribe(state)
    (subscription,) = state.contents[PRICES].subscriptions
    add(state, 1, destination=PRICES, transaction=TX)
    add(state, 2, destination=PRICES, transaction=XA)
    state.prepare(XA)
    state.unsubscribe(PRICES, subscription)
    assert not state.take().producers
    state.commit(TX)
    assert state.take().producers == {PRODUCER: 1}
    state.commit(XA)
    assert state.take().producers == {PRODUCER: 2}


@pytest.mark.parametrize("deletes", [False, True])
def test_what_only_rows_hold_is_known_after_a_start(state: JdbcState, deletes: bool) -> None:
    state.sequences.record(f"{PRODUCER}:5")
    state.sequences.record("other:1:5")
    if deletes:
        state.changes.delete(1)
    state.restore_producers(1, {PRODUCER: 4, "other:1": 5})
    state.restored()
    assert state.take().producers == ({PRODUCER: 5} if deletes else {})
    add(state, 3)
    state.remove_destination(ORDERS)
    assert state.take().producers == {PRODUCER: 3 if deletes else 5}


def test_producers_numbers_are_a_log_that_is_begun_again(state: JdbcState) -> None:
    consume(state, 3)
    first = state.take()
    consume(state, 4)
    second = state.take()
    assert [(each.producers_id, each.producers) for each in (first, second)] == [(1, {PRODUCER: 3}), (2, {PRODUCER: 4})]
    state.log_producers()
    assert not state.take().touched, "two rows are not many"
    consume(state, *range(5, PRODUCERS_ROWS_MAX + 5))
    state.log_producers()
    changes = state.take()
    assert changes.starts_producer_log
    assert changes.producers == {PRODUCER: PRODUCERS_ROWS_MAX + 4}
    new_master = JdbcState()
    new_master.restore_producers(changes.producers_id, changes.producers)
    assert new_master.sequences.last(PRODUCER) == PRODUCERS_ROWS_MAX + 4
    consume(new_master, PRODUCERS_ROWS_MAX + 5)
    assert new_master.take().producers_id == changes.producers_id + 1


def test_held_messages_number_is_logged_when_required(state: JdbcState) -> None:
    held = text_message(ORDERS, 7)
    producer = held.message_id.rpartition(":")[0]
    assert state.expect(held)
    assert state.sequences.last(producer) == 7
    assert not state.take().touched
    state.log_producers()  # it was consumed in between
    assert state.take().producers == {producer: 7}
    state.log_producers()
    assert not state.take().touched, "it is recorded"


def test_what_is_there_is_not_expected(state: JdbcState) -> None:
    add(state, 1)
    assert not state.expect(text_message(ORDERS, 1))
    with pytest.raises(InvalidDestination):
        state.expect(text_message(queue("x" * 300), 1))


def test_new_log_has_no_number_of_a_held_message(state: JdbcState) -> None:
    """It may be lost with this broker, and sent again."""
    consume(state, *range(1, PRODUCERS_ROWS_MAX + 3))
    state.log_producers()
    assert state.expect(text_message(ORDERS, PRODUCERS_ROWS_MAX + 3))
    changes = state.take()
    assert changes.starts_producer_log
    assert set(changes.producers.values()) == {PRODUCERS_ROWS_MAX + 2}


def test_batch_beside_branches_in_doubt_scans_no_message(state: JdbcState, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two branches hold messages of one subscription, whose row in ActiveMQ's table names the later one."""
    subscribe(state)
    later = XATransactionId(1, b"later", b"b")
    ids = add(state, *range(50), destination=PRICES)
    (subscription,) = state.contents[PRICES].subscriptions
    for branch, acknowledged in ((XA, ids[:40]), (later, ids[40:])):
        for message_id in acknowledged:
            state.acknowledge(PRICES, subscription, message_id, branch)
        state.prepare(branch)
    state.take()
    assert [doubt.is_marked for doubt in state.doubts.values()] == [False, True]
    asked: list[Any] = []
    monkeypatch.setattr(JdbcState, "is_pending", lambda *given: asked.append(given))
    add(state, 60)
    assert not state.take().prepared
    assert not asked
