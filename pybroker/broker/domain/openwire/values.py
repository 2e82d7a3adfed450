"""Primitive values, maps and streams: message properties, MapMessage and StreamMessage bodies.

Source: OpenWire, primitive map. A value is a tag and its bytes, big-endian:

```text
 0 null    –          5 int    i32        10 byte array  i32 n, bytes
 1 boolean u8         6 long   i64        11 map         i32 count, count x (u16 n, name, value)
 2 byte    i8         7 double IEEE 754   12 list        i32 count, values
 3 char    UTF-16     8 float  IEEE 754   13 big string  i32 n, bytes
 4 short   i16        9 string u16 n, bytes
```

Java has more kinds of numbers than Python: `Byte`, `Short`, `Long`, `Char` and `Float` keep what Java wrote. A plain
int is Java's Integer where it fits 32 bits, otherwise its Long; a plain float is its Double.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeAlias, cast

from pybroker.broker.domain.big_endian import (
    BYTE_AND_BYTE,
    BYTE_AND_INT,
    BYTE_AND_LONG,
    BYTE_AND_UNSIGNED_SHORT,
    DOUBLE,
    FLOAT,
    INT,
    UNSIGNED_SHORT,
)
from pybroker.broker.domain.openwire.loose import (
    MalformedOpenWire,
    Reader,
    UnencodableOpenWire,
    decode_mutf8,
    encode_mutf8,
    restored_mutf8,
)


class Byte(int):
    """Java's Byte, -128 to 127."""

    __slots__ = ()


class Short(int):
    """Java's Short, 16 bits."""

    __slots__ = ()


class Long(int):
    """Java's Long, 64 bits."""

    __slots__ = ()


class Float(float):
    """Java's Float, single precision."""

    __slots__ = ()


class Char(str):
    """Java's Character: one UTF-16 unit."""

    __slots__ = ()


Value: TypeAlias = bool | int | float | str | bytes | Mapping[str, "Value"] | Sequence["Value"] | None

NESTING_MAX: Final = 32
"""Maps and lists inside one another; deeper ones only serve to exhaust the stack."""

PROPERTY_VALUES_MAX: Final = 10_000
"""Values that the properties of a message may have when it is sent, those in maps and lists included."""

DECODED_VALUES_MAX: Final = 100_000
"""Values that the broker decodes of properties. A store may have messages that were sent before there was a limit; the
properties of those with more values than this do not decode. To decode so many takes 50 ms."""

_UNLIMITED: Final = 2**62

BIG_STRING_UNITS: Final = 8191
"""The number of UTF-16 units from which on Java tags a string as big."""

_NULL, _BOOLEAN, _BYTE, _CHAR, _SHORT, _INT, _LONG, _DOUBLE, _FLOAT, _STRING, _BYTES, _MAP, _LIST, _BIG_STRING = range(
    14
)

_TRUE: Final = bytes((_BOOLEAN, 1))
_FALSE: Final = bytes((_BOOLEAN, 0))

_pack_tag_and_int = BYTE_AND_INT.pack
_pack_tag_and_length = BYTE_AND_UNSIGNED_SHORT.pack
_MAP_ENTRY_BYTES_MIN = 3
"""An empty name and a null value."""

_REMEMBERED = 1024
"""Encoded names that are kept, because the same ones come with message after message."""
_REMEMBERED_CHARS_MAX = 64


# ---------------------------------------------------------------- maps and streams


def encode_map(entries: Mapping[str, Value]) -> bytes:
    """Encode properties or a map body.

    Raises:
        UnencodableOpenWire: a name is over 65535 bytes, a number over 64 bits, a type is not one of `Value`,
            or the nesting is too deep.
    """
    out = bytearray(INT.pack(len(entries)))
    for name, value in entries.items():
        out += _short_name(name) if len(name) <= _REMEMBERED_CHARS_MAX else restored_mutf8(name)
        # Java reads the strings of a message's own map as standard UTF-8 though it writes the modified form: what it
        # wrote itself it shows garbled, if there is a U+0000 or a supplementary character. We write what it reads.
        if type(value) is str:
            encoded = value.encode("utf-8", "surrogatepass")
            if len(encoded) < BIG_STRING_UNITS:  # then it has no more units either
                out += _pack_tag_and_length(_STRING, len(encoded))
                out += encoded
            else:
                out += _encode_string(value, encoded)
        elif type(value) is bool:
            out += _TRUE if value else _FALSE
        else:
            _append(out, value, NESTING_MAX)
    return bytes(out)


def with_entry(data: bytes, name: str, value: Value) -> bytes:
    """Return encoded properties with one more entry, whose name they do not have; the others are not decoded.

    Raises:
        UnencodableOpenWire: as for `encode_map`.
    """
    added = encode_map({name: value})
    count = INT.unpack_from(data)[0] if len(data) >= INT.size else 0
    return INT.pack(count + 1) + data[INT.size :] + added[INT.size :] if count > 0 else added


def decode_map(data: bytes, values_max: int = _UNLIMITED) -> dict[str, Value]:
    """Decode properties or a map body; zero bytes and Java's null map are an empty map.

    Args:
        data: the bytes.
        values_max: the limit to values, those in maps and lists included.

    Raises:
        MalformedOpenWire: it is no primitive map, has too many values, or bytes are left over.
    """
    if not data:
        return {}
    reader = _ValueReader(data, values_max)
    entries = _read_map(reader, NESTING_MAX)
    reader.end()
    return entries


def has_more_values(data: bytes, values_max: int) -> bool:
    """Return True if a map has more values than a limit. It stops there, decodes nothing and judges nothing else."""
    reader = _ValueReader(data, values_max)
    try:
        _skip_map(reader, NESTING_MAX)
    except _TooManyValues:
        return True
    except MalformedOpenWire:
        return False
    return False


def decode_value(data: bytes, place: int) -> Value:
    """Decode the value that begins with its tag at a place. Raises `MalformedOpenWire` if it is none."""
    reader = _ValueReader(data, _UNLIMITED)
    reader.offset = place
    return _read_value(reader, NESTING_MAX)


def encode_stream(values: Iterable[Value]) -> bytes:
    """Encode a stream body. Raises `UnencodableOpenWire` as `encode_map` does."""
    out = bytearray()
    for value in values:
        _append(out, value, NESTING_MAX)
    return bytes(out)


def decode_stream(data: bytes) -> list[Value]:
    """Decode a stream body: values back to back until the bytes end.

    Raises:
        MalformedOpenWire: the bytes are no values.
    """
    reader = _ValueReader(data, _UNLIMITED)
    values: list[Value] = []
    while reader.remaining:
        values.append(_read_value(reader, NESTING_MAX))
    return values


# ---------------------------------------------------------------- writing

_short_name = lru_cache(_REMEMBERED)(restored_mutf8)


def _append(out: bytearray, value: Value, levels: int) -> None:
    encode = _ENCODERS.get(type(value))
    if encode is not None:
        try:
            out += encode(value)
        except (StructError, OverflowError) as error:
            raise UnencodableOpenWire(f"{value!r} does not fit {type(value).__name__}") from error
    elif isinstance(value, Mapping):
        _append_map(out, value, levels)
    elif isinstance(value, (list, tuple)):
        _append_list(out, value, levels)
    else:
        raise UnencodableOpenWire(f"{type(value).__name__} is no type of a property or a body's value")


def _append_map(out: bytearray, entries: Mapping[str, Value], levels: int) -> None:
    _check_depth(levels, UnencodableOpenWire)
    out += _pack_tag_and_int(_MAP, len(entries))
    for name, value in entries.items():
        out += restored_mutf8(name)
        _append(out, value, levels - 1)


def _append_list(out: bytearray, values: Sequence[Value], levels: int) -> None:
    _check_depth(levels, UnencodableOpenWire)
    out += _pack_tag_and_int(_LIST, len(values))
    for value in values:
        _append(out, value, levels - 1)


def _encode_string(text: str, encoded: bytes) -> bytes:
    # A string has at most as many UTF-16 units as bytes; counting them is only needed when it might be big.
    if len(encoded) < BIG_STRING_UNITS or len(text.encode("utf-16-be", "surrogatepass")) // 2 < BIG_STRING_UNITS:
        return _pack_tag_and_length(_STRING, len(encoded)) + encoded
    return _pack_tag_and_int(_BIG_STRING, len(encoded)) + encoded


def _encode_char(char: str) -> bytes:
    unit = char.encode("utf-16-be", "surrogatepass")
    if len(unit) != 2:
        raise UnencodableOpenWire(f"{char!r} is not one UTF-16 unit")
    return b"\x03" + unit


def _encode_int(number: int) -> bytes:
    if -0x80000000 <= number <= 0x7FFFFFFF:
        return _pack_tag_and_int(_INT, number)
    return _ENCODERS[Long](number)


def _encode_null(_: None) -> bytes:
    return b"\x00"


def _encode_text(text: str) -> bytes:
    return _encode_string(text, encode_mutf8(text))


def _encode_bytes(data: bytes) -> bytes:
    return _pack_tag_and_int(_BYTES, len(data)) + data


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): _encode_null,
    bool: partial(Struct(">B?").pack, _BOOLEAN),
    Byte: partial(BYTE_AND_BYTE.pack, _BYTE),
    Char: _encode_char,
    Short: partial(Struct(">Bh").pack, _SHORT),
    int: _encode_int,
    Long: partial(BYTE_AND_LONG.pack, _LONG),
    float: partial(Struct(">Bd").pack, _DOUBLE),
    Float: partial(Struct(">Bf").pack, _FLOAT),
    str: _encode_text,
    bytes: _encode_bytes,
}


# ---------------------------------------------------------------- reading


class _TooManyValues(MalformedOpenWire):
    """A map with more values than the limit."""


class _ValueReader(Reader):
    """Reads values up to a limit.

    Attributes:
        values_left: the number of values that may still come.
    """

    __slots__ = ("values_left",)

    def __init__(self, data: bytes, values_max: int) -> None:
        super().__init__(data)
        self.values_left = values_max

    def count(self, value_bytes_min: int) -> int:
        """Read the number of values of a map or list; -1 for Java's null map."""
        count = self.integer()
        space = self.remaining // value_bytes_min
        if not -1 <= count <= space:
            raise MalformedOpenWire(f"a map or list of {count} where {space} at most have space")
        self.values_left -= count
        if self.values_left < 0:
            raise _TooManyValues("a map or list with more values than the limit")
        return count


def _read_map(reader: _ValueReader, levels: int) -> dict[str, Value]:
    count = reader.count(_MAP_ENTRY_BYTES_MIN)
    entries: dict[str, Value] = {}
    for _ in range(count):
        name = reader.mutf8()
        entries[name] = _read_value(reader, levels)
    return entries


def _read_value(reader: _ValueReader, levels: int) -> Value:
    tag = reader.unsigned_byte()
    if tag == _STRING:
        return decode_mutf8(reader.take(reader.unsigned_short()))
    if tag >= len(_DECODERS):
        raise MalformedOpenWire(f"unknown tag {tag} of a value at offset {reader.offset - 1}")
    return _DECODERS[tag](reader, levels)


def _read_nested_map(reader: _ValueReader, levels: int) -> Value:
    _check_depth(levels, MalformedOpenWire)
    return _read_map(reader, levels - 1)


def _read_list(reader: _ValueReader, levels: int) -> Value:
    _check_depth(levels, MalformedOpenWire)
    count = _list_count(reader)
    return [_read_value(reader, levels - 1) for _ in range(count)]


def _read_big_string(reader: Reader, _: int) -> Value:
    length = reader.integer()
    return None if length == -1 else decode_mutf8(reader.take(length))


def _read_char(reader: Reader, _: int) -> Value:
    return Char(chr(reader.unpack(UNSIGNED_SHORT)[0]))


def _list_count(reader: _ValueReader) -> int:
    count = reader.count(1)
    if count < 0:
        raise MalformedOpenWire("a list of -1 values")
    return count


_DECODERS: tuple[Callable[[_ValueReader, int], Value], ...] = (
    lambda _reader, _: None,
    lambda reader, _: reader.boolean(),
    lambda reader, _: Byte(reader.byte()),
    _read_char,
    lambda reader, _: Short(reader.short()),
    lambda reader, _: reader.integer(),
    lambda reader, _: Long(reader.long()),
    lambda reader, _: cast("float", reader.unpack(DOUBLE)[0]),
    lambda reader, _: Float(reader.unpack(FLOAT)[0]),
    lambda reader, _: reader.mutf8(),
    lambda reader, _: reader.take(reader.integer()),
    _read_nested_map,
    _read_list,
    _read_big_string,
)


_WIDTHS: Final = {
    _NULL: 0, _BOOLEAN: 1, _BYTE: 1, _CHAR: 2, _SHORT: 2, _INT: 4, _LONG: 8, _DOUBLE: 8, _FLOAT: 4,
}  # fmt: skip


def _skip_map(reader: _ValueReader, levels: int) -> None:
    for _ in range(reader.count(_MAP_ENTRY_BYTES_MIN)):
        reader.take(reader.unsigned_short())
        _skip_value(reader, levels)


def _skip_value(reader: _ValueReader, levels: int) -> None:
    tag = reader.unsigned_byte()
    width = _WIDTHS.get(tag)
    if width is not None:
        reader.take(width)
    elif tag == _STRING:
        reader.take(reader.unsigned_short())
    elif tag in (_BYTES, _BIG_STRING):
        reader.take(max(reader.integer(), 0))
    elif tag in (_MAP, _LIST):
        _check_depth(levels, MalformedOpenWire)
        if tag == _MAP:
            _skip_map(reader, levels - 1)
        else:
            for _ in range(_list_count(reader)):
                _skip_value(reader, levels - 1)
    else:
        raise MalformedOpenWire(f"unknown tag {tag} of a value at offset {reader.offset - 1}")


def _check_depth(levels: int, error: type[MalformedOpenWire] | type[UnencodableOpenWire]) -> None:
    if levels == 0:
        raise error(f"maps and lists nested more than {NESTING_MAX} deep")
