"""The start of a queue's dispatch: waits for more consumers, so that the first one does not get the whole backlog.

```text
no consumer --first consumer--> waiting --enough consumers, or the time is over--> dispatching
     ^                             |                                                    |
     +-------- last consumer ------+--------------------- last consumer ----------------+
```

Meanwhile messages wait in the queue as while it is paused. A master that takes over begins without consumers, and so
waits again. Browsers are no consumers here: they do not wait, and do not count; in ActiveMQ they do both. ActiveMQ also
counts a consumer that has left while the queue was waiting.

Source: ActiveMQ 5.17, `Queue.iterate`, `consumersBeforeDispatchStarts`, `timeBeforeDispatchStarts`.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from pybroker.broker.core.consumer_set import ConsumerSet
from pybroker.broker.core.paging import Paging
from pybroker.broker.core.policy import DestinationPolicy

_TIME_MS: Final = 1000
"""The time if a policy has only the number of consumers, as in ActiveMQ."""


class DispatchStart:
    """Holds back a queue's dispatch at first."""

    __slots__ = ("_cancel", "_consumer_set", "_count", "_dispatch", "_number", "_paging", "_seconds")

    def __init__(
        self, policy: DestinationPolicy, consumer_set: ConsumerSet, paging: Paging, dispatch: Callable[[], None]
    ) -> None:
        """Begin without consumers.

        Args:
            policy: one that asks for a wait.
            consumer_set: the consumers of the queue.
            paging: has the timer; without an event loop there is none, and the queue does not wait.
            dispatch: delivers to all consumers.
        """
        self._consumer_set = consumer_set
        self._paging = paging
        self._dispatch = dispatch
        self._count = policy.consumers_before_dispatch_starts
        self._seconds = (policy.time_before_dispatch_starts or _TIME_MS) / 1000
        self._cancel: Callable[[], None] | None = None
        """Cancels the timer; None while the queue does not wait."""
        self._number = 0
        """The number of waits so far: a start that was meant for an earlier one does nothing."""

    def consumer_added(self) -> None:
        """Wait, if it is the first consumer; start, if it is the last one that was missing."""
        count = len(self._consumer_set.all)
        if count == 1 and self._paging.after is not None:
            self._number += 1
            self._consumer_set.await_start(is_awaited=True)
            self._cancel = self._paging.after(self._seconds, partial(self._start, self._number))
        elif self._cancel is not None and count == self._count:
            # Later, for this one gets messages too only once it has been started.
            start = partial(self._start, self._number)
            if not self._paging.defer(start):
                start()

    def consumer_removed(self) -> None:
        """End the wait if no consumer is left."""
        if not self._consumer_set.all:
            self.close()

    def close(self) -> None:
        """Cancel the timer; also called when the queue is deleted."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None
            self._consumer_set.await_start(is_awaited=False)

    def _start(self, number: int) -> None:
        if self._cancel is not None and number == self._number:
            self.close()
            self._dispatch()


def dispatch_start(
    policy: DestinationPolicy, consumer_set: ConsumerSet, paging: Paging, dispatch: Callable[[], None]
) -> DispatchStart | None:
    """Return what holds back the dispatch of a queue by its policy; None if nothing does."""
    count = policy.consumers_before_dispatch_starts
    if count > 1 or (not count and policy.time_before_dispatch_starts):
        return DispatchStart(policy, consumer_set, paging, dispatch)
    return None
