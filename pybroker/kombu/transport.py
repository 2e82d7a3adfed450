"""`Transport`: the connection of one `kombu.Connection` to its brokers.

The client below finds the next broker by itself, restores the consumers there, and keeps acknowledgements valid. So
Kombu's own reconnecting, and Celery's, are needed only if the client gives up.

KombuSource: Kombu 5.7, `kombu.transport.virtual.base.Transport`.
"""

import atexit
import contextlib
import os
import ssl
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, cast

from kombu.exceptions import ChannelError
from kombu.transport import virtual

import pybroker
from pybroker.client import (
    BrokerMissing,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    FrameTooLarge,
    LoginRefused,
    Refused,
    UnreadableMessage,
    UnsendableMessage,
    UntrustedBroker,
    connect,
)
from pybroker.client.arguments import CLOSE_SECONDS
from pybroker.kombu import channel as channels
from pybroker.kombu.declaring import Declaring
from pybroker.kombu.environment import check_threads
from pybroker.kombu.options import OPTION_NAMES, parse_options
from pybroker.kombu.routing import Declarations
from pybroker.kombu.subscriptions import in_turn
from pybroker.kombu.url import DEFAULT_PORT, BrokerURL, masked, parse, url_of

BATCH_MAX: Final = 100
"""The most messages that one `drain_events` delivers: all that wait, up to this."""

EXIT_SECONDS: Final = 5.0
"""The time after which an exit ends no further connection's queues."""


class Transport(Declaring):
    """The transport `activemq`. The attributes without underscore are Kombu's."""

    Channel = channels.Channel
    can_parse_url = True
    default_port = DEFAULT_PORT
    driver_type = "activemq"
    driver_name = "pybroker"
    connection_errors: ClassVar[tuple[type[BaseException], ...]] = (ConnectionFailed, ConnectionClosed, OSError)
    recoverable_connection_errors: ClassVar[tuple[type[BaseException], ...]] = (
        BrokerMissing,
        ConnectionLost,
        ConnectionClosed,
        LoginRefused,
        UntrustedBroker,
        OSError,
    )
    """Celery waits longer between attempts after each of these; any other it repeats at once, with tracebacks."""
    channel_errors: ClassVar[tuple[type[BaseException], ...]] = (
        ChannelError,
        Refused,
        FrameTooLarge,
        UnsendableMessage,
        UnreadableMessage,
    )
    implements = virtual.Transport.implements.extend(
        asynchronous=True,
        exchange_type=frozenset(("direct", "topic", "fanout")),
        heartbeats=False,
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._loop: Any = None
        self._turn = 0
        self._finalizer: weakref.finalize[Any, Transport] | None = None

    # ------------------------------------------------------------ connecting

    def establish_connection(self) -> "Transport":
        """Connect to one of the brokers; return what Kombu takes for the connection.

        Raises:
            ConnectionFailed: no broker accepts the client.
            Timeout: none answered within the `connect_timeout`.
            UnusableURI: the URL or an option is wrong.
            NotImplementedError: gevent or eventlet have replaced the threads.
        """
        check_threads()
        self._collect(self)  # what a failed connection has left
        url = self._url()
        self.options = parse_options(self.client.transport_options, url.options)
        password: Any = url.password if url.password is not None else self.client.password
        self._broker = connect(
            url.uri,
            user=url.user or self.client.userid or None,
            password=_called(password),
            timeout=self.client.connect_timeout or None,
            ssl_context=ssl_context(self.client.ssl),
        )
        self._process = os.getpid()
        # Celery drops the connection of a thread's results, without closing it, when the thread has ended.
        self._finalizer = weakref.finalize(self, self._broker.begin_close)
        self._finalizer.atexit = False  # the client closes its connections then
        _connected.add(self)
        self.declarations = Declarations()
        self._broker.call_when_ended(self.wakeup.set)
        self._uri = url.uri
        return self

    def _url(self) -> BrokerURL:
        """Parse the URL: Kombu has its parts after a `switch`, and otherwise the whole."""
        client = self.client
        if client.alt:
            urls: Iterable[str] = client.alt
        elif client.hostname and ":" in client.hostname and "/" in client.hostname:
            urls = (client.hostname if not client.uri_prefix else f"{client.uri_prefix}+{client.hostname}",)
        else:
            urls = (url_of(client.hostname or "localhost", client.port, client.userid, None),)
        return parse(urls, own_options=OPTION_NAMES, ssl=bool(client.ssl))

    def create_channel(self, connection: "Transport") -> "channels.Channel":
        """Return a new channel."""
        channel = channels.Channel(self)
        self.channels.append(channel)
        return channel

    def verify_connection(self, connection: "Transport") -> bool:
        """Return True while the connection can be used, also while the client looks for the next broker."""
        return self._broker is not None and not self.is_inherited and self._broker.error is None

    def close_connection(self, connection: "Transport") -> None:
        """Close all channels and the connection."""
        try:
            for channel in list(self.channels):
                channel.close()
        finally:
            self._let_go(CLOSE_SECONDS)

    def _collect(self, connection: "Transport") -> None:
        """Let go of a connection without talking to the broker: it has failed, or belongs to the parent process."""
        for channel in list(self.channels):
            channel.closed = True
            self.close_channel(channel)
        self._let_go(0)

    def _let_go(self, seconds: float) -> None:
        broker, self._broker = self._broker, None
        if self._finalizer is not None:
            self._finalizer.detach()
        _connected.discard(self)
        self._leave_loop()
        self.forget_destinations()
        if broker is not None and not self.is_inherited:
            broker.close(seconds)

    def end_queues(self) -> None:
        """Close the channels that consume a queue which ends with its last consumer, unless there is no broker now."""
        if self.broker.broker is None:
            return
        for channel in list(self.channels):
            if any(self.is_auto_deleted(subscription.queue) for subscription in channel.subscriptions()):
                channel.close()

    # ------------------------------------------------------------ events

    def drain_events(self, connection: "Transport", timeout: float | None = None) -> None:
        """Deliver messages that wait; if there are none, wait for the next.

        Of a consumer without acknowledgements only one, because Kombu counts: remote control, which expects five
        replies, calls this five times, and would wait for its time-out if one call had delivered two of them.

        Raises:
            TimeoutError: none arrived in time.
            ConnectionFailed, ConnectionClosed: none can arrive any more.
        """
        self._drain(timeout, is_counted=True)

    def _drain(self, timeout: float | None, *, is_counted: bool) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            broker, wakeup = self.broker, self.wakeup
            wakeup.clear()
            if self._deliver_waiting(is_counted=is_counted):
                return
            error = broker.error
            if error is not None:
                raise error.with_traceback(None)
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not wakeup.wait(left):
                raise TimeoutError("no message in time")

    def _deliver_waiting(self, *, is_counted: bool) -> int:
        count = 0
        self._turn += 1
        wakeup = self.wakeup
        try:
            for channel in in_turn(self.channels, self._turn):
                if count < BATCH_MAX and not channel.closed:
                    count += channel.deliver_waiting(BATCH_MAX - count, is_counted=is_counted)
        except BaseException:  # of a callback
            wakeup.set()  # an event loop delivers the others afterwards
            raise
        if count >= BATCH_MAX or (count and is_counted):
            wakeup.set()  # there may be more
        return count

    def register_with_event_loop(self, connection: "Transport", loop: Any) -> None:
        """Deliver messages in Celery's event loop."""
        self._loop = loop
        loop.add_reader(self.wakeup.fileno(), self.on_readable, connection, loop)
        self.wakeup.set()

    def unregister_from_event_loop(self, connection: "Transport", loop: Any) -> None:
        """Deliver no further messages in the event loop."""
        self._leave_loop()

    def on_readable(self, connection: "Transport", loop: Any) -> None:
        """Deliver the messages that wait, in the event loop."""
        with contextlib.suppress(TimeoutError):
            self._drain(0, is_counted=False)

    def _leave_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and not self.is_inherited:  # a child shares the loop's epoll with its parent
            loop.remove_reader(self.wakeup.fileno())

    # ------------------------------------------------------------ texts

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the URL for logs, by default without its password."""
        text = ";".join(self.client.alt) if self.client.alt else uri or "localhost"
        if self.client.uri_prefix and not self.client.alt:
            text = f"{self.client.uri_prefix}+{text}"
        return text if include_password else masked(text, mask)

    def driver_version(self) -> str:
        """Return the version of pybroker."""
        return pybroker.__version__

    @property
    def default_connection_params(self) -> Mapping[str, Any]:
        """The parameters that a URL need not have."""
        return {"port": DEFAULT_PORT, "hostname": "localhost"}


_connected: Final["weakref.WeakSet[Transport]"] = weakref.WeakSet()
"""The transports of this process that have a connection."""


@atexit.register
def _end_queues_at_exit() -> None:
    """Delete the queues that end with their consumers, at the exit of the interpreter.

    A program that has waited for results closes nothing: with AMQP its queue of results ends with the connection.
    """
    deadline = time.monotonic() + EXIT_SECONDS
    for transport in list(_connected):
        if transport.is_inherited:
            continue
        if time.monotonic() > deadline:
            return  # the broker removes the others when they are empty and unused
        transport.end_queues()


def _called(password: Any) -> Any:
    """Return a password; Kombu may have a function that returns it."""
    return password() if callable(password) else password


def ssl_context(setting: Any) -> ssl.SSLContext | None:
    """Return the TLS context of Kombu's argument `ssl`: a mapping with `ca_certs`, `certfile`, `keyfile`, `cert_reqs`.

    Raises:
        OSError: a file cannot be read.
    """
    if isinstance(setting, ssl.SSLContext):
        return setting
    if not isinstance(setting, Mapping):
        return None
    values = cast("Mapping[str, Any]", setting)
    context = ssl.create_default_context(cafile=values.get("ca_certs"))
    if values.get("certfile"):
        context.load_cert_chain(values["certfile"], values.get("keyfile"))
    if values.get("cert_reqs") == ssl.CERT_NONE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
