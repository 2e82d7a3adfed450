"""What the log says of a producer that waits for room: that it does, for which limit, and that it goes on.

A producer at a limit waits for nearly every message, so a connection's waits are told now and then only, each with its
end. ActiveMQ warns as often (`blockedProducerWarningInterval`).
"""

import logging
from collections.abc import Callable
from functools import partial

from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.ports import Clock

TOLD_MS = 30_000
"""How long after one wait was told the next one is, at the earliest."""

_log = logging.getLogger(__name__)


class Waits:
    """The waits of one connection."""

    __slots__ = ("_clock", "_connection_id", "_is_told", "_not_before")

    def __init__(self, connection_id: str, clock: Clock) -> None:
        self._connection_id = connection_id
        self._clock = clock
        self._is_told = False
        self._not_before = 0

    def told(
        self, destination: Destination, usage: Usage, whole: Usage, callback: Callable[[], None]
    ) -> Callable[[], None]:
        """Tell that a wait begins, unless another was told lately.

        Args:
            destination: where there is no room.
            usage: what it holds.
            whole: what the whole broker holds.
            callback: ends the wait.

        Returns:
            What ends the wait, and tells so if its beginning was told.
        """
        now = self._clock()
        if self._is_told or now < self._not_before:
            return callback
        self._is_told = True
        self._not_before = now + TOLD_MS
        is_own = usage is not whole and 0 < usage.limit <= usage.used
        _log.info(
            "%s waits to send to %s: %s memory limit of %d bytes is reached",
            self._connection_id,
            destination,
            "its" if is_own else "the broker's",
            usage.limit if is_own else whole.limit,
        )
        return partial(self._end, destination, callback)

    def _end(self, destination: Destination, callback: Callable[[], None]) -> None:
        self._is_told = False
        _log.info("%s goes on sending to %s", self._connection_id, destination)
        callback()
