"""The metrics of bridges to other brokers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pybroker.broker.domain.network.rows import UP, BridgeRow

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
    "pybroker_bridge_failures": ("Attempts and connections that have failed", lambda row: row.failures),
}


def families(rows: Sequence[BridgeRow]) -> Iterator[Metric]:
    """Yield the metrics of bridges; none if there is no bridge."""
    if not rows:
        return
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
