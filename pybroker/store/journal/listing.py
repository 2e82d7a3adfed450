"""Message ids of long queues, listed ahead of a promotion, so that the new master need not walk through a backlog.

A dictionary of a million messages takes some 20 ms to list: its ids lie all over the memory. A standby has the time for
that while it waits. What has changed since is mostly at the two ends, and found by looking there:

```text
listed ahead         a  b  c  d  e  f  g  h
messages by now            c     e  f  g  h  i  j        a, b and d were consumed, i and j have come
                     '- look here ----'    '--'- and here: from the newest back to the last one listed
```
"""

from pybroker.broker.domain.destination import Destination
from pybroker.store.journal.contents import FILE_SHIFT, OFFSET_SHIFT, Added
from pybroker.store.journal.format import Location
from pybroker.store.journal.indexed import Messages
from pybroker.store.journal.state import StoreState

LONG_QUEUE = 10_000
"""Messages from which on it is worth it: 0.2 ms."""


class Listing:
    """The lists of one state. Used by one thread at a time."""

    def __init__(self) -> None:
        self._listed: dict[Destination, list[str]] = {}
        self._mark = 0

    def refresh(self, state: StoreState, end: Location) -> None:
        """List the ids of all long queues of a state, which has taken in the journal up to that end."""
        self._listed = {
            queue: self.take(queue, messages)
            for queue in state.queues()
            if len(messages := state.destinations[queue].messages) >= LONG_QUEUE
        }
        self._mark = _oldest_to_come(state, end)

    def take(self, queue: Destination, messages: Messages) -> list[str]:
        """Return the ids of a queue's messages in their order; the list is the caller's own."""
        return up_to_date(self._listed.pop(queue, []), messages, self._mark)


def _oldest_to_come(state: StoreState, end: Location) -> int:
    """Return what the place of each message that comes later is not below; one in a transaction comes at its commit."""
    places = [end.file_id << FILE_SHIFT | end.offset << OFFSET_SHIFT]
    for transactions in (state.inflight, state.prepared):
        for transaction in transactions.values():
            places += [each.packed for each in transaction.operations if isinstance(each, Added)]
    return min(places)


def up_to_date(listed: list[str], messages: Messages, mark: int) -> list[str]:
    """Return the ids of messages and their places, in their order.

    Args:
        listed: what they were some time ago: a list that may be used up for it.
        messages: as they are now. Since then messages went, and others came behind all that were there.
        mark: whatever came since has this place or a higher one. By that a message is known that went and came again;
            one that merely has moved is taken for such a one, which costs time only.
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
    # Each that went counts one. So does each that came again: it is among the newer ones, and never found to be gone.
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
