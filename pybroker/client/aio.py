"""The asyncio API: a connection, its producers, consumers and transactions, for the tasks of one event loop.

A task in the application's loop does the I/O of a connection. Other threads and loops must not use the connection. Only
one task at a time may use a consumer with `ack="auto"` or a transaction. `message.ack()` is no coroutine.

Every call that may wait has a `timeout` in seconds. None, the default, means the URI's `timeout`; without that there is
no limit. A failover makes calls take longer. The cancellation of a waiting task has the same effect as its timeout.

The synchronous API runs the same coroutines in threads. So in this module they wait by `Waiter` only.
"""

# ruff: noqa: ASYNC109 -- `timeout` is an argument here as it is in `sync`; asyncio.timeout works as well

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Self, Unpack

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.subscription import BROWSER_PREFETCH, DURABLE_PREFETCH, QUEUE_PREFETCH
from pybroker.client.arguments import (
    CLOSE_SECONDS,
    LIST_SECONDS,
    MessageHeaders,
    SubscriptionOptions,
    check_prefetch,
    destination_of,
    header_values,
    make_conversation,
    new_connection_name,
    one_destination,
)
from pybroker.client.browser import AllShown
from pybroker.client.consumers import ConsumerState, Redelivery
from pybroker.client.conversation import AckMode, Login
from pybroker.client.errors import ClientError, ConnectionClosed
from pybroker.client.link import ClientLink
from pybroker.client.messages import Body, Message
from pybroker.client.pending import PendingResult
from pybroker.client.state import ClientState
from pybroker.client.transactions import ClientTransaction
from pybroker.client.uri import parse
from pybroker.client.waiting import Flag, TaskFlag, Waiter


class Connection(contextlib.AbstractAsyncContextManager["Connection"]):
    """A connection to a broker, for an `async with` statement, which connects and closes it."""

    def __init__(
        self,
        uri: str,
        *,
        user: str | None = None,
        password: str | None = None,
        client_id: str | None = None,
        timeout: float | None = None,
        ssl_context: ssl.SSLContext | None = None,
        redelivery: Redelivery | None = None,
        on_interrupted: Callable[[Exception], object] | None = None,
        on_resumed: Callable[[str], object] | None = None,
    ) -> None:
        """Create a connection to a broker; the `async with` statement connects.

        Args:
            uri: such as `failover:(tcp://a:61616,tcp://b:61616)?randomize=false`.
            user: the user name; None for anonymous.
            password: the password; None for none.
            client_id: the client id, which identifies durable subscriptions; None for a generated one.
            timeout: the seconds that the first connection may take. Each of several brokers has its part of them.
            ssl_context: the TLS context for `ssl:` and `stomp+ssl:`; by default the system's authorities are trusted.
            redelivery: the redelivery policy for messages of a transaction that was rolled back.
            on_interrupted: called with the reason when the broker is lost. It must not block.
            on_resumed: called with the broker's address when the state is restored. It must not block.

        Raises:
            UnusableURI: the URI is not valid.
            TypeError: user, password or client id is no text.
            ValueError: it has more than 10,000 characters.

        The statement raises:
            BrokerMissing: no broker answered in all attempts that the URI allows.
            LoginRefused, UntrustedBroker, ProtocolViolation: another attempt does not help.
            Timeout: it took too long.
        """
        parsed = parse(uri)
        failover, name = parsed.failover, new_connection_name()
        state = ClientState(
            Login(connection_id=f"{name}:1", client_id=client_id or f"{name}:0", user=user, password=password),
            clock=time.monotonic,
            wall_clock_ms=lambda: time.time_ns() // 1_000_000,
            redelivery=redelivery,
            tracked_bytes_max=failover.max_cache_bytes if failover is not None and failover.track_messages else 0,
            restore_transactions=failover is None or failover.track_transaction_producers,
        )
        self._link = ClientLink(
            parsed,
            state,
            make=make_conversation,
            ssl_context=ssl_context,
            on_interrupted=on_interrupted,
            on_resumed=on_resumed,
            first_seconds=timeout,
        )
        self._waiter = Waiter(
            self._link, failover.timeout_seconds if failover is not None else None, make_flag=self._make_flag
        )
        self._connect_timeout = timeout
        self._running: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._producer: int | None = None

    async def __aenter__(self) -> Self:
        try:
            self._start()
            await self._waiter.wait(self._link.first_connection, self._connect_timeout, "connecting")
        except BaseException:
            await self.close(0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(CLOSE_SECONDS, finished=kind is None)

    def _start(self) -> None:
        """Start the I/O."""
        self._running = asyncio.create_task(self._link.run(), name="pybroker-client")

    def _make_flag(self) -> Flag:
        return TaskFlag()

    @property
    def broker(self) -> str | None:
        """The address of the present broker; None while there is none."""
        address = self._link.address
        return str(address) if address is not None else None

    @property
    def error(self) -> ClientError | None:
        """The reason why the connection has ended; None while it can be used, or looks for the next broker."""
        return self._link.state.error

    def call_when_ended(self, callback: Callable[[], None]) -> None:
        """Call a function once when the connection has failed or is closed; at once if that has happened.

        It is called in the thread of the connection, or of the caller. It must not block, and not use the connection.
        """
        with self._link as state:
            if state.error is not None:
                callback()
            else:
                state.on_failed.add(callback)

    async def send(
        self,
        destination: str | Destination,
        body: Body,
        *,
        timeout: float | None = None,
        **headers: Unpack[MessageHeaders],
    ) -> None:
        """Send a message. A persistent message, the default, is on the broker's disk on return.

        A non-persistent message may still be in transit on return, and may be lost with the broker.

        Raises:
            Refused: the broker refuses the message; `DestinationRefused` and `NoRoom` are subclasses for two causes.
            UnsendableMessage, FrameTooLarge: the message cannot be sent.
            Timeout: it took too long; the message may still be sent.
        """
        where, values = destination_of(destination), header_values(headers)
        await self._waiter.send(self._own_producer(), where, body, values, timeout)

    def begin_send(self, destination: str | Destination, body: Body, **headers: Unpack[MessageHeaders]) -> "Sending":
        """Send a message and return without waiting, so that many sends are in flight together and share disk syncs.

        The broker gets the messages in the order of the calls. The caller limits the sends in flight, because each is
        in memory until the broker answers.
        """
        producer, where = self._own_producer(), destination_of(destination)
        with self._link as state:
            pending = state.send(producer, where, body, header_values(headers))
        return Sending(self._waiter, pending)

    def _own_producer(self) -> int:
        """Return the producer of messages that name their destination; open it at the first call."""
        if self._producer is None:
            with self._link as state:
                if self._producer is None:
                    self._producer, _ = state.producers.add()
        return self._producer

    async def producer(self, destination: str | Destination, *, timeout: float | None = None) -> "Producer":
        """Return a producer for one destination.

        Raises:
            DestinationRefused: the broker refuses the destination.
        """
        where = destination_of(destination)
        with self._link as state:
            number, pending = state.producers.add(where)
        await self._waiter.wait(pending, timeout, "opening a producer")
        return Producer(self._waiter, where, number)

    async def consumer(
        self,
        destination: str | Destination,
        *,
        timeout: float | None = None,
        **subscription: Unpack[SubscriptionOptions],
    ) -> "Consumer":
        """Return a consumer of a queue or topic; the name may have wildcards.

        Raises:
            Refused: the broker refuses the consumer; `DestinationRefused` and `SelectorRefused` are two of the causes.
            ValueError: the acknowledgement mode is unknown, or the prefetch is negative.
        """
        # Also for topics: ActiveMQ's 32767 would take too much memory in Python.
        options: dict[str, Any] = {"prefetch": DURABLE_PREFETCH if subscription.get("durable") else QUEUE_PREFETCH}
        options |= {**subscription, "ack": AckMode(subscription.get("ack", "auto"))}
        check_prefetch(options["prefetch"])
        where = destination_of(destination)
        with self._link as state:
            consumer, pending = state.subscribe(where, **options)
            made = Consumer(self._waiter, consumer)  # before a message arrives
        await self._waiter.wait(pending, timeout, "subscribing")
        return made

    async def browse(
        self, queue: str | Destination, *, selector: str | None = None, timeout: float | None = None
    ) -> AsyncGenerator[Message]:
        """Yield the messages of a queue, the oldest first, without consuming them.

        This includes messages that are delivered to other consumers and not acknowledged. Messages that arrive or are
        consumed during the iteration may be included. After the last message the broker has no browser any more, so
        that the queue can be deleted.

        Raises:
            Refused: the broker refuses the browser; `DestinationRefused` and `SelectorRefused` are two of the causes.
            Timeout: the broker took longer than `timeout` for a message, or for the end.
        """
        where = destination_of(queue)
        with self._link as state:
            consumer, pending = state.browse(where, prefetch=BROWSER_PREFETCH, selector=selector)
        try:
            await self._waiter.wait(pending, timeout, "browsing")
            with contextlib.suppress(AllShown):
                while True:
                    yield await self._waiter.receive(consumer, self._waiter.timeout if timeout is None else timeout)
            with self._link as state:
                ended = state.unsubscribe(consumer)
            if ended is not None:
                await self._waiter.wait(ended, timeout, "the end of browsing")
        finally:
            # Garbage collection may run this in any thread.
            self._link.call_soon(lambda state: state.unsubscribe(consumer))

    def transaction(self) -> "Transaction":
        """Begin a transaction, for an `async with` statement: its end commits, an exception rolls back."""
        with self._link as state:
            return Transaction(self._waiter, state.transactions.begin())

    async def request(
        self,
        destination: str | Destination,
        body: Body,
        *,
        timeout: float | None = None,
        **headers: Unpack[MessageHeaders],
    ) -> Message:
        """Send a message and return the reply to it, which arrives in a temporary queue of this connection.

        Raises:
            Timeout: no reply arrived in time. The receiver may have processed the request.
        """
        producer = self._own_producer()
        with self._link as state:
            pending = state.request(producer, destination_of(destination), body, header_values(headers), ttl=timeout)
        reply = await self._waiter.wait(pending, timeout, "an answer")
        assert reply is not None, "a result without an error has a value"
        return reply

    async def temporary_destination(self, *, topic: bool = False, timeout: float | None = None) -> Destination:
        """Create a temporary queue or topic. It exists as long as this connection, which alone can consume from it."""
        with self._link as state:
            kind = DestinationType.TEMP_TOPIC if topic else DestinationType.TEMP_QUEUE
            destination, pending = state.add_temporary(kind)
        await self._waiter.wait(pending, timeout, "making a temporary destination")
        return destination

    async def receive_any(
        self, consumers: "Iterable[Consumer]", timeout: float | None = None
    ) -> "tuple[Consumer, Message]":
        """Return the next message of any of several consumers of this connection, with its consumer.

        If several have messages, each gets its turn. Consumers that are closed are ignored; a consumer that is opened
        during the call takes part in the next one. With `ack="auto"` the call acknowledges the previous message of each
        of the consumers. With `prefetch=0` each of them requests a message, and another message than the returned one
        may arrive too: the next call returns it.

        Args:
            consumers: the consumers; without any, the call waits for its timeout.
            timeout: seconds; 0 does not wait. None for no limit.

        Raises:
            Timeout: no message arrived in time.
            ConnectionClosed: the connection, or each of the consumers, is closed.
            ConnectionFailed: the connection has failed.
            Refused: the broker has ended one of the consumers, whose `error` is this one.
            ValueError: a consumer belongs to another connection.
        """
        chosen = {consumer._consumer: consumer for consumer in consumers}  # pyright: ignore[reportPrivateUsage]
        if any(consumer._link is not self._link for consumer in chosen.values()):  # pyright: ignore[reportPrivateUsage]
            raise ValueError("the consumers must be those of this connection")
        consumer, message = await self._waiter.receive_any(list(chosen), timeout)
        return chosen[consumer], message

    async def create_destination(self, destination: str | Destination, *, timeout: float | None = None) -> None:
        """Create a queue or topic; nothing happens if it exists. Needs OpenWire.

        On return the broker has created it. A queue `Consumer.NAME.VirtualTopic.TOPIC` stores the messages of its topic
        from then on, without a consumer.

        Raises:
            NotAuthorized: the user has no right to create it.
            DestinationRefused: the name lists several destinations, or is not allowed.
            UnsendableMessage: the connection uses STOMP.
        """
        where = one_destination(destination)
        with self._link as state:
            pending = state.create_destination(where)
        await self._waiter.wait(pending, timeout, "creating a destination")

    async def delete_destination(self, destination: str | Destination, *, timeout: float | None = None) -> None:
        """Delete a queue or topic with its messages; nothing happens if it does not exist. Needs OpenWire.

        Raises:
            Refused: the destination has a consumer, or is not to be deleted; `NotAuthorized` is one of the causes.
            DestinationRefused: the name lists several destinations.
            UnsendableMessage: the connection uses STOMP.
        """
        where = one_destination(destination)
        with self._link as state:
            pending = state.delete_destination(where)
        await self._waiter.wait(pending, timeout, "deleting a destination")

    async def destination_exists(self, destination: str | Destination, *, timeout: float | None = None) -> bool:
        """Return True if a queue or topic exists. Does not create it. Needs OpenWire.

        The broker lists all its destinations of the type for this, as advisories.

        Args:
            destination: its name.
            timeout: seconds; by default that of the URI, and without that 30.

        Raises:
            NotAuthorized: the user may not read the advisories, or not create temporary queues.
            Timeout: the list was not complete in time: perhaps the broker sends no advisories.
            DestinationRefused: the name lists several destinations.
            UnsendableMessage: the connection uses STOMP.
        """
        where = one_destination(destination)
        limit = self._waiter.timeout if timeout is None else timeout
        with self._link as state:
            pending = state.find_destination(where)
        exists = await self._waiter.wait(pending, LIST_SECONDS if limit is None else limit, "listing destinations")
        return exists is True

    async def unsubscribe(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a durable subscription and its backlog. It must not have a consumer.

        Raises:
            Refused: the subscription has a consumer, or does not exist. If the client repeats the request after a
                break, a subscription that does not exist counts as deleted.
        """
        with self._link as state:
            pending = state.remove_durable(name)
        await self._waiter.wait(pending, timeout, "deleting a durable subscription")

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Close the connection with its consumers and producers. Unacknowledged messages will be redelivered.

        In a forked child this does nothing to a connection of the parent.

        Args:
            timeout: the seconds that the broker has to answer; then the client aborts the transport.
        """
        await self._close(timeout, finished=True)

    async def _close(self, timeout: float, *, finished: bool) -> None:
        if self._running is not None and not self._link.is_inherited:
            await self._link.close(timeout, finished=finished)
            await asyncio.gather(self._running, return_exceptions=True)

    def begin_close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Begin to close the connection, and return at once: for a finalizer, which must not wait.

        Otherwise the same as `close`, except that in auto mode the message received last is not acknowledged.
        """
        if not self._link.is_inherited:
            self._begin_close(timeout, finished=False)

    def _begin_close(self, timeout: float, *, finished: bool) -> None:
        """Begin to close, unless the link has ended: a loop that ends then would not run the coroutine."""
        if self._running is None or not self._running.done():
            self._closing = asyncio.create_task(self._link.close(timeout, finished=finished))


connect = Connection
"""Return a connection to a broker, for an `async with` statement, which connects and closes it."""


class Sending:
    """A send in flight, which `Connection.begin_send` returns."""

    def __init__(self, waiter: Waiter, pending: PendingResult[None]) -> None:
        self._waiter = waiter
        self._pending = pending

    @property
    def is_done(self) -> bool:
        """True if the send is complete, and `wait` does not wait."""
        return self._pending.is_done

    @property
    def is_sent(self) -> bool:
        """False if the message was not sent yet: there was no broker, or the protocol has no form for it."""
        return self._pending.is_sent

    async def wait(self, timeout: float | None = None) -> None:
        """Wait for the result: a persistent message is on the broker's disk on return.

        Raises:
            Refused, UnsendableMessage, FrameTooLarge, Timeout: as `Connection.send`.
        """
        await self._waiter.wait(self._pending, timeout, "sending")


class Producer(contextlib.AbstractAsyncContextManager["Producer"]):
    """A producer for one destination. A context manager."""

    def __init__(self, waiter: Waiter, destination: Destination, number: int) -> None:
        self.destination = destination
        self._link = waiter.link
        self._waiter = waiter
        self._number = number

    async def send(self, body: Body, *, timeout: float | None = None, **headers: Unpack[MessageHeaders]) -> None:
        """Send a message, as `Connection.send` does."""
        await self._waiter.send(self._number, self.destination, body, header_values(headers), timeout)

    def close(self) -> None:
        """Close the producer."""
        if self._link.is_inherited:
            return
        with self._link as state:
            state.producers.remove(self._number)

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Consumer(contextlib.AbstractAsyncContextManager["Consumer"]):
    """A consumer of one destination. A context manager, and an iterator that ends when the consumer is closed.

    With `ack="auto"` the consumer acknowledges a message when the application receives the next one, closes the
    consumer, or leaves its `with` statement without an exception. With `"client"` and `"individual"` the message's
    `ack()` acknowledges it, with `"transacted"` the transaction.
    """

    def __init__(self, waiter: Waiter, consumer: ConsumerState) -> None:
        self._link = waiter.link
        self._waiter = waiter
        self._consumer = consumer
        consumer.on_ack = self._acknowledge

    async def receive(self, timeout: float | None = None) -> Message:
        """Return the next message; wait for it if there is none. A timeout of 0 does not wait.

        Raises:
            Timeout: no message arrived in time.
            ConnectionClosed: the consumer is closed.
        """
        return await self._waiter.receive(self._consumer, timeout)

    def receive_no_wait(self) -> Message | None:
        """Return the next message if it has arrived; None otherwise. With `prefetch=0` nothing is pulled.

        Raises:
            ConnectionClosed: the consumer is closed.
            ConnectionFailed: the connection has failed.
        """
        with self._link:
            return self._consumer.receive_no_wait()

    @property
    def has_message(self) -> bool:
        """True if `receive_no_wait` returns a message now."""
        return self._consumer.has_message

    def call_when_ready(self, callback: Callable[[], None]) -> None:
        """Call a function once when a message arrives or the consumer ends; at once if that has happened.

        It is called in the thread of the connection, or of the caller. It must not block, and not use the connection.
        """
        with self._link:
            if self._consumer.has_message or self._consumer.error is not None:
                callback()
            else:
                self._consumer.on_change.add(callback)

    def reject(self, message: Message, reason: str) -> None:
        """Let the broker move a message to its dead letter queue, instead of acknowledging it; does not wait.

        Args:
            message: a message of this consumer, with `ack="individual"`, that is not acknowledged.
            reason: why it cannot be processed.

        Raises:
            ConnectionClosed: the consumer is closed, and the message will be redelivered.
            ClientError: the message is not one of those.
        """
        with self._link:
            self._consumer.reject(message, reason)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except ConnectionClosed:
            raise StopAsyncIteration from None

    async def give_back(self, message: Message, timeout: float | None = None) -> None:
        """Return a message to its queue without acknowledging it, so that any consumer gets it, also this one.

        On return it is in its queue, or the connection broke, and the broker redelivers it. It is marked `redelivered`.
        A pybroker keeps its place, over OpenWire. Other brokers keep it if the application has no other unacknowledged
        message of this consumer, which is then closed and opened again; otherwise a copy with another id is sent, and
        the message acknowledged, in one transaction, and the copy is the last of its queue.

        Args:
            message: a message of this consumer, which has `ack="individual"`.
            timeout: seconds; as for other calls.

        Raises:
            ClientError: the message is acknowledged or given back already, of another consumer, or not of a queue.
            UnreadableMessage, UnsendableMessage, FrameTooLarge: it has to be copied, and cannot be.
            TransactionRolledBack: the broker refused the copy, for example because the user may not write to the queue.
                As after the errors above, the application still has the message.
            Timeout: the broker did not answer in time; the message may be in its queue, or be redelivered later.
        """
        if message.on_ack != self._consumer.on_ack:
            raise ClientError("the message is one of another consumer")
        with self._link as state:
            pending = state.give_back(self._consumer, message)
        await self._waiter.wait(pending, timeout, "giving a message back")

    def set_prefetch(self, prefetch: int) -> None:
        """Change the prefetch; does not wait. Needs OpenWire.

        The broker sends more messages at once if the new value is larger. If it is smaller, messages that have arrived
        stay, and the consumer returns them first. With 0 each `receive` pulls one message after these.

        Raises:
            ValueError: the prefetch is negative.
            ConnectionClosed: the consumer is closed.
            UnsendableMessage: the connection uses STOMP.
        """
        check_prefetch(prefetch)
        with self._link:
            self._consumer.set_prefetch(prefetch)

    def stop(self, unused: Iterable[Message] = ()) -> None:
        """Return to the queue what `receive` has not returned, also what arrives later; does not wait.

        Any consumer but this one gets these messages. They do not count as delivered, as the application has not seen
        them. What it has can be acknowledged. `set_prefetch` starts the consumer again. Needs OpenWire.

        Args:
            unused: messages of this consumer that the application has received and will not process: they are
                returned too, and do not count as delivered either.

        Raises:
            ClientError: the consumer has not `ack="individual"`, or its destination is no queue, or a message is one of
                another consumer.
            ConnectionClosed: the consumer is closed.
            UnsendableMessage: the connection uses STOMP.
        """
        messages = list(unused)
        if any(message.on_ack != self._consumer.on_ack for message in messages):
            raise ClientError("a message is one of another consumer")
        with self._link as state:
            state.stop(self._consumer, messages)

    @property
    def error(self) -> ClientError | None:
        """The reason why the consumer has ended, which `receive` raises; None while it is open."""
        return self._consumer.error

    def close(self) -> None:
        """Close the consumer. The broker redelivers its unacknowledged messages."""
        self._close(finished=True)

    async def finish(self, timeout: float | None = None) -> bool:
        """Close the consumer, and wait until the broker confirms its acknowledgements.

        Returns:
            False if the connection broke before; then the latest messages may be redelivered.

        Raises:
            Timeout: the broker did not answer in time.
        """
        was_open: list[bool] = []
        with self._link as state:
            pending = state.unsubscribe(self._consumer)
            if pending is None:
                return False
            # The loss of the connection also completes the request.
            pending.add_done_callback(lambda: was_open.append(state.is_open))
        await self._waiter.wait(pending, timeout, "closing a consumer")
        return was_open == [True]

    def _close(self, *, finished: bool) -> None:
        if self._link.is_inherited:
            return
        with self._link as state:
            state.unsubscribe(self._consumer, finished=finished)

    def _acknowledge(self, message: Message) -> None:
        with self._link:
            self._consumer.acknowledge(message)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(finished=kind is None)


class Transaction(contextlib.AbstractAsyncContextManager["Transaction"]):
    """A transaction: sends and acknowledgements that take effect together or not at all. A context manager."""

    def __init__(self, waiter: Waiter, transaction: ClientTransaction) -> None:
        self._link = waiter.link
        self._waiter = waiter
        self._transaction = transaction

    async def send(self, destination: str | Destination, body: Body, **headers: Unpack[MessageHeaders]) -> None:
        """Send a message in the transaction. Does not wait for an answer: if the broker refuses it, `commit` raises.

        Raises:
            TransactionRolledBack: the transaction has ended, or can only be rolled back.
        """
        where, values = destination_of(destination), header_values(headers)
        with self._link as state:
            state.transactions.send(self._transaction, where, body, values)
        if self._link.is_congested:
            await self._waiter.wait_until_writable(None)

    async def receive(self, consumer: Consumer, timeout: float | None = None) -> Message:
        """Return the next message of a consumer with `ack="transacted"`, and acknowledge it in the transaction.

        Raises:
            Timeout: no message arrived in time.
            TransactionRolledBack: the transaction has ended, or can only be rolled back.
        """
        with self._link as state:
            state.transactions.check(self._transaction)
        message = await consumer.receive(timeout)
        self.ack(message)
        return message

    def ack(self, message: Message) -> None:
        """Acknowledge a message of a consumer with `ack="transacted"` in the transaction.

        Raises:
            TransactionRolledBack: the transaction has ended, or can only be rolled back.
        """
        with self._link as state:
            state.transactions.acknowledge(self._transaction, message)

    async def commit(self, timeout: float | None = None) -> None:
        """Commit the transaction. It is on the broker's disk on return.

        Raises:
            TransactionRolledBack: the transaction had no effect. Repeat it.
            TransactionInDoubt: the whole transaction took effect, or nothing. Repeat it only if that is harmless.
        """
        with self._link as state:
            pending = state.transactions.commit(self._transaction)
        await self._waiter.wait(pending, timeout, "committing")

    def rollback(self) -> None:
        """Roll the transaction back. Its messages are redelivered after the delay of the `Redelivery` policy."""
        with self._link as state:
            state.transactions.rollback(self._transaction)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            if not self._link.is_inherited:
                self.rollback()
        elif not self._transaction.is_ended:
            await self.commit()
