"""What an OpenWire client creates is counted for its connection, and refused with JMS's exception at the limit."""

from pybroker.broker.core.object_memory import GUARANTEED_BYTES, SESSION_BYTES
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.commands import (
    ConsumerInfo,
    ProducerInfo,
    RemoveInfo,
    Response,
    SessionId,
    SessionInfo,
)
from tests.unit.transports.openwire.conversation import OpenWireClient, World

RESOURCES = "javax.jms.ResourceAllocationException"


def held(world: World) -> int:
    return world.broker.objects.held


def fill(world: World) -> OpenWireClient:
    """Return a client that has all that its connection may have, where others took what there is beside it."""
    objects = world.broker.objects
    objects.shared_max = 1
    client = world.client()
    objects.shared = 1
    [connection] = world.broker.connections()
    connection.objects.acquire(GUARANTEED_BYTES - connection.objects.held, "filling")
    return client


def test_session_counts_once_until_it_is_closed() -> None:
    world = World()
    client = world.client()
    before = held(world)
    for _ in range(3):
        client.answer(SessionInfo(session_id=SessionId(client.id, 7)), Response)
    assert held(world) == before + SESSION_BYTES
    for _ in range(3):
        client.answer(RemoveInfo(object_id=SessionId(client.id, 7), last_delivered_sequence_id=-2), Response)
    assert held(world) == before
    client.answer(RemoveInfo(object_id=SessionId(client.id, -1), last_delivered_sequence_id=-2), Response)
    assert held(world) == before


def test_refused_client_gets_resource_exceptions_and_goes_on() -> None:
    client = fill(world := World())
    name, text = client.refused(SessionInfo(session_id=SessionId(client.id, 7)))
    assert name == RESOURCES
    assert "Close what is not used, subscribe with a lower prefetch, or raise memory_limit" in text
    name, _ = client.refused(ProducerInfo(producer_id=client.producer(1, 2)))
    assert name == RESOURCES
    name, _ = client.refused(ConsumerInfo(consumer_id=client.consumer(), destination=queue("Q"), prefetch_size=1))
    assert name == RESOURCES
    client.answer(RemoveInfo(object_id=client.producer(), last_delivered_sequence_id=-2), Response)
    client.answer(ProducerInfo(producer_id=client.producer()), Response)
    client.session.lost()
    assert held(world) == 0


def test_refused_name_is_an_invalid_destination() -> None:
    client = World().client()
    name, text = client.refused(ProducerInfo(producer_id=client.producer(1, 2), destination=queue("x" * 1025)))
    assert name == "javax.jms.InvalidDestinationException"
    assert "1025 characters" in text
