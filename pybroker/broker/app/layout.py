"""The directories of `--store DIR`, laid out like ActiveMQ's data directory.

```text
DIR/kahadb/      journal (db-1.log, …) and lock
DIR/scheduler/   scheduled messages, unless `scheduler_store` names another directory
DIR/members/     the members' status
```

A DIR with `db-*.log` files is used as the journal directory, so that an ActiveMQ's `…/kahadb` can be named too.
"""

from pathlib import Path
from typing import NamedTuple


class StoreDirectories(NamedTuple):
    """The directories of one store."""

    root: Path
    journal: Path
    scheduler: Path
    members: Path

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


def layout(store: str, scheduler: Path | None = None) -> StoreDirectories:
    """Return the directories of a store, without creating them.

    Args:
        store: the data directory, or the journal directory.
        scheduler: the directory of scheduled messages; None for the default.
    """
    root = Path(store)
    return StoreDirectories(
        root=root,
        journal=root if has_data_files(root) else root / "kahadb",
        scheduler=scheduler or root / "scheduler",
        members=root / "members",
    )


def has_data_files(directory: Path) -> bool:
    """Return True when a directory holds data files of a journal."""
    return any(directory.glob("db-*.log"))
