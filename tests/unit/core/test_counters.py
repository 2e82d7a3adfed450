"""Counts of the messages of queues, topics and subscriptions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.topic_deliveries import RUNS_MAX, TopicDeliveries
from pybroker.broker.core.waiting_times import MARKS_MAX, WaitingTimes
from pybroker.broker.domain.admin import NO_MESSAGES, Counters
from pybroker.broker.domain.destination import parse, topic
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.transaction import LocalTransactionId
from tests.unit.core.conftest import World


def counters(world: World, destination: str) -> Counters:
    found = world.broker.admin.state(parse(destination))
    assert found is not None
    return replace(found.counters, message_bytes=0, message_bytes_max=0, message_bytes_min=0)


def test_there_are_none_of_a_destination_that_does_not_exist(world: World) -> None:
    assert world.broker.admin.state(parse("queue://Q")) is None


def test_a_queue_counts_what_waits_and_what_is_in_flight(world: World) -> None:
    client = world.client()
    inbox = client.subscribe("queue://Q", prefetch=3)
    client.send("queue://Q", "1", "2", "3", "4", "5")
    assert counters(world, "queue://Q") == replace(NO_MESSAGES, size=5, enqueued=5, dispatched=3, in_flight=3)
    inbox.ack(0)
    inbox.ack(1)
    assert counters(world, "queue://Q") == replace(
        NO_MESSAGES, size=3, enqueued=5, dispatched=5, dequeued=2, in_flight=3
    )
    inbox.consumer.close()
    assert counters(world, "queue://Q") == replace(NO_MESSAGES, size=3, enqueued=5, dispatched=5, dequeued=2)


def test_a_transaction_counts_once_it_commits(world: World) -> None:
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q", "1")
    transaction = LocalTransactionId(client.connection.connection_id, 1)
    client.connection.begin(transaction)
    client.send("queue://Q", "2", transaction=transaction)
    inbox.ack(0, transaction)
    assert counters(world, "queue://Q") == replace(NO_MESSAGES, size=1, enqueued=1, dispatched=1, in_flight=1)
    client.connection.commit(transaction)
    assert counters(world, "queue://Q") == replace(
        NO_MESSAGES, size=1, enqueued=2, dispatched=2, dequeued=1, in_flight=1
    )


@pytest.mark.parametrize("name", ["queue://Q", "topic://T"])
def test_a_consumer_has_not_acknowledged_what_is_rolled_back(world: World, name: str) -> None:
    client = world.client()
    inbox = client.subscribe(name)
    client.send(name, "1", "2", "3")
    inbox.ack(0)
    transaction = LocalTransactionId(client.connection.connection_id, 1)
    client.connection.begin(transaction)
    inbox.ack(1, transaction)
    assert (inbox.consumer.offered_count, inbox.consumer.acknowledged_count) == (3, 2)
    client.connection.rollback(transaction)
    assert (inbox.consumer.offered_count, inbox.consumer.acknowledged_count) == (3, 1)


def test_expired_and_rejected_messages_are_dequeued(world: World) -> None:
    client = world.client()
    client.send("queue://Q", "late", expiration=world.now_ms + 10)
    client.send("queue://Q", "bad")
    world.now_ms += 11
    inbox = client.subscribe("queue://Q")
    assert inbox.ids == ["bad"]
    inbox.consumer.reject(inbox.deliveries[0], "bad")
    assert counters(world, "queue://Q") == replace(NO_MESSAGES, enqueued=2, dispatched=1, dequeued=2, expired=1)
    assert counters(world, "queue://ActiveMQ.DLQ") == replace(NO_MESSAGES, size=2, enqueued=2)


def test_what_an_earlier_master_stored_is_dequeued_but_not_enqueued(world: World) -> None:
    client = world.client()
    client.send("queue://Q", "1", "2", "3")
    world.start()
    assert counters(world, "queue://Q") == replace(NO_MESSAGES, size=3)
    inbox = world.client().subscribe("queue://Q")
    inbox.ack(0)
    assert counters(world, "queue://Q") == replace(NO_MESSAGES, size=2, dispatched=3, dequeued=1, in_flight=2)


def test_a_topic_counts_each_subscription(world: World) -> None:
    client = world.client()
    first, second = client.subscribe("topic://T"), client.subscribe("topic://T", prefetch=1)
    client.send("topic://T", "1", "2")
    assert counters(world, "topic://T") == replace(NO_MESSAGES, enqueued=2, dispatched=3, in_flight=3)
    first.ack(0)
    second.ack(0)
    assert counters(world, "topic://T") == replace(NO_MESSAGES, enqueued=2, dispatched=4, dequeued=2, in_flight=2)
    second.consumer.close()
    assert counters(world, "topic://T") == replace(NO_MESSAGES, enqueued=2, dispatched=4, dequeued=2, in_flight=1)


def test_a_durable_subscription_counts_for_its_topic(world: World) -> None:
    client = world.client()
    inbox = client.subscribe("topic://T", subscription_name="s", prefetch=2)
    client.send("topic://T", "1", "2", "3")
    inbox.ack(0)
    assert counters(world, "topic://T") == replace(NO_MESSAGES, enqueued=3, dispatched=3, dequeued=1, in_flight=2)
    inbox.consumer.close()
    assert counters(world, "topic://T") == replace(NO_MESSAGES, enqueued=3, dispatched=3, dequeued=1)


@pytest.mark.parametrize(
    ("name", "request_fields"),
    [
        ("topic://A.>", {}),
        ("topic://A.>", {"subscription_name": "s"}),
        ("topic://A.X", {"composite": (topic("A.Y"),)}),
    ],
)
def test_a_consumer_of_several_topics_counts_for_each(world: World, name: str, request_fields: dict[str, Any]) -> None:
    client = world.client()
    inbox = client.subscribe(name, **request_fields)
    client.send("topic://A.X", "1", "2")
    client.send("topic://A.Y", "3")
    client.send("topic://A.X", "4")
    for index in range(3):
        inbox.ack(index)
    assert counters(world, "topic://A.X") == replace(NO_MESSAGES, enqueued=3, dispatched=3, dequeued=2, in_flight=1)
    assert counters(world, "topic://A.Y") == replace(NO_MESSAGES, enqueued=1, dispatched=1, dequeued=1)
    inbox.consumer.close()
    assert counters(world, "topic://A.X") == replace(NO_MESSAGES, enqueued=3, dispatched=3, dequeued=2)
    assert counters(world, "topic://A.Y") == replace(NO_MESSAGES, enqueued=1, dispatched=1, dequeued=1)


def test_what_is_dropped_for_a_slow_consumer_is_dequeued(make_world: Callable[..., World]) -> None:
    world = make_world(pending_message_limit=1)
    client = world.client()
    client.subscribe("topic://T", prefetch=1)
    client.send("topic://T", "1", "2", "3", "4", persistent=False)
    assert counters(world, "topic://T") == replace(NO_MESSAGES, enqueued=4, dispatched=1, dequeued=2, in_flight=1)


def test_a_topic_counts_what_has_expired(world: World) -> None:
    client = world.client()
    client.subscribe("topic://T", prefetch=1)
    inbox = client.subscribe("topic://T", subscription_name="s", prefetch=1)
    client.send("topic://T", "1")
    client.send("topic://T", "late", expiration=world.now_ms + 10)
    world.now_ms += 11
    inbox.ack(0)
    assert counters(world, "topic://T").expired == 1
    assert counters(world, "topic://T").dequeued == 2


def test_a_topic_that_is_made_again_begins_at_zero(world: World) -> None:
    client = world.client()
    inbox = client.subscribe("topic://*")
    client.send("topic://T", "1", "2")
    client.send("topic://U", "3")
    world.broker.destinations.drop(topic("T"))
    client.send("topic://T", "4")
    assert counters(world, "topic://T") == replace(NO_MESSAGES, enqueued=1, dispatched=1, in_flight=1)
    for index in range(4):
        inbox.ack(index)
    assert counters(world, "topic://T") == replace(NO_MESSAGES, enqueued=1, dispatched=1, dequeued=1)
    assert counters(world, "topic://U") == replace(NO_MESSAGES, enqueued=1, dispatched=1, dequeued=1)


def test_many_runs_take_little_memory(world: World) -> None:
    topics = [world.broker.destinations.topic(topic(f"T{number}")) for number in range(2)]
    deliveries = TopicDeliveries()
    for number in range(10 * RUNS_MAX):
        deliveries.add(topics[number % 2])
    assert [each.dispatched for each in topics] == [5 * RUNS_MAX] * 2
    assert [each.in_flight for each in topics] == [RUNS_MAX // 2] * 2  # the others count as acknowledged
    deliveries.settle(10 * RUNS_MAX)
    assert [each.dequeued for each in topics] == [5 * RUNS_MAX] * 2
    assert [each.in_flight for each in topics] == [0, 0]


def test_waits_are_those_of_messages_that_had_no_consumer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.client()
    monkeypatch.setattr(EFFORT, "turn_at", 100.0)
    client.send("queue://Q", "1", "2")
    monkeypatch.setattr(EFFORT, "turn_at", 101.0)
    client.send("queue://Q", "3")
    monkeypatch.setattr(EFFORT, "turn_at", 104.0)
    client.subscribe("queue://Q")
    client.send("queue://Q", "4")  # is delivered at once
    found = counters(world, "queue://Q")
    assert (found.wait_seconds, found.wait_seconds_max, found.wait_seconds_min) == (11.0, 4.0, 3.0)
    assert found.dispatched == 4


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=2000), st.data())
def test_a_wait_is_too_long_by_less_than_the_time_between_marks(gaps: list[float], data: st.DataObject) -> None:
    waits, times, now = WaitingTimes(), [], 0.0
    for sequence, gap in enumerate(gaps):
        now += gap
        times.append(now)
        EFFORT.turn_at = now
        waits.begin(sequence, is_first=not sequence)
    sequence = data.draw(st.integers(0, len(gaps) - 1))
    exact, found = now + 1.0 - times[sequence], now + 1.0 - waits.begun_at(sequence, now)
    earlier = times[max(0, sequence - 8 * len(gaps) // MARKS_MAX - 1)]
    assert exact <= found <= now + 1.0 - earlier
    EFFORT.turn_at = now + 1.0
    waits.end(sequence)
    assert waits.total == pytest.approx(found)
    EFFORT.turn_at = 0.0


def test_the_wait_of_a_message_that_comes_back_begins_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.client()
    monkeypatch.setattr(EFFORT, "turn_at", 100.0)
    client.send("queue://Q", "old")
    inbox = client.subscribe("queue://Q")
    inbox.ack(0)
    monkeypatch.setattr(EFFORT, "turn_at", 10_000.0)
    client.send("queue://Q", "new")  # is delivered at once
    inbox.consumer.close()
    monkeypatch.setattr(EFFORT, "turn_at", 10_002.0)
    client.subscribe("queue://Q")
    assert counters(world, "queue://Q").wait_seconds_max == 2.0


def test_topics_of_a_wildcard_have_in_flight_again_what_is_rolled_back(world: World) -> None:
    client = world.client()
    inbox = client.subscribe("topic://A.*")
    client.send("topic://A.X", "1", "2")
    transaction = LocalTransactionId(client.connection.connection_id, 1)
    client.connection.begin(transaction)
    for index in range(2):
        inbox.ack(index, transaction)
    client.connection.rollback(transaction)
    found = counters(world, "topic://A.X")
    assert (found.dispatched, found.dequeued, found.in_flight) == (2, 0, 2)
    client.connection.begin(transaction)
    inbox.ack(0, transaction)
    client.connection.commit(transaction)
    found = counters(world, "topic://A.X")
    assert (found.dispatched, found.dequeued, found.in_flight) == (2, 1, 1)


def test_what_a_durable_subscription_gives_back_is_not_in_flight(world: World) -> None:
    client = world.client("me")
    inbox = client.subscribe("topic://A.>", subscription_name="s", prefetch=2)
    client.send("topic://A.X", "1", "2", "3")
    assert counters(world, "topic://A.X").in_flight == 2
    inbox.consumer.close()
    assert counters(world, "topic://A.X").in_flight == 0
    again = client.subscribe("topic://A.>", subscription_name="s", prefetch=2)
    assert counters(world, "topic://A.X").in_flight == 2
    again.ack(0)
    found = counters(world, "topic://A.X")
    assert (found.dispatched, found.dequeued, found.in_flight) == (5, 1, 2)


def test_counts_of_many_destinations_that_were_removed(world: World) -> None:
    client = world.client()
    for number in range(1200):
        client.send(f"queue://Q.{number}", "x")
        world.broker.remove_destination(parse(f"queue://Q.{number}"))
    removed = world.broker.admin.removed()
    assert (removed.enqueued, removed.size, removed.message_bytes) == (1200, 0, 1200 * 1025)


def test_sizes_of_messages(world: World) -> None:
    client = world.client()
    client.send("queue://Q", "x" * 5_000, "x" * 100_000, "x")
    state = world.broker.admin.state(parse("queue://Q"))
    assert state is not None
    assert state.counters.message_bytes_min == 1024 + 1
    assert state.counters.message_bytes_max == 1024 + 100_000
    assert state.counters.message_bytes == 3 * 1024 + 105_001
    assert state.cached == 3
    assert state.memory_bytes > 105_001
