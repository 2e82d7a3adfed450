"""A bridge between two brokers of this process: demand, forwarding, failures."""

import gc
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.network_consumer import NetworkConsumer
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.network.forwarding import ForwardingEncoder
from pybroker.broker.domain.openwire.commands import (
    ConsumerInfo,
    ExceptionResponse,
    MessageDispatch,
    RemoveInfo,
    Response,
    ShutdownInfo,
)
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.throwables import Throwable
from pybroker.transports.network.bridge import BridgeEnd
from tests.compiled import interpreted
from tests.unit.transports.network.bridges import Near, TwoBrokers, named_broker
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, split, texts

WIRE = WireFormat(version=12)
Q, T = queue("Q"), topic("T")


def got(client: OpenWireClient) -> list[str | None]:
    """Return the texts that a client has got, and acknowledge them."""
    dispatches = of_kind(client.receive(), MessageDispatch)
    for each in dispatches:
        client.ack([each])
    return texts(dispatches)


def waiting(brokers: TwoBrokers, name: str = "near") -> int:
    """Return the number of messages on the queue at one broker."""
    broker = brokers.near.broker if name == "near" else brokers.far
    found = broker.queues.get(Q)
    return 0 if found is None else len(found.pending) + len(found.in_flight())


def test_demand_moves_the_backlog() -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    producer.send(Q, "1", "2", "3")
    assert waiting(brokers) == 3
    reader.consume(Q)
    brokers.pump()
    assert got(reader) == ["1", "2", "3"]
    assert waiting(brokers) == 0
    assert brokers.session.forwarded_count == 3


def test_demand_from_before_the_bridge_is_found() -> None:
    brokers = TwoBrokers()
    brokers.cut()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    producer.send(Q, "1")
    reader.consume(Q)
    brokers.connect()
    assert got(reader) == ["1"]


def test_topic_goes_over_once_per_message() -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(topic("T.1"), 1)
    reader.consume(topic("T.>"), 2)
    brokers.pump()
    producer.send(topic("T.1"), "1", "2")
    brokers.pump()
    assert got(reader) == ["1", "1", "2", "2"], "each of its two consumers gets each message once"
    assert brokers.session.forwarded_count == 2


def test_without_demand_messages_stay() -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(Q)
    brokers.pump()
    reader.answer(RemoveInfo(object_id=reader.consumer()), Response)
    brokers.pump()
    producer.send(Q, "1")
    brokers.pump()
    assert (waiting(brokers), waiting(brokers, "far")) == (1, 0)


@pytest.mark.parametrize("persistent", [True, False])
def test_lost_answers_cause_no_second_delivery(persistent: bool) -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(Q)
    brokers.pump()
    producer.send(Q, "1", "2", persistent=persistent)
    brokers.pump(answers=False)
    assert got(reader) == ["1", "2"]
    brokers.cut()
    assert waiting(brokers) == 2, "nothing was acknowledged without an answer"
    brokers.connect()
    assert got(reader) == []
    assert waiting(brokers) == 0


def forwarded(brokers: TwoBrokers, *names: str) -> list[int]:
    """Have the near broker forward messages; return the numbers of the commands, which nothing answers yet."""
    brokers.client(brokers.far, "c").consume(Q)
    brokers.pump()
    brokers.client(brokers.near.broker, "p").send(Q, *names)
    frames, brokers.link.output = split(bytes(brokers.link.output)), bytearray()
    numbers = [int.from_bytes(each[1:5]) for each in frames if 23 <= each[0] <= 29]
    assert len(numbers) == len(names)
    return numbers


def answers_to(*numbers: int, refused: int = 0, cause: str = "java.lang.SecurityException") -> bytes:
    """Return answers to messages, of which one may be refused."""
    return b"".join(
        WIRE.encode_frame(
            ExceptionResponse(correlation_id=each, exception=Throwable(class_name=cause, message="no"))
            if each == refused
            else Response(correlation_id=each)
        )
        for each in numbers
    )


@interpreted
@pytest.mark.parametrize("subscription", ["queue", "durable"])
def test_answers_of_one_chunk_are_acknowledged_together(monkeypatch: pytest.MonkeyPatch, subscription: str) -> None:
    counts: list[int] = []
    acknowledge_all = BrokerConsumer.acknowledge_all

    def counting(consumer: BrokerConsumer, deliveries: Sequence[Any], transaction: None = None) -> None:
        if isinstance(consumer, NetworkConsumer):
            counts.append(len(deliveries))
        acknowledge_all(consumer, deliveries, transaction)

    monkeypatch.setattr(BrokerConsumer, "acknowledge_all", counting)
    brokers = TwoBrokers()
    destination = Q if subscription == "queue" else T
    reader = brokers.client(brokers.far, "c")
    reader.consume(destination, subscription_name=None if subscription == "queue" else "s")
    brokers.pump()
    brokers.client(brokers.near.broker, "p").send(destination, *map(str, range(600)))
    brokers.pump()
    assert brokers.session.forwarded_count == 600
    assert counts == [256, 256, 88], "in a few acknowledgements"
    assert len(got(reader)) > 0
    assert waiting(brokers) == 0


def test_answer_behind_a_refusal_in_one_chunk_counts_for_its_message() -> None:
    brokers = TwoBrokers()
    numbers = forwarded(brokers, "1", "2", "3")
    brokers.session.receive(answers_to(*numbers, refused=numbers[1]))
    assert waiting(brokers) == 0
    dead = brokers.client(brokers.near.broker, "dead").consume(queue("ActiveMQ.DLQ"))
    assert texts(dead) == ["2"]
    assert brokers.session.forwarded_count == 2


def test_refusal_that_may_pass_returns_its_message_alone() -> None:
    brokers = TwoBrokers()
    numbers = forwarded(brokers, "1", "2", "3")
    brokers.session.receive(answers_to(*numbers, refused=numbers[1], cause="javax.jms.ResourceAllocationException"))
    assert waiting(brokers) == 1
    local = brokers.client(brokers.near.broker, "local")
    assert texts(local.consume(Q)) == ["2"]


def test_answers_before_an_impossible_frame_count() -> None:
    brokers = TwoBrokers(prefetch_size=2)
    brokers.client(brokers.far, "c").consume(Q)
    brokers.pump()
    brokers.client(brokers.near.broker, "p").send(Q, "1", "2", "3")
    frames, brokers.link.output = split(bytes(brokers.link.output)), bytearray()
    numbers = [int.from_bytes(each[1:5]) for each in frames if 23 <= each[0] <= 29]
    assert len(numbers) == 2, "the window is full"
    brokers.session.receive(answers_to(*numbers) + b"\xff\xff\xff\xff")
    assert brokers.session.end is BridgeEnd.LOST
    dispatches = brokers.client(brokers.near.broker, "local").consume(Q)
    assert texts(dispatches) == ["3"]
    assert [each.redelivery_counter for each in dispatches] == [0], "it was not sent to a connection that ends"


def test_unanswered_messages_return_in_order_as_redelivered(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(Q)
    brokers.pump()
    monkeypatch.setattr(brokers.far_session, "receive", Mock(return_value=False))  # the far broker hangs
    producer.send(Q, "1", "2", "3")
    brokers.pump()
    brokers.cut()
    local = brokers.client(brokers.near.broker, "local")
    dispatches = local.consume(Q)
    assert texts(dispatches) == ["1", "2", "3"]
    assert [each.redelivery_counter for each in dispatches] == [1, 1, 1]


def test_messages_go_one_way_where_no_answer_is_wanted() -> None:
    brokers = TwoBrokers(always_sync_send=False)
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(Q)
    brokers.pump()
    producer.send(Q, "1", persistent=False)
    brokers.pump()
    assert got(reader) == ["1"]
    assert (waiting(brokers), brokers.session.forwarded_count) == (0, 1)


def test_composite_consumer_gets_messages_of_each_part() -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(queue("A,B"))
    brokers.pump()
    for name in ("A", "B"):
        producer.send(queue(name), name)
    brokers.pump()
    assert got(reader) == ["A", "B"]


def test_excluded_messages_are_for_local_consumers() -> None:
    """A pattern of the remote broker covers a destination that may not pass."""
    brokers = TwoBrokers(excluded=(queue("Q"),))
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(queue(">"))
    brokers.pump()
    producer.send(Q, "1")
    producer.send(queue("R"), "2")
    brokers.pump()
    assert got(reader) == ["2"]
    local = brokers.client(brokers.near.broker, "local")
    assert texts(local.consume(Q)) == ["1"]


def test_static_destination_needs_no_consumer() -> None:
    brokers = TwoBrokers(statically_included=(Q,), static_bridge=True)
    producer = brokers.client(brokers.near.broker, "p")
    producer.send(Q, "1")
    brokers.pump()
    assert (waiting(brokers), waiting(brokers, "far")) == (0, 1)


def test_message_never_returns_to_a_broker_it_has_passed() -> None:
    brokers = TwoBrokers(message_ttl=-1, consumer_ttl=-1)
    back = Near(brokers.far)
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(Q)
    brokers.pump()
    producer.send(Q, "1")
    brokers.pump()
    message = of_kind(reader.receive(), MessageDispatch)[0].message
    assert message is not None
    assert [each.value for each in message.broker_path or () if each] == [brokers.near.broker.id]
    assert back.broker is brokers.far


def test_durable_subscription_collects_while_the_bridge_is_down() -> None:
    brokers = TwoBrokers(name="nc")
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(T, subscription_name="s")
    brokers.pump()
    assert [each.key for each in brokers.near.broker.subscriptions_of("nc_far_inbound_near")] == [
        "nc_far_inbound_near:NC-DS_near_T"
    ]
    brokers.cut()
    producer.send(T, "1", "2")
    brokers.connect(name="nc")
    assert got(reader) == ["1", "2"]


def test_selectors_of_all_consumers_count() -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(Q, 1, selector="JMSPriority = 1")
    brokers.pump()
    producer.send(Q, "one", priority=1)
    producer.send(Q, "two", priority=2)
    brokers.pump()
    assert (waiting(brokers), got(reader)) == (1, ["one"])
    reader.consume(Q, 2, selector="JMSPriority = 2")
    brokers.pump()
    assert (waiting(brokers), got(reader)) == (0, ["two"])


@pytest.mark.parametrize("is_broker", [False, True])
def test_stop_is_announced_and_leaves_nothing_in_doubt(is_broker: bool) -> None:
    """An operator stops the connector, or the broker stops."""
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(Q)
    brokers.pump()
    producer.send(Q, "1", "2", "3")
    if is_broker:
        brokers.session.stopping()
        brokers.link.close()
        sent = bytes(brokers.link.output)
        brokers.session.lost()
    else:
        brokers.session.stop()
        sent = bytes(brokers.link.output)
        assert brokers.link.closed
    assert isinstance(WIRE.decode(split(sent)[-1]), ShutdownInfo)
    (ended,) = brokers.near.ended
    assert ended is brokers.session
    assert waiting(brokers) == 3, "what has no answer is still here"
    brokers.far_session.receive(sent)
    assert [each.client_id for each in brokers.far.connections()] == ["c"]
    assert got(reader) == ["1", "2", "3"]
    brokers.connect()
    producer.send(Q, "4")
    brokers.pump()
    assert (got(reader), waiting(brokers)) == (["4"], 0)


def test_bridge_to_itself_ends() -> None:
    brokers = TwoBrokers()
    brokers.cut()
    brokers.far = brokers.near.broker
    brokers.connect()
    ended = brokers.near.ended[-1]
    assert (ended.end, ended.reason) == (BridgeEnd.ITSELF, "the address is that of this broker itself")


def test_silent_end_is_given_up() -> None:
    near = Near(named_broker("near"))
    session, link = near.bridge()
    link.now = link.wakes_at or 0.0
    session.on_timer()
    assert near.ended == [session]
    assert session.reason == "no BrokerInfo came within 30 seconds: is it a broker?"


@interpreted
@pytest.mark.parametrize("duplex", [False, True])
def test_error_of_the_store_on_resuming_ends_the_bridge(monkeypatch: pytest.MonkeyPatch, duplex: bool) -> None:
    """The bridge would else stay up, and forward nothing."""
    brokers = TwoBrokers(duplex=duplex)
    brokers.session.pause_writing()
    monkeypatch.setattr(BrokerConnection, "resume", Mock(side_effect=StoreUnavailable("the disk is gone")))
    brokers.session.written()
    (ended,) = brokers.near.ended
    assert (ended.end, ended.reason) == (BridgeEnd.LOST, "the disk is gone")


def test_many_advisories_are_acknowledged_together() -> None:
    brokers = TwoBrokers(advisory_prefetch_size=4)
    reader = brokers.client(brokers.far, "c")
    for number in range(20):
        reader.consume(queue(f"Q.{number}"), number + 1)
        brokers.pump()
    producer = brokers.client(brokers.near.broker, "p")
    for number in range(20):
        producer.send(queue(f"Q.{number}"), str(number))
    brokers.pump()
    assert got(reader) == [str(number) for number in range(20)], "the window of advisories is not used up"


def test_demand_of_the_bridge_is_seen_by_others() -> None:
    brokers = TwoBrokers()
    watcher = brokers.client(brokers.near.broker, "watcher")
    watcher.consume(topic("ActiveMQ.Advisory.Consumer.Queue.Q"))
    brokers.client(brokers.far, "c").consume(Q, priority=3)
    brokers.pump()
    infos: list[Any] = [
        each.message and each.message.data_structure for each in of_kind(watcher.receive(), MessageDispatch)
    ]
    (info,) = [each for each in infos if isinstance(each, ConsumerInfo)]
    assert (info.network_subscription, info.priority, info.prefetch_size) == (True, 3, 1000)
    assert [each.value for each in info.broker_path or () if each] == [brokers.far.id]


def encoder_count() -> int:
    """Return how many encoders there are."""
    gc.collect()
    return sum(isinstance(each, ForwardingEncoder) for each in gc.get_objects())


def test_ended_connections_of_a_bridge_leave_no_encoders() -> None:
    """Each keeps up to a thousand heads of messages."""
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(Q)
    before = encoder_count()
    for number in range(5):
        brokers.pump()
        producer.send(Q, str(number))
        brokers.pump()
        brokers.cut()
        brokers.near.begun.clear()
        brokers.near.ended.clear()
        brokers.connect()
    assert got(reader) == [*"01234"]
    assert encoder_count() <= before
