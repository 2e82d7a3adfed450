"""The asyncio API, with the classes and methods of `sync`, for the tasks of one event loop.

A task in the application's loop does the I/O of a connection. Other threads and loops must not use the connection. Only
one task at a time may use a consumer with `ack="auto"` or a transaction. `message.ack()` is no coroutine.

Every call that may wait has a `timeout` in seconds. None, the default, means the URI's `timeout`; without that there is
no limit. The cancellation of a waiting task has the same effect as its timeout.
"""

# ruff: noqa: ASYNC109 -- `timeout` is an argument here as it is in `sync`; asyncio.timeout works as well

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import TracebackType
from typing import Self, TypeVar, Unpack

from pybroker.broker.domain.destination import Destination
from pybroker.client.arguments import (
    CLOSE_SECONDS,
    MessageHeaders,
    Settings,
    SubscriptionOptions,
    browse,
    destination_of,
    header_values,
    make_link,
    subscribe,
    temporary_kind,
)
from pybroker.client.browser import AllShown
from pybroker.client.consumers import ConsumerState, Redelivery
from pybroker.client.errors import ClientError, ConnectionClosed, Timeout
from pybroker.client.link import ClientLink
from pybroker.client.messages import Body, Message
from pybroker.client.pending import PendingResult
from pybroker.client.transactions import ClientTransaction
from pybroker.client.uri import BrokerURI, parse

Value = TypeVar("Value")


def connect(
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
) -> "Connection":
    """Return a connection to a broker, for an `async with` statement, which connects and closes it.

    Arguments and errors are those of `sync.connect`. This function raises the errors of the URI, and the statement all
    others. The callbacks run in the loop.
    """
    settings = Settings(
        user=user,
        password=password,
        client_id=client_id,
        ssl_context=ssl_context,
        redelivery=redelivery,
        on_interrupted=on_interrupted,
        on_resumed=on_resumed,
    )
    return Connection(parse(uri), settings, timeout)


class TaskWaiter:
    """Suspends tasks until a result is complete or a message arrives."""

    def __init__(self, link: ClientLink, timeout: float | None) -> None:
        self.link = link
        self._timeout = timeout

    async def wait(self, pending: PendingResult[Value], timeout: float | None, operation: str) -> Value | None:
        """Wait for a result; at the timeout or a cancellation, cancel the operation.

        Args:
            pending: the result to wait for.
            timeout: seconds; None for the default.
            operation: its name, for error messages.
        """
        if timeout is None:
            timeout = self._timeout
        if not pending.is_done:
            done = _Flag()
            with self.link:
                pending.add_done_callback(done.set)
            error: ClientError = ConnectionClosed(f"{operation} was cancelled")
            try:
                if not await done.wait(timeout):
                    error = Timeout(f"{operation} took longer than {timeout:g} s{self.link.failure_report}")
            finally:
                with self.link as state:
                    state.cancel(pending, error)
        return pending.result()

    async def send(
        self, producer: int, destination: Destination, body: Body, timeout: float | None, headers: MessageHeaders
    ) -> None:
        """Send a message; wait until a persistent one is on disk, and another one is passed to the transport."""
        with self.link as state:
            pending = state.send(producer, destination, body, header_values(headers))
        await self.wait(pending, timeout, "sending")
        if self.link.is_congested:
            await self.wait_until_writable(timeout)

    async def wait_until_writable(self, timeout: float | None) -> None:
        """Wait until the broker reads again, so that the client does not buffer sends without an answer."""
        clear = _Flag()
        self.link.call_when_writable(clear.set)
        if not await clear.wait(self._timeout if timeout is None else timeout):
            raise Timeout(f"the broker accepts no more messages at present{self.link.failure_report}")

    async def receive(self, consumer: ConsumerState, timeout: float | None) -> Message:
        """Wait for a message."""
        deadline, is_late = None if timeout is None else time.monotonic() + timeout, False
        while True:
            arrived = _Flag()
            with self.link:
                message = consumer.receive_no_wait()
                if message is not None:
                    return message
                if is_late:
                    raise Timeout(f"no message within {timeout:g} s{self.link.failure_report}")
                left = consumer.pull(None if deadline is None else max(0.0, deadline - time.monotonic()))
                consumer.on_change.add(arrived.set)
            try:
                is_notified = await arrived.wait(self._timeout if left is None else left)
            except asyncio.CancelledError:
                with self.link:
                    consumer.cancel_pull()
                raise
            finally:
                consumer.on_change.remove(arrived.set)
            if not is_notified:
                self.link.check_broker_available(self._timeout if deadline is None else None)
            is_late = deadline is not None and (not is_notified or time.monotonic() >= deadline)

    async def browse(
        self, consumer: ConsumerState, pending: PendingResult[None], timeout: float | None
    ) -> AsyncGenerator[Message]:
        """Yield the messages of a browser; close the browser at the end, and when the generator is closed."""
        try:
            await self.wait(pending, timeout, "browsing")
            with contextlib.suppress(AllShown):
                while True:
                    yield await self.receive(consumer, self._timeout if timeout is None else timeout)
        finally:
            with self.link as state:
                state.unsubscribe(consumer)


class _Flag:
    """A flag that the loop's thread sets once."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout: float | None) -> bool:
        """Wait until the flag is set; return False at the timeout."""
        done, _ = await asyncio.wait({self._future}, timeout=timeout)
        return bool(done)


class Connection:
    """A connection. An async context manager, which `connect` returns."""

    def __init__(self, uri: BrokerURI, settings: Settings, timeout: float | None) -> None:
        self._link = make_link(uri, settings)
        self._waiter = TaskWaiter(self._link, uri.failover.timeout_seconds if uri.failover is not None else None)
        self._connect_timeout = timeout
        self._running: asyncio.Task[None] | None = None
        self._producer: int | None = None

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._link.run(), name="pybroker-client")
        try:
            await self._waiter.wait(self._link.first_connection, self._connect_timeout, "connecting")
        except BaseException:
            await self.close(0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(CLOSE_SECONDS, finished=kind is None)

    @property
    def broker(self) -> str | None:
        """The address of the present broker; None while there is none."""
        address = self._link.address
        return str(address) if address is not None else None

    async def send(
        self,
        destination: str | Destination,
        body: Body,
        *,
        timeout: float | None = None,
        **headers: Unpack[MessageHeaders],
    ) -> None:
        """Send a message, as `sync.Connection.send` does."""
        await self._waiter.send(self._own_producer(), destination_of(destination), body, timeout, headers)

    def _own_producer(self) -> int:
        """Return the producer of messages that name their destination; open it at the first call."""
        if self._producer is None:
            with self._link as state:
                self._producer, _ = state.producers.add()
        return self._producer

    async def producer(self, destination: str | Destination, *, timeout: float | None = None) -> "Producer":
        """Return a producer for one destination, as `sync.Connection.producer` does."""
        where = destination_of(destination)
        with self._link as state:
            number, pending = state.producers.add(where)
        await self._waiter.wait(pending, timeout, "opening a producer")
        return Producer(self._link, self._waiter, where, number)

    async def consumer(
        self,
        destination: str | Destination,
        *,
        timeout: float | None = None,
        **subscription: Unpack[SubscriptionOptions],
    ) -> "Consumer":
        """Return a consumer of a queue or topic, as `sync.Connection.consumer` does."""
        with self._link as state:
            consumer, pending = subscribe(state, destination, **subscription)
            made = Consumer(self._link, self._waiter, consumer)
        await self._waiter.wait(pending, timeout, "subscribing")
        return made

    async def browse(
        self, queue: str | Destination, *, selector: str | None = None, timeout: float | None = None
    ) -> AsyncGenerator[Message]:
        """Yield the messages of a queue, as `sync.Connection.browse` does."""
        with self._link as state:
            consumer, pending = browse(state, queue, selector)
        async with contextlib.aclosing(self._waiter.browse(consumer, pending, timeout)) as shown:
            async for message in shown:
                yield message

    def transaction(self) -> "Transaction":
        """Begin a transaction, for an `async with` statement: its end commits, an exception rolls back."""
        with self._link as state:
            return Transaction(self._link, self._waiter, state.transactions.begin())

    async def request(
        self,
        destination: str | Destination,
        body: Body,
        *,
        timeout: float | None = None,
        **headers: Unpack[MessageHeaders],
    ) -> Message:
        """Send a message and return the reply to it, as `sync.Connection.request` does."""
        producer = self._own_producer()
        with self._link as state:
            pending = state.request(producer, destination_of(destination), body, header_values(headers), ttl=timeout)
        reply = await self._waiter.wait(pending, timeout, "an answer")
        assert reply is not None, "a result without an error has a value"
        return reply

    async def temporary_destination(self, *, topic: bool = False, timeout: float | None = None) -> Destination:
        """Create a temporary queue or topic. It exists as long as this connection, which alone can consume from it."""
        with self._link as state:
            destination, pending = state.add_temporary(temporary_kind(topic=topic))
        await self._waiter.wait(pending, timeout, "making a temporary destination")
        return destination

    async def unsubscribe(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a durable subscription, as `sync.Connection.unsubscribe` does."""
        with self._link as state:
            pending = state.remove_durable(name)
        await self._waiter.wait(pending, timeout, "deleting a durable subscription")

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Close the connection with its consumers and producers, as `sync.Connection.close` does."""
        await self._close(timeout, finished=True)

    async def _close(self, timeout: float, *, finished: bool) -> None:
        if self._running is not None:
            await self._link.close(timeout, finished=finished)
            await asyncio.gather(self._running, return_exceptions=True)


class Producer:
    """A producer for one destination. An async context manager."""

    def __init__(self, link: ClientLink, waiter: TaskWaiter, destination: Destination, number: int) -> None:
        self.destination = destination
        self._link = link
        self._waiter = waiter
        self._number = number

    async def send(self, body: Body, *, timeout: float | None = None, **headers: Unpack[MessageHeaders]) -> None:
        """Send a message, as `Connection.send` does."""
        await self._waiter.send(self._number, self.destination, body, timeout, headers)

    def close(self) -> None:
        """Close the producer."""
        with self._link as state:
            state.producers.remove(self._number)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Consumer:
    """A consumer of one destination. An async context manager, and an async iterator. See `sync.Consumer`."""

    def __init__(self, link: ClientLink, waiter: TaskWaiter, consumer: ConsumerState) -> None:
        self._link = link
        self._waiter = waiter
        self._consumer = consumer
        consumer.on_ack = self._settle

    async def receive(self, timeout: float | None = None) -> Message:
        """Return the next message, as `sync.Consumer.receive` does."""
        return await self._waiter.receive(self._consumer, timeout)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except ConnectionClosed:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Close the consumer. The broker redelivers its unacknowledged messages."""
        self._close(finished=True)

    def _close(self, *, finished: bool) -> None:
        with self._link as state:
            state.unsubscribe(self._consumer, finished=finished)

    def _settle(self, message: Message) -> None:
        with self._link:
            self._consumer.acknowledge(message)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(finished=kind is None)


class Transaction:
    """A transaction: sends and acknowledgements that take effect together or not at all. An async context manager."""

    def __init__(self, link: ClientLink, waiter: TaskWaiter, transaction: ClientTransaction) -> None:
        self._link = link
        self._waiter = waiter
        self._transaction = transaction

    async def send(self, destination: str | Destination, body: Body, **headers: Unpack[MessageHeaders]) -> None:
        """Send a message in the transaction, as `sync.Transaction.send` does."""
        where, values = destination_of(destination), header_values(headers)
        with self._link as state:
            state.transactions.send(self._transaction, where, body, values)
        if self._link.is_congested:
            await self._waiter.wait_until_writable(None)

    async def receive(self, consumer: Consumer, timeout: float | None = None) -> Message:
        """Return the next message of a consumer and acknowledge it, as `sync.Transaction.receive` does."""
        with self._link as state:
            state.transactions.check(self._transaction)
        message = await consumer.receive(timeout)
        self.ack(message)
        return message

    def ack(self, message: Message) -> None:
        """Acknowledge a message in the transaction, as `sync.Transaction.ack` does."""
        with self._link as state:
            state.transactions.acknowledge(self._transaction, message)

    async def commit(self, timeout: float | None = None) -> None:
        """Commit the transaction, as `sync.Transaction.commit` does."""
        with self._link as state:
            pending = state.transactions.commit(self._transaction)
        await self._waiter.wait(pending, timeout, "committing")

    def rollback(self) -> None:
        """Roll the transaction back. Its messages are redelivered after the delay of the `Redelivery` policy."""
        with self._link as state:
            state.transactions.rollback(self._transaction)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.rollback()
        elif not self._transaction.is_ended:
            await self.commit()
