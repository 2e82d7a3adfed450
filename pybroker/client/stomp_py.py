"""`FailoverConnection`: stomp.py's `Connection12` for programs that have one, with a failover that loses nothing.

Same methods, same listeners, same frames, and stomp.py does the talking. What is different: subscriptions come back
after a reconnect; `send` of a persistent message returns when a broker has it on disk, and sends it again until then; a
message of an `auto` subscription is acknowledged when the listeners are done with it, not when it is on its way; an
acknowledgement for a connection that is gone is dropped, as that message comes again; a transaction that a break has
touched says so. Two threads: one keeps the connection, one calls the listeners, which may therefore send and wait.

```text
 program ── send, ack … ──> FailoverConnection ──> stomp.Connection12 (a new one for each broker) ──> broker
 listeners <── caller ── queue <── _Relay <── its receiver thread
```
"""

import contextlib
import itertools
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from ssl import SSLContext
from types import TracebackType
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

import stomp
from stomp.exception import StompException
from stomp.protocol import Protocol12
from stomp.utils import Frame

from pybroker.client.errors import (
    BadOption,
    BrokerMissing,
    ClientError,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    LoginRefused,
    Refused,
    Timeout,
    TransactionInDoubt,
    TransactionRolledBack,
    UntrustedBroker,
    UnusableURI,
)
from pybroker.client.messages import RESENT
from pybroker.client.reconnect import Connect, GiveUp, Pause, ReadList, Reconnector
from pybroker.client.stomp import login_refusal, refusal
from pybroker.client.trust import client_context, probe
from pybroker.client.uri import URI_CHARACTERS_MAX, Address, BrokerURI, Protocol, parse

_RECEIPT_PREFIX: Final = "pybroker-failover-"
_LISTENER: Final = "pybroker-failover"
_DISCONNECT_SECONDS: Final = 5.0
_PROBE_SECONDS: Final = 3.0

_ANSWER_SECONDS: Final = 1.0
"""A broker that takes longer to answer over TLS may not trust us."""

_DELIVERED_IDS_MAX: Final = 10_000
"""Messages that are recognised when they come again."""

_GENERATION_SEPARATOR: Final = "@"
"""Between a connection's generation and a message's `ack`: a name from one broker must not reach the next."""

_CONNECTION_ERRORS: Final = (StompException, OSError, AttributeError)
"""What stomp.py raises on a broken connection; the last because it takes its socket away while using it."""

_connection12 = cast("Any", stomp.Connection12)  # it has no types
_protocol12 = cast("Any", Protocol12)
_Frame = cast("Any", Frame)

_log = logging.getLogger(__name__)


class _NeverSentError(ConnectionLost):
    """The connection was gone before the frame was sent."""


@dataclass(slots=True)
class _ReceiptResult:
    """What comes of a frame with a receipt of ours."""

    done: threading.Event = field(default_factory=threading.Event)
    error: ClientError | None = None

    def complete(self, error: ClientError | None = None) -> None:
        self.error = error
        self.done.set()


@dataclass(slots=True)
class _BrokerConnection:
    """One connection of stomp.py's, to one broker.

    Attributes:
        generation: counts them.
        connection: stomp.py's.
        open: CONNECTED has come, or the connection is gone.
        lost: the connection is gone; `error` says why.
        outcomes: by receipt, for frames that are not answered.
    """

    generation: int
    connection: Any
    open: threading.Event = field(default_factory=threading.Event)
    lost: threading.Event = field(default_factory=threading.Event)
    error: Exception = field(default_factory=lambda: ConnectionLost("the broker closed the connection"))
    results: dict[str, _ReceiptResult] = field(default_factory=dict[str, _ReceiptResult])


@dataclass(slots=True)
class _Subscription:
    destination: str
    ack: str
    headers: dict[str, str]


class FailoverConnection:
    """One connection to whichever broker serves; see the module. Thread-safe, and a context manager."""

    def __init__(
        self, uri: str, *, auto_content_length: bool = True, heartbeats: tuple[int, int] = (0, 0), **options: Any
    ) -> None:
        """Prepare; `connect` connects.

        Args:
            uri: `stomp:` or `stomp+ssl:`, alone or inside `failover:`, with its options.
            auto_content_length: as stomp.py has it: off, texts are TextMessages for JMS.
            heartbeats: as stomp.py has it.
            options: others of `stomp.Connection12`.

        Raises:
            UnusableURI: see `uri`; or it is OpenWire's.
        """
        self._uri: BrokerURI = parse(uri)
        if self._uri.protocol is not Protocol.STOMP:
            raise UnusableURI("stomp.py speaks STOMP", part=uri, hint="write stomp:// instead of tcp://")
        failover = self._uri.failover
        if failover is not None and (failover.backup or failover.priority_backup):
            raise BadOption("only pybroker.connect holds connections to other brokers", part="backup or priorityBackup")
        self._timeout = failover.timeout_seconds if failover is not None else None
        self._options = {**options, "heartbeats": heartbeats, "auto_content_length": auto_content_length}
        self._reconnector = Reconnector(self._uri, random.Random())  # noqa: S311 -- spreads load, keeps no secrets
        self._ssl: dict[str, Any] = {}
        self._ssl_context: SSLContext | None = None
        self._login: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._listeners: dict[str, object] = {}
        self._subscriptions: dict[str, _Subscription] = {}
        self._transactions: dict[str, int] = {}
        self._delivered_ids: dict[object, None] = {}
        self._generations = itertools.count(1)
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._broker: _BrokerConnection | None = None
        self._failure: ClientError | None = ConnectionClosed("connect() was not called")
        self._was_connected = False
        self._closing = threading.Event()
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    # ------------------------------------------------------------ listeners

    def set_listener(self, name: str, listener: object) -> None:
        """Have a listener called. `on_disconnected` comes at the end only; `on_interrupted` and `on_resumed` before."""
        self._listeners[name] = listener

    def get_listener(self, name: str) -> object | None:
        """Return a listener by its name."""
        return self._listeners.get(name)

    def remove_listener(self, name: str) -> None:
        """Call a listener no more."""
        del self._listeners[name]

    def _call(self, method: str, *arguments: object) -> bool:
        """Call listeners, in the caller's thread; tell whether none of them failed."""
        succeeded = True
        for name, listener in sorted(self._listeners.items()):
            try:
                getattr(listener, method, _ignore_event)(*arguments)
            except Exception:
                _log.exception("listener %s failed in %s", name, method)
                succeeded = False
        return succeeded

    def _run_calls(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                call()
        except BaseException as end:  # SystemExit: this thread cannot end the program, and must not end unseen
            _log.error("a listener raised %r: the connection ends", end)
            self._abort(ConnectionFailed(f"a listener raised {end!r}"))

    def _abort(self, error: ClientError) -> None:
        """End the connection without a goodbye, as nothing calls listeners any more. Each later call raises that."""
        with self._changed:
            self._failure = error
            self._closing.set()
            self._changed.notify_all()
            broker = self._broker
        if broker is not None:
            _close_socket(broker.connection)

    # ------------------------------------------------------------ connecting

    def set_ssl(self, **options: Any) -> None:
        """Take stomp.py's options of TLS, for every broker with `stomp+ssl:`; not `for_hosts`.

        Raises:
            OSError: a file does not exist, or is none of the kind.
        """
        self._ssl_context = client_context(**options)
        self._ssl = options

    def connect(self, *arguments: Any, **options: Any) -> None:
        """Connect, and keep connected; takes what `stomp.Connection12.connect` does. Waits, and does nothing if it is.

        Raises:
            LoginRefused: by the broker.
            UntrustedBroker: TLS finds that it is another, or the broker does not find us to be who we should be.
            BrokerMissing: no broker answers, in as many attempts as the URI allows.
            Timeout: it takes longer than the URI's `timeout`.
        """
        with self._changed:  # another thread may disconnect, which joins threads that have started
            if not self._threads:
                options.pop("wait", None)
                self._login = arguments, options
                self._failure = None
                self._threads = [
                    threading.Thread(target=self._keep_connected, name="pybroker-stomp-connection", daemon=True),
                    threading.Thread(target=self._run_calls, name="pybroker-stomp-listeners", daemon=True),
                ]
                for thread in self._threads:
                    thread.start()
        self._wait_for_connection(0, self._deadline())

    def is_connected(self) -> bool:
        """Tell whether there is a broker at the moment."""
        return self._broker is not None

    def disconnect(self, *_: Any, **__: Any) -> None:
        """Say goodbye, wait for the broker's answer, and end. From a listener, the end comes after it has returned."""
        with self._changed:
            self._closing.set()
            broker, threads = self._broker, self._threads
        if broker is not None:
            with contextlib.suppress(*_CONNECTION_ERRORS):
                _protocol12.disconnect(
                    broker.connection, f"{_RECEIPT_PREFIX}goodbye"
                )  # the connection's waits for ever
            broker.lost.wait(_DISCONNECT_SECONDS)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(_DISCONNECT_SECONDS)  # it may be connecting, which stomp.py does not interrupt

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    def _keep_connected(self) -> None:
        failure: ClientError = ConnectionClosed("the connection is closed")
        try:
            failure = self._reconnect() or failure
        finally:
            with self._changed:
                self._failure, self._broker = self._failure or failure, None
                self._changed.notify_all()
            self._calls.put(lambda: self._call("on_disconnected"))
            self._calls.put(None)

    def _reconnect(self) -> ClientError | None:
        while not self._closing.is_set():
            for uri_warning in self._reconnector.warnings:
                _log.warning("%s", uri_warning)
            self._reconnector.warnings.clear()
            match self._reconnector.next_step():
                case Pause(seconds=seconds, warning=warning):
                    if warning:
                        _log.warning("%s", warning)
                    self._closing.wait(seconds)
                case ReadList(url=url):
                    self._read_list(url)
                case GiveUp(error=UntrustedBroker() as error, is_final=True):
                    return error
                case GiveUp(error=error):
                    failure = BrokerMissing(f"no broker: {self._reconnector.report()}")
                    failure.__cause__ = error
                    return failure
                case Connect(address=address):
                    try:
                        broker = self._open(address)
                    except LoginRefused as error:
                        return error
                    except (*_CONNECTION_ERRORS, ClientError) as error:
                        self._reconnector.failed(error, is_final=isinstance(error, UntrustedBroker))
                    else:
                        self._stay_connected(address, broker)
        return None

    def _open(self, address: Address) -> _BrokerConnection:
        """Connect to a broker, and subscribe again."""
        options = address.options
        connection = _connection12(
            [(address.host, address.port)],
            reconnect_attempts_max=1,
            reconnect_sleep_initial=0,
            timeout=options.connection_timeout_seconds,
            **self._options,
        )
        if address.scheme.is_tls:
            connection.set_ssl(for_hosts=[(address.host, address.port)], **self._ssl)
        broker = _BrokerConnection(next(self._generations), connection)
        connection.set_listener(_LISTENER, _StompListener(self, broker, is_again=self._was_connected))
        arguments, named = self._login
        try:
            self._dial(broker, address, lambda: connection.connect(*arguments, **named, wait=False))
            if not broker.open.wait(options.connection_timeout_seconds):
                raise ConnectionLost("the broker does not answer")
            if broker.lost.is_set():
                raise broker.error
            with self._changed:
                if self._closing.is_set():
                    raise ConnectionClosed("the connection is closed")
                for name, subscription in self._subscriptions.items():
                    _subscribe(broker, name, subscription)
                self._broker = broker
                self._changed.notify_all()
        except BaseException:
            _close_socket(connection)
            raise
        return broker

    def _dial(self, broker: _BrokerConnection, address: Address, connect: Callable[[], object]) -> None:
        """Have stomp.py connect.

        Raises:
            UntrustedBroker: TLS failed for want of trust. stomp.py logs that, and tells nobody.
        """
        error: Exception | None = None
        try:
            connect()
        except _CONNECTION_ERRORS as broken:
            error = broken
        if address.scheme.is_tls and (error is not None or not broker.open.wait(_ANSWER_SECONDS)):
            self._ssl_context = self._ssl_context or client_context()
            error = probe(address.host, address.port, self._ssl_context, _PROBE_SECONDS) or error
        if error is not None:
            raise error

    def _stay_connected(self, address: Address, broker: _BrokerConnection) -> None:
        is_again, self._was_connected = self._was_connected, True
        self._reconnector.connected(time.monotonic())
        _log.info("connected to %s", address)
        if is_again:
            self._calls.put(lambda: self._call("on_resumed", str(address)))
        broker.lost.wait()
        with self._changed:
            self._broker = None
            self._changed.notify_all()
        for result in list(broker.results.values()):
            result.complete(ConnectionLost("the connection broke before the broker answered"))
        _close_socket(broker.connection)
        self._reconnector.lost(broker.error, time.monotonic())
        if not self._closing.is_set():
            _log.warning("connection to %s lost: %s", address, broker.error)
            self._calls.put(lambda: self._call("on_interrupted", broker.error))

    def _read_list(self, url: str) -> None:
        path = Path(url2pathname(urlsplit(url).path) if url.startswith("file:") else url)
        try:
            with path.open(encoding="utf-8") as file:
                self._reconnector.list_read(file.read(URI_CHARACTERS_MAX))
        except (OSError, ValueError) as error:
            _log.warning("the list of brokers cannot be read: %s", error)

    # ------------------------------------------------------------ sending

    def send(
        self,
        destination: str,
        body: str | bytes,
        content_type: str | None = None,
        headers: Mapping[str, Any] | None = None,
        **keyword_headers: Any,
    ) -> None:
        """Send a message. A persistent one is on a broker's disk on return, unless it is part of a transaction.

        Raises:
            Refused: the broker does not take it.
            TransactionRolledBack: the connection has broken since the transaction began.
            BrokerMissing, LoginRefused: the connection has failed for good.
            Timeout: it takes longer than the URI's `timeout`.
        """
        merged = {**(headers or {}), **keyword_headers}

        def send(connection: Any, **more: str) -> None:
            connection.send(destination, body, content_type, {**merged, **more})

        if "transaction" in merged:
            self._in_transaction(str(merged["transaction"]), send)
        elif merged.get("persistent") != "true":
            self._send_until_written(send)
        else:
            receipt = merged.pop("receipt", None)
            self._send_until_answered(send)
            if receipt is not None:
                self.notify("on_receipt", _Frame("RECEIPT", {"receipt-id": receipt}, ""))

    def _send_until_answered(self, send: Callable[..., None]) -> None:
        deadline, generation, headers_again = self._deadline(), 0, dict[str, str]()
        while True:
            broker = self._wait_for_connection(generation, deadline)
            try:
                self._exchange(broker, partial(send, **headers_again), deadline)
            except ConnectionLost:
                generation, headers_again = broker.generation, {RESENT: "true"}
            else:
                return

    def _send_until_written(self, send: Callable[[Any], object]) -> _BrokerConnection:
        """Have a frame sent to some broker; return which."""
        deadline, generation = self._deadline(), 0
        while True:
            broker = self._wait_for_connection(generation, deadline)
            try:
                send(broker.connection)
            except _CONNECTION_ERRORS:
                generation = broker.generation
            else:
                return broker

    def _exchange(self, broker: _BrokerConnection, send: Callable[..., None], deadline: float | None) -> None:
        """Send a frame with a receipt, and wait for that.

        Raises:
            ConnectionLost, Timeout, Refused: it did not come, or an ERROR came instead.
        """
        receipt, result = f"{_RECEIPT_PREFIX}{next(self._numbers)}", _ReceiptResult()
        with self._changed:  # whoever finds the connection lost resolves what is in there
            if self._broker is not broker:
                raise _NeverSentError("the connection broke")
            broker.results[receipt] = result
        try:
            try:
                send(broker.connection, receipt=receipt)
            except _CONNECTION_ERRORS as error:
                raise ConnectionLost(f"the connection broke: {error}") from error
            if not result.done.wait(_seconds_left(deadline)):
                raise Timeout("the broker did not answer in time")
        finally:
            broker.results.pop(receipt, None)
        if result.error is not None:
            raise result.error

    def _deadline(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _wait_for_connection(self, generation: int, deadline: float | None) -> _BrokerConnection:
        """Return the connection, once there is a newer one than that generation."""
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._broker is not None and self._broker.generation > generation:
                    return self._broker
                if not self._changed.wait(_seconds_left(deadline)):
                    report = self._reconnector.report()
                    raise Timeout(f"no broker in time{': ' if report else ''}{report}")

    # ------------------------------------------------------------ receiving

    def subscribe(
        self, destination: str, id: str, ack: str = "auto", headers: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        """Subscribe on this broker and every later one. With `auto`, listeners are called before it is acknowledged."""
        subscription = _Subscription(destination, ack, {**(headers or {}), **more})
        with self._changed:
            if self._subscriptions.get(str(id)) == subscription:
                return  # a program that subscribes after each reconnect, as it had to
            self._subscriptions[str(id)] = subscription
            broker = self._broker
            if broker is not None:
                with contextlib.suppress(*_CONNECTION_ERRORS):  # the next broker hears of it
                    _subscribe(broker, str(id), subscription)

    def unsubscribe(self, id: str, headers: Mapping[str, Any] | None = None, **more: Any) -> None:
        """End a subscription."""
        with self._changed:
            self._subscriptions.pop(str(id), None)
            broker = self._broker
        if broker is not None:
            with contextlib.suppress(*_CONNECTION_ERRORS):
                broker.connection.unsubscribe(id=id, headers=dict(headers or {}), **more)

    def ack(self, id: str, transaction: str | None = None, receipt: str | None = None) -> None:
        """Acknowledge a message by its `ack` header; of a connection that is gone this does nothing: it comes again.

        Raises:
            TransactionRolledBack: the connection has broken since the transaction began, or the message came.
        """
        self._acknowledge("ack", id, transaction, receipt)

    def nack(self, id: str, transaction: str | None = None, receipt: str | None = None) -> None:
        """Give a message back as unusable, as `ack` acknowledges it."""
        self._acknowledge("nack", id, transaction, receipt)

    def _acknowledge(self, method: str, ack_id: str, transaction: str | None, receipt: str | None) -> None:
        generation, _, name = ack_id.partition(_GENERATION_SEPARATOR)
        broker = self._broker
        is_current = broker is not None and generation == str(broker.generation)
        if transaction is not None:
            if not is_current:
                raise TransactionRolledBack("the connection broke: a message that the transaction takes comes again")
            self._in_transaction(
                transaction, lambda connection: getattr(connection, method)(name, transaction, receipt)
            )
        elif broker is not None and is_current:
            with contextlib.suppress(*_CONNECTION_ERRORS):
                getattr(broker.connection, method)(name, None, receipt)

    def deliver(self, broker: _BrokerConnection, frame: Any) -> None:
        """Have listeners called for a message. In the receiver's thread."""
        self._calls.put(lambda: self._deliver(broker, frame))

    def _deliver(self, broker: _BrokerConnection, frame: Any) -> None:
        if broker is not self._broker:
            return  # it comes again
        subscription = self._subscriptions.get(frame.headers.get("subscription", ""))
        name = frame.headers.pop("ack", None)
        is_auto = subscription is not None and subscription.ack == "auto"
        if name is not None and not is_auto:
            frame.headers["ack"] = f"{broker.generation}{_GENERATION_SEPARATOR}{name}"
        if self._record_delivery(frame.headers):
            frame.headers["redelivered"] = "true"  # a broker that takes over may not know
        self._call("on_before_message", frame)
        succeeded = self._call("on_message", frame)
        if name is not None and is_auto:
            self._acknowledge(
                "ack" if succeeded else "nack", f"{broker.generation}{_GENERATION_SEPARATOR}{name}", None, None
            )

    def _record_delivery(self, headers: Mapping[str, str]) -> bool:
        """Note that listeners get a message; tell whether they had it before. A topic's is for each subscription."""
        destination = headers.get("destination", "")
        key = headers.get("message-id", ""), destination, "/queue/" in destination or headers.get("subscription")
        if key in self._delivered_ids:
            return True
        self._delivered_ids[key] = None
        if len(self._delivered_ids) > _DELIVERED_IDS_MAX:
            del self._delivered_ids[next(iter(self._delivered_ids))]
        return False

    def notify(self, method: str, *arguments: object) -> None:
        """Have listeners called for anything else. In any thread."""
        self._calls.put(lambda: self._call(method, *arguments))

    # ------------------------------------------------------------ transactions

    def begin(self, transaction: str | None = None, headers: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Begin a transaction, and return its name."""
        name = transaction or f"pybroker-{next(self._numbers)}"
        broker = self._send_until_written(lambda connection: connection.begin(name, dict(headers or {}), **more))
        self._transactions[name] = broker.generation
        return name

    def commit(self, transaction: str, headers: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Do all of a transaction; it is safe on return.

        Raises:
            TransactionRolledBack: nothing of it was done. Do it again.
            TransactionInDoubt: all or nothing was done. Do it again if that is harmless.
        """
        broker = self._connection_of(transaction)
        del self._transactions[transaction]
        merged = {**(headers or {}), **more}

        def commit(connection: Any, receipt: str) -> None:
            connection.commit(transaction, {**merged, "receipt": receipt})

        try:
            self._exchange(broker, commit, self._deadline())
        except _NeverSentError as error:
            raise TransactionRolledBack("the connection broke, and the transaction with it") from error
        except (ConnectionLost, Timeout) as error:
            raise TransactionInDoubt("the connection broke before the commit was answered") from error
        except Refused as error:
            raise TransactionRolledBack(f"the broker refuses to commit: {error}") from error

    def abort(self, transaction: str, headers: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Do nothing of a transaction."""
        generation, broker = self._transactions.pop(transaction, 0), self._broker
        if broker is not None and broker.generation == generation:
            with contextlib.suppress(*_CONNECTION_ERRORS):
                broker.connection.abort(transaction, dict(headers or {}), **more)

    def _in_transaction(self, name: str, send: Callable[[Any], object]) -> None:
        try:
            send(self._connection_of(name).connection)
        except _CONNECTION_ERRORS as error:
            raise TransactionRolledBack("the connection broke, and the transaction with it") from error

    def _connection_of(self, transaction: str) -> _BrokerConnection:
        broker, generation = self._broker, self._transactions.get(transaction)
        if generation is None:
            raise TransactionRolledBack(f"no transaction {transaction} is open")
        if broker is None or broker.generation != generation:
            self._transactions.pop(transaction)
            raise TransactionRolledBack("the connection broke, and the transaction with it")
        return broker


class _StompListener:
    """The listener that stomp.py calls, in its receiver's thread."""

    def __init__(self, owner: FailoverConnection, broker: _BrokerConnection, *, is_again: bool) -> None:
        self._owner = owner
        self._broker = broker
        self._is_again = is_again

    def on_connecting(self, host_and_port: tuple[str, int]) -> None:
        self._owner.notify("on_connecting", host_and_port)

    def on_connected(self, frame: Any) -> None:
        self._broker.open.set()
        self._owner.notify("on_connected", frame)

    def on_message(self, frame: Any) -> None:
        self._owner.deliver(self._broker, frame)

    def on_receipt(self, frame: Any) -> None:
        receipt = frame.headers["receipt-id"]
        result = self._broker.results.get(receipt)
        if result is not None:
            result.complete()
        elif not receipt.startswith(_RECEIPT_PREFIX):
            self._owner.notify("on_receipt", frame)

    def on_error(self, frame: Any) -> None:
        text, body = frame.headers.get("message", ""), frame.body
        result = self._broker.results.get(frame.headers.get("receipt-id", ""))
        if result is not None:
            result.complete(refusal(frame.headers, body.encode() if isinstance(body, str) else body))
        elif not self._broker.open.is_set():
            self._broker.error = login_refusal(text, is_again=self._is_again) or ConnectionLost(text)
            self._lose()
        self._owner.notify("on_error", frame)

    def on_heartbeat_timeout(self) -> None:
        self._owner.notify("on_heartbeat_timeout")

    def on_disconnected(self) -> None:
        self._lose()

    def _lose(self) -> None:
        self._broker.lost.set()
        self._broker.open.set()


def _subscribe(broker: _BrokerConnection, name: str, subscription: _Subscription) -> None:
    ack = "client-individual" if subscription.ack == "auto" else subscription.ack
    broker.connection.subscribe(subscription.destination, name, ack, dict(subscription.headers))


def _close_socket(connection: Any) -> None:
    """End a connection of stomp.py's whatever state it is in, and its thread."""
    with contextlib.suppress(*_CONNECTION_ERRORS):
        connection.transport.disconnect_socket()
    thread = connection.transport.io_thread
    if thread is not None:
        thread.join(_DISCONNECT_SECONDS)


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _ignore_event(*_: object) -> None:
    """Stand in for a method that a listener does not have."""
