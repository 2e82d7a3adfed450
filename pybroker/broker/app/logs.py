"""How the broker's log looks: one event per line, time first, so that two members' logs can be read side by side.

Peers' words end up in it: names, headers, errors. Control characters are therefore written as escapes, or whoever
sends a line feed could write lines of his own. A traceback stands below its line, marked so that it passes for none.
"""

import logging
import re
import time
from types import TracebackType

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What ends a line or commands a terminal: C0 and C1 controls, DEL, line and paragraph separator."""

_MARGIN = "  | "
"""What each line of a traceback begins with; a time never does."""

_REPEAT_SECONDS = 10.0
"""How seldom asyncio may repeat itself: it reports every single accept that fails for want of a descriptor."""


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


class _Seldom(logging.Filter):
    """Keeps back a message that repeats the last one let through too soon."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self._message = ""
        self._said_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if message == self._message and record.created - self._said_at < self._seconds:
            return False
        self._message, self._said_at = message, record.created
        return True


def configure(level: str) -> None:
    """Send the log to standard error from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    loop = logging.getLogger("asyncio")
    loop.setLevel(max(logging.WARNING, root.level))
    loop.filters[:] = [_Seldom(_REPEAT_SECONDS)]


def instant(milliseconds: int) -> str:
    """Return a time in milliseconds since the epoch as local time to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def _one_line(text: str) -> str:
    return _CONTROL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
