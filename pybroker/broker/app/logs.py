"""How the broker's log looks: one event per line, time first, so that two members' logs can be read side by side.

Peers' words end up in it: names, headers, errors. Control characters are therefore written as escapes, or whoever
sends a line feed could write lines of his own. A traceback stands below its line, marked so that it passes for none.
"""

import logging
import re
import time
from types import TracebackType

from pybroker.transports import client_log

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What ends a line, commands a terminal, or shows a line in another order than it was written in: C0 and C1 controls,
DEL, line and paragraph separator, directional marks, embeddings, overrides and isolates."""

_MARGIN = "  | "
"""What each line of a traceback begins with; a time never does."""


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


def configure(level: str, *, connections: bool = False) -> None:
    """Send the log to standard error from a level on, with or without clients that connect and leave."""
    handler = logging.StreamHandler()
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
