"""Duration of pages and scrapes over HTTP with many queues, and what they cost clients and a take-over.

Run from the root of the checkout: `python -m benchmarks.management`.

*Pages*: a broker has queues with a message each. A page that shows some of them, and the metrics, are asked for when no
earlier answer can be used, so that the broker is asked each time. Meanwhile a client sends a message and waits for its
receipt, again and again: how much longer is its longest wait?
*Take-overs*: as `promotion` without messages, with management that no one uses, that is scraped, and whose port is
flooded with connections and requests, in turns.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from benchmarks.driver import BrokerProcess, connect, read_frame
from benchmarks.failover import free_port
from benchmarks.promotion import wait_for
from benchmarks.report import Report, Row, parser, spread
from pybroker.management.snapshots import STALE_SECONDS

FLOODERS = 4
"""Threads that send requests to each member."""

IDLE_CONNECTIONS = 200
"""Connections to each that send none."""

READ_SECONDS = 10.0
_NICENESS = 10


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--queues", type=int, default=10_000, help="queues with a message each")
    command_line.add_argument("--pages", type=int, default=10, help="pages and scrapes, each when none is kept")
    command_line.add_argument("--rounds", type=int, default=10, help="masters to kill for each kind of load")
    command_line.add_argument("--load", nargs="+", help=argparse.SUPPRESS)
    options = command_line.parse_args()
    if options.load is not None:
        load_members(options.load[0], [int(port) for port in options.load[1:]])
        return
    if options.quick:
        options.queues, options.pages, options.rounds = 100, 1, 1
    report = Report(options)
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        directory = Path(folder)
        report.table(f"pages with {options.queues:,} queues, ms", measure_pages(directory, options))
        report.table(
            "from kill -9 of the master to the standby's first connection, ms", measure_takeovers(directory, options)
        )
    report.finish()


# ---------------------------------------------------------------- pages


def measure_pages(directory: Path, options: argparse.Namespace) -> list[Row]:
    """Ask for pages and metrics while a client sends."""
    management = free_port()
    extra = ("--management", f"127.0.0.1:{management}", "--destinations-max", str(options.queues + 100))
    with BrokerProcess(directory / "pages", name="pages", log=directory / "pages.log", extra=extra) as broker:
        port = broker.wait_until_listening()
        fill(port, options.queues)
        url = f"http://127.0.0.1:{management}"
        read(url, "/live")
        kinds: dict[str, Callable[[], object]] = {
            "nothing": lambda: time.sleep(0.2),
            "page": lambda: read(url, "/api/v1/queues?sort=size&order=desc&page_size=100"),
            "metrics": lambda: read(url, "/metrics"),
        }
        rows: list[Row] = []
        for kind, act in kinds.items():
            took, longest = list[float](), 0.0
            with sending(port) as waits:
                for _ in range(options.pages):
                    time.sleep(0 if options.quick else STALE_SECONDS + 0.5)
                    waits.clear()
                    begun = time.perf_counter()
                    act()
                    took.append((time.perf_counter() - begun) * 1000)
                    longest = max(longest, *waits, 0.0)
            rows.append({"what": kind, **spread(took), "longest wait of the client": longest})
        return rows


def fill(port: int, count: int) -> None:
    """Send a message to each of so many queues."""
    with connect(port) as client:
        for number in range(count):
            client.sendall(f"SEND\ndestination:/queue/TEST.{number:05}\npersistent:true\n\nx\0".encode())
        client.sendall(b"SEND\ndestination:/queue/LAST\nreceipt:1\n\nx\0")
        read_frame(client)


def read(url: str, path: str) -> bytes:
    """Return an answer."""
    with urllib.request.urlopen(url + path, timeout=READ_SECONDS) as answer:
        content: bytes = answer.read()
        return content


@contextlib.contextmanager
def sending(port: int) -> Generator[list[float]]:
    """Have a client send and wait meanwhile; yields its waits in milliseconds."""
    waits: list[float] = []
    ended = threading.Event()

    def send() -> None:
        with connect(port) as client:
            while not ended.is_set():
                begun = time.perf_counter()
                client.sendall(b"SEND\ndestination:/queue/CLIENT\nreceipt:1\n\nx\0")
                read_frame(client)
                waits.append((time.perf_counter() - begun) * 1000)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield waits
    finally:
        ended.set()
        thread.join()


# ---------------------------------------------------------------- take-overs


def measure_takeovers(directory: Path, options: argparse.Namespace) -> list[Row]:
    """Kill masters while management is used in different ways, in turns."""
    loads: dict[str, Callable[[Sequence[int]], contextlib.AbstractContextManager[object]]] = {
        "unused": lambda ports: contextlib.nullcontext(),
        "scraped": scraping,
        "flooded": flooding,
    }
    silences: dict[str, list[float]] = {kind: [] for kind in loads}
    store = directory / "takeovers"
    numbers = iter(range(1_000_000))

    def start(port: int = 0) -> tuple[BrokerProcess, int]:
        number, management = next(numbers), free_port()
        log = directory / f"takeover-{number}.log"
        extra = ("--management", f"127.0.0.1:{management}")
        return BrokerProcess(store, name=f"member-{number}", port=port, log=log, extra=extra), management

    master, managed = start()
    try:
        master.wait_until_listening()
        for _ in range(options.rounds):
            for kind, load in loads.items():
                port = free_port()
                standby, next_managed = start(port)
                try:
                    standby.wait_until_standby()
                    standby.wait_until_warm()
                    for each in (managed, next_managed):
                        read(f"http://127.0.0.1:{each}", "/live")
                    with load((managed, next_managed)):
                        time.sleep(0 if options.quick else 2.0)
                        begun = time.perf_counter()
                        master.kill()
                        silences[kind].append((wait_for(port) - begun) * 1000)
                finally:
                    master.kill()
                    master, managed = standby, next_managed
    finally:
        master.kill()
    return [{"management is": kind, "rounds": options.rounds, **spread(values)} for kind, values in silences.items()]


def scraping(ports: Sequence[int]) -> contextlib.AbstractContextManager[object]:
    """Scrape both members again and again."""
    return _in_process("scrape", ports)


def flooding(ports: Sequence[int]) -> contextlib.AbstractContextManager[object]:
    """Flood both members with requests, and with connections that send none."""
    return _in_process("flood", ports)


@contextlib.contextmanager
def _in_process(load: str, ports: Sequence[int]) -> Generator[None]:
    """Load the members from another process, which gives way to this one, as programs on other machines do."""
    command = [sys.executable, "-m", "benchmarks.management", "--load", load, *map(str, ports)]
    with subprocess.Popen(command, preexec_fn=lambda: os.nice(_NICENESS)) as process:
        try:
            yield
        finally:
            process.kill()


def load_members(load: str, ports: Sequence[int]) -> None:
    """Load the members until killed."""
    path = "/metrics" if load == "scrape" else "/api/v1/overview"
    idle: list[socket.socket] = []
    for port in ports if load == "flood" else ():
        with contextlib.suppress(OSError):
            idle += [socket.create_connection(("127.0.0.1", port)) for _ in range(IDLE_CONNECTIONS)]

    def repeat(port: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                read(f"http://127.0.0.1:{port}", path)

    for port in ports:
        for _ in range(FLOODERS if load == "flood" else 1):
            threading.Thread(target=repeat, args=(port,)).start()


if __name__ == "__main__":
    main()
