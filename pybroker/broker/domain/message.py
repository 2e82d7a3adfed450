"""A message as the broker carries it: the few fields routing needs, and the marshalled bytes it never looks into."""

from dataclasses import dataclass
from typing import Final

from pybroker.broker.domain.destination import Destination

PRIORITY_DEFAULT: Final = 4
SIZE_OVERHEAD: Final = 1024
"""Bytes ActiveMQ adds to content and properties when it accounts for a message's memory."""


@dataclass(slots=True, eq=False, init=False)
class Message:
    """One message. Shared by every subscription that gets it, so nobody changes it after it was sent.

    Attributes:
        message_id: `<connection id>:<session>:<producer>:<sequence>`, KahaDB's producer key. What acks name.
        destination: where it lies (queue) or went (topic).
        data: OpenWire v11, loose, uncached, from the data type byte on: no size prefix. What the journal stores.
        persistent: survives a crash once acknowledged to its producer.
        priority: 0 to 9, JMS's default is 4.
        expiration: milliseconds since the epoch after which it is dead, 0 for never.
        connection_id: its producer's connection, for `noLocal`.
        group_id: its message group (`JMSXGroupID`), None for none.
        group_sequence: its place in the group (`JMSXGroupSeq`): 1 opens the group anew, below 0 closes it.
        size: bytes it counts for in memory limits: 1024 + content + properties (ActiveMQ's notion).
        decoded: `data` decoded, kept for whoever asks next: the business of `openwire.message.view`.
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
    size: int
    decoded: object | None

    # Written out, since mypyc compiles this one, and leaves the one that `dataclass` makes to the interpreter.
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
        size: int = SIZE_OVERHEAD,
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
        self.size = size
        self.decoded = decoded

    def is_expired(self, now_ms: int) -> bool:
        """Tell whether the message is dead at that time (milliseconds since the epoch)."""
        return 0 < self.expiration < now_ms
