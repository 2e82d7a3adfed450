"""The format and limits of the broker's log: one event per line, time first, so that members' logs can be compared.

Log lines contain text from peers: names, headers, errors. Control characters are therefore written as escapes; a line
feed would otherwise let a peer forge lines. Each line of a traceback has a margin, for the same reason. Peers also
control how often a line is logged: of each kind of line about them a limited number is written, the others are counted.
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TextIO

from pybroker.transports import client_log

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that end a line, control a terminal, or reorder a line: C0 and C1 controls, DEL, line and paragraph
separator, directional marks, embeddings, overrides and isolates."""

_MARGIN = "  | "
"""The prefix of each line of a traceback, which no time begins with."""

_PEERS = "pybroker.transports."
"""The prefix of loggers whose lines peers can cause."""

LINES_MAX = 100
PERIOD_SECONDS = 10.0
"""The limit to lines of one kind about peers in a period. A peer on one core can cause 2,000 a second, or 20 GB a day;
the limit keeps it to a few hundred MB."""


class _Formatter(logging.Formatter):
    """`2026-11-21 10:15:02.123 INFO  node: lock acquired: becoming master`."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(area)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.area = record.name.rpartition(".")[2]
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _one_line(record.message)
        return super().formatMessage(record)

    def formatException(
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        return "\n".join(_MARGIN + _one_line(line) for line in super().formatException(ei).split("\n"))


@dataclass(slots=True)
class _Period:
    """The count of lines of one kind in a period, which begins with the first one.

    Attributes:
        ends_at: the end of the period.
        count: the number of lines.
        left_out: the last line that was not written.
    """

    ends_at: float
    count: int = 0
    left_out: logging.LogRecord | None = None


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to standard error, with at most `LINES_MAX` lines of each kind about peers in a period.

    The first omitted line is reported at once. Their number is written before the first line of any kind after the
    period. A kind is a logger and the format string of its call; so there are a few dozen.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._periods: dict[tuple[str, str], _Period] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or count it. The caller holds the handler's lock."""
        now = self._clock()
        if self._periods:
            self._report(now)
        if not record.name.startswith(_PEERS) or record.levelno <= logging.DEBUG:
            super().emit(record)
            return
        period = self._periods.setdefault((record.name, record.msg), _Period(now + PERIOD_SECONDS))
        period.count += 1
        if period.count <= LINES_MAX:
            super().emit(record)
            return
        if period.left_out is None:
            text = f"{LINES_MAX} lines of one kind within {PERIOD_SECONDS:g} seconds: more are counted, such as: "
            super().emit(_about(record, text))
        period.left_out = record

    def close(self) -> None:
        """Write the counts of the present periods."""
        self.acquire()
        try:
            self._report(float("inf"))
        finally:
            self.release()
        super().close()

    def _report(self, now: float) -> None:
        for kind, period in [each for each in self._periods.items() if each[1].ends_at <= now]:
            del self._periods[kind]
            if period.left_out is not None:
                text = f"{period.count - LINES_MAX} lines were left out, the last one: "
                super().emit(_about(period.left_out, text))


def _about(record: logging.LogRecord, text: str) -> logging.LogRecord:
    """Return a record about another one."""
    made = logging.makeLogRecord(record.__dict__)
    made.msg, made.args, made.exc_info = text + record.getMessage(), None, None
    return made


def configure(level: str, *, connections: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
    """Send the log to standard error.

    Args:
        level: the lowest level that is written.
        connections: include clients that connect and disconnect.
        clock: seconds, for the periods of lines about peers.
    """
    handler = _Handler(clock)
    handler.setFormatter(_Formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger(client_log.LOGGER).setLevel(
        logging.NOTSET if connections or root.level <= logging.DEBUG else logging.WARNING
    )
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, root.level))


def instant(milliseconds: int) -> str:
    """Return a time in milliseconds since the epoch as local time to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def _one_line(text: str) -> str:
    return _CONTROL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
