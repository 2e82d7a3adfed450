"""Delivered messages whose bodies only the store has, on every store: they come back whole, or are dead letters."""

from collections.abc import Callable
from typing import Any

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.message import BodilessMessage
from tests.unit.core.conftest import Inbox, World

LIMIT, COUNT, ATTEMPTS_MAX = 10_000_000, 30, 1000


def text(number: int) -> str:
    return f"{number:02}" + "x" * 2000


def started(lives: Any) -> World:
    return World(lives.store, DestinationPolicy(), Limits(memory_bytes_max=LIMIT))


def until(lives: Any, world: World, condition: Callable[[], bool]) -> None:
    """Let the store write, and ask it again for what it has not read, until a condition holds."""
    for _ in range(ATTEMPTS_MAX):
        lives.flush()
        if condition():
            return
        world.broker.remove_expired()
    raise AssertionError("it never happens")


def filled(lives: Any, world: World, destination: str = "queue://Q", **request: Any) -> Inbox:
    """Return a consumer that holds messages, without bodies if the store has messages on disk."""
    client = world.client("me")
    inbox = client.subscribe(destination, prefetch=1000, **request)
    world.client().send(destination, *map(text, range(COUNT)))
    world.broker.usage.acquire(LIMIT)
    world.broker.usage.request_page_out(lives.store.when_durable)
    lives.flush()
    world.broker.usage.release(LIMIT)
    bodiless = [isinstance(each.message, BodilessMessage) for each in inbox.deliveries]
    assert bodiless == [bool(lives.store.supports_paging)] * COUNT
    return inbox


def names(inbox: Inbox) -> list[str]:
    return [each[:2] for each in inbox.ids]


def expected(*left_out: int) -> list[str]:
    return [text(number)[:2] for number in range(COUNT) if number not in left_out]


def test_rejected_deliveries_are_whole_dead_letters(lives: Any) -> None:
    world = started(lives)
    inbox = filled(lives, world)
    letters = world.client().subscribe("queue://ActiveMQ.DLQ")
    for number in (3, 20, 7):
        inbox.consumer.reject(inbox.deliveries[number], "no use")
    until(lives, world, lambda: len(letters.deliveries) == 3)
    assert letters.ids == [text(3), text(20), text(7)]
    inbox.consumer.close()
    again = world.client().subscribe("queue://Q", prefetch=1000)
    until(lives, world, lambda: len(again.deliveries) == COUNT - 3)
    assert names(again) == expected(3, 7, 20)
    assert again.ids[0] == text(0)
    assert set(again.counts) == {1}


def test_acknowledged_deliveries_are_gone_after_a_crash(lives: Any) -> None:
    world = started(lives)
    inbox = filled(lives, world)
    connection: Any = inbox.consumer.connection
    inbox.consumer.acknowledge_all(inbox.deliveries[:5])
    committed, open_ = connection.begin(), connection.begin()
    inbox.consumer.acknowledge_all(inbox.deliveries[5:10], committed)
    inbox.consumer.acknowledge_all(inbox.deliveries[10:15], open_)
    connection.commit(committed)
    lives.flush()
    lives.crash()
    lives.open()
    world = started(lives)
    again = world.client().subscribe("queue://Q", prefetch=1000)
    until(lives, world, lambda: len(again.deliveries) == COUNT - 10)
    assert names(again) == expected(*range(10))


def test_a_rolled_back_acknowledgement_brings_them_back(lives: Any) -> None:
    world = started(lives)
    inbox = filled(lives, world)
    connection: Any = inbox.consumer.connection
    transaction = connection.begin()
    inbox.consumer.acknowledge_all(inbox.deliveries[:10], transaction)
    connection.rollback(transaction)
    connection.close()
    again = world.client().subscribe("queue://Q", prefetch=1000)
    until(lives, world, lambda: len(again.deliveries) == COUNT)
    assert names(again) == expected()


def test_a_durable_subscription_gets_them_again(lives: Any) -> None:
    world = started(lives)
    inbox = filled(lives, world, "topic://T", subscription_name="s")
    letters = world.client().subscribe("queue://ActiveMQ.DLQ")
    inbox.consumer.reject(inbox.deliveries[4], "no use")
    until(lives, world, lambda: len(letters.deliveries) == 1)
    assert letters.ids == [text(4)]
    inbox.consumer.connection.close()  # type: ignore[attr-defined]
    again = world.client("me").subscribe("topic://T", subscription_name="s", prefetch=1000)
    until(lives, world, lambda: len(again.deliveries) == COUNT - 1)
    assert names(again) == expected(4)
