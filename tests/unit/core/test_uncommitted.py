# mypy: disable-error-code="arg-type, override"
"""The memory of open transactions: counted, bounded, left to the store, and never the reason for a standstill."""

import random
from typing import Any

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.errors import ResourceLimit, StoreUnavailable
from pybroker.broker.domain.ports import Page
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import World, make_message
from tests.unit.core.test_paging_broker import Disk, names, numbers

SIZE = make_message("00", "queue://Q").size
LIMIT = 40 * SIZE
BRANCH = XATransactionId(1, b"global", b"branch")


class UnreliableDisk(Disk):
    """A disk that is away now and then."""

    is_away = False

    def read_page(self, destination: Destination, message_ids: "list[str]", bytes_max: int) -> Page:
        if self.is_away:
            raise StoreUnavailable("not now")
        return super().read_page(destination, message_ids, bytes_max)


@pytest.fixture
def disk():
    return UnreliableDisk()


@pytest.fixture
def world(disk):
    return World(disk, limits=Limits(memory_bytes_max=LIMIT))


def used(world: World) -> int:
    return world.broker.usage.used


def send_answered(client, transaction, **fields) -> list[str]:
    client.connection.send(make_message("more", "queue://Q", **fields), transaction, answered=True)
    answers: list[str] = []
    client.connection.when_accepted(lambda: answers.append("answer"))
    return answers


def test_large_transaction_leaves_memory_before_commit(world):
    client = world.client()
    transaction = client.connection.begin()
    for name in numbers(*range(400)):
        client.send("queue://Q", name, transaction=transaction)
        assert used(world) < LIMIT
    assert client.throttle.holds == 0
    assert send_answered(client, transaction) == ["answer"]
    client.connection.commit(transaction)
    assert used(world) < LIMIT
    assert names(world) == [*numbers(*range(400)), "more"]
    assert used(world) == 0


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("end", ["rollback", "close"])
def test_transaction_that_is_undone_frees_its_memory(world, persistent, end):
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://Q", *numbers(*range(30)), transaction=transaction, persistent=persistent)
    client.send("topic://T", "t", transaction=transaction, persistent=persistent)
    assert used(world) > 0
    if end == "rollback":
        client.connection.rollback(transaction)
    else:
        client.connection.close()
    assert used(world) == 0
    assert not any(type(each).__name__ == "Uncommitted" for each in world.broker.usage.paging.backlogs)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("store", [MemoryStore(), UnreliableDisk()])
def test_transaction_in_memory_is_refused_at_the_limit(answered, store):
    """Sends that cannot be left to the store are refused, and none waits for space that only the commit frees."""
    world = World(store, limits=Limits(memory_bytes_max=LIMIT))
    client = world.client()
    transaction = client.connection.begin()
    for number in range(40):
        message = make_message(f"{number:02}", "queue://Q", persistent=False)
        client.connection.send(message, transaction, answered=answered)
        assert not client.connection.is_short_of_space
        assert client.throttle.holds == 0
    with pytest.raises(ResourceLimit, match="Commit more often"):
        client.connection.send(message, transaction, answered=answered)
    client.connection.commit(transaction)
    assert names(world) == [f"{number:02}" for number in range(40)]
    assert used(world) == 0


def test_transaction_with_memory_is_read_on_beside_others(world):
    """A connection is not held back for another session's message while its own commit would free space."""
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://Q", *numbers(*range(10)), transaction=transaction, persistent=False)
    world.client().send("queue://R", *numbers(*range(40)), persistent=False)
    client.send("queue://Q", "beside", persistent=False)
    assert client.throttle.holds == 0
    client.connection.commit(transaction)
    assert names(world) == ["beside", *numbers(*range(10))]


def test_producers_wait_until_a_transaction_ends(world):
    client, other = world.client(), world.client()
    transaction = client.connection.begin()
    client.send("queue://Q", *numbers(*range(40)), transaction=transaction, persistent=False)
    answers = send_answered(other, None, persistent=False)
    assert answers == []
    client.connection.rollback(transaction)
    assert answers == ["answer"]


def test_new_transaction_waits_while_others_hold_memory(world):
    world.client().send("queue://Q", *numbers(*range(40)), persistent=False)
    client = world.client()
    transaction = client.connection.begin()
    answers = send_answered(client, transaction, persistent=False)
    assert answers == []
    names(world)
    assert answers == ["answer"]


def test_message_behind_a_commit_waits_for_what_is_read_back(world, disk):
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://Q", *numbers(*range(300)), transaction=transaction)
    disk.is_away = True
    client.connection.commit(transaction)
    client.send("queue://Q", "behind")
    second = client.connection.begin()
    client.send("queue://Q", "second", transaction=second)
    client.connection.commit(second)
    assert world.broker.queues[parse("queue://Q")].pending.count == 0
    disk.is_away = False
    world.broker.remove_expired()
    assert names(world) == [*numbers(*range(300)), "behind", "second"]
    assert used(world) == 0


def test_commit_is_read_back_one_page_per_turn(disk):
    world = World(disk, limits=Limits(memory_bytes_max=LIMIT))
    turns: list[Any] = []
    world.broker.usage.paging.later = turns.append
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://Q", *numbers(*range(1000)), transaction=transaction)
    disk.is_slow = True
    client.connection.commit(transaction)
    while client.throttle.input_holds:
        turns.pop(0)()
    disk.sync()
    counts = []
    while turns:
        turns.pop(0)()
        counts.append(len(disk.read_ids))
    assert counts == [200, 400, 600, 800, counts[-1]]
    inbox = world.client().subscribe("queue://Q", prefetch=2000)
    for delivery in inbox.deliveries:  # which grows: while memory is full, acknowledgements bring the next
        inbox.consumer.acknowledge(delivery)
        while turns:
            turns.pop(0)()
    assert inbox.ids == numbers(*range(1000))


def test_deleted_queue_forgets_what_was_not_read_back(world, disk):
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://Q", *numbers(*range(300)), transaction=transaction)
    disk.is_away = True
    client.connection.commit(transaction)
    client.connection.remove_destination(parse("queue://Q"))
    disk.is_away = False
    client.send("queue://Q", "new")
    world.broker.remove_expired()
    assert names(world) == ["new"]
    assert used(world) == 0


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_branch_in_doubt_is_read_back_after_its_commit(world, disk, restarts):
    client = world.client()
    client.connection.begin(BRANCH)
    client.send("queue://Q", *numbers(*range(300)), transaction=BRANCH)
    client.connection.prepare(BRANCH)
    for _ in range(restarts):
        world.start()
        assert disk.read_ids == []
        assert used(world) == 0
    world.client().connection.commit(BRANCH, prepared=True)
    assert names(world) == numbers(*range(300))
    assert used(world) == 0


def test_many_transactions_leave_memory_together(world):
    clients = [world.client() for _ in range(20)]
    transactions = [client.connection.begin() for client in clients]
    for number in range(20):
        for client, transaction in zip(clients, transactions, strict=True):
            client.send("queue://Q", str(number), transaction=transaction)
            assert used(world) < LIMIT
    for client, transaction in zip(clients, transactions, strict=True):
        client.connection.commit(transaction)
    assert names(world) == numbers(*range(20)) * 20


@pytest.mark.parametrize("seed", range(30))
def test_order_per_producer_holds_whatever_is_left_to_the_store(seed):
    """Transactions of several producers, on a disk that is slow and away at times: each producer's order stays."""
    chooser = random.Random(seed)
    disk = UnreliableDisk()
    world = World(disk, DestinationPolicy(), Limits(memory_bytes_max=chooser.choice([4, 20, 100]) * SIZE))
    clients = [world.client() for _ in range(3)]
    open_: dict[int, tuple[object, list[str]]] = {}
    expected: list[list[str]] = [[] for _ in clients]
    for number in range(400):
        who = chooser.randrange(3)
        connection, name = clients[who].connection, f"{who}-{number}"
        match chooser.randrange(10):
            case 0 if who not in open_:
                open_[who] = (connection.begin(), [])
            case 1 if who in open_:
                transaction, sent = open_.pop(who)
                connection.commit(transaction)
                expected[who] += sent
            case 2 if who in open_:
                connection.rollback(open_.pop(who)[0])
            case 3:
                disk.is_slow = not disk.is_slow
                if not disk.is_slow:
                    disk.sync()
            case 4:
                disk.is_away = not disk.is_away
            case _:
                transaction, sent = open_.get(who, (None, expected[who]))
                connection.send(make_message(name, "queue://Q"), transaction)
                sent.append(name)
    for who, (transaction, sent) in open_.items():
        clients[who].connection.commit(transaction)
        expected[who] += sent
    disk.is_away = disk.is_slow = False
    disk.sync()
    world.broker.remove_expired()
    found = names(world)
    assert [[name for name in found if name.startswith(f"{who}-")] for who in range(3)] == expected
    assert used(world) == 0
