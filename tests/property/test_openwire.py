"""OpenWire objects, whatever is in them: what is encoded decodes to the same, and nothing else decodes by accident."""

import contextlib
import struct
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.commands import MessageAck
from pybroker.broker.domain.openwire.ids import ConsumerId, OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, Reader, decode_mutf8, encode_mutf8
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    decode,
    encode,
    routing,
    to_message,
)
from pybroker.broker.domain.openwire.objects import (
    decode_ack,
    decode_subscription_info,
    encode_ack,
    encode_subscription_info,
)
from pybroker.broker.domain.openwire.property_index import PropertyIndex
from pybroker.broker.domain.openwire.shapes import skip_structure
from pybroker.broker.domain.openwire.template import MessageTemplate
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
    with_entry,
)
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from tests.openwire_ids import read_id

GOLDEN = Path(__file__).parents[1] / "golden" / "openwire"


def golden_messages() -> list[bytes]:
    """Return every message among the golden frames, from its data type on."""
    stored = (GOLDEN / "frames.bin").read_bytes()
    frames: list[bytes] = []
    offset = 0
    while offset < len(stored):
        (size,) = struct.unpack_from(">i", stored, offset)
        frames.append(stored[offset + 4 : offset + 4 + size])
        offset += 4 + size
    return [frame for frame in frames if frame[0] in MessageType.__members__.values()]


def utf16(text: str) -> str:
    """Return the text with surrogates joined where they make a pair, as in any text from Java or a socket."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


bytes_ = st.integers(-(2**7), 2**7 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
java_text = st.text(st.characters(), max_size=20).map(utf16)
names = java_text | st.text("abcAB.", max_size=8)
maybe_text = st.none() | names
maybe_bytes = st.none() | st.binary(max_size=40)

destinations = st.builds(Destination, st.sampled_from(DestinationType), names)
producer_ids = st.builds(ProducerId, maybe_text, longs, longs)
consumer_ids = st.builds(ConsumerId, maybe_text, longs, longs)
message_ids = st.builds(OpenWireMessageId, maybe_text, st.none() | producer_ids, longs, longs)
transaction_ids = st.builds(LocalTransactionId, names, longs) | st.builds(
    XATransactionId, ints, st.binary(max_size=64), st.binary(max_size=64)
)
paths = st.none() | st.lists(names, max_size=4).map(tuple)
connection_structures = names.map(lambda text: b"\x78\x01" + len(encode_mutf8(text)).to_bytes(2) + encode_mutf8(text))

messages = st.builds(
    OpenWireMessage,
    type=st.sampled_from([kind for kind in MessageType if kind is not MessageType.BLOB]),
    command_id=ints,
    response_required=st.booleans(),
    producer_id=st.none() | producer_ids,
    destination=st.none() | destinations,
    transaction_id=st.none() | transaction_ids,
    original_destination=st.none() | destinations,
    message_id=st.none() | message_ids,
    original_transaction_id=st.none() | transaction_ids,
    group_id=maybe_text,
    group_sequence=ints,
    correlation_id=maybe_text,
    persistent=st.booleans(),
    expiration=longs,
    priority=bytes_,
    reply_to=st.none() | destinations,
    timestamp=longs,
    jms_type=maybe_text,
    content=maybe_bytes,
    marshalled_properties=maybe_bytes,
    data_structure=st.none() | connection_structures,
    target_consumer_id=st.none() | consumer_ids,
    compressed=st.booleans(),
    redelivery_counter=ints,
    broker_path=paths,
    arrival=longs,
    user_id=maybe_text,
    received_by_bridge=st.booleans(),
    droppable=st.booleans(),
    cluster=paths,
    broker_in_time=longs,
    broker_out_time=longs,
    group_first_for_consumer=st.booleans(),
)
blobs = st.builds(
    OpenWireMessage,
    type=st.just(MessageType.BLOB),
    destination=destinations,
    message_id=message_ids,
    remote_blob_url=maybe_text,
    mime_type=maybe_text,
    deleted_by_broker=st.booleans(),
)

frames = st.builds(StackFrame, maybe_text, maybe_text, maybe_text, ints)
throwables = st.recursive(
    st.none(),
    lambda causes: st.builds(
        Throwable,
        class_name=maybe_text,
        message=maybe_text,
        stack=st.lists(frames, max_size=3).map(tuple),
        cause=causes,
    ),
    max_leaves=4,
)
acks = st.builds(
    MessageAck,
    ack_type=bytes_,
    destination=st.none() | destinations,
    transaction_id=st.none() | transaction_ids,
    consumer_id=st.none() | consumer_ids,
    first_message_id=st.none() | message_ids,
    last_message_id=st.none() | message_ids,
    message_count=ints,
    poison_cause=throwables,
    command_id=ints,
    response_required=st.booleans(),
)
subscriptions = st.builds(
    DurableSubscription,
    client_id=names,
    name=names,
    destination=destinations,
    subscribed_destination=destinations,
    selector=maybe_text,
    no_local=st.booleans(),
    user=maybe_text,
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    ints,
    longs.map(Long),
    bytes_.map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.characters(max_codepoint=0xFFFF).map(Char),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32).map(Float),
    java_text,
    st.binary(max_size=20),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(java_text, inner, max_size=4), max_leaves=10
)


# ---------------------------------------------------------------- round trips


@given(messages | blobs)
def test_messages_decode_to_what_was_encoded(message: OpenWireMessage) -> None:
    encoded = encode(message)

    assert decode(encoded) == message
    reader = Reader(encoded)
    skip_structure(reader)
    assert reader.remaining == 0


@given(acks)
def test_acks_decode_to_what_was_encoded(ack: MessageAck) -> None:
    assert decode_ack(encode_ack(ack)) == ack


@given(subscriptions)
def test_subscriptions_decode_to_what_was_encoded(subscription: DurableSubscription) -> None:
    assert decode_subscription_info(encode_subscription_info(subscription)) == subscription


@given(java_text)
def test_texts_decode_to_what_was_encoded(text: str) -> None:
    encoded = encode_mutf8(text)

    assert decode_mutf8(encoded) == text
    assert b"\x00" not in encoded
    assert all(byte < 0xF0 for byte in encoded)


@given(java_text)
def test_texts_are_encoded_unit_by_unit(text: str) -> None:
    """Modified UTF-8 by its definition: each UTF-16 unit by itself, in one to three bytes."""
    utf16_units = struct.unpack(
        f">{len(text.encode('utf-16-be', 'surrogatepass')) // 2}H", text.encode("utf-16-be", "surrogatepass")
    )
    expected = b"".join(
        bytes((unit,))
        if 0 < unit < 0x80
        else bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        if unit < 0x800
        else bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
        for unit in utf16_units
    )

    assert encode_mutf8(text) == expected


def with_types(value: Any) -> Any:
    """Return a value with its types beside it, because in Python `Byte(1) == 1 == True`."""
    match value:
        case dict():
            return {name: with_types(element) for name, element in value.items()}
        case list():
            return [with_types(element) for element in value]
        case _:
            return type(value), value


@given(st.dictionaries(java_text, values, max_size=5))
def test_maps_decode_to_what_was_encoded(entries: dict[str, Any]) -> None:
    assert with_types(decode_map(encode_map(entries))) == with_types(entries)
    absent, *more = sorted(entries) or ["absent"]
    assert with_entry(encode_map({name: entries[name] for name in more}), absent, "x") == encode_map(
        {name: entries[name] for name in more} | {absent: "x"}
    )


@pytest.mark.parametrize("absent", [b"", INT.pack(-1), INT.pack(0)])
def test_one_entry_more_than_none(absent: bytes) -> None:
    assert decode_map(with_entry(absent, "a", 1)) == {"a": 1}


@given(st.dictionaries(java_text, values, max_size=5))
def test_each_value_of_a_map_is_found_by_its_name(entries: dict[str, Any]) -> None:
    data = encode_map(entries)
    index = PropertyIndex(data)
    for name, value in decode_map(data).items():
        assert with_types(index.get(name)) == with_types(value)
    assert index.get("a name that none has") is None


@given(st.lists(values, max_size=5))
def test_streams_decode_to_what_was_encoded(elements: list[Any]) -> None:
    assert with_types(decode_stream(encode_stream(elements))) == with_types(elements)


# ---------------------------------------------------------------- the shortcuts do the same


def comparable(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for field in fields(Message) if (name := field.name) != "decoded"}


@given(messages | blobs)
def test_routing_agrees_with_decoding(message: OpenWireMessage) -> None:
    if message.message_id is None or message.destination is None:
        with pytest.raises(MalformedOpenWire, match="without"):
            routing(encode(message))
    else:
        assert comparable(routing(encode(message))) == comparable(to_message(message))


@given(
    producer=producer_ids,
    destination=destinations,
    sequence=longs,
    properties=st.dictionaries(java_text, java_text, max_size=4),
    parts=st.fixed_dictionaries(
        {
            "type": st.sampled_from([kind for kind in MessageType if kind is not MessageType.BLOB]),
            "content": st.none() | st.binary(max_size=40),
            "persistent": st.booleans(),
            "timestamp": longs,
            "expiration": longs,
            "priority": st.integers(0, 9),
            "correlation_id": maybe_text,
            "reply_to": st.none() | destinations,
            "jms_type": maybe_text,
            "group_id": maybe_text,
            "group_sequence": ints,
            "transaction_id": st.none() | transaction_ids,
            "broker_in_time": longs,
            "user_id": maybe_text,
            "redelivery_counter": ints,
        }
    ),
    text_view=maybe_text,
)
def test_a_template_agrees_with_encoding(
    producer: ProducerId,
    destination: Destination,
    sequence: int,
    properties: dict[str, str],
    parts: dict[str, Any],
    text_view: str | None,
) -> None:
    whole = OpenWireMessage(
        producer_id=producer,
        message_id=OpenWireMessageId(text_view, producer, sequence),
        destination=destination,
        marshalled_properties=encode_map(properties) if properties else None,
        **parts,
    )

    built = MessageTemplate(producer, destination).build(
        sequence=sequence, properties=properties, text_view=text_view, **parts
    )

    assert comparable(built) == comparable(to_message(whole))


# ---------------------------------------------------------------- damage

READERS = [decode, routing, decode_ack, decode_subscription_info, decode_map, decode_stream, PropertyIndex]


@pytest.mark.parametrize("data", golden_messages(), ids=lambda data: f"type{data[0]}-{len(data)}")
def test_no_beginning_of_a_message_is_a_message(data: bytes) -> None:
    for length in range(min(len(data), 700)):
        with pytest.raises(MalformedOpenWire):
            decode(data[:length])
        with pytest.raises(MalformedOpenWire):
            routing(data[:length])


@given(messages, st.data())
def test_no_beginning_of_any_message_is_a_message(message: OpenWireMessage, data: st.DataObject) -> None:
    encoded = encode(message)
    length = data.draw(st.integers(0, len(encoded) - 1))

    with pytest.raises(MalformedOpenWire):
        decode(encoded[:length])


@pytest.mark.parametrize("read", READERS)
@given(st.binary(max_size=400))
def test_random_bytes_raise_only_what_is_documented(read: Any, data: bytes) -> None:
    with contextlib.suppress(MalformedOpenWire):
        read(data)
    for data_type in (22, 23, 55):
        with contextlib.suppress(MalformedOpenWire):
            read(bytes((data_type,)) + data)


@given(st.sampled_from(golden_messages()), st.integers(0, 10_000), st.integers(1, 255), st.integers(0, 10_000))
def test_flipped_bytes_raise_only_what_is_documented(data: bytes, at: int, flip: int, cut: int) -> None:
    damaged = bytearray(data)
    damaged[at % len(data)] ^= flip
    for variant in (bytes(damaged), bytes(damaged[: cut % len(data)])):
        for read in (decode, routing):
            with contextlib.suppress(MalformedOpenWire):
                read(variant)
        with contextlib.suppress(MalformedOpenWire):
            skip_structure(Reader(variant))
        with contextlib.suppress(MalformedOpenWire):
            fields = decode(variant)
            _ = fields.properties, fields.body_bytes(), fields.text()


@given(st.sampled_from([100, 103, 110, 111, 112, 120, 122, 123, 124]), st.binary(max_size=100))
def test_random_ids_raise_only_what_is_documented(data_type: int, data: bytes) -> None:
    with contextlib.suppress(MalformedOpenWire):
        read_id(bytes((data_type,)) + data)


@given(messages)
def test_what_decodes_encodes_to_the_same_bytes(message: OpenWireMessage) -> None:
    encoded = encode(message)

    assert encode(decode(encoded)) == encoded
