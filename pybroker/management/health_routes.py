"""The health checks on the port of management: the same as on their own."""

import time
from collections.abc import Sequence

from aiohttp import web

from pybroker.management.checks import PATHS, check
from pybroker.management.link import NodeLink
from pybroker.management.routes import Route


def routes(link: NodeLink) -> Sequence[Route]:
    """Return their routes, which need no login."""

    async def answer(request: web.Request) -> web.StreamResponse:
        health = check(request.path, link.state, time.monotonic())
        return web.Response(status=health.status, text=f"{health.text}\n")

    return [
        Route(method="GET", path=path, handler=answer, role=None, summary="A health check, in one line of text.")
        for path in PATHS
    ]
