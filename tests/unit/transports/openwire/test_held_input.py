"""Commands behind one whose work is done in pieces: they wait, also within their chunk, and keep their order."""

from collections.abc import Callable

import pytest

from pybroker.broker.core.paging import PIECE_MAX
from pybroker.broker.domain.destination import parse, queue
from pybroker.broker.domain.openwire.commands import (
    ConnectionId,
    MessageDispatch,
    RemoveInfo,
    Response,
    SessionId,
    ShutdownInfo,
)
from pybroker.broker.domain.openwire.marshal.wireformat import Offer
from tests.unit.transports.openwire.conversation import OpenWireClient, World, of_kind

COUNT = 300


@pytest.fixture
def turns(world: World) -> list[Callable[[], None]]:
    """The deferred pieces of the world's broker."""
    deferred: list[Callable[[], None]] = []
    world.broker.usage.paging.later = deferred.append
    return deferred


def settle(turns: list[Callable[[], None]]) -> int:
    count = 0
    while turns:
        turns.pop(0)()
        count += 1
    return count


def crowded(world: World) -> OpenWireClient:
    client = world.client()
    for number in range(COUNT):
        client.consume(queue(f"Q.{number}"), value=number + 1)
    return client


def answered(client: OpenWireClient) -> list[int]:
    return [each.correlation_id for each in client.receive() if isinstance(each, Response)]


@pytest.mark.parametrize("what", ["session", "connection"])
def test_commands_behind_a_long_removal_wait_for_it(world: World, turns: list[Callable[[], None]], what: str) -> None:
    client = crowded(world)
    removed = SessionId(client.id, 1) if what == "session" else ConnectionId(client.id)
    first, second = client.next_id(), client.next_id()
    client.send_commands(
        RemoveInfo(command_id=first, response_required=True, object_id=removed),
        RemoveInfo(command_id=second, response_required=True, object_id=client.consumer(COUNT + 1)),
    )
    assert world.broker.queues[queue(f"Q.{COUNT - 1}")].consumers
    assert answered(client) == []
    assert settle(turns) > 2
    assert not any(each.consumers for each in world.broker.queues.values())
    assert answered(client) == [first, second]


def test_peer_that_ends_within_its_removal_is_gone(world: World, turns: list[Callable[[], None]]) -> None:
    client = crowded(world)
    client.send_commands(
        RemoveInfo(command_id=client.next_id(), response_required=True, object_id=ConnectionId(client.id)),
        ShutdownInfo(),
    )
    client.session.lost()
    settle(turns)
    assert not any(each.consumers for each in world.broker.queues.values())
    assert not list(world.broker.connections())


def test_long_run_of_acknowledgements_is_carried_out_once(world: World) -> None:
    """Both queues have copies of the same ids, so a second time the frames would settle those of the other queue."""
    count = PIECE_MAX + 100
    client = world.client(offer=Offer(version=12))
    both = parse("queue://A,B")
    for number in range(count):
        client.send(both, str(number), response_required=False)
    client.consume(both, prefetch_size=2 * count)
    dispatches = of_kind([*client.pushed, *client.receive()], MessageDispatch)
    assert len(dispatches) == 2 * count
    first, *run = [each for each in dispatches if each.destination == dispatches[0].destination]
    client.send_commands(client.acknowledgement([first]))  # the others are read as one run, alike to it
    turns: list[Callable[[], None]] = []
    world.broker.usage.paging.later = turns.append
    client.send_commands(*(client.acknowledgement([each]) for each in run))
    assert client.link.holds == 1
    while turns:
        turns.pop(0)()
    assert client.link.holds == 0
    client.session.proceed()
    world.broker.usage.paging.later = None
    client.session.lost()
    assert sorted(len(world.waiting(queue(name))) for name in "AB") == [0, count]
