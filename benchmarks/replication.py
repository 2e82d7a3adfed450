"""The cost of a copy on another disk, and what clients feel while a master dies or a new member copies the store.

Run from the root of the checkout: `python -m benchmarks.replication`. It needs Debian's `etcd-server`.

* **Cost.** The same load on a broker by itself and on a replicated pair, both fresh, in turn: ratios of medians. All
  processes share this machine and its disk, so that each message is written and synced twice there. Of a lone send the
  difference is given besides, and what one `fdatasync` of this disk takes.
* **Takeover.** The master is killed with `kill -9`, and a client tries the other member's port again and again until
  that has accepted a message: with the master's guardian, and without, where the others wait for the end of its lease.
* **Catch-up.** A store of `--gigabytes` is copied to an empty member while eight producers and a consumer go on: the
  longest wait for a receipt, and the master's memory. `--gigabytes 0` leaves this out.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.driver import BrokerProcess, Consumer, Loop, Producer
from benchmarks.end_to_end import Scenario, run
from benchmarks.failover import free_port, kill_and_wait
from benchmarks.fast_fill import write_messages
from benchmarks.report import Report, Row, parser, quantile, spread
from benchmarks.workload import messages, send_frame
from examples.private_etcd import private_etcd

SCENARIOS = (
    Scenario(name="1 producer, window 1", count=3_000, window=1),
    Scenario(name="8 producers, window 1", count=12_000, producers=8, window=1),
    Scenario(name="8 producers, window 100", count=40_000, producers=8),
    Scenario(name="8 producers, window 1, 8 consumers", count=12_000, producers=8, window=1, consumers=8),
)
QUICK = (Scenario(name="2 producers, window 1", count=20, producers=2, window=1),)
LOAD = Scenario(name="catch-up", count=100_000_000, producers=8, window=1)
LEASE_SECONDS = 5
TAKEOVERS = ((True, 20), (False, 5))
"""Masters to kill: with a guardian, and without."""
LARGE_BYTES = 100_000
"""Body of the messages that a large store has, so that their number is no part of what is measured."""
READ_SECONDS = 600.0
"""Far more than a first start needs, which reads the whole store twice: for the checksums, and for the messages."""
SYNCS = 500
LOOK_SECONDS = 0.1


class Pair:
    """Replicated members, each with a directory of its own, and their etcd."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._register = f"etcd://127.0.0.1:{free_port()}/bench"

    @contextmanager
    def etcd(self) -> Generator[None]:
        """Run the election store."""
        port = int(self._register.rpartition("/")[0].rpartition(":")[2])
        with private_etcd(self._directory / "etcd", port, free_port()):
            yield

    def start(self, name: str, port: int = 0, lease_seconds: int = LEASE_SECONDS) -> BrokerProcess:
        """Start a member; its listener is on that port, or on a free one."""
        stream = free_port()
        extra = ["--replicate", self._register, "--replicate-lease", f"{lease_seconds}s"]
        extra += ["--replicate-port", str(stream), "--replicate-url", f"127.0.0.1:{stream}"]
        return BrokerProcess(self.store(name), name=name, port=port, log=self._directory / f"{name}.log", extra=extra)

    def store(self, name: str) -> Path:
        """Return the directory of a member's store."""
        return self._directory / name

    def wait_in_sync(self, name: str) -> None:
        """Wait until a member and another one have the same."""
        command = [sys.executable, "-m", "pybroker.broker.app.cli", "status", "--wait", "in-sync=60"]
        subprocess.run([*command, "--store", str(self.store(name))], check=True, capture_output=True)


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--rounds", type=int, default=5, help="runs of each kind of broker")
    command_line.add_argument("--gigabytes", type=float, default=10.0, help="size of the store that is copied")
    options = command_line.parse_args()
    scenarios, rounds, gigabytes, seconds = SCENARIOS, options.rounds, options.gigabytes, 5.0
    takeovers, lease = TAKEOVERS, LEASE_SECONDS
    if options.quick:
        scenarios, rounds, gigabytes, seconds = QUICK, 1, 0.002, 0.2
        takeovers, lease = ((True, 1), (False, 1)), 1
    report = Report(options)
    report.table(
        "with a copy on another disk, and without", [cost(each, rounds, options.directory) for each in scenarios]
    )
    print(f"one fdatasync: median {sync_milliseconds(options.directory):.3f} ms")
    report.table(
        "from kill -9 of the master to the first message that the other member accepts, ms",
        [takeover(options.directory, kills, lease, has_guardian=guarded) for guarded, kills in takeovers],
    )
    if gigabytes:
        with tempfile.TemporaryDirectory(dir=options.directory) as folder:
            report.table("a new member copies the store under load", [catch_up(Path(folder), gigabytes, seconds)])
    report.finish()


def cost(scenario: Scenario, rounds: int, directory: str) -> Row:
    """Run a scenario with and without a copy, in turn."""
    alone: list[Row] = []
    copied: list[Row] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            where = Path(folder)
            with BrokerProcess(where / "store", name="alone", log=where / "log") as broker:
                alone.append(run(scenario, broker, broker.wait_until_listening()))
        with tempfile.TemporaryDirectory(dir=directory) as folder:
            pair = Pair(Path(folder))
            with pair.etcd(), pair.start("a") as master:
                port = master.wait_until_listening()
                with pair.start("b"):
                    pair.wait_in_sync("a")
                    copied.append(run(scenario, master, port))
    without, with_copy = _medians(alone), _medians(copied)
    ratios = [float(b["messages/s"]) / float(a["messages/s"]) for a, b in zip(alone, copied, strict=True)]
    print(f"{scenario.name}: done", flush=True)
    return {
        "load": scenario.name,
        "alone, messages/s": without["messages/s"],
        "copied, messages/s": with_copy["messages/s"],
        "ratio": with_copy["messages/s"] / without["messages/s"],
        "least": min(ratios),
        "most": max(ratios),
        "alone, p50 ms": without["receipt p50 ms"],
        "copied, p50 ms": with_copy["receipt p50 ms"],
        "alone, p99 ms": without["receipt p99 ms"],
        "copied, p99 ms": with_copy["receipt p99 ms"],
    }


def _medians(rows: list[Row]) -> dict[str, float]:
    names = [name for name, cell in rows[0].items() if not isinstance(cell, str)]
    return {name: statistics.median(float(row[name]) for row in rows) for name in names}


def sync_milliseconds(directory: str) -> float:
    """Return what appending a kilobyte and syncing it takes, in the median."""
    found = []
    with tempfile.NamedTemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNCS):
            begun = time.perf_counter()
            file.write(b"x" * 1200)
            os.fdatasync(file.fileno())
            found.append((time.perf_counter() - begun) * 1000)
    return statistics.median(found)


def takeover(directory: str, kills: int, lease_seconds: int, *, has_guardian: bool) -> Row:
    """Kill masters, each of which is started again as the other member; without a guardian that is killed first."""
    silences: list[float] = []
    with tempfile.TemporaryDirectory(dir=directory) as folder, ExitStack() as stack:
        pair = Pair(Path(folder))
        stack.enter_context(pair.etcd())
        master = stack.enter_context(pair.start("a", lease_seconds=lease_seconds))
        master.wait_until_listening()
        for _ in range(kills):
            port = free_port()
            other = stack.enter_context(pair.start("b" if master.name == "a" else "a", port, lease_seconds))
            pair.wait_in_sync(master.name)
            if not has_guardian:
                master.kill_children()
            silences.append(kill_and_wait(master, port) * 1000)
            master = other
    return {
        "guardian": "yes" if has_guardian else "no",
        "lease, s": lease_seconds,
        "kills": kills,
        "least": min(silences),
        **spread(silences),
    }


def catch_up(directory: Path, gigabytes: float, seconds: float) -> Row:
    """Copy a store of that size to a new member while clients send and receive, as they have done for some seconds."""
    pair = Pair(directory)
    write_messages(
        pair.store("a") / "kahadb", messages(int(gigabytes * 1e9) // LARGE_BYTES, LARGE_BYTES), batch_messages=20
    )
    with pair.etcd(), pair.start("a") as master:
        port, loop = master.wait_until_listening(READ_SECONDS), Loop()
        consumer = Consumer(loop, port, LOAD.destination, ack="client-individual")
        frame = send_frame(LOAD.destination, receipt="r")
        producers = [Producer(loop, port, frame, count=LOAD.count, window=1) for _ in range(LOAD.producers)]
        for producer in producers:
            producer.start()
        usual = Watch(master, producers)
        loop.run_until(lambda: usual.looks() and usual.seconds >= seconds)
        before = usual.result()
        with pair.start("b"):
            copying = Watch(master, producers)
            loop.run_until(lambda: copying.looks() and "has caught up" in master.log_text())
            during, took = copying.result(), copying.seconds
        loop.close()
    speed = {"GB": gigabytes, "seconds": took, "MB/s": gigabytes * 1000 / took, "received": consumer.delivered}
    return (
        speed
        | {f"{name} before": cell for name, cell in before.items()}
        | {f"{name} during": cell for name, cell in during.items()}
    )


class Watch:
    """Sends and a master's memory, from now on."""

    def __init__(self, master: BrokerProcess, producers: list[Producer]) -> None:
        self._master = master
        self._producers = producers
        self._sent_before = [len(each.latencies) for each in producers]
        self._begun = self._looked = time.perf_counter()
        self.peak_megabytes = master.resident_bytes() / 1e6

    def looks(self) -> bool:
        """Look at the memory if it is time again, and return True then."""
        now = time.perf_counter()
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        self.peak_megabytes = max(self.peak_megabytes, self._master.resident_bytes() / 1e6)
        return True

    @property
    def seconds(self) -> float:
        """The length of the watch so far."""
        return time.perf_counter() - self._begun

    def result(self) -> dict[str, float]:
        """Return sends in a second, their waits for the receipt in milliseconds, and megabytes."""
        seconds = self.seconds
        pairs = zip(self._sent_before, self._producers, strict=True)
        waits = [each * 1000 for before, producer in pairs for each in producer.latencies[before:]]
        return {
            "sends/s": len(waits) / seconds,
            "p99 ms": quantile(waits, 0.99),
            "longest ms": max(waits),
            "peak MB": self.peak_megabytes,
        }


if __name__ == "__main__":
    main()
