"""A store's lock, for tools: checks if a member uses the store, or holds the lock against all members.

A lock in a database cannot be seen from the store. So a store is free for a tool only while no member of it is alive:
the tool first holds the lock files, then looks for members; a member first publishes itself, then looks for lock files
of another kind than its own. Of the two, at least one sees the other.

The check changes nothing. It queries ActiveMQ's lock file by F_GETLK, and finds a lock by `flock`, which has no query,
in the kernel's table of locks.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pybroker.broker.app.layout import StoreDirectories, found_layout
from pybroker.broker.app.machine import clock
from pybroker.broker.app.membership import lock_kind_of
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.locks.file import FileLock, holder, is_locked
from pybroker.locks.flock import FlockLock
from pybroker.store.members import MemberStatus, read_members

LOCK_FILE = "lock"
FLOCK_FILE = "lock.flock"
_LOCKS = Path("/proc/locks")
_REMEDY = "stop every member of the store first"


def is_in_use(directory: Path) -> bool:
    """Return True if a journal's store is locked or has a living member, as far as this machine knows."""
    try:
        return (
            is_locked(directory / LOCK_FILE)
            or _is_flocked(directory / FLOCK_FILE)
            or any(each.alive for store in _stores(directory) for each in read_members(store.members))
        )
    except StoreUnavailable:
        return False  # such as without rights on the lock file; only texts depend on this


def require_free(*directories: Path) -> None:
    """Check, without touching anything, that the stores of journals are not in use.

    Raises:
        StoreUnavailable: a member of a store is alive, whatever its role, or a lock is held.
    """
    stores = {store.members.resolve(): store for directory in directories for store in _stores(directory)}.values()
    _require_no_member(stores)
    journals = [store.journal for store in stores if store.journal.is_dir()]
    for directory in {path.resolve(): path for path in (*journals, *directories)}.values():
        for path, is_held in ((directory / LOCK_FILE, is_locked), (directory / FLOCK_FILE, _is_flocked)):
            if is_held(path):
                raise StoreUnavailable(f"{path} is held by {_who(str(path))}", path=str(path), hint=_REMEDY)


@contextmanager
def locked(*directories: Path) -> Generator[Callable[[], None]]:
    """Hold the locks of journals' directories and of their stores; yields a function that checks that they are held.

    Raises:
        StoreUnavailable: a member of a store is alive, a lock is held, or a file cannot be opened.
        LockError: the file system cannot lock.
    """
    stores = {store.members.resolve(): store for directory in directories for store in _stores(directory)}.values()
    journals = [store.journal for store in stores if store.journal.is_dir()]
    with ExitStack() as held:
        locks: list[FileLock] = []
        for directory in {path.resolve(): path for path in (*journals, *directories)}.values():
            locks.append(FileLock(directory / LOCK_FILE, clock=clock))
            if (directory / FLOCK_FILE).exists():
                locks.append(FlockLock(directory / FLOCK_FILE, clock=clock))
        _require_no_member(stores)  # before a lock is touched: a start that sees it held would fail
        for lock in locks:
            if not lock.try_acquire():
                raise StoreUnavailable(f"{lock.name} is held by {_who(lock.name)}", path=lock.name, hint=_REMEDY)
            held.callback(lock.release)
        _require_no_member(stores)

        def check() -> None:
            for lock in locks:
                lock.check()

        yield check


def _stores(directory: Path) -> Iterator[StoreDirectories]:
    """Yield the stores that a journal's directory may belong to: its own, and the one of the directory above."""
    for path in {directory.absolute(), directory.resolve()}:
        yield found_layout(str(path))
        above = found_layout(str(path.parent))
        if path in (above.journal, above.scheduler):
            yield above


def _require_no_member(stores: Iterable[StoreDirectories]) -> None:
    """Check that no member of the stores is alive, whatever its role: a standby may become master at any time.

    Raises:
        StoreUnavailable: one is, or may be.
    """
    for store in stores:
        for each in read_members(store.members):
            if each.alive or not each.is_certain:
                raise StoreUnavailable(
                    f"{store.root}: {_described(each)}",
                    path=str(store.root),
                    hint=_REMEDY if each.alive else f"see {store.members}, and move away what is no member's file",
                )


def _described(found: MemberStatus) -> str:
    member = found.member
    if member is None:
        return f"member {found.name} {'is alive' if found.alive else 'may be alive'}: {found.problem}"
    return (
        f"member {member.name} (process {member.pid} on {member.host}) is alive as {member.role.value}, "
        f"with lock = {lock_kind_of(member) or member.lock}"
    )


def _who(path: str) -> str:
    pid = holder(path)
    return f"process {pid}" if pid is not None and pid > 0 else "a master"


def _is_flocked(path: Path) -> bool:
    try:
        found = path.stat()
        table = _LOCKS.read_text(encoding="ascii")
    except OSError:
        return False
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    return any(" FLOCK " in line and device in line.split() for line in table.splitlines())
