"""What Celery offers besides calls: canvases, retries, limits, remote control, Flower. One worker is used by all."""

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kombu
import pytest
from celery import chain, chord, group
from celery.exceptions import SoftTimeLimitExceeded, TaskRevokedError, TimeLimitExceeded
from kombu.pidbox import Mailbox

from pybroker.testing import Broker
from tests.integration.cluster import free_port
from tests.kombu.application import HERE, PATIENCE, Application
from tests.kombu.workers import program
from tests.pace import in_time


@pytest.fixture(scope="module")
def celery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """The application with a worker `one`, of one to three processes, and results in files."""
    directory = tmp_path_factory.mktemp("features")
    (directory / "results").mkdir()
    with Broker() as broker:
        url = f"activemq+failover:({broker.uri})"
        application = Application(url, directory, LEDGER_BACKEND=f"ledger:AtomicFiles+file://{directory}/results")
        with application.worker("one", "--autoscale", "3,1", "--task-events"):
            application.wait_logged("one", " ready.", 1)  # or remote control would ask before it listens
            yield application
        application.close()


def until(found: Callable[[], Any]) -> Any:
    """Return the first true value of a function."""
    deadline = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < deadline, "it never was"
        threading.Event().wait(0.05)
    return value


def test_chains_groups_and_chords_return_their_results(celery: Application) -> None:
    add, total = celery.task("add"), celery.task("total")
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=PATIENCE) == 10
    assert group(add.s(each, each) for each in range(10))().get(timeout=PATIENCE) == list(range(0, 20, 2))
    assert chord(group(add.s(each, each) for each in range(10)))(total.s()).get(timeout=PATIENCE) == 90


def test_a_task_that_fails_is_retried(celery: Application, tmp_path: Path) -> None:
    """No result is asked for: Celery may store RETRY late, over the success of the next run in another process."""
    path = tmp_path / "retries"
    celery.task("fail_first").apply_async((str(path), 3), ignore_result=True)
    assert until(lambda: path.exists() and path.read_text()) == "3"


def test_a_revoked_task_is_terminated(celery: Application) -> None:
    control = celery.app.control
    result = celery.task("wait").delay(600.0)
    until(lambda: _ids(control.inspect(timeout=20, limit=1).active()) == [result.id])
    control.revoke(result.id, terminate=True)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=PATIENCE)
    assert celery.task("add").delay(1, 2).get(timeout=PATIENCE) == 3


def test_a_revoked_task_does_not_begin(celery: Application) -> None:
    wait, control = celery.task("wait"), celery.app.control
    signature = wait.signature((600.0,))
    result = signature.freeze()
    assert "ok" in control.revoke(result.id, reply=True, timeout=20, limit=1)[0]["one@test"]
    signature.apply_async()
    with pytest.raises(TaskRevokedError):
        result.get(timeout=PATIENCE)
    assert result.id in _all(control.inspect(timeout=20, limit=1).revoked())


def test_time_limits_end_a_task(celery: Application) -> None:
    wait = celery.task("wait")
    soft, hard = wait.apply_async((600.0,), soft_time_limit=1), wait.apply_async((600.0,), time_limit=1)
    with pytest.raises(SoftTimeLimitExceeded):
        soft.get(timeout=PATIENCE)
    with pytest.raises(TimeLimitExceeded):
        hard.get(timeout=PATIENCE)


def test_a_rate_limit_spreads_tasks(celery: Application) -> None:
    control = celery.app.control
    assert "ok" in control.rate_limit("ledger.record", "10/s", reply=True, timeout=20, limit=1)[0]["one@test"]
    began = time.time()  # of the first call, for a process may begin the first run late, and the last one at once
    try:
        for number in range(12):
            celery.record(number)
        runs = celery.wait(12)
    finally:
        control.rate_limit("ledger.record", "0", reply=True, timeout=20, limit=1)
    assert runs[-1].at - began > 1.0  # eleven tenths of a second, less what the first ones may save up


def test_the_pool_grows_when_tasks_wait(celery: Application, tmp_path: Path) -> None:
    results = [celery.task("meet").delay(str(tmp_path), 3) for _ in range(3)]
    for each in results:
        each.get(timeout=PATIENCE)
    answer = celery.app.control.autoscale(2, 1, reply=True, timeout=20, limit=1)
    assert "ok" in answer[0]["one@test"]
    celery.app.control.autoscale(3, 1, reply=True, timeout=20, limit=1)


def test_an_expired_task_does_not_run(celery: Application) -> None:
    result = celery.task("add").apply_async((1, 2), expires=-1)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=PATIENCE)


def test_a_worker_shows_its_queues_and_tasks(celery: Application) -> None:
    inspect = celery.app.control.inspect(timeout=20, limit=1)
    assert [each["name"] for each in inspect.active_queues()["one@test"]] == ["celery"]
    assert any(each.startswith("ledger.record") for each in inspect.registered()["one@test"])
    control = celery.app.control
    assert "ok" in control.add_consumer("second", reply=True, timeout=20, limit=1)[0]["one@test"]
    assert celery.task("add").apply_async((1, 2), queue="second").get(timeout=PATIENCE) == 3
    assert "ok" in control.cancel_consumer("second", reply=True, timeout=20, limit=1)[0]["one@test"]
    assert [each["name"] for each in inspect.active_queues()["one@test"]] == ["celery"]


def test_flower_shows_workers_and_tasks(celery: Application, tmp_path: Path) -> None:
    port = free_port()
    arguments = ["flower", "--address=127.0.0.1", f"--port={port}", "--inspect_timeout=20000"]
    variables = {"FLOWER_UNAUTHENTICATED_API": "true", **celery.more}

    def fetch(path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                return json.load(answer)
        except OSError:
            return None  # it does not serve yet, or waits for its worker

    with program("ledger", HERE, celery.url, tmp_path / "flower.log", *arguments, **variables):
        until(lambda: "one@test" in (fetch("/api/workers?refresh=true") or {}))

        def shown() -> bool:
            result = celery.task("add").delay(1, 2)
            assert result.get(timeout=PATIENCE) == 3
            return any(each["state"] == "SUCCESS" for each in (fetch("/api/tasks") or {}).values())

        until(shown)


def test_many_threads_wait_for_results(tmp_path: Path) -> None:
    with Broker() as broker:
        application = Application(f"activemq+failover:({broker.uri})", tmp_path)
        with application.worker("one", "--concurrency", "2"), ThreadPoolExecutor(20) as pool:
            add = application.task("add")
            sums = pool.map(lambda each: add.delay(each, 1).get(timeout=PATIENCE), range(200))
            assert list(sums) == list(range(1, 201))
        application.close()


def test_tasks_of_a_frozen_worker_run_elsewhere(tmp_path: Path) -> None:
    """Its broker hears nothing of it for `wireFormat.maxInactivityDuration`."""
    limits = (
        "wireFormat.maxInactivityDuration=3000&wireFormat.maxInactivityDurationInitalDelay=3000"  # codespell:ignore
    )
    with Broker() as broker:
        url = f"activemq+failover:({broker.uri}?{limits})"
        application = Application(url, tmp_path)
        with application.worker("frozen", "--concurrency", "1") as frozen:
            application.record(0, seconds=600.0)
            application.wait_logged("frozen", "received", 1)
            with application.worker("lives", "--concurrency", "1"):
                application.record(1)
                application.wait(1)
                os.killpg(frozen.pid, signal.SIGSTOP)
                frozen_at = time.monotonic()
                runs = application.wait(2)
                assert in_time(time.monotonic() - frozen_at, 9.0)
        application.close()
    assert [(run.number, run.redelivered, run.worker) for run in runs] == [
        (1, False, "lives@test"),
        (0, True, "lives@test"),
    ]


def test_twenty_nodes_answer_a_ping_at_once(url: str, name: str) -> None:
    """Nodes as those of workers, each on a connection of its own; real workers cost the test their start."""
    mailbox, stopping = Mailbox(name, type="fanout", accept=["json"], serializer="json"), threading.Event()
    ready = threading.Barrier(21)

    def answer(number: int) -> None:
        with kombu.Connection(url, connect_timeout=30) as connection:
            channel = connection.channel()
            node = mailbox(connection).Node(f"n{number}", channel=channel)
            node.handlers["ping"] = lambda _, **__: {"ok": "pong"}
            with node.listen(channel=channel):
                ready.wait(PATIENCE)
                while not stopping.is_set():
                    try:
                        connection.drain_events(timeout=0.1)
                    except TimeoutError:
                        continue

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(20)]
    for each in threads:
        each.start()
    try:
        ready.wait(PATIENCE)
        with kombu.Connection(url, connect_timeout=30) as connection:
            start = time.monotonic()
            replies = mailbox(connection).multi_call("ping", timeout=20, limit=20)
            taken = time.monotonic() - start
    finally:
        stopping.set()
        for each in threads:
            each.join()
    assert len(replies) == 20
    assert in_time(taken, 1.0)


def _all(answer: Any) -> list[Any]:
    return (answer or {}).get("one@test", [])


def _ids(answer: Any) -> list[str]:
    return [each["id"] for each in _all(answer)]
