"""Bytes to AMQP's values, and values to bytes.

Source: AMQP 1.0, part 1 "Types", 1.2 to 1.6. Integers are big-endian. The upper four bits of a constructor say how much
follows; a described value has the constructor 0, a descriptor, and the value.

```text
4. nothing        5. 1 byte    6. 2 bytes    7. 4 bytes    8. 8 bytes    9. 16 bytes
a. u8 size, bytes                            b. u32 size, bytes
c. u8 size, u8 count, values                 d. u32 size, u32 count, values           a size includes the count
e. u8 size, u8 count, constructor, bodies    f. u32 size, u32 count, constructor, bodies
```
"""

import uuid
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any, Final, cast

from pybroker.broker.domain.amqp.errors import MalformedAmqp, TooManyAmqpValues, UnencodableAmqp
from pybroker.broker.domain.amqp.values import (
    AmqpArray,
    AmqpDecimal,
    AmqpDescribed,
    AmqpValue,
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
from pybroker.broker.domain.big_endian import (
    BYTE,
    BYTE_AND_BYTE,
    BYTE_AND_INT,
    BYTE_AND_LONG,
    BYTE_AND_TWO_UNSIGNED_INTS,
    BYTE_AND_UNSIGNED_INT,
    BYTE_AND_UNSIGNED_LONG,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    UNSIGNED_INT,
    UNSIGNED_LONG,
    UNSIGNED_SHORT,
)

NESTING_MAX: Final = 32
"""Lists, maps, arrays and described values inside one another; deeper ones only serve to exhaust the stack."""

VALUES_MAX: Final = 100_000
"""Values that are decoded of one frame or message, those in lists, maps and arrays included. An empty list takes one
byte and becomes an object of 56. To decode so many takes some 30 ms."""

_REMEMBERED: Final = 1024
"""Symbols that are kept, because the same ones come with message after message."""
_REMEMBERED_BYTES: Final = 64
"""Longer ones are not kept."""

_BYTELESS_COST: Final = 8
"""The values that an element of an array counts as if it takes no byte."""

_SHORT_TEXTS: Final = (0xA1, 0xA3)
_DESCRIBED: Final = 0x00
_WIDTHS: Final = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16)
"""Bytes behind a constructor, by its upper four bits."""
_NULL: Final = 0x40


class AmqpReader:
    """Reads values from bytes, one after the other. Each method raises `MalformedAmqp` if the bytes are no value.

    Attributes:
        data: the bytes, of which it makes no copy.
        offset: where the next value begins.
        end: where the bytes that belong to the values end.
        values_left: the number of values in lists, maps and arrays that may still come.
    """

    __slots__ = ("_levels", "data", "end", "offset", "values_left")

    def __init__(self, data: bytes, offset: int, end: int) -> None:
        self.restart(data, offset, end)

    def restart(self, data: bytes, offset: int, end: int) -> None:
        """Read other bytes, with all limits as at the beginning."""
        self.data = data
        self.offset = offset
        self.end = end
        self.values_left = VALUES_MAX
        self._levels = NESTING_MAX

    def value(self) -> AmqpValue:
        """Read a value."""
        offset = self.offset
        if offset >= self.end:
            raise _cut_short(offset)
        self.offset = offset + 1
        value: AmqpValue = _BODIES[self.data[offset]](self)
        return value

    def body(self, code: int) -> AmqpValue:
        """Read what follows a constructor, which is an element of an array, or a value."""
        value: AmqpValue = _BODIES[code](self)
        return value

    def skip(self) -> None:
        """Go over a value, decoding nothing of it but its size."""
        data, end = self.data, self.end
        while True:
            offset = self.offset
            if offset >= end:
                raise _cut_short(offset)
            code = data[offset]
            self.offset = offset + 1
            if code != _DESCRIBED:
                break
            self._enter()
            self.skip()
            self._levels += 1
        width = code >> 4
        if width < 4:
            raise MalformedAmqp(f"{code:#04x} at offset {offset} is no constructor of a value")
        if width >= 0xA:
            size_bytes = 4 if width & 1 else 1
            start = offset + 1 + size_bytes
            stop = start + int.from_bytes(data[offset + 1 : start], "big")
        else:
            stop = offset + 1 + _WIDTHS[width]
        if stop > end:
            raise _cut_short(offset)
        self.offset = stop

    def byte(self) -> int:
        """Read one byte, 0 to 255."""
        offset = self.offset
        if offset >= self.end:
            raise _cut_short(offset)
        self.offset = offset + 1
        return self.data[offset]

    def unsigned(self, size: int) -> int:
        """Read an integer of that many bytes."""
        return int.from_bytes(self.take(size), "big")

    def take(self, size: int) -> bytes:
        """Read that many bytes."""
        start = self.offset
        stop = start + size
        if stop > self.end:
            raise _cut_short(start)
        self.offset = stop
        return self.data[start:stop]

    def unpack(self, layout: Struct) -> Any:
        """Read a number."""
        start = self.offset
        stop = start + layout.size
        if stop > self.end:
            raise _cut_short(start)
        self.offset = stop
        return layout.unpack_from(self.data, start)[0]

    def listed(self, size_bytes: int) -> list[AmqpValue]:
        """Read the body of a list whose size and count have so many bytes."""
        stop, count = self._compound(size_bytes)
        outer = self.end
        self.end = stop
        self._enter()
        found = [self.value() for _ in range(count)]
        self._leave(stop, outer)
        return found

    def mapped(self, size_bytes: int) -> dict[AmqpValue, AmqpValue]:
        """Read the body of a map whose size and count have so many bytes."""
        stop, count = self._compound(size_bytes)
        if count & 1:
            raise MalformedAmqp(f"a map of {count} keys and values at offset {self.offset}: one is missing")
        outer = self.end
        self.end = stop
        self._enter()
        data = self.data
        found: dict[AmqpValue, AmqpValue] = {}
        for _ in range(count >> 1):
            offset = self.offset
            code = data[offset] if offset + 1 < stop else _NULL
            key: AmqpValue
            if code in _SHORT_TEXTS:
                start = offset + 2
                at = start + data[offset + 1]
                if at >= stop:
                    raise _cut_short(offset)
                self.offset = at
                key = _symbol(data[start:at], at) if code == 0xA3 else _text(data[start:at], at)
            else:
                key = self.value()
                if type(key) is uuid.UUID:
                    key = UuidKey(int=key.int)
            try:
                found[key] = self.value()
            except TypeError as error:
                raise MalformedAmqp(f"a map at offset {stop} has a list, a map or a described value as key") from error
        if len(found) != count >> 1:
            raise MalformedAmqp(f"a map that ends at offset {stop} has two equal keys")
        self._leave(stop, outer)
        return found

    def array(self, size_bytes: int) -> AmqpArray:
        """Read the body of an array whose size and count have so many bytes."""
        start = self.offset
        stop = start + size_bytes + self.unsigned(size_bytes)
        count = self.unsigned(size_bytes)
        if not self.offset < stop <= self.end:
            raise _cut_short(start)
        outer = self.end
        self.end = stop
        self._enter()
        at = self.offset
        descriptors: list[AmqpValue] = []
        while not (code := self.unsigned(1)):
            if len(descriptors) == NESTING_MAX:
                raise _too_deep()
            descriptors.append(self.value())
        constructor = self.data[at : self.offset]
        if _BODIES[code] is _unknown:
            _unknown(self)
        if code >> 4 != 4:
            if count > stop - self.offset:
                raise _cut_short(start)
            self._count(count)
        else:  # elements without a byte: a few bytes make as many of them as they like
            self._count(_BYTELESS_COST * count)
        found = AmqpArray([self.body(code) for _ in range(count)], constructor)
        for descriptor in reversed(descriptors):
            found[:] = [AmqpDescribed(descriptor, value) for value in found]
        self._leave(stop, outer)
        return found

    def described(self) -> AmqpDescribed:
        """Read the descriptor and the value that follow the constructor 0."""
        self._enter()
        descriptor = self.value()
        value = self.value()
        self._levels += 1
        return AmqpDescribed(descriptor, value)

    def _compound(self, size_bytes: int) -> tuple[int, int]:
        """Read size and count of a list or map; return where it ends, and the count."""
        data, start = self.data, self.offset
        offset = start + size_bytes
        at = offset + size_bytes
        if at > self.end:
            raise _cut_short(start)
        if size_bytes == 1:
            size, count = data[start], data[offset]
        else:
            size, count = int.from_bytes(data[start:offset], "big"), int.from_bytes(data[offset:at], "big")
        stop = offset + size
        if stop > self.end or count > size - size_bytes:
            raise _cut_short(start)
        self.offset = at
        self._count(count)
        return stop, count

    def _count(self, count: int) -> None:
        self.values_left -= count
        if self.values_left < 0:
            raise TooManyAmqpValues(f"more than {VALUES_MAX} values in lists, maps and arrays")

    def _enter(self) -> None:
        self._levels -= 1
        if self._levels < 0:
            raise _too_deep()

    def _leave(self, stop: int, outer: int) -> None:
        if self.offset != stop:
            raise MalformedAmqp(f"a list, map or array does not end at offset {stop}, as its size says")
        self.end = outer
        self._levels += 1


def decode_value(data: bytes, offset: int, end: int) -> tuple[AmqpValue, int]:
    """Decode a value.

    Args:
        data: bytes that contain it.
        offset: where it begins.
        end: where it must have ended.

    Returns:
        The value, and the offset behind it.

    Raises:
        MalformedAmqp: the bytes are no value, or end within it, or it has more values or levels than the limit.
    """
    reader = AmqpReader(data, offset, end)
    return reader.value(), reader.offset


def encode_value(out: bytearray, value: object) -> None:
    """Append a value in its shortest form.

    Raises:
        UnencodableAmqp: AMQP has no type for it, it does not fit its type, or it has too many levels.
    """
    _append(out, value, NESTING_MAX)


# ---------------------------------------------------------------- reading


def _cut_short(offset: int) -> MalformedAmqp:
    return MalformedAmqp(f"the bytes end within the value at offset {offset}")


def _too_deep() -> TooManyAmqpValues:
    return TooManyAmqpValues(f"values nested more than {NESTING_MAX} deep")


def _boolean(reader: AmqpReader) -> bool:
    byte = reader.byte()
    if byte > 1:
        raise MalformedAmqp(f"a boolean at offset {reader.offset - 1} is {byte:#04x}")
    return byte == 1


def _char(reader: AmqpReader) -> Char:
    code_point: int = reader.unpack(UNSIGNED_INT)
    if code_point > 0x10FFFF:
        raise MalformedAmqp(f"a char at offset {reader.offset - 4} is {code_point:#x}, which is no character")
    return Char(chr(code_point))


def _text(data: bytes, offset: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedAmqp(f"a string that ends at offset {offset} is no UTF-8") from error


def _symbol(data: bytes, offset: int) -> Symbol:
    if len(data) <= _REMEMBERED_BYTES:
        return _repeating_symbol(data)
    return Symbol(_ascii(data, offset))


def _ascii(data: bytes, offset: int) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError as error:
        raise MalformedAmqp(f"a symbol that ends at offset {offset} is no ASCII") from error


@lru_cache(_REMEMBERED)
def _repeating_symbol(data: bytes) -> Symbol:
    return Symbol(_ascii(data, len(data)))


def _small(reader: AmqpReader) -> bytes:
    """Read bytes whose size is a byte."""
    data, end = reader.data, reader.end
    start = reader.offset + 1
    stop = start + data[start - 1] if start <= end else start
    if stop > end:
        raise _cut_short(start - 1)
    reader.offset = stop
    return data[start:stop]


def _large(reader: AmqpReader) -> bytes:
    """Read bytes whose size has four bytes."""
    return reader.take(reader.unsigned(4))


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _unknown(reader: AmqpReader) -> AmqpValue:
    at = reader.offset - 1
    raise MalformedAmqp(f"{reader.data[at]:#04x} at offset {at} is no constructor of a value")


_BodyReader = Callable[[AmqpReader], Any]
_BODY_READERS: Final[dict[int, _BodyReader]] = {
    _DESCRIBED: AmqpReader.described,
    _NULL: lambda _: None,
    0x41: lambda _: True,
    0x42: lambda _: False,
    0x43: lambda _: UnsignedInt(0),
    0x44: lambda _: UnsignedLong(0),
    0x45: lambda _: [],
    0x50: lambda reader: UnsignedByte(reader.byte()),
    0x51: lambda reader: Byte(_signed(reader.byte())),
    0x52: lambda reader: UnsignedInt(reader.byte()),
    0x53: lambda reader: UnsignedLong(reader.byte()),
    0x54: lambda reader: _signed(reader.byte()),
    0x55: lambda reader: Long(_signed(reader.byte())),
    0x56: _boolean,
    0x60: lambda reader: UnsignedShort(reader.unpack(UNSIGNED_SHORT)),
    0x61: lambda reader: Short(reader.unpack(SHORT)),
    0x70: lambda reader: UnsignedInt(reader.unpack(UNSIGNED_INT)),
    0x71: lambda reader: reader.unpack(INT),
    0x72: lambda reader: Float(reader.unpack(FLOAT)),
    0x73: _char,
    0x74: lambda reader: AmqpDecimal(reader.take(4)),
    0x80: lambda reader: UnsignedLong(reader.unpack(UNSIGNED_LONG)),
    0x81: lambda reader: Long(reader.unpack(LONG)),
    0x82: lambda reader: reader.unpack(DOUBLE),
    0x83: lambda reader: Timestamp(reader.unpack(LONG)),
    0x84: lambda reader: AmqpDecimal(reader.take(8)),
    0x94: lambda reader: AmqpDecimal(reader.take(16)),
    0x98: lambda reader: uuid.UUID(bytes=reader.take(16)),
    0xA0: _small,
    0xA1: lambda reader: _text(_small(reader), reader.offset),
    0xA3: lambda reader: _symbol(_small(reader), reader.offset),
    0xB0: _large,
    0xB1: lambda reader: _text(_large(reader), reader.offset),
    0xB3: lambda reader: _symbol(_large(reader), reader.offset),
    0xC0: lambda reader: reader.listed(1),
    0xC1: lambda reader: reader.mapped(1),
    0xD0: lambda reader: reader.listed(4),
    0xD1: lambda reader: reader.mapped(4),
    0xE0: lambda reader: reader.array(1),
    0xF0: lambda reader: reader.array(4),
}
_BODIES: Final[list[_BodyReader]] = [_BODY_READERS.get(code, _unknown) for code in range(256)]


# ---------------------------------------------------------------- writing


def append_sized(out: bytearray, small: int, data: bytes) -> None:
    """Append bytes behind their constructor and size.

    Args:
        out: what they are appended to.
        small: the constructor for 255 bytes at most: 0xa0 for binary, 0xa1 for a string, 0xa3 for a symbol.
        data: the bytes.
    """
    size = len(data)
    if size < 256:
        out.append(small)
        out.append(size)
    else:
        out += _pack_unsigned_int(small + 0x10, size)
    out += data


def append_string(out: bytearray, value: str) -> None:
    """Append a string. A surrogate, which UTF-8 has not, becomes a question mark."""
    data = value.encode(errors="replace")
    size = len(data)
    if size < 256:
        out.append(0xA1)
        out.append(size)
    else:
        out += _pack_unsigned_int(0xB1, size)
    out += data


def append_compound(out: bytearray, small: int, count: int, content: bytes | bytearray) -> None:
    """Append the encoded values of a list (`small` is 0xc0) or map (0xc1) behind constructor, size and count."""
    size = len(content)
    if size < 255 and count < 256:
        out.append(small)
        out.append(size + 1)
        out.append(count)
    else:
        out += _pack_byte_and_two_sizes(small + 0x10, size + 4, count)
    out += content


def _append(out: bytearray, value: object, levels: int) -> None:
    kind = type(value)
    encode = _ENCODERS.get(kind)
    if encode is not None:
        try:
            encode(out, value)
        except (StructError, OverflowError, ValueError) as error:
            raise UnencodableAmqp(f"{value!r} does not fit {kind.__name__}") from error
        return
    if levels == 0:
        raise UnencodableAmqp(f"values nested more than {NESTING_MAX} deep")
    if isinstance(value, AmqpArray):
        _append_array(out, value, levels)
    elif isinstance(value, (dict, list, tuple)):
        items = _items(value)
        if not items and not isinstance(value, dict):
            out.append(0x45)
            return
        content = bytearray()
        for item in items:
            _append(content, item, levels - 1)
        append_compound(out, 0xC1 if isinstance(value, dict) else 0xC0, len(items), content)
    elif isinstance(value, AmqpDescribed):
        out.append(_DESCRIBED)
        _append(out, value.descriptor, levels - 1)
        _append(out, value.value, levels - 1)
    else:
        raise UnencodableAmqp(f"AMQP has no type for {kind.__name__}")


def _items(value: Any) -> list[object]:
    """Return the values of a list, or the keys and values of a map in turn."""
    if not isinstance(value, dict):
        return list(value)
    entries = cast("dict[object, object]", value)
    items: list[object] = []
    for key, item in entries.items():
        items.append(key)
        items.append(item)
    return items


def _append_array(out: bytearray, array: AmqpArray, levels: int) -> None:
    if array:
        content = bytearray()
        elements: list[Any] = list(array)
        while isinstance(elements[0], AmqpDescribed):
            content.append(_DESCRIBED)
            _append(content, elements[0].descriptor, levels - 1)
            if any(
                not isinstance(each, AmqpDescribed) or each.descriptor != elements[0].descriptor for each in elements
            ):
                raise UnencodableAmqp("the elements of an array are described differently")
            elements = [each.value for each in elements]
        if any(type(each) is not type(elements[0]) for each in elements):
            raise UnencodableAmqp("the elements of an array are of several types")
        _append_bodies(content, elements, levels)
    else:
        content = bytearray(array.constructor)
    size = len(content)
    if size < 255 and len(array) < 256:
        out += bytes((0xE0, size + 1, len(array)))
    else:
        out += _pack_byte_and_two_sizes(0xF0, size + 4, len(array))
    out += content


def _append_bodies(content: bytearray, elements: list[Any], levels: int) -> None:
    """Append the constructor of an array's elements, in the widest form of their type, and their bodies."""
    code = _array_code(elements[0])
    if code == _INT and any(not -0x80000000 <= each <= 0x7FFFFFFF for each in elements):
        code = _LONG
    if isinstance(elements[0], AmqpDecimal) and len({each.width for each in elements}) > 1:
        raise UnencodableAmqp("an array has decimals of several widths")
    content.append(code)
    body = _WIDE_BODIES[code]
    try:
        for each in elements:
            content += body(each, levels - 1)
    except (StructError, OverflowError, ValueError) as error:
        raise UnencodableAmqp(f"an array has a value that does not fit {type(elements[0]).__name__}") from error


def _array_code(element: object) -> int:
    """Return the constructor for the type of an array's elements."""
    kind = type(element)
    code = _ARRAY_CODES.get(kind)
    if code is not None:
        return code
    if isinstance(element, AmqpDecimal):
        return _decimal_code(element)
    if isinstance(element, dict):
        return 0xD1
    if isinstance(element, AmqpArray):
        return 0xF0
    if isinstance(element, (list, tuple)):
        return 0xD0
    raise UnencodableAmqp(f"AMQP has no type for {kind.__name__}")


def _decimal_code(value: AmqpDecimal) -> int:
    try:
        return {4: 0x74, 8: 0x84, 16: 0x94}[len(value.data)]
    except KeyError:
        raise UnencodableAmqp(f"a decimal of {len(value.data)} bytes") from None


def _wide_body(value: Any, levels: int) -> bytes:
    """Encode a list, map or array in the form with 32-bit sizes, without its constructor."""
    if levels == 0:
        raise UnencodableAmqp(f"values nested more than {NESTING_MAX} deep")
    content = bytearray()
    if isinstance(value, AmqpArray):
        _append_array(content, value, levels)
        return bytes(content[1:] if content[0] == 0xF0 else _pack_two_sizes(content[1] + 3, content[2]) + content[3:])
    items = _items(value)
    for item in items:
        _append(content, item, levels - 1)
    return _pack_two_sizes(len(content) + 4, len(items)) + content


def _sized(data: bytes) -> bytes:
    return _pack_size(len(data)) + data


def _append_int(out: bytearray, value: int) -> None:
    if -0x80 <= value <= 0x7F:
        out += _pack_small(0x54, value)
    elif -0x80000000 <= value <= 0x7FFFFFFF:
        out += _pack_int(_INT, value)
    else:
        out += _pack_long(_LONG, value)


def _append_long(out: bytearray, value: int) -> None:
    out += _pack_small(0x55, value) if -0x80 <= value <= 0x7F else _pack_long(_LONG, value)


def append_unsigned_int(out: bytearray, value: int) -> None:
    """Append a uint in its shortest form. Raises `struct.error` if it does not fit."""
    if value == 0:
        out.append(0x43)
    elif 0 < value < 256:
        out.append(0x52)
        out.append(value)
    else:
        out += _pack_unsigned_int(0x70, value)


def append_unsigned_long(out: bytearray, value: int) -> None:
    """Append a ulong in its shortest form. Raises `struct.error` if it does not fit."""
    if value == 0:
        out.append(0x44)
    elif 0 < value < 256:
        out.append(0x53)
        out.append(value)
    else:
        out += _pack_unsigned_long(0x80, value)


def _append_decimal(out: bytearray, value: AmqpDecimal) -> None:
    out.append(_decimal_code(value))
    out += value.data


def _code_point(value: Char) -> int:
    if len(value) != 1:
        raise ValueError(f"{len(value)} characters")
    return ord(value)


def _append_uuid(out: bytearray, value: uuid.UUID) -> None:
    out.append(0x98)
    out += value.bytes


def appender(layout: str, code: int) -> Callable[[bytearray, Any], None]:
    """Return what appends a number of fixed width behind its constructor, or raises `struct.error`."""
    pack = Struct(layout).pack

    def append(out: bytearray, value: Any) -> None:
        out += pack(code, value)

    return append


def _packed(layout: Struct) -> Callable[[Any, int], bytes]:
    pack = layout.pack
    return lambda value, _: pack(value)


_INT: Final = 0x71
_LONG: Final = 0x81
_pack_byte_and_two_sizes: Final = BYTE_AND_TWO_UNSIGNED_INTS.pack
_pack_two_sizes: Final = Struct(">II").pack
_pack_size: Final = UNSIGNED_INT.pack
_pack_small: Final = BYTE_AND_BYTE.pack
_pack_int: Final = BYTE_AND_INT.pack
_pack_long: Final = BYTE_AND_LONG.pack
_pack_unsigned_int: Final = BYTE_AND_UNSIGNED_INT.pack
_pack_unsigned_long: Final = BYTE_AND_UNSIGNED_LONG.pack

_ENCODERS: Final[dict[type, Callable[[bytearray, Any], None]]] = {
    type(None): lambda out, _: out.append(_NULL),
    bool: lambda out, value: out.append(0x41 if value else 0x42),
    UnsignedByte: appender(">BB", 0x50),
    UnsignedShort: appender(">BH", 0x60),
    UnsignedInt: append_unsigned_int,
    UnsignedLong: append_unsigned_long,
    Byte: appender(">Bb", 0x51),
    Short: appender(">Bh", 0x61),
    int: _append_int,
    Long: _append_long,
    Float: appender(">Bf", 0x72),
    float: appender(">Bd", 0x82),
    AmqpDecimal: _append_decimal,
    Char: lambda out, value: out.extend(_pack_unsigned_int(0x73, _code_point(value))),
    Timestamp: appender(">Bq", 0x83),
    uuid.UUID: _append_uuid,
    UuidKey: _append_uuid,
    bytes: lambda out, value: append_sized(out, 0xA0, value),
    bytearray: lambda out, value: append_sized(out, 0xA0, bytes(value)),
    memoryview: lambda out, value: append_sized(out, 0xA0, bytes(value)),
    str: append_string,
    Symbol: lambda out, value: append_sized(out, 0xA3, value.encode("ascii")),
}
_ARRAY_CODES: Final[dict[type, int]] = {
    type(None): _NULL,
    bool: 0x56,
    UnsignedByte: 0x50,
    UnsignedShort: 0x60,
    UnsignedInt: 0x70,
    UnsignedLong: 0x80,
    Byte: 0x51,
    Short: 0x61,
    int: _INT,
    Long: _LONG,
    Float: 0x72,
    float: 0x82,
    Char: 0x73,
    Timestamp: 0x83,
    uuid.UUID: 0x98,
    UuidKey: 0x98,
    bytes: 0xB0,
    str: 0xB1,
    Symbol: 0xB3,
}
_WIDE_BODIES: Final[dict[int, Callable[[Any, int], bytes]]] = {
    _NULL: lambda _value, _levels: b"",
    0x50: _packed(Struct(">B")),
    0x51: _packed(BYTE),
    0x56: lambda value, _: b"\1" if value else b"\0",
    0x60: _packed(UNSIGNED_SHORT),
    0x61: _packed(SHORT),
    0x70: _packed(UNSIGNED_INT),
    _INT: _packed(INT),
    0x72: _packed(FLOAT),
    0x73: lambda value, _: _pack_size(_code_point(value)),
    0x74: lambda value, _: value.data,
    0x80: _packed(UNSIGNED_LONG),
    _LONG: _packed(LONG),
    0x82: _packed(DOUBLE),
    0x83: _packed(LONG),
    0x84: lambda value, _: value.data,
    0x94: lambda value, _: value.data,
    0x98: lambda value, _: value.bytes,
    0xB0: lambda value, _: _sized(value),
    0xB1: lambda value, _: _sized(value.encode(errors="replace")),
    0xB3: lambda value, _: _sized(value.encode("ascii")),
    0xD0: _wide_body,
    0xD1: _wide_body,
    0xF0: _wide_body,
}
