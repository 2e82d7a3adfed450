"""References waiting in a backlog, oldest first: append and pop take O(1), restoring a reference takes O(log n).

```text
 [ d d d d | r r t r t t r r r r ]      d  removed from the front
           ^ head                       t  tombstone: removed from the middle by a search, its state is not `PENDING`
                                        r  waiting reference
```

From the head on the list is sorted by sequence number. No removal moves the rest of the list: one at the front advances
the head, one in the middle leaves a tombstone. `compact` deletes both once there are many. A message that goes to a
consumer on arrival is never in the list. If it is restored later, it is inserted by its sequence number.

A message that is paged out (`page_out`), or was recovered and not yet read (`recover`), is not in the list: its id, or
its place in the spool, is in a `PagedOutIndex`, its body only in the store or the spool. List and index together are
the backlog, merged by sequence number, so the order holds whatever arrives, is paged out or is restored at the same
time. Paged-out messages are read in two ways,
and neither holds more than one page besides the list: `fill` reads the next page into the list, from which `pop` takes
it; `scan` iterates over one page after another, and what no consumer takes stays paged out.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol

from pybroker.broker.core.paged_out_index import IN_STORE, SEQUENCE_MAX, MessageRef, PagedOutIndex
from pybroker.broker.core.paging import PAGE_BYTES_MAX, PAGE_MAX
from pybroker.broker.core.reference import Reference, ReferenceState
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT
from pybroker.broker.domain.openwire.routing import PRIORITY_MAX

_COMPACT_MIN = 64
"""Below this number of tombstones the list is not compacted, which moves it. A tombstone keeps its message alive."""

_PENDING: Final = ReferenceState.PENDING
_sequence: Final = attrgetter("sequence")


EXACT_MAX = 1000
"""Recovered messages of a backlog by priority are sorted into the ten priorities once no more than this are left."""

EXACT_BYTES_MAX = 4 * PAGE_BYTES_MAX
"""Bytes read at once to sort them. If they take more, they are not sorted until their last page."""


class Pager(Protocol):
    """The owner of a backlog: reads messages from the store, and counts the memory that they take."""

    def read(self, refs: Sequence[MessageRef]) -> tuple[list[Reference], int]:
        """Return references to the first of these messages, and how many of the given refs were looked up.

        A message that the store has lost is left out. The number of bytes read is limited, but if the store has any of
        the messages, at least one is returned.

        Raises:
            StoreUnavailable: they cannot be read now.
        """
        ...

    def count_in(self, references: Sequence[Reference]) -> None:
        """Add messages that have been read back to the memory usage."""
        ...

    def lose(self, count: int) -> None:
        """Count messages that do not wait any more, because the store has lost them, or left them by mistake."""
        ...

    def release_place(self, place: int) -> None:
        """Free the place in the spool of a message that is not paged out any more."""
        ...

    def release_index(self, paged_out: PagedOutIndex) -> None:
        """Free an index that is not used any more, and all its places, not necessarily within this call."""
        ...


class Pending:
    """The waiting references of one backlog, or of one priority in it.

    Attributes:
        count: how many references wait.
        searched: by consumer, the sequence number up to which it accepts none of the waiting references.
        paged_out: the waiting messages that are not in memory; None if all are.
        is_paged: True if some are not in memory.
    """

    __slots__ = ("_head", "_items", "_pager", "_tombstones", "count", "is_paged", "paged_out", "searched")

    def __init__(self, pager: Pager | None = None) -> None:
        """Create an empty backlog; without a pager nothing is ever paged out."""
        self._items: list[Reference] = []
        self._head = 0
        self._tombstones = 0  # tombstones from the head on
        self._pager = pager
        self.count = 0
        self.searched: dict[Hashable, int] = {}
        self.paged_out: PagedOutIndex | None = None
        self.is_paged = False

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Reference]:
        return self.scan()

    @property
    def levels(self) -> "tuple[Pending, ...]":
        """The parts of the backlog in dispatch order: this one only."""
        return (self,)

    @property
    def parts(self) -> "tuple[Pending, ...]":
        """The parts of the backlog, without reading any: this one only."""
        return (self,)

    def append(self, reference: Reference) -> None:
        """Add the newest reference."""
        self._items.append(reference)
        self.count += 1

    def pop(self, state: ReferenceState) -> Reference:
        """Remove the oldest reference and move it to another state. Not during a `scan`.

        The backlog must not be empty. While `is_paged`, `fill` must have been called before.
        """
        items = self._items
        head = self._head
        while (reference := items[head]).state is not _PENDING:
            self._tombstones -= 1
            head += 1
        reference.state = state
        self._head = head = head + 1
        self.count -= 1
        if not self.count or (head >= _COMPACT_MIN and 16 * head >= len(items)):
            self.compact()
        return reference

    def scan(self, after: int = -1, wanted: int = 0) -> Iterator[Reference]:
        """Iterate over the references behind a sequence number; removals and appends are allowed during it.

        Args:
            after: the sequence number.
            wanted: how many are likely to be used; 0: all. The first page that is read has no more, and each further
                one has twice as many: the rest of a page is read again if the iteration ends in the midst of it.

        Raises:
            StoreUnavailable: a page cannot be read.
        """
        count_max = min(wanted or PAGE_MAX, PAGE_MAX)
        while True:
            items, paged_out = self._items, self.paged_out
            stop = SEQUENCE_MAX if paged_out is None else _first_after(paged_out, after)
            index = self._head if after < 0 else bisect_left(items, after + 1, lo=self._head, key=_sequence)
            while index < len(items) and (item := items[index]).sequence < stop:
                after = item.sequence
                if item.state is _PENDING:
                    yield item
                index += 1
            if paged_out is None:
                if items is self._items:
                    return
                continue  # messages were paged out in between
            before = items[index].sequence if index < len(items) else SEQUENCE_MAX
            refs = self._page(paged_out, after, before, count_max)
            count_max = min(2 * count_max, PAGE_MAX)
            if not refs and index >= len(items) and items is self._items:
                return
            references, end = self._read(refs)
            for reference in references:
                if reference.state is _PENDING:
                    yield reference
            after = end if refs else after

    def in_memory(self, after: int = -1) -> Iterator[Reference]:
        """Iterate over the references in memory behind a sequence number; removals are allowed during it."""
        items, start = self._items, self._head
        if after >= 0:
            start = bisect_left(items, after + 1, lo=start, key=_sequence)
        for index in range(start, len(items)):  # a generator expression would be a list of them all once compiled
            if (reference := items[index]).state is _PENDING:
                yield reference

    def remove(self, reference: Reference, state: ReferenceState) -> None:
        """Remove a waiting reference, in memory or paged out, and move it to another state."""
        reference.state = state
        self.count -= 1
        if self.paged_out is not None and self.paged_out.discard(reference.sequence):
            self._drop_empty_index()
            self._required_pager.count_in((reference,))
        else:
            self._tombstones += 1

    def discard(self, sequence: int) -> bool:
        """Remove a paged-out message without reading it; return False if none of that sequence number is paged out."""
        if self.paged_out is None or not self.paged_out.discard(sequence):
            return False
        self.count -= 1
        self._drop_empty_index()
        return True

    def restore(self, references: Sequence[Reference]) -> None:
        """Insert references at their old positions. Not during a `scan`."""
        if not references:
            return
        items, index = self._items, self._head
        missing: list[Reference] = []
        ordered = sorted(references, key=_sequence)
        for reference in ordered:
            # Mostly they stand one behind the other, and nothing is searched.
            if index < len(items) and items[index].sequence < reference.sequence:
                index = bisect_left(items, reference.sequence, lo=index + 1, key=_sequence)
            if index < len(items) and items[index] is reference:
                self._tombstones -= 1
                index += 1
            else:
                missing.append(reference)
            reference.state = _PENDING
        self.count += len(references)
        if missing:
            self._insert(missing)
        self.search_again(ordered[0].sequence)

    def restore_paged_out(self, references: list[Reference]) -> None:
        """Insert references whose messages only the store has at their old positions. Not during a `scan`."""
        ordered = sorted(references, key=_sequence)
        self._delete_tombstones(ordered)
        _add_to(self._ensure_paged_out(), ordered, None)
        self.count += len(ordered)
        self.search_again(ordered[0].sequence)

    def search_again(self, sequence: int) -> None:
        """Have every consumer search again from a sequence number on."""
        for consumer, position in self.searched.items():
            self.searched[consumer] = min(position, sequence - 1)

    def forget_consumer(self, consumer: Hashable) -> None:
        """Forget how far a consumer has searched."""
        self.searched.pop(consumer, None)

    def compact(self) -> None:
        """Delete tombstones and removed references if there are many. Not during a `scan`."""
        items = self._items
        if self._is_list_empty:
            items.clear()
            self._head = self._tombstones = 0
            return
        head = self._advance_head()
        if self._tombstones >= _COMPACT_MIN and 2 * self._tombstones >= len(items) - head:
            self._items = list(self.in_memory())
            self._head = self._tombstones = 0
        elif head >= _COMPACT_MIN and 16 * head >= len(items):
            del items[:head]
            self._head = 0

    # ------------------------------------------------------------ out of memory and back

    def recover(
        self, destination: Destination, ids: Sequence[str], *, start: int, delivered: Collection[str] | None
    ) -> None:
        """Add the messages that the store held when it was opened, unread; see `PagedOutIndex.recover`."""
        if ids:
            self._ensure_paged_out().recover(destination, ids, start=start, delivered=delivered)
            self.count += len(ids)

    def fill(self) -> bool:
        """Read the oldest message into memory if it is paged out; return False if the backlog is empty.

        Not during a `scan`.

        Raises:
            StoreUnavailable: a page cannot be read.
        """
        items, head, paged_out = self._items, self._head, self.paged_out
        if (
            paged_out is not None
            and head < len(items)
            and (front := items[head]).state is _PENDING
            and front.sequence < paged_out.first
        ):
            return True  # as nearly always: this runs for every message popped
        while (paged_out := self.paged_out) is not None:
            if not self._is_list_empty and self._items[self._advance_head()].sequence < paged_out.first:
                return True
            self.page_in(paged_out)
        return bool(self.count)

    def page_in(self, paged_out: PagedOutIndex) -> int:
        """Read the first page of paged-out messages into memory, and return its bytes. Not during a `scan`.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        references, _ = self._read(self._page(paged_out, -1, SEQUENCE_MAX, PAGE_MAX))
        paged_out.remove_first(len(references))
        self._drop_empty_index()
        self._insert(references)
        self._required_pager.count_in(references)
        return sum([reference.message.size for reference in references])

    def page_out(
        self,
        space: int,
        before: int,
        is_stored: Callable[[Reference], bool],
        places: Mapping[Reference, int] | None = None,
        *,
        count_max: int = SEQUENCE_MAX,
    ) -> tuple[list[Reference], int]:
        """Remove messages from memory that the store or the spool has, except those at the front, oldest first.

        Args:
            space: bytes at the front that stay in memory. The first message that does not fit ends the front.
            before: only messages of lower sequence numbers are paged out: others may not be on disk yet.
            is_stored: returns True for a message that is to be paged out.
            places: the places of these messages in the spool; None: the store has them.
            count_max: how many are paged out at most.

        Returns:
            The references that were paged out, which are no longer valid, and the bytes of `space` that are unused.
        """
        kept: list[Reference] = []
        left: list[Reference] = []
        items, stop, tombstones = self._items, self._head, 0
        while stop < len(items) and len(left) < count_max:
            reference = items[stop]
            stop += 1
            if reference.state is not _PENDING:
                tombstones += 1
                continue
            is_in_front = (size := reference.message.size) <= space
            space = space - size if is_in_front else 0
            if not is_in_front and reference.sequence < before and is_stored(reference):
                left.append(reference)
            else:
                kept.append(reference)
        if left:
            _add_to(self._ensure_paged_out(), left, places)
            self._items = kept + items[stop:]
            self._head = 0
            self._tombstones -= tombstones
        return left, max(space, 0)

    def behind_front(
        self, space: int, before: int, bytes_max: int, is_wanted: Callable[[Reference], bool]
    ) -> tuple[list[Reference], int, int]:
        """Return messages in memory behind the front; changes nothing.

        Args:
            space: bytes of the front; see `page_out`.
            before: only messages of lower sequence numbers are returned.
            bytes_max: the message that reaches so many bytes is the last one.
            is_wanted: returns False for a message that is left out.

        Returns:
            The messages, the bytes of `space` that are unused, and those of `bytes_max`.
        """
        found: list[Reference] = []
        for reference in self.in_memory():
            if bytes_max <= 0 or reference.sequence >= before:
                break
            if (size := reference.message.size) <= space:
                space -= size
            else:
                space = 0
                if is_wanted(reference):
                    found.append(reference)
                    bytes_max -= size
        return found, space, bytes_max

    def peek(self, after: int, count: int) -> tuple[list[Reference], int]:
        """Read paged-out messages behind a sequence number; return them, and the last sequence number looked up.

        Raises:
            StoreUnavailable: they cannot be read now.
        """
        return self._read(self.paged_out.after(after, count) if self.paged_out is not None else [])

    def lock(self, wanted: Collection[tuple[Destination, str]]) -> list[Reference]:
        """Remove these messages, which no consumer may get. Compares the id of every paged-out message.

        Raises:
            StoreUnavailable: they cannot be read.
        """
        refs = self.paged_out.find(wanted) if self.paged_out is not None else []
        locked: list[Reference] = []
        while refs:
            page, end = self._read(refs)
            locked += page
            refs = [ref for ref in refs if ref.sequence > end]
        locked += [each for each in self.in_memory() if (each.message.destination, each.message.message_id) in wanted]
        for reference in locked:
            self.remove(reference, ReferenceState.DISPATCHED)
        self.compact()
        return locked

    def clear(self) -> list[Reference]:
        """Remove everything; return the references that were in memory."""
        held = list(self.in_memory())
        if self.paged_out is not None:
            self._required_pager.release_index(self.paged_out)
        self._items, self._head, self._tombstones = [], 0, 0
        self.count, self.paged_out, self.is_paged = 0, None, False
        return held

    def delivered(self) -> Iterator[str]:
        """Yield the ids of waiting persistent messages that a consumer may have seen."""
        for reference in self.in_memory():
            if reference.redelivery_count > 0 and reference.message.persistent:
                yield reference.message.message_id
        if self.paged_out is not None:
            yield from self.paged_out.delivered()

    # ------------------------------------------------------------ private

    @property
    def _required_pager(self) -> Pager:
        assert self._pager is not None, "nothing leaves memory without a pager"
        return self._pager

    @property
    def first_sequence(self) -> int:
        """The lowest sequence number that waits, in memory or paged out; `SEQUENCE_MAX` if none does."""
        first = SEQUENCE_MAX if self.paged_out is None else self.paged_out.first
        return first if self._is_list_empty else min(first, self._items[self._advance_head()].sequence)

    @property
    def _is_list_empty(self) -> bool:
        return not self.count or (self.paged_out is not None and self.count == self.paged_out.count)

    def _advance_head(self) -> int:
        """Advance the head to the first waiting reference, of which there must be one in the list."""
        items, head = self._items, self._head
        while items[head].state is not _PENDING:
            self._tombstones -= 1
            head += 1
        self._head = head
        return head

    def _delete_tombstones(self, references: list[Reference]) -> None:
        """Delete what searches have left of references, oldest first: list and index share no sequence number."""
        items = self._items
        start = bisect_left(items, references[0].sequence, lo=self._head, key=_sequence)
        stop = bisect_right(items, references[-1].sequence, lo=start, key=_sequence)
        if start < stop:
            gone = set(references)
            kept = [item for item in items[start:stop] if item not in gone]
            self._tombstones -= stop - start - len(kept)
            self._items = items[:start] + kept + items[stop:]

    def _insert(self, references: list[Reference]) -> None:
        """Insert references, oldest first, that are not in the list."""
        if not references:
            return
        items, head = self._items, self._head
        start = bisect_left(items, references[0].sequence, lo=head, key=_sequence)
        stop = bisect_left(items, references[-1].sequence, lo=start, key=_sequence)
        between = sorted(items[start:stop] + references, key=_sequence) if start < stop else references
        if start - head > len(items) - stop:
            items[start:stop] = between
            return
        # Usually these are the oldest. They take the slots before the head, so that the rest of the list need not move.
        self._head = max(0, head - len(references))
        items[self._head : stop] = items[head:start] + between

    def _page(self, paged_out: PagedOutIndex, after: int, before: int, count_max: int) -> list[MessageRef]:
        """Return the next page of paged-out messages between two sequence numbers."""
        refs = paged_out.after(after, count_max)
        if refs and refs[-1].sequence > before:
            del refs[bisect_left(refs, before, key=_sequence) :]
        return refs

    def _read(self, refs: list[MessageRef]) -> tuple[list[Reference], int]:
        """Return the first of these messages, and the last sequence number looked up; drop those that are lost."""
        if not refs:
            return [], SEQUENCE_MAX
        references, count = self._required_pager.read(refs)
        if len(references) < count and self.paged_out is not None:
            found = {reference.sequence for reference in references}
            for ref in refs[:count]:
                if ref.sequence not in found and self.paged_out.discard(ref.sequence):
                    self.count -= 1
                    self._required_pager.lose(1)
            self._drop_empty_index()
        return references, refs[count - 1].sequence

    def _drop_empty_index(self) -> None:
        if self.paged_out is not None and not self.paged_out.count:
            self.paged_out = None
            self.is_paged = False

    def _ensure_paged_out(self) -> PagedOutIndex:
        if self.paged_out is None:
            self.paged_out = PagedOutIndex(self._required_pager.release_place)
            self.is_paged = True
        return self.paged_out


def _add_to(paged_out: PagedOutIndex, references: list[Reference], places: Mapping[Reference, int] | None) -> None:
    """Add references, oldest first, to the paged-out index, with their places if they are in the spool."""
    for (destination, redelivery_count, strikes), group in groupby(references, key=_destination_and_marks):
        together = list(group)
        if places is None and redelivery_count == 1 and not strikes:
            sequences = [reference.sequence for reference in together]
            ids = [reference.message.message_id for reference in together]
            if paged_out.insert_seen(destination, sequences, ids):
                continue
        if together[0].sequence > paged_out.last and not redelivery_count and not strikes:
            sequences = [reference.sequence for reference in together]
            if places is None:
                paged_out.extend(destination, sequences, [reference.message.message_id for reference in together])
            else:
                paged_out.extend(destination, sequences, [""] * len(together), [places[each] for each in together])
            continue
        for each in together:
            message_id, place = (each.message.message_id, IN_STORE) if places is None else ("", places[each])
            paged_out.insert(
                MessageRef(each.sequence, message_id, destination, each.redelivery_count, each.strikes, place)
            )


def _destination_and_marks(reference: Reference) -> tuple[Destination, int, int]:
    return reference.message.destination, reference.redelivery_count, reference.strikes


def _first_after(paged_out: PagedOutIndex, sequence: int) -> int:
    if sequence < paged_out.first:
        return paged_out.first
    refs = paged_out.after(sequence, 1)
    return refs[0].sequence if refs else SEQUENCE_MAX


class PrioritizedPending:
    """The waiting references of a backlog by priority, and by age within each of the ten priorities.

    The store returns recovered messages in its order, by at most three classes (above, at and below 4); their exact
    priorities are known only when they are read. So they are kept in a list of their own. That list is dispatched with
    the class of its oldest message, before newer messages of that class. Its last `EXACT_MAX` messages are moved to the
    lists of their priorities.

    Attributes:
        count: how many references wait.
        is_paged: True if some may not be in memory.
    """

    __slots__ = ("_exact_space", "_levels", "_pager", "_recovered", "_recovered_end", "count", "is_paged")

    def __init__(self, pager: Pager | None = None) -> None:
        """Create an empty backlog; without a pager nothing is ever paged out."""
        self._levels = tuple(Pending(pager) for _ in range(PRIORITY_MAX + 1))
        self._recovered: Pending | None = None
        self._recovered_end = 0
        self._exact_space = 0
        self._pager = pager
        self.count = 0
        self.is_paged = False

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Reference]:
        return self.scan()

    @property
    def levels(self) -> tuple[Pending, ...]:
        """The parts of the backlog in dispatch order: recovered messages, then a list per priority, highest first.

        Raises:
            StoreUnavailable: recovered messages cannot be read now.
        """
        recovered = self._recovered_part()
        return self._levels if recovered is None else (recovered, *self._levels)

    @property
    def parts(self) -> tuple[Pending, ...]:
        """The parts of the backlog, without reading any: recovered messages if there are some, and each priority."""
        return self._all()

    def append(self, reference: Reference) -> None:
        """Add the newest reference of its priority."""
        self._level(reference).append(reference)
        self.count += 1

    def pop(self, state: ReferenceState) -> Reference:
        """Remove the oldest reference of the highest priority; see `Pending.pop`."""
        level = self._next()
        assert level is not None, "nothing waits"
        self.count -= 1
        return level.pop(state)

    def scan(self) -> Iterator[Reference]:
        """Iterate over the references; removals are allowed during it.

        Raises:
            StoreUnavailable: a page cannot be read.
        """
        for level in self.levels:
            yield from level.scan()
        self._recount()

    def in_memory(self) -> Iterator[Reference]:
        """Iterate over the references that are in memory; removals are allowed during it."""
        for level in self._all():
            yield from level.in_memory()

    def remove(self, reference: Reference, state: ReferenceState) -> None:
        """Remove a waiting reference and move it to another state."""
        self._level(reference).remove(reference, state)
        self.count -= 1

    def discard(self, sequence: int) -> bool:
        """Remove a paged-out message without reading it; see `Pending.discard`."""
        if not any([level.discard(sequence) for level in self._all()]):
            return False
        self.count -= 1
        return True

    def restore(self, references: Sequence[Reference]) -> None:
        """Insert references at their old positions."""
        by_level: dict[Pending, list[Reference]] = {}
        for reference in references:
            by_level.setdefault(self._level(reference), []).append(reference)
        for level, its_references in by_level.items():
            level.restore(its_references)
        self.count += len(references)

    def restore_paged_out(self, references: list[Reference]) -> None:
        """Insert references whose messages only the store has at their old positions."""
        by_level: dict[Pending, list[Reference]] = {}
        for reference in references:
            by_level.setdefault(self._level(reference), []).append(reference)
        for level, its_references in by_level.items():
            level.restore_paged_out(its_references)
        self.is_paged = True
        self.count += len(references)

    def search_again(self, sequence: int) -> None:
        """Have every consumer search again from a sequence number on."""
        for level in self._all():
            level.search_again(sequence)

    def forget_consumer(self, consumer: Hashable) -> None:
        """Forget how far a consumer has searched."""
        for level in self._all():
            level.forget_consumer(consumer)

    def compact(self) -> None:
        """Delete tombstones and removed references if there are many."""
        for level in self._all():
            level.compact()
        self._recount()

    def recover(
        self, destination: Destination, ids: Sequence[str], *, start: int, delivered: Collection[str] | None
    ) -> None:
        """Add the messages that the store held when it was opened, unread; see `PagedOutIndex.recover`."""
        if ids:
            if self._recovered is None:
                self._recovered = Pending(self._pager)
            self._recovered.recover(destination, ids, start=start, delivered=delivered)
            self._recovered_end = start + len(ids)
            self._exact_space = EXACT_BYTES_MAX
            self.is_paged = True
            self.count += len(ids)

    def fill(self) -> bool:
        """Read the message that `pop` takes next into memory if it is paged out; see `Pending.fill`."""
        level = self._next()
        while level is not None and not level.fill():
            level = self._next()  # the store has lost the rest of that level
        self._recount()
        return level is not None

    def behind_front(
        self, space: int, before: int, bytes_max: int, is_wanted: Callable[[Reference], bool]
    ) -> tuple[list[Reference], int, int]:
        """Return messages in memory behind the front; see `Pending.behind_front`."""
        found: list[Reference] = []
        for level in self._all():
            more, space, bytes_max = level.behind_front(space, before, bytes_max, is_wanted)
            found += more
        return found, space, bytes_max

    def page_out(
        self,
        space: int,
        before: int,
        is_stored: Callable[[Reference], bool],
        places: Mapping[Reference, int] | None = None,
        *,
        count_max: int = SEQUENCE_MAX,
    ) -> tuple[list[Reference], int]:
        """Remove messages from memory that the store or the spool has; see `Pending.page_out`."""
        left: list[Reference] = []
        for level in self._all():
            gone, space = level.page_out(space, before, is_stored, places, count_max=count_max - len(left))
            left += gone
        self.is_paged |= bool(left)
        return left, space

    def lock(self, wanted: Collection[tuple[Destination, str]]) -> list[Reference]:
        """Remove these messages, which no consumer may get; see `Pending.lock`."""
        locked = [reference for level in self._all() for reference in level.lock(wanted)]
        self._recount()
        return locked

    def clear(self) -> list[Reference]:
        """Remove everything; return the references that were in memory."""
        held = [reference for level in self._all() for reference in level.clear()]
        self._recovered = None
        self.count = 0
        self.is_paged = False
        return held

    def delivered(self) -> Iterator[str]:
        """Yield the ids of waiting persistent messages that a consumer may have seen."""
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
        """Return the part of the backlog that has the next message."""
        recovered = self._recovered_part()
        best = next((level for level in self._levels if level.count), None)
        if recovered is None or best is None:
            return best if recovered is None else recovered
        oldest = next(recovered.in_memory()).message
        is_before = _priority_class(oldest.priority) >= _priority_class(PRIORITY_MAX - self._levels.index(best))
        return recovered if is_before else best

    def _recovered_part(self) -> Pending | None:
        """Return the recovered messages, the oldest of them in memory; None once they are sorted by priority."""
        recovered = self._recovered
        if recovered is None:
            return None
        if recovered.count > EXACT_MAX and recovered.fill():
            return recovered
        while (paged_out := recovered.paged_out) is not None and self._exact_space > 0:
            self._exact_space -= recovered.page_in(paged_out)
        if paged_out is not None and recovered.fill():
            return recovered
        self._recovered = None
        held = list(recovered.in_memory())
        self.count -= len(held)
        self.restore(held)
        self._recount()
        return None

    def _recount(self) -> None:
        """Recompute the count: levels drop messages that the store has lost."""
        if self.is_paged:
            self.count = sum([level.count for level in self._all()])
            self.is_paged = self._recovered is not None or any([level.is_paged for level in self._levels])


def _priority_class(priority: int) -> int:
    return (priority > PRIORITY_DEFAULT) - (priority < PRIORITY_DEFAULT)


AnyPending = Pending | PrioritizedPending


def pending(*, prioritized: bool, pager: Pager | None = None) -> AnyPending:
    """Return an empty backlog."""
    return PrioritizedPending(pager) if prioritized else Pending(pager)
