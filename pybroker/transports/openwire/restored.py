"""Transactions that a failover client restores, and the acknowledgements that they may have lost.

A client that has reconnected to the next master begins its open transactions again and repeats their sends, but not
their acknowledgements. ActiveMQ's Java client acknowledges just before it commits, drops an acknowledgement while there
is no broker, and repeats none that went to the dead master. If the master dies between the two, the next one gets the
commit of a transaction without them. It must not succeed, because all messages received in it are redelivered.

```text
client     BEGIN  ack ─╳ COMMIT …                   BEGIN  COMMIT ──> rolled back, the client repeats it
                       ╳ reconnects ──────────────────^
```

A restored transaction of a session with consumers therefore lacks acknowledgements if it is empty, or if it has only
sends and the client has numbered another command between the last one and the commit. That may have been another
command: then the commit fails needlessly, for which clients must be prepared after a failover.

Source: ActiveMQ 5.17, `FailoverTransport.oneway`, `ConnectionStateTracker`, `ActiveMQMessageConsumer.acknowledge`.
"""

from collections.abc import Iterable

from pybroker.broker.domain.openwire.ids import ConsumerId
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId

REASON = "what it acknowledged was lost in the failover"


class _Begun:
    """The contents of a restored transaction.

    Attributes:
        session_ids: the sessions that sent messages.
        command_id: the command id of the last send.
    """

    __slots__ = ("command_id", "session_ids")

    def __init__(self) -> None:
        self.session_ids: set[int] = set()
        self.command_id = 0


class RestoredTransactions:
    """The restored transactions of one connection that have no acknowledgement.

    Attributes:
        open: the transactions. Empty without a failover, and soon after one.
    """

    def __init__(self, *, reconnected: bool) -> None:
        self.open: dict[TransactionId, _Begun] = {}
        self._is_restoring = reconnected

    def begun(self, transaction: TransactionId) -> None:
        """Record that a transaction began; if none has ended yet, it may have begun before the failover.

        XA branches are left out: an empty one is usual.
        """
        if self._is_restoring and isinstance(transaction, LocalTransactionId):
            self.open.setdefault(transaction, _Begun())

    def sent(self, transaction: TransactionId, session_id: int, command_id: int) -> None:
        """Record a send in a transaction."""
        if (begun := self.open.get(transaction)) is not None:
            begun.session_ids.add(session_id)
            begun.command_id = command_id

    def acknowledged(self, transaction: TransactionId) -> None:
        """Record an acknowledgement in a transaction."""
        self.open.pop(transaction, None)

    def ended(self, transaction: TransactionId, command_id: int, consumer_ids: Iterable[ConsumerId]) -> bool:
        """Record the end of a transaction; return True if it lacks acknowledgements of these consumers."""
        self._is_restoring = False
        begun = self.open.pop(transaction, None)
        if begun is None or (begun.session_ids and begun.command_id == command_id - 1):
            return False
        return any(not begun.session_ids or each.session_id in begun.session_ids for each in consumer_ids)
