"""The XML pages of ActiveMQ's web console that Telegraf and old scripts read: `/admin/xml/queues.jsp` and two more.

Source: management.md, section 3; ActiveMQ 5.17, `webapp/xml/*.jsp`.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from aiohttp import web

from pybroker.broker.domain.node_requests import DestinationRow, SubscriptionRow
from pybroker.management.routes import Route
from pybroker.management.snapshots import Snapshots

BASE: Final = "/admin/xml"

_NO_CONNECTION: Final = "NOTSET"
"""The connection id of a subscription without a consumer."""

_INVALID: Final = re.compile("[^\\t\\n\\r -\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML 1.0 does not allow."""

Fields = Mapping[str, object]


def routes(snapshots: Snapshots) -> Sequence[Route]:
    """Return the routes. On a standby they answer 503."""

    async def answer_queues(request: web.Request) -> web.StreamResponse:
        rows = [row for row in await snapshots.destinations.get() if row.kind == "queue" and not row.is_temporary]
        return await _page(lambda: document("queues", map(_queue, rows)))

    async def answer_topics(request: web.Request) -> web.StreamResponse:
        rows = [row for row in await snapshots.destinations.get() if row.kind == "topic" and not row.is_temporary]
        return await _page(lambda: document("topics", map(_topic, rows)))

    async def answer_subscribers(request: web.Request) -> web.StreamResponse:
        rows = await snapshots.subscriptions.get()
        in_order = chain((row for row in rows if row.is_active), (row for row in rows if not row.is_active))
        return await _page(lambda: document("subscribers", map(_subscriber, in_order)))

    return [
        Route(method="GET", path=f"{BASE}/{name}.jsp", handler=handler, is_documented=False)
        for name, handler in (
            ("queues", answer_queues),
            ("topics", answer_topics),
            ("subscribers", answer_subscribers),
        )
    ]


def document(name: str, items: Iterable[str]) -> str:
    """Return a page with its items."""
    return f"<{name}>\n{''.join(items)}</{name}>\n"


async def _page(make: Callable[[], str]) -> web.StreamResponse:
    return web.Response(text=await asyncio.to_thread(make), content_type="text/xml", charset="utf-8")


def _queue(row: DestinationRow) -> str:
    path = f"queueBrowse/{quote(row.name, errors='replace')}?view=rss&feedType="
    feeds = "".join(
        f"<{name}>{escape(path + feed)}</{name}>" for name, feed in (("atom", "atom_1.0"), ("rss", "rss_2.0"))
    )
    return _element("queue", {"name": row.name}, f"{_stats(row)}\n  <feed>{feeds}</feed>")


def _topic(row: DestinationRow) -> str:
    return _element("topic", {"name": row.name}, _stats(row))


def _stats(row: DestinationRow) -> str:
    fields = {
        "size": row.size,
        "consumerCount": row.consumers,
        "enqueueCount": row.enqueued,
        "dequeueCount": row.dequeued,
    }
    return f"<stats{_attributes(fields)}/>"


def _subscriber(row: SubscriptionRow) -> str:
    fields = {
        "clientId": row.client_id,
        "subscriptionName": row.name,
        "connectionId": row.connection_id or _NO_CONNECTION,
        "destinationName": row.destination,
        "selector": row.selector,
        "active": "yes" if row.is_active else "no",
    }
    stats = {
        "pendingQueueSize": row.size - row.in_flight,
        "dispatchedQueueSize": row.in_flight,
        "dispatchedCounter": row.dispatched,
        "enqueueCounter": row.enqueued,
        "dequeueCounter": row.dequeued,
    }
    return _element("subscriber", fields, f"<stats{_attributes(stats)}/>")


def _element(name: str, fields: Fields, content: str) -> str:
    return f"<{name}{_attributes(fields)}>\n  {content}\n</{name}>\n"


def _attributes(fields: Fields) -> str:
    return "".join(f" {name}={quoteattr(_valid(str(value)))}" for name, value in fields.items())


def _valid(text: str) -> str:
    """Return a text with a question mark for each character that XML cannot have."""
    return _INVALID.sub("?", text)
