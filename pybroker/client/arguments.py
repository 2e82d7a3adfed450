"""What the two APIs take: types, defaults and checks of their arguments, and a connection made of them."""

import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, TypedDict, Unpack

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.destination import parse as parse_destination
from pybroker.broker.domain.errors import InvalidDestination
from pybroker.broker.domain.openwire.marshal.framing import FRAME_BYTES_MAX
from pybroker.broker.domain.openwire.values import Value
from pybroker.client.consumers import ConsumerState, Redelivery
from pybroker.client.conversation import AckMode, Conversation, Login
from pybroker.client.errors import DestinationRefused, UnsendableMessage
from pybroker.client.link import Link
from pybroker.client.messages import Kind
from pybroker.client.openwire import OpenWireConversation
from pybroker.client.pending import PendingResult
from pybroker.client.state import ClientState
from pybroker.client.stomp import StompConversation
from pybroker.client.uri import Address, BrokerURI, Protocol

PREFETCH: Final = 1000
PREFETCH_DURABLE: Final = 100
PREFETCH_BROWSER: Final = 500
"""ActiveMQ's defaults for queues, durable subscriptions and browsers; its 32767 for topics is more than Python wants to
hold."""

CLOSE_SECONDS: Final = 5.0
"""How long `close` waits for the broker to answer, unless told otherwise."""

_connection_numbers = count(1)
_PROCESS_ID: Final = f"{int(time.time() * 1000)}-{random.SystemRandom().randrange(1 << 32)}"


class MessageHeaders(TypedDict, total=False):
    """What can be said about a message besides its body.

    Attributes:
        properties: by name: bool, int, float, str, bytes, None, and dicts and lists of them.
        persistent: whether it survives a crash of the broker; then `send` waits until it is safe. True by default.
        priority: 0 to 9, 4 by default.
        ttl: seconds until it is dead.
        expiration: the same as a time, in milliseconds since the epoch.
        reply_to: where an answer shall go.
        correlation_id: what it answers, or what the answer shall say.
        type: the application's type (`JMSType`).
        group_id: message group (`JMSXGroupID`).
        group_sequence: its place in the group (`JMSXGroupSeq`).
        kind: JMS's type of message, such as `"object"`, where the body's Python type fits two of them; see `Kind`.
        timestamp: when it was sent, milliseconds since the epoch; now, unless it is an older message that is sent on.
    """

    properties: Mapping[str, Value]
    persistent: bool
    priority: int
    ttl: float
    expiration: int
    reply_to: str | Destination
    correlation_id: str
    type: str
    group_id: str
    group_sequence: int
    kind: str
    timestamp: int


class SubscriptionOptions(TypedDict, total=False):
    """What can be said about a consumer besides its destination.

    Attributes:
        ack: `"auto"` (default), `"client"`, `"individual"` or `"transacted"`; see `AckMode`.
        prefetch: messages that may be under way or unacknowledged: 1000, of a durable subscription 100. With 0 the
            broker sends none ahead: `receive` asks for each (OpenWire).
        selector: which messages, in SQL's terms.
        durable: the name of a durable subscription; the connection needs a `client_id` for that.
        no_local: none that this connection has sent.
        exclusive: no other consumer of the queue beside it.
        priority: consumers of higher priority get messages first.
    """

    ack: str
    prefetch: int
    selector: str | None
    durable: str | None
    no_local: bool
    exclusive: bool
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The arguments of `connect`, besides the URI.

    Attributes:
        user: None for anonymous.
        password: None for none.
        client_id: the connection's name, by which durable subscriptions are known; made up if it is None.
        ssl_context: for `ssl:` and `stomp+ssl:`; by default the system's authorities are trusted.
        redelivery: how messages of a transaction that was rolled back come again.
        on_interrupted: called when the connection is lost, with why.
        on_resumed: called when everything is restored on a broker, with its address.
    """

    user: str | None = None
    password: str | None = None
    client_id: str | None = None
    ssl_context: ssl.SSLContext | None = None
    redelivery: Redelivery | None = None
    on_interrupted: Callable[[Exception], object] | None = None
    on_resumed: Callable[[str], object] | None = None


def make_link(uri: BrokerURI, settings: Settings) -> Link:
    """Return a connection that is not yet connected."""
    name = f"ID:{socket.gethostname()}-{os.getpid()}-{_PROCESS_ID}-{next(_connection_numbers)}"
    failover = uri.failover
    state = ClientState(
        Login(
            connection_id=f"{name}:1",
            client_id=settings.client_id or f"{name}:0",
            user=settings.user,
            password=settings.password,
        ),
        clock=time.monotonic,
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        redelivery=settings.redelivery,
        tracked_bytes_max=failover.max_cache_bytes if failover is not None and failover.track_messages else 0,
        restore_transactions=failover is None or failover.track_transaction_producers,
    )
    return Link(
        uri,
        state,
        make=make_conversation,
        ssl_context=settings.ssl_context,
        on_interrupted=settings.on_interrupted,
        on_resumed=settings.on_resumed,
    )


def make_conversation(address: Address) -> Conversation:
    """Return a conversation with a broker, as its options want it."""
    options = address.options
    inactivity_ms = round((options.inactivity_seconds or 0) * 1000)
    initial_delay_ms = round(options.inactivity_initial_seconds * 1000)
    frame_bytes_max = min(options.frame_bytes_max or FRAME_BYTES_MAX, FRAME_BYTES_MAX)
    if address.scheme.protocol is Protocol.STOMP:
        return StompConversation(
            host=address.host,
            inactivity_ms=inactivity_ms,
            initial_delay_ms=initial_delay_ms,
            frame_bytes_max=frame_bytes_max,
        )
    return OpenWireConversation(
        host=address.host,
        inactivity_ms=inactivity_ms,
        initial_delay_ms=initial_delay_ms,
        frame_bytes_max=frame_bytes_max,
    )


def destination_of(name: str | Destination) -> Destination:
    """Return the destination that is meant: `queue://ORDERS`, `topic://NEWS`, or a bare name for a queue.

    Raises:
        DestinationRefused: the name is empty.
    """
    if isinstance(name, Destination):
        return name
    try:
        return parse_destination(name)
    except InvalidDestination as error:
        raise DestinationRefused(str(error)) from error


def header_values(headers: MessageHeaders) -> dict[str, Any]:
    """Return headers as `Outgoing` has them."""
    values: dict[str, Any] = dict(headers)
    if isinstance(values.get("reply_to"), str):
        values["reply_to"] = destination_of(values["reply_to"])
    if "kind" in values:
        values["kind"] = _kind(values["kind"])
    return values


def _kind(name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError as error:
        raise UnsendableMessage(f"kind: one of {', '.join(Kind)}, not {name!r}") from error


def subscribe(
    state: ClientState, destination: str | Destination, **subscription: Unpack[SubscriptionOptions]
) -> tuple[ConsumerState, PendingResult[None]]:
    """Begin to consume, with the defaults of both APIs.

    Raises:
        ValueError: there is no such mode of acknowledgement, or the prefetch is negative.
    """
    options: dict[str, Any] = dict(subscription)
    ack = AckMode(options.pop("ack", "auto"))
    prefetch = options.pop("prefetch", PREFETCH_DURABLE if options.get("durable") else PREFETCH)
    if prefetch < 0:
        raise ValueError(f"prefetch: 0 or more, not {prefetch}")
    return state.subscribe(destination_of(destination), ack=ack, prefetch=prefetch, **options)


def browse(
    state: ClientState, queue: str | Destination, selector: str | None
) -> tuple[ConsumerState, PendingResult[None]]:
    """Begin to look at what a queue holds.

    Raises:
        DestinationRefused: it is no queue.
    """
    destination = destination_of(queue)
    if not destination.is_queue:
        raise DestinationRefused(f"only queues can be browsed, and this is none: {destination}")
    return state.browse(destination, prefetch=PREFETCH_BROWSER, selector=selector)


def temporary_kind(*, topic: bool) -> DestinationType:
    """Return the kind of a temporary destination."""
    return DestinationType.TEMP_TOPIC if topic else DestinationType.TEMP_QUEUE
