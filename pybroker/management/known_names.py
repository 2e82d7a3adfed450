"""Refuses unknown names of parameters and fields: a filter with a typing error would otherwise select everything."""

import difflib
from collections.abc import Collection
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from aiohttp import web

from pybroker.broker.domain.node_requests import RequestFailed
from pybroker.management.routes import Route

_SHOWN_MAX: Final = 50


def require_known(kind: str, given: Collection[str], known: Collection[str]) -> None:
    """Check that all names that are given are known.

    Args:
        kind: the kind of names, `parameter` or `field`.
        given: the names.
        known: the names that there are.

    Raises:
        RequestFailed: one is unknown. The sentence has the nearest known name, or all if none is near.
    """
    unknown = min((name for name in given if name not in known), default=None)
    if unknown is None:
        return
    near = difflib.get_close_matches(unknown[:_SHOWN_MAX].lower(), known, n=1)
    if near:
        remedy = f"did you mean {near[0]!r}?"
    else:
        remedy = f"there are {', '.join(known)}" if known else "this request has none"
    raise RequestFailed(HTTPStatus.BAD_REQUEST, f"there is no {kind} {unknown[:_SHOWN_MAX]!r} here: {remedy}")


def with_known_parameters(route: Route) -> Route:
    """Return a route that refuses a request with a parameter that the OpenAPI document does not have."""
    known = tuple(each.name for each in route.parameters)

    async def answer(request: web.Request) -> web.StreamResponse:
        require_known("parameter", request.query.keys(), known)
        return await route.handler(request)

    return replace(route, handler=answer)
