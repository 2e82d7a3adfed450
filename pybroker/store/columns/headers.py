"""Where the fields of OpenWire messages and acknowledgements lie, for many at once.

What hardly ever occurs is odd, and left to `rows`: ids in a text of their own, advisories' data structures, target
consumers, broker paths, clusters, blob messages, an acknowledgement's cause.

The layouts are drawn in `openwire.message`, `openwire.ids` and `openwire.objects`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.commands import MessageAck
from pybroker.broker.domain.openwire.message import MessageType
from pybroker.store.columns.chunks import Bytes, Longs
from pybroker.store.columns.lanes import Flags, Lanes, Window
from pybroker.store.columns.texts import Places

FIRST_DESTINATION = min(ids.DESTINATION_TYPES)
LAST_DESTINATION = max(ids.DESTINATION_TYPES)


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
    """Where a message's fields lie, per message.

    Attributes:
        odd: not of a usual shape; nothing else counts then.
        unseen: texts that no column shows, and that must be texts nevertheless.
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
    properties: Places
    compressed: Flags
    redelivery_counter: Longs
    user_id: Places
    broker_in: Longs
    unseen: list[Places]


def locate_headers(window: Window, begin: Longs, end: Longs) -> Headers:
    """Return where the fields of these messages lie, each from its data type on."""
    lanes = Lanes(window, begin, end)
    kind = lanes.byte()
    lanes.require((kind >= MessageType.MESSAGE) & (kind < MessageType.BLOB))
    lanes.skip(5)  # command id, response required
    sender = _identity(lanes, ids.PRODUCER_ID)
    destination = _destination(lanes)
    transaction = _transaction(lanes)
    original_destination = _destination(lanes)
    producer, producer_sequence = _message_id(lanes)
    lanes.require(producer.connection.valid)
    lanes.require(~lanes.flag())  # original transaction id
    group_id = Places(*lanes.string())
    group_sequence = lanes.int32()
    correlation_id = Places(*lanes.string())
    persistent = lanes.flag()
    expiration = lanes.int64()
    priority = lanes.byte()
    reply_to = _destination(lanes)
    timestamp = lanes.int64()
    jms_type = Places(*lanes.string())
    content = Places(*lanes.byte_sequence())
    properties = Places(*lanes.byte_sequence())
    lanes.require(~lanes.flag())  # data structure
    lanes.require(~lanes.flag())  # target consumer
    compressed = lanes.flag()
    redelivery_counter = lanes.int32()
    lanes.require(~lanes.flag())  # broker path
    lanes.skip(8)  # arrival
    user_id = Places(*lanes.string())
    lanes.skip(2)  # received by bridge, droppable
    lanes.require(~lanes.flag())  # cluster
    broker_in = lanes.int64()
    lanes.skip(9)  # broker out, first for consumer
    lanes.require_end()
    return Headers(
        lanes.odd,
        kind,
        producer,
        producer_sequence,
        original_destination,
        group_id,
        group_sequence,
        correlation_id,
        persistent,
        expiration,
        priority,
        reply_to,
        timestamp,
        jms_type,
        content,
        properties,
        compressed,
        redelivery_counter,
        user_id,
        broker_in,
        [sender.connection, destination.name, transaction],
    )


@dataclass(slots=True, eq=False)
class Acks:
    """Where an acknowledgement's fields lie, per acknowledgement. `odd` and `unseen` as in `Headers`."""

    odd: Flags
    ack_type: Bytes
    consumer: Identity
    unseen: list[Places]


def locate_acks(window: Window, begin: Longs, end: Longs) -> Acks:
    """Return where the fields of these acknowledgements lie, each from its data type on."""
    lanes = Lanes(window, begin, end)
    lanes.require(lanes.byte() == MessageAck.DATA_TYPE)
    lanes.skip(5)  # command id, response required
    destination = _destination(lanes)
    transaction = _transaction(lanes)
    consumer = _identity(lanes, ids.CONSUMER_ID)
    ack_type = lanes.byte()
    first, _ = _message_id(lanes)
    last, _ = _message_id(lanes)
    lanes.skip(4)  # message count
    lanes.require(~lanes.flag())  # poison cause
    lanes.require_end()
    return Acks(lanes.odd, ack_type, consumer, [destination.name, transaction, first.connection, last.connection])


# ---------------------------------------------------------------- what both are made of


def _identity(lanes: Lanes, data_type: int, where: Flags | None = None) -> Identity:
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
    producer = _identity(lanes, ids.PRODUCER_ID, present)
    sequence = lanes.int64(present)
    lanes.int64(present)  # broker sequence
    return producer, sequence
