"""Compresses the bodies of messages that go over a bridge, as `use_compression` asks.

```text
encoded Message:  … | content: i32 n, n bytes | properties … consumer | compressed | …
                               replaced       |         kept          |     1      | kept
```

A body that is compressed already, or that would not become smaller, stays as it is. ActiveMQ 5.17 compresses the latter
too; its clients read both.

Source: OpenWire v11, `Message.compressed`; openwire.md 4.5; ActiveMQ 5.17,
`DemandForwardingBridgeSupport.configureMessage`.
"""

import zlib
from typing import Final

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.openwire.commands import ActiveMQBytesMessage
from pybroker.broker.domain.openwire.layout import BODY_AT, MESSAGE
from pybroker.broker.domain.openwire.loose import PRESENT, Reader, byte_sequence
from pybroker.broker.domain.openwire.shapes import skip_fields

BODY_BYTES_MIN: Final = 32
"""Smaller bodies stay as they are: what compression adds to them, 11 bytes or more, is about what it saves."""

_BYTES_TYPE: Final = ActiveMQBytesMessage.DATA_TYPE
_BEFORE_CONTENT: Final = MESSAGE.shape("producer_id", "jms_type")
_BEHIND_CONTENT: Final = MESSAGE.shape("marshalled_properties", "target_consumer_id")


def compressed(data: bytes) -> bytes:
    """Return a Message command, without the size before it, with its body compressed.

    Raises:
        MalformedOpenWire: the message does not decode so far.
    """
    reader = Reader(data, BODY_AT)
    skip_fields(reader, _BEFORE_CONTENT)
    content_at = reader.offset
    if not reader.boolean():
        return data
    length = reader.integer()
    body_at = reader.offset
    with memoryview(data) as view:
        reader.offset = body_at + length if length >= 0 else len(data)
        behind = reader.offset
        skip_fields(reader, _BEHIND_CONTENT)
        flag_at = reader.offset
        if reader.boolean() or length < BODY_BYTES_MIN:
            return data
        packed = zlib.compress(view[body_at:behind])
        if data[0] == _BYTES_TYPE:
            packed = INT.pack(length) + packed
        if len(packed) >= length:
            return data
        return b"".join((view[:content_at], byte_sequence(packed), view[behind:flag_at], PRESENT, view[flag_at + 1 :]))
