"""The sender's process: plays cases against a broker, several at a time, and counts the frames that were carried out.

`python -m benchmarks.fuzz.sender PROTOCOL --seed N --from CASE --frames N …` prints a line of JSON once it is ready,
waits for a line on its standard input, plays, writes a file, and prints another line. The file has

```text
{"next": case, "frames": carried out, "sent": frames, "spans": [[case, began, ended], ...]}       times by time.time()
```
"""

import argparse
import asyncio
import itertools
import json
import os
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.fuzz.conversations import AMQP, MQTT, OPENWIRE, STOMP, TLS, WEBSOCKET, Conversation, answers, case

_AT_A_TIME: Final = {OPENWIRE: 8, STOMP: 8, WEBSOCKET: 8, MQTT: 8, AMQP: 8, TLS: 64}
"""Most cases of TLS end in silence."""
_QUIET_SECONDS: Final = 0.05
"""The silence after which a conversation is left: a frame that announces more than came is never answered."""
_LONG_SECONDS: Final = 5.0
_NICENESS: Final = 5
"""The sender shares a core with the bystander, which must be scheduled when its answer has come."""


class Exchange(asyncio.Protocol):
    """One connection: sends a conversation, and counts what is answered, until the broker closes or is silent.

    Attributes:
        done: complete when the connection is over.
        answered: how many markers the broker has answered.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._loop = asyncio.get_running_loop()
        self._conversation = conversation
        self._received = bytearray()
        self._heard_at = 0.0
        self._is_closed = self._left = False
        self.answered = 0
        self.done: asyncio.Future[None] = self._loop.create_future()

    @property
    def received(self) -> bytes:
        """What the broker has sent."""
        return bytes(self._received)

    @property
    def frames(self) -> int:
        """How many of its frames the broker has carried out; the one after which it closed counts too."""
        count = len(self._conversation.parts) - 1
        if not self._conversation.marker:
            return count
        return min(count, self.answered + self._is_closed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send everything, or what comes before the first answer."""
        self._transport: Any = transport
        self._began_at = self._heard_at = self._loop.time()
        self._transport.write(self._conversation.step(0))
        self._loop.call_later(_QUIET_SECONDS, self._look)

    def data_received(self, data: bytes) -> None:
        """Take an answer, send what waits for it, and leave after the last."""
        self._received += data
        self._heard_at = self._loop.time()
        answered = answers(self.received, self._conversation.listener)
        for number in range(self.answered + 1, answered + 1):
            self._transport.write(self._conversation.step(number))
        self.answered = answered
        if self._conversation.marker and self.frames == len(self._conversation.parts) - 1:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._is_closed = not self._left
        if not self.done.done():
            self.done.set_result(None)

    def _look(self) -> None:
        now = self._loop.time()
        if self.done.done():
            return
        if now - self._heard_at >= _QUIET_SECONDS or now - self._began_at > _LONG_SECONDS:
            self._left = True
            self._transport.abort()
        else:
            self._loop.call_later(_QUIET_SECONDS, self._look)


async def play(conversation: Conversation, ports: Mapping[str, int]) -> int:
    """Send a conversation; return how many of its frames were carried out."""
    exchange = partial(Exchange, conversation)
    name = conversation.listener.removeprefix("raw:")
    encrypted = name.endswith("+ssl") and name == conversation.listener
    loop = asyncio.get_running_loop()
    try:
        _, made = await loop.create_connection(
            exchange, "127.0.0.1", ports[name], ssl=_context() if encrypted else None,
            server_hostname="localhost" if encrypted else None,
        )  # fmt: skip
    except OSError:
        return 0  # the broker is gone, which the judgement sees, or its connections are all taken
    await made.done
    return made.frames


def _context() -> ssl.SSLContext:
    if not _contexts:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _contexts.append(context)
    return _contexts[0]


_contexts: list[ssl.SSLContext] = []


class _Round:
    """Cases from a number on until enough frames were carried out, or time is up."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._ports: dict[str, int] = json.loads(options.ports)
        self._numbers: Iterator[int] = itertools.count(options.begin)
        self._ends_at = time.monotonic() + options.seconds
        self._frames = self._sent = 0
        self._next = options.begin
        self._spans: list[tuple[int, float, float]] = []

    async def run(self) -> dict[str, Any]:
        """Play them."""
        await asyncio.gather(*(self._work() for _ in range(_AT_A_TIME[self._options.protocol])))
        return {"next": self._next, "frames": self._frames, "sent": self._sent, "spans": self._spans}

    def _goes_on(self) -> bool:
        options = self._options
        return (
            self._frames < options.frames
            and self._next - options.begin < options.cases
            and time.monotonic() < self._ends_at
        )

    async def _work(self) -> None:
        options = self._options
        while self._goes_on():
            number = next(self._numbers)
            self._next = max(self._next, number + 1)
            conversation = case(options.protocol, options.seed, number, logins=options.logins)
            began = time.time()
            carried_out = await play(conversation, self._ports)
            self._frames += carried_out
            self._sent += len(conversation.parts) - 1
            self._spans.append((number, began, time.time()))


def main() -> None:
    """Play a round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("protocol")
    parser.add_argument("--ports", required=True)
    parser.add_argument("--result", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--from", type=int, dest="begin", required=True)
    parser.add_argument("--frames", type=int, required=True)
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--logins", action="store_true")
    options = parser.parse_args()
    os.nice(_NICENESS)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    options.result.write_text(json.dumps(uvloop.run(_Round(options).run())))
    print(json.dumps({"done": True}), flush=True)


if __name__ == "__main__":
    main()
