"""A durable subscription that begins between a transaction's sends and its commit gets them, and they are stored."""

import pytest

from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from tests.unit.core.conftest import Client, World

T = topic("T")
BRANCH = XATransactionId(1, b"global", b"branch")


def subscribe(world: World) -> Client:
    client = world.client("me")
    client.subscribe("topic://T", subscription_name="s", prefetch=0)
    return client


def after_a_crash(world: World) -> list[str]:
    """Return what the next master's subscription gets."""
    world.start()
    return world.client("me").subscribe("topic://T", subscription_name="s").ids


def test_one_phase_commit_stores_for_a_new_subscription(world: World) -> None:
    sender = world.client()
    transaction = sender.connection.begin()
    assert isinstance(transaction, LocalTransactionId)
    sender.send("topic://T", "a", "b", transaction=transaction)
    subscribe(world)
    sender.connection.commit(transaction)
    assert after_a_crash(world) == ["a", "b"]


@pytest.mark.parametrize("is_prepared_first", [False, True])
def test_two_phase_commit_stores_for_a_new_subscription(world: World, *, is_prepared_first: bool) -> None:
    sender = world.client()
    sender.connection.begin(BRANCH)
    sender.send("topic://T", "a", transaction=BRANCH)  # type: ignore[arg-type]
    if is_prepared_first:
        assert sender.connection.prepare(BRANCH)
    subscribe(world)
    if not is_prepared_first:
        assert sender.connection.prepare(BRANCH)
    sender.connection.commit(BRANCH, prepared=True)
    assert after_a_crash(world) == ["a"]


def test_a_rolled_back_transaction_stores_nothing(world: World) -> None:
    sender = world.client()
    transaction = sender.connection.begin()
    assert isinstance(transaction, LocalTransactionId)
    sender.send("topic://T", "a", transaction=transaction)
    subscribe(world)
    sender.connection.rollback(transaction)
    assert after_a_crash(world) == []


def test_what_an_earlier_subscription_kept_is_stored_once(world: World) -> None:
    subscribe(world)
    sender = world.client()
    transaction = sender.connection.begin()
    assert isinstance(transaction, LocalTransactionId)
    sender.send("topic://T", "a", transaction=transaction)
    other = world.client("other")
    other.subscribe("topic://T", subscription_name="s", prefetch=0)
    sender.connection.commit(transaction)
    assert after_a_crash(world) == ["a"]
    assert world.client("other").subscribe("topic://T", subscription_name="s").ids == ["a"]
