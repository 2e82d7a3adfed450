"""Demand subscriptions that this broker has refused for a reason that may pass, and the times to ask again.

Such reasons are limits, as to destinations or to memory, and a subscription name that is in use. The remote broker does
not announce its consumers again, so that without another attempt they would get nothing until the next connection.
"""

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pybroker.broker.domain.errors import RequestError, ResourceLimit, SubscriptionInUse
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.transports.network.demand_consumer import FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX

PIECE: Final = 100
"""Attempts at one time, some 30 us each; if more are due, they are made in a later turn of the event loop."""


def may_pass_by(error: RequestError) -> bool:
    """Return True if a subscription that is refused so may be accepted later."""
    return isinstance(error, ResourceLimit | SubscriptionInUse)


class RefusedDemand:
    """The refused subscriptions of one connection of a bridge, by their numbers in the demand table."""

    __slots__ = ("_pauses", "_queue", "_requests", "_times")

    def __init__(self) -> None:
        self._requests: dict[int, ConsumerRequest] = {}
        self._times: dict[int, float] = {}
        """The times of the next attempts."""
        self._queue: list[tuple[float, int]] = []
        """These times in their order, as a heap, and some that do not hold any more: there may be thousands."""
        self._pauses: dict[int, float] = {}
        """The pause after the next refusal."""

    def add(self, number: int, request: ConsumerRequest, now: float) -> bool:
        """Record a refusal; return True if it is the first one of that number."""
        pause = self._pauses.get(number)
        self._requests[number] = request
        self._times[number] = when = now + (FIRST_PAUSE_SECONDS if pause is None else pause)
        heapq.heappush(self._queue, (when, number))
        self._pauses[number] = min(2 * (pause or FIRST_PAUSE_SECONDS), PAUSE_SECONDS_MAX)
        return pause is None

    def remove(self, number: int) -> bool:
        """Forget a subscription, as it has begun or is not wanted any more; return True if it was refused."""
        self._times.pop(number, None)
        self._pauses.pop(number, None)
        return self._requests.pop(number, None) is not None

    def select(self, number: int, selector: str | None) -> None:
        """Change the selector with which a refused subscription is tried again."""
        request = self._requests.get(number)
        if request is not None:
            self._requests[number] = replace(request, selector=selector)

    def due(self, now: float) -> Sequence[tuple[int, ConsumerRequest]]:
        """Return subscriptions to try again, at most `PIECE`, the longest due first; `add` or `remove` follows."""
        found: list[tuple[int, ConsumerRequest]] = []
        while len(found) < PIECE and (when := self.next_attempt) is not None and when <= now:
            _, number = heapq.heappop(self._queue)
            del self._times[number]
            found.append((number, self._requests[number]))
        return found

    @property
    def next_attempt(self) -> float | None:
        """The time of the next attempt; None if there is none."""
        queue, times = self._queue, self._times
        while queue and times.get(queue[0][1]) != queue[0][0]:
            heapq.heappop(queue)
        return queue[0][0] if queue else None

    def clear(self) -> None:
        """Forget all."""
        self._requests.clear()
        self._queue.clear()
        self._times.clear()
        self._pauses.clear()
