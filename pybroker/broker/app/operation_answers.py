"""Carries out what the management process asks for: operations on messages, destinations, clients, jobs, transactions.

The process has checked the role of the user, whose name and address each request has for the audit log. A message goes
to the process as the store has it: to decode and to show it is the process's work.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from pybroker.broker.app.node import Term
from pybroker.broker.app.request_types import Arguments, Method, SendRows
from pybroker.broker.domain.destination import Destination, parse, queue
from pybroker.broker.domain.errors import BrokerError, MalformedData
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.node_requests import (
    DATA_BYTES_MAX,
    BranchRow,
    BrowsedRow,
    JobRow,
    ProgressRow,
    RequestFailed,
)
from pybroker.broker.domain.openwire.message import decode, encode, outline
from pybroker.broker.domain.operations import (
    FIRST_JOB,
    Actor,
    BrowsedMessage,
    JobCursor,
    JobPage,
    MessagePage,
    MessageSelection,
    OperationResult,
    Operations,
    PageLimits,
    RunningOperation,
    ScheduledJob,
)

SIGN_SECONDS: Final = 1.0
"""The interval of signs of life while an operation is under way."""

_PIECE_BYTES: Final = 48 << 10
"""The data of a message in one line, which takes some 0.2 ms; a multiple of 3, so that the base64 of pieces joins."""

ResultT = TypeVar("ResultT")


class OperationAnswers:
    """The operations of the present term."""

    def __init__(self, serving: Callable[[], Term]) -> None:
        """Create it; `serving` returns the term, or raises `RequestFailed` where there is none."""
        self._serving = serving
        self.methods: Final[Mapping[str, Method]] = {
            "browse": self._browse,
            "message": self._message,
            "change": self._change,
            "pause": self._pause,
            "resume": self._resume,
            "create": self._create,
            "delete": self._delete,
            "send": self._send,
            "cut_off": self._cut_off,
            "unsubscribe": self._unsubscribe,
            "branches": self._branches,
            "end_branch": self._end_branch,
            "jobs": self._jobs,
            "remove_job": self._remove_job,
        }

    @property
    def _operations(self) -> Operations:
        return self._serving().broker.operations

    # ------------------------------------------------------------ messages

    async def _browse(self, arguments: Arguments, send: SendRows) -> object:
        limits = PageLimits(count=arguments["count"], byte_count=arguments["byte_count"])
        cursor, selector = arguments["cursor"], arguments["selector"]
        operations = self._operations

        def begin(done: Callable[[MessagePage | BrokerError], None]) -> RunningOperation:
            if "subscription" in arguments:
                return operations.browse_subscription(arguments["subscription"], cursor, limits, selector, done)
            return operations.browse(queue(arguments["queue"]), cursor, limits, selector, done)

        page = await outcome(begin, send)
        if not isinstance(page, MessagePage):
            raise page
        for each in page.messages:
            await _send_message(each, send)
        return {"cursor": page.cursor, "end": page.end.name.lower(), "examined": page.examined}

    async def _message(self, arguments: Arguments, send: SendRows) -> object:
        where, message_id = queue(arguments["queue"]), arguments["message_id"]
        found = await outcome(partial(self._operations.message, where, message_id), send)
        if isinstance(found, BrokerError):
            raise found
        if found is not None:
            await _send_message(found, send)
        return None

    async def _change(self, arguments: Arguments, send: SendRows) -> object:
        operations, actor, where = self._operations, _actor(arguments), queue(arguments["queue"])
        ids = arguments["message_ids"]
        selection = MessageSelection(
            selector=arguments["selector"],
            message_ids=None if ids is None else frozenset(ids),
            maximum=arguments["maximum"],
        )
        begin: Callable[[Callable[[OperationResult], None]], RunningOperation]
        match arguments["operation"]:
            case "count":
                begin = partial(operations.count, where, selection)
            case "remove":
                begin = partial(operations.remove, where, selection, actor)
            case "move":
                begin = partial(operations.move, where, _target(arguments), selection, actor)
            case "copy":
                begin = partial(operations.copy, where, _target(arguments), selection, actor)
            case _:
                begin = partial(operations.retry, where, selection, actor)
        result = await outcome(begin, send, _progress)
        return _result_json(result)

    async def _send(self, arguments: Arguments, send: SendRows) -> object:
        message = decode(base64.b64decode(arguments["data"]))
        sent: list[str] = []

        def begin(done: Callable[[None], None]) -> None:
            sent.append(self._operations.send(message, _actor(arguments), partial(done, None)))

        await outcome(begin, send)
        return {"message_id": sent[0]}

    # ------------------------------------------------------------ destinations and clients

    async def _pause(self, arguments: Arguments, send: SendRows) -> object:
        self._operations.pause(queue(arguments["queue"]), _actor(arguments))
        return {}

    async def _resume(self, arguments: Arguments, send: SendRows) -> object:
        self._operations.resume(queue(arguments["queue"]), _actor(arguments))
        return {}

    async def _create(self, arguments: Arguments, send: SendRows) -> object:
        return {"created": await self._at_once(self._operations.create, arguments, send)}

    async def _delete(self, arguments: Arguments, send: SendRows) -> object:
        return {"deleted": await self._at_once(self._operations.delete, arguments, send)}

    async def _at_once(
        self,
        act: Callable[[Destination, Actor, Callable[[], None]], bool],
        arguments: Arguments,
        send: SendRows,
    ) -> bool:
        """Return the result of an act on a destination, once it is on disk."""
        results: list[bool] = []

        def begin(done: Callable[[None], None]) -> None:
            results.append(act(_target(arguments), _actor(arguments), partial(done, None)))
            if not results[0]:
                done(None)  # nothing was changed

        await outcome(begin, send)
        return results[0]

    async def _cut_off(self, arguments: Arguments, send: SendRows) -> object:
        connection_id = arguments["connection_id"]
        if not self._operations.cut_off(connection_id, _actor(arguments)):
            raise RequestFailed(HTTPStatus.NOT_FOUND, f"there is no connection {connection_id!r}")
        return {}

    async def _unsubscribe(self, arguments: Arguments, send: SendRows) -> object:
        key, actor = arguments["key"], _actor(arguments)
        found = self._serving().broker.admin.subscription(key)
        if found is None:
            raise RequestFailed(HTTPStatus.NOT_FOUND, f"there is no durable subscription {key!r}")

        def begin(done: Callable[[None], None]) -> None:
            self._operations.unsubscribe(found.client_id, found.name, actor, partial(done, None))

        await outcome(begin, send)
        return {}

    # ------------------------------------------------------------ transactions and jobs

    async def _branches(self, arguments: Arguments, send: SendRows) -> object:
        branches = self._operations.in_doubt()
        await send([BranchRow(str(each.branch), each.user or "", each.sent, each.acknowledged) for each in branches])
        return None

    async def _end_branch(self, arguments: Arguments, send: SendRows) -> object:
        operations, name = self._operations, arguments["branch"]
        found = next((each.branch for each in operations.in_doubt() if str(each.branch) == name), None)
        if found is None:
            raise RequestFailed(HTTPStatus.NOT_FOUND, f"there is no branch in doubt {name!r}")
        end = operations.commit_branch if arguments["commit"] else operations.roll_back_branch
        result = await outcome(partial(end, found, _actor(arguments)), send)
        return _result_json(result)

    async def _jobs(self, arguments: Arguments, send: SendRows) -> object:
        cursor = FIRST_JOB if arguments["cursor"] is None else JobCursor(*arguments["cursor"])
        page = await outcome(partial(self._operations.jobs, cursor, arguments["count"]), send)
        if not isinstance(page, JobPage):
            raise page
        await send([_job_row(each) for each in page.jobs])
        return {"total": page.total, "cursor": page.cursor}

    async def _remove_job(self, arguments: Arguments, send: SendRows) -> object:
        removed: list[int] = []

        def begin(done: Callable[[None], None]) -> None:
            job_id, next_time = arguments["job_id"], arguments["next_time"]
            count = self._operations.remove_job(job_id, next_time, _actor(arguments), partial(done, None))
            removed.append(count)
            if not count:
                done(None)

        await outcome(begin, send)
        if not removed[0]:
            raise RequestFailed(HTTPStatus.NOT_FOUND, f"there is no scheduled message {arguments['job_id']!r}")
        return {"removed": removed[0]}


def _progress(running: RunningOperation) -> list[Any]:
    return [ProgressRow(running.affected, running.examined)]


def _no_rows(running: RunningOperation) -> list[Any]:
    return []


async def outcome(
    begin: Callable[[Callable[[ResultT], None]], RunningOperation | None],
    send: SendRows,
    sign: Callable[[RunningOperation], list[Any]] = _no_rows,
) -> ResultT:
    """Begin an operation, and return what it calls back with; cancel it if this is cancelled.

    Args:
        begin: begins it.
        send: sends signs of life while it is under way.
        sign: the rows of a sign of life.
    """
    ended: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()

    def done(result: ResultT) -> None:
        if not ended.done():
            ended.set_result(result)

    running = begin(done)
    try:
        while not (await asyncio.wait([ended], timeout=SIGN_SECONDS))[0]:
            await send([] if running is None else sign(running))
    except asyncio.CancelledError:
        if running is not None:
            running.cancel()
        raise
    return ended.result()


def _actor(arguments: Arguments) -> Actor:
    return Actor(arguments["user"], arguments["address"])


def _target(arguments: Arguments) -> Destination:
    return parse(arguments["target"])


def _result_json(result: OperationResult) -> dict[str, Any]:
    return asdict(result) | {"error": None if result.error is None else str(result.error)}


async def _send_message(browsed: BrowsedMessage, send: SendRows) -> None:
    """Send a message as a row, with its data in pieces, one in a turn: it may have megabytes."""
    message, holder = browsed.message, browsed.holder
    data = message.data if len(message.data) <= DATA_BYTES_MAX else _without_content(message)
    await send(
        [
            BrowsedRow(
                message.message_id,
                browsed.position,
                browsed.state.value,
                browsed.redelivery_count,
                None if holder is None else (holder.connection_id, holder.client_id, holder.consumer_id or ""),
                len(message.data),
                _piece(data, 0),
            )
        ]
    )
    for start in range(_PIECE_BYTES, len(data), _PIECE_BYTES):
        await asyncio.sleep(0)
        await send([(_piece(data, start),)])
    await asyncio.sleep(0)


def _piece(data: bytes, start: int) -> str:
    return base64.b64encode(data[start : start + _PIECE_BYTES]).decode()


def _without_content(message: Message) -> bytes:
    """Return the data of a message with headers and properties alone; none if they do not decode."""
    try:
        return encode(replace(outline(message), content=None))
    except MalformedData:
        return b""


def _job_row(job: ScheduledJob) -> JobRow:
    message = job.message
    return JobRow(
        job.job_id,
        job.next_time,
        job.start_time,
        job.cron,
        job.delay,
        job.period,
        job.repeat,
        job.run_count,
        "" if message is None else str(message.destination),
        0 if message is None else len(message.data),
    )
