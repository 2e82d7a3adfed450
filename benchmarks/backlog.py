"""A long queue: what a message costs in memory that waits, and how fast the queue is filled and consumed.

Run from the root of the checkout: `python -m benchmarks.backlog --messages 1000000`.

A broker's core over a journal, without sockets: 1 KB persistent messages come from one producer and go to one consumer
with a window of 1000, which acknowledges each. First so many of them wait before the first is consumed; then, in a
process of its own, they are taken over as a new master does and consumed; at last the same number goes through a queue
in which never more than 1000 wait. Resident memory is the process's, Python and all.
"""

import asyncio
import tempfile
import time
from argparse import Namespace
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from benchmarks.report import Report, Row, parser
from benchmarks.workload import QUEUE, durable, messages, open_store
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.domain.ports import Delivery
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.store.journal.store import JournalStore

PER_TURN = 50
"""Messages sent or acknowledged in one turn of the event loop: what a busy connection's chunk holds."""

SHORT = 1000


def main() -> None:
    """Measure and print."""
    command_line = parser(__doc__)
    command_line.add_argument("--messages", type=int, default=1_000_000, help="how many wait")
    options = command_line.parse_args()
    count = 2_000 if options.quick else options.messages
    report = Report(options)
    report.table("a queue of 1 KB messages, all of which wait", measure(options, count))
    report.finish()


def measure(options: Namespace, count: int) -> list[Row]:
    """Measure each in a fresh process, so that none has the other's memory."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        for life in (fill_and_leave, take_over, pass_through):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                rows.append(process.submit(life, Path(folder) / "kahadb", count).result())
    return rows


def fill_and_leave(directory: Path, count: int) -> Row:
    """Fill a queue, and stop as a killed master does."""
    return asyncio.run(_fill(directory, count))


def take_over(directory: Path, count: int) -> Row:
    """Take the queue over, and consume it."""
    return asyncio.run(_take_over(directory, count))


def pass_through(directory: Path, count: int) -> Row:
    """Consume as many messages from a queue that stays short."""
    return asyncio.run(_pass_through(directory.with_name("short"), count))


async def _fill(directory: Path, count: int) -> Row:
    before = resident_megabytes()
    store, broker, client = _start(directory)
    begun = time.perf_counter()
    await _send(store, broker, client, count)
    seconds = time.perf_counter() - begun
    row = _row("filled", count, before, loaded_ms=0.0, filled=count / seconds)
    assert broker.queues[QUEUE].pending.count == count
    store.abandon()
    return row


async def _take_over(directory: Path, count: int) -> Row:
    before = resident_megabytes()
    store = open_store(directory)
    recovery = store.recover()
    broker = BrokerCore("bench", store=store, clock=_clock)
    broker.usage.paging.later = asyncio.get_running_loop().call_soon
    begun = time.perf_counter()
    broker.load(recovery)
    loaded_ms = (time.perf_counter() - begun) * 1000
    waiting = resident_megabytes()
    seconds = await _consume(store, broker, broker.connect("c", "c", Throttle()), count)
    assert not store.damages
    store.close()
    row = _row("taken over, consumed", count, before, loaded_ms=loaded_ms, consumed=count / seconds)
    return {**row, "waiting MB": waiting}


async def _pass_through(directory: Path, count: int) -> Row:
    before = resident_megabytes()
    store, broker, client = _start(directory)
    seconds = 0.0
    for _ in range(0, count, SHORT):
        await _send(store, broker, client, SHORT)
        seconds += await _consume(store, broker, client, SHORT)
    store.close()
    return _row(f"{SHORT} at a time", count, before, loaded_ms=0.0, consumed=count / seconds)


def _row(queue: str, count: int, before: float, *, loaded_ms: float, filled: float = 0, consumed: float = 0) -> Row:
    return {
        "queue": queue,
        "messages": count,
        "empty MB": before,
        "waiting MB": resident_megabytes(),
        "load ms": loaded_ms,
        "filled/s": filled,
        "consumed/s": consumed,
    }


def _start(directory: Path) -> tuple[JournalStore, BrokerCore, BrokerConnection]:
    store = open_store(directory)
    broker = BrokerCore("bench", store=store, clock=_clock)
    broker.usage.paging.later = asyncio.get_running_loop().call_soon
    broker.recover()
    return store, broker, broker.connect("c", "c", Throttle())


async def _send(store: JournalStore, broker: BrokerCore, client: BrokerConnection, count: int) -> None:
    wanted = messages(count)
    while chunk := list(islice(wanted, PER_TURN)):
        for message in chunk:
            client.send(message)
        if broker.is_behind:
            await durable(store)
        else:
            store.when_durable(_nothing)
            await asyncio.sleep(0)
    await durable(store)


async def _consume(store: JournalStore, broker: BrokerCore, client: BrokerConnection, count: int) -> float:
    """Consume that many; return how long it took, in seconds."""
    unsettled: deque[Delivery] = deque()
    left = count
    begun = time.perf_counter()
    consumer = client.subscribe(ConsumerRequest(destination=QUEUE, prefetch=1000), unsettled.append)
    consumer.start()
    while left:
        for _ in range(min(PER_TURN, len(unsettled))):
            consumer.acknowledge(unsettled.popleft())
            left -= 1
        if broker.is_behind:
            await durable(store)
        await asyncio.sleep(0)
    await durable(store)
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


class Throttle:
    """A connection without backpressure: the benchmark itself waits when the disk is behind."""

    peer = "127.0.0.1:50312"

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def hold_input(self) -> None:
        """Do nothing, as above."""

    def give_up(self, error: Exception) -> None:
        """Fail."""
        raise error

    def release_input(self) -> None:
        """Do nothing, as above."""


def resident_megabytes() -> float:
    """Return what of this process is in memory, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def _clock() -> int:
    return time.time_ns() // 1_000_000


def _nothing() -> None:
    """Stand for a receipt."""


if __name__ == "__main__":
    main()
