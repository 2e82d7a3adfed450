"""Message groups of one queue: the consumer that owns a group gets all its messages.

```text
              a message of the group,          a later message            JMSXGroupSeq < 0
              or one with JMSXGroupSeq 1       to the owner               to the owner
   UNOWNED  --------------------------> OWNED ------------------> OWNED ------------------> UNOWNED
              first for its consumer      |
                                          +-- the owner leaves, or 1024 others were used since --> UNOWNED
```

As in ActiveMQ, a message with JMSXGroupSeq -1 of a group without an owner makes its consumer the owner.

Source: ActiveMQ 5.17, `QueueDispatchSelector`, `CachedMessageGroupMap`.
"""

import hashlib
from collections import Counter, OrderedDict
from typing import Final

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import MessageType

NAME_REMEMBERED_MAX: Final = 100

GROUPS_MAX = 1024
"""Groups whose owner is remembered per queue; ActiveMQ's default."""


class MessageGroups:
    """The groups of one queue.

    Attributes:
        reopened: the lowest sequence number of messages that waited for an owner that their group has lost since; None
            if there are none. Other consumers have skipped these messages, and must search them again.
    """

    __slots__ = ("_counts", "_owners", "_passed_over", "reopened")

    def __init__(self) -> None:
        self._owners: OrderedDict[str, BrokerConsumer] = OrderedDict()  # the one not used for longest first
        self._counts: Counter[BrokerConsumer] = Counter()
        self._passed_over: dict[str, int] = {}
        self.reopened: int | None = None

    def owner(self, message: Message) -> BrokerConsumer | None:
        """Return the only consumer that may get a message; None if any may, and then owns the group."""
        return None if message.group_sequence == 1 else self._owners.get(_key(message))

    def count(self, consumer: BrokerConsumer) -> int:
        """Return how many groups a consumer owns."""
        return self._counts[consumer]

    def passed_over(self, message: Message, sequence: int) -> None:
        """Record that a message waits for the owner of its group."""
        group_id = _key(message)
        self._passed_over[group_id] = min(sequence, self._passed_over.get(group_id, sequence))

    def deliver(self, message: Message, consumer: BrokerConsumer) -> bool:
        """Record that a consumer gets a message; return True if it is the group's first for this consumer."""
        group_id = _key(message)
        if self.owner(message) is consumer:
            if message.group_sequence < 0:
                self._release(group_id)
            else:
                self._owners.move_to_end(group_id)
            return False
        self._release(group_id)
        self._owners[group_id] = consumer
        self._counts[consumer] += 1
        if len(self._owners) > GROUPS_MAX:
            self._release(next(iter(self._owners)))
        return True

    def leave(self, consumer: BrokerConsumer) -> None:
        """Remove a consumer as the owner of its groups."""
        if consumer not in self._counts:
            return
        for group_id in [group_id for group_id, owner in self._owners.items() if owner is consumer]:
            self._release(group_id)

    def _release(self, group_id: str) -> None:
        owner = self._owners.pop(group_id, None)
        if owner is None:
            return
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
        if (sequence := self._passed_over.pop(group_id, None)) is not None:
            self.reopened = sequence if self.reopened is None else min(sequence, self.reopened)


def _key(message: Message) -> str:
    """Return what a group is remembered by: its name, or a digest of a long one, as names may have 64 kB."""
    name = message.group_id or ""
    if len(name) <= NAME_REMEMBERED_MAX:
        return name
    return f"{hashlib.blake2b(name.encode('utf-8', 'surrogatepass')).hexdigest()} of {len(name)} characters"


class FirstOfGroup(Message):
    """A message with the flag `JMSXGroupFirstForConsumer`: the first of its group that its consumer gets.

    Attributes:
        flag: the byte that the flag has replaced; a message that is not settled gets it back.
    """

    __slots__ = ("flag",)

    def __init__(self, original: Message) -> None:
        super().__init__(
            message_id=original.message_id,
            destination=original.destination,
            data=original.data[:-1] + b"\1",
            persistent=original.persistent,
            priority=original.priority,
            expiration=original.expiration,
            connection_id=original.connection_id,
            payload_size=original.payload_size,
            group_id=original.group_id,
            group_sequence=original.group_sequence,
        )
        self.flag = original.data[-1:]


def first_of_group(message: Message) -> Message:
    """Return a copy with the flag `JMSXGroupFirstForConsumer`, which is the last byte of a message.

    A BlobMessage, which has more fields behind it, is returned as it is; so is one that does not end as it should.
    """
    if message.data[0] == MessageType.BLOB or message.data[-1] > 1:
        return message
    return FirstOfGroup(message)


def without_flag(message: Message) -> Message:
    """Return the message without the flag `JMSXGroupFirstForConsumer`."""
    if not isinstance(message, FirstOfGroup):
        return message
    return Message(
        message_id=message.message_id,
        destination=message.destination,
        data=message.data[:-1] + message.flag,
        persistent=message.persistent,
        priority=message.priority,
        expiration=message.expiration,
        connection_id=message.connection_id,
        payload_size=message.payload_size,
        group_id=message.group_id,
        group_sequence=message.group_sequence,
    )
