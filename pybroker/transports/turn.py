"""The end of a turn of the event loop: first writes to disk, then output, then what has to wait for its turn.

```text
sockets that are ready -> sessions, the core  |  commits: appended records to disk  |  output  |  queued input, deferred
                    one turn of the loop      |  its end: one callback of the loop for all of it
```

A short write is done within the turn, and the responses that it allows leave with the same turn's output. They leave
first, that is newest first: a client waits for them, while a dispatch is early by definition.

Input of connections that send much waits in the `fair_queue`. What it and deferred work append and send goes with the
end of the next turn, so that there is one commit a turn, and responses do not wait for either.

Deferred work is what is too long for one turn: searches, sweeps, fan-out. It is done in pieces. Each turn has a limit
of time and of pieces for all of them together; the rest waits for the next turn, first in first out. A piece that has
more to do defers itself again, and so continues behind all others, in this turn or a later one.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from pybroker.transports.fair_queue import FairQueue

Callback = Callable[[], None]

DEFERRED_SECONDS: Final = 0.005
"""The limit to the time of deferred work in a turn: a client waits for it, and for as much queued input."""

DEFERRED_PIECES: Final = 20
"""The limit to the pieces of deferred work in a turn: each may leave output, which is sent at the end of the turn."""


class Turn:
    """Callbacks for the end of the turn.

    Attributes:
        input: the input that waits.
    """

    __slots__ = ("_commits", "_deferred", "_is_scheduled", "_loop", "_monotonic", "_output", "input")

    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing to do; `monotonic` returns seconds, exact within a turn, unlike the time of some loops."""
        self._loop = loop
        self._monotonic = monotonic
        self._deferred: deque[Callback] = deque()
        self._commits: list[Callback] = []
        self._output: list[Callback] = []
        self._is_scheduled = False
        self.input = FairQueue(monotonic, self._schedule)

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

    def post(self, callback: Callback) -> None:
        """Call back in the loop's thread, from another thread; its output leaves right after."""
        self._loop.call_soon_threadsafe(self._posted, callback)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._end)

    def _posted(self, callback: Callback) -> None:
        try:
            callback()
        finally:
            self._finish()

    def _end(self) -> None:
        self._is_scheduled = False
        self._finish()
        is_left = self.input.run()
        if self._deferred:
            self._continue_deferred()
        if is_left or self._deferred:
            self._schedule()

    def _continue_deferred(self) -> None:
        """Run pieces up to the limits, also those that they defer in turn."""
        deferred, monotonic = self._deferred, self._monotonic
        deadline = monotonic() + DEFERRED_SECONDS
        for _ in range(DEFERRED_PIECES):
            self._run(deferred.popleft())
            if not deferred or monotonic() >= deadline:
                return

    def _finish(self) -> None:
        while self._commits:
            commits, self._commits = self._commits, []
            for commit in commits:
                self._run(commit)
        output, self._output = self._output, []
        for flush in reversed(output):
            self._run(flush)

    def _run(self, callback: Callback) -> None:
        """Run one callback; a bug in it must not keep the others from running."""
        try:
            callback()
        except Exception as error:
            self._loop.call_exception_handler({"message": f"{callback} failed", "exception": error})
