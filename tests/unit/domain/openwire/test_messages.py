"""Messages as the broker carries them: encoded once, decoded once, built from parts, routed from bytes."""

import dataclasses
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, UnencodableOpenWire
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    decode,
    encode,
    routing,
    to_message,
    view,
)
from pybroker.broker.domain.openwire.shapes import NESTING_MAX
from pybroker.broker.domain.openwire.template import MessageTemplate
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId

PRODUCER = ProducerId("ID:h-1-2-0:1", -1, 1)
Q = queue("ORDERS")
TEMPORARY = Destination(DestinationType.TEMP_QUEUE, "ID:h-1-2-0:1:1")


def fields(**changes: Any) -> OpenWireMessage:
    given: dict[str, Any] = {
        "type": MessageType.TEXT,
        "producer_id": PRODUCER,
        "message_id": OpenWireMessageId(None, PRODUCER, 7),
        "destination": Q,
        "content": b"\x00\x00\x00\x01x",
    }
    return OpenWireMessage(**(given | changes))


# ---------------------------------------------------------------- ids


def test_a_message_id_reads_as_the_stores_key() -> None:
    """KahaDB leaves the text view out as well: see `text-views` in tests/golden/openwire/journal.json."""
    assert str(OpenWireMessageId(None, PRODUCER, 7)) == "ID:h-1-2-0:1:-1:1:7"
    assert str(OpenWireMessageId("foreign-1", PRODUCER, 7)) == "ID:h-1-2-0:1:-1:1:7"
    assert str(OpenWireMessageId("foreign-1", ProducerId(None, 0, 0), 0)) == "null:0:0:0"


def test_a_jms_client_sees_the_text_view() -> None:
    assert OpenWireMessageId(None, PRODUCER, 7).jms_message_id == "ID:h-1-2-0:1:-1:1:7"
    assert OpenWireMessageId("foreign-1", PRODUCER, 7).jms_message_id == "ID:foreign-1"
    assert OpenWireMessageId("ID:mine", PRODUCER, 7).jms_message_id == "ID:mine"


# ---------------------------------------------------------------- to_message, view


def test_to_message_takes_over_what_routing_needs() -> None:
    properties = encode_map({"colour": "red"})

    message = to_message(fields(persistent=True, priority=9, expiration=5, marshalled_properties=properties))

    assert message.message_id == "ID:h-1-2-0:1:-1:1:7"
    assert message.destination is Q
    assert message.persistent
    assert message.priority == 9
    assert message.expiration == 5
    assert message.connection_id == "ID:h-1-2-0:1"
    assert message.payload_size == 1024 + 5 + len(properties)
    assert message.size == 1024 + len(message.data)
    assert decode(message.data).properties == {"colour": "red"}


@pytest.mark.parametrize("missing", ["message_id", "destination"])
def test_a_message_needs_id_and_destination(missing: str) -> None:
    with pytest.raises(UnencodableOpenWire, match="without message id or destination"):
        to_message(fields(**{missing: None}))


def test_a_message_is_decoded_once() -> None:
    message = routing(to_message(fields()).data)
    assert message.decoded is None

    first = view(message)

    assert first == fields()
    assert view(message) is first


def test_what_was_encoded_here_need_not_be_decoded() -> None:
    mine = fields()

    assert view(to_message(mine)) is mine


def test_a_changed_copy_decodes_its_own_properties() -> None:
    original = fields(marshalled_properties=encode_map({"a": 1}))
    assert original.properties == {"a": 1}

    copy = dataclasses.replace(original, marshalled_properties=encode_map({"b": 2}))

    assert copy.properties == {"b": 2}
    assert original.properties == {"a": 1}


def test_without_properties_there_are_none() -> None:
    assert fields().properties == {}


# ---------------------------------------------------------------- encoding's limits


@pytest.mark.parametrize(
    "change",
    [
        {"correlation_id": "x" * 65536},
        {"group_sequence": 2**31},
        {"expiration": 2**63},
        {"priority": 128},
        {"timestamp": -(2**63) - 1},
        {"destination": queue("q" * 65536)},
        {"message_id": OpenWireMessageId(None, PRODUCER, 2**63)},
        {"transaction_id": XATransactionId(2**31, b"", b"")},
        {"broker_path": ("b",) * 1025},
    ],
)
def test_what_does_not_fit_raises_before_it_is_sent(change: dict[str, Any]) -> None:
    with pytest.raises(UnencodableOpenWire):
        encode(fields(**change))


def test_structures_inside_one_another_have_a_limit() -> None:
    connection = b"\x78\x01\x00\x01c"
    response = b"\x20" + bytes(9)  # DataResponse: one more structure follows

    def nested(depth: int) -> bytes:
        return (response + b"\x01") * (depth - 1) + connection

    within = encode(fields(data_structure=nested(NESTING_MAX)))
    assert decode(within).data_structure == nested(NESTING_MAX)
    with pytest.raises(MalformedOpenWire, match="nested more than"):
        decode(encode(fields(data_structure=nested(NESTING_MAX + 1))))
    with pytest.raises(MalformedOpenWire, match="nested more than"):
        decode(encode(fields(data_structure=nested(100_000))))


# ---------------------------------------------------------------- decoding's refusals


@pytest.mark.parametrize("data_type", [0, 22, 30, 255])
def test_only_messages_are_messages(data_type: int) -> None:
    data = bytes((data_type,)) + encode(fields())[1:]

    for read in (decode, routing):
        with pytest.raises(MalformedOpenWire, match="where a message belongs"):
            read(data)


def test_a_field_of_another_type_is_refused() -> None:
    data = encode(fields())
    producer_type_at = 7
    assert data[producer_type_at] == 123

    for read in (decode, routing):
        with pytest.raises(MalformedOpenWire, match="data type 122 where a producer id belongs"):
            read(data[:producer_type_at] + b"\x7a" + data[producer_type_at + 1 :])


def test_bytes_after_a_message_are_refused() -> None:
    with pytest.raises(MalformedOpenWire, match="1 bytes too many"):
        decode(encode(fields()) + b"\x00")


def test_a_message_without_id_cannot_be_routed() -> None:
    with pytest.raises(MalformedOpenWire, match="without id"):
        routing(encode(fields(message_id=None)))


# ---------------------------------------------------------------- routing


def routed(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for field in dataclasses.fields(Message) if (name := field.name) != "decoded"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="plain"),
        pytest.param({"producer_id": None}, id="no-producer"),
        pytest.param({"producer_id": ProducerId(None, 1, 2)}, id="producer-without-connection"),
        pytest.param({"producer_id": ProducerId("ID:bridge:1", 1, 1)}, id="another-producer"),
        pytest.param({"producer_id": ProducerId("ID:" + "h" * 600, 1, 1)}, id="long-connection-id"),
        pytest.param({"destination": topic("T.é"), "reply_to": TEMPORARY}, id="reply"),
        pytest.param({"destination": queue("q" * 600)}, id="long-name"),
        pytest.param({"transaction_id": LocalTransactionId("ID:h:1", 3)}, id="local-transaction"),
        pytest.param({"transaction_id": XATransactionId(1, b"g", b"")}, id="xa-transaction"),
        pytest.param({"original_destination": topic("T")}, id="rerouted"),
        pytest.param({"original_transaction_id": LocalTransactionId("ID:h:1", 3)}, id="original-transaction"),
        pytest.param({"message_id": OpenWireMessageId("mine", PRODUCER, 7)}, id="text-view"),
        pytest.param({"message_id": OpenWireMessageId(None, None, 7)}, id="id-without-producer"),
        pytest.param({"message_id": OpenWireMessageId(None, ProducerId("i" * 600, 1, 1), 7)}, id="long-id"),
        pytest.param({"group_id": "g", "group_sequence": 3, "correlation_id": "c", "jms_type": "t"}, id="headers"),
        pytest.param({"content": None}, id="no-content"),
        pytest.param({"content": b""}, id="empty-content"),
        pytest.param({"marshalled_properties": encode_map({"a": "b"})}, id="properties"),
        pytest.param({"type": MessageType.BLOB, "remote_blob_url": "u", "user_id": "me"}, id="blob"),
        pytest.param({"priority": 127}, id="priority-above"),
        pytest.param({"priority": -1}, id="priority-below"),
        pytest.param({"persistent": True, "expiration": 2**62, "priority": 0}, id="delivery"),
    ],
)  # fmt: skip
def test_routing_agrees_with_to_message(changes: dict[str, Any]) -> None:
    message = to_message(fields(**changes))

    assert routed(routing(message.data)) == routed(message)


def test_routed_messages_share_names() -> None:
    """A million messages of one producer to one queue have one destination and one connection id between them."""
    first, second = (routing(encode(fields(timestamp=number))) for number in (1, 2))

    assert first.destination is second.destination
    assert first.connection_id is second.connection_id


# ---------------------------------------------------------------- messages from parts

PARTS: list[Any] = [
    pytest.param({}, id="plain"),
    pytest.param({"type": MessageType.BYTES, "content": b""}, id="empty-bytes"),
    pytest.param({"type": MessageType.MAP, "content": encode_map({"a": 1})}, id="map"),
    pytest.param({"properties": {"a": "b", "é": "\x00", "long": "x" * 9000}}, id="properties"),
    pytest.param({"persistent": False, "expiration": 99, "priority": 9}, id="delivery"),
    pytest.param({"correlation_id": "c"}, id="correlation"),
    pytest.param({"reply_to": topic("T")}, id="reply-to"),
    pytest.param({"jms_type": "t"}, id="type"),
    pytest.param({"group_id": "g", "group_sequence": -1}, id="group"),
    pytest.param({"group_sequence": 4}, id="group-sequence-alone"),
    pytest.param({"transaction_id": LocalTransactionId("ID:h-1-2-0:1", 3)}, id="transaction"),
    pytest.param({"broker_in_time": 1_700_000_000_001}, id="broker-time"),
    pytest.param(
        {
            "correlation_id": "",
            "reply_to": TEMPORARY,
            "jms_type": "é",
            "group_id": "g",
            "group_sequence": 2,
            "transaction_id": XATransactionId(1, b"g", b"b"),
            "properties": {"a": "b"},
            "broker_in_time": 5,
        },
        id="everything",
    ),
]


def build(changes: dict[str, Any]) -> tuple[Message, dict[str, Any]]:
    parts: dict[str, Any] = {
        "type": MessageType.TEXT,
        "sequence": 7,
        "content": b"\x00\x00\x00\x01x",
        "properties": {},
        "persistent": True,
        "timestamp": 1_700_000_000_000,
    } | changes
    return MessageTemplate(PRODUCER, Q).build(**parts), parts


@pytest.mark.parametrize("changes", PARTS)
def test_a_template_builds_what_encode_would(changes: dict[str, Any]) -> None:
    message, parts = build(changes)

    message_id = OpenWireMessageId(None, PRODUCER, parts.pop("sequence"))
    properties = parts.pop("properties")
    marshalled = encode_map(properties) if properties else None
    whole = fields(message_id=message_id, marshalled_properties=marshalled, **parts)
    assert message.data == encode(whole)
    assert routed(message) == routed(to_message(whole))


def test_a_template_is_used_again_and_again() -> None:
    template = MessageTemplate(PRODUCER, Q)

    built = [
        template.build(type=kind, sequence=number, content=b"", properties={}, persistent=True, timestamp=0)
        for number, kind in enumerate((MessageType.TEXT, MessageType.BYTES, MessageType.TEXT))
    ]

    assert [message.message_id for message in built] == [f"{PRODUCER}:{number}" for number in range(3)]
    assert [decode(message.data).type for message in built] == [28, 24, 28]


@pytest.mark.parametrize("priority", [-1, 10, 1000])
def test_a_template_corrects_the_priority(priority: int) -> None:
    message, _ = build({"priority": priority})

    assert message.priority == decode(message.data).priority == min(max(priority, 0), 9)


@pytest.mark.parametrize(
    "changes",
    [
        {"expiration": 2**63},
        {"timestamp": 2**63, "jms_type": "t"},
        {"group_sequence": 2**31},
        {"correlation_id": "x" * 65536},
        {"properties": {"n" * 65536: "v"}},
        {"broker_in_time": 2**63},
    ],
)
def test_a_template_refuses_what_does_not_fit(changes: dict[str, Any]) -> None:
    with pytest.raises(UnencodableOpenWire):
        build(changes)
