"""Aggregates log lines about events of single messages: the first event is logged at once, further ones are counted.

Without this, a queue with thousands of expiring messages would fill the log, and perhaps the disk.
"""

import logging
from typing import Final

_KEYS_MAX: Final = 1_000
"""Kinds of event and destinations that have a count of their own in a period; all others share one per kind."""

_ELSEWHERE: Final = "at other destinations"


class LogAggregator:
    """Logs the first event of a kind at a destination at once, and the number of further ones at each `report`.

    If events continue after a report, the next report logs them in one line. At DEBUG each event is a line.
    """

    __slots__ = ("_counts", "_last", "_log")

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._counts: dict[tuple[str, str], int] = {}  # since the last report, besides those logged at once
        self._last: dict[tuple[str, str], str] = {}

    def record(self, what: str, message_id: str, where: str, cause: str) -> None:
        """Log or count one event.

        Args:
            what: the kind of event, a verb in the past tense such as `dead-lettered`.
            message_id: the message.
            where: its destinations, such as `from queue://A to queue://B`.
            cause: the reason.
        """
        key = (what, where)
        if key not in self._counts and len(self._counts) >= _KEYS_MAX:
            key = (what, _ELSEWHERE)
        if key not in self._counts:
            self._counts[key] = 0
            self._log.info("%s %s %s: %s", what, message_id, where, cause)
            return
        self._counts[key] += 1
        self._last[key] = f"{message_id}: {cause}"
        self._log.debug("%s %s %s: %s", what, message_id, where, cause)

    def report(self) -> None:
        """Log a line for each count of events since the last report."""
        counts, last = self._counts, self._last
        self._counts, self._last = dict.fromkeys(last, 0), {}
        for (what, where), count in counts.items():
            if count:
                self._log.info("%s %d more %s, the last one %s", what, count, where, last[what, where])
