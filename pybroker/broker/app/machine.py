"""The machine that a member runs on: its clocks, threads, files, ports, and the ids that only it makes.

All of a member's parts take these from here, so that a simulation can run members on machines of its own.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from queue import SimpleQueue
from typing import Any

from pybroker.broker.app.config import Config
from pybroker.broker.app.large_pages import supported_bytes
from pybroker.broker.domain.ports import Clock, LockProvider
from pybroker.store.journal.files import OS, System
from pybroker.store.runtime import Callback, Event, Inbox, Worker, start_thread
from pybroker.transports.server import bind


def clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """Return an id no other broker and no earlier run makes, in ActiveMQ's form `ID:<host>-<port>-<ms>-<n>:<m>`."""
    return next(_ids_of(os.getpid()))


@cache
def _ids_of(process: int) -> Iterator[str]:
    """Return the ids of a process: one sequence for all purposes, since two begun in one millisecond would be equal."""
    prefix = f"ID:{socket.gethostname()}-{process}-{clock()}-1"
    return (f"{prefix}:{number}" for number in count(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Clocks, threads, files and listeners of one machine; by default the one that this process runs on.

    Attributes:
        clock: milliseconds since the epoch.
        monotonic: seconds that no clock step changes.
        spawn: starts a thread of that name.
        inbox: makes a queue from which one thread takes what others put.
        event: makes an event that has not come.
        system: the functions of `os` that change files.
        bind: returns a bound socket for an address, a port and the setting that names it.
        new_id: returns an id no other broker and no earlier run makes.
        make_lock: returns the lock of the configured store; None: what the settings say.
        large_page_bytes: returns how large a large page of memory is; 0: there are none.
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
