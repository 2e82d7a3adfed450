"""The node's answers to its management process: in slices, for one term of mastership, and one sentence if it fails."""

import asyncio
import socket
from collections.abc import Callable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker.broker.app import node_answers, operation_answers
from pybroker.broker.app.config import Config
from pybroker.broker.app.management_link import ManagementLink
from pybroker.broker.app.node_answers import NodeAnswers
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.matcher import matcher
from pybroker.broker.core.paging import PIECE_MAX
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import InvalidSelector, StoreUnavailable
from pybroker.broker.domain.node_requests import ANSWERS_MAX, REQUEST_BYTES_MAX, ProgressRow, RequestFailed
from pybroker.broker.domain.role import Role
from pybroker.management.link import SIGN, NodeLink
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import make_message

SECONDS = 10.0


class Member:
    """A node that serves a broker in memory."""

    def __init__(self) -> None:
        self.broker = BrokerCore("b", store=MemoryStore(), clock=lambda: 0)
        self.role = Role.MASTER
        self.term: Any = SimpleNamespace(broker=self.broker, server=SimpleNamespace(connections={}))

    def serving(self) -> Any:
        return self.term


def answers_of(member: Member) -> NodeAnswers:
    answers = NodeAnswers(Config(store="memory:"), SimpleNamespace())  # type: ignore[arg-type]
    answers.node = member  # type: ignore[assignment]
    return answers


def test_many_rows_come_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_answers, "SLICE_SECONDS", 0.0)
    member, turns, parts = Member(), [0], list[list[Any]]()
    for number in range(100):
        member.broker.destinations.ensure(queue(f"Q.{number}"))
    member.broker.destinations.ensure(topic("ActiveMQ.Advisory.Connection"))

    async def send(rows: list[Any]) -> None:
        parts.append(rows)

    async def count_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def run() -> None:
        counting = asyncio.create_task(count_turns())
        await answers_of(member).answer("destinations", {}, send)
        counting.cancel()

    asyncio.run(run())
    assert sorted(row.name for rows in parts for row in rows) == sorted(f"Q.{number}" for number in range(100))
    assert max(map(len, parts)) <= 8
    assert turns[0] >= 12


def test_an_answer_ends_with_its_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_answers, "SLICE_SECONDS", 0.0)
    member = Member()
    for number in range(20):
        member.broker.destinations.ensure(queue(f"Q.{number}"))

    async def send(rows: list[Any]) -> None:
        member.term = None

    with pytest.raises(RequestFailed, match="not the master"):
        asyncio.run(answers_of(member).answer("destinations", {}, send))


def test_an_operation_on_messages_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_answers, "SIGN_SECONDS", 0.0)
    member, signs = Member(), list[Any]()
    for number in range(3 * PIECE_MAX):
        member.broker.send(make_message(str(number), "queue://Q", "ID:c"))
    pieces: list[Callable[[], None]] = []
    member.broker.usage.paging.later = pieces.append

    async def send(rows: list[Any]) -> None:
        signs.extend(rows)
        pieces.pop()()

    arguments = {"queue": "Q", "operation": "count", "selector": None, "message_ids": None, "maximum": None}
    result = asyncio.run(answers_of(member).answer("change", arguments | {"user": "ops", "address": ""}, send))
    assert isinstance(result, dict)
    assert (result["affected"], result["error"]) == (3 * PIECE_MAX, None)
    assert signs == [ProgressRow(each.affected, each.affected) for each in signs]
    counts = [each.affected for each in signs]
    assert counts == sorted({*counts, 0})
    assert len(counts) == 3


class Linked:
    """Both ends of a link, with answers that the test gives."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self.answer = answer

    async def run(self, use: Callable[[NodeLink, ManagementLink], Any]) -> Any:
        mine, other = socket.socketpair()
        async with asyncio.timeout(SECONDS):
            _, link = await asyncio.get_running_loop().create_unix_connection(
                lambda: ManagementLink(self),  # type: ignore[arg-type]
                sock=mine,
            )
            process = await NodeLink.connect(other)
            try:
                return await use(process, link)
            finally:
                link.close()
                await process.ended


async def _ask(process: NodeLink, link: ManagementLink) -> Any:
    return (await process.ask("x")).result


def matched(selector: str) -> InvalidSelector:
    """Return the error of a selector."""
    with pytest.raises(InvalidSelector) as raised:
        matcher(selector)
    return raised.value


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (RequestFailed(HTTPStatus.NOT_FOUND, "there is none"), 404, "there is none"),
        (InvalidSelector("no selector"), 400, "^selector: no selector$"),
        (matched("n = = 1"), 400, r"^selector: expected a value, found '=' at column 5\Z"),
        (matched("n =\n = 1"), 400, r"^selector: expected a value, found '=' at column 6\Z"),
        (StoreUnavailable("the disk is full"), 409, "the disk is full"),
        (KeyError("a mistake"), 500, "the member has failed to answer: see its log"),
    ],
)
def test_an_error_becomes_a_status_and_a_sentence(error: Exception, status: int, text: str) -> None:
    async def answer(*_: Any) -> Any:
        raise error

    with pytest.raises(RequestFailed, match=text) as raised:
        asyncio.run(Linked(answer).run(_ask))
    assert raised.value.status == status


async def _until(is_reached: Callable[[], bool]) -> None:
    while not is_reached():  # noqa: ASYNC110 (within the time limit of `Linked`)
        await asyncio.sleep(0)


def test_one_that_is_cancelled_is_cancelled_in_the_node() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def answer(*_: Any) -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def use(process: NodeLink, link: ManagementLink) -> None:
        asking = asyncio.create_task(process.ask("x"))
        await began.wait()
        asking.cancel()
        await ended.wait()

    asyncio.run(Linked(answer).run(use))


def test_a_large_answer_waits_while_the_process_does_not_read() -> None:
    row = "x" * 100_000

    async def answer(_method: str, _arguments: Any, send: Any) -> None:
        for _ in range(100):
            await send([row])

    async def use(process: NodeLink, link: ManagementLink) -> None:
        rows: list[Any] = (await process.ask("x")).rows
        assert rows == [row] * 100
        assert link._transport.get_write_buffer_size() < 1 << 20

    asyncio.run(Linked(answer).run(use))


def test_more_requests_than_are_answered_at_a_time_wait() -> None:
    running: list[int] = [0]
    most: list[int] = [0]

    async def answer(*_: Any) -> Any:
        running[0] += 1
        most[0] = max(most[0], running[0])
        for _turn in range(20):
            await asyncio.sleep(0)
        running[0] -= 1

    async def use(process: NodeLink, link: ManagementLink) -> None:
        for _ in range(5):
            await asyncio.gather(*[process.ask("x") for _ in range(2 * ANSWERS_MAX)])

    asyncio.run(Linked(answer).run(use))
    assert running[0] == 0
    assert most[0] == ANSWERS_MAX


def test_signs_of_life_come_behind_as_many_requests_as_may_hang() -> None:
    hanging: list[int] = [0]

    async def answer(*_: Any) -> Any:
        hanging[0] += 1
        try:
            await asyncio.Event().wait()
        finally:
            hanging[0] -= 1

    async def use(process: NodeLink, link: ManagementLink) -> None:
        asking = [asyncio.create_task(process.ask("x")) for _ in range(2 * ANSWERS_MAX)]
        await _until(lambda: hanging[0] == ANSWERS_MAX)
        link.heard_at = 0.0
        process._transport.write(SIGN)
        await _until(lambda: link.heard_at > 0)
        for each in asking:
            each.cancel()
        await _until(lambda: not hanging[0])

    asyncio.run(Linked(answer).run(use))


def test_requests_end_with_the_node() -> None:
    async def answer(*_: Any) -> Any:
        await asyncio.Event().wait()

    async def use(process: NodeLink, link: ManagementLink) -> None:
        asking = asyncio.create_task(process.ask("x"))
        await asyncio.sleep(0)
        link.close()
        with pytest.raises(RequestFailed, match="the member has ended"):
            await asking

    asyncio.run(Linked(answer).run(use))


def test_a_request_is_no_longer_than_a_line_may_be() -> None:
    async def answer(_method: str, arguments: Any, _send: Any) -> Any:
        return [len(arguments["text"]), arguments["text"][-1]]

    async def use(process: NodeLink, link: ManagementLink) -> None:
        longest = "é" * (REQUEST_BYTES_MAX // 2 - 100) + "\ud800"
        assert (await process.ask("x", text=longest)).result == [len(longest), "\ud800"]
        with pytest.raises(RequestFailed, match="the request takes"):
            await process.ask("x", text=longest + "é" * 100)
        assert (await process.ask("x", text="\n")).result == [1, "\n"]

    asyncio.run(Linked(answer).run(use))


def test_a_line_that_is_too_long_ends_the_process() -> None:
    async def answer(*_: Any) -> Any:
        return None

    async def use(process: NodeLink, link: ManagementLink) -> None:
        process._transport.write(b"x" * (REQUEST_BYTES_MAX + 10))
        await process.ended

    asyncio.run(Linked(answer).run(use))
