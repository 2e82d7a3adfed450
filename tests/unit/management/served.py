"""The HTTP server beside a simulated node, in a thread, for clients that block."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.unit.management.simulated import Answer, SimulatedNode, site

SECONDS = 60.0
TURNS = 10


class ServedNode:
    """A member: its URL, and the node behind it."""

    def __init__(self, url: str, node: SimulatedNode, loop: asyncio.AbstractEventLoop, end: asyncio.Event) -> None:
        self.url = url
        self.node = node
        self._loop = loop
        self._end = end
        self.thread: threading.Thread | None = None

    def asked(self, method: str) -> list[Mapping[str, Any]]:
        """Return the arguments of each request of a method."""
        return [arguments for name, arguments in self.node.asked if name == method]

    def close(self) -> None:
        """End it, as a member that is killed."""
        assert self.thread is not None
        if self.thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self.thread.join(SECONDS)
        assert not self.thread.is_alive()


@contextmanager
def served(methods: Mapping[str, Answer], **options: Any) -> Iterator[ServedNode]:
    """Serve in a thread; the options are those of `site`."""
    found: list[ServedNode] = []
    is_ready = threading.Event()

    async def run() -> None:
        async with site(methods, **options) as there:
            end = asyncio.Event()
            url = f"http://127.0.0.1:{there.port}"
            found.append(ServedNode(url, there.node, asyncio.get_running_loop(), end))
            is_ready.set()
            await end.wait()
        for _ in range(TURNS):  # a connection that was closed just now is closed by the loop's next turns
            await asyncio.sleep(0)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert is_ready.wait(SECONDS)
    (node,) = found
    node.thread = thread
    try:
        yield node
    finally:
        node.close()
