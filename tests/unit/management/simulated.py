"""The HTTP server over real connections, beside a node of which the test says what it answers."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from pybroker import __version__
from pybroker.broker.app.management_link import ManagementLink
from pybroker.broker.domain.node_requests import DestinationRow, RequestFailed
from pybroker.broker.domain.node_state import NodeState
from pybroker.broker.domain.role import Role
from pybroker.management.link import NodeLink
from pybroker.management.server import serve

SECONDS = 60.0

Answer = Callable[[Mapping[str, Any]], Any]


def row(name: str, kind: str = "queue", **values: Any) -> DestinationRow:
    """Return the row of a queue or topic; other columns are 0."""
    empty = dict.fromkeys(DestinationRow._fields, 0) | {"kind": kind, "name": name, "is_temporary": False}
    return DestinationRow(**empty | values)  # type: ignore[arg-type]


class SimulatedNode:
    """Answers requests by `methods`: a list among the results is one of rows, a tuple has rows and the result, an async
    iterator has several results.
    """

    def __init__(self, methods: Mapping[str, Answer]) -> None:
        self.methods = methods
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def answer(self, method: str, arguments: Mapping[str, Any], send: Any) -> object:
        self.asked.append((method, arguments))
        if method not in self.methods:
            raise RequestFailed(HTTPStatus.NOT_IMPLEMENTED, f"no {method}")
        result = self.methods[method](arguments)
        if asyncio.iscoroutine(result):
            result = await result
        results = result if isinstance(result, AsyncIterator) else _one(result)
        last = None
        async for each in results:
            if isinstance(each, list):
                await send(each)
            elif isinstance(each, tuple):
                await send(each[0])
                last = each[1]
            else:
                last = each
        return last


async def _one(result: Any) -> AsyncIterator[Any]:
    yield result


class Site:
    """A client of the server.

    Attributes:
        node: the node behind it.
        link: the node's end of the link.
    """

    def __init__(self, node: SimulatedNode, link: ManagementLink, port: int) -> None:
        self.node = node
        self.link = link
        self.port = port

    async def exchange(self, data: bytes) -> bytes:
        """Send bytes, and return all that comes until the connection is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        try:
            return await reader.read()
        finally:
            writer.close()

    async def ask(self, target: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any]:
        """Return status and JSON of an answer; text that is no JSON as it is."""
        status, _, content = await self.ask_raw(target, method, body, **headers)
        try:
            return status, json.loads(content)
        except ValueError:
            return status, content

    async def until(self, ask: Callable[[], Awaitable[tuple[Any, ...]]], status: int) -> None:
        """Ask until the status is as expected: the process reads its link when it comes to it."""
        while (await ask())[0] != status:
            pass

    async def ask_raw(
        self, target: str, method: str = "GET", body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """Return status, header fields in lower case, and text of an answer."""
        payload = b"" if body is None else json.dumps(body).encode()
        fields = {"Host": f"127.0.0.1:{self.port}", "Connection": "close"}
        if body is not None:
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(payload))}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        head, _, content = (await self.exchange("\r\n".join(lines).encode() + payload)).partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        found = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        return int(first.split()[1]), found, content.decode()


@asynccontextmanager
async def site(
    methods: Mapping[str, Answer], *, has_users: bool = False, version: str = __version__, role: Role = Role.MASTER
) -> AsyncIterator[Site]:
    """Serve, within a time limit."""
    node = SimulatedNode(methods)
    mine, other = socket.socketpair()
    port = socket.create_server(("127.0.0.1", 0))
    async with asyncio.timeout(SECONDS):
        _, link = await asyncio.get_running_loop().create_unix_connection(
            lambda: ManagementLink(node),  # type: ignore[arg-type]
            sock=mine,
        )
        link.set_up({"version": version, "has_users": has_users, "tls": None})
        link.tell(NodeState(role=role, obstacle="", at=time.monotonic()))
        process = await NodeLink.connect(other)
        try:
            async with serve(process, await process.setup, port, 128):
                yield Site(node, link, port.getsockname()[1])
        finally:
            link.close()
            await process.ended
