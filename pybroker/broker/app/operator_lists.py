"""The lists of the commands for operators: fetched page by page, and shown as a table, as JSON or as ActiveMQ does.

A list that takes several pages is fetched by its key, for which what changes between two pages moves no row from one
to the other, and sorted here.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pybroker.broker.app.operator_text import Row, TableColumn, bstat, cut, dstat, number, plain, rate, table, yes
from pybroker.broker.domain.errors import ConfigError

if TYPE_CHECKING:
    from pybroker.management_client.client import ManagementClient

PAGE: Final = 1000
"""Rows of a page, the most that a member sends."""

JOBS_PAGE: Final = 500

_SELECTOR_SHOWN_MAX: Final = 40


class Listed(NamedTuple):
    """A list.

    Attributes:
        columns: the columns of its table.
        key: the field by which a row is the same in two pages.
        name: the field that `--name` looks into.
    """

    columns: Sequence[TableColumn]
    key: str
    name: str


class ListRequest(NamedTuple):
    """The rows that are wanted.

    Attributes:
        sort: the field to sort by, with a minus in front for the largest first; empty: the order of the member.
        name: a part of the name, in capitals or not; empty: all.
        filter: the filter of queues and topics; None: all.
        limit: the number of rows, at most; None: all.
    """

    sort: str = ""
    name: str = ""
    filter: str | None = None
    limit: int | None = None

    @property
    def column(self) -> str:
        """The field to sort by, without the minus."""
        return self.sort.removeprefix("-")

    @property
    def order(self) -> str:
        """The order of the API."""
        return "desc" if self.sort.startswith("-") else "asc"


@dataclass(frozen=True, slots=True)
class ListAnswer:
    """The rows of a list, and the number of all that are there."""

    items: Sequence[Row]
    count: int


def _flags(row: Mapping[str, Any] | None) -> str:
    names = {"is_paused": "paused", "is_dead_letter_queue": "dead letters", "is_temporary": "temporary"}
    return ", ".join(text for key, text in names.items() if row and row.get(key))


def _time(value: Any) -> str:
    return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if value else "-"


def _selector(value: Any) -> str:
    return cut(plain(value), _SELECTOR_SHOWN_MAX)


_DESTINATION: Final = (
    TableColumn("NAME", "name", plain),
    TableColumn("SIZE", "size", number, True),
    TableColumn("IN FLIGHT", "in_flight", number, True),
    TableColumn("CONSUMERS", "consumers", number, True),
    TableColumn("PRODUCERS", "producers", number, True),
    TableColumn("ENQUEUED", "enqueued", number, True),
    TableColumn("DEQUEUED", "dequeued", number, True),
    TableColumn("IN/S", "enqueue_rate", rate, True),
    TableColumn("OUT/S", "dequeue_rate", rate, True),
    TableColumn("STATE", "flags", plain),
)

LISTS: Final[Mapping[str, Listed]] = {
    "queues": Listed(_DESTINATION, "name", "name"),
    "topics": Listed([each for each in _DESTINATION if each.key != "size"], "name", "name"),
    "subscriptions": Listed(
        (
            TableColumn("KEY", "key", plain),
            TableColumn("TOPIC", "destination", plain),
            TableColumn("ACTIVE", "is_active", yes),
            TableColumn("PENDING", "size", number, True),
            TableColumn("IN FLIGHT", "in_flight", number, True),
            TableColumn("ENQUEUED", "enqueued", number, True),
            TableColumn("DEQUEUED", "dequeued", number, True),
            TableColumn("SELECTOR", "selector", _selector),
        ),
        "key",
        "key",
    ),
    "connections": Listed(
        (
            TableColumn("CONNECTION", "connection_id", plain),
            TableColumn("CLIENT", "client_id", plain),
            TableColumn("USER", "user", plain),
            TableColumn("FROM", "peer", plain),
            TableColumn("LISTENER", "listener", plain),
            TableColumn("CONSUMERS", "consumers", number, True),
            TableColumn("PRODUCERS", "producers", number, True),
            TableColumn("TRANSACTIONS", "transactions", number, True),
            TableColumn("BLOCKED", "is_blocked", yes),
        ),
        "connection_id",
        "client_id",
    ),
    "consumers": Listed(
        (
            TableColumn("DESTINATION", "destination", plain),
            TableColumn("KIND", "kind", plain),
            TableColumn("CLIENT", "client_id", plain),
            TableColumn("USER", "user", plain),
            TableColumn("PREFETCH", "prefetch", number, True),
            TableColumn("IN FLIGHT", "in_flight", number, True),
            TableColumn("DELIVERED", "enqueued", number, True),
            TableColumn("ACKNOWLEDGED", "dequeued", number, True),
            TableColumn("SELECTOR", "selector", _selector),
        ),
        "connection_id",
        "destination",
    ),
    "jobs": Listed(
        (
            TableColumn("DUE", "next_time_ms", _time),
            TableColumn("DESTINATION", "destination", plain),
            TableColumn("CRON", "cron", plain),
            TableColumn("PERIOD MS", "period_ms", number, True),
            TableColumn("REPEAT", "repeat", number, True),
            TableColumn("RUNS", "run_count", number, True),
            TableColumn("SIZE", "size", number, True),
            TableColumn("JOB", "job_id", plain),
        ),
        "job_id",
        "destination",
    ),
    "transactions": Listed(
        (
            TableColumn("BRANCH", "branch", plain),
            TableColumn("USER", "user", plain),
            TableColumn("SENT", "sent", number, True),
            TableColumn("ACKNOWLEDGED", "acknowledged", number, True),
        ),
        "branch",
        "branch",
    ),
}


def fetch_list(client: "ManagementClient", kind: str, asked: ListRequest) -> ListAnswer:
    """Return the rows of a list.

    Raises:
        ConfigError: it has no such column.
        ManagementError: there are none.
    """
    if kind == "jobs":
        return _chosen(_all_jobs(client), LISTS[kind], asked)
    query = {"name": asked.name or None, "filter": asked.filter}
    if asked.limit is not None and asked.limit <= PAGE:
        if asked.sort:
            query |= {"sort": asked.column, "order": asked.order}
        page = client.get(kind, page_size=asked.limit, **query)
        return ListAnswer(page["items"], page["count"])
    pages = all_pages(client, kind, sort=LISTS[kind].key, **query)
    return _chosen(pages, LISTS[kind], asked._replace(name=""))


def all_pages(client: "ManagementClient", *path: str, **query: Any) -> list[Row]:
    """Return the rows of all pages at a path of the API.

    Raises:
        ManagementError: there are none.
    """
    found: list[Row] = []
    page_number, count = 0, 1
    while page_number * PAGE < count:
        page_number += 1
        page = client.get(*path, page=page_number, page_size=PAGE, **query)
        found += page["items"]
        count = page["count"]
    return found


def _all_jobs(client: "ManagementClient") -> Iterator[Row]:
    after = None
    while True:
        page = client.get("jobs", after=after, page_size=JOBS_PAGE)
        yield from page["items"]
        after = page["cursor"]
        if after is None or not page["items"]:
            return


def _chosen(rows: Iterable[Row], listed: Listed, asked: ListRequest) -> ListAnswer:
    """Return the rows that are wanted, of all that there are."""
    text = asked.name.casefold()
    found = [row for row in rows if text in str(row[listed.name]).casefold()]
    if asked.sort:
        if found and asked.column not in found[0]:
            known = ", ".join(found[0])
            raise ConfigError(f"there is no column {asked.column!r}", setting="--sort", hint=f"there are {known}")
        found.sort(key=lambda row: _sortable(row[asked.column]), reverse=asked.order == "desc")
    return ListAnswer(found[: asked.limit], len(found))


def _sortable(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


# ---------------------------------------------------------------- output


def shown(kind: str, answer: ListAnswer, layout: str) -> Iterator[str]:
    """Yield the lines of a list in a layout: `table`, `json`, `dstat` or `bstat`."""
    writers: Mapping[str, Callable[[], Iterable[str]]] = {
        "json": lambda: [json.dumps({"items": list(answer.items), "count": answer.count})],
        "dstat": lambda: dstat(answer.items),
        "bstat": lambda: bstat(answer.items),
        "table": lambda: table(LISTS[kind].columns, [{**row, "flags": _flags(row)} for row in answer.items]),
    }
    yield from writers[layout]()


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return int(time.time() * 1000)
