"""Removes durable subscriptions whose clients have been away for too long, with all that they have collected.

A subscription is offline from the first sweep that finds it without a consumer. If no sweep finds that a consumer has
been there meanwhile, it is removed once the timeout is over: at most one interval later than ActiveMQ would. A start
and a take-over begin the time again, as a start of ActiveMQ does. It is not measured by the clock of the day, which may
be set: a step forward must not delete subscriptions.

Source: ActiveMQ 5.17, `TopicRegion.doCleanup`, `offlineDurableSubscriberTimeout`.
"""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Final, Protocol

from pybroker.broker.core.containment import attempt
from pybroker.broker.core.durable import Durable
from pybroker.broker.core.durables import Durables
from pybroker.broker.core.paging import PIECE_SECONDS, Paging
from pybroker.broker.domain.errors import SubscriptionInUse

_log = logging.getLogger(__name__)

SLICE: Final = 500
"""Subscriptions that are looked at before the clock is read: about a tenth of a millisecond."""


class DurableHost(Protocol):
    """The broker, as far as its durable subscriptions are concerned."""

    durables: Durables

    @property
    def is_ending(self) -> bool:
        """True once nothing may be removed any more."""
        ...

    @property
    def paging(self) -> Paging:
        """The event loop and the clock."""
        ...


class OfflineDurables:
    """Sweeps the durable subscriptions of one broker.

    Args:
        host: the broker.
        timeout: seconds after which an offline subscription is removed.
    """

    def __init__(self, host: DurableHost, timeout: float) -> None:
        self._host = host
        self._timeout = timeout
        self._offline: dict[Durable, tuple[int, float]] = {}
        """Offline subscriptions, with their number of consumers so far, and the time of the sweep that found them."""
        self._remaining: Iterator[Durable] | None = None

    def sweep(self) -> None:
        """Start a sweep, unless the last one is still running; called periodically."""
        if self._remaining is None:
            self._offline = {each: found for each, found in self._offline.items() if not each.is_closed}
            self._remaining = iter(list(self._host.durables.values()))
            self._continue()

    def _continue(self) -> None:
        remaining, paging = self._remaining, self._host.paging
        if remaining is None:
            return
        ends_at = paging.monotonic() + PIECE_SECONDS
        for number, durable in enumerate(remaining, 1):
            if self._host.is_ending:
                break
            is_overdue = not durable.is_closed and self._is_overdue(durable)
            if is_overdue:
                attempt(partial(self._remove, durable), "removing a durable subscription")
            if (is_overdue or not number % SLICE) and paging.monotonic() > ends_at and paging.defer(self._continue):
                return
        self._remaining = None

    def _is_overdue(self, durable: Durable) -> bool:
        """Return True if a subscription has been offline for long enough."""
        if durable.consumer is not None:
            self._offline.pop(durable, None)
            return False
        now = self._host.paging.monotonic()
        count, since = self._offline.get(durable, (-1, now))
        if count != durable.attach_count:
            since = now
        self._offline[durable] = durable.attach_count, since
        return now - since >= self._timeout

    def _remove(self, durable: Durable) -> None:
        info, waiting = durable.info, durable.pending.count
        self._offline.pop(durable, None)
        try:
            self._host.durables.unsubscribe(info.client_id, info.name)
        except SubscriptionInUse:  # its consumer is just being attached
            return
        _log.info(
            "removed the durable subscription %s to %s, with %d messages: its client has been away for %d seconds",
            info.key,
            info.subscribed_destination,
            waiting,
            self._timeout,
        )
