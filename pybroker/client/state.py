"""All that a connection has open, and how it comes back on the next broker: everything but the I/O.

What the application asks for goes to the broker at once, if there is one, and is remembered until it is answered or for
as long as it lasts. When the next broker lets us in, this is asked for again, with the same ids and numbers:

```text
 1 temporary destinations   2 producers   3 consumers   4 open transactions: begin, and all their sends
 5 sends without answer, if they are tracked   6 whatever waits for an answer, in its order
```

`requests`, `producers`, `consumers` and `transactions` know how; who depends on whom:

```text
 state ──> transactions ──> consumers, producers ──> requests ──> conversation
```

Not thread-safe: `link` has the lock. Source: ActiveMQ 5.17, `ConnectionStateTracker`, `FailoverTransport`.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.client.browser import BrowserState
from pybroker.client.complaints import Complaints
from pybroker.client.consumers import ConsumerState, Kept, Redelivery
from pybroker.client.conversation import (
    AckMode,
    Acknowledge,
    AddProducer,
    AddTemporary,
    Answered,
    Commit,
    Complained,
    ConsumerEnded,
    Conversation,
    Delivered,
    Event,
    Exhausted,
    Login,
    Opened,
    RemoveDurable,
    RemoveTemporary,
    Request,
    Send,
    Subscribe,
    Unsubscribe,
)
from pybroker.client.errors import ClientError, ConnectionClosed, TransactionInDoubt
from pybroker.client.messages import Body, Message
from pybroker.client.producers import Producers
from pybroker.client.requests import Opening, Requests
from pybroker.client.tickets import Ticket
from pybroker.client.transactions import Transactions

REPLIES_PREFETCH: Final = 100

_log = logging.getLogger(__name__)


class ClientState:
    """One connection's state.

    Attributes:
        producers: its producers.
        transactions: its open transactions.
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
        self._login = login
        self._clock = clock
        self._redelivery = redelivery or Redelivery()
        self._conversation: Conversation | None = None
        self._requests = Requests(refused=self._refused, tracked_bytes_max=tracked_bytes_max)
        self._names = {kind: count(1) for kind in ("consumer", "temporary", "correlation")}
        self._temporaries: dict[Destination, Opening] = {}
        self._consumers: dict[int, ConsumerState] = {}
        self._leaving: dict[int, ConsumerState] = {}
        self._kept = Kept()
        self._reply_to: Destination | None = None
        self._replies: dict[str, Ticket[Message]] = {}
        self._complaints = Complaints()
        self.producers = Producers(self._requests, wall_clock_ms)
        self.transactions = Transactions(
            self._requests,
            self.producers,
            self._consumers,
            restore=restore_transactions,
            on_ended=self._complaints.summarise,
        )

    @property
    def is_open(self) -> bool:
        """True while a broker takes requests."""
        return self._requests.is_open

    @property
    def error(self) -> ClientError | None:
        """Why no broker ever will again; None while one may."""
        return self._requests.error

    # ------------------------------------------------------------ the application asks

    def send(self, producer: int, destination: Destination, body: Body, headers: Mapping[str, Any]) -> Ticket[None]:
        """Send a message outside of transactions; a persistent one is done when the broker has it on disk.

        Raises:
            UnsendableMessage: a header is of no use.
        """
        request = Send(message=self.producers.message(producer, destination, body, headers))
        return self._requests.ask(request, answer=request.message.persistent)

    def subscribe(
        self, destination: Destination, *, ack: AckMode, prefetch: int, **options: Any
    ) -> tuple[ConsumerState, Ticket[None]]:
        """Begin to consume; `options` are further ones of `Subscribe`."""
        number = next(self._names["consumer"])
        request = Subscribe(consumer=number, destination=destination, ack=ack, prefetch=prefetch, **options)
        consumer = ConsumerState(
            request, requests=self._requests, kept=self._kept, redelivery=self._redelivery, clock=self._clock
        )
        return self._open(consumer)

    def browse(
        self, destination: Destination, *, prefetch: int, selector: str | None
    ) -> tuple[ConsumerState, Ticket[None]]:
        """Begin to look at what a queue holds."""
        request = Subscribe(
            consumer=next(self._names["consumer"]),
            destination=destination,
            ack=AckMode.AUTO,
            prefetch=prefetch,
            selector=selector,
            browser=True,
        )
        return self._open(BrowserState(request, requests=self._requests, clock=self._clock))

    def _open(self, consumer: ConsumerState) -> tuple[ConsumerState, Ticket[None]]:
        request = consumer.subscribe
        self._consumers[request.consumer] = consumer  # before it is asked for: messages may come before the answer
        consumer.ticket = self._requests.ask(request)
        return consumer, consumer.ticket

    def unsubscribe(
        self, consumer: ConsumerState, *, finished: bool = True, error: ClientError | None = None
    ) -> Ticket[None] | None:
        """Stop consuming. What is not acknowledged goes back to the broker.

        Args:
            consumer: whose.
            finished: the message that the application got last is processed (auto).
            error: what a thread gets that still waits for the subscription; by default that the consumer is closed.

        Returns:
            The broker's answer, which confirms the last acknowledgements, too; a break of the connection completes it
            as well. None when there is no broker to ask, or the consumer was closed before.
        """
        number = consumer.subscribe.consumer
        if self._consumers.get(number) is not consumer:
            return None
        if finished and consumer.error is None:
            consumer.finish_current()
        closed = ConnectionClosed("the consumer is closed")
        consumer.end(closed)
        del self._consumers[number]
        self._requests.resolve(consumer.ticket.number, error or closed)  # or the next broker would be asked for it
        if self._conversation is None:
            return None
        self._leaving[number] = consumer  # until the acknowledgements are confirmed: after a goodbye they are not
        if not self.is_open:
            return None
        request = Unsubscribe(consumer=number, last=consumer.last, durable=consumer.subscribe.durable)
        ticket = self._requests.ask(request)
        ticket.watch(lambda: self._left(number))
        return ticket

    def _left(self, number: int) -> None:
        self._leaving.pop(number, None)

    def remove_durable(self, name: str) -> Ticket[None]:
        """Delete a durable subscription and what waits for it."""
        return self._requests.ask(RemoveDurable(name=name))

    def add_temporary(self, kind: DestinationType) -> tuple[Destination, Ticket[None]]:
        """Make a temporary destination."""
        number = next(self._names["temporary"])
        destination = Destination(kind, f"{self._login.connection_id}:{number}")
        request = AddTemporary(destination=destination)
        ticket = self._requests.ask(request)
        self._temporaries[destination] = Opening(request, ticket)
        return destination, ticket

    def remove_temporary(self, destination: Destination) -> Ticket[None]:
        """Delete a temporary destination."""
        opening = self._temporaries.pop(destination, None)
        if opening is not None:
            self._requests.resolve(opening.ticket.number, ConnectionClosed("the temporary destination is deleted"))
        return self._requests.ask(RemoveTemporary(destination=destination))

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
        sent = self._requests.ask(Send(message=self.producers.message(producer, destination, body, headers)))
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

    # ------------------------------------------------------------ answers

    def _refused(self, request: Request, error: ClientError) -> None:
        """Forget what would have lasted."""
        match request:
            case Subscribe(consumer=number) if number in self._consumers:
                self._consumers.pop(number).end(error)
            case AddProducer(producer=number):
                self.producers.forget(number)
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
        pending = self._requests.pending(ticket.number)
        if pending is None:
            ticket.resolve(error=error)
            return
        if isinstance(pending.request, Commit) and pending.is_sent:
            in_doubt = TransactionInDoubt("the broker did not answer the commit in time")
            in_doubt.__cause__ = error
            error = in_doubt
        if isinstance(pending.request, Subscribe) and (consumer := self._consumers.get(pending.request.consumer)):
            self.unsubscribe(consumer, error=error)
        self._requests.resolve(ticket.number, error)

    # ------------------------------------------------------------ brokers come and go

    def attach(self, conversation: Conversation, *, is_failover: bool, is_again: bool) -> None:
        """Log in to a broker: `receive` tells when it lets us in, and has then restored everything."""
        self._conversation = conversation
        self._requests.attach(conversation)
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
                    self._requests.resolve(number, error)
                case Exhausted(consumer=number):
                    if number in self._consumers:
                        self._consumers[number].exhausted()
                case Complained(error=error):
                    self._complaints.add(error, self._clock())
                case ConsumerEnded(consumer=number, error=error):
                    if number in self._consumers:
                        self._consumers.pop(number).end(error)
                case Opened():
                    self._restore()
                    others.append(event)
                case _:
                    others.append(event)
        return others

    def _restore(self) -> None:
        """Ask for everything again, in the order drawn above."""
        requests = self._requests
        requests.is_open = True
        self._leaving.clear()
        waiting = requests.waiting()
        restored: set[int] = set()
        for opening in (*self._temporaries.values(), *self.producers.openings):
            restored.add(requests.reopen(opening))
        for consumer in list(self._consumers.values()):  # a browser may be collected at any time
            opening = Opening(consumer.subscribe, consumer.ticket)
            restored.add(requests.reopen(opening))
            consumer.ticket = opening.ticket
            consumer.restored()
        self.transactions.restore()
        requests.repeat([ticket for ticket in waiting if ticket.number not in restored])

    def bytes_to_send(self) -> bytes:
        """Return, and forget, what the broker shall get."""
        return self._conversation.bytes_to_send() if self._conversation is not None else b""

    def written(self) -> None:
        """Note that the transport has got all of `bytes_to_send`: the broker may have received it."""
        self._requests.written()

    def close(self, *, finished: bool) -> None:
        """Say goodbye to the broker, if there is one.

        Args:
            finished: the messages that the application got last are processed (auto).
        """
        if self._conversation is not None and self.is_open:
            for consumer in list(self._consumers.values()):
                if finished:
                    consumer.finish_current()
                consumer.acknowledge_run()
            self._conversation.close()
            self._requests.is_open = False  # what is asked for from now on is for the next broker

    def tick(self) -> float:
        """Do what time asks for; return when to ask again.

        Raises:
            ConnectionLost: as `Conversation.tick`.
        """
        now = self._clock()
        due_at = self._conversation.tick(now) if self._conversation is not None else float("inf")
        if now >= self._complaints.due_at:
            self._complaints.summarise()
        due_at = min(due_at, self._complaints.due_at)
        for consumer in list(self._consumers.values()):
            consumer.tick(now)
            due_at = min(due_at, consumer.due_at)
        return due_at

    @property
    def due_at(self) -> float:
        """When there is something to do for `tick`; the conversation's own times do not change in between."""
        consumers = min((consumer.due_at for consumer in self._consumers.values()), default=float("inf"))
        return min(consumers, self._complaints.due_at)

    def interrupted(self) -> None:
        """Note that the broker is gone: what it left open comes back with the next one."""
        self._conversation = None
        self._requests.is_open = False
        self._complaints.summarise()
        self.transactions.interrupted()
        for consumer in (*self._consumers.values(), *self._leaving.values()):
            consumer.interrupted()
        self._leaving.clear()
        self._requests.interrupted()

    def fail(self, error: ClientError) -> None:
        """Give up for good: everybody who waits gets that error."""
        if self.error is not None:
            return
        self.interrupted()
        for consumer in list(self._consumers.values()):
            consumer.end(error)
        self._requests.fail(error)
        for reply in list(self._replies.values()):
            reply.resolve(error=error)
