"""Transactions, local and XA: what is answered, and with which codes an XA resource manager is refused."""

from collections.abc import Callable

import pytest

from pybroker.broker.domain.destination import Destination, DestinationType, queue
from pybroker.broker.domain.openwire.commands import (
    BlankLocalTransactionId,
    ConnectionErrorCommand,
    ConnectionId,
    DataArrayResponse,
    ExceptionResponse,
    IntegerResponse,
    Response,
    TransactionInfo,
    TransactionType,
)
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from tests.unit.transports.openwire.conversation import OpenWireClient, World, texts

ORDERS = queue("ORDERS")
NOWHERE = Destination(DestinationType.TEMP_QUEUE, "ID:nowhere:1")
BRANCH = XATransactionId(4660, b"\x01\x02", b"\x09")

BEGIN, PREPARE, COMMIT, COMMIT_PREPARED, ROLLBACK, RECOVER, FORGET, END = (
    TransactionType.BEGIN,
    TransactionType.PREPARE,
    TransactionType.COMMIT_ONE_PHASE,
    TransactionType.COMMIT_TWO_PHASE,
    TransactionType.ROLLBACK,
    TransactionType.RECOVER,
    TransactionType.FORGET,
    TransactionType.END,
)


def info(client: OpenWireClient, transaction: TransactionId | None, kind: int) -> TransactionInfo:
    return TransactionInfo(connection_id=ConnectionId(client.id), transaction_id=transaction, type=kind)


def begin(client: OpenWireClient, transaction: TransactionId | None = None) -> TransactionId:
    transaction = transaction or LocalTransactionId(client.id, 1)
    assert client.request(info(client, transaction, BEGIN)) == []
    return transaction


def code(client: OpenWireClient, transaction: TransactionId | None, kind: int) -> int:
    """Return the code that an XA command is refused with."""
    name, text = client.refused(info(client, transaction, kind))
    assert name == "javax.transaction.xa.XAException"
    return int(text.rpartition(" xaErrorCode:")[2])


# ---------------------------------------------------------------- local


def test_sends_appear_with_the_commit_and_in_order(world: World) -> None:
    client = world.client()
    client.consume(ORDERS)
    transaction = begin(client)
    assert client.send(ORDERS, "a", "b", transaction_id=transaction, response_required=False) == []
    client.answer(info(client, transaction, COMMIT), Response)
    assert texts(client.pushed) == ["a", "b"]


def test_sends_in_a_transaction_may_require_an_answer(world: World) -> None:
    client = world.client()
    transaction = begin(client)
    assert [type(each) for each in client.send(ORDERS, "a", transaction_id=transaction)] == [Response]
    assert world.waiting(ORDERS) == []


def test_rollback_drops_them(world: World) -> None:
    client = world.client()
    transaction = begin(client)
    client.send(ORDERS, "a", transaction_id=transaction, response_required=False)
    client.answer(info(client, transaction, ROLLBACK), Response)
    assert world.waiting(ORDERS) == []


def test_beginning_again_goes_on(world: World) -> None:
    client = world.client()
    transaction = begin(client)
    client.send(ORDERS, "a", transaction_id=transaction, response_required=False)
    begin(client, transaction)
    client.answer(info(client, transaction, COMMIT), Response)
    assert world.waiting(ORDERS) == ["a"]


@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
def test_unknown_local_transaction_is_a_jms_exception(world: World, kind: TransactionType) -> None:
    client = world.client()
    unknown = LocalTransactionId(client.id, 55)
    assert client.refused(info(client, unknown, kind)) == (
        "javax.jms.JMSException",
        f"Transaction 'TX:{client.id}:55' has not been started.",
    )


def test_a_send_that_fails_silently_makes_the_commit_fail(world: World) -> None:
    client = world.client()
    transaction = begin(client)
    client.send(ORDERS, "a", transaction_id=transaction, response_required=False)
    (error,) = client.send(NOWHERE, "b", transaction_id=transaction, response_required=False)
    assert isinstance(error, ConnectionErrorCommand)
    assert client.refused(info(client, transaction, COMMIT))[0] == "javax.jms.TransactionRolledBackException"
    assert world.waiting(ORDERS) == []


@pytest.mark.parametrize("destination", [None, queue("")])
def test_a_send_to_nowhere_makes_the_commit_fail(world: World, destination: Destination | None) -> None:
    client = world.client()
    transaction = begin(client)
    client.send(destination, "b", transaction_id=transaction, response_required=False)
    assert client.refused(info(client, transaction, COMMIT))[0] == "javax.jms.TransactionRolledBackException"


def test_a_send_that_fails_with_an_answer_does_not(world: World) -> None:
    """The client knows, and its application decides."""
    client = world.client()
    transaction = begin(client)
    client.refused(client.message(NOWHERE, transaction_id=transaction))
    client.answer(info(client, transaction, COMMIT), Response)


def test_a_send_in_an_unknown_transaction_is_refused(world: World) -> None:
    client = world.client()
    unknown = LocalTransactionId(client.id, 7)
    assert client.refused(client.message(ORDERS, transaction_id=unknown))[0] == "javax.jms.JMSException"
    (error,) = client.send(ORDERS, "a", transaction_id=unknown, response_required=False)
    assert isinstance(error, ConnectionErrorCommand)
    assert world.waiting(ORDERS) == []


def test_open_transaction_ends_with_its_connection(world: World) -> None:
    client = world.client()
    client.send(ORDERS, "a", transaction_id=begin(client), response_required=False)
    client.session.lost()
    assert world.waiting(ORDERS) == []


def test_local_transactions_are_not_prepared(world: World) -> None:
    client = world.client()
    assert client.refused(info(client, begin(client), PREPARE))[0] == "java.lang.IllegalStateException"


def test_transaction_without_an_id_is_refused(world: World) -> None:
    client = world.client()
    for kind in (BEGIN, COMMIT, ROLLBACK):
        assert client.refused(info(client, None, kind))[0] == "java.lang.IllegalStateException"


def test_transaction_with_half_an_id_ends_the_conversation(world: World) -> None:
    client = world.client()
    (error,) = client.request(TransactionInfo(transaction_id=BlankLocalTransactionId(1), type=BEGIN))  # type: ignore[arg-type]
    assert isinstance(error, ConnectionErrorCommand)
    assert client.link.closed


def test_unknown_command_is_refused(world: World) -> None:
    client = world.client()
    assert client.refused(info(client, begin(client), 9))[0] == "javax.jms.JMSException"


# ---------------------------------------------------------------- XA


def test_two_phases(world: World) -> None:
    client = world.client()
    begin(client, BRANCH)
    client.send(ORDERS, "a", transaction_id=BRANCH, response_required=False)
    client.answer(info(client, BRANCH, END), Response)
    assert client.answer(info(client, BRANCH, PREPARE), IntegerResponse).result == 0
    assert client.answer(info(client, None, RECOVER), DataArrayResponse).data == (BRANCH,)
    assert world.waiting(ORDERS) == []
    client.answer(info(client, BRANCH, COMMIT_PREPARED), Response)
    assert world.waiting(ORDERS) == ["a"]
    assert client.answer(info(client, None, RECOVER), DataArrayResponse).data == ()


def test_nothing_to_prepare_is_read_only_and_over(world: World) -> None:
    client = world.client()
    begin(client, BRANCH)
    assert client.answer(info(client, BRANCH, PREPARE), IntegerResponse).result == 3
    assert code(client, BRANCH, COMMIT_PREPARED) == -4


@pytest.mark.parametrize("kind", [PREPARE, COMMIT, COMMIT_PREPARED, ROLLBACK, FORGET])
def test_unknown_branch(world: World, kind: TransactionType) -> None:
    assert code(world.client(), BRANCH, kind) == -4


def test_second_phase_without_the_first(world: World) -> None:
    client = world.client()
    begin(client, BRANCH)
    client.send(ORDERS, "a", transaction_id=BRANCH, response_required=False)
    assert code(client, BRANCH, COMMIT_PREPARED) == -6


def test_first_phase_again_has_the_same_outcome(world: World) -> None:
    """A failover client that got no answer repeats it."""
    client = world.client()
    begin(client, BRANCH)
    client.send(ORDERS, "a", transaction_id=BRANCH, response_required=False)
    for _ in range(2):
        assert client.answer(info(client, BRANCH, PREPARE), IntegerResponse).result == 0


@pytest.mark.parametrize("kind", [PREPARE, COMMIT])
def test_branch_that_was_doomed_is_rolled_back(world: World, kind: TransactionType) -> None:
    client = world.client()
    begin(client, BRANCH)
    client.send(NOWHERE, "a", transaction_id=BRANCH, response_required=False)
    assert code(client, BRANCH, kind) == 100


def test_one_phase(world: World) -> None:
    client = world.client()
    begin(client, BRANCH)
    client.send(ORDERS, "a", transaction_id=BRANCH, response_required=False)
    client.answer(info(client, BRANCH, COMMIT), Response)
    assert world.waiting(ORDERS) == ["a"]


@pytest.mark.parametrize(("kind", "waiting"), [(COMMIT_PREPARED, ["a"]), (ROLLBACK, []), (FORGET, [])])
def test_prepared_branch_outlives_its_connection(world: World, kind: TransactionType, waiting: list[str]) -> None:
    before = world.client("c1")
    begin(before, BRANCH)
    before.send(ORDERS, "a", transaction_id=BRANCH, response_required=False)
    before.answer(info(before, BRANCH, PREPARE), IntegerResponse)
    before.session.lost()
    after = world.client("c2")
    assert after.answer(info(after, None, RECOVER), DataArrayResponse).data == (BRANCH,)
    after.answer(info(after, BRANCH, kind), Response)
    assert world.waiting(ORDERS) == waiting


def test_branch_that_is_not_prepared_ends_with_its_connection(world: World) -> None:
    before = world.client("c1")
    begin(before, BRANCH)
    before.session.lost()
    assert code(world.client("c2"), BRANCH, ROLLBACK) == -4


def test_branch_is_not_unknown_before_its_end_is_on_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction manager forgets what is unknown; after a crash the branch would be in doubt again, for ever."""
    first, second = world.client("c1"), world.client("c2")
    begin(first, BRANCH)
    first.send(ORDERS, "a", transaction_id=BRANCH, response_required=False)
    first.answer(info(first, BRANCH, PREPARE), IntegerResponse)
    not_on_disk: list[Callable[[], None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(world.broker.store, "when_durable", not_on_disk.append)
        assert first.request(info(first, BRANCH, COMMIT_PREPARED)) == []
        again = info(second, BRANCH, COMMIT_PREPARED)
        again.command_id, again.response_required = second.next_id(), True
        assert second.request(again) == []
    for callback in not_on_disk:
        callback()
    [refusal] = second.receive()
    assert isinstance(refusal, ExceptionResponse)
    assert refusal.exception is not None
    assert str(refusal.exception.message).endswith("xaErrorCode:-4")
