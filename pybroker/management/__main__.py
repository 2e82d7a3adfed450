"""Runs the management process, which `pybroker start` begins: it ends with the node."""

import argparse
import asyncio
import signal
import socket
import time
from typing import Final

from pybroker.management.checks import Health, check
from pybroker.management.health import HealthConnection
from pybroker.management.link import NodeLink

BACKLOG: Final = 128
"""Connections that wait in the kernel. As many are accepted in one turn, before any of them is closed."""


def main() -> None:
    """Serve until the node ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # sent to all processes of a terminal or a service
        signal.signal(number, signal.SIG_IGN)  # the node decides
    parser = argparse.ArgumentParser(prog="python -m pybroker.management", description=__doc__)
    parser.add_argument("--link", type=int, required=True, help="the descriptor of the link to the node")
    parser.add_argument("--health", type=int, required=True, help="that of the bound socket of the health checks")
    given = parser.parse_args()
    asyncio.run(_serve(socket.socket(fileno=given.link), socket.socket(fileno=given.health)))


async def _serve(end: socket.socket, health: socket.socket) -> None:
    link = await NodeLink.connect(end)

    def answer(path: str) -> Health:
        return check(path, link.state, time.monotonic())

    connections: dict[HealthConnection, None] = {}
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: HealthConnection(answer, connections), sock=health, backlog=BACKLOG):
        await link.ended
        for each in list(connections):
            each.abort()


if __name__ == "__main__":
    main()
