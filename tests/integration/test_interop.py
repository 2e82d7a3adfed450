"""Each protocol's messages read by each other: bodies, header fields, properties, selectors, marks of redelivery.

MQTT takes part by a topic as the reader, and as the sender by a virtual topic, whose queue the others consume.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import proton
import pytest

from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, encode
from pybroker.store.journal.commands import AddMessage
from pybroker.store.journal.commands import decode as decode_command
from pybroker.store.journal.reader import DataFileWalk
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.protocol_clients import (
    SECONDS,
    AmqpProtocolClient,
    Body,
    MqttProtocolClient,
    OpenWireProtocolClient,
    PropertyValue,
    ProtocolClient,
    ProtocolMessage,
    StompProtocolClient,
    protocol_message,
)

Start = Callable[..., BrokerProcess]

_MAKERS: Final[Mapping[str, Callable[[int], ProtocolClient]]] = {
    "openwire": OpenWireProtocolClient,
    "stomp": StompProtocolClient,
    "mqtt": MqttProtocolClient,
    "amqp": AmqpProtocolClient,
}
PROTOCOLS: Final = tuple(_MAKERS)
QUEUE_PROTOCOLS: Final = ("openwire", "stomp", "amqp")

_numbers = itertools.count()


@dataclass
class InteropBroker:
    """A broker with a port for each protocol."""

    process: BrokerProcess
    ports: Mapping[str, int]
    clients: ExitStack

    def connect(self, protocol: str) -> ProtocolClient:
        """Return a client, which is closed after the test."""
        return self.clients.enter_context(_MAKERS[protocol](self.ports[protocol]))


def start_broker(
    transformer: str, clients: ExitStack, store: str = "memory:", ports: Mapping[str, int] | None = None
) -> InteropBroker:
    """Start a broker on a store, and wait until it serves."""
    ports = {protocol: free_port() for protocol in PROTOCOLS} if ports is None else ports
    words = [word for name, port in ports.items() if name != "stomp" for word in (f"--{name}", str(port))]
    words += ["--amqp-transformer", transformer]
    process = BrokerProcess(store, name="interop", port=ports["stomp"], extra=tuple(words))
    try:
        process.wait_for("listening on")
    except BaseException:
        process.close()
        raise
    return InteropBroker(process, ports, clients)


@pytest.fixture(scope="module")
def processes() -> Iterator[Mapping[str, InteropBroker]]:
    """A broker for each transformer of AMQP."""
    with ExitStack() as stack:
        found = {}
        for transformer in ("jms", "native"):
            found[transformer] = start_broker(transformer, ExitStack())
            stack.callback(found[transformer].process.close)
        yield found


@pytest.fixture
def transformer() -> str:
    """The transformer of the test's broker, which a parameter of the same name replaces."""
    return "jms"


@pytest.fixture
def broker(processes: Mapping[str, InteropBroker], transformer: str) -> Iterator[InteropBroker]:
    """The broker, with clients of this test."""
    with ExitStack() as clients:
        yield replace(processes[transformer], clients=clients)


def destinations(sender: str, reader: str) -> tuple[str, str]:
    """Return where the sender sends to, and where the reader reads from."""
    number = next(_numbers)
    if reader == "mqtt":
        return (f"topic://interop.t{number}",) * 2
    if sender == "mqtt":
        return f"topic://VirtualTopic.t{number}", f"queue://Consumer.r.VirtualTopic.t{number}"
    return (f"queue://interop.q{number}",) * 2


def exchange(broker: InteropBroker, sender: str, reader: str, message: ProtocolMessage) -> ProtocolMessage:
    """Send a message by one protocol, and return it as another gives it."""
    target, source = destinations(sender, reader)
    receiving = broker.connect(reader)
    receiving.subscribe(source)  # a topic has only what is sent from now on
    broker.connect(sender).send(target, message)
    found = receiving.receive()
    receiving.accept()
    return found


# ---------------------------------------------------------------- bodies

TEXT: Final = "Grüße, 世界 🎉\nand a second line"
DATA: Final = bytes(range(256))
MAP: Final = {"item": "tea", "grams": 250}

_AS_SEEN: Final[Mapping[tuple[str, str], Callable[[Any], Body]]] = {
    ("text", "mqtt"): str.encode,
    ("map", "mqtt"): lambda value: b"{item=%s, grams=%d}" % (value["item"].encode(), value["grams"]),
}
"""Converted bodies: the reader's protocol has no such type."""


@pytest.mark.parametrize("reader", PROTOCOLS)
@pytest.mark.parametrize(
    ("sender", "kind", "body"),
    [
        (sender, kind, body)
        for sender in PROTOCOLS
        for kind, body in (("text", TEXT), ("bytes", DATA), ("bytes", b""), ("map", MAP))
        if sender != "mqtt" or kind == "bytes"
    ],
)
def test_body_crosses(broker: InteropBroker, sender: str, reader: str, kind: str, body: Body) -> None:
    found = exchange(broker, sender, reader, ProtocolMessage(body=body))
    seen = _AS_SEEN.get((kind, reader), lambda value: value)(body)
    if kind == "map" and reader == "mqtt":  # a Java map has no order
        assert isinstance(seen, bytes)
        assert isinstance(found.body, bytes)
        assert sorted(found.body.strip(b"{}").split(b", ")) == sorted(seen.strip(b"{}").split(b", "))
    else:
        assert (type(found.body), found.body) == (type(seen), seen)


@pytest.mark.parametrize("size", [1 << 17, 3 << 20])
@pytest.mark.parametrize("reader", QUEUE_PROTOCOLS)
@pytest.mark.parametrize("sender", PROTOCOLS)
def test_large_body_crosses(broker: InteropBroker, sender: str, reader: str, size: int) -> None:
    body = DATA * (size // len(DATA))
    assert exchange(broker, sender, reader, ProtocolMessage(body=body)).body == body


# ---------------------------------------------------------------- fields and properties


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("reader", PROTOCOLS)
@pytest.mark.parametrize("sender", PROTOCOLS)
def test_header_fields_cross(broker: InteropBroker, sender: str, reader: str, persistent: bool) -> None:
    reply_to = "topic://replies.here" if "mqtt" in (sender, reader) else "queue://replies.here"
    sent = ProtocolMessage(
        body=b"x",
        persistent=persistent,
        priority=7,
        seconds=1000,
        correlation_id="order 17",
        reply_to=reply_to,
        type="order",
    )
    found = exchange(broker, sender, reader, sent)
    assert 900 < found.seconds <= 1001  # MQTT counts whole seconds
    assert (found.persistent, found.correlation_id, found.reply_to) == (persistent, "order 17", reply_to)
    if reader != "mqtt":
        assert found.priority == (4 if sender == "mqtt" else 7)
        assert found.type == (None if sender == "mqtt" else "order")
    assert found.is_redelivered is False


@pytest.mark.parametrize("reader", PROTOCOLS)
@pytest.mark.parametrize("sender", PROTOCOLS)
def test_message_without_fields_has_none(broker: InteropBroker, sender: str, reader: str) -> None:
    found = exchange(broker, sender, reader, ProtocolMessage(body=b"x"))
    assert (found.seconds, found.correlation_id, found.reply_to, found.type) == (0, None, None, None)


PROPERTIES: Final[Mapping[str, PropertyValue]] = {
    "colour": "röd: 1\\2",
    "empty": "",
    "count": 7,
    "price": 2.5,
    "urgent": True,
    "dull": False,
}
_TYPED: Final = ("openwire", "amqp")
"""Protocols whose properties have types; those of the others are texts."""


@pytest.mark.parametrize("reader", PROTOCOLS)
@pytest.mark.parametrize("sender", PROTOCOLS)
def test_properties_cross(broker: InteropBroker, sender: str, reader: str) -> None:
    found = exchange(broker, sender, reader, ProtocolMessage(body=b"x", properties=PROPERTIES)).properties
    shown = {name: found.get(name) for name in PROPERTIES}
    if sender in _TYPED and reader in _TYPED:
        assert {name: type(value) for name, value in shown.items()} | {"count": int} == {
            name: type(value) for name, value in PROPERTIES.items()
        }
        assert shown == PROPERTIES
    else:
        texts = {"count": "7", "price": "2.5", "urgent": "true", "dull": "false"}
        assert shown == {**PROPERTIES, **texts}


# ---------------------------------------------------------------- selectors


@pytest.mark.parametrize("transformer", ["jms", "native"])
@pytest.mark.parametrize("reader", QUEUE_PROTOCOLS)
@pytest.mark.parametrize("sender", PROTOCOLS)
def test_selector_sees_the_properties_of_other_protocols(broker: InteropBroker, sender: str, reader: str) -> None:
    target, source = destinations(sender, reader)
    receiving = broker.connect(reader)
    selector = "colour = 'red' AND shape LIKE 'r%'"
    if sender in _TYPED:
        selector += " AND number BETWEEN 5 AND 9 AND urgent AND price * 2 > 4.9"
    if sender != "mqtt":
        selector += " AND JMSPriority = 6 AND JMSCorrelationID = 'c' AND JMSType = 't'"
    receiving.subscribe(source, selector)
    sending = broker.connect(sender)
    wanted: dict[str, PropertyValue] = {"colour": "red", "shape": "round", "number": 7, "urgent": True, "price": 2.5}
    others: Sequence[Mapping[str, PropertyValue]] = ({"colour": "blue"}, {"shape": "flat"}, {"number": 17})
    fields = ProtocolMessage(body="x", priority=6, correlation_id="c", type="t")
    for other in others if sender in _TYPED else others[:2]:
        sending.send(target, replace(fields, properties={**wanted, **other, "is": "other"}))
    sending.send(target, replace(fields, properties={**wanted, "is": "wanted"}))
    assert receiving.receive().properties["is"] == "wanted"
    receiving.accept()


# ---------------------------------------------------------------- AMQP's transformers


@pytest.mark.parametrize("transformer", ["native"])
@pytest.mark.parametrize("reader", QUEUE_PROTOCOLS)
def test_native_message_is_an_encoded_one_to_others(broker: InteropBroker, reader: str) -> None:
    """Fields and properties are those of the AMQP message; so is the body, but whole, with all sections."""
    sent = ProtocolMessage(
        body=TEXT,
        properties={"colour": "red"},
        priority=7,
        correlation_id="order 17",
        reply_to="queue://replies",
        type="order",
        seconds=1000,
    )
    found = exchange(broker, "amqp", reader, sent)
    assert (found.persistent, found.priority, found.correlation_id) == (True, 7, "order 17")
    assert (found.reply_to, found.type, found.properties["colour"]) == ("queue://replies", "order", "red")
    assert 900 < found.seconds <= 1000
    if reader == "amqp":
        assert found.body == TEXT
        return
    assert str(found.properties["JMS_AMQP_NATIVE"]).lower() == "true"
    assert isinstance(found.body, bytes)
    inner = proton.Message()
    inner.decode(found.body)
    assert replace(protocol_message(inner), seconds=1000) == sent


@pytest.mark.parametrize("transformer", ["jms", "native"])
@pytest.mark.parametrize(
    "body",
    [[1, [2, b"x"]], proton.symbol("s"), proton.timestamp(17), {"list": [1]}, {proton.int32(1): "x"}, None, 2.5],
)
def test_amqp_value_without_a_java_type_comes_back(broker: InteropBroker, body: Any) -> None:
    address = destinations("amqp", "amqp")[0]
    client = broker.connect("amqp")
    assert isinstance(client, AmqpProtocolClient)
    annotations = {proton.symbol("x-opt-a"): "b"}
    client.connection.create_sender(address).send(proton.Message(body=body, annotations=annotations))
    found = client.connection.create_receiver(address, credit=1).receive(timeout=SECONDS)
    assert (type(found.body), found.body) == (type(body), body)
    assert found.annotations is not None
    assert found.annotations.items() >= annotations.items()


# ---------------------------------------------------------------- redelivery


@pytest.mark.parametrize("transformer", ["jms", "native"])
@pytest.mark.parametrize("second", QUEUE_PROTOCOLS)
@pytest.mark.parametrize("first", QUEUE_PROTOCOLS)
@pytest.mark.parametrize("sender", ["openwire", "amqp"])
def test_message_of_a_closed_connection_is_redelivered(
    broker: InteropBroker, sender: str, first: str, second: str
) -> None:
    target, source = destinations(sender, first)
    broker.connect(sender).send(target, ProtocolMessage(body="x"))
    with broker.connect(first) as leaving:
        leaving.subscribe(source)
        assert leaving.receive().is_redelivered is False
    receiving = broker.connect(second)
    receiving.subscribe(source)
    assert receiving.receive().is_redelivered is True
    receiving.accept()


@pytest.mark.parametrize("transformer", ["jms", "native"])
def test_message_of_a_killed_master_is_redelivered(tmp_path: Path, transformer: str) -> None:
    """Whatever protocol had it, and whatever protocol gets it from the next master."""
    pairs = list(itertools.product(QUEUE_PROTOCOLS, repeat=2))
    store = str(tmp_path / "store")
    with ExitStack() as stack, ExitStack() as clients:
        broker = start_broker(transformer, clients, store)
        stack.callback(broker.process.close)
        sending = broker.connect("amqp")
        for first, second in pairs:
            source = f"queue://{first}-{second}"
            sending.send(source, ProtocolMessage(body=source))
            client = broker.connect(first)
            client.subscribe(source)
            assert client.receive().is_redelivered is False
        broker.process.kill()
    with ExitStack() as stack, ExitStack() as clients:
        broker = start_broker(transformer, clients, store)
        stack.callback(broker.process.close)
        for first, second in pairs:
            client = broker.connect(second)
            client.subscribe(f"queue://{first}-{second}")
            assert client.receive().is_redelivered is True, (first, second)
            client.accept()


# ---------------------------------------------------------------- journal


def stored_messages(store: Path) -> list[OpenWireMessage]:
    """Return the messages of a journal in their order, without what identifies a connection, or a moment."""
    found = []
    for _, payload in DataFileWalk((store / "kahadb" / "db-1.log").read_bytes(), 1):
        command = decode_command(payload)
        if isinstance(command, AddMessage):
            fields = decode(command.data)
            fields = replace(fields, command_id=0, timestamp=0, arrival=0, broker_in_time=0)
            found.append(replace(fields, producer_id=None, message_id=None, original_destination=None))
    return found


@pytest.mark.parametrize("transformer", ["jms", "native"])
def test_message_is_the_same_in_the_journal(tmp_path: Path, transformer: str) -> None:
    """The port, and the frames that a message comes in, leave no trace in what is stored of it."""
    message = ProtocolMessage(body=TEXT * 100, properties={"colour": "red"}, priority=7, correlation_id="c")
    topic, consumed = "topic://VirtualTopic.t", "queue://Consumer.r.VirtualTopic.t"
    senders: list[str] = []
    with ExitStack() as stack:
        ports = {name: free_port() for name in (*PROTOCOLS, "auto")}
        broker = start_broker(transformer, ExitStack(), str(tmp_path), ports)
        stack.callback(broker.process.close)
        with OpenWireProtocolClient(ports["openwire"]) as consumer:
            consumer.subscribe(consumed)  # so that the queue gets what is published
        for protocol in PROTOCOLS:
            senders += [protocol] * 2
            target = topic if protocol == "mqtt" else consumed
            for port in (ports[protocol], ports["auto"]):
                with _MAKERS[protocol](port) as client:
                    client.send(target, replace(message, body=TEXT.encode()) if protocol == "mqtt" else message)
        with AmqpProtocolClient(ports["amqp"], max_frame_size=512) as client:
            client.send(consumed, message)
            senders.append("amqp")
        assert broker.process.terminate() == 0
    found = stored_messages(tmp_path)
    first = dict(zip(PROTOCOLS, found[::2], strict=False))
    bytes_of = {protocol: encode(fields) for protocol, fields in first.items()}
    assert [encode(each) for each in found] == [bytes_of[each] for each in senders]
    if transformer == "jms":
        texts = [first[protocol] for protocol in QUEUE_PROTOCOLS]
        assert {each.content for each in texts} == {first["openwire"].content}
        assert {each.type for each in texts} == {MessageType.TEXT}
        assert {each.properties["colour"] for each in texts} == {"red"}
        assert {(each.priority, each.correlation_id, each.persistent) for each in texts} == {(7, "c", True)}


def test_delivery_count_of_amqp_counts_connections(broker: InteropBroker) -> None:
    """A link that is closed changes nothing; a connection that ends counts, whatever its protocol."""
    target, source = destinations("openwire", "amqp")
    broker.connect("openwire").send(target, ProtocolMessage(body="x"))
    counts = []
    for leaves in ("link", "connection", "connection", "connection"):
        client = AmqpProtocolClient(broker.ports["amqp"])
        with closing(client):
            receiver = client.connection.create_receiver(source, credit=1)
            counts.append(receiver.receive(timeout=SECONDS).delivery_count)
            if leaves == "link":
                receiver.close()
    assert counts == [0, 0, 1, 2]


@pytest.mark.parametrize("transformer", ["jms", "native"])
def test_delivery_count_of_a_sent_message_is_added_to(broker: InteropBroker) -> None:
    """A message that was delivered elsewhere before has its count, and then the broker's deliveries in addition."""
    target, source = destinations("amqp", "amqp")
    with closing(AmqpProtocolClient(broker.ports["amqp"])) as sending:
        sending.connection.create_sender(target).send(proton.Message(body="x", delivery_count=2))
    counts = []
    for _ in range(2):
        with closing(AmqpProtocolClient(broker.ports["amqp"])) as client:
            receiver = client.connection.create_receiver(source, credit=1)
            counts.append(receiver.receive(timeout=SECONDS).delivery_count)
    assert counts == [2, 3]
