"""Runs the management process, which `pybroker start` begins: it ends with the node."""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncGenerator
from typing import Final

from pybroker.management.checks import check
from pybroker.management.health import HealthConnection
from pybroker.management.link import NodeLink, NodeLog

BACKLOG: Final = 128
"""Connections that wait in the kernel. As many are accepted in one turn, before any of them is closed."""

_NICENESS: Final = 5
"""A third of the weight of the node, where all processors are busy."""


def main() -> None:
    """Serve until the node ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # sent to all processes of a terminal or a service
        signal.signal(number, signal.SIG_IGN)  # the node decides
    parser = argparse.ArgumentParser(prog="python -m pybroker.management", description=__doc__)
    parser.add_argument("--link", type=int, required=True, help="the descriptor of the link to the node")
    parser.add_argument("--health", type=int, help="that of the bound socket of the health checks")
    parser.add_argument("--management", type=int, help="that of the bound socket of the HTTP server")
    given = parser.parse_args()
    os.nice(_NICENESS)
    asyncio.run(_serve(socket.socket(fileno=given.link), _socket(given.health), _socket(given.management)))


def _socket(descriptor: int | None) -> socket.socket | None:
    return None if descriptor is None else socket.socket(fileno=descriptor)


async def _serve(end: socket.socket, health: socket.socket | None, management: socket.socket | None) -> None:
    link = await NodeLink.connect(end)
    log = NodeLog(link)
    logging.getLogger().addHandler(log)
    async with contextlib.AsyncExitStack() as stack:
        if health is not None:
            await stack.enter_async_context(_checks(link, health))
        if management is not None and await _has_setup(link):
            from pybroker.management.server import serve  # with aiohttp, which health checks do not need

            await stack.enter_async_context(serve(link, await link.setup, management, BACKLOG))
        await link.ended
        logging.getLogger().removeHandler(log)


async def _has_setup(link: NodeLink) -> bool:
    """Wait for the settings; return False if the node has ended before: else its ports would stay taken for ever."""
    await asyncio.wait((link.setup, link.ended), return_when=asyncio.FIRST_COMPLETED)
    return link.setup.done()


@contextlib.asynccontextmanager
async def _checks(link: NodeLink, port: socket.socket) -> AsyncGenerator[None]:
    """Answer health checks."""
    connections: dict[HealthConnection, None] = {}

    def make() -> HealthConnection:
        return HealthConnection(lambda path: check(path, link.state, time.monotonic()), connections)

    async with await asyncio.get_running_loop().create_server(make, sock=port, backlog=BACKLOG):
        yield
        for each in list(connections):
            each.abort()


if __name__ == "__main__":
    main()
