"""A process that works on a store until it kills itself at a named failpoint: `python -m tests.crash.child …`."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.store import JournalStore
from tests.crash.workload import Workload, written

STEPS = 600


class Failpoints(JournalFiles):
    """File operations that kill the process at the n-th time they come to the named point."""

    def __init__(self, directory: Path, name: str, ordinal: int) -> None:
        super().__init__(directory)
        self._name = name
        self._left = ordinal
        self._creating = False

    def reach(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def create(self, file_id: int, preallocate_bytes: int = 0) -> int:
        self._creating = True
        try:
            return super().create(file_id, preallocate_bytes)
        finally:
            self._creating = False

    def write(self, descriptor: int, buffers: Sequence[bytes], offset: int) -> None:
        if self._creating:
            super().write(descriptor, buffers, offset)
            return
        self.reach("before_batch_write")
        super().write(descriptor, buffers, offset)
        self.reach("after_write_before_sync")

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self.reach("after_sync")

    def remove(self, *paths: Path) -> None:
        self.reach("before_unlink")
        super().remove(*paths)

    def replace(self, file_id: int, content: Sequence[bytes | memoryview]) -> None:
        self.reach("before_replace")
        super().replace(file_id, content)
        self.reach("after_replace")

    def sync_directory(self) -> None:
        if self._creating:
            self.reach("after_create_before_directory_sync")
        super().sync_directory()


async def work(directory: Path, name: str, ordinal: int, seed: int, way: str) -> None:
    """Work, one step per turn of the loop or several, and clean up now and then."""
    loop = asyncio.get_running_loop()
    failures: list[Exception] = []
    store = JournalStore(
        directory,
        settings=written(way),
        files=Failpoints(directory, name, ordinal),
        check=lambda: None,
        call_soon=loop.call_soon,
        post=loop.call_soon_threadsafe,
        on_failure=failures.append,
        clock=lambda: int(time.time() * 1000),
    )
    store.recover()
    workload = Workload(store, lambda line: os.write(1, line.encode() + b"\n") and None, seed)
    workload.begin()
    for step in range(STEPS):
        workload.step()
        if step % 3 == 0:
            await asyncio.sleep(0)
        if step % 20 == 19:
            store.cleanup()
            durable = loop.create_future()
            store.when_durable(lambda durable=durable: durable.set_result(None))
            await durable
    store.close()
    await asyncio.sleep(0)  # what close made durable is told in the next turn
    if failures:
        raise failures[0]


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
