"""References waiting in a backlog, oldest first: append and pop in O(1), back to one's place in O(log n).

```text
 [ d d d d | r r t r t t r r r r ]      d  taken from the front: never looked at again, cut off now and then
           ^ head                       t  tombstone, taken from the middle by a search: its state is not `PENDING`
                                        r  waits
```

Sorted by sequence from the head on. Nothing is shifted per message: what leaves in front moves the head, what leaves in
the middle stays as a tombstone, and both are swept away when they are many. What was handed over on arrival was never
here; it comes, like the rest, by its sequence.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from operator import attrgetter

from pybroker.broker.core.reference import Reference, State
from pybroker.broker.domain.openwire.routing import PRIORITY_MAX

_SWEEP_MIN = 64
"""Fewer left-overs than this are not worth moving the rest of the list for. They hold on to their messages."""

_PENDING = State.PENDING
_sequence = attrgetter("sequence")


class Pending:
    """The waiting references of one backlog, or of one priority in it.

    Attributes:
        count: how many wait.
        searched: per consumer the sequence up to which nothing that waits here is for it.
    """

    __slots__ = ("_dead", "_head", "_items", "count", "searched")

    def __init__(self) -> None:
        self._items: list[Reference] = []
        self._head = 0
        self._dead = 0  # tombstones from the head on
        self.count = 0
        self.searched: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Reference]:
        return self.scan()

    @property
    def levels(self) -> "tuple[Pending, ...]":
        """What is to be handed out one after the other: all of it at once."""
        return (self,)

    def append(self, reference: Reference) -> None:
        """Add the newest reference."""
        self._items.append(reference)
        self.count += 1

    def pop(self, state: State) -> Reference:
        """Take the oldest reference, of which there must be one, and move it to another state. Not during a `scan`."""
        items = self._items
        head = self._head
        while (reference := items[head]).state is not _PENDING:
            self._dead -= 1
            head += 1
        reference.state = state
        self._head = head = head + 1
        self.count -= 1
        if not self.count or (head >= _SWEEP_MIN and 16 * head >= len(items)):
            self.sweep()
        return reference

    def scan(self, after: int = -1) -> Iterator[Reference]:
        """Iterate over what waits behind a sequence number; what was yielded may be taken, and more be appended."""
        items = self._items
        index = self._head if after < 0 else bisect_left(items, after + 1, lo=self._head, key=_sequence)
        while index < len(items):
            if (item := items[index]).state is _PENDING:
                yield item
            index += 1

    def take(self, reference: Reference, state: State) -> None:
        """Move a reference that waits, wherever it is, to another state."""
        reference.state = state
        self.count -= 1
        self._dead += 1

    def restore(self, references: Sequence[Reference]) -> None:
        """Put references back into their places. Not during a `scan`."""
        if not references:
            return
        items, head = self._items, self._head
        missing: list[Reference] = []
        for reference in sorted(references, key=_sequence):
            index = bisect_left(items, reference.sequence, lo=head, key=_sequence)
            if index < len(items) and items[index] is reference:
                self._dead -= 1
            else:
                missing.append(reference)
            reference.state = _PENDING
        self.count += len(references)
        if missing:
            # Usually the oldest of all. They go where the left-overs in front are, so that the rest need not move.
            stop = bisect_left(items, missing[-1].sequence, lo=head, key=_sequence)
            self._head = max(0, head - len(missing))
            items[self._head : stop] = sorted(items[head:stop] + missing, key=_sequence)
        self.search_again(min(references, key=_sequence).sequence)

    def search_again(self, sequence: int) -> None:
        """Have every consumer look again at what waits from a sequence number on."""
        for consumer, position in self.searched.items():
            self.searched[consumer] = min(position, sequence - 1)

    def sweep(self) -> None:
        """Let go of left-overs if they are many. Not during a `scan`."""
        items, head = self._items, self._head
        if not self.count:
            items.clear()
            self._head = self._dead = 0
            return
        while items[head].state is not _PENDING:
            self._dead -= 1
            head += 1
        self._head = head
        if self._dead >= _SWEEP_MIN and 2 * self._dead >= len(items) - head:
            self._items = list(self.scan())
            self._head = self._dead = 0
        elif head >= _SWEEP_MIN and 16 * head >= len(items):
            del items[:head]
            self._head = 0


class PrioritizedPending:
    """The waiting references of a backlog that hands out by priority, and by age within each of the ten.

    Attributes:
        count: how many wait.
        levels: one list per priority, the highest first.
    """

    __slots__ = ("count", "levels")

    def __init__(self) -> None:
        self.levels = tuple(Pending() for _ in range(PRIORITY_MAX + 1))
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Reference]:
        return self.scan()

    def append(self, reference: Reference) -> None:
        """Add the newest reference of its priority."""
        self._level(reference).append(reference)
        self.count += 1

    def pop(self, state: State) -> Reference:
        """Take the oldest reference of the highest priority; see `Pending`."""
        self.count -= 1
        for level in self.levels:
            if level.count:
                return level.pop(state)
        raise AssertionError("nothing waits")

    def scan(self) -> Iterator[Reference]:
        """Iterate over what waits; what was yielded may be taken."""
        for level in self.levels:
            yield from level.scan()

    def take(self, reference: Reference, state: State) -> None:
        """Move a reference that waits to another state."""
        self._level(reference).take(reference, state)
        self.count -= 1

    def restore(self, references: Sequence[Reference]) -> None:
        """Put references back into their places."""
        by_level: dict[Pending, list[Reference]] = {}
        for reference in references:
            by_level.setdefault(self._level(reference), []).append(reference)
        for level, its_references in by_level.items():
            level.restore(its_references)
        self.count += len(references)

    def sweep(self) -> None:
        """Let go of left-overs if they are many."""
        for level in self.levels:
            level.sweep()

    def _level(self, reference: Reference) -> Pending:
        return self.levels[PRIORITY_MAX - reference.message.priority]


AnyPending = Pending | PrioritizedPending


def pending(*, prioritized: bool) -> AnyPending:
    """Return an empty backlog."""
    return PrioritizedPending() if prioritized else Pending()
