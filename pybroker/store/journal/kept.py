"""Queues that exist while they are empty: what the journal says of them, and where.

A journal has no record of a destination, only of its messages. Once a queue was emptied and the files with its messages
were collected, nothing tells that it was there. Mostly that does not matter: whoever needs a queue makes it. But a
queue of a virtual topic gets copies of what is sent to the topic while its consumers are away, also after a failover.
So the core asks for such queues to be kept, and a remark in the journal, which ActiveMQ ignores, says so:

```text
pybroker queues ["Consumer.a.VirtualTopic.X","Consumer.b.VirtualTopic.X"]
```

The collector writes it anew before it takes the last file away that says it. The removal of a queue makes every such
remark void, so its record must stay as long as any of them.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import cast

from pybroker.broker.domain.destination import Destination, queue
from pybroker.store.journal.commands import Trace

KEPT = "pybroker queues "
"""Begins the remark."""


class KeptQueues:
    """The queues that are kept, and the data files that say so.

    Attributes:
        files: data files with a remark, be it void or not.
    """

    __slots__ = ("_said_by", "files")

    def __init__(self) -> None:
        self.files: set[int] = set()
        self._said_by: dict[Destination, list[int]] = {}

    def __contains__(self, destination: Destination) -> bool:
        return destination in self._said_by

    def note(self, destination: Destination, file_id: int) -> None:
        """Note that a remark in a data file says that a queue is kept."""
        self.files.add(file_id)
        said_by = self._said_by.setdefault(destination, [])
        if file_id in said_by:
            said_by.remove(file_id)
        said_by.append(file_id)

    def forget(self, destination: Destination) -> Collection[int]:
        """Keep a queue no longer; return the data files that say otherwise."""
        return self._said_by.pop(destination, ())

    def forget_files(self, gone: set[int]) -> None:
        """Note that data files were removed."""
        self.files -= gone
        for said_by in self._said_by.values():
            said_by[:] = [file_id for file_id in said_by if file_id not in gone]

    def items(self) -> Iterator[tuple[Destination, Sequence[int]]]:
        """Yield queues with the data files that say so, the latest remark's last."""
        yield from self._said_by.items()

    def last_said_by(self, file_ids: Collection[int]) -> list[Destination]:
        """Return the queues whose latest remark is in one of these data files, or nowhere any more."""
        return [each for each, said_by in self._said_by.items() if not said_by or said_by[-1] in file_ids]


def encode_kept(queues: Iterable[Destination]) -> Trace:
    """Return the remark that says that queues are kept."""
    return Trace(KEPT + json.dumps([each.name for each in queues], separators=(",", ":")))


def decode_kept(text: str) -> list[Destination]:
    """Return the queues that such a remark names; none if somebody else wrote it."""
    try:
        names: object = json.loads(text.removeprefix(KEPT))
    except (ValueError, RecursionError):
        return []
    if not isinstance(names, list):
        return []
    return [queue(each) for each in cast("list[object]", names) if isinstance(each, str) and each]
