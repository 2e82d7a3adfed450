"""A loopback proxy between clients and one listener of a broker, which can simulate a network partition.

```text
 client ──── ListenerProxy.port ────┤ partition? ├──── the broker's port
             constant                                       another in each process
```

The proxy behaves like the broker itself: its port is open only while the broker's is, an end or a reset on one side
becomes one on the other, and at most one chunk is read ahead, so that a client notices a broker that stops reading.

A partition loses no bytes and sends no reset, as on a network that drops packets: bytes arrive after it is healed, if
the connection still exists. Only connecting differs: the kernel accepts, and no bytes follow.
"""

import asyncio
import contextlib
import socket
import struct

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with no time, so that closing sends a reset."""


class ListenerProxy:
    """A proxy for one listener. Only `port` and the constructor may be used outside of the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A socket that is bound and does not listen: the kernel does not assign the port to others, refuses
        # connections, and allows a socket with SO_REUSEADDR to listen on just this port.
        self._claim = socket.socket()
        self._claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._claim.bind((HOST, 0))
        self.port: int = self._claim.getsockname()[1]
        """The port for clients."""
        self._loop = loop
        self._listener: socket.socket | None = None
        self._target = 0
        self._relays: set[asyncio.Task[None]] = set()
        self._is_connected = asyncio.Event()
        self._is_connected.set()

    def open(self, target: int) -> None:
        """Accept clients, and forward their bytes to a port."""
        self.shut()
        self._target = target
        self._listener = socket.create_server((HOST, self.port), backlog=1024)
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept, self._listener)

    def shut(self) -> None:
        """Stop accepting; connections stay until the broker's side ends."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def partition(self) -> None:
        """Hold back all bytes, in both directions."""
        self._is_connected.clear()

    def heal(self) -> None:
        """Forward bytes again."""
        self._is_connected.set()

    async def close(self) -> None:
        """Close all connections, and release the port."""
        self.shut()
        relays = list(self._relays)
        for relay in relays:
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)
        self._claim.close()

    # ------------------------------------------------------------ private

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            client, _ = listener.accept()
            relay = self._loop.create_task(self._relay(client))
            self._relays.add(relay)
            relay.add_done_callback(self._relays.discard)

    async def _relay(self, client: socket.socket) -> None:
        with client, socket.socket() as broker:
            for end in (client, broker):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await self._is_connected.wait()
                await self._loop.sock_connect(broker, (HOST, self._target))
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(client, broker))
                    both.create_task(self._pump(broker, client))
            except* OSError:
                for end in (client, broker):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    async def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        while chunk := await self._loop.sock_recv(source, CHUNK_BYTES):
            await self._is_connected.wait()
            await self._loop.sock_sendall(sink, chunk)
            await self._is_connected.wait()
        await self._is_connected.wait()
        sink.shutdown(socket.SHUT_WR)
