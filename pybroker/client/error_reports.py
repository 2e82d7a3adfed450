"""Logs the errors that a broker reports for requests without an answer: the first of each type at once, then a count.

A transaction may hold any number of messages, and the broker may refuse each of them. The count is logged at the end of
a transaction, at the end of the connection, and after a minute. The module does no I/O but logging.
"""

import logging
from typing import Final

from pybroker.client.errors import ClientError

PERIOD_SECONDS: Final = 60.0
"""The longest time between an error and the log line that counts it."""

_log = logging.getLogger(__name__)


class ErrorReports:
    """The error reports of one connection, counted by the type of the error.

    Attributes:
        due_at: the time of the next `summarise`, in seconds of the caller's clock; infinite for none.
    """

    def __init__(self) -> None:
        self.due_at = float("inf")
        self._counts: dict[type[ClientError], int] = {}

    def add(self, error: ClientError, now: float) -> None:
        """Count an error, and log it if it is the first of its type."""
        kind = type(error)
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count == 1:
            _log.warning("the broker reports: %s", error)
        elif self.due_at == float("inf"):
            self.due_at = now + PERIOD_SECONDS

    def summarise(self) -> None:
        """Log the count of each type that was reported more than once, and reset the counts."""
        for kind, count in self._counts.items():
            if count > 1:
                _log.warning(
                    "the broker reported %d such errors (%s), of which the first is logged", count, kind.__name__
                )
        self._counts.clear()
        self.due_at = float("inf")
