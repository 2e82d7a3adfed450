"""Passes the histories of topics to one retroactive subscription, as fast as its consumer takes them.

A wildcard may cover 100,000 topics with a retained message each. What is published and finds the window of a slow
consumer full has a limit, beyond which the oldest is dropped. A retained message is the state of its topic, and must
not be: so no more of them are read and passed than wait for a moment.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from pybroker.broker.core.paging import PAGE_MAX, PIECE_MAX, Paging
from pybroker.broker.core.retained_history import RetainedHistory
from pybroker.broker.domain.message import Message

RECALLED_MAX: Final = PAGE_MAX
"""Messages that wait for the consumer, or are being read back for it, before the next one has to wait for these."""


class Recalls:
    """The histories that a subscription has not got yet.

    Args:
        deliver: gets each message.
        has_room: returns True while the subscription takes more; `proceed` is called when that becomes so.
        paging: the event loop.
    """

    __slots__ = ("_deliver", "_has_room", "_histories", "_is_deferred", "_is_proceeding", "_paging", "_reading_count")

    def __init__(self, deliver: Callable[[Message], None], has_room: Callable[[], bool], paging: Paging) -> None:
        self._deliver = deliver
        self._has_room = has_room
        self._paging = paging
        self._histories: deque[RetainedHistory] = deque()
        self._reading_count = 0
        self._is_proceeding = False
        self._is_deferred = False

    def __bool__(self) -> bool:
        return bool(self._histories)

    def add(self, history: RetainedHistory) -> None:
        """Add the history of a topic, behind the others."""
        self._histories.append(history)
        self.proceed()

    def proceed(self) -> None:
        """Pass on what there is room for; one piece in each turn of the event loop."""
        if self._is_proceeding or self._is_deferred:
            return
        self._is_proceeding = True
        try:
            self._proceed(PIECE_MAX)
        finally:
            self._is_proceeding = False

    def close(self) -> None:
        """Drop what is left."""
        self._histories.clear()

    # ------------------------------------------------------------ private

    def _proceed(self, left: int) -> None:
        histories = self._histories
        while histories and self._reading_count < RECALLED_MAX and self._has_room():
            if left <= 0 and self._paging.defer(self._resume):
                self._is_deferred = True
                return
            left -= 1
            if histories.popleft().recall(self._deliver, self._read_back):
                self._reading_count += 1

    def _resume(self) -> None:
        self._is_deferred = False
        self.proceed()

    def _read_back(self, message: Message | None) -> None:
        self._reading_count -= 1
        if message is not None:
            self._deliver(message)
        self.proceed()
