"""The state of an MQTT session that outlives its connections, while the broker is the master.

What must survive the broker is in durable subscriptions, and in a record (`session_records`). This is what lets a
client that comes back to the same broker continue its handshakes: packet identifiers. Without it, messages come with
new ones.

So QoS 2 is exactly once while one broker is the master, in both directions. Across a failover it is at least once: a
client repeats a PUBLISH without PUBREC, or whose PUBREL was not answered, to a master that does not know its packet
identifier; and what a client has not completed comes again with another one. To avoid that, each packet identifier
would have to be on disk before its PUBREC, and with it a second write for each message.

A client that waits for the PUBREL of a former master takes no other message with that packet identifier: it would be
lost. So if a session with QoS 2 is continued whose state is not known, packet identifiers are released before they are
used: PUBREL is sent for a number of them, and its answer awaited.

Source: MQTT 5.0, 4.1 "Storing State".
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pybroker.broker.domain.mqtt.packets import FilterSubscription
from pybroker.transports.mqtt.packet_ids import PacketIds

PACKET_ID_MAX: Final = 65_535

REMEMBERED_MAX: Final = 5_000
"""Unacknowledged deliveries that a session remembers, as in ActiveMQ; the others come with new packet identifiers."""

SESSION_BYTES: Final = 3_000
"""The memory of a session without subscriptions, in bytes."""

ENTRY_BYTES: Final = 600
"""The memory of a subscription without the characters of its topic filter, or of a remembered delivery."""


class KeptSubscription(NamedTuple):
    """A subscription of a session.

    Attributes:
        subscription: its topic filter and options.
        identifier: the subscription identifier of MQTT 5; None without one.
    """

    subscription: FilterSubscription
    identifier: int | None = None


class DeliveryKey(NamedTuple):
    """Identifies a delivery beyond its connection.

    Attributes:
        filter: the topic filter of its subscription.
        message_id: its message.
    """

    filter: str
    message_id: str


class Remembered(NamedTuple):
    """A delivery that the client has not acknowledged.

    Attributes:
        packet_id: the packet identifier that it was sent with.
        is_released: PUBREL was sent: the client has the message, and PUBCOMP is missing.
    """

    packet_id: int
    is_released: bool


@dataclass(slots=True)
class SessionState:
    """The state of one session.

    Attributes:
        subscriptions: by topic filter.
        received: the packet identifiers of PUBLISH packets with QoS 2 that were answered, and not released yet.
        remembered: the unacknowledged deliveries of former connections.
        completed: those whose PUBCOMP came before the core delivered them again; the values are None.
        last_packet_id: the packet identifier that was used last.
        packet_id_max: the highest one that may be used; the client may wait for a former master's PUBREL of others.
        recorded: the body of its record in the store (`session_records`); empty without one.
    """

    subscriptions: dict[str, KeptSubscription] = field(default_factory=dict[str, KeptSubscription])
    received: PacketIds = field(default_factory=PacketIds)
    remembered: dict[DeliveryKey, Remembered] = field(default_factory=dict[DeliveryKey, Remembered])
    completed: dict[DeliveryKey, None] = field(default_factory=dict[DeliveryKey, None])
    last_packet_id: int = 0
    packet_id_max: int = PACKET_ID_MAX
    recorded: bytes = b""

    def remember(self, key: DeliveryKey, delivery: Remembered) -> None:
        """Remember a delivery for the next connection, unless there are too many."""
        if len(self.remembered) < REMEMBERED_MAX:
            self.remembered[key] = delivery

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        characters = sum([len(text) for text in self.subscriptions])
        entries = ENTRY_BYTES * (len(self.subscriptions) + len(self.remembered) + len(self.completed))
        return SESSION_BYTES + entries + self.received.size + 4 * characters + len(self.recorded)

    def forget(self, text: str) -> None:
        """Forget the subscription to a topic filter, and its deliveries."""
        self.subscriptions.pop(text, None)
        for key in [each for each in self.remembered if each.filter == text]:
            del self.remembered[key]
        for key in [each for each in self.completed if each.filter == text]:
            del self.completed[key]

    def complete(self, key: DeliveryKey) -> None:
        """Note that the client has completed a remembered delivery, which is not to be sent to it again."""
        del self.remembered[key]
        self.completed[key] = None
        if len(self.completed) > REMEMBERED_MAX:  # messages that have expired do not come again
            del self.completed[next(iter(self.completed))]
