"""The paged-out index: message ids and sequence numbers of the part of a backlog that only the store holds.

```text
          run 1 (from a recovery)                 run 2 (paged out while the broker ran)
  ids       [  -    -   id   id   -   id  ... ]     [ id   id   id ]        - : None, the message has been removed
  sequences   0    1    2    3    4    5  ...         907  908  911
                        ^ head
```

A run is a list of message ids and their sequence numbers: a `range` if a recovery assigned them, which takes the same
memory for any number of messages, or an array. Runs are sorted by sequence number and do not overlap. The index takes
some 16 bytes per message, because each id is the same string object that the store's own tables hold.

A message that no store has is in the spool (`MessageSpool`), where its place finds it. Its id is not kept: it is the
empty text here, in a run that has an array of places besides. A place that leaves the index is released.

This module does no I/O. `pending` reads the messages, and `paging` describes when they leave memory.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple, cast

from pybroker.broker.domain.destination import Destination

SEQUENCE_MAX = 2**63
"""Larger than every sequence number."""

_RUN_MAX = 8192
"""Ids in a run that grows: an insertion moves no more than these."""

IN_STORE: Final = -1
"""The place of a message that the store has, by its id."""

_SEEN = (1, 0)
_UNSEEN = (0, 0)

_NONE_DELIVERED: frozenset[str] = frozenset()


class MessageRef(NamedTuple):
    """A paged-out message: what memory holds of it.

    Attributes:
        sequence: its position in the backlog.
        message_id: its id in the store.
        destination: its destination in the store.
        redelivery_count: see `Reference`.
        strikes: see `Reference`.
        place: its place in the spool, which has it then, and not the store; otherwise `IN_STORE`.
    """

    sequence: int
    message_id: str
    destination: Destination
    redelivery_count: int = 0
    strikes: int = 0
    place: int = IN_STORE


class _Run:
    """Messages of one destination by ascending sequence number; the id of a removed message is None.

    Attributes:
        delivered: ids that a consumer may have seen before this process started; None: all of them.
        head: the index before which all ids are None.
        count: how many ids are not None.
        places: the places in the spool, or `IN_STORE`; None: the store has all.
    """

    __slots__ = ("count", "delivered", "destination", "head", "ids", "places", "sequences")

    def __init__(
        self,
        destination: Destination,
        sequences: "range | array[int]",
        ids: "list[str | None]",
        delivered: Collection[str] | None = _NONE_DELIVERED,
    ) -> None:
        self.destination = destination
        self.sequences = sequences
        self.ids = ids
        self.delivered = delivered
        self.head = 0
        self.count = len(ids)
        self.places: array[int] | None = None

    def ensure_places(self) -> "array[int]":
        """Return the array of places, made now if the store has had all messages so far."""
        if self.places is None:
            self.places = array("q", (IN_STORE,)) * len(self.ids)
        return self.places

    def add(self, sequence: int, message_id: str, place: int) -> None:
        """Insert an id, at the head or behind it. In a range only an id that was removed can come back."""
        if place != IN_STORE:
            self.ensure_places()
        sequences, ids = self.sequences, self.ids
        index = len(ids) if sequence > sequences[-1] else bisect_left(sequences, sequence)
        if index < len(ids) and sequences[index] == sequence:
            ids[index] = message_id
            if self.places is not None:
                self.places[index] = place
        else:
            assert isinstance(sequences, array), "a range has no gaps"
            sequences.insert(index, sequence)
            ids.insert(index, message_id)
            if self.places is not None:
                self.places.insert(index, place)
        self.count += 1

    def forget_used(self) -> None:
        """Delete the removed ids before the head."""
        del self.ids[: self.head]
        if self.places is not None:
            del self.places[: self.head]
        self.sequences = self.sequences[self.head :]
        self.head = 0

    def used_places(self) -> list[int]:
        """Return the places of its messages in the spool."""
        if self.places is None:
            return []
        return [
            place
            for place, message_id in zip(self.places, self.ids, strict=True)
            if place != IN_STORE and message_id is not None
        ]


def _start(run: _Run) -> int:
    return run.sequences[0]


def _nothing(place: int) -> None:
    """Do nothing; the default of `PagedOutIndex.release`."""


class PagedOutIndex:
    """References to paged-out messages by ascending sequence number.

    Attributes:
        count: how many there are.
        first: the lowest sequence number; `SEQUENCE_MAX` if the index is empty.
    """

    __slots__ = ("_counts", "_release", "_runs", "count", "first")

    def __init__(self, release: Callable[[int], None] = _nothing) -> None:
        """Create an empty index; `release` gets each place in the spool that leaves it."""
        self._release = release
        self._runs: list[_Run] = []
        self._counts: dict[int, tuple[int, int]] = {}  # only where they differ from the run's: rare
        self.count = 0
        self.first = SEQUENCE_MAX

    def recover(
        self, destination: Destination, ids: Sequence[str], *, start: int, delivered: Collection[str] | None
    ) -> None:
        """Add the messages that a store held when it was opened. Takes the same time for any number of them.

        Args:
            destination: their destination.
            ids: their ids in dispatch order; the index takes over a list and changes it.
            start: sequence number of the first, higher than all in the index; the others follow without gaps.
            delivered: ids that a consumer may have seen before; None: all of them.
        """
        if ids:
            owned = cast("list[str | None]", ids if isinstance(ids, list) else list(ids))
            self._runs.append(_Run(destination, range(start, start + len(ids)), owned, delivered))
            self.count += len(ids)
            self.first = min(self.first, start)

    @property
    def last(self) -> int:
        """An upper bound of the sequence numbers; -1 if the index is empty."""
        return self._runs[-1].sequences[-1] if self._runs else -1

    def extend(
        self, destination: Destination, sequences: list[int], ids: list[str], places: list[int] | None = None
    ) -> None:
        """Append messages that no consumer has seen; `places` are those in the spool, None: the store has them all."""
        run = self._runs[-1] if self._runs else None
        if (
            run is None
            or isinstance(run.sequences, range)
            or run.delivered is None
            or run.destination != destination
            or len(run.ids) >= _RUN_MAX
        ):
            run = _Run(destination, array("Q", sequences), [*ids])
            if places is not None:
                run.places = array("q", places)
            self._runs.append(run)
        else:
            if places is not None or run.places is not None:
                run.ensure_places().extend(places or [IN_STORE] * len(ids))
            run.sequences.extend(sequences)
            run.ids.extend(ids)
            run.count += len(ids)
        self.count += len(ids)
        self.first = min(self.first, sequences[0])

    def insert_seen(self, destination: Destination, sequences: list[int], ids: list[str]) -> bool:
        """Insert messages that a consumer has seen once, if no others are between them; return False otherwise."""
        at = bisect_right(self._runs, sequences[0], key=_start)
        if at and self._runs[at - 1].sequences[-1] >= sequences[0]:
            return False
        if at < len(self._runs) and _start(self._runs[at]) <= sequences[-1]:
            return False
        self._runs[at:at] = [
            _Run(destination, array("Q", sequences[start : start + _RUN_MAX]), [*ids[start : start + _RUN_MAX]], None)
            for start in range(0, len(ids), _RUN_MAX)
        ]
        self.count += len(ids)
        self.first = min(self.first, sequences[0])
        return True

    def insert(self, ref: MessageRef) -> None:
        """Insert a message by its sequence number."""
        run = self._run_for(ref)
        if run is None:
            run = _Run(ref.destination, array("Q", (ref.sequence,)), [ref.message_id])
            if ref.place != IN_STORE:
                run.ensure_places()[0] = ref.place
            self._runs.insert(bisect_right(self._runs, ref.sequence, key=_start), run)
        else:
            run.add(ref.sequence, ref.message_id, ref.place)
        counts = (ref.redelivery_count, ref.strikes)
        if counts != self._as_recovered(run, ref.message_id):
            self._counts[ref.sequence] = counts
        self.count += 1
        self.first = min(self.first, ref.sequence)

    def remove_first(self, count: int) -> None:
        """Remove the first `count` messages, or all if there are fewer."""
        if self._counts:
            for ref in self.after(-1, count):
                self._counts.pop(ref.sequence, None)
        left = min(count, self.count)
        self.count -= left
        while left:
            run = self._runs[0]
            if run.count <= left:
                left -= run.count
                del self._runs[0]
                for place in run.used_places():
                    self._release(place)
                continue
            index, ids, places = run.head, run.ids, run.places
            run.count -= left
            while left:
                if ids[index] is not None:
                    ids[index] = None
                    if places is not None and places[index] != IN_STORE:
                        self._release(places[index])
                    left -= 1
                index += 1
            run.head = index
        self._find_first()

    def after(self, sequence: int, count: int) -> list[MessageRef]:
        """Return the messages that follow a sequence number, at most `count`; they stay in the index."""
        found: list[MessageRef] = []
        runs = self._runs
        at = max(0, bisect_right(runs, sequence, key=_start) - 1)
        while len(found) < count and at < len(runs):
            run = runs[at]
            index = max(run.head, bisect_right(run.sequences, sequence))
            ids, sequences, destination = run.ids, run.sequences, run.destination
            while index < len(ids) and len(found) < count:
                stop = index + count - len(found)
                slots = zip(sequences[index:stop], ids[index:stop], strict=True)
                if run.places is not None:
                    found += [
                        MessageRef(number, message_id, destination, *self._counts_of(run, number, message_id), place)
                        for (number, message_id), place in zip(slots, run.places[index:stop], strict=True)
                        if message_id is not None
                    ]
                elif self._counts or run.delivered:
                    found += [
                        MessageRef(sequence, message_id, destination, *self._counts_of(run, sequence, message_id))
                        for sequence, message_id in slots
                        if message_id is not None
                    ]
                else:  # nearly always: all have the same counts
                    redelivery_count = int(run.delivered is None)
                    found += [
                        MessageRef(sequence, message_id, destination, redelivery_count)
                        for sequence, message_id in slots
                        if message_id is not None
                    ]
                index = stop
            at += 1
        return found

    def discard(self, sequence: int) -> bool:
        """Remove a message; return False if there is none of that sequence number."""
        if sequence < self.first:
            return False
        at = bisect_right(self._runs, sequence, key=_start) - 1
        run = self._runs[at]
        index = bisect_left(run.sequences, sequence)
        if index >= len(run.ids) or run.sequences[index] != sequence or run.ids[index] is None:
            return False
        run.ids[index] = None
        if run.places is not None and run.places[index] != IN_STORE:
            self._release(run.places[index])
        run.count -= 1
        self.count -= 1
        if self._counts:
            self._counts.pop(sequence, None)
        if not run.count:
            del self._runs[at]
        if sequence == self.first:
            self._find_first()
        return True

    def find(self, wanted: Collection[tuple[Destination, str]]) -> list[MessageRef]:
        """Return the references to these messages. Compares every id in the index."""
        return [
            MessageRef(
                run.sequences[index],
                message_id,
                run.destination,
                *self._counts_of(run, run.sequences[index], message_id),
            )
            for run in self._runs
            for index, message_id in enumerate(run.ids)
            if message_id is not None and (run.destination, message_id) in wanted
        ]

    def stored_ids(self, destination: Destination) -> Iterator[str]:
        """Yield the ids of messages of a destination that are in the store."""
        for run in self._runs:
            if run.destination == destination:
                places = run.places
                for index, message_id in enumerate(run.ids):
                    if message_id is not None and (places is None or places[index] == IN_STORE):
                        yield message_id

    def delivered(self) -> Iterator[str]:
        """Yield the ids of messages in the store that a consumer may have seen."""
        for run in self._runs:
            if run.delivered is None or run.delivered or self._counts:
                for sequence, message_id in zip(run.sequences, run.ids, strict=True):
                    if message_id and self._counts_of(run, sequence, message_id)[0]:
                        yield message_id

    def release_next(self) -> bool:
        """Free a part of an index that is used for nothing else any more, and its places; return False after all."""
        if not self._runs:
            return False
        run = self._runs[-1]
        if run.places is None and len(run.ids) > _RUN_MAX:
            del run.ids[-_RUN_MAX:]
            return True
        self._runs.pop()
        for place in run.used_places():
            self._release(place)
        return True

    @property
    def has_places(self) -> bool:
        """True if messages are in the spool."""
        return any(run.places is not None for run in self._runs)

    # ------------------------------------------------------------ private

    def _run_for(self, ref: MessageRef) -> _Run | None:
        """Return the run into which a message belongs; None if it needs a new one, for which this frees space."""
        sequence = ref.sequence
        index = bisect_right(self._runs, sequence, key=_start) - 1
        if index < 0:
            return None
        run = self._runs[index]
        if sequence > run.sequences[-1]:
            grows = isinstance(run.sequences, array) and len(run.ids) < _RUN_MAX and run.destination == ref.destination
            return run if grows else None
        if sequence < run.sequences[run.head]:  # moving the head back would have it cross the removed ids once more
            run.forget_used()
            return self._run_for(ref)
        if run.destination == ref.destination:
            return run
        self._split(index, sequence)
        return None

    def _split(self, index: int, sequence: int) -> None:
        """Split a run in two before the first sequence number that is not lower than this one."""
        run = self._runs[index]
        at = bisect_left(run.sequences, sequence)
        right = _Run(run.destination, run.sequences[at:], run.ids[at:], run.delivered)
        right.count = sum(each is not None for each in right.ids)
        if run.places is not None:
            right.places = run.places[at:]
            del run.places[at:]
        del run.ids[at:]
        run.sequences = run.sequences[:at]
        run.count -= right.count
        self._runs[index : index + 1] = [each for each in (run, right) if each.count]

    def _counts_of(self, run: _Run, sequence: int, message_id: str) -> tuple[int, int]:
        mark = self._counts.get(sequence) if self._counts else None
        return mark or self._as_recovered(run, message_id)

    def _as_recovered(self, run: _Run, message_id: str) -> tuple[int, int]:
        return _SEEN if run.delivered is None or message_id in run.delivered else _UNSEEN

    def _find_first(self) -> None:
        if not self._runs:
            self.first = SEQUENCE_MAX
            return
        run = self._runs[0]
        while run.ids[run.head] is None:
            run.head += 1
        self.first = run.sequences[run.head]
