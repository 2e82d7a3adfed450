"""The synchronous API: the classes and methods of `aio`, for threads.

Each connection has one thread for its I/O. Every method may be called in any thread, but only one thread at a time may
receive from a consumer with `ack="auto"` or `"client"`, or use a transaction; docs/client.md has the whole list.

Each object wraps one of `aio`, and its methods run the coroutines of that. They wait for flags only, and the flags of a
`_ThreadedConnection` block the thread. So a coroutine ends without a suspension, and needs no loop.
"""

# ruff: noqa: ASYNC109 -- `timeout` is an argument of the API

import asyncio
import atexit
import contextlib
import functools
import ssl
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from pybroker.broker.domain.destination import Destination
from pybroker.client import aio
from pybroker.client.arguments import CLOSE_SECONDS
from pybroker.client.consumers import Redelivery
from pybroker.client.errors import ClientError, ConnectionClosed
from pybroker.client.link import ClientLink
from pybroker.client.messages import Message
from pybroker.client.waiting import Flag

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Wrapped = TypeVar("Wrapped")
WrappedContext = TypeVar("WrappedContext", bound=contextlib.AbstractAsyncContextManager[Any])
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
        timeout: the seconds that the first connection may take. Each of several brokers has its part of them.
        ssl_context: the TLS context for `ssl:` and `stomp+ssl:`; by default the system's authorities are trusted.
        redelivery: the redelivery policy for messages of a transaction that was rolled back.
        on_interrupted: called in the connection's thread, with the reason, when the broker is lost. It must not block.
        on_resumed: called in the same thread, with the broker's address, when the state is restored. It must not block.

    Raises:
        UnusableURI: the URI is not valid.
        TypeError: user, password or client id is no text.
        ValueError: it has more than 10,000 characters.
        BrokerMissing: no broker answered in all attempts that the URI allows.
        LoginRefused, UntrustedBroker, ProtocolViolation: another attempt does not help.
        Timeout: it took too long.
    """
    connection = _ThreadedConnection(
        uri,
        user=user,
        password=password,
        client_id=client_id,
        timeout=timeout,
        ssl_context=ssl_context,
        redelivery=redelivery,
        on_interrupted=on_interrupted,
        on_resumed=on_resumed,
    )
    return Connection(_run(connection.__aenter__()))


# ---------------------------------------------------------------- coroutines in threads


class _ThreadFlag:
    """A flag that blocks the thread that waits for it."""

    def __init__(self, link: ClientLink) -> None:
        link.check_thread()
        self._event = threading.Event()
        self.set = self._event.set

    async def wait(self, timeout: float | None) -> bool:
        return self._event.wait(timeout)


def _run(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine that blocks where it waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: Value = end.value
        return value
    raise AssertionError("a coroutine of the API waits for a flag only")


def _iterate(items: AsyncGenerator[Value]) -> Generator[Value]:
    """Return a generator with the items of an asynchronous one, and close that at its end."""
    try:
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield _run(items.__anext__())
    finally:
        _run(items.aclose())


_open: "weakref.WeakSet[_ThreadedConnection]" = weakref.WeakSet()
"""The open connections of this process, which are closed at its exit."""


class _ThreadedConnection(aio.Connection):
    """A connection with a thread for its I/O, which other threads wait for."""

    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None

    def _make_flag(self) -> Flag:
        return _ThreadFlag(self._link)

    def _start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=[self._loop], name="pybroker-client", daemon=True)
        self._thread.start()
        _open.add(self)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        async def main() -> None:
            self._running = asyncio.create_task(self._link.run())
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

        with (
            contextlib.suppress(SystemExit),  # from a callback: it is logged, and pending calls have failed
            asyncio.Runner(loop_factory=lambda: loop) as runner,
        ):
            runner.run(main())

    async def _close(self, timeout: float, *, finished: bool) -> None:
        if self._link.is_inherited:
            return
        self._link.check_thread()
        self._begin_close(timeout, finished=finished)
        self._join(None)

    def _begin_close(self, timeout: float, *, finished: bool) -> None:
        """Make the connection's thread close the connection; `_join` waits for the end. Any thread may call this."""
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended before
                begin = functools.partial(super()._begin_close, timeout, finished=finished)
                self._loop.call_soon_threadsafe(begin)

    def _join(self, seconds: float | None) -> None:
        """Wait for the end of the connection's thread."""
        if self._thread is not None and self._thread.ident is not None:
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
            connection._begin_close(CLOSE_SECONDS, finished=False)
        for connection in connections:
            connection._join(max(0.0, deadline - time.monotonic()))


# ---------------------------------------------------------------- the objects of the API


class _Wrapper(Generic[Wrapped]):
    """An object of the asyncio API, for threads."""

    def __init__(self, twin: Wrapped) -> None:
        self._wrapped = twin


class _ContextWrapper(_Wrapper[WrappedContext]):
    """The same for a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _run(self._wrapped.__aexit__(kind, error, trace))


def _method(
    method: Callable[Concatenate[Wrapped, Arguments], Result], convert: Callable[[Result], Value]
) -> Callable[Concatenate[_Wrapper[Wrapped], Arguments], Value]:
    """Return a method that calls one of the wrapped object, with the same arguments, and converts the result."""

    @functools.wraps(method)
    def call(self: _Wrapper[Wrapped], /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Value:
        return convert(method(self._wrapped, *arguments, **options))  # pyright: ignore[reportPrivateUsage]

    return call


def _unchanged(value: Value) -> Value:
    return value


class Sending(_Wrapper[aio.Sending]):
    """A send in flight, which `Connection.begin_send` returns."""

    wait = _method(aio.Sending.wait, _run)

    @property
    def is_done(self) -> bool:
        """True if the send is complete, and `wait` does not block."""
        return self._wrapped.is_done

    @property
    def is_sent(self) -> bool:
        """False if the message was not sent yet: there was no broker, or the protocol has no form for it."""
        return self._wrapped.is_sent


class Producer(_ContextWrapper[aio.Producer]):
    """A producer for one destination. A context manager."""

    send = _method(aio.Producer.send, _run)
    close = _method(aio.Producer.close, _unchanged)

    @property
    def destination(self) -> Destination:
        """The destination."""
        return self._wrapped.destination


class Consumer(_ContextWrapper[aio.Consumer]):
    """A consumer of one destination. A context manager, and an iterator that ends when the consumer is closed.

    With `ack="auto"` the consumer acknowledges a message when the application receives the next one, closes the
    consumer, or leaves its `with` statement without an exception. With `"client"` and `"individual"` the message's
    `ack()` acknowledges it, with `"transacted"` the transaction.
    """

    receive = _method(aio.Consumer.receive, _run)
    give_back = _method(aio.Consumer.give_back, _run)
    receive_no_wait = _method(aio.Consumer.receive_no_wait, _unchanged)
    call_when_ready = _method(aio.Consumer.call_when_ready, _unchanged)
    reject = _method(aio.Consumer.reject, _unchanged)
    set_prefetch = _method(aio.Consumer.set_prefetch, _unchanged)
    stop = _method(aio.Consumer.stop, _unchanged)
    close = _method(aio.Consumer.close, _unchanged)
    finish = _method(aio.Consumer.finish, _run)

    @property
    def has_message(self) -> bool:
        """True if `receive_no_wait` returns a message now."""
        return self._wrapped.has_message

    @property
    def error(self) -> ClientError | None:
        """The reason why the consumer has ended, which `receive` raises; None while it is open."""
        return self._wrapped.error

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            return self.receive()
        except ConnectionClosed:
            raise StopIteration from None


class Transaction(_ContextWrapper[aio.Transaction]):
    """A transaction: sends and acknowledgements that take effect together or not at all. A context manager."""

    send = _method(aio.Transaction.send, _run)
    ack = _method(aio.Transaction.ack, _unchanged)
    commit = _method(aio.Transaction.commit, _run)
    rollback = _method(aio.Transaction.rollback, _unchanged)

    def receive(self, consumer: Consumer, timeout: float | None = None) -> Message:
        """Return the next message of a consumer with `ack="transacted"`, and acknowledge it in the transaction.

        Raises:
            Timeout: no message arrived in time.
            TransactionRolledBack: the transaction has ended, or can only be rolled back.
        """
        return _run(self._wrapped.receive(consumer._wrapped, timeout))


class Connection(_ContextWrapper[aio.Connection]):
    """A connection, which `connect` opens. A context manager that closes the connection at its end."""

    call_when_ended = _method(aio.Connection.call_when_ended, _unchanged)
    send = _method(aio.Connection.send, _run)
    begin_send = _method(aio.Connection.begin_send, Sending)
    producer = _method(aio.Connection.producer, lambda opening: Producer(_run(opening)))
    consumer = _method(aio.Connection.consumer, lambda opening: Consumer(_run(opening)))
    browse = _method(aio.Connection.browse, _iterate)
    transaction = _method(aio.Connection.transaction, Transaction)
    request = _method(aio.Connection.request, _run)
    temporary_destination = _method(aio.Connection.temporary_destination, _run)
    create_destination = _method(aio.Connection.create_destination, _run)
    delete_destination = _method(aio.Connection.delete_destination, _run)
    destination_exists = _method(aio.Connection.destination_exists, _run)
    unsubscribe = _method(aio.Connection.unsubscribe, _run)
    close = _method(aio.Connection.close, _run)
    begin_close = _method(aio.Connection.begin_close, _unchanged)

    @property
    def broker(self) -> str | None:
        """The address of the present broker; None while there is none."""
        return self._wrapped.broker

    def receive_any(self, consumers: Iterable[Consumer], timeout: float | None = None) -> tuple[Consumer, Message]:
        """Return the next message of any of several consumers of this connection, with its consumer.

        Arguments and errors are those of `aio.Connection.receive_any`. Other threads may acknowledge, send, and open or
        close consumers during the call.
        """
        chosen = {consumer._wrapped: consumer for consumer in consumers}
        consumer, message = _run(self._wrapped.receive_any(chosen, timeout))
        return chosen[consumer], message

    @property
    def error(self) -> ClientError | None:
        """The reason why the connection has ended; None while it can be used, or looks for the next broker."""
        return self._wrapped.error
