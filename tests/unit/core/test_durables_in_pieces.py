"""Durable subscriptions to wildcards cover a new topic in pieces, and leave their topics in pieces."""

import pytest

from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.errors import DestinationInUse
from tests.unit.core.conftest import Client
from tests.unit.core.test_piecewise import Disk, LoopWorld, answers, begin

COUNT = 700
TOPICS = 400


@pytest.fixture
def world() -> LoopWorld:
    """A world with many durable subscriptions of one client to a wildcard, none of them active."""
    world = LoopWorld(Disk())
    subscriber = world.client("subscriber")
    for number in range(COUNT):
        subscriber.subscribe("topic://A.>", subscription_name=f"s{number}", prefetch=1).consumer.close()
    subscriber.connection.close()
    world.settle()
    return world


def counts(world: LoopWorld) -> set[int]:
    """Return how many messages wait for the subscriptions."""
    assert len(world.broker.durables) == COUNT
    return {durable.pending.count for durable in world.broker.durables.values()}


def test_message_to_a_new_topic_waits_until_all_cover_it(world: LoopWorld) -> None:
    client, answered = world.client(), list[str]()
    client.send("topic://A.1", "1")
    answers(client, "1", answered)
    assert counts(world) == {0}
    assert client.throttle.input_holds == 1
    assert not answered
    assert world.settle() >= 3
    assert counts(world) == {1}
    assert answered == ["1"]
    assert client.throttle.input_holds == 0


def test_other_clients_wait_for_the_same_steps(world: LoopWorld) -> None:
    first, second = world.client(), world.client()
    first.connection.add_destination(topic("A.1"))
    assert first.throttle.input_holds == 0, "only who sends has to wait"
    first.send("topic://A.1", "1")
    second.send("topic://A.1,queue://Q", "2", persistent=False)
    second.send("queue://Q", "3")
    world.settle()
    assert counts(world) == {2}
    inbox = world.client("subscriber").subscribe("topic://A.>", subscription_name="s0")
    world.settle()
    assert sorted(inbox.ids) == ["1", "2"]


def test_transaction_waits_too(world: LoopWorld) -> None:
    client = world.client()
    transaction = begin(client)
    client.send("topic://A.1", "1", transaction=transaction)
    assert client.throttle.input_holds == 1
    world.settle()
    client.connection.commit(transaction)
    world.settle()
    assert counts(world) == {1}


def test_crash_between_the_pieces_leaves_the_rest_to_the_recovery(world: LoopWorld) -> None:
    world.client().connection.add_destination(topic("A.1"))
    world.turn()
    covered = [durable for durable in world.broker.durables.values() if durable.topics]
    assert 0 < len(covered) < COUNT
    world.start()
    world.client().send("topic://A.1", "1")
    world.settle()
    assert counts(world) == {1}


def test_topic_that_is_being_covered_is_not_deleted(world: LoopWorld) -> None:
    client = world.client()
    client.connection.add_destination(topic("A.1"))
    for name in [key.rpartition(":")[2] for key in world.broker.durables]:
        world.broker.unsubscribe("subscriber", name)
    with pytest.raises(DestinationInUse):
        client.connection.remove_destination(topic("A.1"))
    world.settle()
    client.connection.remove_destination(topic("A.1"))


def with_backlogs() -> tuple[LoopWorld, Client]:
    """Return a world, and a client whose subscription to a wildcard has a message of each of many topics."""
    world = LoopWorld(Disk())
    client = world.client("c")
    client.subscribe("topic://A.>", subscription_name="s").consumer.close()
    for number in range(TOPICS):
        client.send(f"topic://A.{number}", f"old {number}")
    world.settle()
    return world, client


def test_subscription_leaves_its_topics_in_pieces_and_begins_again_behind_that() -> None:
    world, client = with_backlogs()
    answered: list[str] = []
    client.connection.unsubscribe("c", "s")
    answers(client, "unsubscribed", answered)
    assert client.throttle.input_holds == 1
    assert not answered
    assert not world.broker.durables
    other = world.client()
    other.send(f"topic://A.{TOPICS - 1}", "meanwhile")
    world.settle()
    assert answered == ["unsubscribed"]
    assert world.broker.usage.used == world.broker.objects.counted
    inbox = client.subscribe("topic://A.>", subscription_name="s", prefetch=10_000)
    world.settle()
    other.send("topic://A.0", "new")
    assert inbox.ids == ["new"]
    world.start()
    assert [durable.pending.count for durable in world.broker.durables.values()] == [1]


def test_changed_subscription_gets_nothing_of_the_former_one() -> None:
    world, client = with_backlogs()
    inbox = client.subscribe("topic://A.>", subscription_name="s", selector="TRUE", prefetch=10_000)
    assert client.throttle.input_holds == 1
    world.settle()
    world.client().send("topic://A.0", "new")
    assert inbox.ids == ["new"]
    world.start()
    assert [durable.pending.count for durable in world.broker.durables.values()] == [1]
