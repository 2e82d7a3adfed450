"""Declared queues: they exist while they are empty, and the journal records them.

A journal has records of messages and none of destinations. After a queue was emptied and its data files were removed,
no record names it. Usually that is harmless, because a client that needs a queue creates it. But a queue of a virtual
topic receives copies of what is sent to the topic while its consumers are away, also after a failover. The core
declares such queues, and the store records them in a trace record, which ActiveMQ ignores:

```text
pybroker queues ["Consumer.a.VirtualTopic.X","Consumer.b.VirtualTopic.X"]
```

The garbage collector writes it again before it removes the last file that has it. The removal of a queue voids all
these records, so the record of the removal must stay as long as any of them.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import cast

from pybroker.broker.domain.destination import Destination, queue
from pybroker.store.journal.commands import Trace

DECLARED_PREFIX = "pybroker queues "
"""Begins the trace record's text."""


class DeclaredQueues:
    """The declared queues, and the data files that record them.

    Attributes:
        files: data files with such a record, void or not.
    """

    __slots__ = ("_recorded_in", "files")

    def __init__(self) -> None:
        self.files: set[int] = set()
        self._recorded_in: dict[Destination, list[int]] = {}

    def __contains__(self, destination: Destination) -> bool:
        return destination in self._recorded_in

    def record(self, destination: Destination, file_id: int) -> None:
        """Record that a data file declares a queue."""
        self.files.add(file_id)
        recorded_in = self._recorded_in.setdefault(destination, [])
        if file_id in recorded_in:
            recorded_in.remove(file_id)
        recorded_in.append(file_id)

    def forget(self, destination: Destination) -> Collection[int]:
        """Remove a queue; return the data files that declare it."""
        return self._recorded_in.pop(destination, ())

    def forget_files(self, gone: set[int]) -> None:
        """Record that data files were removed."""
        self.files -= gone
        for recorded_in in self._recorded_in.values():
            recorded_in[:] = [file_id for file_id in recorded_in if file_id not in gone]

    def items(self) -> Iterator[tuple[Destination, Sequence[int]]]:
        """Yield queues with the data files that declare them, the latest last."""
        yield from self._recorded_in.items()

    def last_recorded_in(self, file_ids: Collection[int]) -> list[Destination]:
        """Return the queues whose latest record is in one of these data files, or in none that is left."""
        return [
            each for each, recorded_in in self._recorded_in.items() if not recorded_in or recorded_in[-1] in file_ids
        ]


def encode_declared(queues: Iterable[Destination]) -> Trace:
    """Return the trace record that declares queues."""
    return Trace(DECLARED_PREFIX + json.dumps([each.name for each in queues], separators=(",", ":")))


def decode_declared(text: str) -> list[Destination]:
    """Return the queues that a trace record declares; none if its text is not ours."""
    try:
        names: object = json.loads(text.removeprefix(DECLARED_PREFIX))
    except (ValueError, RecursionError):
        return []
    if not isinstance(names, list):
        return []
    return [queue(each) for each in cast("list[object]", names) if isinstance(each, str) and each]
