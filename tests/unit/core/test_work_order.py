"""The order of work in pieces of one connection: what begins meanwhile, comes back, is refused or fails."""

from itertools import pairwise

import pytest

from pybroker.broker.core.paging import PIECE_MAX
from pybroker.broker.domain.errors import CommitFailed
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.transaction import TransactionId
from tests.unit.core.conftest import Client, make_message
from tests.unit.core.test_piecewise import COMPOSITE, MANY, Disk, LoopWorld, answers, begin, consumed, waiting


@pytest.fixture
def world() -> LoopWorld:
    return LoopWorld(Disk())


def test_work_that_begins_during_other_work_follows_it(world: LoopWorld) -> None:
    """Acknowledgements may begin without a command: deliveries that need none are settled once they have left."""
    client, inbox = consumed(world)
    client.send(COMPOSITE, "m")
    inbox.consumer.acknowledge_all(inbox.deliveries)
    answered: list[str] = []
    answers(client, "x", answered)
    holds = set()
    while not answered:
        assert inbox.consumer.outstanding or client.throttle.input_holds
        holds.add(client.throttle.input_holds)
        world.turn()
    assert holds == {1}
    assert (len(inbox.consumer.outstanding), client.throttle.input_holds) == (0, 0)
    world.settle()
    assert waiting(world, "C.199") == ["m"]


def test_a_message_repeated_by_a_client_that_came_back_has_its_copies_once(world: LoopWorld) -> None:
    client = world.client("x")
    message = make_message("m", COMPOSITE, client.connection.connection_id)
    client.connection.send(message, answered=True)
    assert world.turns
    client.connection.close()
    again = Client(world.broker.connect(client.connection.connection_id, "x", client.throttle), client.throttle)
    assert client.throttle.input_holds
    while client.throttle.input_holds:
        world.turn()
    again.connection.send(message, answered=True)
    world.settle()
    assert [waiting(world, f"C.{number}") for number in (0, 199)] == [["m"], ["m"]]


def test_acknowledged_messages_of_a_commit_are_freed_in_pieces(world: LoopWorld) -> None:
    client, inbox = consumed(world)
    transaction = begin(client)
    inbox.consumer.acknowledge_all(inbox.deliveries, transaction)
    world.settle()
    committed = client.connection.transaction(transaction)
    client.connection.commit(transaction)
    counts = [len(list(committed.acknowledged_so_far))]
    while world.turns:
        world.turn()
        counts.append(len(list(committed.acknowledged_so_far)))
    assert counts[0] == MANY
    assert counts[-1] == 0
    assert max(before - after for before, after in pairwise(counts)) <= 2 * PIECE_MAX


def test_a_transaction_that_refuses_some_of_many_acknowledgements_does_not_commit(
    world: LoopWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, inbox = consumed(world)
    monkeypatch.setattr("pybroker.broker.core.transaction.OPERATIONS_MAX", PIECE_MAX + 200)
    transaction = begin(client)
    inbox.consumer.acknowledge_all(inbox.deliveries, transaction)
    world.settle()
    with pytest.raises(CommitFailed, match="commit more often"):
        client.connection.commit(transaction)
    world.settle()
    assert len(inbox.consumer.outstanding) == MANY


def test_work_that_fails_in_a_later_piece_is_not_confirmed(world: LoopWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    client, add = world.client(), world.store.add
    added: list[Message] = []

    def failing(message: Message, transaction: TransactionId | None = None) -> bool:
        added.append(message)
        if len(added) == 150:
            raise ValueError("a fault of the broker")
        return add(message, transaction)

    monkeypatch.setattr(world.store, "add", failing)
    client.send(COMPOSITE, "m")
    answered: list[str] = []
    answers(client, "x", answered)
    with pytest.raises(ValueError, match="a fault"):
        world.settle()
    world.settle()
    assert "to its end" in str(client.throttle.error)
    client.connection.close()
    assert (answered, client.throttle.input_holds) == ([], 0)
    assert world.broker.usage.used == world.broker.objects.counted
    assert [waiting(world, f"C.{number}") for number in (0, 199)] == [[], []]
