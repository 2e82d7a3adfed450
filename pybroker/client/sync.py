"""The synchronous API: a connection, its producers, consumers and transactions, for threads.

A connection has one thread of its own, for the I/O. Every method may be called from any thread; one consumer with
`ack="auto"`, and one transaction, belong to one thread at a time.

Every call that may have to wait takes `timeout`, in seconds. None, the default, means the URI's `timeout`, and without
that as long as it takes; while the client finds another broker, calls simply take longer.
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
from pybroker.client.link import Link
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
        user: None for anonymous.
        password: None for none.
        client_id: the connection's name, by which durable subscriptions are known; made up if it is None.
        timeout: how long this may take.
        ssl_context: for `ssl:` and `stomp+ssl:`; by default the system's authorities are trusted.
        redelivery: how messages of a transaction that was rolled back come again.
        on_interrupted: called in the connection's thread when the broker is lost, with why. It must not wait.
        on_resumed: called there when everything is restored on a broker, with its address. It must not wait.

    Raises:
        UnusableURI: see `uri`.
        BrokerMissing: no broker answers, and the URI does not want to try for ever.
        LoginRefused, UntrustedBroker, ProtocolViolation: what trying again would not help.
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


class Waiter:
    """How threads wait: for pending results, and for consumers' messages."""

    def __init__(self, link: Link, timeout: float | None) -> None:
        self.link = link
        self._timeout = timeout

    def wait(self, pending: PendingResult[Value], timeout: float | None, what: str) -> Value | None:
        """Wait for an outcome."""
        self.link.check_thread()
        if timeout is None:
            timeout = self._timeout
        if not pending.is_done:
            done = threading.Event()
            with self.link:
                pending.add_done_callback(done.set)
            error: ClientError = ConnectionClosed(f"{what} was interrupted")
            try:
                if not done.wait(timeout):
                    error = Timeout(f"{what} took longer than {timeout:g} s{self.link.failure_report}")
            finally:
                with self.link as state:
                    state.cancel(pending, error)
        return pending.result()

    def send(
        self, producer: int, destination: Destination, body: Body, timeout: float | None, headers: MessageHeaders
    ) -> None:
        """Send a message, and wait until it is safe, or at least on its way."""
        with self.link as state:
            pending = state.send(producer, destination, body, header_values(headers))
        self.wait(pending, timeout, "sending")
        if self.link.is_congested:
            self.wait_until_writable(timeout)

    def wait_until_writable(self, timeout: float | None) -> None:
        """Wait until the broker takes bytes, so that sends without answer do not pile up here."""
        clear = threading.Event()
        with self.link:
            self.link.call_when_writable(clear.set)
        if not clear.wait(self._timeout if timeout is None else timeout):
            raise Timeout(f"the broker takes no more messages at present{self.link.failure_report}")

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
        """Give what a browser is shown, and end it then, or when the generator is closed."""
        try:
            self.wait(pending, timeout, "browsing")
            with contextlib.suppress(AllShown):
                while True:
                    yield self.receive(consumer, self._timeout if timeout is None else timeout)
        finally:
            self.link.call_soon(lambda state: state.unsubscribe(consumer))  # garbage collection may run this anywhere


_open: "weakref.WeakSet[Connection]" = weakref.WeakSet()
"""Connections of this process, for its end."""


class Connection:
    """A connection, to whichever broker serves. A context manager: leaving it closes it.

    Made by `connect`.
    """

    def __init__(self, link: Link, timeout: float | None) -> None:
        self._link = link
        self._waiter = Waiter(link, timeout)
        self._thread = threading.Thread(target=self._run, name="pybroker-client", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[None]
        self._closing: asyncio.Task[None] | None = None
        self._is_running = threading.Event()
        self._producer: int | None = None

    def start(self, timeout: float | None) -> None:
        """Connect for the first time."""
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

        with contextlib.suppress(SystemExit):  # a callback's: it is logged, and each call that waits has raised it
            asyncio.run(main())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(CLOSE_SECONDS, finished=kind is None)

    @property
    def broker(self) -> str | None:
        """The address of the broker that serves; None while there is none."""
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
        """Send a message. A persistent one, which is the default, is on the broker's disk on return.

        One that is not persistent is on its way then, and may get lost with the broker.

        Raises:
            Refused: the broker does not take it; `DestinationRefused` and `NoRoom` say why.
            UnsendableMessage, FrameTooLarge: it cannot be sent.
            Timeout: it took too long; it may be sent nevertheless.
        """
        self._waiter.send(self._own_producer(), destination_of(destination), body, timeout, headers)

    def begin_send(self, destination: str | Destination, body: Body, **headers: Unpack[MessageHeaders]) -> "Sending":
        """Send a message and return without waiting, so that many are under way together and share disk syncs.

        Messages arrive in the order of the calls. The caller limits how many are under way: each is kept in memory
        until it is answered.
        """
        producer, where = self._own_producer(), destination_of(destination)
        with self._link as state:
            pending = state.send(producer, where, body, header_values(headers))
        return Sending(self._waiter, pending)

    def _own_producer(self) -> int:
        """Return the producer of what is sent without one; messages name their destination themselves."""
        if self._producer is None:
            with self._link as state:
                if self._producer is None:
                    self._producer, _ = state.producers.add()
        return self._producer

    def producer(self, destination: str | Destination, *, timeout: float | None = None) -> "Producer":
        """Return a producer for one destination.

        Raises:
            DestinationRefused: the broker does not let us send there.
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
        """Return a consumer of a queue or topic, perhaps with wildcards.

        Raises:
            Refused: the broker does not let us; `DestinationRefused` and `SelectorRefused` say why.
        """
        with self._link as state:
            consumer, pending = subscribe(state, destination, **subscription)
            made = Consumer(self._link, self._waiter, consumer)
        self._waiter.wait(pending, timeout, "subscribing")
        return made

    def browse(
        self, queue: str | Destination, *, selector: str | None = None, timeout: float | None = None
    ) -> Generator[Message]:
        """Show what waits in a queue, the oldest first, and consume none of it: a generator that ends at the end.

        What other consumers work on is shown, too. What comes or goes meanwhile may be shown or not.

        Raises:
            Refused: the broker does not let us; `DestinationRefused` and `SelectorRefused` say why.
            Timeout: the broker took longer than that for a message.
        """
        with self._link as state:
            consumer, pending = browse(state, queue, selector)
        yield from self._waiter.browse(consumer, pending, timeout)

    def transaction(self) -> "Transaction":
        """Begin a transaction, for a `with` statement: its end commits, an exception that leaves it rolls back."""
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
        """Send a message and return the answer to it, which comes to a temporary queue of this connection.

        Raises:
            Timeout: none came in time. The request may have been carried out.
        """
        producer = self._own_producer()
        with self._link as state:
            pending = state.request(producer, destination_of(destination), body, header_values(headers), ttl=timeout)
        reply = self._waiter.wait(pending, timeout, "an answer")
        assert reply is not None, "a result without an error has a value"
        return reply

    def temporary_destination(self, *, topic: bool = False, timeout: float | None = None) -> Destination:
        """Return a new queue, or topic, that lives as long as this connection; only it can consume from it."""
        with self._link as state:
            destination, pending = state.add_temporary(temporary_kind(topic=topic))
        self._waiter.wait(pending, timeout, "making a temporary destination")
        return destination

    def unsubscribe(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a durable subscription, and what waits for it. It must not have a consumer.

        Raises:
            Refused: it has one, or does not exist. Asked for again after a break, one that does not exist counts as
                deleted.
        """
        with self._link as state:
            pending = state.remove_durable(name)
        self._waiter.wait(pending, timeout, "deleting a durable subscription")

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Close it, with all its consumers and producers. What is not acknowledged will be given to others.

        Args:
            timeout: how long the broker may take to say goodbye; then the connection is simply cut.
        """
        self._close(timeout, finished=True)

    def _close(self, timeout: float, *, finished: bool) -> None:
        self._link.check_thread()
        self._ask_to_close(timeout, finished=finished)
        self._join(None)

    def _ask_to_close(self, timeout: float, *, finished: bool) -> None:
        """Have the connection's thread close it; `_join` waits for that."""
        if self._loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself meanwhile
                self._loop.call_soon_threadsafe(self._begin_to_close, timeout, finished)

    def _join(self, seconds: float | None) -> None:
        """Wait for the end of the connection's thread."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    @staticmethod
    @atexit.register
    def _close_at_exit() -> None:
        """Close connections that the program has left open, all within the time that one of them has.

        What was sent without waiting, and acknowledgements of the last moment, are with the connection's thread only,
        which the end of the interpreter would cut off. The broker's answer to the goodbye says that it has got them.
        """
        left = [connection for connection in _open if connection.broker is not None]
        deadline = time.monotonic() + CLOSE_SECONDS
        for connection in left:
            connection._ask_to_close(CLOSE_SECONDS, finished=False)
        for connection in left:
            connection._join(max(0.0, deadline - time.monotonic()))

    def _begin_to_close(self, timeout: float, finished: bool) -> None:
        """Close, on the loop. A coroutine made elsewhere would be left over, should the loop end before.

        So would one that is made when the link has ended by itself, and the loop is about to.
        """
        if not self._running.done():
            self._closing = asyncio.create_task(self._link.close(timeout, finished=finished))


class Sending:
    """A send that is under way; made by `Connection.begin_send`."""

    def __init__(self, waiter: Waiter, pending: PendingResult[None]) -> None:
        self._waiter = waiter
        self._pending = pending

    @property
    def is_done(self) -> bool:
        """True when `wait` does not wait."""
        return self._pending.is_done

    @property
    def is_sent(self) -> bool:
        """False as long as the message is only here: there was no broker for it yet, or it has no form on the wire."""
        return self._pending.is_sent

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the outcome: a persistent message is on the broker's disk on return.

        Raises:
            Refused, UnsendableMessage, FrameTooLarge, Timeout: as `Connection.send`.
        """
        self._waiter.wait(self._pending, timeout, "sending")


class Producer:
    """Sends to one destination. A context manager."""

    def __init__(self, link: Link, waiter: Waiter, destination: Destination, number: int) -> None:
        self.destination = destination
        self._link = link
        self._waiter = waiter
        self._number = number

    def send(self, body: Body, *, timeout: float | None = None, **headers: Unpack[MessageHeaders]) -> None:
        """Send a message, as `Connection.send` does."""
        self._waiter.send(self._number, self.destination, body, timeout, headers)

    def close(self) -> None:
        """End sending."""
        with self._link as state:
            state.producers.remove(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Consumer:
    """Messages of one destination. A context manager, and an iterator that ends when it is closed.

    With `ack="auto"` a message counts as processed when the next one is asked for, and when the consumer is closed or
    its `with` statement left without an exception. Otherwise the message is acknowledged by its `ack()`; with
    `"transacted"`, by the transaction that takes it.
    """

    def __init__(self, link: Link, waiter: Waiter, consumer: ConsumerState) -> None:
        self._link = link
        self._waiter = waiter
        self._consumer = consumer
        consumer.on_ack = self._settle

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message, and wait for it if there is none; 0 does not wait.

        Raises:
            Timeout: none came in time.
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
        """Stop consuming. What is not acknowledged will be given to others."""
        self._close(finished=True)

    def finish(self, timeout: float | None = None) -> bool:
        """Stop consuming, and wait until the broker confirms what was acknowledged.

        Returns:
            False when the connection broke before: then the latest messages may be given out again.

        Raises:
            Timeout: the broker took too long.
        """
        outcomes: list[bool] = []
        with self._link as state:
            pending = state.unsubscribe(self._consumer)
            if pending is None:
                return False
            pending.add_done_callback(lambda: outcomes.append(state.is_open))  # a break completes the request as well
        self._waiter.wait(pending, timeout, "closing a consumer")
        return outcomes == [True]

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
    """Several sends and receives that happen all, or not at all. A context manager; see `Connection.transaction`."""

    def __init__(self, link: Link, waiter: Waiter, transaction: ClientTransaction) -> None:
        self._link = link
        self._waiter = waiter
        self._transaction = transaction

    def send(self, destination: str | Destination, body: Body, **headers: Unpack[MessageHeaders]) -> None:
        """Send a message with the commit. Does not wait; what the broker has against it, `commit` tells.

        Raises:
            TransactionRolledBack: the transaction is over, or was broken off.
        """
        where, values = destination_of(destination), header_values(headers)
        with self._link as state:
            state.transactions.send(self._transaction, where, body, values)
        if self._link.is_congested:
            self._waiter.wait_until_writable(None)

    def receive(self, consumer: Consumer, timeout: float | None = None) -> Message:
        """Take a message of a consumer with `ack="transacted"`: with the commit it is acknowledged.

        Raises:
            Timeout: none came in time.
        """
        with self._link as state:
            state.transactions.check(self._transaction)
        message = consumer.receive(timeout)
        self.ack(message)
        return message

    def ack(self, message: Message) -> None:
        """Acknowledge a message, that a consumer gave before, with the commit.

        Raises:
            TransactionRolledBack: the transaction is over, or was broken off.
        """
        with self._link as state:
            state.transactions.acknowledge(self._transaction, message)

    def commit(self, timeout: float | None = None) -> None:
        """Do all of it; it is safe on return.

        Raises:
            TransactionRolledBack: nothing of it was done. Do it again.
            TransactionInDoubt: all or nothing was done. Do it again if that is harmless.
        """
        with self._link as state:
            pending = state.transactions.commit(self._transaction)
        self._waiter.wait(pending, timeout, "committing")

    def rollback(self) -> None:
        """Do nothing of it. Messages it took come again, after the `Redelivery` delay."""
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
