"""When messages leave memory for the store, and how they come back: the numbers, and what backlogs share.

```text
   used                                                    a queue's memory, or the whole broker's
    |  . . . . . . . . . . . . . . . . . .  limit          producers wait (`usage`)
    |            /|        /|                mark          70 % of the limit, at most `BACKLOG_BYTES_MAX` for one queue
    |          /  |      /  |
    |        /    |/-- /    |/--                            the fronts stay: a quarter of the mark
    +-------------------------------- time
```

Above the mark a backlog waits until what it holds is on disk (`MessageStore.when_durable`), and then keeps only ids of
all that lies behind its front (`tail`). When the whole broker is above its mark, all backlogs do. Messages that are not
stored stay, and so does what consumers hold unsettled.

Pages are read when the oldest message is not in memory, or when a search gets there: `PAGE_MAX` messages at most, and
none behind the one with which they take `PAGE_BYTES_MAX`. Reading blocks the event loop for a page, some two
milliseconds. What may have to look at a whole backlog, a search for a selector or a browser, goes on in the loop's next
turn after each page (`call_soon`); so does delivery once it has read that many bytes, for output leaves in between.

Messages whose time is over are found when they are paged in. Those that nobody consumes are looked for by a slow scan:
at most `SCANNED_MAX` messages in `SCAN_SECONDS` for all backlogs together, a page per turn of the loop. ActiveMQ looks
at the first 400 of a queue.

Source: ActiveMQ 5.17, `maxPageSize` (200), `cursorMemoryHighWaterMark` (70 %), `maxExpirePageSize` (400).
"""

import logging
from collections.abc import Callable
from typing import Protocol

from pybroker.broker.domain.errors import NotReadYet, StoreUnavailable

PAGE_MAX = 200
"""Messages read at a time."""

PAGE_BYTES_MAX = 1 << 20
"""A page ends with the message that reaches this: two times this much and the loop would stumble."""

BACKLOG_BYTES_MAX = 16 << 20
"""What one backlog keeps in memory though there is room for more. To read a message back costs a fraction of what its
delivery costs, and a few thousand hide the reading; so more memory would buy nothing."""

HIGH_WATER_PERCENT = 70
"""Of a limit: from there on persistent messages make room, before anybody has to wait."""

SCANNED_MAX = 20_000
"""Messages that the search for expired ones reads in so many seconds: at ten microseconds each two percent of a core.
Without a loop to spread them over it is a twentieth."""

SCAN_SECONDS = 10


def severity(error: StoreUnavailable) -> int:
    """Return the log level of a page that was not read: one that comes a little later is nothing to report."""
    return logging.DEBUG if isinstance(error, NotReadYet) else logging.ERROR


class Backlog(Protocol):
    """A backlog that can leave messages to the store."""

    def leave_to_store(self) -> None:
        """Page out what can be, as soon as it is on disk."""
        ...


class Paging:
    """What all backlogs of a broker share.

    Attributes:
        call_soon: runs a callback in the event loop's next turn; None: there is no loop, and searches run to their end.
        backlogs: all there are; one that is closed takes itself out.
        is_relieving: all of them have been asked to leave messages to the store, and have not all done it yet.
        waiting: whom to call once the store may be read again.
    """

    __slots__ = ("_scan_left", "_scan_period", "backlogs", "call_soon", "is_relieving", "waiting")

    def __init__(self) -> None:
        self.call_soon: Callable[[Callable[[], None]], object] | None = None
        self.backlogs: set[Backlog] = set()
        self.is_relieving = False
        self.waiting: dict[Callable[[], None], None] = {}
        self._scan_period = 0
        self._scan_left = 0

    def mark(self, limit: int, *, is_whole: bool) -> int:
        """Return how much may be used before messages are left to the store.

        Args:
            limit: bytes; 0 for none.
            is_whole: of the whole broker, not of one destination.
        """
        share = limit * HIGH_WATER_PERCENT // 100 if limit else 2**63
        return share if is_whole else min(share, BACKLOG_BYTES_MAX)

    def scan_quota(self, now_ms: int, wanted: int) -> int:
        """Return how many messages a search for expired ones may read now, of so many that it wants to."""
        period = now_ms // (1000 * SCAN_SECONDS)
        if period != self._scan_period:
            self._scan_period = period
            self._scan_left = SCANNED_MAX if self.call_soon is not None else SCANNED_MAX // 20
        granted = min(wanted, self._scan_left)
        self._scan_left -= granted
        return granted

    def ask_again(self) -> None:
        """Call those who wait for the store: it may be read again."""
        waiting, self.waiting = self.waiting, {}
        for callback in waiting:
            callback()

    def soon(self, callback: Callable[[], None]) -> bool:
        """Have something called in the loop's next turn; False when there is no loop."""
        if self.call_soon is None:
            return False
        self.call_soon(callback)
        return True
