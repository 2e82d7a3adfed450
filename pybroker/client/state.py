"""All that a connection has open, and how it comes back on the next broker: everything but the I/O.

What the application asks for goes to the broker at once, if there is one, and is remembered until it is answered or for
as long as it lasts. When the next broker lets us in, this is asked for again, with the same ids and numbers:

```text
 1 temporary destinations   2 producers   3 consumers   4 open transactions: begin, and all their sends
 5 sends without answer, if they are tracked   6 whatever waits for an answer, in its order
```

A broker knows by the producers' ids and sequences which sends it has had before, and drops them. So a producer's
numbers must grow in the order in which messages become visible: every open transaction has a producer of its own.

Not thread-safe: `link` has the lock. Source: ActiveMQ 5.17, `ConnectionStateTracker`, `FailoverTransport`.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final, cast

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.client.consumers import ConsumerState, Kept, Redelivery
from pybroker.client.conversation import (
    FIRST_NUMBER,
    AckMode,
    Acknowledge,
    AddProducer,
    AddTemporary,
    Answered,
    Begin,
    Commit,
    Complained,
    ConsumerEnded,
    Conversation,
    Delivered,
    Event,
    Login,
    Opened,
    RemoveDurable,
    RemoveProducer,
    RemoveTemporary,
    Request,
    Rollback,
    Send,
    Subscribe,
    Unsubscribe,
)
from pybroker.client.errors import (
    ClientError,
    ConnectionClosed,
    FrameTooLarge,
    Timeout,
    TransactionInDoubt,
    TransactionRolledBack,
    UnsendableMessage,
)
from pybroker.client.messages import Body, Message, Outgoing
from pybroker.client.tickets import Ticket

REPLIES_PREFETCH: Final = 100

_ASKED_ONCE: Final = (Unsubscribe, RemoveProducer, RemoveTemporary, Rollback, Acknowledge)
"""What a break carries out by itself, or makes void."""

_log = logging.getLogger(__name__)


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
    """

    number: int
    producer: int
    sends: dict[int, Send] = field(default_factory=dict[int, Send])
    taken: dict[int, list[Message]] = field(default_factory=dict[int, list[Message]])
    is_begun: bool = False
    doom: ClientError | None = None
    is_ended: bool = False


@dataclass(slots=True)
class Opening:
    """Something that lasts, and how it is asked for."""

    request: Request
    ticket: Ticket[None]


class ClientState:
    """One connection's state.

    Attributes:
        is_open: a broker takes requests at the moment.
        error: why it never will again; None while it may.
    """

    def __init__(
        self,
        login: Login,
        *,
        clock: Callable[[], float],
        wall_clock_ms: Callable[[], int],
        redelivery: Redelivery | None = None,
        tracked_bytes_max: int = 0,
        restore_transactions: bool = True,
    ) -> None:
        """Begin without a broker.

        Args:
            login: who comes.
            clock: seconds, never going back.
            wall_clock_ms: milliseconds since the epoch.
            redelivery: how rolled-back messages come again.
            tracked_bytes_max: how much of the sends without answer is kept, to be sent again.
            restore_transactions: send again what open transactions have sent; otherwise a break rolls them back.
        """
        self.is_open = False
        self.error: ClientError | None = None
        self._login = login
        self._clock = clock
        self._wall_clock_ms = wall_clock_ms
        self._redelivery = redelivery or Redelivery()
        self._restore_transactions = restore_transactions
        self._conversation: Conversation | None = None
        self._numbers = count(FIRST_NUMBER)
        self._names = {kind: count(1) for kind in ("consumer", "producer", "transaction", "temporary", "correlation")}
        self._sequences: dict[int, Iterator[int]] = {}
        self._temporaries: dict[Destination, Opening] = {}
        self._producers: dict[int, Opening] = {}
        self._spare_producers: list[int] = []
        self._consumers: dict[int, ConsumerState] = {}
        self._leaving: dict[int, ConsumerState] = {}
        self._transactions: dict[int, TransactionState] = {}
        self._unanswered: dict[int, Ticket[None]] = {}
        self._tracked = _Tracked(tracked_bytes_max)
        self._kept = Kept()
        self._reply_to: Destination | None = None
        self._replies: dict[str, Ticket[Message]] = {}

    # ------------------------------------------------------------ the application asks

    def add_producer(self, destination: Destination | None = None) -> tuple[int, Ticket[None]]:
        """Begin to send; return the producer's number."""
        producer = next(self._names["producer"])
        self._sequences[producer] = count(1)
        request = AddProducer(producer=producer, destination=destination)
        ticket = self._ask(request)
        self._producers[producer] = Opening(request, ticket)
        return producer, ticket

    def remove_producer(self, producer: int) -> None:
        """End sending."""
        if self._producers.pop(producer, None) is not None:
            del self._sequences[producer]
            self._tell(RemoveProducer(producer=producer))

    def send(self, producer: int, destination: Destination, body: Body, headers: Mapping[str, Any]) -> Ticket[None]:
        """Send a message outside of transactions; a persistent one is done when the broker has it on disk.

        Raises:
            UnsendableMessage: a header is of no use.
        """
        request = Send(message=self._outgoing(producer, destination, body, headers))
        return self._ask(request, answer=request.message.persistent)

    def subscribe(
        self, destination: Destination, *, ack: AckMode, prefetch: int, **options: Any
    ) -> tuple[ConsumerState, Ticket[None]]:
        """Begin to consume; `options` are further ones of `Subscribe`."""
        number = next(self._names["consumer"])
        request = Subscribe(consumer=number, destination=destination, ack=ack, prefetch=prefetch, **options)
        consumer = ConsumerState(
            request,
            kept=self._kept,
            redelivery=self._redelivery,
            clock=self._clock,
            acknowledge=self._acknowledge,
        )
        self._consumers[number] = consumer  # before it is asked for: messages may come before the answer
        consumer.ticket = self._ask(request)
        return consumer, consumer.ticket

    def unsubscribe(self, consumer: ConsumerState, *, finished: bool = True) -> None:
        """Stop consuming. What is not acknowledged goes back to the broker.

        Args:
            consumer: whose.
            finished: the message that the application got last is processed (auto).
        """
        number = consumer.subscribe.consumer
        if self._consumers.get(number) is not consumer:
            return
        if finished and consumer.error is None:
            consumer.finish_current()
        consumer.end(ConnectionClosed("the consumer is closed"))
        del self._consumers[number]
        if self.is_open:
            # The answer confirms the last acknowledgements, too.
            request = Unsubscribe(consumer=number, last=consumer.last, durable=consumer.subscribe.durable)
            self._leaving[number] = consumer
            self._ask(request).watch(lambda: self._left(number))

    def _left(self, number: int) -> None:
        self._leaving.pop(number, None)

    def remove_durable(self, name: str) -> Ticket[None]:
        """Delete a durable subscription and what waits for it."""
        return self._ask(RemoveDurable(name=name))

    def add_temporary(self, kind: DestinationType) -> tuple[Destination, Ticket[None]]:
        """Make a temporary destination."""
        number = next(self._names["temporary"])
        destination = Destination(kind, f"{self._login.connection_id}:{number}")
        request = AddTemporary(destination=destination)
        ticket = self._ask(request)
        self._temporaries[destination] = Opening(request, ticket)
        return destination, ticket

    def remove_temporary(self, destination: Destination) -> Ticket[None]:
        """Delete a temporary destination."""
        self._temporaries.pop(destination, None)
        return self._ask(RemoveTemporary(destination=destination))

    def request(
        self,
        producer: int,
        destination: Destination,
        body: Body,
        headers: Mapping[str, Any],
        *,
        ttl: float | None = None,
    ) -> Ticket[Message]:
        """Send a message and have the answer to it. It is dead after `ttl` seconds, when nobody waits any more."""
        correlation_id = f"{self._login.connection_id}:{next(self._names['correlation'])}"
        headers = {
            "persistent": False,
            "ttl": ttl,
            **headers,
            "reply_to": self._replies_here(),
            "correlation_id": correlation_id,
        }
        reply: Ticket[Message] = Ticket()
        self._replies[correlation_id] = reply
        sent = self._ask(Send(message=self._outgoing(producer, destination, body, headers)))
        sent.watch(lambda: reply.resolve(error=sent.error) if sent.error else None)
        reply.watch(lambda: self._forget_reply(correlation_id))
        return reply

    def _forget_reply(self, correlation_id: str) -> None:
        self._replies.pop(correlation_id, None)

    def _replies_here(self) -> Destination:
        """Return the queue for answers, made when it is first needed."""
        if self._reply_to is None:
            self._reply_to, _ = self.add_temporary(DestinationType.TEMP_QUEUE)
            consumer, ticket = self.subscribe(self._reply_to, ack=AckMode.AUTO, prefetch=REPLIES_PREFETCH)
            consumer.on_message = self._replied
            ticket.watch(lambda: self._no_replies(ticket.error))
        return self._reply_to

    def _replied(self, message: Message) -> None:
        ticket = self._replies.get(message.correlation_id or "")
        if ticket is not None:
            ticket.resolve(message)

    def _no_replies(self, error: ClientError | None) -> None:
        if error is not None:
            self._reply_to = None
            for ticket in list(self._replies.values()):
                ticket.resolve(error=error)

    # ------------------------------------------------------------ transactions

    def begin(self) -> TransactionState:
        """Begin a transaction; the broker hears of it when there is something to do."""
        if self._spare_producers:
            producer = self._spare_producers.pop()
        else:
            producer, _ = self.add_producer()
        transaction = TransactionState(next(self._names["transaction"]), producer)
        self._transactions[transaction.number] = transaction
        return transaction

    def send_in(
        self, transaction: TransactionState, destination: Destination, body: Body, headers: Mapping[str, Any]
    ) -> None:
        """Send a message that becomes visible when the transaction is committed.

        Raises:
            UnsendableMessage, FrameTooLarge: it cannot be sent; the transaction goes on without it.
            TransactionRolledBack: the transaction is broken off, or over.
        """
        self.check(transaction)
        outgoing = self._outgoing(transaction.producer, destination, body, headers)
        request = Send(message=replace(outgoing, transaction=transaction.number))
        self._begun(transaction)
        number = next(self._numbers)
        if self._conversation is not None and self.is_open:
            self._conversation.request(request, number, answer=False)
        transaction.sends[number] = request

    def take_in(self, transaction: TransactionState, message: Message) -> None:
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
        ticket = self._ask(Commit(transaction=transaction.number))
        ticket.watch(lambda: self._committed(transaction, ticket.error, outcome))
        outcome.number = ticket.number
        return outcome

    def roll_back(self, transaction: TransactionState) -> None:
        """Do nothing of it. The messages it took come again."""
        if transaction.is_ended:
            return
        transaction.is_ended = True
        if transaction.is_begun:
            self._tell(Rollback(transaction=transaction.number))
        self._redeliver(transaction)
        self._end(transaction)

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
        if self._transactions.pop(transaction.number, None) is not None:
            self._spare_producers.append(transaction.producer)

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
        if not transaction.is_begun and self._conversation is not None and self.is_open:
            transaction.is_begun = True
            self._conversation.request(Begin(transaction=transaction.number), next(self._numbers), answer=False)

    def _redeliver(self, transaction: TransactionState) -> None:
        for number, messages in transaction.taken.items():
            if number in self._consumers:
                self._consumers[number].redeliver(messages)

    def _lose_taken(self, transaction: TransactionState) -> None:
        for number, messages in transaction.taken.items():
            if number in self._consumers:
                self._consumers[number].lost_in_transaction(messages)
        transaction.taken.clear()

    # ------------------------------------------------------------ requests

    def _outgoing(self, producer: int, destination: Destination, body: Body, headers: Mapping[str, Any]) -> Outgoing:
        if producer not in self._sequences:
            raise ConnectionClosed("the producer is closed")
        headers = dict(headers)
        now = self._wall_clock_ms()
        ttl = headers.pop("ttl", None)
        if ttl is not None:
            headers["expiration"] = now + int(ttl * 1000)
        try:
            return Outgoing(
                producer=producer,
                sequence=next(self._sequences[producer]),
                destination=destination,
                body=body,
                timestamp=now,
                **headers,
            )
        except TypeError as error:
            raise UnsendableMessage(f"a header that there is not: {error}") from error

    def _ask(self, request: Request, *, answer: bool = True) -> Ticket[None]:
        """Ask for something now, or as soon as there is a broker; what needs no answer is done when it is sent."""
        ticket: Ticket[None] = Ticket(next(self._numbers), request, answer=answer)
        if self.error is not None:
            ticket.resolve(error=self.error)
            return ticket
        self._unanswered[ticket.number] = ticket
        if self.is_open:
            self._transmit(ticket)
        return ticket

    def _tell(self, request: Request) -> None:
        """Ask for something that only matters to the present broker."""
        if self._conversation is None or not self.is_open:
            return
        try:
            self._conversation.request(request, next(self._numbers), answer=False)
        except (FrameTooLarge, UnsendableMessage) as error:
            _log.warning("%s cannot be sent: %s", type(request).__name__, error)

    def _acknowledge(self, request: Acknowledge, answer: bool) -> Ticket[None] | None:
        if not self.is_open:
            return None
        if answer:
            return self._ask(request)
        self._tell(request)
        return None

    def _transmit(self, ticket: Ticket[None]) -> None:
        conversation, request = self._conversation, ticket.request
        assert conversation is not None, "only while it is open"
        assert request is not None, "a ticket to be sent is one request's"
        try:
            conversation.request(request, ticket.number, answer=ticket.answer)
        except ClientError as error:
            self._resolve(ticket.number, error)
            return
        ticket.is_sent = True
        if not ticket.answer:
            if isinstance(request, Send):
                self._tracked.add(request)
            self._resolve(ticket.number)

    def _resolve(self, number: int, error: ClientError | None = None) -> None:
        ticket = self._unanswered.pop(number, None)
        if ticket is None:
            return
        if error is not None:
            self._refused(ticket.request, error)
        ticket.resolve(error=error)

    def _refused(self, request: Request | None, error: ClientError) -> None:
        """Forget what would have lasted."""
        match request:
            case Subscribe(consumer=number) if number in self._consumers:
                self._consumers.pop(number).end(error)
            case AddProducer(producer=number):
                self._producers.pop(number, None)
            case AddTemporary(destination=destination):
                self._temporaries.pop(destination, None)
            case Acknowledge():
                _log.warning("an acknowledgement was refused: %s", error)
            case _:
                pass

    def withdraw(self, ticket: Ticket[Any], error: ClientError) -> None:
        """Wait no longer for an outcome. It is not asked for again; it may happen, if it was sent."""
        if ticket.is_done:
            return
        pending = self._unanswered.get(ticket.number)
        if pending is None:
            ticket.resolve(error=error)
            return
        if isinstance(pending.request, Commit) and pending.is_sent:
            in_doubt = TransactionInDoubt("the broker did not answer the commit in time")
            in_doubt.__cause__ = error
            error = in_doubt
        if isinstance(pending.request, Subscribe) and (consumer := self._consumers.get(pending.request.consumer)):
            self.unsubscribe(consumer)
        self._resolve(ticket.number, error)

    # ------------------------------------------------------------ brokers come and go

    def attach(self, conversation: Conversation, *, is_failover: bool, is_again: bool) -> None:
        """Log in to a broker: `receive` tells when it lets us in, and has then restored everything."""
        self._conversation = conversation
        conversation.open(replace(self._login, is_failover=is_failover, is_again=is_again))

    def receive(self, chunk: bytes) -> list[Event]:
        """Take what the broker sent, and return those events that are about the connection itself.

        Raises:
            ProtocolViolation, FrameTooLarge: as `Conversation.receive`.
        """
        if self._conversation is None:
            return []
        others: list[Event] = []
        for event in self._conversation.receive(chunk):
            match event:
                case Delivered(consumer=number, message=message):
                    if number in self._consumers:
                        self._consumers[number].arrive(message)
                case Answered(number=number, error=error):
                    self._resolve(number, error)
                case Complained(error=error):
                    _log.warning("the broker reports: %s", error)
                case ConsumerEnded(consumer=number, error=error):
                    if number in self._consumers:
                        self._consumers.pop(number).end(error)
                case Opened():
                    self._restore()
                    others.append(event)
                case _:
                    others.append(event)
        return others

    def bytes_to_send(self) -> bytes:
        """Return, and forget, what the broker shall get."""
        return self._conversation.bytes_to_send() if self._conversation is not None else b""

    def close(self, *, finished: bool) -> None:
        """Say goodbye to the broker, if there is one.

        Args:
            finished: the messages that the application got last are processed (auto).
        """
        if self._conversation is not None and self.is_open:
            for consumer in self._consumers.values():
                if finished:
                    consumer.finish_current()
                consumer.acknowledge_run()
            self._conversation.close()
            self.is_open = False  # what is asked for from now on is for the next broker

    def tick(self) -> float:
        """Do what time asks for; return when to ask again.

        Raises:
            ConnectionLost: as `Conversation.tick`.
        """
        now = self._clock()
        due_at = self._conversation.tick(now) if self._conversation is not None else float("inf")
        for consumer in list(self._consumers.values()):
            consumer.tick(now)
            due_at = min(due_at, consumer.due_at)
        return due_at

    @property
    def due_at(self) -> float:
        """When a consumer has something to do for `tick`; the conversation's own times do not change in between."""
        return min((consumer.due_at for consumer in self._consumers.values()), default=float("inf"))

    def interrupted(self) -> None:
        """Note that the broker is gone: what it left open comes back with the next one."""
        self._conversation = None
        self.is_open = False
        for transaction in list(self._transactions.values()):
            self._interrupt(transaction)
        for consumer in (*self._consumers.values(), *self._leaving.values()):
            consumer.interrupted()
        for ticket in list(self._unanswered.values()):
            if isinstance(ticket.request, _ASKED_ONCE):
                self._resolve(ticket.number)
            elif isinstance(ticket.request, Commit) and ticket.is_sent:
                doubt = "the connection broke before the commit was answered: it may be done, or not"
                self._resolve(ticket.number, TransactionInDoubt(doubt))

    def _interrupt(self, transaction: TransactionState) -> None:
        transaction.is_begun = False
        if transaction.taken and not transaction.is_ended:
            self._lose_taken(transaction)
            transaction.doom = TransactionRolledBack("the connection broke: the messages that it took come again")
        elif transaction.sends and not self._restore_transactions and not transaction.is_ended:
            transaction.doom = TransactionRolledBack("the connection broke, and transactions are not restored")

    def fail(self, error: ClientError) -> None:
        """Give up for good: everybody who waits gets that error."""
        if self.error is not None:
            return
        self.interrupted()
        self.error = error
        for consumer in list(self._consumers.values()):
            consumer.end(error)
        for number in list(self._unanswered):
            self._resolve(number, error)
        for reply in list(self._replies.values()):
            reply.resolve(error=error)

    # ------------------------------------------------------------ restoring

    def _restore(self) -> None:
        """Ask for everything again, in the order drawn above."""
        self.is_open = True
        waiting = list(self._unanswered.values())
        restored: set[int] = set()
        for opening in (*self._temporaries.values(), *self._producers.values()):
            restored.add(self._reopen(opening))
        for consumer in self._consumers.values():
            opening = Opening(consumer.subscribe, consumer.ticket)
            restored.add(self._reopen(opening))
            consumer.ticket = opening.ticket
        for transaction in self._transactions.values():
            self._resume(transaction)
        for request in self._tracked:
            self._tell(request)
        for ticket in waiting:
            if ticket.number not in restored and not ticket.is_done:
                self._transmit(ticket)

    def _reopen(self, opening: Opening) -> int:
        """Ask for something that lasts again: whoever waits for the first answer gets this one."""
        if opening.ticket.is_done:
            ticket: Ticket[None] = Ticket(next(self._numbers), opening.request)
            self._unanswered[ticket.number] = opening.ticket = ticket
            ticket.watch(lambda: self._not_restored(opening.request, ticket.error))
        self._transmit(opening.ticket)
        return opening.ticket.number

    def _not_restored(self, request: Request, error: ClientError | None) -> None:
        if error is not None and self.error is None:
            _log.error("not restored after the connection broke: %s: %s", request, error)

    def _resume(self, transaction: TransactionState) -> None:
        if transaction.doom is not None or not transaction.sends:
            return
        self._begun(transaction)
        conversation = cast("Conversation", self._conversation)
        try:
            for number, request in transaction.sends.items():
                conversation.request(request, number, answer=False)
        except (FrameTooLarge, UnsendableMessage) as error:  # this broker takes less than the one before
            transaction.doom = TransactionRolledBack(f"it cannot be restored: {error}")


class _Tracked:
    """Sends without answer that may have been lost: the latest, up to a number of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._sends: deque[tuple[Send, int]] = deque()

    def add(self, request: Send) -> None:
        """Remember one, and forget the oldest beyond the limit."""
        if not self._bytes_max:
            return
        size = _size(request.message.body)
        self._sends.append((request, size))
        self._bytes += size
        while self._bytes > self._bytes_max:
            self._bytes -= self._sends.popleft()[1]

    def __iter__(self) -> Iterator[Send]:
        return iter([request for request, _ in self._sends])


def _size(body: Body) -> int:
    """Return about how many bytes a message counts for: ActiveMQ's overhead, and its body's."""
    content = body if isinstance(body, str | bytes) else repr(body)
    return 1024 + len(content)
