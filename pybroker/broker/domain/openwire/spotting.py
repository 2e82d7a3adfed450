"""Spotting a property by its name, in a fraction of a microsecond and without decoding.

Each message is checked for a name or two that hardly any has, so its bytes are not searched: where content and
properties are follows from their joint length, and their own lengths confirm it. If they do not, as in messages with
broker fields, all is searched.

```text
… | ? | i32 | content | ? | tail              no properties
… | ? | i32 | content | ? | i32 | properties | tail
```

Source: OpenWire v11, `Message` (drawn in `message`).
"""

from typing import Final

from pybroker.broker.domain.big_endian import BYTE_AND_INT, int_at
from pybroker.broker.domain.errors import TooManyValues
from pybroker.broker.domain.message import SIZE_OVERHEAD, Message
from pybroker.broker.domain.openwire.layout import BROKER_FIELDS
from pybroker.broker.domain.openwire.message import OpenWireMessage, decode
from pybroker.broker.domain.openwire.values import PROPERTY_VALUES_MAX, has_more_values

_TAIL_BYTES: Final = BROKER_FIELDS.size
"""Bytes behind the properties of a message whose broker fields are all null, as a client's are."""
_HEAD_BYTES: Final = BYTE_AND_INT.size
"""Head of a byte sequence, such as content and properties: its presence and its length."""
_LENGTH_BYTES: Final = _HEAD_BYTES - 1

_COPIED_BYTES_MAX: Final = 4 << 10
"""Above this size a copy takes as long as a method's arguments."""

PAYLOAD_SIZE_UNCHECKED: Final = SIZE_OVERHEAD + PROPERTY_VALUES_MAX
"""Messages of at most this size need no `check_properties`, because a value takes a byte or more."""


def has_between(data: bytes, name: bytes, start: int, end: int) -> bool:
    """Return True if `data[start:end]` contains a name."""
    if end - start > _COPIED_BYTES_MAX:
        return data.find(name, start, end) >= 0
    # `find` parses its arguments, and `in` takes the name for a number first: a copy and `partition` are faster.
    return len(data[start:end].partition(name)[1]) > 0


def may_have(message: Message, name: bytes) -> bool:
    """Return True if a message may have a property of that name, or one that begins with it.

    False is certain. True is so nearly always: the bytes may be in a property's value, or, rarely, in the content.
    """
    fields = message.decoded
    if fields is not None and isinstance(fields, OpenWireMessage):
        properties = fields.marshalled_properties
        return properties is not None and name in properties
    data = message.data
    length = message.payload_size - SIZE_OVERHEAD
    end = len(data) - _TAIL_BYTES
    properties_at = _properties_at(data, length, end)
    if properties_at == 0:
        return name in data
    return properties_at != end and has_between(data, name, properties_at, end)


def may_have_broker_fields_or(message: Message, name: bytes) -> bool:
    """Return True if a message may have a field that only brokers set, or a property of that name. False is certain."""
    data = message.data
    end = len(data) - _TAIL_BYTES
    properties_at = _properties_at(data, message.payload_size - SIZE_OVERHEAD, end)
    return properties_at == 0 or (properties_at != end and has_between(data, name, properties_at, end))


def check_properties(message: Message) -> None:
    """Check that the properties of a message that is sent have not too many values; they need not decode.

    Raises:
        TooManyValues: they have more than `PROPERTY_VALUES_MAX`.
        MalformedOpenWire: the message does not decode.
    """
    marshalled = marshalled_properties(message)
    if (
        marshalled is not None
        and len(marshalled) > PROPERTY_VALUES_MAX
        and has_more_values(marshalled, PROPERTY_VALUES_MAX)
    ):
        raise TooManyValues(
            f"{message.message_id} has more than {PROPERTY_VALUES_MAX} property values, with those in maps and lists"
        )


def marshalled_properties(message: Message) -> bytes | None:
    """Return the properties as they are marshalled; None if there are none.

    Raises:
        MalformedOpenWire: the message does not decode.
    """
    data, length = message.data, message.payload_size - SIZE_OVERHEAD
    end = len(data) - _TAIL_BYTES
    properties_at = _properties_at(data, length, end)
    if properties_at == 0:
        return decode(data).marshalled_properties
    return None if properties_at == end else data[properties_at:end]


def _properties_at(data: bytes, length: int, end: int) -> int:
    """Return the offset of a message's properties, their end if there are none, or 0 if they may be anywhere.

    Args:
        data: the message.
        length: of content and properties together.
        end: of the properties, or of the flag that says there are none, if the broker fields are all null.
    """
    content_at = end - 1 - length
    if length <= 0 or content_at < 2 * _HEAD_BYTES:
        return 0
    if _has_length(data, content_at, length):
        return end
    content_at -= _LENGTH_BYTES  # the properties have one too
    content_bytes = int_at(data, content_at - _LENGTH_BYTES)
    properties_at = content_at + content_bytes + _HEAD_BYTES
    is_found = 0 <= content_bytes < length and _has_length(data, properties_at, length - content_bytes)
    return properties_at if is_found and data[content_at - _HEAD_BYTES] else 0


def _has_length(data: bytes, at: int, length: int) -> bool:
    """Return True if the byte sequence from an offset on has a head with this length."""
    return data[at - _HEAD_BYTES] == 1 and int_at(data, at - _LENGTH_BYTES) == length
