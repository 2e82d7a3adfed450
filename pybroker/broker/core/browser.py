"""The backlog of a queue browser: shows waiting and outstanding messages once, and consumes none.

A browser walks through the queue page by page, and keeps only its place in it: it sees the messages that are still
there when it reads their page, and none that arrived after it subscribed. After a page, it continues in a later turn of
the event loop. If a page cannot be read now, the browser waits: it gets the end of the queue only after all messages.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from operator import attrgetter

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.counting_consumer import CountedSource
from pybroker.broker.core.paged_out_index import MessageRef
from pybroker.broker.core.paging import PAGE_BYTES_MAX, PAGE_MAX, PIECE_SECONDS, severity
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.reference import Reference, ReferenceState
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import BodilessMessage

_log = logging.getLogger(__name__)

_sequence = attrgetter("sequence")


class BrowserSnapshot(CountedSource):
    """The messages that a browser gets: every matching message once, up to a limit, then the end of the queue.

    Source: ActiveMQ 5.17, `QueueBrowserSubscription.atMax`, for the limit: it counts messages that match the selector.
    """

    __slots__ = ("_browsed", "_consumer", "_found", "_left", "_paging", "_views")

    def __init__(
        self, queues: Sequence[Queue], consumer: BrokerConsumer, browsed: Callable[[], None], limit: int = 0
    ) -> None:
        """Attach to the consumer.

        Args:
            queues: the queues to browse, one after the other.
            consumer: the browser.
            browsed: signals the end.
            limit: number of messages of all queues together after which the end comes; 0: after all of them.
        """
        self._consumer = consumer
        self._browsed = browsed
        self._left = limit or sys.maxsize
        """The number of messages that the browser may still get."""
        self._paging = queues[0].paging if queues else None
        self._views = [_View(queue) for queue in queues]
        self._found: Iterator[Reference | None] | None = self._walk()
        consumer.add_source(self)

    def dispatch(self, consumer: BrokerConsumer | None = None) -> None:
        """Deliver messages while the browser has capacity; after the last one, signal the end."""
        count, space = PAGE_MAX, PAGE_BYTES_MAX
        ends_at = 0.0
        while self._found is not None and self._consumer.has_capacity:
            if not self._left:
                self._end()
                return
            try:
                found = next(self._found)
            except StopIteration:
                self._end()
                return
            except StoreUnavailable as error:
                self._wait(error)
                return
            if found is None:  # one of maybe thousands of queues, for which a consumer of all of them is searched
                if self._paging is not None:
                    now = self._paging.monotonic()
                    ends_at = ends_at or now + PIECE_SECONDS
                    count = count if now < ends_at else 0
            elif self._consumer.accepts(found.message, found.redelivery_count):
                self._left -= 1
                self._consumer.offer(Reference(found.message, self, found.sequence, found.redelivery_count))
            count -= 1
            space -= len(found.message.data) if found is not None else 0
            if (count <= 0 or space <= 0) and self._paging is not None and self._paging.defer(self.dispatch):
                break

    @property
    def is_dispatching(self) -> bool:
        """True until the browser has seen all messages."""
        return self._found is not None

    def _end(self) -> None:
        self._found = None
        self._browsed()

    def _walk(self) -> Iterator[Reference | None]:
        """Yield the messages of each queue that are left, and None at its end."""
        for view in self._views:
            yield from view
            yield None

    def _wait(self, error: StoreUnavailable) -> None:
        """Continue from here once the store may be readable again."""
        _log.log(severity(error), "a browser of %s has to wait: %s", self._consumer.request.destination, error)
        self._found = self._walk()
        if self._paging is not None:
            self._paging.waiting[self.dispatch] = None

    def detach(self, consumer: BrokerConsumer) -> None:
        """Stop delivering."""
        self._found = None


class _View:
    """One queue as a browser sees it. A new iteration continues where the last one ended, also after an error."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._end = queue.next_sequence
        self._last: int = -1

    def __iter__(self) -> Iterator[Reference]:
        """Yield references oldest first, a page at a time because the queue changes in between.

        If a page cannot be read whole, its messages before the error are yielded first.

        Raises:
            StoreUnavailable: a page cannot be read.
        """
        is_last = False
        while not is_last:
            waiting: list[Reference] = []
            failure: StoreUnavailable | None = None
            space = PAGE_BYTES_MAX
            try:
                for reference in self._waiting():
                    waiting.append(reference)
                    space -= len(reference.message.data)
                    if space <= 0 or len(waiting) == PAGE_MAX:
                        break
                else:
                    is_last = True
            except StoreUnavailable as error:
                failure = error
            stop = self._end if is_last else 1 + (waiting[-1].sequence if waiting else self._last)
            # Looked for with each page: what waited at the time of the last one may be outstanding by now.
            waiting += self._queue.outstanding_between(self._last, stop)
            waiting.sort(key=_sequence)
            bodies: dict[int, Reference] = {}
            for index, reference in enumerate(waiting):
                shown: Reference | None = reference
                if isinstance(reference.message, BodilessMessage):
                    if reference.sequence not in bodies:
                        bodies = self._read(waiting[index : index + PAGE_MAX])
                    shown = bodies.get(reference.sequence)  # None: the store has lost it
                self._last = reference.sequence
                if shown is not None and reference.state is not ReferenceState.SETTLED:
                    yield shown
            if failure is not None:
                raise failure

    def _read(self, references: Sequence[Reference]) -> dict[int, Reference]:
        """Read a page of outstanding messages whose bodies are not in memory; return them by sequence number.

        Raises:
            StoreUnavailable: they cannot be read now.
        """
        refs = [
            MessageRef(each.sequence, each.message.message_id, each.message.destination, each.redelivery_count)
            for each in references
            if isinstance(each.message, BodilessMessage) and each.state is not ReferenceState.SETTLED
        ]
        found, _ = self._queue.read(refs)
        return {reference.sequence: reference for reference in found}

    def _waiting(self) -> Iterator[Reference]:
        """Yield the waiting messages behind the last one shown that were there when the browser subscribed."""
        levels = self._queue.pending.levels
        scans = [level.scan(self._last) for level in levels]
        for reference in scans[0] if len(scans) == 1 else merge(*scans, key=_sequence):
            if reference.sequence >= self._end:
                return
            yield reference
