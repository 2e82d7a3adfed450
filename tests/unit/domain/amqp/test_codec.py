"""AMQP's values: the bytes of every type and form, and what is no value."""

import time
import uuid
from typing import Any

import pytest

from pybroker.broker.domain.amqp.codec import NESTING_MAX, VALUES_MAX, AmqpReader, decode_value, encode_value
from pybroker.broker.domain.amqp.errors import AmqpError, MalformedAmqp, TooManyAmqpValues, UnencodableAmqp
from pybroker.broker.domain.amqp.values import (
    AmqpArray,
    AmqpDecimal,
    AmqpDescribed,
    Byte,
    Char,
    Float,
    Long,
    Short,
    Symbol,
    Timestamp,
    UnsignedByte,
    UnsignedInt,
    UnsignedLong,
    UnsignedShort,
    UuidKey,
)
from tests.amqp_values import same

ID = uuid.UUID("f275ea5e-0c57-4ad7-b11a-b20c563d3b71")


def decode(data: bytes) -> Any:
    value, offset = decode_value(data, 0, len(data))
    assert offset == len(data)
    return value


def encode(value: object) -> bytes:
    out = bytearray()
    encode_value(out, value)
    return bytes(out)


SHORTEST = [
    (None, b"\x40"),
    (True, b"\x41"),
    (False, b"\x42"),
    (UnsignedByte(42), b"\x50\x2a"),
    (UnsignedShort(42), b"\x60\x00\x2a"),
    (UnsignedInt(0), b"\x43"),
    (UnsignedInt(42), b"\x52\x2a"),
    (UnsignedInt(256), b"\x70\x00\x00\x01\x00"),
    (UnsignedLong(0), b"\x44"),
    (UnsignedLong(255), b"\x53\xff"),
    (UnsignedLong(2**64 - 1), b"\x80" + b"\xff" * 8),
    (Byte(-42), b"\x51\xd6"),
    (Short(-42), b"\x61\xff\xd6"),
    (-42, b"\x54\xd6"),
    (12345, b"\x71\x00\x00\x30\x39"),
    (Long(-42), b"\x55\xd6"),
    (Long(12345), b"\x81\x00\x00\x00\x00\x00\x00\x30\x39"),
    (Float(0.125), b"\x72\x3e\x00\x00\x00"),
    (0.125, b"\x82\x3f\xc0\x00\x00\x00\x00\x00\x00"),
    (Char("€"), b"\x73\x00\x00\x20\xac"),
    (Char("😀"), b"\x73\x00\x01\xf6\x00"),
    (Timestamp(1), b"\x83\x00\x00\x00\x00\x00\x00\x00\x01"),
    (AmqpDecimal(b"\0\0\0\1"), b"\x74\0\0\0\1"),
    (AmqpDecimal(bytes(8)), b"\x84" + bytes(8)),
    (AmqpDecimal(bytes(16)), b"\x94" + bytes(16)),
    (ID, b"\x98" + ID.bytes),
    (b"", b"\xa0\x00"),
    (b"x" * 255, b"\xa0\xff" + b"x" * 255),
    (b"x" * 256, b"\xb0\x00\x00\x01\x00" + b"x" * 256),
    ("é", b"\xa1\x02\xc3\xa9"),
    ("x" * 256, b"\xb1\x00\x00\x01\x00" + b"x" * 256),
    (Symbol("amqp:ok"), b"\xa3\x07amqp:ok"),
    (Symbol("x" * 256), b"\xb3\x00\x00\x01\x00" + b"x" * 256),
    ([], b"\x45"),
    ([1, None], b"\xc0\x04\x02\x54\x01\x40"),
    ([None] * 255, b"\xd0\x00\x00\x01\x03\x00\x00\x00\xff" + b"\x40" * 255),
    ({}, b"\xc1\x01\x00"),
    ({"a": True}, b"\xc1\x05\x02\xa1\x01a\x41"),
    (AmqpArray(), b"\xe0\x02\x00\x40"),
    (AmqpArray([Symbol("a"), Symbol("b")]), b"\xe0\x0c\x02\xb3\0\0\0\1a\0\0\0\1b"),
    (AmqpArray([AmqpArray([1]), AmqpArray([])]), b"\xe0\x18\x02\xf0\0\0\0\x09\0\0\0\1\x71\0\0\0\1\0\0\0\5\0\0\0\0\x40"),
    (AmqpArray([[1], []]), b"\xe0\x14\x02\xd0\0\0\0\6\0\0\0\1\x54\1\0\0\0\4\0\0\0\0"),
    (AmqpArray([{True: 1}]), b"\xe0\x0d\x01\xd1\0\0\0\7\0\0\0\2\x41\x54\1"),
    (AmqpDescribed(UnsignedLong(36), []), b"\x00\x53\x24\x45"),
    (AmqpDescribed(Symbol("a:b"), "x"), b"\x00\xa3\x03a:b\xa1\x01x"),
    (
        AmqpArray([AmqpDescribed(UnsignedLong(1), "a"), AmqpDescribed(UnsignedLong(1), "b")]),
        b"\xe0\x0f\x02\x00\x53\x01\xb1\0\0\0\1a\0\0\0\1b",
    ),
]


@pytest.mark.parametrize(("value", "data"), SHORTEST, ids=lambda each: repr(each)[:30])
def test_value_has_its_shortest_form(value: object, data: bytes) -> None:
    assert encode(value) == data
    assert same(decode(data), value)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x56\x01", True),
        (b"\x56\x00", False),
        (b"\x70\0\0\0\0", UnsignedInt(0)),
        (b"\x52\0", UnsignedInt(0)),
        (b"\x80" + bytes(8), UnsignedLong(0)),
        (b"\x53\0", UnsignedLong(0)),
        (b"\x71\xff\xff\xff\xff", -1),
        (b"\x81" + b"\xff" * 8, Long(-1)),
        (b"\xb0\0\0\0\1x", b"x"),
        (b"\xb1\0\0\0\1x", "x"),
        (b"\xb3\0\0\0\1x", Symbol("x")),
        (b"\xc0\x01\x00", []),
        (b"\xd0\0\0\0\4\0\0\0\0", []),
        (b"\xd0\0\0\0\5\0\0\0\1\x40", [None]),
        (b"\xd1\0\0\0\4\0\0\0\0", {}),
        (b"\xd1\0\0\0\6\0\0\0\2\x40\x41", {None: True}),
        (b"\xf0\0\0\0\6\0\0\0\1\x54\x02", AmqpArray([2])),
        (b"\xe0\x02\x03\x44", AmqpArray([UnsignedLong(0)] * 3)),
        (b"\xe0\x04\x02\x56\x01\x00", AmqpArray([True, False])),
        (b"\xe0\x06\x02\xa3\x01a\x01b", AmqpArray([Symbol("a"), Symbol("b")])),
        (b"\x00\x80\0\0\0\0\0\0\0\x24\x45", AmqpDescribed(UnsignedLong(36), [])),
        (b"\x00\x00\x53\x01\x53\x02\x40", AmqpDescribed(AmqpDescribed(UnsignedLong(1), UnsignedLong(2)), None)),
    ],
    ids=lambda each: repr(each)[:30],
)  # fmt: skip
def test_longer_forms_decode(data: bytes, value: object) -> None:
    assert same(decode(data), value)


def test_plain_int_beyond_32_bits_is_a_long() -> None:
    assert encode(2**31) == b"\x81\0\0\0\0\x80\0\0\0"
    assert same(decode(encode(AmqpArray([1, 2**31]))), AmqpArray([Long(1), Long(2**31)]))


def test_empty_array_keeps_its_constructor() -> None:
    data = b"\xe0\x05\x00\x00\x53\x01\xa3"
    found = decode(data)
    assert (found, found.constructor) == ([], b"\x00\x53\x01\xa3")
    assert encode(found) == data


def test_surrogate_of_a_string_becomes_a_question_mark() -> None:
    assert encode("a\ud800") == b"\xa1\x02a?"


def test_tuple_and_buffers_are_encoded_as_list_and_binary() -> None:
    assert encode((True,)) == encode([True])
    assert encode(bytearray(b"x")) == encode(memoryview(b"x")) == encode(b"x")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "end within"),
        (b"\x3f", "no constructor"),
        (b"\x57", "no constructor"),
        (b"\x56\x02", "a boolean"),
        (b"\x70\0\0\0", "end within"),
        (b"\x73\x00\x11\x00\x00", "no character"),
        (b"\xa0\x02x", "end within"),
        (b"\xa0", "end within"),
        (b"\xb0\xff\xff\xff\xff", "end within"),
        (b"\xa1\x01\xff", "no UTF-8"),
        (b"\xa3\x01\xc3", "no ASCII"),
        (b"\xb3\0\0\0\x64" + b"\xc3" * 100, "no ASCII"),
        (b"\xc0\x00", "end within"),
        (b"\xc0\x02\x02\x40", "end within"),
        (b"\xc0\x03\x01\x40\x40", "does not end"),
        (b"\xc0\x02\x01\x50\x00", "end within"),
        (b"\xc1\x02\x01\x40", "one is missing"),
        (b"\xc1\x05\x04\x41\x40\x41\x40", "two equal keys"),
        (b"\xc1\x03\x02\x45\x40", "as key"),
        (b"\xc1\x06\x02\x00\x53\x01\x40\x40", "as key"),
        (b"\xc1\x04\x02\xa1\x05x", "end within"),
        (b"\xd0\0\0\0\4\0\0\0\1", "end within"),
        (b"\xd0\0\0\0\3\0\0\0", "end within"),
        (b"\xe0\x01\x00", "end within"),
        (b"\xe0\x03\x02\x50\x01", "end within"),
        (b"\xe0\x03\x00\x50\x01", "does not end"),
        (b"\xe0\x02\x00\x99", "no constructor"),
        (b"\xf0\xff\xff\xff\xff\xff\xff\xff\xff\x40", "end within"),
        (b"\x00\x53", "end within"),
        (b"\x00\x53\x01", "end within"),
    ],
)  # fmt: skip
def test_what_is_no_value_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(MalformedAmqp, match=text) as raised:
        decode(data)
    assert raised.value.condition == "amqp:decode-error"


def test_value_is_read_up_to_its_end_only() -> None:
    with pytest.raises(MalformedAmqp, match="end within"):
        decode_value(b"\xa1\x02xy", 0, 3)


def test_same_text_as_string_and_symbol_is_one_key() -> None:
    """Python's dictionaries cannot have both."""
    with pytest.raises(MalformedAmqp, match="two equal keys"):
        decode(b"\xc1\x09\x04\xa1\x01a\x40\xa3\x01a\x40")


def test_uuids_as_keys_do_not_collide() -> None:
    """Their own hash is the number modulo 2^61 - 1, so that a map of many would take minutes."""
    ids = [uuid.UUID(int=number * (2**61 - 1)) for number in range(1, 20_001)]
    content = b"".join(b"\x98" + each.bytes + b"\x40" for each in ids)
    data = b"\xd1" + (len(content) + 4).to_bytes(4, "big") + (2 * len(ids)).to_bytes(4, "big") + content
    began = time.process_time()
    found = decode(data)
    assert time.process_time() - began < 5
    assert found.keys() == {UuidKey(int=each.int) for each in ids}


@pytest.mark.parametrize("code", [b"\xc0", b"\xd0", b"\xc1", b"\xe0", b"\xf0"])
def test_nesting_bomb_is_refused_at_once(code: bytes) -> None:
    data = b"\x40"
    for _ in range(100_000 // 8):
        size = len(data) + 1
        data = b"\xd0" + (size + 3).to_bytes(4, "big") + b"\0\0\0\1" + data
    small = b"\x40"
    for _ in range(NESTING_MAX + 1):
        match code:
            case b"\xc0":
                small = code + bytes((len(small) + 1, 1)) + small
            case b"\xc1":
                small = code + bytes((len(small) + 2, 2)) + b"\x40" + small
            case b"\xe0":
                small = code + bytes((len(small) + 1, 1)) + small
            case b"\xd0" | b"\xf0":
                small = code + (len(small) + 4).to_bytes(4, "big") + b"\0\0\0\1" + small
    for bomb in (data, small):
        began = time.process_time()
        with pytest.raises(TooManyAmqpValues, match="nested"):
            decode(bomb)
        assert time.process_time() - began < 1


@pytest.mark.parametrize("bomb", [b"\0" * 100_000, b"\x00\x53\x01" * 30_000, b"\xe0\xff\x01" + b"\0" * 254])
def test_described_values_that_nest_are_refused_at_once(bomb: bytes) -> None:
    began = time.process_time()
    with pytest.raises(TooManyAmqpValues, match="nested"):
        decode(bomb)
    with pytest.raises(TooManyAmqpValues, match="nested"):
        AmqpReader(b"\0" * 100_000, 0, 100_000).skip()
    assert time.process_time() - began < 1


def test_values_up_to_the_limit_decode() -> None:
    def listed(count: int) -> bytes:
        return b"\xd0" + (count + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + b"\x45" * count

    assert len(decode(listed(VALUES_MAX))) == VALUES_MAX
    for data in (listed(VALUES_MAX + 1), b"\xf0\0\0\0\5\xff\xff\xff\xff\x44"):
        with pytest.raises(TooManyAmqpValues, match="more than 100000 values"):
            decode(data)
    nested = (b"\xd0\0\0\x80\4\0\0\x80\0" + b"\x40" * 0x8000) * 4
    with pytest.raises(TooManyAmqpValues):
        decode(b"\xd0" + (len(nested) + 4).to_bytes(4, "big") + b"\0\0\0\4" + nested)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        object(),
        UnsignedByte(256),
        UnsignedByte(-1),
        UnsignedInt(2**32),
        UnsignedInt(-1),
        UnsignedLong(-1),
        Byte(128),
        2**63,
        Long(2**63),
        Char(""),
        Char("ab"),
        Symbol("é"),
        AmqpDecimal(b"x"),
        AmqpArray([1, "x"]),
        AmqpArray([{1, 2}]),  # type: ignore[list-item]
        AmqpArray([UnsignedByte(256)]),
        AmqpArray([AmqpDecimal(bytes(4)), AmqpDecimal(bytes(8))]),
        AmqpArray([AmqpDescribed(Symbol("a"), 1), AmqpDescribed(Symbol("b"), 1)]),
        AmqpArray([AmqpDescribed(Symbol("a"), 1), 1]),
        deep(NESTING_MAX + 1),
        AmqpArray([deep(NESTING_MAX)]),
    ],
    ids=lambda each: "object" if type(each) is object else repr(each)[:30],
)
def test_what_does_not_fit_is_not_encoded(value: object) -> None:
    with pytest.raises(UnencodableAmqp) as raised:
        encode(value)
    assert raised.value.condition == "amqp:internal-error"


def test_deepest_value_comes_back() -> None:
    assert decode(encode(deep(NESTING_MAX - 1))) == deep(NESTING_MAX - 1)


@pytest.mark.parametrize("data", [data for _, data in SHORTEST], ids=lambda each: each.hex()[:30])
def test_value_is_skipped_as_it_is_read(data: bytes) -> None:
    reader = AmqpReader(data + b"\x40", 0, len(data) + 1)
    reader.skip()
    assert reader.offset == len(data)
    for end in range(len(data)):
        with pytest.raises(MalformedAmqp):
            AmqpReader(data, 0, end).skip()


def test_values_compare_and_show_themselves() -> None:
    assert AmqpDecimal(bytes(4)) != AmqpDecimal(bytes(8))
    assert len({AmqpDecimal(bytes(4)), AmqpDecimal(bytes(4))}) == 1
    assert AmqpDecimal(bytes(8)).width == 64
    assert repr(AmqpDecimal(bytes(4))) == "AmqpDecimal(32 bits: 00000000)"
    assert AmqpDescribed(Symbol("a"), 1) != AmqpDescribed(Symbol("a"), 2)
    assert AmqpDescribed(Symbol("a"), 1) != 1
    assert repr(AmqpDescribed(Symbol("a"), 1)) == "AmqpDescribed('a', 1)"
    assert UuidKey(int=ID.int) == ID
    assert issubclass(MalformedAmqp, AmqpError)
