"""Messages that the store has no space for: those of clients are refused, and those of bridges wait.

A refused message ends the bridge of an ActiveMQ, which then dials and forwards it again and again. So its send is
deferred until the store has space (`deferred_sends`), and the answer to it as well. As it is not stored before, a
bridge that ends meanwhile has lost nothing: its broker has no answer, and forwards the message again.

A store has space again when data files were deleted, or the disk was cleared: nothing of it passes through the core. So
the store is looked at every second while a send waits.

Source: ActiveMQ 5.17, `RegionBroker` and `Usage.waitForSpace`: there a network connection waits as well, even where
`sendFailIfNoSpace` has clients refused.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from pybroker.broker.core.containment import attempt
from pybroker.broker.core.paging import Paging
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.space import SpaceAwaited

LOOK_SECONDS: Final = 1.0
"""A bridge stands still for so long after there is space."""


class StoreSpace:
    """Refuses what a full store cannot take, and calls back when it has space.

    Attributes:
        shortage: why persistent messages are refused though there is space: with too few replicas in sync they would
            wait for their answer without an end. Empty: they are not.

    Args:
        is_full: returns True while the store has no space.
        paging: has the timer; without an event loop `resume` is called by hand.
    """

    __slots__ = ("_is_full", "_paging", "_waiting", "_watches", "shortage")

    def __init__(self, is_full: Callable[[], bool], paging: Paging) -> None:
        self._is_full = is_full
        self._paging = paging
        self._waiting: dict[object, Callable[[], None]] = {}
        """By their owners, in the order in which they came."""
        self._watches = False
        self.shortage = ""

    def refusal(self, message: Message) -> ResourceLimit:
        """Return the error of a message that there is no space for; its text begins like ActiveMQ's.

        That of a message from a bridge has no limit of time.
        """
        text = self.shortage or (
            f"Usage Manager Store is Full: {message.destination} takes nothing persistent until consumers, or an "
            "operator, have freed space."
        )
        if message.bridge is None:
            return ResourceLimit(text)
        return SpaceAwaited(text, inf, self._when_space, self._cancel)

    def resume(self) -> None:
        """Call back those who wait, one after the other, while there is space."""
        for owner in list(self._waiting):
            if self.shortage or self._is_full():
                break
            callback = self._waiting.pop(owner, None)
            if callback is not None:  # else cancelled by one before
                attempt(callback, "sending what has waited for the store")
        self._watch()

    def _when_space(self, callback: Callable[[], None], owner: object) -> None:
        self._waiting[owner] = callback
        self._watch()

    def _cancel(self, owner: object) -> None:
        self._waiting.pop(owner, None)

    def _watch(self) -> None:
        after = self._paging.after
        if self._waiting and not self._watches and after is not None:
            self._watches = True
            after(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._watches = False
        self.resume()
