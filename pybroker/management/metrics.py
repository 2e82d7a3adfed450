"""`/metrics`: the state of the member for Prometheus, in its text format or as OpenMetrics.

Names that boards for ActiveMQ use come first, from its JMX attributes; pybroker's own begin with `pybroker_`. A standby
has no series of destinations, rather than zeros.

Only the `DESTINATIONS_MAX` busiest queues and topics have series of their own, by what was enqueued and waits; the sum
of all others is in those labelled `other`. Temporary destinations and advisory topics have none.

Source: management.md, section 9; the mixin of Grafana for ActiveMQ, and the example of the JMX exporter.
"""

import asyncio
import heapq
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    GaugeMetricFamily as Gauge,
)
from prometheus_client.core import (
    InfoMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pybroker import __version__
from pybroker.broker.domain.node_requests import DestinationRow, RequestFailed
from pybroker.broker.domain.role import Role
from pybroker.management import event_metrics, ha_metrics, network_metrics, replica_metrics
from pybroker.management.link import NodeLink
from pybroker.management.network_metrics import NetworkRows
from pybroker.management.routes import Route
from pybroker.management.snapshots import Snapshots

DESTINATIONS_MAX: Final = 1000
OTHER: Final = "other"

_log = logging.getLogger(__name__)

Value = Callable[[DestinationRow], float]

_GAUGES: Final[Mapping[str, tuple[str, Value]]] = {
    "queue_size": ("Messages that are not acknowledged", lambda row: row.size),
    "consumer_count": ("Consumers", lambda row: row.consumers),
    "producer_count": ("Producers of this destination alone", lambda row: row.producers),
    "in_flight_count": ("Messages that were delivered and are not acknowledged", lambda row: row.in_flight),
    "memory_usage_byte_count": ("Memory of its messages, in bytes", lambda row: row.memory_bytes),
    "memory_percent_usage": (
        "Memory of its messages, in percent of the limit",
        lambda row: 100 * row.memory_bytes // row.memory_bytes_max if row.memory_bytes_max else 0,
    ),
    "average_enqueue_time": (
        "Mean time that messages waited for a consumer, in milliseconds",
        lambda row: 1000 * row.wait_seconds / max(1, row.dispatched),
    ),
    "average_message_size": (
        "Mean size of the messages that were sent, in bytes",
        lambda row: row.message_bytes / max(1, row.enqueued),
    ),
}
_COUNTS: Final[Mapping[str, tuple[str, Value]]] = {
    "enqueue_count": ("Messages that were sent", lambda row: row.enqueued),
    "dequeue_count": ("Messages that have left it", lambda row: row.dequeued),
    "dispatch_count": ("Deliveries to consumers", lambda row: row.dispatched),
    "expired_count": ("Messages that have expired", lambda row: row.expired),
    "forward_count": ("Messages that bridges have forwarded to other brokers", lambda row: row.forwarded),
}


def routes(link: NodeLink, snapshots: Snapshots) -> Sequence[Route]:
    """Return the route of the metrics."""

    async def answer(request: web.Request) -> web.StreamResponse:
        state = link.state
        overview = await snapshots.overview.get()
        rows: Sequence[DestinationRow] = ()
        network = NetworkRows()
        if "totals" in overview:
            try:
                rows = await snapshots.destinations.get()
                network = NetworkRows(await snapshots.bridges.get(), await snapshots.incoming_bridges.get())
            except RequestFailed:  # it has just stepped back
                overview = {name: value for name, value in overview.items() if name != "totals"}
        try:
            ha = await snapshots.ha.get()
        except RequestFailed as error:  # the store does not answer: the other metrics are wanted all the more
            _log.warning("the metrics are without the state of the pair: %s", error)
            ha = None
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        obstacle = "" if state is None else state.obstacle
        text = await asyncio.to_thread(render, overview, rows, network, ha, obstacle, encode)
        return web.Response(body=text, headers={"Content-Type": content_type})

    summary = "The metrics for Prometheus, in the format that the header Accept asks for."
    return [Route(method="GET", path="/metrics", handler=answer, summary=summary)]


def render(
    overview: Mapping[str, Any],
    rows: Sequence[DestinationRow],
    network: NetworkRows,
    ha: Mapping[str, Any] | None,
    obstacle: str,
    encode: Callable[[CollectorRegistry], bytes],
) -> bytes:
    """Return the metrics; takes about 0.1 ms for each destination."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(lambda: _families(overview, rows, network, ha, obstacle)))
    ProcessCollector(registry=registry, pid=os.getppid)  # the node's
    return encode(registry)


class _Families(Collector):
    """The families, as a registry takes them."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._collect()


def _families(
    overview: Mapping[str, Any],
    rows: Sequence[DestinationRow],
    network: NetworkRows,
    ha: Mapping[str, Any] | None,
    obstacle: str,
) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "pybroker_build",
        "The version of pybroker",
        {"version": __version__, "broker_name": overview["broker_name"]},
    )
    role = Role(overview["role"])
    roles = Gauge("pybroker_role", "The role of this member: 1 for the one that it has", labels=["role"])
    for each in Role:
        roles.add_metric([each.value.lower()], each is role)
    yield roles
    if role is Role.STANDBY:
        is_ready = not obstacle and (ha is None or ha_metrics.own_member(ha).get("standby_ready") is not False)
        yield Gauge("pybroker_standby_ready", "1 if this standby could take over", is_ready)
    yield Gauge("pybroker_role_since_seconds", "When it took its role", overview["since_ms"] / 1000)
    yield Gauge("pybroker_ha_known", "1 if the state of the pair could be read from the store", ha is not None)
    if ha is not None:
        yield from ha_metrics.families(ha, time.time())
        if ha.get("replica"):
            yield from replica_metrics.families(ha["replica"], time.time())
    if overview.get("disk_reserve") is not None:
        text = "Disk space that is reserved for acknowledgements"
        yield Gauge("pybroker_disk_reserve_bytes", text, overview["disk_reserve"])
    yield from event_metrics.of_logins(overview.get("audit", {}))
    if "totals" in overview:
        yield from _of_broker(overview, rows)
        yield from event_metrics.of_broker(overview["totals"])
        if overview.get("journal") is not None:
            yield from event_metrics.of_journal(overview["journal"])
        yield from network_metrics.families(network)
        yield from _of_destinations(rows)


def _of_broker(overview: Mapping[str, Any], rows: Sequence[DestinationRow]) -> Iterator[Metric]:
    totals, removed, usage = overview["totals"], overview["removed"], overview["usage"]
    yield Gauge("activemq_connections", "Open connections", totals["connections"])
    counts = {
        "enqueue": ("Messages that were sent", removed["enqueued"] + sum(row.enqueued for row in rows)),
        "dequeue": ("Messages that have left", removed["dequeued"] + sum(row.dequeued for row in rows)),
        "consumer": ("Consumers", sum(row.consumers for row in rows)),
        "producer": ("Producers of a destination", sum(row.producers for row in rows)),
        "message": ("Messages that are not acknowledged", sum(row.size for row in rows)),
    }
    for name, (text, value) in counts.items():
        yield UnknownMetricFamily(f"activemq_{name}_total", f"{text}, of all queues and topics", value)
    ratios = {
        "memory": _ratio(totals["memory_bytes"], totals["memory_bytes_max"]),
        "store": _ratio(usage["storeUsage"], usage["storeLimit"]),
        "temp": _ratio(usage["tempUsage"], usage["tempLimit"]),
    }
    for name, ratio in ratios.items():
        yield Gauge(f"activemq_{name}_usage_ratio", "Usage of the limit, from 0 to 1; 0 without a limit", ratio)
    yield Gauge("pybroker_epoch", "The number of the present term of mastership", overview["epoch"])
    yield Gauge("pybroker_in_flight_messages", "Messages delivered and not acknowledged", totals["in_flight"])
    yield Gauge("pybroker_scheduled_jobs", "Scheduled messages", totals["scheduled"])
    yield Gauge("pybroker_store_full", "1 while persistent messages are refused", totals["is_full"])
    yield Gauge("pybroker_journal_bytes", "Size of the journal, or of the database's tables", usage["storeUsage"])
    yield Gauge("pybroker_memory_bytes", "Memory of messages", totals["memory_bytes"])
    yield Gauge("pybroker_spool_bytes", "Disk space of the spool", totals["spool_bytes"])
    yield Gauge("pybroker_spool_full", "1 while the spool takes no more messages", totals["is_spool_full"])
    yield UnknownMetricFamily(
        "pybroker_connections_refused_total", "Connections that limits have refused or closed", totals["refused"]
    )
    yield Gauge("pybroker_event_loop_lag_seconds", "The longest turn in the last minute", totals["loop_lag_seconds"])


def _of_destinations(rows: Sequence[DestinationRow]) -> Iterator[Metric]:
    permanent = [row for row in rows if not row.is_temporary]
    named = [row for row in permanent if row.name != OTHER]  # its series would be there twice
    busiest = heapq.nlargest(DESTINATIONS_MAX, named, key=lambda row: row.enqueued + row.size)
    shown = {(row.kind, row.name) for row in busiest}
    others = [row for row in permanent if (row.kind, row.name) not in shown]
    for kind in ("queue", "topic"):
        own = [row for row in busiest if row.kind == kind]
        rest = [row for row in others if row.kind == kind]
        for name, (text, value) in _GAUGES.items():
            yield _filled(Gauge(f"activemq_{kind}_{name}", text, labels=["destination"]), own, rest, value)
        for name, (text, value) in _COUNTS.items():
            yield _filled(
                UnknownMetricFamily(f"activemq_{kind}_{name}", text, labels=["destination"]), own, rest, value
            )
    yield _oldest([row for row in busiest if row.kind == "queue"])
    yield Gauge("pybroker_metrics_dropped_destinations", "Queues and topics without series of their own", len(others))


def _filled(
    family: Gauge | UnknownMetricFamily,
    own: Sequence[DestinationRow],
    rest: Sequence[DestinationRow],
    value: Value,
) -> Metric:
    for row in own:
        family.add_metric([_label(row.name)], value(row))
    if rest and not ("average" in family.name or "percent" in family.name):
        family.add_metric([OTHER], sum(map(value, rest)))
    return family


def _label(name: str) -> str:
    """Return a name as a label: Java's may have half a surrogate pair, which UTF-8 has not."""
    return name if name.isascii() else name.encode(errors="backslashreplace").decode()


def _oldest(queues: Sequence[DestinationRow]) -> Metric:
    text = "For how long the oldest message has waited for a consumer; 0 if none waits"
    family = Gauge("pybroker_queue_oldest_message_seconds", text, labels=["destination"])
    for row in queues:
        family.add_metric([_label(row.name)], row.oldest_seconds)
    return family


def _ratio(used: int, limit: int) -> float:
    return used / limit if limit else 0.0
