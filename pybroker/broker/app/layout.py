"""Where things lie under `--store DIR`, as ActiveMQ lays out its data directory.

```text
DIR/kahadb/      journal (db-1.log, …) and lock
DIR/scheduler/   scheduled messages, unless `scheduler_store` names another directory
DIR/members/     who is there
```

A DIR that itself holds `db-*.log` files is taken as the journal directory: an ActiveMQ's `…/kahadb` can be named too.
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
        """Tell whether there is no journal yet, so that opening the store creates an empty one."""
        return not has_data_files(self.journal)


class Creatable(NamedTuple):
    """Which journals of a store a new master may begin, where it finds none: only those that never were there.

    Attributes:
        messages: the journal of messages.
        jobs: that of scheduled messages.
    """

    messages: bool = True
    jobs: bool = True


def layout(store: str, scheduler: Path | None = None) -> StoreDirectories:
    """Return the directories of a store; looks, but creates nothing.

    Args:
        store: the data directory, or that of the journal.
        scheduler: where scheduled messages are, if not in the default place.
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
