"""Copies a message for other destinations: replaces the destinations, and keeps all other bytes.

A composite destination or a virtual topic needs one copy per target. Decoding and encoding all fields of each would
take ten times as long. So the bytes before, between and behind the two destinations are located once, for all copies.

Source: OpenWire v11, `Message` (drawn in `message`):

```text
data type … producer id | destination | transaction id | original destination | message id …
          kept          |  replaced   |      kept      |  replaced or kept    |    kept
```
"""

from collections.abc import Generator
from dataclasses import replace

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.heads import place
from pybroker.broker.domain.openwire.layout import BODY_AT, MESSAGE, packed
from pybroker.broker.domain.openwire.loose import Reader
from pybroker.broker.domain.openwire.portions import joining
from pybroker.broker.domain.openwire.shapes import skip_fields

_LARGE_BYTES = 64 << 10

_BETWEEN_ID_AND_DELIVERY = MESSAGE.shape("original_transaction_id", "correlation_id")
_PERSISTENT_EXPIRATION = packed(MESSAGE.run("persistent", "expiration"))


class Rerouting:
    """Makes copies of one message."""

    __slots__ = ("_between", "_head", "_message", "_original", "_tail")

    def __init__(self, message: Message) -> None:
        """Locate the destinations in the message.

        Raises:
            MalformedOpenWire: the message does not decode so far.
        """
        data = message.data
        reader = Reader(data, BODY_AT)
        ids.read_producer_id(reader)
        self._head = data[: reader.offset]
        ids.read_destination(reader)
        start = reader.offset
        ids.read_transaction_id(reader)
        self._between = data[start : reader.offset]
        start = reader.offset
        ids.read_destination(reader)
        self._original = data[start : reader.offset]
        # Of a large message the copies alone take milliseconds, for small ones a view costs more than it saves.
        self._tail: bytes | memoryview = (memoryview(data) if len(data) > _LARGE_BYTES else data)[reader.offset :]
        self._message = message

    def copy(self, destination: Destination, original: Destination | None = None) -> Message:
        """Return a copy for another destination.

        Args:
            destination: the destination of the copy.
            original: the original destination of the copy; None: that of the message.

        Raises:
            UnencodableOpenWire: a name is too long.
        """
        return self._with(destination, b"".join(self._parts(destination, original)))

    def copying(self, destination: Destination, original: Destination | None = None) -> Generator[None, None, Message]:
        """Return what `copy` does, in the steps of `joining`. Raises as `copy`, before the first step."""
        data = yield from joining(self._parts(destination, original))
        return self._with(destination, data)

    def _parts(self, destination: Destination, original: Destination | None) -> tuple[bytes | memoryview, ...]:
        return (
            self._head,
            ids.destination(destination),
            self._between,
            self._original if original is None else ids.destination(original),
            self._tail,
        )

    def _with(self, destination: Destination, data: bytes) -> Message:
        return replace(self._message, destination=destination, data=data, decoded=None)


def unread(message: Message, destination: Destination, expiration: int) -> Message:
    """Return a copy of a message for another destination, with another expiration, even if the message does not decode.

    Only the fields that `routing` reads are read: the texts may be invalid UTF-8, the properties no valid map.

    Raises:
        MalformedOpenWire: these fields do not decode either.
    """
    copy = Rerouting(message).copy(destination, message.destination)
    _, end = place(copy.data, "message_id")
    reader = Reader(copy.data, end)
    skip_fields(reader, _BETWEEN_ID_AND_DELIVERY)
    data = bytearray(copy.data)
    _PERSISTENT_EXPIRATION.pack_into(data, reader.offset, message.persistent, expiration)
    copy.data = bytes(data)
    copy.expiration = expiration
    return copy
