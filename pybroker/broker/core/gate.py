"""The gate before a destination: what was sent after a commit waits until that commit is on disk.

A transaction's messages must not be seen before their commit is safe, and nothing sent later may overtake them, or a
producer's order would be lost. Dispatch outside transactions does not wait for the disk: then the gate is open, and all
it costs is one look.

What a transaction left to the store is read back here once its commit is on disk, a page in each turn of the loop.
Until it is read, what was sent later waits behind it.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pybroker.broker.core.containment import contain
from pybroker.broker.core.paging import PAGE_BYTES_MAX, PAGE_MAX, Paging, severity
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import MessageStore

_log = logging.getLogger(__name__)


class Unread(NamedTuple):
    """A message of which only the store has the body.

    Attributes:
        destination: where it lies.
        message_id: which message.
        size: what it counts for in memory limits; 0: unknown.
    """

    destination: Destination
    message_id: str
    size: int = 0


class Gate:
    """Holds messages back behind commits that are not on disk yet, oldest first.

    Args:
        deliver: takes the messages that are let through.
        store: has the bodies that were left to it.
        paging: when to read them.
    """

    __slots__ = ("_deliver", "_opened", "_paging", "_store", "_waiting")

    def __init__(self, deliver: Callable[[Message], None], store: MessageStore, paging: Paging) -> None:
        self._deliver = deliver
        self._store = store
        self._paging = paging
        self._waiting: deque[Message | Unread | None] = deque()
        """None: a commit, with its messages and later ones behind it."""
        self._opened = 0
        """Commits that are on disk, and behind messages that are not read back yet."""

    @property
    def is_open(self) -> bool:
        """True when nothing waits."""
        return not self._waiting

    def admit(self, message: Message) -> None:
        """Let a message through, or have it wait for the commit before it."""
        if self._waiting:
            self._waiting.append(message)
        else:
            self._deliver(message)

    def admit_unread(self, message: Unread) -> None:
        """Have a message read back and let through, after the commit before it."""
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._go_on()

    def close(self) -> None:
        """Note a commit: what comes now waits for it."""
        self._waiting.append(None)

    def redirect(self, deliver: Callable[[Message], None]) -> None:
        """Give what comes from now on to somebody else: the destination is gone, and what waited for it with it."""
        self._deliver = deliver
        self._waiting = deque([None] * (self._waiting.count(None) - self._opened))
        self._opened = 0

    def open(self) -> None:
        """Let through what waited for the oldest commit, which is on disk now."""
        self._opened += 1
        self._go_on()

    def _go_on(self) -> None:
        """Let through what may pass, until a page was read back: the rest follows in the loop's next turn."""
        waiting, has_read = self._waiting, False
        while waiting and waiting is self._waiting:
            first = waiting[0]
            if first is None:
                if not self._opened:
                    return
                self._opened -= 1
                waiting.popleft()
            elif isinstance(first, Message):
                waiting.popleft()
                try:
                    self._deliver(first)
                except Exception as error:
                    contain(error, "delivering after a commit", first)
            elif (has_read and self._paging.soon(self._go_on)) or not self._read():
                return
            else:
                has_read = True

    def _read(self) -> bool:
        """Read back the first messages that wait; False when the store cannot be read now."""
        waiting = self._waiting
        page: list[Unread] = []
        for each in waiting:
            if not isinstance(each, Unread) or len(page) == PAGE_MAX:
                break
            page.append(each)
        place = page[0].destination
        try:
            messages, looked_at = self._store.read_page(place, [each.message_id for each in page], PAGE_BYTES_MAX)
        except StoreUnavailable as error:
            _log.log(severity(error), "%s waits for committed messages: %s", place, error)
            self._paging.waiting[self._go_on] = None
            return False
        for _ in range(looked_at):
            waiting.popleft()
        waiting.extendleft(reversed(messages))
        return True
