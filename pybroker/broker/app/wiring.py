"""Which adapter serves which setting: the one place that chooses stores, locks and protocols."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from pybroker.broker.app.config import MEMORY_STORE, Config
from pybroker.broker.app.layout import layout
from pybroker.broker.core.broker import Broker, Policy
from pybroker.broker.domain.ports import LockProvider, MessageStore
from pybroker.locks import file, flock
from pybroker.locks.file import FileLock
from pybroker.locks.flock import FlockLock
from pybroker.locks.memory import LockRegistry, MemoryLock
from pybroker.store.journal.appender import JournalSettings, Preallocation, SyncStrategy
from pybroker.store.journal.replay import Progress
from pybroker.store.journal.store import JournalStore
from pybroker.store.memory import MemoryStore
from pybroker.transports.server import Protocol
from pybroker.transports.session import Link, Session
from pybroker.transports.stomp.codec import encode_frame
from pybroker.transports.stomp.frames import StompLimits, Version
from pybroker.transports.stomp.session import StompSession

_log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 2.0


def clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def make_lock(config: Config) -> LockProvider:
    """Return the lock that guards the configured store."""
    if config.store == MEMORY_STORE:
        return MemoryLock(LockRegistry())
    if config.lock == "flock":
        return FlockLock(lock_path(config), clock=clock)
    return FileLock(lock_path(config), clock=clock, poll_seconds=config.lock_poll)


def lock_path(config: Config) -> Path:
    """Return the file that is locked for a store on disk."""
    return lock_paths(config.store)[config.lock]


def lock_paths(store: str) -> dict[str, Path]:
    """Return the file of each kind of lock."""
    journal = layout(store).journal
    return {"file": journal / "lock", "flock": journal / "lock.flock"}


def is_locked(path: Path) -> bool:
    """Tell whether somebody holds the lock on a file of `lock_paths`. Creates and changes nothing."""
    return flock.is_locked(path) if path.name == "lock.flock" else file.is_locked(path)


def make_store(config: Config, lock: LockProvider, on_failure: Callable[[Exception], None]) -> MessageStore:
    """Return the configured store, closed as yet; it tells `on_failure` once when it can write no more."""
    if config.store == MEMORY_STORE:
        return MemoryStore()
    journal = layout(config.store).journal
    loop = asyncio.get_running_loop()
    settings = JournalSettings(
        sync=SyncStrategy(config.sync),
        sync_interval_seconds=config.sync_interval,
        file_bytes_max=config.journal_file_max,
        batch_bytes_max=config.journal_batch_max,
        preallocation=Preallocation.SPARSE_FILE if config.journal_preallocate else Preallocation.NONE,
        archive_directory=journal / "data-archive" if config.archive else None,
    )
    return JournalStore(
        journal,
        settings=settings,
        check=lock.check,
        call_soon=loop.call_soon,
        post=loop.call_soon_threadsafe,
        on_failure=on_failure,
        clock=clock,
        progress=_progress(),
    )


def make_broker(config: Config, name: str, store: MessageStore) -> Broker:
    """Return the core over a store, empty as yet."""
    policy = Policy(
        max_redeliveries=config.max_redeliveries,
        topic_pending_limit=config.topic_pending_limit,
        destinations_max=config.destinations_max,
    )
    return Broker(name, store=store, clock=clock, policy=policy)


def make_protocols(config: Config, broker: Broker) -> dict[str, tuple[int, Protocol]]:
    """Return, per setting of a port that is not off, the port and the protocol spoken there."""
    limits = StompLimits(body_bytes=config.frame_max, connect_seconds=config.connect_timeout)
    connection_ids = _connection_ids()

    def stomp_session(link: Link) -> Session:
        return StompSession(broker=broker, link=link, connection_id=next(connection_ids), limits=limits, clock=clock)

    protocols: dict[str, tuple[int, Protocol]] = {}
    if config.stomp is not None:
        told = f"This broker has its {config.connections_max} connections already; try again later."
        headers = {"message": told, "content-type": "text/plain"}
        refusal = encode_frame("ERROR", headers, told.encode(), Version.V1_0)
        protocols["stomp"] = config.stomp, Protocol(name="stomp", session=stomp_session, refusal=refusal)
    return protocols


def _progress() -> Progress:
    """Return what logs how far a recovery has come, every now and then if it takes long."""
    said_at = time.monotonic()

    def log(done: int, total: int, records: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _PROGRESS_SECONDS:
            said_at = time.monotonic()
            _log.info("recovering: %d of %d journal files read, %d records", done, total, records)

    return log


def _connection_ids() -> Iterator[str]:
    """Yield ids no other broker and no earlier run gives, in ActiveMQ's form `ID:<host>-<port>-<ms>-<n>:<m>`."""
    prefix = f"ID:{socket.gethostname()}-{os.getpid()}-{clock()}-1"
    return (f"{prefix}:{number}" for number in count(1))
