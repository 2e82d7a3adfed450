"""What a store runs in: an event loop, time, threads, the lock's fence, and who is told of its failure.

A store takes all of it from here, so that a test or a simulation can put it into a world of its own.
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
        """Wait for its end, so many seconds at most."""
        ...


class Inbox(Protocol):
    """What a thread is given to do: `queue.SimpleQueue`."""

    def put(self, item: Any) -> None:
        """Put something behind what is there."""
        ...

    def get(self, *, timeout: float | None = None) -> Any:
        """Wait for the first thing, and take it.

        Raises:
            queue.Empty: nothing came in so many seconds.
        """
        ...


class Event(Protocol):
    """What a thread waits for: `threading.Event`."""

    def set(self) -> None:
        """Let everybody go who waits for it."""
        ...

    def is_set(self) -> bool:
        """Return True if it has come."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, so many seconds at most; tell whether it has come."""
        ...


def start_thread(name: str, run: Callback) -> Worker:
    """Start a daemon thread."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRuntime:
    """The world of one store.

    Attributes:
        call_soon: runs a callback at the end of the event loop's turn.
        post: the same, from another thread.
        call_later: runs a callback after so many seconds; None: what nobody waits for is written at once, and nothing
            is held.
        clock: milliseconds since the epoch, for what is written down.
        monotonic: seconds that no clock step changes, for waiting and measuring.
        fence: raises `LockNotHeld` unless the lock is held. Asked after each write, before anybody is told, in any
            thread.
        on_failure: told once, on the loop, why nothing is written or acknowledged any more.
        spawn: starts a thread of that name.
        inbox: makes a queue from which one thread takes what others put.
        event: makes an event that has not come.
    """

    call_soon: Schedule
    post: Schedule
    fence: Callback
    on_failure: Callable[[Exception], None]
    clock: Clock
    call_later: Later | None = None
    monotonic: Callable[[], float] = time.monotonic
    spawn: Callable[[str, Callback], Worker] = start_thread
    inbox: Callable[[], Inbox] = SimpleQueue[Any]
    event: Callable[[], Event] = threading.Event
