"""Encodes a stored message for the broker at the other end of a bridge.

Content, properties and most headers are kept as they are stored. Only the fields that name the bridge are encoded
again, and the transaction becomes the original one:

```text
type | command id, response required, producer id, destination, transaction | original destination, message id …
kept |                        replaced                                      |             kept
… original transaction | … content, properties … | consumer | compressed | redelivery counter, path | arrival …
       kept, or moved  |          kept           | replaced |    kept    |         replaced         |  kept
```

Messages of one producer to one destination begin with the same bytes, the head; it is encoded once.

Source: OpenWire v11, `Message`; ActiveMQ 5.17, `DemandForwardingBridgeSupport.configureMessage`.
"""

from struct import error as StructError
from typing import Final, NamedTuple

from pybroker.broker.domain.big_endian import INT, LONG, UNSIGNED_SHORT, int_at
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.layout import (
    BLOB_TYPE,
    BODY_AT,
    BROKER_FIELDS,
    BROKER_FLAGS,
    DELIVERY,
    HEAD,
    MESSAGE,
    NO_BROKER_FIELDS,
    SEQUENCES,
    packed,
)
from pybroker.broker.domain.openwire.loose import NULL, MalformedOpenWire, Reader
from pybroker.broker.domain.openwire.shapes import skip_fields

_HEADS_MAX: Final = 1024
"""The limit to the heads that an encoder keeps."""
_HEAD_BYTES_MAX: Final = 1024
"""The limit to the bytes of such a head, far above usual names."""
_COPY_BYTES_MIN: Final = 16 << 10
"""Above this size a view saves a copy, below it costs more than one."""
_SEARCHED_BYTES_MAX: Final = 8 << 10
"""Up to this size it is quicker to search a message for a broker's id than to find where its path is."""

_BROKER_ID_HEAD: Final = b"\x01" + ids.BROKER_ID.to_bytes()
"""The first bytes of each broker in a path."""

_SEQUENCES_BYTES: Final = SEQUENCES.size
_FLAGS: Final = packed(f"{_SEQUENCES_BYTES}x", MESSAGE.run("original_transaction_id", "content", shown=()), "i")
"""The null flags between the sequence numbers and the content, and the content's length, if only it is not null."""
_FLAGS_BYTES: Final = _FLAGS.size
_GROUP_SEQUENCE_BYTES: Final = INT.size
_DELIVERY_BYTES: Final = DELIVERY.size
_TIMESTAMP_BYTES: Final = LONG.size
_TAIL_BYTES: Final = BROKER_FIELDS.size
_UP_TO_COUNTER: Final = packed(MESSAGE.run("data_structure", "compressed")).size
_UP_TO_PATH: Final = packed(MESSAGE.run("data_structure", "broker_path")).size
_COMPRESSED_COUNTER: Final = packed(MESSAGE.run("compressed", "redelivery_counter"))

_HEAD: Final = MESSAGE.shape("producer_id", "message_id")
_STRUCTURE: Final = MESSAGE.shape("data_structure", "data_structure")
_CONSUMER: Final = MESSAGE.shape("target_consumer_id", "target_consumer_id")
_BEFORE_PATH: Final = MESSAGE.shape("data_structure", "redelivery_counter")

_short_at: Final = UNSIGNED_SHORT.unpack_from
_flags_at: Final = _FLAGS.unpack_from
_broker_flags_at: Final = BROKER_FLAGS.unpack_from
_pack_head: Final = HEAD.pack
_pack_int: Final = INT.pack


def broker_path_of(data: bytes) -> tuple[str, ...]:
    """Return the brokers that a stored message has passed, the first one first; empty for a local message.

    Raises:
        MalformedOpenWire: the message does not decode so far.
    """
    if len(data) <= _SEARCHED_BYTES_MAX and _BROKER_ID_HEAD not in data:
        return ()
    try:
        tail = _after_properties(data, _sequences_in(data))
        if _has_usual_tail(data, tail):
            return ()
    except (IndexError, StructError) as error:
        raise MalformedOpenWire(f"a message without a readable path: {error!r}") from error
    reader = Reader(data, tail)
    skip_fields(reader, _BEFORE_PATH)
    return ids.read_broker_ids(reader) or ()


class _ForwardedHead(NamedTuple):
    """The encoded head that replaces the head of a stored message.

    Attributes:
        encoded: the fields from the producer id to the message id's sequence numbers, with the bridge's producer.
        transaction: the stored field of the transaction.
        destination: the destination that is encoded.
    """

    encoded: bytes
    transaction: bytes
    destination: Destination


class ForwardingEncoder:
    """Encodes the messages of one connection of a bridge, and keeps the heads of latest ones."""

    __slots__ = ("_broker_id", "_heads", "_last", "_last_raw", "_path", "_producer")

    def __init__(self, producer_id: ProducerId, broker_id: str) -> None:
        """Begin without heads.

        Args:
            producer_id: the bridge's producer at the other broker.
            broker_id: this broker, which is added to the end of the path.
        """
        self._producer = ids.producer_id(producer_id)
        self._broker_id = broker_id
        self._path = ids.broker_ids((broker_id,))
        self._heads: dict[bytes, _ForwardedHead] = {}
        self._last_raw = b""
        self._last: _ForwardedHead | None = None

    def encode(self, message: Message, *, redelivery_count: int, command_id: int, response_required: bool) -> bytes:
        """Return a message as a bridge sends it: a Message command, without the size before it.

        Args:
            message: the message as it is dispatched; its bytes are those that the store keeps.
            redelivery_count: as dispatched.
            command_id: the number of the command.
            response_required: the other broker is to answer.

        Raises:
            MalformedOpenWire: the stored message does not decode so far.
            UnencodableOpenWire: its path has as many brokers as the format allows.
        """
        data = message.data
        try:
            head = self._last
            if (
                head is not None
                and head.destination is message.destination
                and data.startswith(self._last_raw, BODY_AT)
            ):
                start = BODY_AT + len(self._last_raw)
            else:
                start = _sequences_in(data)
                head = self._head(data, message.destination, start)
            tail = _after_properties(data, start)
            is_usual = _has_usual_tail(data, tail)
            has_moved = head.transaction != NULL and not data[start + _SEQUENCES_BYTES]
        except (IndexError, StructError) as error:
            raise MalformedOpenWire(f"a message that cannot be forwarded: {error!r}") from error
        view = data if len(data) < _COPY_BYTES_MIN else memoryview(data)
        pieces: list[bytes | memoryview] = [_pack_head(data[0], command_id, response_required), head.encoded]
        if has_moved:
            pieces += view[start : start + _SEQUENCES_BYTES], head.transaction
            start += _SEQUENCES_BYTES + len(NULL)
        if is_usual:
            counter_at = tail + _UP_TO_COUNTER
            pieces += view[start:counter_at], _pack_int(redelivery_count), self._path, view[tail + _UP_TO_PATH :]
        else:
            reader = Reader(data, tail)
            skip_fields(reader, _STRUCTURE)
            pieces.append(view[start : reader.offset])
            skip_fields(reader, _CONSUMER)
            compressed, _ = reader.unpack(_COMPRESSED_COUNTER)
            path = *(ids.read_broker_ids(reader) or ()), self._broker_id
            pieces += NULL, _COMPRESSED_COUNTER.pack(compressed, redelivery_count)
            pieces += ids.broker_ids(path), view[reader.offset :]
        return b"".join(pieces)

    def _head(self, data: bytes, destination: Destination, end: int) -> _ForwardedHead:
        """Return what takes the place of a message's head, which ends at an offset; it becomes the last one."""
        raw = data[BODY_AT:end]
        head = self._heads.get(raw)
        if head is None or head.destination != destination:
            head = self._encoded_head(data, destination, end)
        if len(raw) <= _HEAD_BYTES_MAX:
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            # With the very destination of this message, so that the next one's is found to be the same.
            self._heads[raw] = head = (
                head if head.destination is destination else head._replace(destination=destination)
            )
            self._last_raw, self._last = raw, head
        return head

    def _encoded_head(self, data: bytes, destination: Destination, end: int) -> _ForwardedHead:
        reader = Reader(data, BODY_AT)
        ids.read_producer_id(reader)
        ids.read_destination(reader)
        transaction_at = reader.offset
        ids.read_transaction_id(reader)
        transaction, kept = data[transaction_at : reader.offset], data[reader.offset : end]
        encoded = b"".join((self._producer, ids.destination(destination), NULL, kept))
        return _ForwardedHead(encoded, transaction, destination)


# ---------------------------------------------------------------- offsets in stored bytes


def _sequences_in(data: bytes) -> int:
    """Return the offset of the message id's sequence numbers."""
    reader = Reader(data, BODY_AT)
    skip_fields(reader, _HEAD)
    return reader.offset - _SEQUENCES_BYTES


def _after_properties(data: bytes, at: int) -> int:
    """Return the offset behind the properties of a message whose sequence numbers are at an offset."""
    transaction, group, correlation, reply_to, jms_type, content, length = _flags_at(data, at)
    if not (transaction or group or correlation or reply_to or jms_type) and content and length >= 0:
        offset = at + _FLAGS_BYTES + length
    else:
        offset = _after_byte_sequence(data, _content_at(data, at + _SEQUENCES_BYTES))
    return _after_byte_sequence(data, offset)


def _content_at(data: bytes, offset: int) -> int:
    """Return the offset of the content, given that of the original transaction."""
    if data[offset]:
        reader = Reader(data, offset)
        ids.read_transaction_id(reader)
        offset = reader.offset
    else:
        offset += 1
    offset = _after_string(data, offset) + _GROUP_SEQUENCE_BYTES
    offset = _after_string(data, offset) + _DELIVERY_BYTES
    if data[offset]:
        reader = Reader(data, offset)
        ids.read_destination(reader)
        offset = reader.offset
    else:
        offset += 1
    return _after_string(data, offset + _TIMESTAMP_BYTES)


def _after_string(data: bytes, offset: int) -> int:
    length: int = _short_at(data, offset + 1)[0] if data[offset] else 0
    return offset + 3 + length if data[offset] else offset + 1


def _after_byte_sequence(data: bytes, offset: int) -> int:
    if not data[offset]:
        return offset + 1
    length = int_at(data, offset + 1)
    if length < 0:
        raise MalformedOpenWire(f"a byte sequence of {length} bytes")
    return offset + 1 + INT.size + length


def _has_usual_tail(data: bytes, tail: int) -> bool:
    """Return True if the fields behind the properties, from this offset on, are those of a client's message."""
    return tail + _TAIL_BYTES == len(data) and data[0] != BLOB_TYPE and _broker_flags_at(data, tail) == NO_BROKER_FIELDS
