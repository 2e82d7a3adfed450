"""The whole report: every job over the same journals, on one page; see `report_writer`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from pybroker.spark_jobs.audit import audit
from pybroker.spark_jobs.backlog import backlog
from pybroker.spark_jobs.dead_letters import dead_letters
from pybroker.spark_jobs.failovers import failovers
from pybroker.spark_jobs.history import History, Source
from pybroker.spark_jobs.journal_pins import journal_pins
from pybroker.spark_jobs.queue_report import queue_report
from pybroker.spark_jobs.report_writer import Progress, write_report

_JOBS: Final = {job.__name__: job for job in (queue_report, backlog, dead_letters, journal_pins, failovers, audit)}
"""The jobs in the order of the page."""


def analyze(
    source: Source | History,
    out: Path,
    *,
    spark: SparkSession | None = None,
    jobs: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Run the jobs over journals, and write their report; see `write_report`.

    Args:
        source: one or more directories with data files, or what was already read of them.
        out: the page, or a directory for it.
        spark: a session; by default a new local one, stopped in the end.
        jobs: names of jobs that `DRAWN` has; all of them by default.
        progress: called before each step.

    Raises:
        KeyError: there is no job of that name.
    """
    chosen = list(_JOBS) if jobs is None else jobs
    return write_report(source, out, [_JOBS[name] for name in chosen], spark=spark, progress=progress)
