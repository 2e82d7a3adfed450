"""How a member shows itself to `pybroker status`: its entry in the store, renewed so that its silence shows."""

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
from pybroker.broker.core.mastership import Role
from pybroker.broker.domain.admin import Totals
from pybroker.broker.domain.errors import ConfigError
from pybroker.store.members import Followed, Load, Member, MemberFile, MemberRole, prune, read_members

_log = logging.getLogger(__name__)

_RENEW_SECONDS = 2.0
_FORGET_DEAD_MS = 24 * 3600 * 1000
"""How long a member that is gone is still listed: long enough to see next morning what happened at night."""


_FILE_KINDS = {"lock": "file", "lock.flock": "flock"}
"""Kinds of lock by the names of their files."""


class Membership:
    """An entry in the store's `members` directory, written by a thread of its own because disks take their time."""

    def __init__(self, directory: Path, name: str | None, lock: str, lock_kind: str) -> None:
        """Claim an entry, and write it.

        Args:
            directory: where the members meet.
            name: of this one; None: the host's.
            lock: what is locked.
            lock_kind: the setting `lock`.

        Raises:
            ConfigError: a living member has that name, or another lock.
            StoreUnavailable: the directory cannot be written.
        """
        self._directory = directory
        self._file = MemberFile.claim(directory, name)
        self.name = self._file.name
        now = clock()
        self._member = Member(
            name=self.name,
            role=MemberRole.STANDBY,
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
        """Asked at each renewal how far this member has followed the journal."""
        self.totals: Callable[[], Totals | None] = _nothing
        """Asked at each renewal what this member's broker holds."""
        self.obstacle: Callable[[], str] = str
        """Asked at each renewal what would keep this member from serving."""
        self._writer = ThreadPoolExecutor(1, "members")
        prune(directory, older_than_ms=_FORGET_DEAD_MS, now_ms=now)
        try:
            self._file.publish(self._member)  # before the others are looked at: of two that start, one sees the other
            self.require_same_lock()
        except BaseException:
            self.close()
            raise

    def require_same_lock(self) -> None:
        """Make sure that all living members have the same kind of lock: with two kinds there would be two masters.

        A member of an earlier version says what it locks, and not the kind.

        Raises:
            ConfigError: one has another.
            StoreUnavailable: the directory cannot be read.
        """
        own = self._member.lock_kind
        for each in read_members(self._directory):
            other = each.member
            if not each.alive or other is None or other.name == self.name:
                continue
            kind = other.lock_kind or _FILE_KINDS.get(Path(other.lock).name, "")
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
        """Write what is left; from here on this member counts as gone."""
        self._writer.shutdown()
        self._file.close()

    async def renew(self) -> None:
        """Renew the entry for ever."""
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
        """Write the entry, soon; never blocks. An epoch of 0 leaves it as it was."""
        now, member = clock(), self._member
        said = MemberRole[role.name]
        begins = said is not member.role
        self._write(
            replace(
                member,
                role=said,
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

    def _write(self, member: Member) -> None:
        self._member = member
        self._writer.submit(self._file.publish, member).add_done_callback(_tell)


def _nothing() -> None:
    """Follow nothing, and hold nothing."""


def _load(totals: Totals | None) -> Load | None:
    """Return what of a broker's totals the other members and `status` see."""
    if totals is None:
        return None
    return Load(
        connections=totals.connections, waiting=totals.waiting, in_flight=totals.in_flight, is_full=totals.is_full
    )


def _tell(written: Future[None]) -> None:
    """Log what kept an entry from being written; `status` shows its age, and clients are not concerned."""
    if (error := written.exception()) is not None:
        _log.error("cannot tell other members this one's role: %s", error)
