"""Decodes one user record's payload as a row of the table. The reference for `vectors`.

A row is a dictionary of those columns that have a value. Layers that are not requested are not decoded. A layer that
does not decode leaves the others intact, and `_corrupt_record` has the reason: a message with broken headers still has
its destination and its id.

Points in time are whole microseconds since the epoch, as Arrow keeps them.
"""

import base64
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from pybroker.broker.domain.big_endian import LONG
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.openwire import message as openwire
from pybroker.broker.domain.openwire.commands import AckType
from pybroker.broker.domain.openwire.layout import BROKER_IN_FROM_END
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.broker.domain.openwire.objects import decode_ack, decode_subscription_info
from pybroker.broker.domain.openwire.values import Float, Value
from pybroker.store.columns.schema import CORRUPT, Layer
from pybroker.store.journal.commands import (
    AddMessage,
    AddScheduledJob,
    Command,
    CommandType,
    Commit,
    DestroyScheduler,
    Prepare,
    RemoveDestination,
    RemoveMessage,
    RemoveScheduledJob,
    RemoveScheduledJobs,
    RescheduleJob,
    RewrittenDataFile,
    Rollback,
    Subscribe,
    Trace,
    Unsubscribe,
    UpdateMessage,
    decode,
)
from pybroker.store.journal.malformed import MalformedRecord

Row = dict[str, object]

DESTINATION_TYPES: Final = {
    DestinationType.QUEUE: "queue",
    DestinationType.TOPIC: "topic",
    DestinationType.TEMP_QUEUE: "temp-queue",
    DestinationType.TEMP_TOPIC: "temp-topic",
}
RECORD_TYPES: Final = tuple(kind.name.lower() for kind in CommandType)
"""Names by command type. A subscription record is `subscribe` or `unsubscribe` instead."""
UNKNOWN: Final = "unknown"
ACK_TYPES: Final = {int(kind): kind.name.lower() for kind in AckType if kind is not AckType.RELEASED}
"""Names by number, which have no gap. What was released was not removed: no record has that type."""
MESSAGE_TYPES: Final = {int(kind): kind.name.lower() for kind in MessageType}

MICROSECONDS: Final = 1000
"""Microseconds in a millisecond, the journal's unit."""
MILLISECONDS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, where Spark's calendar ends; later times are null."""


def row_of(payload: bytes, wanted: Collection[Layer]) -> Row:
    """Return a user record's payload as a row, without place and time."""
    if not any(layer > Layer.PLACE for layer in wanted):
        return {}
    try:
        command = decode(payload)
    except MalformedRecord as error:
        kind = payload[0] if payload else -1
        return {"record_type": RECORD_TYPES[kind] if 0 <= kind < len(RECORD_TYPES) else UNKNOWN, CORRUPT: str(error)}
    row: Row = {}
    for fill in (_fill_record, _fill_ack, _fill_message):
        try:
            fill(row, command, wanted)
        except MalformedOpenWire as error:
            row.setdefault(CORRUPT, str(error))
    return row


def arrival_of(command: Command) -> int | None:
    """Return when the broker got the message that a command stores, in milliseconds; None if unknown."""
    match command:
        case AddMessage(data=data) | AddScheduledJob(payload=data):
            if len(data) <= BROKER_IN_FROM_END or data[0] == MessageType.BLOB:
                return None
            arrival: int = LONG.unpack_from(data, len(data) - BROKER_IN_FROM_END)[0]
            return arrival if 0 < arrival <= MILLISECONDS_MAX else None
        case _:
            return None


def instant(milliseconds: int) -> int | None:
    """Return a time in microseconds; None for values that mean no time."""
    return milliseconds * MICROSECONDS if 0 < milliseconds <= MILLISECONDS_MAX else None


def clean(text: str) -> str:
    """Return a text that UTF-8 can express: halves of surrogate pairs become question marks, as in Java."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


# ---------------------------------------------------------------- the command's own fields


def _fill_record(row: Row, command: Command, wanted: Collection[Layer]) -> None:
    # One flat table with a line or two per command: it reads better whole.
    row["record_type"] = _record_type(command)
    match command:
        case AddMessage():
            _fill_add(row, command)
        case UpdateMessage(message):
            _fill_add(row, message)
        case RemoveMessage(destination, message_id, _, subscription_key, transaction):
            _fill_destination(row, destination)
            row["message_id"] = message_id
            row["subscription"] = subscription_key
            row["transaction"] = None if transaction is None else clean(str(transaction))
        case Prepare(transaction) | Commit(transaction) | Rollback(transaction):
            row["transaction"] = clean(str(transaction))
        case RemoveDestination(destination):
            _fill_destination(row, destination)
        case Subscribe(destination, subscription_key, info, retroactive):
            _fill_destination(row, destination)
            row["subscription"] = subscription_key
            row["retroactive"] = retroactive
            selector = decode_subscription_info(info).selector
            row["selector"] = None if selector is None else clean(selector)
        case Unsubscribe(destination, subscription_key):
            _fill_destination(row, destination)
            row["subscription"] = subscription_key
        case Trace(text):
            row["trace"] = text
        case RewrittenDataFile(source_file_id):
            row["source_file"] = source_file_id
        case AddScheduledJob():
            _fill_scheduled(row, command)
        case _:
            row["job"] = _job(command)


def _record_type(command: Command) -> str:
    return _NAMES[type(command)]


_NAMES: Final[Mapping[type, str]] = {
    kind: "".join("_" + char.lower() if char.isupper() else char for char in kind.__name__).lstrip("_")
    for kind in Command.__args__
}


def _fill_add(row: Row, add: AddMessage) -> None:
    _fill_destination(row, add.destination)
    row["message_id"] = add.message_id
    row["transaction"] = None if add.transaction is None else clean(str(add.transaction))
    row["message"] = add.data


def _fill_destination(row: Row, destination: Destination) -> None:
    row["destination_type"] = DESTINATION_TYPES[destination.type]
    row["destination"] = clean(destination.name)


def _fill_scheduled(row: Row, command: AddScheduledJob) -> None:
    row["job"] = _job(command)
    row["message"] = command.payload
    message = openwire.decode(command.payload)
    if message.destination is not None:
        _fill_destination(row, message.destination)
    if message.message_id is not None:
        row["message_id"] = clean(str(message.message_id))


def _job(command: Command) -> Row | None:
    match command:
        case AddScheduledJob():
            return {
                "scheduler": command.scheduler,
                "id": command.job_id,
                "start": instant(command.start_time),
                "next_execution": instant(command.next_execution_time),
                "cron": command.cron_entry,
                "delay_ms": command.delay,
                "period_ms": command.period,
                "repeat": _int32(command.repeat),
            }
        case RescheduleJob(scheduler, job_id, execution, next_execution, count):
            times = {"execution": instant(execution), "next_execution": instant(next_execution)}
            return {"scheduler": scheduler, "id": job_id, **times, "count": _int32(count)}
        case RemoveScheduledJob(scheduler, job_id, execution):
            return {"scheduler": scheduler, "id": job_id, "execution": instant(execution)}
        case RemoveScheduledJobs(scheduler, start, end):
            return {"scheduler": scheduler, "start": instant(start), "end": instant(end)}
        case DestroyScheduler(scheduler):
            return {"scheduler": scheduler}
        case _:
            return None


def _int32(number: int) -> int:
    """Return a number that protobuf keeps in 64 bits as Java reads it: the lower 32, with sign."""
    return (number + 2**31) % 2**32 - 2**31


# ---------------------------------------------------------------- the acknowledgement


def _fill_ack(row: Row, command: Command, wanted: Collection[Layer]) -> None:
    if Layer.ACK not in wanted or not isinstance(command, RemoveMessage) or command.ack is None:
        return
    if not command.ack:
        row["ack_type"] = ACK_TYPES[AckType.UNMATCHED]
        return
    ack = decode_ack(command.ack)
    row["ack_type"] = ACK_TYPES.get(ack.ack_type, str(ack.ack_type))
    row["consumer_id"] = None if ack.consumer_id is None else clean(str(ack.consumer_id))
    if ack.poison_cause is not None:
        parts = (ack.poison_cause.class_name, ack.poison_cause.message)
        row["ack_cause"] = clean(": ".join(part for part in parts if part is not None))


# ---------------------------------------------------------------- the message


def _fill_message(row: Row, command: Command, wanted: Collection[Layer]) -> None:
    match command:
        case AddMessage(data=data) | UpdateMessage(AddMessage(data=data)) | AddScheduledJob(payload=data):
            pass
        case _:
            return
    if not any(layer >= Layer.MESSAGE for layer in wanted):
        return
    message = openwire.decode(data)
    _fill_headers(row, message)
    for layer, fill in ((Layer.PROPERTIES, _fill_properties), (Layer.BODY, fill_body)):
        if layer in wanted:
            try:
                fill(row, message)
            except MalformedOpenWire as error:
                row.setdefault(CORRUPT, str(error))


def _fill_headers(row: Row, message: OpenWireMessage) -> None:
    row["message_type"] = MESSAGE_TYPES[message.type]
    identity = message.message_id
    if identity is not None and identity.producer_id is not None:
        row["producer_id"] = clean(str(identity.producer_id))
        row["producer_sequence"] = identity.producer_sequence_id
    row["original_destination"] = _qualified(message.original_destination)
    row["timestamp"] = instant(message.timestamp)
    row["broker_in"] = instant(message.broker_in_time)
    row["expiration"] = instant(message.expiration)
    row["priority"] = message.priority
    row["persistent"] = message.persistent
    row["redelivery_counter"] = message.redelivery_counter
    row["correlation_id"] = _cleaned(message.correlation_id)
    row["reply_to"] = _qualified(message.reply_to)
    row["jms_type"] = _cleaned(message.jms_type)
    row["group_id"] = _cleaned(message.group_id)
    row["group_sequence"] = message.group_sequence
    row["user_id"] = _cleaned(message.user_id)
    row["compressed"] = message.compressed
    row["body_size"] = len(message.content or b"")


def _cleaned(text: str | None) -> str | None:
    return None if text is None else clean(text)


def _qualified(destination: Destination | None) -> str | None:
    return None if destination is None else clean(str(destination))


def _fill_properties(row: Row, message: OpenWireMessage) -> None:
    row["properties"] = [(clean(name), as_text(value)) for name, value in message.properties.items()]


def fill_body(row: Row, message: OpenWireMessage) -> None:
    """Add a message's text or body. Raises `MalformedOpenWire` if its content does not decode."""
    match message.type:
        case MessageType.TEXT:
            row["text"] = _cleaned(message.text())
        case MessageType.MAP:
            row["text"] = as_json(message.map())
        case MessageType.STREAM:
            row["text"] = as_json(message.stream())
        case _:
            row["body"] = None if message.content is None else message.body_bytes()


# ---------------------------------------------------------------- values as text


def as_text(value: Value) -> str | None:
    """Return a property's value as text: numbers as Java's in decimal, bytes in base64, maps and lists as JSON."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return _float_text(value)
        case bytes():
            return base64.b64encode(value).decode()
        case str() | int():
            return clean(str(value))
        case _:
            return as_json(value)


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return str(np.float32(value)) if isinstance(value, Float) else repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def as_json(value: Value) -> str:
    """Return a value as JSON."""
    return clean(json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")))


def _plain(value: Value) -> object:
    """Return a value as JSON can have it: bytes in base64, numbers that are none as text."""
    match value:
        case Mapping():
            return {clean(name): _plain(each) for name, each in value.items()}
        case bytes():
            return base64.b64encode(value).decode()
        case float():
            return float(str(np.float32(value))) if type(value) is Float and math.isfinite(value) else _finite(value)
        case str():
            return str(value)
        case Sequence():
            return [_plain(each) for each in value]
        case _:
            return value


def _finite(value: float) -> float | str:
    return float(value) if math.isfinite(value) else _float_text(value)
