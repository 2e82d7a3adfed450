"""Durable demand: a durable subscription of the local broker, in which messages wait for those of the remote one."""

from dataclasses import replace

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.network.changes import BeginDemand, DeleteDurable, EndDemand, LocalDemand
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.openwire.commands import ConsumerInfo
from pybroker.broker.domain.openwire.ids import ConsumerId
from tests.unit.domain.network.tables import TOPIC, Bridge, consumer, info, stored

DYNAMIC_ONLY = NetworkConnector(name="nc", dynamic_only=True)
NO_CONDUIT = NetworkConnector(name="nc", conduit_subscriptions=False)


def subscriber(number: int, *, client_id: str | None = None, selector: str | None = None):
    return info(consumer(number), TOPIC, name="sub", client_id=client_id or f"cid{number}", selector=selector)


def restarted(connector: NetworkConnector | None = None) -> Bridge:
    """Return a bridge whose broker has the durable subscription of an earlier connection."""
    bridge = Bridge(connector)
    bridge.apply(bridge.table.restored(stored()))
    return bridge


# ---------------------------------------------------------------- one connection


def test_durable_demand_has_the_bridges_name_and_no_selector() -> None:
    bridge = Bridge()

    bridge.add(subscriber(1, selector="a = 1"))

    assert bridge.only() == LocalDemand(
        number=2,
        destination=TOPIC,
        client_id="cid1",
        subscription_name="NC-DS_a_T",
        broker_path=("id-b",),
        consumer_path=(consumer(1),),
    )


def test_durable_demand_stays_while_its_subscribers_are_offline() -> None:
    bridge = Bridge()
    bridge.add(subscriber(1))
    bridge.add(subscriber(2))

    assert bridge.remove(consumer(1)) == []
    assert bridge.remove(consumer(2)) == []
    assert bridge.add(subscriber(3, client_id="cid1")) == []


def test_durable_demand_ends_with_its_last_subscription() -> None:
    bridge = Bridge()
    bridge.add(subscriber(1))
    bridge.add(subscriber(2))

    assert bridge.apply(bridge.table.subscription_removed("cid1", "sub")) == []
    assert bridge.apply(bridge.table.subscription_removed("cid1", "sub")) == []
    assert bridge.apply(bridge.table.subscription_removed("cid2", "sub")) == [EndDemand(2, deletes_durable=True)]


def test_a_plain_consumer_keeps_demand_when_the_durable_one_ends() -> None:
    bridge = Bridge()
    bridge.add(subscriber(1))
    assert bridge.add(info(consumer(2), TOPIC, selector="a = 1")) == []

    bridge.apply(bridge.table.subscription_removed("cid1", "sub"))

    assert bridge.deleted == ["NC-DS_a_T"]
    assert (bridge.only().subscription_name, bridge.only().selector) == (None, "a = 1")
    assert bridge.remove(consumer(2)) == [EndDemand(3)]


def test_a_durable_consumer_does_not_share_demand_that_is_not_durable() -> None:
    """ActiveMQ lets it, and what is sent while the bridge is down is lost."""
    bridge = Bridge()
    bridge.add(info(consumer(1), TOPIC))

    bridge.add(subscriber(2))

    assert [each.subscription_name for each in bridge.demands.values()] == [None, "NC-DS_a_T"]


def test_a_durable_pattern_serves_durable_topics_that_it_covers() -> None:
    bridge = Bridge()
    bridge.add(info(consumer(1), topic("T.>"), name="wide"))

    assert bridge.add(info(consumer(2), topic("T.1"), name="narrow")) == []
    assert bridge.only().subscription_name == "NC-DS_a_T.>"


def test_without_conduit_a_durable_subscription_outlives_its_consumer() -> None:
    bridge = Bridge(NO_CONDUIT)
    bridge.add(subscriber(1, selector="a = 1"))
    assert (bridge.only().subscription_name, bridge.only().selector) == ("sub", "a = 1")

    assert bridge.remove(consumer(1)) == [EndDemand(1)]
    assert bridge.apply(bridge.table.subscription_removed("cid1", "sub")) == [DeleteDurable("sub")]
    assert bridge.apply(bridge.table.subscription_removed("cid1", "sub")) == []


def test_without_conduit_a_name_that_another_client_has_is_kept() -> None:
    bridge = Bridge(NO_CONDUIT)
    bridge.add(subscriber(1))
    bridge.add(subscriber(2))
    bridge.remove(consumer(1))

    assert bridge.apply(bridge.table.subscription_removed("cid1", "sub")) == []


# ---------------------------------------------------------------- several connections


def test_a_stored_subscription_continues_at_start() -> None:
    bridge = restarted()

    assert bridge.only() == LocalDemand(
        number=3,
        destination=TOPIC,
        subscription_name="NC-DS_a_T",
        broker_path=("id-b",),
        consumer_path=(ConsumerId("a->b:1", 1, 1),),
    )
    assert bridge.add(subscriber(1)) == []
    assert bridge.apply(bridge.table.restored(stored())) == []


def test_a_stored_subscription_waits_for_demand_if_dynamic_only() -> None:
    bridge = restarted(DYNAMIC_ONLY)
    assert bridge.demands == {}

    (begun,) = bridge.add(subscriber(1))

    assert isinstance(begun, BeginDemand)
    assert begun.demand.subscription_name == "NC-DS_a_T"


def test_stored_subscriptions_of_others_are_left_alone() -> None:
    bridge = Bridge(NetworkConnector(name="nc", excluded=(topic("X"),)))

    assert bridge.table.restored(stored(client_id="nc_c_inbound_a")) == []
    assert bridge.table.restored(stored(topic("X"))) == []
    assert Bridge(NO_CONDUIT).table.restored(stored()) == []


def test_a_stored_subscription_stays_while_its_subscribers_are_unknown() -> None:
    """The subscription of an offline subscriber is not deleted with that of an active one, as by ActiveMQ."""
    for connector in (None, DYNAMIC_ONLY):
        bridge = restarted(connector)
        bridge.add(subscriber(1))
        bridge.remove(consumer(1))

        assert bridge.apply(bridge.table.subscription_removed("cid1", "sub")) == []
        assert len(bridge.demands) == 1


def test_a_plain_consumer_does_not_end_a_stored_subscription() -> None:
    bridge = restarted()
    bridge.add(info(consumer(1), TOPIC))

    assert bridge.remove(consumer(1)) == []


def test_a_listed_subscription_keeps_a_stored_one_until_it_is_deleted() -> None:
    for connector in (None, DYNAMIC_ONLY):
        bridge = restarted(connector)
        bridge.apply(bridge.table.remote_subscriptions([subscriber(1), subscriber(2)]))
        bridge.add(subscriber(1))
        bridge.remove(consumer(1))

        assert bridge.apply(bridge.table.subscription_removed("cid1", "sub")) == []
        bridge.apply(bridge.table.subscription_removed("cid2", "sub"))
        assert bridge.deleted == ["NC-DS_a_T"]
        assert bridge.demands == {}


def test_a_stored_subscription_that_nothing_listed_needs_is_deleted() -> None:
    for connector in (None, DYNAMIC_ONLY):
        bridge = restarted(connector)

        bridge.apply(bridge.table.remote_subscriptions([info(consumer(1), queue("T"))]))

        assert bridge.deleted == ["NC-DS_a_T"]
        assert bridge.demands == {}


def test_a_plain_consumer_keeps_demand_when_the_list_is_empty() -> None:
    bridge = restarted()
    bridge.add(info(consumer(1), TOPIC))

    bridge.apply(bridge.table.remote_subscriptions([]))

    assert bridge.deleted == ["NC-DS_a_T"]
    assert bridge.only().subscription_name is None


def test_a_listed_subscription_that_is_offline_is_demand() -> None:
    bridge = Bridge()

    bridge.apply(bridge.table.remote_subscriptions([subscriber(1)]))

    assert bridge.only().subscription_name == "NC-DS_a_T"
    assert Bridge(NO_CONDUIT).table.remote_subscriptions([subscriber(1)]) == []


def test_all_subscribers_of_a_lost_bridge_are_served_after_it() -> None:
    """The script of the recorded conversation: d1 to d5 reach each subscriber, whether it is there or not."""
    first = Bridge()
    first.add(subscriber(1))
    first.add(subscriber(2))
    first.remove(consumer(1))
    first.table.close()

    second = restarted()
    second.add(subscriber(2))
    second.add(subscriber(3, client_id="cid1"))
    second.remove(consumer(3))
    second.remove(consumer(2))

    assert second.only().subscription_name == "NC-DS_a_T"
    assert second.deleted == []


# ---------------------------------------------------------------- two hops


def relayed(number: int, client_id: str, *, name: str = "NC-DS_b_T"):
    """Return the durable demand of bridge b to c, whose messages the remote broker b gets from here."""
    return info(
        ConsumerId("b->c:1", 1, number),
        TOPIC,
        path=("id-c",),
        consumer_path=(consumer(number, "c"),),
        name=name,
        client_id=client_id,
    )


def test_the_end_of_a_bridges_subscription_ends_the_next_one() -> None:
    """It is announced with the subscriber's client id, and deleted with that of the bridge."""
    bridge = Bridge(NetworkConnector(name="nc", consumer_ttl=2))
    bridge.add(relayed(1, "cid1"))

    assert bridge.apply(bridge.table.subscription_removed("nc_c_inbound_b", "NC-DS_b_T")) == [
        EndDemand(2, deletes_durable=True)
    ]


def test_a_bridges_subscription_that_could_be_another_ones_stays() -> None:
    bridge = Bridge(NetworkConnector(name="nc", consumer_ttl=2))
    bridge.add(relayed(1, "cid1"))
    bridge.add(relayed(2, "cid2"))

    assert bridge.apply(bridge.table.subscription_removed("nc_c_inbound_b", "NC-DS_b_T")) == []


# ---------------------------------------------------------------- consumers that are not durable


FORCED = NetworkConnector(name="nc", forced_durable=(topic("T.>"),))
T1 = topic("T.1")


def plain(number: int, destination: Destination = T1, selector: str | None = None) -> ConsumerInfo:
    return info(consumer(number), destination, selector=selector)


def forced_again(connector: NetworkConnector = FORCED) -> Bridge:
    """Return a bridge whose broker has the durable subscription of an earlier connection."""
    bridge = Bridge(connector)
    bridge.apply(bridge.table.restored(stored(T1)))
    return bridge


def test_forced_demand_is_durable_until_its_last_consumer_ends() -> None:
    bridge = Bridge(FORCED)

    bridge.add(plain(1, selector="a = 1"))
    assert bridge.only() == LocalDemand(
        number=2,
        destination=T1,
        client_id="client",
        subscription_name="NC-DS_a_T.1",
        broker_path=("id-b",),
        consumer_path=(consumer(1),),
    )
    assert bridge.add(plain(2)) == []

    assert bridge.remove(consumer(1)) == []
    assert bridge.remove(consumer(2)) == [EndDemand(2, deletes_durable=True)]


def test_demand_for_other_destinations_is_not_forced() -> None:
    for destination in (topic("OTHER"), queue("T.1"), topic(">")):
        bridge = Bridge(FORCED)
        bridge.add(plain(1, destination))
        assert bridge.only().subscription_name is None


def test_forced_demand_needs_conduit() -> None:
    bridge = Bridge(NetworkConnector(name="nc", forced_durable=(T1,), conduit_subscriptions=False))
    bridge.add(plain(1))
    assert bridge.only().subscription_name is None
    assert bridge.remove(consumer(1)) == [EndDemand(1)]


def test_forced_and_durable_consumers_share_until_both_are_gone() -> None:
    bridge = Bridge(FORCED)
    bridge.add(info(consumer(1), T1, name="sub", client_id="cid"))
    assert bridge.add(plain(2)) == []

    assert bridge.apply(bridge.table.subscription_removed("cid", "sub")) == []
    assert bridge.remove(consumer(2)) == [EndDemand(2, deletes_durable=True)]


def test_durable_subscriber_keeps_what_a_forced_consumer_leaves() -> None:
    bridge = Bridge(FORCED)
    bridge.add(plain(2))
    assert bridge.add(info(consumer(1), T1, name="sub", client_id="cid")) == []

    assert bridge.remove(consumer(2)) == []
    assert bridge.apply(bridge.table.subscription_removed("cid", "sub")) == [EndDemand(2, deletes_durable=True)]


def test_forced_demand_goes_on_after_a_new_start() -> None:
    bridge = forced_again()
    assert bridge.only().subscription_name == "NC-DS_a_T.1"
    assert bridge.apply(bridge.table.remote_subscriptions([])) == [], "the list has durable subscribers alone"
    assert bridge.add(plain(1)) == []
    number = bridge.only().number
    assert bridge.remove(consumer(1)) == [EndDemand(number, deletes_durable=True)]


def test_forced_demand_of_dynamic_only_waits_for_its_consumer() -> None:
    bridge = forced_again(replace(FORCED, dynamic_only=True))
    assert bridge.apply(bridge.table.remote_subscriptions([])) == []
    assert bridge.deleted == []
    bridge.add(plain(1))
    assert bridge.only().subscription_name == "NC-DS_a_T.1"


def test_without_a_list_a_stored_subscription_outlives_forced_consumers() -> None:
    """There may be a durable subscriber that is offline."""
    bridge = forced_again()
    bridge.add(plain(1))
    assert bridge.remove(consumer(1)) == []
