"""The memory of deliveries to topic consumers that are not acknowledged: a share for each connection.

A delivery is an object and an entry in a table of its consumer, also if the message itself is shared by thousands of
subscriptions. A queue counts 1 kB for each message until it is settled. A topic counts a delivery nowhere, for that
would cost more than delivering it. So consumers count capacity for many deliveries at once: `CAPACITY_MIN` are included
in the consumer, and when they are used up a consumer acquires capacity for more, up to its window.

```text
the first GUARANTEED_BYTES of each connection: always
beyond: a quarter of the memory limit; a connection takes at most three times what is left of it
```

A consumer that gets no more capacity is held back: its messages wait, as those of a slow consumer. It goes on when it
acknowledges, or when others give capacity back. Consumers are held back only where their connection has used up its
share: a client that acknowledges in batches, as with ActiveMQ's `optimizeAcknowledge`, gets nothing to acknowledge
otherwise. In the grace period after a take-over, connections get what the first one gets; see `object_memory`.
"""

import logging
from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

DELIVERY_BYTES: Final = 200
"""The memory of a delivery: the reference, and its entry in a table. Measured with 16 to 500,000 for each of 1 to 5,000
consumers: 170 to 184 bytes when compiled, 180 to 235 interpreted."""

CAPACITY_MIN: Final = 16
"""The deliveries of a consumer that are not counted, and always allowed."""

CAPACITY_STEP: Final = 1024
"""A consumer doubles its capacity, but acquires no more than this at once: so many are at most counted without use.
Where a share has no room for that, it acquires `CAPACITY_MIN` at once."""

GUARANTEED_BYTES: Final = 128 << 10
"""The bytes that are guaranteed to each connection: 655 deliveries."""

PART_MIN: Final = 16 << 20
SHIFT: Final = 2
"""The deliveries of all connections beyond that take at most a quarter of the memory limit, or 16 MB if that is more:
the first connection gets three quarters of it, three full windows of 32,766 deliveries under a limit of 128 MB."""

LOG_SECONDS: Final = 30.0
"""Seconds between two lines about consumers that are held back."""

RETRIED_MAX: Final = 64
"""Consumers that are looked at in a turn of the event loop after others have given capacity back."""

Share = Callable[[int, int, int], bool]
"""Takes bytes that a connection would have of a part, the part's, and those that would be left; True if it may."""


class LimitedConsumer(metaclass=ABCMeta):
    """A consumer whose deliveries are counted."""

    __slots__ = ()

    @abstractmethod
    def retry(self) -> None:
        """Go on with delivery if there is capacity now."""


class DeliveryMemory:
    """Counts the capacity for deliveries of all connections.

    Attributes:
        part: bytes that all connections may take beyond what each is guaranteed; 0: there is no limit.
        shared: bytes that they take of it.
        taken: bytes of all capacity.
        held_back: consumers whose capacity is used up, and that got no more, those that have waited for longest first.
    """

    __slots__ = (
        "_counted_max",
        "_is_released",
        "_is_retrying",
        "_is_share",
        "_later",
        "_left",
        "_log_after",
        "_recount",
        "_seconds",
        "held_back",
        "part",
        "shared",
        "taken",
    )

    def __init__(
        self,
        limit: int,
        *,
        is_share: Share,
        recount: Callable[[], None],
        seconds: Callable[[], float],
        later: Callable[[Callable[[], None]], bool],
    ) -> None:
        """Count nothing yet.

        Args:
            limit: the broker's memory limit in bytes; 0: there is none.
            is_share: the rule for a connection's share.
            recount: called after each change of `taken`.
            seconds: a monotonic clock.
            later: runs a callback in a later turn of the event loop; returns False if there is none.
        """
        self.part = max(limit >> SHIFT, PART_MIN) if limit else 0
        self._counted_max = limit >> SHIFT
        self._is_share = is_share
        self._recount = recount
        self._seconds = seconds
        self._later = later
        self.shared = 0
        self.taken = 0
        self.held_back: dict[LimitedConsumer, None] = {}
        self._left: list[LimitedConsumer] = []
        """Consumers that are still to be looked at in this round, the last one first."""
        self._is_released = False
        """True if capacity was given back since the round began."""
        self._is_retrying = False
        self._log_after = 0.0

    @property
    def counted(self) -> int:
        """Bytes that count in the broker's memory usage."""
        return min(self.taken, self._counted_max)

    def allows(self, own: int, change: int) -> bool:
        """Return True if a connection may take more.

        Args:
            own: the bytes beyond what it is guaranteed that it would have.
            change: those of them that it does not have yet.
        """
        return not self.part or self._is_share(own, self.part, self.part - self.shared - change)

    def change(self, size: int, shared: int) -> None:
        """Count bytes, and those of them that are beyond what a connection is guaranteed; negative: given back."""
        self.taken += size
        self.shared += shared
        self._recount()
        if size < 0 and self.held_back:
            self._is_released = True
            if not self._is_retrying:
                self._is_retrying = True
                if not self._later(self._retry):
                    self._retry()

    def hold_back(self, consumer: LimitedConsumer, connection_id: str, destination: str, outstanding: int) -> None:
        """Remember a consumer that got no more capacity, and log it if no other was logged lately."""
        self.held_back[consumer] = None
        now = self._seconds()
        if now >= self._log_after:
            self._log_after = now + LOG_SECONDS
            _log.warning(
                "connection %s: the consumer of %s is held back with %s deliveries that it has not acknowledged; all "
                "consumers take %s of %s bytes for such deliveries. Acknowledge, lower the prefetch or raise "
                "memory_limit. Held back now: %d",
                connection_id,
                destination,
                f"{outstanding:,}",
                f"{self.shared:,}",
                f"{self.part:,}",
                len(self.held_back),
            )

    def _retry(self) -> None:
        """Have some of the consumers go on, and the others in later turns, also if one of them fails."""
        try:
            self._go_on()
        except BaseException:
            self._is_retrying = self._later(self._retry)
            raise

    def _go_on(self) -> None:
        left = RETRIED_MAX
        while self._left or self._is_released:
            if not self._left:
                self._is_released = False
                self._left = list(reversed(self.held_back))
                continue
            left -= 1
            if left < 0:
                if self._later(self._retry):
                    return
                left = RETRIED_MAX
            consumer = self._left.pop()
            if consumer in self.held_back:
                del self.held_back[consumer]  # before, as it may be held back again
                consumer.retry()
        self._is_retrying = False


class DeliveryAccount:
    """The capacity for deliveries of one connection.

    Attributes:
        memory: that of all connections.
        taken: its bytes.
    """

    __slots__ = ("_is_closed", "memory", "taken")

    def __init__(self, memory: DeliveryMemory) -> None:
        self.memory = memory
        self.taken = 0
        self._is_closed = False

    @property
    def is_limited(self) -> bool:
        """True if there is a limit, and deliveries have to be counted."""
        return self.memory.part > 0

    def acquire(self, count: int) -> bool:
        """Count capacity for further deliveries; return False, and count nothing, if the share is used up."""
        if self._is_closed:
            return False
        taken = self.taken + count * DELIVERY_BYTES
        after = max(0, taken - GUARANTEED_BYTES)
        if after and not self.memory.allows(after, after - max(0, self.taken - GUARANTEED_BYTES)):
            return False
        self._set(taken)
        return True

    def acquire_anyway(self, count: int) -> None:
        """Count capacity for deliveries that exist."""
        if not self._is_closed:
            self._set(self.taken + count * DELIVERY_BYTES)

    def release(self, count: int) -> None:
        """Give capacity back; do nothing once the connection is closed."""
        if count and not self._is_closed:
            self._set(self.taken - count * DELIVERY_BYTES)

    def close(self) -> None:
        """Give all capacity back, and acquire nothing more."""
        if self.taken:
            self._set(0)
        self._is_closed = True

    def _set(self, taken: int) -> None:
        before, self.taken = self.taken, taken
        shared = max(0, taken - GUARANTEED_BYTES) - max(0, before - GUARANTEED_BYTES)
        self.memory.change(taken - before, shared)
