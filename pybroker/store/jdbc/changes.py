"""The net effect of a batch of changes, written as one transaction. Pure.

Order within a batch does not matter to the tables, since every message has an id: a batch keeps the net effect. A
message that was added and consumed within it is left out. The rest becomes a few statements of many rows, in an order
that suits all: clear, delete, insert, mark, renumber, subscriptions, metadata (see `statements`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from pybroker.store.jdbc.xid import SENT_PREFIX

OPERATION_BYTES = 100
"""Bytes counted for a change beside its message."""


class MessageRow(NamedTuple):
    """A row of `activemq_msgs` without its id."""

    container: str
    producer_id: str
    producer_sequence: int
    expiration: int
    data: bytes
    priority: int
    xid: str | None


class SubscriptionKey(NamedTuple):
    """Key of a durable subscription."""

    container: str
    client_id: str
    name: str


class LaneRow(NamedTuple):
    """Changes in a row of `activemq_acks`."""

    last_acked_id: int
    priority: int
    xid: str | None


class SubscriptionRows(NamedTuple):
    """A durable subscription as it is to be written.

    Attributes:
        lanes: its rows.
        description: subscribed destination, selector, no-local and user; None: only the lanes have changed.
    """

    lanes: tuple[LaneRow, ...]
    description: tuple[str, str | None, bool, str | None] | None


class ApartKey(NamedTuple):
    """An acknowledgement ahead of the cursor; with a transaction's id, one that waits for its outcome."""

    subscription: SubscriptionKey
    sequence: int
    xid: str


@dataclass(slots=True)
class Changes:
    """A batch. `touched` is True if it had changes, also when they cancelled out.

    Attributes:
        is_long: it may take the database as long as it takes: it deletes a whole destination.
        inserted: rows by sequence id.
        deleted: sequence ids.
        marked: sequence ids whose `xid` is set.
        renumbered: new sequence id to the old one and the container: a prepared message is committed.
        cleared: container to the sequence id up to which its messages go, with its subscriptions.
        dropped: subscriptions that go.
        subscriptions: what to write of those that are there, filled in when the batch is taken.
        declared: containers of queues that exist while they are empty, or do no more.
        apart: acknowledgements ahead of the cursors, with the message's id; and those to delete.
        producers: the highest sequence number of each producer, where it has grown.
        producers_id: the number of this in the log of them; filled in when the batch is taken.
        starts_producer_log: these are all, and what the log had before goes.
        prepared: by transaction's key, the position and if ActiveMQ's tables name it; None: it is over.
        delivered: at a clean stop, the record of the messages that consumers have seen.
    """

    touched: bool = False
    byte_count: int = 0
    is_long: bool = False
    inserted: dict[int, MessageRow] = field(default_factory=dict[int, MessageRow])
    deleted: list[int] = field(default_factory=list[int])
    marked: dict[int, str | None] = field(default_factory=dict[int, str | None])
    renumbered: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    cleared: dict[str, int] = field(default_factory=dict[str, int])
    dropped: set[SubscriptionKey] = field(default_factory=set[SubscriptionKey])
    subscriptions: dict[SubscriptionKey, SubscriptionRows] = field(
        default_factory=dict[SubscriptionKey, SubscriptionRows]
    )
    declared: dict[str, bool] = field(default_factory=dict[str, bool])
    apart: dict[ApartKey, str] = field(default_factory=dict[ApartKey, str])
    apart_deleted: set[ApartKey] = field(default_factory=set[ApartKey])
    producers: dict[str, int] = field(default_factory=dict[str, int])
    producers_id: int = 0
    starts_producer_log: bool = False
    prepared: dict[str, tuple[int, bool] | None] = field(default_factory=dict[str, tuple[int, bool] | None])
    delivered: str | None = None

    def count(self, byte_count: int = 0) -> None:
        """Note a change of that size."""
        self.touched = True
        self.byte_count += OPERATION_BYTES + byte_count

    def insert(self, sequence: int, row: MessageRow) -> None:
        """Add a message."""
        self.count(len(row.data))
        self.inserted[sequence] = row

    def delete(self, sequence: int) -> None:
        """Delete a message, or never write it."""
        self.count()
        self.marked.pop(sequence, None)
        if self.inserted.pop(sequence, None) is None:
            old = self.renumbered.pop(sequence, None)
            self.deleted.append(sequence if old is None else old[0])

    def mark(self, sequence: int, xid: str | None) -> None:
        """Set or clear a message's `xid`."""
        self.count()
        row = self.inserted.get(sequence)
        if row is None:
            self.marked[sequence] = xid
        else:
            self.inserted[sequence] = row._replace(xid=xid)

    def renumber(self, old: int, new: int, container: str) -> None:
        """Make a prepared message visible, under a new id."""
        self.count()
        row = self.inserted.pop(old, None)
        if row is None:
            self.renumbered[new] = (old, container)
        else:
            self.inserted[new] = row._replace(xid=None)

    def clear(self, container: str, through: int) -> None:
        """Delete all that a destination holds so far, and its subscriptions; what prepared transactions sent stays."""
        self.count()
        self.cleared[container] = through
        self.is_long = True
        for sequence in [s for s, row in self.inserted.items() if row.container == container and not _is_sent(row)]:
            del self.inserted[sequence]
        for sequence in [s for s, (_, other) in self.renumbered.items() if other == container]:
            self.deleted.append(self.renumbered.pop(sequence)[0])
        self._forget_apart(lambda key: key.container == container)
        self.declared.pop(container, None)

    def drop(self, key: SubscriptionKey, apart_count: int = 0) -> None:
        """Delete a durable subscription, with so many acknowledgements ahead of its cursors."""
        self.count(apart_count * OPERATION_BYTES)
        self.dropped.add(key)
        self._forget_apart(lambda other: other == key)

    def add_apart(self, key: ApartKey, message_id: str) -> None:
        """Record an acknowledgement ahead of the cursor."""
        self.count()
        self.apart[key] = message_id

    def delete_apart(self, key: ApartKey) -> None:
        """Delete an acknowledgement ahead of the cursor."""
        self.count()
        if self.apart.pop(key, None) is None:
            self.apart_deleted.add(key)

    def _forget_apart(self, is_gone: Callable[[SubscriptionKey], bool]) -> None:
        for key in [key for key in self.apart if is_gone(key.subscription)]:
            del self.apart[key]


def _is_sent(row: MessageRow) -> bool:
    """Return True if a row was sent by a prepared transaction."""
    return row.xid is not None and row.xid.startswith(SENT_PREFIX)
