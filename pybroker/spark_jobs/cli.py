"""The command line of the jobs: options, and the output of tables.

```console
$ spark-submit pybroker/spark_jobs/backlog.py /mnt/shared --output out --format parquet
$ python -m pybroker.spark_jobs.backlog /mnt/shared
```

`parquet` and `json` (one object per line) write a directory per table; `html` one page for the whole job; without
`--output` the tables are printed.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from pybroker.broker.domain.errors import BrokerError, ConfigError
from pybroker.errors import PybrokerError
from pybroker.spark_jobs.history import Tables
from pybroker.spark_jobs.options import parse
from pybroker.spark_jobs.session import session
from pybroker.store.columns.files import NoJournal, list_files

Option = Callable[[click.Command], click.Command]
"""A decorator that adds an option to a command."""

FORMATS: Final = ("parquet", "json", "html")
SHOWN_ROWS: Final = 40
"""Rows printed of each table."""


def write(tables: Tables, output: Path, form: str) -> None:
    """Write each table into a separate directory, as Parquet or JSON lines; existing files are replaced."""
    for name, table in tables.items():
        writer = table.write.mode("overwrite")
        if form == "parquet":
            writer.parquet(str(output / name))
        else:
            writer.json(str(output / name))


def show(tables: Tables) -> None:
    """Print the beginning of each table."""
    for name, table in tables.items():
        click.echo(name)
        table.show(SHOWN_ROWS, truncate=60)


class Unusable(PybrokerError, click.ClickException):
    """A directory that no job can read: one line, before Spark starts."""

    exit_code = 2


def check(directories: Sequence[str]) -> None:
    """Make sure that there are journals to read, before Spark starts.

    Raises:
        Unusable: one is missing, or holds none; the text names it, and the right kind of path.
    """
    try:
        for directory in parse({"paths": json.dumps(list(directories))}).directories:
            if not list_files(Path(directory), archive=True):
                raise NoJournal("no data file (db-<number>.log) is here yet", Path(directory))
    except ConfigError as error:
        raise Unusable(f"{error}") from error
    except NoJournal as error:
        raise Unusable(f"{error}: name a broker's data directory, or the one with its data files") from error
    except BrokerError as error:
        raise Unusable(str(error)) from error


def command(job: Callable[..., Tables], options: Sequence[Option] = ()) -> click.Command:
    """Return a job's command: directories in, tables out; its own options go to the job by their names."""

    @click.command(name=job.__name__, help=(job.__doc__ or "").partition("\n\n")[0])
    @click.argument("directories", nargs=-1, required=True)
    @click.option("--output", type=click.Path(path_type=Path), help="Where to write; without it, tables are printed.")
    @click.option("--format", "form", type=click.Choice(FORMATS), default="parquet", show_default=True)
    def main(directories: tuple[str, ...], output: Path | None, form: str, **chosen: Any) -> None:
        check(directories)
        if output is not None and form == "html":
            _write_page(job, directories, output)
            return
        tables = job(session(job.__name__, directories), list(directories), **chosen)
        if output is None:
            show(tables)
        else:
            write(tables, output, form)

    for option in reversed(options):
        main = option(main)
    return main


def _write_page(job: Callable[..., Tables], directories: Sequence[str], output: Path) -> None:
    # Only a page needs Altair, which a cluster's driver may not have.
    from pybroker.spark_jobs.report_sections import DRAWN
    from pybroker.spark_jobs.report_writer import write_report

    name = job.__name__
    if name not in DRAWN:
        raise click.UsageError(f"{name} has no page; there are {', '.join(DRAWN)}")
    click.echo(write_report(list(directories), output, [job], spark=session(name, directories)))


def run(job: Callable[..., Tables], options: Sequence[Option] = (), arguments: list[str] | None = None) -> Any:
    """Run a job as a program; what it cannot do is one line, and an exit code that is not 0."""
    try:
        return command(job, options).main(args=arguments, prog_name=job.__name__)
    except BrokerError as error:
        sys.exit(f"{job.__name__}: {error}")
