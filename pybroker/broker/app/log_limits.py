"""Limits to the lines of the log that peers can cause, so that no peer can fill a disk or hide what operators need.

Each cause has an allowance of lines: a burst, and a rate for as long as it goes on. All causes share an allowance of
bytes, but those of the audit log, which have one of their own: otherwise other lines could crowd them out. Lines
beyond an allowance are counted, and the count is reported. A cause is a logger, a level and the format string of a
call; so there are some dozens, and peers cannot make more of them.

Lines of the packages that operators act on (role, lock, store, disk) have no limit: peers do not cause them, and each
of these packages writes a line per change of its state, not per command.
"""

import logging
from collections.abc import Callable
from typing import Final

from pybroker.broker.domain import audit

LINES_BURST: Final = 100
LINES_PER_SECOND: Final = 1.0
"""The lines of one cause: enough to see each client that reconnects after a failover of a small site, and then one a
second."""

BYTES_BURST: Final = 256 << 10
BYTES_PER_SECOND: Final = 2_500.0
"""The bytes of all causes of the audit log, and of all others, together: 216 MB a day each, if peers try all day."""

PERIOD_SECONDS: Final = 10.0
"""The time from the first line that is not written to the report of their number."""

_CAUSES_MAX: Final = 1_000
"""Causes with an allowance of their own; more than the code has, as other packages may log texts without a format."""

_WITHOUT_LIMIT: Final = ("pybroker.broker.app.", "pybroker.client.", "pybroker.locks.", "pybroker.store.")
_LIMITED: Final = "pybroker.store.group_commit"
"""The exception: it logs callbacks that fail, which are those of peers' commands."""

_Cause = tuple[str, int, str]
_OTHERS: Final[_Cause] = ("", 0, "")


class _Allowance:
    """The allowance that is left: grows with time up to a burst.

    Attributes:
        left: the amount; below 1 there is none.
    """

    __slots__ = ("_burst", "_rate", "_since", "left")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self.left = burst
        self._burst = burst
        self._rate = rate
        self._since = now

    def grow(self, now: float) -> None:
        self.left = min(self._burst, self.left + (now - self._since) * self._rate)
        self._since = now

    @property
    def is_whole(self) -> bool:
        return self.left >= self._burst


class _CauseState:
    """The allowance of a cause, and the lines that were left out since the last report."""

    __slots__ = ("count", "example", "lines", "since")

    def __init__(self, now: float) -> None:
        self.lines = _Allowance(LINES_BURST, LINES_PER_SECOND, now)
        self.count = 0
        self.since = 0.0
        self.example: logging.LogRecord | None = None


class LogLimits:
    """Decides which lines are written, and counts the others."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with whole allowances.

        Args:
            clock: seconds.
        """
        self._clock = clock
        self._states: dict[_Cause, _CauseState] = {}
        self._audit_bytes = _Allowance(BYTES_BURST, BYTES_PER_SECOND, clock())
        self._other_bytes = _Allowance(BYTES_BURST, BYTES_PER_SECOND, clock())

    def allows(self, record: logging.LogRecord) -> bool:
        """Return True if a line may be written, and count it otherwise. Lines at DEBUG have no limit."""
        if record.levelno <= logging.DEBUG or not _is_limited(record.name):
            return True
        now = self._clock()
        cause: _Cause = (record.name, record.levelno, str(record.msg))
        state = self._states.get(cause)
        if state is None:
            if len(self._states) >= _CAUSES_MAX:
                cause = _OTHERS
            state = self._states.setdefault(cause, _CauseState(now))
        state.lines.grow(now)
        available = self._bytes(record)
        available.grow(now)
        if state.lines.left >= 1 and available.left >= 1:
            state.lines.left -= 1
            return True
        if not state.count:
            state.since = now
            state.example = _bare(record)
        state.count += 1
        return False

    def wrote(self, record: logging.LogRecord, byte_count: int) -> None:
        """Record the size of a line that was written."""
        if record.levelno > logging.DEBUG and _is_limited(record.name):
            self._bytes(record).left -= byte_count

    def reports(self, *, final: bool = False) -> list[logging.LogRecord]:
        """Return a record for each cause whose lines were left out for a period, and forget causes that have ended.

        Args:
            final: do not wait for the end of the period.
        """
        if not self._states:
            return []
        now = self._clock()
        made: list[logging.LogRecord] = []
        for cause, state in list(self._states.items()):
            if state.example is not None and (final or now >= state.since + PERIOD_SECONDS):
                made.append(_report(state.example, state.count, now - state.since))
                state.example, state.count = None, 0
            state.lines.grow(now)
            if state.example is None and state.lines.is_whole:
                del self._states[cause]
        return made

    def _bytes(self, record: logging.LogRecord) -> _Allowance:
        return self._audit_bytes if record.name == audit.LOGGER else self._other_bytes


def _is_limited(name: str) -> bool:
    return not name.startswith(_WITHOUT_LIMIT) or name == _LIMITED


def _bare(record: logging.LogRecord) -> logging.LogRecord:
    """Return a record with its text alone, which keeps no object of a peer's alive."""
    made = logging.makeLogRecord(record.__dict__)
    made.msg, made.args, made.exc_info, made.exc_text, made.stack_info = record.getMessage(), None, None, None, None
    return made


def _report(example: logging.LogRecord, count: int, seconds: float) -> logging.LogRecord:
    level, name = example.levelno, example.name
    text = f"... {count:,} more in the last {max(1, round(seconds))} s, such as: {example.msg}"
    return logging.LogRecord(name, level, example.pathname, example.lineno, text, None, None)
