"""Conversion of messages between STOMP and the application: headers and bodies. `transports` has the broker's side.

STOMP has two types of body, and its properties are text. So numbers and truth values arrive as text, and a message
without a body as an empty text. Maps, lists and objects have no form: they cannot be sent, and arrive empty.

```text
message                     SEND                                        MESSAGE
str                         no content-length; with a NUL in it         no content-length; otherwise bytes
                            amq-msg-type:text and content-length
bytes                       content-length                              content-length
queue, topic                /queue/N  /topic/N                          the same
temporary, our own          /temp-queue/N                               the same
temporary, another's        /remote-temp-queue/ID…                      the same
sent again                  JMS_pybroker_resent:true                    counts as redelivered
```

STOMP messages have no id of the producer's, so a broker cannot recognise a duplicate. A message that is sent again
after a reconnect has a header that marks it, so that its consumer knows that it may be a duplicate.

Source: ActiveMQ 5.17's STOMP transport.
"""

from collections.abc import Mapping
from typing import Final

from pybroker.broker.domain.destination import Destination, DestinationType, parts, queue
from pybroker.broker.domain.message import PRIORITY_DEFAULT, RESENT
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, decode_mutf8
from pybroker.broker.domain.openwire.values import Value
from pybroker.broker.domain.stomp.frames import Frame
from pybroker.client.errors import ProtocolViolation, UnreadableMessage, UnsendableMessage
from pybroker.client.messages import Body, Kind, Message, Outgoing, Properties

_PREFIXES: Final[Mapping[str, DestinationType]] = {
    "/queue/": DestinationType.QUEUE,
    "/topic/": DestinationType.TOPIC,
    "/temp-queue/": DestinationType.TEMP_QUEUE,
    "/temp-topic/": DestinationType.TEMP_TOPIC,
    "/remote-temp-queue/": DestinationType.TEMP_QUEUE,
    "/remote-temp-topic/": DestinationType.TEMP_TOPIC,
}
_OWN: Final = {DestinationType.TEMP_QUEUE: "/temp-queue/", DestinationType.TEMP_TOPIC: "/temp-topic/"}
_OTHERS: Final = {
    DestinationType.QUEUE: "/queue/",
    DestinationType.TOPIC: "/topic/",
    DestinationType.TEMP_QUEUE: "/remote-temp-queue/",
    DestinationType.TEMP_TOPIC: "/remote-temp-topic/",
}

# ---------------------------------------------------------------- destinations


def write_destination(destination: Destination, connection_id: str) -> str:
    """Return the name of a destination in a header.

    Args:
        destination: the destination; each part of a composite is written in full.
        connection_id: the id of this connection, the prefix of its temporary destinations' names.
    """
    return ",".join(_written(part, connection_id) for part in parts(destination))


def _written(destination: Destination, connection_id: str) -> str:
    is_own = destination.is_temporary and destination.name.startswith(f"{connection_id}:")
    return (_OWN if is_own else _OTHERS)[destination.type] + destination.name


def read_destination(text: str) -> Destination:
    """Return the destination that a header of MESSAGE names; a name without a known prefix is a queue."""
    for prefix, kind in _PREFIXES.items():
        if text.startswith(prefix):
            return Destination(kind, text[len(prefix) :])
    return queue(text)


# ---------------------------------------------------------------- SEND

_RESERVED_HEADERS: Final = frozenset(
    (
        *("destination", "receipt", "transaction", "content-length", "message-id", "redelivered", "subscription"),
        *("persistent", "priority", "expires", "timestamp", "correlation-id", "reply-to", "type", "ack"),
        *("JMSXGroupID", "JMSXGroupSeq", "JMSXUserID", "JMSXDeliveryCount", "JMSRedelivered", "JMSCorrelationID"),
        *("JMSDeliveryMode", "JMSExpiration", "JMSPriority", "JMSReplyTo", "JMSTimestamp", "JMSType"),
        *("amq-msg-type", "transformation", "transformation-error", "original-destination"),
    )
)
"""Headers with a meaning for the broker: a property with such a name would change the message, or be lost."""

_UNWRITABLE: Final = frozenset(":\r\n\0\\")
"""The characters that a header's name cannot have, because STOMP does not escape names."""


def send_headers(message: Outgoing, connection_id: str, *, again: bool) -> dict[str, str]:
    """Return the headers of a SEND.

    Args:
        message: the message.
        connection_id: the id of this connection.
        again: the message may have been sent before.

    Raises:
        UnsendableMessage: a property, or another header, has no form in STOMP.
    """
    headers = {"destination": write_destination(message.destination, connection_id)}
    if message.persistent:
        headers["persistent"] = "true"
    if message.priority != PRIORITY_DEFAULT:
        headers["priority"] = str(message.priority)
    if message.timestamp:
        headers["timestamp"] = str(message.timestamp)
    if message.expiration:
        headers["expires"] = str(message.expiration)
    if message.reply_to is not None:
        headers["reply-to"] = write_destination(message.reply_to, connection_id)
    if message.correlation_id is not None:
        headers["correlation-id"] = message.correlation_id
    if message.type is not None:
        headers["type"] = message.type
    if message.group_id is not None:
        headers["JMSXGroupID"] = message.group_id
        headers["JMSXGroupSeq"] = str(message.group_sequence)
    if message.transaction is not None:
        headers["transaction"] = str(message.transaction)
    for name, value in message.properties.items():
        headers[_property_name(name)] = _property_text(name, value)
    if again:
        headers[RESENT] = "true"
    if any("\0" in value for value in headers.values()):
        raise UnsendableMessage("a header with a NUL, for which STOMP has no form")
    return headers


def send_body(body: Body, headers: dict[str, str], kind: Kind | None = None) -> bytes:
    """Return the body of a SEND, and add the headers that describe it.

    Raises:
        UnsendableMessage: the body is neither text nor bytes.
    """
    if kind not in _SENT:
        raise UnsendableMessage(f"a message of type {kind}: STOMP has text and bytes only; use OpenWire")
    match body:
        case None:
            return b""
        case str():
            return _text_body(body, headers)
        case bytes() | bytearray() | memoryview():
            content = bytes(body)
            headers["content-length"] = str(len(content))
            return content
        case _:
            raise UnsendableMessage(
                f"a body of type {type(body).__name__}: STOMP has text and bytes only; send JSON, or use OpenWire"
            )


_SENT: Final = (None, Kind.TEXT, Kind.BYTES, Kind.MESSAGE)


def _text_body(text: str, headers: dict[str, str]) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise UnsendableMessage(
            f"a text with half a surrogate pair at {error.start}, which UTF-8 cannot have"
        ) from error
    if b"\0" in content:
        headers["amq-msg-type"] = "text"
        headers["content-length"] = str(len(content))
    return content


def _property_name(name: str) -> str:
    if name in _RESERVED_HEADERS:
        raise UnsendableMessage(f"a property called {name}: STOMP reserves that header, choose another name")
    if not name or not _UNWRITABLE.isdisjoint(name):
        raise UnsendableMessage(f"a property called {name!r}: STOMP cannot write that name")
    return name


def _property_text(name: str, value: Value) -> str:
    match value:
        case str():
            return str(value)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise UnsendableMessage(f"property {name}: STOMP has text only, {type(value).__name__} has no form in it")


# ---------------------------------------------------------------- MESSAGE

_STANDARD: Final = frozenset(
    (
        *("subscription", "destination", "message-id", "ack", "expires", "priority", "timestamp", "correlation-id"),
        *("reply-to", "type", "redelivered", "persistent", "content-length", "JMSXGroupID", "JMSXGroupSeq"),
    )
)
"""The headers that are header fields of a message; all others are its properties."""

_LONG: Final = (-(1 << 63), (1 << 63) - 1)


def read_message(frame: Frame) -> Message:
    """Return the message of a MESSAGE frame.

    Raises:
        ProtocolViolation: a required header is missing, or a number is not valid.
    """
    headers, body = frame.headers, frame.body
    if "destination" not in headers or "ack" not in headers:
        raise ProtocolViolation("the broker sends a message without destination or ack header")
    reply_to = headers.get("reply-to")
    return Message(
        id=headers.get("message-id", ""),
        destination=read_destination(headers["destination"]),
        read_body=lambda: _read_body(headers, body),
        read_properties=lambda: _read_properties(headers),
        redelivery_count=int(headers.get("redelivered") == "true" or RESENT in headers),
        persistent=headers.get("persistent") == "true",
        priority=_number(headers, "priority", PRIORITY_DEFAULT),
        timestamp=_number(headers, "timestamp"),
        expiration=_number(headers, "expires"),
        reply_to=None if reply_to is None else read_destination(reply_to),
        correlation_id=headers.get("correlation-id"),
        type=headers.get("type"),
        group_id=headers.get("JMSXGroupID"),
        group_sequence=_number(headers, "JMSXGroupSeq"),
        kind=_kind(headers, body),
        receipt=headers["ack"],
    )


def _kind(headers: Mapping[str, str], body: bytes) -> Kind | None:
    """Return the JMS message type; None for an empty body without a header that names the type."""
    if headers.get("amq-msg-type") == "text":
        return Kind.TEXT
    if "content-length" in headers:
        return Kind.BYTES
    return Kind.TEXT if body else None


def _read_body(headers: Mapping[str, str], body: bytes) -> Body:
    """Return bytes if there is a content-length, otherwise text, which ActiveMQ encodes in Java's modified UTF-8."""
    if "content-length" in headers and headers.get("amq-msg-type") != "text":
        return body
    try:
        return decode_mutf8(body)
    except MalformedOpenWire as error:
        raise UnreadableMessage(f"message {headers.get('message-id')}: {error}") from error


def _read_properties(headers: Mapping[str, str]) -> Properties:
    return {name: value for name, value in headers.items() if name not in _STANDARD}


def _number(headers: Mapping[str, str], name: str, default: int = 0) -> int:
    text = headers.get(name)
    if text is None:
        return default
    unsigned = text.removeprefix("-")
    if not (unsigned.isascii() and unsigned.isdigit() and len(unsigned) <= 19 and _LONG[0] <= int(text) <= _LONG[1]):
        raise ProtocolViolation(f"the broker sends a message whose {name} is not a number")
    return int(text)
