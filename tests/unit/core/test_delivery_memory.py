# mypy: disable-error-code="arg-type"
"""The memory of deliveries to topic consumers: capacity, shares, consumers that are held back and go on."""

import logging
from collections.abc import Callable

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.delivery_memory import (
    CAPACITY_MIN,
    CAPACITY_STEP,
    DELIVERY_BYTES,
    GUARANTEED_BYTES,
    LOG_SECONDS,
    PART_MIN,
    RETRIED_MAX,
    DeliveryAccount,
    DeliveryMemory,
    LimitedConsumer,
)
from pybroker.broker.core.object_memory import GRACE_SECONDS, ObjectAccount, ObjectMemory
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.store.memory import MemoryStore
from tests.compiled import IS_COMPILED, interpreted
from tests.unit.core.conftest import Client, Inbox, World, no_loop

LIMIT = 128 << 20
GUARANTEED = GUARANTEED_BYTES // DELIVERY_BYTES
"""The deliveries that each connection may have."""


if not IS_COMPILED:  # a class of Python's cannot derive from a native one

    class Consumer(LimitedConsumer):
        """Counts how often it was retried."""

        def __init__(self) -> None:
            self.count = 0

        def retry(self) -> None:
            self.count += 1


def make_world(limit: int = LIMIT, **policy: object) -> World:
    return World(MemoryStore(), DestinationPolicy(**policy), limits=Limits(memory_bytes_max=limit))


def memory_of(world: World) -> DeliveryMemory:
    return world.broker.objects.deliveries


def use_up(world: World) -> DeliveryAccount:
    """Have another connection take all that is left of the part, and return its account."""
    account = DeliveryAccount(memory_of(world))
    account.acquire_anyway((memory_of(world).part + GUARANTEED_BYTES) // DELIVERY_BYTES)
    return account


def send(client: Client, count: int, start: int = 0) -> list[str]:
    names = [str(number) for number in range(start, start + count)]
    client.send("topic://T", *names, persistent=False)
    return names


def ack(inbox: Inbox, count: int) -> None:
    inbox.consumer.acknowledge_all(list(inbox.consumer.outstanding)[:count])


# ---------------------------------------------------------------- capacity


def test_capacity_grows_with_the_deliveries_up_to_the_window():
    world = make_world()
    client = world.client()
    inbox = client.subscribe("topic://T", prefetch=5000)
    seen = [inbox.consumer.capacity]
    for _ in range(6000):
        send(client, 1)
        if inbox.consumer.capacity != seen[-1]:
            seen.append(inbox.consumer.capacity)
    assert seen == [16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 5000]
    assert len(inbox.deliveries) == 5000
    assert memory_of(world).taken == (5000 - CAPACITY_MIN) * DELIVERY_BYTES


def test_idle_and_narrow_consumers_count_nothing():
    world = make_world()
    client = world.client()
    client.subscribe("topic://U", prefetch=32_766)
    inbox = client.subscribe("topic://T", prefetch=CAPACITY_MIN)
    send(client, 40)
    assert len(inbox.deliveries) == CAPACITY_MIN
    assert memory_of(world).taken == 0


@pytest.mark.parametrize("how", ["acknowledge", "close", "disconnect"])
def test_capacity_is_given_back(how):
    world = make_world()
    client = world.client()
    before = world.broker.usage.used
    inbox = client.subscribe("topic://T", prefetch=1000)
    send(client, 600)
    objects = world.broker.objects
    assert memory_of(world).taken == (1000 - CAPACITY_MIN) * DELIVERY_BYTES
    assert world.broker.usage.used - objects.held - objects.lasting == memory_of(world).taken
    if how == "acknowledge":
        ack(inbox, 600)
        assert inbox.consumer.capacity == CAPACITY_MIN
    elif how == "close":
        inbox.consumer.close()
    else:
        client.connection.close()
    assert (memory_of(world).taken, memory_of(world).shared) == (0, 0)
    assert world.broker.usage.used - objects.held - objects.lasting == before


def test_acknowledgements_in_between_leave_the_capacity():
    world = make_world()
    client = world.client()
    inbox = client.subscribe("topic://T", prefetch=1024)
    send(client, 1024)
    ack(inbox, 1024 - 128)
    assert inbox.consumer.capacity == 1024
    ack(inbox, 1)
    assert inbox.consumer.capacity == 4 * 127


def test_capacity_that_was_given_back_is_acquired_again():
    world = make_world()
    client = world.client()
    inbox = client.subscribe("topic://T", prefetch=1024)
    for _ in range(3):
        send(client, 100)
        assert (inbox.consumer.capacity, inbox.consumer.window) == (128, 128)
        ack(inbox, 100)
        assert (inbox.consumer.capacity, inbox.consumer.window) == (16, 16)


def test_without_a_memory_limit_nothing_is_counted():
    world = make_world(limit=0)
    client = world.client()
    inbox = client.subscribe("topic://T", prefetch=32_766)
    send(client, 3000)
    assert len(inbox.deliveries) == 3000
    assert memory_of(world).taken == 0


def test_queues_and_durable_subscriptions_are_not_limited():
    world = make_world()
    use_up(world)
    client = world.client("me")
    client.connection.objects.deliveries.acquire_anyway(GUARANTEED)
    queue = client.subscribe("queue://Q", prefetch=1000)
    durable = client.subscribe("topic://T", subscription_name="s", prefetch=1000)
    client.send("queue://Q", *map(str, range(100)))
    client.send("topic://T", *map(str, range(100)))
    assert (len(queue.deliveries), len(durable.deliveries)) == (100, 100)


# ---------------------------------------------------------------- shares


def test_each_connection_has_its_guaranteed_deliveries():
    world = make_world()
    use_up(world)
    client = world.client()
    inboxes = [client.subscribe("topic://T", prefetch=128) for _ in range(6)]
    send(client, 200)
    assert [len(inbox.deliveries) for inbox in inboxes] == [128, 128, 128, 128, 128, 96]
    assert memory_of(world).taken - memory_of(world).part <= 2 * GUARANTEED_BYTES


def test_one_consumer_takes_all_that_its_connection_is_guaranteed():
    world = make_world()
    use_up(world)
    client = world.client()
    inbox = client.subscribe("topic://T", prefetch=32_766)
    names = send(client, 800)
    assert GUARANTEED <= len(inbox.deliveries) <= GUARANTEED + CAPACITY_MIN
    ack(inbox, 600)
    assert inbox.ids == names


def test_first_connection_takes_three_quarters_and_others_find_something():
    memory = ObjectMemory(LIMIT, 1000, count=lambda change: None, seconds=lambda: 0.0, later=no_loop)
    taken = []
    for _ in range(3):
        account = ObjectAccount(memory).deliveries
        while account.acquire(CAPACITY_STEP):
            pass
        taken.append((account.taken - GUARANTEED_BYTES) / memory.deliveries.part)
    assert taken == pytest.approx([0.75, 0.1875, 0.047], abs=0.01)


def test_a_window_of_activemq_fits_under_a_low_limit():
    world = make_world(limit=PART_MIN)
    client = world.client()
    inboxes = [client.subscribe("topic://T", prefetch=32_766)]
    send(client, 21_300)  # 65 %, at which ActiveMQ's `optimizeAcknowledge` acknowledges
    assert [len(inbox.deliveries) for inbox in inboxes] == [21_300]


def test_usage_counts_no_more_than_the_part():
    used = [0]

    def count(change: int) -> None:
        used[0] += change

    memory = ObjectMemory(LIMIT, 1000, count=count, seconds=lambda: 0.0, later=no_loop)
    accounts = [ObjectAccount(memory) for _ in range(1000)]
    for account in accounts:
        assert account.deliveries.acquire(GUARANTEED)
    assert used[0] == LIMIT // 4
    for account in accounts:
        account.close()
    assert used[0] == 0
    assert not accounts[0].deliveries.acquire(1)


def test_in_the_grace_period_a_second_connection_gets_what_the_first_one_had():
    now = [0.0]
    memory = ObjectMemory(LIMIT, 1000, count=lambda change: None, seconds=lambda: now[0], later=no_loop)
    memory.begin_grace()
    first, second = ObjectAccount(memory).deliveries, ObjectAccount(memory).deliveries
    half = (LIMIT // 8 + GUARANTEED_BYTES) // DELIVERY_BYTES
    assert first.acquire(half)
    assert second.acquire(half)
    second.release(half)
    now[0] = GRACE_SECONDS
    assert not second.acquire(half)


# ---------------------------------------------------------------- consumers held back


@pytest.fixture
def full():
    """A world whose deliveries are used up, and the account that has them."""
    world = make_world()
    return world, use_up(world)


def holding(world: World, prefetch: int = 1000, **request: object) -> tuple[Client, Inbox]:
    """Return a connection without any deliveries left, and its consumer."""
    client = world.client()
    client.connection.objects.deliveries.acquire_anyway(GUARANTEED)
    return client, client.subscribe("topic://T", prefetch=prefetch, **request)


def test_a_consumer_that_is_held_back_goes_on_with_its_acknowledgements(full):
    world, _ = full
    client, inbox = holding(world)
    names = send(client, 100)
    assert inbox.ids == names[:16]
    ack(inbox, 1)
    assert inbox.ids == names[:17]
    ack(inbox, 16)
    assert inbox.ids == names[:33]
    while inbox.consumer.outstanding:
        ack(inbox, 5)
    assert inbox.ids == names


def test_it_goes_on_when_others_give_capacity_back(full):
    world, other = full
    client, inbox = holding(world)
    names = send(client, 100)
    other.release(2 * GUARANTEED)
    assert inbox.ids == names
    assert not memory_of(world).held_back


def test_it_goes_on_when_another_consumer_closes(full):
    world, _ = full
    client = world.client()
    other = client.subscribe("topic://U", prefetch=10_000)
    client.send("topic://U", *map(str, range(GUARANTEED)), persistent=False)
    inbox = client.subscribe("topic://T", prefetch=1000)
    names = send(client, 300)
    assert len(inbox.deliveries) < 300
    other.consumer.close()
    assert inbox.ids == names


def test_it_goes_on_in_a_later_turn_with_an_event_loop(full):
    world, other = full
    later: list[Callable[[], None]] = []
    world.broker.usage.paging.later = later.append
    client, inbox = holding(world)
    names = send(client, 100)
    other.release(2 * GUARANTEED)
    assert inbox.ids == names[:16]
    later.pop()()
    assert inbox.ids == names


@interpreted  # its own consumers
def test_the_others_go_on_behind_one_that_fails():
    class Failing(Consumer):
        def retry(self) -> None:
            raise ValueError("broken")

    later: list[Callable[[], None]] = []
    memory = ObjectMemory(
        LIMIT, 1000, count=lambda change: None, seconds=lambda: 0.0, later=lambda callback: not later.append(callback)
    )
    account = ObjectAccount(memory).deliveries
    account.acquire(10)
    consumers = [Failing(), Consumer()]
    for consumer in consumers:
        memory.deliveries.hold_back(consumer, "c", "topic://T", 16)
    account.release(1)
    with pytest.raises(ValueError, match="broken"):
        later.pop()()
    later.pop()()
    assert [consumer.count for consumer in consumers] == [0, 1]
    memory.deliveries.hold_back(consumers[1], "c", "topic://T", 16)
    account.release(1)
    later.pop()()
    assert consumers[1].count == 2
    assert not later


@interpreted  # its own consumers
def test_many_are_retried_in_pieces_and_once_for_each_release():
    later: list[Callable[[], None]] = []
    memory = ObjectMemory(
        LIMIT, 1000, count=lambda change: None, seconds=lambda: 0.0, later=lambda callback: not later.append(callback)
    )
    account = ObjectAccount(memory).deliveries
    account.acquire(10)
    consumers = [Consumer() for _ in range(2 * RETRIED_MAX)]
    for consumer in consumers:
        memory.deliveries.hold_back(consumer, "c", "topic://T", 16)
    for _ in range(10):
        account.release(1)
    turns = 0
    while later:
        assert len(later) == 1
        later.pop()()
        turns += 1
        assert sum(consumer.count for consumer in consumers) <= turns * RETRIED_MAX
    assert [consumer.count for consumer in consumers] == [1] * len(consumers)
    assert 2 <= turns <= 3
    account.acquire(1)
    memory.deliveries.hold_back(consumers[0], "c", "topic://T", 16)
    account.release(1)
    later.pop()()
    assert consumers[0].count == 2


def test_rolled_back_acknowledgements_are_counted(full):
    world, _ = full
    client, inbox = holding(world)
    send(client, 100)
    transaction = client.connection.begin()
    before = memory_of(world).taken
    while len(inbox.consumer.outstanding) and len(inbox.deliveries) < 100:
        inbox.consumer.acknowledge_all(list(inbox.consumer.outstanding), transaction)
    client.connection.rollback(transaction)
    assert len(inbox.consumer.outstanding) == 100
    assert memory_of(world).taken - before == (100 - CAPACITY_MIN) * DELIVERY_BYTES
    ack(inbox, 100)
    assert memory_of(world).taken == before


def test_prefetch_of_one_grants_and_pulls_work_while_capacity_is_used_up(full):
    world, _ = full
    client, inbox = holding(world, prefetch=1)
    names = send(client, 30)
    assert inbox.ids == names[:1]
    for expected in range(2, 17):  # a transacted session of ActiveMQ grants what it has got
        inbox.consumer.grant(1)
        inbox.consumer.grant(len(inbox.consumer.outstanding))
        assert len(inbox.deliveries) >= expected
    assert len(inbox.deliveries) == CAPACITY_MIN
    ack(inbox, CAPACITY_MIN)
    assert inbox.ids == names[: CAPACITY_MIN + 1]


def test_pulls_are_served_up_to_the_minimum_and_after_acknowledgements(full):
    world, _ = full
    client, inbox = holding(world, prefetch=0)
    inbox.consumer.pull()
    names = send(client, 1)
    for number in range(1, 30):
        inbox.consumer.pull()
        names += send(client, 1, number)
    assert inbox.ids == names[:CAPACITY_MIN]
    ack(inbox, 1)
    assert len(inbox.deliveries) == CAPACITY_MIN + 1


def test_messages_wait_and_the_oldest_are_dropped_above_the_limit_of_slow_consumers():
    world = make_world(pending_message_limit=20)
    use_up(world)
    client, inbox = holding(world)
    names = send(client, 100)
    while inbox.consumer.outstanding:
        ack(inbox, 1)
    assert inbox.ids == names[:16] + names[80:]


def test_what_waits_for_a_paused_client_is_limited_too():
    world = make_world(pending_message_limit=20)
    use_up(world)
    client, inbox = holding(world)
    client.connection.pause()
    names = send(client, 100)
    client.connection.resume()
    while inbox.consumer.outstanding:
        ack(inbox, 1)
    assert inbox.ids == names[-36:]


def test_a_paused_client_with_capacity_loses_nothing_within_its_prefetch():
    world = make_world(pending_message_limit=20)
    client = world.client()
    inbox = client.subscribe("topic://T", prefetch=500)
    client.connection.pause()
    names = send(client, 600)
    client.connection.resume()
    while inbox.consumer.outstanding:
        ack(inbox, 50)
    assert inbox.ids == names[-520:]


def test_one_line_says_which_connection_and_what_to_do(full, caplog):
    world, other = full
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            client, _ = holding(world)
            send(client, 30)
    part = memory_of(world).part
    taken = other.taken - GUARANTEED_BYTES
    assert [record.message for record in caplog.records] == [
        "connection c1: the consumer of topic://T is held back with 16 deliveries that it has not acknowledged; all "
        f"consumers take {taken:,} of {part:,} bytes for such deliveries. Acknowledge, lower the prefetch or raise "
        "memory_limit. Held back now: 1"
    ]


@interpreted  # its own consumers
def test_the_line_is_written_again_after_a_while(caplog):
    now = [0.0]
    memory = ObjectMemory(LIMIT, 1000, count=lambda change: None, seconds=lambda: now[0], later=no_loop)
    for now[0] in (0.0, 1.0, LOG_SECONDS - 1, LOG_SECONDS, LOG_SECONDS + 1):
        memory.deliveries.hold_back(Consumer(), "c", "topic://T", 16)
    assert [record.message[-1] for record in caplog.records] == ["1", "4"]


def test_a_closed_consumer_is_not_held_back_any_more(full):
    world, other = full
    client, inbox = holding(world)
    send(client, 100)
    assert len(memory_of(world).held_back) == 1
    inbox.consumer.close()
    assert not memory_of(world).held_back
    client, _ = holding(world)
    send(client, 100)
    client.connection.close()
    assert not memory_of(world).held_back
    other.close()
    assert memory_of(world).taken == GUARANTEED * DELIVERY_BYTES
