"""A TCP proxy of the loopback that is a bad network: it delays, stalls, slows down, and loses what one side says.

Each direction is on its own. Bytes keep their order. What is delayed or stalled arrives later, though its sender may
have hung up meanwhile: it was sent. What is lost takes everything behind it on its connection with it.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Self

_CHUNK_BYTES: Final = 4096
_WAITING_CHUNKS: Final = 64
"""What the network holds for a slow receiver: then the sender has to wait."""


def _nothing() -> float:
    return 0.0


def _never() -> bool:
    return False


class Direction:
    """The conditions in one direction. To be changed from the test's thread, at any time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.delay: Callable[[], float] = _nothing
        """Returns for how many seconds the next bytes are held."""
        self.loses: Callable[[], bool] = _never
        """Returns True if the next bytes are lost."""
        self.bytes_per_second = 0.0
        """The most that pass; 0: any number."""
        self.passed = self.lost = 0
        """Bytes that have passed, and that were lost."""
        self.open = asyncio.Event()
        """Set while bytes pass."""
        self.open.set()
        self._loop = loop

    def stall(self) -> None:
        """Let nothing pass from now on."""
        self._loop.call_soon_threadsafe(self.open.clear)

    def flow(self) -> None:
        """Let everything pass, what was held first."""
        self._loop.call_soon_threadsafe(self.open.set)


class LinkProxy:
    """Listens on a port of its own, until closed. One thread moves all bytes.

    Attributes:
        port: where clients connect.
        forth: from clients to the server.
        back: from the server to clients.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.forth, self.back = Direction(self._loop), Direction(self._loop)
        self._thread = threading.Thread(target=self._loop.run_forever, name="link proxy")
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cut all connections, and end."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Cut all connections."""
        self._run(self._cut())

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _end(self) -> None:
        self._server.close()
        await self._cut()

    async def _cut(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()
        await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there, target = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(target)
        for source, sink, direction in ((reader, target, self.forth), (there, writer, self.back)):
            task = self._loop.create_task(self._move(source, sink, direction))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _move(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: Direction) -> None:
        """Move bytes from one end to the other, and then its end."""
        waiting: deque[tuple[float, bytes]] = deque()
        changed = asyncio.Event()
        room = asyncio.Semaphore(_WAITING_CHUNKS)
        arriving = self._loop.create_task(self._arrive(source, direction, waiting, changed, room))
        try:
            while True:
                while not waiting:
                    changed.clear()
                    await changed.wait()
                due_at, chunk = waiting.popleft()
                room.release()
                if (left := due_at - self._loop.time()) > 0:
                    await asyncio.sleep(left)
                await direction.open.wait()
                if not chunk:
                    break
                if direction.bytes_per_second:
                    await asyncio.sleep(len(chunk) / direction.bytes_per_second)
                sink.write(chunk)
                direction.passed += len(chunk)
                await sink.drain()
        except (OSError, ConnectionError):  # the receiver has gone
            pass
        finally:
            arriving.cancel()
            self._writers.discard(sink)
            sink.close()
            with contextlib.suppress(OSError):
                await sink.wait_closed()

    async def _arrive(
        self,
        source: asyncio.StreamReader,
        direction: Direction,
        waiting: deque[tuple[float, bytes]],
        changed: asyncio.Event,
        room: asyncio.Semaphore,
    ) -> None:
        chunk, is_lost = b"-", False
        while chunk:
            await room.acquire()
            try:
                chunk = await source.read(_CHUNK_BYTES)
            except OSError:
                chunk = b""
            is_lost = is_lost or (bool(chunk) and direction.loses())
            if is_lost and chunk:
                direction.lost += len(chunk)
                room.release()
                continue
            due_at = max(self._loop.time() + direction.delay(), waiting[-1][0] if waiting else 0.0)
            waiting.append((due_at, chunk))
            changed.set()
