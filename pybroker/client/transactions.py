"""The open transactions of one connection, and their restoration after a break.

A send goes to the broker at once, and is kept until the transaction ends: the next broker gets it again. An
acknowledgement is valid only on the broker that delivered the message. When that broker is lost, a transaction with
acknowledgements can only be rolled back. A commit that is sent and not answered is in doubt.

A broker drops a message whose sequence is lower than the last one stored from its producer. So the sequences of one
producer must grow in the order in which messages become visible, and each open transaction has its own producer.

Source: ActiveMQ 5.17, `ConnectionStateTracker` (trackTransactions, trackTransactionProducers).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from pybroker.broker.domain.destination import Destination
from pybroker.client.consumers import ConsumerState
from pybroker.client.conversation import BeginTransaction, CommitTransaction, RollbackTransaction, SendMessage
from pybroker.client.errors import (
    ClientError,
    ConnectionClosed,
    FrameTooLarge,
    Timeout,
    TransactionInDoubt,
    TransactionRolledBack,
    UnsendableMessage,
)
from pybroker.client.messages import Body, DeliveryState, Message
from pybroker.client.pending import PendingResult
from pybroker.client.producers import Producers
from pybroker.client.requests import Requests


@dataclass(slots=True)
class ClientTransaction:
    """The state of one transaction.

    Attributes:
        number: its number on the connection.
        producer: the producer that only this transaction uses.
        sends: the sends of the transaction, by request number.
        acknowledged: the messages acknowledged in the transaction, by consumer.
        is_begun: the present broker knows the transaction.
        rollback_cause: the reason why it can only be rolled back; None while it may be committed.
        is_ended: it is committed or rolled back, or is about to be.
        commit: the result of the commit request; None before the request.
    """

    number: int
    producer: int
    sends: dict[int, SendMessage] = field(default_factory=dict[int, SendMessage])
    acknowledged: dict[int, list[Message]] = field(default_factory=dict[int, list[Message]])
    is_begun: bool = False
    rollback_cause: ClientError | None = None
    is_ended: bool = False
    commit: PendingResult[None] | None = None


class Transactions:
    """The open transactions of one connection. Not thread-safe."""

    def __init__(
        self,
        requests: Requests,
        producers: Producers,
        consumers: Mapping[int, ConsumerState],
        *,
        restore: bool,
        on_ended: Callable[[], None],
    ) -> None:
        """Create an empty set of transactions.

        Args:
            requests: the connection's requests.
            producers: the connection's producers.
            consumers: the connection's open consumers, by number.
            restore: send the messages of open transactions again to the next broker; otherwise a break rolls them back.
            on_ended: called after the end of each transaction.
        """
        self._requests = requests
        self._producers = producers
        self._consumers = consumers
        self._restore = restore
        self._on_ended = on_ended
        self._numbers = count(1)
        self._open: dict[int, ClientTransaction] = {}
        self._idle_producers: list[int] = []

    # ------------------------------------------------------------ operations of the application

    def begin(self) -> ClientTransaction:
        """Begin a transaction. The broker learns of it with its first send or acknowledgement."""
        if self._idle_producers:
            producer = self._idle_producers.pop()
        else:
            producer, _ = self._producers.add()
        transaction = ClientTransaction(next(self._numbers), producer)
        self._open[transaction.number] = transaction
        return transaction

    def send(
        self, transaction: ClientTransaction, destination: Destination, body: Body, headers: Mapping[str, Any]
    ) -> None:
        """Send a message that becomes visible when the transaction is committed.

        Raises:
            UnsendableMessage, FrameTooLarge: the message cannot be sent; the transaction continues without it.
            TransactionRolledBack: the transaction has ended, or can only be rolled back.
        """
        self.check(transaction)
        message = self._producers.message(transaction.producer, destination, body, headers)
        request = SendMessage(message=replace(message, transaction=transaction.number))
        self._ensure_begun(transaction)
        number = self._requests.number()
        self._requests.send_once(request, number)
        transaction.sends[number] = request

    def acknowledge(self, transaction: ClientTransaction, message: Message) -> None:
        """Acknowledge a message when the transaction is committed.

        Raises:
            TransactionRolledBack: the transaction has ended, or can only be rolled back. The message is redelivered.
            ConnectionClosed: the message's consumer is closed.
        """
        consumer = self._consumers.get(message.consumer)
        if consumer is None:
            raise ConnectionClosed("the message's consumer is closed: the message will be redelivered")
        if message.receipt is None and transaction.rollback_cause is None:  # the next broker redelivers the message
            text = "the connection broke: the message that it acknowledges will be redelivered"
            transaction.rollback_cause = TransactionRolledBack(text)
        try:
            self.check(transaction)
        except TransactionRolledBack:
            consumer.requeue(message)
            raise
        self._ensure_begun(transaction)
        consumer.acknowledge_in_transaction(message, transaction.number)
        transaction.acknowledged.setdefault(consumer.subscribe.consumer, []).append(message)

    def replace_by_copy(
        self, consumer: ConsumerState, message: Message, copy: Mapping[str, Any]
    ) -> PendingResult[None]:
        """Acknowledge a message and send a copy of it to its queue, in a transaction of their own.

        The result is an error only if the message is as before: the application has it. After a break either the copy
        is in the queue, or the broker redelivers the message.

        Args:
            consumer: the consumer of the message.
            message: the message, delivered by the present broker.
            copy: attributes of `Outgoing` for the copy.

        Raises:
            UnsendableMessage, FrameTooLarge: the copy cannot be sent.
        """
        transaction = self.begin()
        try:
            self.send(transaction, message.source or message.destination, message.body, copy)
        except ClientError:
            self.rollback(transaction)
            raise
        consumer.give_back(message)
        consumer.send_in_transaction(message, transaction.number)
        transaction.acknowledged[consumer.subscribe.consumer] = [message]
        committed, outcome = self.commit(transaction), PendingResult[None]()
        outcome.number = committed.number
        committed.add_done_callback(lambda: _given_back(message, committed.error, outcome))
        return outcome

    def commit(self, transaction: ClientTransaction) -> PendingResult[None]:
        """Commit a transaction; return the result."""
        outcome: PendingResult[None] = PendingResult()
        self._check_not_ended(transaction)
        if transaction.rollback_cause is not None:
            rollback_cause = transaction.rollback_cause
            self.rollback(transaction)
            outcome.complete(error=rollback_cause)
            return outcome
        transaction.is_ended = True
        if not transaction.sends and not transaction.acknowledged:
            self._end(transaction)
            outcome.complete()
            return outcome
        pending = transaction.commit = self._requests.submit(CommitTransaction(transaction=transaction.number))
        pending.add_done_callback(lambda: self._committed(transaction, pending.error, outcome))
        outcome.number = pending.number
        return outcome

    def rollback(self, transaction: ClientTransaction) -> None:
        """Roll a transaction back. The messages that it acknowledged are redelivered."""
        if transaction.is_ended:
            return
        transaction.is_ended = True
        if transaction.is_begun:
            self._requests.send_once_or_log(RollbackTransaction(transaction=transaction.number))
        self._redeliver(transaction)
        self._end(transaction)

    def check(self, transaction: ClientTransaction) -> None:
        """Check that a transaction can continue.

        Raises:
            TransactionRolledBack: the transaction has ended, or can only be rolled back.
        """
        self._check_not_ended(transaction)
        if transaction.rollback_cause is not None:
            raise transaction.rollback_cause

    def _check_not_ended(self, transaction: ClientTransaction) -> None:
        if transaction.is_ended:
            raise TransactionRolledBack("the transaction has ended")

    def _ensure_begun(self, transaction: ClientTransaction) -> None:
        if not transaction.is_begun and self._requests.is_open:
            transaction.is_begun = True
            self._requests.send_once(BeginTransaction(transaction=transaction.number), self._requests.number())

    # ------------------------------------------------------------ ends

    def _committed(
        self, transaction: ClientTransaction, error: ClientError | None, outcome: PendingResult[None]
    ) -> None:
        if isinstance(error, TransactionInDoubt | Timeout):
            self._cache_for_redelivery(transaction)
        elif error is not None:
            self._redeliver(transaction)
            if not isinstance(error, TransactionRolledBack):
                cause, error = error, TransactionRolledBack(f"the broker refuses to commit: {error}")
                error.__cause__ = cause
        self._end(transaction)
        outcome.complete(error=error)

    def _end(self, transaction: ClientTransaction) -> None:
        if self._open.pop(transaction.number, None) is not None:
            self._idle_producers.append(transaction.producer)
            self._on_ended()

    def _redeliver(self, transaction: ClientTransaction) -> None:
        for number, messages in transaction.acknowledged.items():
            if number in self._consumers:
                self._consumers[number].redeliver(messages)

    def _cache_for_redelivery(self, transaction: ClientTransaction) -> None:
        for number, messages in transaction.acknowledged.items():
            if number in self._consumers:
                self._consumers[number].cache_for_redelivery(messages)
        transaction.acknowledged.clear()

    # ------------------------------------------------------------ brokers come and go

    def interrupted(self) -> None:
        """Handle the loss of the broker. Called before the same method of the consumers and requests."""
        for transaction in list(self._open.values()):
            transaction.is_begun = False
            commit = transaction.commit
            if commit is not None and self._requests.may_have_been_received(commit):
                continue  # in doubt: `Requests.interrupted` completes the commit
            if transaction.acknowledged:
                self._cache_for_redelivery(transaction)
                self._mark_rollback_only(
                    transaction, "the connection broke: the messages that it acknowledged will be redelivered"
                )
            elif transaction.sends and not self._restore:
                self._mark_rollback_only(transaction, "the connection broke, and transactions are not restored")

    def _mark_rollback_only(self, transaction: ClientTransaction, text: str, cause: ClientError | None = None) -> None:
        """Allow only a rollback from now on; a commit that waits for a broker fails."""
        transaction.rollback_cause = TransactionRolledBack(text)
        transaction.rollback_cause.__cause__ = cause
        if transaction.commit is not None:
            self._requests.complete(transaction.commit.number, transaction.rollback_cause)

    def restore(self) -> None:
        """Send open transactions again to the next broker."""
        for transaction in list(self._open.values()):
            if transaction.sends and transaction.rollback_cause is None:
                self._restore_one(transaction)

    def _restore_one(self, transaction: ClientTransaction) -> None:
        """Begin a transaction on this broker and send its messages; if one fails, roll the transaction back."""
        self._ensure_begun(transaction)
        try:
            for number, request in transaction.sends.items():
                self._requests.send_once(request, number)
        except (FrameTooLarge, UnsendableMessage) as error:
            self._requests.send_once_or_log(RollbackTransaction(transaction=transaction.number))
            transaction.is_begun = False
            self._mark_rollback_only(transaction, f"a message of the transaction cannot be sent: {error}", error)


def _given_back(message: Message, error: ClientError | None, outcome: PendingResult[None]) -> None:
    """Complete `Transactions.replace_by_copy`."""
    if isinstance(error, TransactionInDoubt):
        cause = error.__cause__
        error = cause if isinstance(cause, ClientError) else None  # a time-out, or the loss of the connection
    elif message.delivery_state is not DeliveryState.DELIVERED:
        error = None  # the connection broke before the commit
    outcome.complete(error=error)
