"""Pages of the messages of a queue or durable subscription for operators, waiting and in flight, oldest first.

```text
waiting     3    5 6 7    9 …      a walk from the cursor on, some in each turn
in flight     4        8           of these consumers, sorted once; again if there were deliveries since
page        3 4 5 6 7 8            ends by a limit; its cursor is the position of its last message
```

Between two turns a message may be delivered, or come back. One that comes back before the position of the page is not
found, and neither is one that was delivered behind it, if the consumers have so many messages in flight that they are
not sorted again. Messages that a transaction has acknowledged are in no page.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import merge, nlargest
from operator import itemgetter
from typing import Final

from pybroker.broker.core.backlog_walk import READ_MAX, BacklogWalk, has_id, id_of
from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.matcher import Matcher
from pybroker.broker.core.operation import OperationSteps, SteppedOperation
from pybroker.broker.core.paged_out_index import MessageRef
from pybroker.broker.core.paging import CLOCK_MASK, PIECE_SECONDS
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.stored import StoredSource
from pybroker.broker.domain.errors import NotReadYet
from pybroker.broker.domain.message import BodilessMessage
from pybroker.broker.domain.operations import (
    FROM_THE_BEGINNING,
    LAST_PAGE,
    PAGE_BYTES_MAX,
    PAGE_COUNT_MAX,
    BrowsedMessage,
    MessageHolder,
    MessagePage,
    MessageState,
    PageEnd,
    PageLimits,
)

_SORTED_COUNT: Final = 500
"""Messages in flight that are looked at in one step."""

_SORTED_AGAIN_MAX: Final = 1000
"""Messages in flight that are looked for again with each piece of a page, if there were deliveries since."""

_READ_COST: Final = 4
"""Reading a message takes as long as so many usual operations."""

_Held = tuple[int, Reference, BrokerConsumer]
_sequence: Final = itemgetter(0)


class MessagesInFlight:
    """The outstanding messages of one backlog behind a position, by age."""

    def __init__(self, source: StoredSource) -> None:
        self._source = source
        self._held: Iterator[_Held] = iter(())
        self._next: _Held | None = None
        self._count = 0
        self._dispatched = -1

    def sorting(self, after: int) -> Iterator[int]:
        """Look for the messages behind a position, unless there were no deliveries since; yield the costs."""
        source = self._source
        if source.dispatched == self._dispatched or self._count > _SORTED_AGAIN_MAX:
            return
        self._dispatched = source.dispatched
        found: list[list[_Held]] = []
        for consumer in list(source.holders):
            yield 1
            outstanding = list(consumer.outstanding)
            for start in range(0, len(outstanding), _SORTED_COUNT):
                piece = outstanding[start : start + _SORTED_COUNT]
                held = [(each.sequence, each, consumer) for each in piece if each.source is source]
                found.append(sorted([each for each in held if each[0] > after], key=_sequence))
                yield len(piece)
        self._count = sum([len(each) for each in found])
        self._held = merge(*found, key=_sequence)
        self._next = next(self._held, None)

    def through(self, position: int) -> tuple[list[_Held], int]:
        """Look at the next messages up to a position, at most `READ_MAX`.

        Returns:
            Those that are still in flight, and the position up to which all were looked at.
        """
        found: list[_Held] = []
        reached = position
        for _ in range(READ_MAX):
            if self._next is None or self._next[0] > position:
                return found, position
            reached, reference, consumer = held = self._next
            if reference in consumer.outstanding:
                found.append(held)
            self._next = next(self._held, None)
        return found, reached


class MessagePageReader:
    """Reads one page.

    Args:
        operation: the operation of which it is the work.
        source: the queue or subscription.
        cursor: the position behind which the page begins, or `LAST_PAGE`.
        limits: of the page.
        matches: the condition; None: every message.
    """

    def __init__(
        self,
        operation: SteppedOperation,
        source: StoredSource,
        cursor: int,
        limits: PageLimits,
        matches: Matcher | None,
    ) -> None:
        self._operation = operation
        self._source = source
        self._walk = BacklogWalk(source, cursor)
        self._count_left = max(1, min(limits.count, PAGE_COUNT_MAX))
        self._bytes_left = min(limits.byte_count, PAGE_BYTES_MAX)
        self._seconds = limits.seconds
        self._matches = matches
        self._in_flight = MessagesInFlight(source)
        self._messages: list[BrowsedMessage] = []
        self._cursor = cursor
        self._end: PageEnd | None = None

    @property
    def page(self) -> MessagePage:
        """The page as far as it was read."""
        end = PageEnd.TIME if self._end is None else self._end
        return MessagePage(messages=self._messages, cursor=self._cursor, end=end, examined=self._operation.examined)

    def steps(self) -> OperationSteps:
        """Return the steps that read it."""
        if self._cursor == LAST_PAGE:
            yield from self._seek_last()
        ends_at = self._source.paging.monotonic() + self._seconds
        walk = self._walk
        while self._end is None and not self._operation.is_ending:
            yield from self._in_flight.sorting(self._cursor)
            try:
                waiting = walk.read()
                held, walk.position = self._in_flight.through(walk.position)
                found = self._with_bodies([each for each in waiting if each.sequence <= walk.position], held)
            except NotReadYet:
                walk.position = self._cursor
                self._in_flight = MessagesInFlight(self._source)
                yield self._when_readable
                continue
            yield _READ_COST * self._show(found)
            self._look_for_end(ends_at)

    def _look_for_end(self, ends_at: float) -> None:
        """Note why the page ends, if it does behind what was shown."""
        if self._walk.is_over and self._cursor >= self._walk.position:
            self._end = PageEnd.LAST  # also of a full page, so that the next one is not empty
        elif self._end is None and self._source.paging.monotonic() >= ends_at:
            self._end = PageEnd.TIME

    def _seek_last(self) -> OperationSteps:
        """Set the cursor before as many of the newest messages as the page may have."""
        source, count = self._source, self._count_left
        walk, waiting = BacklogWalk(source), deque[int](maxlen=count)
        while not walk.is_over and not self._operation.is_ending:
            passed = walk.unread()
            waiting.extend([each.sequence for each in passed])
            yield len(passed)
        newest = list(waiting)  # some may be in flight by now
        for consumer in list(source.holders):
            outstanding = list(consumer.outstanding)
            for start in range(0, len(outstanding), _SORTED_COUNT):
                piece = outstanding[start : start + _SORTED_COUNT]
                newest = nlargest(count, {*newest, *[each.sequence for each in piece if each.source is source]})
                yield len(piece) + count
        positions = nlargest(count, newest)
        self._cursor = positions[-1] - 1 if positions else FROM_THE_BEGINNING
        self._walk = BacklogWalk(source, self._cursor)

    def _when_readable(self, callback: Callable[[], None]) -> None:
        self._source.paging.waiting[callback] = None

    def _with_bodies(
        self, waiting: Sequence[Reference], held: Sequence[_Held]
    ) -> list[tuple[int, Reference, BrokerConsumer | None]]:
        """Return messages by age, with their bodies, without those that the store has lost."""
        shown: list[tuple[int, Reference, BrokerConsumer | None]] = [(each.sequence, each, None) for each in waiting]
        bodies = read_bodies(self._source, [reference for _, reference, _ in held])
        for sequence, _, consumer in held:
            if (with_body := bodies.get(sequence)) is not None:
                shown.append((sequence, with_body, consumer))
        return sorted(shown, key=_sequence)

    def _show(self, found: Sequence[tuple[int, Reference, BrokerConsumer | None]]) -> int:
        """Add the messages that match to the page, as far as its limits and the time allow; return how many passed."""
        monotonic = self._source.paging.monotonic
        piece_ends_at = monotonic() + PIECE_SECONDS
        count = 0
        for sequence, reference, consumer in found:
            count += 1
            self._cursor = sequence
            message = reference.message
            if self._matches is None or self._matches(message, reference.redelivery_count):
                self._messages.append(browsed(sequence, reference, consumer))
                self._operation.affected += 1
                self._count_left -= 1
                self._bytes_left -= len(message.data)
                if self._count_left <= 0 or self._bytes_left <= 0:
                    self._end = PageEnd.COUNT if self._count_left <= 0 else PageEnd.BYTES
                    break
            if not count & CLOCK_MASK and count < len(found) and monotonic() >= piece_ends_at:
                self._walk.position = sequence
                self._in_flight = MessagesInFlight(self._source)
                break
        else:
            self._cursor = self._walk.position
        self._operation.examined += count
        return count


class MessageSearch:
    """Looks for one message of a queue by its id, first in flight, then among those that wait.

    Attributes:
        found: the message; None: there is none of that id.
    """

    def __init__(self, operation: SteppedOperation, source: StoredSource, message_id: str) -> None:
        self.found: BrowsedMessage | None = None
        self._operation = operation
        self._source = source
        self._message_id = message_id

    def steps(self) -> OperationSteps:
        """Return the steps of the search."""
        yield from self._in_flight()
        walk = BacklogWalk(self._source)
        while self.found is None and not walk.is_over and not self._operation.is_ending:
            before = walk.position
            try:
                passed = walk.unread()
                if not all(map(has_id, passed)):
                    walk.position = before
                    passed = walk.read()
                for each in passed:
                    if id_of(each) == self._message_id:
                        reference = each if isinstance(each, Reference) else walk.load(each)
                        if reference is not None:
                            self.found = browsed(reference.sequence, reference, None)
            except NotReadYet:
                walk.position = before
                yield self._when_readable
                continue
            self._operation.examined += len(passed)
            yield len(passed)

    def _in_flight(self) -> OperationSteps:
        for consumer in list(self._source.holders):
            yield 1
            outstanding = list(consumer.outstanding)
            for start in range(0, len(outstanding), _SORTED_COUNT):
                piece = outstanding[start : start + _SORTED_COUNT]
                self._operation.examined += len(piece)
                for each in piece:
                    if each.message.message_id == self._message_id and each.source is self._source:
                        yield from self._take(each, consumer)
                        return
                yield len(piece)

    def _take(self, reference: Reference, consumer: BrokerConsumer) -> OperationSteps:
        """Show a message in flight once its body is read."""
        while not self._operation.is_ending and reference in consumer.outstanding:
            try:
                with_body = read_bodies(self._source, [reference]).get(reference.sequence)
            except NotReadYet:
                yield self._when_readable
                continue
            if with_body is not None:
                self.found = browsed(reference.sequence, with_body, consumer)
            return

    def _when_readable(self, callback: Callable[[], None]) -> None:
        self._source.paging.waiting[callback] = None


def read_bodies(source: StoredSource, references: Sequence[Reference]) -> dict[int, Reference]:
    """Return messages in flight with their bodies, by position, without those that the store has lost.

    Raises:
        StoreUnavailable: they cannot be read now.
    """
    refs = [
        MessageRef(each.sequence, each.message.message_id, each.message.destination, each.redelivery_count)
        for each in references
        if isinstance(each.message, BodilessMessage)
    ]
    bodies = {each.sequence: each for each in references if not isinstance(each.message, BodilessMessage)}
    while refs:
        read, count = source.read(refs)
        bodies.update({each.sequence: each for each in read})
        del refs[:count]
    return bodies


def browsed(position: int, reference: Reference, consumer: BrokerConsumer | None) -> BrowsedMessage:
    """Return a message as it is shown; the consumer is None for one that waits."""
    holder = None
    if consumer is not None:
        consumer_id = consumer.request.consumer_id
        holder = MessageHolder(
            connection_id=consumer.connection.connection_id,
            client_id=consumer.connection.client_id,
            consumer_id=None if consumer_id is None else str(consumer_id),
        )
    return BrowsedMessage(
        message=reference.message,
        position=position,
        state=MessageState.WAITING if consumer is None else MessageState.IN_FLIGHT,
        redelivery_count=reference.redelivery_count,
        holder=holder,
    )
