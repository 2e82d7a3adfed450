"""AMQP's values encoded in every form that the standard allows, not only in the shortest: what peers may send.

The encodings are written here a second time, apart from the codec that they test.
"""

import math
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

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

Encoded = tuple[Any, bytes]
"""A value, and one of its encodings."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
symbols = st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=20).map(Symbol)


def sized(code: int, data: bytes, *, is_wide: bool) -> bytes:
    """Return bytes behind their constructor and size; `code` is that of the narrow form."""
    if is_wide or len(data) > 255:
        return struct.pack(">BI", code + 0x10, len(data)) + data
    return bytes((code, len(data))) + data


def compound(code: int, count: int, content: bytes, *, is_wide: bool) -> bytes:
    """Return the values of a list, map or array behind constructor, size and count; `code` is the narrow form's."""
    if is_wide or len(content) > 254 or count > 255:
        return struct.pack(">BII", code + 0x10, len(content) + 4, count) + content
    return bytes((code, len(content) + 1, count)) + content


def integers(
    kind: Callable[[int], Any], low: int, high: int, *forms: tuple[int, str, int, int]
) -> st.SearchStrategy[Encoded]:
    """Return integers of a type in each of its forms: constructor, layout, and the least and greatest value."""

    def form(code: int, layout: str, least: int, most: int) -> st.SearchStrategy[Encoded]:
        pack = struct.Struct(layout).pack
        return st.integers(max(least, low), min(most, high)).map(lambda n: (kind(n), bytes((code,)) + pack(n)))

    return st.one_of([form(*each) for each in forms])


_BYTE = (-128, 127)
_INT = (-(2**31), 2**31 - 1)
_LONG = (-(2**63), 2**63 - 1)
_UINT = (0, 2**32 - 1)
_ULONG = (0, 2**64 - 1)

unsigned_ints = st.one_of(
    st.just((UnsignedInt(0), b"\x43")),
    integers(UnsignedInt, *_UINT, (0x52, ">B", 0, 255), (0x70, ">I", *_UINT)),
)
unsigned_longs = st.one_of(
    st.just((UnsignedLong(0), b"\x44")),
    integers(UnsignedLong, *_ULONG, (0x53, ">B", 0, 255), (0x80, ">Q", *_ULONG)),
)
booleans = st.sampled_from([(True, b"\x41"), (False, b"\x42"), (True, b"\x56\1"), (False, b"\x56\0")])
binaries = st.tuples(st.binary(max_size=300), st.booleans()).map(
    lambda drawn: (drawn[0], sized(0xA0, drawn[0], is_wide=drawn[1]))
)
strings = st.tuples(texts, st.booleans()).map(
    lambda drawn: (drawn[0], sized(0xA1, drawn[0].encode(), is_wide=drawn[1]))
)
encoded_symbols = st.tuples(symbols, st.booleans()).map(
    lambda drawn: (drawn[0], sized(0xA3, drawn[0].encode(), is_wide=drawn[1]))
)
uuids = st.uuids().map(lambda value: (value, b"\x98" + value.bytes))

keys = st.one_of(
    st.just((None, b"\x40")),
    booleans,
    unsigned_ints,
    unsigned_longs,
    integers(UnsignedByte, 0, 255, (0x50, ">B", 0, 255)),
    integers(UnsignedShort, 0, 65535, (0x60, ">H", 0, 65535)),
    integers(Byte, *_BYTE, (0x51, ">b", *_BYTE)),
    integers(Short, -32768, 32767, (0x61, ">h", -32768, 32767)),
    integers(int, *_INT, (0x54, ">b", *_BYTE), (0x71, ">i", *_INT)),
    integers(Long, *_LONG, (0x55, ">b", *_BYTE), (0x81, ">q", *_LONG)),
    integers(Timestamp, *_LONG, (0x83, ">q", *_LONG)),
    st.floats(width=32).map(lambda value: (Float(value), b"\x72" + struct.pack(">f", value))),
    st.floats().map(lambda value: (value, b"\x82" + struct.pack(">d", value))),
    st.characters(exclude_categories=["Cs"]).map(lambda value: (Char(value), b"\x73" + struct.pack(">I", ord(value)))),
    st.sampled_from([(0x74, 4), (0x84, 8), (0x94, 16)]).flatmap(
        lambda form: st.binary(min_size=form[1], max_size=form[1]).map(
            lambda data: (AmqpDecimal(data), bytes((form[0],)) + data)
        )
    ),
    uuids,
    binaries,
    strings,
    encoded_symbols,
)
"""Values of all primitive types."""

descriptors = st.one_of(unsigned_longs, encoded_symbols)


def _array(elements: Sequence[Encoded], is_wide: bool) -> Encoded:
    """Return an array of those values whose encodings begin with the same constructor as the first."""
    same = [each for each in elements if each[1][0] == elements[0][1][0]]
    content = same[0][1][:1] + b"".join(data[1:] for _, data in same)
    return AmqpArray([value for value, _ in same]), compound(0xE0, len(same), content, is_wide=is_wide)


def _described_array(descriptor: Encoded, elements: Encoded) -> Encoded:
    values, data = elements
    wide = data[0] == 0xF0
    at = 9 if wide else 3
    content = b"\0" + descriptor[1] + data[at:]
    described = AmqpArray([AmqpDescribed(descriptor[0], value) for value in values])
    return described, compound(0xE0, len(values), content, is_wide=wide)


def _map(entries: Sequence[tuple[Encoded, Encoded]], is_wide: bool) -> Encoded:
    found: dict[Any, Any] = {}
    content = b""
    for (key, key_data), (value, value_data) in entries:
        key = UuidKey(int=key.int) if isinstance(key, uuid.UUID) else key
        if key not in found and key == key:
            found[key] = value
            content += key_data + value_data
    return found, compound(0xC1, 2 * len(found), content, is_wide=is_wide)


def _list(elements: Sequence[Encoded], is_wide: bool) -> Encoded:
    content = b"".join(data for _, data in elements)
    return [value for value, _ in elements], compound(0xC0, len(elements), content, is_wide=is_wide)


@st.composite
def primitives(draw: st.DrawFn) -> Encoded:
    """A value of a primitive type. A strategy of its own keeps representations short."""
    return draw(keys)


@st.composite
def values(draw: st.DrawFn, levels: int = 3) -> Encoded:
    """A value of any type, with one of its encodings."""
    form = draw(st.integers(0, 9)) if levels else 0
    inner = values(levels - 1) if levels else primitives()
    is_wide = draw(st.booleans())
    match form:
        case 1:
            return [], b"\x45"
        case 2 | 3:
            return _list(draw(st.lists(inner, max_size=4)), is_wide)
        case 4 | 5:
            return _map(draw(st.lists(st.tuples(primitives(), inner), max_size=4)), is_wide)
        case 6:
            return _array(draw(st.lists(inner.filter(lambda each: each[1][0]), min_size=1, max_size=4)), is_wide)
        case 7:
            elements = _array(draw(st.lists(primitives(), min_size=1, max_size=4)), is_wide)
            return _described_array(draw(descriptors), elements)
        case 8:
            (descriptor, head), (value, data) = draw(descriptors), draw(inner)
            return AmqpDescribed(descriptor, value), b"\0" + head + data
        case _:
            return draw(keys)


def same(left: Any, right: Any) -> bool:
    """Return True if two values are equal and of the same types, throughout; NaN equals itself."""
    if isinstance(left, uuid.UUID):
        return bool(left == right)
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return bool(left == right) or (math.isnan(left) and math.isnan(right))
    if isinstance(left, AmqpDescribed):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return len(left) == len(right) and all(map(same, left, right)) and all(map(same, left.values(), right.values()))
    return bool(left == right)
