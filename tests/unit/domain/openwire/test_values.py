"""Primitive values: the right tag for each type, and limits on what a peer may make us read."""

import struct
from typing import Any

import pytest

from pybroker.broker.domain.openwire.loose import MalformedOpenWire, UnencodableOpenWire
from pybroker.broker.domain.openwire.values import (
    NESTING_MAX,
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

TAGGED = [
    pytest.param(None, b"\x00", id="null"),
    pytest.param(True, b"\x01\x01", id="true"),
    pytest.param(False, b"\x01\x00", id="false"),
    pytest.param(Byte(-1), b"\x02\xff", id="byte"),
    pytest.param(Char("é"), b"\x03\x00\xe9", id="char"),
    pytest.param(Char("\ud83d"), b"\x03\xd8\x3d", id="half-a-char"),
    pytest.param(Short(-2), b"\x04\xff\xfe", id="short"),
    pytest.param(7, b"\x05\x00\x00\x00\x07", id="int"),
    pytest.param(-(2**31), b"\x05\x80\x00\x00\x00", id="least-int"),
    pytest.param(2**31 - 1, b"\x05\x7f\xff\xff\xff", id="greatest-int"),
    pytest.param(Long(7), b"\x06" + bytes(7) + b"\x07", id="long"),
    pytest.param(1.5, b"\x07" + struct.pack(">d", 1.5), id="double"),
    pytest.param(Float(1.5), b"\x08" + struct.pack(">f", 1.5), id="float"),
    pytest.param("hi", b"\x09\x00\x02hi", id="string"),
    pytest.param(b"\x00\xff", b"\x0a\x00\x00\x00\x02\x00\xff", id="bytes"),
    pytest.param({"k": Byte(1)}, b"\x0b\x00\x00\x00\x01\x00\x01k\x02\x01", id="map"),
    pytest.param([None, "x"], b"\x0c\x00\x00\x00\x02\x00\x09\x00\x01x", id="list"),
]


@pytest.mark.parametrize(("value", "encoded"), TAGGED)
def test_values_keep_type_and_bytes(value: Any, encoded: bytes) -> None:
    assert encode_stream([value]) == encoded

    (decoded,) = decode_stream(encoded)

    assert decoded == value
    assert type(decoded) is type(value)


def test_an_int_over_32_bits_is_javas_long() -> None:
    encoded = encode_stream([2**31, -(2**31) - 1])

    assert encoded == b"\x06" + (2**31).to_bytes(8) + b"\x06" + (-(2**31) - 1).to_bytes(8, signed=True)
    assert all(type(value) is Long for value in decode_stream(encoded))


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**63) - 1, Long(2**63), Byte(128), Short(2**15), Float(1e300), Char(""), Char("ab"), Char("\U0001f600")],
)
def test_a_value_out_of_its_range_cannot_be_written(value: Any) -> None:
    with pytest.raises(UnencodableOpenWire):
        encode_stream([value])


@pytest.mark.parametrize("value", [object(), {1}, bytearray(b"x"), 1j])
def test_other_types_cannot_be_written(value: Any) -> None:
    with pytest.raises(UnencodableOpenWire, match="is no type of"):
        encode_map({"name": value})


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("x" * 8190, 9),
        ("x" * 8191, 13),
        ("é" * 8190, 9),
        ("é" * 8191, 13),
        ("\U0001f600" * 4095, 9),
        ("\U0001f600" * 4096, 13),
    ],
)
def test_a_string_is_big_from_8191_utf16_units_on(text: str, tag: int) -> None:
    assert encode_stream([text])[0] == tag
    assert encode_map({"": text})[6] == tag
    assert decode_stream(encode_stream([text])) == [text]
    assert decode_map(encode_map({"": text})) == {"": text}


def test_map_strings_are_written_as_java_reads_them() -> None:
    """Java reads them as standard UTF-8, and nested ones, and those in streams, as modified UTF-8."""
    emoji = "\U0001f600\x00"
    standard, modified = b"\xf0\x9f\x98\x80\x00", b"\xed\xa0\xbd\xed\xb8\x80\xc0\x80"

    assert encode_map({"e": emoji}).endswith(b"\x09\x00\x05" + standard)
    assert encode_map({"e": [emoji]}).endswith(b"\x09\x00\x08" + modified)
    assert encode_stream([emoji]) == b"\x09\x00\x08" + modified
    assert encode_map({emoji: None}) == b"\x00\x00\x00\x01\x00\x08" + modified + b"\x00"


@pytest.mark.parametrize("encoded", [b"", bytes(4), b"\xff\xff\xff\xff"])
def test_nothing_and_null_are_empty_maps(encoded: bytes) -> None:
    assert decode_map(encoded) == {}


def test_a_null_big_string_is_none() -> None:
    assert decode_stream(b"\x0d\xff\xff\xff\xff") == [None]


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"\x00\x00\x00", id="count-cut-short"),
        pytest.param(b"\x00\x00\x00\x01", id="entry-missing"),
        pytest.param(b"\x7f\xff\xff\xff\x00\x00\x00", id="count-too-large"),
        pytest.param(b"\xff\xff\xff\xfe", id="count-negative"),
        pytest.param(b"\x00\x00\x00\x01\x00\x00\x0e", id="unknown-tag"),
        pytest.param(b"\x00\x00\x00\x01\x00\x00\x00\x00", id="left-over"),
        pytest.param(b"\x00\x00\x00\x01\x00\x00\x0a\xff\xff\xff\xff", id="negative-byte-count"),
        pytest.param(b"\x00\x00\x00\x01\x00\x00\x0d\xff\xff\xff\xfe", id="negative-string-length"),
        pytest.param(b"\x00\x00\x00\x01\x00\x00\x0c\x7f\xff\xff\xff", id="list-too-large"),
        pytest.param(b"\x00\x00\x00\x01\x00\x00\x09\x00\x01\xff", id="no-utf8"),
    ],
)
def test_damaged_maps_are_refused(encoded: bytes) -> None:
    with pytest.raises(MalformedOpenWire):
        decode_map(encoded)


def nested_lists(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_nesting_has_a_limit_both_ways() -> None:
    deepest = nested_lists(NESTING_MAX)
    one_list_around = b"\x0c\x00\x00\x00\x01"

    assert decode_stream(encode_stream([deepest])) == [deepest]
    with pytest.raises(UnencodableOpenWire, match="nested more than"):
        encode_stream([[deepest]])
    with pytest.raises(UnencodableOpenWire, match="nested more than"):
        encode_map({"m": {"x": deepest}})
    with pytest.raises(MalformedOpenWire, match="nested more than"):
        decode_stream(one_list_around + encode_stream([deepest]))
    with pytest.raises(MalformedOpenWire, match="nested more than"):
        decode_stream(one_list_around * 100_000)


def test_names_have_at_most_65535_bytes() -> None:
    with pytest.raises(UnencodableOpenWire):
        encode_map({"n" * 65536: 1})
