"""The HTTP server of management: its routes, behind the checks that each request has to pass.

```text
request -> limits -> login -> role -> same site, if it changes something -> handler -> answer
             |         |        |        |                                     |
            4xx       401      403      403                              4xx, 5xx: {"error": "one sentence"}
```
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from pybroker.broker.domain.node_requests import RequestFailed
from pybroker.management.connections import HttpConnection
from pybroker.management.routes import VISITOR, Handler, Route
from pybroker.management.visitors import Visitors, is_same_origin

BODY_BYTES_MAX: Final = 2 << 20
TOO_LONG: Final = "the request took too long, and what is left of it is not done"

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
"""A parameter of a path. Without a pattern of its own aiohttp takes none with a brace, which names may have."""

_LOGIN: Final = {"WWW-Authenticate": 'Basic realm="pybroker", charset="UTF-8"'}

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Server": "pybroker",
    "X-Frame-Options": "DENY",
}

_log = logging.getLogger(__name__)


def make_application(routes: Iterable[Route], visitors: Visitors) -> web.Application:
    """Return the application with these routes."""
    application = web.Application(
        client_max_size=BODY_BYTES_MAX, middlewares=[_connection, _headers, _errors], logger=_log
    )
    for route in routes:
        handler = _limited(_checked(route, visitors), route.seconds)
        path = _PARAMETER.sub(r"{\1:[^/]+}", route.path)
        for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
            application.router.add_route(method, path, handler)
    return application


def _checked(route: Route, visitors: Visitors) -> Handler:
    """Return the handler of a route behind the checks of its role."""
    role = route.role
    if role is None:
        return route.handler

    async def handle(request: web.Request) -> web.StreamResponse:
        visitor = await visitors.visitor(request.headers, request.remote or "")
        if visitor.role < role:
            await visitors.deny(visitor, request.method, request.path)
            raise RequestFailed(
                HTTPStatus.FORBIDDEN,
                f"this needs the role {role.name.lower()}, and {visitor.user} has {visitor.role.name.lower()}",
            )
        if route.changes and not route.checks_origin and not is_same_origin(request.headers, request.scheme):
            await visitors.deny(visitor, f"{request.method} from another site", request.path)
            raise RequestFailed(HTTPStatus.FORBIDDEN, "a page of another site may not change anything here")
        request[VISITOR] = visitor
        return await route.handler(request)

    return handle


def _limited(handler: Handler, seconds: float) -> Handler:
    """Return a handler that has so many seconds."""

    async def handle(request: web.Request) -> web.StreamResponse:
        async with asyncio.timeout(seconds):
            return await handler(request)

    return handle


@web.middleware
async def _connection(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Keep the connection of a request from being closed for another while it is answered."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection), "the server makes no others"
    connection.begin()
    try:
        return await handler(request)
    finally:
        connection.end()


@web.middleware
async def _headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    if not response.prepared:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
    return response


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestFailed as error:
        return failure(error.status, error.text, _LOGIN if error.status is HTTPStatus.UNAUTHORIZED else {})
    except web.HTTPException as error:
        if error.status < HTTPStatus.BAD_REQUEST:
            raise
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return failure(HTTPStatus(error.status), _sentence(error, request), allow)
    except TimeoutError:
        return failure(HTTPStatus.REQUEST_TIMEOUT, TOO_LONG)
    except Exception:
        _log.exception("%s %s failed", request.method, request.path)
        return failure(HTTPStatus.INTERNAL_SERVER_ERROR, "this failed by a mistake of pybroker: see the member's log")


def failure(status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer with an error."""
    return web.json_response({"error": text}, status=status, headers=headers)


def _sentence(error: web.HTTPException, request: web.Request) -> str:
    sentences: dict[int, str] = {
        HTTPStatus.NOT_FOUND: f"there is nothing at {request.path}: /api/v1/openapi.json names what there is",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.path} has no method {request.method}",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: f"the body is larger than {BODY_BYTES_MAX:,} bytes",
    }
    return sentences.get(error.status, error.reason)


def stream_answer(content_type: str) -> web.StreamResponse:
    """Return an answer that is written piece by piece, and not held back by a proxy."""
    answer = web.StreamResponse(headers=_HEADERS | {"X-Accel-Buffering": "no"})  # nginx reads it
    answer.content_type = content_type
    return answer


def json_answer(value: Any) -> web.Response:
    """Return an answer in JSON."""
    return web.json_response(value)
