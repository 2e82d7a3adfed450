"""Paging: limits for moving messages out of memory and reading them back, and the state that all backlogs share.

```text
   used                                                    the memory usage of a queue, or of the whole broker
    |  . . . . . . . . . . . . . . . . . .  limit          producers wait (`usage`)
    |            /|        /|                watermark     70 % of the limit, at most `BACKLOG_BYTES_MAX` for one queue
    |          /  |      /  |
    |        /    |/-- /    |/--                            the fronts stay: a quarter of the watermark
    +-------------------------------- time
```

If a backlog exceeds its watermark, it waits until its messages are on disk (`MessageStore.when_durable`). Then it keeps
its front in memory, and only the ids of all messages behind it (`paged_out_index`). If the whole broker exceeds its
watermark, all backlogs do this. If that is not enough, the bodies of outstanding messages leave memory (`delivered`).

Messages that are not stored (non-persistent ones, and all of a temporary queue) leave memory in the same way, but into
the spool (`MessageSpool`): `SPOOL_PIECE_BYTES` at a time are written, and those that still wait behind the front when
that is done leave. Without a spool they stay in memory.

A page is read when the oldest message is not in memory, or when a search gets to a paged-out message. A page has at
most `PAGE_MAX` messages, and ends with the message that reaches `PAGE_BYTES_MAX`. Reading a page blocks the event loop
for some two milliseconds. A search by selector and a browser may have to read a whole backlog. After each page they
continue in a later turn of the loop (`defer`). The first page of a search has no more messages than its consumers may
get: what they do not get is not kept, and is read again by the next search. Delivery continues later too, after
`PAGE_BYTES_MAX`, so that output is sent. Messages in memory are searched and delivered in pieces too: after `PIECE_MAX`
of them or `PIECE_SECONDS`, the rest waits for a later turn, so that no backlog and no wide window holds up the clients
of others.

An expired message is found when it is paged in. If nothing consumes a backlog, a slow scan finds its expired messages:
it reads at most `SCANNED_MAX` messages in `SCAN_SECONDS` for all backlogs together, one page per turn of the loop.
ActiveMQ looks at the first 400 messages of a queue.

Source: ActiveMQ 5.17, `maxPageSize` (200), `cursorMemoryHighWaterMark` (70 %), `maxExpirePageSize` (400).
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from pybroker.broker.domain.errors import NotReadYet, StoreUnavailable
from pybroker.broker.domain.ports import MessageSpool

PAGE_MAX = 200
"""Messages read at a time."""

PAGE_BYTES_MAX = 1 << 20
"""A page ends with the message that reaches this. Twice as much would block the event loop for too long."""

SPOOL_PIECE_BYTES = 4 << 20
"""Bytes that a backlog spools at a time: they stay in memory until they are written."""

PAGE_OUT_PIECE: Final = 2000
"""Messages that a backlog pages out in one turn of the event loop, in one to two milliseconds: as many as 100,000 come
back at once when a consumer with a wide window leaves."""

BACKLOG_BYTES_MAX = 16 << 20
"""The watermark of one backlog, even if there is more memory. Reading a message back takes a fraction of the time of
its delivery, so more messages in memory would not make delivery faster."""

PIECE_MAX: Final = 500
"""Messages in memory that a search examines, or a dispatch delivers, before it continues in a later turn of the event
loop: one to two milliseconds, where a selector or a delivery takes the usual two to four microseconds."""

PIECE_SECONDS: Final = 0.001
"""The time after which it continues in a later turn, where selectors or deliveries take longer than usual."""

CLOCK_MASK: Final = 7
"""The clock is read for every eighth message: for each it would cost a tenth of a simple selector."""

HIGH_WATER_PERCENT = 70
"""The watermark in percent of a limit: persistent messages are paged out before any producer has to wait."""

SCANNED_MAX = 20_000
"""Messages that the scan for expired ones reads in `SCAN_SECONDS`: at ten microseconds each, two percent of a core.
Without an event loop to spread the scan over, it reads a twentieth of this number."""

SCAN_SECONDS = 10

FEW_BACKLOGS: Final = 8
"""Backlogs that page out in one turn: a commit may allow it to all at once, and each takes up to a millisecond."""


def severity(error: StoreUnavailable) -> int:
    """Return the log level for a page that could not be read: DEBUG if it is merely not read yet."""
    return logging.DEBUG if isinstance(error, NotReadYet) else logging.ERROR


def _standing_still() -> float:
    return 0.0


class PageableBacklog(Protocol):
    """A backlog that can page out messages."""

    def request_page_out(self) -> None:
        """Page out messages as soon as they are on disk."""
        ...


class Paging:
    """The paging state that all backlogs of a broker share.

    Attributes:
        later: runs a callback in a later turn of the event loop; None: there is no loop, and work is not divided.
        after: runs a callback after so many seconds, and returns what cancels it; None: there is no loop.
        backlogs: all backlogs; a backlog that closes removes itself.
        monotonic: seconds, for `PIECE_SECONDS`; without an event loop it stands still.
        spool: gets the messages that no store has; None: these stay in memory.
        when_durable: calls back once everything stored so far is on disk; None: no page-out begins before a wait.
        deferred_bytes: bytes of messages whose sends wait for space, see `deferred_sends`.
        is_paging_out: all backlogs were requested to page out messages, and have not finished.
        unfinished: the backlogs whose page-out continues in a later turn.
        open_rounds: number of connections of which some consumers have capacity and have not visited all their
            backlogs yet; see `BrokerConsumer.continue_round`.
        waiting: callbacks to run once the store may be readable again.
    """

    __slots__ = (
        "_scan_left",
        "_scan_period",
        "after",
        "backlogs",
        "deferred_bytes",
        "is_paging_out",
        "later",
        "monotonic",
        "open_rounds",
        "spool",
        "unfinished",
        "waiting",
        "when_durable",
    )

    def __init__(self) -> None:
        self.later: Callable[[Callable[[], None]], object] | None = None
        self.after: Callable[[float, Callable[[], None]], Callable[[], None]] | None = None
        self.monotonic: Callable[[], float] = _standing_still
        self.backlogs: set[PageableBacklog] = set()
        self.unfinished: set[PageableBacklog] = set()
        self.spool: MessageSpool | None = None
        self.when_durable: Callable[[Callable[[], None]], None] | None = None
        self.deferred_bytes = 0
        self.is_paging_out = False
        self.open_rounds = 0
        self.waiting: dict[Callable[[], None], None] = {}
        self._scan_period = 0
        self._scan_left = 0

    def watermark(self, limit: int, *, is_broker: bool) -> int:
        """Return the number of bytes above which messages are paged out.

        Args:
            limit: bytes; 0 for none.
            is_broker: True for the limit of the whole broker, False for that of a destination.
        """
        share = limit * HIGH_WATER_PERCENT // 100 if limit else 2**63
        return share if is_broker else min(share, BACKLOG_BYTES_MAX)

    def scan_quota(self, now_ms: int, wanted: int) -> int:
        """Return how many messages the scan for expired ones may read now, at most `wanted`."""
        period = now_ms // (1000 * SCAN_SECONDS)
        if period != self._scan_period:
            self._scan_period = period
            self._scan_left = SCANNED_MAX if self.later is not None else SCANNED_MAX // 20
        granted = min(wanted, self._scan_left)
        self._scan_left -= granted
        return granted

    def retry_waiting(self) -> None:
        """Run the callbacks that wait until the store is readable again."""
        waiting, self.waiting = self.waiting, {}
        for callback in waiting:
            callback()

    def defer(self, callback: Callable[[], None]) -> bool:
        """Run a callback in a later turn of the event loop; return False without a loop: all is done at once."""
        if self.later is None:
            return False
        self.later(callback)
        return True

    def spread(self, callback: Callable[[], None]) -> None:
        """Run what a commit or a write has caused in all backlogs: at once, or for many of them in later turns."""
        if len(self.backlogs) <= FEW_BACKLOGS or not self.defer(callback):
            callback()
