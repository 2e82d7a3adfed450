"""Decodes the entries of many primitive maps at once: entry by entry, all maps together.

A message's properties are such a map, and so is the body of a map message.

```text
i32 count | count x (u16 n, name | u8 tag | value)        see `openwire.values`
```

Bytes, maps and lists as values, big nulls, and names that occur twice are odd, and left to `rows`.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from pybroker.broker.domain.openwire.values import Char
from pybroker.store.columns.chunks import Longs
from pybroker.store.columns.lanes import Flags, Lanes, Window
from pybroker.store.columns.rows import as_text
from pybroker.store.columns.texts import Places, texts

ENTRIES_MAX: Final = 256
"""Maps with more entries than this are odd: each entry takes a separate step."""

NULL, BOOLEAN, BYTE, CHAR, SHORT, INT, LONG, DOUBLE, FLOAT, STRING = range(10)
BIG_STRING: Final = 13
_WIDTHS: Final = np.zeros(256, np.int64)
_WIDTHS[[BOOLEAN, BYTE, CHAR, SHORT, INT, LONG, DOUBLE, FLOAT]] = (1, 1, 2, 2, 4, 8, 8, 4)
_KNOWN: Final = np.zeros(256, np.bool_)
_KNOWN[[*range(10), BIG_STRING]] = True
_LAYOUTS: Final = {BYTE: ">i1", SHORT: ">i2", INT: ">i4", LONG: ">i8", DOUBLE: ">f8", FLOAT: ">f4"}


class Entries:
    """All entries of all maps, in their order.

    Attributes:
        lane: per entry, which map.
        keys: per entry, its name.
        tag: per entry, the type of its value.
        begin: per entry, where its value begins; `end` likewise.
        is_text: per entry, True if its value is a string.
        offsets: per map, where its entries begin; one more at the end.
    """

    __slots__ = ("begin", "end", "is_text", "keys", "lane", "offsets", "tag", "texts", "window")

    def __init__(self, window: Window, places: Places, odd: Flags) -> None:
        """Find the entries.

        Args:
            window: where they are.
            places: of the maps; one of no bytes is empty, as is a null map.
            odd: marked for maps of an unusual shape.
        """
        steps = _steps(window, places, odd)
        columns = (
            [np.concatenate(parts) for parts in zip(*steps, strict=True)] if steps else [np.zeros(0, np.int64)] * 6
        )
        order = np.argsort(columns[1], kind="stable")
        self.lane, name_begin, name_end, self.tag, self.begin, self.end = (each[order] for each in columns)
        self.window = window
        self.is_text: Flags = (self.tag == STRING) | (self.tag == BIG_STRING)
        foreign = np.zeros(len(self.lane), np.bool_)
        self.keys: pa.Array = texts(window, Places(name_begin, name_end, np.ones(len(self.lane), np.bool_)), foreign)
        self.texts: pa.Array = texts(window, Places(self.begin, self.end, self.is_text), foreign)
        odd[self.lane[foreign]] = True
        self._mark_repeated(odd)
        self.offsets = np.zeros(len(odd) + 1, np.int32)
        np.cumsum(np.bincount(self.lane, minlength=len(odd)), out=self.offsets[1:])

    def _mark_repeated(self, odd: Flags) -> None:
        """Mark the maps in which a name occurs twice: the later one counts."""
        lane = self.lane
        if len(lane) < 2 or not (lane[1:] == lane[:-1]).any():
            return
        encoded = self.keys.dictionary_encode()
        codes = np.sort(lane * len(encoded.dictionary) + encoded.indices.to_numpy())
        repeated = codes[1:][codes[1:] == codes[:-1]]
        odd[repeated // len(encoded.dictionary)] = True

    def tags(self) -> list[int]:
        """Return the types of values that are neither strings nor null."""
        found: list[int] = np.unique(self.tag[_KNOWN[self.tag] & ~self.is_text & (self.tag != NULL)]).tolist()
        return found

    def numbers(self, tag: int) -> list[float]:
        """Return the values of one type of floating point numbers."""
        found: list[float] = self._raw(tag).tolist()
        return found

    def formatted(self, tag: int) -> pa.Array:
        """Return the numbers, flags or characters of one type as text, as `rows.as_text` has it."""
        at = self.begin[self.tag == tag]
        if tag == BOOLEAN:
            return pa.array(["false", "true"]).take(pa.array(np.not_equal(self.window.bytes_[at], 0).astype(np.int64)))
        if tag == CHAR:
            return pa.array([as_text(Char(chr(unit))) for unit in self.window.shorts(at).tolist()], pa.string())
        return pa.array(self._raw(tag).astype(np.int64)).cast(pa.string())

    def _raw(self, tag: int) -> "np.ndarray[tuple[int], np.dtype[np.generic]]":
        layout = np.dtype(_LAYOUTS[tag])
        at = self.begin[self.tag == tag]
        bytes_ = self.window.bytes_[at[:, None] + np.arange(layout.itemsize)]
        return np.ascontiguousarray(bytes_).view(layout).ravel()


def _steps(window: Window, places: Places, odd: Flags) -> list[tuple[Longs, Longs, Longs, Longs, Longs, Longs]]:
    """Return per step, for the maps that have so many entries: lane, where the name is, tag, where the value is."""
    lane = np.flatnonzero(places.valid & (places.end > places.begin))
    cursor = Lanes(window, places.begin[lane], places.end[lane])
    count = cursor.int32()
    cursor.require((count >= -1) & (count <= ENTRIES_MAX))
    steps: list[tuple[Longs, Longs, Longs, Longs, Longs, Longs]] = []
    while True:
        over = count <= len(steps)
        cursor.odd |= over & (cursor.at != cursor.end)
        odd[lane[cursor.odd]] = True
        left = ~over & ~cursor.odd
        if not left.any():
            return steps
        lane, count = lane[left], count[left]
        cursor = Lanes(window, cursor.at[left], cursor.end[left])
        name_begin, name_end = cursor.run(_length16(window, cursor))
        tag = cursor.byte().astype(np.int64)
        cursor.require(_KNOWN[tag])
        short, big = tag == STRING, tag == BIG_STRING
        length = _WIDTHS[tag]
        if short.any():
            length = np.where(short, window.shorts(cursor.at), length)
            cursor.skip(np.where(short, 2, 0))
        if big.any():
            length = np.where(big, window.ints(cursor.at), length)
            cursor.skip(np.where(big, 4, 0))
        begin, end = cursor.run(length)
        steps.append((lane, name_begin, name_end, tag, begin, end))


def _length16(window: Window, cursor: Lanes) -> Longs:
    length = window.shorts(cursor.at)
    cursor.skip(2)
    return length
