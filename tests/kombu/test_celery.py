"""Real workers of Celery on real brokers: what is killed, and what runs all the same."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.testing import Broker
from tests.kombu.application import PATIENCE, Application
from tests.pace import in_time


@pytest.fixture
def on_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Application]:
    """The application on one broker."""
    with Broker() as broker:
        application = Application(f"activemq+failover:({broker.uri})", tmp_path, **getattr(request, "param", {}))
        yield application
        application.close()


def test_tasks_of_a_killed_worker_run_elsewhere_at_once(on_broker: Application) -> None:
    """No time-out is set for that."""
    with on_broker.worker("dies", "--concurrency", "2") as dying:
        for number in range(2):
            on_broker.record(number, seconds=600.0)
        on_broker.wait_logged("dies", "received", 2)
        with on_broker.worker("lives", "--concurrency", "2"):
            on_broker.record(2)
            on_broker.wait(1)
            os.killpg(dying.pid, 9)
            killed_at = time.monotonic()
            runs = on_broker.wait(3)
            assert in_time(time.monotonic() - killed_at, 5.0)
    assert {(run.number, run.redelivered, run.worker) for run in runs} == {
        (0, True, "lives@test"),
        (1, True, "lives@test"),
        (2, False, "lives@test"),
    }


@pytest.mark.parametrize("on_broker", [{"LEDGER_MULTIPLIER": "3"}], indirect=True, ids=["prefetch"])
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_a_worker_that_ends_will_not_begin_runs_elsewhere(
    on_broker: Application, tmp_path: Path, pool: str
) -> None:
    """It waits for its task in execution. What waits in it for its time or a free process does not wait with it."""
    place = tmp_path / "begun"
    place.mkdir()
    with on_broker.worker("ends", "--concurrency", "1", "--pool", pool) as ending:
        on_broker.task("meet").delay(str(place), 2)
        deadline = time.monotonic() + PATIENCE
        while not list(place.iterdir()):
            assert time.monotonic() < deadline, on_broker.logs()
            threading.Event().wait(0.05)
        on_broker.record(1)
        on_broker.record(2, countdown=5.0)
        on_broker.wait_logged("ends", "received", 3)
        ending.terminate()
        with on_broker.worker("lives", "--concurrency", "1"):
            runs = on_broker.wait(2)
        assert ending.poll() is None
    assert {(run.number, run.redelivered, run.worker) for run in runs} == {
        (1, False, "lives@test"),
        (2, False, "lives@test"),
    }


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads"])
def test_a_worker_ends_while_no_broker_is_there(tmp_path: Path, pool: str) -> None:
    """It sends an event at its end, if not a heartbeat before, and has a task for later."""
    with Broker() as broker:
        application = Application(f"activemq+failover:({broker.uri})", tmp_path)
        with application.worker("ends", "--concurrency", "1", "--pool", pool) as ending:
            application.record(1, countdown=600.0)
            application.wait_logged("ends", "received", 1)
            application.close()
            broker.close()
            ending.terminate()
            began = time.monotonic()
            assert ending.wait(PATIENCE) == 0, application.logs()
            assert in_time(time.monotonic() - began, 5.0)


def test_a_slow_worker_holds_no_more_than_it_runs(on_broker: Application) -> None:
    with on_broker.worker("slow", "--concurrency", "1"):
        on_broker.record(0, seconds=600.0)
        on_broker.wait_logged("slow", "received", 1)
        with on_broker.worker("fast", "--concurrency", "1"):
            for number in range(1, 21):
                on_broker.record(number)
            runs = on_broker.wait(20)
    assert {run.worker for run in runs} == {"fast@test"}


@pytest.mark.parametrize("on_broker", [{}, {"LEDGER_SCHEDULED": "1"}], indirect=True, ids=["worker", "broker"])
def test_a_task_for_later_runs_once_and_not_before(on_broker: Application) -> None:
    """A worker restarts meanwhile.

    Celery drops the result of a task in execution if the worker ends before it has read that the task began
    (`Consumer.on_close` flushes the pool). That task runs again, and is marked, with every broker.
    """
    start = time.time()
    for number in range(8):
        on_broker.record(number, countdown=number)
    with on_broker.worker("first", "--concurrency", "1") as first:
        on_broker.wait(1)
        first.terminate()
        assert first.wait(timeout=PATIENCE) == 0
    with on_broker.worker("second", "--concurrency", "2"):
        runs = on_broker.wait(8)
    assert {run.number for run in runs} == set(range(8))
    first_runs = [run.number for run in runs if not run.redelivered]
    assert len(first_runs) == len(set(first_runs)) >= 7, runs
    assert all(run.at >= start + run.number for run in runs)


def test_the_highest_priority_runs_first(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text('[[policies]]\nqueue = "celery"\nprioritized_messages = true\n')
    with Broker(config=tmp_path / "broker.toml") as broker:
        application = Application(f"activemq+failover:({broker.uri})", tmp_path)
        for number in (3, 9, 0, 5, 7, 1, 8, 2, 6, 4):
            application.record(number, priority=number)
        with application.worker("only", "--concurrency", "1", "--pool", "solo"):
            runs = application.wait(10)
        application.close()
    assert [run.number for run in runs] == list(range(9, -1, -1))


def test_workers_are_controlled_and_watched(on_broker: Application) -> None:
    events: list[tuple[str, str | None]] = []
    app = on_broker.app
    with on_broker.worker("one", "--concurrency", "1", "--task-events") as process:
        on_broker.record(1)
        on_broker.wait(1)
        assert app.control.ping(timeout=20, limit=1) == [{"one@test": {"ok": "pong"}}]
        assert app.control.inspect(timeout=20, limit=1).stats()["one@test"]["total"] == {"ledger.record": 1}
        assert app.control.add_consumer("more", reply=True, timeout=20, limit=1)[0]["one@test"]["ok"]
        with app.connection_for_read() as connection:
            handlers = {"*": lambda event: events.append((event["type"], event.get("uuid")))}
            receiver = app.events.Receiver(connection, handlers=handlers)
            captured = receiver.itercapture(limit=None, timeout=PATIENCE, wakeup=False)
            next(captured)  # the consumer
            called = on_broker.record(2, queue="more")
            while ("task-succeeded", called.id) not in events:  # that of the first one may come now, too
                next(captured)
            captured.close()
        app.control.shutdown()
        assert process.wait(timeout=PATIENCE) == 0
    assert [run.number for run in on_broker.runs()] == [1, 2]


def test_results_come_back(on_broker: Application) -> None:
    with on_broker.worker("one", "--concurrency", "2"):
        results = [on_broker.record(number) for number in range(50)]
        assert [each.get(timeout=PATIENCE) for each in results] == [None] * 50
    assert len(on_broker.runs()) == 50
