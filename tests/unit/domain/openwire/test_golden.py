# mypy: disable-error-code="assignment"
"""Golden files of a real ActiveMQ (tests/golden/openwire) are read as it meant them, and written back to the byte."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.commands import MessageAck
from pybroker.broker.domain.openwire.ids import ConsumerId, OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, Reader
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, encode, routing, to_message
from pybroker.broker.domain.openwire.objects import (
    decode_ack,
    decode_subscription_info,
    encode_ack,
    encode_subscription_info,
    with_size_prefix,
    without_size_prefix,
)
from pybroker.broker.domain.openwire.shapes import SHAPES, skip_structure
from pybroker.broker.domain.openwire.throwables import StackFrame, Throwable
from pybroker.broker.domain.openwire.values import (
    Byte,
    Char,
    Float,
    Long,
    Short,
    decode_map,
    decode_stream,
    encode_map,
    encode_stream,
)
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from tests.openwire_ids import id_bytes, read_id

GOLDEN = Path(__file__).parents[3] / "golden" / "openwire"

DESTINATIONS = {
    "ActiveMQQueue": DestinationType.QUEUE,
    "ActiveMQTopic": DestinationType.TOPIC,
    "ActiveMQTempQueue": DestinationType.TEMP_QUEUE,
    "ActiveMQTempTopic": DestinationType.TEMP_TOPIC,
}
MESSAGES = {f"ActiveMQ{kind.name.title()}Message": kind for kind in MessageType if kind is not MessageType.MESSAGE}
MESSAGES["ActiveMQMessage"] = MessageType.MESSAGE

FIELDS = {
    "commandId": "command_id",
    "responseRequired": "response_required",
    "producerId": "producer_id",
    "transactionId": "transaction_id",
    "originalDestination": "original_destination",
    "messageId": "message_id",
    "originalTransactionId": "original_transaction_id",
    "groupID": "group_id",
    "groupSequence": "group_sequence",
    "correlationId": "correlation_id",
    "replyTo": "reply_to",
    "type": "jms_type",
    "marshalledProperties": "marshalled_properties",
    "targetConsumerId": "target_consumer_id",
    "redeliveryCounter": "redelivery_counter",
    "brokerPath": "broker_path",
    "userID": "user_id",
    "receivedByDFBridge": "received_by_bridge",
    "brokerInTime": "broker_in_time",
    "brokerOutTime": "broker_out_time",
    "jmsxGroupFirstForConsumer": "group_first_for_consumer",
    "remoteBlobUrl": "remote_blob_url",
    "mimeType": "mime_type",
    "deletedByBroker": "deleted_by_broker",
    "consumerId": "consumer_id",
    "ackType": "ack_type",
    "firstMessageId": "first_message_id",
    "lastMessageId": "last_message_id",
    "messageCount": "message_count",
    "poisonCause": "poison_cause",
}
"""Java's names of fields where ours differ."""


@dataclass(frozen=True)
class Frame:
    """One encoded structure, from its data type on, and what Java found in it."""

    data: bytes
    case: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.case["name"])

    @property
    def java_type(self) -> str:
        return str(self.case["expected"]["_type"])


def load_frames() -> list[Frame]:
    stored = (GOLDEN / "frames.bin").read_bytes()
    frames: list[Frame] = []
    for case in json.loads((GOLDEN / "frames.json").read_text()):
        offset, length = case["at"]
        frames.append(Frame(stored[offset + 4 : offset + length], case))
    return frames


FRAMES = load_frames()
JOURNAL: list[dict[str, str]] = json.loads((GOLDEN / "journal.json").read_text())


def frames_of(*java_types: str) -> list[Any]:
    """Return the frames of these types as parameters."""
    return [pytest.param(frame, id=frame.name) for frame in FRAMES if frame.java_type in java_types]


def journal_objects(kind: str) -> list[Any]:
    """Return (key, bytes with size prefix) of a kind of journal object as parameters."""
    return [
        pytest.param(row["key"], bytes.fromhex(row["object"]), id=f"{row['store']}-{number}")
        for number, row in enumerate(JOURNAL)
        if row["kind"] == kind
    ]


def from_java(value: Any) -> Any:
    """Return our value of what Java's getters returned."""
    if isinstance(value, list):
        return tuple(from_java(element) for element in value)
    if not isinstance(value, dict):
        return value
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    if "class" in value:
        stack = tuple(StackFrame(*frame) for frame in value["stack"])
        return Throwable(
            class_name=value["class"], message=value["message"], stack=stack, cause=from_java(value["cause"])
        )
    return structure_from_java(value)


def structure_from_java(value: dict[str, Any]) -> Any:
    fields = {FIELDS.get(name, name): from_java(field) for name, field in value.items() if name != "_type"}
    java_type = value["_type"]
    if java_type in DESTINATIONS:
        return Destination(DESTINATIONS[java_type], fields["physicalName"])
    if java_type in MESSAGES:
        fields.pop("dataStructure", None)
        return OpenWireMessage(type=MESSAGES[java_type], **fields)
    match java_type:
        case "ProducerId":
            return ProducerId(fields["connectionId"], fields["sessionId"], fields["value"])
        case "ConsumerId":
            return ConsumerId(fields["connectionId"], fields["sessionId"], fields["value"])
        case "MessageId":
            return OpenWireMessageId(
                fields["textView"], fields["producer_id"], fields["producerSequenceId"], fields["brokerSequenceId"]
            )
        case "LocalTransactionId":
            return LocalTransactionId(fields["connectionId"], fields["value"])
        case "XATransactionId":
            return XATransactionId(fields["formatId"], fields["globalTransactionId"], fields["branchQualifier"])
        case "MessageAck":
            return MessageAck(**fields)
        case "BrokerId" | "ConnectionId":
            return fields["value"]
        case _:
            return fields


# ---------------------------------------------------------------- fields

ID_TYPES = ("ProducerId", "ConsumerId", "MessageId", "LocalTransactionId", "XATransactionId", *DESTINATIONS)
UNUSABLE = ("LocalTransactionId/default", "XATransactionId/default", "SubscriptionInfo/default")
"""Java encodes them, with every field null; no broker can do anything with them."""


@pytest.mark.parametrize("frame", frames_of(*MESSAGES))
def test_messages_have_every_field_java_sees(frame: Frame) -> None:
    fields = decode(frame.data)

    structure = fields.data_structure
    fields.data_structure = None
    assert fields == from_java(frame.case["expected"])
    assert (structure is None) == (frame.case["expected"]["dataStructure"] is None)


@pytest.mark.parametrize("frame", frames_of(*MESSAGES))
def test_messages_are_written_back_to_the_byte(frame: Frame) -> None:
    assert encode(decode(frame.data)) == frame.data


def test_an_advisorys_subject_is_kept_as_bytes() -> None:
    (frame,) = (frame for frame in FRAMES if frame.name == "advisory/temp-queue-add")
    destination_info = 8

    subject = decode(frame.data).data_structure

    assert subject is not None
    assert subject[0] == destination_info
    assert frame.case["expected"]["dataStructure"]["destination"]["physicalName"].encode() in subject


@pytest.mark.parametrize("frame", frames_of("MessageAck"))
def test_acks(frame: Frame) -> None:
    ack = decode_ack(frame.data)

    assert ack == from_java(frame.case["expected"])
    assert encode_ack(ack) == frame.data


@pytest.mark.parametrize("frame", [p for p in frames_of(*ID_TYPES) if p.id not in UNUSABLE])
def test_ids_and_destinations(frame: Frame) -> None:
    value = read_id(frame.data)

    assert value == from_java(frame.case["expected"])
    assert id_bytes(value) == frame.data


@pytest.mark.parametrize("frame", [p for p in frames_of(*ID_TYPES) if p.id in UNUSABLE])
def test_ids_without_content_are_refused(frame: Frame) -> None:
    with pytest.raises(MalformedOpenWire, match="without"):
        read_id(frame.data)


@pytest.mark.parametrize("frame", frames_of("SubscriptionInfo"))
def test_subscriptions(frame: Frame) -> None:
    if frame.name in UNUSABLE:
        with pytest.raises(MalformedOpenWire, match="without client id"):
            decode_subscription_info(frame.data)
        return
    expected = from_java(frame.case["expected"])

    subscription = decode_subscription_info(frame.data)

    assert subscription.client_id == expected["clientId"]
    assert subscription.name == expected["subscriptionName"]
    assert subscription.selector == expected["selector"]
    assert subscription.destination == expected["destination"]
    assert subscription.subscribed_destination == expected["subscribedDestination"]
    assert subscription.no_local is expected["noLocal"]
    assert encode_subscription_info(subscription) == frame.data


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(frame, id=frame.name)
        for frame in FRAMES
        if frame.data[0] in SHAPES and frame.case.get("stackTraceEnabled", True)
    ],
)
def test_the_end_of_every_structure_is_found(frame: Frame) -> None:
    reader = Reader(frame.data + b"\xff")

    skip_structure(reader)

    assert reader.remaining == 1


def test_every_shape_has_a_golden_frame() -> None:
    assert set(SHAPES) <= {frame.data[0] for frame in FRAMES}


# ---------------------------------------------------------------- routing


def assert_routed_as_decoded(data: bytes) -> None:
    routed = routing(data)
    message = to_message(decode(data))
    for name in ("message_id", "destination", "data", "persistent", "priority", "expiration", "connection_id", "size"):
        assert getattr(routed, name) == getattr(message, name), name


@pytest.mark.parametrize(
    "frame", [p for p in frames_of(*MESSAGES) if p.values[0].case["expected"]["messageId"] is not None]
)
def test_routing_sees_what_decoding_sees(frame: Frame) -> None:
    assert_routed_as_decoded(frame.data)


@pytest.mark.parametrize("frame", [p for p in frames_of(*MESSAGES) if p.id.endswith("/default")])
def test_a_message_without_destination_cannot_be_routed(frame: Frame) -> None:
    with pytest.raises(MalformedOpenWire, match="without destination"):
        routing(frame.data)


# ---------------------------------------------------------------- bodies and properties


def body_cases(key: str) -> list[Any]:
    return [pytest.param(frame, id=frame.name) for frame in FRAMES if key in frame.case]


def plain(value: Any) -> Any:
    """Return a decoded value as the golden files write it."""
    match value:
        case Char():
            return {"char": str(value)}
        case Float():
            return {"float": struct.pack(">f", value).hex()}
        case float():
            return {"double": struct.pack(">d", value).hex()}
        case bytes():
            return {"hex": value.hex()}
        case dict():
            return {"map": {name: plain(element) for name, element in value.items()}}
        case list():
            return {"list": [plain(element) for element in value]}
        case _:
            return value


@pytest.mark.parametrize("frame", body_cases("text"))
def test_text(frame: Frame) -> None:
    expected = frame.case["text"]

    fields = decode(frame.data)

    assert fields.text() == expected
    assert fields.text_utf8() == (None if expected is None else expected.encode())


@pytest.mark.parametrize("frame", [p for p in body_cases("text") if p.id != "text/compressed"])
def test_text_is_written_as_java_writes_it(frame: Frame) -> None:
    fields = OpenWireMessage(type=MessageType.TEXT)

    text = frame.case["text"]
    fields.content = None if text is None else encode_text(text)

    assert fields.content == decode(frame.data).content


@pytest.mark.parametrize("frame", body_cases("bytesBody"))
def test_bytes_body(frame: Frame) -> None:
    assert decode(frame.data).body_bytes() == bytes.fromhex(frame.case["bytesBody"]["hex"])


@pytest.mark.parametrize("frame", body_cases("map"))
def test_map_body(frame: Frame) -> None:
    fields = decode(frame.data)

    assert plain(fields.map()) == (frame.case["map"] or {"map": {}})


@pytest.mark.parametrize("frame", body_cases("stream"))
def test_stream_body(frame: Frame) -> None:
    fields = decode(frame.data)
    values = fields.stream()

    assert plain(values) == frame.case["stream"]
    assert encode_stream(values) == fields.content
    assert decode_stream(encode_stream(values)) == values


@pytest.mark.parametrize("frame", body_cases("properties"))
def test_properties(frame: Frame) -> None:
    fields = decode(frame.data)

    assert plain(fields.properties) == frame.case["properties"]
    assert fields.properties is fields.properties


JAVA_SPOILS = {"str", "emoji"}
"""Strings with U+0000 or a supplementary character, which Java writes in a form that it then reads as garbage."""


@pytest.mark.parametrize("frame", body_cases("properties") + body_cases("map"))
def test_maps_round_trip_except_strings_java_alters(frame: Frame) -> None:
    fields = decode(frame.data)
    marshalled = (fields.marshalled_properties if "properties" in frame.case else fields.content) or bytes(4)
    entries = decode_map(marshalled)

    ours = encode_map(entries)

    assert decode_map(ours) == entries
    for name in JAVA_SPOILS & entries.keys():
        text = str(entries[name])
        assert text.encode() in ours
        assert text.encode() not in marshalled
        standard = text.encode()
        modified = next(raw for raw in spellings(text) if raw in marshalled)
        ours = ours.replace(
            b"\x09" + len(standard).to_bytes(2) + standard, b"\x09" + len(modified).to_bytes(2) + modified
        )
    assert ours == marshalled


def spellings(text: str) -> list[bytes]:
    """Return the two modified UTF-8 forms in question: U+0000 in two bytes, or U+1F600 as its surrogates."""
    return [
        text.encode().replace(b"\x00", b"\xc0\x80"),
        text.encode().replace("\U0001f600".encode(), b"\xed\xa0\xbd\xed\xb8\x80"),
    ]


def test_javas_numbers_keep_their_type() -> None:
    (frame,) = (frame for frame in FRAMES if frame.name == "props/all")

    properties = decode(frame.data).properties

    types = {name: type(value) for name, value in properties.items()}
    assert types["byte"] is Byte
    assert types["short"] is Short
    assert types["int"] is int
    assert types["long"] is Long
    assert types["float"] is Float
    assert types["double"] is float
    assert types["char"] is Char
    assert types["bool"] is bool


# ---------------------------------------------------------------- journals


@pytest.mark.parametrize(("key", "stored"), journal_objects("message"))
def test_a_journals_messages(key: str, stored: bytes) -> None:
    data = without_size_prefix(stored)
    fields = decode(data)

    assert str(fields.message_id) == key
    assert routing(data).message_id == key
    assert with_size_prefix(encode(fields)) == stored
    assert encode_map(fields.properties) == (fields.marshalled_properties or bytes(4))
    assert_routed_as_decoded(data)


@pytest.mark.parametrize(("key", "stored"), journal_objects("ack"))
def test_a_journals_acks(key: str, stored: bytes) -> None:
    ack = decode_ack(without_size_prefix(stored))

    assert str(ack.last_message_id) == key
    assert with_size_prefix(encode_ack(ack)) == stored


@pytest.mark.parametrize(("key", "stored"), journal_objects("sub"))
def test_a_journals_subscriptions(key: str, stored: bytes) -> None:
    subscription = decode_subscription_info(without_size_prefix(stored))

    assert subscription.key == key
    assert with_size_prefix(encode_subscription_info(subscription)) == stored
