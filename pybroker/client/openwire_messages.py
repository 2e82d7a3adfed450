"""Conversion of messages between OpenWire and the application: bodies, properties and headers.

The body and properties of a received message are decoded at the first access. So damaged ones raise an error to the
application, and do not end the connection.

Source: OpenWire v12, `Message` and its types; `content` and `marshalledProperties`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import RESENT
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.body import decode_text, encode_text, inflate, inflate_bytes_message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.values import decode_map, decode_stream, encode_map, encode_stream
from pybroker.client.errors import UnreadableMessage, UnsendableMessage
from pybroker.client.messages import Body, Kind, Message, Properties

_RESENT: Final = RESENT.encode()
"""The property's name in the encoded properties, which are not decoded to find it."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The ids that an acknowledgement names."""

    message_id: wire.OpenWireMessageId | None
    destination: Destination | None


def received(dispatch: wire.MessageDispatch, message: wire.ActiveMQMessage) -> Message:
    """Return the message of a MessageDispatch.

    Raises:
        MalformedOpenWire: the message has no destination.
    """
    destination = message.destination or dispatch.destination
    if destination is None:
        raise MalformedOpenWire("a message without destination")
    return Message(
        id=message.message_id.jms_message_id if message.message_id is not None else "",
        destination=destination,
        read_body=_reader(_decode_body, message),
        read_properties=_reader(_decode_properties, message),
        redelivery_count=max(dispatch.redelivery_counter, int(_RESENT in (message.marshalled_properties or b""))),
        persistent=message.persistent,
        priority=message.priority,
        timestamp=message.timestamp,
        expiration=message.expiration,
        reply_to=message.reply_to,
        correlation_id=message.correlation_id,
        type=message.jms_type,
        group_id=message.group_id,
        group_sequence=message.group_sequence,
        kind=_KINDS.get(type(message)),
        source=dispatch.destination,
        receipt=Receipt(message.message_id, dispatch.destination),
    )


def _reader(decode: Callable[[wire.ActiveMQMessage], Any], message: wire.ActiveMQMessage) -> Callable[[], Any]:
    def read() -> Any:
        try:
            return decode(message)
        except MalformedOpenWire as error:
            raise UnreadableMessage(f"message {message.message_id}: {error}") from error

    return read


def _decode_body(message: wire.ActiveMQMessage) -> Body:
    content = message.content
    if isinstance(message, wire.ActiveMQBlobMessage):
        return {
            "url": message.remote_blob_url,
            "mime_type": message.mime_type,
            "deleted_by_broker": message.deleted_by_broker,
        }
    if content is None:
        return _EMPTY.get(type(message))
    if message.compressed and content:
        content = inflate_bytes_message(content) if isinstance(message, wire.ActiveMQBytesMessage) else inflate(content)
    match message:
        case wire.ActiveMQTextMessage():
            return decode_text(content)
        case wire.ActiveMQMapMessage():
            return decode_map(content)
        case wire.ActiveMQStreamMessage():
            return decode_stream(content)
        case _:
            return content  # of an ObjectMessage, Java's serialization


_EMPTY: Final[Mapping[type, Body]] = {
    wire.ActiveMQBytesMessage: b"",
    wire.ActiveMQMapMessage: {},
    wire.ActiveMQStreamMessage: [],
}


def _decode_properties(message: wire.ActiveMQMessage) -> Properties:
    return decode_map(message.marshalled_properties or b"")


_KINDS: Final[Mapping[type, Kind]] = {
    wire.ActiveMQMessage: Kind.MESSAGE,
    wire.ActiveMQTextMessage: Kind.TEXT,
    wire.ActiveMQBytesMessage: Kind.BYTES,
    wire.ActiveMQMapMessage: Kind.MAP,
    wire.ActiveMQStreamMessage: Kind.STREAM,
    wire.ActiveMQObjectMessage: Kind.OBJECT,
    wire.ActiveMQBlobMessage: Kind.BLOB,
}


def encode_body(body: Body, kind: Kind | None = None) -> tuple[Callable[..., wire.ActiveMQMessage], bytes | None]:
    """Return the message class for a body, and the encoded content.

    Args:
        body: the body; `messages` documents its types.
        kind: the JMS message type; None for the default of the body's Python type.

    Raises:
        UnsendableMessage: the body does not fit the message type.
        UnencodableOpenWire: a value in the body has no form in OpenWire.
    """
    match kind or _suggested(body), body:
        case Kind.MESSAGE, None:
            return wire.ActiveMQMessage, None
        case Kind.TEXT, None:
            return wire.ActiveMQTextMessage, None
        case Kind.TEXT, str():
            return wire.ActiveMQTextMessage, encode_text(body)
        case Kind.BYTES, bytes() | bytearray() | memoryview():
            return wire.ActiveMQBytesMessage, bytes(body)
        case Kind.OBJECT, None:
            return wire.ActiveMQObjectMessage, None
        case Kind.OBJECT, bytes() | bytearray() | memoryview():
            return wire.ActiveMQObjectMessage, bytes(body)
        case Kind.MAP, Mapping():
            return wire.ActiveMQMapMessage, encode_map(body) if body else None
        case Kind.STREAM, list() | tuple():
            return wire.ActiveMQStreamMessage, encode_stream(body)
        case Kind.BLOB, Mapping():
            return _blob(body), None
        case found, _:
            raise UnsendableMessage(f"a {found} message cannot have a body of type {type(body).__name__}")


def _suggested(body: Body) -> Kind:
    match body:
        case None:
            return Kind.MESSAGE
        case str():
            return Kind.TEXT
        case bytes() | bytearray() | memoryview():
            return Kind.BYTES
        case Mapping():
            return Kind.MAP
        case list() | tuple():
            return Kind.STREAM
        case _:
            raise UnsendableMessage(
                f"a body of type {type(body).__name__}: only str, bytes, dict, list and None are allowed"
            )


def _blob(body: Mapping[str, Any]) -> Callable[..., wire.ActiveMQMessage]:
    names = ("url", "mime_type", "deleted_by_broker")
    url, mime_type, deleted = (body.get(name) for name in names)
    fits = (isinstance(url, str | None), isinstance(mime_type, str | None), isinstance(deleted, bool | None))
    if not all(fits) or not body.keys() <= set(names):
        raise UnsendableMessage("the body of a blob message has url and mime_type, both text, and deleted_by_broker")
    return partial(wire.ActiveMQBlobMessage, remote_blob_url=url, mime_type=mime_type, deleted_by_broker=bool(deleted))
