"""The state of one connection, and its restoration on the next broker. The module does no I/O.

A request of the application is sent at once if there is a broker. It is kept until the broker answers; a request for an
object, such as a consumer, is kept until the object is closed. After the login at the next broker the kept requests are
sent again, with the same ids and numbers:

```text
 1 destinations that it created   2 producers   3 consumers   4 open transactions: begin, and all their sends
 5 sends without an answer, if they are tracked   6 the other requests without an answer yet, in order
```

The parts are in other modules, which depend on each other so:

```text
 state ──> transactions ──> consumers, producers ──> requests ──> conversation
```

Not thread-safe: `link` holds the lock. Source: ActiveMQ 5.17, `ConnectionStateTracker`, `FailoverTransport`.
"""

import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.client.browser import BrowserState
from pybroker.client.consumers import ConsumerState, Redelivery, RedeliveryCache
from pybroker.client.conversation import (
    AckMode,
    Acknowledge,
    AddConsumer,
    AddProducer,
    AddTemporary,
    Answered,
    CommitTransaction,
    ConsumerEnded,
    Conversation,
    CreateDestination,
    DeleteDestination,
    Delivered,
    DestinationListed,
    ErrorReported,
    Event,
    Exhausted,
    Login,
    Opened,
    RemoveConsumer,
    RemoveDurable,
    Request,
    SendMessage,
)
from pybroker.client.error_reports import ErrorReports
from pybroker.client.errors import (
    ClientError,
    ConnectionClosed,
    DestinationRefused,
    TransactionInDoubt,
    TransactionRolledBack,
)
from pybroker.client.lookups import Lookups
from pybroker.client.messages import Body, Message
from pybroker.client.pending import Callbacks, PendingResult
from pybroker.client.producers import Producers
from pybroker.client.requests import Requests, RestorableRequest
from pybroker.client.returns import Returns
from pybroker.client.transactions import Transactions

REPLIES_PREFETCH: Final = 100

_log = logging.getLogger(__name__)


class ClientState:
    """The state of one connection.

    Attributes:
        producers: the open producers.
        transactions: the open transactions.
        on_failed: called when the connection has failed or is closed.
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
        """Create the state, without a broker.

        Args:
            login: the data of the login at each broker.
            clock: returns seconds of a monotonic clock.
            wall_clock_ms: returns milliseconds since the epoch.
            redelivery: the redelivery policy after a rollback.
            tracked_bytes_max: limit to the bytes of sends without an answer that are kept, to send them again.
            restore_transactions: send the messages of open transactions again to the next broker; otherwise a break
                rolls them back.
        """
        self._login = login
        self._clock = clock
        self._redelivery = redelivery or Redelivery()
        self._conversation: Conversation | None = None
        self._requests = Requests(on_refused=self._on_refused, tracked_bytes_max=tracked_bytes_max)
        self._counters = {kind: count(1) for kind in ("consumer", "temporary", "correlation", "served")}
        self._destinations: dict[Destination, RestorableRequest] = {}
        self._consumers: dict[int, ConsumerState] = {}
        self._unsubscribing: dict[int, ConsumerState] = {}
        self._redelivery_cache = RedeliveryCache()
        self._reply_to: Destination | None = None
        self._replies: dict[str, PendingResult[Message]] = {}
        self._error_reports = ErrorReports()
        self._lookups = Lookups(self._requests, on_ended=self._forget_destination)
        self.on_failed = Callbacks()
        self.producers = Producers(self._requests, wall_clock_ms)
        self.transactions = Transactions(
            self._requests,
            self.producers,
            self._consumers,
            restore=restore_transactions,
            on_ended=self._error_reports.summarise,
        )

        self._returns = Returns(self._requests, self.transactions, self._consumers, self._counters["consumer"])

    @property
    def is_open(self) -> bool:
        """True while a broker accepts requests."""
        return self._requests.is_open

    @property
    def error(self) -> ClientError | None:
        """The reason why the connection failed; None while a broker may accept requests again."""
        return self._requests.error

    # ------------------------------------------------------------ operations of the application

    def send(
        self, producer: int, destination: Destination, body: Body, headers: Mapping[str, Any]
    ) -> PendingResult[None]:
        """Send a message without a transaction. A persistent message is done when the broker has it on disk.

        Raises:
            UnsendableMessage: there is no such header.
            ConnectionClosed: the producer is closed.
        """
        request = SendMessage(message=self.producers.message(producer, destination, body, headers))
        return self._requests.submit(request, answer=request.message.persistent)

    def subscribe(
        self, destination: Destination, *, ack: AckMode, prefetch: int, **options: Any
    ) -> tuple[ConsumerState, PendingResult[None]]:
        """Open a consumer; `options` are further attributes of `AddConsumer`."""
        number = next(self._counters["consumer"])
        request = AddConsumer(consumer=number, destination=destination, ack=ack, prefetch=prefetch, **options)
        consumer = ConsumerState(
            request,
            requests=self._requests,
            redelivery_cache=self._redelivery_cache,
            redelivery=self._redelivery,
            clock=self._clock,
        )
        return self._open(consumer)

    def browse(
        self, destination: Destination, *, prefetch: int, selector: str | None
    ) -> tuple[ConsumerState, PendingResult[None]]:
        """Open a browser of a queue.

        Raises:
            DestinationRefused: the destination is not a queue.
        """
        if not destination.is_queue:
            raise DestinationRefused(f"only queues can be browsed, and this is not one: {destination}")
        request = AddConsumer(
            consumer=next(self._counters["consumer"]),
            destination=destination,
            ack=AckMode.AUTO,
            prefetch=prefetch,
            selector=selector,
            browser=True,
        )
        return self._open(BrowserState(request, requests=self._requests, clock=self._clock))

    def _open(self, consumer: ConsumerState) -> tuple[ConsumerState, PendingResult[None]]:
        request = consumer.subscribe
        self._consumers[request.consumer] = consumer  # first: messages may arrive before the answer
        consumer.subscribe_result = self._requests.submit(request)
        return consumer, consumer.subscribe_result

    def unsubscribe(
        self, consumer: ConsumerState, *, finished: bool = True, error: ClientError | None = None
    ) -> PendingResult[None] | None:
        """Close a consumer. The broker gets its unacknowledged messages back.

        Args:
            consumer: the consumer.
            finished: in auto mode, acknowledge the message that the application received last.
            error: the error for a caller that still waits for the subscription; by default `ConnectionClosed`.

        Returns:
            The result of the request. The broker's answer also confirms the last acknowledgements; the loss of the
            connection completes the result as well. None if there is no broker, or the consumer was closed before.
        """
        number = consumer.subscribe.consumer
        if self._consumers.get(number) is not consumer:
            return None
        if finished and consumer.error is None:
            consumer.acknowledge_current()
        closed = ConnectionClosed("the consumer is closed")
        last = consumer.last
        consumer.end(closed)
        del self._consumers[number]
        # Otherwise the next broker would get the request.
        self._requests.complete(consumer.subscribe_result.number, error or closed)
        if self._conversation is None:
            return None
        self._unsubscribing[number] = consumer  # until the broker confirms its acknowledgements
        if not self.is_open:
            return None
        request = RemoveConsumer(consumer=number, last=last, durable=consumer.subscribe.durable)
        pending = self._requests.submit(request)
        pending.add_done_callback(lambda: self._unsubscribed(number))
        return pending

    def _unsubscribed(self, number: int) -> None:
        self._unsubscribing.pop(number, None)

    def give_back(self, consumer: ConsumerState, message: Message) -> PendingResult[None]:
        """Return an unacknowledged message to its queue, for any consumer.

        Raises:
            ClientError: as `Returns.give_back`.
        """
        return self._give_back(consumer, message, is_seen=True)

    def _give_back(self, consumer: ConsumerState, message: Message, *, is_seen: bool) -> PendingResult[None]:
        can_release = self._conversation is not None and self._conversation.can_release
        return self._returns.give_back(consumer, message, is_seen=is_seen, can_release=can_release)

    def stop(self, consumer: ConsumerState, unused: Iterable[Message] = ()) -> None:
        """Stop a consumer until `ConsumerState.set_prefetch`: its messages that wait, or arrive later, are given back.

        Args:
            consumer: the consumer.
            unused: messages that the application has and will not process, which are given back too.

        Raises:
            UnsendableMessage: the protocol has no form for it.
            ClientError: the consumer has ended, or as `ConsumerState.check_can_stop`.
        """
        consumer.check_can_stop()
        consumer.set_prefetch(0)
        consumer.is_stopped = True
        for message in unused:
            self._give_back_unseen(consumer, message)
        self._give_back_waiting(consumer)

    def _dispatch(self, consumer: ConsumerState, message: Message) -> None:
        consumer.dispatch(message)
        if consumer.is_stopped:
            self._give_back_waiting(consumer)

    def _give_back_waiting(self, consumer: ConsumerState) -> None:
        while (message := consumer.receive_no_wait()) is not None:
            self._give_back_unseen(consumer, message)

    def _give_back_unseen(self, consumer: ConsumerState, message: Message) -> None:
        try:
            pending = self._give_back(consumer, message, is_seen=False)
        except ClientError as error:  # it has to be copied, and cannot be
            _log.warning("a message stays with a stopped consumer until that is closed: %s: %s", message.id, error)
        else:
            pending.add_done_callback(functools.partial(_log_kept, message, pending))

    def remove_durable(self, name: str) -> PendingResult[None]:
        """Delete a durable subscription and its backlog."""
        return self._requests.submit(RemoveDurable(name=name))

    def add_temporary(self, kind: DestinationType) -> tuple[Destination, PendingResult[None]]:
        """Create a temporary destination."""
        number = next(self._counters["temporary"])
        destination = Destination(kind, f"{self._login.connection_id}:{number}")
        request = AddTemporary(destination=destination)
        pending = self._requests.submit(request)
        self._destinations[destination] = RestorableRequest(request, pending)
        return destination, pending

    def _forget_destination(self, destination: Destination) -> None:
        self._destinations.pop(destination, None)

    def create_destination(self, destination: Destination) -> PendingResult[None]:
        """Create a queue or topic, if it does not exist. The next broker gets it too, unless it is deleted before."""
        # An ActiveMQ that is killed forgets a queue that never had a message.
        request = CreateDestination(destination=destination)
        pending = self._requests.submit(request)
        self._destinations[destination] = RestorableRequest(request, pending)
        return pending

    def delete_destination(self, destination: Destination) -> PendingResult[None]:
        """Delete a destination with its messages, if it exists."""
        self._forget_destination(destination)  # otherwise the next broker would get it
        return self._requests.submit(DeleteDestination(destination=destination))

    def find_destination(self, destination: Destination) -> PendingResult[bool]:
        """Return True, as a pending result, if a destination exists. Does not create it."""
        newest, _ = self.add_temporary(DestinationType.TEMP_QUEUE)
        return self._lookups.find(destination, next(self._counters["consumer"]), newest)

    def receive_any(self, consumers: Sequence[ConsumerState]) -> tuple[ConsumerState, Message] | None:
        """Return the next message of the consumer that waits longest for its turn; None if no consumer has one.

        In auto mode this acknowledges the previous message of each of the consumers.

        Raises:
            ClientError: the connection has failed, the broker has ended a consumer, or all the consumers are closed.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        for consumer in consumers:
            if consumer.error is not None and not isinstance(consumer.error, ConnectionClosed):
                raise consumer.error.with_traceback(None)
        still_open = [consumer for consumer in consumers if consumer.error is None]
        if consumers and not still_open:
            raise ConnectionClosed("all the consumers are closed")
        for consumer in still_open:
            consumer.acknowledge_current()
        ready = [consumer for consumer in still_open if consumer.has_message]
        if not ready:
            for consumer in still_open:
                consumer.flush_acknowledgements()
            return None
        chosen = min(ready, key=lambda consumer: consumer.last_served)
        chosen.last_served = next(self._counters["served"])
        message = chosen.receive_no_wait()
        return None if message is None else (chosen, message)

    def request(
        self,
        producer: int,
        destination: Destination,
        body: Body,
        headers: Mapping[str, Any],
        *,
        ttl: float | None = None,
    ) -> PendingResult[Message]:
        """Send a message and return its pending reply. The message expires after `ttl` seconds."""
        correlation_id = f"{self._login.connection_id}:{next(self._counters['correlation'])}"
        headers = {
            "persistent": False,
            "ttl": ttl,
            **headers,
            "reply_to": self._reply_queue(),
            "correlation_id": correlation_id,
        }
        reply: PendingResult[Message] = PendingResult()
        self._replies[correlation_id] = reply
        sent = self._requests.submit(SendMessage(message=self.producers.message(producer, destination, body, headers)))
        sent.add_done_callback(lambda: reply.complete(error=sent.error) if sent.error else None)
        reply.add_done_callback(lambda: self._forget_reply(correlation_id))
        return reply

    def _forget_reply(self, correlation_id: str) -> None:
        self._replies.pop(correlation_id, None)

    def _reply_queue(self) -> Destination:
        """Return the temporary queue for replies; create it and its consumer at the first call."""
        if self._reply_to is None:
            self._reply_to, _ = self.add_temporary(DestinationType.TEMP_QUEUE)
            consumer, pending = self.subscribe(self._reply_to, ack=AckMode.AUTO, prefetch=REPLIES_PREFETCH)
            consumer.on_message = self._on_reply
            pending.add_done_callback(lambda: self._on_reply_queue_opened(pending.error))
        return self._reply_to

    def _on_reply(self, message: Message) -> None:
        pending = self._replies.get(message.correlation_id or "")
        if pending is not None:
            pending.complete(message)

    def _on_reply_queue_opened(self, error: ClientError | None) -> None:
        if error is not None:
            self._reply_to = None
            for pending in list(self._replies.values()):
                pending.complete(error=error)

    # ------------------------------------------------------------ answers

    def _on_refused(self, request: Request, error: ClientError) -> None:
        """Remove the object whose request was refused, so that it is not restored."""
        match request:
            case AddConsumer(consumer=number) if number in self._consumers:
                self._consumers.pop(number).end(error)
            case AddProducer(producer=number):
                self.producers.forget(number)
            case AddTemporary(destination=destination) | CreateDestination(destination=destination):
                self._destinations.pop(destination, None)
                self._lookups.refused(destination, error)
            case Acknowledge():
                _log.warning("an acknowledgement was refused: %s", error)
            case _:
                pass

    def cancel(self, pending: PendingResult[Any], error: ClientError) -> None:
        """Complete an operation with an error, and do not repeat it. If it was sent, the broker may carry it out."""
        if pending.is_done:
            return
        submitted = self._requests.find(pending.number)
        if submitted is None:
            pending.complete(error=error)
            return
        if isinstance(submitted.request, CommitTransaction) and submitted.is_sent:
            in_doubt = TransactionInDoubt("the broker did not answer the commit in time")
            in_doubt.__cause__ = error
            error = in_doubt
        if isinstance(submitted.request, AddConsumer) and (consumer := self._consumers.get(submitted.request.consumer)):
            self.unsubscribe(consumer, error=error)
        self._requests.complete(pending.number, error)

    # ------------------------------------------------------------ brokers come and go

    def attach(self, conversation: Conversation, *, is_failover: bool, is_again: bool) -> None:
        """Log in to a broker. `receive` restores the state when the broker accepts the login, and returns `Opened`."""
        self._conversation = conversation
        self._requests.attach(conversation)
        conversation.open(replace(self._login, is_failover=is_failover, is_again=is_again))

    def receive(self, chunk: bytes) -> list[Event]:
        """Process bytes from the broker, and return the events that concern the connection itself.

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
                        self._dispatch(self._consumers[number], message)
                case Answered(number=number, error=error):
                    self._requests.complete(number, error)
                case Exhausted(consumer=number):
                    if number in self._consumers:
                        self._consumers[number].exhausted()
                case DestinationListed(consumer=number, destination=destination):
                    self._lookups.listed(number, destination)
                case ErrorReported(error=error):
                    self._error_reports.add(error, self._clock())
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
        """Send all kept requests again, in the order of the module's diagram."""
        requests = self._requests
        requests.is_open = True
        self._unsubscribing.clear()
        unanswered = requests.unanswered()
        restored: set[int] = set()
        for restorable in (*self._destinations.values(), *self.producers.restorable):
            restored.add(requests.restore(restorable))
        for consumer in list(self._consumers.values()):  # garbage collection may close a browser at any time
            restorable = RestorableRequest(consumer.subscribe, consumer.subscribe_result)
            restored.add(requests.restore(restorable))
            consumer.subscribe_result = restorable.pending
            consumer.restored()
        restored.update(self._lookups.restore())
        self.transactions.restore()
        requests.resend([pending for pending in unanswered if pending.number not in restored])

    def bytes_to_send(self) -> bytes:
        """Return the bytes to send to the broker, and remove them here."""
        return self._conversation.bytes_to_send() if self._conversation is not None else b""

    def written(self) -> None:
        """Record that the transport has all bytes that `bytes_to_send` returned: the broker may have received them."""
        self._requests.written()

    def close(self, *, finished: bool) -> None:
        """Close the connection to the broker in order, if there is one.

        Args:
            finished: in auto mode, acknowledge the messages that the application received last.
        """
        if self._conversation is not None and self.is_open:
            for consumer in list(self._consumers.values()):
                if finished:
                    consumer.acknowledge_current()
                consumer.flush_acknowledgements()
            self._conversation.close()
            self._requests.is_open = False  # later requests wait for the next broker

    def tick(self) -> float:
        """Do the work due, such as heart-beats and acknowledgements; return the time of the next call.

        Raises:
            ConnectionLost: as `Conversation.tick`.
        """
        now = self._clock()
        due_at = self._conversation.tick(now) if self._conversation is not None else float("inf")
        if now >= self._error_reports.due_at:
            self._error_reports.summarise()
        due_at = min(due_at, self._error_reports.due_at)
        for consumer in list(self._consumers.values()):
            consumer.tick(now)
            due_at = min(due_at, consumer.due_at)
        return due_at

    @property
    def due_at(self) -> float:
        """The time of the next `tick` for consumers and error reports; a conversation's time changes in `tick` only."""
        consumers = min((consumer.due_at for consumer in self._consumers.values()), default=float("inf"))
        return min(consumers, self._error_reports.due_at)

    def interrupted(self) -> None:
        """Handle the loss of the broker: its state is restored on the next one."""
        self._conversation = None
        self._requests.is_open = False
        self._error_reports.summarise()
        self.transactions.interrupted()
        for consumer in (*self._consumers.values(), *self._unsubscribing.values()):
            consumer.interrupted()
        self._unsubscribing.clear()
        self._lookups.interrupted()
        self._requests.interrupted()

    def fail(self, error: ClientError) -> None:
        """Complete all pending results, and end all consumers, with an error: the connection has failed."""
        if self.error is not None:
            return
        self.interrupted()
        for consumer in list(self._consumers.values()):
            consumer.end(error)
        self._requests.fail(error)
        for reply in list(self._replies.values()):
            reply.complete(error=error)
        self._lookups.fail(error)
        self.on_failed.call()


def _log_kept(message: Message, pending: PendingResult[None]) -> None:
    if isinstance(pending.error, TransactionRolledBack):
        _log.warning("a message stays with a stopped consumer until that is closed: %s: %s", message.id, pending.error)
