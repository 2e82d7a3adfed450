"""The shortcut from stored bytes to a routable message: reads the fields routing needs, steps over the others.

It runs once per message at recovery and on a standby, so it works on offsets and knows which fields are usually null.
`message.decode` is the full and strict reader; this one checks what it touches.

Source: OpenWire v11, `Message` (drawn in `message`).
"""

from collections.abc import Callable
from functools import lru_cache
from struct import error as StructError
from typing import Final

from pybroker.broker.domain.big_endian import INT, UNSIGNED_SHORT
from pybroker.broker.domain.message import REDELIVERIES_MAX, SIZE_OVERHEAD, BridgeFields, Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.layout import (
    BLOB,
    BLOB_TYPE,
    BODY_AT,
    BROKER_FLAGS,
    FIRST_TYPE,
    MESSAGE,
    NO_BROKER_FIELDS,
    SEQUENCES,
    packed,
)
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, Reader, decode_mutf8
from pybroker.broker.domain.openwire.shapes import skip_fields

PRIORITY_MAX: Final = 9

# Names of this module's own, so that the compiled code has the values without a look-up.
_FIRST_TYPE: Final = FIRST_TYPE
_BLOB: Final = BLOB_TYPE
_PRODUCER_ID: Final = BODY_AT
_PRODUCER_ID_TYPE: Final = BODY_AT + 1
_CONNECTION_ID: Final = BODY_AT + 2
_CONNECTION_ID_LENGTH: Final = BODY_AT + 3
_CONNECTION_ID_TEXT: Final = BODY_AT + 5
_NUMBERS_BYTES: Final = SEQUENCES.size
"""A producer id ends in two numbers, as a message id does."""
_USUAL_ID: Final = ids.USUAL_MESSAGE_ID
_USUAL_ID_BYTES: Final = len(ids.USUAL_MESSAGE_ID)
_NO_GROUP_BYTES: Final = packed(MESSAGE.run("group_id", "group_sequence")).size
_DELIVERY: Final = packed(MESSAGE.run("persistent", "reply_to"))
_DELIVERY_BYTES: Final = _DELIVERY.size
_TIMESTAMP_BYTES: Final = packed(MESSAGE.run("timestamp", "timestamp")).size
_BROKER_FLAGS_BYTES: Final = BROKER_FLAGS.size
_BROKER_SHAPE: Final = MESSAGE.shape("data_structure")
_BEFORE_COUNTER: Final = MESSAGE.shape("data_structure", "compressed")
_BLOB_SHAPE: Final = BLOB.shape("data_structure")

_REMEMBERED = 1024
"""Producers whose id is kept as text; one that sends a single message each only costs the look-up."""
_REMEMBERED_BYTES_MAX = 512

_connection_id_of = ids.connection_id_of
_destination_of = ids.destination_of
_short_at: Final = UNSIGNED_SHORT.unpack_from
_int_at: Final = INT.unpack_from
_NO_BROKER_FIELDS: Final = NO_BROKER_FIELDS
_sequences_at: Final = SEQUENCES.unpack_from
_broker_flags_at: Final = BROKER_FLAGS.unpack_from


def routing(data: bytes, decode_rest: Callable[[bytes], object] | None = None) -> Message:
    """Return the message in stored bytes (from the data type on), having looked only at what routing needs.

    Of the other fields only their lengths are checked: together they must come to the message's end.

    Args:
        data: the message.
        decode_rest: called with a message of which another field than content and properties may not decode: an
            ActiveMQ that loads such a message from a store shuts itself down. None: fields are taken as they are.

    Raises:
        MalformedOpenWire: it is no message, or one without destination or message id; or raised by `decode_rest`.
    """
    try:
        return _route(data, decode_rest)
    except (IndexError, KeyError, StructError) as error:
        raise MalformedOpenWire(f"a message that cannot be routed: {error!r}") from error


def clamped_priority(priority: int) -> int:
    """Return the nearest of JMS's priorities, 0 to 9."""
    return min(max(priority, 0), PRIORITY_MAX)


def _route(data: bytes, decode_rest: Callable[[bytes], object] | None) -> Message:
    # One straight walk: cut into smaller functions it reads no better and takes half as long again.
    if not _FIRST_TYPE <= data[0] <= _BLOB:
        raise MalformedOpenWire(f"data type {data[0]} where a message belongs")
    connection_id = ""
    if not data[_PRODUCER_ID]:
        offset = _PRODUCER_ID_TYPE
    elif data[_PRODUCER_ID_TYPE] != ids.PRODUCER_ID:
        raise MalformedOpenWire(f"data type {data[_PRODUCER_ID_TYPE]} where a producer id belongs")
    elif not data[_CONNECTION_ID]:
        offset = _CONNECTION_ID_LENGTH + _NUMBERS_BYTES
    else:
        end = _CONNECTION_ID_TEXT + _short_at(data, _CONNECTION_ID_LENGTH)[0]
        connection_id = _connection_id_of(data[_CONNECTION_ID_TEXT:end])
        offset = end + _NUMBERS_BYTES
    if not (data[offset] and data[offset + 2]):
        raise MalformedOpenWire("a message without destination")
    start = offset + 5
    end = start + _short_at(data, offset + 3)[0]
    destination = _destination_of(data[offset + 1], data[start:end])
    # Neither in a transaction nor rerouted is the usual case.
    offset = _after_origin(data, end) if data[end] or data[end + 1] else end + 2
    message_id, offset = _message_id(data, offset)
    offset = _after_transaction(data, offset) if data[offset] else offset + 1
    # Group id and sequence, correlation id.
    group: str | None = None
    group_sequence = 0
    if data[offset]:
        group, group_sequence, offset = _group(data, offset)
    else:
        offset += _NO_GROUP_BYTES
    texts_at = offset
    offset += 3 + _short_at(data, offset + 1)[0] if data[offset] else 1
    persistent, expiration, priority, has_reply_to = _DELIVERY.unpack_from(data, offset)
    reply_to_at = offset = offset + _DELIVERY_BYTES
    if has_reply_to:
        offset = _after_reply_to(data, offset)
    # Timestamp and type.
    offset += _TIMESTAMP_BYTES
    type_at = offset
    offset += 3 + _short_at(data, offset + 1)[0] if data[offset] else 1
    if decode_rest is not None and not (
        data[texts_at : reply_to_at - _DELIVERY_BYTES].isascii()
        and data[type_at:offset].isascii()
        and (not has_reply_to or _is_plain(data[reply_to_at : type_at - _TIMESTAMP_BYTES]))
    ):
        decode_rest(data)
    bridge: BridgeFields | None = None
    content_bytes, offset = _byte_sequence(data, offset)
    property_bytes, offset = _byte_sequence(data, offset)
    if (
        offset + _BROKER_FLAGS_BYTES != len(data)
        or data[0] == _BLOB
        or _broker_flags_at(data, offset) != _NO_BROKER_FIELDS
    ):
        bridge = _unusual_tail(data, offset, decode_rest)
    return Message(
        message_id=message_id,
        destination=destination,
        data=data,
        persistent=persistent,
        priority=priority if 0 <= priority <= PRIORITY_MAX else clamped_priority(priority),
        expiration=expiration,
        connection_id=connection_id,
        group_id=group,
        group_sequence=group_sequence,
        payload_size=SIZE_OVERHEAD + content_bytes + property_bytes,
        bridge=bridge,
    )


def _group(data: bytes, offset: int) -> tuple[str, int, int]:
    start = offset + 3
    end = start + _short_at(data, offset + 1)[0]
    return decode_mutf8(data[start:end]), _int_at(data, end)[0], end + 4


def _message_id(data: bytes, offset: int) -> tuple[str, int]:
    # Anything but a JMS client's own id takes the long way.
    if data[offset : offset + _USUAL_ID_BYTES] != _USUAL_ID:
        return _foreign_message_id(data, offset)
    start = offset + _USUAL_ID_BYTES
    end = start + 2 + _short_at(data, start)[0] + _NUMBERS_BYTES
    raw = data[start:end]
    producer = _producer_text(raw) if len(raw) <= _REMEMBERED_BYTES_MAX else f"{ids.producer_id_of(raw)}:"
    sequence, _ = _sequences_at(data, end)
    return producer + str(sequence), end + _NUMBERS_BYTES


def _foreign_message_id(data: bytes, offset: int) -> tuple[str, int]:
    reader = Reader(data, offset)
    message_id = ids.read_message_id(reader)
    if message_id is None:
        raise MalformedOpenWire("a message without id")
    return str(message_id), reader.offset


@lru_cache(_REMEMBERED)
def _producer_text(raw: bytes) -> str:
    return f"{ids.producer_id_of(raw)}:"


def _after_origin(data: bytes, offset: int) -> int:
    reader = Reader(data, offset)
    ids.read_transaction_id(reader)
    ids.read_destination(reader)
    return reader.offset


def _after_transaction(data: bytes, offset: int) -> int:
    reader = Reader(data, offset)
    ids.read_transaction_id(reader)
    return reader.offset


def _after_reply_to(data: bytes, offset: int) -> int:
    # Behind the flag for a present value: data type, flag, length, name.
    return offset + 4 + _short_at(data, offset + 2)[0] if data[offset + 1] else offset + 2


def _is_plain(destination: bytes) -> bool:
    """Return True if a destination, from its data type on, surely decodes."""
    return destination[0] in ids.DESTINATION_TYPES and destination[1] == 1 and destination.isascii()


def _check_tail(data: bytes, offset: int) -> None:
    reader = Reader(data, offset)
    skip_fields(reader, _BLOB_SHAPE if data[0] == _BLOB else _BROKER_SHAPE)
    reader.end()


def _unusual_tail(data: bytes, offset: int, decode_rest: Callable[[bytes], object] | None) -> BridgeFields | None:
    """Check what is behind the properties, which end at an offset; return what other brokers have written there."""
    if decode_rest is None:
        _check_tail(data, offset)
    else:
        decode_rest(data)
    return _bridge_fields(data, offset)


def _bridge_fields(data: bytes, offset: int) -> BridgeFields | None:
    """Return what other brokers have written behind the properties, which end at an offset."""
    reader = Reader(data, offset)
    skip_fields(reader, _BEFORE_COUNTER)
    counter = reader.integer()
    path = ids.read_broker_ids(reader)
    return BridgeFields(path, min(max(counter, 0), REDELIVERIES_MAX)) if path else None


def _byte_sequence(data: bytes, offset: int) -> tuple[int, int]:
    if not data[offset]:
        return 0, offset + 1
    length: int = _int_at(data, offset + 1)[0]
    if length < 0:
        raise MalformedOpenWire(f"a byte sequence of {length} bytes")
    return length, offset + 5 + length
