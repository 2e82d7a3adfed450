"""The commands of a KahaDB journal and their encoding: the payload of a user record.

```text
+--------------+-----------------+-------------------------+
| command type | length          | fields                  |
| u8           | protobuf varint | protobuf, length bytes  |
+--------------+-----------------+-------------------------+
```

The codec is written by hand for two reasons: in `KahaLocalTransactionId` two fields share the number 1 and differ in
wire type only, which no protobuf compiler accepts; and it runs once per message, live and at recovery.

ActiveMQ writes fields in ascending order, and one it has set even when the value is the default. `encode` does the
same, so a record of a real broker survives `encode(decode(payload))` byte for byte.

Marshalled OpenWire objects (messages, acks, subscription infos) have a size in front of them on disk (i32). It repeats
the field's length, so the codec adds and removes it: here such bytes begin with the data type.

Source: ActiveMQ 5.17, `journal-data.proto`.
"""

import enum
from collections.abc import Callable
from functools import lru_cache
from mmap import mmap
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, assert_never

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.message import PRIORITY_DEFAULT, Message
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.journal.acks import prepared_ack
from pybroker.store.journal.format import RECORD_HEADER_BYTES, USER_RECORD
from pybroker.store.journal.malformed import MalformedRecord, UnknownCommand
from pybroker.store.journal.protobuf import (
    SIZE_PREFIX,
    Fields,
    bytes_field,
    number_field,
    read_varint,
    sized,
    text_field,
    varint,
)

CACHED_DESTINATIONS = 4096
"""Destinations whose encoding is cached; further ones are encoded each time, at about a microsecond each."""
CACHED_TRANSACTIONS = 1024
"""Transactions that are open at once, in a busy broker."""


class CommandType(enum.IntEnum):
    """First byte of a payload."""

    TRACE = 0
    ADD_MESSAGE = 1
    REMOVE_MESSAGE = 2
    PREPARE = 3
    COMMIT = 4
    ROLLBACK = 5
    REMOVE_DESTINATION = 6
    SUBSCRIPTION = 7
    PRODUCER_AUDIT = 8
    ACK_MESSAGE_FILE_MAP = 9
    UPDATE_MESSAGE = 10
    ADD_SCHEDULED_JOB = 11
    RESCHEDULE_JOB = 12
    REMOVE_SCHEDULED_JOB = 13
    REMOVE_SCHEDULED_JOBS = 14
    DESTROY_SCHEDULER = 15
    REWRITTEN_DATA_FILE = 16


_ADD_MESSAGE = int(CommandType.ADD_MESSAGE)
_REMOVE_MESSAGE = int(CommandType.REMOVE_MESSAGE)
"""For the hot path: looking a member up in an enum takes longer than comparing two numbers."""


# ---------------------------------------------------------------- messages


class AddMessage(NamedTuple):
    """A message was stored.

    Attributes:
        destination: where it lies.
        message_id: what acks name.
        data: the message, OpenWire v11 from its data type on.
        priority: 0 to 9.
        priority_supported: the destination dispatches by priority; otherwise the store ignores it.
        transaction: takes effect at its commit.
    """

    destination: Destination
    message_id: str
    data: bytes
    priority: int = PRIORITY_DEFAULT
    priority_supported: bool = False
    transaction: TransactionId | None = None


class RemoveMessage(NamedTuple):
    """A queue's message was consumed, or a durable subscription is done with a topic's message.

    Attributes:
        destination: where the message lies.
        message_id: which message.
        ack: the consumer's `MessageAck`; empty: the subscription's selector did not match; None: not recorded.
            ActiveMQ wants to read it back only for an ack in a prepared transaction.
        subscription_key: the durable subscription; None on a queue.
        transaction: takes effect at its commit.
    """

    destination: Destination
    message_id: str
    ack: bytes | None = None
    subscription_key: str | None = None
    transaction: TransactionId | None = None


class UpdateMessage(NamedTuple):
    """A stored message was replaced by a new version of itself (ActiveMQ's `persistJMSRedelivered`)."""

    message: AddMessage


# ---------------------------------------------------------------- transactions, destinations, subscriptions


class Prepare(NamedTuple):
    """A transaction was prepared: its outcome is up to its coordinator from here on."""

    transaction: TransactionId


class Commit(NamedTuple):
    """A transaction's operations take effect, here and in their order."""

    transaction: TransactionId


class Rollback(NamedTuple):
    """A transaction's operations never happened."""

    transaction: TransactionId


class RemoveDestination(NamedTuple):
    """A destination and all it held is gone."""

    destination: Destination


class Subscribe(NamedTuple):
    """A durable subscription was made or changed (`KahaSubscriptionCommand` with a subscription info).

    Attributes:
        destination: the concrete topic; one command per topic for a wildcard.
        subscription_key: `<client id>:<subscription name>`.
        info: OpenWire v11 `SubscriptionInfo`, from its data type on.
        retroactive: it also gets what other subscriptions still have pending.
    """

    destination: Destination
    subscription_key: str
    info: bytes
    retroactive: bool = False


class Unsubscribe(NamedTuple):
    """A durable subscription ended (`KahaSubscriptionCommand` without a subscription info)."""

    destination: Destination
    subscription_key: str


# ---------------------------------------------------------------- the journal's own business


class Trace(NamedTuple):
    """A metadata record. ActiveMQ records its start, and writes an empty one in order to sync."""

    message: str | None = None


class ProducerAudit(NamedTuple):
    """ActiveMQ's memory of message ids seen, a serialized Java object. Without effect on contents."""

    audit: bytes


class AckMessageFileMap(NamedTuple):
    """ActiveMQ's records for its garbage collection, a serialized Java object. Without effect on contents."""

    file_map: bytes


class RewrittenDataFile(NamedTuple):
    """First record of a compacted data file: what follows was copied from a file that may be gone.

    Attributes:
        source_file_id: the file whose acks and commits were copied.
        rewrite_type: 1, acks.
        skip_if_source_exists: ActiveMQ ignores this file when the source is still there.
    """

    source_file_id: int
    rewrite_type: int = 1
    skip_if_source_exists: bool = True


# ---------------------------------------------------------------- the scheduler's journal


class AddScheduledJob(NamedTuple):
    """A message is to be sent later, once or repeatedly. Times and periods are in milliseconds.

    Attributes:
        scheduler: the scheduler's name, `JMS` for the broker's own.
        job_id: names the job.
        start_time: when it was scheduled, since the epoch.
        cron_entry: crontab-like times, empty for none.
        delay: before the first time.
        period: between times.
        repeat: further times; -1 forever.
        payload: the message, OpenWire v11 from its data type on.
        next_execution_time: since the epoch.
    """

    scheduler: str
    job_id: str
    start_time: int
    cron_entry: str
    delay: int
    period: int
    repeat: int
    payload: bytes
    next_execution_time: int


class RescheduleJob(NamedTuple):
    """A job that was due at one time is due at another; times in milliseconds since the epoch."""

    scheduler: str
    job_id: str
    execution_time: int
    next_execution_time: int
    rescheduled_count: int


class RemoveScheduledJob(NamedTuple):
    """A job is done or cancelled at that time (milliseconds since the epoch), or wherever it is when -1."""

    scheduler: str
    job_id: str
    next_execution_time: int


class RemoveScheduledJobs(NamedTuple):
    """All jobs due in a range of times are cancelled: milliseconds since the epoch, both ends included."""

    scheduler: str
    start_time: int
    end_time: int


class DestroyScheduler(NamedTuple):
    """A scheduler and all its jobs are gone."""

    scheduler: str


Command = (
    AddMessage
    | RemoveMessage
    | Commit
    | Rollback
    | Prepare
    | UpdateMessage
    | Subscribe
    | Unsubscribe
    | RemoveDestination
    | Trace
    | ProducerAudit
    | AckMessageFileMap
    | RewrittenDataFile
    | AddScheduledJob
    | RescheduleJob
    | RemoveScheduledJob
    | RemoveScheduledJobs
    | DestroyScheduler
)


# ---------------------------------------------------------------- encoding


def encode_add_record(
    message: Message, transaction: TransactionId | None = None, *, priority_supported: bool = False
) -> bytes:
    """Return the whole user record of an `AddMessage`: the hot path, which copies the message's bytes once."""
    before, data, after = _add_parts(
        message.destination, message.message_id, message.data, message.priority, priority_supported, transaction
    )
    return b"".join((_record_head(_ADD_MESSAGE, len(before) + len(data) + len(after)), before, data, after))


def encode_add_pieces(
    message: Message, transaction: TransactionId | None = None, *, priority_supported: bool = False
) -> tuple[bytes, bytes, bytes]:
    """Return the record of `encode_add_record` in pieces, of which one is the message's own bytes, not a copy."""
    before, data, after = _add_parts(
        message.destination, message.message_id, message.data, message.priority, priority_supported, transaction
    )
    return _record_head(_ADD_MESSAGE, len(before) + len(data) + len(after)) + before, data, after


def encode_remove_record(
    destination: Destination,
    message_id: str,
    transaction: TransactionId | None = None,
    subscription_key: str | None = None,
) -> bytes:
    """Return the whole user record of a `RemoveMessage`: the hot path.

    It has an ack in an XA transaction only, see `prepared_ack`; others are never read.
    """
    ack = None
    if transaction is not None and isinstance(transaction, XATransactionId):
        ack = prepared_ack(destination, message_id, transaction)
    body = _remove_body(destination, message_id, ack, subscription_key, transaction)
    return _record_head(_REMOVE_MESSAGE, len(body)) + body


def encode_job_pieces(job: AddScheduledJob) -> tuple[bytes, bytes, bytes]:
    """Return the whole user record of an `AddScheduledJob`, with the message's bytes as they are."""
    before, data, after = _scheduled_job_parts(job)
    head = _record_head(CommandType.ADD_SCHEDULED_JOB, len(before) + len(data) + len(after))
    return head + before, data, after


def find_payload(record: bytes) -> tuple[str, int, int]:
    """Return the job id of an `AddScheduledJob`, and offset and size of its message, in the beginning of its record.

    Raises:
        MalformedRecord: it is no such record, or the message begins later.
    """
    try:
        if record[RECORD_HEADER_BYTES] == CommandType.ADD_SCHEDULED_JOB:
            _, position = read_varint(record, RECORD_HEADER_BYTES + 1)
            job_id = ""
            while True:
                tag, (value, position) = record[position], read_varint(record, position + 1)
                if tag == 0x42:
                    (size,) = _size_at(record, position)
                    if size == value - SIZE_PREFIX.size:
                        return job_id, position + SIZE_PREFIX.size, size
                    break
                if tag & 7:  # delimited; the others are numbers
                    if tag == 0x12:
                        job_id = record[position : position + value].decode()
                    position += value
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise MalformedRecord(f"a job does not begin as one: {error}") from error
    raise MalformedRecord("another record where a job should be")


def encode(command: Command) -> bytes:
    """Return a command's payload, as ActiveMQ would write it."""
    kind, body = _body(command)
    return b"%c%b%b" % (kind, varint(len(body)), body)


_size_at = SIZE_PREFIX.unpack_from
_RECORD_HEAD = Struct(">iBB")
"""A user record's header (see `format`), and the command type."""


def _record_head(kind: int, size: int) -> bytes:
    """Return what a user record has before a command's fields, `size` bytes of them."""
    length = varint(size)
    return _RECORD_HEAD.pack(RECORD_HEADER_BYTES + 1 + len(length) + size, USER_RECORD, kind) + length


def _body(command: Command) -> tuple[CommandType, bytes]:
    # One flat table with a line or two per command: it reads better whole.
    match command:
        case AddMessage():
            return CommandType.ADD_MESSAGE, _add_body(command)
        case RemoveMessage():
            return CommandType.REMOVE_MESSAGE, _remove_body(*command)
        case Commit(transaction):
            return CommandType.COMMIT, _transaction_field(transaction)
        case Rollback(transaction):
            return CommandType.ROLLBACK, _transaction_field(transaction)
        case Prepare(transaction):
            return CommandType.PREPARE, _transaction_field(transaction)
        case UpdateMessage(message):
            return CommandType.UPDATE_MESSAGE, bytes_field(0x0A, _add_body(message))
        case Subscribe(destination, key, info, retroactive):
            created = number_field(0x18, retroactive) + bytes_field(0x22, sized(info))
            return CommandType.SUBSCRIPTION, _subscription_prefix(destination, key) + created
        case Unsubscribe(destination, key):
            return CommandType.SUBSCRIPTION, _subscription_prefix(destination, key)
        case RemoveDestination(destination):
            return CommandType.REMOVE_DESTINATION, bytes_field(0x0A, _destination(destination))
        case Trace(text):
            return CommandType.TRACE, b"" if text is None else text_field(0x0A, text)
        case ProducerAudit(audit):
            return CommandType.PRODUCER_AUDIT, bytes_field(0x0A, audit)
        case AckMessageFileMap(file_map):
            return CommandType.ACK_MESSAGE_FILE_MAP, bytes_field(0x0A, file_map)
        case RewrittenDataFile(source_file_id, rewrite_type, skip):
            body = number_field(0x08, source_file_id) + number_field(0x10, rewrite_type)
            return CommandType.REWRITTEN_DATA_FILE, body if skip else body + number_field(0x18, False)
        case AddScheduledJob():
            return CommandType.ADD_SCHEDULED_JOB, b"".join(_scheduled_job_parts(command))
        case RescheduleJob(scheduler, job_id, execution, next_execution, count):
            times = number_field(0x18, execution) + number_field(0x20, next_execution) + number_field(0x28, count)
            return CommandType.RESCHEDULE_JOB, text_field(0x0A, scheduler) + text_field(0x12, job_id) + times
        case RemoveScheduledJob(scheduler, job_id, next_execution):
            body = text_field(0x0A, scheduler) + text_field(0x12, job_id) + number_field(0x18, next_execution)
            return CommandType.REMOVE_SCHEDULED_JOB, body
        case RemoveScheduledJobs(scheduler, start, end):
            body = text_field(0x0A, scheduler) + number_field(0x10, start) + number_field(0x18, end)
            return CommandType.REMOVE_SCHEDULED_JOBS, body
        case DestroyScheduler(scheduler):
            return CommandType.DESTROY_SCHEDULER, text_field(0x0A, scheduler)
    assert_never(command)


def _add_body(command: AddMessage) -> bytes:
    return b"".join(_add_parts(*command))


def _add_parts(
    destination: Destination,
    message_id: str,
    data: bytes,
    priority: int,
    priority_supported: bool,
    transaction: TransactionId | None,
) -> tuple[bytes, bytes, bytes]:
    """Return what comes before the message's bytes, these bytes, and what follows them."""
    text = message_id.encode("utf-8", "replace")
    size = len(data)
    before = b'%b%b\x1a%b%b"%b%b' % (
        _transaction_field(transaction) if transaction is not None else b"",
        destination_field(destination),
        varint(len(text)),
        text,
        varint(SIZE_PREFIX.size + size),
        SIZE_PREFIX.pack(size),
    )
    return before, data, _priority_fields(priority, priority_supported)


def _remove_body(
    destination: Destination,
    message_id: str,
    ack: bytes | None,
    subscription_key: str | None,
    transaction: TransactionId | None,
) -> bytes:
    text = message_id.encode("utf-8", "replace")
    return b"%b%b\x1a%b%b%b%b" % (
        _transaction_field(transaction) if transaction is not None else b"",
        destination_field(destination),
        varint(len(text)),
        text,
        b"" if ack is None else bytes_field(0x22, sized(ack) if ack else b""),
        b"" if subscription_key is None else _subscription_key_field(subscription_key),
    )


def _subscription_prefix(destination: Destination, subscription_key: str) -> bytes:
    return bytes_field(0x0A, _destination(destination)) + text_field(0x12, subscription_key)


def _scheduled_job_parts(job: AddScheduledJob) -> tuple[bytes, bytes, bytes]:
    """Return the fields before the payload's bytes, those, and the fields after them."""
    size = len(job.payload)
    before = (
        text_field(0x0A, job.scheduler),
        text_field(0x12, job.job_id),
        number_field(0x18, job.start_time),
        text_field(0x22, job.cron_entry),
        number_field(0x28, job.delay),
        number_field(0x30, job.period),
        number_field(0x38, job.repeat),
        b"\x42" + varint(SIZE_PREFIX.size + size) + SIZE_PREFIX.pack(size),
    )
    return b"".join(before), job.payload, number_field(0x48, job.next_execution_time)


@lru_cache(CACHED_DESTINATIONS)
def destination_field(destination: Destination) -> bytes:
    """Return the field with the destination of an add or a remove."""
    return bytes_field(0x12, _destination(destination))


def _destination(destination: Destination) -> bytes:
    return number_field(0x08, destination.type) + text_field(0x12, destination.name)


@lru_cache(CACHED_TRANSACTIONS)
def _transaction_field(transaction: TransactionId) -> bytes:
    if isinstance(transaction, LocalTransactionId):
        local = text_field(0x0A, transaction.connection_id) + number_field(0x08, transaction.value)
        return bytes_field(0x0A, bytes_field(0x0A, local))
    xa = b"".join(
        (
            number_field(0x08, transaction.format_id),
            bytes_field(0x12, transaction.branch_qualifier),
            bytes_field(0x1A, transaction.global_transaction_id),
        )
    )
    return bytes_field(0x0A, bytes_field(0x12, xa))


@lru_cache(CACHED_DESTINATIONS)
def _subscription_key_field(subscription_key: str) -> bytes:
    return text_field(0x2A, subscription_key)


@lru_cache(64)
def _priority_fields(priority: int, priority_supported: bool) -> bytes:
    return number_field(0x28, priority) + number_field(0x30, priority_supported)


# ---------------------------------------------------------------- decoding


def decode(payload: bytes) -> Command:
    """Return the command a user record's payload stands for. Fields this codec does not know are skipped.

    Raises:
        UnknownCommand: the payload is well formed, and its type is none of ours.
        MalformedRecord: the payload is no command.
    """
    try:
        kind = payload[0]
        length, position = read_varint(payload, 1)
        if position + length != len(payload):
            raise MalformedRecord(f"the command has {len(payload) - position} bytes, its length says {length}")
        if kind >= len(_DECODERS):
            raise UnknownCommand(f"unknown command type {kind}")
        if kind == _ADD_MESSAGE:
            usual = _decode_usual_add(payload, position)
            if usual is not None:
                return usual
        return _DECODERS[kind](Fields(payload, position))
    except IndexError:
        raise MalformedRecord("the command ends in the middle of a field") from None
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"a text is not UTF-8: {error.reason}") from error


UsualAdd = tuple[Destination, str, int, int, int, int]
"""Destination, message id, offset and size of the message, priority, and (0: no) if the store uses it."""


def usual_add(data: bytes | mmap, position: int, end: int) -> UsualAdd | None:
    """Return the fields of an add without a transaction, from its bytes in place; no message is built.

    For the shape in which every broker writes most adds: the fields once each and in order, texts shorter than 128
    bytes, so that the lengths lead from field to field. Anything else, None for it, is for `decode`.

    Args:
        data: the payload, or bytes around it.
        position: where its fields begin, behind command type and length.
        end: where it ends.

    Raises:
        IndexError: `data` ends inside a field.
        UnicodeDecodeError: a text is not UTF-8.
        MalformedRecord: the destination does not decode.
    """
    destination = position + 2
    destination_end = destination + data[position + 1]
    # In the usual shape these tags are where the lengths lead; an unusual one may end before.
    if destination_end + 1 >= end or data[position] != 0x12 or data[position + 1] >= 0x80:
        return None
    message_id = destination_end + 2
    message_id_end = message_id + data[destination_end + 1]
    if message_id_end >= end or data[destination_end] != 0x1A or data[destination_end + 1] >= 0x80:
        return None
    if data[message_id_end] != 0x22:
        return None
    length, marshalled = read_varint(data, message_id_end + 1)
    after = marshalled + length
    if after + 4 != end or data[after] != 0x28 or data[after + 2] != 0x30:
        return None
    priority, supported = data[after + 1], data[after + 3]
    size = length - SIZE_PREFIX.size
    if priority | supported >= 0x80 or size < 0 or _size_at(data, marshalled)[0] != size:
        return None
    return (
        _decode_destination(data[destination:destination_end]),
        data[message_id:message_id_end].decode(),
        marshalled + SIZE_PREFIX.size,
        size,
        priority,
        supported,
    )


def _decode_usual_add(data: bytes, position: int) -> AddMessage | None:
    """Return an add in the usual shape, or None: twice as fast as field by field."""
    found = usual_add(data, position, len(data))
    if found is None:
        return None
    destination, message_id, offset, size, priority, supported = found
    return AddMessage(destination, message_id, data[offset : offset + size], priority, supported != 0)


def _decode_add(fields: Fields) -> AddMessage:
    transaction = fields.chunks.get(0x0A)
    return AddMessage(
        _decode_destination(fields.chunk(0x12)),
        fields.text(0x1A),
        fields.marshalled(0x22),
        fields.number(0x28, PRIORITY_DEFAULT),
        fields.number(0x30, 0) != 0,
        None if transaction is None else _decode_transaction(transaction),
    )


def _decode_remove(fields: Fields) -> RemoveMessage:
    chunks = fields.chunks
    transaction = chunks.get(0x0A)
    subscription_key = chunks.get(0x2A)
    ack = chunks.get(0x22)
    return RemoveMessage(
        _decode_destination(fields.chunk(0x12)),
        fields.text(0x1A),
        fields.marshalled(0x22) if ack else ack,
        None if subscription_key is None else subscription_key.decode(),
        None if transaction is None else _decode_transaction(transaction),
    )


def _decode_subscription(fields: Fields) -> Subscribe | Unsubscribe:
    destination = _decode_destination(fields.chunk(0x0A))
    if 0x22 not in fields.chunks:
        return Unsubscribe(destination, fields.text(0x12))
    return Subscribe(destination, fields.text(0x12), fields.marshalled(0x22), fields.number(0x18, 0) != 0)


def _decode_trace(fields: Fields) -> Trace:
    return Trace(fields.text(0x0A) if 0x0A in fields.chunks else None)


def _decode_scheduled_job(fields: Fields) -> AddScheduledJob:
    return AddScheduledJob(
        scheduler=fields.text(0x0A),
        job_id=fields.text(0x12),
        start_time=fields.number(0x18),
        cron_entry=fields.text(0x22),
        delay=fields.number(0x28),
        period=fields.number(0x30),
        repeat=fields.number(0x38),
        payload=fields.marshalled(0x42),
        next_execution_time=fields.number(0x48),
    )


@lru_cache(CACHED_DESTINATIONS)
def _decode_destination(data: bytes) -> Destination:
    fields = Fields(data)
    kind = fields.number(0x08, 0)
    if not 0 <= kind <= DestinationType.TEMP_TOPIC:
        raise MalformedRecord(f"unknown destination type {kind}")
    return Destination(DestinationType(kind), fields.text(0x12))


@lru_cache(CACHED_TRANSACTIONS)
def _decode_transaction(data: bytes) -> TransactionId:
    info = Fields(data)
    if 0x0A in info.chunks:
        local = Fields(info.chunks[0x0A])
        return LocalTransactionId(local.text(0x0A), local.number(0x08))
    xa = Fields(info.chunk(0x12))
    return XATransactionId(xa.number(0x08), xa.chunk(0x1A), xa.chunk(0x12))


_DECODERS: tuple[Callable[[Fields], Command], ...] = (
    _decode_trace,
    _decode_add,
    _decode_remove,
    lambda fields: Prepare(_decode_transaction(fields.chunk(0x0A))),
    lambda fields: Commit(_decode_transaction(fields.chunk(0x0A))),
    lambda fields: Rollback(_decode_transaction(fields.chunk(0x0A))),
    lambda fields: RemoveDestination(_decode_destination(fields.chunk(0x0A))),
    _decode_subscription,
    lambda fields: ProducerAudit(fields.chunk(0x0A)),
    lambda fields: AckMessageFileMap(fields.chunk(0x0A)),
    lambda fields: UpdateMessage(_decode_add(Fields(fields.chunk(0x0A)))),
    _decode_scheduled_job,
    lambda fields: RescheduleJob(
        fields.text(0x0A), fields.text(0x12), fields.number(0x18), fields.number(0x20), fields.number(0x28)
    ),
    lambda fields: RemoveScheduledJob(fields.text(0x0A), fields.text(0x12), fields.number(0x18)),
    lambda fields: RemoveScheduledJobs(fields.text(0x0A), fields.number(0x10), fields.number(0x18)),
    lambda fields: DestroyScheduler(fields.text(0x0A)),
    lambda fields: RewrittenDataFile(fields.number(0x08), fields.number(0x10), fields.number(0x18, 1) != 0),
)
"""By command type."""
