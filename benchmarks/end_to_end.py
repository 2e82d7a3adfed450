"""Performance of `pybroker start` over STOMP: messages per second, latency, and the broker's cost.

Run from the root of the checkout: `python -m benchmarks.end_to_end`.

One process plays all clients (see `driver`). Every broker and store is fresh, with the default settings: a receipt to
a persistent send means that the message is synced to disk. With a window of 1 a connection waits for each receipt
before it sends again; with 100 it has as many outstanding. CPU is the broker's user and system time, start excluded.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.driver import BrokerProcess, Consumer, Loop, Producer
from benchmarks.report import Report, Row, parser, quantile
from benchmarks.workload import BODY_BYTES, send_frame

LARGE_BYTES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One way to load a broker.

    Attributes:
        name: for the table.
        count: messages sent in all.
        producers: connections that send.
        window: receipts each of them may have outstanding.
        consumers: connections that receive; they share a queue, and each gets all of a topic.
        ack: the consumers' STOMP mode.
    """

    name: str
    count: int
    producers: int = 1
    window: int = 100
    consumers: int = 0
    ack: str = "client-individual"
    destination: str = "/queue/BENCH"
    persistent: bool = True
    body_bytes: int = BODY_BYTES

    @property
    def delivery_count(self) -> int:
        """Number of messages that all consumers together get."""
        return self.count * (self.consumers if self.destination.startswith("/topic/") else min(self.consumers, 1))


SCENARIOS = (
    Scenario(name="persistent send, 1 connection, window 1", count=4_000, window=1),
    Scenario(name="persistent send, 1 connection, window 100", count=40_000),
    Scenario(name="persistent send, 8 connections, window 1", count=16_000, producers=8, window=1),
    Scenario(name="persistent send, 8 connections, window 100", count=40_000, producers=8),
    Scenario(name="non-persistent send, 1 connection, window 100", count=40_000, persistent=False),
    Scenario(name="non-persistent send, 8 connections, window 100", count=40_000, persistent=False, producers=8),
    Scenario(name="persistent send + consume + ack each, 1 to 1, window 1", count=4_000, window=1, consumers=1),
    Scenario(name="persistent send + consume + ack each, 1 to 1", count=40_000, consumers=1),
    Scenario(name="persistent send + consume, ack auto, 1 to 1", count=40_000, consumers=1, ack="auto"),
    Scenario(name="persistent send + consume + ack each, 8 to 8", count=40_000, producers=8, consumers=8),
    Scenario(name="non-persistent send + consume + ack each, 1 to 1", count=40_000, consumers=1, persistent=False),
    Scenario(
        name="topic, non-persistent, 1 to 10", count=8_000, consumers=10, ack="auto",
        destination="/topic/BENCH", persistent=False,
    ),
    Scenario(name="100 KB: persistent send, 1 connection, window 1", count=500, window=1, body_bytes=LARGE_BYTES),
    Scenario(name="100 KB: persistent send, 1 connection, window 10", count=2_000, window=10, body_bytes=LARGE_BYTES),
    Scenario(
        name="100 KB: persistent send + consume + ack each, 1 to 1, window 10", count=2_000, window=10,
        consumers=1, body_bytes=LARGE_BYTES,
    ),
)  # fmt: skip
QUICK = (
    Scenario(name="persistent send + consume + ack each, 1 to 1", count=200, consumers=1),
    Scenario(name="topic, non-persistent, 2 to 10", count=50, producers=2, consumers=10, ack="auto",
             destination="/topic/BENCH", persistent=False),
)  # fmt: skip


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--only", default="", metavar="TEXT", help="scenarios whose name contains this")
    options = command_line.parse_args()
    chosen = [each for each in (QUICK if options.quick else SCENARIOS) if options.only in each.name]
    if not chosen:
        command_line.error(f"no scenario's name contains {options.only!r}")
    report = Report(options)
    rows: list[Row] = []
    for scenario in chosen:
        rows.append(in_fresh_broker(scenario, options.directory))
        print(f"{len(rows)}/{len(chosen)} {scenario.name}", flush=True)
    report.table("STOMP 1.2, text messages with three properties, 1 KB where nothing else is said", rows)
    report.finish()


def in_fresh_broker(scenario: Scenario, directory: str) -> Row:
    """Run a scenario on an empty store; return its row."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        where = Path(folder)
        with BrokerProcess(where / "store", name="bench", log=where / "log") as broker:
            return run(scenario, broker, broker.wait_until_listening())


def run(scenario: Scenario, broker: BrokerProcess, port: int) -> Row:
    """Run a scenario and return its row; it ends when the broker has taken every acknowledgement."""
    loop = Loop()
    frame = send_frame(scenario.destination, scenario.body_bytes, persistent=scenario.persistent, receipt="r")
    consumers = [Consumer(loop, port, scenario.destination, ack=scenario.ack) for _ in range(scenario.consumers)]
    share = scenario.count // scenario.producers
    producers = [Producer(loop, port, frame, count=share, window=scenario.window) for _ in range(scenario.producers)]
    user_before, system_before = broker.cpu_seconds()
    begun = time.perf_counter()
    for producer in producers:
        producer.start()
    loop.run_until(
        lambda: (
            sum(producer.confirmed for producer in producers) == scenario.count
            and sum(consumer.delivered for consumer in consumers) == scenario.delivery_count
        )
    )
    for consumer in consumers:
        consumer.end()
    loop.run_until(lambda: all(consumer.ended for consumer in consumers))
    seconds = time.perf_counter() - begun
    user_after, system_after = broker.cpu_seconds()
    loop.close()
    latencies = [latency for producer in producers for latency in producer.latencies]
    return {
        "scenario": scenario.name,
        "messages": scenario.count,
        "messages/s": scenario.count / seconds,
        "receipt p50 ms": quantile(latencies, 0.5) * 1000,
        "receipt p99 ms": quantile(latencies, 0.99) * 1000,
        "CPU s per 1,000: user": (user_after - user_before) / scenario.count * 1000,
        "system": (system_after - system_before) / scenario.count * 1000,
        "peak MiB": broker.peak_bytes() / 2**20,
    }


if __name__ == "__main__":
    main()
