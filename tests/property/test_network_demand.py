"""Whatever consumers come and go, each of a remote broker is served, and demand ends with the last one."""

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import Destination, covers, queue, topic
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.openwire.commands import ConsumerInfo
from pybroker.broker.domain.openwire.ids import ConsumerId
from tests.unit.domain.network.tables import Bridge, consumer, info

names = st.sampled_from(["T.1", "T.2", "T.*", "T.>", ">", "*.1", "T.1,T.2", "T.1,T.>"])
destinations = st.builds(lambda name, is_queue: (queue if is_queue else topic)(name), names, st.booleans())
selectors = st.sampled_from([None, None, "a = 1", "b = 1", "c = 1"])
connectors = st.builds(
    NetworkConnector,
    name=st.just("nc"),
    consumer_ttl=st.just(2),
    conduit_subscriptions=st.booleans(),
    suppress_duplicate_queue_subscriptions=st.booleans(),
    decrease_network_consumer_priority=st.booleans(),
)
consumers = st.dictionaries(st.integers(1, 12), st.tuples(destinations, selectors), min_size=1)


def serves(bridge: Bridge, part: Destination, selector: str | None) -> bool:
    return any(
        each.destination.type is part.type
        and covers(each.destination.name, part.name)
        and (each.selector is None or (selector is not None and selector in each.selector))
        for each in bridge.demands.values()
    )


def parts_of(destination: Destination) -> list[Destination]:
    return [Destination(destination.type, name) for name in destination.name.split(",")]


@given(connectors, consumers, st.data())
def test_each_consumer_is_served_until_it_ends(connector, wanted, data) -> None:
    bridge = Bridge(connector)
    for number in data.draw(st.permutations(sorted(wanted))):
        destination, selector = wanted[number]
        bridge.add(info(consumer(number), destination, selector=selector))

    left = dict(wanted)
    for number in data.draw(st.permutations(sorted(wanted))):
        for destination, selector in left.values():
            assert all(serves(bridge, part, selector) for part in parts_of(destination))
        del left[number]
        bridge.remove(consumer(number))
    assert bridge.demands == {}


def detour(number: int, destination: Destination) -> ConsumerInfo:
    return info(ConsumerId("c->b:1", 1, number), destination, path=("id-b",), consumer_path=(consumer(number),))


@given(connectors, consumers, st.data())
def test_each_consumer_of_a_ring_is_served_by_a_way_that_works(connector, wanted, data) -> None:
    interests = Interests()
    bridges = {name: Bridge(connector, remote=name, interests=interests) for name in "bc"}
    ways = [(number, name) for number in sorted(wanted) for name in "bc"]
    for number, name in data.draw(st.permutations(ways)):
        destination, _ = wanted[number]
        bridges[name].add(detour(number, destination) if name == "c" else info(consumer(number), destination))
        for each in bridges.values():
            each.apply(each.table.reconsider())

    for destination, _ in wanted.values():
        for part in parts_of(destination):
            assert serves(bridges["b"], part, None) or serves(bridges["c"], part, None)

    bridges["b"].table.close()
    detoured = bridges["c"]
    detoured.apply(detoured.table.reconsider())
    for destination, _ in wanted.values():
        assert all(serves(detoured, part, None) for part in parts_of(destination))

    for number in data.draw(st.permutations(sorted(wanted))):
        detoured.remove(ConsumerId("c->b:1", 1, number))
    assert detoured.demands == {}


@given(connectors, consumers, st.data())
def test_demand_of_a_ring_ends_with_its_consumers(connector, wanted, data) -> None:
    bridges = [
        Bridge(connector, interests=(interests := Interests())),
        Bridge(connector, remote="c", interests=interests),
    ]
    ways = [(number, place) for number in sorted(wanted) for place in (0, 1)]
    for number, place in data.draw(st.permutations(ways)):
        destination, _ = wanted[number]
        bridges[place].add(detour(number, destination) if place else info(consumer(number), destination))

    for number, place in data.draw(st.permutations(ways)):
        bridges[place].remove(ConsumerId("c->b:1", 1, number) if place else consumer(number))
        for each in bridges:
            each.apply(each.table.reconsider())

    assert [each.demands for each in bridges] == [{}, {}]
