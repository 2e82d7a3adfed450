"""Builds Arrow arrays from places in a window: texts and bytes by one copy in C, numbers and times without a loop.

Strings become an array with no loop over them: their begins and ends, interleaved, are the offsets of an array over the
window itself, in which every other element is a gap; taking the even ones copies just the strings.

```text
window   ....QUEUE.A..ID:h-1:1:1:7......QUEUE.B...
offsets      ^      ^                  ^      ^
elements     [0    ][1: a gap         ][2    ]        take 0, 2, ...
```
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pybroker.store.columns.chunks import Longs
from pybroker.store.columns.lanes import Flags, Window
from pybroker.store.columns.rows import MICROSECONDS, MILLISECONDS_MAX
from pybroker.store.columns.schema import INSTANT

_ASCII = 0x80


class Places(NamedTuple):
    """Places of values in the window, one per lane.

    Attributes:
        begin: of the value; ascending over the lanes, where there is one.
        end: of the value.
        valid: True if there is one.
    """

    begin: Longs
    end: Longs
    valid: Flags

    def only(self, lanes: Flags) -> "Places":
        """Return the same places with fewer values."""
        return Places(self.begin, self.end, self.valid & lanes)

    def spread(self, lanes: Longs, anchors: Longs) -> "Places":
        """Return places for more lanes, of which these are some; anchors are any offsets that ascend with the lanes."""
        begin, end, valid = anchors.copy(), anchors.copy(), np.zeros(len(anchors), np.bool_)
        begin[lanes], end[lanes], valid[lanes] = self
        return Places(begin, end, valid)


def texts(window: Window, places: Places, odd: Flags) -> pa.Array:
    """Return the strings at these places; where the bytes are not UTF-8 the lane is marked as odd."""
    found = _taken(window, places, pa.string())
    data = found.buffers()[2]
    if data is None or data.size == 0:
        return found
    values = np.frombuffer(memoryview(data), np.uint8)
    if values.max(initial=0) >= _ASCII:
        _check(found, values, odd)
    return found


def blobs(window: Window, places: Places) -> pa.Array:
    """Return the bytes at these places."""
    return _taken(window, places, pa.binary())


def _taken(window: Window, places: Places, kind: pa.DataType) -> pa.Array:
    count = len(places.valid)
    if not places.valid.any():
        return pa.nulls(count, kind)
    valid = places.valid
    offsets = np.empty(2 * count, np.int32)
    np.multiply(places.begin, valid, out=offsets[0::2], casting="same_kind")
    np.multiply(places.end, valid, out=offsets[1::2], casting="same_kind")
    # Offsets must ascend: a lane without a value is empty, where the one before it ended.
    np.maximum.accumulate(offsets, out=offsets)
    parent = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(window.data)])
    return parent.take(pa.array(np.arange(0, 2 * count, 2), mask=None if valid.all() else ~valid))


def _check(found: pa.Array, values: npt.NDArray[np.uint8], odd: Flags) -> None:
    """Mark the lanes whose text is not UTF-8: Java's own form of it, or damage, which `rows` distinguishes."""
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        offsets = np.frombuffer(memoryview(found.buffers()[1] or b""), np.int32)
        foreign = np.flatnonzero(values >= _ASCII)
        for lane in np.unique(np.searchsorted(offsets, foreign, "right") - 1).tolist():
            try:
                values[offsets[lane] : offsets[lane + 1]].tobytes().decode()
            except UnicodeDecodeError:
                odd[lane] = True


def names(table: Sequence[str], codes: npt.NDArray[np.integer], valid: Flags | None = None) -> pa.Array:
    """Return the names of codes; an unknown code belongs to an odd lane, and its name is undefined."""
    known = (codes >= 0) & (codes < len(table))
    index = np.where(known, codes, 0).astype(np.int64)
    return pa.array(table, pa.string()).take(pa.array(index, mask=None if valid is None else ~valid))


def numbers(values: npt.NDArray[np.generic], valid: Flags | None, kind: pa.DataType) -> pa.Array:
    """Return numbers or flags as a column."""
    return pa.array(values, kind, mask=None if valid is None else ~valid)


def instants(milliseconds: Longs, valid: Flags) -> pa.Array:
    """Return points in time; 0, times before 1970 and those after the calendar's end are null."""
    sensible = valid & (milliseconds > 0) & (milliseconds <= MILLISECONDS_MAX)
    return pa.array(np.where(sensible, milliseconds, 0) * MICROSECONDS, pa.int64(), mask=~sensible).cast(INSTANT)
