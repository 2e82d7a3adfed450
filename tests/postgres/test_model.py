# mypy: disable-error-code="attr-defined"
"""PostgreSQL against the memory store as its model: any sequence of operations, clean stops, crashes and cleanups."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.conftest import MemoryLives, bodies, snapshot, text_message
from tests.conformance.test_store_model import Soak, StoreMachine
from tests.postgres.conftest import JdbcLives

TABLES = (
    "activemq_msgs, activemq_acks, activemq_lock, pybroker_epoch, pybroker_acked, pybroker_producers,"
    " pybroker_prepared, pybroker_jobs, pybroker_job_producers, pybroker_no_local, pybroker_owners, pybroker_broker"
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("prioritized", [False, True])
def test_the_database_agrees_with_its_model(postgres_database: Any, prioritized: bool) -> None:
    def make(directory: Path) -> JdbcLives:
        postgres_database.sql(f"DROP TABLE IF EXISTS {TABLES}")
        return JdbcLives(postgres_database, prioritized=prioritized)

    class Machine(StoreMachine):
        make_journal = staticmethod(make)
        make_memory = staticmethod(lambda: MemoryLives(prioritized=prioritized))
        make_message = staticmethod(text_message)

    Machine.snapshot = staticmethod(snapshot)
    Machine.bodies = staticmethod(bodies)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )


def in_order(recovery: Any) -> dict[str, Any]:
    """Return a recovery's contents; what a transaction acknowledges, in no order: the tables do not store it."""
    found = snapshot(recovery)
    found["prepared"] = [(each, sent, sorted(acknowledged, key=str)) for each, sent, acknowledged in found["prepared"]]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_long_life(postgres_database: Any, seed: int) -> None:
    """Realistic traffic, with stragglers, gaps, and transactions of all kinds; crashes and clean stops."""
    prioritized = seed % 2 == 1
    memory, database = MemoryLives(prioritized=prioritized), JdbcLives(postgres_database, prioritized=prioritized)
    both = [memory, database]
    for lives in both:
        lives.open()
    soak = Soak([memory.store, database.store], text_message, seed)
    soak.subscribe()
    for step in range(1, 1501):
        soak.step()
        if step % 7 == 0:
            database.flush()
        if step % 100 == 0:
            database.flush()
            for lives in both:
                lives.crash() if step % 200 == 0 else lives.close()
            database.loop.turn()
            soak.forget_transaction()
            expected, found = memory.open(), database.open()
            assert in_order(found) == in_order(expected)
            assert bodies(database.store, found) == bodies(memory.store, expected)
            assert not database.store.damages
            assert not database.failures
            soak.stores[1] = database.store
    database.crash()
