"""Identifiers and destinations in loose encoding, nested as fields of messages, acks and subscriptions.

A nested structure is nullable and starts with its data type:

```text
ActiveMQDestination 100–103 | str name |
MessageId           110     | str text view | obj producer id | i64 producer sequence | i64 broker sequence |
LocalTransactionId  111     | i64 value | obj connection id |
XATransactionId     112     | i32 format | bytes global transaction id | bytes branch qualifier |
ConnectionId 120, BrokerId 124 | str value |
ConsumerId          122     | str connection id | i64 session | i64 value |
ProducerId          123     | str connection id | i64 value | i64 session |
```

Mind the two last: session and value change places. Source: OpenWire v11 marshallers; `*` caching is off.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from pybroker.broker.domain.big_endian import INT, LONG, SHORT, TWO_LONGS
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.openwire.loose import (
    NULL,
    PRESENT,
    MalformedOpenWire,
    Reader,
    UnencodableOpenWire,
    byte_sequence,
    decode_mutf8,
    restored,
)
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId

MESSAGE_ID: Final = 110
LOCAL_TRANSACTION_ID: Final = 111
XA_TRANSACTION_ID: Final = 112
CONNECTION_ID: Final = 120
CONSUMER_ID: Final = 122
PRODUCER_ID: Final = 123
BROKER_ID: Final = 124

DESTINATION_TYPES: Final = {
    100: DestinationType.QUEUE,
    101: DestinationType.TOPIC,
    102: DestinationType.TEMP_QUEUE,
    103: DestinationType.TEMP_TOPIC,
}
USUAL_MESSAGE_ID: Final = b"\x01\x6e\x00\x01\x7b\x01"
"""The first bytes of a JMS client's message id, which has no text view, and a producer id with a connection id."""

_DATA_TYPES = {kind: data_type for data_type, kind in DESTINATION_TYPES.items()}

BROKER_PATH_MAX: Final = 1024
"""Brokers in a path or cluster list; a network message passes a handful."""

_pack_longs = TWO_LONGS.pack
_longs_at = TWO_LONGS.unpack_from
_REMEMBERED = 1024
"""Destinations and connection ids whose decoded form is kept: they repeat from message to message."""
_REMEMBERED_BYTES_MAX = 512
"""Longer ones are not cached, so that unusual names cannot fill the memory."""


class ProducerId(NamedTuple):
    """A producer: connection, session, and its number in the session. A foreign one may lack the connection."""

    connection_id: str | None
    session_id: int
    value: int

    def __str__(self) -> str:
        """Return `<connection id>:<session>:<value>`, with Java's `null` for a connection that is missing."""
        return f"{_java_text(self.connection_id)}:{self.session_id}:{self.value}"


class ConsumerId(NamedTuple):
    """A consumer: connection, session, and its number in the session."""

    connection_id: str | None
    session_id: int
    value: int

    def __str__(self) -> str:
        """Return `<connection id>:<session>:<value>`."""
        return f"{_java_text(self.connection_id)}:{self.session_id}:{self.value}"


class OpenWireMessageId(NamedTuple):
    """A message's identity.

    Attributes:
        text_view: the whole id as another protocol's client wrote it; None for JMS's own ids.
        producer_id: who sent it.
        producer_sequence_id: counts from 1 per producer.
        broker_sequence_id: a number the broker gave it on arrival, 0 before.
    """

    text_view: str | None
    producer_id: ProducerId | None
    producer_sequence_id: int
    broker_sequence_id: int = 0

    def __str__(self) -> str:
        """Return ActiveMQ's producer key, `<producer id>:<producer sequence>`: by it a store knows the message.

        It leaves the text view out, even where there is one: so do KahaDB's records, and equality in ActiveMQ.
        """
        return f"{_java_text(self.producer_id)}:{self.producer_sequence_id}"

    @property
    def jms_message_id(self) -> str:
        """The id that a JMS client sees: the text view with the prefix `ID:`, or the producer key."""
        text = self.text_view
        if text is None:
            return str(self)
        return text if text.startswith("ID:") else f"ID:{text}"


# ---------------------------------------------------------------- reading


def read_destination(reader: Reader) -> Destination | None:
    """Read a nullable destination."""
    return _read_destination(reader, reader.unsigned_byte()) if reader.boolean() else None


def destination_of(data_type: int, name: bytes) -> Destination:
    """Return the destination of that data type (100 to 103) and name; the same object again for those that repeat."""
    if len(name) > _REMEMBERED_BYTES_MAX:
        return Destination(DESTINATION_TYPES[data_type], decode_mutf8(name))
    return _destination_of(data_type, name)


@lru_cache(_REMEMBERED)
def _destination_of(data_type: int, name: bytes) -> Destination:
    return Destination(DESTINATION_TYPES[data_type], decode_mutf8(name))


def connection_id_of(value: bytes) -> str:
    """Return the text of a connection id; the same object again for those that repeat."""
    return decode_mutf8(value) if len(value) > _REMEMBERED_BYTES_MAX else _connection_id_of(value)


_connection_id_of = lru_cache(_REMEMBERED)(decode_mutf8)


def producer_id_of(raw: bytes) -> ProducerId:
    """Return the producer id in bytes that are exactly `u16 n, n bytes connection id, i64 value, i64 session`."""
    return _parse_producer_id(raw) if len(raw) > _REMEMBERED_BYTES_MAX else _producer_id_of(raw)


def _parse_producer_id(raw: bytes) -> ProducerId:
    value, session_id = _longs_at(raw, len(raw) - 16)
    return ProducerId(connection_id_of(raw[2:-16]), session_id, value)


_producer_id_of = lru_cache(_REMEMBERED)(_parse_producer_id)


def read_producer_id(reader: Reader) -> ProducerId | None:
    """Read a nullable producer id."""
    return _read_producer_id(reader) if _begin(reader, PRODUCER_ID, "a producer id") else None


def read_consumer_id(reader: Reader) -> ConsumerId | None:
    """Read a nullable consumer id."""
    return _read_consumer_id(reader) if _begin(reader, CONSUMER_ID, "a consumer id") else None


def read_message_id(reader: Reader) -> OpenWireMessageId | None:
    """Read a nullable message id."""
    return _read_message_id(reader) if _begin(reader, MESSAGE_ID, "a message id") else None


def read_transaction_id(reader: Reader) -> TransactionId | None:
    """Read a nullable transaction id, local or XA."""
    if not reader.boolean():
        return None
    match reader.unsigned_byte():
        case 111:
            return _read_local_transaction_id(reader)
        case 112:
            return _read_xa_transaction_id(reader)
        case data_type:
            raise _unexpected(data_type, "a transaction id")


def read_broker_ids(reader: Reader) -> tuple[str, ...] | None:
    """Read a nullable array of broker ids, each a string."""
    if not reader.boolean():
        return None
    count = reader.short()
    if not 0 <= count <= BROKER_PATH_MAX:
        raise MalformedOpenWire(f"{count} brokers in a path")
    return tuple(_read_broker_id(reader) for _ in range(count))


def _read_destination(reader: Reader, data_type: int) -> Destination:
    if data_type not in DESTINATION_TYPES:
        raise _unexpected(data_type, "a destination")
    if not reader.boolean():
        raise MalformedOpenWire("a destination without a name")
    return destination_of(data_type, reader.take(reader.unsigned_short()))


def _begin(reader: Reader, data_type: int, what: str) -> bool:
    if not reader.boolean():
        return False
    found = reader.unsigned_byte()
    if found != data_type:
        raise _unexpected(found, what)
    return True


def _read_producer_id(reader: Reader) -> ProducerId:
    if not reader.boolean():
        value, session_id = reader.unpack(TWO_LONGS)
        return ProducerId(None, session_id, value)
    length = reader.unsigned_short()
    reader.offset -= 2
    return producer_id_of(reader.take(length + 18))


def _read_consumer_id(reader: Reader) -> ConsumerId:
    connection_id = _read_connection_text(reader)
    session_id, value = reader.unpack(TWO_LONGS)
    return ConsumerId(connection_id, session_id, value)


def _read_connection_text(reader: Reader) -> str | None:
    return connection_id_of(reader.take(reader.unsigned_short())) if reader.boolean() else None


def _read_message_id(reader: Reader) -> OpenWireMessageId:
    text_view = reader.string()
    producer_id = read_producer_id(reader)
    producer_sequence_id, broker_sequence_id = reader.unpack(TWO_LONGS)
    return OpenWireMessageId(text_view, producer_id, producer_sequence_id, broker_sequence_id)


def _read_local_transaction_id(reader: Reader) -> LocalTransactionId:
    value = reader.long()
    if _begin(reader, CONNECTION_ID, "a connection id"):
        connection_id = _read_connection_text(reader)
        if connection_id is not None:
            return LocalTransactionId(connection_id, value)
    raise MalformedOpenWire("a local transaction id without a connection id")


def _read_xa_transaction_id(reader: Reader) -> XATransactionId:
    format_id = reader.integer()
    global_transaction_id = reader.byte_sequence()
    branch_qualifier = reader.byte_sequence()
    if global_transaction_id is None or branch_qualifier is None:
        raise MalformedOpenWire("an XA transaction id without global id or branch")
    return XATransactionId(format_id, global_transaction_id, branch_qualifier)


def _read_broker_id(reader: Reader) -> str:
    broker_id = reader.string() if _begin(reader, BROKER_ID, "a broker id") else None
    if broker_id is None:
        raise MalformedOpenWire("a path with a broker that has no id")
    return broker_id


def _unexpected(data_type: int, wanted: str) -> MalformedOpenWire:
    return MalformedOpenWire(f"data type {data_type} where {wanted} belongs")


# ---------------------------------------------------------------- writing


def destination(value: Destination | None) -> bytes:
    """Encode a nullable destination as a field."""
    if value is None:
        return NULL
    return bytes((1, _DATA_TYPES[value.type])) + restored(value.name)


def producer_id(value: ProducerId | None) -> bytes:
    """Encode a nullable producer id as a field."""
    if value is None:
        return NULL
    return b"\x01\x7b" + restored(value.connection_id) + _pack_longs(value.value, value.session_id)


def consumer_id(value: ConsumerId | None) -> bytes:
    """Encode a nullable consumer id as a field."""
    if value is None:
        return NULL
    return b"\x01\x7a" + restored(value.connection_id) + _pack_longs(value.session_id, value.value)


def message_id(value: OpenWireMessageId | None) -> bytes:
    """Encode a nullable message id as a field."""
    if value is None:
        return NULL
    return b"".join((
        b"\x01\x6e",
        restored(value.text_view),
        producer_id(value.producer_id),
        _pack_longs(value.producer_sequence_id, value.broker_sequence_id),
    ))  # fmt: skip


def transaction_id(value: TransactionId | None) -> bytes:
    """Encode a nullable transaction id as a field."""
    match value:
        case None:
            return NULL
        case LocalTransactionId(connection_id, number):
            return b"\x01\x6f" + LONG.pack(number) + b"\x01\x78" + restored(connection_id)
        case XATransactionId(format_id, global_id, branch):
            return b"\x01\x70" + INT.pack(format_id) + byte_sequence(global_id) + byte_sequence(branch)


def broker_ids(values: tuple[str, ...] | None) -> bytes:
    """Encode a nullable array of broker ids as a field."""
    if values is None:
        return NULL
    if len(values) > BROKER_PATH_MAX:
        raise UnencodableOpenWire(f"a path of {len(values)} brokers, where {BROKER_PATH_MAX} is the limit")
    return PRESENT + SHORT.pack(len(values)) + b"".join([b"\x01\x7c" + restored(value) for value in values])


def _java_text(value: object) -> str:
    return "null" if value is None else str(value)
