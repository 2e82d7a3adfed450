"""The client over STOMP, against pybroker and, unchanged, against a stock ActiveMQ."""

import threading
from collections.abc import Iterator

import pytest

from pybroker.client.errors import (
    BrokerMissing,
    LoginRefused,
    ProtocolViolation,
    Refused,
    SelectorRefused,
    Timeout,
    UnsendableMessage,
)
from pybroker.client.sync import Connection, connect

PATIENCE = 30.0


@pytest.fixture
def stomp(stomp_uri: str) -> Iterator[Connection]:
    with connect(stomp_uri, timeout=PATIENCE) as connection:
        yield connection


def test_text_and_bytes_arrive_with_their_headers(stomp: Connection, queue: str) -> None:
    stomp.send(
        queue, "grüße 🎉", properties={"colour": "red", "n": 5}, priority=7, correlation_id="c:1", type="t", ttl=60
    )
    stomp.send(queue, b"\0\1\xff")
    with stomp.consumer(queue) as consumer:
        text, data = consumer.receive(PATIENCE), consumer.receive(PATIENCE)
    assert (text.body, data.body) == ("grüße 🎉", b"\0\1\xff")
    assert (text.priority, text.correlation_id, text.type, text.persistent) == (7, "c:1", "t", True)
    assert (text.properties["colour"], text.properties["n"]) == ("red", "5")
    assert text.expiration == text.timestamp + 60_000
    assert not text.redelivered


def test_openwire_sees_text_as_text_and_the_reverse(stomp: Connection, broker_uri: str, queue: str) -> None:
    with connect(broker_uri) as openwire:
        stomp.send(queue, "from stomp", properties={"a": "b"})
        with openwire.consumer(queue) as consumer:
            message = consumer.receive(PATIENCE)
            assert (message.body, message.properties) == ("from stomp", {"a": "b"})
        openwire.send(queue, "from openwire: \U0001f600", properties={"n": 5})
        with stomp.consumer(queue) as consumer:
            message = consumer.receive(PATIENCE)
            assert (message.body, message.properties) == ("from openwire: \U0001f600", {"n": "5"})


def test_what_is_not_acknowledged_comes_again_marked(stomp: Connection, queue: str) -> None:
    for body in ("one", "two", "three"):
        stomp.send(queue, body)
    with stomp.consumer(queue, ack="individual") as consumer:
        messages = [consumer.receive(PATIENCE) for _ in range(3)]
        messages[1].ack()
    with stomp.consumer(queue) as consumer:
        again = [consumer.receive(PATIENCE) for _ in range(2)]
        assert [(message.body, message.redelivered) for message in again] == [("one", True), ("three", True)]


def test_client_acknowledgement_takes_along_what_came_before(stomp: Connection, queue: str) -> None:
    for body in ("one", "two", "three"):
        stomp.send(queue, body)
    with stomp.consumer(queue, ack="client") as consumer:
        messages = [consumer.receive(PATIENCE) for _ in range(3)]
        messages[1].ack()
    with stomp.consumer(queue) as consumer:
        assert consumer.receive(PATIENCE).body == "three"
        with pytest.raises(Timeout):
            consumer.receive(0.3)


def test_a_small_prefetch_does_not_stop_the_flow(stomp: Connection, queue: str) -> None:
    for number in range(20):
        stomp.send(queue, str(number))
    with stomp.consumer(queue, prefetch=2) as consumer:
        assert [consumer.receive(PATIENCE).body for _ in range(20)] == [str(number) for number in range(20)]


def test_transactions_commit_and_roll_back(stomp: Connection, queue: str) -> None:
    with stomp.transaction() as transaction:
        transaction.send(queue, "one")
        transaction.send(queue, "two")
    transaction = stomp.transaction()
    transaction.send(queue, "never")
    transaction.rollback()
    with stomp.consumer(queue, ack="transacted") as consumer:
        with stomp.transaction() as transaction:
            assert transaction.receive(consumer, PATIENCE).body == "one"
        transaction = stomp.transaction()
        assert transaction.receive(consumer, PATIENCE).body == "two"
        transaction.rollback()
        with stomp.transaction() as transaction:
            assert transaction.receive(consumer, PATIENCE).body == "two"
    with stomp.consumer(queue) as consumer, pytest.raises(Timeout):
        consumer.receive(0.3)


def test_a_durable_subscription_waits_and_can_be_deleted(stomp_uri: str, queue: str) -> None:
    topic = queue.replace("queue://", "topic://")
    with connect(stomp_uri, client_id=queue, timeout=PATIENCE) as connection:
        connection.consumer(topic, durable="d").close()
        connection.send(topic, "while away")
    with connect(stomp_uri, client_id=queue, timeout=PATIENCE) as connection:
        with connection.consumer(topic, durable="d") as consumer:
            assert consumer.receive(PATIENCE).body == "while away"
        connection.unsubscribe("d")
        connection.send(topic, "no one waits")
        with connection.consumer(topic, durable="d") as consumer, pytest.raises(Timeout):
            consumer.receive(0.3)


def test_selectors(stomp: Connection, queue: str) -> None:
    for colour in ("red", "blue"):
        stomp.send(queue, colour, properties={"colour": colour})
    with stomp.consumer(queue, selector="colour = 'blue'") as consumer:
        assert consumer.receive(PATIENCE).body == "blue"
    with pytest.raises(SelectorRefused):
        stomp.consumer(queue, selector="colour = = 'x'")


def test_requests_are_answered_through_a_temporary_queue(stomp: Connection, stomp_uri: str, queue: str) -> None:
    def serve() -> None:
        with connect(stomp_uri) as server, server.consumer(queue) as consumer:
            request = consumer.receive(PATIENCE)
            assert request.reply_to is not None
            server.send(request.reply_to, f"{request.body}, yes", correlation_id=request.correlation_id or "")

    thread = threading.Thread(target=serve)
    thread.start()
    assert stomp.request(queue, "there?", timeout=PATIENCE).body == "there?, yes"
    thread.join()


def test_what_stomp_cannot_express_is_refused_before_it_is_sent(stomp: Connection, queue: str) -> None:
    with pytest.raises(UnsendableMessage, match="OpenWire"):
        stomp.send(queue, {"a": 1})
    stomp.send(queue, "after")
    with stomp.consumer(queue) as consumer:
        assert consumer.receive(PATIENCE).body == "after"


def test_refusals_keep_the_connection(stomp: Connection, queue: str) -> None:
    with pytest.raises(Refused):
        stomp.unsubscribe("there is none")
    stomp.send(queue, "after")


def test_a_client_id_is_for_one_connection(stomp_uri: str, queue: str) -> None:
    with connect(stomp_uri, client_id=queue):
        for uri in (stomp_uri, f"failover:({stomp_uri})"):  # not tried for ever
            with pytest.raises(LoginRefused, match="already connected"):
                connect(uri, client_id=queue)


def test_another_protocols_port_is_reported(broker_ports: tuple[str, int, int], broker_uri: str) -> None:
    # ActiveMQ cuts the connection once it has read the CONNECT, and its reset may overtake its greeting.
    may_be_cut = (BrokerMissing,) if broker_ports[0] == "activemq" else ()
    with pytest.raises((ProtocolViolation, *may_be_cut)):
        connect(broker_uri.replace("tcp://", "stomp://"), timeout=PATIENCE)
