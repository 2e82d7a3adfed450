"""Gathers the facts by which `pair_judgement` judges a pair: looks at the store, the lock, the ports and the members.

Each look opens the lock file and the members' entries, as a member that takes over does, and leaves them as they are.
It blocks for as long as the store does; `pair_watch` runs it in a thread of its own.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from pybroker import regular
from pybroker.broker.app import mounts
from pybroker.broker.app.config import Config
from pybroker.broker.app.fingerprints import SecurityDigests, settings_digests
from pybroker.broker.app.lag import sizes_in
from pybroker.broker.app.layout import StoreDirectories, layout_of
from pybroker.broker.app.pair_judgement import PairFacts
from pybroker.broker.app.readiness import Bind, find_obstacle
from pybroker.broker.app.security_files import SecurityFiles
from pybroker.broker.app.stores import MEMORY_STORE, is_in_database
from pybroker.broker.app.wiring import is_locked, lock_name
from pybroker.broker.domain.big_endian import LONG
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.role import Role
from pybroker.store.directories import has_data_files
from pybroker.store.journal.identity import stored_broker_id
from pybroker.store.journal.reader import data_files
from pybroker.store.members import Followed, StoreIdentity, read_members

UNCONFIRMED_SECONDS: Final = 5.0
"""The time, beside the interval of checks, after which a master's lock file counts as unconfirmed."""


class OwnFacts(NamedTuple):
    """The facts that the event loop has; see `PairFacts`.

    Attributes:
        unconfirmed_seconds: of a master, the time since the lock was confirmed last.
    """

    role: Role
    name: str
    now: float
    inode: int = 0
    journal_problem: str = ""
    followed: Followed | None = None
    unconfirmed_seconds: float = 0.0


Examine = Callable[[OwnFacts], PairFacts]
"""Completes the facts. Blocks."""


class PairExamination:
    """Looks at the pair of one member, again and again."""

    def __init__(self, config: Config, security: SecurityFiles, bind: Bind) -> None:
        """Create it; nothing is looked at yet."""
        self._config = config
        self._bind = bind
        self._where: StoreDirectories | None = layout_of(config) if config.is_in_directory else None
        self._lock = lock_name(config) if config.is_in_directory else ""
        self._settings = settings_digests(config)
        self._security = SecurityDigests(security)
        self._has_stable_inodes: bool | None = None

    def __call__(self, own: OwnFacts) -> PairFacts:
        """Complete the facts. Blocks."""
        config, where = self._config, self._where
        common: dict[str, Any] = own._asdict() | {
            "directory": "" if where is None else str(where.root),
            "lock": os.fspath(self._lock),
            "unconfirmed_seconds_max": _unconfirmed_seconds_max(config),
            "settings": self._settings | self._security.digests(),
        }
        if where is None:
            is_judged = own.role is Role.STANDBY and config.store != MEMORY_STORE
            return PairFacts(**common, port_problem=find_obstacle(config, bind=self._bind) if is_judged else "")
        try:
            found = self._look(where, own)
        except BrokerError as error:
            return PairFacts(**common, store_problem=str(error))
        except OSError as error:
            name = error.filename or where.root
            return PairFacts(**common, store_problem=f"{name} cannot be used: {error.strerror or error}")
        return PairFacts(**common, **found)

    def _look(self, where: StoreDirectories, own: OwnFacts) -> dict[str, Any]:
        """Return the facts of a store in a directory.

        Raises:
            BrokerError, OSError: it cannot be used.
        """
        if self._has_stable_inodes is None:
            mount = mounts.mount_of(where.root, mounts.known())
            self._has_stable_inodes = mount is None or not mount.type.startswith("fuse")
        lock = self._lock
        members = read_members(where.members)
        is_standby = own.role is Role.STANDBY
        stamp, locked = 0, None
        if isinstance(lock, Path):
            stamp = _read_stamp(lock, os.O_RDWR if is_standby else os.O_RDONLY)
            locked = is_locked(lock) if is_standby else True
        return {
            "port_problem": find_obstacle(self._config, members, self._bind) if is_standby else "",
            "members": members,
            "is_locked": locked,
            "lock_seconds": self._lock_seconds(),
            "identity": self._identity(where, stamp),
            "has_stable_inodes": self._has_stable_inodes,
            "has_scheduler": self._config.scheduler,
            "has_journal": locked is not None or has_data_files(where.journal),
            "size_of": sizes_in(where.journal),
        }

    def _lock_seconds(self) -> float:
        """Return the time after which a standby has won a lock that was left."""
        config = self._config
        if isinstance(self._lock, Path):
            return config.lock_poll or 0.0
        return config.lock_lease + (config.lock_poll or 0.0)

    def _identity(self, where: StoreDirectories, stamp: int) -> StoreIdentity:
        inode, newest = 0, ""
        if self._config.scheduler and where.scheduler.is_dir():
            inode = where.scheduler.stat().st_ino
            files = data_files(where.scheduler)
            newest = files[max(files)].name if files else ""
        return StoreIdentity(
            broker_id=stored_broker_id(where.journal),
            journal_inode=where.journal.stat().st_ino,
            scheduler_inode=inode,
            scheduler_file=newest,
            lock_stamp=stamp,
        )


def _read_stamp(lock: Path, flags: int) -> int:
    """Open the lock file, a standby also for writing, as it does when it waits, and return its holder's time.

    Nothing is written: that would make a watching master stop.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    fd = regular.opener(os.fspath(lock), flags | os.O_CLOEXEC)
    try:
        stamp = os.pread(fd, LONG.size, 0)
    finally:
        os.close(fd)
    return int(LONG.unpack(stamp)[0]) if len(stamp) == LONG.size else 0


def _unconfirmed_seconds_max(config: Config) -> float:
    """Return the time within which a master's lock is confirmed: half of a lease, or some checks of a file."""
    if is_in_database(config.lock):
        return config.lock_lease / 2 + config.lock_check
    return UNCONFIRMED_SECONDS + config.lock_check
