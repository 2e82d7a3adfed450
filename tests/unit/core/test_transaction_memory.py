# mypy: disable-error-code="arg-type"
"""The memory of transactions themselves: counted with their operations, refused at the limit, recovered in any case."""

import pytest

from pybroker.broker.core import connection
from pybroker.broker.core.broker import Limits
from pybroker.broker.core.transaction import OPERATION_BYTES, TRANSACTION_BYTES, UNCHECKED_BYTES
from pybroker.broker.domain.errors import ResourceLimit, TransactionError
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
    return world.broker.usage.used - world.broker.objects.counted


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


def test_large_transaction_is_refused_while_memory_is_full_and_transactions_hold_half_of_it(world):
    client, other = world.client(), world.client()
    transaction, small = client.connection.begin(), other.connection.begin()
    names = [str(number) for number in range(LIMIT // 2 // OPERATION_BYTES + 1)]
    client.send("queue://Q", *names, transaction=transaction)
    world.broker.usage.acquire(LIMIT)
    with pytest.raises(ResourceLimit, match="Commit more often"):
        client.send("queue://Q", "more", transaction=transaction)
    other.send("queue://Q", "a", transaction=small)
    other.connection.commit(small)
    world.broker.usage.release(LIMIT)
    client.send("queue://Q", "more", transaction=transaction)


def test_transaction_grows_while_messages_that_are_not_yet_on_disk_fill_memory(world):
    """A producer that commits 5,000 messages at a time needs neither half of the memory nor a pause for the disk."""
    client = world.client()
    transaction = client.connection.begin()
    world.broker.usage.acquire(LIMIT)
    names = [str(number) for number in range(LIMIT // 2 // OPERATION_BYTES - 10)]
    client.send("queue://Q", *names, transaction=transaction)
    client.connection.commit(transaction)
    world.broker.usage.release(LIMIT)
    assert world.broker.usage.in_transactions == 0


def test_acknowledgements_are_accepted_while_memory_is_full(world):
    client = world.client()
    count = 2 * UNCHECKED_BYTES // SIZE
    client.send("queue://Q", *["a"] * count)
    inbox = client.subscribe("queue://Q", prefetch=count)
    world.broker.usage.acquire(2 * LIMIT)
    transaction = client.connection.begin()
    for index in range(count):
        inbox.ack(index, transaction)
    client.connection.commit(transaction)
    world.broker.usage.release(2 * LIMIT)
    assert used(world) == 0


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
