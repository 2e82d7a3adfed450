"""Log lines about what may happen to thousands of messages at once: one message each at first, then counts.

A queue whose messages expire would otherwise fill the log, and perhaps the disk, with a line for each of them.
"""

import logging
from typing import Final

_KEYS_MAX: Final = 1_000
"""Pairs of destinations that are counted apart in a period; further ones are counted together."""

_ELSEWHERE: Final = "at other destinations"


class Occurrences:
    """Logs the first occurrence at each place at once, and the number of further ones at each `report`.

    An occurrence that goes on from one report to the next is one line in each period. Each message is a line at DEBUG.
    """

    __slots__ = ("_counts", "_last", "_log")

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._counts: dict[tuple[str, str], int] = {}  # since the last report, beyond what was logged at once
        self._last: dict[tuple[str, str], str] = {}

    def note(self, what: str, message_id: str, where: str, cause: str) -> None:
        """Log or count one occurrence.

        Args:
            what: happened, a verb in the past tense such as `dead-lettered`.
            message_id: the message.
            where: its destinations, such as `from queue://A to queue://B`.
            cause: why it happened.
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
        """Log a line for each place where more happened since the last report."""
        counts, last = self._counts, self._last
        self._counts, self._last = dict.fromkeys(last, 0), {}
        for (what, where), count in counts.items():
            if count:
                self._log.info("%s %d more %s, the last one %s", what, count, where, last[what, where])
