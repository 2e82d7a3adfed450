"""A message: its header, its properties, and the rest. The declarations are the schema, as those of performatives.

Source: AMQP 1.0, 3.2 "Message Format".
"""

# ruff: noqa: RUF009 -- the calls in these defaults are field specifiers, as `dataclasses.field` is

import enum
import uuid
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from pybroker.broker.domain.amqp.performatives import AmqpFields
from pybroker.broker.domain.amqp.schema import (
    binary,
    boolean,
    identifier,
    string,
    symbol,
    timestamp,
    ubyte,
    uint,
)
from pybroker.broker.domain.amqp.values import AmqpValue, Symbol, UnsignedLong

AmqpMessageId: TypeAlias = UnsignedLong | uuid.UUID | bytes | str
"""The id of a message, or of the one that it answers."""


@dataclass(slots=True, kw_only=True)
class AmqpMessageHeader:
    """header: how the message is delivered. `ttl` is in milliseconds."""

    DESCRIPTOR: ClassVar = 0x70
    NAME: ClassVar = "amqp:header:list"
    durable: bool | None = boolean()
    priority: int | None = ubyte()
    ttl: int | None = uint()
    first_acquirer: bool | None = boolean()
    delivery_count: int | None = uint()


@dataclass(slots=True, kw_only=True)
class AmqpMessageProperties:
    """properties: what its sender says of the message. Times are milliseconds since 1970."""

    DESCRIPTOR: ClassVar = 0x73
    NAME: ClassVar = "amqp:properties:list"
    message_id: AmqpMessageId | None = identifier()
    user_id: bytes | None = binary()
    to: str | None = string()
    subject: str | None = string()
    reply_to: str | None = string()
    correlation_id: AmqpMessageId | None = identifier()
    content_type: Symbol | None = symbol()
    content_encoding: Symbol | None = symbol()
    absolute_expiry_time: int | None = timestamp()
    creation_time: int | None = timestamp()
    group_id: str | None = string()
    group_sequence: int | None = uint()
    reply_to_group_id: str | None = string()


class AmqpBodyKind(enum.Enum):
    """The kind of a message's body: the sections that it consists of."""

    NONE = "none"
    DATA = "data"
    SEQUENCE = "amqp-sequence"
    VALUE = "amqp-value"


@dataclass(slots=True, kw_only=True)
class AmqpMessage:
    """A message.

    Attributes:
        header: None without one.
        delivery_annotations: None without them.
        message_annotations: None without them.
        properties: None without them.
        application_properties: None without them.
        body_kind: the kind of the body.
        body: a list of bytes for DATA, a list of lists for SEQUENCE, the value for VALUE, None for NONE.
        footer: None without one.
    """

    header: AmqpMessageHeader | None = None
    delivery_annotations: AmqpFields | None = None
    message_annotations: AmqpFields | None = None
    properties: AmqpMessageProperties | None = None
    application_properties: AmqpFields | None = None
    body_kind: AmqpBodyKind = AmqpBodyKind.NONE
    body: AmqpValue = None
    footer: AmqpFields | None = None
