"""AMQP: any message is kept and comes back, any payload is kept, any message of JMS is sent or refused."""

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.sections import (
    AmqpBodyKind,
    AmqpMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
    bare_parts,
    decode_message,
    encode_message,
)
from pybroker.broker.domain.amqp.values import UnsignedLong
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, to_message, view
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short
from pybroker.transports.amqp import names
from pybroker.transports.amqp.inbound import AmqpTransformer, TransferReader
from pybroker.transports.amqp.outbound import TransferWriter
from tests import amqp_values
from tests.amqp_values import same

Q = queue("q")
NOW = 1_700_000_000_000
OWN_NAMES = [value for value in vars(names).values() if isinstance(value, str) and value.startswith(("JMS", "AMQ_"))]
FIELDS = ["JMSType", "JMSPriority", "JMSReplyTo", "JMSXGroupSeq", "JMSDeliveryMode", "JMSExpiration"]
ANNOTATIONS = [value for value in vars(names).values() if isinstance(value, str) and value.startswith("x-opt-")]

decoded = amqp_values.values().map(lambda pair: pair[0])
property_names = amqp_values.texts | st.sampled_from(OWN_NAMES + FIELDS)
annotation_names = amqp_values.symbols | st.sampled_from(ANNOTATIONS).map(amqp_values.Symbol)
ids = st.one_of(st.integers(0, 2**64 - 1).map(UnsignedLong), st.uuids(), st.binary(max_size=20), amqp_values.texts)
uints = st.integers(0, 2**32 - 1)
times = st.integers(-(2**63), 2**63 - 1)
headers = st.builds(
    AmqpMessageHeader,
    durable=st.none() | st.booleans(),
    priority=st.none() | st.integers(0, 255),
    ttl=st.none() | uints,
    first_acquirer=st.none() | st.booleans(),
    delivery_count=st.none() | uints,
)
properties = st.builds(
    AmqpMessageProperties,
    message_id=st.none() | ids,
    user_id=st.none() | st.binary(max_size=20),
    subject=st.none() | amqp_values.texts,
    reply_to=st.none() | amqp_values.texts,
    correlation_id=st.none() | ids,
    content_type=st.none() | amqp_values.symbols | st.sampled_from(["text/plain", str(names.JAVA_OBJECT)]).map(
        amqp_values.Symbol
    ),
    absolute_expiry_time=st.none() | times,
    creation_time=st.none() | times,
    group_id=st.none() | amqp_values.texts,
    group_sequence=st.none() | uints,
)  # fmt: skip
BODIES: dict[AmqpBodyKind, st.SearchStrategy[Any]] = {
    AmqpBodyKind.NONE: st.none(),
    AmqpBodyKind.DATA: st.lists(st.binary(max_size=300), min_size=1, max_size=1),
    AmqpBodyKind.SEQUENCE: st.lists(st.lists(decoded, max_size=3), min_size=1, max_size=1),
    AmqpBodyKind.VALUE: decoded,
}


@st.composite
def _maps(draw: st.DrawFn, keys: st.SearchStrategy[str]) -> Any:
    return draw(st.none() | st.dictionaries(keys, decoded, max_size=3))


@st.composite
def messages(draw: st.DrawFn) -> AmqpMessage:
    kind = draw(st.sampled_from(AmqpBodyKind))
    return AmqpMessage(
        header=draw(st.none() | headers),
        message_annotations=draw(_maps(annotation_names)),
        properties=draw(st.none() | properties),
        application_properties=draw(_maps(property_names)),
        body_kind=kind,
        body=draw(BODIES[kind]),
        footer=draw(_maps(amqp_values.symbols)),
    )


def reader(transformer: AmqpTransformer) -> TransferReader:
    return TransferReader("ID:c", lambda: NOW, lambda: 1, transformer, producer_value=1)


def writer() -> TransferWriter:
    return TransferWriter(lambda: NOW, body_bytes_max=1 << 20)


@given(messages(), st.sampled_from(AmqpTransformer), st.integers(0, 3))
def test_any_message_is_kept_and_comes_back(sent: AmqpMessage, transformer: AmqpTransformer, count: int) -> None:
    payload = encode_message(sent)

    message = reader(transformer).read(payload, 0, Q)
    rendered = writer().render(message, count).payload

    fields = decode(message.data)
    # As texts: NaN equals nothing, and the one in the view has come another way.
    assert repr(fields.properties) == repr(dict(view(message).properties))
    if fields.properties.get(names.NATIVE) is True and fields.content == payload and count == 0:
        assert rendered == payload
    made = decode_message(rendered)
    assert made.body_kind is sent.body_kind
    assert same(made.body, sent.body)


@given(st.binary(max_size=200), st.sampled_from(AmqpTransformer))
def test_any_payload_is_kept(payload: bytes, transformer: AmqpTransformer) -> None:
    message = reader(transformer).read(payload, 0, Q)

    assert decode(message.data) == view(message)
    decode_message(writer().render(message, 0).payload)


@given(messages(), st.sampled_from(AmqpTransformer), st.integers(min_value=0), st.integers(0, 255))
def test_mutated_payload_is_kept(sent: AmqpMessage, transformer: AmqpTransformer, place: int, byte: int) -> None:
    payload = bytearray(encode_message(sent)) or bytearray(1)
    payload[place % len(payload)] = byte

    message = reader(transformer).read(bytes(payload), 0, Q)

    assert decode(message.data) == view(message)
    bare_parts(writer().render(message, 0).payload)


openwire_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**31), 2**31 - 1), times.map(Long), st.integers(-128, 127).map(Byte),
        st.integers(-(2**15), 2**15 - 1).map(Short), st.floats(), st.floats(width=32).map(Float),
        st.characters(max_codepoint=0xFFFF).map(Char), st.text(max_size=10), st.binary(max_size=10),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(
    st.sampled_from(MessageType),
    st.none() | st.binary(max_size=100),
    st.dictionaries(property_names | st.text(max_size=10), openwire_values, max_size=4),
    st.none() | st.text(max_size=10),
    times,
    st.integers(0, 3),
)
def test_any_message_is_sent_or_refused(
    kind: MessageType, content: bytes | None, held: dict[str, Any], text: str | None, time: int, count: int
) -> None:
    producer = ProducerId("ID:c", 1, 1)
    fields = OpenWireMessage(
        type=kind, producer_id=producer, destination=Q, message_id=OpenWireMessageId(text, producer, 1),
        content=content, correlation_id=text, user_id=text, jms_type=text, group_id=text, timestamp=time,
        expiration=time, redelivery_counter=count,
    )  # fmt: skip
    fields.set_properties(held)
    message = to_message(fields)

    with suppress(AmqpError):
        decode_message(writer().render(message, count).payload)
