"""JMS's types of message: what arrives can be sent on as what it was; and sends that are under way together."""

import contextlib

import pytest

from pybroker.client import ConnectionLost, Kind, UnsendableMessage
from pybroker.client.messages import Body
from pybroker.client.sync import Connection, connect
from tests.client.brokers import Pair

SERIALIZED = b"\xac\xed\x00\x05t\x00\x03tea"
BLOB = {"url": "http://host/file", "mime_type": "text/plain", "deleted_by_broker": False}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.MESSAGE, None),
        (Kind.TEXT, None),
        (Kind.TEXT, ""),
        (Kind.BYTES, b""),
        (Kind.MAP, {}),
        (Kind.STREAM, []),
        (Kind.OBJECT, None),
        (Kind.OBJECT, SERIALIZED),
        (Kind.BLOB, BLOB),
    ],
)
def test_message_sent_on_keeps_its_kind(connection: Connection, queue: str, kind: Kind, body: Body) -> None:
    connection.send(queue, body, kind=kind)
    with connection.consumer(queue) as messages:
        first = messages.receive(timeout=10)
        connection.send(queue, first.body, kind=first.kind or "", timestamp=17)
        second = messages.receive(timeout=10)
    assert (second.kind, second.body, second.timestamp) == (kind, body, 17)


@pytest.mark.parametrize(("kind", "body"), [("map", "x"), ("text", b"x"), ("blob", {"url": 1}), ("poem", "x")])
def test_body_of_another_kind_is_not_sent(connection: Connection, queue: str, kind: str, body: Body) -> None:
    with pytest.raises(UnsendableMessage, match=r"cannot have|has url|kind:"):
        connection.send(queue, body, kind=kind)


def test_stomp_sends_no_object(stomp_uri: str, queue: str) -> None:
    with connect(stomp_uri, timeout=10) as connection, pytest.raises(UnsendableMessage, match="use OpenWire"):
        connection.send(queue, b"x", kind="object")


def test_stomp_does_not_transfer_the_kind_of_an_empty_body(broker_uri: str, stomp_uri: str, queue: str) -> None:
    bodies: list[Body] = [{"a": 1}, "", "x", b""]
    with connect(broker_uri, timeout=10) as sender:
        for body in bodies:
            sender.send(queue, body)
    with connect(stomp_uri, timeout=10) as connection, connection.consumer(queue) as messages:
        kinds = [messages.receive(timeout=10).kind for _ in bodies]
    assert kinds == [None, None, Kind.TEXT, Kind.BYTES]


def test_begun_sends_arrive_in_their_order(connection: Connection, queue: str) -> None:
    sendings = [connection.begin_send(queue, str(number)) for number in range(200)]
    for sending in sendings:
        sending.wait(10)
    assert all(sending.is_done for sending in sendings)
    assert [message.body for message in connection.browse(queue)] == [str(number) for number in range(200)]


def test_finish_confirms_acknowledgements(broker_uri: str, queue: str) -> None:
    with connect(broker_uri, timeout=10) as connection:
        connection.send(queue, "x")
        messages = connection.consumer(queue, ack="individual")
        messages.receive(timeout=10).ack()
        assert messages.finish(10)
        assert not messages.finish(10)  # it is closed
        assert list(connection.browse(queue)) == []


def test_finish_without_broker_confirms_nothing(pair: Pair, queue: str) -> None:
    with connect(pair.uri, timeout=30) as connection:
        connection.send(queue, "x", timeout=30)
        messages = connection.consumer(queue, ack="individual", timeout=30)
        message = messages.receive(timeout=30)
        pair.kill()
        message.ack()
        with contextlib.suppress(ConnectionLost):
            assert not messages.finish(30)
