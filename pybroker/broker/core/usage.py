"""Memory usage of messages, per destination and for the whole broker: limits, and producers that wait for memory.

```text
   broker     used, limit      all messages in memory
     |
   queue or topic  used, limit      its messages: the `size` of each once, while it waits or is outstanding
```

A queue counts a message from its arrival until it is settled. A topic counts the messages in memory of its durable
subscriptions, and those that wait for consumers whose windows are full; a message that several of them hold counts
once. A delivery within a window of a non-durable consumer is not counted. The messages of an open transaction count for
their destinations (see `uncommitted`). The messages that a topic keeps for retroactive consumers are not counted: they
have limits of their own.

Counting never refuses a message. Only flow control compares usage with limits. These rules keep it free of deadlock:

1. An operation that frees memory never waits for memory. Acknowledgements, commits, roll-backs, the end of a
   connection, expiry, and sends by the broker itself (dead letters, advisories, scheduled messages, the messages of a
   commit) are counted, but never delayed.
2. A message that has arrived is accepted even if it exceeds the limit. Only the *answer* to its producer waits. So the
   limit is exceeded by at most one message per producer.
3. A producer that wants no answer is slowed down by not reading from its connection. This is done only if the
   connection has no consumers, and no transactions that hold memory: otherwise the acknowledgements and commits that
   free memory might not be read. Other connections are read on. What they send without an answer is accepted up to
   twice the limit, and then refused with `ResourceLimit`.
4. A send in a transaction waits only while the transaction itself holds no memory: after that, only its own commit
   frees what it holds. Persistent messages are paged out before the commit, so a transaction may be larger than the
   limit. Of messages that cannot be paged out it holds no more than the limit; a further one is refused with
   `ResourceLimit`.
5. Waiting producers are released in the order of their requests, one at a time, while there is space.
6. A client may wait for an answer in the thread that would acknowledge, even on another connection, which the broker
   cannot see. So if no memory was freed for a while, all waiting producers are released, up to twice the limit: see
   `release_stalled`.

So for every message that is counted, the broker reads the connection of a consumer that can acknowledge it. Persistent
messages that wait are paged out, and then not counted, long before a limit is reached: at the `watermark`, see
`paging`. Producers wait for other messages: non-persistent ones, those outstanding at consumers, and those not yet on
disk.

Source: ActiveMQ's `MemoryUsage` and producer flow control.
"""

from collections import deque
from collections.abc import Callable

from pybroker.broker.core.paging import Paging
from pybroker.broker.domain.message import Message


class Usage:
    """The memory that the messages of a destination take, or those of the whole broker.

    Attributes:
        limit: bytes; 0: only the limits above it.
        used: bytes in use.
        watermark: above so many bytes, messages are paged out.
        broker: the usage of the whole broker.
        paging: the paging state that all backlogs of the broker share.
    """

    __slots__ = ("_is_serving", "_is_stalled", "_parent", "_waiting", "broker", "limit", "paging", "used", "watermark")

    def __init__(self, limit: int = 0, parent: "Usage | None" = None) -> None:
        self.limit = limit
        self.used = 0
        self.broker: Usage = self if parent is None else parent.broker
        self.paging: Paging = Paging() if parent is None else parent.paging
        self.watermark = self.paging.watermark(limit, is_broker=parent is None)
        self._parent = parent
        self._waiting: deque[_Waiting] = deque()
        self._is_serving = False
        self._is_stalled = False

    def acquire(self, size: int) -> None:
        """Add the size of a message."""
        self.used += size
        if (parent := self._parent) is not None:
            parent.used += size

    def release(self, size: int) -> None:
        """Subtract the size of a message, and release waiting producers for which there is space now."""
        self.used -= size
        if self._waiting:
            self._serve()
        if (parent := self._parent) is not None:
            parent.used -= size
            if parent._waiting:
                parent._serve()

    @property
    def front_bytes(self) -> int:
        """Bytes at the front of each backlog that are not paged out."""
        own = self.watermark // 4
        if not self.paging.is_paging_out:
            return own
        return min(
            own, self.paging.watermark(self.broker.limit, is_broker=True) // 4 // max(1, len(self.paging.backlogs))
        )

    def recompute_watermark(self) -> None:
        """Set the broker's watermark above what the last page-out left, so that it does not start the next at once."""
        base = self.paging.watermark(self.limit, is_broker=True)
        self.watermark = max(base, self.used + base // 16)

    def request_page_out(self, when_durable: Callable[[Callable[[], None]], None]) -> None:
        """Have all backlogs of the broker page out messages if its usage is above the watermark."""
        broker, paging = self.broker, self.paging
        if broker.used > broker.watermark and not paging.is_paging_out:
            paging.is_paging_out = True
            for backlog in list(paging.backlogs):
                backlog.request_page_out()
            when_durable(broker._paged_out)

    def _paged_out(self) -> None:
        self.paging.is_paging_out = False
        self.recompute_watermark()

    @property
    def full(self) -> "Usage | None":
        """The usage that has reached its limit: this one, or the broker's; None if neither has."""
        return self._full()

    @property
    def is_full(self) -> bool:
        """True when the limit is reached, here or in the whole broker."""
        return self._full() is not None

    @property
    def is_overrun(self) -> bool:
        """True when twice the limit is reached, here or in the whole broker: further messages must be refused."""
        if self.limit and self.used >= 2 * self.limit:
            return True
        return self._parent is not None and self._parent.is_overrun

    def when_space(self, callback: Callable[[], None], owner: object = None) -> None:
        """Call back once there is space, after the callbacks that have waited for longer; at once if there are none.

        The callback runs within the call that freed the memory. It may send messages, and so use the memory itself.

        Args:
            callback: what to call.
            owner: identifies the callback for `cancel`.
        """
        if (blocking := self._full() or self._serving()) is None:
            callback()
        else:
            blocking._wait(_Waiting(self, callback, owner))

    def cancel(self, owner: object) -> None:
        """Remove the callbacks of an owner, here and in the whole broker."""
        self._waiting = deque(each for each in self._waiting if each.owner is not owner)
        if self._parent is not None:
            self._parent.cancel(owner)

    def release_stalled(self) -> None:
        """Call all waiting callbacks if no memory was freed since the last call of this method; called periodically."""
        if self._parent is None:
            self.recompute_watermark()
        if self._waiting and self._is_stalled and not self.is_overrun:
            last = self._waiting[-1]  # a callback may send again, and have to wait again
            while self._waiting:
                waiting = self._waiting.popleft()
                waiting.callback()
                if waiting is last:
                    break
        self._is_stalled = True

    def close(self) -> None:
        """Subtract everything that is counted here from the broker's usage: the destination is deleted."""
        parent, self._parent = self._parent, None
        self.limit = 0
        self._serve()
        if parent is not None:
            parent.used -= self.used
            parent._serve()

    def _full(self) -> "Usage | None":
        """Return the usage that has reached its limit: this one, or the broker's."""
        if self.limit and self.used >= self.limit:
            return self
        return self._parent._full() if self._parent is not None else None

    def _serving(self) -> "Usage | None":
        """Return the usage whose waiting callbacks are being called at this moment, and come first."""
        if self._waiting:
            return self
        return self._parent._serving() if self._parent is not None else None

    def _wait(self, waiting: "_Waiting") -> None:
        if not self._waiting:
            self._is_stalled = False  # a stall begins now at the earliest
        self._waiting.append(waiting)

    def _serve(self) -> None:
        self._is_stalled = False
        if self._is_serving:  # called by a callback of the loop below, which continues after it
            return
        self._is_serving = True
        try:
            while self._waiting and not (self.limit and self.used >= self.limit):
                waiting = self._waiting.popleft()
                if (full := waiting.usage._full()) is None:
                    waiting.callback()
                else:
                    full._wait(waiting)
        finally:
            self._is_serving = False


class _Waiting:
    """A callback that waits for space."""

    __slots__ = ("callback", "owner", "usage")

    def __init__(self, usage: Usage, callback: Callable[[], None], owner: object) -> None:
        self.usage = usage
        self.callback = callback
        self.owner = owner


class SharedUsage:
    """Counts each message of a topic once, however many of its subscriptions hold it."""

    __slots__ = ("_holders", "usage")

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self._holders: dict[Message, int] = {}

    def acquire(self, message: Message) -> None:
        """Add a holder of a message."""
        holders = self._holders.get(message, 0)
        if not holders:
            self.usage.acquire(message.size)
        self._holders[message] = holders + 1

    def release(self, message: Message) -> None:
        """Remove a holder of a message; do nothing if the message is not counted."""
        holders = self._holders.pop(message, 0)
        if holders > 1:
            self._holders[message] = holders - 1
        elif holders:
            self.usage.release(message.size)
