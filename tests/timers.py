"""Timers that a test lets elapse, in place of those of an event loop."""

from collections.abc import Callable
from functools import partial

Callback = Callable[[], None]


class ManualTimers:
    """The timers of a broker: `after` stands for `Paging.after`."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[float, Callback]] = {}
        self._count = 0

    def after(self, seconds: float, callback: Callback) -> Callback:
        self._count += 1
        self._running[self._count] = seconds, callback
        return partial(self._cancel, self._count)

    def _cancel(self, number: int) -> None:
        self._running.pop(number, None)

    @property
    def seconds(self) -> list[float]:
        """The seconds of those that run, in the order in which they began."""
        return [seconds for seconds, _ in self._running.values()]

    def elapse(self) -> None:
        """Let the time of all that run be over."""
        running, self._running = self._running, {}
        for _, callback in running.values():
            callback()
