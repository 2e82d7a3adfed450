"""The fast path for received messages and acknowledgements: bytes that repeat from frame to frame are not decoded.

A client that speaks loose, uncached OpenWire of version 10 to 12 sends messages in the bytes that the store keeps, and
begins each message of a producer with the same bytes, the head. Heads are cached and compared, and only the numbers
behind them are read; any other message takes the slow path, `routing`. Options behind a destination's name, which other
clients than Java's may send, are removed from the message's bytes.

```text
                  |<---------------------- head: cached ---------------------->|
u8 type | i32 u8 | producer id | destination | transaction id | 00 | message id | i64 sequence | i64 broker sequence | …
```

The broker's sequence number is written into the message here, as ActiveMQ does on arrival. Source: OpenWire v10 to v12,
`Message`, `MessageAck`; loose encoding, uncached.
"""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Final, NamedTuple

from pybroker.broker.domain.big_endian import INT, LONG, int_at
from pybroker.broker.domain.destination import Destination, checked
from pybroker.broker.domain.errors import InvalidDestination
from pybroker.broker.domain.message import SIZE_OVERHEAD, BridgeFields, Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.commands import AckType
from pybroker.broker.domain.openwire.heads import read_head
from pybroker.broker.domain.openwire.layout import (
    ACK,
    BLOB_TYPE,
    BODY_AT,
    BROKER_FIELDS,
    BROKER_FLAGS,
    MIDDLE,
    NO_BROKER_FIELDS,
    SEQUENCES,
    packed,
)
from pybroker.broker.domain.openwire.loose import NULL, MalformedOpenWire, Reader
from pybroker.broker.domain.openwire.message import decode
from pybroker.broker.domain.openwire.passed_brokers import PassedBrokers
from pybroker.broker.domain.openwire.rerouting import Rerouting
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.openwire.sender import USER_PROPERTY, without_user
from pybroker.broker.domain.openwire.spotting import has_between
from pybroker.broker.domain.transaction import TransactionId
from pybroker.transports.openwire.faults import MissingDestination
from pybroker.transports.openwire.ownership import ForeignMessageId

# Constants of this module, so that the compiled code has the values without a look-up.
_HEAD_AT: Final = BODY_AT

_HEADS_MAX: Final = 1024
"""The limit to cached heads of one connection."""

_HEAD_BYTES_MAX: Final = 1024
"""The limit to the bytes of a cached head, far above usual names."""

_HEAD_PART_BYTES: Final = 64 << 10
"""The part of a frame that has to contain the head of a message."""

_COUNT: Final = packed(ACK.run("message_count"))
"""The message count of an acknowledgement, and the flag of its cause."""
_COUNT_BYTES: Final = _COUNT.size
_SIZE_BYTES: Final = INT.size
"""The size field before each frame."""

_FLAG_AT: Final = BODY_AT - 1
"""The offset of the flag that requires a response."""
_NO_RESPONSE, _STANDARD = NULL, AckType.STANDARD.to_bytes()
_ONE: Final = _COUNT.pack(1, 0)
_NUMBERS_BYTES: Final = SEQUENCES.size
"""The end of a message id: its sequence number, and the broker's."""

_sequence_at: Final = LONG.unpack_from
_middle_at: Final = MIDDLE.unpack_from
_broker_flags_at: Final = BROKER_FLAGS.unpack_from
_SEQUENCE_BYTES: Final = LONG.size
_MIDDLE_BYTES: Final = MIDDLE.size
_BROKER_FIELDS_BYTES: Final = BROKER_FIELDS.size
_NO_BROKER_FIELDS: Final = NO_BROKER_FIELDS
_COPY_BYTES_MIN: Final = 16 << 10
"""Above this size a memoryview saves a copy, below it costs more than one."""

_BLOB: Final = BLOB_TYPE
_USER_PROPERTY: Final = USER_PROPERTY

decode_rest: Final = partial(decode, with_content=False)
"""Refuses a message that cannot be decoded later, as ActiveMQ does, which decodes each."""


class Head(NamedTuple):
    """The first bytes of all messages of one producer to one destination, in one transaction.

    Attributes:
        raw: the bytes.
        id_prefix: the message ids up to the sequence number.
        producer_id: the producer.
        destination: the destination.
        transaction: the transaction; None for none.
    """

    raw: bytes
    id_prefix: str
    producer_id: ids.ProducerId
    destination: Destination
    transaction: TransactionId | None


Arrival = tuple[Message, ids.ProducerId, int, TransactionId | None]
"""A received message, its producer, its sequence number and its transaction.

A tuple, not a class: compiled code returns it without an allocation.
"""


class Acknowledgement(NamedTuple):
    """The fields of a MessageAck.

    Attributes:
        consumer_id: the consumer.
        transaction: the transaction; None for none.
        type: see `AckType`.
        first_id: the first message of its range; None: the oldest.
        last_id: the last message of its range.
        message_count: the number of messages that the client counts.
        cause: the reason of a poison acknowledgement, as Java prints an exception.
    """

    consumer_id: ids.ConsumerId
    transaction: TransactionId | None
    type: int
    first_id: str | None
    last_id: str | None
    message_count: int
    cause: str | None = None


class Arrivals:
    """Reads the messages of one connection."""

    __slots__ = ("_heads", "_last", "_next_sequence", "_passed", "_removes_user", "_takes_foreign_ids")

    def __init__(
        self, next_sequence: Callable[[], int], *, takes_foreign_ids: bool = False, removes_user: bool = False
    ) -> None:
        """Begin without heads.

        Args:
            next_sequence: numbers the messages.
            takes_foreign_ids: a message may have an id of another producer.
            removes_user: the client does not determine the user of its messages.
        """
        self._removes_user = removes_user
        self._takes_foreign_ids = takes_foreign_ids
        self._next_sequence = next_sequence
        self._passed = PassedBrokers()
        self._last: Head | None = None
        self._heads: dict[bytes, Head] = {}

    def forget(self) -> None:
        """Clear the cache, as a producer was removed."""
        self._last = None
        self._heads.clear()

    def read(self, chunk: bytes, start: int, stop: int) -> Arrival:
        """Return the message in a frame, from its data type at `start` to its end at `stop`.

        Raises:
            MalformedOpenWire: it is no message, or lacks producer or id.
            MissingDestination: it lacks a destination.
            ForeignMessageId: its id is another producer's.
        """
        head = self._last
        if head is None or not chunk.startswith(head.raw, start + _HEAD_AT):
            head = self._head(chunk, start, stop)
        at = start + _HEAD_AT + len(head.raw)
        if at + _NUMBERS_BYTES > stop:
            raise MalformedOpenWire("a message that ends too early")
        number = self._next_sequence()
        if stop - start < _COPY_BYTES_MIN:
            data = b"".join((chunk[start : at + _SEQUENCE_BYTES], LONG.pack(number), chunk[at + _NUMBERS_BYTES : stop]))
        else:
            view = memoryview(chunk)
            data = b"".join((view[start : at + _SEQUENCE_BYTES], LONG.pack(number), view[at + _NUMBERS_BYTES : stop]))
        if head is self._last:
            return self._message(head, data, at - start)
        return self._irregular(head, data, at - start)

    def read_whole(self, frame: BytesIO) -> Arrival:
        """Return the message in a large frame as `read` does; the buffer's bytes become the message's own.

        Raises:
            MalformedOpenWire, MissingDestination, ForeignMessageId: as `read`.
        """
        with frame.getbuffer() as view:
            first, size = bytes(view[:_HEAD_PART_BYTES]), len(view)
        head = self._last
        if head is None or not first.startswith(head.raw, _HEAD_AT):
            head = self._head(first, 0, len(first))
        at = _HEAD_AT + len(head.raw)
        if at + _NUMBERS_BYTES > size:
            raise MalformedOpenWire("a message that ends too early")
        frame.seek(at + _SEQUENCE_BYTES)
        frame.write(LONG.pack(self._next_sequence()))
        data = frame.getvalue()  # which shares the bytes
        return self._message(head, data, at) if head is self._last else self._irregular(head, data, at)

    def _message(self, head: Head, data: bytes, at: int) -> Arrival:
        if len(data) < at + _MIDDLE_BYTES:
            raise MalformedOpenWire("a message that ends too early")
        sequence: int  # declared, so that the compiled code computes with numbers, not with objects
        original_transaction: int
        group: int
        correlation: int
        persistent: bool
        expiration: int
        priority: int
        reply_to: int
        jms_type: int
        content: int
        length: int
        (
            sequence, _, original_transaction, group, _, correlation, persistent, expiration, priority, reply_to,
            _, jms_type, content, length,
        ) = _middle_at(data, at)  # fmt: skip
        end = at + _MIDDLE_BYTES + length
        if (
            original_transaction or group or correlation or reply_to or jms_type or not content
            or length < 0 or not 0 <= priority <= 9 or data[0] == _BLOB or end >= len(data)
        ):  # fmt: skip
            return self.routed(data), head.producer_id, sequence, head.transaction
        size = SIZE_OVERHEAD + length
        if data[end]:
            if end + 5 > len(data):
                raise MalformedOpenWire("a message that ends too early")
            property_bytes = int_at(data, end + 1)
            if property_bytes < 0:
                raise MalformedOpenWire(f"a byte sequence of {property_bytes} bytes")
            size += property_bytes
            properties_at = end + 5
            end += 4 + property_bytes
            if self._removes_user and has_between(data, _USER_PROPERTY, properties_at, end + 1):
                return self.routed(data), head.producer_id, sequence, head.transaction
        bridge: BridgeFields | None = None
        if end + 1 + _BROKER_FIELDS_BYTES != len(data) or _broker_flags_at(data, end + 1) != _NO_BROKER_FIELDS:
            bridge = self._passed.read(data, end + 1)
            if bridge is None:
                message = self.routed(data)
                self._passed.remember(message.bridge)
                return message, head.producer_id, sequence, head.transaction
        message = Message(
            message_id=head.id_prefix + str(sequence),
            destination=head.destination,
            data=data,
            persistent=persistent,
            priority=priority,
            expiration=expiration,
            connection_id=head.producer_id.connection_id or "",
            payload_size=size,
            bridge=bridge,
        )
        return message, head.producer_id, sequence, head.transaction

    def routed(self, data: bytes) -> Message:
        """Return a message that may have any field. Raises `MalformedOpenWire`."""
        message = routing(data, decode_rest)
        return without_user(message) if self._removes_user else message

    def _irregular(self, head: Head, data: bytes, at: int) -> Arrival:
        """Return a message whose head is not cached, or has options behind its destination."""
        message = self.routed(data)
        if message.destination != head.destination:
            message = Rerouting(message).copy(head.destination)
        return message, head.producer_id, LONG.unpack_from(data, at)[0], head.transaction

    def _head(self, chunk: bytes, start: int, stop: int) -> Head:
        """Return the head of a message that does not begin as the last one did; `_last` if it may be cached."""
        reader = Reader(chunk[start : min(stop, start + _HEAD_PART_BYTES)], _HEAD_AT)
        producer_id, destination, transaction, _, message_id = read_head(reader)
        if producer_id is None or message_id is None:
            raise MalformedOpenWire("a message without producer or id")
        raw = chunk[start + _HEAD_AT : start + reader.offset - _NUMBERS_BYTES]
        head = self._heads.get(raw)
        if head is None:
            if message_id.producer_id != producer_id and not self._takes_foreign_ids:
                raise ForeignMessageId(f"{message_id} is not an id of its producer {producer_id}", transaction)
            named = _checked(destination, transaction)
            head = Head(raw, _without_sequence(message_id), producer_id, named, transaction)
            if named != destination or len(raw) > _HEAD_BYTES_MAX:
                self._last = None
                return head
            if len(self._heads) >= _HEADS_MAX:
                self._heads.clear()
            self._heads[raw] = head
        self._last = head
        return head


class Acknowledgements:
    """Reads the acknowledgements of one connection.

    Nearly all are alike: the same consumer acknowledges one message, and requires no response.

    ```text
    |<------------------ as before ------------------>|
    00 | destination | no transaction 00 | consumer id | 02 | message id | the same message id | 00 00 00 01 | 00
    no response                                    STANDARD                                     count      no cause
    ```

    Attributes:
        consumer_id: the consumer of the last acknowledgement outside of a transaction.
    """

    __slots__ = ("_first_at", "_id_head", "_id_prefix", "_prefixes", "_raw", "_usual", "consumer_id")

    def __init__(self) -> None:
        self.consumer_id: ids.ConsumerId | None = None
        self._raw = b""
        """The destination, transaction and consumer id of that acknowledgement."""
        self._usual = b""
        self._first_at = 0
        self._id_head = b""
        """The last message id up to its sequence number."""
        self._id_prefix = ""
        self._prefixes: dict[bytes, str] = {}
        """The message ids up to the sequence number, by their bytes."""

    def usual(self, chunk: bytes, start: int, stop: int) -> list[str]:
        """Return the ids of the messages that `consumer_id` acknowledges one by one, in this frame and those behind it.

        The frames must be alike, of one length, and have their size fields. Empty for any other acknowledgement, which
        `read` decodes.
        """
        done: list[str] = []
        usual = self._usual
        step = _SIZE_BYTES + stop - start
        size_and_type = chunk[start - _SIZE_BYTES : start + 1]
        first = start + self._first_at
        middle = (first + stop - _COUNT_BYTES) // 2
        if not usual or middle < first + _NUMBERS_BYTES:
            return done
        id_head, id_prefix = self._id_head, self._id_prefix
        while chunk[start + _FLAG_AT : first] == usual:
            message_id = chunk[first:middle]
            if chunk[middle:stop] != message_id + _ONE:
                break
            if message_id[:-_NUMBERS_BYTES] != id_head:
                id_head = message_id[:-_NUMBERS_BYTES]
                if id_head not in self._prefixes:
                    break
                id_prefix = self._prefixes[id_head]
            done.append(id_prefix + str(_sequence_at(chunk, middle - _NUMBERS_BYTES)[0]))
            start += step
            first += step
            middle += step
            stop += step
            if chunk[start - _SIZE_BYTES : start + 1] != size_and_type:
                break
        return done

    def read(self, chunk: bytes, start: int, stop: int) -> Acknowledgement | None:
        """Return the acknowledgement in a frame, from its data type at `start` to its end at `stop`.

        None if it has a cause, which only the codec can read, as its form was negotiated.

        Raises:
            MalformedOpenWire: it is no acknowledgement, or lacks a consumer id.
        """
        data = chunk[start:stop]
        transaction: TransactionId | None = None
        if self.consumer_id is not None and data.startswith(self._raw, _HEAD_AT):
            consumer_id = self.consumer_id
            offset = _HEAD_AT + len(self._raw)
        else:
            reader = Reader(data, _HEAD_AT)
            ids.read_destination(reader)
            transaction = ids.read_transaction_id(reader)
            named = ids.read_consumer_id(reader)
            if named is None:
                raise MalformedOpenWire("an acknowledgement without consumer id")
            consumer_id, offset = named, reader.offset
            if transaction is None:
                self._raw, self.consumer_id = data[_HEAD_AT:offset], named
                self._usual = b"".join((_NO_RESPONSE, self._raw, _STANDARD))
                self._first_at = _FLAG_AT + len(self._usual)
        try:
            return self._rest(data, offset, consumer_id, transaction)
        except IndexError:
            raise MalformedOpenWire("an acknowledgement that ends too early") from None

    def _rest(
        self, data: bytes, offset: int, consumer_id: ids.ConsumerId, transaction: TransactionId | None
    ) -> Acknowledgement | None:
        first_id, first_end = self._message_id(data, offset + 1)
        last_end = 2 * first_end - offset - 1
        if first_id is not None and data[first_end:last_end] == data[offset + 1 : first_end]:  # one message: most acks
            last_id: str | None = first_id
        else:
            last_id, last_end = self._message_id(data, first_end)
        if len(data) < last_end + _COUNT_BYTES:
            raise MalformedOpenWire("an acknowledgement that ends too early")
        count, has_cause = _COUNT.unpack_from(data, last_end)
        if has_cause:
            return None
        if len(data) != last_end + _COUNT_BYTES:
            raise MalformedOpenWire("an acknowledgement that goes on behind its end")
        return Acknowledgement(consumer_id, transaction, data[offset], first_id, last_id, count)

    def _message_id(self, data: bytes, offset: int) -> tuple[str | None, int]:
        """Return a message id as text, and its end."""
        if not data[offset]:
            return None, offset + 1
        if not self._id_head or not data.startswith(self._id_head, offset):
            reader = Reader(data, offset)
            message_id = ids.read_message_id(reader)
            end = reader.offset
            assert message_id is not None, "its flag says that it is there"
            if end - offset <= _HEAD_BYTES_MAX:
                self._id_head = data[offset : end - _NUMBERS_BYTES]
                self._id_prefix = _without_sequence(message_id)
                if len(self._prefixes) >= _HEADS_MAX:
                    self._prefixes.clear()
                self._prefixes[self._id_head] = self._id_prefix
            return str(message_id), end
        at = offset + len(self._id_head)
        if at + _NUMBERS_BYTES > len(data):
            raise MalformedOpenWire("a message id that ends too early")
        return self._id_prefix + str(_sequence_at(data, at)[0]), at + _NUMBERS_BYTES


def _checked(destination: Destination | None, transaction: TransactionId | None) -> Destination:
    """Return a destination without options."""
    if destination is None:
        raise MissingDestination("a message without a destination", transaction)
    try:
        return checked(*destination)
    except InvalidDestination as error:
        raise MissingDestination(str(error), transaction) from error


def _without_sequence(message_id: ids.OpenWireMessageId) -> str:
    """Return a message id as text, up to and including the colon before its sequence number."""
    return str(message_id).removesuffix(str(message_id.producer_sequence_id))
