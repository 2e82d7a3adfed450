"""Time without service: from `kill -9` of the master to the first message its standby accepts.

Run from the root of the checkout: `python -m benchmarks.failover`.

Two brokers share a store; in each round the master is killed and started again as standby. A client tries
the standby's port again and again, and ends the round with the receipt to a persistent message: the standby has noticed
the death, won and stamped the lock, read the journal, opened its ports, and synced the message to disk.
"""

import asyncio
import socket
import tempfile
import time
from pathlib import Path

from benchmarks.driver import PATIENCE_SECONDS, RECEIPT, BrokerProcess, connect, read_frame
from benchmarks.report import Report, Row, parser, spread
from benchmarks.workload import fill, messages, send_frame

BACKLOGS = (0, 10_000, 100_000)
RETRY_SECONDS = 0.0005
SETTLE_SECONDS = 0.3
"""Time between a standby's log line that it waits and the kill: it still warms up, and then begins to wait."""
FRAME = send_frame("/queue/FIRST", receipt="r")


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--rounds", type=int, default=15, help="masters to kill per size of backlog")
    options = command_line.parse_args()
    rounds, backlogs = (1, BACKLOGS[:1]) if options.quick else (options.rounds, BACKLOGS)
    report = Report(options)
    rows: list[Row] = []
    for backlog in backlogs:
        with tempfile.TemporaryDirectory(dir=options.directory) as folder:
            rows.append(measure(Path(folder), backlog, rounds))
    report.table("from kill -9 to the first accepted persistent message, ms", rows)
    report.finish()


def measure(directory: Path, backlog: int, rounds: int) -> Row:
    """Kill masters of a store with that many messages of 1 KB waiting."""
    store = directory / "store"
    if backlog:
        asyncio.run(fill(store / "kahadb", messages(backlog)))
    silences: list[float] = []
    promotions: list[float] = []
    master = start(directory, 0)
    try:
        master.wait_until_listening()
        for number in range(1, rounds + 1):
            port = free_port()
            standby = start(directory, number, port)
            try:
                standby.wait_until_standby()
                time.sleep(SETTLE_SECONDS)
                silences.append(kill_and_wait(master, port) * 1000)
                promotions.append(standby.promotion_milliseconds())
            finally:
                master.kill()
                master = standby
    finally:
        master.kill()
    promotion = spread(promotions)["median"]
    return {"backlog": backlog, "rounds": rounds, **spread(silences), "of it from lock to ports (median)": promotion}


def start(directory: Path, number: int, port: int = 0) -> BrokerProcess:
    """Start one member of the pair."""
    name = f"member-{number}"
    return BrokerProcess(directory / "store", name=name, port=port, log=directory / f"{name}.log")


def kill_and_wait(master: BrokerProcess, port: int) -> float:
    """Kill the master; return the seconds until the standby on that port has accepted a message."""
    begun = time.perf_counter()
    master.kill()
    while True:
        try:
            connection = connect(port)
        except ConnectionRefusedError:
            if time.perf_counter() - begun > PATIENCE_SECONDS:
                raise
            time.sleep(RETRY_SECONDS)
            continue
        with connection:
            connection.sendall(FRAME)
            if (answer := read_frame(connection)) != RECEIPT:
                raise RuntimeError(f"the new master refused: {answer!r}")
        return time.perf_counter() - begun


def free_port() -> int:
    """Return a port no one listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
