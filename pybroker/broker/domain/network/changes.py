"""Demand subscriptions, and how they change: the orders of a demand table to its bridge."""

from dataclasses import dataclass
from typing import TypeAlias

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire.ids import ConsumerId


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDemand:
    """A demand subscription: a consumer at the local broker whose messages go over the bridge.

    Attributes:
        number: the consumer's number in session 1 of the bridge's local connection.
        destination: one destination, or a wildcard pattern; never a composite.
        selector: selects what a consumer of the remote broker wants; None: every message.
        priority: the consumer's priority, -128 to 127.
        exclusive: it is an exclusive consumer, as the remote one is.
        no_local: as the remote consumer has it; without effect across bridges.
        retroactive: as the remote consumer has it.
        pending_limit: as the remote consumer has it; None: the broker's setting.
        client_id: the client id of the remote consumer, for advisories; None if there is none.
        subscription_name: makes it durable, under the client id of the bridge's local connection.
        broker_path: ids of the brokers that demand has passed; the nearest to the consumer first, the remote one last.
        consumer_path: ids of the original consumer, and of each demand subscription on the way.
        is_static: it exists as long as the bridge, whatever demand there is.
    """

    number: int
    destination: Destination
    selector: str | None = None
    priority: int = 0
    exclusive: bool = False
    no_local: bool = False
    retroactive: bool = False
    pending_limit: int | None = None
    client_id: str | None = None
    subscription_name: str | None = None
    broker_path: tuple[str, ...] = ()
    consumer_path: tuple[ConsumerId, ...] = ()
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class BeginDemand:
    """A demand subscription begins."""

    demand: LocalDemand


@dataclass(frozen=True, slots=True)
class EndDemand:
    """A demand subscription takes no further messages, and ends when those in flight have been answered.

    Attributes:
        number: its number.
        deletes_durable: its durable subscription is deleted; otherwise it stays, if there is one, and collects.
    """

    number: int
    deletes_durable: bool = False


@dataclass(frozen=True, slots=True)
class SelectDemand:
    """A demand subscription takes another selector; None: every message."""

    number: int
    selector: str | None


@dataclass(frozen=True, slots=True)
class DeleteDurable:
    """A durable subscription of the bridge that has no consumer now is deleted."""

    subscription_name: str


DemandChange: TypeAlias = BeginDemand | EndDemand | SelectDemand | DeleteDurable
