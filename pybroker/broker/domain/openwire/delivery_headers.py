"""The headers of a message that say how long and how safely it is kept, which a broker may change when it arrives.

All other bytes are kept:

```text
data type … correlation id | persistent, expiration, priority | reply to | timestamp | type, content, properties …
          kept             |    replaced     |      kept       |   kept   | replaced  |           kept
```

Source: OpenWire v11, `Message` (drawn in `message`).
"""

from dataclasses import replace
from typing import Final

from pybroker.broker.domain.big_endian import LONG
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.heads import place
from pybroker.broker.domain.openwire.layout import DELIVERY, MESSAGE, packed
from pybroker.broker.domain.openwire.loose import Reader
from pybroker.broker.domain.openwire.shapes import skip_fields

_BEFORE_DELIVERY: Final = MESSAGE.shape("original_transaction_id", "correlation_id")
_BEFORE_TIMESTAMP: Final = MESSAGE.shape("reply_to", "reply_to")
_BEFORE_PATH: Final = MESSAGE.shape("jms_type", "redelivery_counter")
_PERSISTENT_EXPIRATION: Final = packed(MESSAGE.run("persistent", "expiration"))


class DeliveryHeaders:
    """These headers of one message.

    Attributes:
        expiration: when it expires, in milliseconds since the epoch; 0: never.
        timestamp: when its client says that it was sent, in milliseconds since the epoch; 0: it does not say.
    """

    __slots__ = ("_delivery_at", "_message", "_timestamp_at", "expiration", "timestamp")

    def __init__(self, message: Message) -> None:
        """Locate the headers.

        Raises:
            MalformedOpenWire: the message does not decode so far.
        """
        _, end = place(message.data, "message_id")
        reader = Reader(message.data, end)
        skip_fields(reader, _BEFORE_DELIVERY)
        self._delivery_at = reader.offset
        _, self.expiration, _ = reader.unpack(DELIVERY)
        skip_fields(reader, _BEFORE_TIMESTAMP)
        self._timestamp_at = reader.offset
        self.timestamp = reader.long()
        self._message = message

    @property
    def has_passed_broker(self) -> bool:
        """True if the message has come over a bridge, which has put the brokers on its way into it.

        Raises:
            MalformedOpenWire: the message does not decode so far.
        """
        reader = Reader(self._message.data, self._timestamp_at + LONG.size)
        skip_fields(reader, _BEFORE_PATH)
        return reader.boolean() and reader.short() > 0

    def replaced(
        self, *, persistent: bool | None = None, expiration: int | None = None, timestamp: int | None = None
    ) -> Message:
        """Return the message with other values; None: as it was."""
        message = self._message
        persistent = message.persistent if persistent is None else persistent
        expiration = self.expiration if expiration is None else expiration
        data = message.data
        view = memoryview(data)
        between_at = self._delivery_at + _PERSISTENT_EXPIRATION.size
        pieces = (
            view[: self._delivery_at],
            _PERSISTENT_EXPIRATION.pack(persistent, expiration),
            view[between_at : self._timestamp_at],
            LONG.pack(self.timestamp if timestamp is None else timestamp),
            view[self._timestamp_at + LONG.size :],
        )
        return replace(message, data=b"".join(pieces), persistent=persistent, expiration=expiration, decoded=None)
