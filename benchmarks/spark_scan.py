"""Reading a journal as a table: plain Python, the vectorised decoder, and Spark on one core and on two.

Run from the root of the checkout: `python -m benchmarks.spark_scan --size 2gb`. That takes some nine minutes, and
twice the journal's size on disk, below `--directory`, until it ends.

The journal is that of `journal_generator`. Three sets of columns are read of all its records:

* six: what most questions about traffic need, none of it inside the message;
* headers: all but bodies and properties;
* all.

"Plain Python" is the reference decoder, a record after the other; it reads the first `SCALAR_BYTES` only. Both decoders
run alone on one core, and their figures are processor time, which a busy machine spoils less.

A session of Spark has a process of its own, with everything in it, Java, its compilers and the workers, held to as many
cores as the session is configured to use: otherwise a session of one core would use two, Java on one and Python on the
other. It reads part of the journal first, so that Java has warmed up; the rows go to Spark's sink for measurements,
`noop`.
Java and Python talk over local sockets, as docs/spark-setup.md advises for long scans.
"Per core" is per second of processor time, of Java and of the Python workers together, as it is for plain Python; on an
idle machine the clock shows nearly the same. How much faster two cores are than one is what passes on the clock.
A worker's memory is the most that any Python process of Spark had resident, shared libraries included.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.journal_generator import Totals, generate
from benchmarks.report import Report, Row, parser
from pybroker.spark_jobs.java import prepare
from pybroker.store.columns.files import Piece, list_files, plan
from pybroker.store.columns.schema import COLUMNS, DEFAULT_COLUMNS, Layer
from pybroker.store.columns.table import read, read_rows
from pybroker.store.journal.format import FILE_BYTES_MAX
from pybroker.units import parse_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIX = ("file", "offset", "record_type", "destination", "message_id", "size")
HEADERS = tuple(
    each.name for each in COLUMNS if each.layer < Layer.PROPERTIES and not each.on_request and each.name != "job"
)
ALL = tuple(DEFAULT_COLUMNS)
SETS = {"six": SIX, "headers": HEADERS, "all": ALL}

SCALAR_BYTES = 32 << 20
"""Bytes that plain Python reads: enough for a steady figure, and it is slow."""
PASSES = 3
"""Of both decoders alike, and the fastest counts: what else the machine does can only make one slower."""
WARM_BYTES = 100 << 20
"""Bytes that a session reads before anything counts."""
QUERIES = 3
"""Number of times Spark reads the journal for a set of columns and a number of cores; the median counts."""
PIECE_BYTES = 16 << 20
"""Spark reads files in pieces of about that length, so that two cores have something to do at the end too."""

DECODER_TARGETS = {"six": 8.0, "all": 4.0}
"""Times plain Python, per set of columns."""
SPARK_TARGET = 2.0
"""Times plain Python, per core, for every set of columns."""
SCALING_TARGET = 1.6
"""Of two cores over one, on the clock."""
MEMORY_TARGET = 1.25
"""Memory limit for a data file of the whole journal, over one of the usual size."""
SPACE = 2.2
"""Of the journal's size: what has to be free on disk."""


def main() -> None:
    """Measure and print."""
    if len(sys.argv) > 1 and sys.argv[1] == SESSION:
        session_alone(Path(sys.argv[2]), int(sys.argv[3]))
        return
    options = _options()
    _check_space(options)
    report = Report(options)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        directory = Path(folder) / "kahadb"
        _report_progress(f"generating {options.size / 1e6:,.0f} MB in {folder}")
        begun = time.process_time()
        totals = generate(directory, options.size)
        seconds = time.process_time() - begun
        report.table("the journal", [_described(totals, seconds)])
        _report_progress(f"reading {options.scalar_bytes / 1e6:,.0f} MB of it in plain Python")
        scalar = {name: scalar_rate(directory, columns, options.scalar_bytes) for name, columns in SETS.items()}
        _report_progress("reading all of it with the vectorised decoder")
        rows = [vector_row(directory, name, totals, scalar[name]) for name in SETS]
        report.table("one core, without Spark", rows)
        _report_progress("reading all of it in one data file, for the memory it takes")
        memory = list(memory_rows(options, directory))
        report.table("memory of one decoder, all columns", memory)
        spark: list[Row] = []
        if options.cores:
            spark = list(spark_rows(directory, options.cores, totals, scalar))
            report.table("through Spark", spark)
        report.table("verdict", verdicts(rows, memory, spark))
    report.finish()


def _report_progress(what: str) -> None:
    """Print how far it has come."""
    print(f"[{time.strftime('%H:%M:%S')}] {what}", file=sys.stderr, flush=True)


def _check_space(options: argparse.Namespace) -> None:
    free = shutil.disk_usage(options.directory).free
    if free < options.size * SPACE:
        raise SystemExit(
            f"{options.directory} has {free / 1e6:,.0f} MB free, where {options.size * SPACE / 1e6:,.0f} MB are wanted:"
            " name another directory with --directory, or a smaller --size"
        )


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
    (piece, *_) = plan(str(directory), list_files(directory), byte_count)
    rates: list[float] = []
    for _ in range(PASSES):
        begun = time.process_time()
        count = sum(1 for _ in read_rows(piece, columns))
        rates.append(count / (time.process_time() - begun))
    return max(rates)


def vector_row(directory: Path, name: str, totals: Totals, scalar: float) -> Row:
    """Read all with the vectorised decoder; return the ratio to plain Python."""
    pieces = plan(str(directory), list_files(directory), None)
    list(read(pieces[0], SETS[name]))  # imports, and whatever else is done once
    taken: list[float] = []
    for _ in range(PASSES):
        begun = time.process_time()
        count = sum(batch.num_rows for piece in pieces for batch in read(piece, SETS[name]))
        taken.append(time.process_time() - begun)
        assert count == totals.records
    count, seconds = totals.records, min(taken)
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

SESSION = "--session"
"""Begins the arguments of the process that a session has to itself."""


class Scan(NamedTuple):
    """One set of columns, read of the whole journal.

    Attributes:
        name: of the set.
        seconds: on the clock, the median of some queries.
        cpu_seconds: of Java and the workers, likewise.
        worker_bytes: the most that a Python process had resident.
    """

    name: str
    seconds: float
    cpu_seconds: float
    worker_bytes: int


def spark_rows(directory: Path, cores: Sequence[int], totals: Totals, scalar: Mapping[str, float]) -> Iterator[Row]:
    """Scan with sessions of so many cores, one after the other."""
    seconds: dict[tuple[str, int], float] = {}
    for count in cores:
        for each in _scans(directory, count):
            seconds[each.name, count] = each.seconds
            yield {
                "columns": f"{each.name} ({len(SETS[each.name])})",
                "cores": count,
                "seconds": each.seconds,
                "rows/s": totals.records / each.seconds,
                "MB/s": totals.byte_count / 1e6 / each.seconds,
                "rows/s per core": totals.records / each.seconds / count,
                "times fewer cores": seconds[each.name, cores[0]] / each.seconds,
                "CPU seconds": each.cpu_seconds,
                "worker MB": each.worker_bytes / 1e6,
                "per core times plain Python": totals.records / each.cpu_seconds / scalar[each.name],
            }


def _scans(directory: Path, cores: int) -> Iterator[Scan]:
    """Have a process of its own scan with a session, and yield its output, line by line."""
    command = [sys.executable, "-m", "benchmarks.spark_scan", SESSION, str(directory), str(cores)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("["):
                yield Scan(*json.loads(line))
    if process.returncode:
        raise SystemExit(f"the session of {cores} cores ended with status {process.returncode}")


def session_alone(directory: Path, cores: int) -> None:
    """Scan with one session on so many cores, and print a line per set of columns."""
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, available[-cores:])
    prepare()
    with session(cores) as spark, tempfile.TemporaryDirectory(dir=directory.parent) as folder:
        part = Path(folder)
        for file in sorted(list_files(directory).values())[: max(1, WARM_BYTES // FILE_BYTES_MAX)]:
            (part / file.name).hardlink_to(file)
        what = f"with Spark on {cores} of {len(available)} cores"
        _report_progress(f"warming up {what}")
        scan(spark, part, ALL, 2)
        for name, columns in SETS.items():
            _report_progress(f"{name} columns {what}: warming up")
            scan(spark, part, columns, 2)
            _report_progress(f"{name} columns {what}: {QUERIES} times")
            seconds, cpu_seconds = scan(spark, directory, columns, QUERIES)
            most = max((each.most_bytes for each in workers()), default=0)
            print(json.dumps(Scan(name, seconds, cpu_seconds, most)), flush=True)


@contextlib.contextmanager
def session(cores: int) -> "Generator[SparkSession]":
    """Give a quiet local session."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName("spark_scan")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        # By default one core has another collector than two, and that of two works beside the queries.
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        # Over TCP a task waits 40 ms and more for acknowledgements that the kernel delays, with both cores idle.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def scan(spark: "SparkSession", directory: Path, columns: Sequence[str], queries: int) -> tuple[float, float]:
    """Read all several times; return the medians: seconds, and processor time of all cores."""
    taken: list[float] = []
    used: list[float] = []
    table = spark.read.format("kahadb").option("partitionBytes", str(PIECE_BYTES)).option("columns", ",".join(columns))
    for _ in range(queries):
        begun, before = time.perf_counter(), below()
        table.load(str(directory)).write.format("noop").mode("overwrite").save()
        taken.append(time.perf_counter() - begun)
        used.append(used_since(before))
    return statistics.median(taken), statistics.median(used)


# ---------------------------------------------------------------- verdict


def verdicts(decoder: Sequence[Row], memory: Sequence[Row], spark: Sequence[Row]) -> list[Row]:
    """Return a line per target: what was measured, the target, and the verdict."""
    found = [
        _at_least(f"vectorised decoder over plain Python, {row['columns']} columns", row["times plain Python"], target)
        for name, target in DECODER_TARGETS.items()
        for row in decoder
        if str(row["columns"]).startswith(name)
    ]
    usual, large = (float(row["most resident, MB"]) for row in memory)
    found.append(
        {
            "what": "memory of one large data file over the usual one",
            "measured": large / usual,
            "target": f"<= {MEMORY_TARGET}",
            "verdict": _word(reached=large / usual <= MEMORY_TARGET),
        }
    )
    fewest = min((int(row["cores"]) for row in spark), default=0)
    for row in spark:
        what = f"Spark, {row['columns']} columns, cores: {row['cores']}"
        if row["cores"] == fewest:
            found.append(
                _at_least(f"{what}; per core, over plain Python", row["per core times plain Python"], SPARK_TARGET)
            )
        elif (fewest, row["cores"]) == (1, 2):
            found.append(_at_least(f"{what}; over one core, on the clock", row["times fewer cores"], SCALING_TARGET))
    return found


def _at_least(what: str, measured: str | int | float, target: float) -> Row:
    return {
        "what": what,
        "measured": measured,
        "target": f">= {target:g}",
        "verdict": _word(reached=float(measured) >= target),
    }


def _word(*, reached: bool) -> str:
    return "pass" if reached else "FAIL"


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


def used_since(before: Mapping[int, Process]) -> float:
    """Return the processor time that the processes below took since then.

    Spark ends workers that had nothing to do for a minute; what they took earlier must not be taken off.
    """
    return sum(each.cpu_seconds - (before[pid].cpu_seconds if pid in before else 0.0) for pid, each in below().items())


def below() -> dict[int, Process]:
    """Return all processes that came from this one, by their ids."""
    found: dict[int, Process] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we looked
            found[int(path.name)] = _process(path)
    mine = {os.getpid()}
    while more := {pid for pid, each in found.items() if each.parent in mine and pid not in mine}:
        mine |= more
    return {pid: found[pid] for pid in mine - {os.getpid()} if pid in found}


def workers() -> list[Process]:
    """Return Spark's Python processes."""
    return [each for each in below().values() if each.name.startswith("python")]


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
