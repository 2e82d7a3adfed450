"""The synchronous API: a connection, its producers, consumers and transactions, for threads.

Each connection has one thread for its I/O. Every method may be called in any thread, but only one thread at a time may
use a consumer with `ack="auto"` or a transaction.

Every call that may wait has a `timeout` in seconds. None, the default, means the URI's `timeout`; without that there is
no limit. A failover makes calls take longer.
"""

import asyncio
import atexit
import contextlib
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
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
from pybroker.client.uri import parse

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
    """Connect to a broker.

    Args:
        uri: such as `failover:(tcp://a:61616,tcp://b:61616)?randomize=false`.
        user: the user name; None for anonymous.
        password: the password; None for none.
        client_id: the client id, which identifies durable subscriptions; None for a generated one.
        timeout: the seconds that the first connection may take.
        ssl_context: the TLS context for `ssl:` and `stomp+ssl:`; by default the system's authorities are trusted.
        redelivery: the redelivery policy for messages of a transaction that was rolled back.
        on_interrupted: called in the connection's thread, with the reason, when the broker is lost. It must not block.
        on_resumed: called in the same thread, with the broker's address, when the state is restored. It must not block.

    Raises:
        UnusableURI: the URI is not valid.
        BrokerMissing: no broker answered in all attempts that the URI allows.
        LoginRefused, UntrustedBroker, ProtocolViolation: another attempt does not help.
        Timeout: it took too long.
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
    parsed = parse(uri)
    connection = Connection(
        make_link(parsed, settings), parsed.failover.timeout_seconds if parsed.failover is not None else None
    )
    try:
        connection.start(timeout)
    except BaseException:
        connection.close(0)
        raise
    return connection


class ThreadWaiter:
    """Blocks threads until a result is complete or a message arrives."""

    def __init__(self, link: ClientLink, timeout: float | None) -> None:
        self.link = link
        self._timeout = timeout

    def wait(self, pending: PendingResult[Value], timeout: float | None, operation: str) -> Value | None:
        """Wait for a result; at the timeout or an interruption, cancel the operation.

        Args:
            pending: the result to wait for.
            timeout: seconds; None for the default.
            operation: its name, for error messages.
        """
        self.link.check_thread()
        if timeout is None:
            timeout = self._timeout
        if not pending.is_done:
            done = threading.Event()
            with self.link:
                pending.add_done_callback(done.set)
            error: ClientError = ConnectionClosed(f"{operation} was interrupted")
            try:
                if not done.wait(timeout):
                    error = Timeout(f"{operation} took longer than {timeout:g} s{self.link.failure_report}")
            finally:
                with self.link as state:
                    state.cancel(pending, error)
        return pending.result()

    def send(
        self, producer: int, destination: Destination, body: Body, timeout: float | None, headers: MessageHeaders
    ) -> None:
        """Send a message; wait until a persistent one is on disk, and another one is passed to the loop."""
        with self.link as state:
            pending = state.send(producer, destination, body, header_values(headers))
        self.wait(pending, timeout, "sending")
        if self.link.is_congested:
            self.wait_until_writable(timeout)

    def wait_until_writable(self, timeout: float | None) -> None:
        """Wait until the broker reads again, so that the client does not buffer sends without an answer."""
        clear = threading.Event()
        with self.link:
            self.link.call_when_writable(clear.set)
        if not clear.wait(self._timeout if timeout is None else timeout):
            raise Timeout(f"the broker accepts no more messages at present{self.link.failure_report}")

    def receive(self, consumer: ConsumerState, timeout: float | None) -> Message:
        """Wait for a message."""
        self.link.check_thread()
        deadline = None if timeout is None else time.monotonic() + timeout
        arrived, is_late = threading.Event(), False
        while True:
            with self.link:
                message = consumer.receive_no_wait()
                if message is not None:
                    return message
                if is_late:
                    raise Timeout(f"no message within {timeout:g} s{self.link.failure_report}")
                left = consumer.pull(None if deadline is None else max(0.0, deadline - time.monotonic()))
                consumer.on_change.add(arrived.set)
            is_notified = arrived.wait(self._timeout if left is None else left)
            if not is_notified:
                with self.link:
                    consumer.on_change.remove(arrived.set)
                self.link.check_broker_available(self._timeout if deadline is None else None)
            is_late = deadline is not None and (not is_notified or time.monotonic() >= deadline)
            arrived.clear()

    def browse(
        self, consumer: ConsumerState, pending: PendingResult[None], timeout: float | None
    ) -> Generator[Message]:
        """Yield the messages of a browser; close the browser at the end, and when the generator is closed."""
        try:
            self.wait(pending, timeout, "browsing")
            with contextlib.suppress(AllShown):
                while True:
                    yield self.receive(consumer, self._timeout if timeout is None else timeout)
        finally:
            # Garbage collection may run this in any thread.
            self.link.call_soon(lambda state: state.unsubscribe(consumer))


_open: "weakref.WeakSet[Connection]" = weakref.WeakSet()
"""The open connections of this process, which are closed at its exit."""


class Connection:
    """A connection, which `connect` opens. A context manager that closes the connection at its end."""

    def __init__(self, link: ClientLink, timeout: float | None) -> None:
        self._link = link
        self._waiter = ThreadWaiter(link, timeout)
        self._thread = threading.Thread(target=self._run, name="pybroker-client", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[None]
        self._closing: asyncio.Task[None] | None = None
        self._is_running = threading.Event()
        self._producer: int | None = None

    def start(self, timeout: float | None) -> None:
        """Open the first connection to a broker."""
        self._thread.start()
        _open.add(self)
        self._is_running.wait()
        self._waiter.wait(self._link.first_connection, timeout, "connecting")

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._running = asyncio.create_task(self._link.run())
            self._is_running.set()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

        with contextlib.suppress(SystemExit):  # from a callback: it is logged, and pending calls have failed
            asyncio.run(main())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(CLOSE_SECONDS, finished=kind is None)

    @property
    def broker(self) -> str | None:
        """The address of the present broker; None while there is none."""
        address = self._link.address
        return str(address) if address is not None else None

    def send(
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
        self._waiter.send(self._own_producer(), destination_of(destination), body, timeout, headers)

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

    def producer(self, destination: str | Destination, *, timeout: float | None = None) -> "Producer":
        """Return a producer for one destination.

        Raises:
            DestinationRefused: the broker refuses the destination.
        """
        where = destination_of(destination)
        with self._link as state:
            number, pending = state.producers.add(where)
        self._waiter.wait(pending, timeout, "opening a producer")
        return Producer(self._link, self._waiter, where, number)

    def consumer(
        self,
        destination: str | Destination,
        *,
        timeout: float | None = None,
        **subscription: Unpack[SubscriptionOptions],
    ) -> "Consumer":
        """Return a consumer of a queue or topic; the name may have wildcards.

        Raises:
            Refused: the broker refuses the consumer; `DestinationRefused` and `SelectorRefused` are two of the causes.
        """
        with self._link as state:
            consumer, pending = subscribe(state, destination, **subscription)
            made = Consumer(self._link, self._waiter, consumer)
        self._waiter.wait(pending, timeout, "subscribing")
        return made

    def browse(
        self, queue: str | Destination, *, selector: str | None = None, timeout: float | None = None
    ) -> Generator[Message]:
        """Yield the messages of a queue, the oldest first, without consuming them.

        This includes messages that are delivered to other consumers and not acknowledged. Messages that arrive or are
        consumed meanwhile may be included.

        Raises:
            Refused: the broker refuses the browser; `DestinationRefused` and `SelectorRefused` are two of the causes.
            Timeout: the broker took longer than `timeout` for a message.
        """
        with self._link as state:
            consumer, pending = browse(state, queue, selector)
        yield from self._waiter.browse(consumer, pending, timeout)

    def transaction(self) -> "Transaction":
        """Begin a transaction, for a `with` statement: its end commits, an exception rolls back."""
        with self._link as state:
            return Transaction(self._link, self._waiter, state.transactions.begin())

    def request(
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
        reply = self._waiter.wait(pending, timeout, "an answer")
        assert reply is not None, "a result without an error has a value"
        return reply

    def temporary_destination(self, *, topic: bool = False, timeout: float | None = None) -> Destination:
        """Create a temporary queue or topic. It exists as long as this connection, which alone can consume from it."""
        with self._link as state:
            destination, pending = state.add_temporary(temporary_kind(topic=topic))
        self._waiter.wait(pending, timeout, "making a temporary destination")
        return destination

    def unsubscribe(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a durable subscription and its backlog. It must not have a consumer.

        Raises:
            Refused: the subscription has a consumer, or does not exist. If the client repeats the request after a
                break, a subscription that does not exist counts as deleted.
        """
        with self._link as state:
            pending = state.remove_durable(name)
        self._waiter.wait(pending, timeout, "deleting a durable subscription")

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Close the connection with its consumers and producers. Unacknowledged messages will be redelivered.

        Args:
            timeout: the seconds that the broker has to answer; then the client aborts the transport.
        """
        self._close(timeout, finished=True)

    def _close(self, timeout: float, *, finished: bool) -> None:
        self._link.check_thread()
        self._ask_to_close(timeout, finished=finished)
        self._join(None)

    def _ask_to_close(self, timeout: float, *, finished: bool) -> None:
        """Make the connection's thread close the connection; `_join` waits for the end."""
        if self._loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended before
                self._loop.call_soon_threadsafe(self._begin_to_close, timeout, finished)

    def _join(self, seconds: float | None) -> None:
        """Wait for the end of the connection's thread."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    @staticmethod
    @atexit.register
    def _close_at_exit() -> None:
        """Close the connections that are still open, all within `CLOSE_SECONDS`.

        The latest sends without an answer and acknowledgements may be in the connections' threads only, which end with
        the interpreter. The broker's answer to the disconnect confirms that it received them.
        """
        connections = [connection for connection in _open if connection.broker is not None]
        deadline = time.monotonic() + CLOSE_SECONDS
        for connection in connections:
            connection._ask_to_close(CLOSE_SECONDS, finished=False)
        for connection in connections:
            connection._join(max(0.0, deadline - time.monotonic()))

    def _begin_to_close(self, timeout: float, finished: bool) -> None:
        """Start to close, in the loop. Do nothing if the link has ended: the loop would end before the coroutine.

        For the same reason the coroutine is created here, and not in the caller's thread.
        """
        if not self._running.done():
            self._closing = asyncio.create_task(self._link.close(timeout, finished=finished))


class Sending:
    """A send in flight, which `Connection.begin_send` returns."""

    def __init__(self, waiter: ThreadWaiter, pending: PendingResult[None]) -> None:
        self._waiter = waiter
        self._pending = pending

    @property
    def is_done(self) -> bool:
        """True if the send is complete, and `wait` does not block."""
        return self._pending.is_done

    @property
    def is_sent(self) -> bool:
        """False if the message was not sent yet: there was no broker, or the protocol has no form for it."""
        return self._pending.is_sent

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the result: a persistent message is on the broker's disk on return.

        Raises:
            Refused, UnsendableMessage, FrameTooLarge, Timeout: as `Connection.send`.
        """
        self._waiter.wait(self._pending, timeout, "sending")


class Producer:
    """A producer for one destination. A context manager."""

    def __init__(self, link: ClientLink, waiter: ThreadWaiter, destination: Destination, number: int) -> None:
        self.destination = destination
        self._link = link
        self._waiter = waiter
        self._number = number

    def send(self, body: Body, *, timeout: float | None = None, **headers: Unpack[MessageHeaders]) -> None:
        """Send a message, as `Connection.send` does."""
        self._waiter.send(self._number, self.destination, body, timeout, headers)

    def close(self) -> None:
        """Close the producer."""
        with self._link as state:
            state.producers.remove(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Consumer:
    """A consumer of one destination. A context manager, and an iterator that ends when the consumer is closed.

    With `ack="auto"` the consumer acknowledges a message when the application receives the next one, closes the
    consumer, or leaves its `with` statement without an exception. With `"client"` and `"individual"` the message's
    `ack()` acknowledges it, with `"transacted"` the transaction.
    """

    def __init__(self, link: ClientLink, waiter: ThreadWaiter, consumer: ConsumerState) -> None:
        self._link = link
        self._waiter = waiter
        self._consumer = consumer
        consumer.on_ack = self._settle

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message; wait for it if there is none. A timeout of 0 does not wait.

        Raises:
            Timeout: no message arrived in time.
            ConnectionClosed: the consumer is closed.
        """
        return self._waiter.receive(self._consumer, timeout)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            return self.receive()
        except ConnectionClosed:
            raise StopIteration from None

    def close(self) -> None:
        """Close the consumer. The broker redelivers its unacknowledged messages."""
        self._close(finished=True)

    def finish(self, timeout: float | None = None) -> bool:
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
        self._waiter.wait(pending, timeout, "closing a consumer")
        return was_open == [True]

    def _close(self, *, finished: bool) -> None:
        with self._link as state:
            state.unsubscribe(self._consumer, finished=finished)

    def _settle(self, message: Message) -> None:
        with self._link:
            self._consumer.acknowledge(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(finished=kind is None)


class Transaction:
    """A transaction: sends and acknowledgements that take effect together or not at all. A context manager."""

    def __init__(self, link: ClientLink, waiter: ThreadWaiter, transaction: ClientTransaction) -> None:
        self._link = link
        self._waiter = waiter
        self._transaction = transaction

    def send(self, destination: str | Destination, body: Body, **headers: Unpack[MessageHeaders]) -> None:
        """Send a message in the transaction. Does not wait for an answer: if the broker refuses it, `commit` raises.

        Raises:
            TransactionRolledBack: the transaction has ended, or can only be rolled back.
        """
        where, values = destination_of(destination), header_values(headers)
        with self._link as state:
            state.transactions.send(self._transaction, where, body, values)
        if self._link.is_congested:
            self._waiter.wait_until_writable(None)

    def receive(self, consumer: Consumer, timeout: float | None = None) -> Message:
        """Return the next message of a consumer with `ack="transacted"`, and acknowledge it in the transaction.

        Raises:
            Timeout: no message arrived in time.
            TransactionRolledBack: the transaction has ended, or can only be rolled back.
        """
        with self._link as state:
            state.transactions.check(self._transaction)
        message = consumer.receive(timeout)
        self.ack(message)
        return message

    def ack(self, message: Message) -> None:
        """Acknowledge a message of a consumer with `ack="transacted"` in the transaction.

        Raises:
            TransactionRolledBack: the transaction has ended, or can only be rolled back.
        """
        with self._link as state:
            state.transactions.acknowledge(self._transaction, message)

    def commit(self, timeout: float | None = None) -> None:
        """Commit the transaction. It is on the broker's disk on return.

        Raises:
            TransactionRolledBack: the transaction had no effect. Repeat it.
            TransactionInDoubt: the whole transaction took effect, or nothing. Repeat it only if that is harmless.
        """
        with self._link as state:
            pending = state.transactions.commit(self._transaction)
        self._waiter.wait(pending, timeout, "committing")

    def rollback(self) -> None:
        """Roll the transaction back. Its messages are redelivered after the delay of the `Redelivery` policy."""
        with self._link as state:
            state.transactions.rollback(self._transaction)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.rollback()
        elif not self._transaction.is_ended:
            self.commit()
