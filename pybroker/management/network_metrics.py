"""The metrics of bridges to other brokers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pybroker.broker.domain.network.rows import UP, BridgeRow, IncomingBridgeRow

_LABELS: Final = ("connector", "target")
_GAUGES: Final[Mapping[str, tuple[str, Callable[[BridgeRow], float]]]] = {
    "pybroker_bridge_up": ("1 while the bridge to another broker works", lambda row: row.state == UP),
    "pybroker_bridge_demand_subscriptions": (
        "Subscriptions by which it consumes for the other broker",
        lambda row: row.demand,
    ),
}
_COUNTERS: Final[Mapping[str, tuple[str, Callable[[BridgeRow], float]]]] = {
    "pybroker_bridge_forwarded": ("Messages that the other broker has confirmed", lambda row: row.forwarded),
    "pybroker_bridge_received": ("Messages that the other broker has sent", lambda row: row.received),
    "pybroker_bridge_failures": ("Attempts and connections that have failed", lambda row: row.failures),
}


_INCOMING_LABELS: Final = ("connector", "remote_broker")
_INCOMING_COUNTERS: Final[Mapping[str, tuple[str, Callable[[IncomingBridgeRow], float]]]] = {
    "pybroker_incoming_bridge_received": ("Messages that the other broker has sent", lambda row: row.received),
    "pybroker_incoming_bridge_forwarded": ("Messages that the other broker has confirmed", lambda row: row.forwarded),
}


class NetworkRows(NamedTuple):
    """The bridges of a broker.

    Attributes:
        bridges: those of its own connectors.
        incoming: those that other brokers have opened to it.
    """

    bridges: Sequence[BridgeRow] = ()
    incoming: Sequence[IncomingBridgeRow] = ()


def families(network: NetworkRows) -> Iterator[Metric]:
    """Yield the metrics of bridges; none if there is no bridge."""
    if network.bridges:
        yield from _outgoing(network.bridges)
    if network.incoming:
        yield from _incoming(network.incoming)


def _incoming(rows: Sequence[IncomingBridgeRow]) -> Iterator[Metric]:
    """Yield those of incoming bridges; one whose messages are refused has no series, as its names are anyone's."""
    served = {(row.connector, row.remote_name): row for row in rows if not row.problem}
    refused = sum(bool(row.problem) for row in rows)
    yield GaugeMetricFamily("pybroker_incoming_bridges_refused", "Bridges of others that lack the right", refused)
    since = GaugeMetricFamily(
        "pybroker_incoming_bridge_since_seconds", "When the other broker has opened it", labels=_INCOMING_LABELS
    )
    for key, row in served.items():
        since.add_metric([_label(each) for each in key], row.since_ms / 1000)
    yield since
    for name, (text, value) in _INCOMING_COUNTERS.items():
        counter = CounterMetricFamily(name, text, labels=_INCOMING_LABELS)
        for key, row in served.items():
            counter.add_metric([_label(each) for each in key], value(row))
        yield counter


def _label(name: str) -> str:
    """Return a name of another broker as a label: Java's may have half a surrogate pair, which UTF-8 has not."""
    return name.encode(errors="backslashreplace").decode()


def _outgoing(rows: Sequence[BridgeRow]) -> Iterator[Metric]:
    for name, (text, value) in _GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=_LABELS)
        for row in rows:
            gauge.add_metric([row.connector, row.target], value(row))
        yield gauge
    for name, (text, value) in _COUNTERS.items():
        counter = CounterMetricFamily(name, text, labels=_LABELS)
        for row in rows:
            counter.add_metric([row.connector, row.target], value(row))
        yield counter
