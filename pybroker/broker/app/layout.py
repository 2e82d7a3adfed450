"""Where things lie under `--store DIR`, as ActiveMQ lays out its data directory.

```text
DIR/kahadb/      journal (db-1.log, …) and lock
DIR/scheduler/   scheduled messages
DIR/members/     who is there
```

A DIR that itself holds `db-*.log` files is taken as the journal directory: an ActiveMQ's `…/kahadb` can be named too.
"""

from pathlib import Path
from typing import NamedTuple


class Layout(NamedTuple):
    """The directories of one store."""

    journal: Path
    scheduler: Path
    members: Path


def layout(store: str) -> Layout:
    """Return the directories of a store. Looks, but creates nothing."""
    root = Path(store)
    bare = any(root.glob("db-*.log"))
    return Layout(journal=root if bare else root / "kahadb", scheduler=root / "scheduler", members=root / "members")
