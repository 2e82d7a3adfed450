"""Rate-limited log lines about messages that were refused for lack of space.

Otherwise a producer that tries again and again could fill the disk by the log. All connections share one `Refusals`,
because some clients open a connection for each message.
"""

import logging
from typing import Final

from pybroker.broker.domain.errors import ResourceLimit

QUIET_SECONDS: Final = 60.0
"""The shortest time between two lines."""

_log = logging.getLogger(__name__)


class Refusals:
    """Logs the first refusal at once, then at most one a minute, with the count of the others."""

    def __init__(self) -> None:
        self._quiet_until = 0.0
        self._unlogged_count = 0

    def record(self, connection_id: str, error: ResourceLimit, now: float) -> None:
        """Record that a client's message was refused.

        Args:
            connection_id: the client's connection.
            error: the reason.
            now: seconds by the event loop's clock.
        """
        if now < self._quiet_until:
            self._unlogged_count += 1
            return
        before = f" ({self._unlogged_count:,} more since the last such line)" if self._unlogged_count else ""
        _log.info("%s: SEND refused: %s%s", connection_id, error, before)
        self._quiet_until, self._unlogged_count = now + QUIET_SECONDS, 0
