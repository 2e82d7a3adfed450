"""The promise while connections move in order, as `priorityBackup` and brokers that rebalance have them do.

A move leaves a broker that is well: nothing is lost, nothing comes twice, and nothing is in doubt.
`PYBROKER_KILL_SECONDS` is the duration, `PYBROKER_SEED` repeats the moments.
"""

import random
import threading
import time
from collections.abc import Sequence

import pytest

from pybroker.client.sync import Connection, connect
from pybroker.testing import Cluster
from tests.client.kills import (
    KILL_SECONDS,
    SEED,
    Ledger,
    Worker,
    consuming,
    finish,
    moving,
    producing,
    producing_in_transactions,
    report,
    wait_until,
)

pytestmark = pytest.mark.timeout(120 + 2 * KILL_SECONDS)


def move_at_random(connections: Sequence[Connection], resumed: list[str], workers: Sequence[Worker]) -> int:
    """Have one connection after the other leave its broker and come back; return how often."""
    chooser, moves = random.Random(SEED), 0
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        threading.Event().wait(chooser.uniform(0.0, 0.05))
        link = chooser.choice(connections)._wrapped._link
        assert link._loop is not None
        link._loop.call_soon_threadsafe(link._leave_broker, "the test wants it")
        moves += 1
        wait_until(lambda: len(resumed) >= moves, lambda: "a connection does not come back", workers)  # noqa: B023
    return moves


@pytest.mark.parametrize("protocol", ["OpenWire", "STOMP"])
def test_orderly_moves_lose_and_repeat_nothing(protocol: str) -> None:
    ledger, resumed = Ledger(), list[str]()
    with Cluster(1) as cluster:
        uri = cluster.uri if protocol == "OpenWire" else cluster.stomp_uri
        connections = [connect(uri, on_resumed=resumed.append) for _ in range(3)]
        producers = [
            Worker("p1", producing(connections[0], "p1", ledger)),
            Worker("tx", producing_in_transactions(connections[0], "tx", ledger)),
        ]
        consumers = [
            *(Worker(f"mover {number}", moving(connections[1])) for number in range(4)),
            # One alone: what it holds when it moves would come again to another one, as a marked duplicate.
            Worker("auto", consuming(connections[2], "MOVED", "auto", ledger)),
        ]
        moves = move_at_random(connections, resumed, [*producers, *consumers])
        finish(producers, consumers, connections, ledger)
    report(ledger.row(f"pybroker, {protocol}, moves", moves))
    assert not ledger.doubtful
    assert not ledger.refused & ledger.received.keys()
    assert ledger.duplicates == 0, ledger.stories()
