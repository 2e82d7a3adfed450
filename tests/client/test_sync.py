# mypy: disable-error-code="arg-type"
"""The synchronous API against real brokers: what is sent arrives, what is acknowledged is gone, refusals are raised."""

# ruff: noqa: PT012 -- an exception that leaves a `with` statement is what these tests are about

import threading
import time

import pytest

from pybroker.broker.domain.openwire.values import Byte, Long, Short
from pybroker.client import (
    BrokerMissing,
    ConnectionClosed,
    ConnectionLost,
    DestinationRefused,
    FrameTooLarge,
    LoginRefused,
    Message,
    ProtocolViolation,
    Redelivery,
    SelectorRefused,
    Timeout,
    TransactionRolledBack,
    UnsendableMessage,
    connect,
)
from pybroker.client.sync import Connection
from tests.integration.cluster import free_port

PATIENCE = 30.0


def bodies(connection: Connection, queue: str, count: int) -> list[object]:
    with connection.consumer(queue) as consumer:
        return [consumer.receive(PATIENCE).body for _ in range(count)]


def is_empty(connection: Connection, queue: str) -> bool:
    with connection.consumer(queue) as consumer, pytest.raises(Timeout):
        consumer.receive(0.3)
    return True


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize(
    "body",
    ["tea ☕ \U0001f375\x00", "", b"\x00\xff", b"", {"a": 1, "b": [True, None, 2.5]}, {}, ["x", 1, b"y"], None],
    ids=repr,
)
def test_a_body_keeps_its_type(connection: Connection, broker_ports, body) -> None:
    queue = "queue://BODIES"
    connection.send(queue, body)
    assert bodies(connection, queue, 1) == [body]


def test_headers_and_typed_properties_arrive(connection: Connection, queue: str) -> None:
    properties = {"i": 1, "l": Long(2), "s": Short(3), "b": Byte(4), "f": 0.5, "t": "☕", "yes": True, "none": None}
    before = int(time.time() * 1000)
    connection.send(
        queue,
        "x",
        properties=properties,
        priority=7,
        ttl=60,
        reply_to="topic://ANSWERS",
        correlation_id="c",
        type="order",
        group_id="g",
        group_sequence=5,
        persistent=False,
    )
    with connection.consumer(queue) as consumer:
        message = consumer.receive(PATIENCE)
    assert message.properties == properties
    assert {name: type(value) for name, value in message.properties.items()} == {
        name: type(value) for name, value in properties.items()
    }
    assert (message.priority, str(message.reply_to), message.correlation_id) == (7, "topic://ANSWERS", "c")
    assert (message.type, message.group_id, message.group_sequence, message.persistent) == ("order", "g", 5, False)
    assert before <= message.timestamp <= time.time() * 1000
    assert message.expiration == message.timestamp + 60_000
    assert not message.redelivered
    assert message.id.startswith("ID:")


def test_what_cannot_be_sent_is_refused_here(connection: Connection, queue: str) -> None:
    with pytest.raises(UnsendableMessage, match="object"):
        connection.send(queue, object())
    with pytest.raises(UnsendableMessage, match="no_such"):
        connection.send(queue, "x", no_such=1)  # type: ignore[call-arg]
    with pytest.raises(UnsendableMessage):
        connection.send(queue, "x", properties={"set": {1}})  # type: ignore[dict-item]
    connection.send(queue, "good")
    assert bodies(connection, queue, 1) == ["good"]


def test_a_producer_sends_to_its_destination(connection: Connection, queue: str) -> None:
    with connection.producer(queue) as producer:
        for number in range(3):
            producer.send(str(number))
    with pytest.raises(ConnectionClosed):
        producer.send("late")
    assert bodies(connection, queue, 3) == ["0", "1", "2"]


# ---------------------------------------------------------------- acknowledging


def test_auto_mode_acks_the_last_message_without_an_exception(connection: Connection, queue: str) -> None:
    for number in range(4):
        connection.send(queue, number.to_bytes())
    with pytest.raises(KeyError), connection.consumer(queue) as consumer:
        assert [next(consumer).body for _ in range(2)] == [b"\x00", b"\x01"]
        raise KeyError
    with connection.consumer(queue) as consumer:
        again = consumer.receive(PATIENCE)
        assert (again.body, again.redelivered) == (b"\x01", True)
    assert bodies(connection, queue, 2) == [b"\x02", b"\x03"]
    assert is_empty(connection, queue)


def test_many_messages_are_acknowledged_in_runs(connection: Connection, queue: str) -> None:
    for number in range(300):
        connection.send(queue, str(number), persistent=False)
    assert bodies(connection, queue, 300) == [str(number) for number in range(300)]
    assert is_empty(connection, queue)


def test_client_mode_acknowledges_all_before(connection: Connection, queue: str) -> None:
    for number in range(4):
        connection.send(queue, str(number))
    with connection.consumer(queue, ack="client") as consumer:
        taken = [consumer.receive(PATIENCE) for _ in range(4)]
        taken[2].ack()
        taken[1].ack()  # does nothing any more
    assert bodies(connection, queue, 1) == ["3"]
    assert is_empty(connection, queue)


def test_individual_mode_acknowledges_one(connection: Connection, queue: str) -> None:
    for number in range(3):
        connection.send(queue, str(number))
    with connection.consumer(queue, ack="individual") as consumer:
        taken = [consumer.receive(PATIENCE) for _ in range(3)]
        taken[1].ack()
    with pytest.raises(ConnectionClosed):
        taken[0].ack()
    assert bodies(connection, queue, 2) == ["0", "2"]


def test_no_more_than_the_prefetch_is_given_out(connection: Connection, queue: str) -> None:
    for number in range(5):
        connection.send(queue, str(number))
    with connection.consumer(queue, ack="individual", prefetch=2) as few, connection.consumer(queue) as other:
        held = [few.receive(PATIENCE) for _ in range(2)]
        assert len([other.receive(PATIENCE) for _ in range(3)]) == 3
        with pytest.raises(Timeout):
            few.receive(0.2)
        for message in held:
            message.ack()


# ---------------------------------------------------------------- subscriptions


def test_a_selector_selects_and_a_wrong_one_is_refused(connection: Connection, queue: str) -> None:
    for colour in ("red", "green"):
        connection.send(queue, colour, properties={"colour": colour})
    with connection.consumer(queue, selector="colour = 'green'") as consumer:
        assert consumer.receive(PATIENCE).body == "green"
    with pytest.raises(SelectorRefused):
        connection.consumer(queue, selector="colour = = 1")
    assert bodies(connection, queue, 1) == ["red"]


def test_a_durable_subscription_lasts_until_it_is_deleted(broker_uri: str, queue: str) -> None:
    topic = queue.replace("queue:", "topic:")
    name = queue.removeprefix("queue://")
    with connect(broker_uri, client_id=name) as connection:
        connection.consumer(topic, durable="d").close()
        connection.send(topic, "kept")
    with connect(broker_uri, client_id=name) as connection:
        with connection.consumer(topic, durable="d") as consumer:
            assert consumer.receive(PATIENCE).body == "kept"
        connection.unsubscribe("d")
        connection.send(topic, "gone")
        with connection.consumer(topic, durable="d") as consumer, pytest.raises(Timeout):
            consumer.receive(0.2)
        connection.unsubscribe("d")


def test_one_connection_has_one_client_id(broker_uri: str, queue: str) -> None:
    with connect(broker_uri, client_id=queue), pytest.raises(LoginRefused):
        connect(f"failover:({broker_uri})", client_id=queue)  # not tried for ever


def test_a_closed_consumer_ends_an_iteration(connection: Connection, queue: str) -> None:
    consumer = connection.consumer(queue)
    seen: list[Message] = []
    reading = threading.Thread(target=lambda: seen.extend(consumer))
    reading.start()
    connection.send(queue, "last")
    while not seen:
        time.sleep(0.01)
    consumer.close()
    reading.join()
    assert [message.body for message in seen] == ["last"]


def test_a_request_is_answered(connection: Connection, queue: str) -> None:
    def serve() -> None:
        with connection.consumer(queue) as consumer:
            for _ in range(20):
                asked = consumer.receive(PATIENCE)
                assert asked.reply_to is not None
                connection.send(asked.reply_to, f"re: {asked.body}", correlation_id=asked.correlation_id or "")

    serving = threading.Thread(target=serve)
    serving.start()
    answers: dict[int, object] = {}

    def send_requests(first: int) -> None:
        for number in range(first, first + 5):
            answers[number] = connection.request(queue, str(number), timeout=PATIENCE).body

    clients = [threading.Thread(target=send_requests, args=[first]) for first in range(0, 20, 5)]
    for thread in clients:
        thread.start()
    for thread in (*clients, serving):
        thread.join()
    assert answers == {number: f"re: {number}" for number in range(20)}
    with pytest.raises(Timeout):
        connection.request(queue, "no one", timeout=0.1)


def test_a_temporary_destination_lives_as_long_as_its_connection(broker_uri: str, connection: Connection) -> None:
    with connect(broker_uri) as other:
        temporary = other.temporary_destination()
        connection.send(temporary, "x")
        assert bodies(other, str(temporary), 1) == ["x"]
    with pytest.raises(DestinationRefused):
        connection.send(temporary, "y")


# ---------------------------------------------------------------- transactions


def test_a_commit_does_all_of_it_and_a_rollback_nothing(connection: Connection, queue: str) -> None:
    out = f"{queue}.out"
    connection.send(queue, "in")
    source = connection.consumer(queue, ack="transacted")
    with pytest.raises(KeyError), connection.transaction() as transaction:
        assert transaction.receive(source, PATIENCE).body == "in"
        transaction.send(out, "never")
        raise KeyError
    with connection.transaction() as transaction:
        again = transaction.receive(source, PATIENCE)
        assert (again.body, again.redelivery_count) == ("in", 1)
        transaction.send(out, "out")
        assert is_empty(connection, out)
    source.close()
    assert bodies(connection, out, 1) == ["out"]
    assert is_empty(connection, queue)
    with pytest.raises(TransactionRolledBack):
        transaction.send(out, "late")


def test_a_message_that_is_rolled_back_too_often_is_dead(broker_uri: str, queue: str) -> None:
    with connect(broker_uri, redelivery=Redelivery(maximum=2, initial_delay=0.01)) as connection:
        connection.send(queue, queue)
        connection.send(queue, "next")
        source = connection.consumer(queue, ack="transacted")
        for count in range(3):
            transaction = connection.transaction()
            message = transaction.receive(source, PATIENCE)
            assert (message.body, message.redelivery_count) == (queue, count)
            transaction.rollback()
        with connection.transaction() as transaction:
            assert transaction.receive(source, PATIENCE).body == "next"
        with connection.consumer("queue://ActiveMQ.DLQ") as dead:
            while (message := dead.receive(PATIENCE)).body != queue:
                pass
        assert "exceeds redelivery policy limit" in str(message.properties["dlqDeliveryFailureCause"])


def test_a_send_that_is_refused_rolls_the_transaction_back(connection: Connection, queue: str) -> None:
    transaction = connection.transaction()
    transaction.send(queue, "good")
    transaction.send("temp-queue://nobodys", "bad")
    with pytest.raises(TransactionRolledBack):
        transaction.commit()
    assert is_empty(connection, queue)


def test_transactions_of_several_threads_do_not_mix(connection: Connection, queue: str) -> None:
    first, second = connection.transaction(), connection.transaction()
    first.send(queue, "1")
    second.send(queue, "2")
    second.commit()
    first.rollback()
    assert bodies(connection, queue, 1) == ["2"]
    assert is_empty(connection, queue)


# ---------------------------------------------------------------- limits and errors


def test_a_frame_too_large_is_refused_and_the_connection_goes_on(broker_uri: str, queue: str) -> None:
    with connect(f"failover:({broker_uri}?wireFormat.maxFrameSize=10000)") as connection:
        with pytest.raises(FrameTooLarge) as caught:
            connection.send(queue, "x" * 10_000)
        assert caught.value.size > caught.value.limit == 10_000
        with connection.transaction() as transaction:
            with pytest.raises(FrameTooLarge):
                transaction.send(queue, "x" * 10_000)
            transaction.send(queue, "small")
        assert bodies(connection, queue, 1) == ["small"]


def test_a_frame_too_large_for_us_ends_the_connection(broker_uri: str, connection: Connection, queue: str) -> None:
    connection.send(queue, "x" * 10_000)
    with (
        connect(f"failover:({broker_uri}?wireFormat.maxFrameSize=10000)") as small,
        pytest.raises(FrameTooLarge),
        small.consumer(queue) as consumer,
    ):
        consumer.receive(PATIENCE)
    assert len(str(bodies(connection, queue, 1)[0])) == 10_000


def test_an_idle_connection_is_kept_alive(broker_uri: str, queue: str) -> None:
    options = "wireFormat.maxInactivityDuration=2000&wireFormat.maxInactivityDurationInitalDelay=100"
    lost: list[Exception] = []
    with connect(f"failover:({broker_uri}?{options})", on_interrupted=lost.append) as connection:
        consumer = connection.consumer(queue)
        with pytest.raises(Timeout):
            consumer.receive(4.5)
    assert lost == []


def test_a_missing_broker_is_reported(broker_uri: str) -> None:
    no_one = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(BrokerMissing):
        connect(no_one)
    with pytest.raises(BrokerMissing, match="2 attempts"):
        connect(f"failover:({no_one})?maxReconnectAttempts=2")
    with pytest.raises(Timeout):
        connect(f"failover:({no_one})", timeout=0.1)
    with connect(f"failover:({no_one},{broker_uri})") as connection:
        assert connection.broker == broker_uri


def test_a_port_of_another_protocol_is_reported(stomp_uri: str) -> None:
    port = stomp_uri.rpartition(":")[2]
    with pytest.raises((ProtocolViolation, BrokerMissing, ConnectionLost)):
        connect(f"tcp://127.0.0.1:{port}?wireFormat.maxInactivityDurationInitalDelay=500")


def test_nothing_is_left_of_a_closed_connection(broker_uri: str, queue: str) -> None:
    before = set(threading.enumerate())
    connection = connect(broker_uri)
    consumer = connection.consumer(queue)
    connection.close()
    connection.close()
    assert set(threading.enumerate()) <= before
    for late in (lambda: connection.send(queue, "x"), lambda: consumer.receive(1), lambda: connection.consumer(queue)):
        with pytest.raises(ConnectionClosed):
            late()
