"""The part of the tables' contents that is kept in memory: ids, and the subscriptions they wait for. Pure.

ActiveMQ keeps one number per durable subscription: all messages up to `last_acked_id` are acknowledged. Here every
message is acknowledged by itself, in any order. So a subscription has a cursor that moves on over what is acknowledged
without a gap, and a record of each message that is acknowledged ahead of it:

```text
ids of the topic    3  4  5  6  7  8  9
acknowledged        x  x  x  .  x  .  .      cursor 5, apart {7}
```

The cursor goes to ActiveMQ's table, what is apart to one of our own. An ActiveMQ that takes over delivers 7 again: at
least once, as promised. With prioritized messages there is one such lane per priority, as in ActiveMQ's table.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT
from pybroker.broker.domain.recovery import PreparedAck
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import XATransactionId

PRIORITY_BITS = 4
PRIORITY_MASK = (1 << PRIORITY_BITS) - 1
PRIORITIES = range(10)


class Lane:
    """One row of a durable subscription: how far it is.

    Attributes:
        priority: of the messages it is about; 0 where there is only one lane.
        cursor: all up to this id is acknowledged; what ActiveMQ calls `last_acked_id`.
        last: the highest id that ever was for this lane, or the cursor.
        pending: ids that are not acknowledged, those included that a prepared transaction acknowledges.
        apart: acknowledged ids ahead of the cursor, each with its message id.
        doubts: per prepared transaction, in the order of preparation, the ids that it acknowledges.
    """

    __slots__ = ("_order", "apart", "cursor", "doubts", "last", "pending", "priority")

    def __init__(self, priority: int, cursor: int) -> None:
        self.priority = priority
        self.cursor = cursor
        self.last = cursor
        self.pending: set[int] = set()
        self.apart: dict[int, str] = {}
        self.doubts: dict[XATransactionId, dict[int, str]] = {}
        self._order: deque[int] = deque()

    def add(self, sequence: int) -> None:
        """Add a message; ids come in ascending order."""
        self.pending.add(sequence)
        self._order.append(sequence)
        self.last = sequence

    def add_apart(self, sequence: int, message_id: str) -> None:
        """Add a message that is acknowledged ahead of the cursor; ids come in ascending order."""
        self.apart[sequence] = message_id
        self._order.append(sequence)
        self.last = sequence

    def settle(self, sequence: int, message_id: str) -> list[int]:
        """Acknowledge a pending message; return the ids that the cursor has passed and that are apart no more.

        Each id is passed once, so that the cost of an acknowledgement does not grow with the number of those apart.
        """
        self.pending.discard(sequence)
        order, apart = self._order, self.apart
        passed: list[int] = []
        while order and order[0] not in self.pending:
            if apart.pop(order[0], None) is not None:
                passed.append(order[0])
            order.popleft()
        self.cursor = order[0] - 1 if order else self.last
        if sequence > self.cursor:
            apart[sequence] = message_id
        return passed

    def forget(self, sequence: int) -> bool:
        """Remove a deleted message; return True if it was apart."""
        return self.apart.pop(sequence, None) is not None

    def reach(self, sequences: Iterable[int]) -> int:
        """Return where the cursor would be if these were acknowledged too."""
        settled = set(sequences)
        for sequence in self._order:
            if sequence in self.pending and sequence not in settled:
                return sequence - 1
        return self.last


class JdbcSubscription:
    """A durable subscription with its lanes: one, or one per priority."""

    __slots__ = ("info", "lanes")

    def __init__(self, info: DurableSubscription, lanes: Iterable[Lane]) -> None:
        self.info = info
        self.lanes = tuple(lanes)

    def lane(self, packed: int) -> Lane:
        """Return the lane of a message."""
        if len(self.lanes) == 1:
            return self.lanes[0]
        return self.lanes[min(packed & PRIORITY_MASK, len(self.lanes) - 1)]

    def has_pending(self, packed: int) -> bool:
        """Return True if a message is pending for this subscription."""
        return packed >> PRIORITY_BITS in self.lane(packed).pending


@dataclass(slots=True)
class JdbcContents:
    """A destination.

    Attributes:
        container: its name in the tables.
        messages: message id to sequence id and priority, see `pack`; in ascending order.
        subscriptions: of a topic, by key.
        waiting: of a topic, per sequence id for how many subscriptions it is pending.
        is_declared: a queue that is there while it is empty.
    """

    container: str
    messages: dict[str, int] = field(default_factory=dict[str, int])
    subscriptions: dict[str, JdbcSubscription] = field(default_factory=dict[str, JdbcSubscription])
    waiting: dict[int, int] = field(default_factory=dict[int, int])
    is_declared: bool = False


class Sent(NamedTuple):
    """A message in the tables that appears with a transaction's commit."""

    destination: Destination
    message_id: str
    packed: int


@dataclass(slots=True)
class Doubt:
    """A prepared transaction.

    Attributes:
        position: its place in the order of preparation.
        sent: in the order of the sends.
        settled: what goes with its commit, with the message's packed number; to be added to by `hold`.
        queued: of these, messages of queues; those that are gone may be missing.
        subscriptions: of these, the durable subscriptions, by topic and key.
        is_marked: True while rows of ActiveMQ's tables name it, as far as the tables know that.
    """

    position: int
    sent: list[Sent] = field(default_factory=list[Sent])
    settled: list[tuple[PreparedAck, int]] = field(default_factory=list[tuple[PreparedAck, int]])
    queued: list[tuple[PreparedAck, int]] = field(default_factory=list[tuple[PreparedAck, int]])
    subscriptions: set[tuple[Destination, str]] = field(default_factory=set[tuple[Destination, str]])
    is_marked: bool = True

    def hold(self, settled: PreparedAck, packed: int) -> None:
        """Add what goes with the commit."""
        self.settled.append((settled, packed))
        if settled.subscription_key is None:
            self.queued.append((settled, packed))
        else:
            self.subscriptions.add((settled.destination, settled.subscription_key))


def pack(sequence: int, priority: int) -> int:
    """Return sequence id and priority in one number."""
    return sequence << PRIORITY_BITS | priority & PRIORITY_MASK


def pending(contents: JdbcContents, subscription: JdbcSubscription) -> Iterator[str]:
    """Yield the ids of what waits for a subscription, by age."""
    return (message_id for message_id, packed in contents.messages.items() if subscription.has_pending(packed))


def by_class(messages: Iterable[tuple[str, int]]) -> list[str]:
    """Return message ids by the three priority classes (above, at, below 4), by age in each."""
    classes: tuple[list[str], ...] = ([], [], [])
    for message_id, packed in messages:
        priority = packed & PRIORITY_MASK
        classes[0 if priority > PRIORITY_DEFAULT else 1 + (priority < PRIORITY_DEFAULT)].append(message_id)
    return [*classes[0], *classes[1], *classes[2]]
