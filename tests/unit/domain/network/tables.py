"""Demand tables as tests make them, with the consumers of a remote broker."""

from dataclasses import replace
from itertools import count

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.network.changes import (
    BeginDemand,
    DeleteDurable,
    DemandChange,
    EndDemand,
    LocalDemand,
    SelectDemand,
)
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.demand import DemandTable
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.network.permission import Permissions
from pybroker.broker.domain.openwire.commands import BrokerId, ConsumerInfo
from pybroker.broker.domain.openwire.ids import ConsumerId
from pybroker.broker.domain.subscription import DurableSubscription

QUEUE = queue("Q")
TOPIC = topic("T")


def consumer(number: int, broker: str = "b") -> ConsumerId:
    """Return the id of a client's consumer at a broker."""
    return ConsumerId(f"ID:client-{broker}", 1, number)


def info(
    consumer_id: ConsumerId,
    destination: Destination = QUEUE,
    *,
    path: tuple[str, ...] = (),
    consumer_path: tuple[ConsumerId, ...] = (),
    selector: str | None = None,
    name: str | None = None,
    client_id: str | None = "client",
    priority: int = 0,
) -> ConsumerInfo:
    """Return a consumer as an advisory has it; one with a path came over a bridge."""
    return ConsumerInfo(
        consumer_id=consumer_id,
        destination=destination,
        selector=selector,
        client_id=client_id,
        subscription_name=name,
        priority=priority,
        broker_path=tuple(map(BrokerId, path)) or None,
        network_subscription=bool(path),
        network_consumer_path=consumer_path or None,
    )


def stored(destination: Destination = TOPIC, *, client_id: str = "nc_b_inbound_a") -> DurableSubscription:
    """Return the durable subscription in which messages for a topic wait for broker b."""
    return DurableSubscription(
        client_id=client_id,
        name=f"NC-DS_a_{destination.name}",
        destination=destination,
        subscribed_destination=destination,
    )


class Bridge:
    """One bridge of broker a: its table, how often it was woken, and the subscriptions that it has."""

    def __init__(
        self, connector: NetworkConnector | None = None, *, remote: str = "b", interests: Interests | None = None
    ) -> None:
        self.connector = connector or NetworkConnector(name="nc")
        self.woken = 0
        self.demands: dict[int, LocalDemand] = {}
        self.deleted: list[str] = []
        numbers = count(1)
        self.table = DemandTable(
            self.connector,
            Permissions(self.connector),
            interests or Interests(),
            local_broker_id="id-a",
            remote_broker_id=f"id-{remote}",
            local_broker_name="a",
            remote_broker_name=remote,
            local_connection_id=f"a->{remote}:1",
            number=lambda: next(numbers),
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.woken += 1

    def apply(self, changes: list[DemandChange]) -> list[DemandChange]:
        """Carry changes out, and return them."""
        for change in changes:
            match change:
                case BeginDemand(demand):
                    assert demand.number not in self.demands
                    self.demands[demand.number] = demand
                case EndDemand(number, deletes_durable):
                    ended = self.demands.pop(number)
                    if deletes_durable:
                        assert ended.subscription_name is not None
                        self.deleted.append(ended.subscription_name)
                case SelectDemand(number, selector):
                    assert self.demands[number].selector != selector
                    self.demands[number] = replace(self.demands[number], selector=selector)
                case DeleteDurable(name):
                    self.deleted.append(name)
        return changes

    def add(self, added: ConsumerInfo) -> list[DemandChange]:
        """Feed the advisory of a consumer."""
        return self.apply(self.table.consumer_added(added))

    def remove(self, consumer_id: ConsumerId) -> list[DemandChange]:
        """Feed the advisory of a consumer's end."""
        return self.apply(self.table.consumer_removed(consumer_id))

    def destinations(self) -> list[str]:
        """Return the destinations of its subscriptions."""
        return [str(each.destination) for each in self.demands.values()]

    def only(self) -> LocalDemand:
        """Return the one subscription that it has."""
        (demand,) = self.demands.values()
        return demand
