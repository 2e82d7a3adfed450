"""Local transactions: what is sent and acknowledged in one counts at its commit, or never."""

import pytest

from pybroker.broker.domain.errors import TransactionError
from tests.slow import SlowStore


def test_sends_are_invisible_until_the_commit_and_then_in_order(world):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    transaction = client.connection.begin()
    client.send("queue://Q", "a", "b", transaction=transaction)
    client.send("queue://Q", "outside")
    assert inbox.ids == ["outside"]
    client.connection.commit(transaction)
    assert inbox.ids == ["outside", "a", "b"]


def test_a_rollback_drops_sends(world):
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://Q", "a", transaction=transaction)
    client.connection.rollback(transaction)
    world.start()
    assert world.client().subscribe("queue://Q").ids == []


def test_transacted_ack_opens_window_before_the_commit(world):
    client = world.client()
    inbox = client.subscribe("queue://Q", prefetch=1)
    client.send("queue://Q", "a", "b")
    transaction = client.connection.begin()
    inbox.ack(0, transaction)
    assert inbox.ids == ["a", "b"]
    assert inbox.deliveries[0] not in inbox.consumer.outstanding
    client.connection.commit(transaction)
    client.connection.close()
    world.start()
    assert world.client().subscribe("queue://Q").ids == ["b"]


def test_rolled_back_deliveries_are_outstanding_again(world):
    client = world.client()
    inbox = client.subscribe("queue://Q", prefetch=2)
    client.send("queue://Q", "a", "b", "c")
    transaction = client.connection.begin()
    inbox.consumer.acknowledge_through(inbox.deliveries[1], transaction)
    assert inbox.ids == ["a", "b", "c"]
    client.connection.rollback(transaction)
    assert inbox.ids == ["a", "b", "c"]
    inbox.consumer.acknowledge_through(inbox.deliveries[1])
    assert inbox.deliveries[2] in inbox.consumer.outstanding
    assert inbox.deliveries[0] not in inbox.consumer.outstanding


def test_rolled_back_deliveries_are_in_the_order_of_delivery(world):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q", *"abcdef")
    transaction = client.connection.begin()
    for index in (4, 0, 2):
        inbox.consumer.acknowledge(inbox.deliveries[index], transaction)
    client.connection.rollback(transaction)
    assert list(inbox.consumer.outstanding) == inbox.deliveries


def test_a_lost_connection_rolls_back_and_returns_everything(world):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q", "a", "b")
    transaction = client.connection.begin()
    inbox.ack(0, transaction)
    client.send("queue://Q", "never", transaction=transaction)
    client.connection.close()
    again = world.client().subscribe("queue://Q")
    assert (again.ids, again.counts) == (["a", "b"], [1, 1])


def test_transacted_ack_survives_its_consumer(world):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q", "kept", "undone")
    kept, undone = client.connection.begin(), client.connection.begin()
    inbox.ack(0, kept)
    inbox.ack(1, undone)
    inbox.consumer.close()
    client.connection.commit(kept)
    client.connection.rollback(undone)
    again = world.client().subscribe("queue://Q")
    assert (again.ids, again.counts) == (["undone"], [1])


def test_an_open_transaction_does_not_survive_a_crash(world):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q", "a")
    transaction = client.connection.begin()
    inbox.ack(0, transaction)
    client.send("queue://Q", "b", transaction=transaction)
    world.start()
    assert world.client().subscribe("queue://Q").ids == ["a"]


def test_a_committed_transaction_survives_a_crash(world):
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://Q", "a", transaction=transaction)
    client.connection.commit(transaction)
    world.start()
    assert world.client().subscribe("queue://Q").ids == ["a"]


def test_a_durable_subscription_takes_part(world):
    client = world.client("me")
    inbox = client.subscribe("topic://T", subscription_name="s")
    transaction = client.connection.begin()
    client.send("topic://T", "a", transaction=transaction)
    assert inbox.ids == []
    client.connection.commit(transaction)
    acknowledging = client.connection.begin()
    inbox.ack(0, acknowledging)
    client.connection.commit(acknowledging)
    world.start()
    assert world.client("me").subscribe("topic://T", subscription_name="s").ids == []


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_transaction_ends_once(world, end):
    connection = world.client().connection
    transaction = connection.begin()
    getattr(connection, end)(transaction)
    with pytest.raises(TransactionError, match="has not been started"):
        getattr(connection, end)(transaction)


@pytest.mark.parametrize(("end", "dead"), [("commit", ["a"]), ("rollback", [])])
def test_message_expired_in_a_transaction_dies_at_commit(world, end, dead):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    transaction = client.connection.begin()
    client.send("queue://Q", "a", expiration=world.now_ms - 1, transaction=transaction)
    getattr(client.connection, end)(transaction)
    assert inbox.ids == []
    assert client.subscribe("queue://ActiveMQ.DLQ").ids == dead


def test_another_connections_transaction_is_unknown(world):
    transaction = world.client().connection.begin()
    with pytest.raises(TransactionError):
        world.client().send("queue://Q", "a", transaction=transaction)


@pytest.fixture
def slow(make_world):
    world = make_world()
    world.store = SlowStore()
    world.start()
    return world


@pytest.mark.parametrize("destination", ["queue://Q", "topic://T"])
def test_transaction_is_not_seen_before_its_commit_is_on_disk(slow, destination):
    client = slow.client()
    inbox = client.subscribe(destination)
    transaction = client.connection.begin()
    client.send(destination, "a", "b", transaction=transaction)
    client.connection.commit(transaction)
    assert inbox.ids == []
    slow.store.sync()
    assert inbox.ids == ["a", "b"]


@pytest.mark.parametrize("destination", ["queue://Q", "topic://T"])
def test_nothing_sent_later_overtakes_a_commit(slow, destination):
    client = slow.client()
    inbox = client.subscribe(destination)
    client.send(destination, "before")
    for names in ("ab", "cd"):
        transaction = client.connection.begin()
        client.send(destination, *names, transaction=transaction)
        client.connection.commit(transaction)
        client.send(destination, f"after {names}")
    assert inbox.ids == ["before"]
    slow.store.sync()
    assert inbox.ids == ["before", "a", "b", "after ab", "c", "d", "after cd"]
