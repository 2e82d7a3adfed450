"""A member's entry in the store for `pybroker status`, renewed as a sign of life."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from pybroker import __version__
from pybroker.broker.app.machine import clock
from pybroker.broker.domain.admin import Totals
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.role import Role
from pybroker.store.members import Followed, Load, MemberFile, MemberRecord, prune, read_members

_log = logging.getLogger(__name__)

_RENEW_SECONDS = 2.0
_FORGET_DEAD_MS = 24 * 3600 * 1000
"""The time for which a member that is gone is still listed: long enough to see the next morning what happened."""


_FILE_KINDS = {"lock": "file", "lock.flock": "flock"}
"""The kind of lock, by the name of its file."""


class Membership:
    """An entry in the store's `members` directory, written by a separate thread because disks may be slow."""

    def __init__(self, directory: Path, name: str | None, lock: str, lock_kind: str) -> None:
        """Acquire an entry, and write it.

        Args:
            directory: the store's `members` directory.
            name: the name of this member; None for the host's.
            lock: the name of the lock.
            lock_kind: the setting `lock`.

        Raises:
            ConfigError: a living member has that name, or another lock.
            StoreUnavailable: the directory cannot be written.
        """
        self._directory = directory
        self._file = MemberFile.claim(directory, name)
        self.name = self._file.name
        now = clock()
        self._member = MemberRecord(
            name=self.name,
            role=Role.STANDBY,
            pid=os.getpid(),
            host=socket.gethostname(),
            version=__version__,
            since_ms=now,
            started_ms=now,
            updated_ms=now,
            lock=lock,
            lock_kind=lock_kind,
        )
        self.followed: Callable[[], Followed | None] = _nothing
        """Called at each renewal; returns how far this member has followed the journal."""
        self.totals: Callable[[], Totals | None] = _nothing
        """Called at each renewal; returns the counts of this member's broker."""
        self.obstacle: Callable[[], str] = str
        """Called at each renewal; returns the reason why this member could not serve."""
        self._writer = ThreadPoolExecutor(1, "members")
        prune(directory, older_than_ms=_FORGET_DEAD_MS, now_ms=now)
        try:
            self._file.publish(
                self._member
            )  # before the others are read: of two members that start, one sees the other
            self.require_same_lock()
        except BaseException:
            self.close()
            raise

    def require_same_lock(self) -> None:
        """Check that all living members have the same kind of lock, because with two kinds there could be two masters.

        Raises:
            ConfigError: one has another.
            StoreUnavailable: the directory cannot be read.
        """
        own = self._member.lock_kind
        for each in read_members(self._directory):
            other = each.member
            if not each.alive or other is None or other.name == self.name:
                continue
            kind = lock_kind_of(other)
            if kind == own or (not kind and own not in _FILE_KINDS.values()):
                continue
            raise ConfigError(
                f"this member has {own}, and the living member {other.name} (process {other.pid} on {other.host}) has "
                f"{kind or other.lock}: both could be master at once",
                setting="lock",
                hint=f"set `lock = {kind!r}` here, or stop {other.name} and give all members of this store one lock"
                if kind
                else "give all members of this store one lock",
            )

    def close(self) -> None:
        """Write pending changes, and release the entry."""
        self._writer.shutdown()
        self._file.close()

    async def renew(self) -> None:
        """Renew the entry until cancelled."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            self._write(
                replace(
                    self._member,
                    updated_ms=clock(),
                    followed=self.followed(),
                    load=_load(self.totals()),
                    obstacle=self.obstacle(),
                )
            )

    def publish(self, role: Role, listeners: list[str], epoch: int) -> None:
        """Write the entry soon, without blocking. An epoch of 0 leaves it unchanged."""
        now, member = clock(), self._member
        begins = role is not member.role
        self._write(
            replace(
                member,
                role=role,
                since_ms=now if begins else member.since_ms,
                updated_ms=now,
                promotions=member.promotions + (begins and role is Role.MASTER),
                listeners=tuple(listeners),
                epoch=epoch or member.epoch,
                followed=self.followed(),
                load=_load(self.totals()),
                obstacle=self.obstacle(),
            )
        )

    def _write(self, member: MemberRecord) -> None:
        self._member = member
        self._writer.submit(self._file.publish, member).add_done_callback(_log_failure)


def lock_kind_of(member: MemberRecord) -> str:
    """Return a member's setting `lock`; empty if unknown, as an earlier version publishes only the lock's name."""
    return member.lock_kind or _FILE_KINDS.get(Path(member.lock).name, "")


def _nothing() -> None:
    """Return None, for a member without journal and broker."""


def _load(totals: Totals | None) -> Load | None:
    """Return the part of a broker's totals that is published."""
    if totals is None:
        return None
    return Load(
        connections=totals.connections,
        waiting=totals.waiting,
        in_flight=totals.in_flight,
        is_full=totals.is_full,
        memory_bytes=totals.memory_bytes,
        memory_bytes_max=totals.memory_bytes_max,
        spool_bytes=totals.spool_bytes,
        is_spool_full=totals.is_spool_full,
        scheduled=totals.scheduled,
        loop_lag_ms=round(totals.loop_lag_seconds * 1000),
        loop_lag_cause=totals.loop_lag_cause,
    )


def _log_failure(written: Future[None]) -> None:
    """Log a failure to write the entry; `status` shows its age, and clients are not affected."""
    if (error := written.exception()) is not None:
        _log.error("cannot write this member's entry: %s", error)
