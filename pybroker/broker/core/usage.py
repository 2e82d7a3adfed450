"""Memory that messages take: counted per destination and for the whole broker, with limits, and who waits for room.

```text
   broker     used, limit      what all destinations hold
     |
   queue or topic  used, limit      what it holds: each message's `size` once, while it waits or is outstanding
```

A queue counts a message from its arrival until it is settled for good. A topic counts what its durable subscriptions
keep and what waits for slow consumers beyond their windows, each message once, however many of them hold it; what a
window covers is in the network's hands. What an open transaction has sent counts for its destinations, too (see
`uncommitted`). What a topic keeps for retroactive consumers never does: that has limits of its own.

**Nothing here refuses.** Counting is one thing, slowing producers down is another, and only the second looks at limits.
The rules that keep it from ever standing still:

1. What frees memory never waits for memory: acknowledgements, commits, roll-backs, closing, expiry, and the broker's
   own sends (dead letters, advisories, scheduled messages, a commit's messages) are counted and go through, limit or
   not.
2. A message that arrived is accepted, even if it takes the last room and more. What waits for room is the *answer* to
   its producer, so that no message is in between and the overrun is one message per producer.
3. A producer that wants no answer is held by not reading its connection, but only a connection without consumers and
   without transactions that hold memory: the acknowledgements and commits that would make room may be behind what is
   not read. Another is read on; what it sends in that way is accepted up to twice the limit, and then refused with
   `ResourceLimit`.
4. A send in a transaction waits only while others hold the memory: once the transaction holds some, its commit is what
   frees it. Persistent messages leave memory before the commit, so a transaction may be larger than the limit; of what
   cannot leave, it holds no more than the limit, and more is refused with `ResourceLimit`.
5. Who waits is served in the order of coming, one at a time, as long as there is room.
6. A client may wait for an answer in the very thread that would acknowledge, in whatever connection, and nobody can
   tell. So where nothing at all became free for a while all who wait go on, up to twice the limit: see `relieve`.

Every message that is counted can thus be consumed by somebody whose acknowledgement will be read. Persistent messages
that wait leave memory, and are not counted, long before a limit is reached: at its `mark`, see `paging`. So it is the
others that make producers wait, what consumers hold unsettled, and what the disk is not quick enough for.

Source: ActiveMQ's `MemoryUsage` and producer flow control.
"""

from collections import deque
from collections.abc import Callable

from pybroker.broker.core.paging import Paging
from pybroker.broker.domain.message import Message


class Usage:
    """What a destination's messages take, or a whole broker's.

    Attributes:
        limit: bytes; 0: no limit of its own.
        used: bytes taken now.
        mark: bytes from which on messages are left to the store.
        whole: the broker's usage.
        paging: how messages are left to the store in this broker.
    """

    __slots__ = ("_is_serving", "_is_stalled", "_parent", "_waiting", "limit", "mark", "paging", "used", "whole")

    def __init__(self, limit: int = 0, parent: "Usage | None" = None) -> None:
        self.limit = limit
        self.used = 0
        self.whole: Usage = self if parent is None else parent.whole
        self.paging: Paging = Paging() if parent is None else parent.paging
        self.mark = self.paging.mark(limit, is_whole=parent is None)
        self._parent = parent
        self._waiting: deque[_Waiting] = deque()
        self._is_serving = False
        self._is_stalled = False

    def take(self, size: int) -> None:
        """Count a message in."""
        self.used += size
        if (parent := self._parent) is not None:
            parent.used += size

    def give(self, size: int) -> None:
        """Count a message out, and call those for whom there is room now."""
        self.used -= size
        if self._waiting:
            self._serve()
        if (parent := self._parent) is not None:
            parent.used -= size
            if parent._waiting:
                parent._serve()

    @property
    def front(self) -> int:
        """Bytes that each backlog keeps in memory of what could leave it."""
        own = self.mark // 4
        if not self.paging.is_relieving:
            return own
        return min(own, self.paging.mark(self.whole.limit, is_whole=True) // 4 // max(1, len(self.paging.backlogs)))

    def review_mark(self) -> None:
        """Set a whole broker's mark anew: what no page-out could free should not set off the next at once."""
        base = self.paging.mark(self.limit, is_whole=True)
        self.mark = max(base, self.used + base // 16)

    def leave_to_store(self, when_durable: Callable[[Callable[[], None]], None]) -> None:
        """Have all backlogs of the broker leave messages to the store if too much of its memory is used."""
        whole, paging = self.whole, self.paging
        if whole.used > whole.mark and not paging.is_relieving:
            paging.is_relieving = True
            for backlog in list(paging.backlogs):
                backlog.leave_to_store()
            when_durable(whole._have_left)

    def _have_left(self) -> None:
        self.paging.is_relieving = False
        self.review_mark()

    @property
    def full(self) -> "Usage | None":
        """What is full: this, or the broker; None: neither."""
        return self._full()

    @property
    def is_full(self) -> bool:
        """True when nothing more should come in, here or in the whole broker."""
        return self._full() is not None

    @property
    def is_overrun(self) -> bool:
        """True when there is no room for even twice the limit: what comes in all the same has to be refused."""
        if self.limit and self.used >= 2 * self.limit:
            return True
        return self._parent is not None and self._parent.is_overrun

    def when_room(self, callback: Callable[[], None], owner: object = None) -> None:
        """Call back once there is room: at once, or after those who waited before.

        A callback is called from inside the acknowledgement that made room; it may send, and may so take the room.

        Args:
            callback: whom to call.
            owner: whose callback it is, for `leave`.
        """
        if (place := self._full() or self._queue()) is None:
            callback()
        else:
            place._wait(_Waiting(self, callback, owner))

    def leave(self, owner: object) -> None:
        """Forget who waits, here and for room in the whole broker: the owner is gone."""
        self._waiting = deque(each for each in self._waiting if each.owner is not owner)
        if self._parent is not None:
            self._parent.leave(owner)

    def relieve(self) -> None:
        """Let all go on who wait, if nothing became free since the last call: call this every now and then."""
        if self._parent is None:
            self.review_mark()
        if self._waiting and self._is_stalled and not self.is_overrun:
            last = self._waiting[-1]  # a callback may send again, and have to wait again
            while self._waiting:
                waiting = self._waiting.popleft()
                waiting.callback()
                if waiting is last:
                    break
        self._is_stalled = True

    def close(self) -> None:
        """Give back all that is counted: the destination is gone. What is still outstanding no longer matters."""
        parent, self._parent = self._parent, None
        self.limit = 0
        self._serve()
        if parent is not None:
            parent.used -= self.used
            parent._serve()

    def _full(self) -> "Usage | None":
        """Return what is full: this, or the broker."""
        if self.limit and self.used >= self.limit:
            return self
        return self._parent._full() if self._parent is not None else None

    def _queue(self) -> "Usage | None":
        """Return where others wait who are being served right now, and come first."""
        if self._waiting:
            return self
        return self._parent._queue() if self._parent is not None else None

    def _wait(self, waiting: "_Waiting") -> None:
        if not self._waiting:
            self._is_stalled = False  # since now, at the earliest
        self._waiting.append(waiting)

    def _serve(self) -> None:
        self._is_stalled = False
        if self._is_serving:  # a callback made room itself: it is used once the callback is done
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
    """Who waits for room in what."""

    __slots__ = ("callback", "owner", "usage")

    def __init__(self, usage: Usage, callback: Callable[[], None], owner: object) -> None:
        self.usage = usage
        self.callback = callback
        self.owner = owner


class SharedUsage:
    """Counts a topic's messages once, however many of its subscriptions hold them."""

    __slots__ = ("_holders", "usage")

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self._holders: dict[Message, int] = {}

    def hold(self, message: Message) -> None:
        """Count a message for one more holder."""
        holders = self._holders.get(message, 0)
        if not holders:
            self.usage.take(message.size)
        self._holders[message] = holders + 1

    def drop(self, message: Message) -> None:
        """Count a message for one holder less; one that was never counted is left alone."""
        holders = self._holders.pop(message, 0)
        if holders > 1:
            self._holders[message] = holders - 1
        elif holders:
            self.usage.give(message.size)
