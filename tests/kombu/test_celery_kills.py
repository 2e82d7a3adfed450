"""No task is lost while masters and workers are killed, and one that runs again says so.

`PYBROKER_KILLS=50` kills so many masters, and a worker for every five of them; 200 tasks are called for each kill. A
failure names its seed, and `PYBROKER_SEED` repeats it. `python -m tests.kombu.kills` does the same to Redis and
RabbitMQ.
"""

import os
from pathlib import Path

import pytest

from tests.client.kills import SEED
from tests.kombu.kills import CONCURRENCY, WORKERS, Plan, pybroker_site, run

KILLS = int(os.environ.get("PYBROKER_KILLS", "3"))

pytestmark = pytest.mark.timeout(180 + 20 * KILLS)


def test_kills_of_masters_and_workers_lose_no_task(tmp_path: Path) -> None:
    plan = Plan(tasks=200 * KILLS, rate=60.0, kills=KILLS, worker_kills=max(1, KILLS // 5), seed=SEED)
    with pybroker_site(tmp_path) as site:
        outcome = run(site, tmp_path, plan)
    print(outcome.row("pybroker"), f"seed {SEED}")
    assert outcome.lost == [], f"seed {SEED}"
    assert outcome.unflagged == [], f"seed {SEED}"
    assert outcome.errors == 0, f"seed {SEED}"


def test_kills_of_masters_lose_no_task_that_is_acknowledged_early(tmp_path: Path) -> None:
    """Only tasks whose acknowledgement the master had not yet may run again: those that workers just took."""
    plan = Plan(tasks=100 * KILLS, rate=60.0, kills=KILLS, worker_kills=0, is_late=False, seed=SEED)
    with pybroker_site(tmp_path) as site:
        outcome = run(site, tmp_path, plan)
    print(outcome.row("pybroker"), f"seed {SEED}")
    assert outcome.lost == [], f"seed {SEED}"
    assert outcome.errors == 0, f"seed {SEED}"
    assert outcome.extra_runs <= len(WORKERS) * CONCURRENCY * KILLS, f"seed {SEED}"
