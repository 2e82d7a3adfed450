"""A transaction, local or XA: what was sent and acknowledged that does not count yet.

The store has its operations already, marked with the transaction; its commit record makes them count (KahaDB:
operations are journalled when they happen, the commit decides). Here they wait for the same moment, and sends moreover
until the commit is on disk: a consumer must never see half of a transaction that a crash then undoes. How much memory
they may take meanwhile, `uncommitted` says.

Its states, and what leads from one to another, are in `transaction_states`. With its commit sends are enqueued and
acknowledgements settled; with its rollback sends vanish, and references are outstanding again. A transaction of which a
part failed is doomed: its commit rolls it back and says so. A prepared one outlives its connection and the process.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from pybroker.broker.core.consumer import Consumer, Owner, reinstate
from pybroker.broker.core.containment import attempt
from pybroker.broker.core.gate import Gate, PagedOutMessage
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.transaction_states import TRANSITIONS, TransactionEvent, TransactionState
from pybroker.broker.core.uncommitted import Send, Target, UncommittedMessages
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import TransactionError, TransactionRolledBack
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import MessageStore
from pybroker.broker.domain.transaction import TransactionId, XATransactionId

_log = logging.getLogger(__name__)

OPERATIONS_MAX = 1_000_000
"""Ids of what a transaction does are in memory until it ends; this many operations are surely a mistake."""

_ACTIVE: Final = TransactionState.ACTIVE
_PREPARED: Final = TransactionState.PREPARED
_ROLLED_BACK: Final = TransactionState.ROLLED_BACK
_COMMIT: Final = TransactionEvent.COMMIT
_ON_DISK: Final = TransactionEvent.ON_DISK
"""Names of their own: looking a member up in its enum costs more than comparing with it."""


class Transaction:
    """One transaction.

    Attributes:
        id: which.
        owner: the connection that began it, with whose end it is rolled back; None once it is prepared, and for those
            that no client began.
        state: where it stands.
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
        "state",
    )

    def __init__(self, transaction_id: TransactionId, store: MessageStore, owner: Owner | None = None) -> None:
        self.id = transaction_id
        self.owner = owner
        self.state = _ACTIVE
        self._store = store
        self._at_commit: list[Callable[[], None]] = []
        self._acknowledged: dict[Consumer | None, list[Reference]] = {}  # None: consumers of an earlier process
        self._gates: dict[Gate, None] = {}
        self._sent: set[tuple[Destination, str]] = set()
        self._in_store = False
        self._doom: str | None = None
        self._uncommitted = UncommittedMessages(store)
        self._unkept: dict[Destination, list[Message]] = {}
        """Messages sent to topics that had no durable subscription then; they are not in the store."""

    def add_send(self, target: Target, message: Message) -> None:
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

    def add_acknowledgements(self, consumer: Consumer, references: Sequence[Reference]) -> None:
        """Add acknowledgements whose removal the store has already been told."""
        self._check_open()
        for reference in references:
            self._in_store |= reference.message.persistent
            self._at_commit.append(partial(reference.source.settle, reference))
        self._acknowledged.setdefault(consumer, []).extend(references)

    def recover(
        self, sends: Sequence[tuple[Target, Message | PagedOutMessage]], acknowledged: Sequence[Reference]
    ) -> None:
        """Be what the store says was prepared before this process; the references are locked already."""
        self._enter(TransactionEvent.RECOVER)
        self._in_store = True
        for target, message in sends:
            self._enqueue_at_commit(target, message, Send(target, message))
        for reference in acknowledged:
            self._at_commit.append(partial(reference.source.settle, reference))
        self._acknowledged[None] = list(acknowledged)

    @property
    def prepared(self) -> bool:
        """True when only its outcome ends it."""
        return self.state is _PREPARED

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
        if self.state is _ACTIVE:
            self._doom = reason
        self._enter(TransactionEvent.FAIL)

    def prepare(self) -> bool:
        """Have only its outcome end it; False when there is nothing to decide, and it is over.

        One that is prepared already stays so: a failover client asks again if it got no answer.

        Raises:
            TransactionRolledBack: it was doomed.
        """
        if self._asked_for(TransactionEvent.PREPARE) is self.state:
            return True
        if not self._at_commit:
            self._enter(TransactionEvent.PREPARE_NOTHING)
            return False
        if self._in_store:
            self._keep_late(self.id)
            self._store.prepare(_branch(self.id))
        self._enter(TransactionEvent.PREPARE)
        self._uncommitted.mark_prepared()
        return True

    def commit(self) -> None:
        """Make everything count, in its order.

        Raises:
            TransactionRolledBack: it was doomed, and is rolled back.
        """
        after = self._asked_for(_COMMIT)
        if self._in_store:
            if self.state is _ACTIVE:
                self._keep_late(self.id)
            self._store.commit(self.id)
            if self.state is _PREPARED:  # nothing can be added to it; what it has of this the store knows by now
                self._keep_late(None)
            for gate in self._gates:
                gate.close()
                self._store.when_durable(gate.open)
        self.state = after
        # The store counts all of it from here on, so all of it is done, whatever one action raises.
        for action in self._at_commit:
            attempt(action, "carrying out a commit")
        if self._in_store:
            self._store.when_durable(self._on_disk)  # behind the gates: by then the destinations count it
        else:
            self._on_disk()

    def rollback(self) -> None:
        """Undo: sends vanish, consumers hold their references again; those of consumers that left go to others."""
        after = TRANSITIONS.after(self.state, TransactionEvent.ROLLBACK)
        if self._in_store:
            self._store.rollback(self.id)
        self.state = after
        self._uncommitted.end()
        reinstate(self._acknowledged)

    def _enqueue_at_commit(self, target: Target, message: Message | PagedOutMessage, send: Send) -> None:
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

    def _enter(self, event: TransactionEvent) -> None:
        self.state = TRANSITIONS.after(self.state, event)

    def _asked_for(self, event: TransactionEvent) -> TransactionState:
        """Return the state that a demand leads to; undo what is doomed instead, and say so."""
        after = TRANSITIONS.after(self.state, event)
        if after is _ROLLED_BACK:
            self.rollback()
            raise TransactionRolledBack(f"{self.id} is rolled back: {self._doom}")
        return after

    def _on_disk(self) -> None:
        self._enter(_ON_DISK)
        self._uncommitted.end()

    def _check_open(self) -> None:
        """Make sure that something may be added."""
        if self.state is not _ACTIVE:
            if self.state is _PREPARED:
                raise TransactionError(f"{self.id} is prepared: nothing can be added to it")
            self._enter(TransactionEvent.ADD)
        if len(self._at_commit) >= OPERATIONS_MAX:
            raise TransactionError(f"{self.id} has {OPERATIONS_MAX} operations already: commit more often")


def _branch(transaction_id: TransactionId) -> XATransactionId:
    if isinstance(transaction_id, XATransactionId):
        return transaction_id
    raise TransactionError(f"{transaction_id} is local: only XA transactions are prepared")
