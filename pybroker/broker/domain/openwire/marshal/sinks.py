"""Sinks of encoded bytes: write the primitives of both encodings by the same methods.

A sink gathers one frame, from its data type on; `sources` draws the formats.

Source: OpenWire, loose and tight encoding.
"""

from typing import Any, Final

from pybroker.broker.domain.big_endian import BYTE, INT, LONG, SHORT, UNSIGNED_INT, UNSIGNED_SHORT
from pybroker.broker.domain.openwire.loose import UnencodableOpenWire, encode_mutf8, restored
from pybroker.broker.domain.openwire.marshal.caches import WriteCache
from pybroker.broker.domain.openwire.marshal.sources import NESTING_MAX

TIGHT_STRING_BYTES_MAX: Final = 32766
"""Java writes no longer ones in tight encoding."""
BOOLEANS_MAX: Final = 8 * 32767
"""The length of a boolean stream is a signed short."""

_pack_unsigned_int = UNSIGNED_INT.pack
_ZERO, _ONE = b"01"


class LooseSink:
    """A frame in loose encoding.

    Attributes:
        out: the bytes written so far, without the views.
        views: byte sequences that are views, each with its place in `out`.
        cache: what the peer shall cache; None to let it cache nothing.
        levels: how much deeper structures may nest.
    """

    __slots__ = ("cache", "levels", "out", "views")

    INDEX_FIRST = True
    """A cached value gets its index before the values inside it do."""

    def __init__(self, cache: WriteCache | None = None) -> None:
        """Start an empty frame."""
        self.out: bytearray = bytearray()
        self.views: list[tuple[int, memoryview]] = []
        self.cache = cache
        self.levels = NESTING_MAX

    def pieces(self) -> list[bytes | memoryview]:
        """Return the frame in pieces: the views, and the bytes between them."""
        return self._pieces_from(0)

    def _pieces_from(self, start: int) -> list[bytes | memoryview]:
        found: list[bytes | memoryview] = []
        for place, view in self.views:
            found += (bytes(self.out[start:place]), view)
            start = place
        found.append(bytes(self.out[start:]) if start else bytes(self.out))
        return found

    def deeper(self) -> None:
        """Enter a nested structure."""
        if self.levels == 0:
            raise UnencodableOpenWire(f"structures nested more than {NESTING_MAX} deep")
        self.levels -= 1

    def recorded(self) -> Any:
        """Return what was written, for `replay`."""
        return bytes(self.out)

    def replay(self, recorded: Any) -> None:
        """Put what another sink of this kind recorded."""
        self.out += recorded

    def boolean(self, value: bool) -> None:
        """Put a flag."""
        self.out.append(1 if value else 0)

    def byte(self, value: int) -> None:
        """Put 8 bits, signed."""
        self.out += BYTE.pack(value)

    def short(self, value: int) -> None:
        """Put 16 bits, signed."""
        self.out += SHORT.pack(value)

    def integer(self, value: int) -> None:
        """Put 32 bits, signed."""
        self.out += INT.pack(value)

    def long(self, value: int) -> None:
        """Put 64 bits, signed."""
        self.out += LONG.pack(value)

    def string(self, value: str | None) -> None:
        """Put a nullable string."""
        self.out += restored(value)

    def byte_sequence(self, value: bytes | memoryview | None) -> None:
        """Put a nullable byte sequence; a view is not copied."""
        self.boolean(value is not None)
        if value is not None:
            self.out += INT.pack(len(value))
            if isinstance(value, memoryview):
                self.views.append((len(self.out), value))
            else:
                self.out += value


class TightSink(LooseSink):
    """A frame in tight encoding."""

    __slots__ = ("_booleans",)

    INDEX_FIRST = False

    def __init__(self, cache: WriteCache | None = None) -> None:
        """Start an empty frame."""
        super().__init__(cache)
        self._booleans = bytearray()

    def pieces(self) -> list[bytes | memoryview]:
        """Return the frame: data type, booleans, data."""
        count = len(self._booleans)
        if count > BOOLEANS_MAX:
            raise UnencodableOpenWire(f"{count} booleans in one frame, where {BOOLEANS_MAX} is the limit")
        size = (count + 7) // 8
        # The booleans are gathered as digits, of which the last one counts most.
        bits = int(self._booleans[::-1], 2).to_bytes(size, "little") if count else b""
        if size < 64:
            head = bytes((self.out[0], size))
        elif size < 256:
            head = bytes((self.out[0], 0xC0, size))
        else:
            head = bytes((self.out[0], 0x80)) + SHORT.pack(size)
        first, *others = self._pieces_from(1)
        return [b"".join((head, bits, first)), *others]

    def recorded(self) -> Any:
        """Return what was written, for `replay`."""
        return bytes(self.out), bytes(self._booleans)

    def replay(self, recorded: Any) -> None:
        """Put what another sink of this kind recorded."""
        data, booleans = recorded
        self.out += data
        self._booleans += booleans

    def boolean(self, value: bool) -> None:
        """Put one bit."""
        self._booleans.append(_ONE if value else _ZERO)

    def long(self, value: int) -> None:
        """Put as many bytes as the number needs, and in two bits how many that are."""
        if value == 0:
            self._booleans += b"00"
        elif 0 < value <= 0xFFFF:
            self._booleans += b"01"
            self.out += UNSIGNED_SHORT.pack(value)
        elif 0 < value <= 0xFFFFFFFF:
            self._booleans += b"10"
            self.out += _pack_unsigned_int(value)
        else:
            self._booleans += b"11"
            self.out += LONG.pack(value)

    def string(self, value: str | None) -> None:
        """Put a nullable string."""
        if value is None:
            self._booleans += b"0"
            return
        encoded = encode_mutf8(value)
        if len(encoded) > TIGHT_STRING_BYTES_MAX:
            raise UnencodableOpenWire(f"a string of {len(encoded)} bytes, where tight encoding has space for 32766")
        # One byte per character, and U+0000 takes two.
        self._booleans += b"11" if len(encoded) == len(value) else b"10"
        self.out += UNSIGNED_SHORT.pack(len(encoded))
        self.out += encoded
