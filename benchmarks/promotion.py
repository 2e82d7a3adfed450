"""Duration of a take-over and of a cold start with a million messages pending, and with none.

Run from the root of the checkout: `python -m benchmarks.promotion`, with `--activemq` to start a stock one on copies of
the same store.

*Take-over*: two brokers share a store; in each round the master is killed, and a client tries the standby's port again
and again until it is connected. The killed one is then started again as standby, and has read the journal before the
next round. *Cold start*: from the start of the process to the same moment, with the index of an orderly stop, and
without it. What the journal is read from is the page cache, for both brokers.
"""

import argparse
import asyncio
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.driver import PATIENCE_SECONDS, BrokerProcess, connect
from benchmarks.failover import free_port
from benchmarks.fast_fill import write_journal
from benchmarks.report import Report, Row, parser, spread
from benchmarks.side_by_side.brokers import start_activemq
from benchmarks.workload import open_store
from pybroker.store.journal.store_snapshot import SNAPSHOT_NAME

RETRY_SECONDS = 0.0005
SETTLE_SECONDS = 9.0
"""Time between the log line of a standby that is up to date and the kill, so that both members are quiet by then: one
lists long queues, and moving 230 MB into large pages takes each five seconds."""


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--pending", type=int, default=1_000_000, help="messages of 1 KB")
    command_line.add_argument("--rounds", type=int, default=20, help="masters to kill, with and without messages")
    command_line.add_argument("--starts", type=int, default=5, help="cold starts of each kind")
    command_line.add_argument("--activemq", action="store_true", help="start a stock ActiveMQ on the store too")
    options = command_line.parse_args()
    if options.quick:
        options.pending, options.rounds, options.starts = 2_000, 1, 1
    settle_seconds = 0 if options.quick else SETTLE_SECONDS
    report = Report(options)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        directory = Path(folder)
        os.environ["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")  # as installed: compiled once
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        journal = directory / "journal"
        write_journal(journal, options.pending)
        takeovers = [
            measure_takeovers(directory, journal, count, options.rounds, settle_seconds)
            for count in (0, options.pending)
        ]
        report.table("from kill -9 of the master to the standby's first connection, ms", takeovers)
        report.table(
            "cold start: from process start to the first connection, s", cold_starts(directory, journal, options)
        )
    report.finish()


# ---------------------------------------------------------------- take-over


def measure_takeovers(directory: Path, journal: Path, pending: int, rounds: int, settle_seconds: float) -> Row:
    """Kill masters of a store with that many messages."""
    store = directory / f"store-{pending}"
    if pending:
        copy(journal, store / "kahadb")
    silences: list[float] = []
    promotions: list[float] = []
    master = start(store, 0)
    try:
        master.wait_until_listening()
        for number in range(1, rounds + 1):
            port = free_port()
            standby = start(store, number, port)
            try:
                standby.wait_until_standby()
                standby.wait_until_warm()
                time.sleep(settle_seconds)
                begun = time.perf_counter()
                master.kill()
                silences.append((wait_for(port) - begun) * 1000)
                promotions.append(standby.promotion_milliseconds())
            finally:
                master.kill()
                master = standby
    finally:
        master.kill()
    shutil.rmtree(store)
    return {
        "pending": pending,
        "rounds": rounds,
        **spread(silences),
        "from lock to ports": spread(promotions)["median"],
    }


def start(store: Path, number: int, port: int = 0) -> BrokerProcess:
    """Start one member of the pair."""
    return BrokerProcess(store, name=f"member-{number}", port=port, log=store.with_name(f"{store.name}-{number}.log"))


def wait_for(port: int, accept: Callable[[int], socket.socket] = connect) -> float:
    """Return when a broker on that port has accepted a connection."""
    deadline = time.perf_counter() + PATIENCE_SECONDS
    while True:
        try:
            accept(port).close()
        except ConnectionRefusedError:
            if time.perf_counter() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
        else:
            return time.perf_counter()


# ---------------------------------------------------------------- cold start


def cold_starts(directory: Path, journal: Path, options: argparse.Namespace) -> list[Row]:
    """Start brokers on copies of a store, with and without an index."""
    stopped = directory / "stopped"
    copy(journal, stopped / "kahadb")
    asyncio.run(open_and_close(stopped / "kahadb"))  # which leaves an index
    empty = directory / "empty"
    (empty / "kahadb").mkdir(parents=True)
    rows: list[Row] = []
    for what, source, keep in (("no messages", empty, True), ("index", stopped, True), ("no index", stopped, False)):
        seconds = [start_cold(directory, source, keep, number) for number in range(options.starts)]
        rows.append({"broker": "pybroker", "store": what, "starts": options.starts, **spread(seconds)})
    if options.activemq:
        rows += activemq_starts(directory, journal, options.starts)
    return rows


async def open_and_close(journal: Path) -> None:
    """Be the master of a journal for a moment."""
    store = open_store(journal)
    store.recover()
    store.close()


def start_cold(directory: Path, source: Path, keep: bool, number: int) -> float:
    """Return the seconds from the start of a process to its first connection."""
    store = directory / "cold"
    copy(source / "kahadb", store / "kahadb")
    if not keep:
        (store / "kahadb" / SNAPSHOT_NAME).unlink(missing_ok=True)
    port = free_port()
    begun = time.perf_counter()
    broker = start(store, number, port)
    try:
        return wait_for(port) - begun
    finally:
        broker.kill()
        shutil.rmtree(store)


def activemq_starts(directory: Path, journal: Path, starts: int) -> list[Row]:
    """Start a stock ActiveMQ on the store: the first one builds its index, the next ones have it."""
    base = directory / "activemq"
    copy(journal, base / "data" / "kahadb")

    def once(prepare: Callable[[], object]) -> float:
        prepare()
        begun = time.perf_counter()
        with start_activemq(base) as broker:
            seconds = max(wait_for(port, open_port) for port in broker.ports.values()) - begun
            broker.stop()
        return seconds

    def remove_index() -> None:
        for path in (base / "data" / "kahadb").glob("db.*"):
            path.unlink()

    without = [once(remove_index) for _ in range(min(starts, 2))]
    indexed = [once(lambda: None) for _ in range(starts)]
    return [
        {"broker": "ActiveMQ", "store": "index", "starts": len(indexed), **spread(indexed)},
        {"broker": "ActiveMQ", "store": "no index", "starts": len(without), **spread(without)},
    ]


def open_port(port: int) -> socket.socket:
    """Return a connection, once it is accepted."""
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def copy(source: Path, target: Path) -> None:
    """Copy a journal by hard links: brokers write into new files, and replace what they change."""
    target.mkdir(parents=True)
    for path in source.glob("db-*.log"):
        os.link(path, target / path.name)
    if (source / SNAPSHOT_NAME).exists():
        os.link(source / SNAPSHOT_NAME, target / SNAPSHOT_NAME)


if __name__ == "__main__":
    main()
