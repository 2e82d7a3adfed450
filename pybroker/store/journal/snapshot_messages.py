"""A long queue's messages in the snapshot's columns, made into a dictionary step by step after the start.

To make a dictionary of a million ids takes half a second, and a start needs none: the core wants the ids in their
order, and those the index has. So the columns stay as they were read, slice by slice, and a slice is entered into the
dictionary when a message that may be in it is looked up, or when its turn comes: the store has one entered every
few milliseconds once it serves.

```text
 slices not entered yet         known           newer
 [ e f g h ] [ i j k l ]     { c, d }        { m, n }       a and b were entered, and are consumed
   next to be entered
 `----------- the queue: known, then the slices, then newer ---'
```

Consumers begin at the front, where the slices are entered first. What producers send is new, nearly always, and mostly
that shows without a look: its number is higher than the highest that its producer had in the index, or the producer is
not there. Only for an id without such a number, or one that was there before, every slice is entered at once.
"""

from array import array
from collections import deque
from collections.abc import ItemsView, Iterable, Iterator, MutableMapping, ValuesView
from itertools import accumulate, chain, repeat
from typing import NamedTuple

from pybroker.store.producers import Watermarks


class Slice(NamedTuple):
    """Some messages of a queue, in their order.

    Attributes:
        ids: their ids.
        places: the lower 64 bits of their packed entries, see `contents.pack`.
        files: the bits above, and of how many messages, one behind the other, they are.
    """

    ids: list[str]
    places: "array[int]"
    files: list[tuple[int, int]]

    def entries(self) -> Iterator[tuple[str, int]]:
        """Return ids with packed entries; there must be as many of the ones as of the others."""
        ends = accumulate(count for _, count in self.files)
        packed = (
            map(int.__or__, self.places[end - count : end], repeat(file))
            for (file, count), end in zip(self.files, ends, strict=True)
        )
        return zip(self.ids, chain.from_iterable(packed), strict=True)


class SnapshotMessages(MutableMapping[str, int]):
    """Packed entries by message id, in their order: to be used as the dictionary that it becomes.

    Args:
        slices: the messages, no id twice.
        watermarks: how far the producers of all these had come.
    """

    __slots__ = ("_known", "_newer", "_slices", "_waiting_count", "_watermarks")

    def __init__(self, slices: Iterable[Slice], watermarks: Watermarks) -> None:
        self._slices = deque(slices)
        self._waiting_count = sum(len(each.ids) for each in self._slices)
        self._watermarks = watermarks
        self._known: dict[str, int] = {}
        self._newer: dict[str, int] = {}

    @property
    def is_materialised(self) -> bool:
        """True when no slice is left to enter."""
        return not self._slices

    def load_next(self) -> None:
        """Enter the next slice, of which there must be one: two milliseconds' work."""
        entered = self._slices.popleft()
        self._waiting_count -= len(entered.ids)
        self._known.update(entered.entries())
        if not self._slices:
            self._known.update(self._newer)
            self._newer.clear()

    def materialised(self) -> dict[str, int]:
        """Enter all that is left, and return the dictionary of all messages; it is this object's own as well."""
        while self._slices:
            self.load_next()
        return self._known

    # ------------------------------------------------------------ a mutable mapping

    def __len__(self) -> int:
        return len(self._known) + self._waiting_count + len(self._newer)

    def __iter__(self) -> Iterator[str]:
        return chain(self._known, chain.from_iterable(each.ids for each in self._slices), self._newer)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self.materialised())

    def __contains__(self, message_id: object) -> bool:
        return isinstance(message_id, str) and message_id in self._part_of(message_id)

    def __getitem__(self, message_id: str) -> int:
        return self._part_of(message_id)[message_id]

    def __setitem__(self, message_id: str, packed: int) -> None:
        self._part_of(message_id)[message_id] = packed

    def __delitem__(self, message_id: str) -> None:
        del self._part_of(message_id)[message_id]

    def items(self) -> ItemsView[str, int]:
        """Return ids and entries; enters all."""
        return self.materialised().items()

    def values(self) -> ValuesView[int]:
        """Return the entries; enters all."""
        return self.materialised().values()

    def _part_of(self, message_id: str) -> dict[str, int]:
        """Return the dictionary that has a message, or would have it if it were stored now."""
        known = self._known
        if message_id in known or not self._slices:
            return known
        if message_id not in self._newer and not self._watermarks.is_beyond(message_id):
            while self._slices:
                self.load_next()
                if message_id in known:
                    return known
            return known
        return self._newer


Messages = dict[str, int] | SnapshotMessages
"""Packed entries by message id, in their order."""
