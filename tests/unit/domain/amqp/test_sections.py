"""The sections of AMQP messages: their order and forms, where they are, and the delivery count."""

import uuid
from typing import Any

import pytest

from pybroker.broker.domain.amqp.errors import MalformedAmqp, TooManyAmqpValues, UnencodableAmqp
from pybroker.broker.domain.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    FOOTER,
    HEADER,
    PROPERTIES,
    AmqpBodyKind,
    AmqpMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
    SectionPart,
    bare_parts,
    decode_message,
    encode_message,
    require_sections,
    with_delivery_count,
)
from pybroker.broker.domain.amqp.values import Byte, Symbol, UnsignedLong

WHOLE = AmqpMessage(
    header=AmqpMessageHeader(durable=True, priority=9, ttl=60_000, first_acquirer=False, delivery_count=2),
    delivery_annotations={Symbol("x-d"): 1},
    message_annotations={Symbol("x-opt-jms-dest"): Byte(0)},
    properties=AmqpMessageProperties(
        message_id=uuid.UUID(int=5),
        user_id=b"u",
        to="queue://q",
        subject="s",
        reply_to="topic://t",
        correlation_id=UnsignedLong(7),
        content_type=Symbol("text/plain"),
        content_encoding=Symbol("gzip"),
        absolute_expiry_time=2,
        creation_time=-1,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="r",
    ),
    application_properties={"a": "b", "n": 1},
    body_kind=AmqpBodyKind.DATA,
    body=[b"one", b"x" * 300],
    footer={Symbol("x-f"): None},
)
HEAD = b"\0\x53\x70\x45"
VALUE = b"\0\x53\x77\x40"


def test_whole_message_comes_back() -> None:
    payload = encode_message(WHOLE)
    assert decode_message(payload) == WHOLE
    found = decode_message(payload).properties
    assert found is not None
    assert [type(found.message_id), type(found.correlation_id)] == [uuid.UUID, UnsignedLong]


@pytest.mark.parametrize(
    ("kind", "body", "data"),
    [
        (AmqpBodyKind.NONE, None, b""),
        (AmqpBodyKind.DATA, [b"x"], b"\0\x53\x75\xa0\1x"),
        (AmqpBodyKind.DATA, [b""], b"\0\x53\x75\xa0\0"),
        (AmqpBodyKind.SEQUENCE, [[1], []], b"\0\x53\x76\xc0\3\1\x54\1\0\x53\x76\x45"),
        (AmqpBodyKind.VALUE, "x", b"\0\x53\x77\xa1\1x"),
        (AmqpBodyKind.VALUE, None, VALUE),
    ],
)
def test_bodies_of_all_kinds(kind: AmqpBodyKind, body: Any, data: bytes) -> None:
    message = AmqpMessage(body_kind=kind, body=body)
    assert encode_message(message) == data
    assert decode_message(data) == message
    assert decode_message(data, with_body=False) == AmqpMessage(body_kind=kind)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0\x80\0\0\0\0\0\0\0\x77\x41", AmqpMessage(body_kind=AmqpBodyKind.VALUE, body=True)),
        (b"\0\xa3\x11amqp:amqp-value:*\x41", AmqpMessage(body_kind=AmqpBodyKind.VALUE, body=True)),
        (b"\0\xa3\x10amqp:data:binary\xb0\0\0\0\1x", AmqpMessage(body_kind=AmqpBodyKind.DATA, body=[b"x"])),
        (b"\0\xa3\x10amqp:header:list\xc0\2\1\x41", AmqpMessage(header=AmqpMessageHeader(durable=True))),
        (b"\0\x53\x74\xd1\0\0\0\4\0\0\0\0", AmqpMessage(application_properties={})),
        (b"\0\x53\x76\xd0\0\0\0\5\0\0\0\1\x40", AmqpMessage(body_kind=AmqpBodyKind.SEQUENCE, body=[[None]])),
    ],
)
def test_other_forms_of_sections(data: bytes, expected: AmqpMessage) -> None:
    assert decode_message(data) == expected
    assert [part.stop for part in bare_parts(data)] == [len(data)]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x40", "no section"),
        (b"\0\x53", "no section"),
        (b"\0\x53\x6f\x45", "another described value"),
        (b"\0\x53\x79\x45", "another described value"),
        (b"\0\xa3\1x\x45", "another described value"),
        (b"\0\x41\x45", "another described value"),
        (HEAD + HEAD, "cannot follow"),
        (b"\0\x53\x74\xc1\1\0" + HEAD, "cannot follow"),
        (VALUE + VALUE, "cannot follow"),
        (VALUE + b"\0\x53\x75\xa0\0", "cannot follow"),
        (b"\0\x53\x75\xa0\0" + VALUE, "cannot follow"),
        (b"\0\x53\x75\xa0\0\0\x53\x76\x45", "cannot follow"),
        (b"\0\x53\x78\xc1\1\0" + b"\0\x53\x75\xa0\0", "cannot follow"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, text: str) -> None:
    for read in (decode_message, bare_parts, require_sections):
        with pytest.raises(MalformedAmqp, match=text):
            read(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\0\x53\x70\x40", "no list"),
        (b"\0\x53\x70\xc0\2\1\x43", "AmqpMessageHeader.durable cannot have"),
        (b"\0\x53\x73\xc0\2\1\x41", "AmqpMessageProperties.message_id cannot have"),
        (b"\0\x53\x74\x45", "no map"),
        (b"\0\x53\x72\x40", "no map"),
        (b"\0\x53\x75\xa1\0", "no binary"),
        (b"\0\x53\x75\x40", "no binary"),
        (b"\0\x53\x76\xc1\1\0", "no list"),
        (b"\0\x53\x75\xa0\2x", "end within"),
        (b"\0\x53\x77", "end within"),
        (HEAD[:3], "cut short|end within"),
    ],
)
def test_sections_of_other_types_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(MalformedAmqp, match=text):
        decode_message(data)


def test_sections_are_found_without_decoding() -> None:
    payload = encode_message(
        AmqpMessage(
            header=AmqpMessageHeader(durable=True),
            properties=AmqpMessageProperties(to="q"),
            application_properties={"a": 1},
            body_kind=AmqpBodyKind.DATA,
            body=[b"x", b"y"],
            footer={},
        )
    )
    assert bare_parts(payload) == [
        SectionPart(HEADER, 0, 3, 7),
        SectionPart(PROPERTIES, 7, 10, 18),
        SectionPart(APPLICATION_PROPERTIES, 18, 21, 29),
        SectionPart(DATA, 29, 32, 35),
        SectionPart(DATA, 35, 38, 41),
        SectionPart(FOOTER, 41, 44, 47),
    ]
    assert bare_parts(b"") == []


def test_body_that_does_not_decode_leaves_the_rest_readable() -> None:
    payload = HEAD + b"\0\x53\x77\xc0\3\1\x99\x00"
    with pytest.raises(MalformedAmqp):
        decode_message(payload)
    assert decode_message(payload, with_body=False) == AmqpMessage(
        header=AmqpMessageHeader(), body_kind=AmqpBodyKind.VALUE
    )


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", b"\0\x53\x70\xc0\6\5\x40\x40\x40\x40\x43"),
        (VALUE, b"\0\x53\x70\xc0\6\5\x40\x40\x40\x40\x43" + VALUE),
        (HEAD + VALUE, b"\0\x53\x70\xc0\6\5\x40\x40\x40\x40\x43" + VALUE),
        (b"\0\x53\x70\xc0\4\2\x41\x50\7" + b"any", b"\0\x53\x70\xc0\7\5\x41\x50\7\x40\x40\x43" + b"any"),
    ],
)
def test_delivery_count_is_put_into_the_header(payload: bytes, expected: bytes) -> None:
    assert with_delivery_count(payload, 0) == expected
    assert with_delivery_count(expected, 0) == expected


def test_delivery_count_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UnencodableAmqp):
        with_delivery_count(VALUE, 2**32)
    with pytest.raises(MalformedAmqp):
        with_delivery_count(b"\x40", 1)


def test_body_with_more_values_than_the_limit_is_told_apart() -> None:
    """Its bytes may be well-formed: they can still be delivered as they are."""
    content = b"\x40" * 100_001
    body = b"\0\x53\x77\xd0" + (len(content) + 4).to_bytes(4, "big") + len(content).to_bytes(4, "big") + content
    with pytest.raises(TooManyAmqpValues):
        decode_message(HEAD + body)
    assert decode_message(HEAD + body, with_body=False).body_kind is AmqpBodyKind.VALUE
