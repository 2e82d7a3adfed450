"""Effects of acknowledgements: ranges, windows, types; and what a consumer that leaves has seen."""

from pathlib import Path

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.message import BodilessMessage
from pybroker.broker.domain.openwire.commands import (
    AckType,
    ConnectionErrorCommand,
    ConnectionId,
    ConsumerControl,
    ExceptionResponse,
    MessageAck,
    MessageDispatch,
    OpenWireMessageId,
    RemoveInfo,
    Response,
    SessionId,
    Throwable,
    TransactionInfo,
    TransactionType,
)
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, broker_offer, decode_offer, encode_offer
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.journal.store import JournalStore
from tests.runtimes import runtime
from tests.unit.transports.openwire.conversation import NOW_MS, OpenWireClient, World, of_kind, texts

ORDERS = queue("ORDERS")
NEWS = topic("NEWS")
LETTERS = "abcdefghij"
DEAD_LETTERS = queue("ActiveMQ.DLQ")


def sequence(dispatch: MessageDispatch) -> int:
    """Return the broker's number of a message."""
    assert dispatch.message is not None
    assert dispatch.message.message_id is not None
    return dispatch.message.message_id.broker_sequence_id


def filled(world: World, destination: Destination = ORDERS, count: int = 6) -> OpenWireClient:
    client = world.client()
    client.send(destination, *LETTERS[:count])
    return client


def drop_bodies(world: World) -> None:
    """Replace all outstanding messages by those without a body."""
    for connection in world.broker._clients.values():
        for reference in (each for consumer in connection.consumers for each in consumer.outstanding):
            message_id = view(reference.message).message_id
            reference.message = BodilessMessage(reference.message, message_id.broker_sequence_id if message_id else -1)


# ---------------------------------------------------------------- the window


def test_window_is_the_prefetch(world: World) -> None:
    client = filled(world)
    first = client.consume(ORDERS, prefetch_size=2)
    assert texts(first) == ["a", "b"]
    assert texts(client.ack(first[:1])) == ["c"]
    assert texts(client.ack(first[1:])) == ["d"]


def test_delivered_widens_and_standard_narrows_it_again(world: World) -> None:
    """A client with manual acknowledgement frees the window by DELIVERED acks, and once only."""
    client = filled(world, count=8)
    taken = client.consume(ORDERS, prefetch_size=2)
    for wanted in ("c", "d"):
        more = of_kind(client.ack([taken[-2]], AckType.DELIVERED), MessageDispatch)
        assert texts(more) == [wanted]
        taken += more
    assert texts(client.ack(taken[:2])) == [], "four were outstanding, two of them by grant"
    assert texts(client.ack(taken[2:])) == ["e", "f"]


def test_delivered_widens_by_no_more_than_is_outstanding(world: World) -> None:
    client = filled(world, count=10)
    taken = client.consume(ORDERS, prefetch_size=2)
    assert texts(client.ack(taken, AckType.DELIVERED, message_count=1000)) == ["c", "d"]
    assert texts(client.ack(taken, AckType.DELIVERED, message_count=-5)) == []


def test_redelivered_is_information_only(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS, prefetch_size=2)
    assert client.ack(taken, AckType.REDELIVERED) == []
    assert texts(client.ack(taken)) == ["c", "d"]


def test_prefetch_can_be_changed_on_the_way(world: World) -> None:
    client = filled(world)
    assert client.consume(ORDERS, prefetch_size=0) == []
    control = ConsumerControl(destination=ORDERS, consumer_id=client.consumer(), prefetch=3)
    assert texts(client.request(control)) == ["a", "b", "c"]
    assert client.request(ConsumerControl(consumer_id=client.consumer(9), prefetch=3)) == [], "a consumer that is gone"
    assert client.request(ConsumerControl(consumer_id=None, prefetch=3)) == []
    assert client.request(ConsumerControl(consumer_id=client.consumer(), prefetch=-3)) == []


# ---------------------------------------------------------------- ranges


def test_range_is_in_the_order_of_dispatch(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    client.ack(taken[1:4])
    client.session.lost()
    assert world.waiting(ORDERS) == ["a", "e", "f"]


def test_range_without_a_beginning_begins_at_the_oldest(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    client.ack(taken[:3], first_message_id=None)
    client.session.lost()
    assert world.waiting(ORDERS) == ["d", "e", "f"]


def test_individual_means_its_message_only(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    client.ack([taken[2]], AckType.INDIVIDUAL, first_message_id=None)
    client.session.lost()
    assert world.waiting(ORDERS) == ["a", "b", "d", "e", "f"]


def test_unmatched_is_accepted_as_standard(world: World) -> None:
    client = filled(world, count=1)
    client.ack(client.consume(ORDERS), AckType.UNMATCHED)
    client.session.lost()
    assert world.waiting(ORDERS) == []


def test_acks_are_answered_when_they_require_it(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    client.answer(client.acknowledgement(taken[:1]), Response)
    client.answer(client.acknowledgement(taken[:1]), Response)
    client.answer(client.acknowledgement(taken[1:2], consumer_id=client.consumer(7)), Response)


def test_acks_of_one_chunk_count_one_by_one(world: World) -> None:
    """The acks are of two consumers, some repeated, some out of order, and mixed with another kind."""
    others = queue("OTHERS")
    client = filled(world, ORDERS, 10)
    client.send(others, *LETTERS)
    mine, theirs = client.consume(ORDERS), client.consume(others, 2)
    acks = [client.acknowledgement([each]) for each in (*mine[:4], *theirs[:3], mine[4], *mine[2:6])]
    acks[6:6] = [client.acknowledgement(theirs[5:7]), client.acknowledgement([mine[8]], AckType.INDIVIDUAL)]
    assert client.request(*acks) == []
    client.session.lost()
    assert world.waiting(ORDERS) == list("ghj")
    assert world.waiting(others) == list("dehij")


def test_send_is_not_lost_by_the_next_acknowledgement(tmp_path: Path) -> None:
    """It requires no answer, and the broker dies before it would have written what may be consumed at once."""
    store = JournalStore(
        tmp_path,
        runtime=runtime(call_later=lambda seconds, callback: None, clock=lambda: NOW_MS),
    )
    world = World(store)
    assert store._elision is not None
    store._elision.is_open, store._elision._share = True, 1e9  # whatever happens, it goes on
    requests, replies = queue("REQUESTS"), queue("REPLIES")
    asking, serving, idle = world.client("asking"), world.client("serving"), world.client("idle")
    serving.consume(requests)
    asking.send(requests, "?")
    (request,) = of_kind(serving.receive(), MessageDispatch)
    serving.send_commands(serving.message(replies, "!", response_required=False), serving.acknowledgement([request]))
    assert [len(contents.messages) for contents in store._state.destinations.values()] == [0, 1]
    idle.send(replies, "?", response_required=False)
    assert store._elision.byte_count > 0, "another's is held"
    store.abandon()


def test_late_acks_are_ignored(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    client.remove(client.consumer())
    assert client.ack(taken) == []
    assert client.ack(taken, AckType.POISON) == []
    client.consume(ORDERS, 2)
    assert client.ack(taken[:1], consumer_id=client.consumer(2)) == []
    unknown = OpenWireMessageId(None, client.producer(9), 1)
    ack = MessageAck(consumer_id=client.consumer(2), ack_type=AckType.STANDARD, last_message_id=unknown)
    assert client.request(ack) == []
    assert not client.link.closed


def test_ack_without_a_message_is_ignored(world: World) -> None:
    client = filled(world)
    client.consume(ORDERS)
    assert client.request(MessageAck(consumer_id=client.consumer(), ack_type=AckType.STANDARD)) == []


def test_unknown_type_is_refused(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    ack = client.acknowledgement(taken, message_count=1)
    ack.ack_type = 9
    assert client.refused(ack)[0] == "javax.jms.JMSException"


def test_topic_acks_free_the_window(world: World) -> None:
    client = world.client()
    client.consume(NEWS, prefetch_size=3)
    taken = of_kind(client.send(NEWS, *LETTERS[:6]), MessageDispatch)
    assert texts(taken) == ["a", "b", "c"]
    assert texts(client.ack(taken, first_message_id=None)) == ["d", "e", "f"]


@pytest.mark.parametrize("destination", [ORDERS, NEWS])
def test_one_after_the_other_they_free_the_window(world: World, destination: Destination) -> None:
    """An auto-acknowledging consumer's acknowledgements look alike after the first."""
    client = world.client()
    client.consume(destination, prefetch_size=2)
    taken = of_kind(client.send(destination, *LETTERS), MessageDispatch)
    for number in range(len(LETTERS)):
        taken += of_kind(client.ack(taken[number : number + 1]), MessageDispatch)
        assert len(taken) == min(number + 3, len(LETTERS))
    assert texts(taken) == list(LETTERS)
    client.session.lost()
    assert world.waiting(ORDERS) == []


def test_several_in_one_chunk_and_out_of_order(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    client.ack(taken[:1])
    assert client.request(*(client.acknowledgement([taken[number]]) for number in (3, 1, 5, 1))) == []
    client.session.lost()
    assert world.waiting(ORDERS) == ["c", "e"]


def test_late_ones_that_look_alike_are_ignored_too(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    client.ack(taken[:1])
    assert client.request(*(client.acknowledgement(taken[:1]) for _ in range(2))) == []
    client.remove(client.consumer())
    assert client.request(*(client.acknowledgement([each]) for each in taken)) == []
    assert not client.link.closed
    assert world.waiting(ORDERS) == list("bcdef")


def test_consumers_of_one_connection_take_turns(world: World) -> None:
    client = world.client()
    for value in (1, 2):
        client.consume(NEWS, value, prefetch_size=1)
    taken = of_kind(client.send(NEWS, *LETTERS), MessageDispatch)
    for number in range(2 * len(LETTERS)):
        taken += of_kind(client.ack(taken[number : number + 1]), MessageDispatch)
    for value in (1, 2):
        got = [each for each in taken if each.consumer_id == client.consumer(value)]
        assert texts(got) == list(LETTERS)


# ---------------------------------------------------------------- giving up


def test_poison_goes_to_the_dead_letters_with_its_cause(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS, prefetch_size=2)
    cause = Throwable(class_name="java.lang.Throwable", message="boom")
    received = client.ack(taken, AckType.POISON, poison_cause=cause)
    assert texts(received) == ["c", "d"]
    assert world.waiting(DEAD_LETTERS) == ["a", "b"]
    letter = next(iter(world.broker.queues[DEAD_LETTERS].pending.scan())).message
    assert "java.lang.Throwable: boom" in str(view(letter).properties["dlqDeliveryFailureCause"])


def test_poison_without_a_cause(world: World) -> None:
    client = filled(world, count=1)
    client.ack(client.consume(ORDERS), AckType.POISON)
    assert world.waiting(DEAD_LETTERS) == ["a"]


def test_poison_in_a_transaction_is_refused_and_dooms_it(world: World) -> None:
    client = filled(world, count=1)
    taken = client.consume(ORDERS)
    transaction = begin(client)
    (error,) = client.ack(taken, AckType.POISON, transaction_id=transaction)
    assert isinstance(error, ConnectionErrorCommand)
    name, _ = client.refused(end(client, transaction, TransactionType.COMMIT_ONE_PHASE))
    assert name == "javax.jms.TransactionRolledBackException"


def test_poison_of_a_browser_is_refused(world: World) -> None:
    client = filled(world, count=1)
    taken = client.consume(ORDERS, browser=True)
    (error,) = client.ack(taken[:1], AckType.POISON)
    assert isinstance(error, ConnectionErrorCommand)
    assert error.exception is not None
    assert "Cannot Nack a message on a Queue Browser" in str(error.exception.message)
    assert world.waiting(DEAD_LETTERS) == []


@pytest.mark.parametrize("ack_type", [AckType.POISON, AckType.EXPIRED, AckType.INDIVIDUAL, AckType.UNMATCHED])
def test_topic_acks_of_every_type_make_space(world: World, ack_type: AckType) -> None:
    client = world.client()
    client.consume(NEWS, prefetch_size=1)
    world.client("c2").send(NEWS, "a", "b")
    assert texts(client.ack(of_kind(client.receive(), MessageDispatch), ack_type)) == ["b"]
    assert world.waiting(DEAD_LETTERS) == []


def test_expired_is_let_go(world: World) -> None:
    client = filled(world, count=1)
    assert client.ack(client.consume(ORDERS), AckType.EXPIRED) == []
    client.session.lost()
    assert world.waiting(ORDERS) == []


# ---------------------------------------------------------------- transactions


def begin(client: OpenWireClient, number: int = 1) -> LocalTransactionId:
    transaction = LocalTransactionId(client.id, number)
    client.send_commands(end(client, transaction, TransactionType.BEGIN))
    return transaction


def end(client: OpenWireClient, transaction: LocalTransactionId, kind: TransactionType) -> TransactionInfo:
    return TransactionInfo(connection_id=ConnectionId(client.id), transaction_id=transaction, type=kind)


def test_acks_in_a_transaction_count_with_its_commit(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    transaction = begin(client)
    client.ack(taken[:2], transaction_id=transaction)
    client.answer(end(client, transaction, TransactionType.COMMIT_ONE_PHASE), Response)
    client.session.lost()
    assert world.waiting(ORDERS) == ["c", "d", "e", "f"]


def test_rollback_does_not_resend(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    transaction = begin(client)
    client.ack(taken, transaction_id=transaction)
    client.answer(end(client, transaction, TransactionType.ROLLBACK), Response)
    assert client.pushed == []
    second = begin(client, 2)
    assert client.ack(taken, transaction_id=second) == [], "the same range again, as the client redelivered it"
    client.answer(end(client, second, TransactionType.COMMIT_ONE_PHASE), Response)
    client.session.lost()
    assert world.waiting(ORDERS) == []


def test_range_partly_with_another_consumer_fails_the_commit(world: World) -> None:
    """A client after a failover acknowledges what it remembers, and the commit must not be confirmed."""
    client = filled(world, count=3)
    taken = client.consume(ORDERS, prefetch_size=3)
    client.ack(taken[1:2])
    transaction = begin(client)
    (error,) = client.ack(taken, transaction_id=transaction)
    assert isinstance(error, ConnectionErrorCommand)
    name, _ = client.refused(end(client, transaction, TransactionType.COMMIT_ONE_PHASE))
    assert name == "javax.jms.TransactionRolledBackException"
    client.remove(client.consumer())
    assert world.waiting(ORDERS) == ["a", "c"]


def test_range_from_a_message_not_outstanding_has_no_effect(world: World) -> None:
    client = filled(world, count=3)
    taken = client.consume(ORDERS, prefetch_size=3)
    client.ack(taken[1:2])
    client.ack(taken[1:])
    client.remove(client.consumer())
    assert world.waiting(ORDERS) == ["a", "c"]


def test_unmatched_ack_in_a_transaction_is_refused(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    client.ack(taken[:1])
    transaction = begin(client)
    (error,) = client.ack(taken[:1], transaction_id=transaction)
    assert isinstance(error, ConnectionErrorCommand)
    client.answer(end(client, transaction, TransactionType.COMMIT_ONE_PHASE), ExceptionResponse)


def test_topic_acks_are_counted_whichever_messages_they_name(world: World) -> None:
    """Messages of a topic went to no other consumer, so none is refused after a failover either."""
    client = world.client()
    client.consume(NEWS, prefetch_size=3)
    world.client("c2").send(NEWS, *LETTERS[:6])
    taken = of_kind(client.receive(), MessageDispatch)
    assert texts(taken) == ["a", "b", "c"]
    transaction = begin(client)
    assert texts(client.ack(taken[1:2] * 2, transaction_id=transaction)) == ["d", "e"]
    assert texts(client.ack(taken, transaction_id=transaction, message_count=999)) == ["f"]
    for _ in range(2):
        assert client.ack(taken, transaction_id=transaction) == []
    client.answer(end(client, transaction, TransactionType.COMMIT_ONE_PHASE), Response)


def test_closed_consumer_dooms_its_transaction(world: World) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    transaction = begin(client)
    client.remove(client.consumer())
    assert client.ack(taken, AckType.DELIVERED, transaction_id=transaction) == [], "this means nothing any more"
    assert client.ack(taken, transaction_id=transaction) != []
    client.answer(end(client, transaction, TransactionType.COMMIT_ONE_PHASE), ExceptionResponse)


@pytest.mark.parametrize("asks", [True, False])
def test_unknown_transaction_is_refused(world: World, asks: bool) -> None:
    client = filled(world)
    taken = client.consume(ORDERS)
    unknown = LocalTransactionId(client.id, 9)
    if asks:
        name, text = client.refused(client.acknowledgement(taken, transaction_id=unknown))
    else:
        (error,) = client.ack(taken, transaction_id=unknown)
        assert isinstance(error, ConnectionErrorCommand)
        assert error.exception is not None
        name, text = str(error.exception.class_name), str(error.exception.message)
    assert (name, text) == ("javax.jms.JMSException", f"Transaction '{unknown}' has not been started.")
    client.session.lost()
    assert world.waiting(ORDERS) == list(LETTERS[:6])


# ---------------------------------------------------------------- leaving


@pytest.mark.parametrize(
    ("last_delivered", "counters"),
    [(-2, [1, 1, 1]), (-1, [0, 0, 0]), ("a", [1, 0, 0]), ("b", [1, 1, 0]), (0, [0, 0, 0]), (12345, [0, 0, 0])],
)
@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_last_delivered_marks_what_was_seen(
    world: World, what: str, last_delivered: int | str, counters: list[int], in_memory: bool
) -> None:
    client = filled(world, count=3)
    taken = client.consume(ORDERS)
    if not in_memory:
        drop_bodies(world)
    numbers = dict(zip("abc", map(sequence, taken), strict=True))
    number = numbers[last_delivered] if isinstance(last_delivered, str) else last_delivered
    ids = {
        "consumer": client.consumer(),
        "session": SessionId(client.id, 1),
        "connection": ConnectionId(client.id),
    }
    client.remove(ids[what], number)
    again = world.client("c2").consume(ORDERS)
    assert texts(again) == ["a", "b", "c"]
    assert [each.redelivery_counter for each in again] == counters


@pytest.mark.parametrize(
    ("last_delivered", "counters"),
    [(-2, [1, 1, 1]), (0, [1, 1, 1]), (-1, [0, 0, 0]), ("b", [1, 1, 0]), ("acked", [0, 0, 0]), ("later", [1, 1, 1])],
)
@pytest.mark.parametrize("in_memory", [True, False])
def test_durable_subscription_counts_up_to_the_number(
    world: World, last_delivered: int | str, counters: list[int], in_memory: bool
) -> None:
    client = world.client()
    client.consume(NEWS, subscription_name="s")
    taken = of_kind(client.send(NEWS, "x", "a", "b", "c"), MessageDispatch)
    client.ack(taken[:1])
    if not in_memory:
        drop_bodies(world)
    numbers = {"acked": sequence(taken[0]), "b": sequence(taken[2]), "later": sequence(taken[3]) + 100}
    client.remove(client.consumer(), numbers.get(str(last_delivered), last_delivered))  # type: ignore[arg-type]
    again = client.consume(NEWS, 2, subscription_name="s")
    assert texts(again) == ["a", "b", "c"]
    assert [each.redelivery_counter for each in again] == counters


def test_what_goes_back_keeps_its_place(world: World) -> None:
    client = filled(world, count=3)
    taken = client.consume(ORDERS, prefetch_size=2)
    client.ack(taken[1:])
    client.send(ORDERS, "z")
    client.remove(client.consumer(), sequence(taken[0]))
    assert world.waiting(ORDERS) == ["a", "c", "z"]


def test_leaving_may_be_answered(world: World) -> None:
    client = filled(world)
    client.consume(ORDERS)
    client.answer(RemoveInfo(object_id=client.consumer()), Response)


# ---------------------------------------------------------------- release


def test_released_message_keeps_its_place_and_counts(world: World) -> None:
    client = filled(world, count=4)
    taken = client.consume(ORDERS, prefetch_size=3)
    (again,) = of_kind(client.ack(taken[1:2], AckType.RELEASED), MessageDispatch)
    assert (texts([again]), again.redelivery_counter) == (["b"], 1)
    client.ack(taken[1:2], AckType.RELEASED)
    client.remove(client.consumer())
    assert world.waiting(ORDERS) == ["a", "b", "c", "d"]


def test_a_released_message_goes_to_another_consumer(world: World) -> None:
    client = filled(world, count=2)
    taken = client.consume(ORDERS, prefetch_size=2)
    client.request(ConsumerControl(destination=ORDERS, consumer_id=client.consumer(), prefetch=0))
    other = world.client("c2")
    assert other.consume(ORDERS, prefetch_size=4) == []
    client.ack(taken[:1], AckType.RELEASED)
    (again,) = of_kind(other.receive(), MessageDispatch)
    assert (texts([again]), again.redelivery_counter) == (["a"], 1)
    assert client.ack(taken[:1], AckType.RELEASED) == []  # a late one has no effect
    assert world.waiting(DEAD_LETTERS) == []


def test_a_release_in_a_transaction_is_refused(world: World) -> None:
    client = filled(world, count=1)
    taken = client.consume(ORDERS)
    (error,) = client.ack(taken, AckType.RELEASED, transaction_id=begin(client))
    assert isinstance(error, ConnectionErrorCommand)
    assert error.exception is not None
    assert "A release cannot be transacted" in str(error.exception.message)


def test_the_greeting_offers_releases() -> None:
    assert broker_offer().release_enabled is True
    assert decode_offer(encode_offer(Offer())[4:]).release_enabled is None
    assert decode_offer(encode_offer(broker_offer())[4:]).release_enabled is True
