"""The declarations of composite types, compiled into readers and writers.

```text
composite   0, descriptor (a ulong or a symbol), list of the fields; those at its end may be left out if they are null
```

Source: AMQP 1.0, part 1 "Types", 1.4 "Composite Type Representation".
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, make_dataclass
from operator import attrgetter
from struct import error as StructError
from typing import Any, Final

from pybroker.broker.domain.amqp.codec import (
    AmqpReader,
    append_compound,
    append_sized,
    append_string,
    append_unsigned_int,
    append_unsigned_long,
    appender,
    encode_value,
)
from pybroker.broker.domain.amqp.errors import MalformedAmqp, UnencodableAmqp
from pybroker.broker.domain.amqp.performatives import COMPOSITES
from pybroker.broker.domain.amqp.schema import SPEC, FieldSpec, FieldType
from pybroker.broker.domain.amqp.values import (
    AmqpArray,
    AmqpDescribed,
    Symbol,
)
from pybroker.broker.domain.big_endian import UNSIGNED_INT

_SMALL_ULONG: Final = 0x53
_ULONG: Final = 0x80
_NULL: Final = 0x40
_EMPTY_LIST: Final = 0x45

_TYPES: Final[dict[int, FieldType]] = {
    0x00: FieldType.DESCRIBED,
    0x41: FieldType.BOOLEAN,
    0x42: FieldType.BOOLEAN,
    0x56: FieldType.BOOLEAN,
    0x50: FieldType.UBYTE,
    0x60: FieldType.USHORT,
    0x43: FieldType.UINT,
    0x52: FieldType.UINT,
    0x70: FieldType.UINT,
    0x44: FieldType.ULONG,
    0x53: FieldType.ULONG,
    0x80: FieldType.ULONG,
    0x83: FieldType.TIMESTAMP,
    0xA0: FieldType.BINARY,
    0xB0: FieldType.BINARY,
    0xA1: FieldType.STRING,
    0xB1: FieldType.STRING,
    0xA3: FieldType.SYMBOL,
    0xB3: FieldType.SYMBOL,
    0x98: FieldType.UUID,
    0xC1: FieldType.MAP,
    0xD1: FieldType.MAP,
    0xE0: FieldType.ARRAY,
    0xF0: FieldType.ARRAY,
}
"""The type that a constructor is of."""

_INTEGERS: Final = FieldType.UBYTE | FieldType.USHORT | FieldType.UINT | FieldType.ULONG | FieldType.TIMESTAMP

# How the value behind a constructor is read in a field, or that it cannot be there.
_CONSTANTS: Final = (None, True, False, 0)
_ZERO: Final = 3
_BYTE: Final = 4
_FOUR_BYTES: Final = 5
_SHORT_TEXT: Final = 6
_SHORT_BYTES: Final = 7
_SHORT_SYMBOL: Final = 8
_OTHERWISE: Final = 9
_WRONG: Final = 10
_WAYS: Final = {
    0x41: 1, 0x42: 2, 0x43: _ZERO, 0x44: _ZERO, 0x50: _BYTE, 0x52: _BYTE, 0x53: _BYTE, 0x70: _FOUR_BYTES,
    0xA0: _SHORT_BYTES, 0xA1: _SHORT_TEXT, 0xA3: _SHORT_SYMBOL,
}  # fmt: skip


def _ways(spec: FieldSpec) -> bytes:
    """Return how a field's value is read, by its constructor."""
    is_plain = not spec.is_multiple and spec.types.bit_count() == 1
    ways = bytearray([_WRONG] * 256)
    ways[_NULL] = 0
    for code, kind in _TYPES.items():
        if kind in spec.types:
            way = _WAYS.get(code, _OTHERWISE)
            # Where several types are allowed, integers keep theirs.
            ways[code] = way if is_plain or (way >= _SHORT_TEXT and not spec.is_multiple) else _OTHERWISE
    return bytes(ways)


_new: Final[Callable[[Any], Any]] = object.__new__
_uint_at: Final = UNSIGNED_INT.unpack_from

Append = Callable[[bytearray, Any], None]
"""Appends an encoded value that is not null."""


class CompositeLayout:
    """One composite type.

    Attributes:
        declared: its class.
        name: the name of the class, for errors.
        code: its descriptor.
        group: the type of the frames that it is a performative of, 0 or 1; 2 if it is none.
        ways: how each field's value is read, by its constructor.
        head: the constructor and the descriptor, encoded.
        specs: how each field is declared.
        names: the name of each field.
        nulls: None for each field.
        mandatory: the positions of fields that are not null.
        appends: what encodes each field.
    """

    __slots__ = (
        "_assign",
        "_get",
        "appends",
        "code",
        "declared",
        "group",
        "head",
        "mandatory",
        "name",
        "names",
        "nulls",
        "specs",
        "ways",
    )

    def __init__(self, declared: type[Any]) -> None:
        self.declared = declared
        self.name: str = declared.__name__
        self.code: int = declared.DESCRIPTOR
        self.group: int = 0 if 0x10 <= self.code <= 0x18 else 1 if 0x40 <= self.code <= 0x44 else 2
        found = fields(declared)
        self.names: list[str] = [each.name for each in found]
        self.specs: list[FieldSpec] = [each.metadata[SPEC] for each in found]
        self.nulls: list[Any] = [None] * len(self.names)
        self.ways: list[bytes] = [_ways(spec) for spec in self.specs]
        self.mandatory: list[int] = [at for at, each in enumerate(found) if each.default is MISSING]
        # The constructor of a class with the same fields, all of them positional: it only assigns them, in the
        # fastest way there is, to whatever object it gets.
        self._assign: Callable[..., None] = vars(make_dataclass(self.name, self.names))["__init__"]
        self.head: bytes = bytes((0, _SMALL_ULONG, self.code))
        self._get: Callable[[Any], Any] = attrgetter(*self.names) if self.names else bool
        self.appends: list[Append] = [_append_for(spec) for spec in self.specs]

    def parts(self, value: Any) -> tuple[Any, ...]:
        """Return the fields of a value."""
        if len(self.names) > 1:
            found: tuple[Any, ...] = self._get(value)
            return found
        return (getattr(value, self.names[0]),) if self.names else ()

    def build(self, values: list[Any]) -> Any:
        """Return a new value of the type with these fields."""
        value = _new(self.declared)
        self._assign(value, *values)
        return value


def _append_for(spec: FieldSpec) -> Append:
    if spec.is_multiple:
        return _append_symbols
    return _APPENDS.get(spec.types, encode_value)


def _append_symbols(out: bytearray, value: tuple[Symbol, ...]) -> None:
    if len(value) == 1:
        encode_value(out, Symbol(value[0]))
    else:
        encode_value(out, AmqpArray([Symbol(each) for each in value], b"\xb3"))


def append_state(out: bytearray, value: Any) -> None:
    """Append a value of a composite type, or another described value. Raises `UnencodableAmqp`."""
    if isinstance(value, AmqpDescribed):
        encode_value(out, value)
    else:
        append_composite(out, value)


_APPENDS: Final[dict[FieldType, Append]] = {
    FieldType.BOOLEAN: lambda out, value: out.append(0x41 if value else 0x42),
    FieldType.UBYTE: appender(">BB", 0x50),
    FieldType.USHORT: appender(">BH", 0x60),
    FieldType.UINT: append_unsigned_int,
    FieldType.ULONG: append_unsigned_long,
    FieldType.TIMESTAMP: appender(">Bq", 0x83),
    FieldType.BINARY: lambda out, value: append_sized(out, 0xA0, value),
    FieldType.STRING: append_string,
    FieldType.SYMBOL: lambda out, value: append_sized(out, 0xA3, value.encode("ascii")),
    FieldType.DESCRIBED: append_state,
}


_LAYOUTS: Final = [CompositeLayout(each) for each in COMPOSITES]
BY_CODE: Final[dict[int, CompositeLayout]] = {layout.code: layout for layout in _LAYOUTS}
BY_NAME: Final[dict[str, CompositeLayout]] = {layout.declared.NAME: layout for layout in _LAYOUTS}
BY_TYPE: Final[dict[type, CompositeLayout]] = {layout.declared: layout for layout in _LAYOUTS}


# ---------------------------------------------------------------- reading


def read_composite(reader: AmqpReader) -> Any:
    """Read a value of a composite type.

    Raises:
        MalformedAmqp: there is none, or none that AMQP defines, or its fields are not what they should be.
    """
    start = reader.offset
    layout = read_descriptor(reader)
    if layout is None:
        raise MalformedAmqp(f"the described value at offset {start} is of no type of AMQP")
    return read_fields(reader, layout)


def read_descriptor(reader: AmqpReader) -> CompositeLayout | None:
    """Read the constructor 0 and a descriptor; return None for a descriptor that AMQP does not define.

    Raises:
        MalformedAmqp: there is no described value.
    """
    data = reader.data
    offset = reader.offset
    end = reader.end
    if offset + 3 > end or data[offset]:
        raise MalformedAmqp(f"no described value at offset {offset}")
    if data[offset + 1] == _SMALL_ULONG:
        reader.offset = offset + 3
        return BY_CODE.get(data[offset + 2])
    reader.offset = offset + 1
    descriptor = reader.value()
    if isinstance(descriptor, Symbol):
        return BY_NAME.get(descriptor)
    return BY_CODE.get(descriptor) if type(descriptor) is not bool and isinstance(descriptor, int) else None


def read_fields(reader: AmqpReader, layout: CompositeLayout) -> Any:
    """Read the list of a composite type's fields, which follows its descriptor.

    Raises:
        MalformedAmqp: there is no list, a field is of another type, or a mandatory one is missing.
    """
    data, offset, end = reader.data, reader.offset, reader.end
    values: list[Any] = []
    stop = count = 0
    try:
        code = data[offset]
        if code == 0xC0:
            stop = offset + 2 + data[offset + 1]
            count = data[offset + 2]
            offset += 3
        elif code == _EMPTY_LIST:
            stop = offset = offset + 1
            if offset <= end and not layout.mandatory:
                reader.offset = offset
                return layout.build(layout.nulls)  # as most outcomes
        elif code == 0xD0:
            stop = offset + 5 + int.from_bytes(data[offset + 1 : offset + 5], "big")
            count = int.from_bytes(data[offset + 5 : offset + 9], "big")
            offset += 9
        else:
            raise MalformedAmqp(f"{layout.name} at offset {offset} is no list")
        if stop > end or offset > stop:
            raise MalformedAmqp(f"the bytes end within {layout.name}")
        ways = layout.ways
        if count > len(ways):
            raise MalformedAmqp(f"{layout.name} has {count} fields: there are {len(ways)}")
        # Whether a value ends within the list is checked once, at the end: what follows is there, but not used.
        for table in ways[:count]:
            code = data[offset]
            offset += 1
            way = table[code]
            if way <= _ZERO:
                values.append(_CONSTANTS[way])
            elif way == _BYTE:
                values.append(data[offset])
                offset += 1
            elif way == _FOUR_BYTES:
                values.append(_uint_at(data, offset)[0])
                offset += 4
            elif way <= _SHORT_SYMBOL:
                start = offset + 1
                offset = start + data[offset]
                part = data[start:offset]
                if way == _SHORT_BYTES:
                    values.append(part)
                else:
                    values.append(part.decode() if way == _SHORT_TEXT else Symbol(part.decode("ascii")))
            else:
                reader.offset = offset - 1
                reader.end = stop
                values.append(_read_other(reader, layout, len(values), code))
                reader.end = end
                offset = reader.offset
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise MalformedAmqp(f"{layout.name} is cut short, or has a text that is none") from error
    if offset != stop:
        raise MalformedAmqp(f"{layout.name} ends at offset {offset}, not at {stop} as its size says")
    reader.offset = offset
    if count < len(ways):
        values += layout.nulls[count:]
    for at in layout.mandatory:
        if values[at] is None:
            raise MalformedAmqp(f"{layout.name} has no {layout.names[at]}")
    return layout.build(values)


def _read_other(reader: AmqpReader, layout: CompositeLayout, at: int, code: int) -> Any:
    """Read the value of a field that takes more than a step."""
    spec = layout.specs[at]
    if layout.ways[at][code] == _WRONG:
        raise MalformedAmqp(f"{layout.name}.{layout.names[at]} cannot have a value with the constructor {code:#04x}")
    if code:
        value: Any = reader.value()
        if spec.is_multiple:
            return _symbols(value)
        return int(value) if spec.types in _INTEGERS else value
    start = reader.offset
    known = read_descriptor(reader)
    if known is not None and known.name in spec.classes:
        return read_fields(reader, known)
    if (known is not None and spec.classes) or not spec.is_open:
        raise MalformedAmqp(f"the value at offset {start} is none of {', '.join(spec.classes)}")
    reader.offset = start
    return reader.value()


def _symbols(value: Any) -> tuple[Symbol, ...]:
    if isinstance(value, Symbol):
        return (value,)
    assert isinstance(value, AmqpArray), "by the type of its constructor"
    found = tuple([each for each in value if isinstance(each, Symbol)])
    if len(found) < len(value):
        raise MalformedAmqp("an array of symbols has other values")
    return found


# ---------------------------------------------------------------- writing


def append_composite(out: bytearray, value: object) -> None:
    """Append a value of a composite type.

    Raises:
        UnencodableAmqp: a field does not fit its type.
    """
    layout = BY_TYPE.get(type(value))
    if layout is None:
        raise UnencodableAmqp(f"{type(value).__name__} is no composite type")
    append_fields(out, layout, value)


def append_fields(out: bytearray, layout: CompositeLayout, value: Any) -> None:
    """Append a value of a composite type whose layout is known. Raises `UnencodableAmqp` as `append_composite` does."""
    content = bytearray()
    count = ended = stop = 0
    parts = layout.parts(value)
    try:
        for append, part in zip(layout.appends, parts, strict=True):
            count += 1
            if part is None:
                content.append(_NULL)
            else:
                append(content, part)
                ended = count
                stop = len(content)
    except (StructError, OverflowError, ValueError, AttributeError, TypeError) as error:
        raise UnencodableAmqp(f"{layout.name}.{layout.names[count - 1]} cannot be encoded: {error}") from error
    for at in layout.mandatory:
        if parts[at] is None:
            raise UnencodableAmqp(f"{layout.name} has no {layout.names[at]}")
    out += layout.head
    if ended:
        del content[stop:]
        append_compound(out, 0xC0, ended, content)
    else:
        out.append(_EMPTY_LIST)
