"""Passes the messages of one topic to its durable subscriptions, in pieces where these are many or have selectors.

A message goes to at most `FAN_OUT_PIECE` of the durable subscriptions in a turn of the event loop, for `PIECE_SECONDS`.
Messages published meanwhile wait behind it, so that each subscription gets them in their order. The store has a
persistent message for all of them before its first piece: what a crash leaves undone is done again by recovery, which
also acknowledges what a selector refuses (see `Durable.read`). Until the last subscription has it, a message counts for
the memory of the topic.
"""

from collections import deque
from typing import Final

from pybroker.broker.core.durable import Durable
from pybroker.broker.core.paging import CLOCK_MASK, PIECE_SECONDS
from pybroker.broker.core.usage import SharedUsage
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.message import Message

FAN_OUT_PIECE: Final = 500
"""Durable subscriptions that get a message, or several, in one piece: one to two milliseconds."""

DIRECT_MAX: Final = 64
"""Durable subscriptions without selectors that get a message without a look at the clock."""


class DurableFanOut:
    """The durable subscriptions of one topic, and the messages that some of them do not have yet."""

    __slots__ = ("_durables", "_held", "_is_deferred", "_is_direct", "_receivers", "_under_way")

    def __init__(self, durables: dict[Durable, None], held: SharedUsage) -> None:
        """Begin with no message under way.

        Args:
            durables: the topic's durable subscriptions, a live view; `change` is called after each change of them.
            held: counts the messages under way.
        """
        self._durables = durables
        self._held = held
        self._receivers: tuple[Durable, ...] | None = None
        """The subscriptions between two changes, once a message was published since."""
        self._is_direct = False
        """True while these are few and have no selectors, if no message is under way."""
        self._under_way: deque[_UnderWay] = deque()
        self._is_deferred = False

    def change(self) -> None:
        """Have messages that are published from now on go to the present subscriptions."""
        self._receivers = None

    def _find_receivers(self) -> tuple[Durable, ...]:
        receivers = self._receivers = tuple(self._durables)
        self._is_direct = len(receivers) < 2 or (
            len(receivers) <= DIRECT_MAX and not any(durable.is_selective for durable in receivers)
        )
        return receivers

    def publish(self, message: Message) -> None:
        """Pass a message to every subscription, now or in later turns of the event loop."""
        receivers = self._receivers
        if receivers is None:
            receivers = self._find_receivers()
        if self._is_direct and not self._under_way:
            for durable in receivers:
                durable.publish(message)
            return
        EFFORT.is_large = True
        made = _UnderWay(message, receivers)
        try:
            if not self._under_way:
                self._publish_piece(made, FAN_OUT_PIECE, 0.0)
        finally:  # also after an error: the others get it
            if made.served < len(receivers):
                self._under_way.append(made)
                self._held.acquire(message)
                self._defer()

    def owes(self, durable: Durable) -> bool:
        """Return True if a message is on its way to a subscription."""
        if not self._under_way:
            return False
        last = self._under_way[-1]
        return durable in last.receivers[last.served :]

    def close(self) -> None:
        """Forget what is under way: the topic is deleted."""
        self._under_way.clear()

    def _publish_piece(self, made: "_UnderWay", left: int, ends_at: float) -> None:
        """Pass a message to further subscriptions, until a piece has been done.

        Args:
            made: the message.
            left: at most so many subscriptions get it now.
            ends_at: monotonic seconds when the piece ends; 0: it begins now.
        """
        paging = self._held.usage.paging
        message, receivers, index = made.message, made.receivers, made.served
        stop = len(receivers)
        is_bounded = paging.later is not None
        if is_bounded:
            ends_at = ends_at or paging.monotonic() + PIECE_SECONDS
            stop = min(stop, index + left)
        try:
            while index < stop:
                durable = receivers[index]
                index += 1
                if not durable.is_closed:
                    durable.publish(message)
                if is_bounded and (not index & CLOCK_MASK or durable.is_selective) and paging.monotonic() >= ends_at:
                    break
        finally:
            made.served = index

    def _continue(self) -> None:
        """Pass the messages under way to further subscriptions, oldest first, until a piece has been done."""
        self._is_deferred = False
        under_way, paging = self._under_way, self._held.usage.paging
        left, ends_at = FAN_OUT_PIECE, paging.monotonic() + PIECE_SECONDS
        try:
            while under_way and left > 0:
                made = under_way[0]
                before = made.served
                try:
                    self._publish_piece(made, left, ends_at)
                finally:  # also after an error: what is under way must not wait for ever
                    is_served = made.served >= len(made.receivers)
                    if is_served and under_way:  # empty: the topic was deleted
                        under_way.popleft()
                        self._held.release(made.message)
                left -= made.served - before
                if not is_served or paging.monotonic() >= ends_at:
                    break
        finally:
            self._defer()

    def _defer(self) -> None:
        if self._under_way and not self._is_deferred:
            self._is_deferred = self._held.usage.paging.defer(self._continue)


class _UnderWay:
    """A message on its way to the subscriptions that existed when it was published.

    Attributes:
        served: the number of them that have it, or that an error kept from it.
    """

    __slots__ = ("message", "receivers", "served")

    def __init__(self, message: Message, receivers: tuple[Durable, ...]) -> None:
        self.message = message
        self.receivers = receivers
        self.served = 0
