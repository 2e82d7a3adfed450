"""The node's end of the link to its management process: tells it the state, and answers its requests.

See `domain.node_state` and `domain.node_requests` for the lines. The process has `ANSWERS_MAX` requests answered at a
time. It is always read, as its signs of life, and what ends a request, come behind those that wait for a disk.
"""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from pybroker.broker.app.node_answers import NodeAnswers
from pybroker.broker.app.request_types import Arguments
from pybroker.broker.domain.errors import BrokerError, InvalidDestination, InvalidSelector, MalformedData
from pybroker.broker.domain.node_requests import REQUEST_BYTES_MAX, RequestFailed
from pybroker.broker.domain.node_state import LINE_BYTES_MAX, NodeState

_LOG_CHARACTERS_MAX: Final = 4000

_log = logging.getLogger(__name__)


class ManagementLink(asyncio.Protocol):
    """One end of the connected pair of sockets.

    Attributes:
        heard_at: the time of the process's last sign of life, in seconds of the monotonic clock.
        ended: set once the process has ended, or closed the link.
    """

    def __init__(self, answers: NodeAnswers) -> None:
        self.heard_at = time.monotonic()
        self.ended = asyncio.Event()
        self._answers = answers
        self._input = bytearray()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._may_write = asyncio.Event()
        self._may_write.set()

    @property
    def has_ended(self) -> bool:
        """True once the process has ended, or closed the link."""
        return self.ended.is_set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with nothing received."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Note a sign of life, which an empty line is, and begin to answer requests."""
        self.heard_at = time.monotonic()
        if data == b"\n" and not self._input:
            return
        self._input += data
        *lines, rest = self._input.split(b"\n")
        self._input = rest
        if len(rest) > REQUEST_BYTES_MAX:
            _log.error("the management process sent a line of more than %d bytes", REQUEST_BYTES_MAX)
            self.close()
            return
        for line in filter(None, lines):
            self._begin(json.loads(line))

    def pause_writing(self) -> None:
        """Have answers wait: the process reads slowly."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Continue with answers."""
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all answers."""
        self.ended.set()
        for task in self._tasks.values():
            task.cancel()

    def set_up(self, setup: Mapping[str, Any]) -> None:
        """Send what the process needs to know first."""
        self._transport.write(json.dumps({"setup": setup}).encode() + b"\n")

    def tell(self, state: NodeState) -> None:
        """Send a state; drop it if the process does not read: it gets a newer one when it does."""
        if self._transport.get_write_buffer_size() < LINE_BYTES_MAX:
            self._transport.write(state.as_line())

    def close(self) -> None:
        """End the link, and so the process."""
        self._transport.abort()

    # ------------------------------------------------------------ requests

    def _begin(self, line: dict[str, Any]) -> None:
        if "log" in line:
            level, text = line["log"]
            _log.log(level, "management process: %s", text[:_LOG_CHARACTERS_MAX])
            return
        if "cancel" in line:
            if (cancelled := self._tasks.get(line["cancel"])) is not None:
                cancelled.cancel()
            return
        number = line["id"]
        task = self._tasks[number] = asyncio.create_task(self._answer(number, line["method"], line["arguments"]))
        task.add_done_callback(partial(self._answered, number))

    def _answered(self, number: int, task: "asyncio.Task[None]") -> None:
        del self._tasks[number]

    async def _answer(self, number: int, method: str, arguments: Arguments) -> None:
        send = partial(self._send_rows, number)
        try:
            answer: dict[str, Any] = {"result": await self._answers.answer(method, arguments, send)}
        except RequestFailed as error:
            answer = {"error": [error.status, error.text]}
        except InvalidSelector as error:
            answer = {"error": [HTTPStatus.BAD_REQUEST, f"selector: {error.sentence}"]}
        except MalformedData as error:
            answer = {"error": [HTTPStatus.BAD_REQUEST, str(error)]}
        except InvalidDestination as error:
            answer = {"error": [HTTPStatus.NOT_FOUND, str(error)]}
        except BrokerError as error:
            answer = {"error": [HTTPStatus.CONFLICT, str(error)]}
        except Exception:
            _log.exception("the request %s of the management process failed", method)
            answer = {"error": [HTTPStatus.INTERNAL_SERVER_ERROR, "the member has failed to answer: see its log"]}
        await self._send({"id": number} | answer)

    async def _send_rows(self, number: int, rows: list[Any]) -> None:
        await self._send({"id": number, "rows": rows})

    async def _send(self, line: dict[str, Any]) -> None:
        await self._may_write.wait()
        self._transport.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
