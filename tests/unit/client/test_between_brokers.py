"""Requests made between two brokers take effect once and as a whole, and use no memory afterwards."""

import gc
import weakref

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.client.conversation import AckMode
from pybroker.client.errors import ConnectionClosed, TransactionRolledBack
from pybroker.client.messages import Message
from pybroker.client.transactions import ClientTransaction
from tests.unit.client.world import FRAME_BYTES_MAX, World

Q, OUT = queue("q"), queue("out")


def send(world: World, *bodies: str) -> None:
    producer, _ = world.state.producers.add()
    for body in bodies:
        world.state.send(producer, Q, body, {})
    world.run()


def bodies(world: World) -> list[object]:
    """Consume the messages of the queue, and return their bodies."""
    consumer, _ = world.state.subscribe(Q, ack=AckMode.AUTO, prefetch=10)
    world.run()
    found: list[object] = []
    while (message := consumer.receive_no_wait()) is not None:
        found.append(message.body)
        world.run()
    return found


def names(world: World) -> list[str]:
    return [type(command).__name__ for command in world.commands()]


# ---------------------------------------------------------------- transactions


def filled_without_a_broker(world: World, *contents: str) -> ClientTransaction:
    world.break_off()
    transaction = world.state.transactions.begin()
    for content in contents:
        world.state.transactions.send(transaction, Q, content, {})
    return transaction


def test_a_commit_of_an_unsendable_message_stores_nothing() -> None:
    world = World()
    transaction = filled_without_a_broker(world, "a", "x" * (FRAME_BYTES_MAX + 1), "b")
    outcome = world.state.transactions.commit(transaction)
    world.connect()
    world.run()
    with pytest.raises(TransactionRolledBack, match="cannot be sent"):
        outcome.result()
    assert bodies(world) == []


def test_a_transaction_with_an_unsendable_message_is_rolled_back() -> None:
    world = World()
    transaction = filled_without_a_broker(world, "a", "x" * (FRAME_BYTES_MAX + 1))
    world.connect()
    world.run()
    outcome = world.state.transactions.commit(transaction)
    world.run()
    with pytest.raises(TransactionRolledBack, match="cannot be sent"):
        outcome.result()
    assert bodies(world) == []


def moving(world: World) -> ClientTransaction:
    """Acknowledge a message in a transaction that sends another one."""
    send(world, "in")
    consumer, _ = world.state.subscribe(Q, ack=AckMode.TRANSACTED, prefetch=1)
    world.run()
    message = consumer.receive_no_wait()
    assert message is not None
    transaction = world.state.transactions.begin()
    world.state.transactions.acknowledge(transaction, message)
    world.state.transactions.send(transaction, OUT, "out", {})
    world.run()
    return transaction


def test_a_commit_after_the_disconnect_sends_nothing() -> None:
    """The next broker has not delivered the acknowledged message: it would commit the sends alone."""
    world = World()
    transaction = moving(world)
    world.state.close(finished=False)
    outcome = world.state.transactions.commit(transaction)
    world.again()
    with pytest.raises(TransactionRolledBack, match="will be redelivered"):
        outcome.result()
    out, _ = world.state.subscribe(OUT, ack=AckMode.AUTO, prefetch=1)
    world.run()
    assert out.receive_no_wait() is None


def test_a_commit_that_was_never_sent_is_rolled_back() -> None:
    world = World()
    outcome = world.state.transactions.commit(moving(world))
    world.state.bytes_to_send()  # the transport does not get them: it is gone
    world.again()
    with pytest.raises(TransactionRolledBack, match="will be redelivered"):
        outcome.result()


def test_a_commit_of_sends_never_sent_is_done_next() -> None:
    world = World()
    transaction = world.state.transactions.begin()
    world.state.transactions.send(transaction, Q, "x", {})
    world.run()
    outcome = world.state.transactions.commit(transaction)
    world.state.bytes_to_send()
    world.again()
    assert outcome.is_done
    assert outcome.error is None
    assert bodies(world) == ["x"]


# ---------------------------------------------------------------- what closes before the broker has answered


@pytest.mark.parametrize("ack", [AckMode.AUTO, AckMode.INDIVIDUAL])
def test_an_ack_after_the_disconnect_prevents_redelivery(ack: AckMode) -> None:
    world = World()
    send(world, "a")
    closing, _ = world.state.subscribe(Q, ack=ack, prefetch=1)
    world.run()
    message = closing.receive_no_wait()
    assert message is not None
    world.state.close(finished=False)
    if ack is AckMode.INDIVIDUAL:
        message.ack()
    world.state.unsubscribe(closing)
    other, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=1)
    world.again()
    assert other.receive_no_wait() is None
    world.state.unsubscribe(other)
    world.run()
    assert bodies(world) == []


@pytest.mark.parametrize("is_closed_first", [True, False])
def test_a_consumer_closed_unanswered_is_not_restored(is_closed_first: bool) -> None:
    world = World()
    consumer, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=1)
    world.run()
    world.break_off()
    world.connect()
    world.run(until=lambda: "ConsumerInfo" in names(world))
    if is_closed_first:
        world.state.unsubscribe(consumer)
    world.break_off()
    world.state.unsubscribe(consumer)
    world.connect()
    world.run()
    assert "ConsumerInfo" not in names(world)


def test_a_producer_closed_unanswered_is_not_restored() -> None:
    world = World(connected=False)
    producer, opened = world.state.producers.add(Q)
    world.state.producers.remove(producer)
    with pytest.raises(ConnectionClosed):
        opened.result()
    world.connect()
    world.run()
    assert "ProducerInfo" not in names(world)


# ---------------------------------------------------------------- the redelivery cache


@pytest.mark.parametrize("is_acked_first", [True, False])
def test_acknowledged_messages_are_cached_without_bodies(is_acked_first: bool) -> None:
    world = World()
    send(world, "a", "b", "c")
    consumer, _ = world.state.subscribe(Q, ack=AckMode.CLIENT, prefetch=10)
    world.run()
    messages: list[Message | None] = [consumer.receive_no_wait() for _ in range(3)]
    second = messages[1]
    assert second is not None
    if is_acked_first:
        second.ack()  # and with it the first
    world.break_off()
    if not is_acked_first:
        second.ack()
    kept = [weakref.ref(message) for message in messages if message is not None]
    second = None
    messages.clear()
    gc.collect()
    assert [message() is not None for message in kept] == [False, False, True], "the last is being worked on"
    world.connect()
    world.run()
    assert consumer.receive_no_wait() is None, "none is given twice"
