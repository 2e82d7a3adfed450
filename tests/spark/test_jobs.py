# mypy: disable-error-code="assignment, attr-defined, index"
"""The jobs on every sample store of a real ActiveMQ, and on a generated journal whose books are known.

All stores are read as one table, as several brokers' would be: starting a query costs far more than such rows do.
"""

import contextlib
import importlib
import json
import shutil
import subprocess
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from benchmarks.journal_generator import Totals, generate
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.reserved_queues import SESSION_RECORDS
from pybroker.client import connect
from pybroker.store.journal.commands import Trace
from pybroker.store.journal.tools.check import check
from pybroker.store.journal.tools.export import Export, LiveMessage, LiveSubscription
from pybroker.store.journal.tools.findings import Level
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
from pybroker.store.journal.tools.why import Cause, why
from pybroker.testing import Broker
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient
from tests.spark.conftest import QUICK
from tests.unit.store.tools.journals import TOPIC, ack, add, subscribe, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pybroker.spark_jobs.history import History

GOLDEN = Path(__file__).parents[1] / "golden" / "kahadb"
SAMPLES = sorted(path.stem for path in GOLDEN.glob("*.json"))
DOCUMENT = Path(__file__).parents[2] / "docs" / "spark-jobs.md"
BY_PRIORITY = "06-priority"
"""Its broker dispatched by priority, which no record shows."""
GENERATED = "generated"
REPEATED = "repeated"
"""Has repeated records of subscriptions, and a record on a reserved queue; no record has a time."""
OTHER_TOPIC = topic("OTHER")


@dataclass(frozen=True)
class Stores:
    """Unpacked stores by name, and what is known of the generated one."""

    directories: dict[str, Path]
    totals: Totals

    def name(self, directory: str) -> str:
        return next(name for name, path in self.directories.items() if str(path) == directory)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    root = tmp_path_factory.mktemp("stores")
    for name in SAMPLES:
        with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
            archive.extractall(root, filter="data")
    generated = root / GENERATED / "kahadb"
    totals = generate(generated, 4_000_000, seed=1, per_second=40, file_bytes_max=700_000)
    assert totals.dead
    write(
        root / REPEATED / "kahadb",
        [subscribe("all"), subscribe("newest"), subscribe("older"), add(1), add(2, SESSION_RECORDS.destination)],
        [add(3, TOPIC)],
        [subscribe("newest"), subscribe("older")],
        [add(4, TOPIC), ack(3, TOPIC, key="client:newest")],
        [subscribe("last", OTHER_TOPIC), subscribe("idle", OTHER_TOPIC)],
        [subscribe("last", OTHER_TOPIC), subscribe("idle", OTHER_TOPIC)],
        [add(5, OTHER_TOPIC), ack(5, OTHER_TOPIC, key="client:idle")],
        [Trace("written")],
    )
    return Stores({name: root / name / "kahadb" for name in (*SAMPLES, GENERATED, REPEATED)}, totals)


@pytest.fixture(scope="module")
def quick(spark: "SparkSession") -> Iterator["SparkSession"]:
    before = {name: spark.conf.get(name) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        assert value is not None
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def history(quick: "SparkSession", stores: Stores) -> Iterator["History"]:
    """The history of all stores, decoded here: a worker takes longer to start than to decode them."""
    import pyarrow as pa

    from pybroker.spark_jobs.history import History
    from pybroker.store.columns.files import list_files, plan
    from pybroker.store.columns.schema import BY_NAME, arrow_schema
    from pybroker.store.columns.table import read

    names = tuple(BY_NAME)
    batches = [
        batch
        for directory in stores.directories.values()
        for piece in plan(str(directory), list_files(directory), None)
        for batch in read(piece, names)
    ]
    history = History(quick, quick.createDataFrame(pa.Table.from_batches(batches, arrow_schema(names))))
    yield history
    history.close()


def rows(table: "DataFrame") -> list[Any]:
    return table.collect()


# ---------------------------------------------------------------- live


@pytest.fixture(scope="module")
def alive(history: "History") -> dict[str, list[Any]]:
    from pybroker.spark_jobs.live import live

    found: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows(live(history.spark, history)["messages"]):
        found[row.directory].append(row)
    return found


@pytest.mark.parametrize("name", [*SAMPLES, GENERATED])
def test_live_messages_are_those_of_the_journals_own_export(
    name: str, stores: Stores, alive: dict[str, list[Any]]
) -> None:
    directory = stores.directories[name]
    messages: defaultdict[str, list[tuple[str, int, int]]] = defaultdict(list)
    pending: dict[tuple[str, str], list[str]] = {}
    for each in Export(JournalSnapshot(directory)):
        match each:
            case LiveMessage(destination=destination, message_id=message_id, location=location):
                messages[str(destination)].append((message_id, *location))
            case LiveSubscription(subscription=terms, pending=ids) if ids:
                pending[f"{terms.client_id}:{terms.name}", str(terms.destination)] = list(ids)
            case _:
                pass

    found: defaultdict[str, list[tuple[str, int, int]]] = defaultdict(list)
    waiting: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for row in alive[str(directory)]:
        destination = f"{row.destination_type}://{row.destination}"
        if "" not in row.hidden_from:
            found[destination].append((row.message_id, row.file, row.offset))
        for key in set(row.pending) - set(row.hidden_from):
            waiting[key, destination].append(row.message_id)

    if name == BY_PRIORITY:
        messages = defaultdict(list, {key: sorted(each) for key, each in messages.items()})
        found = defaultdict(list, {key: sorted(each) for key, each in found.items()})
        pending = {key: sorted(each) for key, each in pending.items()}
        waiting = defaultdict(list, {key: sorted(each) for key, each in waiting.items()})
    assert found == messages
    assert waiting == pending


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != BY_PRIORITY])
def test_live_messages_are_those_that_the_real_broker_showed(
    name: str, stores: Stores, alive: dict[str, list[Any]]
) -> None:
    truth = json.loads((GOLDEN / f"{name}.json").read_text())["truth_journal_only"]
    queues: defaultdict[str, list[str]] = defaultdict(list)
    pending: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for row in alive[str(stores.directories[name])]:
        if row.destination_type == "queue" and not row.hidden_from:
            queues[f"queue://{row.destination}"].append(row.message_id)
        for key in set(row.pending) - set(row.hidden_from):
            pending[key, f"topic://{row.destination}"].add(row.message_id)

    assert queues == {
        key: [each["message_id"] for each in contents["messages"]] for key, contents in truth["queues"].items()
    }
    assert pending == {
        (f"{each['client_id']}:{each['name']}", topic): set(each["store_pending_message_ids"])
        for topic, contents in truth["topics"].items()
        for each in contents["subscriptions"]
        if each["store_pending_message_ids"]
    }


def test_live_messages_are_those_in_the_generators_totals(stores: Stores, alive: dict[str, list[Any]]) -> None:
    queues: defaultdict[str, list[str]] = defaultdict(list)
    pending: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for row in alive[str(stores.directories[GENERATED])]:
        if row.destination_type == "queue" and not row.hidden_from:
            queues[row.destination].append(row.message_id)
        for key in row.pending:
            pending[row.destination, key].add(row.message_id)

    assert queues == {each.name: ids for each, ids in stores.totals.pending.items() if ids}
    assert pending == {(each.name, key): set(ids) for (each, key), ids in stores.totals.backlogs.items() if ids}


def test_transactions_without_an_outcome_are_distinguished(history: "History", stores: Stores) -> None:
    found = {(stores.name(row.directory), row.outcome, row.transaction[:4]) for row in rows(history.unfinished)}

    assert ("05-xa-indoubt-kill9", "prepared", "XID:") in found
    assert ("04-localtx-kill9", "open", "TX:I") in found
    assert {name for name, outcome, _ in found if outcome == "prepared"} == {"05-xa-indoubt-kill9", GENERATED}


# ---------------------------------------------------------------- the other questions


def test_what_holds_files_agrees_with_journal_why(history: "History", stores: Stores) -> None:
    from pybroker.spark_jobs.journal_pins import journal_pins

    found: defaultdict[str, dict[int, tuple[bool, set[Any]]]] = defaultdict(dict)
    for row in rows(journal_pins(history.spark, history)["files"]):
        _, reasons = found[stores.name(row.directory)].setdefault(row.file, (row.held, set()))
        if row.cause is not None:
            lists = (tuple(each) for each in (row.examples, row.files, row.because))
            reasons.add((row.cause, row.what, row.messages, row.remedy, *lists))

    for name, directory in stores.directories.items():
        expected = {
            file.file_id: (
                file.is_held,
                {
                    (each.cause.value, each.what, each.count, each.remedy, each.examples, each.files, each.because)
                    for each in file.reasons
                    if each.cause not in (Cause.METADATA, Cause.ACTIVEMQ)  # of files that can go
                },
            )
            for file in why(JournalSnapshot(directory)).files
        }
        assert found[name] == expected, name


def test_the_audit_finds_the_damage_that_journal_check_finds(history: "History", stores: Stores) -> None:
    from pybroker.spark_jobs.audit import audit

    found: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows(audit(history.spark, history)["findings"]):
        found[stores.name(row.directory)].append(row)

    damaged = {(row.file, row.offset) for row in found["10-corrupt-batch"] if row.check == "damaged"}
    known = [each for each in check(JournalSnapshot(stores.directories["10-corrupt-batch"])).findings]
    assert damaged == {
        (int(Path(each.path).stem.removeprefix("db-")), each.offset) for each in known if each.level is Level.DAMAGE
    }
    assert not [
        row for name in SAMPLES if name != "10-corrupt-batch" for row in found[name] if row.severity == "damage"
    ]
    assert {name for name, findings in found.items() if any(each.check == "in doubt" for each in findings)} == {
        "05-xa-indoubt-kill9",
        GENERATED,
    }


def test_the_queue_report_counts_what_was_sent_and_consumed(history: "History", stores: Stores) -> None:
    from pybroker.spark_jobs.queue_report import queue_report

    tables = {name: rows(table) for name, table in queue_report(history.spark, history).items()}
    own = {name: [row for row in each if "directory" in row and stores.name(row.directory) == GENERATED]
           for name, each in tables.items()}  # fmt: skip
    sent = {each.name: count for each, count in stores.totals.sent.items() if each.name != "ActiveMQ.DLQ"}

    by_destination: defaultdict[str, int] = defaultdict(int)
    for row in own["throughput"]:
        by_destination[row.destination] += row.sent
    assert by_destination == sent
    assert _sum(own["sizes"], "messages") == _sum(own["producers"], "messages") == sum(sent.values())
    queues = [row for row in own["time_in_queue"] if row.destination_type == "queue"]
    assert _sum(queues, "consumed") + _sum(queues, "dead_lettered") == stores.totals.consumed
    assert _sum(queues, "dead_lettered") == stores.totals.dead
    ends = {row.destination: row.depth for row in own["depth"]}
    assert ends == {row.destination: row.waiting for row in own["time_in_queue"]}
    assert {row.time_source for row in tables["clock"]} == {"estimate", "mark", "unknown"}  # as those of REPEATED are
    for row in own["time_in_queue"]:
        if row.consumed:
            assert 0 <= row.min_ms <= row.p50_ms <= row.p95_ms <= row.p99_ms <= row.max_ms


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two stores with the same in them: four messages consumed, three expired, two rejected, one waiting."""
    root = tmp_path_factory.mktemp("twins")
    one, two = root / "one", root / "two"
    extra = ("--expire-interval", "100ms")
    with contextlib.closing(BrokerProcess(str(one), name="a", port=free_port(), extra=extra)) as broker:
        broker.wait_for("listening on")
        with connect(f"stomp://127.0.0.1:{broker.port}", timeout=30) as connection:
            for queue_name, count, ttl in (("FINE", 5, 3600.0), ("LATE", 3, 1.0), ("BAD", 2, 3600.0)):
                for number in range(count):
                    connection.send(f"queue://{queue_name}", str(number), ttl=ttl)
            with connection.consumer("queue://FINE", prefetch=1, ack="individual") as fine:
                for _ in range(4):
                    fine.receive(timeout=30).ack()
            with contextlib.closing(StompClient(broker.port)) as client:
                client.send("SUBSCRIBE", id="1", destination="/queue/BAD", ack="client-individual")
                for frame in [client.read(), client.read()]:
                    client.request("NACK", id=frame.headers["ack"])
            deadline = time.monotonic() + 30
            while len(list(connection.browse("queue://ActiveMQ.DLQ"))) < 5:
                assert time.monotonic() < deadline
        assert broker.terminate() == 0
    shutil.copytree(one, two)
    return [one, two]


def test_report_of_two_stores_keeps_them_apart(quick: "SparkSession", twins: list[Path]) -> None:
    from pybroker.spark_jobs.history import History
    from pybroker.spark_jobs.queue_report import queue_report
    from pybroker.spark_jobs.report_page import page
    from pybroker.spark_jobs.report_sections import draw_queues

    history = History(quick, twins)
    tables = queue_report(quick, history)
    found = {(row.directory, row.destination): row for row in rows(tables["time_in_queue"])}
    sections, tiles = draw_queues(tables, history.names)
    history.close()

    for twin in twins:
        own = {key[1]: row for key, row in found.items() if key[0] == str(twin / "kahadb")}
        fates = {name: (row.consumed, row.expired, row.dead_lettered, row.waiting) for name, row in own.items()}
        assert fates == {
            "FINE": (4, 0, 0, 1),
            "LATE": (0, 3, 0, 0),
            "BAD": (0, 0, 2, 0),
            "ActiveMQ.DLQ": (0, 0, 0, 5),
        }
    numbers = {tile.name: tile.value for tile in tiles}
    assert numbers == {"sent": "20", "consumed": "8", "pending": "12", "expired": "6"}
    text = page("", "", tiles, sections, "")
    for name in ("FINE (one)", "FINE (two)", "LATE (one)", "LATE (two)"):
        assert text.count(f"<td>{name}</td>") == 1


def _sum(found: list[Any], column: str) -> int:
    return sum(row[column] for row in found)


def test_the_backlog_is_what_is_live_and_names_who_is_waited_for(
    history: "History", stores: Stores, alive: dict[str, list[Any]]
) -> None:
    from pybroker.spark_jobs.backlog import backlog

    tables = backlog(history.spark, history)
    pending = {(stores.name(row.directory), row.destination): row for row in rows(tables["destinations"])}

    assert sum(row.messages for row in pending.values()) == sum(map(len, alive.values()))
    assert set(pending["03-durable", "DUR.T"].waiting_for) >= {"cli-1:active", "cli-2:inactive"}
    assert pending["05-xa-indoubt-kill9", "XA.Q"].hidden > 0
    assert all(row.age_seconds >= 0 for (store, _), row in pending.items() if store != REPEATED)
    subscriptions = {
        (stores.name(row.directory), row.subscription): row.pending for row in rows(tables["subscriptions"])
    }
    assert subscriptions["03-durable", "cli-1:active"] == 65
    assert {key: subscriptions[GENERATED, key] for _, key in stores.totals.backlogs} == {
        key: len(ids) for (_, key), ids in stores.totals.backlogs.items()
    }


def test_dead_letters_have_their_causes(history: "History", stores: Stores) -> None:
    from pybroker.spark_jobs.dead_letters import dead_letters

    tables = dead_letters(history.spark, history)
    causes = rows(tables["causes"])

    assert _sum(causes, "messages") == stores.totals.dead
    assert _sum(causes, "still_there") == len(stores.totals.pending[queue("ActiveMQ.DLQ")])
    assert all(row.came_from and row.cause != "not recorded" for row in causes)
    assert {stores.name(row.directory) for row in rows(tables["redelivered"])} == {"11-redelivered-updates"}


# ---------------------------------------------------------------- masters


def test_terms_and_the_gaps_between_them(quick: "SparkSession") -> None:
    from pybroker.spark_jobs.failovers import failovers
    from pybroker.spark_jobs.history import RECORD_COLUMNS, from_arrow_schema
    from pybroker.store.columns.schema import arrow_schema

    def at(seconds: float) -> datetime:
        return datetime.fromtimestamp(1_790_000_000 + seconds, UTC)

    story = [
        (1, "trace", f"LOADED {at(0):%a %b} {at(0).day} {at(0):%H:%M:%S} UTC {at(0):%Y}", None),
        (1, "add_message", None, at(5)),
        (2, "trace", f"pybroker 1.2 started {at(8).isoformat(timespec='milliseconds')}, epoch 2", at(5)),
        (2, "add_message", None, at(9.5)),
        (2, "trace", 'pybroker clean stop {"delivered":[]}', at(10)),
        (3, "trace", f"pybroker 1.3 started {at(10.25).isoformat(timespec='milliseconds')}, epoch 3", at(10)),
    ]
    schema = from_arrow_schema(arrow_schema(RECORD_COLUMNS))
    known = [
        {
            "directory": "a",
            "file": file,
            "position": file << 32 | n,
            "record_type": kind,
            "trace": text,
            "time": time,
        }
        for n, (file, kind, text, time) in enumerate(story)
    ]
    table = quick.createDataFrame([tuple(row.get(name) for name in RECORD_COLUMNS) for row in known], schema)

    tables = failovers(quick, table)

    assert [(row.broker, row.version, row.epoch, row.ended_by, row.messages) for row in rows(tables["terms"])] == [
        ("ActiveMQ", None, None, "no clean stop", 1),
        ("pybroker", "1.2", 2, "clean stop", 1),
        ("pybroker", "1.3", 3, "still there", 0),
    ]
    assert [(row.before_term, row.seconds, row.after) for row in rows(tables["gaps"])] == [
        (2, 3.0, "no clean stop"),
        (3, 0.25, "clean stop"),
    ]


# ---------------------------------------------------------------- out of the journal, and back


def test_exported_messages_come_back_into_a_broker_once(
    quick: "SparkSession", history: "History", stores: Stores, tmp_path: Path
) -> None:
    from pybroker import connect
    from pybroker.spark_jobs.export import export
    from pybroker.spark_jobs.replay import REPLAY_OF, replay

    directory = stores.directories["01-mixed"]
    table = export(quick, history, live=True)["messages"].where(f"directory = '{directory}'")
    table.write.parquet(str(tmp_path / "messages"))
    stored = [each.as_json() for each in Export(JournalSnapshot(directory)) if isinstance(each, LiveMessage)]
    mixed = {each["message_id"]: each for each in stored if each["destination"] == "queue://MIXED.Q"}
    objects = sum(each["type"] == "object" for each in mixed.values())
    ledger = tmp_path / "ledger"
    steps: list[tuple[int, int]] = []

    with Broker() as broker:
        done, again = (
            replay(quick, tmp_path / "messages", broker.uri, ledger=ledger, progress=lambda *each: steps.append(each))
            for _ in range(2)
        )
        with connect(broker.uri) as connection, connection.consumer("queue://MIXED.Q") as consumer:
            came = [consumer.receive(timeout=30) for _ in range(len(mixed) - objects)]

    assert done.sent + done.left == len(stored)
    assert done.left == sum(each["type"] == "object" for each in stored)
    assert (again.sent, again.skipped, again.left) == (0, done.sent, done.left)
    assert steps[-1][1] == len(stored)
    for message in came:
        original = mixed[str(message.properties[REPLAY_OF])]
        assert {**original["properties"], REPLAY_OF: message.properties[REPLAY_OF]}.keys() == message.properties.keys()
        if original["type"] == "text":
            assert message.body == (original["body"] or "")


# ---------------------------------------------------------------- programs and the page


@pytest.mark.parametrize("job", ["audit", "backlog", "dead_letters", "export", "failovers", "live", "queue_report"])
def test_the_document_names_each_jobs_tables(job: str, history: "History") -> None:
    row = next(line for line in DOCUMENT.read_text().splitlines() if line.startswith(f"| `{job}` |"))
    named = row.split("|")[2].replace("`", "").replace(" ", "").split(",")

    tables = getattr(importlib.import_module(f"pybroker.spark_jobs.{job}"), job)(history.spark, history)

    assert list(tables) == named


def test_a_job_is_a_program_that_writes_files(quick: "SparkSession", stores: Stores, tmp_path: Path) -> None:
    from pybroker.spark_jobs.cli import command
    from pybroker.spark_jobs.export import OPTIONS, export

    arguments = [str(stores.directories["05-xa-indoubt-kill9"]), "--output", str(tmp_path), "--format", "json"]
    done = CliRunner().invoke(command(export, OPTIONS), [*arguments, "--live", "--destination", "XA.Q"])

    assert done.exit_code == 0, done.output
    lines = [line for path in tmp_path.glob("messages/*.json") for line in path.read_text().splitlines()]
    truth = json.loads((GOLDEN / "05-xa-indoubt-kill9.json").read_text())["truth_journal_only"]
    shown = {each["message_id"] for each in truth["queues"]["queue://XA.Q"]["messages"]}
    assert shown <= {json.loads(line)["message_id"] for line in lines}


def test_a_job_is_a_program_that_writes_its_part_of_the_report(
    quick: "SparkSession", stores: Stores, tmp_path: Path
) -> None:
    from pybroker.spark_jobs.backlog import backlog
    from pybroker.spark_jobs.cli import command
    from pybroker.spark_jobs.live import live

    arguments = [str(stores.directories["01-mixed"]), "--output", str(tmp_path), "--format", "html"]
    done = CliRunner().invoke(command(backlog), arguments)
    refused = CliRunner().invoke(command(live), arguments)

    assert done.exit_code == 0, done.output
    assert done.output.strip() == str(tmp_path / "report.html")
    marks = Marks()
    marks.feed((tmp_path / "report.html").read_text())
    assert marks.counts["section"] == 1
    assert refused.exit_code == 2
    assert "live has no page; there are queue_report, backlog," in refused.output


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "there is no such directory"),
        ("notes.txt", "no KahaDB journal"),
        ("scheduler/db-1.log", "the journal may be in"),
        ("kahadb/lock", "no data file (db-<number>.log) is here yet"),
    ],
)
def test_job_without_a_journal_fails_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, expected: str
) -> None:
    from pybroker.spark_jobs import cli
    from pybroker.spark_jobs.backlog import backlog

    monkeypatch.setattr(cli, "session", lambda *_: pytest.fail("Spark was started"))
    place = tmp_path / "place"
    if content is not None:
        (place / content).parent.mkdir(parents=True)
        (place / content).touch()
    done = CliRunner().invoke(cli.command(backlog), [str(place)])
    assert done.exit_code == 2
    assert done.output.startswith(f"Error: {place}")
    assert expected in done.output
    assert len(done.output.splitlines()) == 1


class Marks(HTMLParser):
    """Counts a page's elements; whatever it would load from elsewhere is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: defaultdict[str, int] = defaultdict(int)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        assert tag not in ("script", "link", "img", "iframe")
        assert not any(name in ("src", "onload") or "url(" in (value or "") for name, value in attrs)


@pytest.fixture(scope="module")
def report(history: "History", tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pybroker.spark_jobs.report import analyze

    steps: list[tuple[int, int, str]] = []
    page = analyze(
        history,
        tmp_path_factory.mktemp("page"),
        spark=history.spark,
        progress=lambda *step: steps.append(step),
    )
    assert [done for done, _, _ in steps] == list(range(steps[0][1] + 1))
    return page


@pytest.mark.timeout(300)  # some sixty queries: slow where the machine has other things to do
def test_the_report_is_one_page_with_every_plot(report: Path) -> None:
    text = report.read_text()
    marks = Marks()
    marks.feed(text)

    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert marks.counts["section"] == 9
    assert marks.counts["svg"] >= 9
    assert marks.counts["path"] > marks.counts["svg"]
    assert marks.counts["title"] > 100
    for name in ("SAMPLE.ORDERS", "ActiveMQ.DLQ", "db-1.log", "being written"):
        assert name in text


@pytest.mark.component("chromium")
def test_a_browser_shows_the_report(report: Path, tmp_path: Path) -> None:
    """Every plot has a size of its own on the screen, and none runs out of the page."""
    probe = tmp_path / "probe.html"
    script = (
        "<script>document.title='plots '+JSON.stringify([...document.querySelectorAll('svg')].map(each=>"
        "{const box=each.getBoundingClientRect();return [box.width>400&&box.height>20&&box.right<=innerWidth]}));"
        "</script>"
    )
    probe.write_text(report.read_text().replace("</body>", f"{script}</body>"))
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
         "--window-size=1200,900", "--dump-dom", probe.as_uri()],
        capture_output=True, text=True, check=True, timeout=90,
    )  # fmt: skip
    title = done.stdout.partition("<title>plots ")[2].partition("</title>")[0]
    shown = json.loads(title)
    assert len(shown) >= 9
    assert all(fits for (fits,) in shown)
