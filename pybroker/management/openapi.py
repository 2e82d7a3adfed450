"""The OpenAPI document of the routes, at `/api/v1/openapi.json`.

Source: OpenAPI 3.1.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from aiohttp import web

from pybroker import __version__
from pybroker.management.routes import Parameter, Route
from pybroker.management.site import json_answer

PATH: Final = "/api/v1/openapi.json"

_NAMES = re.compile(r"{(\w+)}")

_ERROR: Final = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "One sentence."}},
    "required": ["error"],
}


def route(routes: Sequence[Route]) -> Route:
    """Return the route of the document of these routes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer(document)

    found = Route(method="GET", path=PATH, handler=answer, summary="This document.")
    document = make_document([*routes, found])
    return found


def make_document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for each in routes:
        if each.is_documented:
            paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pybroker",
            "version": __version__,
            "description": "Management of a member of a pybroker installation. A standby answers 503 for all that only "
            "the master has.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"login": {"type": "http", "scheme": "basic"}},
        },
    }


def _operation(each: Route) -> dict[str, Any]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _NAMES.findall(each.path)
    ]
    operation: dict[str, Any] = {
        "summary": each.summary,
        "parameters": [*in_path, *map(_parameter, each.parameters)],
        "responses": {
            "200": {"description": "Done."} | _content(each.answer),
            "default": {"description": "An error, in one sentence."} | _content({"$ref": "#/components/schemas/Error"}),
        },
    }
    if each.role is not None:
        operation["security"] = [{"login": []}]
        operation["description"] = f"Needs the role {each.role.name.lower()}."
    if each.body is not None:
        operation["requestBody"] = {"required": True} | _content(each.body)
    return operation


def _parameter(each: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": each.type}
    if each.values:
        schema["enum"] = list(each.values)
    if each.default is not None:
        schema["default"] = each.default
    return {"name": each.name, "in": "query", "description": each.description, "schema": schema}


def _content(schema: dict[str, Any] | None) -> dict[str, Any]:
    return {} if schema is None else {"content": {"application/json": {"schema": schema}}}
