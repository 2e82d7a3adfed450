"""The answers to operations on many messages: something comes every second, and the counts and the error at the end."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any

import pytest

from pybroker.broker.domain.node_requests import RequestFailed
from pybroker.management import operations
from pybroker.management.operation_stream import LINES
from pybroker.management.site import TOO_LONG
from tests.unit.management.simulated import site

PATH = "/api/v1/queues/ORDERS/purge"
RESULT = {"affected": 7, "examined": 9, "skipped": 0, "in_flight": 2, "is_cancelled": False, "error": None}
LOST = {"affected": 5, "examined": 6, "skipped": None, "in_flight": None, "is_cancelled": False}

Steps = Callable[[Mapping[str, Any]], AsyncIterator[Any]]


async def slow(_: Mapping[str, Any]) -> AsyncIterator[Any]:
    yield [[2, 3]]
    yield [[5, 6]]
    yield RESULT


async def refused_at_once(_: Mapping[str, Any]) -> AsyncIterator[Any]:
    raise RequestFailed(HTTPStatus.CONFLICT, "the broker is stopping")
    yield


async def ended_midway(_: Mapping[str, Any]) -> AsyncIterator[Any]:
    yield [[5, 6]]
    raise RequestFailed(HTTPStatus.CONFLICT, "the broker is stopping")


def ask(steps: Steps, **headers: str) -> tuple[int, dict[str, str], str]:
    async def run() -> tuple[int, dict[str, str], str]:
        async with site({"change": steps}) as there:
            return await there.ask_raw(PATH, "POST", {}, **headers)

    status, found, content = asyncio.run(run())
    return status, found, content


def chunks(content: str) -> list[str]:
    """Return the chunks of an answer in pieces."""
    sizes_and_chunks = content.split("\r\n")
    return sizes_and_chunks[1:-3:2]


def test_a_short_operation_is_one_json_answer() -> None:
    async def short(_: Mapping[str, Any]) -> AsyncIterator[Any]:
        yield RESULT

    for accept in ({}, {"Accept": LINES}):
        status, headers, content = ask(short, **accept)
        assert (status, json.loads(content)) == (200, RESULT)
        assert headers["content-length"] == str(len(content))


def test_a_long_operation_has_blanks_before_its_json() -> None:
    status, headers, content = ask(slow)
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert set(chunks(content)[:-1]) == {"\n"}
    assert json.loads("".join(chunks(content))) == RESULT
    assert headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


def test_lines_have_the_counts_and_at_last_the_result() -> None:
    status, headers, content = ask(slow, Accept=f"{LINES}, application/json")
    assert (status, headers["content-type"]) == (200, LINES)
    *progress, result = [json.loads(line) for line in chunks(content)]
    assert result == RESULT
    assert progress[-1] == {"affected": 5, "examined": 6}
    assert progress[:-1] in ([], [{"affected": 2, "examined": 3}])  # what comes together is one line


def test_an_error_has_its_status_or_the_last_counts() -> None:
    status, _, content = ask(refused_at_once)
    assert (status, json.loads(content)) == (409, {"error": "the broker is stopping"})
    status, _, content = ask(ended_midway)
    assert (status, json.loads("".join(chunks(content)))) == (200, LOST | {"error": "the broker is stopping"})


@pytest.mark.parametrize("has_progress", [False, True])
def test_an_operation_beyond_its_time_is_ended(has_progress: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "CHANGE_SECONDS", 0.2)
    cancelled: list[bool] = []

    async def endless(_: Mapping[str, Any]) -> AsyncIterator[Any]:
        if has_progress:
            yield [[5, 6]]
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    status, _, content = ask(endless)
    if has_progress:
        assert status == 200
        assert json.loads("".join(chunks(content))) == LOST | {"error": TOO_LONG}
    else:
        assert (status, json.loads(content)) == (408, {"error": TOO_LONG})
    assert cancelled == [True]


def test_a_closed_connection_ends_the_operation(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        cancelled = asyncio.Event()

        async def endless(_: Mapping[str, Any]) -> AsyncIterator[Any]:
            yield [[5, 6]]
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async with site({"change": endless}) as there:
            reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
            fields = "Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2"
            writer.write(f"POST {PATH} HTTP/1.1\r\n{fields}\r\n\r\n{{}}".encode())
            await reader.readuntil(b"\r\n\r\n1\r\n\n\r\n")
            writer.close()
            await writer.wait_closed()
            await cancelled.wait()

    asyncio.run(run())
    assert caplog.records == []
