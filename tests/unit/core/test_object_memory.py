# mypy: disable-error-code="arg-type"
"""The memory of what clients create: counted while it exists, limited for all together, recovered in any case."""

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.destinations import NAME_MAX
from pybroker.broker.core.object_memory import (
    CHARACTER_BYTES,
    CONSUMER_BYTES,
    DESTINATION_BYTES,
    DURABLE_BYTES,
    PRODUCER_BYTES,
    SESSION_BYTES,
    SHARE_MIN,
    UNCHECKED_BYTES,
)
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import InvalidClientId, InvalidDestination, ResourceLimit
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import World


@pytest.fixture
def world():
    return World(MemoryStore(), limits=Limits(memory_bytes_max=SHARE_MIN))


def total(world: World) -> int:
    assert world.broker.usage.used == world.broker.objects.total
    return world.broker.objects.total


def fill(world: World) -> None:
    world.broker.objects.acquire(SHARE_MIN - world.broker.objects.total)


def test_objects_of_a_connection_are_counted_until_they_are_closed(world):
    connection = world.client().connection
    connection.add_destination(parse("queue://Q"))
    queue = total(world)
    assert queue == DESTINATION_BYTES + CHARACTER_BYTES
    connection.add_session()
    assert total(world) == queue + SESSION_BYTES
    producer = ProducerId("c1", 1, 1)
    connection.add_producer(producer, parse("queue://Q"))
    connection.add_producer(producer, parse("queue://Q"))
    assert total(world) == queue + SESSION_BYTES + PRODUCER_BYTES
    connection.remove_producer(producer)
    connection.remove_producer(producer)
    connection.remove_session()
    assert total(world) == queue
    connection.remove_destination(parse("queue://Q"))
    assert total(world) == 0


def test_consumer_is_counted_with_its_selector(world):
    client = world.client()
    client.connection.add_destination(parse("queue://Q"))
    before = total(world)
    inbox = client.subscribe("queue://Q", selector="a = 1")
    assert total(world) == before + CONSUMER_BYTES + 5 * CHARACTER_BYTES
    inbox.consumer.close()
    inbox.consumer.close()
    assert total(world) == before


def test_closed_connection_releases_all_that_it_held(world):
    client = world.client()
    client.connection.add_destination(parse("queue://Q"))
    before = total(world)
    client.subscribe("queue://Q")
    client.connection.add_session()
    client.connection.add_producer(ProducerId("c1", 1, 1), None)
    client.connection.close()
    assert total(world) == before


def test_durable_subscription_is_counted_until_it_is_deleted(world):
    client = world.client()
    client.connection.add_destination(parse("topic://T"))
    before = total(world)
    client.subscribe("topic://T", subscription_name="s").consumer.close()
    assert total(world) == before + DURABLE_BYTES + len("c1:s") * CHARACTER_BYTES
    client.connection.unsubscribe("c1", "s")
    assert total(world) == before


def test_connection_with_few_objects_is_served_when_others_have_many(world):
    client = world.client()
    client.connection.add_destination(parse("queue://Q"))
    fill(world)
    for _ in range(UNCHECKED_BYTES // SESSION_BYTES):
        client.connection.add_session()
    with pytest.raises(ResourceLimit, match="The session cannot be created"):
        client.connection.add_session()
    with pytest.raises(ResourceLimit, match="The consumer cannot be created"):
        client.subscribe("queue://Q")
    with pytest.raises(ResourceLimit, match="The producer cannot be created"):
        client.connection.add_producer(ProducerId("c1", 1, 1), None)
    world.client().subscribe("queue://Q")


def test_lasting_objects_are_refused_when_the_share_is_used(world):
    client = world.client()
    client.connection.add_destination(parse("topic://T"))
    client.subscribe("topic://T", subscription_name="old").consumer.close()
    fill(world)
    with pytest.raises(ResourceLimit, match="The destination cannot be created"):
        client.connection.add_destination(parse("queue://Q"))
    with pytest.raises(ResourceLimit, match="The subscription cannot be created"):
        client.subscribe("topic://T", subscription_name="new")
    client.subscribe("topic://T", subscription_name="old")


def test_recovered_objects_are_counted_and_never_refused(world):
    client = world.client()
    for number in range(20):
        client.subscribe("topic://T", subscription_name=f"s{number}").consumer.close()
        client.send(f"queue://Q{number}", "a")
    objects = world.broker.objects.total
    world.limits = Limits(memory_bytes_max=(1 << 20) + 1)
    world.start()
    assert world.broker.objects.total == objects


def test_long_names_are_refused(world):
    connection = world.client().connection
    connection.add_destination(parse("queue://" + "x" * NAME_MAX))
    with pytest.raises(InvalidDestination, match="A name of 1025 characters, where 1024 are allowed"):
        connection.add_destination(parse("queue://" + "x" * (NAME_MAX + 1)))
    with pytest.raises(InvalidClientId, match="1025 characters"):
        world.client("x" * (NAME_MAX + 1))
