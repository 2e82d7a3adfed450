"""The head of a message, its first fields from the producer id to the message id: their values, or their offsets.

Every field is read as strictly as by `message.decode`.

Source: OpenWire v11, `Message`; its fields and their order are in `layout`.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.commands import TRANSACTION_IDS
from pybroker.broker.domain.openwire.layout import BODY_AT, MESSAGE
from pybroker.broker.domain.openwire.loose import Reader
from pybroker.broker.domain.transaction import TransactionId

_READERS: Final[dict[tuple[type | str, ...], Callable[[Reader], Any]]] = {
    (ids.ProducerId,): ids.read_producer_id,
    (Destination,): ids.read_destination,
    TRANSACTION_IDS: ids.read_transaction_id,
    (ids.OpenWireMessageId,): ids.read_message_id,
}
_FIELDS: Final = [(name, _READERS[MESSAGE.fields[name].types]) for name in MESSAGE.names("producer_id", "message_id")]


class MessageHead(NamedTuple):
    """The fields from the producer id to the message id."""

    producer_id: ids.ProducerId | None
    destination: Destination | None
    transaction_id: TransactionId | None
    original_destination: Destination | None
    message_id: ids.OpenWireMessageId | None


def read_head(reader: Reader) -> MessageHead:
    """Read a message's head from a reader that stands at its producer id.

    Raises:
        MalformedOpenWire: the head does not decode.
    """
    return MessageHead(**{name: read(reader) for name, read in _FIELDS})


def place(data: bytes, name: str) -> tuple[int, int]:
    """Return the offsets at which a field of a message's head begins and ends.

    Raises:
        MalformedOpenWire: the head does not decode up to this field.
    """
    reader = Reader(data, BODY_AT)
    for each, read in _FIELDS:
        begin = reader.offset
        read(reader)
        if each == name:
            return begin, reader.offset
    raise KeyError(name)
