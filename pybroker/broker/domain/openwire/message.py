"""OpenWire messages: every field, and the codec.

Bodies are in `body`, properties in `values`, the shortcut that reads only what routing needs in `routing`, and the one
that builds a message from a few parts in `template`.

Source: OpenWire v11 (the same layout in v10 to v12), `Message` and its seven types; loose, uncached,
without size prefix:

```text
u8 data type | i32 command id | u8 response required
| producer id | destination | transaction id | original destination | message id | original transaction id    objects
| str group id | i32 group sequence | str correlation id | u8 persistent | i64 expiration | i8 priority
| obj reply to | i64 timestamp | str type | bytes content | bytes marshalled properties
| obj data structure | obj target consumer id | u8 compressed | i32 redelivery counter | broker path | i64 arrival
| str user id | u8 received by bridge | u8 droppable | cluster | i64 broker in | i64 broker out | u8 first for consumer
| blob only: str remote URL | str MIME type | u8 deleted by broker
```
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from struct import error as StructError
from typing import Final, cast

from pybroker.broker.domain.big_endian import INT, LONG
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT, REDELIVERIES_MAX, SIZE_OVERHEAD, BridgeFields, Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.body import (
    BODY_BYTES_MAX,
    decode_text,
    decode_text_utf8,
    inflate,
    inflate_bytes_message,
)
from pybroker.broker.domain.openwire.decoded_cache import ENTRY_BYTES_MAX, keep
from pybroker.broker.domain.openwire.ids import ConsumerId as ConsumerId
from pybroker.broker.domain.openwire.ids import OpenWireMessageId as OpenWireMessageId
from pybroker.broker.domain.openwire.ids import ProducerId as ProducerId
from pybroker.broker.domain.openwire.layout import BROKER_FIELDS, DELIVERY, HEAD, HEADERS, MESSAGE, packed
from pybroker.broker.domain.openwire.loose import (
    NULL,
    PRESENT,
    MalformedOpenWire,
    Reader,
    UnencodableOpenWire,
    byte_sequence,
    restored,
)
from pybroker.broker.domain.openwire.portions import joining
from pybroker.broker.domain.openwire.routing import clamped_priority
from pybroker.broker.domain.openwire.routing import routing as routing
from pybroker.broker.domain.openwire.shapes import read_structure
from pybroker.broker.domain.openwire.values import DECODED_VALUES_MAX, Value, decode_map, decode_stream, encode_map
from pybroker.broker.domain.transaction import TransactionId


class MessageType(IntEnum):
    """The type of a message; the values are OpenWire's data types."""

    MESSAGE = 23
    BYTES = 24
    MAP = 25
    OBJECT = 26
    STREAM = 27
    TEXT = 28
    BLOB = 29


@dataclass(slots=True, kw_only=True)
class OpenWireMessage:
    """Every field of a message. Change a copy (`dataclasses.replace`): those that `view` returns are shared.

    Attributes:
        content: the body as it is on the wire, compressed if `compressed`; see `text`, `body_bytes`, `map`, `stream`.
        marshalled_properties: a primitive map, None when no property was ever set; see `properties`.
        data_structure: subject of an advisory, as bytes from its data type on.
        expiration: milliseconds since the epoch, 0 for never; so are `timestamp`, `arrival` and the broker times.
        redelivery_counter: number of earlier deliveries. In the stored bytes it is that of the producer: 0.
        broker_path: brokers it has passed, for networks of brokers.
        transaction_id: the transaction it was sent in; without meaning once that is committed.
        user_id: the authenticated user who sent it, if the broker is configured to set it.
        rendered: what a transport made of the message for one consumer and keeps for the next: the form it is in, its
            head, its body. Who finds another form than its own does the work again.
    """

    type: MessageType
    command_id: int = 0
    response_required: bool = False
    producer_id: ProducerId | None = None
    destination: Destination | None = None
    transaction_id: TransactionId | None = None
    original_destination: Destination | None = None
    message_id: OpenWireMessageId | None = None
    original_transaction_id: TransactionId | None = None
    group_id: str | None = None
    group_sequence: int = 0
    correlation_id: str | None = None
    persistent: bool = False
    expiration: int = 0
    priority: int = PRIORITY_DEFAULT
    reply_to: Destination | None = None
    timestamp: int = 0
    jms_type: str | None = None
    content: bytes | None = None
    marshalled_properties: bytes | None = None
    data_structure: bytes | None = None
    target_consumer_id: ConsumerId | None = None
    compressed: bool = False
    redelivery_counter: int = 0
    broker_path: tuple[str, ...] | None = None
    arrival: int = 0
    user_id: str | None = None
    received_by_bridge: bool = False
    droppable: bool = False
    cluster: tuple[str, ...] | None = None
    broker_in_time: int = 0
    broker_out_time: int = 0
    group_first_for_consumer: bool = False
    remote_blob_url: str | None = None
    mime_type: str | None = None
    deleted_by_broker: bool = False
    rendered: tuple[object, str, bytes] | None = field(default=None, init=False, repr=False, compare=False)
    _properties: Mapping[str, Value] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def properties(self) -> Mapping[str, Value]:
        """The properties, decoded at the first access. Raises `MalformedOpenWire` if they do not decode."""
        if self._properties is None:
            self._properties = decode_map(self.marshalled_properties or b"", DECODED_VALUES_MAX)
        return self._properties

    @property
    def payload_size(self) -> int:
        """The size that ActiveMQ gives it: 1024 + content + properties."""
        return SIZE_OVERHEAD + len(self.content or b"") + len(self.marshalled_properties or b"")

    def body_bytes(self, limit: int = BODY_BYTES_MAX) -> bytes:
        """Return the content uncompressed; empty if there is none.

        Raises:
            MalformedOpenWire: it does not decompress, or to more than `limit` bytes.
        """
        if not self.content:
            return b""
        if not self.compressed:
            return self.content
        return (inflate_bytes_message if self.type is MessageType.BYTES else inflate)(self.content, limit)

    def text(self) -> str | None:
        """Return a text message's text, which may be null. Raises `MalformedOpenWire` if it does not decode."""
        return None if self.content is None else decode_text(self.body_bytes())

    def text_utf8(self, limit: int = BODY_BYTES_MAX) -> bytes | None:
        """Return a text message's text in standard UTF-8, which for plain ASCII is its very bytes.

        Raises:
            MalformedOpenWire: it does not decode, or decompresses to more than `limit` bytes.
        """
        return None if self.content is None else decode_text_utf8(self.body_bytes(limit))

    def map(self) -> dict[str, Value]:
        """Return a map message's body. Raises `MalformedOpenWire` if the content does not decode."""
        return decode_map(self.body_bytes())

    def stream(self) -> list[Value]:
        """Return a stream message's values. Raises `MalformedOpenWire` if the content does not decode."""
        return decode_stream(self.body_bytes())

    def set_properties(self, properties: Mapping[str, Value]) -> None:
        """Make these the properties; the mapping is kept and not changed. No properties are encoded as null."""
        self.marshalled_properties = encode_map(properties) if properties else None
        self._properties = properties

    def set_marshalled_properties(self, marshalled: bytes, properties: Mapping[str, Value] | None) -> None:
        """Set encoded properties, and the properties themselves if they are known: the mapping is kept."""
        self.marshalled_properties = marshalled
        self._properties = properties


# ---------------------------------------------------------------- the codec

_pack_head = HEAD.pack
_pack_delivery = DELIVERY.pack
_COMPRESSED_REDELIVERY = packed(MESSAGE.run("compressed", "redelivery_counter"))
_TWO_FLAGS = packed(MESSAGE.run("received_by_bridge", "droppable"))
_TIMES_FLAG = packed(MESSAGE.run("broker_in_time", "group_first_for_consumer"))


def encode(fields: OpenWireMessage) -> bytes:
    """Encode a message from its data type on, without size prefix.

    Raises:
        UnencodableOpenWire: a header value is too long, or a number out of its range.
    """
    return b"".join(_parts(fields))


def _parts(fields: OpenWireMessage) -> tuple[bytes, ...]:
    try:
        return (*_header(fields), *_payload(fields), *_broker_fields(fields))
    except StructError as error:
        raise UnencodableOpenWire(f"a number out of its range: {error}") from error


def decode(data: bytes, *, with_content: bool = True) -> OpenWireMessage:
    """Decode a message from its data type on; nothing may be left over.

    Args:
        data: the message.
        with_content: False to leave the content out, which may be large.

    Raises:
        MalformedOpenWire: it is no message.
    """
    reader = Reader(data)
    message = _read_front(reader)
    if with_content:
        message.content = reader.byte_sequence()
    else:
        reader.skip_byte_sequence()
    message.marshalled_properties = reader.byte_sequence()
    _read_broker_fields(reader, message)
    reader.end()
    return message


def decode_around_content(data: bytes) -> tuple[OpenWireMessage, int, int]:
    """Decode a large message but for its content; return it, and where in its bytes the content begins and ends.

    Both are 0 if the content is null.

    Raises:
        MalformedOpenWire: it is no message.
    """
    reader = Reader(data)
    message = _read_front(reader)
    start = reader.offset + _CONTENT_HEAD_BYTES
    reader.skip_byte_sequence()
    stop = reader.offset
    message.marshalled_properties = reader.byte_sequence()
    _read_broker_fields(reader, message)
    reader.end()
    return (message, start, stop) if stop >= start else (message, 0, 0)


_CONTENT_HEAD_BYTES = 1 + INT.size
"""A flag and a length."""


def _read_front(reader: Reader) -> OpenWireMessage:
    """Read what comes before the content."""
    data_type, command_id, response_required = reader.unpack(HEAD)
    kind = _MESSAGE_TYPES.get(data_type)
    if kind is None:
        raise MalformedOpenWire(f"data type {data_type} where a message belongs")
    message = OpenWireMessage(
        type=kind,
        command_id=command_id,
        response_required=response_required,
        producer_id=ids.read_producer_id(reader),
        destination=ids.read_destination(reader),
    )
    if not reader.nulls(2):
        message.transaction_id = ids.read_transaction_id(reader)
        message.original_destination = ids.read_destination(reader)
    message.message_id = ids.read_message_id(reader)
    _read_headers(reader, message)
    return message


_MESSAGE_TYPES = {int(kind): kind for kind in MessageType}


def _read_headers(reader: Reader, message: OpenWireMessage) -> None:
    start = reader.offset  # first as if all nullable ones were null, which most are
    (
        original_transaction, group, message.group_sequence, correlation, message.persistent, message.expiration,
        message.priority, reply_to, message.timestamp, jms_type,
    ) = reader.unpack(HEADERS)  # fmt: skip
    if not (original_transaction or group or correlation or reply_to or jms_type):
        return
    reader.offset = start
    message.original_transaction_id = ids.read_transaction_id(reader)
    message.group_id = reader.string()
    message.group_sequence = reader.integer()
    message.correlation_id = reader.string()
    message.persistent, message.expiration, message.priority = reader.unpack(DELIVERY)
    message.reply_to = ids.read_destination(reader)
    message.timestamp = reader.long()
    message.jms_type = reader.string()


def _read_broker_fields(reader: Reader, message: OpenWireMessage) -> None:
    start = reader.offset
    (
        structure, consumer, message.compressed, message.redelivery_counter, path, message.arrival, user,
        message.received_by_bridge, message.droppable, cluster, message.broker_in_time, message.broker_out_time,
        message.group_first_for_consumer,
    ) = reader.unpack(BROKER_FIELDS)  # fmt: skip
    if structure or consumer or path or user or cluster:
        reader.offset = start
        _read_full_broker_fields(reader, message)
    if message.type is MessageType.BLOB:
        message.remote_blob_url = reader.string()
        message.mime_type = reader.string()
        message.deleted_by_broker = reader.boolean()


def _read_full_broker_fields(reader: Reader, message: OpenWireMessage) -> None:
    message.data_structure = read_structure(reader)
    message.target_consumer_id = ids.read_consumer_id(reader)
    message.compressed, message.redelivery_counter = reader.unpack(_COMPRESSED_REDELIVERY)
    message.broker_path = ids.read_broker_ids(reader)
    message.arrival = reader.long()
    message.user_id = reader.string()
    message.received_by_bridge, message.droppable = reader.unpack(_TWO_FLAGS)
    message.cluster = ids.read_broker_ids(reader)
    message.broker_in_time, message.broker_out_time, message.group_first_for_consumer = reader.unpack(_TIMES_FLAG)


def _header(fields: OpenWireMessage) -> tuple[bytes, ...]:
    return (
        _pack_head(fields.type, fields.command_id, fields.response_required),
        ids.producer_id(fields.producer_id),
        ids.destination(fields.destination),
        ids.transaction_id(fields.transaction_id),
        ids.destination(fields.original_destination),
        ids.message_id(fields.message_id),
        ids.transaction_id(fields.original_transaction_id),
        restored(fields.group_id),
        INT.pack(fields.group_sequence),
        restored(fields.correlation_id),
        _pack_delivery(fields.persistent, fields.expiration, fields.priority),
        ids.destination(fields.reply_to),
        LONG.pack(fields.timestamp),
        restored(fields.jms_type),
    )


def _payload(fields: OpenWireMessage) -> tuple[bytes, ...]:
    structure, content = fields.data_structure, fields.content
    return (
        NULL if content is None else PRESENT + INT.pack(len(content)),
        content or b"",
        byte_sequence(fields.marshalled_properties),
        NULL if structure is None else PRESENT + structure,
    )


def _broker_fields(fields: OpenWireMessage) -> tuple[bytes, ...]:
    return (
        ids.consumer_id(fields.target_consumer_id),
        _COMPRESSED_REDELIVERY.pack(fields.compressed, fields.redelivery_counter),
        ids.broker_ids(fields.broker_path),
        LONG.pack(fields.arrival),
        restored(fields.user_id),
        _TWO_FLAGS.pack(fields.received_by_bridge, fields.droppable),
        ids.broker_ids(fields.cluster),
        _TIMES_FLAG.pack(fields.broker_in_time, fields.broker_out_time, fields.group_first_for_consumer),
        _blob_fields(fields) if fields.type is MessageType.BLOB else b"",
    )


def _blob_fields(fields: OpenWireMessage) -> bytes:
    return restored(fields.remote_blob_url) + restored(fields.mime_type) + bytes((fields.deleted_by_broker,))


# ---------------------------------------------------------------- messages as the broker carries them

_LARGE_BYTES: Final = ENTRY_BYTES_MAX
"""The length above which decoded fields are not kept, and copying the content takes a millisecond or more."""


def to_message(fields: OpenWireMessage) -> Message:
    """Encode a message for the broker. `fields` may become the message's view: do not change them afterwards.

    Raises:
        UnencodableOpenWire: as `encode`; also if the message id or the destination is missing.
    """
    return _message(fields, encode(fields))


def to_large_message(fields: OpenWireMessage) -> Generator[None, None, Message]:
    """Return what `to_message` does, in the steps of `joining`. Raises as `to_message`."""
    data = yield from joining(_parts(fields))
    return _message(fields, data)


def _message(fields: OpenWireMessage, data: bytes) -> Message:
    if fields.message_id is None or fields.destination is None:
        raise UnencodableOpenWire("a message without message id or destination")
    producer = fields.producer_id
    message = Message(
        message_id=str(fields.message_id),
        destination=fields.destination,
        data=data,
        persistent=fields.persistent,
        priority=clamped_priority(fields.priority),
        expiration=fields.expiration,
        connection_id=(producer.connection_id or "") if producer else "",
        group_id=fields.group_id,
        group_sequence=fields.group_sequence if fields.group_id is not None else 0,
        payload_size=fields.payload_size,
        bridge=BridgeFields(fields.broker_path, min(max(fields.redelivery_counter, 0), REDELIVERIES_MAX))
        if fields.broker_path
        else None,
    )
    keep(message, fields, len(fields.marshalled_properties or b""))
    return message


def view(message: Message) -> OpenWireMessage:
    """Return a message's fields, which are shared: the caller changes a copy only. A small cache keeps them.

    Raises:
        MalformedOpenWire: the message's data do not decode.
    """
    fields = message.decoded
    if not isinstance(fields, OpenWireMessage):
        fields = decode(message.data)
        keep(message, fields, len(fields.marshalled_properties or b""))
    return fields


def outline(message: Message) -> OpenWireMessage:
    """Return a message's fields as `view` does, to read headers and properties, or to make another message of them.

    The content of a large message is not copied, and cannot be read.

    Raises:
        MalformedOpenWire: the message's data do not decode.
    """
    return view(message) if len(message.data) <= _LARGE_BYTES else outline_of(message.data)


def outline_of(data: bytes) -> OpenWireMessage:
    """Return the fields in a message's data, as `outline` does.

    Raises:
        MalformedOpenWire: the data do not decode.
    """
    if len(data) <= _LARGE_BYTES:
        return decode(data)
    fields, start, stop = decode_around_content(data)
    if stop:
        fields.content = cast("bytes", memoryview(data)[start:stop])
    return fields
