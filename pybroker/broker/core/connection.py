"""A client's connection inside the broker: its consumers, transactions and temporary destinations, until it closes."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pybroker.broker.core.consumer import Consumer
from pybroker.broker.core.transaction import Transaction
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.errors import TransactionError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Deliver, Throttle
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import LocalTransactionId

if TYPE_CHECKING:
    from pybroker.broker.core.broker import Broker

_log = logging.getLogger(__name__)


class Connection:
    """One admitted client; implements the port of that name."""

    def __init__(self, broker: "Broker", connection_id: str, client_id: str, throttle: Throttle) -> None:
        self.connection_id = connection_id
        self.client_id = client_id
        self.flush_count = 0
        self.is_held = False
        """True when nothing may be delivered: the client does not read, or is gone, or the broker is stopping."""
        self.closed = False
        self.consumers: set[Consumer] = set()
        self.temporaries: list[Destination] = []
        self._broker = broker
        self._throttle = throttle
        self._throttled = False
        self._transactions: dict[LocalTransactionId, Transaction] = {}
        self._transaction_count = 0

    # ------------------------------------------------------------ messages

    def send(self, message: Message, transaction: LocalTransactionId | None = None) -> None:
        """Route a message, now or at its transaction's commit."""
        target = self._broker.target(message.destination)
        if transaction is not None:
            self.transaction(transaction).sent(target, message)
        elif message.expiration and message.is_expired(self._broker.clock()):
            self._broker.dead_letters.expire(message)
        else:
            target.send(message)
        if message.persistent and not self._throttled and self._broker.is_behind:
            self._throttled = True
            self._throttle.pause_reading()
            self._broker.store.when_durable(self._unthrottle)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything accepted so far is safe."""
        self._broker.store.when_durable(callback)

    # ------------------------------------------------------------ consumers

    def subscribe(
        self, request: ConsumerRequest, deliver: Deliver, browsed: Callable[[], None] | None = None
    ) -> Consumer:
        """Add a consumer, silent until its `start`."""
        consumer = self._broker.subscribe(self, request, deliver, browsed)
        self.consumers.add(consumer)
        return consumer

    def forget(self, consumer: Consumer) -> None:
        """Drop a consumer that closed."""
        self.consumers.discard(consumer)
        self._broker.forget(consumer)

    def unsubscribe(self, client_id: str, subscription_name: str) -> None:
        """Delete a durable subscription that is not active."""
        self._broker.unsubscribe(client_id, subscription_name)

    def create_temporary(self, kind: DestinationType) -> Destination:
        """Create a temporary destination that lives as long as this connection."""
        destination = self._broker.create_temporary(self, kind)
        self.temporaries.append(destination)
        return destination

    # ------------------------------------------------------------ transactions

    def begin(self) -> LocalTransactionId:
        """Begin a local transaction."""
        self._transaction_count += 1
        transaction_id = LocalTransactionId(self.connection_id, self._transaction_count)
        self._transactions[transaction_id] = Transaction(transaction_id, self._broker.store)
        return transaction_id

    def commit(self, transaction: LocalTransactionId) -> None:
        """Make a transaction count."""
        ending = self.transaction(transaction)
        del self._transactions[transaction]
        ending.commit()

    def rollback(self, transaction: LocalTransactionId) -> None:
        """Undo a transaction."""
        ending = self.transaction(transaction)
        del self._transactions[transaction]
        ending.rollback()

    def transaction(self, transaction: LocalTransactionId) -> Transaction:
        """Return an open transaction.

        Raises:
            TransactionError: it is not open.
        """
        try:
            return self._transactions[transaction]
        except KeyError:
            raise TransactionError(f"Invalid transaction id: {transaction}") from None

    # ------------------------------------------------------------ flow and end

    def written(self) -> None:
        """Learn that all that was delivered so far has left the process."""
        self.flush_count += 1

    def pause(self) -> None:
        """Stop delivering."""
        self.is_held = True

    def resume(self) -> None:
        """Deliver again."""
        if self.is_held and not self.closed and not self._broker.is_stopping:
            self.is_held = False
            for consumer in list(self.consumers):
                consumer.dispatch()

    def close(self) -> None:
        """Undo what is open, give back what is held, and go."""
        if self.closed or self._broker.abandoned:
            return
        self.closed = self.is_held = True
        for transaction in list(self._transactions):
            self.rollback(transaction)
        for consumer in list(self.consumers):
            consumer.close()
        self._broker.disconnect(self)

    def _unthrottle(self) -> None:
        self._throttled = False
        if not self.closed:
            self._throttle.resume_reading()
