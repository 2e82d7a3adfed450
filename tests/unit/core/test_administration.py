"""Contents of a broker, as operators see them."""

from pybroker.broker.domain.admin import Totals
from pybroker.broker.domain.destination import DestinationType, parse, topic
from tests.unit.core.conftest import World


def test_totals_count_what_waits_and_what_is_in_flight(world: World) -> None:
    client = world.client()
    client.subscribe("topic://T", subscription_name="s").consumer.close()
    client.subscribe("queue://Q", prefetch=1)
    client.send("queue://Q", "taken", "waits")
    client.send("topic://T", "kept")
    used = world.broker.usage.used
    assert world.broker.admin.totals() == Totals(
        connections=1,
        destinations=2,
        waiting=2,
        in_flight=1,
        memory_bytes=used,
        memory_bytes_max=0,
        is_full=False,
        spool_bytes=0,
        spool_bytes_max=0,
        is_spool_full=False,
        connections_ever=1,
    )


def test_largest_destinations_come_first_without_empty_ones(world: World) -> None:
    client = world.client()
    client.subscribe("topic://T", subscription_name="s").consumer.close()
    client.subscribe("queue://EMPTY")
    for name, size in (("queue://SMALL", 10), ("queue://LARGE", 90_000), ("topic://T", 40_000)):
        client.send(name, "x" * size)
    largest = world.broker.admin.largest(2)
    assert [name for name, _ in largest] == [parse("queue://LARGE"), topic("T")]
    assert largest[0][1] > 90_000 > largest[1][1] > 40_000
    assert len(world.broker.admin.largest(9)) == 3


def test_listed_temporary_destinations_have_their_owners(world: World) -> None:
    client = world.client()
    client.send("queue://Q", "a")
    client.subscribe("topic://T")
    temporary = client.connection.create_temporary(DestinationType.TEMP_QUEUE)
    admin = world.broker.admin
    owners = {each: admin.owner(each) for each in admin.destinations()}
    assert owners == {parse("queue://Q"): None, topic("T"): None, temporary: client.connection.connection_id}


def test_connections_are_listed_with_their_consumers(world: World) -> None:
    client = world.client("me")
    client.subscribe("queue://Q", prefetch=7)
    (connection,) = world.broker.admin.connections()
    (consumer,) = connection.consumers
    assert (connection.client_id, consumer.connection.client_id) == ("me", "me")
    assert (consumer.request.destination, consumer.prefetch) == (parse("queue://Q"), 7)


def test_offline_durables_count_as_consumers_of_a_topic(world: World) -> None:
    client = world.client()
    client.subscribe("topic://T")
    client.subscribe("topic://T", subscription_name="s").consumer.close()
    admin = world.broker.admin
    assert admin.consumer_count(topic("T")) == 2
    assert admin.consumer_count(topic("nothing")) == 0


def test_a_durable_subscription_is_listed_with_and_without_its_consumer(world: World) -> None:
    client = world.client("me")
    inbox = client.subscribe("topic://T.*", subscription_name="s", selector="n > 3", prefetch=1)
    client.send("topic://T.1", "1", "2", properties={"n": 4})
    (state,) = world.broker.admin.durable_subscriptions()
    assert (state.key, state.client_id, state.name) == ("me:s", "me", "s")
    assert (state.destination, state.selector) == (topic("T.*"), "n > 3")
    assert state.connection_id == client.connection.connection_id
    assert (state.counters.size, state.counters.in_flight, state.cached) == (2, 1, 1)
    inbox.consumer.close()
    found = world.broker.admin.subscription("me:s")
    assert found is not None
    assert (found.connection_id, found.counters.size, found.counters.in_flight) == (None, 2, 0)
    assert world.broker.admin.subscription("me:t") is None
