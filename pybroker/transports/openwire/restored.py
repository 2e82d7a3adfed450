"""Transactions that a failover client begins again, and what of them it may have lost.

A client that has found the next master begins its open transactions once more and repeats what it sent in them, but
not what it acknowledged. ActiveMQ's Java client acknowledges just before it commits, lets go of an acknowledgement that
it has while no broker is there, and repeats none that went to the dead master. If the master dies between the two, the
next one is asked to commit a transaction without them. A yes would be a lie: all that was received comes again.

```text
client     BEGIN  ack ─╳ COMMIT …                   BEGIN  COMMIT ──> no: rolled back, the client begins anew
                       ╳ reconnects ──────────────────^
```

A transaction that was restored, of a session that consumes, therefore lacks acknowledgements if nothing is in it, or if
there are only sends in it, and between the last one and the commit the client has numbered another command. That may
have been something else: then the client is told no for nothing, for which it must be ready where there is a failover.

Source: ActiveMQ 5.17, `FailoverTransport.oneway`, `ConnectionStateTracker`, `ActiveMQMessageConsumer.acknowledge`.
"""

from collections.abc import Iterable

from pybroker.broker.domain.openwire.ids import ConsumerId
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId

REASON = "what it acknowledged was lost in the failover"


class _Begun:
    """What is in a transaction.

    Attributes:
        session_ids: from where something was sent.
        command_id: of the last send.
    """

    __slots__ = ("command_id", "session_ids")

    def __init__(self) -> None:
        self.session_ids: set[int] = set()
        self.command_id = 0


class Restored:
    """The transactions of one connection whose acknowledgements are missing so far.

    Attributes:
        open: these. Empty where there was no failover, and soon after one.
    """

    def __init__(self, *, reconnected: bool) -> None:
        self.open: dict[TransactionId, _Begun] = {}
        self._is_restoring = reconnected

    def begun(self, transaction: TransactionId) -> None:
        """Learn of a beginning: what begins before anything has ended may have begun before the failover.

        Branches are left alone: an XA transaction that does nothing is an everyday thing.
        """
        if self._is_restoring and isinstance(transaction, LocalTransactionId):
            self.open.setdefault(transaction, _Begun())

    def sent(self, transaction: TransactionId, session_id: int, command_id: int) -> None:
        """Learn that something was sent in a transaction."""
        if (begun := self.open.get(transaction)) is not None:
            begun.session_ids.add(session_id)
            begun.command_id = command_id

    def acknowledged(self, transaction: TransactionId) -> None:
        """Learn that an acknowledgement has come after all."""
        self.open.pop(transaction, None)

    def ended(self, transaction: TransactionId, command_id: int, consumer_ids: Iterable[ConsumerId]) -> bool:
        """Learn that a command ends a transaction; return whether it lacks acknowledgements of these consumers."""
        self._is_restoring = False
        begun = self.open.pop(transaction, None)
        if begun is None or (begun.session_ids and begun.command_id == command_id - 1):
            return False
        return any(not begun.session_ids or each.session_id in begun.session_ids for each in consumer_ids)
