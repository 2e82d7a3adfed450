"""Clients with a `failover:` URI that send and receive at a steady rate, and account for every message.

For each protocol one client sends numbered persistent messages to a queue, one after the other, each when the former
has been confirmed; another receives them. Further clients only stay connected, so that many come back after a failover.
"""

import asyncio
import threading
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.driver import PATIENCE_SECONDS
from pybroker import aio
from pybroker.client.errors import Timeout

SCHEMES: Final = {"openwire": "tcp", "stomp": "stomp"}
"""Of the client's URI, by the protocol."""

RESENT: Final = "JMS_pybroker_resent"
"""The property of a message that its client has sent again after a break."""

_BODY: Final = "x" * 1000
_LOOK_SECONDS: Final = 0.5


class Stream:
    """The messages of one protocol.

    Attributes:
        protocol: its name.
        confirmed: how many messages the broker has confirmed; their numbers are 0 and on.
        duplicates: how many were received more than once.
        unmarked: how many of these were marked neither as redelivered nor as sent again.
    """

    def __init__(self, protocol: str, rate: float) -> None:
        self.protocol = protocol
        self.confirmed = 0
        self.duplicates = 0
        self.unmarked = 0
        self._queue = f"ALARMS.{protocol.upper()}"
        self._rate = rate
        self._received: set[int] = set()
        self._longest: dict[int, float] = {}

    @property
    def received(self) -> int:
        """How many different messages were received."""
        return len(self._received)

    @property
    def lost(self) -> int:
        """How many were confirmed and not received."""
        return len(set(range(self.confirmed)) - self._received)

    def longest_wait(self, began_at: float, ended_at: float) -> float:
        """Return the longest wait for a confirmation, in seconds, of what was sent in a span of time."""
        return max((self._longest.get(second, 0.0) for second in range(int(began_at), int(ended_at) + 1)), default=0.0)

    def waits(self, at_least: float) -> Mapping[int, float]:
        """Return the longest wait of each second since 1970 that has one of that length."""
        return {second: wait for second, wait in list(self._longest.items()) if wait >= at_least}

    async def produce(self, connection: aio.Connection, ends: asyncio.Event) -> None:
        """Send until the end, at the rate; what an interruption delayed is not made up for."""
        due_at = time.monotonic()
        while not ends.is_set():
            began_at, began = time.time(), time.monotonic()
            await connection.send(
                self._queue, _BODY, properties={"number": self.confirmed}, timeout=PATIENCE_SECONDS
            )  # fmt: skip
            now = time.monotonic()
            self.confirmed += 1
            self._longest[int(began_at)] = max(self._longest.get(int(began_at), 0.0), now - began)
            due_at = max(due_at + 1 / self._rate, now)
            await asyncio.sleep(due_at - now)

    async def consume(self, connection: aio.Connection, ends: asyncio.Event) -> None:
        """Receive until the end."""
        async with await connection.consumer(self._queue, timeout=PATIENCE_SECONDS) as consumer:
            while not ends.is_set():
                try:
                    message = await consumer.receive(timeout=_LOOK_SECONDS)
                except Timeout:
                    continue
                number = int(str(message.properties["number"]))  # over STOMP it is a text
                if number in self._received:
                    self.duplicates += 1
                    self.unmarked += not (message.redelivered or RESENT in message.properties)
                self._received.add(number)


class Load(threading.Thread):
    """All clients, in one thread.

    Attributes:
        streams: one for each protocol.
    """

    def __init__(self, ports: Mapping[str, list[int]], *, user: str, password: str, rate: float, idle: int) -> None:
        """Create it, without connecting.

        Args:
            ports: those of both members, by protocol.
            user: the user of each client.
            password: its password.
            rate: messages each second, of all protocols together.
            idle: how many clients only stay connected.
        """
        super().__init__(name="load", daemon=True)
        self.streams = [Stream(protocol, rate / len(ports)) for protocol in ports]
        self._ports = ports
        self._user, self._password = user, password
        self._idle = idle
        self._loop = asyncio.new_event_loop()
        self._stops_sending = asyncio.Event()
        self._stops = asyncio.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Serve the clients until `finish`."""
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._error = error  # raised again by `check`

    def check(self) -> None:
        """Raise `RuntimeError` if a client has failed."""
        if self._error is not None:
            raise RuntimeError("a client has failed") from self._error

    def finish(self) -> None:
        """Stop sending, wait until all that was confirmed has been received or nothing more comes, and disconnect."""
        self.check()
        self._loop.call_soon_threadsafe(self._stops_sending.set)
        deadline, received = time.monotonic() + PATIENCE_SECONDS, -1
        while any(stream.lost for stream in self.streams) and time.monotonic() < deadline:
            if (now := sum(stream.received for stream in self.streams)) != received:
                deadline, received = time.monotonic() + PATIENCE_SECONDS, now
            time.sleep(_LOOK_SECONDS)
        self._loop.call_soon_threadsafe(self._stops.set)
        self.join(PATIENCE_SECONDS)
        self.check()

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            for number in range(self._idle):
                await self._connection(stack, list(self._ports)[number % len(self._ports)])
            for stream in self.streams:
                receiver = await self._connection(stack, stream.protocol)
                sender = await self._connection(stack, stream.protocol)
                tasks.create_task(stream.consume(receiver, self._stops))
                tasks.create_task(stream.produce(sender, self._stops_sending))

    async def _connection(self, stack: AsyncExitStack, protocol: str) -> aio.Connection:
        urls = ",".join(f"{SCHEMES[protocol]}://127.0.0.1:{port}" for port in self._ports[protocol])
        made = aio.Connection(f"failover:({urls})", user=self._user, password=self._password, timeout=PATIENCE_SECONDS)
        return await stack.enter_async_context(made)
