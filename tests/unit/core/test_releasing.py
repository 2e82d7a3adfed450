# mypy: disable-error-code="attr-defined, union-attr"
"""A consumer gives deliveries back, one by one, while it goes on."""

from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.destination import queue
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import World


def test_released_delivery_goes_to_another_consumer_unmarked(world):
    first = world.client().subscribe("queue://Q", prefetch=2)
    world.client().send("queue://Q", "a", "b", "c")
    first.consumer.set_prefetch(0)
    second = world.client().subscribe("queue://Q", prefetch=1)
    assert second.ids == ["c"]
    second.ack(0)
    first.consumer.release(first.deliveries[:1])
    assert second.ids == ["c", "a"]
    assert second.deliveries[1].redelivery_count == 0
    assert list(first.consumer.unsettled()) == first.deliveries[1:]


def test_failed_delivery_comes_again_as_redelivered(world):
    inbox = world.client().subscribe("queue://Q", prefetch=0)
    world.client().send("queue://Q", "a")
    inbox.consumer.pull(2)
    inbox.consumer.release(inbox.deliveries, has_failed=True)
    assert inbox.ids == ["a", "a"]
    assert inbox.deliveries[1].redelivery_count == 1


def test_released_deliveries_keep_their_order(world):
    inbox = world.client().subscribe("queue://Q", prefetch=600)
    world.client().send("queue://Q", *map(str, range(600)))
    inbox.consumer.set_prefetch(0)
    deliveries = list(inbox.deliveries)
    inbox.consumer.release(deliveries[300:] + deliveries[:300])
    assert not list(inbox.consumer.unsettled())
    other = world.client().subscribe("queue://Q", prefetch=600)
    assert other.ids == list(map(str, range(600)))


def test_settled_delivery_is_not_released(world):
    inbox = world.client().subscribe("queue://Q", prefetch=1)
    world.client().send("queue://Q", "a", "b")
    inbox.ack(0)
    inbox.consumer.release(inbox.deliveries[:1])
    assert inbox.ids == ["a", "b"]


def test_delivery_that_failed_too_often_is_a_dead_letter():
    world = World(MemoryStore(), DestinationPolicy(max_redeliveries=2))
    inbox = world.client().subscribe("queue://Q", prefetch=1)
    world.client().send("queue://Q", "a")
    for count in range(3):
        assert inbox.deliveries[-1].redelivery_count == count
        inbox.consumer.release(inbox.deliveries[-1:], has_failed=True)
    assert len(inbox.deliveries) == 3
    assert world.broker.queues[queue("ActiveMQ.DLQ")].counters().size == 1


def test_counted_deliveries_are_only_settled(world):
    inbox = world.client().subscribe("topic://T", prefetch=2)
    world.client().send("topic://T", "a", "b", "c", persistent=False)
    inbox.consumer.release(inbox.deliveries[:1], has_failed=True)
    assert inbox.ids == ["a", "b", "c"]


def test_excluded_delivery_waits_for_another_consumer(world):
    first = world.client().subscribe("queue://Q", prefetch=2)
    world.client().send("queue://Q", "a", "b")
    first.consumer.release(first.deliveries[:1], is_excluded=True)
    assert first.ids == ["a", "b"]
    world.client().send("queue://Q", "c")
    assert first.ids == ["a", "b", "c"]
    second = world.client().subscribe("queue://Q", prefetch=5)
    assert second.ids == ["a"]
    first.consumer.close()
    assert second.ids == ["a", "b", "c"]


def test_excluded_delivery_without_other_consumers_is_a_dead_letter(world):
    inbox = world.client("c").subscribe("topic://T", subscription_name="s", prefetch=2)
    world.client().send("topic://T", "a", "b")
    inbox.consumer.release(inbox.deliveries[:1], is_excluded=True)
    assert inbox.ids == ["a", "b"]
    assert world.broker.queues[queue("ActiveMQ.DLQ")].counters().size == 1
