"""Transactions that span a failover: a commit whose acknowledgements went to the dead master is refused."""

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.commands import (
    ConnectionErrorCommand,
    ConnectionId,
    ExceptionResponse,
    IntegerResponse,
    MessageDispatch,
    Response,
    TransactionInfo,
    TransactionType,
)
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from tests.unit.transports.openwire.conversation import OpenWireClient, World, of_kind, texts

ORDERS, BILLS, NEWS = queue("ORDERS"), queue("BILLS"), topic("NEWS")
BEGIN, PREPARE, COMMIT, ROLLBACK = (
    TransactionType.BEGIN,
    TransactionType.PREPARE,
    TransactionType.COMMIT_ONE_PHASE,
    TransactionType.ROLLBACK,
)


def info(client: OpenWireClient, transaction: TransactionId, kind: TransactionType) -> TransactionInfo:
    return TransactionInfo(connection_id=ConnectionId(client.id), transaction_id=transaction, type=kind)


def begin(client: OpenWireClient, number: int = 1) -> LocalTransactionId:
    transaction = LocalTransactionId(client.id, number)
    assert client.request(info(client, transaction, BEGIN)) == []
    return transaction


def is_refused(client: OpenWireClient, transaction: TransactionId) -> bool:
    name, text = client.refused(info(client, transaction, COMMIT))
    return name == "javax.jms.TransactionRolledBackException" and "lost in the failover" in text


@pytest.fixture
def client(world: World) -> OpenWireClient:
    """A client that is back, on a broker that has three messages for it."""
    before = world.client("before")
    before.send(ORDERS, "a", "b", "c")
    before.session.lost()
    return world.client(failover_reconnect=True)


def test_a_commit_without_the_acknowledgements_is_refused(world: World, client: OpenWireClient) -> None:
    client.consume(ORDERS)
    assert is_refused(client, begin(client))
    client.session.lost()
    assert world.waiting(ORDERS) == ["a", "b", "c"]


def test_one_that_brings_them_counts(world: World, client: OpenWireClient) -> None:
    taken = client.consume(ORDERS)
    transaction = begin(client)
    assert client.ack(taken[:2], transaction_id=transaction) == []
    client.answer(info(client, transaction, COMMIT), Response)
    client.session.lost()
    assert world.waiting(ORDERS) == ["c"]


def test_what_was_sent_besides_goes_with_it(world: World, client: OpenWireClient) -> None:
    client.consume(ORDERS)
    transaction = begin(client)
    client.send(BILLS, "d", transaction_id=transaction, response_required=False)
    client.next_id()  # of the acknowledgement that did not come
    assert is_refused(client, transaction)
    assert world.waiting(BILLS) == []


def test_topic_acknowledgement_does_not_stand_for_that_of_a_queue(world: World, client: OpenWireClient) -> None:
    """The topic's is of a message of the former master, and that of the queue was lost with it."""
    former = world.client("former")
    former.consume(NEWS)
    world.client("publisher").send(NEWS, "n")
    news = of_kind(former.receive(), MessageDispatch)
    client.consume(ORDERS)
    client.consume(NEWS, 2)
    transaction = begin(client)
    client.send(BILLS, "d", transaction_id=transaction, response_required=False)
    assert client.ack(news, consumer_id=client.consumer(2), transaction_id=transaction) == []
    assert is_refused(client, transaction)
    assert world.waiting(BILLS) == []


def test_topic_consumer_has_nothing_to_acknowledge(client: OpenWireClient) -> None:
    client.consume(NEWS)
    client.answer(info(client, begin(client), COMMIT), Response)


def test_a_send_just_before_the_commit_leaves_no_space_for_them(world: World, client: OpenWireClient) -> None:
    client.consume(ORDERS)
    transaction = begin(client)
    client.send(BILLS, "d", transaction_id=transaction, response_required=False)
    client.answer(info(client, transaction, COMMIT), Response)
    assert world.waiting(BILLS) == ["d"]


def test_a_session_that_only_sends_has_nothing_to_acknowledge(world: World, client: OpenWireClient) -> None:
    client.open_session(2)
    client.consume(ORDERS)
    transaction = begin(client)
    client.send(BILLS, "d", transaction_id=transaction, response_required=False, producer_id=client.producer(2))
    client.next_id()
    client.answer(info(client, transaction, COMMIT), Response)
    assert world.waiting(BILLS) == ["d"]


def test_without_a_consumer_nothing_is_missing(client: OpenWireClient) -> None:
    client.answer(info(client, begin(client), COMMIT), Response)


def test_a_rollback_may_be_empty(client: OpenWireClient) -> None:
    client.consume(ORDERS)
    client.answer(info(client, begin(client), ROLLBACK), Response)


@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
def test_what_begins_after_another_has_ended_was_not_restored(client: OpenWireClient, kind: TransactionType) -> None:
    first = begin(client)
    client.answer(info(client, first, kind), Response)
    client.consume(ORDERS)
    client.answer(info(client, begin(client, 2), COMMIT), Response)


def test_nothing_was_restored_without_a_failover(world: World) -> None:
    client = world.client()
    client.consume(ORDERS)
    client.answer(info(client, begin(client), COMMIT), Response)


def test_a_branch_may_be_empty(client: OpenWireClient) -> None:
    client.consume(ORDERS)
    branch = XATransactionId(4660, b"\x01\x02", b"\x09")
    client.request(info(client, branch, BEGIN))
    client.answer(info(client, branch, PREPARE), IntegerResponse)


def test_range_longer_than_its_count_is_refused(world: World, client: OpenWireClient) -> None:
    """It had "a" and "c" before the failover; between them is now what another consumer had."""
    taken = client.consume(ORDERS)
    assert texts(taken) == ["a", "b", "c"]
    transaction = begin(client)
    (error,) = client.ack(taken, message_count=2, transaction_id=transaction)
    assert isinstance(error, ConnectionErrorCommand)
    name, _ = client.refused(info(client, transaction, COMMIT))
    assert name == "javax.jms.TransactionRolledBackException"
    client.session.lost()
    assert world.waiting(ORDERS) == ["a", "b", "c"]


def stray(client: OpenWireClient) -> TransactionId:
    """Acknowledge what is not outstanding."""
    taken = client.consume(ORDERS)
    client.ack(taken[:1])
    transaction = begin(client)
    assert client.ack(taken[:2], transaction_id=transaction) != []
    return transaction


@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
def test_a_client_that_lost_track_is_to_reconnect_once_it_knows(
    world: World, client: OpenWireClient, kind: TransactionType
) -> None:
    transaction = stray(client)
    assert not client.link.closed, "it commits or rolls back first"
    client.answer(info(client, transaction, kind), ExceptionResponse if kind == COMMIT else Response)
    assert client.link.closed
    assert world.waiting(ORDERS) == ["b", "c"]


def test_a_client_that_lost_track_has_seen_what_it_acknowledged_and_no_more(
    world: World, client: OpenWireClient
) -> None:
    """The broker makes it reconnect, and would soon have it reject all that it was sent ahead, too."""
    taken = client.consume(ORDERS)
    transaction = begin(client)
    client.ack(taken[:1], message_count=3, transaction_id=transaction)
    client.answer(info(client, transaction, COMMIT), ExceptionResponse)
    assert client.link.closed
    again = world.client().consume(ORDERS)
    assert [(each.redelivery_counter, *texts([each])) for each in again] == [(1, "a"), (0, "b"), (0, "c")]


@pytest.mark.parametrize(("last", "counters"), [(0, [0, 0]), (1, [1, 0])])
def test_a_client_that_acknowledges_again_has_seen_nothing_behind_it(
    world: World, client: OpenWireClient, last: int, counters: list[int]
) -> None:
    """Its commit had been carried out, but it does not know: it has the first message again, from its own memory."""
    taken = client.consume(ORDERS)
    client.ack(taken[:1])
    transaction = begin(client)
    client.ack(taken[: last + 1], message_count=last + 1, transaction_id=transaction)
    client.answer(info(client, transaction, COMMIT), ExceptionResponse)
    again = world.client().consume(ORDERS)
    assert [(each.redelivery_counter, *texts([each])) for each in again] == list(zip(counters, "bc", strict=True))


def test_a_client_without_a_failover_stays(world: World) -> None:
    client = world.client()
    client.send(ORDERS, "a", "b", "c")
    client.answer(info(client, stray(client), COMMIT), ExceptionResponse)
    assert not client.link.closed
