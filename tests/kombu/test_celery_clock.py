"""A task that is due in an hour, and a clock that is moved there: it runs once, and not before its time.

Source: specification of Kombu's transport, acceptance check 7.
"""

import time
from pathlib import Path

import pytest

from pybroker.testing import Cluster, launcher
from tests.kombu.application import Application
from tests.moved_clock import MovedClock

AHEAD_SECONDS = 3600.0

pytestmark = [pytest.mark.component("gcc"), pytest.mark.timeout(240)]


@pytest.mark.parametrize("scheduled", ["0", "1"], ids=["waits-in-the-worker", "waits-in-the-broker"])
def test_task_that_is_due_in_an_hour_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduled: str) -> None:
    clock = MovedClock(tmp_path / "clock")
    with monkeypatch.context() as patch:
        for name, value in clock.environment.items():
            patch.setenv(name, value)
        # Brokers of a fork server that other tests have begun would have the true clock.
        patch.setattr(launcher, "_shared", None)
        patch.setattr(launcher, "_holders", 0)
        with Cluster(2) as cluster:
            application = Application(f"activemq+{cluster.uri}", tmp_path, LEDGER_SCHEDULED=scheduled)
            with application.worker("one", "--concurrency", "1"):
                due = time.time() + AHEAD_SECONDS
                application.record(1, countdown=AHEAD_SECONDS)
                application.record(2)  # behind it: it has come by now, or waits in the broker
                application.wait(1)
                clock.move(due - time.time() - 15.0)
                cluster.kill9("master")
                cluster.wait_master()
            # A worker counts the seconds from when it gets a task, so that another one has to look at the moved clock.
            with application.worker("two", "--concurrency", "1"):
                ran = {run.number: run.at for run in application.wait(2)}
                clock.move(AHEAD_SECONDS + 1800.0)
                application.record(3)
                runs = application.wait(3)
            application.close()
    assert ran[1] >= due, "the time of a run is by the moved clock"
    assert [run.number for run in runs].count(1) == 1, runs
