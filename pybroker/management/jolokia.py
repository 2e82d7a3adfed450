"""Jolokia at `/api/jolokia`: MBeans over HTTP, as far as tools for ActiveMQ use them.

```text
GET or POST -> requests -> role, and origin if it changes something -> MBeans, or an operation -> answers
                 |              |                                          |
            400 inside     403 inside                             400, 403, 404, 500 inside
```

The status of HTTP is 200 also if a request has failed: its error is inside the answer. Only a missing login is 401.

A page of another site in a browser could send what changes something by a GET, such as the address of a picture, or by
a POST. So an operation that changes something needs, in a GET, an `Origin` or `Referer` that names the host itself,
and no other one in a POST. What is only read needs none: without the header for it no page can read the answer.

Source: management.md, section 2; the protocol of Jolokia 1.7.
"""

import asyncio
import json
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from pybroker import __version__
from pybroker.broker.domain.node_requests import ManagementRole, RequestFailed
from pybroker.management.jolokia_errors import JolokiaError, forbidden, illegal, no_attribute, no_instance, of_node
from pybroker.management.jolokia_list import asked_name, listing
from pybroker.management.jolokia_requests import JolokiaRequest, from_json, from_path
from pybroker.management.jolokia_values import encode, plain, select
from pybroker.management.json_types import as_array
from pybroker.management.mbean_catalogue import Catalogue, candidates, mbeans, rows_needed
from pybroker.management.mbean_operations import JmxActions, JmxOperation, OperationCall, converted, operations_of
from pybroker.management.mbeans import BrokerPicture, MBean
from pybroker.management.object_names import DOMAIN
from pybroker.management.routes import VISITOR, Handler, Route
from pybroker.management.snapshots import Snapshots
from pybroker.management.visitors import Visitor, Visitors, is_own_page

PATHS: Final = ("/api/jolokia", "/api/jolokia/{path:.*}")

REQUESTS_MAX: Final = 1000
"""Requests of one POST."""

PROTOCOL: Final = "7.2"
"""The version of Jolokia's protocol, that of Jolokia 1.3 to 1.7."""

OPERATION_SECONDS: Final = 600.0
"""The time of an operation on many messages."""


def routes(snapshots: Snapshots, visitors: Visitors, actions: JmxActions) -> Sequence[Route]:
    """Return the routes."""
    there = Jolokia(snapshots, visitors, actions)
    found: list[Route] = []
    for path in PATHS:
        for method, handler in (("GET", there.answer_get), ("POST", there.answer_post)):
            found.append(_route(method, path, handler))
    return found


def _route(method: str, path: str, handler: Handler) -> Route:
    return Route(
        method=method,
        path=path,
        handler=handler,
        seconds=OPERATION_SECONDS,
        checks_origin=True,
        is_documented=False,
    )


class Jolokia:
    """Answers the requests."""

    def __init__(self, snapshots: Snapshots, visitors: Visitors, actions: JmxActions) -> None:
        self._snapshots = snapshots
        self._visitors = visitors
        self._actions = actions

    async def answer_get(self, request: web.Request) -> web.StreamResponse:
        """Answer the request of a path."""
        path = urllib.parse.unquote(request.rel_url.raw_path).partition("/api/jolokia")[2]
        try:
            asked = from_path(path, request.query)
        except JolokiaError as error:
            return await _respond(error.as_json())
        may_change = is_own_page(request.headers, request.scheme, is_origin_needed=True)
        call = _Call(self, request[VISITOR], Catalogue(self._snapshots), may_change=may_change)
        return await _respond(await call.answer(asked))

    async def answer_post(self, request: web.Request) -> web.StreamResponse:
        """Answer one request of JSON, or several in their order."""
        try:
            given = json.loads(await request.read())
        except (ValueError, RecursionError) as error:
            return await _respond(illegal(f"Invalid JSON request: {error}").as_json())
        several = as_array(given)
        if several is not None and len(several) > REQUESTS_MAX:
            return await _respond(illegal(f"at most {REQUESTS_MAX} requests are answered at once").as_json())
        may_change = is_own_page(request.headers, request.scheme, is_origin_needed=False)
        call = _Call(self, request[VISITOR], Catalogue(self._snapshots), may_change=may_change)
        if several is None:
            return await _respond(await call.answer_json(given, request.query))
        return await _respond([await call.answer_json(each, request.query) for each in several])

    @property
    def snapshots(self) -> Snapshots:
        """The state of the broker."""
        return self._snapshots

    @property
    def visitors(self) -> Visitors:
        """Writes a denied request to the audit log."""
        return self._visitors

    @property
    def actions(self) -> JmxActions:
        """Carries out the operations of MBeans."""
        return self._actions


async def _respond(answer: Any) -> web.StreamResponse:
    text = await asyncio.to_thread(encode, answer)
    return web.Response(text=text, content_type="application/json")


class _Call:
    """The requests of one visitor that came together."""

    def __init__(self, jolokia: Jolokia, visitor: Visitor, catalogue: Catalogue, *, may_change: bool) -> None:
        self._jolokia = jolokia
        self._visitor = visitor
        self._catalogue = catalogue
        self._may_change = may_change

    async def answer_json(self, given: Any, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the answer to a request of JSON."""
        try:
            asked = from_json(given, query)
        except JolokiaError as error:
            return error.as_json()
        return await self.answer(asked)

    async def answer(self, asked: JolokiaRequest) -> dict[str, Any]:
        """Return the answer to a request."""
        try:
            value = await self._value(asked)
        except (JolokiaError, RequestFailed) as error:
            failed = error if isinstance(error, JolokiaError) else of_node(error)
            return {"request": asked.as_json(), **failed.as_json()}
        return {
            "request": asked.as_json(),
            "value": value,
            "timestamp": int(time.time()),
            "status": HTTPStatus.OK.value,
        }

    async def _value(self, asked: JolokiaRequest) -> Any:
        match asked.type:
            case "version":
                return await self._version()
            case "read":
                return await self._read(asked)
            case "search":
                return await self._search(asked)
            case "list":
                return await self._list(asked)
            case "exec":
                return await self._exec(asked)
            case _:
                assert asked.mbean is not None, "its request was parsed"
                raise forbidden(f"Writing attribute {asked.attribute} forbidden for MBean {asked.mbean.text}")

    async def _version(self) -> Mapping[str, Any]:
        picture = await self._catalogue.picture(())
        return {
            "agent": __version__,
            "protocol": PROTOCOL,
            "info": {"product": "pybroker", "vendor": "pybroker", "version": __version__},
            "config": {"agentId": str(picture.overview["broker_name"]), "agentType": "servlet"},
        }

    # ------------------------------------------------------------ reading

    async def _read(self, asked: JolokiaRequest) -> Any:
        name = asked.mbean
        assert name is not None, "its request was parsed"
        if not name.is_pattern:
            mbean = await self._find(asked)
            picture = await self._catalogue.picture(rows_needed([mbean.kind], asked.attributes) - {mbean.kind.rows})
            return await asyncio.to_thread(_read_one, mbean, picture, asked)
        kinds = candidates(name)
        picture = await self._catalogue.picture(rows_needed(kinds, asked.attributes))
        return await asyncio.to_thread(_read_many, picture, asked)

    async def _search(self, asked: JolokiaRequest) -> Any:
        assert asked.mbean is not None, "its request was parsed"
        kinds = candidates(asked.mbean)
        picture = await self._catalogue.picture(rows_needed(kinds, ()))
        return await asyncio.to_thread(
            lambda: [asked.name_of(each.name, each.canonical) for each in _matching(asked, picture)]
        )

    async def _list(self, asked: JolokiaRequest) -> Any:
        name = asked_name(asked)
        kinds = candidates(name)
        picture = await self._catalogue.picture(rows_needed(kinds, ()))

        def make() -> Any:
            matches = name.matcher()
            return listing((each for each in mbeans(picture, kinds) if matches(DOMAIN, each.keys)), asked)

        return await asyncio.to_thread(make)

    async def _find(self, asked: JolokiaRequest) -> MBean:
        assert asked.mbean is not None, "its request was parsed"
        found = await self._catalogue.find(asked.mbean)
        if found is None:
            raise no_instance(asked.mbean.text)
        return found

    # ------------------------------------------------------------ operations

    async def _exec(self, asked: JolokiaRequest) -> Any:
        mbean = await self._find(asked)
        operation = _operation(mbean, asked)
        await self._require(operation, mbean, asked)
        arguments = [
            converted(value, java_type)
            for value, (_, java_type) in zip(asked.arguments, operation.parameters, strict=True)
        ]
        picture = await self._catalogue.picture(operation.needs)
        call = OperationCall(mbean, picture, arguments, self._jolokia.actions, self._visitor)
        try:
            return plain(await operation.call(call), asked.options)
        finally:
            if operation.role > ManagementRole.MONITOR:
                self._jolokia.snapshots.forget()

    async def _require(self, operation: JmxOperation, mbean: MBean, asked: JolokiaRequest) -> None:
        """Check that the visitor may call an operation.

        Raises:
            JolokiaError: the visitor may not.
        """
        visitor, visitors = self._visitor, self._jolokia.visitors
        if operation.role > ManagementRole.MONITOR and not self._may_change:
            await visitors.deny(visitor, f"{asked.operation} from another site, or without an origin", mbean.name)
            raise forbidden(
                "an operation that changes something needs a POST, or the header Origin with the address of this server"
            )
        if visitor.role < operation.role:
            await visitors.deny(visitor, asked.operation, mbean.name)
            needed, own = operation.role.name.lower(), visitor.role.name.lower()
            raise forbidden(f"{asked.operation} needs the role {needed}, and {visitor.user} has {own}")


def _matching(asked: JolokiaRequest, picture: BrokerPicture) -> list[MBean]:
    assert asked.mbean is not None, "its request was parsed"
    matches = asked.mbean.matcher()
    return [each for each in mbeans(picture, candidates(asked.mbean)) if matches(DOMAIN, each.keys)]


def _read_one(mbean: MBean, picture: BrokerPicture, asked: JolokiaRequest) -> Any:
    if isinstance(asked.attribute, str):
        value = _attribute(mbean, picture, asked.attribute)
    else:
        value = _attributes(mbean, picture, asked)
    return plain(select(value, asked.path), asked.options)


def _read_many(picture: BrokerPicture, asked: JolokiaRequest) -> Any:
    found = _matching(asked, picture)
    assert asked.mbean is not None, "its request was parsed"
    if not found:
        text = f"No MBean with pattern {asked.mbean.text} found for reading attributes"
        raise no_instance(text)
    wanted = asked.attributes
    value: dict[str, Any] = {}
    for mbean in found:
        names = [name for name in (wanted or mbean.kind.attributes) if name in mbean.kind.attributes]
        if names:
            value[asked.name_of(mbean.name, mbean.canonical)] = {name: mbean.value(picture, name) for name in names}
    if not value:
        raise illegal(f"No matching attributes {wanted} found on MBeans {asked.mbean.text}")
    return plain(select(value, asked.path), asked.options)


def _attributes(mbean: MBean, picture: BrokerPicture, asked: JolokiaRequest) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for name in asked.attributes or mbean.kind.attributes:
        try:
            value[name] = _attribute(mbean, picture, name)
        except JolokiaError as error:
            if not asked.options.ignores_errors:
                raise
            value[name] = f"ERROR: {error} (class {error.error_type})"
    return value


def _attribute(mbean: MBean, picture: BrokerPicture, name: str) -> Any:
    if name not in mbean.kind.attributes:
        raise no_attribute(name)
    return mbean.value(picture, name)


def _operation(mbean: MBean, asked: JolokiaRequest) -> JmxOperation:
    """Return the operation that a request names, by its signature or the number of its arguments.

    Raises:
        JolokiaError: there is none.
    """
    name, parenthesis, types = asked.operation.partition("(")
    named = [each for each in operations_of(mbean.kind) if each.name == name]
    if not named:
        raise illegal(f"No operation {name} found on MBean {mbean.name}")
    if parenthesis:
        signature = f"({types}".replace(" ", "")
        found = next((each for each in named if each.signature == signature), None)
        if found is None:
            known = ",".join(each.signature for each in named)
            raise illegal(f"No operation {asked.operation} on MBean {mbean.name} exists. Known signatures: {known}")
        named = [found]
    count = len(asked.arguments)
    fitting = [each for each in named if len(each.parameters) == count]
    if not fitting:
        wanted = " or ".join(str(len(each.parameters)) for each in named)
        raise illegal(
            f"Invalid number of operation arguments. Operation {asked.operation} on {mbean.name} requires {wanted} "
            f"parameters, not {count} as given"
        )
    return fitting[0]
