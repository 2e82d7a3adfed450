"""The benchmark on a database: it runs against both brokers, and leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres_cluster import require_postgres

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.component("activemq-jdbc")
def test_both_brokers_take_the_same_load_and_are_compared(tmp_path: Path) -> None:
    require_postgres()
    file = tmp_path / "figures.json"
    command = [sys.executable, "-W", "error", "-m", "benchmarks.database", "--quick", "--pure", "--rows", "backlog-8"]
    command += ["--json", str(file), "--directory", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [file.name], "stores and classes are removed"
    written = json.loads(file.read_text())
    (line,) = written["tables"]["Ratios pybroker / ActiveMQ"]
    assert (line["row"], line["target"]) == ("backlog-8", ">= 2")
    assert line["messages/s ratio"] > 0
    assert {each["broker"] for each in written["tables"]["Medians of each broker"]} == {"pybroker", "activemq"}
