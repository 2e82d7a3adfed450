"""The short form of the floods: each takes place, a client that is logged in is served, and nothing is left of it.

`python -m benchmarks.flood` measures against the promise. Here the bounds are wide, as other tests run beside.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.flood.__main__ import Measured, problems

TRIED = ("passwords", "all")
"""All of the floods, the two kinds of guessing apart."""
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.alone
def test_floods_leave_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-W", "error", "-m", "benchmarks.flood", "--quick", "--json", str(file)]
    command += [f"--flood={flood}" for flood in TRIED]
    done = subprocess.run(
        [*command, "--directory", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [file.name], "stores are removed"
    waits, costs = json.loads(file.read_text())["tables"].values()
    assert [row["flood"] for row in costs] == list(TRIED)
    for row in costs:
        assert row["reached"], row
        assert row["grown MB"] < 100, row
        assert row["descriptors left"] == 0, row
        assert "client" not in row["verdict"], row
    assert all(row["flood: count"] > 0 for row in waits)


def test_broken_promises_are_named() -> None:
    measured = Measured(
        idle={}, flooded={}, late_ms=0, grown_mb=100, descriptors=1, reached=(), missed=["1 of 2 connects/s"],
        errors=["1 connections refused"],
    )  # fmt: skip
    assert problems(measured, 10.0) == [
        "p99 is 10.0 times the idle one",
        "memory grew by 100 MB",
        "1 descriptors left",
        "client: 1 connections refused",
        "did not reach: 1 of 2 connects/s",
    ]
