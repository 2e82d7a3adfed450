"""Cached message ids of long queues: a standby lists them before a promotion, so that the new master need not.

A dictionary of a million messages takes some 20 ms to list, because its ids are scattered in memory. A standby has the
time for that while it waits. Later changes are mostly at the two ends of the list, and only the ends are compared:

```text
cached               a  b  c  d  e  f  g  h
messages by now            c     e  f  g  h  i  j        a, b and d were consumed, i and j have come
                     '- look here ----'    '--'- and here: from the newest back to the last one cached
```
"""

from pybroker.broker.domain.destination import Destination
from pybroker.store.journal.contents import FILE_SHIFT, OFFSET_SHIFT, Added
from pybroker.store.journal.format import Location
from pybroker.store.journal.snapshot_messages import Messages
from pybroker.store.journal.state import StoreState

LONG_QUEUE = 10_000
"""Queues with fewer messages are not cached: to list them takes less than 0.2 ms."""


class IdCache:
    """The cached ids of one state. Used by one thread at a time."""

    def __init__(self) -> None:
        self._ids: dict[Destination, list[str]] = {}
        self._lowest_place = 0

    def refresh(self, state: StoreState, end: Location) -> None:
        """Cache the ids of all long queues of a state that has applied the journal up to that end."""
        self._ids = {
            queue: self.pop(queue, messages)
            for queue in state.queues()
            if len(messages := state.destinations[queue].messages) >= LONG_QUEUE
        }
        self._lowest_place = _lowest_later_place(state, end)

    def pop(self, queue: Destination, messages: Messages) -> list[str]:
        """Remove a queue's ids from the cache and return them in order, brought up to date with its messages."""
        return updated_ids(self._ids.pop(queue, []), messages, self._lowest_place)


def _lowest_later_place(state: StoreState, end: Location) -> int:
    """Return the lowest place that a later message can have; a message in a transaction is added at its commit."""
    places = [end.file_id << FILE_SHIFT | end.offset << OFFSET_SHIFT]
    for transactions in (state.inflight, state.prepared):
        for transaction in transactions.values():
            places += [each.packed for each in transaction.operations if isinstance(each, Added)]
    return min(places)


def updated_ids(listed: list[str], messages: Messages, mark: int) -> list[str]:
    """Return the ids of messages in their order, from a list that is out of date.

    Args:
        listed: the ids at some earlier time; the list is changed.
        messages: as they are now. Since then messages were removed, and others added at the end.
        mark: all messages added since have this place or a higher one, which shows that a message was removed and added
            again. One that only moved is treated the same way, which only costs time.
    """
    end = len(listed)
    while end and messages.get(listed[end - 1], mark) >= mark:
        end -= 1
    if not end:
        return list(messages)
    last = listed[end - 1]
    newer: list[str] = []
    for message_id in reversed(messages):
        if message_id == last:
            break
        newer.append(message_id)
    # Each removed message counts one. So does each that was added again: it is among the newer ones, and found as
    # present.
    gone = end + len(newer) - len(messages)
    kept: list[str] = []
    at = 0
    while gone and at < end:
        message_id = listed[at]
        at += 1
        if message_id in messages:
            kept.append(message_id)
        else:
            gone -= 1
    if gone:
        return list(messages)
    newer.reverse()
    listed[end:] = newer
    listed[:at] = kept
    return listed
