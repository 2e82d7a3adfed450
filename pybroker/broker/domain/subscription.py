"""What a consumer asks for, and what of it outlives the connection (a durable subscription)."""

from dataclasses import dataclass

from pybroker.broker.domain.destination import Destination

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
        pending_limit: how many messages may wait for a slow non-durable topic consumer before the oldest is
            dropped; None: the broker's setting.
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
