"""A consumer that is stopped keeps what the application has; the rest goes back, also what arrives later."""

import threading

import pytest

from pybroker.client import ClientError, ConnectionClosed, Timeout, UnsendableMessage, connect
from pybroker.client.sync import Connection
from pybroker.testing import Broker
from tests.client.brokers import Pair

PATIENCE = 30.0


def test_what_has_arrived_goes_to_another_consumer(connection: Connection, broker_uri: str, queue: str) -> None:
    for number in range(5):
        connection.send(queue, str(number))
    stopped = connection.consumer(queue, ack="individual")
    kept = [stopped.receive(PATIENCE) for _ in range(2)]
    stopped.stop()
    connection.send(queue, "5")
    assert [message.body for message in kept] == ["0", "1"]
    stopped.close()
    with pytest.raises(ConnectionClosed):
        stopped.stop()
    with connect(broker_uri) as other, other.consumer(queue) as consumer:
        assert sorted(str(consumer.receive(PATIENCE).body) for _ in range(6)) == list("012345")


def test_what_will_not_be_processed_goes_to_another_consumer(
    connection: Connection, broker_uri: str, queue: str
) -> None:
    for number in range(5):
        connection.send(queue, str(number))
    stopped = connection.consumer(queue, ack="individual")
    received = [stopped.receive(PATIENCE) for _ in range(4)]
    stopped.stop(received[1:3])
    with connect(broker_uri) as other, other.consumer(queue) as consumer:
        again = [consumer.receive(PATIENCE) for _ in range(3)]
        assert sorted(str(message.body) for message in again) == list("124")
        assert not any(message.redelivered for message in again)
        received[0].ack()
        stopped.close()
        assert consumer.receive(PATIENCE).body == "3"


def test_only_its_own_messages_can_be_returned(connection: Connection, queue: str) -> None:
    connection.send(queue, "of the other one")
    with connection.consumer(queue, ack="individual") as other:
        message = other.receive(PATIENCE)
        with (
            connection.consumer(queue, ack="individual") as consumer,
            pytest.raises(ClientError, match="another consumer"),
        ):
            consumer.stop([message])


def test_a_stopped_consumer_gets_nothing_and_acknowledges(connection: Connection, broker_uri: str, queue: str) -> None:
    stopped = connection.consumer(queue, ack="individual")
    connection.send(queue, "mine")
    mine = stopped.receive(PATIENCE)
    stopped.stop()
    for number in range(3):
        connection.send(queue, str(number))
    with connect(broker_uri) as other, other.consumer(queue) as consumer:
        assert sorted(str(consumer.receive(PATIENCE).body) for _ in range(3)) == list("012")
        assert not stopped.has_message
        mine.ack()
        stopped.close()
        with pytest.raises(Timeout):
            consumer.receive(0.3)


def test_a_message_in_transit_goes_back_too(connection: Connection, broker_uri: str, queue: str) -> None:
    """Each round stops the consumer at another moment of a stream of messages; in the end all have come once."""
    stop = threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        with connect(broker_uri) as producer:
            while not stop.is_set():
                producer.send(queue, str(sent), persistent=False)
                sent += 1

    sending = threading.Thread(target=send)
    consumer = connection.consumer(queue, ack="individual", prefetch=10)
    bodies: list[str] = []
    sending.start()
    for _ in range(20):
        message = consumer.receive(PATIENCE)
        consumer.stop()
        bodies.append(str(message.body))
        message.ack()
        consumer.set_prefetch(10)
    stop.set()
    sending.join()
    while len(bodies) < sent:
        message = consumer.receive(PATIENCE)
        bodies.append(str(message.body))
        message.ack()
    assert sorted(bodies, key=int) == [str(number) for number in range(sent)]


def test_a_new_prefetch_starts_it_again(connection: Connection, queue: str) -> None:
    consumer = connection.consumer(queue, ack="individual")
    connection.send(queue, "x")
    wait = threading.Event()
    consumer.call_when_ready(wait.set)
    assert wait.wait(PATIENCE)
    assert consumer.has_message
    consumer.stop()
    assert consumer.receive_no_wait() is None
    consumer.set_prefetch(10)
    message = consumer.receive(PATIENCE)
    assert (message.body, message.redelivered) == ("x", False)


def test_it_stays_stopped_at_the_next_broker(pair: Pair) -> None:
    with connect(pair.uri) as connection, connect(pair.uri) as other:
        stopped = connection.consumer("queue://stopped", ack="individual")
        connection.send("queue://stopped", "mine")
        mine = stopped.receive(PATIENCE)
        stopped.stop()
        pair.kill()
        connection.send("queue://stopped", "other")
        with other.consumer("queue://stopped", ack="individual") as consumer:
            received = {"mine"} - {str(mine.body)}
            while "other" not in received:
                received.add(str(consumer.receive(PATIENCE).body))
        mine.ack()


def test_only_a_consumer_whose_messages_can_return_is_stopped(
    connection: Connection, stomp_uri: str, queue: str
) -> None:
    for consumer in (connection.consumer(queue), connection.consumer("topic://news", ack="individual")):
        with pytest.raises(ClientError, match='a queue with ack="individual"'):
            consumer.stop()
    with connect(stomp_uri) as over_stomp, pytest.raises(UnsendableMessage):
        over_stomp.consumer(queue, ack="individual").stop()


def test_the_end_of_a_connection_is_reported_once() -> None:
    with Broker() as broker, connect(broker.uri) as connection:
        ended, calls = threading.Event(), list[int]()

        def on_end() -> None:
            calls.append(1)
            ended.set()

        connection.call_when_ended(on_end)
        assert not calls
        broker.kill9()
        assert ended.wait(PATIENCE)
        assert calls == [1]
        connection.call_when_ended(on_end)
        assert calls == [1, 1]
