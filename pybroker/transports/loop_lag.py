"""The lag of the event loop: the longest turn of the last minute, and what it did.

Every client waits while a turn lasts, so its length is the wait that a broker adds for clients that do nothing to
deserve it. A turn is measured from its first input, or from its end if it has none, to the end of its deferred work;
what threads post and periodic tasks are measured one by one. A turn that is longer than all others of its period is
described, so the usual one costs a comparison. `WARNING_SECONDS` is worth a line in the log.
"""

import logging
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

_log = logging.getLogger(__name__)

WARNING_SECONDS: Final = 0.1
"""The length of a turn that is logged: the longest wait that other clients should notice."""

PERIOD_SECONDS: Final = 10.0
PERIODS: Final = 6
"""The last minute is so many periods, each with its longest turn."""

LOG_SECONDS: Final = 10.0
"""The shortest time between two lines in the log."""

TICK_SECONDS: Final = 0.1
"""The interval at which `tick` is to be called: turns that exceed `WARNING_SECONDS` without input make a tick late."""

_PART_MIN: Final = 0.2
"""The share of a turn from which a part is named."""


class LongTurn(NamedTuple):
    """A turn and what it did.

    Attributes:
        seconds: its length.
        cause: its longest parts; empty if there was no turn.
        ended_at: monotonic seconds.
    """

    seconds: float
    cause: str
    ended_at: float


class LoopLag:
    """The longest turns of the last periods.

    Attributes:
        longest: the seconds of the longest turn of this period; a longer one is to be recorded.
    """

    __slots__ = ("_last", "_logged_at", "_period_ends_at", "_turns", "_unlogged", "longest")

    def __init__(self) -> None:
        self.longest = 0.0
        self._period_ends_at = 0.0
        self._turns: deque[LongTurn] = deque(maxlen=PERIODS)
        self._last = LongTurn(0.0, "", 0.0)
        self._logged_at = -LOG_SECONDS
        self._unlogged = 0

    def record(self, now: float, seconds: float, parts: Iterable[tuple[str, float]]) -> None:
        """Record a turn that is `longest`, or long enough for the log.

        Args:
            now: monotonic seconds, at its end.
            seconds: its length.
            parts: what it did, and the seconds for each.
        """
        if seconds <= self.longest and seconds < WARNING_SECONDS:
            return
        longest_first = sorted(parts, key=lambda part: -part[1])
        named = [
            f"{name} {part * 1000:.0f} ms"
            for index, (name, part) in enumerate(longest_first)
            if index == 0 or part >= _PART_MIN * seconds
        ]
        self._last = turn = LongTurn(seconds, ", ".join(named), now)
        if seconds > self.longest:
            if self.longest:
                self._turns.pop()
            self.longest = seconds
            self._turns.append(turn)
        if seconds >= WARNING_SECONDS:
            self._warn(turn)

    def tick(self, now: float, late_seconds: float) -> None:
        """Begin a new period if it is time, and record how late this tick was, unless a recorded turn explains it."""
        if now >= self._period_ends_at:
            self._period_ends_at = now + PERIOD_SECONDS
            self.longest = 0.0
        last = self._last
        if late_seconds < WARNING_SECONDS:
            return
        if last.ended_at <= now - late_seconds - TICK_SECONDS or last.seconds < late_seconds / 2:
            self.record(now, late_seconds, [("timers, tasks or other threads", late_seconds)])

    def last_minute(self, now: float) -> LongTurn:
        """Return the longest turn of the last minute."""
        begun_at = now - PERIODS * PERIOD_SECONDS
        recent = [turn for turn in self._turns if turn.ended_at >= begun_at]
        return max(recent, default=LongTurn(0.0, "", now))

    def _warn(self, turn: LongTurn) -> None:
        if turn.ended_at - self._logged_at < LOG_SECONDS:
            self._unlogged += 1
            return
        others = f" ({self._unlogged} more since the last such line)" if self._unlogged else ""
        _log.warning("clients waited %.0f ms for the event loop: %s%s", turn.seconds * 1000, turn.cause, others)
        self._logged_at = turn.ended_at
        self._unlogged = 0
