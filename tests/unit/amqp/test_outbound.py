"""Messages become transfers as in ActiveMQ's tables, and what an AMQP client has sent comes back as it was."""

import uuid
import zlib
from typing import Any, cast

import pytest

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.sections import (
    AmqpBodyKind,
    AmqpMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
    decode_message,
    encode_message,
)
from pybroker.broker.domain.amqp.values import Symbol, Timestamp, UnsignedInt, UnsignedLong
from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.commands import ConnectionId, ConnectionInfo, ConsumerId, RemoveInfo
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.marshal.transcode import STORE
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message, view
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short, Value, encode_map, encode_stream
from pybroker.transports.amqp.inbound import AmqpTransformer, TransferReader
from pybroker.transports.amqp.outbound import TransferWriter

NOW = 1_700_000_000_000
Q = queue("q")
PRODUCER = ProducerId("ID:c", 1, 2)
LIMIT = 1 << 20
JAVA = "application/x-java-serialized-object"


def stored(kind: MessageType, content: bytes | None = None, **changes: Any) -> Message:
    fields: dict[str, Any] = {"message_id": OpenWireMessageId(None, PRODUCER, 7), "destination": Q} | changes
    properties: dict[str, Value] = fields.pop("properties", {})
    message = OpenWireMessage(type=kind, producer_id=PRODUCER, content=content, **fields)
    if properties:
        message.set_properties(properties)
    made = to_message(message)
    made.decoded = None
    return made


def render(message: Message, redelivery_count: int = 0) -> AmqpMessage:
    return decode_message(writer().render(message, redelivery_count).payload)


def writer() -> TransferWriter:
    return TransferWriter(lambda: NOW, body_bytes_max=LIMIT)


def reader(transformer: AmqpTransformer) -> TransferReader:
    return TransferReader("ID:c", lambda: NOW, lambda: 0, transformer, producer_value=3)


def text(changes: Any = None, **more: Any) -> Message:
    return stored(MessageType.TEXT, encode_text("x"), **(changes or {}), **more)


# ---------------------------------------------------------------- bodies

ORIGINAL = "JMS_AMQP_ORIGINAL_ENCODING"
MAP: dict[str, Value] = {
    "b": True, "y": Byte(1), "h": Short(2), "i": 3, "l": Long(4), "d": 0.5, "f": Float(0.25), "c": Char("c"),
    "s": "text", "n": None, "raw": b"\0\1", "m": {"k": [1, "v"]},
}  # fmt: skip
STREAM: list[Value] = [True, Byte(1), Short(2), 3, Long(4), 0.5, Float(0.25), Char("c"), "text", None, b"\0\1"]

EMPTY: list[list[object]] = [[]]
NONE, DATA, SEQUENCE, VALUE = AmqpBodyKind
BODIES = [
    pytest.param(MessageType.TEXT, encode_text("hé\0😀"), None, VALUE, "hé\0😀", id="text"),
    pytest.param(MessageType.TEXT, None, None, VALUE, None, id="null text"),
    pytest.param(MessageType.TEXT, None, 4, VALUE, None, id="null text that was null"),
    pytest.param(MessageType.TEXT, encode_text("x"), 5, VALUE, "x", id="text that was a string"),
    pytest.param(MessageType.TEXT, encode_text("hé"), 2, DATA, ["hé".encode()], id="text that was data"),
    pytest.param(MessageType.TEXT, None, 2, DATA, [b""], id="null text that was data"),
    pytest.param(MessageType.TEXT, None, 1, NONE, None, id="text without body"),
    pytest.param(MessageType.TEXT, b"\0\0\0\1\xff", None, DATA, [b"\xff"], id="text that is no UTF-8"),
    pytest.param(MessageType.BYTES, b"\1\2", None, DATA, [b"\1\2"], id="bytes"),
    pytest.param(MessageType.BYTES, b"\1\2", 2, DATA, [b"\1\2"], id="bytes that were data"),
    pytest.param(MessageType.BYTES, b"\1\2", 6, VALUE, b"\1\2", id="bytes that were a value"),
    pytest.param(MessageType.BYTES, None, None, DATA, [b""], id="empty bytes"),
    pytest.param(MessageType.BYTES, None, 1, NONE, None, id="bytes without body"),
    pytest.param(MessageType.MAP, encode_map(MAP), None, VALUE, MAP, id="map"),
    pytest.param(MessageType.MAP, None, 7, VALUE, {}, id="empty map"),
    pytest.param(MessageType.STREAM, encode_stream(STREAM), None, VALUE, STREAM, id="stream"),
    pytest.param(MessageType.STREAM, encode_stream(STREAM), 8, VALUE, STREAM, id="stream that was a list"),
    pytest.param(MessageType.STREAM, encode_stream(STREAM), 3, SEQUENCE, [STREAM], id="stream that was a sequence"),
    pytest.param(MessageType.STREAM, None, 3, SEQUENCE, EMPTY, id="empty stream that was a sequence"),
    pytest.param(MessageType.OBJECT, b"\xac\xed", None, DATA, [b"\xac\xed"], id="object"),
    pytest.param(MessageType.OBJECT, b"\xac\xed", 6, VALUE, b"\xac\xed", id="object that was a value"),
    pytest.param(MessageType.OBJECT, None, None, DATA, [b""], id="empty object"),
    pytest.param(MessageType.OBJECT, None, 1, NONE, None, id="object without body"),
    pytest.param(MessageType.MESSAGE, None, None, NONE, None, id="plain message"),
    pytest.param(MessageType.BLOB, None, None, NONE, None, id="blob message"),
]


@pytest.mark.parametrize(("kind", "content", "encoding", "body_kind", "body"), BODIES)
def test_body_has_the_section_of_its_type(
    kind: MessageType, content: bytes | None, encoding: int | None, body_kind: AmqpBodyKind, body: Any
) -> None:
    properties = {} if encoding is None else {ORIGINAL: Short(encoding)}

    made = render(stored(kind, content, properties=properties))

    assert (made.body_kind, made.body) == (body_kind, body)
    assert types(made.body) == types(body)
    assert made.application_properties is None


def types(body: object) -> object:
    if isinstance(body, dict):
        entries = cast("dict[object, object]", body)
        return {name: types(value) for name, value in entries.items()}
    if isinstance(body, list):
        return [types(value) for value in cast("list[object]", body)]
    return type(body)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_body_of_any_size_is_encoded_as_by_the_codec(size: int) -> None:
    sent = "x" * size

    value = writer().render(stored(MessageType.TEXT, encode_text(sent)), 0).payload
    binary = writer().render(stored(MessageType.BYTES, sent.encode(), properties={ORIGINAL: Short(6)}), 0).payload
    data = writer().render(stored(MessageType.BYTES, sent.encode()), 0).payload

    assert value.endswith(encode_message(AmqpMessage(body_kind=VALUE, body=sent)))
    assert binary.endswith(encode_message(AmqpMessage(body_kind=VALUE, body=sent.encode())))
    assert data.endswith(encode_message(AmqpMessage(body_kind=DATA, body=[sent.encode()])))


@pytest.mark.parametrize(("properties", "expected"), [({}, JAVA), ({"JMS_AMQP_ContentType": "x/y"}, "x/y")])
def test_object_has_a_content_type(properties: dict[str, Value], expected: str) -> None:
    made = render(stored(MessageType.OBJECT, b"\xac\xed", properties=properties))

    assert made.properties is not None
    assert made.properties.content_type == expected


@pytest.mark.parametrize(
    ("kind", "content", "body"),
    [
        (MessageType.TEXT, zlib.compress(encode_text("hello")), "hello"),
        (MessageType.BYTES, b"\0\0\0\5" + zlib.compress(b"hello"), [b"hello"]),
        (MessageType.MAP, zlib.compress(encode_map({"a": 1})), {"a": 1}),
    ],
)
def test_compressed_body_is_inflated(kind: MessageType, content: bytes, body: object) -> None:
    assert render(stored(kind, content, compressed=True)).body == body


# ---------------------------------------------------------------- sections


def test_fields_are_sections() -> None:
    message = text(
        persistent=True,
        priority=8,
        expiration=NOW + 5000,
        timestamp=NOW - 1,
        user_id="müller",
        jms_type="kind",
        reply_to=topic("answers"),
        correlation_id="c-1",
        group_id="g",
        group_sequence=3,
    )

    made = render(message, 2)

    assert made.header == AmqpMessageHeader(durable=True, priority=8, ttl=5000, delivery_count=2)
    assert made.properties == AmqpMessageProperties(
        message_id="ID:c:1:2:7",
        user_id="müller".encode(),
        to="queue://q",
        subject="kind",
        reply_to="topic://answers",
        correlation_id="c-1",
        absolute_expiry_time=NOW + 5000,
        creation_time=NOW - 1,
        group_id="g",
        group_sequence=3,
    )
    assert made.message_annotations == {"x-opt-jms-dest": Byte(0), "x-opt-jms-reply-to": Byte(1)}
    assert (made.delivery_annotations, made.application_properties, made.footer) == (None, None, None)


def test_a_plain_message_has_no_header_and_no_times() -> None:
    made = render(text())

    assert made.header is None
    assert made.properties == AmqpMessageProperties(message_id="ID:c:1:2:7", to="queue://q")
    assert made.message_annotations == {"x-opt-jms-dest": Byte(0)}


@pytest.mark.parametrize(("expiration", "ttl"), [(NOW - 5, 1), (NOW, 1), (NOW + 7, 7), (NOW + 2**40, 2**32 - 1)])
def test_ttl_is_the_rest(expiration: int, ttl: int) -> None:
    assert render(text(expiration=expiration)).header == AmqpMessageHeader(ttl=ttl)


@pytest.mark.parametrize("kind", DestinationType)
def test_destination_is_qualified_and_its_kind_annotated(kind: DestinationType) -> None:
    destination = Destination(kind, "n")

    made = render(text(destination=destination, reply_to=destination))

    assert made.properties is not None
    assert (made.properties.to, made.properties.reply_to) == (str(destination), str(destination))
    assert made.message_annotations == {"x-opt-jms-dest": Byte(kind), "x-opt-jms-reply-to": Byte(kind)}
    assert types(made.message_annotations) == dict.fromkeys(made.message_annotations or {}, Byte)


IDS = [
    ("plain", "plain"),
    ("ID:x", "ID:x"),
    ("AMQP_UUID:00000000-0000-0000-0000-0000000000ff", uuid.UUID(int=255)),
    ("AMQP_ULONG:18446744073709551615", UnsignedLong(2**64 - 1)),
    ("AMQP_BINARY:01aB", b"\x01\xab"),
    ("AMQP_BINARY:", b""),
    ("AMQP_STRING:AMQP_UUID:x", "AMQP_UUID:x"),
    ("AMQP_UUID:x", "AMQP_UUID:x"),
    ("AMQP_UUID:{00000000-0000-0000-0000-0000000000ff", "AMQP_UUID:{00000000-0000-0000-0000-0000000000ff"),
    ("AMQP_UUID:zzzzzzzz-0000-0000-0000-0000000000ff", "AMQP_UUID:zzzzzzzz-0000-0000-0000-0000000000ff"),
    ("AMQP_ULONG:18446744073709551616", "AMQP_ULONG:18446744073709551616"),
    ("AMQP_ULONG:-1", "AMQP_ULONG:-1"),
    ("AMQP_ULONG:" + "1" * 5000, "AMQP_ULONG:" + "1" * 5000),
    ("AMQP_BINARY:0", "AMQP_BINARY:0"),
    ("AMQP_BINARY:é0", "AMQP_BINARY:é0"),
    ("AMQP_OTHER:1", "AMQP_OTHER:1"),
]


@pytest.mark.parametrize(("held", "expected"), IDS)
def test_ids_get_their_types_back(held: str, expected: Any) -> None:
    made = render(text(message_id=OpenWireMessageId(held, PRODUCER, 7), correlation_id=held))

    assert made.properties is not None
    assert made.properties.message_id == made.properties.correlation_id == expected
    assert type(made.properties.message_id) is type(made.properties.correlation_id) is type(expected)


def test_reply_that_names_the_id_jms_shows_is_correlated() -> None:
    identity = uuid.UUID(int=9)
    request = reader(AmqpTransformer.JMS).read(
        encode_message(AmqpMessage(properties=AmqpMessageProperties(message_id=identity))), 0, Q
    )
    shown = view(request).message_id
    assert shown is not None

    made = render(text(correlation_id=shown.jms_message_id))

    assert made.properties is not None
    assert made.properties.correlation_id == identity


def test_properties_keep_their_types() -> None:
    properties: dict[str, Value] = {
        "b": True, "y": Byte(1), "h": Short(2), "i": 3, "l": Long(4), "d": 0.5, "f": Float(0.25), "s": "text",
        "n": None, "c": Char("c"), "m": {"k": [1]}, "JMSXFoo": "x",
    }  # fmt: skip

    made = render(text(properties=properties))

    assert made.application_properties == properties
    assert types(made.application_properties) == types(properties)


def test_properties_that_keep_sections_go_back_there() -> None:
    made = render(
        text(
            properties={
                "JMS_AMQP_HEADER": True,
                "JMS_AMQP_PROPERTIES": True,
                "JMS_AMQP_NATIVE": False,
                "JMS_AMQP_ORIGINAL_ENCODING": Short(5),
                "JMS_AMQP_FirstAcquirer": "TRUE",
                "JMS_AMQP_ContentType": "tëxt/plain",
                "JMS_AMQP_ContentEncoding": "gzip",
                "JMS_AMQP_ReplyToGroupID": 5,
                "JMS_AMQP_DA_x-opt-d": 1,
                "JMS_AMQP_MA_x-opt-m": "m",
                "JMS_AMQP_MA_x-opt-jms-dest": Byte(3),
                "JMS_AMQP_FT_sum": "s",
                "JMS_AMQP_Other": "o",
                "AMQ_SCHEDULED_DELAY": Long(5),
            }
        )
    )

    assert made.header == AmqpMessageHeader(first_acquirer=True)
    assert made.delivery_annotations == {"x-opt-d": 1}
    assert made.message_annotations == {"x-opt-m": "m", "x-opt-jms-dest": Byte(0)}
    assert {type(key) for key in made.message_annotations or {}} == {Symbol}
    assert made.properties is not None
    assert (made.properties.content_type, made.properties.content_encoding) == ("t?xt/plain", "gzip")
    assert made.properties.reply_to_group_id == "5"
    assert made.application_properties == {"JMS_AMQP_Other": "o"}
    assert made.footer == {"sum": "s"}


def test_first_acquirer_that_is_no_boolean_is_left_out() -> None:
    assert render(text(properties={"JMS_AMQP_FirstAcquirer": 5})).header is None


@pytest.mark.parametrize(("held", "expected"), [(Long(7), 7), ("7", 0), (Long(-1), 0), (Long(2**32), 0)])
def test_message_format_is_that_of_the_property(held: Value, expected: int) -> None:
    made = writer().render(text(properties={"JMS_AMQP_MESSAGE_FORMAT": held}), 0)

    assert made.message_format == expected
    assert decode_message(made.payload).application_properties is None


def test_counts_of_sender_and_broker_are_added() -> None:
    assert render(text(redelivery_counter=3), 2).header == AmqpMessageHeader(delivery_count=5)
    assert render(text(redelivery_counter=3)).header == AmqpMessageHeader(delivery_count=3)


def test_count_of_a_message_that_the_broker_sent_again_is_not_added() -> None:
    message = text(redelivery_counter=3, properties={"redeliveryDelay": Long(5)})

    assert render(message, 4).header == AmqpMessageHeader(delivery_count=4)


def test_surrogates_without_partner_become_question_marks() -> None:
    made = render(text(properties={"p": "\ud800"}, jms_type="\ud800", correlation_id="\ud800"))

    assert made.properties is not None
    assert (made.properties.subject, made.properties.correlation_id) == ("?", "?")
    assert made.application_properties == {"p": "?"}


# ---------------------------------------------------------------- advisories


def test_connection_advisory_is_a_map() -> None:
    command = ConnectionInfo(
        connection_id=ConnectionId("ID:x"), client_id="me", client_ip="tcp://1.2.3.4:5", user_name="u", password="p",
        manageable=True, fault_tolerant=True,
    )  # fmt: skip

    made = render(stored(MessageType.MESSAGE, data_structure=STORE.encode(command)))

    assert made.body == {
        "ConnectionId": "ID:x", "ClientId": "me", "ClientIp": "tcp://1.2.3.4:5", "UserName": "u",
        "BrokerMasterConnector": False, "Manageable": True, "ClientMaster": True, "FaultTolerant": True,
        "FailoverReconnect": False,
    }  # fmt: skip
    assert made.application_properties == {"ActiveMqDataStructureType": "ConnectionInfo"}


@pytest.mark.parametrize(
    ("removed", "body"),
    [
        (ConnectionId("ID:x"), {"ConnectionId": "ID:x"}),
        (
            ConsumerId("ID:x", 4, 5),
            {"ConsumerId": Long(5), "SessionId": Long(4), "ConnectionId": "ID:x", "ParentId": Long(4)},
        ),
        (PRODUCER, {}),
    ],
)
def test_removal_advisory_is_a_map(removed: Any, body: dict[str, object]) -> None:
    made = render(stored(MessageType.MESSAGE, data_structure=STORE.encode(RemoveInfo(object_id=removed))))

    assert (made.body_kind, made.body) == (VALUE, body)
    assert made.application_properties == {"ActiveMqDataStructureType": "RemoveInfo"}


# ---------------------------------------------------------------- native

RECORDED = bytes.fromhex(
    "005370c00402415007005373c01906a1036964314040a10153a109746f7069633a2f2f72a10163005374d10000000f00000004"
    "a101695405a10173a10176005377a10368c3a9"
)
"""A durable text with properties, as qpid-proton 0.40 sent it to ActiveMQ 5.17.2."""

WIDE = bytes.fromhex("00800000000000000077b100000001") + b"x"
"""A string in a longer encoding than it needs, behind a descriptor in a longer one."""


@pytest.mark.parametrize("payload", [RECORDED, WIDE, b"", encode_message(AmqpMessage(body_kind=VALUE, body=5))])
@pytest.mark.parametrize("transformer", [AmqpTransformer.NATIVE, AmqpTransformer.RAW])
def test_native_message_is_sent_bit_by_bit(payload: bytes, transformer: AmqpTransformer) -> None:
    message = reader(transformer).read(payload, 9, Q)

    assert writer().render(message, 0) == (payload, 9)
    message.decoded = None
    assert writer().render(message, 0) == (payload, 9)


def test_native_message_of_activemq_is_sent_bit_by_bit() -> None:
    message = stored(MessageType.BYTES, RECORDED, properties={"JMS_AMQP_NATIVE": True, "i": 5, "s": "v"})

    assert writer().render(message, 0) == (RECORDED, 0)


def test_redelivered_native_message_has_another_header_alone() -> None:
    message = reader(AmqpTransformer.NATIVE).read(RECORDED, 0, Q)

    payload = writer().render(message, 2).payload

    assert decode_message(payload).header == AmqpMessageHeader(durable=True, priority=7, delivery_count=2)
    header_bytes = 3 + 2 + RECORDED[4]
    assert payload.endswith(RECORDED[header_bytes:])


def test_redelivered_native_message_adds_to_its_count() -> None:
    sent = encode_message(AmqpMessage(header=AmqpMessageHeader(delivery_count=3)))
    message = reader(AmqpTransformer.NATIVE).read(sent, 0, Q)

    assert writer().render(message, 0).payload == sent
    assert render(message, 2).header == AmqpMessageHeader(delivery_count=5)


def test_native_message_that_stomp_forwards_is_native() -> None:
    message = stored(MessageType.BYTES, RECORDED, properties={"JMS_AMQP_NATIVE": "true"})

    assert writer().render(message, 0).payload == RECORDED


def test_compressed_native_message_is_inflated() -> None:
    content = len(RECORDED).to_bytes(4) + zlib.compress(RECORDED)
    message = stored(MessageType.BYTES, content, compressed=True, properties={"JMS_AMQP_NATIVE": True})

    assert writer().render(message, 0).payload == RECORDED


@pytest.mark.parametrize("content", [b"\xff\xff", b"garbage", RECORDED[:-1]])
@pytest.mark.parametrize("redelivery_count", [0, 1])
def test_message_that_only_claims_to_be_native_is_made(content: bytes, redelivery_count: int) -> None:
    made = render(stored(MessageType.BYTES, content, properties={"JMS_AMQP_NATIVE": True}), redelivery_count)

    assert made.body == [content]
    assert made.application_properties is None


def test_text_that_claims_to_be_native_is_made() -> None:
    assert render(text(properties={"JMS_AMQP_NATIVE": True})).body == "x"


@pytest.mark.parametrize("held", [False, "no", 1])
def test_message_that_is_not_native_is_made(held: Value) -> None:
    message = stored(MessageType.BYTES, RECORDED, properties={"JMS_AMQP_NATIVE": held})

    assert render(message).body == [RECORDED]


# ---------------------------------------------------------------- consumers of topics


def test_topic_message_is_rendered_once() -> None:
    message = text(destination=topic("t"))

    first, second = writer().render(message, 0), writer().render(message, 0)

    assert first == second
    assert first.payload is second.payload


@pytest.mark.parametrize(
    "changes", [{"expiration": NOW + 9}, {"destination": Q}, {"properties": {"JMS_AMQP_MESSAGE_FORMAT": 3}}]
)
def test_what_differs_between_consumers_is_rendered_again(changes: dict[str, Any]) -> None:
    message = text({"destination": topic("t"), **changes})

    first, second = writer().render(message, 0), writer().render(message, 0)

    assert first == second
    assert first.payload is not second.payload


def test_redelivered_topic_message_has_its_count() -> None:
    message = text(destination=topic("t"))
    writer().render(message, 0)

    assert render(message, 1).header == AmqpMessageHeader(delivery_count=1)


def test_topic_message_that_stomp_has_rendered_is_rendered_again() -> None:
    message = text(destination=topic("t"))
    view(message).rendered = (object(), "head", b"body")

    assert render(message).body == "x"


# ---------------------------------------------------------------- errors

UNRENDERABLE = [
    pytest.param(stored(MessageType.MAP, b"garbage"), id="map that does not decode"),
    pytest.param(stored(MessageType.STREAM, b"\xff"), id="stream that does not decode"),
    pytest.param(stored(MessageType.TEXT, b"x", compressed=True), id="text that does not inflate"),
    pytest.param(stored(MessageType.MESSAGE, data_structure=b"\xff\xff"), id="advisory of an unknown command"),
    pytest.param(
        stored(MessageType.BYTES, b"\x7f\xff\xff\xff" + zlib.compress(bytes(9)), compressed=True), id="too long"
    ),
    pytest.param(stored(MessageType.BYTES, b"x", marshalled_properties=b"\xff"), id="properties"),
]


@pytest.mark.parametrize("message", UNRENDERABLE)
def test_message_that_cannot_be_sent_is_an_error(message: Message) -> None:
    with pytest.raises(AmqpError):
        writer().render(message, 0)


def test_message_whose_data_do_not_decode_is_an_error() -> None:
    message = text()
    message.data = message.data[:-1]

    with pytest.raises(AmqpError, match="ID:c:1:2:7 cannot be sent by AMQP"):
        writer().render(message, 0)


# ---------------------------------------------------------------- there and back

CAME_SO = [
    AmqpMessage(body_kind=VALUE, body="text"),
    AmqpMessage(body_kind=VALUE, body=None),
    AmqpMessage(body_kind=VALUE, body=b"bin"),
    AmqpMessage(body_kind=VALUE, body={"a": 1, "b": b"x", "c": {"d": True}}),
    AmqpMessage(body_kind=VALUE, body=[1, "x"]),
    AmqpMessage(body_kind=VALUE, body={}),
    AmqpMessage(body_kind=VALUE, body=[]),
    AmqpMessage(body_kind=SEQUENCE, body=[[1, 2]]),
    AmqpMessage(body_kind=DATA, body=[b"x"]),
    AmqpMessage(body_kind=DATA, body=[b"x"], properties=AmqpMessageProperties(content_type=Symbol("text/plain"))),
    AmqpMessage(body_kind=DATA, body=[b"x"], properties=AmqpMessageProperties(content_type=Symbol(JAVA))),
    AmqpMessage(body_kind=VALUE, body=b"x", properties=AmqpMessageProperties(content_type=Symbol(JAVA))),
    AmqpMessage(),
    AmqpMessage(properties=AmqpMessageProperties(content_type=Symbol("text/plain"))),
    AmqpMessage(properties=AmqpMessageProperties(content_type=Symbol("image/png"))),
    AmqpMessage(properties=AmqpMessageProperties(content_type=Symbol(JAVA))),
    AmqpMessage(body_kind=VALUE, body=UnsignedInt(5)),
    AmqpMessage(body_kind=VALUE, body={"t": Timestamp(5)}),
]


@pytest.mark.parametrize("transformer", AmqpTransformer)
@pytest.mark.parametrize("sent", CAME_SO)
def test_body_comes_back_as_it_was(sent: AmqpMessage, transformer: AmqpTransformer) -> None:
    message = reader(transformer).read(encode_message(sent), 0, Q)

    made = render(message)

    assert (made.body_kind, made.body) == (sent.body_kind, sent.body)
    assert types(made.body) == types(sent.body)


def test_sections_come_back_as_they_were() -> None:
    sent = AmqpMessage(
        header=AmqpMessageHeader(durable=True, priority=6, ttl=100, first_acquirer=False),
        message_annotations={Symbol("x-opt-a"): 1},
        properties=AmqpMessageProperties(
            message_id=uuid.UUID(int=5), user_id=b"u", to="queue://q", subject="s", reply_to="topic://r",
            correlation_id=UnsignedLong(7), content_type=Symbol("text/x"), content_encoding=Symbol("gzip"),
            absolute_expiry_time=NOW + 100, creation_time=NOW, group_id="g", group_sequence=4, reply_to_group_id="rg",
        ),
        application_properties={"p": "v"},
        body_kind=VALUE,
        body="text",
        footer={Symbol("f"): "o"},
    )  # fmt: skip

    made = render(reader(AmqpTransformer.JMS).read(encode_message(sent), 0, Q))

    assert sent.message_annotations is not None
    sent.message_annotations |= {Symbol("x-opt-jms-dest"): Byte(0), Symbol("x-opt-jms-reply-to"): Byte(1)}
    assert made == sent


def test_recorded_map_message_is_rendered_as_by_activemq() -> None:
    recorded = decode_message(
        bytes.fromhex(
            "005370c00903415009700000e998005372c12904a312782d6f70742d6a6d732d7265706c792d746f5101a30e782d6f70742d6a6d"
            "732d646573745100005373d00000005b0000000aa12449443a766d2d33333837372d313739353336343232373438352d363a313a"
            "313a34343a3140a10a71756575653a2f2f7632a10154a109746f7069633a2f2f725305404083000001a20419d24283000001a204"
            "18e7e2005374c10602a1016e5401005377c11306a10161a10178a10162a0020102a1016e5405"
        )
    )
    properties = recorded.properties
    assert properties is not None
    assert properties.absolute_expiry_time is not None
    assert properties.creation_time is not None
    assert recorded.header is not None
    assert recorded.header.ttl is not None
    message = stored(
        MessageType.MAP,
        encode_map({"a": "x", "b": b"\1\2", "n": 5}),
        message_id=OpenWireMessageId(None, ProducerId("ID:vm-33877-1795364227485-6:1", 1, 44), 1),
        destination=queue("v2"),
        persistent=True,
        priority=9,
        jms_type="T",
        reply_to=topic("r"),
        correlation_id="AMQP_ULONG:5",
        expiration=properties.absolute_expiry_time,
        timestamp=properties.creation_time,
        properties={"n": 1},
    )

    now = properties.absolute_expiry_time - recorded.header.ttl
    made = TransferWriter(lambda: now, body_bytes_max=LIMIT).render(message, 0)

    assert decode_message(made.payload) == recorded
