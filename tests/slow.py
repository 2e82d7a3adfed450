"""Stores in memory with a slow disk: what was appended is durable when the test calls it so."""

from collections.abc import Callable

from pybroker.store.memory import MemoryStore
from pybroker.store.scheduler.memory import MemoryJobStore


class _Slow:
    """Calls back in `sync` and not before."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []

    def when_durable(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def sync(self) -> None:
        """Have everything on disk that was appended so far."""
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


class SlowStore(_Slow, MemoryStore):
    """A message store."""


class SlowJobStore(_Slow, MemoryJobStore):
    """A job store."""
