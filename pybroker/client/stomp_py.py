"""`FailoverConnection`: a replacement for stomp.py's `Connection12`, with a failover that loses no messages.

It has the methods and listeners of stomp.py, which still does the I/O. The differences: after a reconnect,
subscriptions are restored. `send` of a persistent message returns when a broker has it on disk, and repeats the send
until then. A message of an `auto` subscription is acknowledged after the listeners return, and not when the broker
sends it. An acknowledgement for a lost connection is dropped, because the message will be redelivered. A transaction
that a break affects raises an error. One thread keeps the connection, and another calls the listeners, so that they can
send and wait.

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

from pybroker.broker.domain.message import RESENT
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
from pybroker.client.reconnect import Connect, GiveUp, Pause, ReadList, Reconnector
from pybroker.client.stomp import login_refusal, refusal
from pybroker.client.trust import client_context, probe
from pybroker.client.uri import URI_CHARACTERS_MAX, Address, BrokerURI, WireProtocol, parse

_RECEIPT_PREFIX: Final = "pybroker-failover-"
_LISTENER: Final = "pybroker-failover"
_DISCONNECT_SECONDS: Final = 5.0
_PROBE_SECONDS: Final = 3.0

_ANSWER_SECONDS: Final = 1.0
"""The wait for CONNECTED over TLS. A broker that takes longer may not trust the client, which `probe` then checks."""

_DELIVERED_IDS_MAX: Final = 10_000
"""The most messages that are remembered, to recognise their redelivery."""

_GENERATION_SEPARATOR: Final = "@"
"""The separator of a connection's generation and a message's `ack` id. An id of one broker must not reach the next."""

_CONNECTION_ERRORS: Final = (StompException, OSError, AttributeError)
"""The exceptions of stomp.py for a broken connection; AttributeError, because it sets its socket to None during use."""

_connection12 = cast("Any", stomp.Connection12)  # stomp.py has no types
_protocol12 = cast("Any", Protocol12)
_Frame = cast("Any", Frame)

_log = logging.getLogger(__name__)


class _NeverSentError(ConnectionLost):
    """The connection was lost before the frame was sent."""


@dataclass(slots=True)
class _ReceiptResult:
    """The result of a frame with a receipt of this module."""

    done: threading.Event = field(default_factory=threading.Event)
    error: ClientError | None = None

    def complete(self, error: ClientError | None = None) -> None:
        self.error = error
        self.done.set()


@dataclass(slots=True)
class _BrokerConnection:
    """A connection of stomp.py to one broker.

    Attributes:
        generation: the number of the connection.
        connection: the object of stomp.py.
        open: set when CONNECTED arrived, or the connection is lost.
        lost: set when the connection is lost.
        error: the reason of the loss.
        results: the pending results of frames, by receipt.
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
    """A connection with failover. Thread-safe, and a context manager."""

    def __init__(
        self, uri: str, *, auto_content_length: bool = True, heartbeats: tuple[int, int] = (0, 0), **options: Any
    ) -> None:
        """Create a connection; `connect` connects.

        Args:
            uri: a URI with `stomp:` or `stomp+ssl:`, alone or inside `failover:`, with options.
            auto_content_length: as in stomp.py; if false, JMS consumers receive texts as TextMessages.
            heartbeats: as in stomp.py.
            options: other options of `stomp.Connection12`.

        Raises:
            UnusableURI: the URI is not valid, or its protocol is OpenWire.
            BadOption: the URI has an option that only `pybroker.connect` supports.
        """
        self._uri: BrokerURI = parse(uri)
        if self._uri.protocol is not WireProtocol.STOMP:
            raise UnusableURI("stomp.py speaks STOMP", part=uri, hint="write stomp:// instead of tcp://")
        failover = self._uri.failover
        if failover is not None and (failover.backup or failover.priority_backup):
            raise BadOption("only pybroker.connect supports backup connections", part="backup or priorityBackup")
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
        """Register a listener.

        `on_disconnected` is called at the end only. A break calls `on_interrupted`, and later `on_resumed`.
        """
        self._listeners[name] = listener

    def get_listener(self, name: str) -> object | None:
        """Return a listener by its name."""
        return self._listeners.get(name)

    def remove_listener(self, name: str) -> None:
        """Remove a listener."""
        del self._listeners[name]

    def _call(self, method: str, *arguments: object) -> bool:
        """Call a method of all listeners in this thread; return False if one failed."""
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
        except BaseException as end:  # a SystemExit in this thread does not end the program, so it ends the connection
            _log.error("a listener raised %r: the connection ends", end)
            self._abort(ConnectionFailed(f"a listener raised {end!r}"))

    def _abort(self, error: ClientError) -> None:
        """End the connection without a DISCONNECT. Each later call raises the error."""
        with self._changed:
            self._failure = error
            self._closing.set()
            self._changed.notify_all()
            broker = self._broker
        if broker is not None:
            _close_socket(broker.connection)

    # ------------------------------------------------------------ connecting

    def set_ssl(self, **options: Any) -> None:
        """Set stomp.py's TLS options, except `for_hosts`, for every broker with `stomp+ssl:`.

        Raises:
            OSError: a file does not exist, or has the wrong format.
        """
        self._ssl_context = client_context(**options)
        self._ssl = options

    def connect(self, *arguments: Any, **options: Any) -> None:
        """Connect, wait for the first connection, and stay connected. A second call only waits.

        Args:
            arguments: as for `stomp.Connection12.connect`.
            options: the same.

        Raises:
            LoginRefused: the broker refuses the login.
            UntrustedBroker: TLS verification failed on the client's or the broker's side.
            BrokerMissing: no broker answered in all attempts that the URI allows.
            Timeout: it took longer than the URI's `timeout`.
        """
        with self._changed:  # `disconnect` in another thread joins started threads only
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
        """Return True if there is a broker at present."""
        return self._broker is not None

    def disconnect(self, *_: Any, **__: Any) -> None:
        """Disconnect in order and end the connection. If a listener calls this, its thread ends after its return."""
        with self._changed:
            self._closing.set()
            broker, threads = self._broker, self._threads
        if broker is not None:
            with contextlib.suppress(*_CONNECTION_ERRORS):
                # The method of the connection itself would wait for the receipt without a limit.
                _protocol12.disconnect(broker.connection, f"{_RECEIPT_PREFIX}goodbye")
            broker.lost.wait(_DISCONNECT_SECONDS)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(_DISCONNECT_SECONDS)  # a limit, as stomp.py does not interrupt a connect

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
        """Connect to a broker, and restore the subscriptions."""
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
                # First, because `_deliver` and `_acknowledge` drop what belongs to another connection.
                self._broker = broker
                try:
                    for name, subscription in self._subscriptions.items():
                        _subscribe(broker, name, subscription)
                except BaseException:
                    self._broker = None
                    raise
                self._changed.notify_all()
        except BaseException:
            _close_socket(connection)
            raise
        return broker

    def _dial(self, broker: _BrokerConnection, address: Address, connect: Callable[[], object]) -> None:
        """Connect with stomp.py.

        Raises:
            UntrustedBroker: TLS verification failed; stomp.py only logs that.
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
        """Send a message. A persistent message without a transaction is on a broker's disk on return.

        Raises:
            Refused: the broker refuses the message.
            TransactionRolledBack: the connection broke after the begin of the transaction.
            BrokerMissing, LoginRefused: the connection has failed permanently.
            Timeout: it took longer than the URI's `timeout`.
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
        """Send a frame to a broker, and repeat it on the next one until that succeeds; return the connection."""
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
        """Send a frame with a receipt, and wait for the receipt.

        Raises:
            ConnectionLost, Timeout: the receipt did not arrive.
            Refused: an ERROR arrived instead.
        """
        receipt, result = f"{_RECEIPT_PREFIX}{next(self._numbers)}", _ReceiptResult()
        with self._changed:  # when the connection is lost, `_stay_connected` completes all results
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
        """Return the connection; wait for one that is newer than a generation."""
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
        """Subscribe on this and all later brokers. In `auto` mode a message is acknowledged after the listeners."""
        subscription = _Subscription(destination, ack, {**(headers or {}), **more})
        with self._changed:
            if self._subscriptions.get(str(id)) == subscription:
                return  # a program written for stomp.py subscribes after each reconnect
            self._subscriptions[str(id)] = subscription
            broker = self._broker
            if broker is not None:
                with contextlib.suppress(*_CONNECTION_ERRORS):  # `_open` subscribes on the next broker
                    _subscribe(broker, str(id), subscription)

    def unsubscribe(self, id: str, headers: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Remove a subscription."""
        with self._changed:
            self._subscriptions.pop(str(id), None)
            broker = self._broker
        if broker is not None:
            with contextlib.suppress(*_CONNECTION_ERRORS):
                broker.connection.unsubscribe(id=id, headers=dict(headers or {}), **more)

    def ack(self, id: str, transaction: str | None = None, receipt: str | None = None) -> None:
        """Acknowledge a message by its `ack` header. Do nothing if its connection is lost: it will be redelivered.

        Raises:
            TransactionRolledBack: the connection broke after the begin of the transaction, or the message's delivery.
        """
        self._acknowledge("ack", id, transaction, receipt)

    def nack(self, id: str, transaction: str | None = None, receipt: str | None = None) -> None:
        """Reject a message by its `ack` header, with the conditions of `ack`."""
        self._acknowledge("nack", id, transaction, receipt)

    def _acknowledge(self, method: str, ack_id: str, transaction: str | None, receipt: str | None) -> None:
        generation, _, name = ack_id.partition(_GENERATION_SEPARATOR)
        broker = self._broker
        is_current = broker is not None and generation == str(broker.generation)
        if transaction is not None:
            if not is_current:
                raise TransactionRolledBack(
                    "the connection broke: the message that it acknowledges will be redelivered"
                )
            self._in_transaction(
                transaction, lambda connection: getattr(connection, method)(name, transaction, receipt)
            )
        elif broker is not None and is_current:
            with contextlib.suppress(*_CONNECTION_ERRORS):
                getattr(broker.connection, method)(name, None, receipt)

    def deliver(self, broker: _BrokerConnection, frame: Any) -> None:
        """Schedule the listeners' call for a message. Called in the receiver's thread."""
        self._calls.put(lambda: self._deliver(broker, frame))

    def _deliver(self, broker: _BrokerConnection, frame: Any) -> None:
        if broker is not self._broker:
            return  # the next broker redelivers it
        subscription = self._subscriptions.get(frame.headers.get("subscription", ""))
        name = frame.headers.pop("ack", None)
        is_auto = subscription is not None and subscription.ack == "auto"
        if name is not None and not is_auto:
            frame.headers["ack"] = f"{broker.generation}{_GENERATION_SEPARATOR}{name}"
        if self._record_delivery(frame.headers):
            frame.headers["redelivered"] = "true"  # after a take-over the broker may not know
        self._call("on_before_message", frame)
        succeeded = self._call("on_message", frame)
        if name is not None and is_auto:
            self._acknowledge(
                "ack" if succeeded else "nack", f"{broker.generation}{_GENERATION_SEPARATOR}{name}", None, None
            )

    def _record_delivery(self, headers: Mapping[str, str]) -> bool:
        """Record a delivery to the listeners; return True if it is a redelivery, of a topic to one subscription."""
        destination = headers.get("destination", "")
        key = headers.get("message-id", ""), destination, "/queue/" in destination or headers.get("subscription")
        if key in self._delivered_ids:
            return True
        self._delivered_ids[key] = None
        if len(self._delivered_ids) > _DELIVERED_IDS_MAX:
            del self._delivered_ids[next(iter(self._delivered_ids))]
        return False

    def notify(self, method: str, *arguments: object) -> None:
        """Schedule the listeners' call for another event. Called in any thread."""
        self._calls.put(lambda: self._call(method, *arguments))

    # ------------------------------------------------------------ transactions

    def begin(self, transaction: str | None = None, headers: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Begin a transaction, and return its name."""
        name = transaction or f"pybroker-{next(self._numbers)}"
        broker = self._send_until_written(lambda connection: connection.begin(name, dict(headers or {}), **more))
        self._transactions[name] = broker.generation
        return name

    def commit(self, transaction: str, headers: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Commit a transaction. It is on the broker's disk on return.

        Raises:
            TransactionRolledBack: the transaction had no effect. Repeat it.
            TransactionInDoubt: the whole transaction took effect, or nothing. Repeat it only if that is harmless.
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
        """Roll a transaction back."""
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
    """The listener that stomp.py calls in its receiver's thread."""

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
    """Close the socket of a connection of stomp.py in any state, and wait for its thread."""
    with contextlib.suppress(*_CONNECTION_ERRORS):
        connection.transport.disconnect_socket()
    thread = connection.transport.io_thread
    if thread is not None:
        thread.join(_DISCONNECT_SECONDS)


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _ignore_event(*_: object) -> None:
    """Do nothing: the default for methods that a listener does not have."""
