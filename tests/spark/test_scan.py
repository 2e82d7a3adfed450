"""The benchmark of Spark's scans, in small: it reads everything, and its figures are of Spark's own processes."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import spark_scan
from benchmarks.journal_generator import generate
from benchmarks.spark_scan import SIX, Process, below, scan, used_since, workers


@pytest.mark.component("java")
def test_a_scan_is_timed_with_the_processes_that_did_it(spark: Any, tmp_path: Path) -> None:
    generate(tmp_path / "kahadb", 300_000)
    seconds, cpu_seconds = scan(spark, tmp_path / "kahadb", SIX, queries=2)
    assert seconds > 0
    assert cpu_seconds > 0
    assert "java" in {each.name for each in below().values()}
    assert max(each.most_bytes for each in workers()) > 20_000_000


def test_ended_processes_do_not_shorten_others_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {1: Process(0, "java", 5.0, 0), 2: Process(1, "python3", 3.0, 0)}
    after = {1: Process(0, "java", 7.0, 0), 3: Process(1, "python3", 0.5, 0)}
    monkeypatch.setattr(spark_scan, "below", lambda: after)
    assert used_since(before) == 2.5
