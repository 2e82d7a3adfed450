"""Messages: `Message`, which a consumer gives, and `Outgoing`, which a producer takes.

The body's type is the message's kind unless `kind` names it: `str` is a TextMessage, `bytes` a BytesMessage, a mapping
a MapMessage, a list a StreamMessage, None a message without body. Java's narrower numbers (`Byte`, `Short`, `Long`,
`Float`, `Char`, of `pybroker.broker.domain.openwire.values`) are kept where they come from Java, and are sent as what
they are.
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

RESENT: Final = "JMS_pybroker_resent"
"""Property of a message that is sent again after a reconnect. Whoever gets it may have had it before: a broker may have
given it out, and died before it was on disk. JMS keeps names that begin so for providers."""


class Kind(enum.StrEnum):
    """JMS's types of message, for bodies whose Python type fits two of them."""

    MESSAGE = "message"
    """Without body."""
    TEXT = "text"
    """`str`; None for a null text."""
    BYTES = "bytes"
    MAP = "map"
    STREAM = "stream"
    OBJECT = "object"
    """`bytes` in Java's serialization; None for a null object."""
    BLOB = "blob"
    """A mapping with `url`, `mime_type` and `deleted_by_broker`: the content itself is elsewhere."""


class _Short(reprlib.Repr):
    """Writes the beginning of a body, however large that is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80
        self.maxdict = self.maxlist = 8
        self.maxlevel = 3

    def repr_bytes(self, content: bytes, _: int) -> str:
        """Write bytes; the base class would write all of them first."""
        return repr(content) if len(content) <= self.maxother else f"{content[: self.maxother]!r}..."


_SHORT: Final = _Short()


class Standing(enum.Enum):
    """How far a received message has come."""

    WAITING = enum.auto()
    """It is here, and the application has not asked for it yet."""
    HELD = enum.auto()
    """The application has it."""
    SETTLED = enum.auto()
    """The application is done with it; the broker may not know yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to send, with everything that makes it the same message when it is sent again.

    Attributes:
        producer: number of its producer on the connection.
        sequence: the producer's number of the message, from 1; with the producer it is the message's id.
        destination: where to.
        body: see the module.
        properties: by name.
        persistent: survives a crash of the broker once it is answered.
        priority: 0 to 9.
        timestamp: when it was sent, milliseconds since the epoch.
        expiration: when it is dead, milliseconds since the epoch; 0 for never.
        reply_to: where an answer goes.
        correlation_id: what it answers, or what the answer shall say.
        type: the application's type (`JMSType`).
        group_id: message group (`JMSXGroupID`).
        group_sequence: its place in the group (`JMSXGroupSeq`).
        kind: JMS's type of message; None for the one that the body's Python type suggests.
        transaction: number of the transaction it is sent in.
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


@dataclass(slots=False, kw_only=True, eq=False, repr=False)
class Message:
    """A received message.

    Attributes:
        id: as JMS shows it (`JMSMessageID`).
        destination: where it was sent to.
        redelivery_count: how often it was given out before, to anyone.
        persistent: it survives a crash of the broker.
        priority: 0 to 9.
        timestamp: when it was sent, milliseconds since the epoch.
        expiration: when it is dead, milliseconds since the epoch; 0 for never.
        reply_to: where the sender wants an answer.
        correlation_id: what it answers.
        type: the application's type (`JMSType`).
        group_id: message group (`JMSXGroupID`).
        group_sequence: its place in the group (`JMSXGroupSeq`).
        kind: JMS's type of message; None when the protocol does not tell: over STOMP an empty body may be an empty
            text, or a map, stream or object, which STOMP does not carry.
        consumer: number of the consumer that gave it.
        receipt: what the conversation needs to acknowledge this delivery of it.
        standing: how far it has come.
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
    consumer: int = 0
    receipt: object = None
    standing: Standing = Standing.WAITING
    settle: "Callable[[Message], None] | None" = None

    def __repr__(self) -> str:
        """Return destination, id and the beginning of the body, for a log or a terminal."""
        try:
            body = _SHORT.repr(self.body)
        except UnreadableMessage as error:
            body = f"unreadable: {error}"
        again = ", redelivered" if self.redelivered else ""
        return f"<Message {self.destination}, {self.id}{again}, {body}>"

    @cached_property
    def body(self) -> Body:
        """The body; decoded when it is first asked for.

        Raises:
            UnreadableMessage: it is damaged.
        """
        return self.read_body()

    @cached_property
    def properties(self) -> Properties:
        """The properties by name; decoded when they are first asked for.

        Raises:
            UnreadableMessage: they are damaged.
        """
        return self.read_properties()

    @property
    def redelivered(self) -> bool:
        """True when it was given out before (`JMSRedelivered`): it may be a duplicate."""
        return self.redelivery_count > 0

    def ack(self) -> None:
        """Acknowledge it: the broker need not give it out again. Does not block; a second time does nothing.

        Of a consumer with `ack="client"` this acknowledges all messages that it gave before this one, too.

        Raises:
            ConnectionClosed: the consumer is closed, and the message will be given out again.
        """
        if self.settle is not None:
            self.settle(self)
