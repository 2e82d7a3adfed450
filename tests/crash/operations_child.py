"""A broker whose operator moves or removes all messages of a queue, in a process that kills itself at a failpoint.

Its queue is filled, and that is on disk, before the failpoint counts. Then the messages are moved from one queue to the
other and back, again and again, or removed. Standard output has a line for each operation that was reported as done:
its name, the number of messages, and how many were skipped.

With `move once` all of it is in one data file, in batches as small as they get, which a test cuts off at each of them.
"""

import asyncio
import os
import time
from pathlib import Path

from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.operations import EVERY_MESSAGE, Actor, OperationResult
from pybroker.store.journal.appender import JournalSettings, Preallocation
from pybroker.store.journal.store import JournalStore
from tests.crash.failpoints import Failpoints, from_words
from tests.crash.workload import SETTINGS, message
from tests.runtimes import runtime

ONE_FILE = JournalSettings(batch_bytes_max=1, preallocation=Preallocation.NONE)
COUNT = 120
ROUNDS = 6
FROM, TO = queue("FROM"), queue("TO")
ACTOR = Actor("ops", "127.0.0.1")


async def work(directory: Path, act: str, failpoints: Failpoints) -> None:
    loop = asyncio.get_running_loop()
    failures: list[Exception] = []
    store = JournalStore(
        directory,
        settings=ONE_FILE if act == "move once" else SETTINGS,
        runtime=runtime(loop.call_soon, post=loop.call_soon_threadsafe, on_failure=failures.append),
    )
    broker = BrokerCore(
        "b",
        store=store,
        clock=lambda: time.time_ns() // 1_000_000,
        limits=Limits(memory_bytes_max=200_000),
        defer=loop.call_soon,
        monotonic=time.monotonic,
    )
    broker.recover()
    for number in range(1, COUNT + 1):
        broker.send(message(FROM, number, size=number % 5 * 100))
    filled = loop.create_future()
    broker.when_durable(lambda: filled.set_result(None))
    await filled
    failpoints.install()
    for number in range(ROUNDS):
        done = loop.create_future()
        here, there = (FROM, TO) if number % 2 == 0 else (TO, FROM)
        if act in ("move", "move once"):
            broker.operations.move(here, there, EVERY_MESSAGE, ACTOR, done.set_result)
        else:
            broker.operations.remove(FROM, EVERY_MESSAGE, ACTOR, done.set_result)
        result: OperationResult = await done
        if result.error is not None:
            raise result.error
        os.write(1, f"{act} {result.affected} {result.skipped}\n".encode())
        if act != "move":
            break
        store.cleanup()
    store.close()
    await asyncio.sleep(0)
    assert not failures


def main(directory: str, act: str, failpoint: str) -> None:
    """Run; the failpoint is `NAME:ORDINAL`."""
    where = Path(directory)
    asyncio.run(work(where, act, from_words(where, failpoint)))
