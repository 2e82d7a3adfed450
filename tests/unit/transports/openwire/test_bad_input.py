# mypy: disable-error-code="union-attr"
"""Violations end in an exception the client knows, or in a closed connection; no other client notices."""

import dataclasses
import logging

import pytest

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.commands import (
    ConnectionErrorCommand,
    ConnectionId,
    ConsumerId,
    ConsumerInfo,
    ExceptionResponse,
    ProducerInfo,
    RemoveInfo,
    Response,
    TransactionInfo,
    TransactionType,
)
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, broker_offer
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId
from pybroker.store.memory import MemoryStore
from pybroker.transports.openwire import client as openwire_client
from pybroker.transports.openwire import consumers
from pybroker.transports.openwire.states import OpenWireState
from tests.compiled import interpreted
from tests.unit.transports.openwire.conversation import OpenWireClient, World, settings, texts

ORDERS = queue("ORDERS")


def frame(data: bytes) -> bytes:
    return INT.pack(len(data)) + data


def closed_with_one_line(client: OpenWireClient, caplog: pytest.LogCaptureFixture) -> None:
    """Require a ConnectionError for the peer, a closed connection and one warning in the log."""
    received = client.receive()
    assert isinstance(received[-1], ConnectionErrorCommand), received
    assert client.link.closed
    assert client.session.state is OpenWireState.CLOSED
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert client.link.peer in warnings[0].getMessage()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame(b"\xee"), id="unknown command"),
        pytest.param(frame(b"\x0a\x00"), id="cut short"),
        pytest.param(frame(b"\x0a\x00\x00\x00\x01\x00\x00"), id="too long"),
        pytest.param(frame(b"\x78\x01\x00\x01x"), id="no command"),
        pytest.param(frame(b"\x1c"), id="a message of a byte"),
        pytest.param(frame(b"\x1c\x00\x00\x00\x01\x00"), id="a message of nothing"),
        pytest.param(frame(b"\x16"), id="an acknowledgement of a byte"),
        pytest.param(INT.pack(0), id="empty"),
        pytest.param(INT.pack(-1), id="negative size"),
        pytest.param(INT.pack((100 << 20) + 1), id="oversize"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    ],
)
@pytest.mark.parametrize("how", ["whole", "byte by byte"])
def test_broken_frames_close(world: World, caplog: pytest.LogCaptureFixture, data: bytes, how: str) -> None:
    witness, client = world.client("witness"), world.client()
    witness.consume(ORDERS)
    client.send_commands(client.message(ORDERS, "before"))
    for chunk in [data] if how == "whole" else [data[at : at + 1] for at in range(len(data))]:
        client.session.receive(chunk)
    closed_with_one_line(client, caplog)
    client.session.receive(client.wire.encode_frame(client.message(ORDERS, "after")))
    client.session.lost()
    assert texts(witness.receive()) == ["before"]
    assert texts(witness.send(ORDERS, "still")) == ["still"]


def test_null_command_is_nothing(world: World) -> None:
    client = world.client()
    client.session.receive(frame(b"\x00"))
    assert not client.link.closed


def test_limit_that_was_agreed_on_holds(world: World) -> None:
    client = world.client(offer=Offer(version=12, frame_bytes_max=1000))
    client.send_commands(client.message(ORDERS, "x" * 2000))
    assert client.link.closed
    assert world.waiting(ORDERS) == []


@pytest.mark.parametrize("version", [9, 12], ids=["decoded", "verbatim"])
def test_message_of_too_many_property_values_is_refused(world: World, version: int) -> None:
    """It is not stored, the client gets JMS's exception, and its connection goes on."""
    client = world.client(offer=dataclasses.replace(broker_offer(), version=version))
    values = encode_map({"list": [None] * 20_000})
    (answer,) = client.send(ORDERS, "bad", marshalled_properties=values)
    assert isinstance(answer, ExceptionResponse)
    assert answer.exception is not None
    assert answer.exception.class_name == "javax.jms.MessageFormatException"
    client.send(ORDERS, "good")
    assert texts(client.consume(ORDERS)) == ["good"]


def test_our_own_limit_holds(world: World) -> None:
    client = world.client(of_broker=settings(broker_offer(frame_bytes_max=1000)))
    client.send_commands(client.message(ORDERS, "x" * 2000))
    assert client.link.closed


def test_a_large_frame_takes_no_more_than_came(world: World) -> None:
    client = world.client()
    client.session.receive(INT.pack(100 << 20))
    client.session.receive(b"\x1c" * 10)
    assert not client.link.closed


def test_an_error_quotes_no_more_than_fits(world: World) -> None:
    client = world.client()
    name, text = client.refused(ConsumerInfo(consumer_id=client.consumer(), destination=ORDERS, selector="a=" * 30000))
    assert name == "javax.jms.InvalidSelectorException"
    assert len(text) <= 1000
    name, text = client.refused(ProducerInfo(producer_id=client.producer(9), destination=ORDERS))
    assert name == "java.lang.IllegalStateException"
    long_name = ConsumerId("y" * 60_000, 9, 1)
    assert len(client.refused(ConsumerInfo(consumer_id=long_name, destination=ORDERS))[1]) <= 1000
    assert not client.link.closed


@interpreted
def test_objects_of_a_connection_have_a_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openwire_client, "OBJECTS_MAX", 3)
    client = world.client()
    for number in (2, 3):
        client.answer(ProducerInfo(producer_id=client.producer(1, number)), Response)
        client.consume(ORDERS, number)
    client.consume(ORDERS, 4)
    for command in (
        ProducerInfo(producer_id=client.producer(1, 4)),
        ConsumerInfo(consumer_id=client.consumer(5), destination=ORDERS, prefetch_size=1),
    ):
        assert client.refused(command)[0] == "javax.jms.ResourceAllocationException"


@interpreted
def test_a_consumer_of_many_destinations_remembers_few(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "_HEADS_MAX", 3)
    client = world.client()
    client.consume(topic("NEWS.>"), prefetch_size=1000)
    for number in range(10):
        (dispatch,) = [each for each in client.send(topic(f"NEWS.{number}"), "n") if not isinstance(each, Response)]
        assert dispatch.destination == topic(f"NEWS.{number}")
    (consumer,) = client.session._client.consumers.values()
    assert len(consumer._heads) <= 3


def test_removal_of_another_connection_has_no_effect(world: World) -> None:
    client, other = world.client("c1"), world.client("c2")
    other.answer(RemoveInfo(object_id=ConnectionId(client.id)), Response)
    client.consume(ORDERS)
    assert texts(client.send(ORDERS, "a")) == ["a"]
    other.send(ORDERS, "b")
    assert texts(client.receive()) == ["b"]
    assert other.session.state is OpenWireState.CONNECTED


# ---------------------------------------------------------------- a store that fails


class BrokenStore(MemoryStore):
    """Fails from some moment on, as one whose disk is gone."""

    is_broken = False

    def add(self, message: Message, transaction: TransactionId | None = None) -> bool:
        self._check()
        return super().add(message, transaction)

    def rollback(self, transaction: TransactionId) -> None:
        self._check()
        super().rollback(transaction)

    def _check(self) -> None:
        if self.is_broken:
            raise StoreUnavailable("the journal cannot be written", path="/j", hint="Look at the disk")


def test_broken_store_answers_nothing_and_closes(caplog: pytest.LogCaptureFixture) -> None:
    """Closing touches the store again, and nothing is raised at the event loop."""
    store = BrokenStore()
    client = World(store).client()
    transaction = LocalTransactionId(client.id, 1)
    client.send_commands(
        TransactionInfo(connection_id=ConnectionId(client.id), transaction_id=transaction, type=TransactionType.BEGIN)
    )
    client.send(ORDERS, "a", transaction_id=transaction, response_required=False)
    store.is_broken = True
    received = client.send(ORDERS, "b")
    assert [type(each) for each in received] == [ConnectionErrorCommand]
    assert client.link.closed
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.ERROR]
    client.session.lost()
