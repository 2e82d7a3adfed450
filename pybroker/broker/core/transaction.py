"""A transaction, local or XA: what was sent and acknowledged that does not count yet.

The store has its operations already, marked with the transaction; its commit record makes them count (KahaDB:
operations are journalled when they happen, the commit decides). Here they wait for the same moment, and sends moreover
until the commit is on disk: a consumer must never see half of a transaction that a crash then undoes. How much memory
they may take meanwhile, `uncommitted` says.

```text
           send, acknowledge
              +------+                XA only
              v      |      +------- prepare --> PREPARED ---+   outlives its connection and the process
  begin --> OPEN ----+------+                                |
              |             +--------------------------------+--- commit --> sends enqueued, acknowledgements settled
              +---------------- rollback --------------------+-------------> sends gone, references outstanding again
```

A transaction of which a part failed is doomed: its commit rolls it back and says so. Nothing is added to one that is
prepared, and nothing dooms it: its coordinator was told that it can be committed.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from pybroker.broker.core.consumer import Consumer, Owner, take_back
from pybroker.broker.core.containment import attempt
from pybroker.broker.core.gate import Gate, Unread
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.uncommitted import Send, Target, Uncommitted
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import TransactionError, TransactionRolledBack
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import MessageStore
from pybroker.broker.domain.transaction import TransactionId, XATransactionId

_log = logging.getLogger(__name__)

OPERATIONS_MAX = 1_000_000
"""Ids of what a transaction does are in memory until it ends; this many operations are surely a mistake."""


class Transaction:
    """One open or prepared transaction.

    Attributes:
        id: which.
        owner: the connection that began it, with whose end it is rolled back; None once it is prepared, and for those
            that no client began.
        prepared: only its outcome ends it.
    """

    __slots__ = (
        "_acknowledged",
        "_at_commit",
        "_doom",
        "_gates",
        "_in_store",
        "_sent",
        "_store",
        "_uncommitted",
        "_unkept",
        "id",
        "owner",
        "prepared",
    )

    def __init__(self, transaction_id: TransactionId, store: MessageStore, owner: Owner | None = None) -> None:
        self.id = transaction_id
        self.owner = owner
        self.prepared = False
        self._store = store
        self._at_commit: list[Callable[[], None]] = []
        self._acknowledged: dict[Consumer | None, list[Reference]] = {}  # None: consumers of an earlier process
        self._gates: dict[Gate, None] = {}
        self._sent: set[tuple[Destination, str]] = set()
        self._in_store = False
        self._doom: str | None = None
        self._uncommitted = Uncommitted(store)
        self._unkept: dict[Destination, list[Message]] = {}
        """Messages sent to topics that had no durable subscription then; they are not in the store."""

    def sent(self, target: Target, message: Message) -> None:
        """Add a send, unless the message is in the transaction or in its place already.

        A failover client that got no answer to its PREPARE sends the whole branch again.

        Raises:
            TransactionError: the transaction is prepared, and this is no part of it.
        """
        if (message.destination, message.message_id) in self._sent:
            return
        self._check_open()
        is_stored = target.stores(message)
        if is_stored:
            if not target.is_kept_now:
                self._unkept.setdefault(message.destination, []).append(message)
            elif self._unkept:
                self._keep(self._unkept.pop(message.destination, ()), self.id)
            if not self._store.add(message, self.id):
                _log.info("%s is on %s already", message.message_id, message.destination)
                return
            self._in_store = True
        send = self._uncommitted.add(target, message, is_stored=is_stored)
        self._enqueue_at_commit(target, message, send)

    def acknowledged(self, consumer: Consumer, references: Sequence[Reference]) -> None:
        """Add acknowledgements whose removal the store has already been told."""
        self._check_open()
        for reference in references:
            self._in_store |= reference.message.persistent
            self._at_commit.append(partial(reference.source.settle, reference))
        self._acknowledged.setdefault(consumer, []).extend(references)

    def recover(self, sends: Sequence[tuple[Target, Message | Unread]], acknowledged: Sequence[Reference]) -> None:
        """Be what the store says was prepared before this process; the references are locked already."""
        self.prepared = self._in_store = True
        for target, message in sends:
            self._enqueue_at_commit(target, message, Send(target, message))
        for reference in acknowledged:
            self._at_commit.append(partial(reference.source.settle, reference))
        self._acknowledged[None] = list(acknowledged)

    @property
    def acknowledged_so_far(self) -> Iterable[Reference]:
        """What it holds for its consumers until its outcome is known."""
        return (reference for references in self._acknowledged.values() for reference in references)

    @property
    def gates(self) -> Iterable[Gate]:
        """Gates of the destinations that its messages go to."""
        return self._gates

    @property
    def holds_memory(self) -> bool:
        """True when what it has sent takes memory that its end frees."""
        return self._uncommitted.holds_memory

    def check_room(self, usage: Usage, message: Message) -> None:
        """Make sure that one more message may be held, where memory is full.

        Raises:
            ResourceLimit: it may not.
        """
        self._uncommitted.check_room(usage, message, self.id)

    def doom(self, reason: str) -> None:
        """Make its commit fail: part of it could not be done."""
        if not self.prepared:
            self._doom = self._doom or reason

    def prepare(self) -> bool:
        """Have only its outcome end it; False when there is nothing to decide, and it is over.

        One that is prepared already stays so: a failover client asks again if it got no answer.

        Raises:
            TransactionRolledBack: it was doomed.
        """
        if self.prepared:
            return True
        self._raise_if_doomed()
        if self._in_store:
            self._keep_late(self.id)
            self._store.prepare(_branch(self.id))
        self.prepared = bool(self._at_commit)
        if self.prepared:
            self._uncommitted.prepared()
        return self.prepared

    def commit(self) -> None:
        """Make everything count, in its order.

        Raises:
            TransactionRolledBack: it was doomed, and is rolled back.
        """
        self._raise_if_doomed()
        if self._in_store:
            if not self.prepared:
                self._keep_late(self.id)
            self._store.commit(self.id)
            if self.prepared:  # nothing can be added to it; what it has of this the store knows by now
                self._keep_late(None)
            for gate in self._gates:
                gate.close()
                self._store.when_durable(gate.open)
        # The store counts all of it from here on, so all of it is done, whatever one action raises.
        for action in self._at_commit:
            attempt(action, "carrying out a commit")
        if self._in_store:
            self._store.when_durable(self._uncommitted.end)  # behind the gates: by then the destinations count it
        else:
            self._uncommitted.end()

    def rollback(self) -> None:
        """Undo: sends vanish, consumers hold their references again; those of consumers that left go to others."""
        if self._in_store:
            self._store.rollback(self.id)
        self._uncommitted.end()
        take_back(self._acknowledged)

    def _enqueue_at_commit(self, target: Target, message: Message | Unread, send: Send) -> None:
        self._sent.add((message.destination, message.message_id))
        self._gates[target.gate] = None
        self._at_commit.append(send)

    def _keep_late(self, transaction_id: TransactionId | None) -> None:
        """Store what subscriptions want that have begun since it was sent."""
        for messages in self._unkept.values():
            self._keep(messages, transaction_id)

    def _keep(self, messages: Iterable[Message], transaction_id: TransactionId | None) -> None:
        for message in messages:
            self._store.add(message, transaction_id)

    def _raise_if_doomed(self) -> None:
        if self._doom is not None:
            self.rollback()
            raise TransactionRolledBack(f"{self.id} is rolled back: {self._doom}")

    def _check_open(self) -> None:
        """Make sure that something may be added."""
        if self.prepared:
            raise TransactionError(f"{self.id} is prepared: nothing can be added to it")
        if len(self._at_commit) >= OPERATIONS_MAX:
            raise TransactionError(f"{self.id} has {OPERATIONS_MAX} operations already: commit more often")


def _branch(transaction_id: TransactionId) -> XATransactionId:
    if isinstance(transaction_id, XATransactionId):
        return transaction_id
    raise TransactionError(f"{transaction_id} is local: only XA transactions are prepared")
