"""The filters of bridges on one queue: what may go back to a broker that it has passed, and how many go at all.

A message that has come over a bridge does not go back: it would go round. When its consumers leave this broker it is
stranded, though there may be others where it came from. With `replay_when_no_consumers` it goes back then:

```text
for a message that has passed the bridge's broker, on a queue
  other consumers than bridges? --yes--> it stays  ----the last one leaves---> ask again
  here for less than the delay? --yes--> it stays  ----the timer-------------> ask again
  rate limit reached?           --yes--> it stays  ----the timer-------------> ask again
  it goes back
```

A consumer of a queue examines each waiting message once. So each reason to refuse one has an event after which the
queue's messages are examined again, and without such a message there is no timer. The delay bounds how often a message
goes back and forth while consumers come and go at both ends. The timer is for many messages at a time: else each that
arrives would have all that wait for their delays examined again.

Source: ActiveMQ 5.17, `ConditionalNetworkBridgeFilterFactory`; network.md, section 12. Its rate limit holds for all
messages of a subscription too, and not only for those that go back.
"""

from collections.abc import Callable
from typing import Final

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.consumer_set import ConsumerSet
from pybroker.broker.core.network_consumer import NetworkConsumer
from pybroker.broker.core.paging import Paging
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.network.bridge_filter import ConditionalBridgeFilter
from pybroker.broker.domain.openwire.arrival_time import arrival_time
from pybroker.broker.domain.ports import Clock

WAITS_PER_DELAY: Final = 8
"""The most timers in one delay: a message is examined about so many times before it goes back, and goes by at most an
eighth of the delay too late."""

WAIT_SECONDS_MIN: Final = 0.02
"""The shortest time of such a timer."""


class QueueBridgeFilters:
    """The filters of all bridges that consume one queue."""

    __slots__ = ("_cancel", "_clock", "_consumer_set", "_examine", "_filters", "_paging", "_wakes_at")

    def __init__(self, consumer_set: ConsumerSet, paging: Paging, clock: Clock, examine: Callable[[], None]) -> None:
        """Begin without filters.

        Args:
            consumer_set: the consumers of the queue.
            paging: has the timer; without an event loop there is none, and nothing is examined again by time.
            clock: milliseconds since the epoch.
            examine: has all consumers examine all waiting messages again.
        """
        self._consumer_set = consumer_set
        self._paging = paging
        self._clock = clock
        self._examine = examine
        self._filters: dict[BrokerConsumer, QueueBridgeFilter] = {}
        self._cancel: Callable[[], None] | None = None
        """Cancels the timer; None while there is none."""
        self._wakes_at = 0.0

    def add(self, consumer: NetworkConsumer, destination: Destination, terms: ConditionalBridgeFilter) -> None:
        """Filter what a consumer gets from the queue of that destination."""
        found = self._filters[consumer] = QueueBridgeFilter(terms, consumer, self, self._clock, self._paging)
        consumer.add_filter(destination, found)

    def remove(self, consumer: BrokerConsumer) -> bool:
        """React to a consumer that has left; return True if messages may go back now."""
        if self._filters.pop(consumer, None) is None:
            return consumer.request.network is None and self._may_return_without_it()
        if not self._filters:
            self.close()
        return False

    def _may_return_without_it(self) -> bool:
        """Return True if the departure of a consumer may decide: of hundreds that leave, only that of the last one."""
        replaying = [each.terms for each in self._filters.values() if each.terms.replay_when_no_consumers]
        if any(each.selector_aware for each in replaying):
            return True
        return bool(replaying) and all(each.request.network is not None for each in self._consumer_set.all)

    def is_returning(self, message: Message) -> bool:
        """Return True while the queue's copy of a message is on its way back, so that it may be gone in a moment."""
        return any(
            reference.message.message_id == message.message_id and reference.message.destination == message.destination
            for consumer in self._filters
            for reference in consumer.outstanding
        )

    def close(self) -> None:
        """Cancel the timer."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def has_consumer(self, message: Message, *, is_selector_aware: bool) -> bool:
        """Return True if the queue has a consumer that is no bridge.

        Args:
            message: a message.
            is_selector_aware: only consumers that accept it count.
        """
        for consumer in self._consumer_set.all:
            if consumer.request.network is None and (not is_selector_aware or consumer.accepts(message)):
                return True
        return False

    def wake_in(self, seconds: float) -> None:
        """Examine the queue again after that time, or earlier if it is examined earlier for another reason."""
        after = self._paging.after
        if after is None:
            return
        wakes_at = self._paging.monotonic() + seconds
        if self._cancel is not None:
            if wakes_at >= self._wakes_at:
                return
            self._cancel()
        self._wakes_at = wakes_at
        self._cancel = after(seconds, self._wake)

    def _wake(self) -> None:
        self._cancel = None
        resumed = [consumer for consumer, each in self._filters.items() if each.resume()]
        self._examine()
        for each in resumed:  # among many consumers, those that were on hold have left the order (`ConsumerSet`)
            if each in self._filters:
                each.dispatch()


class QueueBridgeFilter:
    """The filter of one bridge's consumer on one queue.

    Attributes:
        terms: the attributes of the filter.
    """

    __slots__ = ("_clock", "_consumer", "_count", "_filters", "_is_full", "_paging", "_period_ends_at", "terms")

    def __init__(
        self,
        terms: ConditionalBridgeFilter,
        consumer: NetworkConsumer,
        filters: QueueBridgeFilters,
        clock: Clock,
        paging: Paging,
    ) -> None:
        self.terms = terms
        self._consumer = consumer
        self._filters = filters
        self._clock = clock
        self._paging = paging
        self._count: int = 0
        """Messages in the present period."""
        self._period_ends_at = 0.0
        self._is_full = False
        """True from when the rate limit is reached until the timer, so that what comes then overtakes nothing."""

    def may_forward(self) -> bool:
        """Return True if the rate limit allows one message more, and count it."""
        terms = self.terms
        if not terms.rate_limit:
            return True
        if self._is_full:
            return False
        now = self._paging.monotonic()
        if now >= self._period_ends_at:
            self._period_ends_at = now + terms.rate_duration / 1000
            self._count = 0
        if self._count >= terms.rate_limit:
            if self._paging.after is not None:
                self._is_full = True
                self._consumer.hold()
                self._filters.wake_in(self._period_ends_at - now)
            return False
        self._count += 1
        return True

    def may_return(self, message: Message) -> bool:
        """Return True if a message may go back to a broker that it has passed, and count it."""
        terms, filters = self.terms, self._filters
        if not terms.replay_when_no_consumers or filters.has_consumer(message, is_selector_aware=terms.selector_aware):
            return False
        if terms.replay_delay:
            here_ms = self._clock() - arrival_time(message.data)  # below 0: the clock was set back
            if 0 <= here_ms < terms.replay_delay:
                least = max(terms.replay_delay / 1000 / WAITS_PER_DELAY, WAIT_SECONDS_MIN)
                filters.wake_in(max((terms.replay_delay - here_ms) / 1000, least))
                return False
        return self.may_forward()

    def resume(self) -> bool:
        """Begin a new period, if the limit of the last one was reached and it is over; return True if it begins."""
        if not self._is_full:
            return False
        left = self._period_ends_at - self._paging.monotonic()
        if left > 0:
            self._filters.wake_in(left)
            return False
        self._is_full = False
        self._consumer.unhold()
        return True
