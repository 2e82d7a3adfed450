"""What a consumer asks for, and what of it outlives the connection (a durable subscription)."""

from dataclasses import dataclass

from pybroker.broker.domain.destination import Destination, matches
from pybroker.broker.domain.openwire.ids import ConsumerId

QUEUE_PREFETCH = 1000
TOPIC_PREFETCH = 32767
DURABLE_PREFETCH = 100
BROWSER_PREFETCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableSubscription:
    """A durable subscription to one concrete topic, as the store keeps it.

    A subscription to a wildcard is one of these per concrete topic; `subscribed_destination` has the wildcard.
    """

    client_id: str
    name: str
    destination: Destination
    subscribed_destination: Destination
    selector: str | None = None
    no_local: bool = False

    @property
    def key(self) -> str:
        """KahaDB's subscription key."""
        return f"{self.client_id}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRequest:
    """A consumer as a client asks for it.

    Attributes:
        destination: may be a wildcard pattern.
        prefetch: how many unacknowledged messages it may hold at once; None: the default of its kind.
        selector: SQL-92 condition, None for every message.
        subscription_name: makes a topic consumer durable, under the connection's client id.
        no_local: skip messages its own connection sent.
        browser: look at a queue's messages without consuming them.
        exclusive: wants all of a queue's messages for itself.
        priority: consumers of higher priority get a queue's messages first, while they have room; -128 to 127.
        retroactive: wants a topic's recent past, as far as the broker keeps it.
        pending_limit: how many messages may wait for a slow non-durable topic consumer before the oldest is
            dropped; None: the broker's setting.
        consumer_id: its id on the wire, for advisories; made up by the transport where the protocol has none.
        composite: more destinations it takes messages from, of the same domain as `destination`.
    """

    destination: Destination
    prefetch: int | None = None
    selector: str | None = None
    subscription_name: str | None = None
    no_local: bool = False
    browser: bool = False
    exclusive: bool = False
    priority: int = 0
    retroactive: bool = False
    pending_limit: int | None = None
    consumer_id: ConsumerId | None = None
    composite: tuple[Destination, ...] = ()

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """All it takes messages from; there may be patterns among them."""
        return (self.destination, *self.composite)

    def wants(self, destination: Destination) -> bool:
        """Tell whether it asks for that destination."""
        return any(each.type is destination.type and matches(each.name, destination.name) for each in self.destinations)
