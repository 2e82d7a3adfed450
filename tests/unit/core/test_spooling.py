"""A whole broker whose non-persistent messages leave memory by the spool, and every way they come back."""

from collections.abc import Callable

import pytest

from pybroker.broker.core import stored as stored_module
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.destination import parse
from pybroker.store.memory import MemoryStore
from pybroker.store.spool import FileSpool
from tests.unit.core.conftest import World, make_message

Q = parse("queue://Q")
SIZE = make_message("100", "queue://Q").size
LIMIT = 10 * SIZE
"""The watermark is at 7 messages, and the front has one."""


class Disk:
    """A spool that writes when the test says so."""

    def __init__(self, directory):
        self.jobs: list[Callable[[], None]] = []
        self.spool = FileSpool(
            directory,
            bytes_max=1 << 30,
            reserve_bytes=0,
            submit=self.jobs.append,
            post=lambda callback: callback(),
            monotonic=lambda: 0.0,
        )

    def work(self):
        while self.jobs:
            self.jobs.pop(0)()


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path)
    yield made
    made.spool.close()
    made.work()


@pytest.fixture
def make(disk):
    def make(**policy: object) -> World:
        world = World(MemoryStore(), DestinationPolicy(memory_limit=LIMIT, **policy))  # type: ignore[arg-type]
        world.broker.usage.paging.spool = disk.spool
        return world

    return make


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(100, 100 + count)]


def send(world: World, disk: Disk, count: int = 50, destination: str = "queue://Q", **fields: object) -> None:
    client = world.client()
    for name in numbers(count):
        client.send(destination, name, **({"persistent": False} | fields))  # type: ignore[arg-type]
        disk.work()
    assert world.broker.usage.used <= LIMIT
    assert client.throttle.holds == 0


def drain(world: World, destination: str = "queue://Q", **request: object) -> list[str]:
    inbox = world.client().subscribe(destination, prefetch=5, **request)
    seen: list[str] = []
    while inbox.deliveries:
        seen += inbox.ids[:1]
        inbox.ack()
        inbox.deliveries.pop(0)
    return seen


def is_empty(world: World, disk: Disk) -> bool:
    disk.work()
    return world.broker.usage.used == 0 and disk.spool.used_bytes == 0


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_backlog_larger_than_the_limit_comes_back_in_order(make, disk, prioritized):
    world = make(prioritized_messages=prioritized)
    send(world, disk)
    assert disk.spool.used_bytes > 40 * 100
    assert drain(world) == numbers(50)
    assert is_empty(world, disk)


def test_messages_returned_by_a_consumer_leave_memory(make, disk):
    world = make()
    world.broker.usage.limit = 5 * LIMIT
    world.broker.usage.recompute_watermark()
    inbox = world.client().subscribe("queue://Q", prefetch=100)
    sender = world.client()
    for name in numbers(100):
        sender.send("queue://Q", name, persistent=False)
        disk.work()
    assert world.broker.usage.used >= 100 * SIZE, "the consumer holds them"
    inbox.consumer.connection.close()
    disk.work()
    assert world.broker.usage.used <= LIMIT
    assert drain(world) == numbers(100)
    assert is_empty(world, disk)


def test_messages_returned_to_many_queues_leave_memory(make, disk):
    world = make()
    usage = world.broker.usage
    usage.limit = 5 * LIMIT
    names = [f"queue://Q.{number}" for number in range(20)]
    client, sender = world.client(), world.client()
    for name in names:
        client.subscribe(name, prefetch=100)
        for number in numbers(6):
            sender.send(name, number, persistent=False)
            disk.work()
    assert usage.used >= 120 * SIZE, "the consumers hold them"
    client.connection.close()
    disk.work()
    assert usage.used <= usage.limit
    assert [drain(world, name) for name in names] == [numbers(6)] * 20
    assert is_empty(world, disk)


def test_a_temporary_queue_spools_persistent_messages_as_such(make, disk):
    world = make()
    owner = world.client()
    destination = str(owner.connection.create_temporary(parse("temp-queue://x").type))
    send(world, disk, destination=destination, persistent=True)
    inbox = owner.subscribe(destination, prefetch=100)
    assert inbox.ids == numbers(50)
    assert all(each.message.persistent for each in inbox.deliveries)
    owner.connection.close()
    assert is_empty(world, disk)


def test_priorities_order_spooled_messages(make, disk):
    world = make(prioritized_messages=True)
    client = world.client()
    for name in numbers(50):
        client.send("queue://Q", name, persistent=False, priority=int(name) % 3)
        disk.work()
    expected = sorted(numbers(50), key=lambda name: -(int(name) % 3))
    assert drain(world) == expected
    assert is_empty(world, disk)


def test_a_selector_finds_spooled_messages_and_leaves_the_others(make, disk):
    world = make()
    client = world.client()
    for name in numbers(50):
        client.send("queue://Q", name, persistent=False, properties={"even": int(name) % 2 == 0})
        disk.work()
    assert drain(world, selector="even = FALSE") == numbers(50)[1::2]
    assert drain(world) == numbers(50)[::2]
    assert is_empty(world, disk)


def test_a_browser_sees_spooled_messages_which_stay(make, disk):
    world = make()
    send(world, disk)
    inbox = world.client().subscribe("queue://Q", prefetch=100, browser=True)
    assert (inbox.ids, inbox.ended) == (numbers(50), True)
    assert drain(world) == numbers(50)
    assert is_empty(world, disk)


def test_spooled_messages_are_acknowledged_in_transactions(make, disk):
    world = make()
    send(world, disk)
    for outcome in ("rollback", "commit"):
        client = world.client()
        inbox = client.subscribe("queue://Q", prefetch=100)
        transaction = client.connection.begin()
        assert inbox.ids == numbers(50)
        inbox.consumer.acknowledge_all(list(inbox.deliveries), transaction)
        getattr(client.connection, outcome)(transaction)
        client.connection.close()
    assert is_empty(world, disk)
    assert Q not in world.broker.queues or not world.broker.queues[Q].pending.count


def test_redelivered_messages_keep_their_counts_in_the_spool(make, disk):
    world = make()
    send(world, disk, 30)
    first = world.client()
    assert first.subscribe("queue://Q", prefetch=30).ids == numbers(30)
    first.connection.close()
    send(world, disk, 1)
    inbox = world.client().subscribe("queue://Q", prefetch=100)
    assert inbox.counts == [1] * 30 + [0]
    inbox.consumer.acknowledge_all(list(inbox.deliveries))
    assert is_empty(world, disk)


def test_spooled_messages_that_expire_become_no_delivery(make, disk):
    world = make()
    send(world, disk, 50, expiration=world.now_ms + 1000)
    world.now_ms += 2000
    for _ in range(5):
        world.broker.remove_expired()
        world.now_ms += 20_000
    assert not world.broker.queues[Q].pending.count
    assert is_empty(world, disk)


def test_a_deleted_queue_frees_its_part_of_the_spool(make, disk):
    world = make()
    send(world, disk)
    world.client().connection.remove_destination(Q)
    assert is_empty(world, disk)


def test_groups_of_spooled_messages_stay_with_their_consumers(make, disk):
    world = make()
    client = world.client()
    for name in numbers(50):
        client.send("queue://Q", name, persistent=False, properties={"JMSXGroupID": f"g{int(name) % 4}"})
        disk.work()
    inboxes = [world.client().subscribe("queue://Q", prefetch=100) for _ in range(2)]
    assert sorted(inboxes[0].ids + inboxes[1].ids) == numbers(50)
    for inbox in inboxes:
        assert inbox.ids == sorted(inbox.ids)
        inbox.consumer.acknowledge_all(list(inbox.deliveries))
    assert is_empty(world, disk)


def test_durable_subscriptions_spool_non_persistent_messages(make, disk):
    world = make()
    for name in ("a", "b"):
        world.client(name).subscribe("topic://T", subscription_name="s")
        world.broker._clients[name].close()
    send(world, disk, destination="topic://T")
    for name in ("a", "b"):
        client = world.client(name)
        inbox = client.subscribe("topic://T", subscription_name="s", prefetch=100)
        assert inbox.ids == numbers(50)
        inbox.consumer.acknowledge_all(list(inbox.deliveries))
        client.connection.close()
    assert is_empty(world, disk)


def test_dead_letters_of_spooled_messages_have_their_bodies(make, disk, monkeypatch):
    monkeypatch.setattr(stored_module, "SPOOL_PIECE_BYTES", 3 * SIZE)
    world = make(max_redeliveries=0)
    send(world, disk)
    inbox = world.client().subscribe("queue://Q", prefetch=100)
    for delivery in list(inbox.deliveries):
        inbox.consumer.reject(delivery, "poison")
    disk.work()
    assert drain(world, "queue://ActiveMQ.DLQ") in (numbers(50), [])
    assert is_empty(world, disk)
