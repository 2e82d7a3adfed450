"""Sources of encoded bytes: read the primitives of both encodings by the same methods.

In loose encoding everything stands in one row. In tight encoding a frame's booleans come first, packed:

```text
tight frame     | u8 data type | n (below) | n bytes: booleans, bit 0 of byte 0 first | data |
n < 64          | u8 n |
n < 256         | u8 0xc0 | u8 n |
else            | u8 0x80 | i16 n |
long, 2 bits    | 00: 0 | 01: u16 | 10: u32 | 11: i64 |
string, 2 bits  | not null | only U+0001..U+007F; then data | u16 n | n bytes modified UTF-8 |
```

Source: OpenWire, loose and tight encoding.
"""

from typing import Final, cast

from pybroker.broker.domain.big_endian import LONG, UNSIGNED_INT
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, Reader
from pybroker.broker.domain.openwire.marshal.caches import ReadCache

NESTING_MAX: Final = 16
"""Structures inside one another. An advisory about a message in a transaction takes six."""


ELEMENTS_MAX: Final = 40_000
"""Elements of all arrays of one frame. An array has at most 32,767: of brokers, of destinations, of transactions."""


VIEW_BYTES_MIN: Final = 1 << 20
"""The length from which a byte sequence may be read as a view, as a copy takes half a millisecond and more."""


class LooseSource(Reader):
    """A frame in loose encoding.

    Attributes:
        cache: what the peer has cached; None when caching is off.
        views: where the byte sequences begin that were read as views; None: all are copied.
        elements_left: how many elements of arrays may still come.
        levels: how much deeper structures may nest.
    """

    __slots__ = ("cache", "elements_left", "levels", "views")

    def __init__(self, data: bytes, cache: ReadCache | None = None) -> None:
        """Start at the data type."""
        super().__init__(data)
        self.cache = cache
        self.views: list[int] | None = None
        self.levels = NESTING_MAX
        self.elements_left = ELEMENTS_MAX

    def begin(self) -> None:
        """Get ready for the fields, after the data type."""

    def string(self) -> str | None:
        """Read a nullable string; most are null."""
        data, offset = self.data, self.offset
        if offset < len(data) and not data[offset]:
            self.offset = offset + 1
            return None
        return super().string()

    def byte_sequence(self) -> bytes | None:
        """Read a nullable byte sequence; a long one as a view, where these are wanted."""
        if not self.boolean():
            return None
        size = self.integer()
        if self.views is None or size < VIEW_BYTES_MIN or size > self.remaining:
            return self.take(size)
        start = self.offset
        self.views.append(start)
        self.offset = start + size
        return cast("bytes", memoryview(self.data)[start : self.offset])

    def count_max(self) -> int:
        """The maximum number of nullable elements in the bytes left."""
        return len(self.data) - self.offset

    def elements(self) -> int:
        """Read the number of elements of an array."""
        count = self.short()
        if not 0 <= count <= self.count_max():
            raise MalformedOpenWire(f"an array of {count} elements at offset {self.offset}")
        self.elements_left -= count
        if self.elements_left < 0:
            raise MalformedOpenWire(f"arrays of more than {ELEMENTS_MAX} elements in one frame")
        return count

    def deeper(self) -> None:
        """Enter a nested structure."""
        if self.levels == 0:
            raise MalformedOpenWire(f"structures nested more than {NESTING_MAX} deep")
        self.levels -= 1


class TightSource(LooseSource):
    """A frame in tight encoding."""

    __slots__ = ("_bit", "_bit_end", "_bits")

    def begin(self) -> None:
        """Read the booleans."""
        size = self.unsigned_byte()
        if size >= 64:
            if size == 0xC0:
                size = self.unsigned_byte()
            elif size == 0x80:
                size = self.short()
            else:
                raise MalformedOpenWire(f"a boolean stream that begins with {size:#04x}")
        self._bits = self.take(size)
        self._bit = 0
        self._bit_end = 8 * size

    def end(self) -> None:
        """Make sure that nothing is left, neither data nor a byte of booleans."""
        super().end()
        if self._bit_end - self._bit >= 8:
            raise MalformedOpenWire(f"{self._bit_end - self._bit} booleans too many")

    def boolean(self) -> bool:
        """Read one bit."""
        bit = self._bit
        if bit >= self._bit_end:
            raise MalformedOpenWire("more booleans wanted than there are")
        self._bit = bit + 1
        return self._bits[bit >> 3] >> (bit & 7) & 1 == 1

    def long(self) -> int:
        """Read a number whose width is given by two bits."""
        if not self.boolean():
            return self.unsigned_short() if self.boolean() else 0
        value: int = self.unpack(LONG if self.boolean() else UNSIGNED_INT)[0]
        return value

    def string(self) -> str | None:
        """Read a nullable string; the flag for ASCII is ignored."""
        if not self.boolean():
            return None
        self.boolean()
        return self.mutf8()

    def count_max(self) -> int:
        """The maximum number of nullable elements in the bits left: each takes one."""
        return self._bit_end - self._bit
