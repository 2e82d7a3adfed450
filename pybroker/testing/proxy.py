"""A loopback proxy between clients and one listener of a broker, which can be cut like a cable.

```text
 client ──── Gate.port ────┤ cut? ├──── the broker's own port
             always the same           another in each process
```

The gate is to look like the broker itself: its port is open only while the broker's is, an end or a reset on one side
becomes one on the other, and nothing is read ahead beyond one chunk, so that a broker that stops reading is felt.

A cut loses nothing and says nothing, as on a network whose packets are dropped: what is under way arrives after the
cut is healed, if the connection lives that long. Only connecting differs: the kernel answers, then there is silence.
"""

import asyncio
import contextlib
import socket
import struct

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER on, for no time: closing sends a reset."""


class ListenerProxy:
    """One port in front of one listener. All but `port` and the constructor belong to the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A socket that is bound and does not listen: the kernel gives the port to nobody who asks for any, refuses who
        # connects, and lets those listen who ask for just this port with SO_REUSEADDR.
        self._claim = socket.socket()
        self._claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._claim.bind((HOST, 0))
        self.port: int = self._claim.getsockname()[1]
        """Where clients connect."""
        self._loop = loop
        self._listener: socket.socket | None = None
        self._target = 0
        self._relays: set[asyncio.Task[None]] = set()
        self._whole = asyncio.Event()
        self._whole.set()

    def open(self, target: int) -> None:
        """Let clients in, and pass on to a port what they say."""
        self.shut()
        self._target = target
        self._listener = socket.create_server((HOST, self.port), backlog=1024)
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept, self._listener)

    def shut(self) -> None:
        """Let nobody in any more; who is in stays until the broker's side ends."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def cut(self) -> None:
        """Pass nothing on, either way."""
        self._whole.clear()

    def heal(self) -> None:
        """Pass everything on again."""
        self._whole.set()

    async def close(self) -> None:
        """Cut everybody off, and give the port back."""
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
                await self._whole.wait()
                await self._loop.sock_connect(broker, (HOST, self._target))
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(client, broker))
                    both.create_task(self._pump(broker, client))
            except* OSError:
                for end in (client, broker):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    async def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        while chunk := await self._loop.sock_recv(source, CHUNK_BYTES):
            await self._whole.wait()
            await self._loop.sock_sendall(sink, chunk)
            await self._whole.wait()
        await self._whole.wait()
        sink.shutdown(socket.SHUT_WR)
