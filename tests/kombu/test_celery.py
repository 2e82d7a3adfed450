"""Real workers of Celery on real brokers: what is killed, and what runs all the same."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pybroker.testing import Broker, Cluster
from tests.kombu.workers import worker
from tests.pace import in_time

HERE = Path(__file__).parent
PATIENCE = 90.0
"""Seconds in which a worker starts on a busy machine, and does what a test wants of it."""


class Run(NamedTuple):
    """One run of a task: its number, when it ended, whether it was redelivered, and the worker."""

    number: int
    at: float
    redelivered: bool
    worker: str


class Application:
    """The application `ledger` on some brokers, as a client and with workers."""

    def __init__(self, url: str, directory: Path, **more: str) -> None:
        self.url, self.directory, self.more = url, directory, more
        self.path = directory / "runs"
        self._imported: Any = None

    @contextlib.contextmanager
    def worker(self, name: str, *arguments: str) -> Iterator[Any]:
        """Run a worker."""
        log = self.directory / f"{name}.log"
        with worker("ledger", HERE, self.url, log, "--hostname", f"{name}@test", *arguments, **self.more) as process:
            yield process

    @property
    def app(self) -> Any:
        """The application in this process."""
        return self._module.app

    def record(self, number: int, *, seconds: float = 0.0, **options: Any) -> Any:
        """Call the task."""
        return self._module.record.apply_async((str(self.path), number, seconds), **options)

    @property
    def _module(self) -> Any:
        if self._imported is None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "path", [str(HERE), *sys.path])
                for name, value in {"SHOP_BROKER": self.url, **self.more}.items():
                    patch.setenv(name, value)
                sys.modules.pop("ledger", None)
                import ledger  # type: ignore[import-not-found]

                self._imported = ledger
        return self._imported

    def runs(self) -> list[Run]:
        """Return the runs that have ended."""
        if not self.path.exists():
            return []
        rows = [line.split() for line in self.path.read_text().splitlines()]
        return [Run(int(row[0]), float(row[1]), row[2] == "1", row[3]) for row in rows]

    def wait(self, count: int, *, seconds: float = PATIENCE) -> list[Run]:
        """Wait until so many different tasks have run; return all runs."""
        deadline = time.monotonic() + seconds
        while True:
            runs = self.runs()
            if len({run.number for run in runs}) >= count:
                return runs
            assert time.monotonic() < deadline, f"{len(runs)} runs\n{self.logs()}"
            threading.Event().wait(0.05)

    def wait_logged(self, name: str, text: str, count: int) -> None:
        """Wait until a worker's log has a text so many times."""
        log, deadline = self.directory / f"{name}.log", time.monotonic() + PATIENCE
        while not log.exists() or log.read_text().count(text) < count:
            assert time.monotonic() < deadline, self.logs()
            threading.Event().wait(0.05)

    def logs(self) -> str:
        """Return the workers' logs."""
        return "\n".join(path.read_text() for path in sorted(self.directory.glob("*.log")))

    def close(self) -> None:
        """Close the connections of this process."""
        if self._imported is not None:
            self.app.producer_pool.force_close_all()
            self.app.pool.force_close_all()
            self.app.close()


@pytest.fixture
def on_pair(tmp_path: Path) -> Iterator[tuple[Application, Cluster]]:
    """The application on a pair."""
    with Cluster(2) as cluster:
        application = Application(f"activemq+{cluster.uri}", tmp_path)
        yield application, cluster
        application.close()


@pytest.fixture
def on_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Application]:
    """The application on one broker."""
    with Broker() as broker:
        application = Application(f"activemq+failover:({broker.uri})", tmp_path, **getattr(request, "param", {}))
        yield application
        application.close()


def test_no_task_is_lost_with_masters(on_pair: tuple[Application, Cluster]) -> None:
    """A run too many is allowed, if it says that the task was redelivered."""
    application, cluster = on_pair
    with application.worker("one", "--concurrency", "2"), application.worker("two", "--concurrency", "2"):
        for number in range(300):
            application.record(number)
            if number in (100, 200):
                cluster.wait_master()
                cluster.restart(cluster.kill9("master").name)
        runs = application.wait(300)
    by_number: dict[int, list[Run]] = {}
    for run in runs:
        by_number.setdefault(run.number, []).append(run)
    assert sorted(by_number) == list(range(300))
    assert [each for each in by_number.values() if sum(not run.redelivered for run in each) > 1] == []
    assert "Traceback" not in application.logs()


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
    """A worker restarts meanwhile."""
    start = time.time()
    for number in range(8):
        on_broker.record(number, countdown=number)
    with on_broker.worker("first", "--concurrency", "1") as first:
        on_broker.wait(1)
        first.terminate()
        assert first.wait(timeout=PATIENCE) == 0
    with on_broker.worker("second", "--concurrency", "2"):
        runs = on_broker.wait(8)
    assert sorted(run.number for run in runs) == list(range(8))
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
    events: list[str] = []
    app = on_broker.app
    with on_broker.worker("one", "--concurrency", "1", "--task-events") as process:
        on_broker.record(1)
        on_broker.wait(1)
        assert app.control.ping(timeout=20, limit=1) == [{"one@test": {"ok": "pong"}}]
        assert app.control.inspect(timeout=20, limit=1).stats()["one@test"]["total"] == {"ledger.record": 1}
        assert app.control.add_consumer("more", reply=True, timeout=20, limit=1)[0]["one@test"]["ok"]
        with app.connection_for_read() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": lambda event: events.append(event["type"])})
            captured = receiver.itercapture(limit=None, timeout=PATIENCE, wakeup=False)
            next(captured)  # the consumer
            on_broker.record(2, queue="more")
            while "task-succeeded" not in events:
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
