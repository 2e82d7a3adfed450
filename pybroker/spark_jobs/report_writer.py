"""A report of one job or more: over the same journals, on one page that opens anywhere.

The page is one file: no scripts, nothing loaded from elsewhere, light or dark as the reader's system is.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pybroker import __version__
from pybroker.spark_jobs.history import History, Source, Tables, history_of
from pybroker.spark_jobs.report_page import Section, Tile, page, utc
from pybroker.spark_jobs.report_plots import count
from pybroker.spark_jobs.report_sections import DRAWN
from pybroker.spark_jobs.session import session

TITLE: Final = "Journal report"
PAGE: Final = "report.html"
"""The page's name, where a directory is given for it."""

Progress = Callable[[int, int, str], None]
"""Called before each step with the steps done, the steps in all, and the question of this step."""


def write_report(
    source: Source | History,
    out: Path,
    jobs: Sequence[Callable[..., Tables]],
    *,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Path:
    """Run jobs over journals, and write their report.

    Args:
        source: one or more directories with data files, or what was already read of them.
        out: the page, or a directory for it.
        jobs: whose names `DRAWN` knows.
        spark: a session; by default a new local one, stopped in the end.
        progress: called before each step.

    Returns:
        Where the page is.

    Raises:
        OSError: the page cannot be written.
    """
    steps = [(job, *DRAWN[job.__name__]) for job in jobs]
    count_of_steps = len(steps) + 2
    report_progress = progress or _ignore
    report_progress(0, count_of_steps, "starting Spark")
    running = spark or session("report", source)
    history = history_of(running, source)
    try:
        report_progress(1, count_of_steps, "reading the journal")
        subtitle, tiles = _overview(history)
        sections: list[Section] = []
        for done, (job, what, draw) in enumerate(steps):
            report_progress(done + 2, count_of_steps, what)
            drawn, numbers = draw(job(running, history), history.names)
            sections += drawn
            tiles += numbers
    finally:
        if history is not source:
            history.close()
        if spark is None:
            running.stop()
    target = out if out.suffix == ".html" else out / PAGE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(TITLE, subtitle, tiles, sections, _footer()), encoding="utf-8")
    report_progress(count_of_steps, count_of_steps, "done")
    return target


def _ignore(_done: int, _steps: int, _what: str) -> None:
    """Ignore the progress."""


def _overview(history: History) -> tuple[str, list[Tile]]:
    """Return a sentence about the journals, and the first of the numbers."""
    row = history.records.agg(
        F.count("*").alias("records"),
        F.array_sort(F.collect_set("directory")).alias("directories"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    ).collect()[0]
    where = ", ".join(row.directories) or "no records"
    first, last = (f"{utc(each):%Y-%m-%d %H:%M:%S}" if each else "" for each in (row.first, row.last))
    when = f", {first} to {last} UTC" if first else ""
    return f"{where}{when}", [Tile("records", count(row.records))]


def _footer() -> str:
    now = datetime.now(UTC)
    return f"Made by pybroker {__version__} on {now:%Y-%m-%d %H:%M} UTC. Point at a mark to see what it stands for."
