"""The world of a store that a test turns by hand."""

from collections.abc import Callable
from typing import Any

from pybroker.store.runtime import Callback, StoreRuntime, Worker

NOW_MS = 1_700_000_000_000


def runtime(call_soon: Callable[[Callback], object] | None = None, **parts: Any) -> StoreRuntime:
    """Return a world with this loop; by default it has the lock, does nothing, and its clock stands at `NOW_MS`.

    Args:
        call_soon: the loop's, from any thread; None: nothing is ever called.
        parts: other fields than a loop without a timer has.
    """
    call_soon = call_soon or _ignore
    defaults = {"post": call_soon, "fence": _pass, "on_failure": _ignore, "clock": lambda: NOW_MS}
    return StoreRuntime(call_soon=call_soon, **(defaults | parts))


def wait_for_end(thread: Worker | None) -> None:
    """Wait until a thread that was started has ended."""
    assert thread is not None
    thread.join(20)
    assert not thread.is_alive()


def _ignore(_: object) -> None:
    """Do nothing."""


def _pass() -> None:
    """Hold the lock."""
