"""The gate of a destination: holds messages until the transaction that sent them is committed on disk.

Consumers must not see the messages of a transaction before its commit is on disk. A message that is sent later must not
overtake them, because messages of one producer must stay in order. So it waits behind them, even if it is not part of
a transaction. If no commit is pending, the gate is open, and a message passes after one check.

After `PIECE_MAX` messages the gate continues in a later turn of the event loop, so that the commit of a long
transaction does not hold up other clients. The gate also reads back the messages that the transaction has paged out,
once its commit is on disk: one page in each turn of the event loop. Messages sent later wait behind those that are not
yet read.

If the destination is deleted, what waits is dropped. What is sent to this gate later, by a transaction that began
before, goes to the gate of the destination that is created again.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pybroker.broker.core.containment import attempt, contain
from pybroker.broker.core.paging import CLOCK_MASK, PAGE_BYTES_MAX, PAGE_MAX, PIECE_MAX, PIECE_SECONDS, severity
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import MessageStore

_log = logging.getLogger(__name__)


class PagedOutMessage(NamedTuple):
    """A message of a transaction whose body only the store holds.

    Attributes:
        destination: its destination in the store.
        message_id: its id in the store.
        size: the bytes that it counts for in memory limits; 0: unknown.
    """

    destination: Destination
    message_id: str
    size: int = 0


class Passed:
    """A callback behind the messages that wait."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback


class Gate:
    """Holds messages behind commits that are not yet on disk, in the order in which they were sent.

    Args:
        deliver: gets each message that passes, and counts it.
        store: holds the bodies of paged-out messages.
        usage: the usage of the destination, whose broker's counts the messages while they wait here. That of the
            destination would start page-outs, which cannot page out messages at a gate.

    Attributes:
        paging: defers the next page to the next turn of the event loop.
    """

    __slots__ = (
        "_deliver",
        "_is_deferred",
        "_opened",
        "_read_count",
        "_store",
        "_successor",
        "_usage",
        "_waiting",
        "paging",
    )

    def __init__(self, deliver: Callable[[Message], None], store: MessageStore, usage: Usage) -> None:
        self._deliver = deliver
        self._store = store
        self._usage = usage.broker
        self.paging = usage.paging
        self._is_deferred = False
        self._waiting: deque[Message | PagedOutMessage | Passed | None] = deque()
        """None stands for a commit, which its messages and later ones follow."""
        self._successor: Callable[[], Gate | None] | None = None
        self._read_count = 0
        """The messages in front that were read back. One page is not counted: that would page out what was read."""
        self._opened = 0
        """Number of commits in `_waiting` that are on disk, but follow messages that are not yet read back."""

    @property
    def is_open(self) -> bool:
        """True when nothing waits."""
        return not self._waiting

    def admit(self, message: Message) -> None:
        """Deliver a message, or append it behind the pending commits."""
        if self._waiting:
            self._usage.acquire_waiting(message.size)
            self._waiting.append(message)
        else:
            self._deliver(message)

    def admit_counted(self, message: Message) -> None:
        """Admit a message that the broker's usage counts already, for its transaction."""
        if self._waiting:
            self._waiting.append(message)
        else:
            try:
                self._deliver(message)
            finally:
                self._usage.release(message.size)

    def drop_counted(self, message: Message) -> None:
        """Release the memory of a message that the broker's usage counts for its transaction, and that is not sent."""
        self._usage.release(message.size)

    def admit_paged_out(self, message: PagedOutMessage) -> None:
        """Append a paged-out message, which is read back and delivered after the commit before it."""
        if self._successor is not None:
            if (gate := self._successor()) is not None:
                gate.admit_paged_out(message)
            return
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._continue()

    def close(self) -> None:
        """Append a commit: messages admitted from now on wait until `open` is called for it."""
        if self._successor is None:
            self._waiting.append(None)

    def when_passed(self, callback: Callable[[], None]) -> None:
        """Call back behind all that waits; at once if nothing waits; never if the destination is deleted before."""
        if self._waiting:
            self._waiting.append(Passed(callback))
        else:
            callback()

    def current(self) -> "Gate":
        """Return the gate of the destination, which is another one, and created now, if it was deleted.

        A temporary destination is not created again: its gate drops what comes.
        """
        if self._successor is None:
            return self
        return self._successor() or self

    def redirect(self, successor: "Callable[[], Gate | None]") -> None:
        """Drop the waiting messages, and pass on later ones: the destination is deleted.

        Args:
            successor: returns the gate of the destination, creating it again; None if it cannot be.
        """
        self._successor = successor
        self._deliver = partial(_pass_on, successor)  # not a method: the gate would refer to itself
        waiting = self._waiting
        self._waiting = deque()
        messages = [each for each in waiting if isinstance(each, Message)]
        counted = messages[self._read_count :]
        self._opened = self._read_count = 0
        self._usage.release(sum([message.size for message in counted]))

    def open(self) -> None:
        """Record that the oldest pending commit is on disk, and deliver the messages that waited for it."""
        if self._successor is None:
            self._opened += 1
            self._continue()

    def _continue(self, *, may_read: bool = False) -> None:
        """Deliver messages that may pass. After a piece or a page, continue in a later turn of the event loop.

        The first page waits for its turn too, because one commit may open the gates of many destinations.
        """
        if self._is_deferred:
            return
        waiting = self._waiting
        left, ends_at = PIECE_MAX, 0.0
        while waiting and waiting is self._waiting:
            first = waiting[0]
            if first is None:
                if not self._opened:
                    return
                self._opened -= 1
                waiting.popleft()
            elif isinstance(first, Message):
                left -= 1
                if not left & CLOCK_MASK:
                    now = self.paging.monotonic()
                    ends_at = ends_at or now + PIECE_SECONDS
                    if (left <= 0 or now >= ends_at) and self._defer():
                        return
                waiting.popleft()
                try:
                    self._deliver(first)
                except Exception as error:
                    contain(error, "delivering after a commit", first)
                if self._read_count:
                    self._read_count -= 1
                else:
                    self._usage.release(first.size)
            elif isinstance(first, Passed):
                waiting.popleft()
                attempt(first.callback, "passing a gate")
            elif (not may_read and self._defer()) or not self._read():
                return
            else:
                may_read = False

    def _defer(self) -> bool:
        """Continue in a later turn of the event loop; return False if there is no loop."""
        self._is_deferred = self.paging.defer(self._resume)
        return self._is_deferred

    def _resume(self) -> None:
        self._is_deferred = False
        self._continue(may_read=True)

    def _read(self) -> bool:
        """Read back the next waiting messages; return False if the store cannot be read now."""
        waiting = self._waiting
        page: list[PagedOutMessage] = []
        for each in waiting:
            if not isinstance(each, PagedOutMessage) or len(page) == PAGE_MAX:
                break
            page.append(each)
        place = page[0].destination
        try:
            messages, looked_at = self._store.read_page(place, [each.message_id for each in page], PAGE_BYTES_MAX)
        except StoreUnavailable as error:
            _log.log(severity(error), "%s waits for committed messages: %s", place, error)
            self.paging.waiting[self._continue] = None
            return False
        for _ in range(looked_at):
            waiting.popleft()
        waiting.extendleft(reversed(messages))
        self._read_count = len(messages)
        return True


def _pass_on(successor: Callable[[], Gate | None], message: Message) -> None:
    """Admit a message of a deleted destination to the gate of the new one."""
    gate = successor()
    if gate is None:
        _log.info("%s is dropped: %s is gone", message.message_id, message.destination)
    else:
        gate.admit(message)
