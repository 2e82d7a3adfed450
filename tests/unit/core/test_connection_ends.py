"""The end of a connection with very many consumers: in pieces, and at once where its client or the end waits for it."""

from collections import deque
from collections.abc import Callable, Iterator

import pytest

from pybroker.broker.core.paging import PIECE_MAX, PIECE_SECONDS
from pybroker.broker.domain.errors import InvalidClientId, ResourceLimit
from pybroker.broker.domain.transaction import LocalTransactionId
from tests.unit.core.conftest import Client, Inbox, World

COUNT = PIECE_MAX + 10


@pytest.fixture
def pieces(world: World) -> deque[Callable[[], None]]:
    """The deferred pieces, each of which lasts for a few consumers."""
    deferred: deque[Callable[[], None]] = deque()
    now = 0.0

    def monotonic() -> float:
        nonlocal now
        now += PIECE_SECONDS / 2
        return now

    world.broker.usage.paging.later = deferred.append
    world.broker.usage.paging.monotonic = monotonic
    return deferred


def run(pieces: deque[Callable[[], None]]) -> int:
    count = 0
    while pieces:
        pieces.popleft()()
        count += 1
    return count


def large(world: World) -> tuple[Client, list[Inbox]]:
    """Return a client with a consumer of each of many queues, each with a message."""
    client = world.client("large")
    inboxes = [client.subscribe(f"queue://Q.{number}") for number in range(COUNT)]
    world.client().send(f"queue://Q.{COUNT - 1}", "a")
    assert inboxes[-1].ids == ["a"]
    return client, inboxes


def test_consumers_are_closed_in_later_turns_and_messages_return(world, pieces):
    client, _ = large(world)
    client.connection.close()
    assert 0 < len(client.connection.consumers) < COUNT
    assert run(pieces) > COUNT / 10
    assert not client.connection.consumers
    assert world.client().subscribe(f"queue://Q.{COUNT - 1}").counts == [1]
    assert client.connection not in world.broker.connections()


@pytest.mark.parametrize("is_last_command", [False, True])
def test_work_that_fails_keeps_no_consumer_open(world, pieces, is_last_command):
    def steps() -> Iterator[int]:
        yield PIECE_MAX
        raise ResourceLimit("no further copy can be made")

    client = world.client()
    world.client().send("queue://Q", "a")
    assert client.subscribe("queue://Q").ids == ["a"]
    if is_last_command:
        client.connection.close(steps())
    else:
        client.connection.work_off(steps())
        client.connection.close()
    run(pieces)
    assert not client.connection.consumers
    assert world.client().subscribe("queue://Q").ids == ["a"]


def test_few_consumers_are_closed_at_once(world, pieces):
    world.broker.usage.paging.monotonic = lambda: 0.0
    client = world.client()
    for number in range(10):
        client.subscribe(f"queue://Q.{number}")
    client.connection.close()
    assert not pieces
    assert client.connection not in world.broker.connections()


def test_wildcard_counts_for_each_of_its_queues(world, pieces):
    producer, client = world.client(), world.client()
    for number in range(COUNT // 10):
        producer.send(f"queue://Q.{number}", "a")
    for _ in range(11):
        client.subscribe("queue://Q.>")
    client.connection.close()
    assert pieces


def test_what_is_left_gets_no_further_message(world, pieces):
    client, inboxes = large(world)
    client.connection.close()
    producer = world.client()
    producer.send("queue://Q.0", "b")
    run(pieces)
    assert not inboxes[0].ids
    assert world.client().subscribe("queue://Q.0").ids == ["b"]


def test_open_transactions_are_rolled_back_at_once(world, pieces):
    client, _ = large(world)
    transaction = LocalTransactionId("large", 1)
    client.connection.begin(transaction)
    client.send("queue://T", "t", transaction=transaction)
    client.connection.close()
    assert not client.connection.transactions
    assert pieces


@pytest.mark.parametrize("client_id", ["large", "other"])
def test_client_that_comes_back_waits_until_all_are_closed(world, pieces, client_id):
    client, _ = large(world)
    connection_id = client.connection.connection_id
    client.connection.close()
    again = world.broker.connect(connection_id, client_id, client.throttle)
    assert client.connection.consumers
    assert client.throttle.input_holds == 1
    run(pieces)
    assert not client.connection.consumers
    assert client.throttle.input_holds == 0
    assert list(world.broker.connections())[-1] is again


def test_other_clients_do_not_wait_for_it(world, pieces):
    client, _ = large(world)
    client.connection.close()
    assert world.client("else").throttle.input_holds == 0
    assert client.connection.consumers
    with pytest.raises(InvalidClientId):
        world.client("else")


def test_stopping_broker_has_every_message_back(world, pieces):
    client, _ = large(world)
    client.connection.close()
    assert client.connection.consumers
    world.broker.quiesce()
    assert not client.connection.consumers
    assert len(list(world.broker.delivered())) == 1
    run(pieces)


def test_connection_that_closes_while_the_broker_stops_is_not_divided(world, pieces):
    client, _ = large(world)
    world.broker.quiesce()
    client.connection.close()
    assert not client.connection.consumers
    assert not pieces


def test_abandoned_broker_changes_nothing_more(world, pieces):
    client, _ = large(world)
    client.connection.close()
    left = len(client.connection.consumers)
    world.broker.abandon()
    run(pieces)
    assert len(client.connection.consumers) == left
