"""Transactions that a failover client begins again, and what of them it may have lost.

A client that has found the next master begins its open transactions once more and repeats what it sent in them, but
not what it acknowledged. ActiveMQ's Java client acknowledges just before it commits, lets go of an acknowledgement that
it has while no broker is there, and repeats none that went to the dead master. If the master dies between the two, the
next one is asked to commit a transaction without them. A yes would be a lie: all that was received comes again.

```text
client     BEGIN  ack ─╳ COMMIT …                   BEGIN  COMMIT ──> no: rolled back, the client begins anew
                       ╳ reconnects ──────────────────^
```

So a transaction that was restored has to bring an acknowledgement if its session consumes. A client that only sent in
it, in a session that also consumes, is told no for nothing; where there is a failover it must be ready for that.

Source: ActiveMQ 5.17, `FailoverTransport.oneway`, `ConnectionStateTracker`, `ActiveMQMessageConsumer.acknowledge`.
"""

from collections.abc import Iterable

from pybroker.broker.domain.openwire.ids import ConsumerId
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId

REASON = "what it acknowledged was lost in the failover"


class Restored:
    """The transactions of one connection whose acknowledgements are missing so far.

    Attributes:
        open: these, each with the numbers of the sessions it has sent from. Empty where there was no failover.
    """

    def __init__(self, *, reconnected: bool) -> None:
        self.open: dict[TransactionId, set[int]] = {}
        self._is_restoring = reconnected

    def begun(self, transaction: TransactionId) -> None:
        """Learn of a beginning: what begins before anything has ended may have begun before the failover.

        Branches are left alone: an XA transaction that does nothing is an everyday thing.
        """
        if self._is_restoring and isinstance(transaction, LocalTransactionId):
            self.open.setdefault(transaction, set())

    def sent(self, transaction: TransactionId, session_id: int) -> None:
        """Learn that something was sent in a transaction."""
        if (session_ids := self.open.get(transaction)) is not None:
            session_ids.add(session_id)

    def acknowledged(self, transaction: TransactionId) -> None:
        """Learn that an acknowledgement has come after all."""
        self.open.pop(transaction, None)

    def ended(self, transaction: TransactionId, consumer_ids: Iterable[ConsumerId]) -> bool:
        """Learn of an end; return whether the acknowledgements of any of these consumers may be missing."""
        self._is_restoring = False
        session_ids = self.open.pop(transaction, None)
        return session_ids is not None and any(
            not session_ids or consumer_id.session_id in session_ids for consumer_id in consumer_ids
        )
