# mypy: disable-error-code="misc"
"""A process that works on a store until it kills itself at a named failpoint, or its disk fails there.

It writes its ledger to standard output: a line for each promise as it is made, and `failed` on a failure of
the store. The names of reached failpoints go to `DIRECTORY/../reached`, one a line.
"""

import asyncio
import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path

from pybroker.broker.domain.errors import StoreError
from pybroker.store.journal.store import JournalStore
from tests.crash.failpoints import Failpoints, from_words
from tests.crash.workload import Workload, written
from tests.runtimes import runtime

STEPS = 600
RESERVE_BYTES = 8192


async def work(directory: Path, failpoints: Failpoints, seed: int, way: str) -> None:
    """Work, one step per turn of the loop or several, and clean up now and then."""
    loop = asyncio.get_running_loop()
    failures: list[Exception] = []

    def report(line: str) -> None:
        os.write(1, line.encode() + b"\n")

    def failed(error: Exception) -> None:
        failures.append(error)
        report("failed")

    archive = directory / "data-archive" if seed % 2 else None
    store = JournalStore(
        directory,
        settings=replace(written(way), reserve_bytes=RESERVE_BYTES, archive_directory=archive),
        runtime=runtime(
            loop.call_soon, post=loop.call_soon_threadsafe, on_failure=failed, clock=lambda: int(time.time() * 1000)
        ),
    )
    failpoints.install()
    store.recover()
    workload = Workload(store, report, seed)
    workload.begin()
    for step in range(STEPS):
        with contextlib.suppress(StoreError) if failures else contextlib.nullcontext():
            workload.step()
        if step % 3 == 0:
            await asyncio.sleep(0)
        if step % 20 == 19 and not failures:
            store.cleanup()
            durable = loop.create_future()
            store.when_durable(lambda durable=durable: durable.set_result(None))
            while not (durable.done() or failures):  # noqa: ASYNC110 (whichever comes first)
                await asyncio.sleep(0)
    if failures:
        store.abandon()
    else:
        store.close()
    await asyncio.sleep(0)  # what close made durable is confirmed in the next turn


def main(directory: str, failpoint: str, seed: str, way: str) -> None:
    """Run; the failpoint is `NAME:ORDINAL[:ERRNO]`."""
    where = Path(directory)
    points = from_words(where, failpoint)
    asyncio.run(work(where, points, int(seed), way))
    where.with_name("reached").write_text(
        "".join(f"{name} {count}\n" for name, count in sorted(points.reached.items()))
    )
