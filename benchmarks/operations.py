"""Operations on a long queue: messages per second, the longest turn of the event loop, the longest piece of the work.

Run from the root of the checkout: `python -m benchmarks.operations --count 1000000`.

The queue has persistent messages of 1 KB, which the journal holds and memory does not, as after a take-over. The broker
has no clients meanwhile, so a turn has up to 5 ms of deferred work, piece after piece; a client would wait for a turn.
Pieces are measured in processor time, turns in elapsed time, in which other processes of the machine are too.
"""

import asyncio
import gc
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.fast_fill import write_journal
from benchmarks.report import Report, Row, parser, quantile
from benchmarks.workload import QUEUE
from pybroker.broker.app.machine import MACHINE
from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.operations import EVERY_MESSAGE, Actor, MessagePage, MessageSelection, PageLimits
from pybroker.store.journal.appender import JournalSettings, SyncStrategy
from pybroker.store.journal.store import JournalStore
from pybroker.store.journal.writer import SWITCH_INTERVAL_SECONDS
from pybroker.store.runtime import StoreRuntime
from pybroker.transports.turn import Turn

ACTOR = Actor("bench", "127.0.0.1")
TARGET = queue("BENCH.TARGET")
MEMORY_BYTES_MAX = 256 << 20

Begin = Callable[[BrokerCore, Callable[[Any], None]], object]


def main() -> None:
    """Measure and print."""
    options = _parser().parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)  # as a broker does
    report = Report(options)
    count = 300 if options.quick else options.count
    rows = [measure(options, count, name) for name in OPERATIONS if not options.only or name in options.only]
    report.table(f"operations on {count} persistent messages of 1 KB, journal, sync {options.sync}", rows)
    report.finish()


def _parser() -> Any:
    made = parser(__doc__)
    made.add_argument("--count", type=int, default=100_000, help="messages of the queue")
    made.add_argument("--sync", default="always", choices=[each.value for each in SyncStrategy])
    made.add_argument("--only", nargs="*", help="names of operations")
    return made


OPERATIONS: dict[str, Begin] = {
    "count": lambda broker, done: broker.operations.count(QUEUE, EVERY_MESSAGE, done),
    "count by selector": lambda broker, done: broker.operations.count(
        QUEUE, MessageSelection(selector="order = '4711'"), done
    ),
    "purge": lambda broker, done: broker.operations.remove(QUEUE, EVERY_MESSAGE, ACTOR, done),
    "remove by selector": lambda broker, done: broker.operations.remove(
        QUEUE, MessageSelection(selector="order = '4711'"), ACTOR, done
    ),
    "move": lambda broker, done: broker.operations.move(QUEUE, TARGET, EVERY_MESSAGE, ACTOR, done),
    "copy": lambda broker, done: broker.operations.copy(QUEUE, TARGET, EVERY_MESSAGE, ACTOR, done),
    "browse by selector, no match": lambda broker, done: broker.operations.browse(
        QUEUE, -1, PageLimits(seconds=1e6), "order = '0'", done
    ),
    "browse all, pages of 100": lambda broker, done: _browse_all(broker, done),
    "one page of 100 at the end": lambda broker, done: broker.operations.browse(
        QUEUE, broker.queues[QUEUE].next_sequence - 101, PageLimits(), None, done
    ),
    "one message by id, the last": lambda broker, done: broker.operations.message(QUEUE, "none:1:1:1", done),
}


def _browse_all(broker: BrokerCore, done: Callable[[Any], None]) -> None:
    def got(page: Any) -> None:
        assert isinstance(page, MessagePage), page
        if page.messages:
            broker.operations.browse(QUEUE, page.cursor, PageLimits(), None, got)
        else:
            done(page)

    broker.operations.browse(QUEUE, -1, PageLimits(), None, got)


def measure(options: Namespace, count: int, name: str) -> Row:
    """Measure one operation on a fresh store."""
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        return asyncio.run(_measure(Path(folder), count, name, SyncStrategy(options.sync)))


async def _measure(directory: Path, count: int, name: str, sync: SyncStrategy) -> Row:
    write_journal(directory, count)
    loop = asyncio.get_running_loop()
    turn = Turn(loop)
    store = JournalStore(
        directory,
        settings=JournalSettings(sync=sync),
        runtime=StoreRuntime(
            call_soon=turn.commit,
            call_later=loop.call_later,
            post=turn.post,
            give_way=turn.give_way,
            fence=lambda: None,
            on_failure=_fail,
            clock=MACHINE.clock,
            monotonic=MACHINE.monotonic,
        ),
    )
    pieces: list[float] = []

    def defer(piece: Callable[[], None]) -> None:
        def timed() -> None:
            begun = time.thread_time()
            piece()
            pieces.append(time.thread_time() - begun)

        turn.defer(timed)

    broker = BrokerCore(
        "bench",
        store=store,
        clock=MACHINE.clock,
        limits=Limits(memory_bytes_max=MEMORY_BYTES_MAX),
        defer=defer,
        monotonic=MACHINE.monotonic,
    )
    store.on_readable = broker.remove_expired
    gc.disable()
    broker.recover()
    gc.freeze()
    gc.enable()
    store.cleanup()
    await asyncio.sleep(0.1)
    ended = loop.create_future()
    turn.lag.longest = 0.0
    turn.lag._turns.clear()
    begun = time.perf_counter()
    OPERATIONS[name](broker, ended.set_result)
    result = await ended
    seconds = time.perf_counter() - begun
    lag = turn.longest()
    if (error := getattr(result, "error", None)) is not None:
        raise error
    store.abandon()
    return {
        "operation": name,
        "messages": getattr(result, "affected", getattr(result, "examined", 0)),
        "seconds": seconds,
        "messages/s": count / seconds,
        "longest turn ms": lag.seconds * 1000,
        "p99 of pieces ms": quantile(pieces or [0.0], 0.99) * 1000,
        "longest piece ms": max(pieces, default=0.0) * 1000,
        "its turn": lag.cause,
    }


def _fail(error: Exception) -> None:
    raise error


if __name__ == "__main__":
    main()
