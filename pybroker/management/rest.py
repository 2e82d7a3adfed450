"""REST of `/api/v1`: what the console and the commands read.

An answer is JSON; lists come in pages. An error is `{"error": "one sentence"}` with its status.
"""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from aiohttp import web

from pybroker.broker.domain.network.rows import (
    BridgeRow,
    DemandRow,
    IncomingBridgeRow,
    NetworkConnectorRow,
    StrandedRow,
)
from pybroker.broker.domain.node_requests import (
    BranchRow,
    ConnectionRow,
    ConsumerRow,
    DestinationRow,
    RequestFailed,
    SubscriptionRow,
)
from pybroker.broker.domain.operations import missing_destination
from pybroker.management.paging import PageRequest, object_schema, page_schema, parameters
from pybroker.management.routes import VISITOR, Handler, Parameter, Route
from pybroker.management.site import json_answer
from pybroker.management.snapshots import Shared, Snapshots

API: Final = "/api/v1"

FILTERS: Final[Mapping[str, Callable[[DestinationRow], bool]]] = {
    "empty": lambda row: not row.size,
    "nonempty": lambda row: row.size > 0,
    "noConsumer": lambda row: not row.consumers,
}
"""The filters of destinations, by the names that ActiveMQ's `queryQueues` has for them."""

_FILTER = Parameter(name="filter", description="Only such queues or topics.", values=tuple(FILTERS))
_CONNECTION = Parameter(name="connection_id", description="Only that connection, or its consumers.")


class Rates(NamedTuple):
    """Messages per second."""

    enqueue_rate: float
    dequeue_rate: float


UNKNOWN_RATES: Final = dict.fromkeys(Rates._fields)

RatesOf = Callable[[DestinationRow], Rates | None]
"""Returns the rates of a queue or topic; None if they are not known."""


class Computed(NamedTuple):
    """Columns of a destination that are computed from its row."""

    memory_percent: int
    average_wait_seconds: float
    average_message_bytes: int

    @classmethod
    def of(cls, row: DestinationRow) -> "Computed":
        """Return those of a row."""
        return cls(
            100 * row.memory_bytes // row.memory_bytes_max if row.memory_bytes_max else 0,
            row.wait_seconds / max(1, row.dispatched),
            row.message_bytes // max(1, row.enqueued),
        )


def routes(snapshots: Snapshots, rates_of: RatesOf) -> Sequence[Route]:
    """Return the routes."""
    return [
        Route(
            method="GET",
            path=f"{API}/overview",
            handler=_shared(snapshots.overview),
            summary="The member, and the totals of its broker if it is the master.",
            answer={"type": "object"},
        ),
        Route(
            method="GET",
            path=f"{API}/ha",
            handler=_shared(snapshots.ha),
            summary="The state of the pair: members, lock, lag, what is wrong, and what has happened.",
            answer={"type": "object"},
        ),
        *_of_destinations(snapshots, rates_of, "queue", "QUEUE"),
        *_of_destinations(snapshots, rates_of, "topic", "TOPIC"),
        _list("connections", snapshots.connections, ConnectionRow, "client_id", "The open connections."),
        _list("consumers", snapshots.consumers, ConsumerRow, "destination", "The consumers of all connections."),
        _list(
            "subscriptions",
            snapshots.subscriptions,
            SubscriptionRow,
            "key",
            "The durable subscriptions, with or without a consumer.",
        ),
        *_of_network(snapshots),
        _list("transactions", snapshots.branches, BranchRow, "branch", "The XA transactions in doubt."),
        Route(
            method="GET",
            path=f"{API}/whoami",
            handler=_whoami,
            summary="The user that this request comes from, and its role.",
            answer=object_schema(("user", "role")),
        ),
    ]


def _of_network(snapshots: Snapshots) -> Sequence[Route]:
    connectors = "The network connectors, each with the sums of its bridges."
    incoming = "The bridges that other brokers have opened to this one."
    stranded = "The queues with messages that have come over a bridge, and without a consumer of this broker."
    return [
        _list("network/connectors", snapshots.network_connectors, NetworkConnectorRow, "name", connectors),
        _list("network/bridges", snapshots.bridges, BridgeRow, "connector", "The bridges to other brokers."),
        _list("network/incoming", snapshots.incoming_bridges, IncomingBridgeRow, "connector", incoming),
        _list("network/demand", snapshots.demand, DemandRow, "destination", "What bridges consume for other brokers."),
        _list("network/stranded", snapshots.stranded, StrandedRow, "queue", stranded),
    ]


def _json_of(row: DestinationRow, rates: Rates | None) -> dict[str, Any]:
    """Return a queue or topic as JSON."""
    return row._asdict() | Computed.of(row)._asdict() | (UNKNOWN_RATES if rates is None else rates._asdict())


async def _whoami(request: web.Request) -> web.StreamResponse:
    visitor = request[VISITOR]
    return json_answer({"user": visitor.user, "role": visitor.role.name.lower()})


def _shared(shared: Shared[Mapping[str, Any]]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer(await shared.get())

    return answer


def _of_destinations(snapshots: Snapshots, rates_of: RatesOf, kind: str, destination_type: str) -> Sequence[Route]:
    columns = (*DestinationRow._fields, *Computed._fields, *Rates._fields)

    def value_of(row: DestinationRow, column: str) -> Any:
        if column in Rates._fields:
            return getattr(rates_of(row) or Rates(0.0, 0.0), column)
        return getattr(Computed.of(row) if column in Computed._fields else row, column)

    def json_of(row: DestinationRow) -> dict[str, Any]:
        return _json_of(row, rates_of(row))

    async def answer_list(request: web.Request) -> web.StreamResponse:
        asked = PageRequest.of(request.query, columns)
        keep = _filter(request.query)
        rows = [row for row in await snapshots.destinations.get() if row.kind == kind and keep(row)]
        return json_answer(asked.cut(rows, _name, value_of).as_json(json_of))

    async def answer_one(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        row = await snapshots.destination(destination_type, name)
        if row is None:
            raise RequestFailed(HTTPStatus.NOT_FOUND, missing_destination(kind, name))
        return json_answer(json_of(row))

    return [
        Route(
            method="GET",
            path=f"{API}/{kind}s",
            handler=answer_list,
            summary=f"The {kind}s, without advisory topics.",
            parameters=[*parameters(columns), _FILTER],
            answer=page_schema(columns),
        ),
        Route(
            method="GET",
            path=f"{API}/{kind}s/{{name}}",
            handler=answer_one,
            summary=f"One {kind}, as it is now.",
            answer=object_schema(columns),
        ),
    ]


def _list(path: str, shared: Shared[Sequence[Any]], row_type: type[Any], name: str, summary: str) -> Route:
    """Return the route of rows that come in pages, filtered by the column `name`."""
    columns: tuple[str, ...] = row_type._fields
    of_connection = [_CONNECTION] if _CONNECTION.name in columns else []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = PageRequest.of(request.query, columns)
        rows = await shared.get()
        if (connection_id := request.query.get(_CONNECTION.name)) is not None:
            rows = [row for row in rows if row.connection_id == connection_id]
        page = asked.cut(rows, lambda row: str(getattr(row, name)), getattr)
        return json_answer(page.as_json(lambda row: row._asdict()))

    return Route(
        method="GET",
        path=f"{API}/{path}",
        handler=answer,
        summary=summary,
        parameters=[*parameters(columns), *of_connection],
        answer=page_schema(columns),
    )


def _filter(query: Mapping[str, str]) -> Callable[[DestinationRow], bool]:
    name = query.get("filter")
    if not name:
        return lambda row: True
    if name not in FILTERS:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"filter is one of {', '.join(FILTERS)}, not {name[:20]!r}")
    return FILTERS[name]


def _name(row: DestinationRow) -> str:
    return row.name
