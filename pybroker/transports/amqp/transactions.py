"""The transactions of an AMQP connection: what clients send in them, and the outcomes of deliveries.

Sends and accepted deliveries are part of a transaction of the core. Other outcomes take effect right after its commit:
the core has no operation for them. After a roll-back, deliveries that the client has not settled stay with it, and it
may accept them again; those that it has settled go back to their backlogs, as redelivered.

Source: AMQP 1.0, part 4; ActiveMQ 5.17 for transaction ids, and for what happens after a roll-back.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final, Protocol

from pybroker.broker.domain.amqp.performatives import AmqpAccepted, AmqpDeliveryState
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.errors import CommitFailed, ResourceLimit, UnknownTransaction
from pybroker.broker.domain.ports import ConnectionPort
from pybroker.broker.domain.transaction import TransactionId

_TXN_ID_BYTES: Final = 8

OTHERS_MAX: Final = 100_000
"""The outcomes other than `accepted` in the open transactions of a connection: as many as it may leave unsettled."""


class Settles(Protocol):
    """A link on which the client receives, as transactions see it."""

    is_closed: bool

    def settle(self, deliveries: Sequence[Delivery], outcome: AmqpDeliveryState | None) -> None:
        """Settle deliveries with an outcome; None: the link's default outcome."""
        ...

    def return_failed(self, deliveries: Sequence[Delivery]) -> None:
        """Return deliveries to their backlogs, as redelivered."""
        ...


class SentDelivery:
    """A delivery that the client has not settled.

    Attributes:
        delivery_id: its number in the session.
        link: its link.
        delivery: the core's.
        transaction: the open transaction that has an outcome of it; None for none.
    """

    __slots__ = ("delivery", "delivery_id", "link", "transaction")

    def __init__(self, delivery_id: int, link: Settles, delivery: Delivery) -> None:
        self.delivery_id = delivery_id
        self.link = link
        self.delivery = delivery
        self.transaction: OpenAmqpTransaction | None = None


class TransactedOutcome:
    """The outcome of a delivery in a transaction.

    Attributes:
        sent: the delivery.
        link: its link.
        outcome: the outcome.
        is_settled: the client has settled the delivery, and forgotten it.
        settle: sends a disposition that settles it.
    """

    __slots__ = ("is_settled", "link", "outcome", "sent", "settle")

    def __init__(self, sent: SentDelivery, outcome: AmqpDeliveryState, settle: Callable[[], None]) -> None:
        self.sent = sent
        self.link = sent.link
        self.outcome = outcome
        self.settle = settle
        self.is_settled = False


class OpenAmqpTransaction:
    """An open transaction.

    Attributes:
        txn_id: its id for the client.
        transaction_id: the core's.
        coordinator: the link that has declared it.
        outcomes: those of deliveries, in the order in which they came.
        other_count: how many of them are not `accepted`.
    """

    __slots__ = ("coordinator", "other_count", "outcomes", "transaction_id", "txn_id")

    def __init__(self, txn_id: bytes, transaction_id: TransactionId, coordinator: object) -> None:
        self.txn_id = txn_id
        self.transaction_id = transaction_id
        self.coordinator = coordinator
        self.outcomes: dict[SentDelivery, TransactedOutcome] = {}
        self.other_count = 0

    def note_settled(self, sent: SentDelivery) -> None:
        """Remember that the client has settled a delivery; do nothing if it was committed meanwhile."""
        outcome = self.outcomes.get(sent)
        if outcome is not None:
            outcome.is_settled = True


_link: Final = attrgetter("link")


class AmqpTransactions:
    """The open transactions of one connection."""

    __slots__ = ("_connection", "_count", "_open", "_other_count")

    def __init__(self, connection: ConnectionPort) -> None:
        self._connection = connection
        self._count = 0
        self._open: dict[bytes, OpenAmqpTransaction] = {}
        self._other_count = 0

    def count_other(self, transaction: OpenAmqpTransaction) -> None:
        """Count an outcome that is not `accepted`: the core, which limits the others, does not know of it.

        Raises:
            ResourceLimit: the open transactions of the connection have too many.
        """
        if self._other_count >= OTHERS_MAX:
            raise ResourceLimit(f"The open transactions have {OTHERS_MAX} outcomes other than accepted: end one")
        transaction.other_count += 1
        self._other_count += 1

    def declare(self, coordinator: object) -> OpenAmqpTransaction:
        """Begin a transaction.

        Args:
            coordinator: the link that asks for it.

        Raises:
            RequestError: the connection has too many.
        """
        core_id = self._connection.begin()
        self._count += 1
        made = OpenAmqpTransaction(self._count.to_bytes(_TXN_ID_BYTES, "big"), core_id, coordinator)
        self._open[made.txn_id] = made
        return made

    def find(self, txn_id: bytes) -> OpenAmqpTransaction:
        """Return an open transaction.

        Raises:
            UnknownTransaction: it is not open.
        """
        found = self._open.get(txn_id)
        if found is None:
            raise UnknownTransaction(f"Transaction {txn_id[:32].hex()} is not open: declare it first")
        return found

    def discharge(self, txn_id: bytes, *, fail: bool) -> None:
        """End a transaction: commit it, or roll it back. Durable only after `ConnectionPort.when_durable`.

        Raises:
            RequestError: it is not open, or was rolled back instead.
        """
        transaction = self.find(txn_id)
        del self._open[txn_id]
        self._other_count -= transaction.other_count
        if fail:
            self._connection.rollback(transaction.transaction_id)
            self._roll_back(transaction)
            return
        try:
            self._connection.commit(transaction.transaction_id)
        except CommitFailed:
            self._roll_back(transaction)
            raise
        self._connection.when_carried_out(partial(self._settle_others, transaction))

    def roll_back_of(self, coordinator: object) -> None:
        """Roll back the open transactions that a link has declared, as it ends (AMQP 1.0, 4.2)."""
        for each in [each for each in self._open.values() if each.coordinator is coordinator]:
            self.discharge(each.txn_id, fail=True)

    def clear(self) -> None:
        """Forget all of them: the connection has ended, and the core rolls them back."""
        for transaction in self._open.values():
            transaction.outcomes.clear()  # which refer to it
        self._open.clear()

    def _settle_others(self, transaction: OpenAmqpTransaction) -> None:
        """Have the outcomes take effect that are not `accepted`, and settle what the client has not."""
        others = [each for each in transaction.outcomes.values() if not isinstance(each.outcome, AmqpAccepted)]
        for link, group in groupby(others, key=_link):
            for each in group:
                link.settle([each.sent.delivery], each.outcome)
        unsettled = [each for each in transaction.outcomes.values() if not each.is_settled]
        transaction.outcomes = {}
        if unsettled:
            self._connection.when_durable(partial(_settle_all, unsettled))

    def _roll_back(self, transaction: OpenAmqpTransaction) -> None:
        """Leave deliveries that the client has not settled with it; the others go back."""
        settled = [each for each in transaction.outcomes.values() if each.is_settled]
        for each in transaction.outcomes.values():
            each.sent.transaction = None
        for link, group in groupby(settled, key=_link):
            deliveries = [each.sent.delivery for each in group]
            if not link.is_closed:
                # The roll-back may be carried out in pieces.
                self._connection.when_carried_out(partial(_return, link, deliveries))


def _return(link: Settles, deliveries: Sequence[Delivery]) -> None:
    if not link.is_closed:
        link.return_failed(deliveries)


def _settle_all(outcomes: Sequence[TransactedOutcome]) -> None:
    """Settle what the client has not, unless it has meanwhile."""
    for each in outcomes:
        each.sent.transaction = None
        each.settle()
