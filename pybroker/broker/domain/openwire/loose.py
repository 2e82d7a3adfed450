"""The primitives of OpenWire's loose encoding: a bounds-checked reader, and writers that return or append bytes.

Knows kinds, not structures: which fields a message has is the business of `ids`, `message` and `objects`.

Source: OpenWire, loose encoding; Java's modified UTF-8 (`DataOutput.writeUTF`). All integers are big-endian.

```text
boolean        | u8 0/1 |
string         | u8 present | u16 n | n bytes modified UTF-8 |
byte sequence  | u8 present | i32 n | n bytes               |
object         | u8 present | u8 data type | the fields ... |
object array   | u8 present | i16 n | n objects             |
```
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from pybroker.broker.domain.big_endian import BYTE_AND_INT, BYTE_AND_UNSIGNED_SHORT, INT, LONG, SHORT, UNSIGNED_SHORT
from pybroker.broker.domain.errors import MalformedData, RequestError
from pybroker.broker.domain.openwire.mutf8 import decoded_slices, encoded_slices

STRING_BYTES_MAX: Final = 0xFFFF
"""The length of a string is an unsigned short."""

NULL: Final = b"\x00"
PRESENT: Final = b"\x01"

# Bound once: an imported object's method costs an object per call.
_pack_string_head = BYTE_AND_UNSIGNED_SHORT.pack
_pack_bytes_head = BYTE_AND_INT.pack
_pack_length = UNSIGNED_SHORT.pack

_NULLS = tuple(bytes(count) for count in range(5))


class MalformedOpenWire(MalformedData):
    """Bytes that are not what they should be. The only error that decoding raises, whatever the bytes."""


class UnencodableOpenWire(RequestError):
    """A value that OpenWire has no space for: a name over 65535 bytes, a number over 64 bits."""


class Reader:
    """Reads primitives from bytes, one after the other. Each method raises `MalformedOpenWire` if too few are left.

    Attributes:
        data: the bytes, of which `Reader` makes no copy.
        offset: where the next primitive starts.
    """

    __slots__ = ("data", "offset")

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self.data = data
        self.offset = offset

    @property
    def remaining(self) -> int:
        """The number of bytes left."""
        return len(self.data) - self.offset

    def boolean(self) -> bool:
        """Read one byte; like Java, anything but 0 is true."""
        offset = self.offset
        try:
            value = self.data[offset]
        except IndexError:
            raise _cut_short(1, offset, self.data) from None
        self.offset = offset + 1
        return value != 0

    def unsigned_byte(self) -> int:
        """Read one byte as 0 to 255, such as a data type."""
        offset = self.offset
        try:
            value = self.data[offset]
        except IndexError:
            raise _cut_short(1, offset, self.data) from None
        self.offset = offset + 1
        return value

    def nulls(self, count: int) -> bool:
        """Read that many null flags (at most 4) if all of them are null, and return True; otherwise read nothing."""
        if self.data.startswith(_NULLS[count], self.offset):
            self.offset += count
            return True
        return False

    def byte(self) -> int:
        """Read a signed byte."""
        value = self.unsigned_byte()
        return value - 256 if value > 127 else value

    def short(self) -> int:
        """Read two bytes, signed."""
        value: int = self.unpack(SHORT)[0]
        return value

    def unsigned_short(self) -> int:
        """Read two bytes, 0 to 65535."""
        value: int = self.unpack(UNSIGNED_SHORT)[0]
        return value

    def integer(self) -> int:
        """Read four bytes, signed."""
        value: int = self.unpack(INT)[0]
        return value

    def long(self) -> int:
        """Read eight bytes, signed."""
        value: int = self.unpack(LONG)[0]
        return value

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Read a run of fixed-width fields at once."""
        offset = self.offset
        try:
            values = layout.unpack_from(self.data, offset)
        except StructError:
            raise _cut_short(layout.size, offset, self.data) from None
        self.offset = offset + layout.size
        return values

    def take(self, size: int) -> bytes:
        """Read that many bytes."""
        start = self.offset
        end = start + size
        if size < 0 or end > len(self.data):
            raise _cut_short(size, start, self.data)
        self.offset = end
        return self.data[start:end]

    def string(self) -> str | None:
        """Read a nullable string."""
        return self.mutf8() if self.boolean() else None

    def mutf8(self) -> str:
        """Read a string that cannot be null: its length as an unsigned short, and modified UTF-8."""
        return decode_mutf8(self.take(self.unsigned_short()))

    def byte_sequence(self) -> bytes | None:
        """Read a nullable byte sequence."""
        return self.take(self.integer()) if self.boolean() else None

    def skip_byte_sequence(self) -> None:
        """Skip a nullable byte sequence, without a copy of it."""
        if self.boolean():
            size = self.integer()
            if not 0 <= size <= self.remaining:
                raise _cut_short(size, self.offset, self.data)
            self.offset += size

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self.offset != len(self.data):
            raise MalformedOpenWire(f"{self.remaining} bytes too many at offset {self.offset}")


def string(text: str | None) -> bytes:
    """Encode a nullable string.

    Raises:
        UnencodableOpenWire: it takes more than 65535 bytes.
    """
    if text is None:
        return NULL
    encoded = encode_mutf8(text)
    return _pack_string_head(1, checked_length(encoded)) + encoded


def restored(text: str | None) -> bytes:
    """Encode a nullable string that was decoded before, so that what fitted once always fits again.

    Some producers write standard UTF-8, in which U+0000 and supplementary characters are shorter than in Java's form.
    A string that only standard UTF-8 has space for came so, and is written so.

    Raises:
        UnencodableOpenWire: it takes more than 65535 bytes in either form, which no decoded string does.
    """
    if text is None:
        return NULL
    encoded = _encode_restored(text)
    return _pack_string_head(1, checked_length(encoded)) + encoded


def restored_mutf8(text: str) -> bytes:
    """Encode a string that cannot be null and was decoded before: its length, and its bytes as of `restored`."""
    encoded = _encode_restored(text)
    return _pack_length(checked_length(encoded)) + encoded


def _encode_restored(text: str) -> bytes:
    encoded = encode_mutf8(text)
    return encoded if len(encoded) <= STRING_BYTES_MAX else text.encode("utf-8", "surrogatepass")


def mutf8(text: str) -> bytes:
    """Encode a string that cannot be null: its length as an unsigned short, and modified UTF-8.

    Raises:
        UnencodableOpenWire: it takes more than 65535 bytes.
    """
    encoded = encode_mutf8(text)
    return _pack_length(checked_length(encoded)) + encoded


def byte_sequence(data: bytes | None) -> bytes:
    """Encode a nullable byte sequence."""
    return NULL if data is None else _pack_bytes_head(1, len(data)) + data


def checked_length(encoded: bytes) -> int:
    """Return the length of a string's bytes.

    Raises:
        UnencodableOpenWire: it does not fit an unsigned short.
    """
    length = len(encoded)
    if length > STRING_BYTES_MAX:
        raise UnencodableOpenWire(
            f"a string of {length} bytes: names and header values have at most {STRING_BYTES_MAX}"
        )
    return length


def encode_mutf8(text: str) -> bytes:
    """Encode as Java's modified UTF-8: U+0000 in two bytes, a supplementary character as its two surrogates."""
    if text.isascii():
        encoded = text.encode()
        return encoded.replace(b"\x00", b"\xc0\x80") if b"\x00" in encoded else encoded
    return b"".join(encoded_slices(text.encode("utf-8", "surrogatepass")))


def decode_mutf8(data: bytes) -> str:
    """Decode modified UTF-8 and, leniently, standard UTF-8. Surrogates without a partner stay as they are.

    Raises:
        MalformedOpenWire: it is neither.
    """
    try:
        # Where there is no U+0000 and no supplementary character the two encodings are one.
        return data.decode()
    except UnicodeDecodeError:
        return "".join(decoded_mutf8_slices(data))


def decoded_mutf8_slices(data: bytes) -> Iterator[str]:
    """Yield what `decode_mutf8` returns, a slice at a time. Raises `MalformedOpenWire` at one that does not decode."""
    try:
        yield from decoded_slices(data)
    except UnicodeDecodeError as error:
        raise MalformedOpenWire(f"a string that is not UTF-8: {error.reason}") from error


def _cut_short(wanted: int, offset: int, data: bytes) -> MalformedOpenWire:
    return MalformedOpenWire(f"{wanted} bytes wanted at offset {offset}, {len(data) - offset} left")
