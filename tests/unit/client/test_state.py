"""The state of a connection, and its restoration on the next broker."""

import pytest

from pybroker.broker.domain.destination import DestinationType, queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.client.consumers import CONFIRM_EVERY, Redelivery
from pybroker.client.conversation import AckMode, Opened
from pybroker.client.error_reports import PERIOD_SECONDS
from pybroker.client.errors import (
    ClientError,
    ConnectionClosed,
    DestinationRefused,
    FrameTooLarge,
    SelectorRefused,
    Timeout,
    TransactionInDoubt,
    TransactionRolledBack,
    UnsendableMessage,
)
from pybroker.client.messages import Message
from pybroker.client.pending import Callbacks, PendingResult
from pybroker.client.transactions import ClientTransaction
from tests.unit.client.world import FRAME_BYTES_MAX, World

Q = queue("q")


def kinds(world: World) -> list[str]:
    return [type(command).__name__.removeprefix("ActiveMQ") for command in world.commands()]


def send(world: World, *bodies: str, persistent: bool = True) -> list[PendingResult[None]]:
    producer, _ = world.state.producers.add()
    results = [world.state.send(producer, Q, body, {"persistent": persistent}) for body in bodies]
    world.run()
    return results


def received(world: World, ack: AckMode = AckMode.AUTO, prefetch: int = 10) -> list[Message]:
    consumer, _ = world.state.subscribe(Q, ack=ack, prefetch=prefetch)
    world.run()
    messages: list[Message] = []
    while (message := consumer.receive_no_wait()) is not None:
        messages.append(message)
        world.run()
    return messages


# ---------------------------------------------------------------- restoring


def test_the_state_is_restored_in_order_with_the_same_ids() -> None:
    world = World()
    state = world.state
    temporary, _ = state.add_temporary(DestinationType.TEMP_QUEUE)
    producer, _ = state.producers.add(Q)
    consumer, _ = state.subscribe(
        topic("t.*"), ack=AckMode.CLIENT, prefetch=7, selector="a = 1", durable="d", no_local=True, priority=3
    )
    transaction = state.transactions.begin()
    state.transactions.send(transaction, Q, "in it", {})
    world.run()
    first = world.commands()
    answered = state.send(producer, Q, "answered", {})
    world.run()
    waiting = [state.send(producer, Q, f"waits {number}", {}) for number in range(2)]
    assert answered.is_done
    world.again()

    again = world.commands()
    assert kinds(world) == [
        "ConnectionControl", "ConnectionInfo", "SessionInfo",
        "DestinationInfo", "ProducerInfo", "ProducerInfo", "ConsumerInfo",
        "TransactionInfo", "TextMessage", "TextMessage", "TextMessage",
    ]  # fmt: skip
    for before, after in zip(_described(first)[:6], _described(again)[:6], strict=True):
        assert before == after
    login = next(command for command in again if isinstance(command, wire.ConnectionInfo))
    assert (login.failover_reconnect, login.fault_tolerant, login.client_id) == (True, True, "c1")
    sent = [command for command in again if isinstance(command, wire.ActiveMQTextMessage)]
    assert [message.command_id for message in sent[1:]] == [pending.number for pending in waiting]
    assert [message.message_id.producer_sequence_id for message in sent if message.message_id] == [1, 2, 3]
    assert sent[0].transaction_id is not None
    assert all(pending.is_done and pending.error is None for pending in waiting)
    state.unsubscribe(consumer)
    assert temporary.is_temporary


def _described(commands: list[wire.BaseCommand]) -> list[str]:
    """Return the commands of restorable objects, without their command ids."""
    described: list[str] = []
    for command in commands:
        if isinstance(command, wire.DestinationInfo | wire.ProducerInfo | wire.ConsumerInfo | wire.SessionInfo):
            command.command_id = 0
            described.append(repr(command))
    return sorted(described)


def test_requests_without_a_broker_are_sent_to_the_first() -> None:
    world = World(connected=False)
    producer, opened = world.state.producers.add()
    sent = world.state.send(producer, Q, "early", {"persistent": False})
    consumer, subscribed = world.state.subscribe(Q, ack=AckMode.AUTO, prefetch=1)
    assert [pending.is_done for pending in (opened, sent, subscribed)] == [False] * 3
    world.connect()
    world.run()
    assert world.events == [Opened()]
    assert opened.is_done
    assert sent.is_done
    assert subscribed.is_done
    message = consumer.receive_no_wait()
    assert message is not None
    assert message.body == "early"
    assert kinds(world).count("ConsumerInfo") == 1


def test_a_broker_unaware_of_the_break_accepts_the_client() -> None:
    world = World()
    producer, _ = world.state.producers.add()
    world.state.send(producer, Q, "x", {})
    consumer, _ = world.state.subscribe(Q, ack=AckMode.AUTO, prefetch=1)
    world.run()
    world.break_off(is_noticed=False)
    world.connect()
    world.run()
    message = consumer.receive_no_wait()
    assert message is not None
    assert message.body == "x"


def test_refused_objects_are_not_restored() -> None:
    world = World()
    consumer, subscribed = world.state.subscribe(Q, ack=AckMode.AUTO, prefetch=1, selector="= =")
    world.run()
    with pytest.raises(SelectorRefused):
        subscribed.result()
    with pytest.raises(SelectorRefused):
        consumer.receive_no_wait()
    foreign_queue = queue("x")._replace(type=DestinationType.TEMP_QUEUE)
    _, opened = world.state.producers.add(foreign_queue)
    world.run()
    with pytest.raises(DestinationRefused):
        opened.result()
    world.again()
    assert kinds(world) == ["ConnectionControl", "ConnectionInfo", "SessionInfo"]


def test_only_tracked_sends_without_answer_are_repeated() -> None:
    plain = World()
    send(plain, "a", "b", persistent=False)
    plain.again()
    assert kinds(plain).count("TextMessage") == 0
    tracking = World(tracked_bytes_max=2 * 1025)
    send(tracking, "a", "b", "c", persistent=False)
    tracking.again()
    bodies = [command.content for command in tracking.commands() if isinstance(command, wire.ActiveMQTextMessage)]
    assert [content[-1:] for content in bodies if content] == [b"b", b"c"]


def test_a_tracked_send_made_without_a_broker_is_sent_once() -> None:
    world = World(tracked_bytes_max=10_000)
    producer, _ = world.state.producers.add()
    world.run()
    world.break_off()
    world.state.send(producer, Q, "x", {"persistent": False})
    world.connect()
    world.run()
    assert kinds(world).count("TextMessage") == 1


# ---------------------------------------------------------------- transactions


def test_an_unanswered_commit_is_in_doubt() -> None:
    world = World()
    transaction = world.state.transactions.begin()
    world.state.transactions.send(transaction, Q, "x", {})
    outcome = world.state.transactions.commit(transaction)
    world.state.bytes_to_send()
    world.state.written()  # on its way, and how far is unknown
    world.break_off()
    with pytest.raises(TransactionInDoubt):
        outcome.result()
    world.connect()
    world.run()
    assert "TransactionInfo" not in kinds(world)


def test_a_commit_without_a_broker_is_not_in_doubt() -> None:
    world = World()
    transaction = world.state.transactions.begin()
    world.state.transactions.send(transaction, Q, "x", {})
    world.run()
    world.break_off()
    outcome = world.state.transactions.commit(transaction)
    world.connect()
    world.run()
    assert outcome.result() is None
    assert [message.body for message in received(world)] == ["x"]


@pytest.mark.parametrize("is_answered_late", [True, False])
def test_an_unsubscribe_repeated_after_a_break_succeeds(is_answered_late: bool) -> None:
    world = World()
    consumer, _ = world.state.subscribe(topic("t"), ack=AckMode.AUTO, prefetch=1, durable="d")
    world.run()
    world.state.unsubscribe(consumer)
    world.run()
    deleted = world.state.remove_durable("d")
    if is_answered_late:
        world.cut_after(1 << 20, 0)  # the broker gets the request, and its answer is lost
        world.run()
    else:
        world.again()
    assert world.breaks == 1
    assert deleted.is_done
    assert deleted.error is None
    never_there = world.state.remove_durable("d")
    world.run()
    assert isinstance(never_there.error, DestinationRefused)


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "pybroker.client.error_reports"]


def send_refused(world: World, count: int) -> ClientTransaction:
    """Send messages in a transaction to a destination that the broker refuses."""
    transaction = world.state.transactions.begin()
    for number in range(count):
        world.state.transactions.send(transaction, queue(""), f"{number}", {})
    world.run()
    return transaction


def test_refused_messages_of_a_transaction_are_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for _ in range(2):
        caplog.clear()
        outcome = world.state.transactions.commit(send_refused(world, 300))
        assert len(reports(caplog)) == 1
        world.run()
        with pytest.raises(TransactionRolledBack):
            outcome.result()
        first, count = reports(caplog)
        assert first.startswith("the broker reports: ")
        assert count == "the broker reported 300 such errors (DestinationRefused), of which the first is logged"


def test_refusals_are_counted_at_a_break_and_after_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    send_refused(world, 3)
    assert world.state.due_at == world.now + PERIOD_SECONDS
    world.now += PERIOD_SECONDS
    world.state.tick()
    assert reports(caplog)[1].startswith("the broker reported 3 such errors")
    assert world.state.due_at == float("inf")
    send_refused(world, 2)
    world.break_off()
    assert [line.split(" (")[0] for line in reports(caplog)[2:]][1] == "the broker reported 2 such errors"


def test_a_break_rolls_a_transaction_with_acks_back() -> None:
    world = World()
    send(world, "x")
    consumer, _ = world.state.subscribe(Q, ack=AckMode.TRANSACTED, prefetch=1)
    world.run()
    transaction = world.state.transactions.begin()
    message = consumer.receive_no_wait()
    assert message is not None
    world.state.transactions.acknowledge(transaction, message)
    world.again()
    for call in (
        lambda: world.state.transactions.send(transaction, Q, "y", {}),
        lambda: world.state.transactions.commit(transaction).result(),
        lambda: world.state.transactions.check(transaction),
    ):
        with pytest.raises(TransactionRolledBack):
            call()
    again = consumer.receive_no_wait()
    assert again is not None
    assert (again.body, again.redelivered) == ("x", True)


def test_an_ack_after_a_break_fails_and_the_message_returns() -> None:
    world = World()
    send(world, "x")
    consumer, _ = world.state.subscribe(Q, ack=AckMode.TRANSACTED, prefetch=1)
    world.run()
    message = consumer.receive_no_wait()
    assert message is not None
    world.break_off()
    transaction = world.state.transactions.begin()
    with pytest.raises(TransactionRolledBack):
        world.state.transactions.acknowledge(transaction, message)
    world.connect()
    world.run()
    again = consumer.receive_no_wait()
    assert again is not None
    assert (again.body, again.redelivered) == ("x", True)


def test_transactions_are_not_restored_if_disabled() -> None:
    world = World(restore_transactions=False)
    transaction = world.state.transactions.begin()
    world.state.transactions.send(transaction, Q, "x", {})
    world.run()
    world.again()
    with pytest.raises(TransactionRolledBack):
        world.state.transactions.commit(transaction).result()
    assert received(world) == []


def test_a_message_too_large_leaves_the_transaction_as_it_was() -> None:
    world = World()
    transaction = world.state.transactions.begin()
    with pytest.raises(FrameTooLarge):
        world.state.transactions.send(transaction, Q, b"x" * FRAME_BYTES_MAX, {})
    world.state.transactions.send(transaction, Q, "x", {})
    outcome = world.state.transactions.commit(transaction)
    world.run()
    assert outcome.result() is None
    assert [message.body for message in received(world)] == ["x"]


def test_a_rolled_back_message_is_delayed_and_keeps_its_order() -> None:
    world = World(redelivery=Redelivery(initial_delay=1, multiplier=2, maximum=2, maximum_delay=1.5))
    send(world, "a", "b")
    consumer, _ = world.state.subscribe(Q, ack=AckMode.TRANSACTED, prefetch=5)
    world.run()
    for count, delay in ((0, 1.0), (1, 1.5), (2, 0.0)):
        transaction = world.state.transactions.begin()
        message = consumer.receive_no_wait()
        assert message is not None
        assert (message.body, message.redelivery_count) == ("a", count)
        world.state.transactions.acknowledge(transaction, message)
        world.state.transactions.rollback(transaction)
        world.run()
        if delay:
            assert consumer.receive_no_wait() is None
            assert world.state.tick() <= world.now + delay
            world.now += delay
            world.state.tick()
    message = consumer.receive_no_wait()
    assert message is not None
    assert message.body == "b"


def test_an_empty_transaction_sends_nothing() -> None:
    world = World()
    transaction = world.state.transactions.begin()
    assert world.state.transactions.commit(transaction).is_done
    world.run()
    assert "TransactionInfo" not in kinds(world)
    with pytest.raises(TransactionRolledBack, match="ended"):
        world.state.transactions.commit(transaction)


def test_each_open_transaction_has_its_own_producer() -> None:
    """A broker drops a message with a lower sequence than the last one stored from its producer."""
    world = World()
    one, two = world.state.transactions.begin(), world.state.transactions.begin()
    assert one.producer != two.producer
    world.state.transactions.commit(one)
    assert world.state.transactions.begin().producer == one.producer


# ---------------------------------------------------------------- acknowledging


def test_messages_processed_quickly_are_acknowledged_together() -> None:
    world = World()
    send(world, *map(str, range(60)))
    consumer, _ = world.state.subscribe(Q, ack=AckMode.AUTO, prefetch=100)
    world.run()
    while consumer.receive_no_wait() is not None:
        pass
    world.run()
    acks = [command for command in world.commands() if isinstance(command, wire.MessageAck)]
    assert [ack.message_count for ack in acks] == [50, 10]


def test_an_acknowledgement_waits_briefly_for_others() -> None:
    world = World()
    send(world, "a", "b", "c")
    consumer, _ = world.state.subscribe(Q, ack=AckMode.AUTO, prefetch=100)
    world.run()
    consumer.receive_no_wait()
    consumer.receive_no_wait()
    assert consumer.due_at == pytest.approx(world.now + 0.1)
    world.now += 0.1
    world.state.tick()
    world.run()
    assert kinds(world).count("MessageAck") == 1
    assert consumer.due_at == float("inf")


def test_confirmed_acknowledgements_are_removed() -> None:
    world = World()
    send(world, *map(str, range(CONFIRM_EVERY + 3)))
    consumer, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=100)
    world.run()
    for _ in range(CONFIRM_EVERY + 3):
        message = consumer.receive_no_wait()
        assert message is not None
        message.ack()
    world.run()
    acks = [command for command in world.commands() if isinstance(command, wire.MessageAck)]
    assert [number for number, ack in enumerate(acks, 1) if ack.response_required] == [CONFIRM_EVERY]
    assert len(consumer._unconfirmed) == 3


def test_a_delivered_message_is_acknowledged_after_a_break() -> None:
    world = World()
    send(world, "a", "b")
    consumer, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=5)
    world.run()
    first = consumer.receive_no_wait()
    assert first is not None
    world.again()
    second = consumer.receive_no_wait()
    assert second is not None
    assert second.body == "b"
    first.ack()
    second.ack()
    world.run()
    world.state.unsubscribe(consumer)
    world.run()
    assert received(world) == []


def test_another_consumer_gets_the_message_as_redelivered() -> None:
    world = World()
    send(world, "a")
    one, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=1)
    world.run()
    held = one.receive_no_wait()
    assert held is not None
    world.break_off()
    world.state.unsubscribe(one)
    two, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=1)
    world.connect()
    world.run()
    again = two.receive_no_wait()
    assert again is not None
    assert again.redelivered
    with pytest.raises(ConnectionClosed):
        held.ack()


def test_a_lost_acknowledgement_is_repeated_by_the_client() -> None:
    world = World()
    send(world, "a")
    consumer, _ = world.state.subscribe(Q, ack=AckMode.INDIVIDUAL, prefetch=1)
    world.run()
    message = consumer.receive_no_wait()
    assert message is not None
    message.ack()
    world.state.bytes_to_send()  # lost on the way
    world.again()
    assert consumer.receive_no_wait() is None
    assert kinds(world).count("MessageAck") == 1
    world.state.unsubscribe(consumer)
    world.run()
    assert received(world) == []


def test_each_mode_has_its_own_way_to_acknowledge() -> None:
    world = World()
    send(world, "a")
    consumer, _ = world.state.subscribe(Q, ack=AckMode.TRANSACTED, prefetch=1)
    world.run()
    message = consumer.receive_no_wait()
    assert message is not None
    with pytest.raises(ClientError, match="transaction"):
        message.ack()
    world.state.unsubscribe(consumer)
    with pytest.raises(ConnectionClosed):
        world.state.transactions.acknowledge(world.state.transactions.begin(), message)
    (message,) = received(world, AckMode.INDIVIDUAL)
    with pytest.raises(ClientError, match="transacted"):
        world.state.transactions.acknowledge(world.state.transactions.begin(), message)


# ---------------------------------------------------------------- ends


def test_a_cancelled_send_is_not_sent_later() -> None:
    world = World(connected=False)
    producer, _ = world.state.producers.add()
    pending = world.state.send(producer, Q, "x", {})
    world.state.cancel(pending, Timeout("too long"))
    with pytest.raises(Timeout):
        pending.result()
    world.connect()
    world.run()
    assert "TextMessage" not in kinds(world)
    world.state.cancel(pending, Timeout("again"))


def test_a_cancelled_subscription_ends_its_consumer() -> None:
    world = World(connected=False)
    consumer, pending = world.state.subscribe(Q, ack=AckMode.AUTO, prefetch=1)
    world.state.cancel(pending, Timeout("too long"))
    world.connect()
    world.run()
    assert "ConsumerInfo" not in kinds(world)
    with pytest.raises(ConnectionClosed):
        consumer.receive_no_wait()


def test_a_cancelled_commit_is_in_doubt_only_if_it_was_sent() -> None:
    world = World()
    sent, unsent = world.state.transactions.begin(), world.state.transactions.begin()
    for transaction in (sent, unsent):
        world.state.transactions.send(transaction, Q, "x", {})
    outcome = world.state.transactions.commit(sent)
    world.state.cancel(outcome, Timeout("too long"))
    assert isinstance(outcome.error, TransactionInDoubt)
    world.run()
    world.break_off()
    outcome = world.state.transactions.commit(unsent)
    world.state.cancel(outcome, Timeout("too long"))
    assert isinstance(outcome.error, Timeout)
    world.connect()
    world.run()
    assert [message.body for message in received(world)] == ["x"]


def test_a_failed_connection_completes_all_results() -> None:
    world = World(connected=False)
    producer, opened = world.state.producers.add()
    waiting = world.state.send(producer, Q, "x", {})
    reply = world.state.request(producer, Q, "x", {})
    consumer, _ = world.state.subscribe(Q, ack=AckMode.AUTO, prefetch=1)
    is_notified: list[bool] = []
    consumer.on_change.add(lambda: is_notified.append(True))
    world.state.fail(ConnectionClosed("closed"))
    world.state.fail(ConnectionClosed("a second time"))
    late = world.state.send(producer, Q, "x", {})
    for pending in (opened, waiting, reply, late):
        with pytest.raises(ConnectionClosed, match="closed"):
            pending.result()
    assert is_notified == [True]


def test_a_request_whose_destination_is_refused_fails() -> None:
    world = World()
    producer, _ = world.state.producers.add()
    reply = world.state.request(producer, queue("x")._replace(type=DestinationType.TEMP_QUEUE), "?", {}, ttl=1)
    world.run()
    with pytest.raises(DestinationRefused):
        reply.result()


def test_headers_are_checked() -> None:
    world = World()
    producer, _ = world.state.producers.add()
    with pytest.raises(UnsendableMessage):
        world.state.send(producer, Q, "x", {"no such": 1})
    world.state.producers.remove(producer)
    world.state.producers.remove(producer)
    with pytest.raises(ConnectionClosed):
        world.state.send(producer, Q, "x", {})


def test_bytes_that_are_no_openwire_end_the_connection() -> None:
    with pytest.raises(ClientError) as caught:
        World().state.receive(b"\x00\x00\x00\x02\xff\xff")
    assert isinstance(caught.value.__cause__, MalformedOpenWire)


def test_callbacks_are_called_once_each() -> None:
    callbacks, is_notified = Callbacks(), list[str]()
    callbacks.add(lambda: is_notified.append("a"))
    unwanted = lambda: is_notified.append("b")  # noqa: E731
    callbacks.add(unwanted)
    callbacks.remove(unwanted)
    callbacks.remove(unwanted)
    callbacks.call()
    callbacks.call()
    assert is_notified == ["a"]
