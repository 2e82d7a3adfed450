"""The state of MQTT sessions that outlives their connections, while the broker is the master.

What must survive the broker is in durable subscriptions. This is what lets a client that comes back to the same broker
continue its handshakes: packet identifiers. Without it, messages come with new ones.

Source: MQTT 5.0, 4.1 "Storing State".
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pybroker.broker.domain.mqtt.packets import FilterSubscription

PACKET_ID_MAX: Final = 65_535

REMEMBERED_MAX: Final = 5_000
"""Unacknowledged deliveries that a session remembers, as in ActiveMQ; the others come with new packet identifiers."""

SESSIONS_MAX: Final = 10_000
"""Sessions without a connection whose state is kept; the one that was left first is forgotten first."""


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

    def forget(self, text: str) -> None:
        """Forget the subscription to a topic filter, and its deliveries."""
        self.subscriptions.pop(text, None)
        for key in [each for each in self.remembered if each.filter == text]:
            del self.remembered[key]


class SessionStates:
    """The states of the sessions of one broker that have no connection, by client id."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: OrderedDict[str, SessionState] = OrderedDict()

    def take(self, client_id: str) -> SessionState | None:
        """Remove and return the state of a session; None if there is none."""
        return self._states.pop(client_id, None)

    def keep(self, client_id: str, state: SessionState) -> None:
        """Keep a state until the client comes back, or too many others are kept."""
        self._states[client_id] = state
        if len(self._states) > SESSIONS_MAX:
            self._states.popitem(last=False)
