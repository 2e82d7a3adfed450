"""The listener of the health checks, over real connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from pybroker.management import health
from pybroker.management.checks import Health
from pybroker.management.health import CONNECTIONS_MAX, REQUEST_BYTES_MAX, HealthConnection

SECONDS = 60.0

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@asynccontextmanager
async def listening() -> AsyncIterator[Connect]:
    connections: dict[HealthConnection, None] = {}

    def check(path: str) -> Health:
        return Health(HTTPStatus.OK if path == "/live" else HTTPStatus.SERVICE_UNAVAILABLE, path[1:])

    made = await asyncio.get_running_loop().create_server(
        lambda: HealthConnection(check, connections), "127.0.0.1", 0, backlog=1024
    )
    async with made:
        port = made.sockets[0].getsockname()[1]
        opened: list[asyncio.StreamWriter] = []

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.append(writer)
            return reader, writer

        try:
            yield connect
        finally:
            for each in list(connections):
                each.abort()
            for writer in opened:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()


def ask(*parts: bytes) -> str:
    """Send the parts of a request, and return all that comes until the connection is closed."""

    async def run() -> bytes:
        async with asyncio.timeout(SECONDS), listening() as connect:
            reader, writer = await connect()
            for part in parts:
                writer.write(part)
                await writer.drain()
            return await reader.read()

    return asyncio.run(run()).decode()


def test_an_answer_is_whole() -> None:
    assert ask(b"GET /live HTTP/1.1\r\nHost: h\r\n\r\n") == (
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 5\r\n"
        "cache-control: no-store\r\nconnection: close\r\n\r\nlive\n"
    )


def test_head_has_no_body() -> None:
    answer = ask(b"HEAD /master HTTP/1.0\r\n\r\n")
    assert answer.startswith("HTTP/1.1 503 Service Unavailable\r\n")
    assert "content-length: 7\r\n" in answer
    assert answer.endswith("\r\n\r\n")


@pytest.mark.parametrize(
    ("request_head", "first_line", "text"),
    [
        (b"GET /live?verbose=1 HTTP/1.1\r\n\r\n", "200 OK", "live"),
        (b"GET /live HTTP/1.1\nHost: h\n\n", "200 OK", "live"),
        (b"GET /ready HTTP/1.0\r\n\r\nignored", "503 Service Unavailable", "ready"),
        (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found", "there are /live, /ready, /master, /standby"),
        (b"GET /../live HTTP/1.1\r\n\r\n", "404 Not Found", "there are /live, /ready, /master, /standby"),
        (b"POST /live HTTP/1.1\r\n\r\n", "405 Method Not Allowed", "only GET and HEAD are answered"),
        (b"GET /live HTTP/2.0\r\n\r\n", "400 Bad Request", "the request is not one of HTTP/1.x"),
        (b"GET /live\r\n\r\n", "400 Bad Request", "the request is not one of HTTP/1.x"),
        (b"\r\n\r\n", "400 Bad Request", "the request is not one of HTTP/1.x"),
        (b"\x16\x03\x01\xff\n\n", "400 Bad Request", "the request is not one of HTTP/1.x"),
        (b"GET /" + b"x" * REQUEST_BYTES_MAX, "431 Request Header Fields Too Large", "the request is too large"),
    ],
)
def test_requests(request_head: bytes, first_line: str, text: str) -> None:
    answer = ask(request_head)
    assert answer.startswith(f"HTTP/1.1 {first_line}\r\n")
    assert answer.endswith(f"\r\n\r\n{text}\n")


def test_a_method_that_is_not_allowed_is_told_the_others() -> None:
    assert "\r\nallow: GET, HEAD\r\n" in ask(b"DELETE /live HTTP/1.1\r\n\r\n")


def test_a_request_may_come_byte_by_byte() -> None:
    head = b"GET /live HTTP/1.1\r\nHost: h\r\n\r\n"
    assert ask(*(head[at : at + 1] for at in range(len(head)))).endswith("\r\n\r\nlive\n")


def test_a_request_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "REQUEST_SECONDS", 0.05)
    answer = ask(b"GET /live HTTP/1.1\r\n")
    assert answer.startswith("HTTP/1.1 408 Request Timeout\r\n")
    assert answer.endswith("\r\n\r\nthe request did not end within 0.05 s\n")


def test_connections_that_ask_nothing_keep_no_check_from_its_answer() -> None:
    async def run() -> None:
        async with asyncio.timeout(SECONDS), listening() as connect:
            idle = [await connect() for _ in range(CONNECTIONS_MAX + 5)]
            reader, writer = await connect()
            writer.write(b"GET /live HTTP/1.1\r\n\r\n")
            assert (await reader.read()).endswith(b"live\n")
            assert await idle[0][0].read() == b""  # the oldest made room

    asyncio.run(run())
