"""Of several ways to one consumer one is used, and another one when that ends."""

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.network.changes import BeginDemand, EndDemand
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.openwire.commands import ConsumerInfo
from pybroker.broker.domain.openwire.ids import ConsumerId
from tests.unit.domain.network.tables import Bridge, consumer, info, stored

TOPIC = topic("T")
BOTH = NetworkConnector(name="nc", consumer_ttl=2, suppress_duplicate_queue_subscriptions=True)
DECREASING = NetworkConnector(name="nc", consumer_ttl=2, decrease_network_consumer_priority=True)


class Ring:
    """Broker a of a ring of three, with its bridges to b and c; a consumer at b is also reached by way of c."""

    def __init__(self, connector: NetworkConnector = BOTH) -> None:
        self.interests = Interests()
        self.b = Bridge(connector, interests=self.interests)
        self.c = Bridge(connector, remote="c", interests=self.interests)


def detour(number: int, destination: Destination = TOPIC, *, priority: int = 0) -> ConsumerInfo:
    """Return the demand of a consumer at b, as c announces it."""
    relayed = ConsumerId("c->b:1", 1, number)
    return info(relayed, destination, path=("id-b",), consumer_path=(consumer(number),), priority=priority)


@pytest.mark.parametrize("destination", [TOPIC, queue("Q"), topic("T.>")])
def test_a_second_way_to_a_consumer_is_suppressed(destination: Destination) -> None:
    ring = Ring()

    ring.b.add(info(consumer(1), destination))

    assert ring.c.add(detour(1, destination)) == []
    assert ring.c.add(detour(2, destination)) != []


@pytest.mark.parametrize(("destination", "expected"), [(TOPIC, 0), (queue("Q"), 1)])
def test_by_default_topics_alone_are_suppressed(destination: Destination, expected: int) -> None:
    ring = Ring(NetworkConnector(consumer_ttl=2))

    ring.b.add(info(consumer(1), destination))

    assert len(ring.c.add(detour(1, destination))) == expected


def test_the_detour_is_used_when_the_direct_way_breaks() -> None:
    ring = Ring()
    ring.b.add(info(consumer(1), TOPIC))
    ring.c.add(detour(1))

    ring.b.table.close()
    assert ring.c.woken == 1
    (begun,) = ring.c.apply(ring.c.table.reconsider())

    assert isinstance(begun, BeginDemand)
    assert begun.demand.broker_path == ("id-b", "id-c")
    assert ring.c.table.reconsider() == []


def test_the_detour_is_not_used_when_the_consumer_itself_ends() -> None:
    ring = Ring()
    ring.b.add(info(consumer(1), TOPIC))
    ring.c.add(detour(1))

    ring.b.remove(consumer(1))

    assert ring.c.table.reconsider() == []
    assert ring.c.remove(ConsumerId("c->b:1", 1, 1)) == []


def test_a_candidate_that_ended_while_it_waited_is_not_used() -> None:
    ring = Ring()
    ring.b.add(info(consumer(1), TOPIC))
    ring.c.add(detour(1))
    ring.c.remove(ConsumerId("c->b:1", 1, 1))

    ring.b.table.close()

    assert ring.c.woken == 0
    assert ring.c.table.reconsider() == []


def test_a_shared_way_suppresses_for_all_its_consumers() -> None:
    ring = Ring()
    ring.b.add(info(consumer(1), topic("T.>")))
    ring.b.add(info(consumer(2), TOPIC))
    ring.b.remove(consumer(1))

    assert ring.c.add(detour(1, topic("T.>"))) == []
    assert ring.c.add(detour(2)) == []


def test_parts_of_one_composite_consumer_do_not_suppress_each_other() -> None:
    ring = Ring()

    ring.b.add(info(consumer(1), topic("T1,T2")))

    assert ring.b.destinations() == ["topic://T1", "topic://T2"]


def test_a_way_of_higher_priority_displaces_the_other() -> None:
    ring = Ring(DECREASING)
    ring.c.add(detour(1))
    assert ring.c.only().priority == -8

    ring.b.add(info(consumer(1), TOPIC))
    assert ring.b.only().priority == -5
    assert ring.c.woken == 1
    assert ring.c.apply(ring.c.table.reconsider()) == [EndDemand(1)]

    ring.b.table.close()
    ring.c.apply(ring.c.table.reconsider())
    assert ring.c.only().number == 2


def test_a_bridge_decides_between_its_own_candidates_too() -> None:
    bridge = Bridge(NetworkConnector(consumer_ttl=3, suppress_duplicate_queue_subscriptions=True))
    one, other = (
        info(ConsumerId(f"b->{each}:1", 1, 1), path=(f"id-{each}",), consumer_path=(consumer(1, "d"),)) for each in "cd"
    )

    bridge.add(one)
    assert bridge.add(other) == []
    assert one.consumer_id is not None

    assert [type(each) for each in bridge.remove(one.consumer_id)] == [EndDemand, BeginDemand]


def durable_detour(*, priority: int = 0) -> ConsumerInfo:
    """Return the demand of c's durable subscription for the consumer at b."""
    relayed = detour(1, priority=priority)
    relayed.subscription_name = "NC-DS_c_T"
    return relayed


@pytest.mark.parametrize("dynamic_only", [False, True])
def test_durable_demand_that_was_stored_is_never_suppressed(dynamic_only: bool) -> None:
    ring = Ring(NetworkConnector(name="nc", consumer_ttl=2, dynamic_only=dynamic_only))
    ring.c.add(durable_detour())
    ring.b.apply(ring.b.table.restored(stored()))

    ring.b.add(info(consumer(1), TOPIC, name="sub"))

    assert [each.subscription_name for each in (ring.b.only(), ring.c.only())] == ["NC-DS_a_T", "NC-DS_a_T"]


def test_stored_demand_suppresses_whatever_the_priority() -> None:
    ring = Ring()
    ring.b.apply(ring.b.table.restored(stored()))
    ring.b.add(info(consumer(1), TOPIC, name="sub"))

    assert ring.c.add(durable_detour(priority=9)) == []
    assert ring.b.woken == 0


def test_durable_demand_is_not_displaced() -> None:
    """Its backlog would stay at the local broker."""
    ring = Ring(DECREASING)
    ring.c.add(durable_detour())

    assert ring.b.add(info(consumer(1), TOPIC, name="sub")) == []
    assert ring.c.only().priority == -8


def test_a_durable_candidate_waits_while_its_subscriber_is_offline() -> None:
    ring = Ring()
    ring.b.add(info(consumer(1), TOPIC, name="sub"))
    ring.c.add(durable_detour())
    ring.c.remove(ConsumerId("c->b:1", 1, 1))

    ring.b.table.close()
    ring.c.apply(ring.c.table.reconsider())

    assert ring.c.only().subscription_name == "NC-DS_a_T"


def test_a_durable_candidate_ends_with_its_subscription() -> None:
    ring = Ring()
    ring.b.add(info(consumer(1), TOPIC, name="sub"))
    ring.c.add(durable_detour())
    ring.c.apply(ring.c.table.subscription_removed("client", "NC-DS_c_T"))

    ring.b.table.close()

    assert ring.c.table.reconsider() == []


@pytest.mark.parametrize("is_durable", [False, True])
def test_claim_keeps_no_consumer_that_has_ended(is_durable: bool) -> None:
    """Otherwise a subscription that lasts takes memory for each consumer that it has ever served."""
    ring = Ring()
    name = "sub" if is_durable else None
    ring.b.add(info(consumer(1), TOPIC, name=name))
    for number in range(2, 9):
        ring.b.add(info(consumer(number), TOPIC, name=name))
        assert not ring.interests.is_free(TOPIC, {consumer(number)}, 0)
        ring.b.remove(consumer(number - 1))

    free = [number for number in range(1, 9) if ring.interests.is_free(TOPIC, {consumer(number)}, 0)]
    assert free == [2, 3, 4, 5, 6, 7], "the first one names the subscription, and the last one is there"
    assert len(ring.b.demands) == 1


def test_claim_keeps_an_id_that_another_consumer_has() -> None:
    """Consumers behind one subscription of a further broker have its id in common."""
    ring = Ring()
    ring.c.add(info(consumer(9), TOPIC))
    ring.c.add(detour(1))
    ring.c.add(info(ConsumerId("c->b:1", 1, 50), TOPIC, path=("id-b",), consumer_path=(consumer(1),)))
    ring.c.remove(ConsumerId("c->b:1", 1, 1))
    assert not ring.interests.is_free(TOPIC, {consumer(1)}, 0)
    ring.c.remove(ConsumerId("c->b:1", 1, 50))
    assert ring.interests.is_free(TOPIC, {consumer(1)}, 0)
