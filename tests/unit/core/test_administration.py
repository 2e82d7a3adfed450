"""Contents of a broker, as operators see them."""

from collections.abc import Callable

import pytest

from pybroker.broker.core.policy import IndividualDeadLetterStrategy
from pybroker.broker.domain.admin import Totals
from pybroker.broker.domain.destination import DestinationType, parse, queue, topic
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.transaction import XATransactionId
from tests.unit.core.conftest import World


def test_totals_count_what_waits_and_what_is_in_flight(world: World) -> None:
    client = world.client()
    client.subscribe("topic://T", subscription_name="s").consumer.close()
    client.subscribe("queue://Q", prefetch=1)
    client.send("queue://Q", "taken", "waits")
    client.send("topic://T", "kept")
    used = world.broker.usage.used
    assert world.broker.admin.totals() == Totals(
        connections=1,
        destinations=2,
        waiting=2,
        in_flight=1,
        memory_bytes=used,
        memory_bytes_max=0,
        is_full=False,
        spool_bytes=0,
        spool_bytes_max=0,
        is_spool_full=False,
        connections_ever=1,
    )


def test_largest_destinations_come_first_without_empty_ones(world: World) -> None:
    client = world.client()
    client.subscribe("topic://T", subscription_name="s").consumer.close()
    client.subscribe("queue://EMPTY")
    for name, size in (("queue://SMALL", 10), ("queue://LARGE", 90_000), ("topic://T", 40_000)):
        client.send(name, "x" * size)
    largest = world.broker.admin.largest(2)
    assert [name for name, _ in largest] == [parse("queue://LARGE"), topic("T")]
    assert largest[0][1] > 90_000 > largest[1][1] > 40_000
    assert len(world.broker.admin.largest(9)) == 3


def test_listed_temporary_destinations_have_their_owners(world: World) -> None:
    client = world.client()
    client.send("queue://Q", "a")
    client.subscribe("topic://T")
    temporary = client.connection.create_temporary(DestinationType.TEMP_QUEUE)
    admin = world.broker.admin
    owners = {each: admin.owner(each) for each in admin.destinations()}
    assert owners == {parse("queue://Q"): None, topic("T"): None, temporary: client.connection.connection_id}


def test_connections_are_listed_with_their_consumers(world: World) -> None:
    client = world.client("me")
    client.subscribe("queue://Q", prefetch=7)
    (connection,) = world.broker.admin.connections()
    (consumer,) = connection.consumers
    assert (connection.client_id, consumer.connection.client_id) == ("me", "me")
    assert (consumer.request.destination, consumer.prefetch) == (parse("queue://Q"), 7)


def test_offline_durables_count_as_consumers_of_a_topic(world: World) -> None:
    client = world.client()
    client.subscribe("topic://T")
    client.subscribe("topic://T", subscription_name="s").consumer.close()
    admin = world.broker.admin
    assert admin.consumer_count(topic("T")) == 2
    assert admin.consumer_count(topic("nothing")) == 0


def test_a_durable_subscription_is_listed_with_and_without_its_consumer(world: World) -> None:
    client = world.client("me")
    inbox = client.subscribe("topic://T.*", subscription_name="s", selector="n > 3", prefetch=1)
    client.send("topic://T.1", "1", "2", properties={"n": 4})
    (state,) = world.broker.admin.durable_subscriptions()
    assert (state.key, state.client_id, state.name) == ("me:s", "me", "s")
    assert (state.destination, state.selector) == (topic("T.*"), "n > 3")
    assert state.connection_id == client.connection.connection_id
    assert (state.counters.size, state.counters.in_flight, state.cached) == (2, 1, 1)
    inbox.consumer.close()
    found = world.broker.admin.subscription("me:s")
    assert found is not None
    assert (found.connection_id, found.counters.size, found.counters.in_flight) == (None, 2, 0)
    assert world.broker.admin.subscription("me:t") is None


def test_dead_letters_are_counted_by_cause(make_world: Callable[..., World]) -> None:
    world = make_world(max_redeliveries=1, dead_letter_strategy=IndividualDeadLetterStrategy())
    client = world.client()
    client.send("queue://Q", "late", expiration=world.now_ms + 10)
    client.send("queue://Q", "bad", "left")
    client.send("queue://Q", "dropped", persistent=False, expiration=world.now_ms + 10)
    world.now_ms += 11
    inbox = client.subscribe("queue://Q")
    inbox.consumer.reject(inbox.deliveries[0], "NACK")
    inbox.consumer.close()
    assert world.broker.admin.totals().redelivered == 1
    client.subscribe("queue://Q").consumer.close()
    totals = world.broker.admin.totals()
    assert totals.dead_letters == {"expired": 1, "rejected": 1, "redelivered": 1}
    assert totals.redelivered == 1, "the second time it became a dead letter"


def test_dead_letters_of_a_slow_topic_consumer_are_counted(world: World) -> None:
    client = world.client()
    client.subscribe("topic://T", prefetch=1, pending_limit=1)
    client.send("topic://T", "1", "2", "3")
    assert world.broker.admin.totals().dead_letters == {"discarded": 1}


def test_transactions_in_doubt_are_counted(world: World) -> None:
    client, branch = world.client(), XATransactionId(1, b"global", b"branch")
    client.connection.begin(branch)
    client.send("queue://Q", "1", transaction=branch)  # type: ignore[arg-type]
    assert world.broker.admin.totals().in_doubt == 0
    client.connection.prepare(branch)
    assert world.broker.admin.totals().in_doubt == 1
    client.connection.commit(branch, prepared=True)
    assert world.broker.admin.totals().in_doubt == 0


def test_connections_that_wait_for_memory_are_counted(make_world: Callable[..., World]) -> None:
    world = make_world(memory_limit=2000)
    world.client().send("queue://Q", "1", "2")
    producer = world.client()
    assert world.broker.admin.totals().blocked == 0
    producer.send("queue://Q", "3")
    assert world.broker.admin.totals().blocked == 1
    inbox = world.client().subscribe("queue://Q")
    inbox.consumer.acknowledge_all(list(inbox.deliveries))
    assert world.broker.admin.totals().blocked == 0


class OldestMessage:
    """The age of the oldest message of the queue `Q`, at times that the test sets."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self._monkeypatch = world, monkeypatch
        self.at(0.0)

    def at(self, seconds: float) -> None:
        self._monkeypatch.setattr(EFFORT, "turn_at", seconds)
        self.world.broker.usage.paging.monotonic = lambda: seconds

    @property
    def seconds(self) -> float:
        state = self.world.broker.admin.state(queue("Q"))
        assert state is not None
        return state.oldest_seconds


def test_the_oldest_message_is_the_first_that_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    oldest, client = OldestMessage(world, monkeypatch), world.client()
    oldest.at(100.0)
    client.send("queue://Q", "1")
    oldest.at(103.0)
    client.send("queue://Q", "2")
    assert oldest.seconds == 3.0
    inbox = client.subscribe("queue://Q", prefetch=1)
    oldest.at(110.0)
    assert oldest.seconds == 7.0, "the first is in flight"
    inbox.ack()
    assert oldest.seconds == 0.0, "none waits"
    inbox.consumer.close()
    oldest.at(112.0)
    assert oldest.seconds == 2.0, "it has come back"


def test_the_oldest_message_of_an_earlier_master_is_as_old_as_this_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.client().send("queue://Q", "1")
    world.start()
    oldest = OldestMessage(world, monkeypatch)
    oldest.at(40.0)
    world.client().send("queue://Q", "2")
    oldest.at(50.0)
    assert oldest.seconds == 50.0
    world.client().subscribe("queue://Q", prefetch=1)
    assert oldest.seconds == 10.0


@pytest.mark.parametrize("prioritized", [False, True])
def test_the_oldest_message_of_any_priority_counts(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, prioritized: bool
) -> None:
    world = make_world(prioritized_messages=prioritized)
    oldest, client = OldestMessage(world, monkeypatch), world.client()
    oldest.at(10.0)
    client.send("queue://Q", "low", priority=1)
    oldest.at(15.0)
    client.send("queue://Q", "high", priority=9)
    oldest.at(20.0)
    assert oldest.seconds == 10.0
    client.subscribe("queue://Q", prefetch=1)
    assert oldest.seconds == (10.0 if prioritized else 5.0)
