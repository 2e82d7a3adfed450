"""A message in the broker: the few fields that routing needs, and its marshalled bytes."""

import sys
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pybroker.broker.domain.destination import Destination

PRIORITY_DEFAULT: Final = 4

RESENT: Final = "JMS_pybroker_resent"
"""The property of a message that was sent again: by its client after a reconnect, or by the next master's scheduler.

Its receiver may have received it before: a broker may deliver a message and crash before the message is on disk, or
before it has recorded that a job has run. JMS reserves the prefix `JMS_` for providers.
"""

SIZE_OVERHEAD: Final = 1024
"""Bytes that ActiveMQ adds to content and properties for the memory of a message.

pybroker counts as many for the Python objects of a message. Those of one that waits take 430 to 490 bytes (100,000
messages of several kinds); the rest is for the tables of the store, of consumers and of connections that refer to it.
"""

_HEADER_BYTES: Final = 512
"""Headers of at most so many bytes have their texts within `SIZE_OVERHEAD`. Those of usual messages take 200."""


REDELIVERIES_MAX: Final = 1 << 30
"""The limit to what a bridge says of earlier deliveries: the counter of OpenWire has room for those of this broker."""


class BridgeFields(NamedTuple):
    """The fields of a message that has come over a bridge.

    Attributes:
        broker_path: the brokers that it has passed, the first one first; at least one.
        redelivery_counter: how often it may have been delivered before, as the last of them counted.
    """

    broker_path: tuple[str, ...]
    redelivery_counter: int


@dataclass(slots=True, eq=False, init=False)
class Message:
    """One message. It is shared by all subscriptions that get it, and must not be changed after it was sent.

    Attributes:
        message_id: `<connection id>:<session>:<producer>:<sequence>`, KahaDB's producer key; acks refer to it.
        destination: the queue that it is on, or the topic to which it was sent.
        data: OpenWire v11, loose, uncached, from the data type on, without a size prefix; as stored in the journal.
        persistent: True if it survives a crash once its send is confirmed.
        priority: 0 to 9; JMS's default is 4.
        expiration: when it expires, in milliseconds since the epoch; 0: never.
        connection_id: the connection of its producer, for `noLocal`.
        group_id: its message group (`JMSXGroupID`); None for none.
        group_sequence: its position in the group (`JMSXGroupSeq`): 1 begins the group again, below 0 closes it.
        payload_size: its size in ActiveMQ, by which clients count too: 1024 + content + properties.
        size: bytes that it counts for in memory limits: `data`, the texts decoded from it, and its Python objects.
        bridge: what other brokers have written into it; None: it has come from a client of this one.
        decoded: the decoded `data` for a short time, see `openwire.decoded_cache`; None otherwise.
    """

    message_id: str
    destination: Destination
    data: bytes
    persistent: bool
    priority: int
    expiration: int
    connection_id: str
    group_id: str | None
    group_sequence: int
    payload_size: int
    size: int = field(init=False)
    bridge: BridgeFields | None = None
    decoded: object | None = None

    # Written by hand, because mypyc compiles this method, but not the one that `dataclass` generates.
    def __init__(
        self,
        *,
        message_id: str,
        destination: Destination,
        data: bytes,
        persistent: bool,
        priority: int = PRIORITY_DEFAULT,
        expiration: int = 0,
        connection_id: str = "",
        group_id: str | None = None,
        group_sequence: int = 0,
        payload_size: int = SIZE_OVERHEAD,
        bridge: BridgeFields | None = None,
        decoded: object | None = None,
    ) -> None:
        self.message_id = message_id
        self.destination = destination
        self.data = data
        self.persistent = persistent
        self.priority = priority
        self.expiration = expiration
        self.connection_id = connection_id
        self.group_id = group_id
        self.group_sequence = group_sequence
        self.payload_size = payload_size
        self.bridge = bridge
        self.decoded = decoded
        size = SIZE_OVERHEAD + len(data)
        if size - payload_size > _HEADER_BYTES:
            size += _text_bytes(message_id, connection_id, group_id)
        self.size = size

    def is_expired(self, now_ms: int) -> bool:
        """Return True if the message has expired at that time (milliseconds since the epoch)."""
        return 0 < self.expiration < now_ms


class BodilessMessage(Message):
    """A message without its `data`, which only the store has; it stands for a delivered message while memory is short.

    Attributes:
        broker_sequence: the number that the broker gave the message on arrival, by which OpenWire clients refer to it.
    """

    __slots__ = ("broker_sequence",)

    def __init__(self, message: Message, broker_sequence: int) -> None:
        super().__init__(
            message_id=message.message_id,
            destination=message.destination,
            data=b"",
            persistent=message.persistent,
            priority=message.priority,
            expiration=message.expiration,
            connection_id=message.connection_id,
            group_id=message.group_id,
            group_sequence=message.group_sequence,
            payload_size=message.payload_size,
            bridge=message.bridge,
        )
        self.size = message.size - len(message.data)
        self.broker_sequence = broker_sequence


def _text_bytes(message_id: str, connection_id: str, group_id: str | None) -> int:
    """Return the memory of the texts that a message keeps beside its data. One wide character makes all four bytes."""
    return sys.getsizeof(message_id) + sys.getsizeof(connection_id) + sys.getsizeof(group_id)
