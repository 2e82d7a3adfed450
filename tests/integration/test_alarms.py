"""The short form of the benchmark of alarms: every message arrives, and alarms that are due fire.

`python -m benchmarks.alarms` judges an hour. Here scrapes and alerts are hurried, so that false ones say nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.alarms.run import LOST_ALARMS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.component("prometheus")
def test_short_run_loses_nothing_and_raises_alarms_that_are_due(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-W", "error", "-m", "benchmarks.alarms", "--quick", "--json", str(file)]
    done = subprocess.run(
        [*command, "--directory", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [file.name], "stores are removed"
    written = json.loads(file.read_text())
    assert written["benchmark"] == "alarms"
    tables = written["tables"]
    (run,), (verdict,) = tables["The run"], tables["Verdict"]
    assert {row["alert"] for row in tables["Alerts that fired"]} >= LOST_ALARMS
    assert run["disturbances"] >= 2
    assert run["scrapes"] > 2
    for row in tables["Messages"]:
        assert row["confirmed"] > 100
        assert (row["received"], row["lost"], row["left on all queues"]) == (row["confirmed"], 0, 0)
        assert row["duplicates, unmarked"] == 0
    problems = [each for each in verdict["verdict"].split("; ") if not each.startswith("false alarm: ")]
    assert problems in (["pass"], []), problems
