"""The journal's tools beside real brokers: on stores that ActiveMQ opens afterwards, and on stores in use."""

import json
import os
import pty
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pybroker.store.journal.commands import AddScheduledJob, RemoveScheduledJob, RescheduleJob
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.tools.compact import CompactionOptions, compact
from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import BrokerProcess
from tests.integration.stomp_client import StompClient
from tests.postgres_cluster import PostgresDatabase, postgres_cluster, postgres_database
from tests.unit.store.tools.journals import add, write

__all__ = ["postgres_cluster", "postgres_database"]

GOLDEN = Path(__file__).parents[1] / "golden" / "kahadb"
OPEN_STORE = Path(__file__).parent / "java" / "OpenStore.java"
OPEN_SCHEDULER = Path(__file__).parent / "java" / "OpenScheduler.java"
STOCK_BROKER = Path(__file__).parents[1] / "java" / "StockBroker.java"
INDEXES = ("db.data", "db.redo", "db.free", "scheduleDB.data", "scheduleDB.redo", "scheduleDB.free")


def tool(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `pybroker journal …`."""
    command = [sys.executable, "-m", "pybroker.broker.app.cli", "journal", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def lines(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    """Run `pybroker journal … --json` and return what it prints."""
    done = tool(*arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def sample(name: str, target: Path) -> Path:
    """Unpack a captured store without ActiveMQ's index, so that its journal counts."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    for index in INDEXES:
        for path in target.glob(f"{name}/*/{index}"):
            path.unlink()
    return target / name


def grouped(output: str) -> list[str]:
    """Return a Java program's lines by destination and subscription, keeping the order of messages within."""
    return sorted(output.splitlines(), key=lambda line: line.split(" ID:")[0].removesuffix(" -"))


# ---------------------------------------------------------------- stores that ActiveMQ opens afterwards


@pytest.mark.component("activemq")
@pytest.mark.timeout(180)
def test_activemq_opens_what_was_salvaged(java: Any, tmp_path: Path) -> None:
    """It refuses the damaged store, and finds in the rescued one what pybroker finds there."""
    damaged = sample("10-corrupt-batch", tmp_path)
    assert tool("salvage", damaged, tmp_path / "rescued").returncode == 1
    found = grouped(java.run(OPEN_STORE, str(tmp_path / "rescued" / "kahadb"), timeout_seconds=90))
    expected = [
        f"queue {each['destination'].removeprefix('queue://')} {each['message_id']} {each['body']}"
        for each in lines("export", "--live", damaged.parent / "rescued")
    ]
    assert found == grouped("\n".join(expected))
    assert len(found) == 114


class Killed(BaseException):
    """The process is gone."""


class Mortal(JournalFiles):
    """Dies when it is about to change its directory once more than it may."""

    def __init__(self, directory: Path, changes: int) -> None:
        super().__init__(directory)
        self._changes = changes

    def _step(self) -> None:
        if self._changes == 0:
            raise Killed
        self._changes -= 1

    def replace(self, file_id: int, content: Sequence[bytes | memoryview], *fence: Callable[[], None]) -> None:
        self._step()
        super().replace(file_id, content, *fence)

    def remove(self, *paths: Path) -> None:
        for path in paths:
            self._step()
            super().remove(path)


@pytest.mark.component("activemq")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ["03-durable", "04-localtx-kill9", "05-xa-indoubt-kill9", "06-priority"])
def test_compacted_store_is_the_same_to_activemq_at_each_step(java: Any, tmp_path: Path, name: str) -> None:
    """Half done: the later parts are there, then all new files, then some old ones are gone."""
    original = sample(name, tmp_path / "original")
    expected = grouped(java.run(OPEN_STORE, str(shutil.copytree(original, tmp_path / "seen") / "kahadb")))
    assert expected

    for changes in (1, 3, 9, 1000):
        store = shutil.copytree(original, tmp_path / str(changes))
        files = Mortal(store / "kahadb", changes)
        try:
            compact(files, CompactionOptions(check=lambda: None, archive=None, file_bytes_max=32 * 1024))
        except Killed:
            assert changes < 1000
        else:
            assert changes > 3
        assert grouped(java.run(OPEN_STORE, str(store / "kahadb"))) == expected, changes


@pytest.mark.component("activemq")
@pytest.mark.timeout(180)
def test_to_activemq_a_compacted_scheduler_has_the_same_jobs(java: Any, tmp_path: Path) -> None:
    due = 4_000_000_000_000
    jobs = [AddScheduledJob("JMS", f"job-{number}", 1, "", 0, 60_000, 5, add(number).data, due) for number in range(4)]
    moved = RescheduleJob("JMS", "job-2", due, due + 60_000, 1)
    write(tmp_path / "scheduler", jobs, [RemoveScheduledJob("JMS", "job-1", due), moved])
    (done,) = lines("compact", tmp_path)
    assert done["alive"] == {"scheduled": 3}
    found = java.run(OPEN_SCHEDULER, str(tmp_path), "jobs", "halt", timeout_seconds=30).splitlines()
    assert [line.split()[:5] for line in found] == [
        ["job", "job-0", "0", "60000", "5"],
        ["job", "job-2", "0", "60000", "4"],
        ["job", "job-3", "0", "60000", "5"],
    ]


def test_a_reader_who_has_enough_is_no_damage(tmp_path: Path) -> None:
    write(tmp_path, [add(number) for number in range(2000)])
    script = f"set -o pipefail; {sys.executable} -m pybroker.broker.app.cli journal dump {tmp_path} | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (0, 1, "")


@pytest.mark.parametrize("command", ["check", "dump", "why", "export --live"])
def test_a_bar_on_the_terminal_leaves_the_output_alone(tmp_path: Path, command: str) -> None:
    write(tmp_path, *([add(number)] for number in range(50)))
    expected = tool(*command.split(), tmp_path, "--json").stdout
    terminal, errors = pty.openpty()
    try:
        words = [sys.executable, "-m", "pybroker.broker.app.cli", "journal", *command.split(), str(tmp_path), "--json"]
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=errors, env=environment, timeout=60, check=True)
        assert done.stdout.decode() == expected
        assert str(tmp_path)[:20].encode() in os.read(terminal, 65536)
    finally:
        os.close(terminal)
        os.close(errors)


# ---------------------------------------------------------------- stores in use


@pytest.fixture
def activemq(java: Any, tmp_path: Path) -> Iterator[Callable[[], tuple[Path, int]]]:
    """Start a stock ActiveMQ; return its data directory and its STOMP port."""
    brokers: list[ActiveMQProcess] = []

    def start() -> tuple[Path, int]:
        java.command(STOCK_BROKER)
        classes = java._compiled[STOCK_BROKER]
        broker = ActiveMQProcess(f"{classes}:{java.class_path}", tmp_path / "activemq")
        brokers.append(broker)
        broker.wait()
        return tmp_path / "activemq", broker.stomp

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def pybroker(start: Callable[..., BrokerProcess], tmp_path: Path) -> Callable[[], tuple[Path, int]]:
    """Start a pybroker with small files; return its data directory and its STOMP port."""

    def run() -> tuple[Path, int]:
        broker = start(
            "--journal-file-max",
            "1mb",
            "--journal-batch-max",
            "1mb",
            "--cleanup-interval",
            "1s",
            store=tmp_path / "pybroker",
        )
        broker.wait_for("listening on")
        return tmp_path / "pybroker", broker.port

    return run


@pytest.mark.timeout(180)
@pytest.mark.parametrize("maker", ["pybroker", pytest.param("activemq", marks=pytest.mark.component("activemq"))])
def test_a_store_in_use_is_read_and_left_alone(
    request: pytest.FixtureRequest, connect: Callable[..., StompClient], maker: str
) -> None:
    """While messages come and go, each command sees a sound store in some state it was in, and changes nothing."""
    store, port = request.getfixturevalue(maker)()
    client = connect(port)
    for number in range(20):
        client.request("SEND", b"kept %d" % number, destination="/queue/KEPT", persistent="true")
    client.send("SUBSCRIBE", destination="/queue/BUSY", id="0", ack="auto")
    commands = [
        ("check",),
        ("why",),
        ("dump", "--destination", "queue://KEPT"),
        ("export", "--live"),
        ("export",),
    ]
    for command in commands:
        with ThreadPoolExecutor(1) as runner:
            running = runner.submit(lines, *command, store)
            while not running.done():
                client.request("SEND", b"x" * 50_000, destination="/queue/BUSY", persistent="true")
                client.backlog.clear()
            found = running.result()
        if command[0] == "check":
            assert {each.get("level") for each in found} <= {None, "notice"}
            assert {each["finding"] for each in found if "finding" in each} <= {"being written"}
        if command == ("export", "--live"):
            kept = [each["body"] for each in found if each.get("destination") == "queue://KEPT"]
            assert kept == [f"kept {number}" for number in range(20)]
            assert not any(each.get("problem") for each in found)
    names = {path.name for path in (store / "kahadb").iterdir()}
    assert not [name for name in names if name.endswith(".sealed") or name == "data-archive"]

    refused = tool("compact", store)
    assert refused.returncode == 2
    assert {"pybroker": "is alive as MASTER, with lock = file", "activemq": "is held by"}[maker] in refused.stderr
    assert "stop every member" in refused.stderr
    assert client.request("SEND", b"still here", destination="/queue/KEPT", persistent="true").command == "RECEIPT"


@pytest.mark.timeout(120)
def test_running_store_with_database_lock_is_not_compacted(
    start: Callable[..., BrokerProcess],
    connect: Callable[..., StompClient],
    postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> None:
    """The lock cannot be seen from the store, but the member can."""
    store = tmp_path / "store"
    broker = start("--lock", "postgres-row", "--lock-url", postgres_database.url, store=store)
    broker.wait_for("listening on")
    client = connect(broker.port)
    for body in (b"one", b"two"):
        assert client.request("SEND", body, destination="/queue/Q", persistent="true").command == "RECEIPT"
        refused = tool("compact", store)
        assert refused.returncode == 2
        assert "is alive as MASTER, with lock = postgres-row; stop every member" in refused.stderr
    assert broker.terminate() == 0
    assert lines("compact", store)[0]["alive"]["messages"] == 2
    assert [each["body"] for each in lines("export", "--live", store)] == ["one", "two"]
