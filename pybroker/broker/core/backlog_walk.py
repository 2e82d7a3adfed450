"""A walk through the waiting messages of a backlog, oldest first, in pieces between which the backlog may change.

A walk keeps its position, the sequence number of the last message that it has passed. So each piece begins by a binary
search, in what is in memory and in the paged-out index, and nothing before it is read again. It sees no message that
came after it began, so that work which adds messages to the same backlog ends.

Messages of a backlog by priority are passed by age too: their order among the priorities may change while recovered
messages are sorted, and a message would be passed twice or never.
"""

from collections.abc import Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from pybroker.broker.core.paged_out_index import IN_STORE, MessageRef
from pybroker.broker.core.pending import Pending
from pybroker.broker.core.reference import Reference, ReferenceState
from pybroker.broker.core.stored import StoredSource

READ_MAX: Final = 16
"""Messages that are read in one step, which takes some 0.3 ms with messages of 1 kB in a journal, and as long again to
compare them with a selector."""

PASSED_MAX: Final = 64
"""Messages that are passed in one piece without reading them."""

Waiting = Reference | MessageRef
"""A waiting message: in memory, or what memory holds of it."""

_sequence: Final = itemgetter(0)


class BacklogWalk:
    """A walk through one backlog.

    Attributes:
        position: the sequence number of the last message that was passed.
    """

    __slots__ = ("_end", "_source", "position")

    def __init__(self, source: StoredSource, after: int = -1) -> None:
        """Begin behind a sequence number."""
        self._source = source
        self._end = source.next_sequence
        self.position = after

    @property
    def is_over(self) -> bool:
        """True once nothing is left."""
        return self.position >= self._end - 1 or self._source.is_closed

    def unread(self) -> Sequence[Waiting]:
        """Pass the next messages without reading them; none are returned at the end."""
        found = self._next(PASSED_MAX)
        self._pass(found, len(found) < PASSED_MAX)
        return [each for _, _, each in found]

    def read(self) -> Sequence[Reference]:
        """Pass the next messages and return them with their bodies. None may be returned before the end, see `is_over`.

        Raises:
            StoreUnavailable: they cannot be read now; the walk is where it was.
        """
        found = self._next(READ_MAX)
        if not found:
            self._pass(found, is_last=True)
            return ()
        _, part, first = found[0]
        if isinstance(first, Reference):
            together = [each for _, _, each in _leading(found, None)]
            self._pass(found[: len(together)], is_last=False)
            return [each for each in together if isinstance(each, Reference)]
        count = len(_leading(found, part))
        references, end = part.peek(first.sequence - 1, count)
        self._source.pending.compact()  # recounts, if the store has lost some
        self.position = end
        return references

    def load(self, ref: MessageRef) -> Reference | None:
        """Return a paged-out message with its body; None if it is not paged out any more, or the store has lost it.

        Raises:
            StoreUnavailable: it cannot be read now.
        """
        for part in self._source.pending.parts:
            if part.paged_out is not None and part.paged_out.after(ref.sequence - 1, 1)[:1] == [ref]:
                references, _ = part.peek(ref.sequence - 1, 1)
                self._source.pending.compact()
                return references[0] if references else None
        return None

    def _next(self, count: int) -> list[tuple[int, Pending, Waiting]]:
        """Return the next messages, at most `count`, with their sequence numbers and the part that each is in."""
        after, end = self.position, self._end
        found: list[tuple[int, Pending, Waiting]] = []
        for part in self._source.pending.parts:
            if not part.count:
                continue
            found += [(each.sequence, part, each) for each in islice(part.in_memory(after), count)]
            if part.paged_out is not None:
                found += [(each.sequence, part, each) for each in part.paged_out.after(after, count)]
        found.sort(key=_sequence)
        del found[count:]
        while found and found[-1][0] >= end:
            found.pop()
        return found

    def _pass(self, found: Sequence[tuple[int, Pending, Waiting]], is_last: bool) -> None:
        self.position = self._end - 1 if is_last or not found else found[-1][0]


def has_id(waiting: Waiting) -> bool:
    """Return True if the id of a message is known without reading it: the spool does not keep it."""
    return isinstance(waiting, Reference) or waiting.place == IN_STORE


def id_of(waiting: Waiting) -> str:
    """Return the id of a message; empty if it is not known."""
    return waiting.message.message_id if isinstance(waiting, Reference) else waiting.message_id


def is_waiting(reference: Reference) -> bool:
    """Return True if a message waits."""
    return reference.state is ReferenceState.PENDING


def _leading(found: list[tuple[int, Pending, Waiting]], part: Pending | None) -> list[tuple[int, Pending, Waiting]]:
    """Return the first messages that are in memory, or that are paged out in the same part."""
    for index, (_, its_part, each) in enumerate(found):
        if isinstance(each, Reference) if part is not None else not isinstance(each, Reference):
            return found[:index]
        if part is not None and its_part is not part:
            return found[:index]
    return found
