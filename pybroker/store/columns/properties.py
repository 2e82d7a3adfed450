"""Message properties as maps of texts, for many messages at once: entry by entry, all messages together.

```text
i32 count | count x (u16 n, name | u8 tag | value)        see `openwire.values`
```

Bytes, maps and lists as values, big nulls, and names that occur twice are odd, and left to `rows`.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pybroker.broker.domain.openwire.values import Char, Float
from pybroker.store.columns.chunks import Longs
from pybroker.store.columns.lanes import Flags, Lanes, Window
from pybroker.store.columns.rows import as_text
from pybroker.store.columns.schema import TEXTS
from pybroker.store.columns.texts import Places, texts

ENTRIES_MAX: Final = 256
"""Messages with more properties than this are odd: each entry is a step of its own."""

_NULL, _BOOLEAN, _BYTE, _CHAR, _SHORT, _INT, _LONG, _DOUBLE, _FLOAT, _STRING = range(10)
_BIG_STRING: Final = 13
_TAGS: Final = 14
_WIDTHS: Final = np.zeros(256, np.int64)
_WIDTHS[[_BOOLEAN, _BYTE, _CHAR, _SHORT, _INT, _LONG, _DOUBLE, _FLOAT]] = (1, 1, 2, 2, 4, 8, 8, 4)
_KNOWN: Final = np.zeros(256, np.bool_)
_KNOWN[[*range(10), _BIG_STRING]] = True
_LAYOUTS: Final = {_BYTE: ">i1", _SHORT: ">i2", _INT: ">i4", _LONG: ">i8", _DOUBLE: ">f8", _FLOAT: ">f4"}

Codes = npt.NDArray[np.uint8]


class _Entries:
    """All entries of all messages, in their order: which message, where the name is, tag, where the value is."""

    __slots__ = ("begin", "end", "lane", "name_begin", "name_end", "tag")

    def __init__(self, steps: list[tuple[Longs, Longs, Longs, Longs, Longs, Longs]]) -> None:
        columns = (
            [np.concatenate(parts) for parts in zip(*steps, strict=True)] if steps else [np.zeros(0, np.int64)] * 6
        )
        order = np.argsort(columns[1], kind="stable")
        self.lane, self.name_begin, self.name_end, self.tag, self.begin, self.end = (each[order] for each in columns)


def properties(window: Window, places: Places, present: Flags, odd: Flags) -> pa.Array:
    """Return the properties of messages as maps.

    Args:
        window: where they are.
        places: the marshalled properties.
        present: where there is a message; one without properties has an empty map.
        odd: to be marked where they are of no usual shape.
    """
    entries = _entries(window, places.only(present & ~odd), odd)
    foreign = np.zeros(len(entries.lane), np.bool_)
    every = np.ones(len(entries.lane), np.bool_)
    keys = texts(window, Places(entries.name_begin, entries.name_end, every), foreign)
    values = _values(window, entries, foreign)
    odd[entries.lane[foreign]] = True
    _mark_repeated(entries.lane, keys, odd)
    counts = np.bincount(entries.lane, minlength=len(present))
    offsets = np.zeros(len(present) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values, type=TEXTS, mask=pa.array(~present))


def _entries(window: Window, places: Places, odd: Flags) -> _Entries:
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
            return _Entries(steps)
        lane, count = lane[left], count[left]
        cursor = Lanes(window, cursor.at[left], cursor.end[left])
        name_begin, name_end = cursor.run(_length16(window, cursor))
        tag = cursor.byte().astype(np.int64)
        cursor.require(_KNOWN[tag])
        short, big = tag == _STRING, tag == _BIG_STRING
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


def _values(window: Window, entries: _Entries, foreign: Flags) -> pa.Array:
    """Return the values as texts; marks those that are strings and not UTF-8."""
    is_text = (entries.tag == _STRING) | (entries.tag == _BIG_STRING)
    found = texts(window, Places(entries.begin, entries.end, is_text), foreign)
    if is_text.all():
        return found
    parts, index = [found], np.arange(len(is_text))
    for tag in np.unique(entries.tag[~is_text & _KNOWN[entries.tag] & (entries.tag != _NULL)]).tolist():
        where = np.flatnonzero(entries.tag == tag)
        index[where] = sum(map(len, parts)) + np.arange(len(where))
        parts.append(_formatted(window, tag, entries.begin[where]))
    return pa.concat_arrays(parts).take(pa.array(index))


def _formatted(window: Window, tag: int, at: Longs) -> pa.Array:
    """Return numbers, flags or characters as text, as `rows.as_text` has it."""
    if tag == _BOOLEAN:
        return pa.array(["false", "true"]).take(pa.array(np.not_equal(window.bytes_[at], 0).astype(np.int64)))
    if tag == _CHAR:
        return pa.array([as_text(Char(chr(unit))) for unit in window.shorts(at).tolist()], pa.string())
    layout = np.dtype(_LAYOUTS[tag])
    bytes_ = window.bytes_[at[:, None] + np.arange(layout.itemsize)]
    numbers = np.ascontiguousarray(bytes_).view(layout).ravel()
    if tag == _DOUBLE:
        return pa.array([as_text(each) for each in numbers.tolist()], pa.string())
    if tag == _FLOAT:
        return pa.array([as_text(Float(each)) for each in numbers.tolist()], pa.string())
    return pa.array(numbers.astype(np.int64)).cast(pa.string())


def _mark_repeated(lane: Longs, keys: pa.Array, odd: Flags) -> None:
    """Mark the messages in which a name occurs twice: the later one counts."""
    if len(lane) < 2 or not (lane[1:] == lane[:-1]).any():
        return
    encoded = keys.dictionary_encode()
    codes = np.sort(lane * len(encoded.dictionary) + encoded.indices.to_numpy())
    repeated = codes[1:][codes[1:] == codes[:-1]]
    odd[repeated // len(encoded.dictionary)] = True
