"""A store's runtime: event loop, time, threads, the lock's fence, and a callback for its failure.

A store uses nothing else, so that a test or a simulation can replace all of it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

from pybroker.broker.domain.ports import Clock

Callback = Callable[[], None]

Schedule = Callable[[Callback], object]
"""`loop.call_soon` or `loop.call_soon_threadsafe`."""

Later = Callable[[float, Callback], object]
"""`loop.call_later`."""


class Worker(Protocol):
    """A thread that was started."""

    def is_alive(self) -> bool:
        """Return True if it still runs."""
        ...

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, for at most that many seconds."""
        ...


class Inbox(Protocol):
    """A thread's queue of work: `queue.SimpleQueue`."""

    def put(self, item: Any) -> None:
        """Append an item."""
        ...

    def get(self, *, timeout: float | None = None) -> Any:
        """Wait for the first item, and remove it.

        Raises:
            queue.Empty: no item came within the timeout.
        """
        ...


class Event(Protocol):
    """An event that a thread waits for: `threading.Event`."""

    def set(self) -> None:
        """Set it, and release all waiters."""
        ...

    def is_set(self) -> bool:
        """Return True if it is set."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, for at most that many seconds; return True if it is set."""
        ...


def start_thread(name: str, run: Callback) -> Worker:
    """Start a daemon thread."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _ignore(_: int) -> None:
    """Do nothing; the default of `give_way`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRuntime:
    """The runtime of one store.

    Attributes:
        call_soon: runs a callback at the end of the event loop's turn.
        post: the same, from another thread.
        call_later: runs a callback after a delay in seconds; None: every batch is written at once, and no write elided.
        clock: milliseconds since the epoch, for records.
        monotonic: seconds that no clock step changes, for waiting and measuring.
        give_way: called on the loop with 1 when the thread has work that clients wait for, and with -1 when it is done;
            in between the loop lets the thread have the interpreter.
        fence: raises `LockNotHeld` unless the lock is held. Called after each write, before any callback, in any
            thread.
        on_failure: called once, on the loop, with the reason why nothing is written or acknowledged any more.
        spawn: starts a thread of that name.
        inbox: makes a thread's queue of work.
        event: makes an event that is not set.
    """

    call_soon: Schedule
    post: Schedule
    fence: Callback
    on_failure: Callable[[Exception], None]
    clock: Clock
    call_later: Later | None = None
    give_way: Callable[[int], object] = _ignore
    monotonic: Callable[[], float] = time.monotonic
    spawn: Callable[[str, Callback], Worker] = start_thread
    inbox: Callable[[], Inbox] = SimpleQueue[Any]
    event: Callable[[], Event] = threading.Event
