"""The strangers' process: `python -m benchmarks.flood.strangers FLOOD --stomp PORT --tls PORT`.

It prints a line of JSON when it is ready, begins with a line on its standard input, ends with the next one, and prints
how much of the flood took place. Each flood comes from loopback addresses of its own, so that no limit of one address
keeps it from the broker's other limits, and so that the client's address is not among them.
"""

import argparse
import asyncio
import itertools
import json
import os
import resource
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

USER: Final = "client"
"""The user whose password is guessed; its own is not `wrong`."""
FLOODS: Final = ("handshakes", "slow", "connects", "passwords", "guessers", "all")
_NICENESS: Final = 5
"""The strangers share a core with the client, which must be scheduled when its answer has come."""
_TICK_SECONDS: Final = 0.01
_STEP_SECONDS: Final = 1.0
"""The time from byte to byte of a slow connection, and until a connection that was closed is opened again."""
_HELD_SECONDS: Final = 0.1
"""How long the connections of `connects` stay."""
_PATIENCE_SECONDS: Final = 10.0
_LEAST_SHARE: Final = 0.9
"""Of a flood that counts as having taken place."""
_LOGIN: Final = "CONNECT\naccept-version:1.2\nhost:h\nlogin:{user}\npasscode:wrong\n\n\0"


class Strangers:
    """The floods, which run until they are cancelled; `reached` and `missed` say how far they got."""

    def __init__(self, *, stomp_port: int, tls_port: int, share: float) -> None:
        """Flood nothing yet.

        Args:
            stomp_port: a listener without TLS, on 127.0.0.1.
            tls_port: one with TLS.
            share: of the connections and of the rates; 1 for the full flood.
        """
        self._stomp_port = stomp_port
        self._tls_port = tls_port
        self._held = round(500 * share)
        self._connects = round(2000 * share)
        self._logins = round(200 * share)
        self._counts: dict[str, int] = {}
        self._wanted: dict[str, float] = {}

    def floods(self) -> dict[str, list[Callable[[], Awaitable[None]]]]:
        """Return the floods by name."""
        single: dict[str, list[Callable[[], Awaitable[None]]]] = {
            "handshakes": [self._handshakes],
            "slow": [self._slow],
            "connects": [self._open_and_close],
            "passwords": [self._one_guesser],
            "guessers": [self._many_guessers],
        }
        return single | {"all": [self._handshakes, self._slow, self._open_and_close, self._many_guessers]}

    async def run(self, name: str, over: asyncio.Event) -> tuple[list[str], list[str]]:
        """Run a flood until the event; return what was reached, and what of it is too little."""
        began = time.monotonic()
        tasks = [asyncio.ensure_future(flood()) for flood in self.floods()[name]]
        waiter = asyncio.ensure_future(over.wait())
        await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
        seconds = time.monotonic() - began
        for task in tasks:
            if task.done():
                task.result()  # raises its error: a flood never ends by itself
            task.cancel()
        rates = {what: count / seconds if what.endswith("/s") else count for what, count in self._counts.items()}
        reached = [f"{rates[what]:,.0f} {what}" for what in self._counts]
        short = [
            f"{rates.get(what, 0):,.0f} of {wanted:,.0f} {what}"
            for what, wanted in self._wanted.items()
            if rates.get(what, 0) < _LEAST_SHARE * wanted
        ]
        return reached, short

    def _count(self, what: str, more: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + more

    # ------------------------------------------------------------ connections that stay

    async def _handshakes(self) -> None:
        """Keep handshakes half open: of each two, one has sent half a ClientHello, and one all of it."""
        hello = _client_hello()
        await self._keep(
            "handshakes", "127.0.2.1", self._tls_port, lambda number: hello[: len(hello) >> number % 2], b""
        )

    async def _slow(self) -> None:
        """Keep connections that send a byte of their CONNECT each second."""
        await self._keep("slow connections", "127.0.2.2", self._stomp_port, lambda _: b"CONNECT\nlogin:", b"a")

    async def _keep(self, what: str, source: str, port: int, first: Callable[[int], bytes], then: bytes) -> None:
        self._wanted[what] = self._held
        self._counts[what] = 0
        self._counts[f"{what} closed by the broker"] = 0
        await asyncio.gather(*(self._keep_one(what, source, port, first(each), then) for each in range(self._held)))

    async def _keep_one(self, what: str, source: str, port: int, first: bytes, then: bytes) -> None:
        is_counted = False
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
                if not is_counted:
                    self._count(what)
                    is_counted = True
                try:
                    writer.write(first)
                    ended = asyncio.ensure_future(_to_the_end(reader))
                    while not (await asyncio.wait([ended], timeout=_STEP_SECONDS))[0]:
                        writer.write(then)
                finally:
                    writer.transport.abort()
            except OSError:
                pass  # the broker has closed it
            self._count(f"{what} closed by the broker")
            await asyncio.sleep(_STEP_SECONDS)

    # ------------------------------------------------------------ connections that come and go

    async def _open_and_close(self) -> None:
        """Open connections, and close them soon."""
        self._wanted["connects/s"] = self._connects
        sources = itertools.cycle(f"127.0.3.{last}" for last in range(1, 51))  # one has too few ports
        held: deque[tuple[float, socket.socket]] = deque()
        async for now, count in _ticks(self._connects):
            for _ in range(count):
                made = socket.socket()
                made.setblocking(False)
                made.bind((next(sources), 0))
                made.connect_ex(("127.0.0.1", self._stomp_port))
                held.append((now, made))
                self._count("connects/s")
            while held and held[0][0] < now - _HELD_SECONDS:
                _, made = held.popleft()
                try:
                    made.getpeername()
                    self._count("of them open a moment later")
                except OSError:
                    pass  # it waits for the broker, or is closed again
                made.close()

    # ------------------------------------------------------------ guessing

    async def _one_guesser(self) -> None:
        await self._guess(["127.0.4.1"])

    async def _many_guessers(self) -> None:
        """Guess from so many addresses that their limits hold back few logins: each is verified."""
        await self._guess([f"127.0.4.{last}" for last in range(1, 201)])

    async def _guess(self, sources: list[str]) -> None:
        """Send wrong passwords, half of them for a user that exists."""
        self._wanted["wrong passwords/s"] = self._logins
        addresses, users = itertools.cycle(sources), _names()
        guesses: set[asyncio.Task[None]] = set()
        async for _, count in _ticks(self._logins):
            for _ in range(count):
                guess = asyncio.ensure_future(self._guess_once(next(addresses), next(users)))
                guesses.add(guess)
                guess.add_done_callback(guesses.discard)

    async def _guess_once(self, source: str, user: str) -> None:
        self._count("wrong passwords/s")
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._stomp_port, local_addr=(source, 0))
        except OSError:
            self._count("not connected")
            return
        try:
            writer.write(_LOGIN.format(user=user).encode())
            async with asyncio.timeout(_PATIENCE_SECONDS):
                answer = await reader.read(1 << 16)
            self._count("answered" if answer.startswith(b"ERROR") else "closed without an answer")
        except (OSError, TimeoutError):
            self._count("closed without an answer")
        finally:
            writer.transport.abort()


async def _to_the_end(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(1 << 16):
            pass
    except OSError:
        pass  # a reset is an end too


async def _ticks(rate: float) -> AsyncIterator[tuple[float, int]]:
    """Yield the time, and how many are due since the last one; what a late process owes is made up for."""
    began, done = time.monotonic(), 0
    while True:
        now = time.monotonic()
        due = int((now - began) * rate) - done
        done += due
        yield now, due
        await asyncio.sleep(_TICK_SECONDS)


def _names() -> Iterator[str]:
    """Yield the user of the client, and names of no users, in turn."""
    for number in itertools.count():
        yield USER if number % 2 else f"nobody{number}"


def _client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing := ssl.MemoryBIO(), server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake needs an answer")


async def _run(options: argparse.Namespace) -> None:
    strangers = Strangers(stomp_port=options.stomp, tls_port=options.tls, share=options.share)
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
    reached, missed = await strangers.run(options.flood, over)
    print(json.dumps({"reached": reached, "missed": missed}), flush=True)
    os._exit(0)  # the connections close with the process


def main() -> None:
    """Flood between two lines of the standard input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("flood")
    parser.add_argument("--stomp", type=int, required=True)
    parser.add_argument("--tls", type=int, required=True)
    parser.add_argument("--share", type=float, default=1.0)
    options = parser.parse_args()
    os.nice(_NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.buffer.raw.read(1)
    asyncio.run(_run(options))


if __name__ == "__main__":
    main()
