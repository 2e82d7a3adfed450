"""Demand subscriptions that this broker has refused for a reason that may pass, and the times to ask again.

Such reasons are limits, as to destinations or to memory, and a subscription name that is in use. The remote broker does
not announce its consumers again, so that without another attempt they would get nothing until the next connection.
"""

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

    __slots__ = ("_pauses", "_requests", "_times")

    def __init__(self) -> None:
        self._requests: dict[int, ConsumerRequest] = {}
        self._times: dict[int, float] = {}
        """The times of the next attempts."""
        self._pauses: dict[int, float] = {}
        """The pause after the next refusal."""

    def add(self, number: int, request: ConsumerRequest, now: float) -> bool:
        """Record a refusal; return True if it is the first one of that number."""
        pause = self._pauses.get(number)
        self._requests[number] = request
        self._times[number] = now + (FIRST_PAUSE_SECONDS if pause is None else pause)
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
        """Return subscriptions to try again, at most `PIECE`, the longest due first."""
        times = sorted((when, number) for number, when in self._times.items() if when <= now)
        return [(number, self._requests[number]) for _, number in times[:PIECE]]

    @property
    def next_attempt(self) -> float | None:
        """The time of the next attempt; None if nothing was refused."""
        return min(self._times.values(), default=None)

    def clear(self) -> None:
        """Forget all."""
        self._requests.clear()
        self._times.clear()
        self._pauses.clear()
