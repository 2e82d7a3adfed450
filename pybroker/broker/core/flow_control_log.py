"""Logs when flow control blocks a producer at a memory limit, and when it is released.

A producer at a limit is blocked at nearly every message. So a connection has one of these waits logged in each
`LOG_INTERVAL_MS`, with its beginning and its end. ActiveMQ has the same interval (`blockedProducerWarningInterval`).
"""

import logging
from collections.abc import Callable
from functools import partial

from pybroker.broker.core.usage import FAIR_PERCENT, Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.ports import Clock

LOG_INTERVAL_MS = 30_000
"""Milliseconds from the beginning of a wait that is logged to the earliest beginning of the next."""

_log = logging.getLogger(__name__)


class FlowControlLog:
    """Logs the flow control of one connection."""

    __slots__ = ("_clock", "_connection_id", "_is_logged", "_not_before")

    def __init__(self, connection_id: str, clock: Clock) -> None:
        self._connection_id = connection_id
        self._clock = clock
        self._is_logged = False
        self._not_before = 0

    def log_wait(
        self, destination: Destination, usage: Usage, broker: Usage, callback: Callable[[], None]
    ) -> Callable[[], None]:
        """Log that a wait begins, unless another was logged in the last `LOG_INTERVAL_MS`.

        Args:
            destination: the destination of the message that waits.
            usage: the memory usage of that destination.
            broker: the memory usage of the whole broker.
            callback: ends the wait.

        Returns:
            A callback that ends the wait, and logs the end if the beginning was logged.
        """
        now = self._clock()
        if self._is_logged or now < self._not_before:
            return callback
        self._is_logged = True
        self._not_before = now + LOG_INTERVAL_MS
        is_own = usage is not broker and 0 < usage.limit <= usage.used
        if is_own or broker.used >= broker.limit:
            _log.info(
                "%s waits to send to %s: %s memory limit of %s bytes is reached",
                self._connection_id,
                destination,
                "its" if is_own else "the broker's",
                f"{usage.limit if is_own else broker.limit:,}",
            )
        else:
            _log.info(
                "%s waits to send to %s, which takes %s bytes: %d %% of the broker's memory limit of %s bytes are used",
                self._connection_id,
                destination,
                f"{usage.used:,}",
                FAIR_PERCENT,
                f"{broker.limit:,}",
            )
        return partial(self._end, destination, callback)

    def _end(self, destination: Destination, callback: Callable[[], None]) -> None:
        self._is_logged = False
        _log.info("%s goes on sending to %s", self._connection_id, destination)
        callback()
