"""References waiting in a queue, oldest first: append and take in O(1), return to one's place in O(log n).

Sorted by sequence. What is taken leaves a tombstone (a reference whose state is not `PENDING`); tombstones at the head
are cut off, and those in the middle swept away, only when they are many, so that nothing is shifted per message.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter

from pybroker.broker.core.reference import Reference, State

_CUT_MIN = 1024
"""Fewer tombstones than this are not worth moving the rest of the list for."""

_sequence = attrgetter("sequence")


class Pending:
    """The waiting references of one backlog."""

    __slots__ = ("_dead", "_head", "_items")

    def __init__(self) -> None:
        self._items: list[Reference] = []
        self._head = 0  # everything before it is a tombstone
        self._dead = 0  # tombstones in the whole list

    def __len__(self) -> int:
        return len(self._items) - self._dead

    def __iter__(self) -> Iterator[Reference]:
        return (item for item in self._items if item.state is State.PENDING)

    def append(self, reference: Reference) -> None:
        """Add the newest reference."""
        self._items.append(reference)

    def scan(self, after: int = -1) -> Iterator[Reference]:
        """Iterate over what waits behind a sequence number; the reference just yielded may be taken."""
        items = self._items
        pending = State.PENDING
        head = self._head
        while head < len(items) and items[head].state is not pending:
            head += 1
        self._head = index = head
        if after >= 0:
            index = bisect_left(items, after + 1, lo=head, key=_sequence)
        while index < len(items):
            if (item := items[index]).state is pending:
                yield item
            index += 1

    def take(self, reference: Reference, state: State) -> None:
        """Move a pending reference to another state; its slot becomes a tombstone."""
        reference.state = state
        self._dead += 1

    def restore(self, reference: Reference) -> None:
        """Put a reference back into its place, whether or not its tombstone is still there."""
        items = self._items
        index = bisect_left(items, reference.sequence, key=_sequence)
        if index < len(items) and items[index] is reference:
            self._dead -= 1
        else:
            items.insert(index, reference)
        reference.state = State.PENDING
        self._head = min(self._head, index)

    def sweep(self) -> None:
        """Let go of tombstones if they are many. Not while a `scan` is under way."""
        head, items = self._head, self._items
        if head >= _CUT_MIN and 16 * head >= len(items):
            del items[:head]
            self._dead -= head
            self._head = 0
        elif self._dead - head >= _CUT_MIN and 2 * self._dead >= len(items):
            self._items = [item for item in items if item.state is State.PENDING]
            self._dead = self._head = 0
