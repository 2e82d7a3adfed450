"""Demand subscriptions by the consumers of the remote broker."""

from dataclasses import replace

import pytest

from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.network.changes import BeginDemand, EndDemand, LocalDemand, SelectDemand
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.demand import SELECTORS_MAX
from pybroker.broker.domain.openwire.ids import ConsumerId
from tests.unit.domain.network.tables import QUEUE, Bridge, consumer, info

TOPIC = topic("T")
NO_CONDUIT = NetworkConnector(name="nc", conduit_subscriptions=False)

# ---------------------------------------------------------------- fields


def test_demand_has_the_fields_of_its_consumer() -> None:
    bridge = Bridge()
    asked = info(consumer(1), selector="a = 1", priority=3)
    asked.exclusive = asked.no_local = asked.retroactive = True
    asked.maximum_pending_message_limit = 7
    asked.prefetch_size = 5

    assert bridge.add(asked) == [
        BeginDemand(
            LocalDemand(
                number=1,
                destination=QUEUE,
                selector="a = 1",
                priority=3,
                exclusive=True,
                no_local=True,
                retroactive=True,
                pending_limit=7,
                client_id="client",
                broker_path=("id-b",),
                consumer_path=(consumer(1),),
            )
        )
    ]


@pytest.mark.parametrize(("path", "expected"), [((), -5), (("id-c",), -8), (("id-c",) * 500, -128)])
def test_priority_decreases_with_the_hops_if_asked_for(path: tuple[str, ...], expected: int) -> None:
    bridge = Bridge(NetworkConnector(decrease_network_consumer_priority=True, consumer_ttl=-1))

    bridge.add(info(consumer(1), path=path, priority=3))

    assert bridge.only().priority == expected


def test_demand_from_further_away_has_the_whole_path() -> None:
    bridge = Bridge(NetworkConnector(consumer_ttl=2))

    bridge.add(info(ConsumerId("b->c:1", 1, 4), path=("id-c",), consumer_path=(consumer(1, "c"),)))

    assert bridge.only().broker_path == ("id-c", "id-b")
    assert bridge.only().consumer_path == (consumer(1, "c"), ConsumerId("b->c:1", 1, 4))


# ---------------------------------------------------------------- what is ignored


def test_consumers_that_may_not_cause_demand_are_ignored() -> None:
    bridge = Bridge(NetworkConnector(consumer_ttl=2, excluded=(queue("X"),)))
    browser = info(consumer(1))
    browser.browser = True

    assert bridge.add(browser) == []
    assert bridge.add(info(consumer(2), queue("X"))) == []
    assert bridge.add(info(consumer(3), path=("id-c", "id-d"))) == []
    assert bridge.add(info(consumer(4), path=("id-a",))) == []
    assert bridge.add(info(consumer(5), queue(","))) == []
    assert bridge.add(replace(info(consumer(6)), destination=None)) == []
    assert bridge.remove(consumer(7)) == []


def test_a_pattern_over_an_excluded_destination_is_demand() -> None:
    bridge = Bridge(NetworkConnector(excluded=(queue("X"),)))

    bridge.add(info(consumer(1), queue(">")))

    assert bridge.destinations() == ["queue://>"]


def test_an_advisory_that_comes_twice_counts_once() -> None:
    bridge = Bridge(NO_CONDUIT)

    assert len(bridge.add(info(consumer(1)))) == 1
    assert bridge.add(info(consumer(1))) == []
    assert bridge.remove(consumer(1)) == [EndDemand(1)]


def test_a_temporary_queue_is_demand_as_its_attribute_says() -> None:
    temporary = Destination(DestinationType.TEMP_QUEUE, "ID:client-b-1:1:1")

    assert len(Bridge().add(info(consumer(1), temporary))) == 1
    assert Bridge(NetworkConnector(bridge_temp_destinations=False)).add(info(consumer(1), temporary)) == []


# ---------------------------------------------------------------- conduit


def test_consumers_of_a_queue_share_demand_until_the_last_ends() -> None:
    bridge = Bridge()

    assert len(bridge.add(info(consumer(1)))) == 1
    assert bridge.add(info(consumer(2))) == []
    assert bridge.add(info(consumer(3))) == []
    assert bridge.remove(consumer(1)) == []
    assert bridge.remove(consumer(3)) == []
    assert bridge.remove(consumer(2)) == [EndDemand(1)]
    assert bridge.add(info(consumer(4)))[0] == BeginDemand(
        LocalDemand(
            number=2,
            destination=QUEUE,
            client_id="client",
            broker_path=("id-b",),
            consumer_path=(consumer(4),),
        )
    )


def test_without_conduit_each_consumer_has_its_own_demand() -> None:
    bridge = Bridge(NO_CONDUIT)

    bridge.add(info(consumer(1), selector="a = 0"))
    bridge.add(info(consumer(2), selector="a = 1"))

    assert [each.selector for each in bridge.demands.values()] == ["a = 0", "a = 1"]
    assert bridge.remove(consumer(1)) == [EndDemand(1)]


def test_the_shared_selector_selects_what_any_consumer_does() -> None:
    bridge = Bridge()

    bridge.add(info(consumer(1), selector="a = 1"))
    assert bridge.add(info(consumer(2), selector="b = 1 OR c = 1")) == [SelectDemand(1, "(a = 1) OR (b = 1 OR c = 1)")]
    assert bridge.add(info(consumer(3), selector="a = 1")) == []
    assert bridge.add(info(consumer(4))) == [SelectDemand(1, None)]
    assert bridge.remove(consumer(1)) == []
    assert bridge.remove(consumer(4)) == [SelectDemand(1, "(a = 1) OR (b = 1 OR c = 1)")]
    assert bridge.remove(consumer(3)) == [SelectDemand(1, "b = 1 OR c = 1")]


def test_too_many_selectors_select_everything() -> None:
    bridge = Bridge()

    for number in range(SELECTORS_MAX + 1):
        bridge.add(info(consumer(number), selector=f"n = {number}"))
    assert bridge.only().selector is None
    bridge.remove(consumer(0))

    assert bridge.only().selector is not None


def test_queue_demand_from_further_away_is_not_shared() -> None:
    far = info(ConsumerId("b->c:1", 1, 1), path=("id-c",), consumer_path=(consumer(1, "c"),))

    for together, expected in ((False, 2), (True, 1)):
        bridge = Bridge(NetworkConnector(consumer_ttl=2, conduit_network_queue_subscriptions=together))
        bridge.add(info(consumer(1)))
        bridge.add(far)
        assert len(bridge.demands) == expected


def test_plain_consumers_do_not_share_queue_demand_from_further_away() -> None:
    bridge = Bridge(NetworkConnector(consumer_ttl=2))
    bridge.add(info(ConsumerId("b->c:1", 1, 1), path=("id-c",), consumer_path=(consumer(1, "c"),)))

    bridge.add(info(consumer(1)))

    assert len(bridge.demands) == 2


def test_a_pattern_serves_a_later_destination_that_it_covers() -> None:
    bridge = Bridge()
    bridge.add(info(consumer(1), topic("T.>")))

    assert bridge.add(info(consumer(2), topic("T.1"))) == []
    assert bridge.add(info(consumer(3), queue("T.1"))) != []
    assert bridge.remove(consumer(1)) == []
    assert bridge.remove(consumer(2)) == [EndDemand(1)]


def test_a_destination_does_not_serve_a_later_pattern() -> None:
    bridge = Bridge()

    bridge.add(info(consumer(1), topic("T.1")))
    bridge.add(info(consumer(2), topic("T.>")))

    assert bridge.destinations() == ["topic://T.1", "topic://T.>"]
    assert bridge.table.taking(topic("T.1")) == (1, 2)
    assert bridge.table.taking(topic("T.2")) == (2,)
    assert bridge.table.taking(queue("T.1")) == ()


def test_a_queue_in_a_pattern_keeps_its_own_selector() -> None:
    """With a common selector, the pattern's other queues would forward messages that only this consumer wants."""
    bridge = Bridge()
    bridge.add(info(consumer(1), queue("Q.>"), selector="a = 1"))

    assert len(bridge.add(info(consumer(2), queue("Q.1"), selector="b = 1"))) == 1
    assert bridge.add(info(consumer(3), queue("Q.2"), selector="a = 1")) == []


def test_a_composite_consumer_has_demand_for_each_part() -> None:
    bridge = Bridge(NetworkConnector(excluded=(queue("Q5"),)))
    bridge.add(info(consumer(1), queue("Q4")))

    bridge.add(info(consumer(2), queue("Q3,Q4,Q5")))

    assert bridge.destinations() == ["queue://Q4", "queue://Q3"]
    assert bridge.remove(consumer(1)) == []
    assert bridge.remove(consumer(2)) == [EndDemand(1), EndDemand(2)]


# ---------------------------------------------------------------- static


def test_static_demand_begins_at_start_and_never_ends() -> None:
    bridge = Bridge(NetworkConnector(statically_included=(queue("S1"), topic("ST"), queue("W.>"))))

    bridge.apply(bridge.table.static())
    assert [each.number for each in bridge.demands.values()] == [2, 4, 6]
    assert [each.consumer_path[0].value for each in bridge.demands.values()] == [1, 3, 5]
    assert bridge.demands[2] == LocalDemand(
        number=2,
        destination=queue("S1"),
        broker_path=("id-b",),
        consumer_path=(ConsumerId("a->b:1", 1, 1),),
        is_static=True,
    )

    assert bridge.add(info(consumer(1), queue("W.1"), selector="a = 1")) == []
    assert bridge.remove(consumer(1)) == []


def test_static_demand_that_is_excluded_does_not_begin() -> None:
    bridge = Bridge(NetworkConnector(statically_included=(queue("A,B"),), excluded=(queue("B"),)))

    bridge.apply(bridge.table.static())

    assert bridge.destinations() == ["queue://A"]


def test_a_durable_consumer_of_a_static_topic_has_durable_demand() -> None:
    bridge = Bridge(NetworkConnector(name="nc", statically_included=(TOPIC,)))
    bridge.apply(bridge.table.static())

    bridge.add(info(consumer(1), TOPIC, name="sub"))

    assert [each.subscription_name for each in bridge.demands.values()] == [None, "NC-DS_a_T"]
