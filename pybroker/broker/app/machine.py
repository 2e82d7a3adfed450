"""The machine of a member: its clocks, threads, files, ports, and unique ids.

All parts of a member get these from here, so that a simulation can replace them.
"""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, repeat
from queue import SimpleQueue
from typing import Any, Final

from pybroker.broker.app.config import Config
from pybroker.broker.app.large_pages import supported_bytes
from pybroker.broker.domain.ports import Clock, LockProvider
from pybroker.store.journal.files import OS, System
from pybroker.store.runtime import Callback, Event, Inbox, Worker, start_thread
from pybroker.transports.server import bind

SPARE_FILES: Final = 200
"""Descriptors for journal files, listeners and libraries, besides those of `connections_max`."""

_RANDOM_BITS: Final = 53
"""More than can be guessed over a network, and exact as any client's number."""


def clock() -> int:
    """Return milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """Return an id that is unique among brokers and runs, in ActiveMQ's form `ID:<host>-<port>-<ms>-<n>:<m>`.

    `n` is random, so that no peer can guess the ids of messages that a connection of this id is going to send.
    """
    process, started, number = next(_numbers_of(os.getpid()))
    return f"ID:{socket.gethostname()}-{process}-{started}-{secrets.randbits(_RANDOM_BITS)}:{number}"


@cache
def _numbers_of(process: int) -> Iterator[tuple[int, int, int]]:
    """Return a process, its first millisecond here, and a count: ids of one millisecond differ by it."""
    return zip(repeat(process), repeat(clock()), count(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The clocks, threads, files and listeners of one machine, by default this process's.

    Attributes:
        clock: milliseconds since the epoch.
        monotonic: seconds, independent of clock steps.
        spawn: starts a thread with a name.
        inbox: makes a queue with one reading thread.
        event: makes an event that is not set.
        system: the functions of `os` that change files.
        bind: returns a bound socket for an address, a port and the port's setting.
        new_id: returns an id that is unique among brokers and runs.
        make_lock: returns the lock of the configured store; None for the one of the settings.
        large_page_bytes: returns the size of a large page of memory; 0 without large pages.
    """

    clock: Clock = clock
    monotonic: Callable[[], float] = time.monotonic
    spawn: Callable[[str, Callback], Worker] = start_thread
    inbox: Callable[[], Inbox] = SimpleQueue[Any]
    event: Callable[[], Event] = threading.Event
    system: System = OS
    bind: Callable[[str, int, str], socket.socket] = bind
    new_id: Callable[[], str] = new_id
    make_lock: Callable[[Config], LockProvider] | None = None
    large_page_bytes: Callable[[], int] = supported_bytes


MACHINE = Machine()
