"""The end of a turn of the event loop: first writes to disk, then output.

```text
sockets that are ready -> sessions, the core  |  commits: what this turn appended goes to disk  |  output, newest first
                    one turn of the loop      |  its end: one callback of the loop for all of it
```

A short write is done within the turn, and the responses that it allows leave with the same turn's output. They leave
first: a client waits for them, while a dispatch is early by definition.
"""

import asyncio
from collections.abc import Callable

Callback = Callable[[], None]


class Turn:
    """Callbacks for the end of the turn."""

    __slots__ = ("_commits", "_is_scheduled", "_loop", "_output")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._commits: list[Callback] = []
        self._output: list[Callback] = []
        self._is_scheduled = False

    def commit(self, callback: Callback) -> None:
        """Call back at the turn's end, before any output, to write to disk."""
        self._commits.append(callback)
        self._schedule()

    def output(self, callback: Callback) -> None:
        """Call back at the turn's end, to write output."""
        self._output.append(callback)
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
            self._end()

    def _end(self) -> None:
        self._is_scheduled = False
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
