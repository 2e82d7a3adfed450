"""Log lines about what was sent and found no room, seldom enough.

A producer that goes on trying would otherwise have the log fill the disk whose fullness it tells of. All connections
share one `Refusals`, for some clients make a new one for each message.
"""

import logging
from typing import Final

from pybroker.broker.domain.errors import ResourceLimit

QUIET_SECONDS: Final = 60.0
"""Between two lines."""

_log = logging.getLogger(__name__)


class Refusals:
    """Writes the first line at once, and then at most one a minute, which counts those it stands for."""

    def __init__(self) -> None:
        self._quiet_until = 0.0
        self._unsaid_count = 0

    def note(self, connection_id: str, error: ResourceLimit, now: float) -> None:
        """Note that a client's message was refused.

        Args:
            connection_id: whose it was.
            error: why.
            now: seconds on the event loop's clock.
        """
        if now < self._quiet_until:
            self._unsaid_count += 1
            return
        before = f" ({self._unsaid_count:,} more since the last such line)" if self._unsaid_count else ""
        _log.info("%s: SEND refused: %s%s", connection_id, error, before)
        self._quiet_until, self._unsaid_count = now + QUIET_SECONDS, 0
