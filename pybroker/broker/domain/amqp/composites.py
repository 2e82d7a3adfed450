"""The declarations of composite types, compiled into readers and writers.

```text
composite   0, descriptor (a ulong or a symbol), list of the fields; those at its end may be left out if they are null
```

Source: AMQP 1.0, part 1 "Types", 1.4 "Composite Type Representation".
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from struct import error as StructError
from typing import Any, Final

from pybroker.broker.domain.amqp.codec import (
    AmqpReader,
    append_compound,
    append_sized,
    append_unsigned_int,
    append_unsigned_long,
    encode_value,
)
from pybroker.broker.domain.amqp.errors import MalformedAmqp, UnencodableAmqp
from pybroker.broker.domain.amqp.performatives import COMPOSITES
from pybroker.broker.domain.amqp.schema import SPEC, FieldSpec, FieldType
from pybroker.broker.domain.amqp.values import (
    AmqpArray,
    AmqpDescribed,
    Symbol,
    Timestamp,
    UnsignedByte,
    UnsignedShort,
)

_SMALL_ULONG: Final = 0x53
_ULONG: Final = 0x80
_NULL: Final = 0x40

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
_TYPE_BITS: Final[list[int]] = [int(_TYPES.get(code, FieldType.OTHER)) for code in range(256)]

_INTEGERS: Final = int(FieldType.UBYTE | FieldType.USHORT | FieldType.UINT | FieldType.ULONG | FieldType.TIMESTAMP)
_new: Final[Callable[[Any], Any]] = object.__new__

Append = Callable[[bytearray, Any], None]
"""Appends an encoded value that is not null."""


class CompositeLayout:
    """One composite type.

    Attributes:
        declared: its class.
        name: the name of the class, for errors.
        code: its descriptor.
        group: the type of the frames that it is a performative of, 0 or 1; 2 if it is none.
        types: the bits of `FieldType` for each field.
        specs: how each field is declared.
        names: the name of each field.
        mandatory: the positions of fields that are not null.
        needed: the number of fields up to the last of those.
        setters: what sets each field of a new value.
        appends: what encodes each field.
    """

    __slots__ = (
        "appends",
        "code",
        "declared",
        "group",
        "mandatory",
        "name",
        "names",
        "needed",
        "setters",
        "specs",
        "types",
    )

    def __init__(self, declared: type[Any]) -> None:
        self.declared = declared
        self.name: str = declared.__name__
        self.code: int = declared.DESCRIPTOR
        self.group: int = 0 if 0x10 <= self.code <= 0x18 else 1 if 0x40 <= self.code <= 0x44 else 2
        found = fields(declared)
        self.names: list[str] = [each.name for each in found]
        self.specs: list[FieldSpec] = [each.metadata[SPEC] for each in found]
        self.types: list[int] = [_plain_types(spec) for spec in self.specs]
        self.mandatory: list[int] = [at for at, each in enumerate(found) if each.default is MISSING]
        self.needed: int = self.mandatory[-1] + 1 if self.mandatory else 0
        self.setters: list[Callable[[Any, Any], None]] = [getattr(declared, name).__set__ for name in self.names]
        self.appends: list[Append] = [_append_for(spec) for spec in self.specs]

    def build(self, values: list[Any]) -> Any:
        """Return a new value of the type with these fields."""
        value = _new(self.declared)
        for setter, field in zip(self.setters, values, strict=True):
            setter(value, field)
        return value


_WIDE: Final = 1 << 20
"""Bit of a field that several types may have, whose integers keep their type."""


def _plain_types(spec: FieldSpec) -> int:
    bits = int(spec.types)
    return bits | _WIDE if spec.is_multiple or bits & (bits - 1) else bits


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
    FieldType.UBYTE: lambda out, value: encode_value(out, UnsignedByte(value)),
    FieldType.USHORT: lambda out, value: encode_value(out, UnsignedShort(value)),
    FieldType.UINT: append_unsigned_int,
    FieldType.ULONG: append_unsigned_long,
    FieldType.TIMESTAMP: lambda out, value: encode_value(out, Timestamp(value)),
    FieldType.BINARY: lambda out, value: append_sized(out, 0xA0, value),
    FieldType.STRING: lambda out, value: append_sized(out, 0xA1, value.encode(errors="replace")),
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
    return layout.build(_field_values(reader, layout))


def _field_values(reader: AmqpReader, layout: CompositeLayout) -> list[Any]:
    data = reader.data
    offset = reader.offset
    end = reader.end
    values: list[Any] = []
    try:
        code = data[offset]
        if code == 0xC0:
            stop = offset + 2 + data[offset + 1]
            count = data[offset + 2]
            offset += 3
        elif code == 0x45:
            stop = offset = offset + 1
            count = 0
        elif code == 0xD0:
            stop = offset + 5 + int.from_bytes(data[offset + 1 : offset + 5], "big")
            count = int.from_bytes(data[offset + 5 : offset + 9], "big")
            offset += 9
        else:
            raise MalformedAmqp(f"{layout.name} at offset {offset} is no list")
        if stop > end or offset > stop:
            raise MalformedAmqp(f"the bytes end within {layout.name}")
        types = layout.types
        if count > len(types):
            raise MalformedAmqp(f"{layout.name} has {count} fields: there are {len(types)}")
        # Whether a value ends within the list is checked once, at the end: what follows is there, but not used.
        for at in range(count):
            code = data[offset]
            offset += 1
            if code == _NULL:
                values.append(None)
                continue
            allowed = types[at]
            if not _TYPE_BITS[code] & allowed:
                raise _wrong_type(layout, at, code)
            high = code >> 4
            if high == 4 and allowed < _WIDE:
                values.append(code == 0x41 if code < 0x43 else 0)
            elif high == 5 and allowed < _WIDE:
                byte = data[offset]
                offset += 1
                values.append(byte == 1 if code == 0x56 else byte)
            elif high == 0xA and allowed < _WIDE:
                start = offset + 1
                offset = start + data[offset]
                part = data[start:offset]
                if code == 0xA0:
                    values.append(part)
                else:
                    values.append(part.decode() if code == 0xA1 else Symbol(part.decode("ascii")))
            elif code == 0x70 and allowed < _WIDE:
                values.append(data[offset] << 24 | data[offset + 1] << 16 | data[offset + 2] << 8 | data[offset + 3])
                offset += 4
            else:
                reader.offset = offset - 1
                reader.end = stop
                values.append(_read_special(reader, layout.specs[at], code))
                reader.end = end
                offset = reader.offset
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedAmqp(f"{layout.name} is cut short, or has a text that is none") from error
    if offset != stop:
        raise MalformedAmqp(f"{layout.name} ends at offset {offset}, not at {stop} as its size says")
    if count < layout.needed or layout.mandatory:
        for at in layout.mandatory:
            if at >= count or values[at] is None:
                raise MalformedAmqp(f"{layout.name} has no {layout.names[at]}")
    missing = len(types) - count
    if missing:
        values += [None] * missing
    reader.offset = offset
    return values


def _read_special(reader: AmqpReader, spec: FieldSpec, code: int) -> Any:
    """Read a value that is no plain one of one byte's size or less."""
    if code:
        value = reader.value()
        if spec.is_multiple:
            return _symbols(value)
        if int(spec.types) & _INTEGERS and int(spec.types) & (int(spec.types) - 1) == 0:
            return int(value)  # type: ignore[arg-type] # its constructor is one of an integer
        return value
    start = reader.offset
    layout = read_descriptor(reader)
    if layout is not None and layout.name in spec.classes:
        return read_fields(reader, layout)
    if (layout is not None and spec.classes) or not spec.is_open:
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


def _wrong_type(layout: CompositeLayout, at: int, code: int) -> MalformedAmqp:
    return MalformedAmqp(f"{layout.name}.{layout.names[at]} cannot have a value with the constructor {code:#04x}")


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
    count = ended = 0
    stop = 0
    name, field = "", None
    try:
        for name, append in zip(layout.names, layout.appends, strict=True):
            field = getattr(value, name)
            count += 1
            if field is None:
                content.append(_NULL)
            else:
                append(content, field)
                ended = count
                stop = len(content)
    except (StructError, OverflowError, ValueError, AttributeError, TypeError) as error:
        raise UnencodableAmqp(f"{layout.name}.{name} cannot be {field!r}") from error
    for at in layout.mandatory:
        if getattr(value, layout.names[at]) is None:
            raise UnencodableAmqp(f"{layout.name} has no {layout.names[at]}")
    out += bytes((0, _SMALL_ULONG, layout.code))
    if ended:
        append_compound(out, 0xC0, ended, content[:stop])
    else:
        out.append(0x45)
