"""The state of an MQTT session that outlives its connections, while the broker is the master.

What must survive the broker is in durable subscriptions. This is what lets a client that comes back to the same broker
continue its handshakes: packet identifiers. Without it, messages come with new ones.

Source: MQTT 5.0, 4.1 "Storing State".
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pybroker.broker.domain.mqtt.packets import FilterSubscription

PACKET_ID_MAX: Final = 65_535

REMEMBERED_MAX: Final = 5_000
"""Unacknowledged deliveries that a session remembers, as in ActiveMQ; the others come with new packet identifiers."""

SESSION_BYTES: Final = 3_000
"""The memory of a session without subscriptions, in bytes; its set of received packet identifiers is part of it."""

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
        last_packet_id: the packet identifier that was used last.
    """

    subscriptions: dict[str, KeptSubscription] = field(default_factory=dict[str, KeptSubscription])
    received: set[int] = field(default_factory=set[int])
    remembered: dict[DeliveryKey, Remembered] = field(default_factory=dict[DeliveryKey, Remembered])
    last_packet_id: int = 0

    def remember(self, key: DeliveryKey, delivery: Remembered) -> None:
        """Remember a delivery for the next connection, unless there are too many."""
        if len(self.remembered) < REMEMBERED_MAX:
            self.remembered[key] = delivery

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        characters = sum([len(text) for text in self.subscriptions])
        return SESSION_BYTES + ENTRY_BYTES * (len(self.subscriptions) + len(self.remembered)) + 4 * characters

    def forget(self, text: str) -> None:
        """Forget the subscription to a topic filter, and its deliveries."""
        self.subscriptions.pop(text, None)
        for key in [each for each in self.remembered if each.filter == text]:
            del self.remembered[key]
