"""The messages of records, of which those of one key differ in number, time and body alone.

The record of a producer whose messages come over a bridge is written for each of them that comes alone. So the bytes
around these three are made once for each key:

```text
type … message id's producer | number | broker sequence … reply to | timestamp | type, length | body | properties …
           before            |        |           between          |           |              |      |     after
```

Source: OpenWire v11, `Message` (drawn in `message`).
"""

from typing import Final, NamedTuple

from pybroker.broker.domain.big_endian import LONG
from pybroker.broker.domain.message import SIZE_OVERHEAD, Message
from pybroker.broker.domain.openwire.heads import place
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.layout import BROKER_FIELDS, MESSAGE, SEQUENCES, packed
from pybroker.broker.domain.openwire.loose import NULL
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message
from pybroker.broker.domain.reserved_queues import RecordId, ReservedQueue

HEADS_MAX: Final = 1024
"""The limit to the keys of which these bytes are kept: those of all producers that are remembered of bridges."""

_BEFORE_BODY: Final = packed(MESSAGE.run("timestamp", "content"), "i")
"""The time, and the flags and the length before the body."""

_AFTER_BYTES: Final = len(NULL) + BROKER_FIELDS.size
"""The properties, of which there are none, and what is behind them."""


class _RecordHead(NamedTuple):
    """The bytes of all records of one key, as drawn above."""

    before: bytes
    between: bytes
    after: bytes
    connection_id: str


class RecordMessages:
    """Makes the messages of one reserved queue."""

    __slots__ = ("_heads", "_reserved")

    def __init__(self, reserved: ReservedQueue) -> None:
        """Begin without heads."""
        self._reserved = reserved
        self._heads: dict[str, _RecordHead] = {}

    def message(self, key: str, number: int, now: int, body: bytes, *, is_repeated: bool) -> Message:
        """Return the message of a record.

        Args:
            key: its key.
            number: its number.
            now: milliseconds since the epoch.
            body: its body.
            is_repeated: the key has had a record before, and may have more.

        Raises:
            UnencodableOpenWire: the key is too long.
        """
        head = self._heads.get(key)
        if head is None:
            if not is_repeated:
                return self._made(key, number, now, body)
            head = self._head(key)
        data = b"".join(
            (
                head.before,
                LONG.pack(number),
                head.between,
                _BEFORE_BODY.pack(now, 0, 1, len(body)),
                body,
                head.after,
            )
        )
        return Message(
            message_id=self._reserved.message_id(RecordId(key, number)),
            destination=self._reserved.destination,
            data=data,
            persistent=True,
            connection_id=head.connection_id,
            payload_size=SIZE_OVERHEAD + len(body),
        )

    def _head(self, key: str) -> _RecordHead:
        data = self._made(key, 0, 0, b"").data
        _, end = place(data, "message_id")
        after_at = len(data) - _AFTER_BYTES
        number_at = end - SEQUENCES.size
        found = _RecordHead(
            before=data[:number_at],
            between=data[number_at + LONG.size : after_at - _BEFORE_BODY.size],
            after=data[after_at:],
            connection_id=self._reserved.connection_id(key),
        )
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        self._heads[key] = found
        return found

    def _made(self, key: str, number: int, now: int, body: bytes) -> Message:
        producer_id = ProducerId(self._reserved.connection_id(key), 1, 1)
        return to_message(
            OpenWireMessage(
                type=MessageType.BYTES,
                message_id=OpenWireMessageId(None, producer_id, number),
                producer_id=producer_id,
                destination=self._reserved.destination,
                original_destination=self._reserved.about(key),
                correlation_id=key,
                persistent=True,
                timestamp=now,
                content=body,
            )
        )
