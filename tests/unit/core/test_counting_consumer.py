# mypy: disable-error-code="attr-defined, union-attr"
"""Consumers of topics and browsers count their deliveries: each way to acknowledge opens the window."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.counting_consumer import CountingConsumer
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.reference import Reference
from pybroker.broker.core.transaction import OPERATION_BYTES
from pybroker.store.memory import MemoryStore
from tests.compiled import interpreted
from tests.unit.core.conftest import Inbox, World

COUNT = 20
WINDOW = 32_766
"""The prefetch of Java's topic consumers."""


def browsing(world: World, **request: object) -> Inbox:
    world.client().send("queue://Q", *map(str, range(COUNT)))
    return world.client().subscribe("queue://Q", browser=True, **request)


def listening(world: World, **request: object) -> Inbox:
    inbox = world.client().subscribe("topic://T", **request)
    world.client().send("topic://T", *map(str, range(COUNT)), persistent=False)
    return inbox


@pytest.fixture(params=[browsing, listening])
def start(request):
    return request.param


def in_flight(inbox: Inbox) -> int:
    assert isinstance(inbox.consumer, CountingConsumer)
    assert inbox.consumer.in_flight == inbox.consumer.outstanding_count
    return inbox.consumer.in_flight


def ids(inbox: Inbox, *indexes: int) -> list[str]:
    return [inbox.deliveries[index].message.message_id for index in indexes]


def test_no_delivery_is_kept(world, start):
    inbox = start(world)
    assert inbox.ids == list(map(str, range(COUNT)))
    assert not inbox.consumer.outstanding
    assert in_flight(inbox) == COUNT
    assert list(inbox.consumer.unsettled()) == []
    assert list(inbox.consumer.delivered()) == []


@interpreted  # the collector does not track native objects
def test_no_reference_outlives_its_delivery(world):
    inbox = listening(world)
    inbox.deliveries.clear()
    inbox.messages.clear()
    source = inbox.consumer.sources[0]
    assert not [each for each in gc.get_objects() if isinstance(each, Reference) and each.source is source]


def test_window_opens_with_each_acknowledgement(world, start):
    inbox = start(world, prefetch=5)
    assert len(inbox.deliveries) == 5
    inbox.ack(2)
    assert len(inbox.deliveries) == 6
    inbox.consumer.acknowledge_through(inbox.deliveries[3])
    assert len(inbox.deliveries) == 9
    inbox.consumer.expire(inbox.deliveries[4])
    assert len(inbox.deliveries) == 10
    inbox.consumer.acknowledge_all(inbox.deliveries[6:10])
    assert len(inbox.deliveries) == 14
    inbox.consumer.expire_all(inbox.deliveries[10:12])
    assert (len(inbox.deliveries), in_flight(inbox)) == (16, 5)


def test_as_many_are_settled_as_the_client_says(world, start):
    inbox = start(world)
    assert inbox.consumer.outstanding_through(*ids(inbox, 3, 7)) == ()
    assert inbox.consumer.acknowledge_oldest(5) == 5
    assert in_flight(inbox) == COUNT - 5
    assert inbox.consumer.acknowledge_each(ids(inbox, 9, 0)) == []
    assert in_flight(inbox) == COUNT - 7


def test_no_more_is_settled_than_is_outstanding(world, start):
    inbox = start(world)
    assert [inbox.consumer.acknowledge_oldest(count) for count in (0, -5)] == [0, 0]
    inbox.consumer.acknowledge_all(inbox.deliveries[2:])
    assert inbox.consumer.acknowledge_each([*ids(inbox, 0, 1), "a:1:1:1", "a:1:1:2"]) == ["a:1:1:1", "a:1:1:2"]
    inbox.consumer.acknowledge(inbox.deliveries[0])
    inbox.consumer.acknowledge_through(inbox.deliveries[-1])
    assert in_flight(inbox) == 0
    assert inbox.consumer.acknowledge_oldest(2**31 - 1) == 0


@pytest.mark.parametrize("outcome", ["commit", "rollback", "close"])
def test_acknowledgement_in_a_transaction_ends_with_it(world, start, outcome):
    inbox = start(world, prefetch=5)
    connection = inbox.consumer.connection
    transaction = connection.begin()
    inbox.consumer.acknowledge_oldest(3, transaction)
    inbox.consumer.acknowledge(inbox.deliveries[3], transaction)
    assert (in_flight(inbox), len(inbox.deliveries)) == (5, 9)
    if outcome == "close":
        connection.close()
        assert in_flight(inbox) == 0
    else:
        getattr(connection, outcome)(transaction)
        assert in_flight(inbox) == (9 if outcome == "rollback" else 5)
    assert world.broker.usage.in_transactions == 0


def test_roll_back_after_the_consumer_closed_changes_nothing(world, start):
    inbox = start(world)
    connection = inbox.consumer.connection
    transaction = connection.begin()
    inbox.consumer.acknowledge_all(inbox.deliveries[:3], transaction)
    inbox.consumer.close()
    connection.rollback(transaction)
    assert in_flight(inbox) == 0


@pytest.mark.parametrize("tracked_bytes", [0, 16])
def test_transaction_counts_what_the_transport_keeps(tracked_bytes):
    world = World(MemoryStore(), limits=Limits(memory_bytes_max=64 << 20))
    inbox = world.client().subscribe("topic://T", tracked_bytes=tracked_bytes, window_max=1000)
    world.client().send("topic://T", *map(str, range(1001)), persistent=False)
    assert in_flight(inbox) == 1000
    connection = inbox.consumer.connection
    transaction = connection.begin()
    before = world.broker.usage.in_transactions
    inbox.consumer.acknowledge_oldest(1000, transaction)
    assert world.broker.usage.in_transactions - before == OPERATION_BYTES + tracked_bytes * 1000
    assert not list(connection.transactions[transaction].delivered())
    connection.rollback(transaction)
    assert in_flight(inbox) == 1001
    assert world.broker.usage.in_transactions == 0


def test_window_may_be_granted_or_pulled(world, start):
    granted = start(world, prefetch=5)
    granted.consumer.grant(3)
    assert len(granted.deliveries) == 8
    granted.consumer.acknowledge_all(granted.deliveries[:8])
    assert in_flight(granted) == 5
    world.client().send("queue://Q", "a", "b", "c")
    pulling = world.client().subscribe("queue://Q", browser=True, prefetch=0)
    assert pulling.ids == []
    pulling.consumer.pull(2)
    assert len(pulling.ids) == 2
    pulling.ack(0)
    pulling.consumer.pull()
    assert len(pulling.ids) == 3


def test_rejected_message_of_a_topic_is_dropped(world):
    inbox = listening(world, prefetch=5)
    inbox.consumer.reject(inbox.deliveries[0], "no use")
    inbox.consumer.reject_all(inbox.deliveries[1:3], "no use")
    assert (len(inbox.deliveries), in_flight(inbox)) == (8, 5)
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == []


def test_delivery_that_fails_does_not_end_the_browse(world):
    world.client().send("queue://Q", "a", "b", "c")
    inbox = world.client().subscribe("queue://Q", browser=True, prefetch=2)
    inbox.consumer.deliver = lambda delivery: 1 // 0
    inbox.ack(0)
    inbox.ack(1)
    assert inbox.ended
    assert in_flight(inbox) == 1


@given(
    steps=st.lists(st.tuples(st.sampled_from(["send", "through", "reject"]), st.integers(0, 9)), max_size=60),
    prefetch=st.integers(1, 5),
)
def test_acknowledging_through_after_rejections_never_stands_still(steps, prefetch):
    """As STOMP does in mode auto: what cannot be rendered is rejected, perhaps before earlier messages are sent."""
    world = World(MemoryStore(), DestinationPolicy(pending_message_limit=-1))
    inbox = world.client().subscribe("topic://T", prefetch=prefetch)
    sender, sent, settled, rejected = world.client(), 0, 0, set()
    for what, value in steps:
        alive = [at for at in range(settled, len(inbox.deliveries)) if at not in rejected]
        if what == "send":
            sender.send("topic://T", *map(str, range(sent, sent + value)), persistent=False)
            sent += value
        elif alive and what == "through":
            settled = alive[value % len(alive)] + 1
            inbox.consumer.acknowledge_through(inbox.deliveries[settled - 1])
        elif alive:
            rejected.add(alive[value % len(alive)])
            inbox.consumer.reject(inbox.deliveries[alive[value % len(alive)]], "cannot be rendered")
        alive = [at for at in range(settled, len(inbox.deliveries)) if at not in rejected]
        assert len(alive) <= in_flight(inbox) <= prefetch
        assert alive or len(inbox.deliveries) == sent, "messages wait, and nothing is left to acknowledge"
    assert inbox.ids == [str(number) for number in range(len(inbox.ids))]


def test_many_clients_that_acknowledge_a_window_at_once_get_it_whole():
    world = World(MemoryStore(), limits=Limits(memory_bytes_max=64 << 20))
    inboxes = [world.client().subscribe("topic://T", prefetch=WINDOW) for _ in range(8)]
    sender = world.client()
    for _ in range(WINDOW // 2):
        sender.send("topic://T", "x", persistent=False)
    assert {len(inbox.deliveries) for inbox in inboxes} == {WINDOW // 2}
