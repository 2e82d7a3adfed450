"""The part of a backlog that is not in memory: message ids by their sequence numbers, some 16 bytes a message.

```text
          run 1 (a recovery's)                    run 2 (paged out while the broker ran)
  ids       [  -    -   id   id   -   id  ... ]     [ id   id   id ]        - : taken, or never back
  sequences   0    1    2    3    4    5  ...         907  908  911
                        ^ head
```

A run is a list of ids beside their sequence numbers: a `range` where a recovery counted them off, which costs nothing
however many there are, or an array. Runs stand in the order of their sequences and do not overlap. The ids are the very
strings that the store's own tables hold, so a list of them costs a pointer each.

Pure bookkeeping: who reads the messages is `pending`'s business, when they leave memory `paging`'s.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, cast

from pybroker.broker.domain.destination import Destination

NOWHERE = 2**63
"""Behind every sequence number."""

_RUN_MAX = 8192
"""Ids in a run that grows: to put one in between moves at most that many."""

_SEEN = (1, 0)
_UNSEEN = (0, 0)

_NOBODY: frozenset[str] = frozenset()


class Stub(NamedTuple):
    """What is left in memory of a message.

    Attributes:
        sequence: its place in the backlog.
        message_id: its name in the store.
        place: the destination it lies on there.
        redelivery_count: see `Reference`.
        suspected: see `Reference`.
    """

    sequence: int
    message_id: str
    place: Destination
    redelivery_count: int = 0
    suspected: int = 0


class _Run:
    """Ids of one destination in ascending order; None where there is none any more.

    Attributes:
        delivered: those that a consumer may have seen before this process; None: all.
        head: everything before it is None.
        count: ids left.
    """

    __slots__ = ("count", "delivered", "head", "ids", "place", "sequences")

    def __init__(
        self,
        place: Destination,
        sequences: "range | array[int]",
        ids: "list[str | None]",
        delivered: Collection[str] | None = _NOBODY,
    ) -> None:
        self.place = place
        self.sequences = sequences
        self.ids = ids
        self.delivered = delivered
        self.head = 0
        self.count = len(ids)

    def add(self, sequence: int, message_id: str) -> None:
        """Put an id at its place from the head on; in a range it has been there before."""
        sequences, ids = self.sequences, self.ids
        index = len(ids) if sequence > sequences[-1] else bisect_left(sequences, sequence)
        if index < len(ids) and sequences[index] == sequence:
            ids[index] = message_id
        else:
            assert isinstance(sequences, array), "a range has no gaps"
            sequences.insert(index, sequence)
            ids.insert(index, message_id)
        self.count += 1

    def forget_used(self) -> None:
        """Cut off what lies before the head."""
        del self.ids[: self.head]
        self.sequences = self.sequences[self.head :]
        self.head = 0


def _start(run: _Run) -> int:
    return run.sequences[0]


class Tail:
    """Stubs in the order of their sequences.

    Attributes:
        count: how many.
        first: the lowest sequence, `NOWHERE` when there is none.
    """

    __slots__ = ("_marks", "_runs", "count", "first")

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._marks: dict[int, tuple[int, int]] = {}  # of those that are not as their run says: rare
        self.count = 0
        self.first = NOWHERE

    def recover(self, place: Destination, ids: Sequence[str], *, start: int, delivered: Collection[str] | None) -> None:
        """Add what a store held when it was opened, in its order. Does not look at the single ids.

        Args:
            place: where they lie.
            ids: a list that is the tail's own from now on.
            start: sequence of the first, higher than all there is; the others follow without gaps.
            delivered: those that a consumer may have seen before; None: all.
        """
        if ids:
            owned = cast("list[str | None]", ids if isinstance(ids, list) else list(ids))
            self._runs.append(_Run(place, range(start, start + len(ids)), owned, delivered))
            self.count += len(ids)
            self.first = min(self.first, start)

    @property
    def last(self) -> int:
        """No sequence is higher; -1 without any."""
        return self._runs[-1].sequences[-1] if self._runs else -1

    def extend(self, place: Destination, sequences: list[int], ids: list[str]) -> None:
        """Add stubs behind all others; no consumer has seen them."""
        run = self._runs[-1] if self._runs else None
        if run is None or isinstance(run.sequences, range) or run.place != place or len(run.ids) >= _RUN_MAX:
            self._runs.append(_Run(place, array("Q", sequences), [*ids]))
        else:
            run.sequences.extend(sequences)
            run.ids.extend(ids)
            run.count += len(ids)
        self.count += len(ids)
        self.first = min(self.first, sequences[0])

    def put(self, stub: Stub) -> None:
        """Add a stub in its place."""
        run = self._run_for(stub)
        if run is None:
            run = _Run(stub.place, array("Q", (stub.sequence,)), [stub.message_id])
            self._runs.insert(bisect_right(self._runs, stub.sequence, key=_start), run)
        else:
            run.add(stub.sequence, stub.message_id)
        if stub[3:] != self._as_recovered(run, stub.message_id):
            self._marks[stub.sequence] = stub[3:]
        self.count += 1
        self.first = min(self.first, stub.sequence)

    def take(self, count: int) -> None:
        """Remove the first stubs: so many, or all there are."""
        if self._marks:
            for stub in self.after(-1, count):
                self._marks.pop(stub.sequence, None)
        left = min(count, self.count)
        self.count -= left
        while left:
            run = self._runs[0]
            if run.count <= left:
                left -= run.count
                del self._runs[0]
                continue
            index, ids = run.head, run.ids
            run.count -= left
            while left:
                if ids[index] is not None:
                    ids[index] = None
                    left -= 1
                index += 1
            run.head = index
        self._find_first()

    def after(self, sequence: int, count: int) -> list[Stub]:
        """Return the first stubs behind a sequence number, at most so many; they stay."""
        found: list[Stub] = []
        runs = self._runs
        at = max(0, bisect_right(runs, sequence, key=_start) - 1)
        while len(found) < count and at < len(runs):
            run = runs[at]
            index = max(run.head, bisect_right(run.sequences, sequence))
            ids, sequences, place = run.ids, run.sequences, run.place
            while index < len(ids) and len(found) < count:
                stop = index + count - len(found)
                slots = zip(sequences[index:stop], ids[index:stop], strict=True)
                if self._marks or run.delivered:
                    found += [
                        Stub(sequence, message_id, place, *self._marks_of(run, sequence, message_id))
                        for sequence, message_id in slots
                        if message_id is not None
                    ]
                else:  # all are alike, as nearly always
                    redelivery_count = int(run.delivered is None)
                    found += [
                        Stub(sequence, message_id, place, redelivery_count)
                        for sequence, message_id in slots
                        if message_id is not None
                    ]
                index = stop
            at += 1
        return found

    def discard(self, sequence: int) -> bool:
        """Remove a stub; False when there is none of that sequence."""
        if sequence < self.first:
            return False
        at = bisect_right(self._runs, sequence, key=_start) - 1
        run = self._runs[at]
        index = bisect_left(run.sequences, sequence)
        if index >= len(run.ids) or run.sequences[index] != sequence or run.ids[index] is None:
            return False
        run.ids[index] = None
        run.count -= 1
        self.count -= 1
        if self._marks:
            self._marks.pop(sequence, None)
        if not run.count:
            del self._runs[at]
        if sequence == self.first:
            self._find_first()
        return True

    def find(self, wanted: Collection[tuple[Destination, str]]) -> list[Stub]:
        """Return the stubs of these messages. Looks at every id."""
        return [
            Stub(run.sequences[index], message_id, run.place, *self._marks_of(run, run.sequences[index], message_id))
            for run in self._runs
            for index, message_id in enumerate(run.ids)
            if message_id is not None and (run.place, message_id) in wanted
        ]

    def delivered(self) -> Iterator[str]:
        """Yield the ids of what a consumer may have seen."""
        for run in self._runs:
            if run.delivered is None or run.delivered or self._marks:
                for sequence, message_id in zip(run.sequences, run.ids, strict=True):
                    if message_id is not None and self._marks_of(run, sequence, message_id)[0]:
                        yield message_id

    # ------------------------------------------------------------ private

    def _run_for(self, stub: Stub) -> _Run | None:
        """Return the run in which a stub has its place; None: it needs one of its own, for which there is room."""
        sequence = stub.sequence
        index = bisect_right(self._runs, sequence, key=_start) - 1
        if index < 0:
            return None
        run = self._runs[index]
        if sequence > run.sequences[-1]:
            grows = isinstance(run.sequences, array) and len(run.ids) < _RUN_MAX and run.place == stub.place
            return run if grows else None
        if sequence < run.sequences[run.head]:  # to go back there would mean to walk through the gap once more
            run.forget_used()
            return self._run_for(stub)
        if run.place == stub.place:
            return run
        self._split(index, sequence)
        return None

    def _split(self, index: int, sequence: int) -> None:
        """Divide a run where a sequence number lies in between."""
        run = self._runs[index]
        at = bisect_left(run.sequences, sequence)
        right = _Run(run.place, run.sequences[at:], run.ids[at:], run.delivered)
        right.count = sum(each is not None for each in right.ids)
        del run.ids[at:]
        run.sequences = run.sequences[:at]
        run.count -= right.count
        self._runs[index : index + 1] = [each for each in (run, right) if each.count]

    def _marks_of(self, run: _Run, sequence: int, message_id: str) -> tuple[int, int]:
        mark = self._marks.get(sequence) if self._marks else None
        return mark or self._as_recovered(run, message_id)

    def _as_recovered(self, run: _Run, message_id: str) -> tuple[int, int]:
        return _SEEN if run.delivered is None or message_id in run.delivered else _UNSEEN

    def _find_first(self) -> None:
        if not self._runs:
            self.first = NOWHERE
            return
        run = self._runs[0]
        while run.ids[run.head] is None:
            run.head += 1
        self.first = run.sequences[run.head]
