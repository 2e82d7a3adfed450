"""The protobuf subset a KahaDB journal is written in: varints and length-delimited bytes, and how to skip the rest.

```text
message = field*
field   = tag, then by wire type
            0     varint          int32, int64, bool, enum; negatives sign-extended to 64 bits, so ten bytes
            2     length, bytes   string (UTF-8), bytes, nested message
            1, 5  8 or 4 bytes    never written by ActiveMQ, skipped
tag     = varint: field number << 3 | wire type
varint  = 7 bits per byte, lowest first; the high bit means that more follow
```

Fields are found by *tag*, not by number, because one of KahaDB's messages gives two fields the same number.

Source: Protocol Buffers, Encoding; ActiveMQ 5.17, `journal-data.proto`.
"""

from mmap import mmap

from pybroker.broker.domain.big_endian import INT
from pybroker.store.journal.malformed import MalformedRecord

SIZE_PREFIX = INT
"""Prefix of a marshalled OpenWire object: its size in bytes."""

_VARINT = 0
_FIXED_64 = 1
_DELIMITED = 2
_FIXED_32 = 5
_MASK_64 = 2**64 - 1


# ---------------------------------------------------------------- encoding


def number_field(tag: int, value: int) -> bytes:
    """Return a varint field; `tag` is its only tag byte, `value` fits 64 bits with sign."""
    return b"%c%b" % (tag, varint(value & _MASK_64))


def text_field(tag: int, text: str) -> bytes:
    """Return a string field. Lone surrogates, which UTF-8 cannot express, become question marks as in Java."""
    return bytes_field(tag, text.encode("utf-8", "replace"))


def bytes_field(tag: int, data: bytes) -> bytes:
    """Return a field of bytes or of an encoded message."""
    return b"%c%b%b" % (tag, varint(len(data)), data)


def sized(data: bytes) -> bytes:
    """Return a marshalled OpenWire object with its size in front."""
    return SIZE_PREFIX.pack(len(data)) + data


def _long_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_VARINTS = tuple(_long_varint(value) for value in range(4096))
"""Ready-made for the lengths that nearly every record has."""


def varint(value: int) -> bytes:
    """Return an unsigned number as a varint."""
    return _VARINTS[value] if value < 4096 else _long_varint(value)


# ---------------------------------------------------------------- decoding


def read_varint(data: bytes | mmap, position: int) -> tuple[int, int]:
    """Return the unsigned number at a position and the position behind it.

    Raises:
        IndexError: the data ends inside the number.
        MalformedRecord: the number does not end within ten bytes.
    """
    value = data[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK_64, position
    raise MalformedRecord("a varint is longer than ten bytes")


class Fields:
    """The fields of one message, by tag; of a repeated field the last counts. Methods raise `MalformedRecord`.

    Attributes:
        numbers: varint fields, unsigned.
        chunks: length-delimited fields.
    """

    __slots__ = ("chunks", "numbers")

    def __init__(self, data: bytes, position: int = 0) -> None:
        """Read all fields from `position` to the end of `data`; raise IndexError when it ends inside a field."""
        self.numbers: dict[int, int] = {}
        self.chunks: dict[int, bytes] = {}
        end = len(data)
        while position < end:
            tag = data[position]
            position += 1
            if tag >= 0x80:
                tag, position = read_varint(data, position - 1)
            wire_type = tag & 7
            if wire_type == _DELIMITED:
                length = data[position]
                position += 1
                if length >= 0x80:
                    length, position = read_varint(data, position - 1)
                start, position = position, position + length
                self.chunks[tag] = data[start:position]
            elif wire_type == _VARINT:
                self.numbers[tag], position = read_varint(data, position)
            else:
                position += _fixed_bytes(wire_type)
        if position > end:
            raise IndexError("the last field is longer than the message")

    def number(self, tag: int, default: int | None = None) -> int:
        """Return a number with its sign, or the default; without a default the field must be there."""
        value = self.numbers.get(tag, default)
        if value is None:
            raise _missing(tag)
        return value - 2**64 if value >= 2**63 else value

    def chunk(self, tag: int) -> bytes:
        """Return bytes that must be there."""
        value = self.chunks.get(tag)
        if value is None:
            raise _missing(tag)
        return value

    def text(self, tag: int) -> str:
        """Return a text that must be there; raise UnicodeDecodeError when it is not UTF-8."""
        return self.chunk(tag).decode()

    def marshalled(self, tag: int) -> bytes:
        """Return a marshalled OpenWire object that must be there, without the size in front of it."""
        data = self.chunk(tag)
        if len(data) < SIZE_PREFIX.size or SIZE_PREFIX.unpack_from(data)[0] != len(data) - SIZE_PREFIX.size:
            raise MalformedRecord(f"field {tag >> 3} has {len(data)} bytes, which is not what its size prefix says")
        return data[SIZE_PREFIX.size :]


def _fixed_bytes(wire_type: int) -> int:
    if wire_type == _FIXED_64:
        return 8
    if wire_type == _FIXED_32:
        return 4
    raise MalformedRecord(f"unknown protobuf wire type {wire_type}")


def _missing(tag: int) -> MalformedRecord:
    return MalformedRecord(f"field {tag >> 3} is missing")
