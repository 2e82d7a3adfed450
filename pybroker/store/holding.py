"""A room in front of the writer: a queue's message that is consumed right away need not be written at all.

```text
 add ──> [ m1 m2 m3 … ]  ── consumed: gone, and whoever sent it is told ──>
              └── after a moment, or when anything else is sent: to the writer, in order
```

A producer is promised that its message is on disk *or* consumed. Where consumers keep up, the second comes first: a
message goes out to a consumer and its acknowledgement comes back in less time than a disk needs for a sync. Nothing
passes the room that was sent: whoever opens it has any other message written behind all that is held.

Whether holding pays is learned by watching. While nothing is held, one add in a few is watched: is it consumed within
the time it would have been held, beyond the write that goes first? While messages are held, each of them counts that
was consumed or has had its time. Where nobody consumes nothing is ever held.

What is held is known to nobody else. Should the master die, its producer was not answered and sends it again, as new; a
consumer that had it already, unknown to the next master, then gets it unmarked, as it does from an ActiveMQ.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.runtime import Callback, StoreRuntime

HOLD_SECONDS = 0.002
"""How long a message waits at least to be consumed, where a write is a sync of a disk; twice that at most."""

HELD_BYTES_MAX = 1 << 20
"""Beyond that much all of it is written."""

NEWEST_MAX = 1024
"""Connections remembered as senders of what is held, before those are looked for of whom nothing is here any more."""

QUICK_SECONDS = 50e-6
"""A disk whose writes take less is quicker than any consumer: nothing is held before it."""

WATCH_EVERY = 16
"""Of so many adds that are not held one is watched."""

HELD_SHARE, WATCHED_SHARE = 1 / 16, 1 / 4
"""Of the newest observation in the moving share of messages consumed in time."""

BEGIN_SHARE, END_SHARE = 0.6, 0.5
"""The share of messages consumed in time from which on holding begins, and below which it ends."""


class _Held:
    """A message in the room, and who wants to know; without its message, one that was consumed behind another."""

    __slots__ = ("callbacks", "message", "number")

    def __init__(self, message: Message, number: int) -> None:
        self.message: Message | None = message
        self.number = number
        self.callbacks: list[tuple[Callback, bool]] = []
        """Each with whether it waits for the disk in any case."""


class Behind(Protocol):
    """The store behind the room."""

    def expect(self, message: Message) -> bool:
        """Take note of a message that is to be held, unless it is stored already: then False."""
        ...

    def write(self, message: Message) -> None:
        """Have a message written.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        ...


class Commits(Protocol):
    """The store's `GroupCommit`, or what passes on to it."""

    @property
    def write_seconds(self) -> float:
        """How long a write takes of late; 0 as long as nobody knows."""
        ...

    def when_durable(self, callback: Callback) -> None:
        """Call back once all that was written so far is durable."""
        ...

    def tell(self, callbacks: Sequence[Callback]) -> None:
        """Call these back at the end of the turn, if the fence allows it."""
        ...


class HoldingRoom:
    """Messages that may be consumed before they are written.

    Args:
        store: the store behind.
        commits: what makes its writes last.
        runtime: the world around, which has a timer.
        hold_seconds: how long a message waits at least to be consumed; twice that at most.
    """

    def __init__(
        self, store: Behind, commits: Commits, runtime: StoreRuntime, *, hold_seconds: float = HOLD_SECONDS
    ) -> None:
        self.is_open = False
        """True while it pays to hold messages."""
        self.byte_count = 0
        self._store = store
        self._commits = commits
        assert runtime.call_later is not None, "what is held has its time"
        self._call_later = runtime.call_later
        self._monotonic = runtime.monotonic
        self._hold_seconds = hold_seconds
        self._order: deque[_Held] = deque()
        self._by_key: dict[tuple[Destination, str], _Held] = {}
        self._newest: dict[str, int] = {}
        """By connection, the number of the newest message it sent that may be here."""
        self._number = 0
        self._old_number = 0
        """Of the newest message that was here when the clock was wound: it has had its time when it rings."""
        self._is_ticking = False
        self._flush_count = 0
        self._is_flushed = True
        """True when all that was flushed is known to be durable."""
        self._has_passed = False
        """True when a message was not held, and was not waited for since."""
        self._share = 0.0
        self._unwatched = 0
        self._watched = ""
        self._watched_at = 0.0

    # ------------------------------------------------------------ what a store asks

    def enter(self, message: Message, transaction: TransactionId | None) -> bool | None:
        """Hold a message, if that is worth while: then True, or False if it is here or in the store already.

        None: the store is to write it, behind all that is here.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if transaction is None and not message.destination.is_topic:
            if self._order and (message.destination, message.message_id) in self._by_key:
                return False
            if self.is_open:
                is_new = self._store.expect(message)
                if is_new:
                    self.add(message)
                return is_new
            self.passed(message.message_id)
        self.flush()
        self._has_passed = True
        return None

    def leave(
        self, destination: Destination, message_id: str, transaction: TransactionId | None, consumed_by: str | None
    ) -> bool:
        """Let go of a queue's message that is settled; False: the store is to write that.

        One that was dead-lettered or expired (None), or whose acknowledgement does not count at once, is written
        first, and so is what became of it.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if consumed_by is None or transaction is not None:
            self.flush()
            return False
        if self.consume(destination, message_id, consumed_by):
            return True
        self.consumed(message_id)  # and what else is held may be consumed yet
        return False

    # ------------------------------------------------------------ held

    def __contains__(self, key: tuple[Destination, str]) -> bool:
        return key in self._by_key

    def add(self, message: Message) -> None:
        """Hold a message that is not here.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        self._number = number = self._number + 1
        self._by_key[message.destination, message.message_id] = held = _Held(message, number)
        self._order.append(held)
        self._newest[message.connection_id] = number
        self.byte_count += len(message.data)
        if not self._is_ticking:
            self._wind()
        if self.byte_count > HELD_BYTES_MAX:
            self.flush()
            self._unconsumed(1)  # not one for each: they have not had their time

    def consume(self, destination: Destination, message_id: str, consumed_by: str = "") -> bool:
        """Let go of a message that was consumed; False when it is not here.

        What else its consumer's connection sent is written first, and this one if it is older: that may be made of it.
        """
        key = (destination, message_id)
        if (newest := self._newest.get(consumed_by)) is not None:
            held = self._by_key.get(key)
            if held is None or held.number != newest:
                self.flush_from(consumed_by)
        held = self._by_key.pop(key, None)
        if held is None or held.message is None:
            return False
        self.byte_count -= len(held.message.data)
        held.message = None
        self._share += (1.0 - self._share) * HELD_SHARE
        self._release()
        return True

    def when_safe(self, callback: Callback, *, durable: bool = False) -> bool:
        """Call back once all that is here now, or was not held, was consumed or is durable; False when nothing is here.

        Args:
            callback: what to call.
            durable: all that was to be written by then has to be durable too.
        """
        if not self._order:
            return False
        if self._has_passed:
            self._has_passed = self._is_flushed = False
            self._flush_count += 1
            self._commits.when_durable(partial(self._flushed, self._flush_count))
        self._order[-1].callbacks.append((callback, durable))
        return True

    def flush_from(self, connection_id: str) -> None:
        """Have written what a connection sent, and all before it: what it did next is not to count without.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        newest = self._newest.get(connection_id)
        if newest is not None and self._order and self._order[0].number <= newest:
            self._flush_through(newest)

    def flush_before(self, consumed_by: str | None, transaction: TransactionId | None) -> None:
        """Have written what must not come later than an acknowledgement: what its consumer's connection sent.

        All of it where the acknowledgement does not count at once, or the message was dead-lettered or expired (None).

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if consumed_by is None or transaction is not None:
            self.flush()
        else:
            self.flush_from(consumed_by)

    def flush(self) -> None:
        """Have all that is here written.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if self._order:
            self._flush_through(self._number)

    # ------------------------------------------------------------ not held

    def passed(self, message_id: str) -> None:
        """Learn of an add that was not held."""
        self._unwatched += 1
        if self._unwatched >= WATCH_EVERY:
            if self._watched:  # the last one is not consumed yet
                self._share -= self._share * WATCHED_SHARE
            self._unwatched = 0
            self._watched = message_id
            self._watched_at = self._monotonic()

    def consumed(self, message_id: str) -> None:
        """Record that a message that was not held was consumed."""
        if message_id == self._watched:
            self._watched = ""
            write_seconds = self._commits.write_seconds
            in_time = self._monotonic() - self._watched_at < self._hold_seconds + write_seconds
            self._share += (in_time - self._share) * WATCHED_SHARE
            self.is_open = self._share >= BEGIN_SHARE and write_seconds >= QUICK_SECONDS

    # ------------------------------------------------------------ private

    def _release(self) -> None:
        """Let those in front go that were consumed.

        Whoever waits for them is told at the end of the turn, or when the last ones that were not consumed are durable.
        """
        order, is_flushed = self._order, self._is_flushed
        while order and order[0].message is None:
            for callback, durable in order.popleft().callbacks:
                if durable or not is_flushed:
                    self._commits.when_durable(callback)
                else:
                    self._commits.tell((callback,))
        if not order:
            self._newest.clear()
        if not is_flushed:
            self._commits.when_durable(partial(self._flushed, self._flush_count))

    def _flushed(self, flush_count: int) -> None:
        self._is_flushed = flush_count == self._flush_count

    def _wind(self) -> None:
        if len(self._newest) > NEWEST_MAX:
            oldest = self._order[0].number
            self._newest = {sender: number for sender, number in self._newest.items() if number >= oldest}
        self._is_ticking = True
        self._old_number = self._number
        self._call_later(self._hold_seconds, self._rung)

    def _rung(self) -> None:
        """Have written what was here for long enough."""
        self._is_ticking = False
        try:
            self._unconsumed(self._flush_through(self._old_number))
        except StoreUnavailable:  # the writer has said why, and nobody is told anything any more
            self._order.clear()
            self._by_key.clear()
        if self._order:
            self._wind()

    def _flush_through(self, number: int) -> int:
        """Have written what is here up to that number; return how many messages those were."""
        order, count = self._order, 0
        while order and order[0].number <= number:
            held = order.popleft()
            if (message := held.message) is not None:
                del self._by_key[message.destination, message.message_id]
                self.byte_count -= len(message.data)
                count += 1
                self._is_flushed = False
                self._flush_count += 1
                self._store.write(message)
            for callback, _ in held.callbacks:
                self._commits.when_durable(callback)
        self._release()
        return count

    def _unconsumed(self, count: int) -> None:
        """Record that so many messages were not consumed in time."""
        self._share *= (1.0 - HELD_SHARE) ** count
        if self._share < END_SHARE:
            self.is_open = False
