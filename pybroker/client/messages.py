"""`Message`, which a consumer returns, and `Outgoing`, which a producer sends.

The type of the body determines the JMS type of the message, unless `kind` names it: `str` makes a TextMessage, `bytes`
a BytesMessage, a mapping a MapMessage, a list a StreamMessage, and None a message without body. Java's number types
(`Byte`, `Short`, `Long`, `Float`, `Char`, of `pybroker.broker.domain.openwire.values`) are kept in both directions.
"""

import enum
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import PRIORITY_DEFAULT
from pybroker.broker.domain.openwire.values import Value
from pybroker.client.errors import UnreadableMessage

Body: TypeAlias = str | bytes | Mapping[str, Value] | Sequence[Value] | None
Properties: TypeAlias = Mapping[str, Value]


class Kind(enum.StrEnum):
    """The JMS message types. A send names one where the body's Python type fits two of them."""

    MESSAGE = "message"
    """A message without body."""
    TEXT = "text"
    """The body is `str`; None for a null text."""
    BYTES = "bytes"
    MAP = "map"
    STREAM = "stream"
    OBJECT = "object"
    """The body is `bytes` in Java's serialization; None for a null object."""
    BLOB = "blob"
    """The body is a mapping with `url`, `mime_type` and `deleted_by_broker`; the content is stored at the URL."""


class _BodyRepr(reprlib.Repr):
    """Formats the beginning of a body, for `Message.__repr__`."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80
        self.maxdict = self.maxlist = 8
        self.maxlevel = 3

    def repr_bytes(self, content: bytes, _: int) -> str:
        """Format the beginning of bytes; the base class would format all of them first."""
        return repr(content) if len(content) <= self.maxother else f"{content[: self.maxother]!r}..."


_BODY_REPR: Final = _BodyRepr()


class DeliveryState(enum.Enum):
    """The state of a delivery, as the client sees it."""

    WAITING = enum.auto()
    """The client has prefetched the message, and the application has not received it."""
    DELIVERED = enum.auto()
    """The application has received the message."""
    ACKNOWLEDGED = enum.auto()
    """The application has acknowledged the message. The broker may not have the acknowledgement yet."""
    GIVEN_BACK = enum.auto()
    """The application has given the message back, for any consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to send. Sent again, it is the same message with the same id.

    Attributes:
        producer: the number of its producer on the connection.
        sequence: the number of the message within its producer, from 1. Both numbers are the message's id.
        destination: the destination.
        body: the body; the module documents its types.
        properties: the properties by name.
        persistent: when the broker has answered, the message survives a crash of the broker.
        priority: 0 to 9.
        timestamp: the time of the send, in milliseconds since the epoch.
        expiration: the time when the message expires, in milliseconds since the epoch; 0 for never.
        reply_to: the destination for a reply.
        correlation_id: the id that relates a reply to its request (`JMSCorrelationID`).
        type: the application's type (`JMSType`).
        group_id: the message group (`JMSXGroupID`).
        group_sequence: the position in the group (`JMSXGroupSeq`).
        kind: the JMS message type; None for the default of the body's Python type.
        transaction: the number of its transaction; None for none.
        redelivery_count: the number of deliveries of the message of which this is a copy; 0 for a new message.
    """

    producer: int
    sequence: int
    destination: Destination
    body: Body
    properties: Properties = field(default_factory=dict[str, Value])
    persistent: bool = True
    priority: int = PRIORITY_DEFAULT
    timestamp: int = 0
    expiration: int = 0
    reply_to: Destination | None = None
    correlation_id: str | None = None
    type: str | None = None
    group_id: str | None = None
    group_sequence: int = 0
    kind: Kind | None = None
    transaction: int | None = None
    redelivery_count: int = 0


@dataclass(slots=False, kw_only=True, eq=False, repr=False)
class Message:
    """A received message.

    Attributes:
        id: the message id (`JMSMessageID`).
        destination: the destination that it was sent to.
        read_body: decodes the body.
        read_properties: decodes the properties.
        redelivery_count: the number of earlier deliveries, to any consumer.
        persistent: the message survives a crash of the broker.
        priority: 0 to 9.
        timestamp: the time of the send, in milliseconds since the epoch.
        expiration: the time when the message expires, in milliseconds since the epoch; 0 for never.
        reply_to: the destination for a reply.
        correlation_id: the id that relates a reply to its request (`JMSCorrelationID`).
        type: the application's type (`JMSType`).
        group_id: the message group (`JMSXGroupID`).
        group_sequence: the position in the group (`JMSXGroupSeq`).
        kind: the JMS message type; None if the protocol does not transmit it. Over STOMP an empty body may be an empty
            text, or a map, stream or object, which STOMP does not transmit.
        source: the queue or topic that delivered it: for a message of a virtual topic, or to a composite destination,
            not the one it was sent to; None if the protocol does not transmit it.
        consumer: the number of the consumer that received it.
        receipt: the data that the conversation needs to acknowledge this delivery.
        delivery_state: the state of this delivery.
        on_ack: the function that `ack` calls.
    """

    id: str
    destination: Destination
    read_body: Callable[[], Body]
    read_properties: Callable[[], Properties]
    redelivery_count: int = 0
    persistent: bool = True
    priority: int = PRIORITY_DEFAULT
    timestamp: int = 0
    expiration: int = 0
    reply_to: Destination | None = None
    correlation_id: str | None = None
    type: str | None = None
    group_id: str | None = None
    group_sequence: int = 0
    kind: Kind | None = None
    source: Destination | None = None
    consumer: int = 0
    receipt: object = None
    delivery_state: DeliveryState = DeliveryState.WAITING
    on_ack: "Callable[[Message], None] | None" = None

    def __repr__(self) -> str:
        """Return destination, id and the beginning of the body, for a log or a terminal."""
        try:
            body = _BODY_REPR.repr(self.body)
        except UnreadableMessage as error:
            body = f"unreadable: {error}"
        again = ", redelivered" if self.redelivered else ""
        return f"<Message {self.destination}, {self.id}{again}, {body}>"

    @cached_property
    def body(self) -> Body:
        """The body, decoded at the first access.

        Raises:
            UnreadableMessage: the body is damaged.
        """
        return self.read_body()

    @cached_property
    def properties(self) -> Properties:
        """The properties by name, decoded at the first access.

        Raises:
            UnreadableMessage: the properties are damaged.
        """
        return self.read_properties()

    @property
    def redelivered(self) -> bool:
        """True if the message was delivered before (`JMSRedelivered`): it may be a duplicate."""
        return self.redelivery_count > 0

    def ack(self) -> None:
        """Acknowledge the message, so that it is not redelivered. Does not block; a second call does nothing.

        With `ack="client"` this also acknowledges all messages that the consumer returned before this one.

        Raises:
            ConnectionClosed: the consumer is closed, and the message will be redelivered.
        """
        if self.on_ack is not None:
            self.on_ack(self)
