"""A large copy of a message is made in portions, between which other clients are served."""

from itertools import count

import pytest

from pybroker.broker.core.paging import PIECE_SECONDS
from pybroker.broker.domain.openwire.portions import PORTION_BYTES
from tests.unit.core.test_piecewise import Disk, LoopWorld, begin, waiting


@pytest.mark.parametrize("is_transacted", [False, True])
def test_large_copy_is_made_in_portions(is_transacted: bool) -> None:
    world = LoopWorld(Disk())
    client = world.client()
    transaction = begin(client) if is_transacted else None
    world.broker.usage.paging.monotonic = count(step=PIECE_SECONDS).__next__  # each reading ends a piece
    client.send("queue://A,B", "m" * 10 * PORTION_BYTES, transaction=transaction)
    assert client.throttle.input_holds == 1
    assert world.settle() > 20, "there are ten portions for each copy"
    assert client.throttle.input_holds == 0
    if transaction is not None:
        client.connection.commit(transaction)
    assert [len(waiting(world, name)[0]) for name in ("A", "B")] == [10 * PORTION_BYTES] * 2
