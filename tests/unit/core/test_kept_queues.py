"""An idle queue of a virtual topic is there for the next master."""

import pytest

from pybroker.broker.domain.destination import queue
from tests.unit.core.conftest import World, make_message


@pytest.mark.parametrize("name", ["Consumer.a.VirtualTopic.X", "Consumer.a.VirtualTopic.>"])
def test_an_idle_queue_gets_copies_from_the_next_master(world: World, name: str) -> None:
    world.client().subscribe(f"queue://{name}").consumer.close()
    world.start()
    assert queue(name) in world.broker.queues
    world.client().connection.send(make_message("while it is away", "topic://VirtualTopic.X"))
    assert world.client().subscribe(f"queue://{name}").drain() == ["while it is away"]


def test_a_queue_that_was_deleted_is_not_there(world: World) -> None:
    client = world.client()
    client.subscribe("queue://Consumer.a.VirtualTopic.X").consumer.close()
    client.connection.remove_destination(queue("Consumer.a.VirtualTopic.X"))
    world.start()
    assert not world.broker.queues


def test_other_queues_are_made_when_they_are_needed(world: World) -> None:
    world.client().subscribe("queue://ORDERS").consumer.close()
    world.start()
    assert not world.broker.queues
