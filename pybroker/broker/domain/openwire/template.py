"""The shortcut from a few parts to a marshalled message, for protocols whose frames are not OpenWire already.

A producer sends one message after the other to the same destination: what such messages have in common is encoded
once, in a `MessageTemplate`, and what most of them lack (transaction, group, correlation id, …) costs one packed run
of nulls.
The bytes are those of `message.encode` for the same fields.

Source: OpenWire v11, `Message` (drawn in `message`).
"""

from collections.abc import Mapping, Sequence
from struct import error as StructError
from typing import Final

from pybroker.broker.domain.big_endian import BYTE_AND_INT, INT, LONG
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT, Message
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.decoded_cache import keep
from pybroker.broker.domain.openwire.layout import BROKER_FIELDS, DELIVERY, HEAD, MESSAGE, MIDDLE, SEQUENCES, packed
from pybroker.broker.domain.openwire.loose import NULL, PRESENT, UnencodableOpenWire, string
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.broker.domain.openwire.routing import clamped_priority
from pybroker.broker.domain.openwire.values import Value
from pybroker.broker.domain.transaction import TransactionId

_pack_middle: Final = MIDDLE.pack
_pack_broker_fields: Final = BROKER_FIELDS.pack
_NONE_OF_FOUR = (None, None, None, None)
_LENGTH_BYTES: Final = BYTE_AND_INT.size
_USER_AT: Final = packed(MESSAGE.run("data_structure", "arrival")).size
"""The offset of the user's null flag in the broker fields."""


class MessageTemplate:
    """Builds the messages of one producer to one destination.

    Keep one per (producer, destination) and drop it with the connection.
    """

    __slots__ = (
        "_connection_id",
        "_destination",
        "_heads",
        "_id_heads",
        "_id_prefix",
        "_message_id_head",
        "_prefix",
        "_producer",
        "_producer_id",
    )

    def __init__(self, producer_id: ids.ProducerId, destination: Destination) -> None:
        """Encode what the messages have in common.

        Raises:
            UnencodableOpenWire: the destination's name is too long.
        """
        self._destination = destination
        self._producer_id = producer_id
        self._connection_id = producer_id.connection_id or ""
        self._id_prefix = f"{producer_id}:"
        self._producer = producer = ids.producer_id(producer_id)
        # Command id 0, no response required: both belonged to a connection that is not there any more.
        self._prefix = HEAD.pack(0, 0, False)[1:] + producer + ids.destination(destination)
        self._message_id_head = NULL + PRESENT + ids.MESSAGE_ID.to_bytes() + NULL + producer
        self._heads = {
            kind: kind.to_bytes() + self._prefix + NULL + self._message_id_head
            for kind in (MessageType.TEXT, MessageType.BYTES)
        }  # fmt: skip
        self._id_heads: dict[MessageType, bytes] = {}

    def build(
        self,
        *,
        type: MessageType,
        sequence: int,
        content: bytes | None,
        properties: Mapping[str, Value],
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
        broker_sequence: int = 0,
        pieces: Sequence[bytes] = (),
        marshalled_properties: bytes | None = None,
        text_view: str | None = None,
        user_id: str | None = None,
        redelivery_counter: int = 0,
    ) -> Message:
        """Return a message.

        Args:
            type: what `content` is.
            sequence: the producer's number of the message, from 1.
            content: the body as OpenWire has it, see `body.encode_text_utf8`; None is the body of a null text.
            properties: values by name; no properties are encoded as null.
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
            broker_sequence: the broker's number of the message.
            pieces: the body, which is long, in pieces; `content` is empty then.
            marshalled_properties: the properties as `values.encode_map` writes them; `properties` may be empty then,
                and they are decoded when they are needed.
            text_view: the message id that a client of another protocol has given it.
            user_id: the user who sent it, as the client says.
            redelivery_counter: number of earlier deliveries, as the client says.

        Raises:
            UnencodableOpenWire: a header or property name is too long, or a number out of its range.
        """
        fields = OpenWireMessage(
            type=type, producer_id=self._producer_id, destination=self._destination, transaction_id=transaction_id,
            message_id=ids.OpenWireMessageId(text_view, self._producer_id, sequence, broker_sequence),
            group_id=group_id, group_sequence=group_sequence, correlation_id=correlation_id, persistent=persistent,
            expiration=expiration, priority=clamped_priority(priority), reply_to=reply_to, timestamp=timestamp,
            jms_type=jms_type, content=content, redelivery_counter=redelivery_counter, user_id=user_id,
            broker_in_time=broker_in_time,
        )  # fmt: skip
        if marshalled_properties is None:
            fields.set_properties(properties)
        else:
            fields.set_marshalled_properties(marshalled_properties, properties or None)
        return self._message(fields, (sequence, broker_sequence), pieces)

    def _message(self, fields: OpenWireMessage, sequences: tuple[int, int], pieces: Sequence[bytes]) -> Message:
        """Encode the fields. They are kept with the message: a waiting consumer or a selector does not decode them."""
        try:
            data = self._encode(fields, sequences, pieces)
        except StructError as error:
            raise UnencodableOpenWire(f"a number out of its range: {error}") from error
        message = Message(
            message_id=self._id_prefix + str(sequences[0]),
            destination=self._destination,
            data=data,
            persistent=fields.persistent,
            priority=fields.priority,
            expiration=fields.expiration,
            connection_id=self._connection_id,
            group_id=fields.group_id,
            group_sequence=fields.group_sequence if fields.group_id is not None else 0,
            payload_size=fields.payload_size + sum(map(len, pieces)) if pieces else fields.payload_size,
        )
        keep(message, fields, len(fields.marshalled_properties or b""))
        return message

    def _encode(self, fields: OpenWireMessage, sequences: tuple[int, int], pieces: Sequence[bytes]) -> bytes:
        message_id = fields.message_id
        assert message_id is not None, "build gives it one"
        text_view = message_id.text_view
        if fields.transaction_id is not None:
            head = self._head_in_transaction(fields, text_view)
        elif text_view is None:
            head = self._heads.get(fields.type) or self._id_head(fields.type) + NULL + self._producer
        else:
            head = self._id_head(fields.type) + string(text_view) + self._producer
        marshalled = fields.marshalled_properties
        content = fields.content
        counter, in_time = fields.redelivery_counter, fields.broker_in_time
        tail = _pack_broker_fields(0, 0, 0, counter, 0, 0, 0, 0, 0, 0, in_time, 0, 0)
        if fields.user_id is not None:
            tail = b"".join((tail[:_USER_AT], string(fields.user_id), tail[_USER_AT + 1 :]))
        if pieces:
            middle = _middle(fields, sequences, sum(map(len, pieces)))
            rest = (NULL,) if marshalled is None else (BYTE_AND_INT.pack(1, len(marshalled)), marshalled)
            return b"".join((head, middle, *pieces, *rest, tail))
        if content is None:
            middle, content = _middle(fields, sequences, 0)[:-_LENGTH_BYTES] + NULL, b""
        else:
            middle = _middle(fields, sequences, len(content))
        if marshalled is None:
            return b"".join((head, middle, content, NULL, tail))
        return b"".join((head, middle, content, BYTE_AND_INT.pack(1, len(marshalled)), marshalled, tail))

    def _id_head(self, kind: MessageType) -> bytes:
        """Return what stands before the text view of the message id, outside a transaction."""
        head = self._id_heads.get(kind)
        if head is None:
            head = b"".join((kind.to_bytes(), self._prefix, NULL, NULL, PRESENT, ids.MESSAGE_ID.to_bytes()))
            self._id_heads[kind] = head
        return head

    def _head_in_transaction(self, fields: OpenWireMessage, text_view: str | None) -> bytes:
        """Return what stands before the sequence numbers of the message id."""
        head = fields.type.to_bytes() + self._prefix + ids.transaction_id(fields.transaction_id)
        if text_view is None:
            return head + self._message_id_head
        return b"".join((head, NULL, PRESENT, ids.MESSAGE_ID.to_bytes(), string(text_view), self._producer))


def _middle(fields: OpenWireMessage, sequences: tuple[int, int], length: int) -> bytes:
    """Return what stands between the message id and the content."""
    if (fields.group_id, fields.correlation_id, fields.reply_to, fields.jms_type) == _NONE_OF_FOUR:
        return _pack_middle(
            *sequences, 0, 0, fields.group_sequence, 0, fields.persistent, fields.expiration, fields.priority, 0,
            fields.timestamp, 0, 1, length,
        )  # fmt: skip
    return b"".join(
        (
            SEQUENCES.pack(*sequences),
            NULL,
            string(fields.group_id),
            INT.pack(fields.group_sequence),
            string(fields.correlation_id),
            DELIVERY.pack(fields.persistent, fields.expiration, fields.priority),
            ids.destination(fields.reply_to),
            LONG.pack(fields.timestamp),
            string(fields.jms_type),
            BYTE_AND_INT.pack(1, length),
        )
    )
