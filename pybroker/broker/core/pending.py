"""References waiting in a backlog, oldest first: append and pop in O(1), back to one's place in O(log n).

```text
 [ d d d d | r r t r t t r r r r ]      d  taken from the front: never looked at again, cut off now and then
           ^ head                       t  tombstone, taken from the middle by a search: its state is not `PENDING`
                                        r  waits
```

Sorted by sequence from the head on. Nothing is shifted per message: what leaves in front moves the head, what leaves in
the middle stays as a tombstone, and both are swept away when they are many. What was handed over on arrival was never
here; it comes, like the rest, by its sequence.

What is too much for memory leaves it: see `page_out` and `recover`. A `Tail` then has its id, and the store its body.
Tail and list are two halves of one order, told apart by nothing but where a message is: whichever has the lower
sequence comes first. So order cannot be lost, whatever arrives, is paged out or comes back in the meantime. Two ways
lead back: `fill` brings the next page into the list, to be popped from there; `scan` shows a page after the other, and
what nobody takes of it stays where it is. Neither holds more than a page beyond what is in the list.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol

from pybroker.broker.core.paging import PAGE_BYTES_MAX, PAGE_MAX
from pybroker.broker.core.reference import Reference, State
from pybroker.broker.core.tail import NOWHERE, Stub, Tail
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT
from pybroker.broker.domain.openwire.routing import PRIORITY_MAX

_SWEEP_MIN = 64
"""Fewer left-overs than this are not worth moving the rest of the list for. They hold on to their messages."""

_PENDING: Final = State.PENDING
_sequence: Final = attrgetter("sequence")
_place = attrgetter("message.destination")


EXACT_MAX = 1000
"""What is recovered of a backlog by priority is put into the exact order of the ten once it is no more than this."""

EXACT_BYTES_MAX = 4 * PAGE_BYTES_MAX
"""Bytes that are read at once for it. What has more stays apart until its last page."""


class Pager(Protocol):
    """Whose backlog it is: reads messages back, and counts what is in memory."""

    def read(self, stubs: Sequence[Stub]) -> tuple[list[Reference], int]:
        """Return references to messages in the store, and how many stubs were looked at, from the first on.

        Those that are lost there are left out. A page is bounded by bytes, and has one message at least that is there.

        Raises:
            StoreUnavailable: they cannot be read now.
        """
        ...

    def hold(self, references: Sequence[Reference]) -> None:
        """Count what has come into memory."""
        ...


class Pending:
    """The waiting references of one backlog, or of one priority in it.

    Attributes:
        count: how many wait.
        searched: per consumer the sequence up to which nothing that waits here is for it.
        tail: what is not in memory; None when all is.
        is_paged: there is such a part.
    """

    __slots__ = ("_dead", "_head", "_items", "_pager", "count", "is_paged", "searched", "tail")

    def __init__(self, pager: Pager | None = None) -> None:
        """Begin with nothing; without a pager all stays in memory."""
        self._items: list[Reference] = []
        self._head = 0
        self._dead = 0  # tombstones from the head on
        self._pager = pager
        self.count = 0
        self.searched: dict[Hashable, int] = {}
        self.tail: Tail | None = None
        self.is_paged = False

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
        """Take the oldest reference and move it to another state. Not during a `scan`.

        There must be one, and where `is_paged` it must have been fetched by `fill`.
        """
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
        """Iterate over what waits behind a sequence number; what was yielded may be taken, and more be appended.

        Raises:
            StoreUnavailable: a page cannot be read.
        """
        while True:
            items, tail = self._items, self.tail
            stop = NOWHERE if tail is None else _first_after(tail, after)
            index = self._head if after < 0 else bisect_left(items, after + 1, lo=self._head, key=_sequence)
            while index < len(items) and (item := items[index]).sequence < stop:
                after = item.sequence
                if item.state is _PENDING:
                    yield item
                index += 1
            if tail is None:
                if items is self._items:
                    return
                continue  # some of it was paged out meanwhile
            stubs = self._page(tail, after, items[index].sequence if index < len(items) else NOWHERE)
            if not stubs and index >= len(items) and items is self._items:
                return
            references, end = self._read(stubs)
            for reference in references:
                if reference.state is _PENDING:
                    yield reference
            after = end if stubs else after

    def in_memory(self) -> Iterator[Reference]:
        """Iterate over what waits and is in memory; what was yielded may be taken."""
        items = self._items
        return (items[index] for index in range(self._head, len(items)) if items[index].state is _PENDING)

    def take(self, reference: Reference, state: State) -> None:
        """Move a reference that waits, wherever it is, to another state."""
        reference.state = state
        self.count -= 1
        if self.tail is not None and self.tail.discard(reference.sequence):
            self._drop_empty_tail()
            self._its_pager.hold((reference,))
        else:
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
            self._insert(missing)
        self.search_again(min(references, key=_sequence).sequence)

    def search_again(self, sequence: int) -> None:
        """Have every consumer look again at what waits from a sequence number on."""
        for consumer, position in self.searched.items():
            self.searched[consumer] = min(position, sequence - 1)

    def forget_consumer(self, consumer: Hashable) -> None:
        """Forget how far a consumer has searched."""
        self.searched.pop(consumer, None)

    def sweep(self) -> None:
        """Let go of left-overs if they are many. Not during a `scan`."""
        items = self._items
        if self._is_list_empty:
            items.clear()
            self._head = self._dead = 0
            return
        head = self._skip()
        if self._dead >= _SWEEP_MIN and 2 * self._dead >= len(items) - head:
            self._items = list(self.in_memory())
            self._head = self._dead = 0
        elif head >= _SWEEP_MIN and 16 * head >= len(items):
            del items[:head]
            self._head = 0

    # ------------------------------------------------------------ out of memory and back

    def recover(self, place: Destination, ids: Sequence[str], *, start: int, delivered: Collection[str] | None) -> None:
        """Add what the store held when it was opened, without reading it; see `Tail.recover`."""
        if ids:
            self._its_tail().recover(place, ids, start=start, delivered=delivered)
            self.count += len(ids)

    def fill(self) -> bool:
        """Have the oldest in memory, to be popped; False when nothing waits. Not during a `scan`.

        Raises:
            StoreUnavailable: a page cannot be read.
        """
        items, head, tail = self._items, self._head, self.tail
        if (
            tail is not None
            and head < len(items)
            and (front := items[head]).state is _PENDING
            and front.sequence < tail.first
        ):
            return True  # as nearly always: this runs for every message popped
        while (tail := self.tail) is not None:
            if not self._is_list_empty and self._items[self._skip()].sequence < tail.first:
                return True
            self.page_in(tail)
        return bool(self.count)

    def page_in(self, tail: Tail) -> int:
        """Bring the first page of its tail into memory, and return its bytes. Not during a `scan`.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        references, _ = self._read(self._page(tail, -1, NOWHERE))
        tail.take(len(references))
        self._drop_empty_tail()
        self._insert(references)
        self._its_pager.hold(references)
        return sum([reference.message.size for reference in references])

    def page_out(self, room: int, before: int, is_stored: Callable[[Reference], bool]) -> tuple[list[Reference], int]:
        """Leave messages to the store: all that may be, but those in front.

        Args:
            room: bytes of those in front that stay. The first that does not fit ends the front.
            before: only messages of lower sequence numbers: the others may not be on disk yet.
            is_stored: tells whether the store has a message at all.

        Returns:
            What has left memory, and the room that those in front leave unused. The references themselves are void.
        """
        kept: list[Reference] = []
        left: list[Reference] = []
        for reference in self.in_memory():
            is_in_front = (size := reference.message.size) <= room
            room = room - size if is_in_front else 0
            if not is_in_front and reference.sequence < before and is_stored(reference):
                left.append(reference)
            else:
                kept.append(reference)
        if left:
            _add_to(self._its_tail(), left)
            self._items = kept
            self._head = self._dead = 0
        return left, max(room, 0)

    def peek(self, after: int, count: int) -> tuple[list[Reference], int]:
        """Return a few references behind a sequence number that are not in memory, and how far that was.

        Raises:
            StoreUnavailable: they cannot be read now.
        """
        return self._read(self.tail.after(after, count) if self.tail is not None else [])

    def lock(self, wanted: Collection[tuple[Destination, str]]) -> list[Reference]:
        """Take these messages, which no consumer may get. Looks at every id that is not in memory.

        Raises:
            StoreUnavailable: they cannot be read.
        """
        stubs = self.tail.find(wanted) if self.tail is not None else []
        locked: list[Reference] = []
        while stubs:
            page, end = self._read(stubs)
            locked += page
            stubs = [stub for stub in stubs if stub.sequence > end]
        locked += [each for each in self.in_memory() if (each.message.destination, each.message.message_id) in wanted]
        for reference in locked:
            self.take(reference, State.DISPATCHED)
        self.sweep()
        return locked

    def clear(self) -> list[Reference]:
        """Forget all; return what was in memory."""
        held = list(self.in_memory())
        self._items, self._head, self._dead = [], 0, 0
        self.count, self.tail, self.is_paged = 0, None, False
        return held

    def delivered(self) -> Iterator[str]:
        """Yield the ids of persistent messages that wait and that a consumer may have seen."""
        for reference in self.in_memory():
            if reference.redelivery_count > 0 and reference.message.persistent:
                yield reference.message.message_id
        if self.tail is not None:
            yield from self.tail.delivered()

    # ------------------------------------------------------------ private

    @property
    def _its_pager(self) -> Pager:
        assert self._pager is not None, "nothing leaves memory without a pager"
        return self._pager

    @property
    def _is_list_empty(self) -> bool:
        return not self.count or (self.tail is not None and self.count == self.tail.count)

    def _skip(self) -> int:
        """Move the head to what waits in the list, of which there must be something."""
        items, head = self._items, self._head
        while items[head].state is not _PENDING:
            self._dead -= 1
            head += 1
        self._head = head
        return head

    def _insert(self, references: list[Reference]) -> None:
        """Put references, oldest first, into the list, where they are not yet."""
        if not references:
            return
        items, head = self._items, self._head
        # Usually the oldest of all. They go where the left-overs in front are, so that the rest need not move.
        stop = bisect_left(items, references[-1].sequence, lo=head, key=_sequence)
        self._head = max(0, head - len(references))
        items[self._head : stop] = sorted(items[head:stop] + references, key=_sequence)

    def _page(self, tail: Tail, after: int, before: int) -> list[Stub]:
        """Return the next page of the tail between two sequence numbers."""
        stubs = tail.after(after, PAGE_MAX)
        if stubs and stubs[-1].sequence > before:
            del stubs[bisect_left(stubs, before, key=_sequence) :]
        return stubs

    def _read(self, stubs: list[Stub]) -> tuple[list[Reference], int]:
        """Return what the first stubs stand for, and the sequence up to which; what is lost is gone."""
        if not stubs:
            return [], NOWHERE
        references, count = self._its_pager.read(stubs)
        if len(references) < count and self.tail is not None:
            found = {reference.sequence for reference in references}
            for stub in stubs[:count]:
                if stub.sequence not in found and self.tail.discard(stub.sequence):
                    self.count -= 1
            self._drop_empty_tail()
        return references, stubs[count - 1].sequence

    def _drop_empty_tail(self) -> None:
        if self.tail is not None and not self.tail.count:
            self.tail = None
            self.is_paged = False

    def _its_tail(self) -> Tail:
        if self.tail is None:
            self.tail = Tail()
            self.is_paged = True
        return self.tail


def _add_to(tail: Tail, references: list[Reference]) -> None:
    """Add references, oldest first, to a tail."""
    for place, group in groupby(references, key=_place):
        together = list(group)
        if together[0].sequence > tail.last and not any(map(_marks, together)):
            ids = [reference.message.message_id for reference in together]
            tail.extend(place, [reference.sequence for reference in together], ids)
            continue
        for each in together:
            tail.put(Stub(each.sequence, each.message.message_id, place, each.redelivery_count, each.suspected))


def _marks(reference: Reference) -> int:
    return reference.redelivery_count or reference.suspected


def _first_after(tail: Tail, sequence: int) -> int:
    if sequence < tail.first:
        return tail.first
    stubs = tail.after(sequence, 1)
    return stubs[0].sequence if stubs else NOWHERE


class PrioritizedPending:
    """The waiting references of a backlog that hands out by priority, and by age within each of the ten.

    What the store held when it was opened has an order already, by three classes at most (above, at and below 4), and
    its priorities are known only once it is read. So it stays apart, in the place of the class of its oldest, before
    what arrived since of that class; the last `EXACT_MAX` of it get their exact places among the ten.

    Attributes:
        count: how many wait.
        is_paged: a part of it may not be in memory.
    """

    __slots__ = ("_exact_room", "_levels", "_pager", "_recovered", "_recovered_end", "count", "is_paged")

    def __init__(self, pager: Pager | None = None) -> None:
        """Begin with nothing; without a pager all stays in memory."""
        self._levels = tuple(Pending(pager) for _ in range(PRIORITY_MAX + 1))
        self._recovered: Pending | None = None
        self._recovered_end = 0
        self._exact_room = 0
        self._pager = pager
        self.count = 0
        self.is_paged = False

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Reference]:
        return self.scan()

    @property
    def levels(self) -> tuple[Pending, ...]:
        """What is to be handed out one after the other: a list per priority, the highest first, behind what is apart.

        Raises:
            StoreUnavailable: what was recovered cannot be read.
        """
        recovered = self._apart()
        return self._levels if recovered is None else (recovered, *self._levels)

    def append(self, reference: Reference) -> None:
        """Add the newest reference of its priority."""
        self._level(reference).append(reference)
        self.count += 1

    def pop(self, state: State) -> Reference:
        """Take the oldest reference of the highest priority; see `Pending`."""
        level = self._next()
        assert level is not None, "nothing waits"
        self.count -= 1
        return level.pop(state)

    def scan(self) -> Iterator[Reference]:
        """Iterate over what waits; what was yielded may be taken.

        Raises:
            StoreUnavailable: a page cannot be read.
        """
        for level in self.levels:
            yield from level.scan()
        self._recount()

    def in_memory(self) -> Iterator[Reference]:
        """Iterate over what waits and is in memory; what was yielded may be taken."""
        for level in self._all():
            yield from level.in_memory()

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

    def search_again(self, sequence: int) -> None:
        """Have every consumer look again at what waits from a sequence number on."""
        for level in self._all():
            level.search_again(sequence)

    def forget_consumer(self, consumer: Hashable) -> None:
        """Forget how far a consumer has searched."""
        for level in self._all():
            level.forget_consumer(consumer)

    def sweep(self) -> None:
        """Let go of left-overs if they are many."""
        for level in self._all():
            level.sweep()
        self._recount()

    def recover(self, place: Destination, ids: Sequence[str], *, start: int, delivered: Collection[str] | None) -> None:
        """Add what the store held when it was opened, without reading it; see `Tail.recover`."""
        if ids:
            if self._recovered is None:
                self._recovered = Pending(self._pager)
            self._recovered.recover(place, ids, start=start, delivered=delivered)
            self._recovered_end = start + len(ids)
            self._exact_room = EXACT_BYTES_MAX
            self.is_paged = True
            self.count += len(ids)

    def fill(self) -> bool:
        """Have in memory what is next to be popped; see `Pending.fill`."""
        level = self._next()
        while level is not None and not level.fill():
            level = self._next()  # all that was left of that one is lost
        self._recount()
        return level is not None

    def page_out(self, room: int, before: int, is_stored: Callable[[Reference], bool]) -> tuple[list[Reference], int]:
        """Leave messages to the store; see `Pending.page_out`."""
        left: list[Reference] = []
        for level in self._all():
            gone, room = level.page_out(room, before, is_stored)
            left += gone
        self.is_paged |= bool(left)
        return left, room

    def lock(self, wanted: Collection[tuple[Destination, str]]) -> list[Reference]:
        """Take these messages, which no consumer may get; see `Pending.lock`."""
        locked = [reference for level in self._all() for reference in level.lock(wanted)]
        self._recount()
        return locked

    def clear(self) -> list[Reference]:
        """Forget all; return what was in memory."""
        held = [reference for level in self._all() for reference in level.clear()]
        self._recovered = None
        self.count = 0
        self.is_paged = False
        return held

    def delivered(self) -> Iterator[str]:
        """Yield the ids of persistent messages that wait and that a consumer may have seen."""
        for level in self._all():
            yield from level.delivered()

    # ------------------------------------------------------------ private

    def _all(self) -> tuple[Pending, ...]:
        return self._levels if self._recovered is None else (self._recovered, *self._levels)

    def _level(self, reference: Reference) -> Pending:
        if self._recovered is not None and reference.sequence < self._recovered_end:
            return self._recovered
        return self._levels[PRIORITY_MAX - reference.message.priority]

    def _next(self) -> Pending | None:
        """Return where the next message is."""
        recovered = self._apart()
        best = next((level for level in self._levels if level.count), None)
        if recovered is None or best is None:
            return best if recovered is None else recovered
        oldest = next(recovered.in_memory()).message
        is_before = _class(oldest.priority) >= _class(PRIORITY_MAX - self._levels.index(best))
        return recovered if is_before else best

    def _apart(self) -> Pending | None:
        """Return what was recovered and is apart, its oldest in memory; None once it has its exact place."""
        recovered = self._recovered
        if recovered is None:
            return None
        if recovered.count > EXACT_MAX and recovered.fill():
            return recovered
        while (tail := recovered.tail) is not None and self._exact_room > 0:
            self._exact_room -= recovered.page_in(tail)
        if tail is not None and recovered.fill():
            return recovered
        self._recovered = None
        held = list(recovered.in_memory())
        self.count -= len(held)
        self.restore(held)
        self._recount()
        return None

    def _recount(self) -> None:
        """Count anew, since what was lost in the store is counted out by the levels."""
        if self.is_paged:
            self.count = sum([level.count for level in self._all()])
            self.is_paged = self._recovered is not None or any([level.is_paged for level in self._levels])


def _class(priority: int) -> int:
    return (priority > PRIORITY_DEFAULT) - (priority < PRIORITY_DEFAULT)


AnyPending = Pending | PrioritizedPending


def pending(*, prioritized: bool, pager: Pager | None = None) -> AnyPending:
    """Return an empty backlog."""
    return PrioritizedPending(pager) if prioritized else Pending(pager)
