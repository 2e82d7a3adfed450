"""The process's end of the link to the node: gets its state, line by line, asks, and gives signs of life.

See `domain.node_state` and `domain.node_requests` for the lines.
"""

import asyncio
import json
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self, cast

from pybroker.broker.domain.node_requests import ANSWER_BYTES_MAX, ANSWERS_MAX, REQUEST_BYTES_MAX, RequestFailed
from pybroker.broker.domain.node_state import NodeState
from pybroker.management.checks import SILENT_SECONDS
from pybroker.management.setup import Setup

SIGN_SECONDS: Final = 1.0
SIGN: Final = b"\n"

ANSWER_SECONDS: Final = 10.0
"""The time in which the node begins to answer, and then goes on: else it hangs."""


OnRows = Callable[[list[list[Any]]], Awaitable[None]]
"""Called with rows of an answer, as they come."""


class Answer(NamedTuple):
    """An answer of the node: its rows, and the result."""

    rows: list[list[Any]]
    result: Any


class _AwaitedAnswer:
    """A request without its result yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.rows: list[list[Any]] = []
        self.done: asyncio.Future[Any] = loop.create_future()
        self.heard = asyncio.Event()


class NodeLink(asyncio.Protocol):
    """The management process's end of the link.

    Attributes:
        state: the node's last state; None before the first.
        setup: is done with the settings, the node's first line.
        ended: is done when the node has ended, or closed the link.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.state: NodeState | None = None
        self.setup: asyncio.Future[Setup] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._input = bytearray()
        self._waiting: dict[int, _AwaitedAnswer] = {}
        self._may_ask = asyncio.Semaphore(ANSWERS_MAX)
        self._last_number = 0

    @classmethod
    async def connect(cls, end: socket.socket) -> Self:
        """Return the link over one end of a connected pair of sockets."""
        _, link = await asyncio.get_running_loop().create_unix_connection(cls, sock=end)
        return link

    async def ask(self, method: str, **arguments: Any) -> Answer:
        """Return the node's answer to a request; of more than `ANSWERS_MAX` at a time the last ones wait.

        They wait here: signs of life, and what ends a request, go to the node meanwhile.

        Raises:
            RequestFailed: the node refuses it, cannot answer it now, or hangs.
        """
        return await self._ask_in_turn(method, arguments, None)

    async def follow(self, method: str, on_rows: OnRows, **arguments: Any) -> Any:
        """Return the result of a request as `ask` does; call back with rows that come before it."""
        return (await self._ask_in_turn(method, arguments, on_rows)).result

    async def _ask_in_turn(self, method: str, arguments: Mapping[str, Any], on_rows: OnRows | None) -> Answer:
        state = self.state
        if state is not None and (age := time.monotonic() - state.at) > SILENT_SECONDS:
            text = f"the member has been silent for {age:.0f} s: it hangs, or its process is stopped"
            raise RequestFailed(HTTPStatus.GATEWAY_TIMEOUT, text)
        async with self._may_ask:
            return await self._ask(method, arguments, on_rows)

    async def _ask(self, method: str, arguments: Mapping[str, Any], on_rows: OnRows | None) -> Answer:
        self._last_number = number = self._last_number + 1
        line = _encoded({"id": number, "method": method, "arguments": arguments})
        if len(line) > REQUEST_BYTES_MAX:
            text = f"the request takes {len(line):,} bytes for the member, of {REQUEST_BYTES_MAX:,} at most"
            raise RequestFailed(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        waiting = self._waiting[number] = _AwaitedAnswer(self._loop)
        try:
            self._transport.write(line)
            while not waiting.done.done():
                waiting.heard.clear()
                async with asyncio.timeout(ANSWER_SECONDS):
                    await waiting.heard.wait()
                if on_rows is not None and waiting.rows:
                    rows, waiting.rows = waiting.rows, []
                    await on_rows(rows)
            return Answer(waiting.rows, waiting.done.result())
        except TimeoutError:
            text = f"the member has not answered for {ANSWER_SECONDS:.0f} s: it hangs, or waits for its disk"
            raise RequestFailed(HTTPStatus.GATEWAY_TIMEOUT, text) from None
        finally:
            del self._waiting[number]
            if not waiting.done.done():
                self._write({"cancel": number})

    def log(self, level: int, text: str) -> None:
        """Have the node log a line."""
        self._write({"log": [level, text]})

    # ------------------------------------------------------------ protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to give signs of life."""
        self._transport = cast("asyncio.Transport", transport)
        self._give_sign()

    def data_received(self, data: bytes) -> None:
        """Take what is complete."""
        self._input += data
        if b"\n" not in data:
            assert len(self._input) < ANSWER_BYTES_MAX, "the node writes shorter lines"
            return
        *lines, self._input = self._input.split(b"\n")
        for line in lines:
            self._receive(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:
        """End: the node has, and answers no request."""
        self._timer.cancel()
        for waiting in self._waiting.values():
            if not waiting.done.done():
                waiting.done.set_exception(RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, "the member has ended"))
            waiting.heard.set()
        if not self.ended.done():
            self.ended.set_result(None)

    def _receive(self, line: dict[str, Any]) -> None:
        if "role" in line:
            self.state = NodeState.of(line)
        elif "setup" in line:
            try:
                self.setup.set_result(Setup.of(line["setup"]))
            except Exception as error:
                self.setup.set_exception(error)
        elif (waiting := self._waiting.get(line["id"])) is not None:
            if "rows" in line:
                waiting.rows += line["rows"]
            elif not waiting.done.done():
                if "error" in line:
                    status, text = line["error"]
                    waiting.done.set_exception(RequestFailed(HTTPStatus(status), text))
                else:
                    waiting.done.set_result(line["result"])
            waiting.heard.set()

    def _write(self, line: dict[str, Any]) -> None:
        self._transport.write(_encoded(line))

    def _give_sign(self) -> None:
        if not self._transport.get_write_buffer_size():  # else the node hangs, and a sign is waiting
            self._transport.write(SIGN)
        self._timer = self._loop.call_later(SIGN_SECONDS, self._give_sign)


def _encoded(line: dict[str, Any]) -> bytes:
    """Return a line; characters are not escaped, which would make it up to three times as long."""
    return json.dumps(line, ensure_ascii=False).encode(errors="surrogatepass") + b"\n"


class NodeLog(logging.Handler):
    """Has the node log the warnings and errors of this process."""

    def __init__(self, link: NodeLink) -> None:
        super().__init__(logging.WARNING)
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, with its traceback."""
        self._link.log(record.levelno, self.format(record))
