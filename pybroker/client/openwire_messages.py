"""A message between OpenWire and the application: bodies, properties and headers, in both directions.

Bodies and properties of what is received are decoded when they are asked for: a damaged one is its reader's error, not
the connection's.

Source: OpenWire v12, `Message` and its types; `content` and `marshalledProperties`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.body import decode_text, encode_text, inflate, inflate_bytes_message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.values import decode_map, decode_stream, encode_map, encode_stream
from pybroker.client.errors import UnreadableMessage, UnsendableMessage
from pybroker.client.messages import RESENT, Body, Message, Properties

_RESENT: Final = RESENT.encode()
"""As it stands in the properties' bytes, which most readers never have decoded."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an acknowledgement names."""

    message_id: wire.OpenWireMessageId | None
    destination: Destination | None


def received(dispatch: wire.MessageDispatch, message: wire.ActiveMQMessage) -> Message:
    """Return the message that a dispatch brings.

    Raises:
        MalformedOpenWire: it has no destination.
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


def encode_body(body: Body) -> tuple[type[wire.ActiveMQMessage], bytes | None]:
    """Return a body's kind of message, and its content.

    Raises:
        UnsendableMessage: there is no such kind.
        UnencodableOpenWire: it holds what has no form.
    """
    match body:
        case None:
            return wire.ActiveMQMessage, None
        case str():
            return wire.ActiveMQTextMessage, encode_text(body)
        case bytes() | bytearray() | memoryview():
            return wire.ActiveMQBytesMessage, bytes(body)
        case Mapping():
            return wire.ActiveMQMapMessage, encode_map(body) if body else None
        case list() | tuple():
            return wire.ActiveMQStreamMessage, encode_stream(body)
        case _:
            raise UnsendableMessage(
                f"a body of type {type(body).__name__}: there are str, bytes, dict, list and None for none"
            )
