"""A member's entry in the store for `pybroker status`, renewed as a sign of life."""

import asyncio
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pybroker.broker.app.machine import clock
from pybroker.broker.app.own_record import OwnRecord
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.role import Role
from pybroker.store.directories import ITSELF, JOURNAL
from pybroker.store.member_history import Entry, HistoryFile
from pybroker.store.members import MemberFile, MemberRecord, prune, read_members

_log = logging.getLogger(__name__)

_RENEW_SECONDS = 2.0
_FORGET_DEAD_MS = 24 * 3600 * 1000
"""The time for which a member that is gone is still listed: long enough to see the next morning what happened."""


_FILE_KINDS = {"lock": "file", "lock.flock": "flock"}
"""The kind of lock, by the name of its file."""


class Membership:
    """An entry in the store's `members` directory, written by a separate thread because disks may be slow."""

    def __init__(self, directory: Path, name: str | None, lock: str, lock_kind: str, journal: str = JOURNAL) -> None:
        """Acquire an entry, and write it.

        Args:
            directory: the store's `members` directory.
            name: the name of this member; None for the host's.
            lock: the name of the lock.
            lock_kind: the setting `lock`.
            journal: the name of the journal's directory in the store's.

        Raises:
            ConfigError: a living member has that name, another lock, or another journal.
            StoreUnavailable: the directory cannot be written.
        """
        self._directory = directory
        self._file = MemberFile.claim(directory, name)
        self.name = self._file.name
        self.own = OwnRecord(self.name, lock, lock_kind, journal)
        """The state of this member."""
        self._history = HistoryFile(directory, self.name)
        self._written: Future[None] | None = None
        self._writer = ThreadPoolExecutor(1, "members")
        prune(directory, older_than_ms=_FORGET_DEAD_MS, now_ms=clock())
        try:
            # Before the others are read: of two members that start, one sees the other.
            self._file.publish(self.own.current())
            self.require_same_lock()
        except BaseException:
            self.close()
            raise

    def require_same_lock(self) -> None:
        """Check that all living members have the same kind of lock, and the same journal: else two could be masters.

        Raises:
            ConfigError: one has another.
            StoreUnavailable: the directory cannot be read.
        """
        for each in read_members(self._directory):
            if each.alive and each.member is not None and each.member.name != self.name:
                self._require_same_kind(each.member)
                self._require_same_journal(each.member)

    def _require_same_kind(self, other: MemberRecord) -> None:
        own, kind = self.own.lock_kind, lock_kind_of(other)
        if kind == own or (not kind and own not in _FILE_KINDS.values()):
            return
        raise ConfigError(
            f"this member has {own}, and the living member {other.name} (process {other.pid} on {other.host}) has "
            f"{kind or other.lock}: both could be master at once",
            setting="lock",
            hint=f"set `lock = {kind!r}` here, or stop {other.name} and give all members of this store one lock"
            if kind
            else "give all members of this store one lock",
        )

    def _require_same_journal(self, other: MemberRecord) -> None:
        """Check the journal's directory, which has the lock; an earlier version knows its default alone."""
        own = self.own.journal
        journal = other.journal or (ITSELF if own == ITSELF else JOURNAL)
        if journal != own:
            raise ConfigError(
                f"this member's journal is in {own}, and that of the living member {other.name} (process {other.pid} "
                f"on {other.host}) in {journal}: both could be master at once",
                setting="journal_directory",
                hint=f"set `journal_directory = {journal!r}` here, or give all members of this store another one",
            )

    def close(self) -> None:
        """Write pending changes, and release the entry."""
        self._writer.shutdown()
        self._file.close()

    async def renew(self) -> None:
        """Renew the entry until cancelled."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            self.refresh()

    def publish(self, role: Role, listeners: list[str], epoch: int) -> None:
        """Write the entry soon, without blocking. An epoch of 0 leaves it unchanged."""
        self._write(self.own.take_role(role, listeners, epoch))

    def refresh(self) -> None:
        """Write the entry soon, with the present state, unless one is being written: then the next renewal has it."""
        if self._written is None or self._written.done():
            self._write(self.own.current())

    def keep(self, entry: Entry) -> None:
        """Add an entry to the history soon, without blocking."""
        self._writer.submit(self._history.append, entry).add_done_callback(partial(_log_failure, "history"))

    @property
    def earlier(self) -> list[Entry]:
        """The history that was there at the start."""
        return self._history.earlier

    def inode(self) -> int:
        """Return the inode of the entry, whatever is at its path now."""
        return self._file.inode

    def _write(self, member: MemberRecord) -> None:
        self._written = self._writer.submit(self._file.publish, member)
        self._written.add_done_callback(partial(_log_failure, "entry"))


def lock_kind_of(member: MemberRecord) -> str:
    """Return a member's setting `lock`; empty if unknown, as an earlier version publishes only the lock's name."""
    return member.lock_kind or _FILE_KINDS.get(Path(member.lock).name, "")


def _log_failure(what: str, written: Future[None]) -> None:
    """Log a failure to write; `status` shows the age of the entry, and clients are not affected."""
    if (error := written.exception()) is not None:
        _log.error("cannot write this member's %s: %s", what, error)
