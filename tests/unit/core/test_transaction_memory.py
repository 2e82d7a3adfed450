# mypy: disable-error-code="arg-type"
"""The memory of transactions themselves: counted with their operations, refused at the limit, recovered in any case."""

from collections.abc import Callable

import pytest

from pybroker.broker.core import connection
from pybroker.broker.core.broker import Limits
from pybroker.broker.core.transaction import OPERATION_BYTES, TRANSACTION_BYTES, UNCHECKED_BYTES
from pybroker.broker.core.usage import FAIR_PERCENT
from pybroker.broker.domain.errors import CommitFailed, ResourceLimit, TransactionError
from pybroker.broker.domain.transaction import XATransactionId
from tests.unit.core.conftest import World, make_message
from tests.unit.core.test_paging_broker import Disk

LIMIT = 4 * UNCHECKED_BYTES
SIZE = make_message("a", "queue://Q").size
BRANCH = XATransactionId(1, b"global", b"branch")


@pytest.fixture
def world():
    return World(Disk(), limits=Limits(memory_bytes_max=LIMIT))


def used(world: World) -> int:
    return world.broker.usage.used


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_transaction_counts_with_its_operations_until_its_end(world, end):
    client = world.client()
    client.send("queue://Q", "a")
    inbox = client.subscribe("queue://Q")
    size = used(world)
    transaction = client.connection.begin()
    assert used(world) == size + TRANSACTION_BYTES
    inbox.ack(0, transaction)
    client.send("queue://Q", "b", transaction=transaction)
    assert used(world) == 2 * size + TRANSACTION_BYTES + 2 * OPERATION_BYTES
    if end == "commit":
        client.connection.commit(transaction)
    elif end == "rollback":
        client.connection.rollback(transaction)
    else:
        client.connection.close()
    assert used(world) == size


def test_branch_that_prepares_nothing_releases_its_memory(world):
    client = world.client()
    client.connection.begin(BRANCH)
    assert not client.connection.prepare(BRANCH)
    assert used(world) == 0


def test_recovered_branch_is_counted_and_never_refused(world):
    client = world.client()
    client.connection.begin(BRANCH)
    client.send("queue://Q", "a", "b", transaction=BRANCH)
    client.connection.prepare(BRANCH)
    world.limits = Limits(memory_bytes_max=UNCHECKED_BYTES + 1)
    world.start()
    assert used(world) == TRANSACTION_BYTES + 2 * OPERATION_BYTES
    world.client().connection.commit(BRANCH, prepared=True)
    assert 0 < used(world) < TRANSACTION_BYTES


def test_large_transaction_is_refused_while_memory_is_full(world):
    client, other = world.client(), world.client()
    transaction, small = client.connection.begin(), other.connection.begin()
    names = [str(number) for number in range(UNCHECKED_BYTES // OPERATION_BYTES + 1)]
    client.send("queue://Q", *names, transaction=transaction)
    world.broker.usage.acquire(LIMIT)
    with pytest.raises(ResourceLimit, match="Commit more often"):
        client.send("queue://Q", "more", transaction=transaction)
    other.send("queue://Q", "a", transaction=small)
    other.connection.commit(small)
    world.broker.usage.release(LIMIT)
    client.send("queue://Q", "more", transaction=transaction)


def test_acknowledged_messages_belong_to_what_a_transaction_holds(world):
    """Their memory is freed only by its commit, so without this a wide window would empty a long queue into it."""
    client = world.client()
    inbox = client.subscribe("queue://Q", prefetch=1)
    count = UNCHECKED_BYTES // (SIZE + OPERATION_BYTES) + 2
    client.send("queue://Q", *["a"] * count)
    transaction = client.connection.begin()
    for index in range(count - 1):
        inbox.ack(index, transaction)
    world.broker.usage.acquire(LIMIT)
    with pytest.raises(ResourceLimit, match="Commit more often"):
        inbox.ack(count - 1, transaction)
    client.connection.doom(transaction, "as a client that learns of it")
    with pytest.raises(CommitFailed):
        client.connection.commit(transaction)
    world.broker.usage.release(LIMIT)
    assert used(world) < count * (SIZE + 10)


def test_many_open_transactions_of_a_connection_are_refused_at_twice_the_limit(world):
    client = world.client()
    for _ in range(connection._UNCHECKED_TRANSACTIONS):
        client.connection.begin()
    client.connection.begin()
    world.broker.usage.acquire(2 * LIMIT)
    with pytest.raises(ResourceLimit, match="open transactions"):
        client.connection.begin()
    world.client().connection.begin()


def test_xid_longer_than_the_standard_allows_is_refused(world):
    client = world.client()
    client.connection.begin(XATransactionId(1, b"g" * 64, b"b" * 64))
    for branch in (XATransactionId(1, b"g" * 65, b"b"), XATransactionId(1, b"g", b"b" * 65)):
        with pytest.raises(TransactionError, match="65 bytes, where 64 are allowed"):
            client.connection.begin(branch)


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize("selector", [None, "a = 1"])
def test_wide_window_takes_no_more_than_the_memory_there_is(world, selector):
    turns: list[Callable[[], None]] = []
    world.broker.usage.paging.later = turns.append

    def run() -> None:
        while turns:
            turns.pop(0)()

    producer = world.client()
    for number in range(3 * LIMIT // SIZE):
        producer.send("queue://Q", str(number), properties={"a": 1})
    inbox = world.client().subscribe("queue://Q", prefetch=1_000_000, selector=selector)
    run()
    first = len(inbox.deliveries)
    assert LIMIT * FAIR_PERCENT // 100 <= used(world) < LIMIT + (2 << 20)
    world.broker.remove_expired()
    run()
    assert first < len(inbox.deliveries) <= first + 400
    second = len(inbox.deliveries)
    for index in range(second):
        inbox.ack(index)
    run()
    assert len(inbox.deliveries) > second


def test_every_consumer_gets_a_message_while_memory_is_full(world):
    producer = world.client()
    producer.send("queue://Q", *map(str, range(3 * LIMIT // SIZE)))
    greedy = world.client().subscribe("queue://Q", prefetch=1_000_000)
    modest = world.client().subscribe("queue://Q", prefetch=1_000_000)
    assert greedy.deliveries
    assert modest.deliveries
    before = len(modest.deliveries)
    for index in range(before):
        modest.ack(index)
    assert len(modest.deliveries) > before


def test_wide_window_of_a_durable_subscription_takes_no_more_memory(world):
    client = world.client()
    inbox = client.subscribe("topic://T", subscription_name="s", prefetch=1)
    world.client().send("topic://T", *map(str, range(3 * LIMIT // SIZE)))
    inbox.consumer.set_prefetch(1_000_000)
    assert LIMIT * FAIR_PERCENT // 100 <= used(world) < LIMIT + (2 << 20)
    first = len(inbox.deliveries)
    inbox.consumer.acknowledge_through(inbox.deliveries[-1])
    assert len(inbox.deliveries) > first
