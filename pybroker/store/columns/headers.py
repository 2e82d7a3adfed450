"""Finds the fields of many OpenWire messages and acknowledgements at once.

Rare shapes are odd, and left to `rows`: ids with a text view, advisories' data structures, target consumers, broker
paths, clusters, blob messages, an acknowledgement's cause.

The order of the fields is that of `openwire.layout`; identifiers are drawn in `openwire.ids`.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.commands import TRANSACTION_IDS, MessageAck
from pybroker.broker.domain.openwire.layout import ACK, LETTERS, MESSAGE, WIDTHS, FieldTable
from pybroker.broker.domain.openwire.marshal.schema import FieldKind, Spec
from pybroker.broker.domain.openwire.message import MessageType
from pybroker.store.columns.chunks import Bytes, Longs
from pybroker.store.columns.lanes import Flags, Lanes, Window
from pybroker.store.columns.texts import Places

FIRST_DESTINATION = min(ids.DESTINATION_TYPES)
LAST_DESTINATION = max(ids.DESTINATION_TYPES)

_Step: TypeAlias = tuple[str, Callable[[Lanes], Any]]
"""A field's name, and the function that reads it from all lanes."""


class Identity(NamedTuple):
    """A producer's or consumer's id: its connection, and two numbers.

    Attributes:
        connection: its text.
        session: number of the session in the connection.
        value: number in the session.
    """

    connection: Places
    session: Longs
    value: Longs


class Named(NamedTuple):
    """A destination: its OpenWire data type, and its name."""

    kind: Bytes
    name: Places


@dataclass(slots=True, eq=False)
class Headers:
    """Places of messages' fields, per message.

    Attributes:
        odd: of an unusual shape; all other fields are undefined then.
        unseen: texts that no column shows, checked all the same.
    """

    odd: Flags
    kind: Bytes
    producer: Identity
    producer_sequence: Longs
    original_destination: Named
    group_id: Places
    group_sequence: Longs
    correlation_id: Places
    persistent: Flags
    expiration: Longs
    priority: Bytes
    reply_to: Named
    timestamp: Longs
    jms_type: Places
    content: Places
    marshalled_properties: Places
    compressed: Flags
    redelivery_counter: Longs
    user_id: Places
    broker_in_time: Longs
    unseen: list[Places]


def locate_headers(window: Window, begin: Longs, end: Longs) -> Headers:
    """Return the places of these messages' fields, each from its data type on."""
    lanes = Lanes(window, begin, end)
    kind = lanes.byte()
    lanes.require((kind >= MessageType.MESSAGE) & (kind < MessageType.BLOB))
    found = _walk(lanes, _MESSAGE)
    producer, producer_sequence = found["message_id"]
    lanes.require(producer.connection.valid)
    return Headers(
        odd=lanes.odd,
        kind=kind,
        producer=producer,
        producer_sequence=producer_sequence,
        unseen=[found["producer_id"].connection, found["destination"].name, found["transaction_id"]],
        **{name: found[name] for name in _SHOWN},
    )


@dataclass(slots=True, eq=False)
class Acks:
    """Places of acknowledgements' fields, per acknowledgement. `odd` and `unseen` as in `Headers`."""

    odd: Flags
    ack_type: Bytes
    consumer: Identity
    unseen: list[Places]


def locate_acks(window: Window, begin: Longs, end: Longs) -> Acks:
    """Return the places of these acknowledgements' fields, each from its data type on."""
    lanes = Lanes(window, begin, end)
    lanes.require(lanes.byte() == MessageAck.DATA_TYPE)
    found = _walk(lanes, _ACK)
    ids_seen = [found[name][0].connection for name in ("first_message_id", "last_message_id")]
    unseen = [found["destination"].name, found["transaction_id"], *ids_seen]
    return Acks(lanes.odd, found["ack_type"], found["consumer_id"], unseen)


def _walk(lanes: Lanes, steps: Iterable[_Step]) -> dict[str, Any]:
    """Take a structure's fields from behind its data type to its end; return them by their names."""
    found = {name: take(lanes) for name, take in steps}
    lanes.require_end()
    return found


# ---------------------------------------------------------------- parts of both


def _identity(lanes: Lanes, where: Flags | None = None, *, data_type: int) -> Identity:
    """Take a nullable id of a producer or a consumer, from some lanes or all. One without a connection is odd."""
    present = lanes.flag(where)
    lanes.expect(data_type, present)
    connection = Places(*lanes.string(present))
    lanes.require(connection.valid | ~present)
    first, second = lanes.int64(present), lanes.int64(present)
    # The two change places, see `openwire.ids`.
    session, value = (second, first) if data_type == ids.PRODUCER_ID else (first, second)
    return Identity(connection, session, value)


def _destination(lanes: Lanes) -> Named:
    """Take a nullable destination."""
    present = lanes.flag()
    kind = lanes.peek()
    lanes.require(~present | ((kind >= FIRST_DESTINATION) & (kind <= LAST_DESTINATION)))
    lanes.skip(present)
    name = Places(*lanes.string(present))
    lanes.require(name.valid | ~present)
    return Named(kind, name)


def _transaction(lanes: Lanes) -> Places:
    """Take a nullable transaction id, local or XA; return the connection of a local one."""
    present = lanes.flag()
    if not present.any():
        return Places(lanes.at, lanes.at, present)
    kind = lanes.peek()
    local = present & (kind == ids.LOCAL_TRANSACTION_ID)
    xa = present & (kind == ids.XA_TRANSACTION_ID)
    lanes.require(~present | local | xa)
    lanes.skip(present)
    if xa.any():
        lanes.skip(np.where(xa, 4, 0))  # format
        for _ in ("global transaction id", "branch qualifier"):
            _, _, found = lanes.byte_sequence(xa)
            lanes.require(found | ~xa)
    lanes.int64(local)
    lanes.require(lanes.flag(local) | ~local)
    lanes.expect(ids.CONNECTION_ID, local)
    connection = Places(*lanes.string(local))
    lanes.require(connection.valid | ~local)
    return connection


def _message_id(lanes: Lanes) -> tuple[Identity, Longs]:
    """Take a nullable message id; return its producer, which may be null, and its sequence. A text view is odd."""
    present = lanes.flag()
    lanes.expect(ids.MESSAGE_ID, present)
    lanes.require(~lanes.flag(present))
    producer = _identity(lanes, present, data_type=ids.PRODUCER_ID)
    sequence = lanes.int64(present)
    lanes.int64(present)  # broker sequence
    return producer, sequence


# ---------------------------------------------------------------- the tables, compiled


def _absent(lanes: Lanes) -> None:
    """Take a nullable field that is null in all but odd lanes."""
    lanes.require(~lanes.flag())


_TAKERS: Final[dict[FieldKind, Callable[[Lanes], Any]]] = {
    FieldKind.BOOLEAN: Lanes.flag,
    FieldKind.BYTE: Lanes.byte,
    FieldKind.INT: Lanes.int32,
    FieldKind.LONG: Lanes.int64,
    FieldKind.STRING: lambda lanes: Places(*lanes.string()),
    FieldKind.BYTES: lambda lanes: Places(*lanes.byte_sequence()),
}
_OBJECTS: Final[dict[tuple[type | str, ...], Callable[[Lanes], Any]]] = {
    (ids.ProducerId,): partial(_identity, data_type=ids.PRODUCER_ID),
    (ids.ConsumerId,): partial(_identity, data_type=ids.CONSUMER_ID),
    (ids.OpenWireMessageId,): _message_id,
    (Destination,): _destination,
    TRANSACTION_IDS: _transaction,
}


def _compiled(table: FieldTable, shown: Collection[str], absent: Collection[str] = ()) -> tuple[_Step, ...]:
    """Return how to take each field of a structure; those of fixed width that are not shown are skipped.

    Args:
        table: its fields.
        shown: which of the fields of fixed width are looked at.
        absent: fields that are odd where they are not null, as are structures of any type, arrays and exceptions.
    """

    def is_skipped(field: tuple[str, Spec]) -> bool:
        return LETTERS[field[1].kind] in WIDTHS and field[0] not in shown

    steps: list[_Step] = []
    for skipped, run in groupby(table.fields.items(), is_skipped):
        named = list(run)
        if skipped:
            count = sum(WIDTHS[LETTERS[spec.kind]] for _, spec in named)
            steps.append((named[0][0], partial(Lanes.skip, count=count)))
        else:
            steps.extend((name, _absent if name in absent else _taker(spec)) for name, spec in named)
    return tuple(steps)


def _taker(spec: Spec) -> Callable[[Lanes], Any]:
    return _TAKERS.get(spec.kind) or _OBJECTS.get(spec.types, _absent)


_SHOWN: Final = tuple({each.name for each in fields(Headers)} & MESSAGE.fields.keys())
_MESSAGE: Final = _compiled(MESSAGE, _SHOWN, ("original_transaction_id", "target_consumer_id"))
_ACK: Final = _compiled(ACK, ("ack_type",))
