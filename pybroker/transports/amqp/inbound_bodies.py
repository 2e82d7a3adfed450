"""Bodies of AMQP messages as bodies of JMS messages.

Source: ActiveMQ 5.17, AMQP transport:

```text
no body      Bytes, Object, Text or a plain message, by the content type
data         Object or Text by the content type, otherwise Bytes
sequence     Stream
amqp-value   null, string: Text      binary: Bytes or Object      map: Map      list: Stream
```

A map or list with values that JMS has no type for, and any other value, has no such form.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.sections import AmqpBodyKind, AmqpMessage
from pybroker.broker.domain.amqp.values import AmqpValue, Char, Short
from pybroker.broker.domain.openwire.body import encode_text, encode_text_utf8
from pybroker.broker.domain.openwire.message import MessageType
from pybroker.broker.domain.openwire.values import Value, encode_map, encode_stream
from pybroker.transports.amqp import names
from pybroker.transports.amqp.content_types import Textuality, textuality
from pybroker.transports.amqp.names import OriginalEncoding
from pybroker.transports.amqp.property_values import JMS_TYPES, checked_char

_NOT_IMPLEMENTED: Final = "amqp:not-implemented"


class JmsBody(NamedTuple):
    """The body of a JMS message.

    Attributes:
        type: the type of the message.
        content: the body as OpenWire has it; None for none.
        encoding: what it was in AMQP.
    """

    type: MessageType
    content: bytes | None
    encoding: Short


def jms_body(message: AmqpMessage) -> JmsBody:
    """Return the body of a message as JMS has it.

    Raises:
        AmqpError: JMS has no form for it.
        UnencodableOpenWire: a name in a map is too long.
    """
    properties = message.properties
    content_type = None if properties is None else properties.content_type
    match message.body_kind:
        case AmqpBodyKind.VALUE:
            return _value(message.body, content_type)
        case AmqpBodyKind.DATA:
            sections = cast("list[bytes]", message.body)
            return _data(sections[0] if len(sections) == 1 else b"".join(sections), content_type)
        case AmqpBodyKind.SEQUENCE:
            lists = cast("list[list[AmqpValue]]", message.body)
            return _stream([item for each in lists for item in each], OriginalEncoding.SEQUENCE)
        case AmqpBodyKind.NONE:
            return JmsBody(_type_without_body(content_type), None, OriginalEncoding.NONE)


def _type_without_body(content_type: str | None) -> MessageType:
    if content_type is None or content_type == names.OCTET_STREAM:
        return MessageType.BYTES
    if content_type == names.JAVA_OBJECT:
        return MessageType.OBJECT
    return MessageType.MESSAGE if textuality(content_type) is Textuality.NONE else MessageType.TEXT


def _data(data: bytes, content_type: str | None) -> JmsBody:
    if content_type is not None:
        if content_type == names.JAVA_OBJECT:
            return JmsBody(MessageType.OBJECT, data, OriginalEncoding.DATA)
        if textuality(content_type) is Textuality.UTF_8:
            try:
                return JmsBody(MessageType.TEXT, encode_text_utf8(data), OriginalEncoding.DATA)
            except UnicodeDecodeError:
                pass  # it is no text, whatever its type says
    return JmsBody(MessageType.BYTES, data, OriginalEncoding.DATA)


def _value(value: AmqpValue, content_type: str | None) -> JmsBody:
    kind = type(value)
    if kind is str:
        return JmsBody(MessageType.TEXT, encode_text(cast("str", value)), OriginalEncoding.VALUE_STRING)
    if value is None:
        return JmsBody(MessageType.TEXT, None, OriginalEncoding.VALUE_NULL)
    if isinstance(value, bytes):
        jms_type = MessageType.OBJECT if content_type == names.JAVA_OBJECT else MessageType.BYTES
        return JmsBody(jms_type, value, OriginalEncoding.VALUE_BINARY)
    if kind is dict:
        entries = _checked_map(cast("dict[AmqpValue, AmqpValue]", value))
        return JmsBody(MessageType.MAP, encode_map(entries) if entries else None, OriginalEncoding.VALUE_MAP)
    if kind is list:
        return _stream(cast("list[AmqpValue]", value), OriginalEncoding.VALUE_LIST)
    raise AmqpError(f"a body that is a {kind.__name__}", _NOT_IMPLEMENTED)


def _stream(items: list[AmqpValue], encoding: Short) -> JmsBody:
    content = encode_stream([_checked(item) for item in items])
    return JmsBody(MessageType.STREAM, content or None, encoding)


def _checked_map(entries: Mapping[AmqpValue, AmqpValue]) -> dict[str, Value]:
    made: dict[str, Value] = {}
    for key, value in entries.items():
        if type(key) is not str or not key:
            raise AmqpError("a map with a key that is no string, or empty", _NOT_IMPLEMENTED)
        if isinstance(value, dict):
            made[key] = _checked_map(value)
        elif type(value) is bytes:
            made[key] = value
        else:
            made[key] = _checked(value)
    return made


def _checked(value: AmqpValue) -> Value:
    if type(value) in JMS_TYPES:
        return cast("Value", value)
    if isinstance(value, Char):
        return checked_char(value)
    raise AmqpError(f"a body with a {type(value).__name__} in it", _NOT_IMPLEMENTED)
