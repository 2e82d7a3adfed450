"""Fan-out of a topic's messages to very many subscriptions: in pieces, in order, each message once."""

from collections import deque
from collections.abc import Callable
from itertools import count

import pytest

from pybroker.broker.core.paging import PIECE_SECONDS
from pybroker.broker.core.topic import FAN_OUT_PIECE, LARGE_BYTES, TopicSubscription
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from tests.unit.core.backlogs import Client, World

COUNT = 2 * FAN_OUT_PIECE + 10


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def deferred(world: World) -> deque[Callable[[], None]]:
    pieces: deque[Callable[[], None]] = deque()
    world.usage.paging.later = pieces.append
    return pieces


@pytest.fixture
def clients(world: World, deferred: deque[Callable[[], None]]) -> list[Client]:
    return [world.listen() for _ in range(COUNT)]


def run(pieces: deque[Callable[[], None]]) -> None:
    while pieces:
        pieces.popleft()()


def test_message_goes_to_some_subscriptions_per_turn(world, deferred, clients):
    world.publish("a")
    assert [client.names for client in clients] == [["a"]] * FAN_OUT_PIECE + [[]] * (COUNT - FAN_OUT_PIECE)
    run(deferred)
    assert [client.names for client in clients] == [["a"]] * COUNT


def test_messages_published_meanwhile_stay_in_order(world, deferred, clients):
    world.publish("a", "b")
    deferred.popleft()()
    world.publish("c")
    run(deferred)
    assert [client.names for client in clients] == [["a", "b", "c"]] * COUNT


def test_message_counts_until_the_last_subscription_has_it(world, deferred, clients):
    world.publish("a")
    assert world.topic.usage.used == world.usage.used > 0
    run(deferred)
    assert world.topic.usage.used == world.usage.used == 0


def test_subscription_that_joins_meanwhile_gets_later_messages(world, deferred, clients):
    world.publish("a")
    late = world.listen()
    world.publish("b")
    run(deferred)
    assert late.names == ["b"]
    assert [client.names for client in clients] == [["a", "b"]] * COUNT


def test_subscription_that_leaves_meanwhile_gets_nothing_more(world, deferred, clients):
    world.publish("a")
    clients[-1].close()
    clients[0].close()
    run(deferred)
    assert clients[-1].names == []
    assert [client.names for client in clients[:-1]] == [["a"]] * (COUNT - 1)
    assert not world.usage.used


def test_few_subscriptions_left_do_not_overtake_what_is_under_way(world, deferred, clients):
    world.publish("a")
    for client in clients[5:-5]:
        client.close()
    world.publish("b")
    run(deferred)
    assert [client.names for client in clients[:5] + clients[-5:]] == [["a", "b"]] * 10


def test_durable_subscription_gets_a_message_at_once(world, deferred, clients):
    durable = world.durable()
    world.publish("a")
    assert durable.pending.count == 1
    run(deferred)
    assert durable.pending.count == 1


def test_deleted_topic_drops_what_is_under_way(world, deferred, clients):
    world.publish("a")
    world.topic.close()
    run(deferred)
    assert sum(len(client.names) for client in clients) == FAN_OUT_PIECE
    assert not world.usage.used


def test_subscription_closed_by_another_in_between_holds_no_memory(world):
    slow = world.listen(prefetch=1)
    closing = world.listen(prefetch=1)
    backlog = closing.consumer.sources[0]
    world.publish("a")
    slow.consumer.sources[0]._discarded = lambda *_: closing.close()
    slow.consumer.sources[0]._limit = 0
    world.publish("b")
    assert closing.consumer.closed
    assert backlog.waiting_count == 0
    assert not world.usage.used


def test_all_is_done_at_once_without_an_event_loop(world):
    clients = [world.listen() for _ in range(COUNT)]
    world.publish("a", "b")
    assert [client.names for client in clients] == [["a", "b"]] * COUNT


def test_an_error_in_one_piece_does_not_stop_the_topic(world, deferred, clients, monkeypatch):
    broken = clients[FAN_OUT_PIECE + 1].consumer.sources[0]
    publish = TopicSubscription.publish
    errors = [StoreUnavailable("a dead letter cannot be stored")]

    def fail_once(subscription: TopicSubscription, message: Message) -> None:
        if subscription is broken and errors:
            raise errors.pop()
        publish(subscription, message)

    monkeypatch.setattr(TopicSubscription, "publish", fail_once)
    world.publish("a")
    with pytest.raises(StoreUnavailable):
        deferred.popleft()()
    world.publish("b")
    run(deferred)
    assert clients[0].names == clients[-1].names == ["a", "b"]
    assert world.topic.usage.used == 0


def test_large_message_goes_to_as_many_subscriptions_as_a_turn_has_time_for(world, deferred):
    clients = [world.listen() for _ in range(8)]
    seconds = count()
    world.usage.paging.monotonic = lambda: next(seconds) * PIECE_SECONDS / 2
    large = "a" * (LARGE_BYTES + 1)
    world.publish("0")
    world.publish(large)
    world.publish("b")
    reached = sum(large in client.names for client in clients)
    assert not any("b" in client.names and large not in client.names for client in clients)
    assert 0 < reached < len(clients)
    run(deferred)
    assert [client.names for client in clients] == [["0", large, "b"]] * len(clients)
