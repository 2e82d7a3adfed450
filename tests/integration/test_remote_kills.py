"""A single broker that a bridge forwards to is killed and started again on its store, while a consumer acknowledges.

Unlike with a pair, nothing takes over: the bridge and the consumer wait for the same broker, which knows only what its
store has. Whatever was accepted at the near end must come, and twice only with the mark of redelivery.

`PYBROKER_KILLS=100` kills so often on each store; a failure names its seed, and `PYBROKER_SEED` repeats it.
"""

import os
import random
from pathlib import Path

import pytest

from pybroker.client.sync import connect
from pybroker.testing import Cluster
from pybroker.testing.process import State
from tests.client.kills import SEED, Ledger, Worker, consuming, finish, producing, wait_until
from tests.postgres_cluster import PostgresCluster, PostgresDatabase, postgres_cluster, postgres_database

__all__ = ["PostgresCluster", "postgres_cluster", "postgres_database"]

KILLS = int(os.environ.get("PYBROKER_KILLS", "4"))
RECEIVED_BETWEEN_KILLS = 600
"""The limit to the messages that come over the bridge before the next kill."""

pytestmark = pytest.mark.timeout(120 + 15 * KILLS)


@pytest.mark.parametrize("kind", ["directory", "database"])
def test_kills_of_the_remote_broker_lose_nothing(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    database: PostgresDatabase | None = request.getfixturevalue("postgres_database") if kind == "database" else None
    config = tmp_path / "near.toml"
    url = None if database is None else database.url
    chooser, ledger = random.Random(SEED), Ledger()
    with Cluster(1, database=url, settings={"broker_name": "far"}) as far:
        (member,) = far.members
        config.write_text(
            "[[network]]\n"
            f'uri = "static:({member.uri})?initialReconnectDelay=50&maxReconnectDelay=200"\n'
            'statically_included = ["queue://KILLS"]\n'
        )
        with Cluster(1, settings={"broker_name": "near"}, config=config) as near:
            connections = [connect(near.uri), connect(far.uri)]
            producers = [Worker("p", producing(connections[0], "p", ledger))]
            consumer = Worker("c", consuming(connections[1], "KILLS", "individual", ledger, prefetch=50))
            for _ in range(KILLS):
                goal = len(ledger.received) + chooser.randrange(1, RECEIVED_BETWEEN_KILLS)
                wait_until(
                    lambda: len(ledger.received) >= goal,  # noqa: B023
                    lambda: f"nothing comes, seed {SEED}",
                    [*producers, consumer],
                )
                assert far.kill9("master").state is State.GONE
                far.restart(member)
                far.wait_master()
            finish(producers, [consumer], connections, ledger)
    print(ledger.row(kind, KILLS))
    assert not ledger.missing(), f"seed {SEED}"
    assert not ledger.unflagged, ledger.stories()
