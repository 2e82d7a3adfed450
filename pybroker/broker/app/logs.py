"""The format and limits of the broker's log: one event per line, time first, so that members' logs can be compared.

Log lines contain text from peers: names, headers, errors. Control characters are therefore written as escapes; a line
feed would otherwise let a peer forge lines. Each line of a traceback has a margin, for the same reason. Long texts are
cut. Peers also control how often a line is logged, which `log_limits` bounds.
"""

import asyncio
import datetime
import json
import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO

from pybroker.broker.app.log_file import LogFile
from pybroker.broker.app.log_limits import PERIOD_SECONDS, LogLimits
from pybroker.broker.app.log_output import LogOutput
from pybroker.broker.domain import audit
from pybroker.counted import counted
from pybroker.transports import client_log

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that end a line, control a terminal, or reorder a line: C0 and C1 controls, DEL, line and paragraph
separator, directional marks, embeddings, overrides and isolates."""

_MARGIN = "  | "
"""The prefix of each line of a traceback, which no time begins with."""

LINE_LENGTH_MAX: Final = 1_000
"""The limit to the characters of an event's text, and of a traceback's line; what is longer is cut."""

_CUT: Final = " [...]"

_TRACEBACK_LINES_MAX: Final = 100
"""The limit to the lines of a traceback; the middle of a longer one is left out."""

_handlers: list["_Handler"] = []
"""The handler in use, if any."""


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
        lines = super().formatException(ei).split("\n")
        if len(lines) > _TRACEBACK_LINES_MAX:
            half = _TRACEBACK_LINES_MAX // 2
            lines[half:-half] = [f"[{len(lines) - 2 * half:,} lines]"]
        return "\n".join(_MARGIN + _one_line(line) for line in lines)


class _JsonFormatter(_Formatter):
    """`{"time": "2026-11-21T10:15:02.123+01:00", "level": "INFO", "logger": "pybroker.broker.app.node", …}`.

    The fields of an audit line are beside those: see `domain.audit`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of JSON, all in ASCII."""
        at = datetime.datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")
        fields: dict[str, object] = {"time": at, "level": record.levelname, "logger": record.name}
        fields["message"] = _one_line(record.getMessage())
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info).split("\n")
        about: dict[str, str | None] = getattr(record, audit.FIELDS, {})
        fields |= {key: None if value is None else _one_line(value) for key, value in about.items()}
        return json.dumps(fields)


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to a file, or else to standard error, what `LogLimits` allow and its reader takes."""

    def __init__(self, clock: Callable[[], float], file: LogFile | None) -> None:
        super().__init__()
        self._limits = LogLimits(clock)
        self._file = file
        self._file_failure = ""
        self._output: LogOutput | None = file
        if file is None:
            with suppress(OSError):  # a stream without a descriptor, which takes all at once
                self._output = LogOutput(self.stream.fileno())

    @property
    def has_file(self) -> bool:
        """True if the log is a file."""
        return self._file is not None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or count it. The caller holds the handler's lock."""
        self._report()
        if self._limits.allows(record):
            self._write(record)

    def report(self, *, final: bool = False) -> None:
        """Write the counts of lines that were left out."""
        self.acquire()
        try:
            self._report(final=final)
        finally:
            self.release()

    def close(self) -> None:
        """Write the counts of the present periods."""
        self.report(final=True)
        if self._output is not None:
            self._output.close()
        super().close()

    def _report(self, *, final: bool = False) -> None:
        output = self._output
        if output is not None:
            output.flush()
            if output.left_out and not output.is_behind:
                count, output.left_out = output.left_out, 0
                self._warn(f"left out here, as the log could not be written: {counted(count, 'line')}")
                if output.left_out:  # it still cannot
                    output.left_out = count
        if self._file is not None and self._file.failure != self._file_failure:
            self._file_failure = self._file.failure
            if self._file_failure:
                self._warn(self._file_failure)
        for record in self._limits.reports(final=final):
            self._write(record)

    def _warn(self, text: str) -> None:
        self._write(logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None))

    def _write(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record) + self.terminator
            data = text.encode(errors="backslashreplace")
            if self._output is None:
                self.stream.write(text)
                self.flush()
            else:
                self._output.write(data)
        except RecursionError:
            raise
        except Exception:  # as the library's handlers do: a failure to log is reported, and ends nothing
            self.handleError(record)
        else:
            self._limits.wrote(record, len(data))


def configure(
    level: str,
    *,
    connections: bool = False,
    as_json: bool = False,
    clock: Callable[[], float] = time.monotonic,
    file: Path | None = None,
) -> None:
    """Send the log to a file, or to standard error.

    Args:
        level: the lowest level that is written.
        connections: include clients that connect and disconnect.
        as_json: write each event as a line of JSON.
        clock: seconds, for the limits to lines that peers cause.
        file: the file; None: standard error.

    Raises:
        ConfigError: the file cannot be opened.
    """
    handler = _Handler(clock, None if file is None else LogFile(file))
    _handlers[:] = [handler]
    handler.setFormatter(_JsonFormatter() if as_json else _Formatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger(client_log.LOGGER).setLevel(
        logging.NOTSET if connections or root.level <= logging.DEBUG else logging.WARNING
    )
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, root.level))


def record_end(message: str) -> None:
    """Write the reason of the process's end to a log file: standard error, which has it too, may be lost."""
    if any(handler.has_file for handler in _handlers):
        logging.getLogger(__name__).critical("%s", message)


async def watch() -> None:
    """Write the counts of lines that were left out, and lines that wait for their reader, until cancelled."""
    while True:
        await asyncio.sleep(PERIOD_SECONDS)
        report()


def report() -> None:
    """Write the counts of lines that were left out for `PERIOD_SECONDS`."""
    for handler in _handlers:
        handler.report()


def instant(milliseconds: int) -> str:
    """Return a time in milliseconds since the epoch as local time to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(milliseconds / 1000))


def _one_line(text: str) -> str:
    if len(text) > LINE_LENGTH_MAX:
        text = text[:LINE_LENGTH_MAX] + _CUT
    text = _CONTROL.sub(_escaped, text)
    return text if len(text) <= LINE_LENGTH_MAX + len(_CUT) else text[:LINE_LENGTH_MAX] + _CUT


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
