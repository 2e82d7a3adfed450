"""Ends waits on a database that take too long: one thread for all connections.

Kernels notice a peer that is gone. They do not notice one that hangs, nor a peer behind a proxy or a pooler that is
gone while the proxy is not; and libpq waits for an answer for ever. So this side keeps time itself.
"""

import threading
from collections.abc import Callable
from time import monotonic

TICK_SECONDS = 0.25
"""Longest delay of a wait's end."""


class Watchdog:
    """Calls back when something is not done in time. Its thread sleeps while nothing is under way."""

    def __init__(self) -> None:
        self._under_way: dict[int, tuple[float, Callable[[], None]]] = {}
        self._is_needed = threading.Event()
        self._never = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def begin(self, key: int, seconds: float, end: Callable[[], None]) -> None:
        """Have something ended that is not done after so many seconds, in another thread, once."""
        self._under_way[key] = (monotonic() + seconds, end)
        if not self._is_needed.is_set():
            self._is_needed.set()
            self._start()

    def done(self, key: int) -> None:
        """Mark it as done."""
        self._under_way.pop(key, None)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():  # a fork takes no threads along
                self._thread = threading.Thread(target=self._run, name="database-watchdog", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._is_needed.wait()
            self._never.wait(TICK_SECONDS)
            now = monotonic()
            for key, (deadline, end) in list(self._under_way.items()):
                if now > deadline:
                    self.done(key)
                    end()
            self._is_needed.clear()
            if self._under_way:  # whatever began since has set it, or is seen here
                self._is_needed.set()
