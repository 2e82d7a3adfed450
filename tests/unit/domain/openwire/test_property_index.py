"""Single properties of a marshalled map, found without decoding the others."""

import struct
from typing import Any

import pytest

from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.property_index import PropertyIndex
from pybroker.broker.domain.openwire.values import DECODED_VALUES_MAX as VALUES_MAX
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short, decode_map, encode_map

EVERY_TYPE: dict[str, Any] = {
    "null": None, "boolean": True, "byte": Byte(-1), "char": Char("€"), "short": Short(-2), "int": 3, "long": Long(4),
    "double": 5.5, "float": Float(6.5), "string": "seven", "bytes": b"eight", "map": {"a": {"b": [1, "x"]}, "c": None},
    "list": [1, None, "two", [True], {"k": b"v"}], "big": "x" * 9_000, "größe": 10, "": 11,
}  # fmt: skip


def nested(levels: int) -> bytes:
    """Return a map whose only value is lists inside one another."""
    return struct.pack(">iH", 1, 1) + b"a" + struct.pack(">Bi", 12, 1) * levels + b"\0"


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_a_value_of_every_type_is_found_among_all_others(name):
    found = PropertyIndex(encode_map(EVERY_TYPE)).get(name)
    assert (type(found), found) == (type(EVERY_TYPE[name]), EVERY_TYPE[name])


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"\xff\xff\xff\xff"])
def test_an_empty_map_has_no_values(data):
    assert PropertyIndex(data).get("a") is None


def test_the_last_of_several_values_counts():
    data = struct.pack(">iH", 2, 1) + b"a\x01\x01" + struct.pack(">H", 1) + b"a\x01\x00"
    assert PropertyIndex(data).get("a") is decode_map(data)["a"] is False


@pytest.mark.parametrize("encoded", ["n\U0001f600".encode(), b"n\xed\xa0\xbd\xed\xb8\x80"])
def test_a_name_is_found_in_java_form_and_in_utf_8(encoded):
    data = struct.pack(">iH", 1, len(encoded)) + encoded + b"\x01\x01"
    assert PropertyIndex(data).get("n\U0001f600") is True


def test_only_what_is_asked_for_is_decoded():
    data = (
        struct.pack(">iH", 2, 1) + b"a\x09" + struct.pack(">H", 2) + b"\xff\xff" + struct.pack(">H", 1) + b"b\x01\x01"
    )
    index = PropertyIndex(data)
    assert index.get("b") is True
    with pytest.raises(MalformedOpenWire):
        index.get("a")


@pytest.mark.parametrize(
    "data",
    [
        encode_map({str(number): None for number in range(VALUES_MAX + 1)}),
        encode_map({"a": [None] * VALUES_MAX}),
        encode_map({"a": {str(number): None for number in range(VALUES_MAX)}}),
        encode_map({"a": [[None] * (VALUES_MAX // 2)], "b": [None] * (VALUES_MAX // 2)}),
        nested(33),
    ],
)
def test_more_values_or_levels_than_allowed_are_refused(data):
    with pytest.raises(MalformedOpenWire, match=r"properties"):
        PropertyIndex(data)


def test_as_many_values_and_levels_as_allowed_are_accepted():
    assert PropertyIndex(encode_map({str(number): number for number in range(VALUES_MAX)})).get("9999") == 9999
    assert PropertyIndex(encode_map({"a": [None] * (VALUES_MAX - 1)})).get("a") == [None] * (VALUES_MAX - 1)
    assert PropertyIndex(nested(32)).get("b") is None


def test_no_beginning_and_no_extension_of_a_map_is_a_map():
    data = encode_map(EVERY_TYPE)
    for length in (*range(1, 600), len(data) - 1):
        with pytest.raises(MalformedOpenWire):
            PropertyIndex(data[:length])
    with pytest.raises(MalformedOpenWire):
        PropertyIndex(data + b"\0")
