"""Reading a journal as a table: plain Python, the vectorised decoder, and Spark on one core and on two.

Run from the root of the checkout: `python -m benchmarks.spark_scan --size 2gb`.

The journal is that of `journal_generator`. Three sets of columns are read of all its records:

* six: what most questions about traffic need, none of it inside the message;
* headers: all but bodies and properties;
* all.

"Plain Python" is the reference decoder, a record after the other; it reads the first `SCALAR_BYTES` only. The decoders
run alone on one core, and their figures are processor time, which a busy machine spoils less. Spark's are what passes
on the clock, from the second query of a session on, when Java has warmed up; the rows go to its sink for measurements,
`noop`. "CPU seconds" are those of Java and of the Python workers together, which even on one core run side by side.
A worker's memory is the most that any Python process of Spark had resident, shared libraries included.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.journal_generator import Totals, generate
from benchmarks.report import Report, Row, parser
from pybroker.broker.app.units import parse_size
from pybroker.spark_jobs.java import prepare
from pybroker.store.columns.files import Piece, list_files, plan
from pybroker.store.columns.schema import COLUMNS, DEFAULT_COLUMNS, Layer
from pybroker.store.columns.table import read, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIX = ("file", "offset", "record_type", "destination", "message_id", "size")
HEADERS = tuple(
    each.name for each in COLUMNS if each.layer < Layer.PROPERTIES and not each.on_request and each.name != "job"
)
ALL = tuple(DEFAULT_COLUMNS)
SETS = {"six": SIX, "headers": HEADERS, "all": ALL}

SCALAR_BYTES = 32 << 20
"""What plain Python reads: enough for a steady figure, and it is slow."""
QUERIES = 4
"""Per set of columns and number of cores; the first does not count."""
PIECE_BYTES = 16 << 20
"""Files are read in pieces of about that length, so that two cores have something to do at the end too."""


def main() -> None:
    """Measure and print."""
    options = _options()
    report = Report(options)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        directory = Path(folder) / "kahadb"
        begun = time.process_time()
        totals = generate(directory, options.size)
        seconds = time.process_time() - begun
        report.table("the journal", [_described(totals, seconds)])
        scalar = {name: scalar_rate(directory, columns, options.scalar_bytes) for name, columns in SETS.items()}
        rows = [vector_row(directory, name, totals, scalar[name]) for name in SETS]
        report.table("one core, without Spark", rows)
        report.table("memory of one decoder, all columns", list(memory_rows(options, directory)))
        if options.cores:
            prepare()
            report.table("through Spark", list(spark_rows(directory, options.cores, totals, scalar)))
    report.finish()


def _options() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--size", type=parse_size, help="of the journal; 200mb, or 1mb if --quick")
    made.add_argument("--cores", help="of Spark's local sessions, such as 1,2; none: without Spark, as --quick is")
    options = made.parse_args()
    options.size = options.size or (1_000_000 if options.quick else 200_000_000)
    options.scalar_bytes = 1_000_000 if options.quick else SCALAR_BYTES
    text = options.cores or ("none" if options.quick else "1,2")
    options.cores = [] if text == "none" else [int(each) for each in text.split(",")]
    return options


def _described(totals: Totals, seconds: float) -> Row:
    return {
        "MB": totals.byte_count / 1e6,
        "files": totals.file_count,
        "records": totals.records,
        "bytes per record": totals.byte_count / totals.records,
        "generated MB/s": totals.byte_count / 1e6 / seconds,
    }


# ---------------------------------------------------------------- without Spark


def scalar_rate(directory: Path, columns: Sequence[str], byte_count: int) -> float:
    """Return records per second of processor time, in plain sequential Python."""
    pieces = plan(str(directory), list_files(directory), byte_count)[:1]
    begun = time.process_time()
    count = sum(1 for piece in pieces for _ in read_rows(piece, columns))
    return count / (time.process_time() - begun)


def vector_row(directory: Path, name: str, totals: Totals, scalar: float) -> Row:
    """Read all with the vectorised decoder; say what that makes against plain Python."""
    pieces = plan(str(directory), list_files(directory), PIECE_BYTES)
    list(read(pieces[0], SETS[name]))  # imports, and whatever else is done once
    begun = time.process_time()
    count = sum(batch.num_rows for piece in pieces for batch in read(piece, SETS[name]))
    seconds = time.process_time() - begun
    assert count == totals.records
    return {
        "columns": f"{name} ({len(SETS[name])})",
        "plain Python records/s": scalar,
        "records/s": count / seconds,
        "MB/s": totals.byte_count / 1e6 / seconds,
        "µs per record": seconds / count * 1e6,
        "times plain Python": count / seconds / scalar,
    }


def memory_rows(options: argparse.Namespace, directory: Path) -> Iterator[Row]:
    """Read a data file of the usual size, and one that holds the whole journal, each in a process of its own."""
    yield _memory_row(Piece(str(directory), str(directory / "db-1.log"), 1))
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        generate(Path(folder), options.size, file_bytes_max=2**31 - 1)
        yield _memory_row(Piece(folder, str(Path(folder) / "db-1.log"), 1))


def _memory_row(piece: Piece) -> Row:
    command = [sys.executable, "-c", "from benchmarks.spark_scan import read_alone; read_alone()", piece.path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, most = map(int, done.stdout.split())
    return {
        "file MB": Path(piece.path).stat().st_size / 1e6,
        "with all imported, MB": before / 1e6,
        "most resident, MB": most / 1e6,
    }


def read_alone() -> None:
    """Read the data file that is the program's argument; print the most bytes that were resident, before and after."""
    path = Path(sys.argv[1])
    before = _most_resident(Path("/proc/self/status"))
    for _ in read(Piece(str(path.parent), str(path), 1), ALL):
        pass
    print(before, _most_resident(Path("/proc/self/status")))


# ---------------------------------------------------------------- through Spark


def spark_rows(
    directory: Path, cores: Sequence[int], totals: Totals, scalar: dict[str, float] | None = None
) -> Iterator[Row]:
    """Scan with sessions of so many cores, one after the other in the same Java."""
    seconds: dict[tuple[str, int], float] = {}
    for count in cores:
        with session(count) as spark:
            for name, columns in SETS.items():
                taken, cpu_seconds = scan(spark, directory, columns)
                seconds[name, count] = taken
                row: dict[str, str | int | float] = {
                    "columns": f"{name} ({len(columns)})",
                    "cores": count,
                    "seconds": taken,
                    "rows/s": totals.records / taken,
                    "MB/s": totals.byte_count / 1e6 / taken,
                    "rows/s per core": totals.records / taken / count,
                    "times fewer cores": seconds[name, cores[0]] / taken,
                    "CPU seconds": cpu_seconds,
                    "worker MB": max((each.most_bytes for each in workers()), default=0) / 1e6,
                }
                if scalar is not None:
                    row["per core times plain Python"] = totals.records / taken / count / scalar[name]
                    row["per CPU second times plain Python"] = totals.records / cpu_seconds / scalar[name]
                yield row


@contextlib.contextmanager
def session(cores: int) -> "Iterator[SparkSession]":
    """Give a quiet local session."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName("spark_scan")
    settings = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.ui.showConsoleProgress": "false"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def scan(spark: "SparkSession", directory: Path, columns: Sequence[str], queries: int = QUERIES) -> tuple[float, float]:
    """Read all several times; return the medians of all but the first: seconds, and processor time of all cores."""
    taken: list[float] = []
    used: list[float] = []
    table = spark.read.format("kahadb").option("partitionBytes", str(PIECE_BYTES)).option("columns", ",".join(columns))
    for _ in range(queries):
        begun, used_before = time.perf_counter(), sum(each.cpu_seconds for each in below())
        table.load(str(directory)).write.format("noop").mode("overwrite").save()
        taken.append(time.perf_counter() - begun)
        used.append(sum(each.cpu_seconds for each in below()) - used_before)
    return statistics.median(taken[1:] or taken), statistics.median(used[1:] or used)


# ---------------------------------------------------------------- processes


class Process(NamedTuple):
    """A process, as the kernel shows it.

    Attributes:
        parent: its parent's id.
        name: of its program.
        cpu_seconds: that it and its children that have ended took.
        most_bytes: most memory that was ever resident.
    """

    parent: int
    name: str
    cpu_seconds: float
    most_bytes: int


def below() -> list[Process]:
    """Return all processes that came from this one."""
    found: dict[int, Process] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we looked
            found[int(path.name)] = _process(path)
    mine = {os.getpid()}
    while more := {pid for pid, each in found.items() if each.parent in mine and pid not in mine}:
        mine |= more
    return [found[pid] for pid in mine - {os.getpid()} if pid in found]


def workers() -> list[Process]:
    """Return Spark's Python processes."""
    return [each for each in below() if each.name.startswith("python")]


def _process(path: Path) -> Process:
    name, _, rest = (path / "stat").read_text().partition("(")[2].rpartition(")")
    fields = rest.split()
    ticks = sum(map(int, fields[11:15]))
    return Process(int(fields[1]), name, ticks / os.sysconf("SC_CLK_TCK"), _most_resident(path / "status"))


def _most_resident(status: Path) -> int:
    for line in status.read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0  # a process that has just ended


if __name__ == "__main__":
    main()
