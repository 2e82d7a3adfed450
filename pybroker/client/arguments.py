"""The arguments of the API: their types, defaults and checks, and the conversation made from an address."""

import os
import random
import socket
import time
from collections.abc import Mapping
from itertools import count
from typing import Any, Final, TypedDict

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.destination import parse as parse_destination
from pybroker.broker.domain.errors import InvalidDestination
from pybroker.broker.domain.openwire.marshal.framing import FRAME_BYTES_MAX
from pybroker.broker.domain.openwire.values import Value
from pybroker.client.conversation import Conversation
from pybroker.client.errors import DestinationRefused, UnsendableMessage
from pybroker.client.messages import Kind
from pybroker.client.openwire import OpenWireConversation
from pybroker.client.stomp import StompConversation
from pybroker.client.uri import Address, WireProtocol

CLOSE_SECONDS: Final = 5.0
"""The default time that `close` waits for the broker's answer."""

LIST_SECONDS: Final = 30.0
"""The default time that a broker has to list its destinations."""

_connection_numbers = count(1)
_process_ids: dict[int, str] = {}
"""The random part of names, by the process id: a forked child has its own, as its process id may be used again."""


class MessageHeaders(TypedDict, total=False):
    """The header fields and properties of a message to send.

    Attributes:
        properties: the properties by name. Values are bool, int, float, str, bytes, None, and dicts and lists of them.
        persistent: the message survives a crash of the broker; `send` waits until it is on disk. True by default.
        priority: 0 to 9, 4 by default.
        ttl: the seconds until the message expires.
        expiration: the time when the message expires, in milliseconds since the epoch.
        reply_to: the destination for a reply.
        correlation_id: the id that relates a reply to its request (`JMSCorrelationID`).
        type: the application's type (`JMSType`).
        group_id: the message group (`JMSXGroupID`).
        group_sequence: the position in the group (`JMSXGroupSeq`).
        kind: the JMS message type, such as `"object"`, where the body's Python type fits two of them; see `Kind`.
        timestamp: the time of the send, in milliseconds since the epoch; by default now. A forwarded message may keep
            its own.
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
    """The options of a consumer.

    Attributes:
        ack: `"auto"` (default), `"client"`, `"individual"` or `"transacted"`; see `AckMode`.
        prefetch: the most messages that the broker sends without acknowledgement: by default 1000, and 100 for a
            durable subscription. With 0 each `receive` pulls one message (OpenWire only).
        selector: an SQL-92 condition on header fields and properties, as in JMS.
        durable: the name of a durable subscription, which requires a `client_id` of the connection.
        no_local: excludes messages that this connection sent.
        exclusive: makes this the exclusive consumer of the queue.
        priority: consumers of higher priority get messages first.
    """

    ack: str
    prefetch: int
    selector: str | None
    durable: str | None
    no_local: bool
    exclusive: bool
    priority: int


def new_connection_name() -> str:
    """Return a globally unique name, from which the ids of a connection are made."""
    process = os.getpid()
    own = f"{int(time.time() * 1000)}-{random.SystemRandom().randrange(1 << 32)}"
    return f"ID:{socket.gethostname()}-{process}-{_process_ids.setdefault(process, own)}-{next(_connection_numbers)}"


def make_conversation(address: Address) -> Conversation:
    """Return a conversation for a broker, with the options of its address."""
    options = address.options
    inactivity_ms = round((options.inactivity_seconds or 0) * 1000)
    initial_delay_ms = round(options.inactivity_initial_seconds * 1000)
    frame_bytes_max = min(options.frame_bytes_max or FRAME_BYTES_MAX, FRAME_BYTES_MAX)
    if address.scheme.protocol is WireProtocol.STOMP:
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
    """Return the destination of a name: `queue://ORDERS`, `topic://NEWS`, or a bare name for a queue.

    Raises:
        DestinationRefused: the name is empty.
    """
    if isinstance(name, Destination):
        return name
    try:
        return parse_destination(name)
    except InvalidDestination as error:
        raise DestinationRefused(str(error)) from error


def one_destination(name: str | Destination) -> Destination:
    """Return the destination of a name, as `destination_of` does, if it is a single one.

    Raises:
        DestinationRefused: the name is empty, or lists several destinations.
    """
    destination = destination_of(name)
    if destination.is_composite:  # wildcards are part of the name of a queue of virtual topics
        raise DestinationRefused(f"the name lists several destinations: {destination}")
    return destination


def check_prefetch(prefetch: int) -> None:
    """Check the prefetch of a consumer.

    Raises:
        ValueError: it is negative.
    """
    if prefetch < 0:
        raise ValueError(f"prefetch: 0 or more, not {prefetch}")


def header_values(headers: MessageHeaders) -> dict[str, Any]:
    """Return headers as attributes of `Outgoing`."""
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
