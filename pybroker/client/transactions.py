"""The open transactions of one connection, what a break leaves of them, and what a commit that nobody answers means.

Sends go to the broker at once and are kept until the end: the next broker gets them again. Messages that a transaction
has taken belong to the broker that delivered them: when it is gone the transaction can only be rolled back.

A producer's numbers must grow in the order in which messages become visible, as brokers drop what has a lower number
than they have stored: every open transaction has a producer of its own.

Source: ActiveMQ 5.17, `ConnectionStateTracker` (trackTransactions, trackTransactionProducers).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from pybroker.broker.domain.destination import Destination
from pybroker.client.consumers import ConsumerState
from pybroker.client.conversation import Begin, Commit, Rollback, Send
from pybroker.client.errors import (
    ClientError,
    ConnectionClosed,
    FrameTooLarge,
    Timeout,
    TransactionInDoubt,
    TransactionRolledBack,
    UnsendableMessage,
)
from pybroker.client.messages import Body, Message
from pybroker.client.producers import Producers
from pybroker.client.requests import Requests
from pybroker.client.tickets import Ticket


@dataclass(slots=True)
class TransactionState:
    """One open transaction.

    Attributes:
        number: its own.
        producer: the one that only it uses.
        sends: what was sent in it, by number.
        taken: messages taken in it, by consumer.
        is_begun: the present broker knows it.
        doom: why it can only be rolled back; None while it may be committed.
        is_ended: committed or rolled back, or about to be.
        commit: the request to commit; None until then.
    """

    number: int
    producer: int
    sends: dict[int, Send] = field(default_factory=dict[int, Send])
    taken: dict[int, list[Message]] = field(default_factory=dict[int, list[Message]])
    is_begun: bool = False
    doom: ClientError | None = None
    is_ended: bool = False
    commit: Ticket[None] | None = None


class Transactions:
    """See the module. Not thread-safe."""

    def __init__(
        self,
        requests: Requests,
        producers: Producers,
        consumers: Mapping[int, ConsumerState],
        *,
        restore: bool,
        on_ended: Callable[[], None],
    ) -> None:
        """Begin with none.

        Args:
            requests: the connection's.
            producers: the connection's.
            consumers: the connection's open ones, by number.
            restore: send again what open transactions have sent; otherwise a break rolls them back.
            on_ended: called when a transaction ends, however it does.
        """
        self._requests = requests
        self._producers = producers
        self._consumers = consumers
        self._restore = restore
        self._on_ended = on_ended
        self._numbers = count(1)
        self._open: dict[int, TransactionState] = {}
        self._spare_producers: list[int] = []

    # ------------------------------------------------------------ the application asks

    def begin(self) -> TransactionState:
        """Begin a transaction; the broker hears of it when there is something to do."""
        if self._spare_producers:
            producer = self._spare_producers.pop()
        else:
            producer, _ = self._producers.add()
        transaction = TransactionState(next(self._numbers), producer)
        self._open[transaction.number] = transaction
        return transaction

    def send(
        self, transaction: TransactionState, destination: Destination, body: Body, headers: Mapping[str, Any]
    ) -> None:
        """Send a message that becomes visible when the transaction is committed.

        Raises:
            UnsendableMessage, FrameTooLarge: it cannot be sent; the transaction goes on without it.
            TransactionRolledBack: the transaction is broken off, or over.
        """
        self.check(transaction)
        message = self._producers.message(transaction.producer, destination, body, headers)
        request = Send(message=replace(message, transaction=transaction.number))
        self._begun(transaction)
        number = self._requests.number()
        self._requests.put(request, number)
        transaction.sends[number] = request

    def take(self, transaction: TransactionState, message: Message) -> None:
        """Acknowledge a message when the transaction is committed.

        Raises:
            TransactionRolledBack: the transaction is broken off, or over: the message comes again.
            ConnectionClosed: the message's consumer is closed.
        """
        consumer = self._consumers.get(message.consumer)
        if consumer is None:
            raise ConnectionClosed("the message's consumer is closed: it comes again, to whom it will")
        if message.receipt is None and transaction.doom is None:  # the next broker gives it again, to whom it will
            transaction.doom = TransactionRolledBack("the connection broke: a message that it takes comes again")
        try:
            self.check(transaction)
        except TransactionRolledBack:
            consumer.give_back(message)
            raise
        self._begun(transaction)
        consumer.join(message, transaction.number)
        transaction.taken.setdefault(consumer.subscribe.consumer, []).append(message)

    def commit(self, transaction: TransactionState) -> Ticket[None]:
        """Do all of it: the ticket says whether it was done."""
        outcome: Ticket[None] = Ticket()
        self._check_not_ended(transaction)
        if transaction.doom is not None:
            doom = transaction.doom
            self.roll_back(transaction)
            outcome.resolve(error=doom)
            return outcome
        transaction.is_ended = True
        if not transaction.sends and not transaction.taken:
            self._end(transaction)
            outcome.resolve()
            return outcome
        ticket = transaction.commit = self._requests.ask(Commit(transaction=transaction.number))
        ticket.watch(lambda: self._committed(transaction, ticket.error, outcome))
        outcome.number = ticket.number
        return outcome

    def roll_back(self, transaction: TransactionState) -> None:
        """Do nothing of it. The messages it took come again."""
        if transaction.is_ended:
            return
        transaction.is_ended = True
        if transaction.is_begun:
            self._requests.tell(Rollback(transaction=transaction.number))
        self._redeliver(transaction)
        self._end(transaction)

    def check(self, transaction: TransactionState) -> None:
        """Check that a transaction may go on.

        Raises:
            TransactionRolledBack: it is over, or was broken off.
        """
        self._check_not_ended(transaction)
        if transaction.doom is not None:
            raise transaction.doom

    def _check_not_ended(self, transaction: TransactionState) -> None:
        if transaction.is_ended:
            raise TransactionRolledBack("the transaction is over")

    def _begun(self, transaction: TransactionState) -> None:
        if not transaction.is_begun and self._requests.is_open:
            transaction.is_begun = True
            self._requests.put(Begin(transaction=transaction.number), self._requests.number())

    # ------------------------------------------------------------ ends

    def _committed(self, transaction: TransactionState, error: ClientError | None, outcome: Ticket[None]) -> None:
        if isinstance(error, TransactionInDoubt | Timeout):
            self._lose_taken(transaction)
        elif error is not None:
            self._redeliver(transaction)
            if not isinstance(error, TransactionRolledBack):
                cause, error = error, TransactionRolledBack(f"the broker refuses to commit: {error}")
                error.__cause__ = cause
        self._end(transaction)
        outcome.resolve(error=error)

    def _end(self, transaction: TransactionState) -> None:
        if self._open.pop(transaction.number, None) is not None:
            self._spare_producers.append(transaction.producer)
            self._on_ended()

    def _redeliver(self, transaction: TransactionState) -> None:
        for number, messages in transaction.taken.items():
            if number in self._consumers:
                self._consumers[number].redeliver(messages)

    def _lose_taken(self, transaction: TransactionState) -> None:
        for number, messages in transaction.taken.items():
            if number in self._consumers:
                self._consumers[number].lost_in_transaction(messages)
        transaction.taken.clear()

    # ------------------------------------------------------------ brokers come and go

    def interrupted(self) -> None:
        """Note that the broker is gone, and which transactions with it. Before the consumers and requests note it."""
        for transaction in list(self._open.values()):
            transaction.is_begun = False
            commit = transaction.commit
            if commit is not None and self._requests.may_be_done(commit):
                continue  # in doubt, which the requests report
            if transaction.taken:
                self._lose_taken(transaction)
                self._doom(transaction, "the connection broke: the messages that it took come again")
            elif transaction.sends and not self._restore:
                self._doom(transaction, "the connection broke, and transactions are not restored")

    def _doom(self, transaction: TransactionState, why: str, cause: ClientError | None = None) -> None:
        """Break a transaction off; a commit that waits for a broker is not asked for any more."""
        transaction.doom = TransactionRolledBack(why)
        transaction.doom.__cause__ = cause
        if transaction.commit is not None:
            self._requests.resolve(transaction.commit.number, transaction.doom)

    def restore(self) -> None:
        """Send the next broker what the last one had of them."""
        for transaction in list(self._open.values()):
            if transaction.sends and transaction.doom is None:
                self._resume(transaction)

    def _resume(self, transaction: TransactionState) -> None:
        """Begin a transaction on this broker; if it takes less than all of it, that can only be rolled back."""
        self._begun(transaction)
        try:
            for number, request in transaction.sends.items():
                self._requests.put(request, number)
        except (FrameTooLarge, UnsendableMessage) as error:
            self._requests.tell(Rollback(transaction=transaction.number))
            transaction.is_begun = False
            self._doom(transaction, f"a message of the transaction cannot be sent: {error}", error)
