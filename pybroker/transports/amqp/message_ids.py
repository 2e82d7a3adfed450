"""Message ids and correlation ids of AMQP as texts, which is what JMS has.

Source: ActiveMQ 5.17 and the AMQP JMS mapping, 3.2.1.1:

```text
string     as it is; AMQP_STRING:<text> if it begins with one of these prefixes
uuid       AMQP_UUID:<uuid>
ulong      AMQP_ULONG:<digits>
binary     AMQP_BINARY:<upper-case hexadecimal digits>
```

The text of a message id is the text view of the OpenWire message id. JMS clients see it with the prefix `ID:`, and a
reply may have it as its correlation id: `ID:AMQP_UUID:…` becomes a uuid, too, unlike in ActiveMQ.
"""

import binascii
import uuid
from typing import Final

from pybroker.broker.domain.amqp.sections import AmqpMessageId
from pybroker.broker.domain.amqp.values import UnsignedLong

_UUID: Final = "AMQP_UUID:"
_ULONG: Final = "AMQP_ULONG:"
_BINARY: Final = "AMQP_BINARY:"
_STRING: Final = "AMQP_STRING:"

_COMMON: Final = "AMQP_"
_JMS: Final = "ID:"
_JMS_COMMON: Final = _JMS + _COMMON
_TYPES: Final = (_UUID, _ULONG, _BINARY, _STRING)
_PREFIXES: Final = (*_TYPES, *(_JMS + prefix for prefix in _TYPES))

_UUID_CHARS: Final = 36
_ULONG_DIGITS: Final = 20
_ULONG_MAX: Final = 2**64 - 1


def text_of_id(value: AmqpMessageId) -> str:
    """Return the text of a message id or correlation id."""
    if isinstance(value, str):
        return _STRING + value if value.startswith(_PREFIXES) else value
    if isinstance(value, uuid.UUID):
        return f"{_UUID}{value}"
    if isinstance(value, bytes):
        return _BINARY + value.hex().upper()
    return f"{_ULONG}{value:d}"


def id_of_text(text: str) -> AmqpMessageId:
    """Return the message id or correlation id of a text; the text itself if what follows its prefix is invalid."""
    if not text.startswith(_COMMON):
        if not text.startswith(_JMS_COMMON):
            return text
        found = _decoded(text[len(_JMS) :])
    else:
        found = _decoded(text)
    return text if found is None else found


def _decoded(text: str) -> AmqpMessageId | None:
    kind, _, rest = text.partition(":")
    match kind:
        case "AMQP_STRING":
            return rest
        case "AMQP_UUID":
            return _uuid(rest)
        case "AMQP_ULONG":
            if rest.isascii() and rest.isdigit() and len(rest) <= _ULONG_DIGITS and int(rest) <= _ULONG_MAX:
                return UnsignedLong(rest)
            return None
        case "AMQP_BINARY":
            try:
                return binascii.unhexlify(rest)
            except ValueError:  # no hexadecimal digits, no ASCII
                return None
        case _:
            return None


def _uuid(text: str) -> uuid.UUID | None:
    if len(text) != _UUID_CHARS:  # UUID accepts other forms, which no client writes
        return None
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
