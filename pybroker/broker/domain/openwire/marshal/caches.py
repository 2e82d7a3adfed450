"""Value caching: each direction of a connection has a table by which values that repeat are named instead of written.

```text
cached field, new   | flag 1 | i16 index | nullable value |      index -1: not stored
cached field, known | flag 0 | i16 index |
```

The writer chooses the index, so a reader never computes it. Null is a value like others. The simplest correct writer
stores nothing; the one here does as Java does, index for index: round robin, dropping the oldest before a frame.

Source: OpenWire, value caching.
"""

from typing import Final

from pybroker.broker.domain.openwire.loose import MalformedOpenWire

NOT_STORED: Final = -1
SLOTS_DEFAULT: Final = 16383
"""The cache size if a size of 0 was negotiated."""
SLOTS_MAX: Final = 32767
"""An index is a signed short."""
BYTES_MAX: Final = 16 * 1024 * 1024
"""Limit of the bytes cached for a peer: ten times the size of a full table of ordinary identifiers."""
RESERVED_SLOTS: Final = 100
"""Slots that a writer keeps free for the values of the next frame."""


class ReadCache:
    """The values that the peer has stored in its direction of the connection."""

    __slots__ = ("_bytes", "_sizes", "_slots", "_values")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._values: dict[int, object] = {}
        self._sizes: dict[int, int] = {}
        self._bytes = 0

    def store(self, index: int, value: object, size: int) -> None:
        """Keep a value that came with its index, and took `size` bytes.

        Raises:
            MalformedOpenWire: the table has no such slot, or its values have become too large.
        """
        if index == NOT_STORED:
            return
        if not 0 <= index < self._slots:
            raise MalformedOpenWire(f"cache index {index}, where {self._slots} slots were agreed on")
        self._bytes += size - self._sizes.get(index, 0)
        if self._bytes > BYTES_MAX:
            raise MalformedOpenWire(f"cached values of {self._bytes} bytes, where {BYTES_MAX} is the limit")
        self._sizes[index] = size
        self._values[index] = value

    def known(self, index: int) -> object:
        """Return the value at an index.

        Raises:
            MalformedOpenWire: nothing was ever stored there.
        """
        try:
            return self._values[index]
        except KeyError:
            raise MalformedOpenWire(f"nothing was cached at index {index}") from None


class WriteCache:
    """The values that this end has stored at the peer. Values are equal if their types and contents are, as in Java."""

    __slots__ = ("_added", "_indexes", "_next", "_oldest", "_slots", "_values")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._indexes: dict[tuple[type, object], int] = {}
        self._values: list[tuple[type, object] | None] = [None] * slots
        self._next = 0
        self._oldest = 0
        self._added: list[int] = []

    def begin(self) -> None:
        """Free space before a frame."""
        self._added.clear()
        while len(self._indexes) > self._slots - RESERVED_SLOTS:
            self._forget(self._oldest)
            self._oldest = (self._oldest + 1) % self._slots

    def undo(self) -> None:
        """Forget what the current frame stored: it will not be sent."""
        for index in self._added:
            self._forget(index)
        self._added.clear()

    def index_of(self, value: object) -> int | None:
        """Return where a value is stored; None if it is not."""
        return self._indexes.get((type(value), value))

    def add(self, value: object) -> int:
        """Store a value and return its index, or `NOT_STORED` if the table is full."""
        index = self._next
        self._next = (index + 1) % self._slots
        if len(self._indexes) >= self._slots:
            return NOT_STORED
        self._forget(index)
        key = (type(value), value)
        self._values[index] = key
        self._indexes[key] = index
        self._added.append(index)
        return index

    def _forget(self, index: int) -> None:
        key = self._values[index]
        if key is not None:
            self._values[index] = None
            self._indexes.pop(key, None)
