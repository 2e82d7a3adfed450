"""Logs what a broker reports of requests that nobody waits for: the first report at once, then how many there were.

A transaction may hold any number of messages, and a broker refuses each of them. The count comes with the end of a
transaction or of the connection, and after a minute. No I/O but the log.
"""

import logging
from typing import Final

from pybroker.client.errors import ClientError

PERIOD_SECONDS: Final = 60.0
"""How long reports are counted before the log says how many they are."""

_log = logging.getLogger(__name__)


class Complaints:
    """Reports of one connection, counted by the type of the error.

    Attributes:
        due_at: when `summarise` has something to log, in seconds of the caller's clock; infinite for never.
    """

    def __init__(self) -> None:
        self.due_at = float("inf")
        self._counts: dict[type[ClientError], int] = {}

    def add(self, error: ClientError, now: float) -> None:
        """Log a report if it is the first of its type, and count it."""
        kind = type(error)
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count == 1:
            _log.warning("the broker reports: %s", error)
        elif self.due_at == float("inf"):
            self.due_at = now + PERIOD_SECONDS

    def summarise(self) -> None:
        """Log how many reports there were of each type that came more than once, and begin to count anew."""
        for kind, count in self._counts.items():
            if count > 1:
                _log.warning(
                    "the broker reported %d such errors (%s), of which the first is logged", count, kind.__name__
                )
        self._counts.clear()
        self.due_at = float("inf")
