"""The end of a turn of the event loop: first writes to disk, then output, then what has to wait for its turn.

```text
sockets that are ready -> sessions, the core  |  commits: appended records to disk  |  output  |  queued input, deferred
                    one turn of the loop      |  its end: one callback of the loop for all of it
```

A short write is done within the turn, and the responses that it allows leave with the same turn's output. They leave
first, that is newest first: a client waits for them, while a dispatch is early by definition.

Input of connections that send much waits in the `fair_queue`. What it and deferred work append and send goes with the
end of the next turn, so that there is one commit a turn, and responses do not wait for either.

Timers and ends of connections are spread: where thousands come at a time, each turn has time for some of them.

Deferred work is what is too long for one turn: searches, sweeps, fan-out. It is done in pieces. Each turn has a limit
of time and of pieces for all of them together; the rest waits for the next turn, first in first out. A piece that has
more to do defers itself again, and so continues behind all others, in this turn or a later one.

The loop gives way to a store's thread that clients wait for. The thread needs the interpreter some ten times for one
write, and gets it only when the loop releases the interpreter lock (GIL): compiled code does so at the end of a turn,
and where turns are shorter than 0.1 ms the loop has it back before the thread has woken up.

How long a turn lasts, and what it does, is measured for `loop_lag`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from pybroker.broker.domain.effort import EFFORT
from pybroker.transports.fair_queue import FairQueue
from pybroker.transports.loop_lag import TICK_SECONDS, WARNING_SECONDS, LongTurn, LoopLag

Callback = Callable[[], None]

DEFERRED_SECONDS: Final = 0.005
"""The limit to the time of deferred work in a turn: a client waits for it, and for as much queued input."""

OUTPUT_SECONDS: Final = 0.005
"""The limit to the time for the output of a turn; what is left, of a fan-out to thousands, has as much in the next."""

SPREAD_SECONDS: Final = 0.005
"""The limit to the time of timers and ends of connections in a turn."""

_OUTPUTS_UNMEASURED: Final = 4
"""Connections with output in a turn, up to which the clock is not read for it."""

_CLOCK_MASK: Final = 3
"""The number above which the clock is read, for every fourth: each may have megabytes, to be encrypted."""

DEFERRED_PIECES: Final = 20
"""The limit to the pieces of deferred work in a turn: each may leave output, which is sent at the end of the turn."""


PATIENCE_SECONDS: Final = 0.003
"""The time that a thread has for its work before the loop gives way to it; most writes take less."""

GIVE_WAY_SECONDS: Final = 0.001
"""The time from one pause for a thread to the next; a pause takes some 0.08 ms."""


class Turn:
    """Callbacks for the end of the turn.

    Attributes:
        input: the input that waits.
        lag: the longest turns.
        fence: called before output leaves, which is dropped unless it returns True; None: output always leaves.
    """

    __slots__ = (
        "_commits",
        "_deferred",
        "_is_scheduled",
        "_late",
        "_loop",
        "_monotonic",
        "_output",
        "_pause_at",
        "_sleep",
        "_spread",
        "_timer_count",
        "_timers",
        "_working_count",
        "fence",
        "input",
        "lag",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Begin with nothing to do.

        Args:
            loop: the event loop.
            monotonic: seconds, exact within a turn, unlike the time of some loops.
            sleep: lets other threads run; its argument is always 0.
        """
        self._loop = loop
        self._monotonic = monotonic
        self._sleep = sleep
        self._working_count = 0
        self._pause_at = 0.0
        self._deferred: deque[Callback] = deque()
        self._commits: list[Callback] = []
        self._output: list[Callback] = []
        self._late: deque[Callback] = deque()
        """The output that earlier turns had no time for, oldest first."""
        self._spread: deque[Callback] = deque()
        self._timers: dict[int, asyncio.TimerHandle] | None = {}
        """The timers that run, by their numbers; None once they have been ended."""
        self._timer_count = 0
        self._is_scheduled = False
        self.input = FairQueue(monotonic, self._schedule, self._pause)
        self.lag = LoopLag()
        self.fence: Callable[[], bool] | None = None

    def commit(self, callback: Callback) -> None:
        """Call back at the turn's end, before any output, to write to disk."""
        self._commits.append(callback)
        self._schedule()

    def output(self, callback: Callback) -> None:
        """Call back at the turn's end, to write output."""
        self._output.append(callback)
        self._schedule()

    def defer(self, callback: Callback) -> None:
        """Call back when the end of a turn has time, in the order of the calls; a piece should take at most 1 ms."""
        self._deferred.append(callback)
        self._schedule()

    def spread(self, callback: Callback) -> None:
        """Call back at this turn's end, or at that of a later one if very many do so, in the order of the calls."""
        self._spread.append(callback)
        self._schedule()

    def after(self, seconds: float, callback: Callback) -> Callback:
        """Call back after a time as `spread` does, but not after `end_timers`; return what cancels it before."""
        self._timer_count += 1
        if self._timers is not None:
            elapsed = partial(self._elapsed, self._timer_count, callback)
            self._timers[self._timer_count] = self._loop.call_later(seconds, elapsed)
        return partial(self._cancel, self._timer_count)

    def end_timers(self) -> None:
        """Cancel all timers, also those that are set later."""
        timers, self._timers = self._timers, None
        for timer in (timers or {}).values():
            timer.cancel()

    def post(self, callback: Callback) -> None:
        """Call back in the loop's thread, from another thread; its output leaves right after."""
        self._loop.call_soon_threadsafe(self._posted, callback)

    def post_spread(self, callback: Callback) -> None:
        """Call back as `spread` does, from another thread."""
        self._loop.call_soon_threadsafe(self.spread, callback)

    def give_way(self, change: int) -> None:
        """Change the number of threads whose work clients wait for."""
        if not self._working_count:
            self._pause_at = self._monotonic() + PATIENCE_SECONDS
        self._working_count += change

    def measure(self, name: str, task: Callback) -> None:
        """Run a periodic task, and record how long it took."""
        begun = EFFORT.turn_at = self._monotonic()
        try:
            task()
        finally:
            now = self._monotonic()
            self.lag.record(now, now - begun, [(name, now - begun)])

    async def watch(self) -> None:
        """Look for turns that nothing else measures, until cancelled."""
        while True:
            due = self._monotonic() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            now = self._monotonic()
            self.lag.tick(now, now - due)

    def longest(self) -> LongTurn:
        """Return the longest turn of the last minute."""
        return self.lag.last_minute(self._monotonic())

    def _elapsed(self, number: int, callback: Callback) -> None:
        if self._timers is not None:
            del self._timers[number]
            self.spread(callback)

    def _cancel(self, number: int) -> None:
        timer = None if self._timers is None else self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._end)

    def _posted(self, callback: Callback) -> None:
        begun = EFFORT.turn_at = self._monotonic()
        try:
            callback()
        finally:
            self._write_commits()
            self._write_output()
            now = self._monotonic()
            if now - begun > self.lag.longest or now - begun >= WARNING_SECONDS:
                self.lag.record(now, now - begun, [("confirmations of a commit", now - begun)])

    def _end(self) -> None:
        fair = self.input
        begun = fair.begun_at
        read = spread = committed = EFFORT.turn_at = self._monotonic()
        if self._spread:
            self._run_spread(read + SPREAD_SECONDS)
            spread = committed = self._monotonic()
        if self._commits:
            self._write_commits()
            committed = self._monotonic()
        # Not before: the output and the pieces that timers and commits leave are still for this call.
        self._is_scheduled = False
        written = committed
        if self._output or self._late:
            self._write_output()
            written = self._monotonic()
        is_waiting = len(fair) > 0
        is_left = fair.run()
        processed = self._monotonic() if is_waiting else written
        ended = processed
        if self._deferred:
            self._continue_deferred()
            ended = self._monotonic()
        if self._working_count:
            self._pause(ended)
        if is_left or self._deferred or self._spread:
            self._schedule()
        seconds = ended - (begun or read)
        if seconds > self.lag.longest or seconds >= WARNING_SECONDS:
            input_seconds = processed - written + (read - begun if begun else 0.0)
            parts = (
                (self._input_name(input_seconds), input_seconds),
                ("timers and ends of connections", spread - read),
                ("commit", committed - spread),
                ("output", written - committed),
                ("deferred work", ended - processed),
            )
            self.lag.record(ended, seconds, parts)
        fair.longest_seconds = 0.0
        fair.longest_owner = None

    def _input_name(self, seconds: float) -> str:
        """Return whose input took so many seconds: the connection that took most of them, if one did."""
        fair = self.input
        if fair.longest_owner is None or 2 * fair.longest_seconds < seconds:
            return "input of several connections"
        return f"input of {fair.longest_owner.peer}"

    def _pause(self, now: float) -> float:
        """Let a thread have the interpreter, if one works and it is time; return the time."""
        if self._working_count and now >= self._pause_at:
            self._sleep(0)
            now = self._monotonic()
            self._pause_at = now + GIVE_WAY_SECONDS
        return now

    def _continue_deferred(self) -> None:
        """Run pieces up to the limits, also those that they defer in turn."""
        deferred, monotonic = self._deferred, self._monotonic
        deadline = monotonic() + DEFERRED_SECONDS
        for _ in range(DEFERRED_PIECES):
            self._run(deferred.popleft())
            if not deferred or (now := monotonic()) >= deadline:
                return
            self._pause(now)

    def _run_spread(self, deadline: float) -> None:
        spread = self._spread
        while spread:
            self._run(spread.popleft())
            if self._monotonic() >= deadline:
                return

    def _write_commits(self) -> None:
        while self._commits:
            commits, self._commits = self._commits, []
            for commit in commits:
                self._run(commit)

    def _write_output(self) -> None:
        output, self._output = self._output, []
        late = self._late
        if self.fence is not None and not self.fence():
            late.clear()
            return
        if not late and len(output) <= _OUTPUTS_UNMEASURED:
            for flush in reversed(output):
                self._run(flush)
            return
        output.reverse()
        done = self._run_some(output)
        late.extend(output[done:])
        for _ in range(self._run_some(late)):
            late.popleft()
        if late:
            self._schedule()

    def _run_some(self, callbacks: Iterable[Callback]) -> int:
        """Run callbacks until `OUTPUT_SECONDS` are over; return how many."""
        deadline = self._monotonic() + OUTPUT_SECONDS
        count = 0
        for callback in callbacks:
            self._run(callback)
            count += 1
            if not count & _CLOCK_MASK:
                now = self._monotonic()
                if now >= deadline:
                    break
                self._pause(now)
        return count

    def _run(self, callback: Callback) -> None:
        """Run one callback; a bug in it must not keep the others from running."""
        try:
            callback()
        except Exception as error:
            self._loop.call_exception_handler({"message": f"{callback} failed", "exception": error})
