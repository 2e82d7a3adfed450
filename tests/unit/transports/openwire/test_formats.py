"""Peers of every version and encoding get the same messages; what a format cannot express becomes a dead letter."""

import dataclasses
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.commands import (
    AckType,
    ActiveMQBlobMessage,
    ActiveMQMessage,
    BrokerId,
    ConnectionErrorCommand,
    ConsumerControl,
    MessagePull,
    OpenWireMessageId,
    ProducerAck,
    ProducerInfo,
    Response,
    SessionId,
    SessionInfo,
    Throwable,
)
from pybroker.broker.domain.openwire.marshal.framing import WHOLE_BYTES_MIN
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, broker_offer
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.openwire.values import encode_map
from tests.unit.transports.openwire.conversation import (
    JAVA,
    OpenWireClient,
    World,
    of_kind,
    settings,
    texts,
)

ORDERS = queue("ORDERS")
GENEROUS = dataclasses.replace(broker_offer(), tight_encoding_enabled=True, cache_enabled=True, cache_size=1024)
"""An offer this broker does not make, of all that a peer may request."""

FORMATS = [
    *(pytest.param(Offer(version=version), None, id=f"v{version}") for version in (1, 2, 3, 6, 9, 10, 11, 12)),
    pytest.param(JAVA, GENEROUS, id="v12-tight-cached"),
    pytest.param(dataclasses.replace(JAVA, version=5), GENEROUS, id="v5-tight-cached"),
    pytest.param(dataclasses.replace(JAVA, tight_encoding_enabled=False), GENEROUS, id="v12-loose-cached"),
    pytest.param(dataclasses.replace(JAVA, cache_enabled=False), GENEROUS, id="v12-tight"),
]


def client_of(world: World, offer: Offer, ours: Offer | None, name: str = "c1") -> OpenWireClient:
    return world.client(name, offer=offer, of_broker=settings(ours))


@pytest.mark.parametrize(("offer", "ours"), FORMATS)
def test_every_format_sends_and_consumes(world: World, offer: Offer, ours: Offer | None) -> None:
    peer = client_of(world, offer, ours)
    modern = world.client("modern")
    properties = encode_map({"color": "red"})
    peer.send(ORDERS, "from peer", marshalled_properties=properties, priority=7, correlation_id="c", jms_type="t")
    (dispatch,) = modern.consume(ORDERS)
    assert isinstance(dispatch.message, ActiveMQMessage)
    message = dispatch.message
    assert texts([dispatch]) == ["from peer"]
    assert (message.marshalled_properties, message.priority, message.correlation_id, message.jms_type) == (
        properties,
        7,
        "c",
        "t",
    )
    modern.ack([dispatch])

    modern.remove(modern.consumer())
    peer.consume(ORDERS)
    modern.send(ORDERS, "to peer", marshalled_properties=properties)
    (back,) = peer.receive()
    assert texts([back]) == ["to peer"]
    peer.ack(of_kind([back], type(back)), AckType.STANDARD)  # type: ignore[arg-type]
    peer.session.lost()
    assert world.waiting(ORDERS) == []


@pytest.mark.parametrize(("offer", "ours"), FORMATS)
def test_every_format_sends_and_consumes_large_messages(world: World, offer: Offer, ours: Offer | None) -> None:
    text = "x" * 3 * WHOLE_BYTES_MIN
    peer = client_of(world, offer, ours)
    peer.send(ORDERS, text)
    dispatches = peer.consume(ORDERS)
    assert texts(dispatches) == [text]
    peer.ack(dispatches)
    world.client("modern").send(ORDERS, text)
    (back,) = peer.receive()
    assert texts([back]) == [text]


@pytest.mark.parametrize(("offer", "ours"), FORMATS)
def test_every_format_gets_its_exceptions(world: World, offer: Offer, ours: Offer | None) -> None:
    peer = client_of(world, offer, ours)
    unknown = peer.message(ORDERS, producer_id=peer.producer(9))
    assert peer.refused(unknown)[0] == "java.lang.IllegalStateException"
    (error,) = peer.send(ORDERS, "a", producer_id=peer.producer(9), response_required=False)
    assert isinstance(error, ConnectionErrorCommand)
    assert peer.refused(peer.message(None))[0] == "javax.jms.InvalidDestinationException"


@pytest.mark.parametrize(("offer", "ours"), FORMATS)
def test_every_format_may_write_options_behind_a_name(world: World, offer: Offer, ours: Offer | None) -> None:
    peer = client_of(world, offer, ours)
    peer.send(queue("ORDERS?x=1"), "a")
    assert world.waiting(ORDERS) == ["a"]


@pytest.mark.parametrize("version", [3, 12])
def test_producer_ack_since_version_3(world: World, version: int) -> None:
    peer = _windowed(world, version)
    (ack,) = peer.send(ORDERS, "hello", response_required=False)
    assert isinstance(ack, ProducerAck)
    assert ack.size == 1024 + 4 + 5


def test_no_producer_ack_before(world: World) -> None:
    assert _windowed(world, 2).send(ORDERS, "hello", response_required=False) == []


def _windowed(world: World, version: int) -> OpenWireClient:
    peer = world.client(offer=Offer(version=version), session=False)
    peer.send_commands(SessionInfo(session_id=SessionId(peer.id, 1)))
    peer.answer(ProducerInfo(producer_id=peer.producer(), window_size=5000), Response)
    return peer


def test_poison_cause_has_the_agreed_format(world: World) -> None:
    ours = dataclasses.replace(GENEROUS, stack_trace_enabled=True)
    peer = client_of(world, JAVA, ours)
    peer.send(ORDERS, "a")
    taken = peer.consume(ORDERS)
    peer.ack(taken, AckType.POISON, poison_cause=Throwable(class_name="x.Boom", message="it hurts"))
    assert world.waiting(queue("ActiveMQ.DLQ")) == ["a"]


def test_pull_in_version_2(world: World) -> None:
    peer = world.client(offer=Offer(version=2))
    peer.consume(ORDERS, prefetch_size=0)
    assert texts(peer.request(MessagePull(consumer_id=peer.consumer(), destination=ORDERS, timeout=-1))) == [None]


@pytest.mark.parametrize("version", [1, 5, 6])
def test_consumer_control_with_and_without_its_destination(world: World, version: int) -> None:
    peer = world.client(offer=Offer(version=version))
    peer.consume(ORDERS, prefetch_size=0)
    peer.send(ORDERS, "a")
    assert texts(peer.request(ConsumerControl(consumer_id=peer.consumer(), prefetch=3))) == ["a"]


# ---------------------------------------------------------------- what has no form


def blob(client: OpenWireClient) -> ActiveMQBlobMessage:
    client.sent += 1
    return ActiveMQBlobMessage(
        command_id=client.next_id(),
        response_required=True,
        producer_id=client.producer(),
        destination=ORDERS,
        message_id=OpenWireMessageId(None, client.producer(), client.sent),
        persistent=True,
        remote_blob_url="http://b1/blob",
    )


def test_message_that_a_consumers_version_lacks_is_dead_lettered(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """BlobMessage is of version 3: its sender has done nothing wrong, and the consumer goes on."""
    old, sender = world.client("old", offer=Offer(version=2)), world.client("sender")
    old.consume(ORDERS, prefetch_size=1)
    assert [type(each) for each in sender.request(blob(sender))] == [Response]
    (error,) = old.receive()
    assert isinstance(error, ConnectionErrorCommand)
    assert len(caplog.records) == 1
    assert texts(sender.send(ORDERS, "a")) == []
    assert texts(old.receive()) == ["a"]
    assert len(world.broker.queues[queue("ActiveMQ.DLQ")].pending) == 1
    assert not old.link.closed


def test_pull_of_such_a_message_ends_all_the_same(world: World) -> None:
    old, sender = world.client("old", offer=Offer(version=2)), world.client("sender")
    old.consume(ORDERS, prefetch_size=0)
    sender.request(blob(sender))
    received = old.request(MessagePull(consumer_id=old.consumer(), destination=ORDERS, timeout=-1))
    assert [type(each).__name__ for each in received] == ["ConnectionErrorCommand", "MessageDispatch"]
    assert texts(received) == [None]


def test_browser_goes_on_behind_such_a_message(world: World) -> None:
    old, sender = world.client("old", offer=Offer(version=2)), world.client("sender")
    sender.request(blob(sender))
    sender.send(ORDERS, "a")
    seen = old.consume(ORDERS, browser=True, prefetch_size=1)
    assert texts(seen) == ["a"]
    assert texts(old.ack(seen)) == [None]
    (waiting,) = world.broker.queues.values()
    assert len(waiting.pending) == 2
    assert not old.link.closed


@pytest.mark.parametrize("kind", [{"browser": True}, {}])
def test_message_that_does_not_decode_affects_no_other(world: World, kind: dict[str, Any]) -> None:
    """A store may have one of another broker; routing skips the field, and a full decode reports it."""
    old, sender = world.client("old", offer=Offer(version=9)), world.client("sender")
    frame = sender.wire.encode(sender.message(ORDERS, correlation_id="~~~~"))
    (connection,) = [each for each in world.broker.connections() if each.client_id == "sender"]
    connection.send(routing(frame.replace(b"~~~~", b"\xff\xfe\xff\xfe")))
    old.consume(ORDERS, **kind)
    old.receive()
    assert not old.link.closed
    assert not sender.link.closed


def test_message_of_an_old_client_that_the_store_could_not_read_is_refused(world: World) -> None:
    old = world.client("old", offer=Offer(version=5))
    old.session.receive(old.wire.encode_frame(old.message(ORDERS, broker_path=(BrokerId(None),))))
    assert [type(each) for each in old.receive()] == [ConnectionErrorCommand]
    assert old.link.closed
    assert not world.broker.queues
