"""The user on a message, `JMSXUserID`: written by the broker, or removed where a client has written it.

All other bytes are kept when a user is written:

```text
data type … message id | … content, properties … arrival | user id | received by bridge …
                       kept                              | replaced | kept
```

A client can also set a property of that name. ActiveMQ's clients show it where the field is null.

Source: OpenWire v11, `Message`; ActiveMQ's `populateJMSXUserID` (security.md, section 6).
"""

from dataclasses import replace
from typing import Final

from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.heads import place
from pybroker.broker.domain.openwire.layout import MESSAGE
from pybroker.broker.domain.openwire.loose import (
    NULL,
    MalformedOpenWire,
    Reader,
    UnencodableOpenWire,
    byte_sequence,
    string,
)
from pybroker.broker.domain.openwire.shapes import skip_fields
from pybroker.broker.domain.openwire.spotting import may_have_broker_fields_or
from pybroker.broker.domain.openwire.values import DECODED_VALUES_MAX, decode_map, encode_map

USER_PROPERTY: Final = b"JMSXUserID"
"""The name of the property."""

_NAME: Final = USER_PROPERTY.decode()
_BETWEEN_ID_AND_USER: Final = MESSAGE.shape("original_transaction_id", "arrival")
_BEFORE_PROPERTIES: Final = MESSAGE.shape("original_transaction_id", "content")
_BETWEEN_PROPERTIES_AND_USER: Final = MESSAGE.shape("data_structure", "arrival")


def with_user(message: Message, user: str) -> Message:
    """Return a message with that user in place of what its client has put there.

    Raises:
        MalformedOpenWire: it does not decode so far.
    """
    data = message.data
    _, end = place(data, "message_id")
    reader = Reader(data, end)
    skip_fields(reader, _BETWEEN_ID_AND_USER)
    begin = reader.offset
    reader.string()
    return replace(message, data=b"".join((data[:begin], string(user), data[reader.offset :])), decoded=None)


def without_user(message: Message) -> Message:
    """Return a message without the user that its client has put there, as the field or as a property.

    Raises:
        MalformedOpenWire: it does not decode so far, or its properties do not, which may have such a one.
    """
    if not may_have_broker_fields_or(message, USER_PROPERTY):
        return message
    data = message.data
    _, end = place(data, "message_id")
    reader = Reader(data, end)
    skip_fields(reader, _BEFORE_PROPERTIES)
    properties_at = reader.offset
    marshalled = reader.byte_sequence()
    properties_end = reader.offset
    kept = _without_property(marshalled) if marshalled is not None and USER_PROPERTY in marshalled else marshalled
    skip_fields(reader, _BETWEEN_PROPERTIES_AND_USER)
    user_at = reader.offset
    if reader.string() is None and kept is marshalled:
        return message
    pieces = data[:properties_at], byte_sequence(kept), data[properties_end:user_at], NULL, data[reader.offset :]
    return replace(
        message,
        data=b"".join(pieces),
        payload_size=message.payload_size - len(marshalled or b"") + len(kept or b""),
        decoded=None,
    )


def _without_property(marshalled: bytes) -> bytes:
    properties = decode_map(marshalled, DECODED_VALUES_MAX)
    if _NAME not in properties:
        return marshalled
    try:
        return encode_map({name: value for name, value in properties.items() if name != _NAME})
    except UnencodableOpenWire as error:
        raise MalformedOpenWire(f"properties that no client writes so: {error}") from error
