"""pybroker beside a stock ActiveMQ 5.17 whose messages and lock are in the same PostgreSQL server, turn about.

Run from the root of the checkout: `python -m benchmarks.database [--rows KEY,…] [--scale F] [--json FILE]`.

One private server with PostgreSQL's defaults, a database for each broker, the stock Java client for both. Both commit
to disk before they answer. pybroker is compiled, and measured, as in `benchmarks.side_by_side`. Of the processor time
only the broker's own is counted, not the server's.
"""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.report import Report, parser
from benchmarks.report import Row as TableRow
from benchmarks.side_by_side import brokers, verdict
from benchmarks.side_by_side.__main__ import Bench
from benchmarks.side_by_side.brokers import ACTIVEMQ, ACTIVEMQ_HOME, ACTIVEMQ_OPTIONS, PYBROKER, Broker
from benchmarks.side_by_side.rows import Protocol, Row
from tests.integration.cluster import free_port
from tests.postgres_cluster import PASSWORD, USER, PostgresCluster, the_cluster

ROWS = (
    Row(key="sync-1", title="persistent, synchronous, 1 producer", count=2_000, warm=6_000, least_ratio=1.0),
    Row(key="sync-8", title="persistent, synchronous, 8 producers, 8 consumers", count=6_000, warm=12_000,
        producers=8, consumers=8, least_ratio=2.0),
    Row(key="backlog-8", title="persistent, synchronous, 8 producers, nobody consumes", count=6_000, warm=12_000,
        producers=8, consumers=0, least_ratio=2.0),
    Row(key="transacted", title="persistent, transacted, 100 a commit", count=10_000, warm=20_000, per_commit=100,
        least_ratio=1.0),
)  # fmt: skip
REPETITIONS = 3
QUICK_FACTOR = 0.01
DRIVER_JARS = tuple(Path("/usr/share/java") / name for name in ("postgresql.jar", "activemq-jdbc-store.jar"))


class DatabaseBench(Bench):
    """Brokers on databases of one server."""

    cluster: PostgresCluster

    @contextmanager
    def _broker(self, name: str, row: Row, module: object = None) -> Generator[Broker]:
        """A broker on an empty database, which goes with it."""
        database = self.cluster.create_database()
        with tempfile.TemporaryDirectory(dir=self._directory, prefix=f"{name}-") as folder:
            if name == ACTIVEMQ:
                broker = start_activemq(Path(folder), self.cluster, database.name)
            else:
                extra = ["--store", database.url, *self._extra]
                broker = brokers.start_pybroker(Path(folder), row.protocol, extra=extra, variables=self._variables)
            with broker:
                yield broker
        database.drop()


def start_activemq(directory: Path, cluster: PostgresCluster, database: str) -> Broker:
    """Start a stock ActiveMQ with its messages and its lock in a database."""
    port = free_port()
    configuration = directory / "conf"
    configuration.mkdir()
    shutil.copy(Path(__file__).with_name("activemq.xml"), configuration)
    properties = {
        "activemq.classpath": os.pathsep.join([f"{configuration}/", *map(str, DRIVER_JARS)]),
        "activemq.home": ACTIVEMQ_HOME,
        "activemq.base": directory,
        "activemq.conf": configuration,
        "activemq.data": directory / "data",
        "openwire.port": port,
        "database.port": cluster.port,
        "database.name": database,
        "database.user": USER,
        "database.password": PASSWORD,
    }
    command = ["java", *ACTIVEMQ_OPTIONS, *(f"-D{name}={value}" for name, value in properties.items())]
    command += ["-jar", str(ACTIVEMQ_HOME / "bin" / "activemq.jar")]
    command += ["start", f"xbean:file:{configuration / 'activemq.xml'}"]
    ports = {Protocol.OPENWIRE: port}
    return Broker(ACTIVEMQ, command, ports, log=directory / "log", environment=dict(os.environ))


def main() -> None:
    """Measure, print and write."""
    command_line = parser(__doc__)
    command_line.add_argument("--rows", default="", metavar="KEY,…", help="measure these rows only; empty for all")
    command_line.add_argument("--only", choices=(PYBROKER, ACTIVEMQ), help="measure one broker, for no ratios")
    command_line.add_argument("--repeat", type=int, default=REPETITIONS, metavar="N", help="repetitions")
    command_line.add_argument("--scale", type=float, default=1.0, metavar="F", help="multiplies counts of messages")
    command_line.add_argument("--pure", action="store_true", help="measure pybroker without its compiled modules")
    options = command_line.parse_args()
    options.python, options.profile, options.pybroker = None, None, ""
    options.addition, options.before = None, None
    options.repeat = 1 if options.quick else options.repeat
    keys = options.rows.split(",") if options.rows else [row.key for row in ROWS]
    factor = QUICK_FACTOR if options.quick else options.scale
    figures: list[TableRow] = []
    ratios: list[TableRow] = []
    report = Report(options)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="database-") as folder, ExitStack() as stack:
        bench = DatabaseBench(Path(folder), options, stack)
        bench.cluster = the_cluster()
        for row in [row.scaled(factor) for row in ROWS if row.key in keys]:
            print(f"{row.key}: {row.title}, {row.count:,} messages", flush=True)
            runs = bench.measure(row)
            figures += verdict.figures(row, runs)
            if not options.only:
                ratios.append(verdict.comparison(row, runs))
    report.table("Medians of each broker", figures)
    if ratios:
        report.table("Ratios pybroker / ActiveMQ", ratios)
    report.finish()


if __name__ == "__main__":
    main()
