"""What the jobs' scripts share: options, a session, and where tables go.

```console
$ spark-submit pybroker/spark_jobs/backlog.py /mnt/shared --output out --format parquet
$ python -m pybroker.spark_jobs.backlog /mnt/shared
```

`parquet` and `json` (one object per line) write a directory per table; `html` one page for the whole job; without
`--output` the tables are printed.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import click
from pyspark.sql import DataFrame, SparkSession

from pybroker.broker.domain.errors import BrokerError, ConfigError
from pybroker.spark_jobs.java import prepare
from pybroker.spark_jobs.options import parse
from pybroker.store.columns.files import NoJournal, journal_of, list_files

Tables = Mapping[str, DataFrame]
"""What a job returns: tables by name."""

Option = Callable[[click.Command], click.Command]
"""A decorator that adds an option to a command."""

FORMATS: Final = ("parquet", "json", "html")
SHOWN_ROWS: Final = 40
"""Rows printed of each table."""
LOCAL_MEMORY: Final = "2g"
"""Of a local session, unless Spark's own settings say otherwise."""


SMALL_BYTES: Final = 128 * 1024 * 1024
"""Journals up to here take less time to read than Spark takes to compile what reads them."""

_QUICK: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
"""For small journals: plans are interpreted, Java's second compiler stays out of it, and nothing is cut in parts."""


def session(name: str, source: object = None) -> SparkSession:
    """Return the session: of `spark-submit` if it started us, else a local one on all cores.

    Args:
        name: of the application.
        source: what it is for; directories with little in them get a session that is soon there.
    """
    builder = SparkSession.builder.appName(f"pybroker {name}")
    if "SPARK_ENV_LOADED" not in os.environ:
        prepare()
        builder = (
            builder.master("local[*]")
            .config("spark.driver.memory", LOCAL_MEMORY)
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
        )
        if is_small(source):
            for key, value in _QUICK.items():
                builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def is_small(source: object) -> bool:
    """Tell whether a source is directories that hold little."""
    one = isinstance(source, str) or not isinstance(source, Sequence)
    listed: list[object] = [source] if one else list(cast("Sequence[object]", source))
    paths = [Path(each) for each in listed if isinstance(each, str | Path)]
    size = sum(file.stat().st_size for path in paths for file in journal_of(path).glob("*.log"))
    return 0 < size <= SMALL_BYTES


def write(tables: Tables, output: Path, form: str) -> None:
    """Write each table into a directory of its own, as Parquet or JSON lines; what was there is replaced."""
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


class Unusable(click.ClickException):
    """A directory that no job can read: one line, before Spark starts."""

    exit_code = 2


def check(directories: Sequence[str]) -> None:
    """Make sure that there are journals to read, before Spark starts.

    Raises:
        Unusable: one is not there, or is none; says which, and what to name instead.
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
            _write_page(job.__name__, directories, output)
            return
        tables = job(session(job.__name__, directories), list(directories), **chosen)
        if output is None:
            show(tables)
        else:
            write(tables, output, form)

    for option in reversed(options):
        main = option(main)
    return main


def _write_page(job: str, directories: Sequence[str], output: Path) -> None:
    from pybroker.spark_jobs.report import analyze
    from pybroker.spark_jobs.report_sections import DRAWN

    if job not in DRAWN:
        raise click.UsageError(f"{job} has no page; there are {', '.join(DRAWN)}")
    click.echo(analyze(list(directories), output, spark=session(job, directories), jobs=[job]))


def run(job: Callable[..., Tables], options: Sequence[Option] = (), arguments: list[str] | None = None) -> Any:
    """Run a job as a program; what it cannot do is one line, and an exit code that is not 0."""
    try:
        return command(job, options).main(args=arguments, prog_name=job.__name__)
    except BrokerError as error:
        sys.exit(f"{job.__name__}: {error}")
