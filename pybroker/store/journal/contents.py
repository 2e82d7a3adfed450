"""Parts of the store's state: messages by location, subscriptions, unfinished transactions, use of files.

Records of data only; the rules by which they change are in `state`.
"""

import enum
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT
from pybroker.store.journal.format import Location
from pybroker.store.journal.snapshot_messages import Messages, SnapshotMessages

# A million of `Entry` would take 250 MB and give the garbage collector as many objects to visit. The state
# therefore keeps each as one int: file id (31 bits), offset (31), size (31), priority class (2).
FILE_SHIFT = 64
"""A packed entry shifted right by this is its file id."""
OFFSET_SHIFT = 33
SIZE_SHIFT = 2
_MASK_31 = 2**31 - 1


class PriorityClass(enum.IntEnum):
    """The order in which a store that supports priorities gives its messages back."""

    HIGH = 0
    DEFAULT = 1
    LOW = 2


class Entry(NamedTuple):
    """A message the store holds.

    Attributes:
        message_id: what acks name.
        location: where the record with its current version lies.
        size: bytes of its OpenWire form.
        priority_class: dispatched class by class.
    """

    message_id: str
    location: Location
    size: int
    priority_class: PriorityClass


def pack(location: Location, size: int, priority: int, priority_supported: bool) -> int:
    """Return a message's entry in one int; its id is kept apart."""
    file_id, offset = location
    return (
        file_id << FILE_SHIFT
        | offset << OFFSET_SHIFT
        | size << SIZE_SHIFT
        | pack_priority(priority, priority_supported)
    )


def pack_priority(priority: int, priority_supported: bool) -> int:
    """Return the priority class's part of a packed entry."""
    if priority_supported and priority != PRIORITY_DEFAULT:
        return 0 if priority > PRIORITY_DEFAULT else 2
    return 1


def in_order(messages: Messages, *, prioritized: bool) -> list[str]:
    """Return message ids in dispatch order: by class where priorities count, then by age.

    By age it takes some milliseconds for a million.
    """
    if not prioritized:
        return list(messages)
    classes: tuple[list[str], ...] = ([], [], [])
    for message_id, packed in messages.items():
        classes[packed & 3].append(message_id)
    return [*chain(*classes)]


def unpack(message_id: str, packed: int) -> Entry:
    """Return the entry in a packed int."""
    return Entry(
        message_id,
        Location(packed >> FILE_SHIFT, packed >> OFFSET_SHIFT & _MASK_31),
        packed >> SIZE_SHIFT & _MASK_31,
        PriorityClass(packed & 3),
    )


class FileUsage:
    """Reasons to keep data files.

    Attributes:
        live: how many live messages each file holds, older versions and duplicates included.
        references: per file, the files whose records it makes void: a file with an ack, an outcome or an
            unsubscription must stay as long as any file with a record that it answers.
    """

    __slots__ = ("live", "references")

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.references: dict[int, set[int]] = {}

    def refer(self, file_id: int, to: Iterable[int]) -> None:
        """Record that a file has records that void records of other files (or of itself, which is ignored)."""
        known = self.references.get(file_id)
        if known is None:
            known = self.references[file_id] = set()
        known.update(to)
        known.discard(file_id)

    def acquire(self, file_id: int, count: int = 1) -> None:
        """Count live messages."""
        self.live[file_id] = self.live.get(file_id, 0) + count

    def release(self, file_id: int, count: int = 1) -> None:
        """Count live messages no more."""
        left = self.live[file_id] - count
        if left:
            self.live[file_id] = left
        else:
            del self.live[file_id]

    def forget(self, file_ids: Iterable[int]) -> None:
        """Record that these files are gone."""
        gone = set(file_ids)
        for file_id in gone:
            self.references.pop(file_id, None)
        for referred in self.references.values():
            referred -= gone


class Subscription:
    """A durable subscription to one concrete topic.

    Attributes:
        info: OpenWire `SubscriptionInfo`, the latest.
        location: of the record with that info.
        files: all files that have a record of its creation or change since it came to be.
        pending: ids of the messages it still has to get.
    """

    __slots__ = ("files", "info", "location", "pending")

    def __init__(self, info: bytes, location: Location) -> None:
        self.info = info
        self.location = location
        self.files = {location.file_id}
        self.pending: set[str] = set()


class Contents:
    """Contents of a destination.

    Attributes:
        is_topic: messages are for subscriptions.
        messages: packed entries by message id, in the order of their numbers; a dictionary once materialised.
        superseded: files with other records of a message (a version before an update, a duplicate), by message
            id. Nearly always empty.
        subscriptions: a topic's durable subscriptions by key; empty on queues.
        pending_counts: how many subscriptions still have to get a topic's message; empty on queues.
        recalls: what retroactive subscriptions are still given of it; nearly always empty.
    """

    __slots__ = ("is_topic", "messages", "pending_counts", "recalls", "subscriptions", "superseded")

    def __init__(self, *, is_topic: bool) -> None:
        self.is_topic = is_topic
        self.messages: Messages = {}
        self.superseded: dict[str, set[int]] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.pending_counts: dict[str, int] = {}
        self.recalls: list[Recall] = []

    def materialise(self) -> dict[str, int]:
        """Return the messages as a dictionary, which they are from here on."""
        messages = self.messages
        if isinstance(messages, SnapshotMessages):
            messages = self.messages = messages.materialised()
        return messages


class Recall:
    """A retroactive subscription that is given, some at a time, what its topic had when it began.

    What it has not been given yet is in the topic for it all the same: no acknowledgement of others removes that.

    Attributes:
        subscription: the subscription.
        left: ids that it has not been given yet.
        acknowledged: ids that it has acknowledged meanwhile.
    """

    __slots__ = ("acknowledged", "left", "subscription")

    def __init__(self, subscription: Subscription, ids: list[str]) -> None:
        self.subscription = subscription
        self.left = ids
        self.acknowledged: set[str] = set()

    def owes(self, message_id: str) -> bool:
        """Return True if a message of the topic is still to be given; not for one that came later, and is given."""
        return message_id not in self.subscription.pending and message_id not in self.acknowledged


class Added(NamedTuple):
    """An add that waits for its transaction's outcome."""

    destination: Destination
    message_id: str
    packed: int

    @property
    def entry(self) -> Entry:
        """The message, once committed."""
        return unpack(self.message_id, self.packed)


class Removed(NamedTuple):
    """An acknowledgement that waits for its transaction's outcome."""

    destination: Destination
    message_id: str
    subscription_key: str | None
    file_id: int


class UnfinishedTransaction:
    """A transaction that has not ended, or whose commit is being applied.

    Attributes:
        operations: in the order in which they will take effect.
        files: where its records lie.
    """

    __slots__ = ("files", "operations")

    def __init__(self) -> None:
        self.operations: list[Added | Removed] = []
        self.files: set[int] = set()


class Committing:
    """A committed transaction, and what was appended behind its commit that its operations come before.

    Attributes:
        steps: apply its operations.
        removed: destinations that were removed since, each with the file of the record.
        subscribed: by topic, the keys of the durable subscriptions that have begun since.
    """

    __slots__ = ("removed", "steps", "subscribed")

    def __init__(self) -> None:
        self.steps: Iterator[int] = iter(())
        self.removed: dict[Destination, int] = {}
        self.subscribed: dict[Destination, set[str]] = {}
