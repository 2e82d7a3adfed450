"""Write elision: a buffer in front of the writer, so that a message consumed at once is never written.

```text
 add ──> [ m1 m2 m3 … ]  ── consumed: dropped, and its producer is confirmed ──>
              └── after a moment, or when anything else is sent: to the writer, in order
```

A producer is promised that its message is on disk *or* consumed. Where consumers keep up, the second comes first: a
message goes out to a consumer and its acknowledgement comes back in less time than a disk needs for a sync. No send
overtakes a held message: any other message is written behind all that are held.

Held are the messages that one acknowledgement consumes: those of queues, and of a topic with one durable subscription.
Of a topic with several, some subscriptions may have acknowledged a message when it has to be written for the others.

The buffer measures if holding pays. While nothing is held, it watches one add in a few: is it consumed within the time
it would have been held, plus the write before it? While messages are held, each counts as consumed or expired. Without
consumers nothing is ever held.

A held message is only in memory. If the master dies, the producer was not answered and sends it again as a new message;
a consumer that had received it already then gets it without a redelivery mark, as from an ActiveMQ. If its
acknowledgement was answered it must not come again, though the producer may have missed its own answer. So before
anything else is answered, the producers' sequence numbers of the consumed messages are written.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import RemovalReason
from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.producers import is_sent_again, split
from pybroker.store.runtime import Callback, StoreRuntime

HOLD_SECONDS = 0.002
"""Shortest time that a message is held to be consumed, where a write is a sync of a disk; the longest is twice that."""

HELD_BYTES_MAX = 1 << 20
"""With more bytes held, all of them are written."""

NEWEST_MAX = 1024
"""Connections remembered as senders; with more, those without held messages are removed."""

UNRECORDED_MAX = 1000
"""Producers of consumed messages whose sequence numbers are not written; with more, they are."""

QUICK_SECONDS = 50e-6
"""A disk with shorter writes is quicker than any consumer, and nothing is held."""

WATCH_EVERY = 16
"""Of this many adds that are not held one is watched."""

HELD_SHARE, WATCHED_SHARE = 1 / 16, 1 / 4
"""Weight of the newest observation, held or watched, in the moving share of messages consumed in time."""

BEGIN_SHARE, END_SHARE = 0.6, 0.5
"""Shares of messages consumed in time at which holding begins, and below which it ends."""

_DISCARDED: Final = RemovalReason.DISCARDED


class _HeldMessage:
    """A held message with the callbacks that wait for it; its message is None once it was consumed."""

    __slots__ = ("callbacks", "message", "number")

    def __init__(self, message: Message, number: int) -> None:
        self.message: Message | None = message
        self.number = number
        self.callbacks: list[tuple[Callback, bool]] = []
        """Each with a flag: True if it waits for durability in any case."""


class BackingStore(Protocol):
    """The store behind the buffer."""

    def expect(self, message: Message) -> bool:
        """Record a message that is to be held; return False if it is stored already."""
        ...

    def write(self, message: Message) -> None:
        """Write a message.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        ...

    def write_sequences(self, numbers: Mapping[str, int]) -> None:
        """Write sequence numbers by producer, so that consumed messages are duplicates if they are sent again.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        ...


class Commits(Protocol):
    """The store's `GroupCommit`, or a delegate to it."""

    @property
    def write_seconds(self) -> float:
        """Moving average of a write's seconds; 0 before the first."""
        ...

    def when_durable(self, callback: Callback) -> None:
        """Call back once everything written so far is durable."""
        ...

    def notify(self, callbacks: Sequence[Callback]) -> None:
        """Call these back at the end of the loop's turn if the fence permits it."""
        ...


class WriteElisionBuffer:
    """Messages that may be consumed before they are written.

    Args:
        store: writes the messages that are not consumed.
        commits: makes its writes durable.
        runtime: the event loop, with a timer.
        hold_seconds: the time to wait for a consumer at least; twice that at most.
    """

    def __init__(
        self, store: BackingStore, commits: Commits, runtime: StoreRuntime, *, hold_seconds: float = HOLD_SECONDS
    ) -> None:
        self.is_open = False
        """True while it pays to hold messages."""
        self.byte_count = 0
        self._store = store
        self._commits = commits
        assert runtime.call_later is not None, "held messages need a timer"
        self._call_later = runtime.call_later
        self._monotonic = runtime.monotonic
        self._hold_seconds = hold_seconds
        self._order: deque[_HeldMessage] = deque()
        self._by_key: dict[tuple[Destination, str], _HeldMessage] = {}
        self._newest: dict[str, int] = {}
        """By connection, the number of the newest message it sent that may be here."""
        self._unrecorded: dict[str, int] = {}
        """By producer, the highest sequence number of a consumed message that is not written."""
        self._number = 0
        self._old_number = 0
        """Of the newest message when the timer was armed: at its end this message has waited long enough."""
        self._is_timer_armed = False
        self._flush_count = 0
        self._is_flushed = True
        """True if everything flushed is known to be durable."""
        self._has_passed = False
        """True when a message was not held, and was not waited for since."""
        self._share = 0.0
        self._unwatched = 0
        self._watched = ""
        self._watched_at = 0.0

    # ------------------------------------------------------------ the store's calls

    def offer(self, message: Message, transaction: TransactionId | None, *, is_for_one: bool = False) -> bool | None:
        """Hold a message if that pays; return True, or False if it is held or stored already.

        None: the store has to write it, behind all held messages.

        Args:
            message: the message.
            transaction: takes effect at its commit.
            is_for_one: its topic has one durable subscription; `flush` precedes each change of a topic's subscriptions.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if transaction is None and (is_for_one or not message.destination.is_topic):
            if self._order and (message.destination, message.message_id) in self._by_key:
                return False
            if self.is_open:
                is_new = self._store.expect(message)
                if is_new:
                    self.add(message)
                return is_new
            self.observe_add(message.message_id)
        self.flush()
        self._has_passed = True
        return None

    def elide(
        self,
        destination: Destination,
        message_id: str,
        transaction: TransactionId | None,
        reason: RemovalReason,
        connection_id: str,
    ) -> bool:
        """Drop a held message that is acknowledged; return False if the store has to write the removal.

        A message that is discarded, or acknowledged in a transaction, is written before its removal.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if reason is _DISCARDED or transaction is not None:
            self.flush()
            return False
        if self.consume(destination, message_id, connection_id):
            return True
        self.observe_consumption(message_id)  # the other held messages may still be consumed
        return False

    # ------------------------------------------------------------ held

    def __contains__(self, key: tuple[Destination, str]) -> bool:
        return key in self._by_key

    def add(self, message: Message) -> None:
        """Hold a message that is not held yet.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        self._number = number = self._number + 1
        self._by_key[message.destination, message.message_id] = held = _HeldMessage(message, number)
        self._order.append(held)
        self._newest[message.connection_id] = number
        self.byte_count += len(message.data)
        if not self._is_timer_armed:
            self._arm_timer()
        if self.byte_count > HELD_BYTES_MAX:
            self.flush()
            self._observe_unconsumed(1)  # not one for each: they have not waited long enough

    def consume(self, destination: Destination, message_id: str, connection_id: str = "") -> bool:
        """Drop a consumed message; return False if it is not held.

        Other messages of its consumer's connection are written first, and so is this one if it is older than they
        are: they may be made of it.
        """
        key = (destination, message_id)
        if (newest := self._newest.get(connection_id)) is not None:
            held = self._by_key.get(key)
            if held is None or held.number != newest:
                self.flush_from(connection_id)
        held = self._by_key.pop(key, None)
        if held is None or held.message is None:
            return False
        self.byte_count -= len(held.message.data)
        held.message = None
        self._share += (1.0 - self._share) * HELD_SHARE
        self._release()
        self._record(message_id)  # may write others, before which no consumed message may be in front
        return True

    def when_safe(self, callback: Callback, *, durable: bool = False) -> bool:
        """Call back once all that is here now, or was not held, was consumed or is durable; False when nothing is here.

        Args:
            callback: the function to call.
            durable: everything written by then has to be durable too.
        """
        if durable and self._unrecorded:
            with suppress(StoreUnavailable):  # the writer has logged the reason, and calls nothing back any more
                self._write_sequences()
        if not self._order:
            return False
        if self._has_passed:
            self._has_passed = self._is_flushed = False
            self._flush_count += 1
            self._commits.when_durable(partial(self._flushed, self._flush_count))
        self._order[-1].callbacks.append((callback, durable))
        return True

    def flush_from(self, connection_id: str) -> None:
        """Write the messages of a connection and all before them, which must precede its next operation.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        newest = self._newest.get(connection_id)
        if newest is not None and self._order and self._order[0].number <= newest:
            self._flush_through(newest)

    def flush_before(self, transaction: TransactionId | None, reason: RemovalReason, connection_id: str) -> None:
        """Write what must precede an acknowledgement: the messages that its consumer's connection sent.

        All messages if it is part of a transaction, or if the message is discarded.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if reason is _DISCARDED or transaction is not None:
            self.flush()
        else:
            self.flush_from(connection_id)

    def flush(self) -> None:
        """Write all held messages.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        if self._order:
            self._flush_through(self._number)

    # ------------------------------------------------------------ not held

    def observe_add(self, message_id: str) -> None:
        """Record an add that was not held."""
        self._unwatched += 1
        if self._unwatched >= WATCH_EVERY:
            if self._watched:  # the last one is not consumed yet
                self._share -= self._share * WATCHED_SHARE
            self._unwatched = 0
            self._watched = message_id
            self._watched_at = self._monotonic()

    def observe_consumption(self, message_id: str) -> None:
        """Record that a message that was not held was consumed."""
        if message_id == self._watched:
            self._watched = ""
            write_seconds = self._commits.write_seconds
            in_time = self._monotonic() - self._watched_at < self._hold_seconds + write_seconds
            self._share += (in_time - self._share) * WATCHED_SHARE
            self.is_open = self._share >= BEGIN_SHARE and write_seconds >= QUICK_SECONDS

    # ------------------------------------------------------------ private

    def _record(self, message_id: str) -> None:
        """Record the consumption of a message that its producer may send again; a STOMP client never does."""
        producer_id, sequence = split(message_id)
        known = self._unrecorded.get(producer_id)
        if known is None:
            if not is_sent_again(producer_id, sequence):
                return
            if len(self._unrecorded) >= UNRECORDED_MAX:
                self._write_sequences()
        elif sequence < known:
            return
        self._unrecorded[producer_id] = sequence

    def _write_sequences(self) -> None:
        """Have the sequence numbers of consumed messages written.

        A number stands for all up to it, so these producers' held messages with such numbers are written first.

        Raises:
            StoreUnavailable: the writer has stopped.
        """
        unrecorded, self._unrecorded = self._unrecorded, {}
        newest_covered = 0
        for held in self._order:
            if held.message is not None:
                producer_id, sequence = split(held.message.message_id)
                if sequence <= unrecorded.get(producer_id, -1):
                    newest_covered = held.number
        if newest_covered:
            self._flush_through(newest_covered)
        self._store.write_sequences(unrecorded)

    def _release(self) -> None:
        """Remove the consumed messages at the front.

        Their callbacks run at the end of the loop's turn, or when the last messages flushed are durable.
        """
        order, is_flushed = self._order, self._is_flushed
        while order and order[0].message is None:
            for callback, durable in order.popleft().callbacks:
                if durable or not is_flushed:
                    self._commits.when_durable(callback)
                else:
                    self._commits.notify((callback,))
        if not order:
            self._newest.clear()
        if not is_flushed:
            self._commits.when_durable(partial(self._flushed, self._flush_count))

    def _flushed(self, flush_count: int) -> None:
        self._is_flushed = flush_count == self._flush_count

    def _arm_timer(self) -> None:
        if len(self._newest) > NEWEST_MAX:
            oldest = self._order[0].number
            self._newest = {sender: number for sender, number in self._newest.items() if number >= oldest}
        self._is_timer_armed = True
        self._old_number = self._number
        self._call_later(self._hold_seconds, self._on_timer)

    def _on_timer(self) -> None:
        """Write the messages that have waited long enough."""
        self._is_timer_armed = False
        try:
            self._observe_unconsumed(self._flush_through(self._old_number))
        except StoreUnavailable:  # the writer has logged the reason, and calls nothing back any more
            self._order.clear()
            self._by_key.clear()
        if self._order:
            self._arm_timer()

    def _flush_through(self, number: int) -> int:
        """Write the held messages up to a number; return their count."""
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

    def _observe_unconsumed(self, count: int) -> None:
        """Record that messages were not consumed in time."""
        self._share *= (1.0 - HELD_SHARE) ** count
        if self._share < END_SHARE:
            self.is_open = False
