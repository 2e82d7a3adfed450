"""A queue browser's backlog: what waits and what is in flight, once; nothing it does consumes a message.

What is in memory is a snapshot, taken when the browser comes. What is not is paged through: the browser sees of it what
still waits when it gets there, and nothing that arrived after it. A selector that refuses a whole page has the browser
go on in the event loop's next turn. A page that cannot be read now is waited for: a browser is told the end only when
it has seen all.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from operator import attrgetter

from pybroker.broker.core.consumer import Consumer, Source
from pybroker.broker.core.paging import PAGE_BYTES_MAX, PAGE_MAX, severity
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.transaction import TransactionId

_log = logging.getLogger(__name__)

_sequence = attrgetter("sequence")


class Snapshot(Source):
    """What a browser is shown: every matching message once, then the end."""

    __slots__ = ("_browsed", "_consumer", "_found", "_paging", "_views")

    def __init__(self, queues: Sequence[Queue], consumer: Consumer, browsed: Callable[[], None]) -> None:
        self._consumer = consumer
        self._browsed = browsed
        self._paging = queues[0].paging if queues else None
        self._views = [_View(queue) for queue in queues]
        self._found: Iterator[Reference] | None = chain.from_iterable(self._views)
        consumer.sources.append(self)

    def dispatch(self, consumer: Consumer | None = None) -> None:
        """Show what the browser has room for; say so when there is no more."""
        count, room = PAGE_MAX, PAGE_BYTES_MAX
        while self._found is not None and self._consumer.has_room:
            try:
                found = next(self._found, None)
            except StoreUnavailable as error:
                self._wait(error)
                return
            if found is None:
                self._found = None
                self._browsed()
            elif self._consumer.accepts(found.message, found.redelivery_count):
                self._consumer.offer(Reference(found.message, self, found.sequence, found.redelivery_count))
            count -= 1
            room -= len(found.message.data) if found is not None else 0
            if (count <= 0 or room <= 0) and self._paging is not None and self._paging.defer(self.dispatch):
                break

    def _wait(self, error: StoreUnavailable) -> None:
        """Go on where this is once the store may be read again."""
        _log.log(severity(error), "a browser of %s has to wait: %s", self._consumer.request.destination, error)
        self._found = chain.from_iterable(self._views)
        if self._paging is not None:
            self._paging.waiting[self.dispatch] = None

    def detach(self, consumer: Consumer) -> None:
        """Show no more."""
        self._found = None

    def forget(self, reference: Reference, transaction: TransactionId | None, consumed_by: str | None) -> None:
        """Looking changes nothing."""

    def settle(self, reference: Reference) -> None:
        """Looking changes nothing."""

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Looking changes nothing."""

    def reject(self, reference: Reference, cause: str) -> None:
        """Never called: `Consumer.reject` refuses for browsers."""
        raise AssertionError("a browser rejects nothing")

    def expire(self, reference: Reference) -> None:
        """Looking changes nothing."""


class _View:
    """One queue as a browser sees it. Iterating goes on where it was ended, by an error or otherwise."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._held = sorted([*queue.in_flight(), *queue.pending.in_memory()], key=_sequence)
        self._end = queue.next_sequence
        self._is_paged = queue.pending.is_paged
        self._last = -1

    def __iter__(self) -> Iterator[Reference]:
        held = (reference for reference in self._held if reference.sequence > self._last)
        for reference in merge(held, self._waiting(), key=_sequence) if self._is_paged else held:
            if reference.sequence != self._last:  # else it was in memory, and waits
                self._last = reference.sequence
                yield reference

    def _waiting(self) -> Iterator[Reference]:
        """Yield what waits, a page at a time: in between the queue changes. What was read before an error comes too."""
        after, failure = self._last, None
        while failure is None:
            page: list[Reference] = []
            room = PAGE_BYTES_MAX
            try:
                for reference in islice(self._page(after), PAGE_MAX):
                    page.append(reference)
                    room -= len(reference.message.data)
                    if room <= 0:
                        break
            except StoreUnavailable as error:
                failure = error
            if not page and failure is None:
                return
            yield from page
            after = page[-1].sequence if page else after
        raise failure

    def _page(self, after: int) -> Iterator[Reference]:
        for reference in merge(*(level.scan(after) for level in self._queue.pending.levels), key=_sequence):
            if reference.sequence >= self._end:
                return
            yield reference
