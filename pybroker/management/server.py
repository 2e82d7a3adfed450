"""Opens the HTTP server of management, with all that it serves."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus

from aiohttp import web

from pybroker import __version__
from pybroker.management import (
    console_routes,
    health_routes,
    jolokia,
    journal,
    metrics,
    openapi,
    operations,
    rest,
    xml_pages,
)
from pybroker.management.connections import OpenConnections
from pybroker.management.history import TotalsHistory
from pybroker.management.history import routes as history_routes
from pybroker.management.jmx_actions import NodeActions
from pybroker.management.known_names import with_known_parameters
from pybroker.management.link import NodeLink
from pybroker.management.routes import Route
from pybroker.management.setup import Setup
from pybroker.management.site import make_application
from pybroker.management.snapshots import Snapshots
from pybroker.management.visitors import Visitors
from pybroker.transports.certificates import Certificates

_HANDSHAKE_SECONDS = 5.0

_SHUTDOWN_SECONDS = 0.5
"""The time that requests have to end once the node has: another run of the member wants the ports."""


@contextlib.asynccontextmanager
async def serve(link: NodeLink, setup: Setup, port: socket.socket, backlog: int) -> AsyncGenerator[None]:
    """Serve on a bound socket while the context is open."""
    visitors = Visitors(link, has_users=setup.has_users)
    snapshots = Snapshots(link)
    history = TotalsHistory(snapshots)
    if setup.version == __version__:
        routes = _routes(link, snapshots, history, visitors)
    else:
        routes = [*health_routes.routes(link), _outdated(setup.version)]
    application = make_application(routes, visitors)
    runner = web.AppRunner(
        application, handle_signals=False, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS
    )
    await runner.setup()
    assert runner.server is not None, "it was set up"
    connections = OpenConnections(runner.server)
    tls, watching = None, [asyncio.create_task(history.watch())]
    if setup.certificates is not None:
        tls = _replaceable(setup.certificates)
        watching.append(asyncio.create_task(setup.certificates.watch()))
    listening = await asyncio.get_running_loop().create_server(
        connections.make,
        sock=port,
        backlog=backlog,
        ssl=tls,
        ssl_handshake_timeout=None if tls is None else _HANDSHAKE_SECONDS,
    )
    try:
        yield
    finally:
        listening.close()  # without waiting for connections, which `cleanup` ends
        for task in watching:
            task.cancel()
        await runner.cleanup()


def api_routes(link: NodeLink, snapshots: Snapshots, history: TotalsHistory) -> Sequence[Route]:
    """Return the routes of `/api/v1`, without its document."""
    return [
        *rest.routes(snapshots, history.rates_of),
        *history_routes(history),
        *journal.routes(snapshots),
        *operations.routes(link, snapshots),
    ]


def _routes(link: NodeLink, snapshots: Snapshots, history: TotalsHistory, visitors: Visitors) -> Sequence[Route]:
    api = api_routes(link, snapshots, history)
    others = [
        *health_routes.routes(link),
        *jolokia.routes(snapshots, visitors, NodeActions(link)),
        *xml_pages.routes(snapshots),
        *metrics.routes(link, snapshots),
    ]
    document = openapi.route([*api, *others])
    return [*map(with_known_parameters, (*api, document)), *others, *console_routes.routes()]


def _outdated(version: str) -> Route:
    """Return the route for everything, where pybroker was upgraded below a member that still runs."""
    text = f"this member runs pybroker {version}, and {__version__} is installed now: restart it"

    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": text}, status=HTTPStatus.SERVICE_UNAVAILABLE)

    return Route(method="GET", path="/{path:.*}", handler=refuse, role=None)


def _replaceable(certificates: Certificates) -> ssl.SSLContext:
    """Return a context that has each connection use the newest certificates."""
    context = certificates.context()

    def use_newest(connection: ssl.SSLObject, name: str | None, former: ssl.SSLContext) -> None:
        connection.context = certificates.context()

    context.sni_callback = use_newest
    return context
