"""The bytes of many records at once: one lane per record, all lanes take the same step at the same time.

A loop over records would read a flag, then a length, and skip as many bytes; lanes do each step once for all records:
every read is a gather from the bytes, every step an addition to the array of offsets. A lane in which something does
not fit is marked as odd, and is for the scalar decoder.

Fixed-width fields are read without checking the lane's end. A lane that has passed it is detected at the next run of
bytes, or by `require_end`; until then it reads at most the `chunks.PADDING` bytes behind, which is more than the
fixed-width fields of any layout.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from pybroker.store.columns.chunks import Bytes, Longs
from pybroker.store.journal.reader import Buffer

Flags = npt.NDArray[np.bool_]

VARINT_BYTES: Final = 5
"""Longer varints are negative numbers, which no field of a usual record is."""
_MORE: Final = np.uint8(0x80)
_LOW: Final = np.uint8(0x7F)


class Window:
    """Bytes in memory, readable in several widths at any offset, big-endian.

    Attributes:
        data: the bytes, followed by `chunks.PADDING` more.
        bytes_: them as unsigned 8-bit integers.
    """

    __slots__ = ("_ints", "_longs", "_shorts", "bytes_", "data")

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.bytes_: Bytes = np.frombuffer(data, np.uint8)
        self._shorts = _strided(data, ">u2")
        self._ints = _strided(data, ">i4")
        self._longs = _strided(data, ">i8")

    def shorts(self, at: Longs) -> Longs:
        """Return the unsigned 16-bit integers at these offsets."""
        return self._shorts[at].astype(np.int64)

    def ints(self, at: Longs) -> Longs:
        """Return the signed 32-bit integers at these offsets."""
        return self._ints[at].astype(np.int64)

    def longs(self, at: Longs) -> Longs:
        """Return the signed 64-bit integers at these offsets."""
        return self._longs[at].astype(np.int64)


def _strided(data: Buffer, kind: str) -> npt.NDArray[np.int64]:
    width = int(kind[-1])
    return np.ndarray((max(len(data) - width + 1, 0),), kind, data, 0, (1,))


class Lanes:
    """A cursor per record.

    Attributes:
        at: where each lane is.
        end: where each lane ends.
        odd: lanes that do not fit the usual shape.
    """

    __slots__ = ("_window", "at", "end", "odd")

    def __init__(self, window: Window, at: Longs, end: Longs) -> None:
        self._window = window
        self.at = at
        self.end = end
        self.odd: Flags = at > end

    def peek(self) -> Bytes:
        """Return the next byte; it is undefined for a lane at its end."""
        return self._window.bytes_[self.at]

    def require(self, holds: Flags) -> None:
        """Mark the lanes for which a condition does not hold."""
        self.odd |= ~holds

    def require_end(self) -> None:
        """Mark the lanes that are not exactly at their end."""
        self.odd |= self.at != self.end

    def skip(self, count: Longs | Flags | int) -> None:
        """Step over bytes of fixed-width fields."""
        self.at = self.at + count

    def byte(self) -> Bytes:
        """Take a byte."""
        value = self._window.bytes_[self.at]
        self.at = self.at + 1
        return value

    # Below, lanes that are left out by `where` stay where they are, and get 0, False or an empty place.

    def flag(self, where: Flags | None = None) -> Flags:
        """Take a boolean: like Java, anything but 0 is true."""
        value = np.not_equal(self._window.bytes_[self.at], 0)
        self.at = self.at + (1 if where is None else where)
        return value if where is None else value & where

    def int32(self) -> Longs:
        """Take a signed 32-bit integer."""
        value = self._window.ints(self.at)
        self.skip(4)
        return value

    def int64(self, where: Flags | None = None) -> Longs:
        """Take a signed 64-bit integer."""
        if where is None:
            value = self._window.longs(self.at)
            self.skip(8)
            return value
        if not where.any():
            return np.zeros_like(self.at)
        value = np.where(where, self._window.longs(self.at), 0)
        self.skip(np.where(where, 8, 0))
        return value

    def expect(self, byte: int, where: Flags) -> None:
        """Take a byte that must be this one."""
        if where.any():
            self.odd |= where & (self._window.bytes_[self.at] != byte)
            self.skip(where)

    def tagged(self, tag: int, where: Flags | None = None) -> tuple[Flags, Longs]:
        """Take a tag and the protobuf varint behind it, where the tag is this one; return where, and the varints."""
        found = np.equal(self.peek(), tag)
        if where is not None:
            found &= where
        byte = self._window.bytes_[self.at + 1] * found
        self.at = self.at + (found.view(np.uint8) << 1)
        return found, self._varint(byte)

    def varint(self) -> Longs:
        """Take a protobuf varint of up to five bytes."""
        return self._varint(self.byte())

    def _varint(self, byte: Bytes) -> Longs:
        """Read the rest of varints of up to five bytes, given their first bytes; return their values."""
        more = byte >= _MORE
        if not more.any():
            return byte.astype(np.int64)
        value = (byte & _LOW).astype(np.int64)
        for shift in range(7, 7 * VARINT_BYTES, 7):
            byte = self._window.bytes_[self.at] * more
            self.at = self.at + more
            value |= (byte & _LOW).astype(np.int64) << shift
            more = byte >= _MORE
            if not more.any():
                return value
        self.odd |= more
        return value

    def run(self, length: Longs) -> tuple[Longs, Longs]:
        """Take so many bytes; return where they begin and end. A lane that has fewer, or none, is marked."""
        begin, at = self.at, self.at + length
        fits = (at <= self.end) & (length >= 0)
        if not fits.all():
            self.odd |= ~fits
            at = np.where(fits, at, self.end)
            begin = np.minimum(begin, at)
        self.at = at
        return begin, at

    def string(self, where: Flags | None = None) -> tuple[Longs, Longs, Flags]:
        """Take a nullable OpenWire string; return where it begins and ends, and where there is one."""
        return self._sized(self._window.shorts, 2, where)

    def byte_sequence(self, where: Flags | None = None) -> tuple[Longs, Longs, Flags]:
        """Take a nullable OpenWire byte sequence; return where it begins and ends, and where there is one."""
        return self._sized(self._window.ints, 4, where)

    def _sized(self, lengths: Callable[[Longs], Longs], width: int, where: Flags | None) -> tuple[Longs, Longs, Flags]:
        present = self.flag(where)
        if not present.any():
            return self.at, self.at, present
        length = np.where(present, lengths(self.at), 0)
        self.skip(np.where(present, width, 0))
        return *self.run(length), present
