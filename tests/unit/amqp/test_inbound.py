"""Transfers become messages as in ActiveMQ's tables: bodies, sections, properties, and what happens to the others."""

import uuid
from itertools import count
from typing import Any

import pytest

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.sections import (
    AmqpBodyKind,
    AmqpMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
    encode_message,
)
from pybroker.broker.domain.amqp.values import (
    AmqpArray,
    AmqpDecimal,
    AmqpDescribed,
    Symbol,
    Timestamp,
    UnsignedByte,
    UnsignedInt,
    UnsignedLong,
    UnsignedShort,
)
from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import UnencodableOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, view
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.transports.amqp.inbound import AmqpTransformer, TransferReader
from pybroker.transports.amqp.names import parse_address

NOW = 1_700_000_000_000
Q = queue("q")

TEXT = bytes.fromhex(
    "005370c00402415007005373c01906a1036964314040a10153a109746f7069633a2f2f72a10163005374d10000000f00000004"
    "a101695405a10173a10176005377a10368c3a9"
)
"""A durable text with properties, as qpid-proton 0.40 sent it to ActiveMQ 5.17.2."""

DATA = bytes.fromhex("00537045005375a0020102")
"""Bytes with an empty header, sent by the same."""


def reader(transformer: AmqpTransformer = AmqpTransformer.JMS, **options: Any) -> TransferReader:
    sequences = count(100)
    return TransferReader("ID:c", lambda: NOW, lambda: next(sequences), transformer, producer_value=3, **options)


def read(
    payload: bytes, transformer: AmqpTransformer = AmqpTransformer.JMS, message_format: int = 0, **options: Any
) -> OpenWireMessage:
    message = reader(transformer, **options).read(payload, message_format, Q)
    assert decode(message.data) == view(message)
    return decode(message.data)


def encoded(kind: AmqpBodyKind = AmqpBodyKind.NONE, body: Any = None, **sections: Any) -> bytes:
    return encode_message(made(kind, body, **sections))


def made(kind: AmqpBodyKind = AmqpBodyKind.NONE, body: Any = None, **sections: Any) -> AmqpMessage:
    message = AmqpMessage()
    message.body_kind, message.body = kind, body
    for name, section in sections.items():
        setattr(message, name, section)
    return message


def value(body: Any, **sections: Any) -> bytes:
    return encoded(AmqpBodyKind.VALUE, body, **sections)


def typed(kind: AmqpBodyKind, body: Any, content_type: str | None) -> bytes:
    return encoded(
        kind,
        body,
        properties=AmqpMessageProperties(content_type=None if content_type is None else Symbol(content_type)),
    )


def is_native(message: OpenWireMessage, payload: bytes) -> bool:
    native = message.properties.get("JMS_AMQP_NATIVE") is True
    assert native == (message.content == payload)
    return native


# ---------------------------------------------------------------- bodies

JAVA = "application/x-java-serialized-object"
TYPES_WITHOUT_BODY = [
    (None, MessageType.BYTES),
    ("application/octet-stream", MessageType.BYTES),
    (JAVA, MessageType.OBJECT),
    ("text/plain", MessageType.TEXT),
    ("text/plain;charset=iso-8859-1", MessageType.TEXT),
    ("text/plain;charset=klingon", MessageType.MESSAGE),
    ("image/png", MessageType.MESSAGE),
    ("nonsense", MessageType.MESSAGE),
]


@pytest.mark.parametrize(("content_type", "expected"), TYPES_WITHOUT_BODY)
def test_no_body_is_typed_by_its_content_type(content_type: str | None, expected: MessageType) -> None:
    message = read(typed(AmqpBodyKind.NONE, None, content_type))

    assert (message.type, message.content) == (expected, None)
    assert message.properties["JMS_AMQP_ORIGINAL_ENCODING"] == Short(1)
    assert message.properties.get("JMS_AMQP_ContentType") == content_type


TEXTUAL = [
    "text/plain",
    "text/anything",
    "TEXT/Plain",
    "text/plain; charset=utf-8",
    'text/plain;x=1;CHARSET="UTF-8"',
    "application/json",
    "application/xml",
    "application/javascript",
    "application/ecmascript",
    "application/xml-dtd",
    "application/atom+xml",
    "application/problem+json",
]
BINARY = [
    None,
    "application/octet-stream",
    "application/pdf",
    "text/plain;charset=us-ascii",
    "text/plain;charset=iso-8859-1",
    "text/plain;charset=klingon",
    "text/",
    "/plain",
    "image/svg",
]


@pytest.mark.parametrize("content_type", TEXTUAL)
def test_data_with_a_textual_content_type_is_a_text(content_type: str) -> None:
    message = read(typed(AmqpBodyKind.DATA, ["hé".encode()], content_type))

    assert message.type is MessageType.TEXT
    assert message.text() == "hé"
    assert type(message.properties["JMS_AMQP_ORIGINAL_ENCODING"]) is Short
    assert message.properties["JMS_AMQP_ORIGINAL_ENCODING"] == 2


@pytest.mark.parametrize("content_type", BINARY)
def test_data_of_another_content_type_is_bytes(content_type: str | None) -> None:
    message = read(typed(AmqpBodyKind.DATA, [b"hello"], content_type))

    assert (message.type, message.content) == (MessageType.BYTES, b"hello")
    assert message.properties["JMS_AMQP_ORIGINAL_ENCODING"] == 2


def test_data_that_is_no_utf8_is_bytes() -> None:
    message = read(typed(AmqpBodyKind.DATA, [b"\xff\xfe"], "text/plain"))

    assert (message.type, message.content) == (MessageType.BYTES, b"\xff\xfe")


def test_data_of_several_sections_is_joined() -> None:
    assert read(encoded(AmqpBodyKind.DATA, [b"ab", b"", b"c"])).content == b"abc"


@pytest.mark.parametrize(("kind", "body"), [(AmqpBodyKind.DATA, [b"\xac\xed"]), (AmqpBodyKind.VALUE, b"\xac\xed")])
def test_serialized_java_is_an_object(kind: AmqpBodyKind, body: Any) -> None:
    message = read(typed(kind, body, JAVA))

    assert (message.type, message.content) == (MessageType.OBJECT, b"\xac\xed")


VALUES = [
    pytest.param(None, MessageType.TEXT, None, 4, id="null"),
    pytest.param("hé\0", MessageType.TEXT, "hé\0", 5, id="string"),
    pytest.param("", MessageType.TEXT, "", 5, id="empty string"),
    pytest.param(b"\1\2", MessageType.BYTES, b"\1\2", 6, id="binary"),
    pytest.param(b"", MessageType.BYTES, b"", 6, id="empty binary"),
    pytest.param(
        {"b": True, "i": 1, "l": Long(2), "s": "x", "d": 1.5, "f": Float(0.5), "y": Byte(1), "h": Short(2),
         "c": Char("z"), "n": None, "raw": b"\0", "m": {"k": "v"}},
        MessageType.MAP, ..., 7, id="map",
    ),
    pytest.param({}, MessageType.MAP, {}, 7, id="empty map"),
    pytest.param([1, "two", None, 3.0, True, Long(4), Char("c")], MessageType.STREAM, ..., 8, id="list"),
    pytest.param([], MessageType.STREAM, [], 8, id="empty list"),
]  # fmt: skip


def body_of(message: OpenWireMessage) -> object:
    match message.type:
        case MessageType.TEXT:
            return message.text()
        case MessageType.MAP:
            return message.map()
        case MessageType.STREAM:
            return message.stream()
        case _:
            return message.content


@pytest.mark.parametrize(("body", "kind", "expected", "encoding"), VALUES)
def test_value_has_the_type_of_jms(body: Any, kind: MessageType, expected: Any, encoding: int) -> None:
    message = read(value(body))

    found = body_of(message)
    assert message.type is kind
    assert found == (body if expected is ... else expected)
    assert message.properties == {"JMS_AMQP_ORIGINAL_ENCODING": encoding}
    if kind is MessageType.MAP:
        assert {name: type(each) for name, each in message.map().items()} == {name: type(body[name]) for name in body}


def test_sequences_are_one_stream() -> None:
    message = read(encoded(AmqpBodyKind.SEQUENCE, [[1, "a"], [2]]))

    assert message.type is MessageType.STREAM
    assert message.stream() == [1, "a", 2]
    assert message.properties["JMS_AMQP_ORIGINAL_ENCODING"] == 3


NOT_FOR_JMS = [
    pytest.param(5, id="int"),
    pytest.param(True, id="boolean"),
    pytest.param(0.5, id="double"),
    pytest.param(uuid.UUID(int=1), id="uuid"),
    pytest.param(Symbol("s"), id="symbol"),
    pytest.param(Timestamp(1), id="timestamp"),
    pytest.param(AmqpArray([1, 2], b"\x71"), id="array"),
    pytest.param({1: "a"}, id="map with an int key"),
    pytest.param({Symbol("a"): "a"}, id="map with a symbol key"),
    pytest.param({"": 1}, id="map with an empty key"),
    pytest.param({"a": UnsignedInt(1)}, id="map with an unsigned value"),
    pytest.param({"a": [1]}, id="map with a list"),
    pytest.param({"a": {"b": UnsignedInt(1)}}, id="nested map with an unsigned value"),
    pytest.param({"a": Symbol("s")}, id="map with a symbol"),
    pytest.param({"a" * 70_000: 1}, id="map with a name that is too long"),
    pytest.param([b"x"], id="list with binary"),
    pytest.param([[1]], id="list in a list"),
    pytest.param([{"a": 1}], id="map in a list"),
    pytest.param([UnsignedLong(1)], id="list with an unsigned value"),
    pytest.param([Char("😀")], id="char beyond Java's"),
    pytest.param(AmqpDescribed(Symbol("x:y"), "z"), id="described value"),
]


@pytest.mark.parametrize("body", NOT_FOR_JMS)
def test_body_without_a_form_in_jms_is_kept_native(body: Any) -> None:
    payload = value(body, application_properties={"color": "red"})

    message = read(payload)

    assert message.type is MessageType.BYTES
    assert is_native(message, payload)
    assert message.properties == {"JMS_AMQP_NATIVE": True, "color": "red"}
    assert message.timestamp == NOW


# ---------------------------------------------------------------- header


def header(**fields: Any) -> OpenWireMessage:
    return read(value("x", header=AmqpMessageHeader(**fields)))


def test_header_sets_fields() -> None:
    message = header(durable=True, priority=7, ttl=5000, first_acquirer=True, delivery_count=3)

    assert (message.persistent, message.priority, message.expiration) == (True, 7, NOW + 5000)
    assert message.redelivery_counter == 3
    assert message.properties["JMS_AMQP_HEADER"] is True
    assert message.properties["JMS_AMQP_FirstAcquirer"] is True


def test_no_header_has_the_defaults_of_jms() -> None:
    message = read(value("x"))

    assert (message.persistent, message.priority, message.expiration, message.timestamp) == (False, 4, 0, 0)
    assert "JMS_AMQP_HEADER" not in message.properties


@pytest.mark.parametrize("durable", [None, False])
def test_header_that_is_not_durable_is_not_persistent(durable: bool | None) -> None:
    assert header(durable=durable).persistent is False


@pytest.mark.parametrize(("priority", "expected"), [(None, 4), (0, 0), (9, 9), (10, 9), (127, 9), (128, 0), (255, 0)])
def test_priority_is_that_of_a_java_byte(priority: int | None, expected: int) -> None:
    assert header(priority=priority).priority == expected


def test_ttl_of_zero_is_for_ever() -> None:
    assert header(ttl=0).expiration == 0


def test_absolute_expiry_time_overrules_the_ttl() -> None:
    payload = value(
        "x", header=AmqpMessageHeader(ttl=5000), properties=AmqpMessageProperties(absolute_expiry_time=NOW + 1)
    )

    assert read(payload).expiration == NOW + 1


# ---------------------------------------------------------------- properties


def test_properties_set_fields() -> None:
    message = read(
        value(
            "x",
            properties=AmqpMessageProperties(
                message_id="m-1",
                user_id="müller".encode(),
                to="topic://ignored",
                subject="kind",
                reply_to="temp-queue://ID:1:1",
                correlation_id="c-1",
                content_type=Symbol("text/x"),
                content_encoding=Symbol("gzip"),
                creation_time=NOW - 5,
                group_id="g",
                group_sequence=6,
                reply_to_group_id="r",
            ),
        )
    )

    assert message.message_id is not None
    assert (message.message_id.text_view, message.message_id.jms_message_id) == ("m-1", "ID:m-1")
    assert str(message.message_id) == "ID:c:-1:3:1"
    assert message.destination == Q
    assert (message.user_id, message.jms_type, message.correlation_id) == ("müller", "kind", "c-1")
    assert message.reply_to == Destination(DestinationType.TEMP_QUEUE, "ID:1:1")
    assert (message.timestamp, message.group_id, message.group_sequence) == (NOW - 5, "g", 6)
    assert message.properties == {
        "JMS_AMQP_PROPERTIES": True,
        "JMS_AMQP_ContentType": "text/x",
        "JMS_AMQP_ContentEncoding": "gzip",
        "JMS_AMQP_ReplyToGroupID": "r",
        "JMS_AMQP_ORIGINAL_ENCODING": 5,
    }


IDS = [
    ("plain", "plain"),
    ("ID:x", "ID:x"),
    (uuid.UUID(int=255), "AMQP_UUID:00000000-0000-0000-0000-0000000000ff"),
    (UnsignedLong(2**64 - 1), "AMQP_ULONG:18446744073709551615"),
    (b"\x01\xab", "AMQP_BINARY:01AB"),
    ("AMQP_UUID:x", "AMQP_STRING:AMQP_UUID:x"),
    ("AMQP_STRING:x", "AMQP_STRING:AMQP_STRING:x"),
    ("ID:AMQP_ULONG:1", "AMQP_STRING:ID:AMQP_ULONG:1"),
]


@pytest.mark.parametrize(("found", "expected"), IDS)
def test_ids_are_texts_with_their_types(found: Any, expected: str) -> None:
    message = read(value("x", properties=AmqpMessageProperties(message_id=found, correlation_id=found)))

    assert message.message_id is not None
    assert message.message_id.text_view == expected
    assert message.correlation_id == expected


def test_a_great_group_sequence_closes_the_group() -> None:
    message = read(value("x", properties=AmqpMessageProperties(group_id="g", group_sequence=2**32 - 1)))

    assert message.group_sequence == -1


def test_user_of_a_client_with_a_login_is_removed() -> None:
    payload = value(
        "x", properties=AmqpMessageProperties(user_id=b"boss"), application_properties={"JMSXUserID": "boss"}
    )

    assert read(payload).user_id == "boss"
    message = read(payload, removes_user=True)
    assert message.user_id is None
    assert "JMSXUserID" not in message.properties


# ---------------------------------------------------------------- application properties

DECIMAL32 = AmqpDecimal(bytes.fromhex("b1800177"))
"""-3.75"""
DECIMAL64 = AmqpDecimal(bytes.fromhex("3180000000000177"))
"""3.75"""
DECIMAL128 = AmqpDecimal(bytes.fromhex("303c0000000000000000000000000177"))
"""3.75"""

CONVERTED = [
    pytest.param(True, True, id="boolean"),
    pytest.param(Byte(-1), Byte(-1), id="byte"),
    pytest.param(Short(-1), Short(-1), id="short"),
    pytest.param(-1, -1, id="int"),
    pytest.param(Long(-1), Long(-1), id="long"),
    pytest.param(0.1, 0.1, id="double"),
    pytest.param(Float(0.5), Float(0.5), id="float"),
    pytest.param(None, None, id="null"),
    pytest.param(Char("c"), Char("c"), id="char"),
    pytest.param(UnsignedByte(127), Byte(127), id="ubyte"),
    pytest.param(UnsignedByte(128), Short(128), id="great ubyte"),
    pytest.param(UnsignedShort(32767), Short(32767), id="ushort"),
    pytest.param(UnsignedShort(32768), 32768, id="great ushort"),
    pytest.param(UnsignedInt(2**31 - 1), 2**31 - 1, id="uint"),
    pytest.param(UnsignedInt(2**31), Long(2**31), id="great uint"),
    pytest.param(UnsignedLong(1), Long(1), id="ulong"),
    pytest.param(UnsignedLong(2**64 - 1), Long(-1), id="great ulong"),
    pytest.param(Symbol("s"), "s", id="symbol"),
    pytest.param(b"a\x01\\\xff", "a\\x01\\x5c\\xff", id="binary"),
    pytest.param(DECIMAL32, Float(-3.75), id="decimal32"),
    pytest.param(DECIMAL64, 3.75, id="decimal64"),
    pytest.param(DECIMAL128, 3.75, id="decimal128"),
    pytest.param([1, UnsignedInt(2), b"x"], [1, 2, b"x"], id="list"),
    pytest.param({"k": Symbol("v"), Symbol("s"): 1}, {"k": "v", "s": 1}, id="map"),
]


@pytest.mark.parametrize("transformer", [AmqpTransformer.JMS, AmqpTransformer.NATIVE])
@pytest.mark.parametrize(("found", "expected"), CONVERTED)
def test_application_property_has_the_type_of_java(found: Any, expected: Any, transformer: AmqpTransformer) -> None:
    message = read(value("x", application_properties={"p": found}), transformer)

    held = message.properties["p"]
    assert held == expected
    assert type(held) is type(expected)


@pytest.mark.parametrize("name", ["with-dash", "1x", "a b", "ünï", "JMSXFoo"])
def test_application_property_may_have_any_name(name: str) -> None:
    assert read(value("x", application_properties={name: 1})).properties[name] == 1


def test_names_of_jms_set_fields() -> None:
    message = read(
        value(
            "x",
            application_properties={
                "JMSCorrelationID": "c",
                "JMSDeliveryMode": 2,
                "JMSExpiration": Long(NOW + 1),
                "JMSPriority": "8",
                "JMSReplyTo": "topic://t",
                "JMSTimestamp": Long(5),
                "JMSType": "kind",
                "JMSXDeliveryCount": 4,
                "JMSXGroupID": "g",
                "JMSXGroupSeq": UnsignedInt(2),
            },
        )
    )

    assert (message.correlation_id, message.persistent, message.expiration) == ("c", True, NOW + 1)
    assert (message.priority, message.reply_to, message.timestamp) == (8, topic("t"), 5)
    assert (message.jms_type, message.redelivery_counter) == ("kind", 3)
    assert (message.group_id, message.group_sequence) == ("g", 2)
    assert message.properties == {"JMS_AMQP_ORIGINAL_ENCODING": 5}


def test_properties_overrule_application_properties() -> None:
    payload = value(
        "x",
        application_properties={"JMSType": "wrong", "JMSXGroupID": "wrong"},
        properties=AmqpMessageProperties(subject="right", group_id="right"),
    )

    message = read(payload)

    assert (message.jms_type, message.group_id) == ("right", "right")


@pytest.mark.parametrize(("redelivered", "count"), [(True, 1), ("true", 1), (False, 0)])
def test_redelivered_property_sets_the_counter(redelivered: object, count: int) -> None:
    assert read(value("x", application_properties={"JMSRedelivered": redelivered})).redelivery_counter == count


def test_markers_of_the_client_do_not_count() -> None:
    payload = value("x", application_properties={"JMS_AMQP_NATIVE": False, "JMS_AMQP_ORIGINAL_ENCODING": "y"})

    assert read(payload, AmqpTransformer.NATIVE).properties["JMS_AMQP_NATIVE"] is True
    assert read(payload).properties["JMS_AMQP_ORIGINAL_ENCODING"] == 5


# ---------------------------------------------------------------- annotations and footer


def test_annotations_and_footer_are_properties() -> None:
    message = read(
        value(
            "x",
            delivery_annotations={Symbol("x-opt-d"): 1},
            message_annotations={Symbol("x-opt-m"): UnsignedByte(1), UnsignedLong(7): "seven"},
            footer={Symbol("sum"): Symbol("f")},
        )
    )

    assert message.properties == {
        "JMS_AMQP_MA_x-opt-m": Byte(1),
        "JMS_AMQP_MA_7": "seven",
        "JMS_AMQP_FT_sum": "f",
        "JMS_AMQP_ORIGINAL_ENCODING": 5,
    }


SCHEDULES = [
    ("x-opt-delivery-delay", Long(1500), "AMQ_SCHEDULED_DELAY", Long(1500)),
    ("x-opt-delivery-delay", UnsignedInt(1500), "AMQ_SCHEDULED_DELAY", Long(1500)),
    ("x-opt-delivery-delay", 1500.9, "AMQ_SCHEDULED_DELAY", Long(1500)),
    ("x-opt-delivery-delay", UnsignedLong(2**64 - 1), "AMQ_SCHEDULED_DELAY", Long(2**63 - 1)),
    ("x-opt-delivery-delay", DECIMAL64, "AMQ_SCHEDULED_DELAY", Long(3)),
    ("x-opt-delivery-time", Long(NOW + 2000), "AMQ_SCHEDULED_DELAY", Long(2000)),
    ("x-opt-delivery-period", Long(700), "AMQ_SCHEDULED_PERIOD", Long(700)),
    ("x-opt-delivery-repeat", 3, "AMQ_SCHEDULED_REPEAT", 3),
    ("x-opt-delivery-cron", "* * * * *", "AMQ_SCHEDULED_CRON", "* * * * *"),
]


@pytest.mark.parametrize("transformer", [AmqpTransformer.JMS, AmqpTransformer.NATIVE])
@pytest.mark.parametrize(("annotation", "given", "name", "expected"), SCHEDULES)
def test_annotations_schedule(
    annotation: str, given: Any, name: str, expected: Any, transformer: AmqpTransformer
) -> None:
    message = read(value("x", message_annotations={Symbol(annotation): given}), transformer)

    assert message.properties[name] == expected
    assert type(message.properties[name]) is type(expected)
    assert f"JMS_AMQP_MA_{annotation}" in message.properties


@pytest.mark.parametrize(
    ("annotation", "given"),
    [
        ("x-opt-delivery-delay", Long(0)),
        ("x-opt-delivery-delay", Long(-5)),
        ("x-opt-delivery-delay", None),
        ("x-opt-delivery-time", Long(NOW)),
        ("x-opt-delivery-period", Long(0)),
        ("x-opt-delivery-repeat", 0),
    ],
)
def test_annotation_of_no_time_does_not_schedule(annotation: str, given: Any) -> None:
    message = read(value("x", message_annotations={Symbol(annotation): given}))

    assert not any(name.startswith("AMQ_SCHEDULED") for name in message.properties)


# ---------------------------------------------------------------- native, raw, fallbacks


def test_native_keeps_the_payload_and_populates() -> None:
    message = read(TEXT, AmqpTransformer.NATIVE)

    assert (message.type, message.content) == (MessageType.BYTES, TEXT)
    assert (message.persistent, message.priority, message.timestamp) == (True, 7, NOW)
    assert (message.jms_type, message.reply_to, message.correlation_id) == ("S", topic("r"), "c")
    assert message.properties == {
        "JMS_AMQP_NATIVE": True,
        "JMS_AMQP_HEADER": True,
        "JMS_AMQP_PROPERTIES": True,
        "i": 5,
        "s": "v",
    }


def test_recorded_text_is_a_text_message() -> None:
    message = read(TEXT)

    assert (message.type, message.text()) == (MessageType.TEXT, "hé")
    assert (message.persistent, message.priority, message.timestamp) == (True, 7, 0)
    assert (message.jms_type, message.reply_to, message.correlation_id) == ("S", topic("r"), "c")
    assert message.message_id is not None
    assert message.message_id.jms_message_id == "ID:id1"
    assert message.properties == {
        "JMS_AMQP_HEADER": True,
        "JMS_AMQP_PROPERTIES": True,
        "JMS_AMQP_ORIGINAL_ENCODING": 5,
        "i": 5,
        "s": "v",
    }


def test_recorded_data_is_a_bytes_message() -> None:
    message = read(DATA)

    assert (message.type, message.content, message.persistent) == (MessageType.BYTES, b"\1\2", False)
    assert message.properties == {"JMS_AMQP_HEADER": True, "JMS_AMQP_ORIGINAL_ENCODING": 2}


def test_native_message_with_an_undecided_header_is_persistent() -> None:
    assert read(DATA, AmqpTransformer.NATIVE).persistent is True
    assert read(value("x"), AmqpTransformer.NATIVE).persistent is False
    assert read(value("x", header=AmqpMessageHeader(durable=False)), AmqpTransformer.NATIVE).persistent is False


NOT_MAPPABLE = [
    pytest.param({"application_properties": {"p": Timestamp(1)}}, id="timestamp"),
    pytest.param({"application_properties": {"p": uuid.UUID(int=1)}}, id="uuid"),
    pytest.param({"application_properties": {"p": AmqpArray([1], b"\x71")}}, id="array"),
    pytest.param({"application_properties": {"p": [Timestamp(1)]}}, id="timestamp in a list"),
    pytest.param({"application_properties": {"": 1}}, id="empty name"),
    pytest.param({"application_properties": {"p" * 70_000: 1}}, id="name too long"),
    pytest.param({"application_properties": {"JMSPriority": "high"}}, id="priority that is no number"),
    pytest.param({"application_properties": {"JMSPriority": "9" * 5000}}, id="priority of many digits"),
    pytest.param({"application_properties": {"JMSXGroupSeq": Long(2**40)}}, id="group sequence out of range"),
    pytest.param({"application_properties": {"JMSTimestamp": True}}, id="boolean time"),
    pytest.param({"application_properties": {"JMSReplyTo": ""}}, id="empty reply-to property"),
    pytest.param({"application_properties": {"JMSType": [1]}}, id="list as type"),
    pytest.param({"message_annotations": {Symbol("x-opt-t"): Timestamp(1)}}, id="timestamp annotation"),
    pytest.param({"message_annotations": {Symbol("x-opt-delivery-delay"): "soon"}}, id="delay that is no number"),
    pytest.param({"message_annotations": {Symbol("x-opt-delivery-delay"): float("nan")}}, id="delay not a number"),
    pytest.param({"message_annotations": {Symbol("x-opt-delivery-delay"): True}}, id="boolean delay"),
    pytest.param({"message_annotations": {Symbol("x-opt-delivery-cron"): 5}}, id="cron entry that is no text"),
    pytest.param({"footer": {Symbol("f"): uuid.UUID(int=1)}}, id="uuid in the footer"),
    pytest.param({"properties": AmqpMessageProperties(reply_to="")}, id="empty reply-to"),
    pytest.param({"properties": AmqpMessageProperties(subject="s" * 70_000)}, id="subject too long"),
    pytest.param({"properties": AmqpMessageProperties(message_id="i" * 70_000)}, id="message id too long"),
    pytest.param({"properties": AmqpMessageProperties(user_id=b"u" * 70_000)}, id="user too long"),
]


@pytest.mark.parametrize("transformer", AmqpTransformer)
@pytest.mark.parametrize("sections", NOT_MAPPABLE)
def test_one_bad_value_makes_the_message_raw(sections: dict[str, Any], transformer: AmqpTransformer) -> None:
    payload = value("x", **sections)

    message = read(payload, transformer)

    assert (message.type, message.content) == (MessageType.BYTES, payload)
    assert message.properties == {"JMS_AMQP_NATIVE": True}
    assert (message.persistent, message.priority, message.timestamp) == (True, 4, NOW)
    assert message.user_id is None
    assert message.message_id is not None
    assert message.message_id.text_view is None


@pytest.mark.parametrize("payload", [b"", b"\0", b"garbage", TEXT[:-1], TEXT + b"\0"])
@pytest.mark.parametrize("transformer", AmqpTransformer)
def test_payload_that_does_not_decode_is_raw(payload: bytes, transformer: AmqpTransformer) -> None:
    if not payload and transformer is not AmqpTransformer.RAW:
        return  # a message without sections decodes
    message = read(payload, transformer)

    assert (message.type, message.content) == (MessageType.BYTES, payload)
    assert message.properties == {"JMS_AMQP_NATIVE": True}


NO_UTF8 = encoded(application_properties={"color": "red"}) + bytes.fromhex("005377a101ff")
TOO_MANY = value([0] * 100_001, application_properties={"color": "red"})


@pytest.mark.parametrize("payload", [NO_UTF8, TOO_MANY], ids=["string that is no UTF-8", "too many values"])
@pytest.mark.parametrize("transformer", [AmqpTransformer.JMS, AmqpTransformer.NATIVE])
def test_body_that_does_not_decode_is_kept_native(payload: bytes, transformer: AmqpTransformer) -> None:
    message = read(payload, transformer)

    assert message.content == payload
    assert message.properties == {"JMS_AMQP_NATIVE": True, "color": "red"}


@pytest.mark.parametrize("transformer", AmqpTransformer)
def test_message_format_is_kept(transformer: AmqpTransformer) -> None:
    found = read(TEXT, transformer, message_format=2**32 - 1).properties["JMS_AMQP_MESSAGE_FORMAT"]

    assert type(found) is Long
    assert found == 2**32 - 1


# ---------------------------------------------------------------- destinations, ids, transactions


def test_messages_are_numbered_from_one() -> None:
    transfers = reader()

    first, second = transfers.read(DATA, 0, Q), transfers.read(value(5), 0, topic("t"))

    assert (first.message_id, second.message_id) == ("ID:c:-1:3:1", "ID:c:-1:3:2")
    assert (second.destination, second.connection_id) == (topic("t"), "ID:c")
    assert [view(each).broker_in_time for each in (first, second)] == [NOW, NOW]
    assert [brokers_number(each) for each in (first, second)] == [100, 101]


def brokers_number(message: Message) -> int:
    found = view(message).message_id
    assert found is not None
    return found.broker_sequence_id


@pytest.mark.parametrize("transformer", AmqpTransformer)
def test_a_relay_sends_to_where_the_message_says(transformer: AmqpTransformer) -> None:
    payload = value("x", properties=AmqpMessageProperties(to="topic://news"))

    assert reader(transformer).read(payload, 0, None).destination == topic("news")


def test_a_relay_sends_a_message_that_is_not_mappable() -> None:
    payload = value("x", properties=AmqpMessageProperties(to="jobs"), application_properties={"t": Timestamp(1)})

    assert reader().read(payload, 0, None).destination == queue("jobs")


@pytest.mark.parametrize("payload", [DATA, b"garbage", value("x", properties=AmqpMessageProperties(to=""))])
@pytest.mark.parametrize("transformer", AmqpTransformer)
def test_a_relay_refuses_a_message_without_destination(payload: bytes, transformer: AmqpTransformer) -> None:
    with pytest.raises(AmqpError) as refused:
        reader(transformer).read(payload, 0, None)

    assert refused.value.condition == "amqp:precondition-failed"


@pytest.mark.parametrize("transformer", AmqpTransformer)
def test_a_relay_refuses_a_name_that_is_too_long(transformer: AmqpTransformer) -> None:
    with pytest.raises(UnencodableOpenWire):
        reader(transformer).read(value("x", properties=AmqpMessageProperties(to="q" * 70_000)), 0, None)


def test_a_relay_keeps_few_templates() -> None:
    transfers = reader()
    sent = [
        transfers.read(value("x", properties=AmqpMessageProperties(to=f"q{number}")), 0, None) for number in range(99)
    ] + [transfers.read(DATA, 0, queue(f"other{number}")) for number in range(9)]

    assert len({message.destination for message in sent}) == 108


@pytest.mark.parametrize("payload", [DATA, value(5), b"garbage"])
def test_transaction_is_that_of_the_transfer(payload: bytes) -> None:
    transaction = LocalTransactionId("ID:c", 7)

    message = reader().read(payload, 0, Q, transaction)

    assert view(message).transaction_id == transaction


ADDRESSES = [
    ("queue://a", (), queue("a")),
    ("topic://a", ("queue",), topic("a")),
    ("a", (), queue("a")),
    ("a", ("topic",), topic("a")),
    ("a", ("x", "topic", "queue"), topic("a")),
    ("a", ("queue",), queue("a")),
    ("temp-topic://ID:1", (), Destination(DestinationType.TEMP_TOPIC, "ID:1")),
    ("ID:1", ("temporary-queue",), Destination(DestinationType.TEMP_QUEUE, "ID:1")),
    ("a,topic://b", (), queue("a,topic://b")),
    ("queue://a/b.c?consumer.exclusive=true", (), queue("a/b.c")),
    ("topic://a.>", (), topic("a.>")),
]


@pytest.mark.parametrize(("text", "capabilities", "expected"), ADDRESSES)
def test_addresses_name_destinations(text: str, capabilities: tuple[str, ...], expected: Destination) -> None:
    assert parse_address(text, capabilities) == expected


def test_long_payload_is_large_work() -> None:
    """A session looks at the clock behind it: thousands of properties take as long as hundreds of small messages."""
    few, many = {"a": 1}, {f"p{number}": number for number in range(1000)}
    for properties, is_large in ((few, False), (many, True)):
        EFFORT.is_large = False
        read(value("x", application_properties=properties))
        assert EFFORT.is_large is is_large
    EFFORT.is_large = False
