"""Fan-out of a topic's messages to very many durable subscriptions, and to selective ones: in pieces and in order."""

from collections import deque
from collections.abc import Callable
from itertools import count

import pytest

from pybroker.broker.core.durable import Durable
from pybroker.broker.core.durable_fan_out import DIRECT_MAX, FAN_OUT_PIECE
from pybroker.broker.core.paging import PIECE_SECONDS
from pybroker.broker.core.policy import FixedCountRecovery
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.subscription import DurableSubscription
from tests.compiled import interpreted
from tests.unit.core.backlogs import World

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
def durables(world: World, deferred: deque[Callable[[], None]]) -> list[Durable]:
    return [world.durable(f"s{number}") for number in range(COUNT)]


def selective(world: World, name: str, wanted: str) -> Durable:
    """Create a durable subscription that wants the message of one id."""
    info = DurableSubscription(
        client_id="me",
        name=name,
        destination=world.topic.destination,
        subscribed_destination=world.topic.destination,
        selector=f"JMSType = '{wanted}'",
    )

    def matches(message: Message, redelivery_count: int) -> bool:
        return view(message).content == wanted.encode()

    durable = Durable(
        info, matches, store=world.store, dead_letters=world.dead_letters, clock=world.clock, policy=world.policy
    )
    world.store.subscribe(info)
    durable.join(world.topic)
    return durable


def run(pieces: deque[Callable[[], None]]) -> int:
    turns = 0
    while pieces:
        pieces.popleft()()
        turns += 1
    return turns


def waiting(durables: list[Durable]) -> list[int]:
    return [durable.pending.count for durable in durables]


def test_message_goes_to_some_durable_subscriptions_per_turn(world, deferred, durables):
    world.publish("a")
    assert waiting(durables) == [1] * FAN_OUT_PIECE + [0] * (COUNT - FAN_OUT_PIECE)
    run(deferred)
    assert waiting(durables) == [1] * COUNT


def test_few_durable_subscriptions_get_a_message_at_once(world, deferred):
    durables = [world.durable(f"s{number}") for number in range(DIRECT_MAX)]
    world.publish("a")
    assert waiting(durables) == [1] * DIRECT_MAX
    assert not deferred


def test_messages_published_meanwhile_stay_in_order(world, deferred, durables):
    client = world.activate(durables[-1])
    world.publish("a", "b")
    deferred.popleft()()
    world.publish("c")
    run(deferred)
    assert client.names == ["a", "b", "c"]
    assert waiting(durables[:-1]) == [3] * (COUNT - 1)


def test_selectors_are_evaluated_for_a_piece_of_time(world, deferred):
    reads = count()
    world.usage.paging.monotonic = lambda: next(reads) * PIECE_SECONDS
    durables = [selective(world, f"s{number}", "a" if number == 9 else "x") for number in range(10)]
    world.publish("a")
    assert waiting(durables) == [0] * 10
    assert run(deferred) >= 8, "one selector in each turn"
    assert waiting(durables) == [0] * 9 + [1]


def test_message_under_way_counts_for_its_topic(world, deferred):
    reads = count()
    world.usage.paging.monotonic = lambda: next(reads) * PIECE_SECONDS
    durables = [selective(world, f"s{number}", "x") for number in range(10)]
    world.publish("a")
    assert world.topic.usage.used == world.usage.used > 0
    run(deferred)
    assert world.topic.usage.used == world.usage.used == 0
    assert waiting(durables) == [0] * 10


def test_subscription_that_begins_meanwhile_gets_later_messages(world, deferred, durables):
    world.publish("a")
    late = world.durable("late")
    world.publish("b")
    run(deferred)
    assert late.pending.count == 1
    assert waiting(durables) == [2] * COUNT


def test_subscription_that_is_deleted_meanwhile_gets_nothing_more(world, deferred, durables):
    world.publish("a")
    durables[-1].close()
    durables[0].close()
    run(deferred)
    assert durables[-1].pending.count == 0
    assert waiting(durables[1:-1]) == [1] * (COUNT - 2)


def test_returning_retroactive_consumer_gets_what_is_under_way_once():
    world = World(subscription_recovery_policy=FixedCountRecovery())
    pieces: deque[Callable[[], None]] = deque()
    world.usage.paging.later = pieces.append
    durables = [world.durable(f"s{number}") for number in range(COUNT)]
    world.publish("a")
    client = world.activate(durables[-1], retroactive=True)
    run(pieces)
    assert client.names == ["a"]


def test_deleted_topic_drops_what_is_under_way(world, deferred, durables):
    world.publish("a")
    world.topic.close()
    run(deferred)
    assert sum(waiting(durables)) == FAN_OUT_PIECE


def test_all_is_done_at_once_without_an_event_loop(world):
    durables = [world.durable(f"s{number}") for number in range(COUNT)]
    world.publish("a")
    assert waiting(durables) == [1] * COUNT


@interpreted
def test_an_error_for_one_subscription_keeps_no_other_from_a_message(world, deferred, durables, monkeypatch):
    broken, publish = durables[FAN_OUT_PIECE + 1], Durable.publish
    errors = [StoreUnavailable("the journal cannot be read")]

    def fail_once(durable: Durable, message: Message) -> None:
        if durable is broken and errors:
            raise errors.pop()
        publish(durable, message)

    monkeypatch.setattr(Durable, "publish", fail_once)
    world.publish("a")
    with pytest.raises(StoreUnavailable):
        deferred.popleft()()
    world.publish("b")
    run(deferred)
    assert waiting([durables[0], broken, durables[-1]]) == [2, 1, 2]
