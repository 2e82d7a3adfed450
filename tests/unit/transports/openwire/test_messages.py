# mypy: disable-error-code="arg-type, comparison-overlap"
"""Sending: answers, windows, destinations, duplicates, and what is refused."""

from collections.abc import Sequence
from typing import Any

import pytest

from pybroker.broker.core.arrival_rules import ArrivalRules
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.openwire.commands import (
    ActiveMQMessage,
    BrokerInfo,
    ConnectionErrorCommand,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    ControlCommand,
    DataStructure,
    DestinationInfo,
    DestinationOperation,
    FlushCommand,
    MessageDispatch,
    OpenWireMessageId,
    ProducerAck,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    RemoveSubscriptionInfo,
    Response,
    SessionId,
    SessionInfo,
)
from tests.compiled import interpreted
from tests.slow import SlowStore
from tests.unit.transports.openwire.conversation import FakeLink, OpenWireClient, World, of_kind, texts

ORDERS = queue("ORDERS")
NEWS = topic("NEWS")
NOWHERE = Destination(DestinationType.TEMP_QUEUE, "ID:nowhere:1")


def error_class(received: Sequence[DataStructure]) -> str | None:
    """Return the class in a ConnectionError that came alone."""
    (error,) = received
    assert isinstance(error, ConnectionErrorCommand)
    assert error.exception is not None
    assert error.command_id == 0
    assert not error.response_required
    return error.exception.class_name


# ---------------------------------------------------------------- answers


def test_persistent_messages_are_answered_when_they_are_on_disk() -> None:
    store = SlowStore()
    world = World(store)
    client = world.new_client()
    client.receive()
    client.request(*_connecting(client))
    store.sync()
    client.receive()
    messages = [client.message(ORDERS), client.message(ORDERS)]
    assert client.request(*messages) == []
    store.sync()
    answers = client.receive()
    assert [each.correlation_id for each in of_kind(answers, Response)] == [each.command_id for each in messages]


def test_non_persistent_messages_are_answered_at_once() -> None:
    store = SlowStore()
    client = World(store).new_client()
    client.receive()
    client.request(*_connecting(client))
    store.sync()
    client.receive()
    message = client.message(ORDERS, persistent=False)
    assert [type(each) for each in client.request(message)] == [Response]


@pytest.mark.parametrize("as_sent", [True, False])
@pytest.mark.parametrize("forced", [True, False])
def test_answers_follow_the_forced_delivery_mode(forced: bool, as_sent: bool) -> None:
    store = SlowStore()
    world = World(store)
    world.broker.arrival_rules = ArrivalRules(persistency=forced)
    client = world.new_client()
    client.receive()
    client.request(*_connecting(client))
    store.sync()
    client.receive()
    message = client.message(ORDERS, persistent=as_sent)
    assert [type(each) for each in client.request(message)] == ([] if forced else [Response])
    store.sync()
    assert [type(each) for each in client.receive()] == ([Response] if forced else [])


def _connecting(client: OpenWireClient) -> list[DataStructure]:
    client.id = "ID:c1"
    return [
        ConnectionInfo(connection_id=ConnectionId("ID:c1"), client_id="c1"),
        SessionInfo(session_id=SessionId("ID:c1", 1)),
        ProducerInfo(producer_id=client.producer()),
    ]


def test_one_way_messages_are_not_answered(world: World) -> None:
    client = world.client()
    assert client.send(ORDERS, "a", response_required=False) == []
    assert world.waiting(ORDERS) == ["a"]


def test_a_message_carries_the_brokers_number(world: World) -> None:
    client = world.client()
    client.send(ORDERS, "a", "b")
    first, second = client.consume(ORDERS)
    assert isinstance(first.message, ActiveMQMessage)
    assert isinstance(second.message, ActiveMQMessage)
    assert first.message.message_id is not None
    assert second.message.message_id is not None
    assert 0 < first.message.message_id.broker_sequence_id < second.message.message_id.broker_sequence_id


@pytest.mark.parametrize("length", [0, 1, 15_000, 16_000, 17_000, 300_000])
def test_a_message_of_any_length_arrives_as_it_was_sent(world: World, length: int) -> None:
    client, other = world.client("c1"), world.client("c2")
    for consumer in (client, other):
        consumer.consume(NEWS)
    text = "x" * length
    assert texts(of_kind(client.send(NEWS, "a", text, "b"), MessageDispatch)) == ["a", text, "b"]
    assert texts(other.receive()) == ["a", text, "b"]


@interpreted
def test_a_large_message_is_not_copied_for_each_consumer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = FakeLink.write
    monkeypatch.setattr(FakeLink, "write", lambda self, data: (written.append(data), write(self, data)))
    clients = [world.client(f"c{number}") for number in range(3)]
    for client in clients:
        client.consume(NEWS)
    clients[0].send(NEWS, "x" * 100_000)
    large = [data for data in written if len(data) >= 100_000]
    assert len(large) == 3
    assert all(data is large[0] for data in large)


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("details", "size"), [({}, 1024 + 4 + 5), ({"marshalled_properties": b"\x00\x00\x00\x00"}, 1024 + 4 + 5 + 4)]
)
def test_window_is_opened_by_the_size_of_each_one_way_message(world: World, details: dict[str, Any], size: int) -> None:
    client = world.client(session=False)
    client.send_commands(SessionInfo(session_id=SessionId(client.id, 1)))
    client.answer(ProducerInfo(producer_id=client.producer(), window_size=5000), Response)
    (ack,) = client.send(ORDERS, "hello", response_required=False, **details)
    assert isinstance(ack, ProducerAck)
    assert (ack.producer_id, ack.size, ack.command_id) == (client.producer(), size, 0)
    assert [type(each) for each in client.send(ORDERS, "hello")] == [Response], "a response is enough"


def test_window_is_opened_by_messages_that_are_too_late_as_well(world: World) -> None:
    client = world.client(session=False)
    client.send_commands(SessionInfo(session_id=SessionId(client.id, 1)))
    client.answer(ProducerInfo(producer_id=client.producer(), window_size=5000), Response)
    assert of_kind(client.send(ORDERS, "a", response_required=False, expiration=1), ProducerAck)


def test_no_window_no_ack(world: World) -> None:
    assert world.client().send(ORDERS, "a", response_required=False) == []


# ---------------------------------------------------------------- no space


def full_world(**details: Any) -> tuple[World, OpenWireClient, OpenWireClient]:
    """Return a broker whose queues hold one message of some 1,500 bytes, a producer, and a consumer of such a one."""
    world = World(policies=PolicyMap(default=DestinationPolicy(memory_limit=1500, **details)))
    producer, consumer = world.client("p"), world.client("c")
    producer.send(ORDERS, "x" * 600)
    return world, producer, consumer


@pytest.mark.parametrize("persistent", [True, False])
def test_answer_waits_for_space(persistent: bool) -> None:
    _, producer, consumer = full_world()
    message = producer.message(ORDERS, "late", persistent=persistent)
    assert producer.request(message) == []
    assert producer.link.holds == 0, "who is waiting for an answer is read on"
    consumer.ack(consumer.consume(ORDERS, prefetch_size=1))
    assert [each.correlation_id for each in of_kind(producer.receive(), Response)] == [message.command_id]


def test_window_waits_for_space() -> None:
    _, producer, consumer = full_world()
    windowed = ProducerInfo(producer_id=producer.producer(1, 2), window_size=5000)
    producer.answer(windowed, Response)
    late = producer.message(ORDERS, "late", producer_id=producer.producer(1, 2), response_required=False)
    assert producer.request(late) == []
    assert producer.link.holds == 0
    consumer.ack(consumer.consume(ORDERS, prefetch_size=1))
    assert [type(each) for each in producer.receive()] == [ProducerAck]


def test_full_memory_pauses_reading_of_unanswered_sends() -> None:
    _, producer, consumer = full_world()
    producer.send(ORDERS, "late", response_required=False)
    assert producer.link.holds == 1
    consumer.ack(consumer.consume(ORDERS, prefetch_size=1))
    assert producer.link.holds == 0


def test_a_send_without_space_can_be_refused() -> None:
    _, producer, _ = full_world(send_fail_if_no_space=True)
    assert producer.refused(producer.message(ORDERS))[0] == "javax.jms.ResourceAllocationException"


def test_one_full_queue_does_not_hold_up_the_answers_for_another() -> None:
    _, producer, consumer = full_world()
    late, other = producer.message(ORDERS), producer.message(queue("OTHER"), persistent=False)
    assert [each.correlation_id for each in of_kind(producer.request(late, other), Response)] == [other.command_id]
    consumer.ack(consumer.consume(ORDERS, prefetch_size=1))
    assert [each.correlation_id for each in of_kind(producer.receive(), Response)] == [late.command_id]


# ---------------------------------------------------------------- producers


def test_unknown_producer_is_refused(world: World) -> None:
    client = world.client()
    unknown = ProducerId(client.id, 1, 77)
    assert client.refused(client.message(ORDERS, producer_id=unknown))[0] == "java.lang.IllegalStateException"
    received = client.send(ORDERS, "a", producer_id=unknown, response_required=False)
    assert error_class(received) == "java.lang.IllegalStateException"


def test_removed_producer_is_refused_despite_the_cache(world: World) -> None:
    client = world.client()
    client.send(ORDERS, "a")
    client.remove(client.producer())
    assert client.refused(client.message(ORDERS))[0] == "java.lang.IllegalStateException"


def test_adding_again_changes_nothing(world: World) -> None:
    client = world.client()
    client.send_commands(SessionInfo(session_id=SessionId(client.id, 1)))
    client.answer(ProducerInfo(producer_id=client.producer(), destination=ORDERS), Response)
    client.consume(ORDERS)
    assert client.consume(ORDERS) == []
    assert texts(client.send(ORDERS, "a")) == ["a"], "once, to one consumer"


def test_session_minus_one_is_there_from_the_start(world: World) -> None:
    client = world.client(session=False)
    client.answer(ProducerInfo(producer_id=client.producer(-1)), Response)
    client.consume(ORDERS, session=-1)
    client.send_commands(SessionInfo(session_id=SessionId(client.id, -1)))
    client.remove(SessionId(client.id, -1))
    client.consume(ORDERS, session=-1)


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_other_sessions_must_be_opened(world: World, kind: str) -> None:
    client = world.client()
    if kind == "producer":
        name, _ = client.refused(ProducerInfo(producer_id=client.producer(7)))
    else:
        name, _ = client.refused(ConsumerInfo(consumer_id=client.consumer(1, 7), destination=ORDERS))
    assert name == "java.lang.IllegalStateException"


def test_session_takes_its_producers_and_consumers_along(world: World) -> None:
    client = world.client()
    client.open_session(2)
    client.consume(ORDERS)
    client.consume(ORDERS, session=2)
    client.remove(SessionId(client.id, 1))
    assert client.refused(client.message(ORDERS))[0] == "java.lang.IllegalStateException"
    received = client.send(ORDERS, "a", producer_id=client.producer(2))
    assert [each.consumer_id for each in of_kind(received, MessageDispatch)] == [client.consumer(1, 2)]


@pytest.mark.parametrize("what", ["session", "producer", "consumer"])
def test_removing_what_is_gone_is_no_error(world: World, what: str) -> None:
    client = world.client()
    ids = {"session": SessionId(client.id, 9), "producer": client.producer(9), "consumer": client.consumer(9)}
    client.answer(RemoveInfo(object_id=ids[what]), Response)


def test_removing_nothing_is_refused_and_removes_nothing(world: World) -> None:
    client = world.client()
    for nothing in (None, OpenWireMessageId(None, client.producer(), 1)):
        assert client.refused(RemoveInfo(object_id=nothing))[0] == "java.lang.IllegalStateException"
    client.send(ORDERS, "a")
    assert world.waiting(ORDERS) == ["a"]


# ---------------------------------------------------------------- after a failover


def test_what_is_stored_already_is_answered_and_dropped(world: World) -> None:
    before = world.client()
    before.send(ORDERS, "a", "b")
    after = world.client(failover_reconnect=True)
    after.sent = 1
    assert [type(each) for each in after.send(ORDERS, "b", "c")] == [Response, Response]
    assert world.waiting(ORDERS) == ["a", "b", "c"]


def test_what_is_stored_and_consumed_already_is_not_stored_again(world: World) -> None:
    before = world.client()
    before.send(ORDERS, "a")
    before.ack(before.consume(ORDERS))
    after = world.client(failover_reconnect=True)
    after.send(ORDERS, "a")
    assert world.waiting(ORDERS) == []


def test_window_is_opened_for_duplicates(world: World) -> None:
    world.client().send(ORDERS, "a")
    after = world.client(session=False, failover_reconnect=True)
    after.send_commands(SessionInfo(session_id=SessionId(after.id, 1)))
    after.answer(ProducerInfo(producer_id=after.producer(), window_size=5000), Response)
    assert of_kind(after.send(ORDERS, "a", response_required=False), ProducerAck)


def test_non_persistent_messages_are_never_taken_for_duplicates(world: World) -> None:
    world.client().send(ORDERS, "a")
    after = world.client(failover_reconnect=True)
    after.send(ORDERS, "b", persistent=False)
    assert world.waiting(ORDERS) == ["a", "b"]


def test_duplicates_are_looked_for_after_a_failover_only(world: World) -> None:
    first = world.client()
    first.send(ORDERS, "a")
    first.ack(first.consume(ORDERS))
    first.session.lost()
    second = world.client()
    second.send(ORDERS, "a")
    assert world.waiting(ORDERS) == ["a"]


# ---------------------------------------------------------------- destinations


@pytest.mark.parametrize("name", ["", " ", "?consumer.prefetchSize=1"])
def test_destinations_need_a_name(world: World, name: str) -> None:
    client = world.client()
    nameless = queue(name)
    for command in (
        ProducerInfo(producer_id=client.producer(1, 2), destination=nameless),
        ConsumerInfo(consumer_id=client.consumer(), destination=nameless, prefetch_size=1),
        DestinationInfo(destination=nameless),
        client.message(nameless),
    ):
        assert client.refused(command)[0] == "javax.jms.InvalidDestinationException"
    assert not world.broker.queues


def test_messages_and_consumers_need_a_destination(world: World) -> None:
    client = world.client()
    for command in (
        client.message(None),
        ConsumerInfo(consumer_id=client.consumer(), destination=None),
        DestinationInfo(destination=None),
    ):
        assert client.refused(command)[0] == "javax.jms.InvalidDestinationException"
    received = client.send(None, "a", response_required=False)
    assert error_class(received) == "javax.jms.InvalidDestinationException"


def test_options_behind_a_name_are_cut(world: World) -> None:
    """A Java client does not send them, others may."""
    client = world.client()
    optioned = queue(" ORDERS?consumer.prefetchSize=1&consumer.priority=2 ")
    client.answer(ProducerInfo(producer_id=client.producer(1, 2), destination=optioned), Response)
    client.answer(DestinationInfo(destination=optioned), Response)
    client.consume(optioned)
    dispatches = of_kind(client.send(optioned, "a", "b"), MessageDispatch)
    assert texts(dispatches) == ["a", "b"]
    for each in dispatches:
        assert each.message is not None
        assert (each.destination, each.message.destination) == (ORDERS, ORDERS)
    assert set(world.broker.queues) == {ORDERS}


def test_composite_destinations_are_made_part_by_part(world: World) -> None:
    client = world.client()
    client.answer(DestinationInfo(destination=queue("A,topic://B")), Response)
    assert set(world.broker.queues) == {queue("A")}
    assert topic("B") in world.broker.topics
    client.answer(
        DestinationInfo(destination=queue("A,topic://B"), operation_type=DestinationOperation.REMOVE), Response
    )
    assert queue("A") not in world.broker.queues
    assert topic("B") not in world.broker.topics


def test_composite_send_and_composite_consumer(world: World) -> None:
    client = world.client()
    client.consume(queue("A,B"))
    dispatches = of_kind(client.send(queue("A,B"), "x"), MessageDispatch)
    assert [each.destination for each in dispatches] == [queue("A"), queue("B")]
    for each in dispatches:
        assert each.message is not None
        assert (each.message.destination, each.message.original_destination) == (each.destination, queue("A,B"))


def test_composite_of_queues_and_topics_cannot_be_consumed(world: World) -> None:
    client = world.client()
    info = ConsumerInfo(consumer_id=client.consumer(), destination=queue("A,topic://B"), prefetch_size=1)
    assert client.refused(info)[0] == "javax.jms.InvalidDestinationException"


def test_gone_temporary_destination_is_refused(world: World) -> None:
    client = world.client()
    for command in (
        ProducerInfo(producer_id=client.producer(1, 2), destination=NOWHERE),
        client.message(NOWHERE),
    ):
        assert client.refused(command)[0] == "org.apache.activemq.DestinationDoesNotExistException"
    received = client.send(NOWHERE, "a", response_required=False, persistent=False)
    assert error_class(received) == "org.apache.activemq.DestinationDoesNotExistException"


def test_temporary_destination_lives_as_long_as_its_connection(world: World) -> None:
    owner, other = world.client("c1"), world.client("c2")
    temporary = Destination(DestinationType.TEMP_QUEUE, "ID:c1:1")
    for _ in range(2):  # the second time as after a failover
        owner.answer(DestinationInfo(connection_id=ConnectionId(owner.id), destination=temporary), Response)
    owner.consume(temporary)
    other.send(temporary, "reply")
    assert texts(owner.receive()) == ["reply"]
    info = ConsumerInfo(consumer_id=other.consumer(), destination=temporary, prefetch_size=1)
    assert other.refused(info)[0] == "javax.jms.InvalidDestinationException"
    owner.session.lost()
    assert other.refused(other.message(temporary))[0] == "org.apache.activemq.DestinationDoesNotExistException"


def test_destination_in_use_cannot_be_destroyed(world: World) -> None:
    client = world.client()
    client.consume(ORDERS)
    info = DestinationInfo(destination=ORDERS, operation_type=DestinationOperation.REMOVE)
    assert client.refused(info)[0] == "javax.jms.JMSException"
    client.remove(client.consumer())
    client.answer(DestinationInfo(destination=ORDERS, operation_type=DestinationOperation.REMOVE), Response)
    client.answer(DestinationInfo(destination=ORDERS, operation_type=DestinationOperation.REMOVE), Response)


def test_unknown_destination_operation_is_refused(world: World) -> None:
    assert world.client().refused(DestinationInfo(destination=ORDERS, operation_type=7))[0] == "javax.jms.JMSException"


# ---------------------------------------------------------------- subscriptions


def test_durable_subscription_from_birth_to_death(world: World) -> None:
    client = world.client()
    client.consume(NEWS, subscription_name="s")
    client.remove(client.consumer(), -1)
    client.send(NEWS, "a")
    assert texts(client.consume(NEWS, 2, subscription_name="s")) == ["a"]
    active = ConsumerInfo(consumer_id=client.consumer(3), destination=NEWS, subscription_name="s", prefetch_size=1)
    assert client.refused(active)[0] == "javax.jms.JMSException"
    forget = RemoveSubscriptionInfo(connection_id=ConnectionId(client.id), subscription_name="s", client_id="c1")
    assert client.refused(forget)[0] == "javax.jms.JMSException"
    client.remove(client.consumer(2))
    client.answer(forget, Response)
    assert client.refused(forget)[0] == "javax.jms.InvalidDestinationException"


def test_invalid_selector_is_refused(world: World) -> None:
    client = world.client()
    info = ConsumerInfo(consumer_id=client.consumer(), destination=ORDERS, selector="not ( valid", prefetch_size=1)
    assert client.refused(info)[0] == "javax.jms.InvalidSelectorException"
    client.consume(ORDERS)


def test_no_local_skips_ones_own(world: World) -> None:
    client, other = world.client("c1"), world.client("c2")
    client.consume(NEWS, no_local=True)
    client.send(NEWS, "own")
    other.send(NEWS, "other's")
    assert texts(client.receive()) == ["other's"]


def test_similar_ids_are_distinct(world: World) -> None:
    """A consumer's and a producer's id of the same numbers are equal as tuples, and yet two things."""
    client = world.client()
    assert client.consumer() == client.producer()
    client.consume(ORDERS)
    client.remove(client.producer())
    other = world.client("c2")
    other.send(ORDERS, "a")
    assert texts(client.receive()) == ["a"], "the consumer is still there"
    assert isinstance(client.consumer(), ConsumerId)


def test_unsupported_command_is_answered(world: World) -> None:
    client = world.client()
    for command in (ControlCommand(command="x"), FlushCommand(), BrokerInfo(), ConnectionErrorCommand()):
        client.answer(command, Response)
