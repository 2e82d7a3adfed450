"""A local transaction: what a connection sent and acknowledged that does not count yet.

The store has its operations already, marked with the transaction; its commit record makes them count (KahaDB:
operations are journalled when they happen, the commit decides). Here they wait for the same moment, and sends moreover
until the commit is on disk: a consumer must never see half of a transaction that a crash then undoes.

```text
           send, acknowledge
              +------+
              v      |
  begin --> OPEN ----+--- commit --> COMMITTED   sends enqueued, acknowledgements settled, in their order
              |
              +---------- rollback -> ROLLED BACK  sends gone, references outstanding again
```
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.errors import TransactionError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import MessageStore
from pybroker.broker.domain.transaction import LocalTransactionId

OPERATIONS_MAX = 1_000_000
"""A transaction is held in memory until it ends; this many sends and acknowledgements are surely a mistake."""


class Target(Protocol):
    """A destination that takes messages."""

    gate: Gate

    def stores(self, message: Message) -> bool:
        """Tell whether a message must outlive the process."""
        ...


class Transaction:
    """One open local transaction."""

    __slots__ = ("_acknowledged", "_at_commit", "_gates", "_in_store", "_store", "id")

    def __init__(self, transaction_id: LocalTransactionId, store: MessageStore) -> None:
        self.id = transaction_id
        self._store = store
        self._at_commit: list[Callable[[], None]] = []
        self._acknowledged: list[tuple[Consumer, list[Reference]]] = []
        self._gates: dict[Gate, None] = {}
        self._in_store = False

    def sent(self, target: Target, message: Message) -> None:
        """Add a send."""
        self._limit()
        if target.stores(message):
            self._store.add(message, self.id)
            self._in_store = True
        self._gates[target.gate] = None
        self._at_commit.append(partial(target.gate.admit, message))

    def acknowledged(self, consumer: Consumer, references: list[Reference]) -> None:
        """Add acknowledgements whose removal the store has already been told."""
        self._limit()
        for reference in references:
            self._in_store |= reference.message.persistent
            self._at_commit.append(partial(reference.source.settle, reference))
        self._acknowledged.append((consumer, references))

    def commit(self) -> None:
        """Make everything count, in its order."""
        if self._in_store:
            self._store.commit(self.id)
            for gate in self._gates:
                gate.close()
                self._store.when_durable(gate.open)
        for action in self._at_commit:
            action()

    def rollback(self) -> None:
        """Undo: sends vanish, consumers hold their references again, oldest first."""
        if self._in_store:
            self._store.rollback(self.id)
        for consumer, references in reversed(self._acknowledged):
            consumer.take_back(references)

    def _limit(self) -> None:
        if len(self._at_commit) >= OPERATIONS_MAX:
            raise TransactionError(f"{self.id} has {OPERATIONS_MAX} operations already: commit more often")
