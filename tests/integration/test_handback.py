"""`pybroker handback`: a stock ActiveMQ, started with the lines that it prints, has all that a pybroker left.

Both brokers are asked by the same program, which reads everything and changes nothing; and the way back is tried too.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pybroker.broker.app.cli import commands
from pybroker.broker.domain.openwire.objects import encode_subscription_info
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.store.journal.commands import Subscribe
from tests.integration.cluster import BrokerProcess, free_port
from tests.unit.store.tools.journals import TOPIC, add, write

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180)]

PROGRAM = Path(__file__).parent / "java" / "WholeStore.java"
HOME = Path("/usr/share/activemq")
LINES = 20 - 3 - 1 + 1 + 4 + 10 + 1 + 1
"""The messages on queues that the program leaves visible: orders, kinds, priorities, a large and a dead one."""

SETTINGS = """
[[policies]]
queue = ">"
prioritized_messages = true
"""


SMALL_FILES = ("--journal-file-max", "1mb", "--journal-batch-max", "512kb")
INDEXES = (("kahadb", "db.data"), ("scheduler", "scheduleDB.data"))


class StockActiveMQ:
    """An ActiveMQ started by its own launcher, as `bin/activemq console xbean:file:…` starts it."""

    def __init__(self, directory: Path, element: list[str], java_lines: list[str]) -> None:
        directory.mkdir()
        self.port = free_port()
        self.log = directory / "activemq.log"
        connectors = (
            "<transportConnectors>"
            f'<transportConnector uri="tcp://127.0.0.1:{self.port}?wireFormat.maxFrameSize=104857600"/>'
            "</transportConnectors>"
        )
        broker = "\n".join(element).replace("<broker ", '<broker useJmx="false" ', 1)
        file = directory / "activemq.xml"
        file.write_text(
            '<beans xmlns="http://www.springframework.org/schema/beans"'
            ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="'
            "http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd"
            ' http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">\n'
            f"{broker.replace('</broker>', connectors + '</broker>')}\n</beans>\n"
        )
        base = [f"-Dactivemq.{name}={directory}" for name in ("base", "conf", "data")]
        command = ["java", *java_lines, f"-Dactivemq.home={HOME}", *base]
        command += ["-jar", str(HOME / "bin" / "activemq.jar"), "start", f"xbean:file:{file}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)

    @property
    def uri(self) -> str:
        """The address for clients that wait until it serves."""
        return f"failover:(tcp://127.0.0.1:{self.port})?startupMaxReconnectAttempts=100"

    def stop(self) -> None:
        """Stop it in order."""
        self.process.terminate()
        self.process.wait(60)

    def close(self) -> None:
        """Leave nothing running."""
        self.process.kill()
        self.process.wait()


class OpenWireBroker(BrokerProcess):
    """A pybroker with a listener for OpenWire clients."""

    def __init__(self, store: str, *extra: str) -> None:
        port = free_port()
        super().__init__(store, name="a", port=free_port(), extra=("--openwire", str(port), *extra))
        self.uri = f"tcp://127.0.0.1:{port}"


@pytest.fixture
def program(java: Any) -> Callable[..., list[str]]:
    """Runs the program, and returns the lines that it prints."""
    return lambda *arguments: java.run(PROGRAM, *arguments, timeout_seconds=90).splitlines()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., OpenWireBroker]]:
    """Starts a pybroker on the store."""
    file = tmp_path / "pybroker.toml"
    file.write_text(SETTINGS)
    with ExitStack() as running:

        def begin(*extra: str) -> OpenWireBroker:
            broker = OpenWireBroker(str(tmp_path / "data"), "--config", str(file), *extra)
            running.enter_context(closing(broker))
            broker.wait_for("listening on")
            return broker

        yield begin


@pytest.fixture
def activemq(tmp_path: Path) -> Iterator[Callable[[list[str]], StockActiveMQ]]:
    """Starts an ActiveMQ with the lines of a report."""
    with ExitStack() as running:
        count = 0

        def begin(element: list[str]) -> StockActiveMQ:
            nonlocal count
            count += 1
            broker = StockActiveMQ(tmp_path / f"activemq-{count}", element, ["-XX:TieredStopAtLevel=1"])
            running.enter_context(closing(broker))
            return broker

        yield begin


def handback(store: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the report."""
    done = CliRunner().invoke(commands, ["handback", str(store), "--user", "root", "--json", *arguments])
    return done.exit_code, json.loads(done.stdout)


def snapshot(store: Path) -> dict[str, bytes]:
    """Return pybroker's own files of a store, as they are."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file() and (path.name.startswith("pybroker.") or path.parent.name == "members")
    }


def test_activemq_has_everything_and_pybroker_has_it_again(
    tmp_path: Path,
    program: Callable[..., list[str]],
    serve: Callable[..., OpenWireBroker],
    activemq: Callable[[list[str]], StockActiveMQ],
) -> None:
    store = tmp_path / "data"
    ours = serve()
    uri = ours.uri
    program(uri, "fill")
    seen = program(uri, "read")
    assert len([line for line in seen if line.startswith("queue ")]) == LINES
    assert [line.split()[0] for line in seen].count("job") == 3
    assert [line.split()[0] for line in seen].count("doubt") == 1
    refused = CliRunner().invoke(commands, ["handback", str(store)])
    assert refused.exit_code == 2
    assert "is alive as MASTER" in refused.stderr
    assert "stop every member" in refused.stderr
    assert ours.terminate() == 0

    code, report = handback(store)
    assert (code, report["exit_code"]) == (0, 0), report["findings"]
    assert report["in_doubt"]
    assert report["scheduled"] == 3
    settings = {each["kind"] for each in report["findings"] if each["urgency"] == "setting"}
    assert settings == {"scheduled messages", "priorities", "empty queues"}
    (store / "kahadb" / "pybroker.index").write_bytes(b"of a longer journal")
    own = snapshot(store)
    assert own.keys() >= {"kahadb/pybroker.broker", "kahadb/pybroker.index", "members/a.json"}

    theirs = activemq(report["activemq_xml"])
    assert program(theirs.uri, "read") == seen, theirs.log.read_text()
    assert snapshot(store) == own, "ActiveMQ ignores files that it does not know"
    program(theirs.uri, "publish")
    program(theirs.uri, "send", "ORDERS", "from ActiveMQ")
    now = program(theirs.uri, "read")
    assert [line.split()[-1] for line in now if "Consumer.a.VirtualTopic.X" in line] == ["published"]
    theirs.stop()

    ours = serve()
    assert program(ours.uri, "read") == now
    program(ours.uri, "decide", "commit")
    decided = program(ours.uri, "read")
    assert not any(line.startswith("doubt") for line in decided)
    assert any(line.endswith("in doubt") for line in decided)
    ours.kill()

    code, report = handback(store)
    assert code == 0, report["findings"]
    theirs = activemq(report["activemq_xml"])
    assert program(theirs.uri, "read") == decided, theirs.log.read_text()
    assert program(theirs.uri, "take", "PRIORITIES") == [f"priority {number}" for number in range(9, -1, -1)]


def test_moved_jobs_and_files_leave_all_to_activemq(
    tmp_path: Path,
    program: Callable[..., list[str]],
    serve: Callable[..., OpenWireBroker],
    activemq: Callable[[list[str]], StockActiveMQ],
) -> None:
    store, jobs, files = tmp_path / "data", tmp_path / "jobs", tmp_path / "files"
    ours = serve()
    program(ours.uri, "fill")
    seen = program(ours.uri, "read")
    assert ours.terminate() == 0
    code, report = handback(store, "--jobs-to", str(jobs), "--move-to", str(files), "--yes")
    assert code == 0, report["findings"]
    assert all(each["done"] for each in report["moves"])
    assert not snapshot(store)
    assert snapshot(files).keys() >= {"kahadb/pybroker.broker", "members/a.json"}
    assert not (store / "scheduler").exists()

    theirs = activemq(report["activemq_xml"])
    assert program(theirs.uri, "read") == seen, theirs.log.read_text()
    theirs.stop()
    ours = serve("--scheduler-store", str(jobs))
    assert program(ours.uri, "read") == seen


def test_stale_index_stops_activemq_and_is_moved_away(
    tmp_path: Path,
    program: Callable[..., list[str]],
    serve: Callable[..., OpenWireBroker],
    activemq: Callable[[list[str]], StockActiveMQ],
) -> None:
    store, index = tmp_path / "data", tmp_path / "index"
    ours = serve(*SMALL_FILES)
    program(ours.uri, "fill")
    assert ours.terminate() == 0
    _, report = handback(store)
    theirs = activemq(report["activemq_xml"])
    program(theirs.uri, "read")
    theirs.stop()
    index.mkdir()
    for directory, name in INDEXES:
        (index / name).write_bytes((store / directory / name).read_bytes())
    before = {path.name for path in (store / "kahadb").glob("db-*.log")}

    ours = serve(*SMALL_FILES)
    program(ours.uri, "decide", "rollback")
    program(ours.uri, "take", "BIG")
    program(ours.uri, "send", "ORDERS", "later")
    seen = program(ours.uri, "read")
    assert ours.terminate() == 0
    assert not (store / "kahadb" / "db.data").exists(), "pybroker removes the index at its take-over"
    assert before - {path.name for path in (store / "kahadb").glob("db-*.log")}, "a data file was collected"
    for directory, name in INDEXES:
        (index / name).replace(store / directory / name)

    refusing = activemq(report["activemq_xml"])
    assert refusing.process.wait(60) == 1, "ActiveMQ goes by the index, and misses a file"
    code, report = handback(store)
    assert code == 1
    (todo,) = [each for each in report["findings"] if each["urgency"] == "to do"]
    assert todo["kind"] == "index"
    code, report = handback(store, "--move-to", str(tmp_path / "moved"), "--yes")
    assert code == 0
    assert (tmp_path / "moved" / "kahadb" / "db.data").exists()
    assert (tmp_path / "moved" / "scheduler" / "scheduleDB.data").exists()
    theirs = activemq(report["activemq_xml"])
    assert program(theirs.uri, "read") == seen, theirs.log.read_text()


def test_activemq_does_not_start_with_a_selector_that_it_refuses(
    tmp_path: Path, activemq: Callable[[list[str]], StockActiveMQ]
) -> None:
    terms = DurableSubscription(
        client_id="c", name="s", destination=TOPIC, subscribed_destination=TOPIC, selector="NOT price > 5"
    )
    write(tmp_path / "data" / "kahadb", [Subscribe(TOPIC, terms.key, encode_subscription_info(terms)), add(1)])
    code, report = handback(tmp_path / "data")
    assert code == 1
    assert {each["kind"] for each in report["findings"] if each["urgency"] == "to do"} == {"selectors"}
    refusing = activemq(report["activemq_xml"])
    assert refusing.process.wait(60) == 1
    assert "cannot be compared" in refusing.log.read_text()
