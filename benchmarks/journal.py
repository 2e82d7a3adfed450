"""The journal: appends per second and what they cost the event loop, latency of a lone batch, and speed of recovery.

Run from the root of the checkout: `python -m benchmarks.journal`.

Records are those of 1 KB messages with three properties. "Loop µs" is processor time of the event loop's thread per
record, the loop's own turns included: what is left for everything else. At most `UNWRITTEN_BYTES_MAX` wait for the
disk, as in a broker, so that a slow disk slows the appends down.
"""

import asyncio
import itertools
import os
import shutil
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from benchmarks.report import Report, Row, parser, quantile
from benchmarks.workload import QUEUE, durable, fill, messages, open_store
from pybroker.broker.domain.message import Message
from pybroker.store.journal.appender import Appender, JournalSettings, SyncStrategy
from pybroker.store.journal.commands import encode_add_record
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import BATCH_HEADER_BYTES
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.store import JournalStore
from pybroker.store.journal.writer import SWITCH_INTERVAL_SECONDS

UNWRITTEN_BYTES_MAX = 16 << 20
PER_TURN = (1, 10, 100)

Work = Callable[[JournalStore], Awaitable[Row]]


def main() -> None:
    """Measure and print."""
    options = parser(__doc__).parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)  # as a broker does
    report = Report(options)
    report.table("appends, turn after turn of the event loop", list(appends(options)))
    report.table("a lone message: from append to the callback", list(lone_batches(options)))
    report.table("one sync per message against group commit (sync always)", group_commit(options))
    report.table("the fence behind each sync (sync always)", fence(options))
    report.table("recovery", list(recoveries(options)))
    report.finish()


def in_store(options: Namespace, sync: SyncStrategy, work: Work) -> Row:
    """Run a piece of work on a fresh store, on an event loop of its own."""

    async def run(directory: Path) -> Row:
        store = open_store(directory, sync)
        store.recover()
        try:
            return await work(store)
        finally:
            store.close()

    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        return asyncio.run(run(Path(folder)))


# ---------------------------------------------------------------- appending


def appends(options: Namespace) -> Iterator[Row]:
    """Append so many messages in each turn."""
    count = 300 if options.quick else 40_000
    pool = list(messages(count))
    for sync, per_turn in itertools.product(SyncStrategy, PER_TURN):

        async def work(store: JournalStore, per_turn: int = per_turn) -> Row:
            return await append_all(store, pool, per_turn)

        yield {"sync": sync.value, "per turn": per_turn, "messages": count, **in_store(options, sync, work)}


async def append_all(store: JournalStore, pool: list[Message], per_turn: int) -> Row:
    """Append messages and wait for the last to be safe."""
    begun, thread_begun = time.perf_counter(), time.thread_time()
    for start in range(0, len(pool), per_turn):
        for message in pool[start : start + per_turn]:
            store.add(message)
        if store.unwritten_bytes > UNWRITTEN_BYTES_MAX:
            await durable(store)
        else:
            store.when_durable(_nothing)
            await asyncio.sleep(0)
    await durable(store)
    seconds, thread_seconds = time.perf_counter() - begun, time.thread_time() - thread_begun
    return {"appends/s": len(pool) / seconds, "loop µs": thread_seconds / len(pool) * 1e6}


def lone_batches(options: Namespace) -> Iterator[Row]:
    """Append one message at a time, each when the one before is safe."""
    count = 30 if options.quick else 2_000
    pool = list(messages(count))

    async def work(store: JournalStore) -> Row:
        latencies: list[float] = []
        for message in pool:
            begun = time.perf_counter()
            store.add(message)
            await durable(store)
            latencies.append((time.perf_counter() - begun) * 1000)
        return {"p50 ms": quantile(latencies, 0.5), "p99 ms": quantile(latencies, 0.99), "max ms": max(latencies)}

    for sync in SyncStrategy:
        yield {"sync": sync.value, "messages": count, **in_store(options, sync, work)}


def group_commit(options: Namespace) -> list[Row]:
    """Compare a plain loop that writes and syncs each record with 100 messages per turn."""
    count = 50 if options.quick else 3_000
    records = [encode_add_record(message) for message in messages(count)]
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        appender = Appender(JournalFiles(Path(folder)), JournalSettings(), time.monotonic)
        begun = time.perf_counter()
        offset = 0
        for record in records:
            appender.write(1, offset, (record,))
            offset += BATCH_HEADER_BYTES + len(record)
        single = count / (time.perf_counter() - begun)
        appender.close()
    pool = list(messages(count * 10))

    async def work(store: JournalStore) -> Row:
        return await append_all(store, pool, PER_TURN[-1])

    grouped = float(in_store(options, SyncStrategy.ALWAYS, work)["appends/s"])
    return [{"one sync each: messages/s": single, "group commit: messages/s": grouped, "ratio": grouped / single}]


def fence(options: Namespace) -> list[Row]:
    """Time, batch by batch, a short batch's write and sync, and then the check that the journal is still ours."""
    count = 50 if options.quick else 3_000
    writes: list[float] = []
    looks: list[float] = []
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        appender = Appender(JournalFiles(Path(folder)), JournalSettings(), time.monotonic)
        offset = 0
        for message in messages(count):
            record = encode_add_record(message)
            begun = time.perf_counter()
            appender.write(1, offset, (record,))
            written = time.perf_counter()
            appender.require_own()
            looks.append((time.perf_counter() - written) * 1e6)
            writes.append((written - begun) * 1e6)
            offset += BATCH_HEADER_BYTES + len(record)
        appender.close()
    write, look = quantile(writes, 0.5), quantile(looks, 0.5)
    return [{"batches": count, "write and sync p50 µs": write, "fence p50 µs": look, "share": look / (write + look)}]


# ---------------------------------------------------------------- recovery


def recoveries(options: Namespace) -> Iterator[Row]:
    """Replay journals in which nothing, half, and all was consumed; then do all a new master does before it serves."""
    count = 1_000 if options.quick else 100_000
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        directory = Path(folder)
        asyncio.run(fill(directory, messages(count)))
        for share in (0.0, 0.5, 1.0):
            if share:
                asyncio.run(consume(directory, int(count * 0.5)))
            yield timed_recovery(directory, f"{share:.0%}")


def timed_recovery(directory: Path, consumed: str) -> Row:
    """Time both halves of a recovery on a journal whose pages are in memory."""
    logical_bytes = sum(path.stat().st_blocks * 512 for path in directory.glob("db-*.log"))
    begun = time.perf_counter()
    result = replay(directory, StoreState())
    replay_seconds = time.perf_counter() - begun
    assert not result.damages
    records = sum(result.records.values())
    # On hard links: a recovery seals the last file and begins a new one, and the next row wants the journal as it was.
    copy = directory / "copy"
    copy.mkdir()
    for path in directory.glob("db-*.log"):
        os.link(path, copy / path.name)
    begun = time.perf_counter()
    asyncio.run(recover(copy))
    recover_seconds = time.perf_counter() - begun
    shutil.rmtree(copy)
    return {
        "consumed": consumed,
        "records": records,
        "MB": logical_bytes / 1e6,
        "replay records/s": records / replay_seconds,
        "replay MB/s": logical_bytes / 1e6 / replay_seconds,
        "replay s/GB": replay_seconds / logical_bytes * 1e9,
        "whole recovery s": recover_seconds,
    }


async def recover(directory: Path) -> None:
    """Do what a new master does before it opens its ports, and stop as a killed one does."""
    store = open_store(directory)
    store.recover()
    store.abandon()


async def consume(directory: Path, count: int) -> None:
    """Remove the oldest messages, and stop as a killed master does."""
    store = open_store(directory)
    waiting = store.recover().queues[QUEUE]
    for number, message_id in enumerate(waiting[:count], 1):
        store.remove(QUEUE, message_id)
        if number % 1000 == 0:
            await durable(store)
    await durable(store)
    store.abandon()


def _nothing() -> None:
    """Stand for a receipt."""


if __name__ == "__main__":
    main()
