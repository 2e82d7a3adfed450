# mypy: disable-error-code="arg-type, attr-defined"
"""Ends of transactions: who ends them, in what order, and what is left when its parts are gone."""

import pytest

from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import CommitFailed, TransactionError, UnknownTransaction
from pybroker.broker.domain.transaction import XATransactionId
from tests.slow import SlowStore
from tests.unit.core.conftest import FencedStore, World, make_message

BRANCH = XATransactionId(1, b"global", b"branch")


def acknowledged_in_branch(world, client, *names):
    """Send messages, and have a consumer of the client acknowledge them in the branch, one by one."""
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q", *names)
    client.connection.begin(BRANCH)
    for delivery in list(inbox.deliveries):
        inbox.consumer.acknowledge(delivery, BRANCH)
    return inbox


# ---------------------------------------------------------------- ended by another connection


def test_a_prepare_by_another_connection_outlives_the_first_one(world):
    beginner, coordinator = world.client(), world.client()
    beginner.connection.begin(BRANCH)
    beginner.send("queue://Q", "a", transaction=BRANCH)
    assert coordinator.connection.prepare(BRANCH)
    beginner.connection.close()
    coordinator.connection.commit(BRANCH, prepared=True)
    assert coordinator.subscribe("queue://Q").ids == ["a"]


def test_a_commit_by_another_connection_outlives_the_first_one(world):
    beginner, coordinator = world.client(), world.client()
    acknowledged_in_branch(world, beginner, "a")
    coordinator.connection.commit(BRANCH)
    beginner.connection.close()
    assert coordinator.subscribe("queue://Q").ids == []


def test_branches_ended_elsewhere_are_freed_by_their_connection(world, monkeypatch):
    monkeypatch.setattr("pybroker.broker.core.connection.TRANSACTIONS_MAX", 3)
    beginner, coordinator = world.client(), world.client()
    for number in range(10):
        branch = XATransactionId(1, b"global", bytes([number]))
        beginner.connection.begin(branch)
        beginner.send("queue://Q", "a", transaction=branch)
        coordinator.connection.commit(branch)
    assert not beginner.connection.transactions


def test_what_is_in_doubt_requires_the_fence():
    """A former master does not know what the next one prepared; its answer would make a coordinator forget that."""
    store = FencedStore()
    connection = World(store).client().connection
    assert connection.in_doubt() == []
    with pytest.raises(UnknownTransaction):
        connection.commit(BRANCH, prepared=True)
    assert store.fence_count == 2


def test_a_rollback_by_another_connection_ends_the_branch(world):
    beginner, coordinator = world.client(), world.client()
    beginner.connection.begin(BRANCH)
    coordinator.connection.rollback(BRANCH)
    with pytest.raises(UnknownTransaction):
        beginner.connection.commit(BRANCH)


# ---------------------------------------------------------------- prepared


def test_nothing_is_added_to_a_prepared_branch(world):
    client = world.client()
    client.connection.begin(BRANCH)
    client.send("queue://Q", "a", transaction=BRANCH)
    client.connection.prepare(BRANCH)
    with pytest.raises(TransactionError):
        client.send("queue://Q", "late", transaction=BRANCH)
    client.connection.commit(BRANCH, prepared=True)
    world.start()
    assert world.client().subscribe("queue://Q").ids == ["a"]


def test_a_message_resent_to_a_prepared_branch_is_stored_once(world):
    client = world.client()
    message = make_message("a", "queue://Q")
    client.connection.begin(BRANCH)
    client.connection.send(message, BRANCH)
    client.connection.prepare(BRANCH)
    world.start()
    client = world.client()
    client.connection.begin(BRANCH)
    client.connection.send(message, BRANCH)
    assert client.connection.prepare(BRANCH)
    client.connection.commit(BRANCH, prepared=True)
    assert client.subscribe("queue://Q").ids == ["a"]


def test_a_prepared_branch_cannot_be_doomed(world):
    client = world.client()
    client.connection.begin(BRANCH)
    client.send("queue://Q", "a", transaction=BRANCH)
    client.connection.prepare(BRANCH)
    client.connection.doom(BRANCH, "too late")
    client.connection.commit(BRANCH, prepared=True)
    assert client.subscribe("queue://Q").ids == ["a"]


def test_doomed_branch_is_rolled_back_by_prepare(world):
    client = world.client()
    client.connection.begin(BRANCH)
    client.connection.doom(BRANCH, "a send failed")
    with pytest.raises(CommitFailed):
        client.connection.prepare(BRANCH)
    assert not world.broker.branches
    assert not client.connection.transactions


def test_acks_of_a_prepared_branch_are_redelivered_after_a_stop(world):
    client = world.client()
    acknowledged_in_branch(world, client, "a")
    client.connection.prepare(BRANCH)
    client.connection.close()
    for _ in range(2):  # also after two of them
        world.store.close(world.broker.delivered())
        world.start()
    client = world.client()
    client.connection.rollback(BRANCH)
    assert client.subscribe("queue://Q").counts[0] > 0


def test_acks_of_an_open_transaction_are_delivered_at_a_stop(world):
    client = world.client()
    acknowledged_in_branch(world, client, "a")
    assert len(list(world.broker.delivered())) == 1


def test_only_the_acknowledged_copy_of_two_is_locked(world):
    client = world.client("me")
    client.subscribe("topic://A.1").consumer.close()
    client.subscribe("topic://A.2").consumer.close()
    inbox = client.subscribe("topic://A.*", subscription_name="s")
    client.send("topic://A.1,topic://A.2", "a")
    client.connection.begin(BRANCH)
    inbox.ack(0, BRANCH)
    client.connection.prepare(BRANCH)
    world.start()
    again = world.client("me").subscribe("topic://A.*", subscription_name="s")
    assert [delivery.message.destination.name for delivery in again.deliveries] == ["A.2"]


# ---------------------------------------------------------------- order


def test_a_rollback_after_the_consumer_left_keeps_the_order(world):
    first, coordinator = world.client(), world.client()
    acknowledged_in_branch(world, first, "a", "b", "c")
    first.connection.prepare(BRANCH)
    first.connection.close()
    waiting = coordinator.subscribe("queue://Q")
    coordinator.connection.rollback(BRANCH)
    assert waiting.ids == ["a", "b", "c"]


def test_a_rollback_keeps_the_order_of_several_consumers(world):
    first, coordinator = world.client(), world.client()
    inboxes = [first.subscribe("queue://Q") for _ in range(2)]
    first.send("queue://Q", "a", "b", "c", "d")
    first.connection.begin(BRANCH)
    for inbox in inboxes:
        for delivery in list(inbox.deliveries):
            inbox.consumer.acknowledge(delivery, BRANCH)
    first.connection.prepare(BRANCH)
    first.connection.close()
    waiting = coordinator.subscribe("queue://Q")
    coordinator.connection.rollback(BRANCH)
    assert waiting.ids == ["a", "b", "c", "d"]


def test_rollback_after_a_crash_keeps_order_and_adds_one_strike(make_world):
    world = make_world(max_redeliveries=0)
    client = world.client()
    acknowledged_in_branch(world, client, "a", "b", "c")
    client.connection.prepare(BRANCH)
    world.start()
    client = world.client()
    waiting = client.subscribe("queue://Q")
    client.connection.rollback(BRANCH)
    assert waiting.ids == ["b", "c"]


def test_rollbacks_in_any_order_keep_the_order_of_arrival(world):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q", "a", "b", "c", "d")
    transactions = [client.connection.begin() for _ in range(2)]
    inbox.ack(2, transactions[0])
    inbox.ack(0, transactions[0])
    inbox.ack(1, transactions[1])
    for transaction in transactions:
        client.connection.rollback(transaction)
    assert list(inbox.consumer.unsettled()) == inbox.deliveries


# ---------------------------------------------------------------- gone in between


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_commit_to_a_recreated_queue_reaches_its_consumers(world, is_prepared):
    client = world.client()
    client.connection.begin(BRANCH)
    client.send("queue://Q", "a", transaction=BRANCH)
    if is_prepared:
        client.connection.prepare(BRANCH)
    client.connection.remove_destination(parse("queue://Q"))
    inbox = client.subscribe("queue://Q")
    client.connection.commit(BRANCH)
    assert inbox.ids == ["a"]
    inbox.ack()
    world.start()
    assert world.client().subscribe("queue://Q").ids == []


def test_a_commit_to_a_deleted_queue_creates_it_again(world):
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://Q", "a", transaction=transaction)
    client.connection.remove_destination(parse("queue://Q"))
    client.connection.commit(transaction)
    assert client.subscribe("queue://Q").ids == ["a"]


def test_a_pending_commit_is_removed_with_its_queue():
    world = World(SlowStore())
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://Q", "a", transaction=transaction)
    client.connection.commit(transaction)
    client.connection.remove_destination(parse("queue://Q"))
    client.send("queue://Q", "b")
    world.store.sync()
    assert client.subscribe("queue://Q").ids == ["b"]


def test_commit_skips_a_deleted_temporary_queue(world):
    owner, client = world.client(), world.client()
    temporary = owner.connection.create_temporary(parse("temp-queue://x").type)
    transaction = client.connection.begin()
    client.send(str(temporary), "a", transaction=transaction)
    client.send("queue://Q", "b", transaction=transaction)
    owner.connection.close()
    client.connection.commit(transaction)
    assert client.subscribe("queue://Q").ids == ["b"]
    assert temporary not in world.broker.queues


def test_a_rollback_into_a_deleted_subscription_frees_memory(make_world):
    world = make_world(memory_limit=100_000)
    client = world.client("me")
    inbox = client.subscribe("topic://T", subscription_name="s")
    client.send("topic://T", "a")
    client.connection.begin(BRANCH)
    inbox.ack(0, BRANCH)
    client.connection.prepare(BRANCH)
    inbox.consumer.close()
    client.connection.unsubscribe("me", "s")
    client.connection.rollback(BRANCH)
    assert world.broker.usage.used == 0


# ---------------------------------------------------------------- sent again


def test_a_duplicate_is_not_sent_again_in_a_transaction(world):
    client = world.client()
    message = make_message("a", "queue://Q")
    client.connection.send(message)
    transaction = client.connection.begin()
    client.connection.send(message, transaction)
    client.connection.commit(transaction)
    assert client.subscribe("queue://Q").ids == ["a"]


def test_a_resent_message_with_several_copies_is_stored_once(world):
    client = world.client()
    message = make_message("a", "queue://Q,queue://R")
    client.connection.send(message)
    client.connection.send(message)
    assert client.subscribe("queue://Q").ids == ["a"]
    assert client.subscribe("queue://R").ids == ["a"]


def test_copies_and_later_sends_keep_their_order_on_a_slow_disk():
    world = World(SlowStore())
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q,queue://R", "a")
    client.send("queue://Q", "b")
    client.send("queue://Q", "c", persistent=False)
    assert inbox.ids == []
    world.store.sync()
    assert inbox.ids == ["a", "b", "c"]
