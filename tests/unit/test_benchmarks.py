"""Each benchmark runs: its quick form ends well, prints tables, and writes figures with where they were measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = {
    "accounts",
    "celery_load",
    "compiled",
    "report",
    "workload",
    "driver",
    "fast_fill",
    "growth",
    "in_process",
    "journal_generator",
    "prometheus",
}
OF_OTHER_BROKERS = {"celery_tasks"}
"""Needs RabbitMQ and Redis, which the test suite does not install; what it runs is tested in `tests/kombu`."""
SCRIPTS = sorted({path.stem for path in (ROOT / "benchmarks").glob("*.py")} - SHARED - OF_OTHER_BROKERS)


COMPONENTS = {"replication": [pytest.mark.component("etcd")]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=COMPONENTS.get(name, [])) for name in SCRIPTS])
def test_quick_run_measures_something(name: str, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    arguments = ["--quick", "--json", str(figures), "--directory", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"benchmarks.{name}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = json.loads(figures.read_text())
    assert written["benchmark"] == name
    assert {"cpu", "cores", "kernel", "file system"} <= written["machine"].keys()
    assert written["command"] == f"python -m benchmarks.{name} {' '.join(arguments)}"
    assert written["python"]
    assert written["commit"]
    assert written["tables"]
    for title, rows in written["tables"].items():
        assert title in done.stdout
        cells = [cell for row in rows for cell in row.items()]
        numbers = [value for key, value in cells if not isinstance(value, str) and key != "MB per unit"]  # may shrink
        assert numbers
        assert all(number >= 0 for number in numbers)
        assert any(number > 0 for number in numbers)
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"], "stores are removed"


@pytest.mark.parametrize("name", SCRIPTS)
def test_results_of_a_full_run_are_kept(name: str) -> None:
    """The tables in `benchmarks/README.md` come from files anyone can look into."""
    kept = [json.loads(path.read_text()) for path in (ROOT / "benchmarks" / "results").glob(f"*-{name}.json")]
    assert kept
    for written in kept:
        assert written["benchmark"] == name
        assert "--quick" not in written["command"]
