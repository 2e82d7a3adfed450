"""Routes messages whose leading bytes equal those of an earlier message, without decoding these bytes again.

```text
u8 type | i32 | bool | producer id, destination, …, message id | i64 i64 | transaction, group, … | delivery | …
                     `------------------ head ----------------´ sequence  `------ middle -------´
```

Messages of one producer to one destination nearly always have the same head and middle. If both equal those of an
earlier message, only the delivery fields and the two lengths behind them are read. All other messages are read by
`routing`, and the result is always the same as that of `routing`.

Source: OpenWire v11, `Message` (drawn in `message`).
"""

from struct import error as StructError

from pybroker.broker.domain.big_endian import INT, UNSIGNED_SHORT
from pybroker.broker.domain.message import SIZE_OVERHEAD, Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.heads import place
from pybroker.broker.domain.openwire.ids import USUAL_MESSAGE_ID
from pybroker.broker.domain.openwire.layout import (
    BLOB_TYPE,
    BODY_AT,
    BROKER_FLAGS,
    FIRST_TYPE,
    MESSAGE,
    NO_BROKER_FIELDS,
    SEQUENCES,
    packed,
)
from pybroker.broker.domain.openwire.loose import Reader
from pybroker.broker.domain.openwire.routing import PRIORITY_MAX, routing

_SEQUENCES_BYTES = SEQUENCES.size
_NO_GROUP_BYTES = packed(MESSAGE.run("group_id", "group_sequence")).size
_DELIVERY = packed(MESSAGE.run("persistent", "jms_type", shown=("persistent", "expiration", "priority")))
"""Persistent, expiration, priority, the flag of the reply-to, and behind the timestamp the flag of the type."""
_LEARNED_MAX = 8
"""After so many messages with different prefixes, no further one is remembered: the cache does not help."""

_delivery_at = _DELIVERY.unpack_from
_broker_flags_at = BROKER_FLAGS.unpack_from
_int_at = INT.unpack_from
_short_at = UNSIGNED_SHORT.unpack_from


class PrefixCache:
    """Remembers the prefix of one message, and routes messages with the same prefix by it."""

    __slots__ = ("_delivery", "_head", "_learned", "_middle", "_model", "_sequences")

    def __init__(self) -> None:
        self._model: Message | None = None
        self._head = self._middle = b""
        self._sequences = self._delivery = 0
        self._learned = 0

    def route(self, data: bytes, message_id: str) -> Message:
        """Return the message in stored bytes, as `routing` does.

        Args:
            data: from the data type on.
            message_id: its id, as the store knows it.

        Raises:
            MalformedOpenWire: it is no message.
        """
        model = self._model
        if (
            model is not None
            and data.startswith(self._head, BODY_AT)
            and data.startswith(self._middle, self._sequences + _SEQUENCES_BYTES)
            and FIRST_TYPE <= data[0] < BLOB_TYPE
        ):
            message = self._like(data, message_id, model)
            if message is not None:
                return message
        message = routing(data)
        message.message_id = message_id  # the very string that the store has
        if self._learned < _LEARNED_MAX:
            self._learned += 1
            self._learn(data, message)
        return message

    def _like(self, data: bytes, message_id: str, model: Message) -> Message | None:
        offset = self._delivery
        try:
            persistent, expiration, priority, has_reply_to, has_type = _delivery_at(data, offset)
            if has_reply_to or has_type or not 0 <= priority <= PRIORITY_MAX:
                return None
            size = SIZE_OVERHEAD
            offset += _DELIVERY.size
            for _ in range(2):  # content and properties
                if data[offset]:
                    length: int = _int_at(data, offset + 1)[0]
                    if length < 0:
                        return None
                    size += length
                    offset += 4 + length
                offset += 1
            if offset + BROKER_FLAGS.size != len(data) or _broker_flags_at(data, offset) != NO_BROKER_FIELDS:
                return None
        except (IndexError, StructError):
            return None
        return Message(
            message_id=message_id,
            destination=model.destination,
            data=data,
            persistent=persistent,
            priority=priority,
            expiration=expiration,
            connection_id=model.connection_id,
            payload_size=size,
        )

    def _learn(self, data: bytes, message: Message) -> None:
        """Remember the prefix of a message, if it has the usual layout."""
        if message.group_id is not None:
            return
        begin, end = place(data, "message_id")
        if not data.startswith(USUAL_MESSAGE_ID, begin):
            return
        self._sequences = end - _SEQUENCES_BYTES
        reader = Reader(data, end)
        ids.read_transaction_id(reader)
        offset = reader.offset + _NO_GROUP_BYTES  # its number means nothing then; the correlation id follows
        offset += 3 + _short_at(data, offset + 1)[0] if data[offset] else 1
        self._head = data[BODY_AT : self._sequences]
        self._middle = data[self._sequences + _SEQUENCES_BYTES : offset]
        self._delivery = offset
        self._model = message
