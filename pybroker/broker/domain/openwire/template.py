"""The shortcut from a few parts to a marshalled message, for protocols whose frames are not OpenWire already.

A producer sends one message after the other to the same destination: what such messages have in common is encoded
once, in a `MessageTemplate`, and what most of them lack (transaction, group, correlation id, …) costs one packed run
of nulls.
The bytes are those of `message.encode` for the same fields.

Source: OpenWire v11, `Message` (drawn in `message`).
"""

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT, SIZE_OVERHEAD, Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.loose import INT, LONG, NULL, UnencodableOpenWire, string
from pybroker.broker.domain.openwire.message import MessageType
from pybroker.broker.domain.openwire.routing import clamped_priority
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.transaction import TransactionId

_MIDDLE = Struct(">qqBBiB?qbBqBBi")
"""Sequences, no original transaction, no group id, group sequence, no correlation id, delivery mode, expiration,
priority, no reply to, timestamp, no type, content present, its length."""

_TAIL = Struct(">BBBiBqBBBBqqB")
"""From the data structure on: nothing there, but when the broker got the message."""

_DELIVERY = Struct(">?qb")
_SEQUENCES = Struct(">qqB")
_PRESENT_LENGTH = Struct(">Bi")


class MessageTemplate:
    """Builds the messages of one producer to one destination.

    Keep one per (producer, destination) and drop it with the connection.
    """

    __slots__ = ("_connection_id", "_destination", "_heads", "_id_prefix", "_message_id_head", "_prefix")

    def __init__(self, producer_id: ids.ProducerId, destination: Destination) -> None:
        """Encode what the messages have in common.

        Raises:
            UnencodableOpenWire: the destination's name is too long.
        """
        self._destination = destination
        self._connection_id = producer_id.connection_id or ""
        self._id_prefix = f"{producer_id}:"
        producer = ids.producer_id(producer_id)
        # Command id 0, no response required: both belonged to a connection that is not there any more.
        self._prefix = bytes(5) + producer + ids.destination(destination)
        self._message_id_head = b"\x00\x01\x6e\x00" + producer
        self._heads = {
            kind: kind.to_bytes() + self._prefix + NULL + self._message_id_head
            for kind in (MessageType.TEXT, MessageType.BYTES)
        }  # fmt: skip

    def build(
        self,
        *,
        type: MessageType,
        sequence: int,
        content: bytes,
        properties: Mapping[str, str],
        persistent: bool,
        timestamp: int,
        expiration: int = 0,
        priority: int = PRIORITY_DEFAULT,
        correlation_id: str | None = None,
        reply_to: Destination | None = None,
        jms_type: str | None = None,
        group_id: str | None = None,
        group_sequence: int = 0,
        transaction_id: TransactionId | None = None,
        broker_in_time: int = 0,
    ) -> Message:
        """Return a message.

        Args:
            type: what `content` is.
            sequence: the producer's number of the message, from 1.
            content: the body as OpenWire has it; see `body.encode_text_utf8`.
            properties: strings by name; none at all encodes as null.
            persistent: delivery mode.
            timestamp: when it was sent, in milliseconds since the epoch.
            expiration: when it is dead, in milliseconds since the epoch; 0 for never.
            priority: 0 to 9; others become the nearest.
            correlation_id: what it answers.
            reply_to: where an answer goes.
            jms_type: the application's type.
            group_id: message group.
            group_sequence: its place in the group.
            transaction_id: the transaction it is sent in.
            broker_in_time: when the broker got it, in milliseconds since the epoch.

        Raises:
            UnencodableOpenWire: a header or property name is too long, or a number out of its range.
        """
        priority = clamped_priority(priority)
        marshalled = encode_map(properties) if properties else None
        try:
            head = self._heads.get(type) if transaction_id is None else None
            if head is None:
                head = type.to_bytes() + self._prefix + ids.transaction_id(transaction_id) + self._message_id_head
            if correlation_id is None and reply_to is None and jms_type is None and group_id is None:
                middle = _MIDDLE.pack(
                    sequence, 0, 0, 0, group_sequence, 0, persistent, expiration, priority, 0, timestamp, 0,
                    1, len(content),
                )  # fmt: skip
            else:
                middle = b"".join((
                    _SEQUENCES.pack(sequence, 0, 0),
                    string(group_id),
                    INT.pack(group_sequence),
                    string(correlation_id),
                    _DELIVERY.pack(persistent, expiration, priority),
                    ids.destination(reply_to),
                    LONG.pack(timestamp),
                    string(jms_type),
                    _PRESENT_LENGTH.pack(1, len(content)),
                ))  # fmt: skip
            tail = _TAIL.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, broker_in_time, 0, 0)
        except StructError as error:
            raise UnencodableOpenWire(f"a number out of its range: {error}") from error
        size = SIZE_OVERHEAD + len(content)
        if marshalled is None:
            data = b"".join((head, middle, content, NULL, tail))
        else:
            size += len(marshalled)
            data = b"".join((head, middle, content, _PRESENT_LENGTH.pack(1, len(marshalled)), marshalled, tail))
        return Message(
            message_id=self._id_prefix + str(sequence),
            destination=self._destination,
            data=data,
            persistent=persistent,
            priority=priority,
            expiration=expiration,
            connection_id=self._connection_id,
            size=size,
        )
