"""The directories of `--store DIR`, laid out like ActiveMQ's data directory.

```text
DIR/kahadb/      journal (db-1.log, …) and lock, unless `journal_directory` names another one in DIR, or DIR itself
DIR/scheduler/   scheduled messages, unless `scheduler_store` names another directory
DIR/members/     the members' status
```

A DIR with `db-*.log` files is used as the journal directory, so that an ActiveMQ's `…/kahadb` can be named too.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pybroker.store.directories import (
    ITSELF,
    JOURNAL,
    MEMBERS,
    SCHEDULER,
    find_journal,
    has_data_files,
    is_journal_name,
)
from pybroker.store.members import MemberStatus, read_members

if TYPE_CHECKING:
    from pybroker.broker.app.config import Config

from pybroker.broker.domain.errors import StoreUnavailable


class StoreDirectories(NamedTuple):
    """The directories of one store."""

    root: Path
    journal: Path
    scheduler: Path
    members: Path

    @property
    def journal_name(self) -> str:
        """The name of the journal's directory in the store's; `.` if it is the same."""
        return ITSELF if self.journal == self.root else self.journal.name

    def is_new(self) -> bool:
        """Return True if there is no journal yet, so that opening the store creates an empty one."""
        return not has_data_files(self.journal)


class Creatable(NamedTuple):
    """The journals of a store that a new master may create: only those that never existed.

    Attributes:
        messages: the journal of messages.
        jobs: the journal of scheduled messages.
    """

    messages: bool = True
    jobs: bool = True


def layout_of(config: "Config") -> StoreDirectories:
    """Return the directories of the store that settings name, without creating them."""
    return layout(config.store, config.scheduler_store, config.journal_directory)


def layout(store: str, scheduler: Path | None = None, journal: str = JOURNAL) -> StoreDirectories:
    """Return the directories of a store, without creating them.

    Args:
        store: the data directory, or the journal directory.
        scheduler: the directory of scheduled messages; None for the default.
        journal: the name of the journal's directory in the store's; `.` for the store's own.
    """
    root = Path(store)
    return _directories(root, root if has_data_files(root) else root / journal, scheduler)


def found_layout(store: str, members: Iterable[MemberStatus] | None = None) -> StoreDirectories:
    """Return the directories of a store whose settings are not known; the members' status has the journal's name.

    Without a member that names it, it is the one that `find_journal` finds.

    Args:
        store: the data directory, or the journal directory.
        members: the members of the store; None: they are read.

    Raises:
        StoreUnavailable: the members cannot be read.
    """
    root = Path(store)
    if has_data_files(root):
        return _directories(root, root)
    known = read_members(root / MEMBERS) if members is None else members
    naming = [
        (each.alive, each.member) for each in known if each.member is not None and is_journal_name(each.member.journal)
    ]
    if naming:
        _, member = max(naming, key=lambda each: (each[0], each[1].updated_ms))
        return _directories(root, root / member.journal)
    return _directories(root, find_journal(root))


def _directories(root: Path, journal: Path, scheduler: Path | None = None) -> StoreDirectories:
    return StoreDirectories(root=root, journal=journal, scheduler=scheduler or root / SCHEDULER, members=root / MEMBERS)


def journals_of(store: Path) -> list[Path]:
    """Return the directories of a store's journals that have data files: of messages, of scheduled messages.

    Raises:
        StoreUnavailable: there is none, or it cannot be read; the hint names directories nearby.
    """
    try:
        if not store.is_dir():
            what = "is no directory" if store.exists() else "does not exist"
            raise StoreUnavailable(f"{store} {what}", path=str(store), hint="name the data directory of a broker")
        where = found_layout(str(store))
        found = [path for path in (where.journal, where.scheduler) if path.is_dir() and has_data_files(path)]
        near = sorted({path.parent for pattern in ("*", "*/*") for path in store.glob(f"{pattern}/db-*.log")})
    except PermissionError as error:
        hint = "run this as the broker's user"
        raise StoreUnavailable(f"{store} cannot be read: {error.strerror}", path=str(store), hint=hint) from error
    if not found:
        hint = f"name one of {', '.join(map(str, near[:5]))}" if near else "name the directory with kahadb in it"
        raise StoreUnavailable(f"{store}: there is no KahaDB journal, no db-<number>.log", path=str(store), hint=hint)
    return found
