"""The side-by-side benchmark: it runs against both brokers, and compares with its targets."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.side_by_side import verdict
from benchmarks.side_by_side.brokers import (
    ACTIVEMQ,
    MOSQUITTO,
    MOSQUITTO_COMMAND,
    OBSERVED,
    PYBROKER,
    RABBITMQ,
    RABBITMQ_COMMAND,
    WITH_LOGINS,
)
from benchmarks.side_by_side.rows import ROWS, Row, chosen
from benchmarks.side_by_side.verdict import Run

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> str:
    """Run the benchmark; return what it prints."""
    command = [sys.executable, "-W", "error", "-m", "benchmarks.side_by_side", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def figures(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """Run it in a directory of its own; return what it prints and what it writes."""
    file = tmp_path / "figures.json"
    output = run("--quick", "--pure", "--json", str(file), "--directory", str(tmp_path), *arguments)
    written = json.loads(file.read_text())
    assert [path.name for path in tmp_path.iterdir()] == [file.name], "stores and classes are removed"
    return output, written


@pytest.mark.component("activemq")
def test_both_brokers_take_the_same_load_and_are_compared(tmp_path: Path) -> None:
    keys = ["backlog-8", "transacted", "topic-10", "stomp-100"]
    output, written = figures(tmp_path, "--rows", ",".join(keys))
    for key in keys:
        assert {name: len(made) for name, made in written["rows"][key]["runs"].items()} == {PYBROKER: 1, ACTIVEMQ: 1}
    lines = written["tables"]["Ratios pybroker / ActiveMQ"]
    assert [line["row"] for line in lines] == keys
    assert [line["target"] for line in lines] == [">= 2", ">= 1.2", "> 1", ">= 2"]
    for line in lines:
        assert line["messages/s ratio"] > 0
        assert line["peak memory ratio"] > 0
    assert "of 12 targets reached" in output
    assert {"cpu", "cores", "kernel", "file system"} <= written["machine"].keys()
    assert all(written[fact] for fact in ("commit", "command", "date", "java", "python", "compiled with"))
    assert written["activemq"].startswith("5.")


@pytest.mark.component("activemq")
def test_bridges_of_both_brokers_are_compared_one_way_and_duplex(tmp_path: Path) -> None:
    output, written = figures(tmp_path, "--rows", "bridge,bridge-duplex")
    for row in written["rows"].values():
        assert {name: len(made) for name, made in row["runs"].items()} == {PYBROKER: 1, ACTIVEMQ: 1}
    lines = written["tables"]["Ratios pybroker / ActiveMQ"]
    assert [(line["row"], line["target"]) for line in lines] == [("bridge", ">= 1.5"), ("bridge-duplex", ">= 1.5")]
    assert all(line["messages/s ratio"] > 0 for line in lines)
    assert "of 6 targets reached" in output


@pytest.mark.component("activemq-mqtt")
def test_mqtt_is_compared_with_activemq_and_shown_for_mosquitto(tmp_path: Path) -> None:
    _, written = figures(tmp_path, "--rows", "mqtt-1,mqtt-100")
    names = {PYBROKER, ACTIVEMQ} | ({MOSQUITTO} if Path(MOSQUITTO_COMMAND).exists() else set())
    assert all(row["runs"].keys() == names for row in written["rows"].values())
    medians = written["tables"]["Medians of each broker"]
    assert all(line["messages/s"] > 0 and line["send p99 ms"] > 0 for line in medians)
    assert [line["row"] for line in written["tables"]["Ratios pybroker / ActiveMQ"]] == ["mqtt-1", "mqtt-100"]


def test_amqp_is_compared_with_rabbitmq_where_it_is(tmp_path: Path) -> None:
    _, written = figures(tmp_path, "--rows", "amqp-1,amqp-100")
    names = {PYBROKER} | ({RABBITMQ} if Path(RABBITMQ_COMMAND).exists() else set())
    assert all(row["runs"].keys() == names for row in written["rows"].values())
    medians = written["tables"]["Medians of each broker"]
    assert all(line["messages/s"] > 0 and line["send p99 ms"] > 0 for line in medians)
    ratios = written["tables"].get("Ratios pybroker / RabbitMQ", [])
    assert [line["row"] for line in ratios] == (["amqp-1", "amqp-100"] if RABBITMQ in names else [])


@pytest.mark.component("activemq")
def test_one_broker_alone_is_measured_and_compared_with_nothing(tmp_path: Path) -> None:
    output, written = figures(tmp_path, "--only", "pybroker", "--rows", "sync-1")
    (line,) = written["tables"]["Medians of each broker"]
    assert all(line[name] > 0 for name in ("messages/s", "send p50 ms", "send p99 ms", "broker peak MiB"))
    assert "targets reached" not in output


@pytest.mark.component("activemq")
def test_logins_and_rules_are_compared_with_none(tmp_path: Path) -> None:
    output, written = figures(tmp_path, "--logins", "--rows", "sync-1,topic-10,stomp-100")
    assert [line["row"] for line in written["tables"]["Ratios with logins / without"]] == [
        "sync-1", "topic-10", "stomp-100",
    ]  # fmt: skip
    assert all(runs["runs"].keys() == {PYBROKER, WITH_LOGINS} for runs in written["rows"].values())
    assert "of 6 targets reached" in output


@pytest.mark.component("activemq")
def test_observers_are_compared_with_an_earlier_version_without(tmp_path: Path) -> None:
    before, directory = tmp_path / "before", tmp_path / "figures"
    directory.mkdir()
    shutil.copytree(ROOT / "pybroker", before / "pybroker", ignore=shutil.ignore_patterns("__pycache__"))
    with (before / "pybroker" / "__init__.py").open("a") as module:
        module.write(f"open({str(before / 'was used')!r}, 'a').close()\n")
    _, written = figures(directory, "--observed", "--before", str(before), "--rows", "stomp-100")
    (line,) = written["tables"]["Ratios observed / without"]
    assert {"messages/s ratio", "speed >= 0.98", "CPU <= 1.02"} <= line.keys()
    (runs,) = written["rows"].values()
    assert runs["runs"].keys() == {PYBROKER, OBSERVED}
    assert (before / "was used").exists()


@pytest.mark.component("activemq")
def test_a_row_can_be_profiled() -> None:
    output = run("--quick", "--profile", "stomp-100")
    assert "Ordered by: internal time" in output
    assert "pybroker/broker/domain/stomp/codec.py" in output


@pytest.mark.component("valgrind")
def test_the_instructions_for_a_message_are_counted() -> None:
    output = run("--quick", "--pure", "--rows", "stomp-100", "--instructions")
    counted = re.search(r"\| stomp-100 \| +\d+ \| +([\d,]+) \|", output)
    assert counted is not None
    assert 10_000 < int(counted[1].replace(",", "")) < 10_000_000


@pytest.mark.component("valgrind")
def test_the_instructions_with_logins_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    run("--quick", "--pure", "--rows", "stomp-100", "--instructions", "--logins", "--json", str(file))
    ((line,),) = json.loads(file.read_text())["tables"].values()
    assert line["ratio"] == pytest.approx(line["with logins"] / line["instructions for a message"], rel=0.001)


def test_a_strange_row_is_refused_with_the_rows_there_are() -> None:
    with pytest.raises(ValueError, match=r"no row sync-9; there are sync-1, sync-8, "):
        chosen(["sync-1", "sync-9"], 1)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_a_scaled_row_shares_out_evenly(row: Row) -> None:
    for factor in (0.0001, 0.33, 3):
        scaled = row.scaled(factor)
        for count in (scaled.count, scaled.warm):
            assert count > 0
            assert count % (row.producers * max(row.per_commit, 1)) == 0


def runs(*speeds: float, cpu: float, peak: float) -> list[Run]:
    """Repetitions that differ in speed only."""
    return [
        Run(messages_per_second=speed, p50_ms=1, p99_ms=1, cpu_seconds_per_1000=cpu, client_cpu_seconds_per_1000=1,
            peak_mib=peak)
        for speed in speeds
    ]  # fmt: skip


def test_ratios_are_of_medians_and_their_spread_of_neighbours() -> None:
    measured = {PYBROKER: runs(300, 100, 200, cpu=1, peak=1), ACTIVEMQ: runs(100, 100, 50, cpu=1, peak=1)}
    assert verdict.ratio(measured, lambda run: run.messages_per_second) == verdict.Ratio(
        median=2.0, least=1.0, greatest=4.0
    )


def test_what_logins_cost_is_judged() -> None:
    (row,) = chosen(["sync-1"], 1)
    without = runs(100, cpu=1, peak=1)
    for speed, cpu, words in ((97, 1.03, ["pass", "pass"]), (96.9, 1.031, ["FAIL", "FAIL"])):
        line = verdict.cost(row, {PYBROKER: without, WITH_LOGINS: runs(speed, cpu=cpu, peak=1)})
        assert [line["speed >= 0.97"], line["CPU <= 1.03"]] == words
    assert verdict.instructions({PYBROKER: 100, WITH_LOGINS: 103})["<= 1.03"] == "pass"
    assert verdict.instructions({PYBROKER: 100, WITH_LOGINS: 104})["<= 1.03"] == "FAIL"


@pytest.mark.parametrize(
    ("key", "speed", "cpu", "peak", "words"),
    [
        ("sync-1", 150, 0.5, 20, ["pass", "pass", "pass"]),
        ("sync-1", 149, 0.51, 21, ["FAIL", "FAIL", "FAIL"]),
        ("non-persistent", 100, 0.5, 20, ["FAIL", "pass", "pass"]),
        ("non-persistent", 101, 0.5, 20, ["pass", "pass", "pass"]),
    ],
)
def test_targets_are_met_exactly_or_missed(key: str, speed: float, cpu: float, peak: float, words: list[str]) -> None:
    (row,) = chosen([key], 1)
    line = verdict.comparison(row, {PYBROKER: runs(speed, cpu=cpu, peak=peak), ACTIVEMQ: runs(100, cpu=1, peak=100)})
    assert [line[name] for name in ("speed", "CPU <= 0.5", "memory <= 0.2")] == words
    assert verdict.score([line]) == f"{words.count('pass')} of 3 targets reached"
