"""The metrics of what happens: logins, dead letters, redeliveries, and what the journal's writer does.

`domain.admin.Totals`, `domain.audit` and `store.journal.activity` say what is counted.

Source: management.md, section 9.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pybroker.broker.domain import audit
from pybroker.broker.domain.admin import DeadLetterCause

_LOGIN_RESULTS: Final = {
    "ok": "login",
    "guest": "guest",
    "refused": "login refused",
    "throttled": audit.THROTTLED,
}
"""The events of the audit log by result."""


def of_logins(counts: Mapping[str, int]) -> Iterator[Metric]:
    """Yield the metrics of logins and rights; from the counts of the audit log's events."""
    logins = CounterMetricFamily("pybroker_logins", "Logins of clients and operators, by result", labels=["result"])
    for result, event in _LOGIN_RESULTS.items():
        logins.add_metric([result], counts.get(event, 0))
    yield logins
    yield CounterMetricFamily("pybroker_denied", "Acts that were denied for lack of a right", counts.get("denied", 0))


def of_broker(totals: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the metrics of clients and their failures, from `Totals`."""
    connections = GaugeMetricFamily(
        "pybroker_connections", "Open connections, without a login too, by listener", labels=["listener"]
    )
    for listener, count in totals["by_listener"].items():
        connections.add_metric([listener], count)
    yield connections
    letters = CounterMetricFamily("pybroker_dead_letters", "Messages sent to dead letter queues", labels=["cause"])
    for cause in DeadLetterCause:
        letters.add_metric([cause.value], totals["dead_letters"].get(cause.value, 0))
    yield letters
    text = "Messages that came back from a consumer that may have seen them"
    yield CounterMetricFamily("pybroker_redeliveries", text, totals["redelivered"])
    text = "Connections that have to wait before they send more"
    yield GaugeMetricFamily("pybroker_blocked_producers", text, totals["blocked"])
    yield GaugeMetricFamily("pybroker_xa_in_doubt", "XA transactions that are prepared", totals["in_doubt"])


def of_journal(journal: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the metrics of the journal, from `wiring.journal_counts`."""
    yield GaugeMetricFamily("pybroker_journal_files", "Data files of the journal", journal["files"])
    text = "Bytes that were written to the journal"
    yield CounterMetricFamily("pybroker_journal_write_bytes", text, journal["written_bytes"])
    bounds = [*(f"{each:g}" for each in journal["sync_bounds"]), "+Inf"]
    counts: list[float] = [*accumulate(journal["sync_counts"])]
    syncs = HistogramMetricFamily("pybroker_journal_sync_seconds", "The time that a sync of the journal took")
    syncs.add_metric([], list(zip(bounds, counts, strict=True)), journal["sync_seconds"])
    yield syncs
