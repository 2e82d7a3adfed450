"""The web console at `/console/`: a page, its modules and its style sheets, which are files of this package.

They are read once, when this module is imported, and each is a route of its own: no path of a request becomes one of
the file system. Browsers keep them, and ask each time whether they are still the same.

The page itself needs a login, so that a browser asks for it once; all else that it shows comes from REST. All addresses
are relative, so that the console works below any path of a reverse proxy.

Source: management.md, section 8; Content Security Policy Level 3; Trusted Types.
"""

import hashlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib import resources
from pathlib import PurePath
from typing import Final, NamedTuple

from aiohttp import web

from pybroker.broker.domain.node_requests import ManagementRole
from pybroker.management.routes import Handler, Route

PAGE: Final = "index.html"

_CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Browsers refuse scripts and styles inside the page, and text that a script would have them read as HTML."""

_MOVED: Final = {
    "/": "console/",
    "/console": "console/",
    "/admin": "console/",
    "/admin/": "../console/",
    "/admin/index.jsp": "../console/",
    "/admin/queues.jsp": "../console/#/queues",
    "/admin/topics.jsp": "../console/#/topics",
    "/admin/subscribers.jsp": "../console/#/subscriptions",
    "/admin/connections.jsp": "../console/#/connections",
    "/admin/scheduled.jsp": "../console/#/scheduled",
}
"""The pages of ActiveMQ's console, which users have among their bookmarks."""


class ConsoleFile(NamedTuple):
    """One file: its bytes, their type, and the entity tag that they have."""

    content: bytes
    content_type: str
    etag: str


def _read() -> Mapping[str, ConsoleFile]:
    found: dict[str, ConsoleFile] = {}
    for each in (resources.files("pybroker.management") / "console").iterdir():
        content_type = _CONTENT_TYPES.get(PurePath(each.name).suffix)
        if content_type is not None:
            content = each.read_bytes()
            found[each.name] = ConsoleFile(content, content_type, hashlib.blake2b(content, digest_size=12).hexdigest())
    return found


FILES: Final = _read()
"""All files, by their names."""


def routes() -> Sequence[Route]:
    """Return the routes of the files, and of the addresses that lead to them."""
    return [
        _route("/console/", _file(FILES[PAGE]), ManagementRole.MONITOR),
        *(_route(f"/console/{name}", _file(each), None) for name, each in FILES.items() if name != PAGE),
        *(_route(path, _moved(target), None) for path, target in _MOVED.items()),
    ]


def _route(path: str, handler: Handler, role: ManagementRole | None) -> Route:
    return Route(method="GET", path=path, handler=handler, role=role, is_documented=False)


def _file(found: ConsoleFile) -> Handler:
    headers = {"Cache-Control": "no-cache", "ETag": f'"{found.etag}"', "Content-Security-Policy": _POLICY}

    async def answer(request: web.Request) -> web.StreamResponse:
        if any(tag.value in (found.etag, "*") for tag in request.if_none_match or ()):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        return web.Response(body=found.content, headers=headers | {"Content-Type": found.content_type})

    return answer


def _moved(target: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=HTTPStatus.TEMPORARY_REDIRECT, headers={"Location": target})

    return answer
