"""One thread for work of long duration that one client causes and that would hold up all others in the event loop.

There is one for all connections: such work is rare, and more threads would only compete for the interpreter. A session
has at most one piece of work here at a time.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class WorkThread:
    """The thread, which is started by the first work."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        """Start nothing yet; `post` calls back in the loop's thread."""
        self._post = post
        self._executor: ThreadPoolExecutor | None = None
        self._is_closed = False

    def run(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run work, which raises no exception, after earlier work; then call `done` in the loop's thread."""
        if self._is_closed:
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="pybroker-worker")
        self._executor.submit(self._run, work, done)

    def close(self) -> None:
        """Drop the work that has not begun. What has begun comes to its end, and its `done` is not called."""
        self._is_closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _run(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        work()
        if not self._is_closed:
            self._post(done)
