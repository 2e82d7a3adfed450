"""`pybroker analyze`: what it hands to the report, and what it refuses before Java starts."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from pybroker.broker.app import cli
from pybroker.store.journal.format import EOF_MARKER


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], Path]]:
    """Stand in for Java and the report; return the requests for reports."""
    asked: list[tuple[Sequence[str], Path]] = []

    def analyze(places: Sequence[str], output: Path, *, progress: Callable[[int, int, str], None]) -> Path:
        progress(1, 2, "reading")
        asked.append((places, output))
        return output

    report = SimpleNamespace(analyze=analyze)
    monkeypatch.setitem(sys.modules, "pybroker.spark_jobs.report", report)
    monkeypatch.setitem(sys.modules, "pybroker.spark_jobs.java", SimpleNamespace(prepare=lambda: None))
    return asked


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A data directory with a journal in it."""
    journal = tmp_path / "store" / "kahadb"
    journal.mkdir(parents=True)
    (journal / "db-1.log").write_bytes(EOF_MARKER)
    return tmp_path / "store"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["pybroker", "analyze", *map(str, arguments)])
    try:
        cli.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_a_data_directory_and_a_journal_are_both_understood(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reported: list[tuple[Sequence[str], Path]],
    store: Path,
    tmp_path: Path,
) -> None:
    output = tmp_path / "monday.html"
    assert run(monkeypatch, store, store / "kahadb", "--output", output) == 0
    assert reported == [([str(store / "kahadb")], output)], "one journal by two names is read once"
    printed = capsys.readouterr()
    assert printed.out == f"the report is in {output}\n"
    assert printed.err == "[1/2] reading\n"


def test_without_the_extra_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reported: list[tuple[Sequence[str], Path]],
    store: Path,
) -> None:
    def found(name: str) -> object:
        return None if name in ("pyspark", "numpy") else object()

    monkeypatch.setattr(importlib.util, "find_spec", found)
    assert run(monkeypatch, store) == 1
    expected = "pybroker: pyspark, numpy not installed: install pybroker's extra `spark`, see docs/install.md\n"
    assert capsys.readouterr().err == expected
    assert not reported


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: None, "there is no such directory"),
        (lambda path: path.write_text("x"), "this is a file"),
        (lambda path: path.mkdir(), "holds no data file (db-<number>.log) yet"),
        (lambda path: (path / "other").mkdir(parents=True), "no KahaDB journal"),
        (lambda path: (path / "kahadb").mkdir(parents=True), "holds no data file (db-<number>.log) yet"),
    ],
)
def test_directory_without_journal_is_refused_before_java(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reported: list[tuple[Sequence[str], Path]],
    tmp_path: Path,
    make: object,
    expected: str,
) -> None:
    place = tmp_path / "place"
    make(place)  # type: ignore[operator]
    assert run(monkeypatch, place) != 0
    error = capsys.readouterr().err
    assert str(place) in error
    assert expected in " ".join(error.split())
    assert not reported


def test_a_report_needs_a_directory_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reported: list[tuple[Sequence[str], Path]],
    store: Path,
    tmp_path: Path,
) -> None:
    assert run(monkeypatch, store, "--output", tmp_path / "nowhere" / "report.html") == 2
    assert "nowhere is no directory" in " ".join(capsys.readouterr().err.split())
    assert not reported


def test_the_command_line_loads_nothing_of_spark() -> None:
    """A broker must start where the extra is not installed."""
    program = (
        "import sys, pybroker.broker.app.cli; "
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'pandas', 'pybroker.spark_jobs'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
