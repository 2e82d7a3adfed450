"""REST of `/api/v1`: what operators and admins do, and the messages that they look at.

A change is a POST or a DELETE. One that takes long answers as `operation_stream` has it; who closes its connection
before the answer is complete ends it.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from aiohttp import web

from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.errors import InvalidDestination
from pybroker.broker.domain.node_requests import JobRow, ManagementRole, RequestFailed
from pybroker.broker.domain.openwire.loose import UnencodableOpenWire
from pybroker.broker.domain.operations import FROM_THE_BEGINNING, LAST_PAGE, missing_destination
from pybroker.management.known_names import require_known
from pybroker.management.link import NodeLink
from pybroker.management.messages import BODIES, browsed_rows, message_json, page_json, to_send
from pybroker.management.operation_stream import OperationStream
from pybroker.management.paging import PAGE_SIZE, cursor_page_schema, whole
from pybroker.management.rest import API
from pybroker.management.routes import VISITOR, Handler, Parameter, Route
from pybroker.management.site import TOO_LONG, json_answer
from pybroker.management.snapshots import Snapshots

CHANGE_SECONDS: Final = 600.0
"""The time of an operation on many messages."""

_REQUEST_SECONDS: Final = CHANGE_SECONDS + 60.0
"""The time of its request: that in which the body comes besides."""

MESSAGES: Final = 50
MESSAGES_MAX: Final = 500

IDS_MAX: Final = 1000
"""The ids of one request, which the node reads in some 0.3 ms."""

PAGE_BYTES: Final = 1 << 20
"""The bytes of messages of a page."""

_PAGES_MAX: Final = 4
"""Pages, or single messages, that are made at a time: each may take a hundred megabytes."""

_SELECTION: Final = {
    "selector": {"type": "string", "description": "An SQL-92 condition of JMS; every message without it."},
    "message_ids": {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": IDS_MAX,
        "description": "The ids of messages.",
    },
    "maximum": {"type": "integer", "description": "How many at most."},
    "dry_run": {"type": "boolean", "description": "Only count them."},
}
_TARGET: Final = {"target": {"type": "string", "description": "`queue://NAME` or `topic://NAME`."}}
_RESULT: Final = {
    "type": "object",
    "properties": {
        "affected": {"type": "integer", "description": "Messages that were removed, moved, copied or counted."},
        "examined": {"type": "integer", "description": "Messages that were looked at."},
        "skipped": {"type": ["integer", "null"], "description": "Selected messages that stay as they are."},
        "in_flight": {"type": ["integer", "null"], "description": "Messages at consumers, which no operation touches."},
        "is_cancelled": {"type": "boolean"},
        "error": {
            "type": ["string", "null"],
            "description": "Why it ended early; if the member has ended, the counts are those of a second before.",
        },
    },
}
_SEND: Final = {
    "body": {"description": "A text; base64 for bytes; an object for a map; null for no body."},
    "body_type": {"type": "string", "enum": ["text", "bytes", "map"], "default": "text"},
    "persistent": {"type": "boolean", "default": True},
    "priority": {"type": "integer", "default": 4},
    "time_to_live_ms": {"type": "integer", "default": 0},
    **{name: {"type": "string"} for name in ("correlation_id", "type", "reply_to", "group_id")},
    "properties": {"type": "object"},
}
_CHANGES: Final[Mapping[str, str]] = {
    "remove": "Remove messages that wait; name them by a selector or their ids.",
    "move": "Move messages that wait to another destination, in one transaction each.",
    "copy": "Copy messages that wait to another destination.",
    "retry": "Move messages of a dead letter queue back to where they came from.",
}
_TYPES: Final = {"queue": "QUEUE", "topic": "TOPIC"}


def routes(link: NodeLink, snapshots: Snapshots) -> Sequence[Route]:
    """Return the routes; who asks for `snapshots` after a change sees it."""
    found = [
        *_of_messages(link),
        *_of_destinations(link),
        *_of_clients(link),
        *_of_transactions(link),
        *_of_jobs(link),
        *_of_network(link),
        _of_pair(link),
    ]
    return [_seen(each, snapshots) if each.changes else each for each in found]


def _seen(route: Route, snapshots: Snapshots) -> Route:
    """Return a route after whose changes the snapshots are taken again."""

    async def change(request: web.Request) -> web.StreamResponse:
        try:
            return await route.handler(request)
        finally:
            snapshots.forget()  # also after an error: a part may have been done

    return replace(route, handler=change)


# ---------------------------------------------------------------- messages


def _of_messages(link: NodeLink) -> Sequence[Route]:
    queue, turns = f"{API}/queues/{{name}}", asyncio.Semaphore(_PAGES_MAX)
    browsing = [
        Parameter(name="after", description="The cursor of the page before.", type="integer"),
        Parameter(name="last", description="The last page, of the newest messages.", values=("true",)),
        Parameter(name="count", description="The number of messages.", type="integer", default=MESSAGES),
        Parameter(name="selector", description="An SQL-92 condition of JMS."),
        Parameter(name="body", description="How much of the bodies.", values=BODIES, default="preview"),
    ]
    return [
        _get(
            f"{queue}/messages", partial(_browse, link, turns, "queue"), "A page of the messages of a queue.", browsing
        ),
        _get(f"{queue}/messages/{{message_id}}", partial(_message, link, turns), "One message of a queue."),
        _get(
            f"{API}/subscriptions/{{name}}/messages",
            partial(_browse, link, turns, "subscription"),
            "A page of what a durable subscription holds.",
            browsing,
        ),
        *[
            _post(
                f"{queue}/{operation}",
                partial(_change, link, operation),
                summary,
                _SELECTION | (_TARGET if operation in ("move", "copy") else {}),
                seconds=_REQUEST_SECONDS,
                answer=_RESULT,
            )
            for operation, summary in _CHANGES.items()
        ],
        _post(
            f"{queue}/purge",
            partial(_purge, link),
            "Remove all messages that wait.",
            {},
            seconds=_REQUEST_SECONDS,
            answer=_RESULT,
        ),
        *[
            _post(f"{API}/{kind}s/{{name}}/messages", partial(_send, link, kind), f"Send a message to a {kind}.", _SEND)
            for kind in _TYPES
        ],
    ]


async def _browse(link: NodeLink, turns: asyncio.Semaphore, kind: str, request: web.Request) -> web.StreamResponse:
    query = request.query
    body = query.get("body", "preview")
    if body not in BODIES:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"body is one of {', '.join(BODIES)}")
    asked = {
        kind: request.match_info["name"],
        "cursor": _cursor(query),
        "count": whole(query, "count", MESSAGES, 1, MESSAGES_MAX),
        "byte_count": PAGE_BYTES,
        "selector": query.get("selector"),
    }
    async with turns:
        answer = await link.ask("browse", **asked)
        messages = await asyncio.to_thread(page_json, browsed_rows(answer.rows), body)
    return json_answer({"messages": messages} | answer.result)


def _cursor(query: Mapping[str, str]) -> int:
    if "last" not in query:
        return whole(query, "after", FROM_THE_BEGINNING, 0, 1 << 62)
    if query["last"] != "true":
        raise RequestFailed(HTTPStatus.BAD_REQUEST, "last is true, or left out")
    if "after" in query or query.get("selector", "").strip():
        raise RequestFailed(
            HTTPStatus.BAD_REQUEST, "last=true is the last page of all messages: leave after and selector out"
        )
    return LAST_PAGE


async def _message(link: NodeLink, turns: asyncio.Semaphore, request: web.Request) -> web.StreamResponse:
    name, message_id = request.match_info["name"], request.match_info["message_id"]
    async with turns:
        rows = browsed_rows((await link.ask("message", queue=name, message_id=message_id)).rows)
        if not rows:
            raise RequestFailed(HTTPStatus.NOT_FOUND, f"there is no message {message_id!r} in queue {name!r} any more")
        return json_answer(await asyncio.to_thread(message_json, rows[0], "full"))


async def _change(link: NodeLink, operation: str, request: web.Request) -> web.StreamResponse:
    fields = await _body(request, (*_SELECTION, *_TARGET))
    selector, ids = _optional(fields, "selector", str), _optional(fields, "message_ids", list)
    if ids is not None and not all(isinstance(each, str) for each in ids):
        raise RequestFailed(HTTPStatus.BAD_REQUEST, "message_ids is a list of texts")
    if ids is not None and len(ids) > IDS_MAX:
        raise RequestFailed(
            HTTPStatus.BAD_REQUEST, f"message_ids has at most {IDS_MAX}: name the others in a next request"
        )
    if operation == "remove" and not (selector or "").strip() and ids is None:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, "remove needs a selector or message_ids; purge removes all")
    maximum = _optional(fields, "maximum", int)
    if maximum is not None and maximum < 0:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, "maximum is not negative")
    target = _target(_optional(fields, "target", str)) if operation in ("move", "copy") else None
    return await _carry_out(
        link,
        request,
        operation="count" if _optional(fields, "dry_run", bool) else operation,
        selector=selector,
        message_ids=ids,
        maximum=maximum,
        target=target,
    )


async def _purge(link: NodeLink, request: web.Request) -> web.StreamResponse:
    await _body(request, ())
    return await _carry_out(link, request, operation="remove", selector=None, message_ids=None, maximum=None)


async def _carry_out(link: NodeLink, request: web.Request, **arguments: Any) -> web.StreamResponse:
    stream, queue = OperationStream(request), request.match_info["name"]
    try:
        async with asyncio.timeout(CHANGE_SECONDS):
            result = await link.follow("change", stream.report, queue=queue, **arguments, **_actor(request))
    except RequestFailed as error:
        return await stream.fail(error)
    except TimeoutError:
        return await stream.fail(RequestFailed(HTTPStatus.REQUEST_TIMEOUT, TOO_LONG))
    return await stream.end(result)


async def _send(link: NodeLink, kind: str, request: web.Request) -> web.StreamResponse:
    fields = await _body(request, tuple(_SEND))
    try:
        data = to_send(_destination(kind, request.match_info["name"]), fields, round(time.time() * 1000))
    except UnencodableOpenWire as error:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, str(error)) from error
    return json_answer((await link.ask("send", data=data, **_actor(request))).result)


# ---------------------------------------------------------------- destinations


def _of_destinations(link: NodeLink) -> Sequence[Route]:
    queue, name = f"{API}/queues/{{name}}", {"name": {"type": "string"}}
    found = [
        _post(f"{queue}/pause", partial(_pause, link, "pause"), "Deliver nothing to the consumers of a queue.", {}),
        _post(f"{queue}/resume", partial(_pause, link, "resume"), "Deliver again.", {}),
    ]
    for kind in _TYPES:
        create, delete = partial(_create, link, kind), partial(_delete, link, kind)
        admin = ManagementRole.ADMIN
        found.append(_post(f"{API}/{kind}s", create, f"Create a {kind}, unless there is one.", name, role=admin))
        summary = f"Delete a {kind} with its messages, unless it has consumers."
        found.append(_delete_route(f"{API}/{kind}s/{{name}}", delete, summary, admin))
    return found


async def _pause(link: NodeLink, method: str, request: web.Request) -> web.StreamResponse:
    await _body(request, ())
    return json_answer((await link.ask(method, queue=request.match_info["name"], **_actor(request))).result)


async def _create(link: NodeLink, kind: str, request: web.Request) -> web.StreamResponse:
    name = _optional(await _body(request, ("name",)), "name", str)
    target = str(_destination(kind, name or ""))
    try:
        return json_answer((await link.ask("create", target=target, **_actor(request))).result)
    except RequestFailed as error:
        if error.status is not HTTPStatus.NOT_FOUND:
            raise
        # The name cannot be used: nothing of it is looked for.
        raise RequestFailed(HTTPStatus.BAD_REQUEST, error.text) from error


async def _delete(link: NodeLink, kind: str, request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    result = (await link.ask("delete", target=str(_destination(kind, name)), **_actor(request))).result
    if not result["deleted"]:
        raise RequestFailed(HTTPStatus.NOT_FOUND, missing_destination(kind, name))
    return json_answer(result)


# ---------------------------------------------------------------- clients


def _of_clients(link: NodeLink) -> Sequence[Route]:
    cut_off, unsubscribe = partial(_cut_off, link), partial(_unsubscribe, link)
    return [
        _delete_route(f"{API}/connections/{{name}}", cut_off, "Close a connection.", ManagementRole.ADMIN),
        _delete_route(
            f"{API}/subscriptions/{{name}}",
            unsubscribe,
            "Delete a durable subscription with its messages, unless it has a consumer.",
            ManagementRole.OPERATOR,
        ),
    ]


async def _cut_off(link: NodeLink, request: web.Request) -> web.StreamResponse:
    answer = await link.ask("cut_off", connection_id=request.match_info["name"], **_actor(request))
    return json_answer(answer.result)


async def _unsubscribe(link: NodeLink, request: web.Request) -> web.StreamResponse:
    return json_answer((await link.ask("unsubscribe", key=request.match_info["name"], **_actor(request))).result)


# ---------------------------------------------------------------- transactions and jobs


def _of_transactions(link: NodeLink) -> Sequence[Route]:
    branch = f"{API}/transactions/{{name}}"
    return [
        _post(f"{branch}/commit", partial(_end_branch, link, True), "Commit a transaction in doubt.", {}),
        _post(f"{branch}/rollback", partial(_end_branch, link, False), "Roll a transaction in doubt back.", {}),
    ]


async def _end_branch(link: NodeLink, is_commit: bool, request: web.Request) -> web.StreamResponse:
    await _body(request, ())
    name = request.match_info["name"]
    return json_answer((await link.ask("end_branch", branch=name, commit=is_commit, **_actor(request))).result)


def _of_jobs(link: NodeLink) -> Sequence[Route]:
    parameters = [
        Parameter(name="after", description="The cursor of the page before."),
        Parameter(
            name="page_size",
            description=f"The number of its items, at most {MESSAGES_MAX}.",
            type="integer",
            default=PAGE_SIZE,
        ),
    ]
    due = Parameter(
        name="next_time_ms", description="The one that is due then, of several with this id.", type="integer"
    )
    return [
        _get(
            f"{API}/jobs",
            partial(_jobs, link),
            "The scheduled messages, the earliest first.",
            parameters,
            answer=cursor_page_schema(JobRow._fields),
        ),
        _delete_route(
            f"{API}/jobs/{{name}}",
            partial(_remove_job, link),
            "Remove the scheduled messages of an id.",
            ManagementRole.OPERATOR,
            [due],
        ),
    ]


async def _jobs(link: NodeLink, request: web.Request) -> web.StreamResponse:
    after, size = request.query.get("after"), whole(request.query, "page_size", PAGE_SIZE, 1, MESSAGES_MAX)
    cursor = None
    if after is not None:
        time_text, _, job_id = after.partition(":")
        cursor = [whole({"after": time_text}, "after", 0, 0, 1 << 53), job_id]
    answer = await link.ask("jobs", cursor=cursor, count=size)
    last = answer.result["cursor"]
    return json_answer(
        {
            "items": [JobRow(*row)._asdict() for row in answer.rows],
            "count": answer.result["total"],
            "page_size": size,
            "cursor": last and f"{last[0]}:{last[1]}",
        }
    )


async def _remove_job(link: NodeLink, request: web.Request) -> web.StreamResponse:
    text = request.query.get("next_time_ms")
    due = None if text is None else whole(request.query, "next_time_ms", 0, 0, 1 << 53)
    answer = await link.ask("remove_job", job_id=request.match_info["name"], next_time=due, **_actor(request))
    return json_answer(answer.result)


# ---------------------------------------------------------------- networks


def _of_network(link: NodeLink) -> Sequence[Route]:
    connector = f"{API}/network/connectors/{{name}}"
    stop, start = partial(_switch, link, "stop_connector"), partial(_switch, link, "start_connector")
    return [
        _post(f"{connector}/stop", stop, "End the bridges of a network connector, until it is started.", {}),
        _post(f"{connector}/start", start, "Open the bridges of a network connector again.", {}),
    ]


async def _switch(link: NodeLink, method: str, request: web.Request) -> web.StreamResponse:
    await _body(request, ())
    return json_answer((await link.ask(method, connector=request.match_info["name"], **_actor(request))).result)


# ---------------------------------------------------------------- the pair


def _of_pair(link: NodeLink) -> Route:
    force = {
        "force": {"type": "boolean", "description": "Even if no standby would take over."},
        "to": {"type": "string", "description": "The name of the member that takes over, of a replicated cluster."},
    }
    summary = "Have the master give its lock to a standby, and stand by itself."
    return _post(f"{API}/stepdown", partial(_step_down, link), summary, force, role=ManagementRole.ADMIN)


async def _step_down(link: NodeLink, request: web.Request) -> web.StreamResponse:
    body = await _body(request, ("force", "to"))
    force, to = bool(_optional(body, "force", bool)), str(_optional(body, "to", str) or "")
    return json_answer((await link.ask("step_down", force=force, to=to, **_actor(request))).result)


# ---------------------------------------------------------------- requests


def _get(
    path: str,
    handler: Handler,
    summary: str,
    parameters: Sequence[Parameter] = (),
    *,
    answer: dict[str, Any] | None = None,
) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        parameters=parameters,
        answer=answer or {"type": "object"},
    )


def _post(
    path: str,
    handler: Handler,
    summary: str,
    properties: Mapping[str, Any],
    *,
    role: ManagementRole = ManagementRole.OPERATOR,
    seconds: float = 60.0,
    answer: dict[str, Any] | None = None,
) -> Route:
    return Route(
        method="POST",
        path=path,
        handler=handler,
        role=role,
        summary=summary,
        body={"type": "object", "properties": dict(properties), "additionalProperties": False},
        answer=answer or {"type": "object"},
        seconds=seconds,
    )


def _delete_route(
    path: str, handler: Handler, summary: str, role: ManagementRole, parameters: Sequence[Parameter] = ()
) -> Route:
    return Route(
        method="DELETE",
        path=path,
        handler=handler,
        role=role,
        summary=summary,
        parameters=parameters,
        answer={"type": "object"},
    )


async def _body(request: web.Request, known: Sequence[str]) -> dict[str, Any]:
    """Return the JSON object of a request; no body is an empty one.

    Raises:
        RequestFailed: it is none, or has other fields.
    """
    data = await request.read()
    if request.content_type != "application/json" and data:
        raise RequestFailed(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body is JSON: Content-Type: application/json")
    try:
        fields = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise RequestFailed(HTTPStatus.BAD_REQUEST, "the body is a JSON object")
    named = cast("dict[str, Any]", fields)
    require_known("field", named, known)
    return named


def _optional(fields: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    value = fields.get(name)
    if value is not None and type(value) is not kind:
        words = {str: "a text", int: "a number", list: "a list", bool: "true or false"}
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"{name} is {words[kind]}")
    return value


def _target(name: str | None) -> str:
    if not name or not name.startswith(("queue://", "topic://")):
        raise RequestFailed(HTTPStatus.BAD_REQUEST, "target is queue://NAME or topic://NAME")
    return str(_parsed(name))


def _destination(kind: str, name: str) -> Destination:
    return _parsed(f"{kind}://{name}")


def _parsed(name: str) -> Destination:
    try:
        return parse(name)
    except InvalidDestination as error:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, str(error)) from error


def _actor(request: web.Request) -> dict[str, str]:
    visitor = request[VISITOR]
    return {"user": visitor.user, "address": visitor.address}
