# mypy: disable-error-code="override"
"""A whole broker whose queues leave memory: take-over, transactions in doubt, flow control, stops."""

from collections.abc import Callable

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.paging import PAGE_BYTES_MAX
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.errors import NotReadYet
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Page
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import World, make_message

Q = parse("queue://Q")
BRANCH = XATransactionId(1, b"global", b"branch")


class Disk(MemoryStore):
    """A store on disk that counts what is read from it, and may be slow to write."""

    def __init__(self) -> None:
        super().__init__(supports_paging=True)
        self.read_ids: list[str] = []
        self.is_slow = False
        self.callbacks: list[Callable[[], None]] = []

    def read(self, destination: Destination, message_ids: "list[str]") -> list[Message]:
        self.read_ids += message_ids
        return super().read(destination, message_ids)

    def when_durable(self, callback: Callable[[], None]) -> None:
        if self.is_slow:
            self.callbacks.append(callback)
        else:
            callback()

    def sync(self) -> None:
        while self.callbacks:
            self.callbacks.pop(0)()


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def world(disk):
    return World(disk)


def numbers(*values: int) -> list[str]:
    return [str(value) for value in values]


def names(world: World, destination: str = "queue://Q") -> list[str]:
    """Consume all of a queue, and return the names of what came."""
    inbox = world.client().subscribe(destination, prefetch=10)
    seen: list[str] = []
    while inbox.deliveries:
        seen += inbox.ids[:1]
        inbox.consumer.acknowledge(inbox.deliveries.pop(0))
    return seen


def test_a_take_over_reads_no_message(world, disk):
    world.client().send("queue://Q", *numbers(*range(100)))
    world.start()
    assert disk.read_ids == []
    assert world.broker.queues[Q].pending.count == 100
    assert world.broker.usage.used == 0
    assert names(world) == numbers(*range(100))
    assert len(disk.read_ids) == 100
    assert len(set(disk.read_ids)) == 100


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_what_a_branch_in_doubt_holds_is_locked_wherever_it_lies(disk, outcome, prioritized):
    world = World(disk, DestinationPolicy(prioritized_messages=prioritized))
    client = world.client()
    client.send("queue://Q", *numbers(*range(100)))
    inbox = client.subscribe("queue://Q", prefetch=100)
    client.connection.begin(BRANCH)
    held = [inbox.deliveries[number] for number in (3, 70, 99)]
    inbox.consumer.acknowledge_all(held, BRANCH)
    client.connection.prepare(BRANCH)
    world.start()
    assert set(disk.read_ids) == {each.message.message_id for each in held}, "no other is read"
    first = world.client().subscribe("queue://Q", prefetch=80)
    assert first.ids == [name for name in numbers(*range(82)) if name not in ("3", "70")]
    assert set(first.counts) == {1}
    getattr(world.client().connection, outcome)(BRANCH, **({"prepared": True} if outcome == "commit" else {}))
    first.consumer.close()
    expected = [name for name in numbers(*range(100)) if outcome == "rollback" or name not in ("3", "70", "99")]
    assert names(world) == expected
    assert world.broker.usage.used == 0
    assert disk.recover().queues.get(Q, []) == []


def test_stop_reads_nothing_and_returns_delivered_ids(world, disk):
    client = world.client()
    client.send("queue://Q", *numbers(*range(100)))
    inbox = client.subscribe("queue://Q", prefetch=5)
    seen = [each.message.message_id for each in inbox.deliveries]
    disk.close(world.broker.delivered())
    world.start()
    disk.read_ids.clear()
    delivered = list(world.broker.delivered())
    assert disk.read_ids == []
    assert set(delivered) == set(seen), "the next one gets the same, though no consumer was here in between"
    again = world.client().subscribe("queue://Q", prefetch=8)
    assert again.counts == [1] * 5 + [0] * 3


def test_a_deleted_queue_gives_back_its_memory_and_its_ids(world, disk):
    client = world.client()
    client.send("queue://Q", *numbers(*range(100)))
    world.start()
    client = world.client()
    inbox = client.subscribe("queue://Q", prefetch=20)
    inbox.consumer.close()
    assert world.broker.usage.used > 0
    client.connection.remove_destination(Q)
    assert world.broker.usage.used == 0
    assert disk.recover().queues.get(Q) is None
    client.send("queue://Q", "new")
    assert names(world) == ["new"]


class TestFlowControl:
    """Persistent messages at a limit free memory instead of making producers wait, unless the disk is behind."""

    LIMIT = 40 * 1025

    def world(self, disk: Disk, **policy: object) -> World:
        return World(disk, DestinationPolicy(memory_limit=self.LIMIT, **policy))  # type: ignore[arg-type]

    def answered(self, world: World, **fields: object) -> list[str]:
        client = world.client()
        client.connection.send(make_message("more", "queue://Q", **fields), answered=True)  # type: ignore[arg-type]
        answers: list[str] = []
        client.connection.when_accepted(lambda: answers.append("answer"))
        return answers

    def test_a_producer_of_persistent_messages_does_not_wait(self, disk):
        world = self.world(disk)
        client = world.client()
        client.send("queue://Q", *numbers(*range(500)))
        assert client.throttle.holds == 0
        assert self.answered(world) == ["answer"]
        assert world.broker.queues[Q].usage.used < self.LIMIT
        assert names(world) == [*numbers(*range(500)), "more"]

    def test_paged_messages_are_accepted_where_others_are_refused(self, disk):
        world = self.world(disk, send_fail_if_no_space=True)
        world.client().send("queue://Q", *numbers(*range(500)))
        assert world.broker.queues[Q].pending.count == 500

    def test_a_producer_of_other_messages_waits(self, disk):
        world = self.world(disk)
        world.client().send("queue://Q", *numbers(*range(40)), persistent=False)
        answers = self.answered(world)
        assert answers == []
        assert names(world)[-1] == "more"
        assert answers == ["answer"]

    def test_what_consumers_hold_counts(self, disk):
        world = self.world(disk)
        inbox = world.client().subscribe("queue://Q", prefetch=100)
        world.client().send("queue://Q", *numbers(*range(50)))
        answers = self.answered(world)
        assert answers == []
        inbox.consumer.acknowledge_all(list(inbox.deliveries))
        assert answers == ["answer"]

    def test_a_disk_that_is_behind_makes_producers_wait(self, disk):
        world = self.world(disk)
        disk.is_slow = True
        world.client().send("queue://Q", *numbers(*range(41)))
        answers = self.answered(world)
        assert answers == []
        disk.sync()
        assert answers == ["answer"], "what was written has left memory"

    def test_the_whole_brokers_limit(self, disk):
        world = World(disk, limits=Limits(memory_bytes_max=self.LIMIT))
        client = world.client()
        for number in range(200):
            client.send(f"queue://Q{number % 7}", str(number))
        assert client.throttle.holds == 0
        assert world.broker.usage.used < self.LIMIT
        found = [names(world, f"queue://Q{queue}") for queue in range(7)]
        assert found == [numbers(*range(queue, 200, 7)) for queue in range(7)]

    def test_first_messages_of_many_queues_fit_the_broker(self, disk):
        world = World(disk, limits=Limits(memory_bytes_max=self.LIMIT))
        producer = world.client()
        for number in range(60):
            producer.send(f"queue://Q{number}", "x" * 1024)
            assert world.broker.usage.used < self.LIMIT
        assert producer.throttle.holds == 0
        assert self.answered(world) == ["answer"]
        assert [names(world, f"queue://Q{number}") for number in range(60)] == 60 * [["x" * 1024]]

    @pytest.mark.parametrize("prioritized", [False, True])
    def test_message_above_the_limit_blocks_no_other_producer(self, disk, prioritized):
        limits = Limits(memory_bytes_max=self.LIMIT)
        world = World(disk, DestinationPolicy(prioritized_messages=prioritized), limits=limits)
        large = "x" * 2 * self.LIMIT
        world.client().send("queue://LARGE", large)
        assert world.broker.usage.used < self.LIMIT
        assert self.answered(world) == ["answer"]
        assert names(world, "queue://LARGE") == [large]

    def test_a_large_message_is_read_back_once_there_is_capacity(self, disk):
        world = World(disk, limits=Limits(memory_bytes_max=self.LIMIT))
        large = [letter * PAGE_BYTES_MAX for letter in "abc"]
        world.client().send("queue://LARGE", *large)
        inbox = world.client().subscribe("queue://LARGE", prefetch=1)
        for count in range(1, 4):
            assert inbox.ids == large[:count]
            assert len(disk.read_ids) <= count
            for number in range(20):
                world.client().send("queue://Q", f"{count}.{number}")
            world.broker.remove_expired()
            inbox.consumer.acknowledge(inbox.deliveries[-1])
        assert len(disk.read_ids) == 3


class NarrowDisk(Disk):
    """A disk that is too slow for concurrent requests: it keeps only the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.requested = self.available = ""

    def read_page(self, destination: Destination, message_ids: "list[str]", bytes_max: int) -> Page:
        if message_ids[0] != self.available:
            self.requested = message_ids[0]
            raise NotReadYet("not yet")
        self.available = ""
        return super().read_page(destination, message_ids[:1], bytes_max)


def test_no_backlog_waits_for_the_end_of_another():
    disk = NarrowDisk()
    world = World(disk)
    destinations = ["queue://A", "queue://B", "queue://C"]
    for destination in destinations:
        world.client().send(destination, *numbers(*range(30)))
    world.start()
    inboxes = [world.client().subscribe(destination) for destination in destinations]
    for _ in range(30):
        disk.available = disk.requested
        world.broker.remove_expired()
    assert all(9 <= len(inbox.deliveries) <= 11 for inbox in inboxes)
