"""Consumers behind composite destinations and virtual topics are demand for these at the other broker."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.virtual import CompositeDestination, Definition, Forward, MirroredQueues, VirtualTopic
from pybroker.broker.core.virtual_advisories import VirtualAdvisories, VirtualDemand
from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.openwire.commands import (
    ActiveMQMessage,
    ConsumerInfo,
    DestinationInfo,
    DestinationOperation,
    MessageDispatch,
    RemoveInfo,
    RemoveSubscriptionInfo,
    Response,
)
from pybroker.store.memory import MemoryStore
from tests.unit.domain.network.recorded import conversations
from tests.unit.transports.network.bridges import TwoBrokers, named_broker
from tests.unit.transports.network.test_bridge import got
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, texts

IN, OUT = topic("IN.T"), queue("OUT.Q")
COMPOSITE = CompositeDestination(destination=IN, forward_to=(Forward(destination=OUT),))
ABOUT = "ActiveMQ.Advisory.VirtualDestination.Consumer."


def announcing(
    *definitions: Definition, consumers: bool = True, queues: bool = False, store: MemoryStore | None = None
) -> BrokerCore:
    """Return a broker that announces demand for virtual destinations."""
    broker = named_broker("far", store, definitions=definitions or (COMPOSITE,))
    virtual = VirtualAdvisories(
        broker.advisories,
        broker.admin,
        VirtualDemand(definitions or (COMPOSITE,)),
        of_consumers=consumers,
        of_queues=queues,
    )
    broker.advisories.existing_elsewhere = virtual.existing
    broker.observe(virtual)
    return broker


def clients(broker: BrokerCore, *names: str) -> Sequence[OpenWireClient]:
    """Return connected clients of a broker."""
    found = [OpenWireClient(broker) for _ in names]
    for client, name in zip(found, names, strict=True):
        client.connect(name)
        client.open_session()
    return found


def advisories(client: OpenWireClient) -> list[ActiveMQMessage]:
    """Return the advisories that a client has got."""
    return [each.message for each in of_kind(client.receive(), MessageDispatch) if each.message]


def bridge(far: BrokerCore, **attributes: Any) -> TwoBrokers:
    """Return a bridge that follows such demand."""
    return TwoBrokers(far_broker=far, use_virtual_dest_subs=True, **attributes)


# ---------------------------------------------------------------- the broker that has the consumers


@pytest.mark.parametrize(
    ("definition", "consumed", "found"),
    [
        (COMPOSITE, OUT, [IN]),
        (COMPOSITE, topic("OUT.Q"), []),
        (COMPOSITE, queue("OUT.>"), [IN]),
        (COMPOSITE, queue("OTHER"), []),
        (VirtualTopic(), queue("Consumer.A.VirtualTopic.V"), [topic("VirtualTopic.V")]),
        (VirtualTopic(), queue("Consumer.A.VirtualTopic.>"), [topic("VirtualTopic.>")]),
        (VirtualTopic(), queue("Consumer.A.OTHER"), []),
        (VirtualTopic(local=True), queue("Consumer.A.VirtualTopic.V"), []),
        (VirtualTopic(name="E.>", prefix="", postfix=".copy"), queue("E.1.copy"), [topic("E.1")]),
        (MirroredQueues(), topic("VirtualTopic.Mirror.Q"), []),
    ],
)
def test_destination_leads_back_to_its_virtual_ones(
    definition: Definition, consumed: Destination, found: list[Destination]
) -> None:
    assert VirtualDemand((definition,)).leading_to((consumed,)) == found


def test_virtual_destinations_may_follow_one_another_in_a_circle() -> None:
    a, b, c = queue("A"), queue("B"), queue("C")
    ways = [(a, b), (b, c), (c, a)]
    demand = VirtualDemand(CompositeDestination(destination=x, forward_to=(Forward(destination=y),)) for x, y in ways)
    assert set(demand.leading_to((c,))) == {a, b, c}


def test_advisories_of_a_consumer_are_those_of_activemq() -> None:
    recorded = [
        frame["command"]["message"]
        for frame in conversations()["vdestsubs"]["frames"]
        if frame["command"]["_type"] == "MessageDispatch"
    ]
    watcher, reader = clients(announcing(), "w", "ID:testhost-46799-1795363513318-166")
    watcher.consume(topic(f"{ABOUT}Topic.IN.>"))
    reader.consume(OUT, prefetch_size=1000)
    reader.remove(reader.consumer())
    added, removed = advisories(watcher)
    assert [str(each.destination) for each in (added, removed)] == [each["destination"] for each in recorded]
    assert [each.jms_type for each in (added, removed)] == [each["type"] for each in recorded]
    info, expected = added.data_structure, recorded[0]["dataStructure"]
    assert isinstance(info, ConsumerInfo)
    assert str(info.destination) == expected["destination"]
    assert info.prefetch_size == expected["prefetchSize"]
    assert info.consumer_id == reader.consumer()
    assert expected["consumerId"].endswith("166:1:1:1"), "that of the queue's consumer too"
    assert isinstance(removed.data_structure, RemoveInfo)
    assert removed.data_structure.object_id == reader.consumer()


def test_consumer_from_before_is_announced_to_a_new_listener() -> None:
    watcher, reader, gone = clients(announcing(), "w", "r", "g")
    gone.consume(OUT)
    reader.consume(OUT, selector="a = 1")
    gone.remove(gone.consumer())
    (found,) = [each.message for each in of_kind(watcher.consume(topic(f"{ABOUT}>")), MessageDispatch)]
    assert found is not None
    assert isinstance(found.data_structure, ConsumerInfo)
    assert found.data_structure.consumer_id == reader.consumer()
    assert found.data_structure.selector is None, "what it does not select waits in the queue"


def test_queue_is_demand_from_its_creation_to_its_end() -> None:
    broker = announcing(consumers=False, queues=True)
    watcher, user, late = clients(broker, "w", "u", "l")
    watcher.consume(topic(f"{ABOUT}Topic.IN.T"))
    user.send(OUT, "1")
    user.send(queue("OTHER"), "1")
    (added,) = advisories(watcher)
    assert isinstance(added.data_structure, ConsumerInfo)
    (again,) = [each.message for each in of_kind(late.consume(topic(f"{ABOUT}>")), MessageDispatch)]
    assert again is not None
    assert isinstance(again.data_structure, ConsumerInfo)
    assert again.data_structure.consumer_id == added.data_structure.consumer_id
    user.answer(
        DestinationInfo(command_id=user.next_id(), destination=OUT, operation_type=DestinationOperation.REMOVE),
        Response,
    )
    (removed,) = advisories(watcher)
    assert isinstance(removed.data_structure, RemoveInfo)
    assert removed.data_structure.object_id == added.data_structure.consumer_id


def test_subscriber_to_other_advisories_costs_no_walk_over_the_queues() -> None:
    """Each connection of a JMS client subscribes to those about temporary destinations."""
    broker = announcing(queues=True)
    client = clients(broker, "c")[0]
    with patch.object(VirtualDemand, "leading_to") as asked:
        client.consume(topic("ActiveMQ.Advisory.TempQueue,ActiveMQ.Advisory.TempTopic"), 1)
        client.consume(topic("ActiveMQ.Advisory.Consumer.>"), 2)
    asked.assert_not_called()


def test_end_of_a_durable_subscription_is_announced() -> None:
    target = topic("OUT.T")
    broker = announcing(CompositeDestination(destination=IN, forward_to=(Forward(destination=target),)))
    watcher = clients(broker, "w")[0]
    watcher.consume(topic(f"{ABOUT}>"))
    reader = OpenWireClient(broker)
    reader.connect("r", client_id="me")
    reader.open_session()
    reader.consume(target, subscription_name="mine")
    reader.remove(reader.consumer())
    reader.answer(
        RemoveSubscriptionInfo(command_id=reader.next_id(), client_id="me", subscription_name="mine"), Response
    )
    kinds = [type(each.data_structure) for each in advisories(watcher)]
    assert kinds == [ConsumerInfo, RemoveInfo, RemoveSubscriptionInfo]


# ---------------------------------------------------------------- the broker that has the connector


def test_consumer_of_a_composites_target_is_demand_for_the_composite() -> None:
    brokers = bridge(announcing())
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    producer.send(IN, "before")
    reader.consume(OUT)
    brokers.pump()
    producer.send(IN, "1", "2")
    brokers.pump()
    assert got(reader) == ["1", "2"]
    reader.remove(reader.consumer())
    brokers.pump()
    assert not brokers.session.demand
    producer.send(IN, "after")
    brokers.pump()
    assert brokers.session.forwarded_count == 2


def test_demand_from_before_the_bridge_is_found() -> None:
    far = announcing()
    (reader,) = clients(far, "c")
    reader.consume(OUT)
    brokers = bridge(far)
    brokers.client(brokers.near.broker, "p").send(IN, "1")
    brokers.pump()
    assert got(reader) == ["1"]


def test_group_of_a_virtual_topic_gets_each_message_once() -> None:
    """Both brokers have the queue: messages come by it, and by the topic."""
    brokers = bridge(announcing(VirtualTopic()))
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(queue("Consumer.A.VirtualTopic.V"))
    brokers.pump()
    assert len(brokers.session.demand) == 2
    producer.send(topic("VirtualTopic.V"), "1", "2", persistent=True)
    brokers.pump()
    assert got(reader) == ["1", "2"]


def test_group_whose_queue_is_excluded_gets_all_by_the_topic() -> None:
    brokers = bridge(announcing(VirtualTopic()), excluded=(queue("Consumer.>"),))
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(queue("Consumer.A.VirtualTopic.V"))
    brokers.pump()
    producer.send(topic("VirtualTopic.V"), "1", persistent=False)
    brokers.pump()
    assert got(reader) == ["1"]


@pytest.mark.parametrize("is_persistent", [True, False])
def test_local_virtual_topic_leaves_the_copies_to_the_other_broker(is_persistent: bool) -> None:
    """A consumer of the topic and one of the queue: each message comes to both, and to the queue once."""
    brokers = TwoBrokers(far_broker=named_broker("far", definitions=(VirtualTopic(local=True),)))
    producer, group = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    plain, there = brokers.client(brokers.far, "t"), brokers.client(brokers.far, "q")
    group.consume(queue("Consumer.A.VirtualTopic.V"))
    plain.consume(topic("VirtualTopic.V"))
    brokers.pump()
    producer.send(topic("VirtualTopic.V"), "1", persistent=is_persistent)
    brokers.pump()
    assert (got(group), got(plain)) == (["1"], ["1"])
    there.send(topic("VirtualTopic.V"), "2", persistent=is_persistent)
    assert (got(group), got(plain)) == (["2"], ["2"])


def test_queue_without_consumers_is_filled() -> None:
    far = announcing(VirtualTopic(), consumers=False, queues=True)
    brokers = bridge(far, dynamically_included=(topic("VirtualTopic.>"),))
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    away = queue("Consumer.A.VirtualTopic.V")
    reader.consume(away)
    reader.remove(reader.consumer())
    brokers.pump()
    producer.send(topic("VirtualTopic.V"), "1")
    brokers.pump()
    assert texts(reader.consume(away)) == ["1"]


@pytest.mark.parametrize("attributes", [{}, {"dynamically_included": (IN,)}])
def test_connector_without_the_attribute_ignores_such_demand(attributes: dict[str, Any]) -> None:
    brokers = TwoBrokers(far_broker=announcing(), **attributes)
    brokers.client(brokers.far, "c").consume(OUT)
    brokers.pump()
    assert [each.request.destination for each in brokers.session.demand] == ([] if attributes else [OUT])


def test_duplex_bridge_follows_such_demand_both_ways() -> None:
    """The near broker has the composite, and the far one the producer."""
    far = named_broker("far")
    brokers = TwoBrokers(far_broker=far, near="a")
    brokers.cut()
    brokers.near.broker = announcing()
    brokers.near.broker.name = "near"
    brokers.near.broker.id = "ID:near"
    brokers.connect(duplex=True, use_virtual_dest_subs=True)
    reader, producer = brokers.client(brokers.near.broker, "c"), brokers.client(far, "p")
    reader.consume(OUT)
    brokers.pump()
    producer.send(IN, "1")
    brokers.pump()
    assert got(reader) == ["1"]


def test_durable_subscriber_behind_a_composite_loses_nothing_at_a_new_start() -> None:
    """The other broker's list names its own topic, not the composite one, whose messages wait here."""
    target = topic("OUT.T")
    far = announcing(CompositeDestination(destination=IN, forward_to=(Forward(destination=target),)))
    brokers = bridge(far)
    producer = brokers.client(brokers.near.broker, "p")
    reader = OpenWireClient(far)
    reader.connect("r", client_id="me")
    reader.open_session()
    reader.consume(target, subscription_name="mine")
    brokers.pump()
    brokers.cut()
    producer.send(IN, "1", persistent=True)
    brokers.connect(use_virtual_dest_subs=True)
    assert got(reader) == ["1"]
