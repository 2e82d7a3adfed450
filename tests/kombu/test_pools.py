"""Celery's pools with threads, and without: acknowledgements in other threads than the one that consumes."""

import pytest

from tests.kombu.test_celery import PATIENCE, on_broker

__all__ = ["on_broker"]


@pytest.mark.parametrize(("pool", "concurrency"), [("threads", "16"), ("solo", "1")])
def test_a_pool_runs_each_task_once(on_broker, pool, concurrency):
    """Tasks for now and for later, whose acknowledgements Celery's timer sends."""
    with on_broker.worker("one", "--pool", pool, "--concurrency", concurrency) as process:
        results = [on_broker.record(number, countdown=number % 2) for number in range(100)]
        for each in results:
            each.get(timeout=PATIENCE)
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 0
    assert sorted(run.number for run in on_broker.runs()) == list(range(100))
    with on_broker.worker("two", "--pool", "solo"):  # nothing is left for it
        on_broker.record(100)
        runs = on_broker.wait(101)
    assert len(runs) == 101
    assert "Traceback" not in on_broker.logs()
