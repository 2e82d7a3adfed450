"""A queue browser's backlog: what waits and what is in flight, once; nothing it does consumes a message.

What is in memory is a snapshot, taken when the browser comes. What is not is paged through: the browser sees of it what
still waits when it gets there, and nothing that arrived after it. A selector that refuses a whole page has the browser
go on in the event loop's next turn.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import islice
from operator import attrgetter

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.paging import PAGE_MAX, severity
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.transaction import TransactionId

_log = logging.getLogger(__name__)

_sequence = attrgetter("sequence")


class Snapshot:
    """What a browser is shown: every matching message once, then the end."""

    __slots__ = ("_browsed", "_consumer", "_found", "_paging")

    def __init__(self, queues: Sequence[Queue], consumer: Consumer, browsed: Callable[[], None]) -> None:
        self._consumer = consumer
        self._browsed = browsed
        self._paging = queues[0].paging if queues else None
        views = [_View(queue) for queue in queues]
        self._found: Iterator[Reference] | None = (reference for view in views for reference in view)
        consumer.sources.append(self)

    def dispatch(self, consumer: Consumer | None = None) -> None:
        """Show what the browser has room for; say so when there is no more."""
        looked_at = 0
        while self._found is not None and self._consumer.has_room:
            try:
                found = next(self._found, None)
            except StoreUnavailable as error:
                shown = self._consumer.request.destination
                _log.log(severity(error), "a browser of %s is shown no more: %s", shown, error)
                found = None
            if found is None:
                self._found = None
                self._browsed()
            elif self._consumer.accepts(found.message, found.redelivery_count):
                self._consumer.offer(Reference(found.message, self, found.sequence, found.redelivery_count))
            looked_at += 1
            if looked_at >= PAGE_MAX and self._paging is not None and self._paging.soon(self.dispatch):
                break

    def detach(self, consumer: Consumer) -> None:
        """Show no more."""
        self._found = None

    def forget(self, reference: Reference, transaction: TransactionId | None) -> None:
        """Looking changes nothing."""

    def settle(self, reference: Reference) -> None:
        """Looking changes nothing."""

    def restore(self, seen: Sequence[Reference], unseen: Sequence[Reference] = ()) -> None:
        """Looking changes nothing."""

    def reject(self, reference: Reference, cause: str) -> None:
        """Never called: `Consumer.reject` refuses for browsers."""
        raise AssertionError("a browser rejects nothing")

    def expired(self, reference: Reference) -> None:
        """Looking changes nothing."""


class _View:
    """One queue as a browser sees it."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._held = sorted([*queue.in_flight(), *queue.pending.in_memory()], key=_sequence)
        self._end = queue.next_sequence
        self._is_paged = queue.pending.is_paged

    def __iter__(self) -> Iterator[Reference]:
        if not self._is_paged:
            yield from self._held
            return
        last = -1
        for reference in merge(self._held, self._waiting(), key=_sequence):
            if reference.sequence != last:  # else it was in memory, and waits
                last = reference.sequence
                yield reference

    def _waiting(self) -> Iterator[Reference]:
        """Yield what waits, a page at a time: in between the queue changes."""
        after = -1
        while page := list(islice(self._page(after), PAGE_MAX)):
            yield from page
            after = page[-1].sequence

    def _page(self, after: int) -> Iterator[Reference]:
        for reference in merge(*(level.scan(after) for level in self._queue.pending.levels), key=_sequence):
            if reference.sequence >= self._end:
                return
            yield reference
