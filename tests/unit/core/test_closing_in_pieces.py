"""A consumer with many outstanding messages closes in pieces, and others get nothing out of order meanwhile."""

import pytest

from pybroker.broker.core.paging import PIECE_MAX
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import Inbox
from tests.unit.core.test_piecewise import LoopWorld, answers, begin

MANY = 4 * PIECE_MAX
NAMES = [str(number) for number in range(MANY)]


@pytest.fixture
def world() -> LoopWorld:
    return LoopWorld(MemoryStore())


def holder(world: LoopWorld, count: int = MANY, **request: object) -> Inbox:
    """Return a consumer to which all messages are delivered."""
    client = world.client()
    client.send("queue://Q", *NAMES[:count])
    inbox = client.subscribe("queue://Q", prefetch=MANY, **request)
    world.settle()
    assert len(inbox.ids) == count
    return inbox


@pytest.mark.parametrize("answer", ["when_durable", "when_carried_out"])
def test_others_get_nothing_before_the_last_message_is_back(world: LoopWorld, answer: str) -> None:
    inbox, other = holder(world), world.client()
    seen: list[str] = []
    second = other.subscribe("queue://Q", prefetch=10 * MANY)
    inbox.consumer.close()
    getattr(inbox.consumer.connection, answer)(lambda: seen.append("answered"))
    other.send("queue://Q", "new")
    while not seen:
        assert second.ids == []
        world.turn()
    world.settle()
    assert second.ids == [*NAMES, "new"]
    assert second.counts == [1] * MANY + [0]


def test_last_delivered_message_divides_what_was_seen(world: LoopWorld) -> None:
    inbox = holder(world)
    inbox.consumer.close(inbox.deliveries[700])
    world.settle()
    again = world.client().subscribe("queue://Q", prefetch=MANY)
    world.settle()
    assert again.ids == NAMES
    assert again.counts == [1] * 701 + [0] * (MANY - 701)


def test_only_the_oldest_gets_a_strike(world: LoopWorld) -> None:
    for _ in range(world.policy.max_redeliveries + 1):
        inbox = world.client()
        if "Q" not in {queue.name for queue in world.broker.queues}:
            inbox.send("queue://Q", *NAMES)
        consumer = inbox.subscribe("queue://Q", prefetch=MANY)
        world.settle()
        assert consumer.ids == NAMES
        consumer.consumer.close()
        world.settle()
    letters = world.client().subscribe("queue://ActiveMQ.DLQ", prefetch=MANY)
    assert letters.ids == NAMES[:1]


def test_two_that_close_at_once_hold_the_queue_until_both_are_done(world: LoopWorld) -> None:
    first = holder(world, PIECE_MAX)
    client = world.client()
    wide = client.subscribe("queue://Q", prefetch=MANY)
    client.send("queue://Q", *NAMES[PIECE_MAX:])
    world.settle()
    waiting = world.client().subscribe("queue://Q", prefetch=10 * MANY)
    wide.consumer.close()
    first.consumer.close()
    assert waiting.ids == []
    world.settle()
    assert sorted(waiting.ids, key=int) == NAMES


def test_connection_that_closes_meanwhile_gives_back_all(world: LoopWorld) -> None:
    inbox = holder(world)
    inbox.consumer.close()
    world.turn()
    inbox.consumer.connection.close()  # type: ignore[attr-defined]
    world.settle()
    again = world.client().subscribe("queue://Q", prefetch=MANY)
    world.settle()
    assert again.ids == NAMES


def test_exclusive_consumer_that_comes_meanwhile_gets_all(world: LoopWorld) -> None:
    inbox = holder(world)
    plain = world.client().subscribe("queue://Q", prefetch=MANY)
    inbox.consumer.close()
    exclusive = world.client().subscribe("queue://Q", prefetch=MANY, exclusive=True)
    world.settle()
    assert (exclusive.ids, plain.ids) == (NAMES, [])


def test_exclusive_consumer_stays_the_same_after_another_has_closed(world: LoopWorld) -> None:
    inbox = holder(world, 1)
    last = [world.client().subscribe("queue://Q", prefetch=MANY, exclusive=True, priority=127) for _ in range(2)][-1]
    inbox.consumer.close()
    world.client().send("queue://Q", "new")
    assert last.ids == [NAMES[0], "new"]


def test_selective_consumer_finds_what_came_meanwhile(world: LoopWorld) -> None:
    inbox = holder(world)
    selective = world.client().subscribe("queue://Q", prefetch=MANY, selector="a = 1")
    inbox.consumer.close()
    world.client().send("queue://Q", "wanted", properties={"a": 1})
    assert selective.ids == []
    world.settle()
    assert selective.ids == ["wanted"]


@pytest.mark.parametrize("index", [0, 5, MANY // 2, MANY - 5, MANY - 1])
def test_rolled_back_acknowledgement_keeps_the_order_of_delivery(world: LoopWorld, index: int) -> None:
    client = world.client()
    client.send("queue://Q", *NAMES)
    inbox = client.subscribe("queue://Q", prefetch=MANY)
    world.settle()
    transaction = begin(client)
    for acknowledged in sorted({index, max(0, index - 3), MANY // 2}):
        inbox.ack(acknowledged, transaction)
    client.connection.rollback(transaction)
    world.settle()
    done: list[str] = []
    inbox.consumer.acknowledge_through(inbox.deliveries[MANY // 2])
    answers(client, "done", done)
    world.settle()
    assert done
    client.connection.close()
    world.settle()
    again = world.client().subscribe("queue://Q", prefetch=MANY)
    world.settle()
    assert again.ids == NAMES[MANY // 2 + 1 :]
