"""Recorded advisories give the demand subscriptions that ActiveMQ had, but for what the module `demand` lists."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.network.changes import BeginDemand, DeleteDurable, DemandChange, EndDemand, LocalDemand
from pybroker.broker.domain.network.demand import DemandTable
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.network.permission import Permissions
from pybroker.broker.domain.network.properties import connector_of, decode
from pybroker.broker.domain.openwire.commands import (
    MESSAGES,
    BrokerInfo,
    BrokerSubscriptionInfo,
    ConsumerInfo,
    MessageDispatch,
    RemoveInfo,
    RemoveSubscriptionInfo,
)
from pybroker.broker.domain.openwire.ids import ConsumerId
from pybroker.broker.domain.subscription import DurableSubscription
from tests.unit.domain.network.recorded import conversations, frames

FIELDS = ("consumerId", "destination", "selector", "clientId", "subscriptionName", "exclusive", "noLocal", "priority")
LISTS = ("brokerPath", "networkConsumerIds")

OTHERS = {"cluster", "cluster_update", "reconnect_to", "bridgeadv", "bridgeadv-net", "statpure"}
"""Conversations without demand."""

STORED = {"durable": 3, "durable_sync": 3}
"""The connections that begin with a durable subscription in the store of broker a."""


@dataclass
class End:
    """One end of a recorded connection, with the table that it would have."""

    name: str
    broker_id: str
    connection_id: str = ""
    table: DemandTable | None = None
    is_open: bool = True
    begun: list[LocalDemand] = field(default_factory=list)
    ended: list[EndDemand] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def apply(self, changes: list[DemandChange]) -> None:
        self.begun += [each.demand for each in changes if isinstance(each, BeginDemand)]
        self.ended += [each for each in changes if isinstance(each, EndDemand)]
        self.deleted += [each.subscription_name for each in changes if isinstance(each, DeleteDurable)]

    def ended_ids(self) -> list[str]:
        return [f"{self.connection_id}:1:{each.number}" for each in self.ended]


def as_recorded(demand: LocalDemand, connection_id: str) -> dict[str, Any]:
    """Return a subscription with the fields that the recording has."""
    values = {
        "consumerId": f"{connection_id}:1:{demand.number}",
        "destination": str(demand.destination),
        "selector": demand.selector,
        "clientId": demand.client_id,
        "subscriptionName": demand.subscription_name,
        "exclusive": "true" if demand.exclusive else None,
        "noLocal": "true" if demand.no_local else None,
        "priority": str(demand.priority) if demand.priority else None,
        "brokerPath": list(demand.broker_path),
        "networkConsumerIds": list(map(str, demand.consumer_path)),
    }
    return {key: each for key, each in values.items() if each is not None}


def inside(name: str, verb: str) -> Iterator[str]:
    for line in conversations()[name]["inside_the_brokers"]:
        if f"] {verb} by " in line and "_inbound_" in line and "ActiveMQ.Advisory" not in line:
            yield line


def recorded_demand(name: str, connection_id: str) -> list[dict[str, Any]]:
    """Return the subscriptions that ActiveMQ added on one internal connection of a bridge."""
    found = []
    for line in inside(name, "addConsumer"):
        text = line[line.index("{") + 1 : line.rindex("}")]
        fields: dict[str, Any] = dict(each.split(" = ", 1) for each in re.split(r", (?=\w+ = )", text))
        if fields["consumerId"].rpartition(":1:")[0] == connection_id:
            for each in LISTS:
                fields[each] = fields[each].strip("[]").split(", ")
            found.append({key: fields[key] for key in (*FIELDS, *LISTS) if key in fields})
    return found


def recorded_ends(name: str) -> list[str]:
    return [line.split(" by ")[1].split()[1] for line in inside(name, "removeConsumer")]


def make_table(
    near: End, far: End, properties: dict[str, str], interests: Interests, *, is_duplex: bool
) -> DemandTable:
    connector = connector_of(properties)
    numbers = count(1)
    table = DemandTable(
        connector,
        Permissions(connector),
        interests,
        local_broker_id=near.broker_id,
        remote_broker_id=far.broker_id,
        local_broker_name=near.name,
        remote_broker_name=far.name,
        local_connection_id=near.connection_id,
        number=lambda: next(numbers),
        wake=lambda: None,
    )
    near.apply(table.static())
    if is_duplex:
        next(numbers)  # the subscription to advisories, for the other end
    return table


def advised(value: object) -> object:
    """Return what an advisory, dispatched or forwarded, carries."""
    message = value.message if isinstance(value, MessageDispatch) else value
    return message.data_structure if isinstance(message, MESSAGES) else None


def feed(end: End, value: object) -> None:
    table = end.table
    assert table is not None
    match advised(value):
        case ConsumerInfo() as info:
            end.apply(table.consumer_added(info))
        case RemoveInfo(object_id=ConsumerId() as consumer_id):
            end.apply(table.consumer_removed(consumer_id))
        case RemoveSubscriptionInfo(client_id=client_id, subscription_name=str() as name):
            end.apply(table.subscription_removed(client_id, name))
    if isinstance(value, BrokerSubscriptionInfo):
        end.apply(table.remote_subscriptions(each for each in value.subscription_infos or () if each))


def replay(name: str) -> dict[tuple[int, str], End]:
    """Return both ends of each connection, with the demand that its advisories give."""
    ends: dict[tuple[int, str], End] = {}
    interests = Interests()
    for frame in frames(name):
        here = (frame.connection, frame.sender)
        there = (frame.connection, "acceptor" if frame.sender == "initiator" else "initiator")
        if isinstance(frame.value, BrokerInfo):
            assert frame.value.broker_id is not None
            ends[here] = End(frame.value.broker_name or "", frame.value.broker_id.value or "")
            if frame.value.network_properties:
                begin(name, frame.connection, ends, decode(frame.value.network_properties), interests)
        elif there in ends and ends[there].table is not None and ends[there].is_open:
            feed(ends[there], frame.value)
    return ends


def begin(
    name: str, connection: int, ends: dict[tuple[int, str], End], properties: dict[str, str], interests: Interests
) -> None:
    is_duplex = properties["duplex"] == "true"
    for sender in ("initiator", "acceptor"):
        earlier = ends.get((connection - 1, sender))
        if earlier is not None and earlier.table is not None:
            earlier.table.close()
            earlier.is_open = False
    for sender, other in (("initiator", "acceptor"), ("acceptor", "initiator"))[: 1 + is_duplex]:
        near, far = ends[connection, sender], ends[connection, other]
        near.connection_id = connection_id_of(name, connection, near.name, far.name)
        near.table = make_table(near, far, properties, interests, is_duplex=is_duplex)
        if STORED.get(name) == connection:
            subscription = DurableSubscription(
                client_id="nc_b_inbound_a",
                name="NC-DS_a_D",
                destination=topic("D"),
                subscribed_destination=topic("D"),
            )
            near.apply(near.table.restored(subscription))


def connection_id_of(name: str, connection: int, near: str, far: str) -> str:
    """Return the id of the internal connection that belongs to a connection of a bridge."""
    ids = dict.fromkeys(
        found[1]
        for line in conversations()[name]["inside_the_brokers"]
        for found in re.finditer(rf"({re.escape(near)}->{re.escape(far)}-\d+-\d+-\d+):\d+", line)
    )
    return f"{list(ids)[connection - 1]}:1"


SAME = sorted(set(conversations()) - OTHERS - {"oneway", "static_failover"})
"""In `static_failover` the transport reconnects below the bridge of ActiveMQ, which then has two connections."""


@pytest.mark.parametrize("name", SAME)
def test_recorded_advisories_give_the_recorded_demand(name: str) -> None:
    begun = 0
    for end in replay(name).values():
        if end.table is not None:
            assert [as_recorded(each, end.connection_id) for each in end.begun] == recorded_demand(
                name, end.connection_id
            )
            assert set(end.ended_ids()) <= set(recorded_ends(name))
            begun += len(end.begun)
    assert begun


def test_one_way_demand_keeps_a_selector_and_splits_composites() -> None:
    end = replay("oneway")[1, "initiator"]
    q1, t1, wild, composite, w = recorded_demand("oneway", end.connection_id)

    q1["selector"] = "n IS NULL OR n < 5"  # ActiveMQ has none, and forwards messages that stay at the other broker
    split = [composite | {"destination": "queue://Q3"}]
    split.append(composite | {"destination": "queue://Q4", "consumerId": w["consumerId"]})
    w["consumerId"] = f"{end.connection_id}:1:6"
    assert [as_recorded(each, end.connection_id) for each in end.begun] == [q1, t1, wild, *split, w]
    assert end.ended_ids() == [q1["consumerId"]]


def test_durable_demand_stays_for_a_subscriber_that_is_offline() -> None:
    """ActiveMQ deletes it with the first of two subscribers, because after a restart it knows only that one."""
    ends = replay("durable")

    last = ends[3, "initiator"]
    assert [each.subscription_name for each in last.begun] == ["NC-DS_a_D"]
    assert last.ended == []
    assert recorded_ends("durable")[-1] == f"{last.connection_id}:1:3"


def test_durable_demand_ends_with_the_last_listed_subscriber() -> None:
    last = replay("durable_sync")[3, "initiator"]

    assert last.ended == [EndDemand(3, deletes_durable=True)]


def test_demand_without_conduit_leaves_durable_subscriptions_to_be_deleted() -> None:
    end = replay("noconduit")[1, "initiator"]

    assert [each.number for each in end.ended if not each.deletes_durable] == [5, 6, 1, 2, 3, 4]
    assert end.deleted == ["sub"]
