"""A real ActiveMQ and pybroker hand scheduled messages to one another: none lost, none doubled, each at its time."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.core.scheduler import Scheduler
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.jobs import Job
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, routing, to_message, view
from pybroker.broker.domain.openwire.values import Long, Value
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.scheduler.store import JournalJobStore
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient
from tests.runtimes import runtime

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180)]

PROGRAM = Path(__file__).parent / "java" / "OpenScheduler.java"
PRODUCER = ProducerId("ID:testhost-40001-1700000000000-3:1", 1, 1)
LATER = queue("LATER")
HOUR = 3_600_000
SMALL_FILES = JournalSettings(file_bytes_max=8 * 1024, compact_after_cleanups=1)


def clock() -> int:
    return time.time_ns() // 1_000_000


def message(number: int, text: str, **properties: Value) -> Message:
    fields = OpenWireMessage(
        type=MessageType.TEXT,
        producer_id=PRODUCER,
        destination=LATER,
        message_id=OpenWireMessageId(None, PRODUCER, number),
        persistent=True,
        timestamp=clock(),
    )
    fields.content = encode_text(text)
    fields.set_properties({f"AMQ_SCHEDULED_{name.upper()}": value for name, value in properties.items()})
    return to_message(fields)


class Node:
    """pybroker's scheduler on a data directory, without a loop; its clock goes where it is put."""

    def __init__(self, directory: Path) -> None:
        self.posted: list[Callable[[], None]] = []
        self.sent: list[Message] = []
        self.now = clock()
        self.jobs = JournalJobStore(
            directory / "scheduler",
            settings=SMALL_FILES,
            runtime=runtime(self.call_soon, clock=lambda: self.now),
        )
        self.scheduler = Scheduler(
            jobs=self.jobs,
            send=self.sent.append,
            when_durable=lambda callback: callback(),
            clock=lambda: self.now,
            wake_at=lambda wanted: None,
            connection_id=f"ID:node-{self.now}",
        )
        self.recovered: Sequence[Job] = self.jobs.recover()
        self.scheduler.load(self.recovered)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.posted.append(callback)

    def turn(self) -> None:
        """Do what waits, until everything is on disk and cleaned up."""
        deadline = time.monotonic() + 30
        while self.posted or self.jobs.unwritten_bytes or self.jobs.is_cleaning:
            assert time.monotonic() < deadline
            for callback in [self.posted.pop(0) for _ in range(len(self.posted))]:
                callback()

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        self.scheduler.fire(self.now)
        self.turn()

    def facts(self) -> list[str]:
        """Return the jobs in the Java program's format."""
        return sorted(
            f"job {job.job_id} {job.delay} {job.period} {job.repeat} {job.cron.replace(' ', '_') or '-'} "
            + datetime.fromtimestamp(job.next_time // 1000).strftime("%Y-%m-%d %H:%M:%S")
            for job in self.jobs._state.jobs()
        )


@pytest.fixture
def activemq(java: Any, tmp_path: Path) -> Callable[..., list[str]]:
    """Opens the directory with a real broker, performs steps, and returns what it prints."""

    def run(*steps: str) -> list[str]:
        return java.run(PROGRAM, str(tmp_path), *steps, timeout_seconds=90).splitlines()

    return run


def fill(node: Node) -> None:
    """Schedule, run, cancel, and clean up, over many data files."""
    for number in range(1, 60):
        node.scheduler.schedule(message(number, "x" * 300, delay=HOUR + 1000 * number))
    node.scheduler.schedule(message(100, "cron", cron="0 4 * * *"))
    node.scheduler.schedule(message(101, "cron+repeat", cron="0 3 1 1 *", delay=Long(1000), period=5000, repeat=9))
    node.scheduler.schedule(message(102, "endless", period=60_000, repeat=-1))
    node.scheduler.schedule(message(103, "bounded", period=60_000, repeat=700))
    node.turn()
    for number in range(1, 51):
        if number % 10:
            order = view(message(1000 + number, ""))
            order.set_properties({"AMQ_SCHEDULER_ACTION": "REMOVE", "scheduledJobId": message(number, "").message_id})
            node.scheduler.schedule(to_message(replace(order, destination=queue("ActiveMQ.Scheduler.Management"))))
    for _ in range(50):
        node.pass_time(60_000)
        node.jobs.cleanup()
        node.turn()
    node.scheduler.schedule(message(104, "bounded, late", delay=100, period=90_000, repeat=3))
    node.pass_time(90_000)


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_activemq_finds_the_jobs_that_were_written(
    tmp_path: Path, activemq: Callable[..., list[str]], end: str
) -> None:
    node = Node(tmp_path)
    fill(node)
    assert not (tmp_path / "scheduler" / "db-1.log").exists(), "files went"
    expected = node.facts()
    assert len(expected) == 5 + 9 + 5
    getattr(node.jobs, end)()
    assert activemq("jobs") == expected


@pytest.mark.alone  # ActiveMQ takes a job away some time after it has delivered the message
def test_activemq_fires_what_was_written(tmp_path: Path, activemq: Callable[..., list[str]]) -> None:
    node = Node(tmp_path)
    once = message(1, "once", delay=500)
    again = message(2, "again", delay=900, period=200, repeat=1)
    for each in (once, again):
        node.scheduler.schedule(each)
    node.turn()
    node.jobs.abandon()
    first, second, third, *jobs = activemq("take:LATER:3", "jobs")
    assert first == f"got {once.message_id} once {once.message_id}"
    assert [line.split()[2:] for line in (second, third)] == [["again", again.message_id]] * 2
    assert not jobs


@pytest.mark.parametrize("halt", [[], ["halt"]], ids=["stopped", "killed"])
def test_the_scheduler_goes_back_and_forth(tmp_path: Path, activemq: Callable[..., list[str]], halt: list[str]) -> None:
    node = Node(tmp_path)
    node.scheduler.schedule(message(1, "ours", delay=HOUR))
    node.scheduler.schedule(message(2, "running", delay=1, period=500, repeat=900))
    node.turn()
    node.jobs.abandon()
    lines = activemq(
        "send:LATER:theirs:AMQ_SCHEDULED_DELAY=7200000",
        "send:LATER:timed:AMQ_SCHEDULED_CRON=0_4_*_*_*",
        "send:LATER:both:AMQ_SCHEDULED_DELAY=1,AMQ_SCHEDULED_PERIOD=500,AMQ_SCHEDULED_REPEAT=800",
        "take:LATER:5",
        "jobs",
        *halt,
    )
    listed = {line.split()[1]: line for line in lines if line.startswith("job ")}
    assert len(listed) == 5

    node = Node(tmp_path)
    assert not node.jobs.damages
    found = {job.job_id: job for job in node.recovered}
    texts = {job_id: view(message_of(node, job)).text() for job_id, job in found.items()}
    assert sorted(texts.values(), key=str) == ["both", "ours", "running", "theirs", "timed"]
    steady = {line for line in node.facts() if texts[line.split()[1]] in ("ours", "theirs", "timed")}
    assert steady < set(listed.values())
    for job_id, job in found.items():
        if texts[job_id] in ("running", "both"):  # they ran on until the broker ended, within a busy machine's 90 s
            left = int(listed[job_id].split()[4])
            assert left - 180 < job.repeat <= left < {"running": 899, "both": 800}[texts[job_id] or ""]

    node.pass_time(0)
    node.pass_time(60_000)
    assert {view(each).text() for each in node.sent} == {"running", "both"}
    expected = node.facts()
    node.jobs.close()
    assert {line for line in activemq("jobs") if line in expected} >= steady


def message_of(node: Node, job: Job) -> Message:
    return routing(node.jobs.load(job))


class TestDefaultLayout:
    """ActiveMQ's own configuration: DATA/kahadb and DATA/localhost/scheduler."""

    @pytest.fixture
    def stock(self, java: Any, tmp_path: Path) -> Callable[..., list[str]]:
        """Opens the directory as such an ActiveMQ, performs steps, and returns what it prints."""
        data = f"default:{tmp_path / 'data'}"
        return lambda *steps: java.run(PROGRAM, data, *steps, timeout_seconds=90).splitlines()

    @pytest.fixture
    def start(self, tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
        with contextlib.ExitStack() as running:

            def begin(name: str, *extra: str) -> BrokerProcess:
                broker = BrokerProcess(str(tmp_path / "data"), name=name, port=free_port(), extra=extra)
                return running.enter_context(contextlib.closing(broker))

            yield begin

    def test_start_names_the_jobs_and_leaves_them(
        self, stock: Callable[..., list[str]], start: Callable[..., BrokerProcess], tmp_path: Path
    ) -> None:
        stock("send:LATER:theirs:AMQ_SCHEDULED_DELAY=3600000", "halt")
        elsewhere = tmp_path / "data" / "localhost" / "scheduler"
        before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
        broker = start("a")
        broker.wait_for(rf'1 scheduled message in {elsewhere}: not served.*set scheduler_store = "{elsewhere}"')
        broker.wait_for("listening on")
        assert broker.terminate() == 0
        assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before

    def test_new_master_names_what_activemq_scheduled_in_between(
        self, java: Any, start: Callable[..., BrokerProcess], tmp_path: Path
    ) -> None:
        data = tmp_path / "data"
        command = java.command(PROGRAM, f"default:{data}", "jobs", "wait")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stock:
            assert stock.stdin is not None
            assert stock.stdout is not None
            try:
                assert stock.stdout.readline() == "waiting\n"
                standby = start("b")
                standby.wait_for("waiting for the lock")
                stock.stdin.write("send:LATER:theirs:AMQ_SCHEDULED_DELAY=3600000\n")
                stock.stdin.flush()
                assert stock.stdout.readline() == "done\n"
            finally:
                stock.kill()
        standby.wait_for("listening on")
        standby.wait_for(f"1 scheduled message in {data / 'localhost' / 'scheduler'}: not served")

    def test_scheduler_store_serves_them_and_leaves_its_own(
        self, stock: Callable[..., list[str]], start: Callable[..., BrokerProcess], tmp_path: Path
    ) -> None:
        stock("send:LATER:theirs:AMQ_SCHEDULED_DELAY=5000", "halt")
        elsewhere = tmp_path / "data" / "localhost" / "scheduler"
        broker = start("a", "--scheduler-store", str(elsewhere))
        broker.wait_for("listening on")
        with contextlib.closing(StompClient(broker.port)) as client:
            client.send("SUBSCRIBE", id="1", destination="/queue/LATER")
            assert client.read().body == b"theirs"
            client.send_bytes(
                b"SEND\ndestination:/queue/LATER\nAMQ_SCHEDULED_DELAY:3600000\npersistent:true\nreceipt:r\n\nours\0"
            )
            assert client.read_until("RECEIPT", receipt_id="r")
        assert not any("not served" in line for line in broker.lines)
        assert not (tmp_path / "data" / "scheduler").exists()
        broker.kill()
        (job,) = stock("jobs")
        assert job.split()[2] == "3600000"
