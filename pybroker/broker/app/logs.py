"""How the broker's log looks: one event per line, time first, so that two members' logs can be read side by side.

Peers' words end up in it: names, headers, errors. Control characters are therefore written as escapes, or whoever
sends a line feed could write lines of his own. A traceback stands below its line, marked so that it passes for none.
How often something is logged peers decide, too: of one kind of line about them so many are written, the rest counted.
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
"""What ends a line, commands a terminal, or shows a line in another order than it was written in: C0 and C1 controls,
DEL, line and paragraph separator, directional marks, embeddings, overrides and isolates."""

_MARGIN = "  | "
"""What each line of a traceback begins with; a time never does."""

_PEERS = "pybroker.transports."
"""The loggers of what peers do."""

LINES_MAX = 100
PERIOD_SECONDS = 10.0
"""Lines of one kind about peers that are written in a period. A stranger on one core causes 2,000 a second, which would
be 20 GB a day; so it is a few hundred MB at most."""


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
    """Counts the lines of one kind from the first one on.

    Attributes:
        ends_at: when it is over.
        count: lines so far.
        left_out: the last line that was not written.
    """

    ends_at: float
    count: int = 0
    left_out: logging.LogRecord | None = None


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to standard error, of each kind of line about peers `LINES_MAX` in a period.

    The first line left out is announced at once. How many it were is written before the first line of any kind after
    the period. A kind is a logger and the text of its call, without what is filled in; so there are a few dozen.
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
        """Write what was counted until now."""
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
    """Return a line that says something of another one."""
    made = logging.makeLogRecord(record.__dict__)
    made.msg, made.args, made.exc_info = text + record.getMessage(), None, None
    return made


def configure(level: str, *, connections: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
    """Send the log to standard error from a level on, with or without clients that connect and leave.

    Args:
        level: the lowest that is written.
        connections: with them.
        clock: seconds, for the limit of lines about peers.
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
