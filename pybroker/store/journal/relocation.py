"""Selects small live records that alone keep data files of garbage, so that they are written again. Pure decisions.

Some records live for long and change rarely: those of MQTT sessions and retained messages (see `reserved_queues`), and
durable subscriptions without pending messages. One of them keeps its data file; the acks for that file's dead messages
keep the next file, and so on (see `cleanup`): a journal of a gigabyte may stay for one kilobyte, and a recovery reads
all of it.

```text
db-1  session, dead a  <--ack a--  db-2  ack a, dead b  <--ack b--  db-3   …   db-9 (being written)
db-1  dead a           <--ack a--  db-2  ack a, dead b  <--ack b--  db-3   …   db-9  session      db-1 to db-8 can go
```

What is written again is a record like any other, so a crash between any two steps is safe: the former record counts
until the new one is on disk, and files are removed only after that. The order of a queue's messages does not change:
messages of clients are never moved, and a reserved queue has one record for each key, whose order has no meaning.

A durable subscription is moved only while it has no pending messages. ActiveMQ 5.17 (`MessageDatabase.updateIndex`)
takes its record for an ack of the topic's newest message: it does not deliver that one if it is the only pending one,
and versions without the pending ids of subscriptions deliver none.

The rule is one of size. A record is moved if that frees at least `MOVED_SHARE` times its bytes. A byte of the journal
is freed once, so at most one byte in `MOVED_SHARE` of all that is written is written for this.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.reserved_queues import RECORD_PREFIXES, RESERVED_QUEUES
from pybroker.store.journal.cleanup import VISITED_AT_ONCE, SubscriptionFiles, unreferenced
from pybroker.store.journal.contents import FILE_SHIFT, SIZE_SHIFT
from pybroker.store.journal.state import StoreState

MOVED_SHARE = 8
"""Bytes of removed files for each byte that is moved. With a few kilobytes in a file of 32 MB it hardly matters; a file
of which more than an eighth is alive is worth its place."""

MOVED_BYTES_MAX = 1 << 20
"""Bytes moved after one collection, apart from the rest of the file that reaches it: some milliseconds of writing."""

RECORD_REST_BYTES = 512
"""Estimated bytes of a moved record beside its body: names, ids, the removal of the former record, and the commit."""

TRIED_MAX = 8
"""Files tried one by one for what others they keep: each try takes as long as a selection of files to remove."""

_SIZE_MASK = 2**31 - 1


class RecordFiles:
    """The records on reserved queues by data file, once all of them were visited.

    Attributes:
        byte_counts: by file, the bytes that moving its records takes.
    """

    def __init__(self, state: StoreState, keep_from: int) -> None:
        """Begin without any; files from `keep_from` on, the one that is being written, do not count."""
        self.byte_counts: dict[int, int] = {}
        self._state = state
        self._keep_from = keep_from
        self._found: dict[int, dict[Destination, list[str]]] = {}

    def visit(self) -> Iterator[None]:
        """Visit the records; yields after each `VISITED_AT_ONCE` of them."""
        for queue in RESERVED_QUEUES:
            contents = self._state.destinations.get(queue)
            messages = {} if contents is None else contents.messages
            if not isinstance(messages, dict):
                continue  # a snapshot's that are not materialised: the next collection finds them
            for number, message_id in enumerate(list(messages), 1):  # no items: 100,000 tuples take 20 ms
                packed = messages.get(message_id, 0)  # 0: it was removed since
                file_id = packed >> FILE_SHIFT
                if 0 < file_id < self._keep_from and message_id.startswith(RECORD_PREFIXES):
                    self._found.setdefault(file_id, {}).setdefault(queue, []).append(message_id)
                    byte_count = (packed >> SIZE_SHIFT & _SIZE_MASK) + RECORD_REST_BYTES
                    self.byte_counts[file_id] = self.byte_counts.get(file_id, 0) + byte_count
                if not number % VISITED_AT_ONCE:
                    yield

    def others(self) -> set[int]:
        """Return the files that have live messages besides these records."""
        counts = {file_id: sum(map(len, found.values())) for file_id, found in self._found.items()}
        return {file_id for file_id, count in self._state.usage.live.items() if count > counts.get(file_id, 0)}

    def of(self, file_id: int) -> Mapping[Destination, Sequence[str]]:
        """Return the message ids of the records in a file, by queue."""
        return self._found.get(file_id, {})


def relocatable(
    state: StoreState, sizes: Mapping[int, int], subscriptions: SubscriptionFiles, records: RecordFiles
) -> list[int]:
    """Return the data files whose records are to be written again, in ascending order.

    Args:
        state: the store's.
        sizes: the bytes of each data file.
        subscriptions: what the durable subscriptions need.
        records: the records on reserved queues.
    """
    if state.is_in_pieces:
        return []
    movable: dict[int, int] = {}
    for byte_counts in (records.byte_counts, subscriptions.movable_bytes()):
        for file_id, byte_count in byte_counts.items():
            movable[file_id] = movable.get(file_id, 0) + byte_count
    pinned = records.others() | state.transaction_files() | subscriptions.unmovable
    candidates = {file_id: count for file_id, count in movable.items() if file_id not in pinned and file_id in sizes}
    if not candidates:
        return []
    found = worth_moving(state.usage.references, sizes, subscriptions.keep_from, pinned, candidates)
    chosen: list[int] = []
    byte_count = 0
    for file_id in found:
        if byte_count < MOVED_BYTES_MAX:
            chosen.append(file_id)
            byte_count += candidates[file_id]
    return chosen


def worth_moving(
    references: Mapping[int, Collection[int]],
    sizes: Mapping[int, int],
    keep_from: int,
    pinned: Collection[int],
    movable: Mapping[int, int],
) -> list[int]:
    """Return the files whose records are worth moving: at most one byte moved in `MOVED_SHARE` bytes of files freed.

    Args:
        references: per file the files whose records it voids.
        sizes: the bytes of each existing file.
        keep_from: the file that is being written; it and all above stay.
        pinned: files that something else keeps.
        movable: by file, the bytes to be moved so that nothing in it keeps it.
    """

    def freed(moved: Collection[int]) -> set[int]:
        kept = {file_id for file_id in movable if file_id not in moved}
        return set(unreferenced(references, sizes, keep_from, kept.union(pinned)))

    chosen = {file_id for file_id, count in movable.items() if count * MOVED_SHARE <= sizes[file_id]}
    going = freed(chosen)
    for file_id in sorted(movable.keys() - chosen)[:TRIED_MAX]:
        tried = chosen | {file_id}
        gain = freed(tried) - going
        cost = sum(movable[each] for each in gain & tried)
        if file_id in gain and cost * MOVED_SHARE <= sum(sizes[each] for each in gain):
            chosen = tried
            going |= gain
    return sorted(chosen & going)
