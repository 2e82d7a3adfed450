"""What a journal holds besides messages: durable subscriptions and acknowledgements; and the journal's size prefix.

Source: OpenWire v11, `SubscriptionInfo` (55), `MessageAck` (22), throwables with their stack traces; loose, uncached.

```text
SubscriptionInfo 55 | str client id | obj destination | str selector | str name | obj subscribed destination
                    | u8 no local |
MessageAck       22 | i32 command id | u8 response required | obj destination | obj transaction id | obj consumer id
                    | i8 ack type | obj first message id | obj last message id | i32 message count
                    | throwable poison cause |
throwable           | u8 present | str class | str message | i16 n, n stack frames | throwable cause |
stack frame         | str class | str method | str file | i32 line |
size prefix         | i32 n | n bytes: data type and fields |
```
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.loose import (
    BYTE,
    INT,
    NULL,
    PRESENT,
    SHORT,
    MalformedOpenWire,
    Reader,
    UnencodableOpenWire,
    restored,
)
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId

SUBSCRIPTION_INFO: Final = 55
MESSAGE_ACK: Final = 22

CAUSES_MAX: Final = 100
"""Exceptions that caused one another."""

_COMMAND = Struct(">Bi?")


class AckType(IntEnum):
    """What a MessageAck says about its messages."""

    DELIVERED = 0
    POISON = 1
    STANDARD = 2
    REDELIVERED = 3
    INDIVIDUAL = 4
    UNMATCHED = 5
    EXPIRED = 6


class StackFrame(NamedTuple):
    """One call in a Java stack trace; line -1 is unknown, -2 native code."""

    class_name: str | None
    method: str | None
    file: str | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Throwable:
    """A Java exception: why a message could not be consumed."""

    class_name: str | None
    message: str | None = None
    stack: tuple[StackFrame, ...] = ()
    cause: "Throwable | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAck:
    """A consumer's acknowledgement of the messages from first to last, or of `last_message_id` alone.

    Attributes:
        ack_type: see `AckType`; a plain number, because another broker's may be unknown here.
        message_count: how many messages it covers.
        poison_cause: for POISON, why.
    """

    ack_type: int
    destination: Destination | None = None
    transaction_id: TransactionId | None = None
    consumer_id: ids.ConsumerId | None = None
    first_message_id: ids.OpenWireMessageId | None = None
    last_message_id: ids.OpenWireMessageId | None = None
    message_count: int = 0
    poison_cause: Throwable | None = None
    command_id: int = 0
    response_required: bool = False


def encode_subscription_info(subscription: DurableSubscription) -> bytes:
    """Encode a durable subscription from its data type on.

    Raises:
        UnencodableOpenWire: a name or the selector is too long.
    """
    return b"".join((
        SUBSCRIPTION_INFO.to_bytes(),
        restored(subscription.client_id),
        ids.destination(subscription.destination),
        restored(subscription.selector),
        restored(subscription.name),
        ids.destination(subscription.subscribed_destination),
        bytes((subscription.no_local,)),
    ))  # fmt: skip


def decode_subscription_info(data: bytes) -> DurableSubscription:
    """Decode a durable subscription from its data type on.

    Without a subscribed destination (brokers before 5.1 had none) it is the subscription's own.

    Raises:
        MalformedOpenWire: it is no subscription, or one without client id, name or destination.
    """
    reader = Reader(data)
    _expect(reader, SUBSCRIPTION_INFO, "a subscription")
    client_id = reader.string()
    destination = ids.read_destination(reader)
    selector = reader.string()
    name = reader.string()
    subscribed_destination = ids.read_destination(reader)
    no_local = reader.boolean()
    reader.end()
    if client_id is None or name is None or destination is None:
        raise MalformedOpenWire("a subscription without client id, name or destination")
    return DurableSubscription(
        client_id=client_id,
        name=name,
        destination=destination,
        subscribed_destination=subscribed_destination or destination,
        selector=selector,
        no_local=no_local,
    )


def encode_ack(ack: MessageAck) -> bytes:
    """Encode an acknowledgement from its data type on.

    Raises:
        UnencodableOpenWire: a string is too long, a number out of its range, or there are too many causes.
    """
    try:
        return b"".join((
            _COMMAND.pack(MESSAGE_ACK, ack.command_id, ack.response_required),
            ids.destination(ack.destination),
            ids.transaction_id(ack.transaction_id),
            ids.consumer_id(ack.consumer_id),
            BYTE.pack(ack.ack_type),
            ids.message_id(ack.first_message_id),
            ids.message_id(ack.last_message_id),
            INT.pack(ack.message_count),
            throwable(ack.poison_cause),
        ))  # fmt: skip
    except StructError as error:
        raise UnencodableOpenWire(f"a number out of its range: {error}") from error


def decode_ack(data: bytes) -> MessageAck:
    """Decode an acknowledgement from its data type on; nothing may be left over.

    Raises:
        MalformedOpenWire: it is no acknowledgement.
    """
    reader = Reader(data)
    _expect(reader, MESSAGE_ACK, "an acknowledgement")
    ack = MessageAck(
        command_id=reader.integer(),
        response_required=reader.boolean(),
        destination=ids.read_destination(reader),
        transaction_id=ids.read_transaction_id(reader),
        consumer_id=ids.read_consumer_id(reader),
        ack_type=reader.byte(),
        first_message_id=ids.read_message_id(reader),
        last_message_id=ids.read_message_id(reader),
        message_count=reader.integer(),
        poison_cause=read_throwable(reader),
    )
    reader.end()
    return ack


def throwable(value: Throwable | None) -> bytes:
    """Encode a nullable exception with its causes. Raises `UnencodableOpenWire` as `encode_ack` does."""
    out = bytearray()
    for _ in range(CAUSES_MAX):
        if value is None:
            return bytes(out) + NULL
        out += PRESENT + restored(value.class_name) + restored(value.message) + SHORT.pack(len(value.stack))
        for frame in value.stack:
            out += restored(frame.class_name) + restored(frame.method) + restored(frame.file) + INT.pack(frame.line)
        value = value.cause
    raise UnencodableOpenWire(f"an exception with more than {CAUSES_MAX - 1} causes")


def read_throwable(reader: Reader) -> Throwable | None:
    """Take a nullable exception, with its stack trace and causes.

    Raises:
        MalformedOpenWire: it is cut short, or has too many causes.
    """
    # From the outermost to the root cause, then put together from the root on.
    found: list[tuple[str | None, str | None, tuple[StackFrame, ...]]] = []
    while reader.boolean():
        if len(found) == CAUSES_MAX - 1:
            raise MalformedOpenWire(f"an exception with {CAUSES_MAX} causes or more")
        found.append((reader.string(), reader.string(), _read_stack(reader)))
    value: Throwable | None = None
    for class_name, message, stack in reversed(found):
        value = Throwable(class_name=class_name, message=message, stack=stack, cause=value)
    return value


def _read_stack(reader: Reader) -> tuple[StackFrame, ...]:
    count = reader.short()
    if count < 0:
        raise MalformedOpenWire(f"a stack trace of {count} frames")
    return tuple(
        StackFrame(reader.string(), reader.string(), reader.string(), reader.integer()) for _ in range(count)
    )  # fmt: skip


def with_size_prefix(data: bytes) -> bytes:
    """Return the bytes with their length before them, as a journal record holds an OpenWire object."""
    return INT.pack(len(data)) + data


def without_size_prefix(data: bytes) -> bytes:
    """Return what the size prefix announces.

    Raises:
        MalformedOpenWire: there is more or less of it.
    """
    reader = Reader(data)
    size = reader.integer()
    if size != reader.remaining:
        raise MalformedOpenWire(f"a size prefix of {size} before {reader.remaining} bytes")
    return data[4:]


def _expect(reader: Reader, data_type: int, what: str) -> None:
    found = reader.unsigned_byte()
    if found != data_type:
        raise MalformedOpenWire(f"data type {found} where {what} belongs")
