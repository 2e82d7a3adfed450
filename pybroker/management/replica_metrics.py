"""The metrics of a replicated cluster, from the figures of this member: see `app.replica_json`.

Source: specification of replication, section 9.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.core import GaugeMetricFamily as Gauge

_OF_MEMBERS: Final = {
    "in_sync": ("1 if the member's store has everything that is confirmed", "is_in_sync"),
    "confirmed_lag_seconds": ("For how long there have been changes that the member has not confirmed", "lag_seconds"),
    "lag_bytes": ("Bytes that are not sent to the member yet", "lag_bytes"),
    "catch_up_bytes_left": ("About how much of its catch-up is left", "left_bytes"),
}


def families(replica: Mapping[str, Any], now: float) -> Iterator[Metric]:
    """Yield the metrics; `now` in seconds since the epoch."""
    for name, (text, field) in _OF_MEMBERS.items():
        family = Gauge(f"pybroker_replica_{name}", text, labels=["member"])
        for member in replica["members"]:
            if member[field] is not None:  # of a member that is away its lag is not known
                family.add_metric([member["name"]], member[field])
        yield family
    yield Gauge("pybroker_replica_in_sync_count", "Stores that are in sync", replica["in_sync_count"])
    text = "Stores that must have a message before it is answered"
    yield Gauge("pybroker_replica_min", text, replica["minimum"])
    yield Gauge("pybroker_replica_this_in_sync", "1 if this member's store is in sync", replica["is_in_sync"])
    if replica["confirm"] is not None:
        yield _confirm_times(replica["confirm"])
    changes = CounterMetricFamily("pybroker_replica_set_changes", "Changes of the in-sync set", labels=["reason"])
    for reason, count in replica["set_changes"].items():
        changes.add_metric([reason], count)
    yield changes
    text = "How often this member has become the cluster's master since it was started"
    promotions = CounterMetricFamily("pybroker_replica_promotions", text, labels=["cause"])
    for cause, count in replica["promotions"].items():
        promotions.add_metric([cause], count)
    yield promotions
    text = "Records of this store that were cut off, dropped or replaced, since it was started"
    yield CounterMetricFamily("pybroker_replica_discarded_records", text, replica["discarded_records"])
    gauges = {
        "register_seconds": "The time of the latest call that the election store has answered",
        "register_age_seconds": "The time since the election store has answered",
        "lease_left_seconds": "For how long this master may go on without another renewal of its lease",
    }
    for name, text in gauges.items():
        if replica[name] is not None:
            yield Gauge(f"pybroker_replica_{name}", text, replica[name])
    text = "1 while this master goes on without the election store, by the promises of the other members in sync"
    yield Gauge("pybroker_replica_grace_active", text, replica["grace_active"])
    if replica["last_verified_ms"] is not None:
        text = "The time since this store was compared with another one"
        age = max(0.0, now - replica["last_verified_ms"] / 1000)
        yield Gauge("pybroker_replica_last_verified_seconds", text, age)
    text = "Data files of this store that comparisons found damaged"
    yield Gauge("pybroker_replica_damaged_files", text, len(replica["damaged"]))


def _confirm_times(confirm: Mapping[str, Any]) -> Metric:
    text = "The time from when a batch was sent until it was confirmed, in this term"
    family = HistogramMetricFamily("pybroker_replica_confirm_seconds", text)
    bounds = [*(f"{each:g}" for each in confirm["bounds"]), "+Inf"]
    counts: list[float] = [*accumulate(confirm["counts"])]
    family.add_metric([], list(zip(bounds, counts, strict=True)), confirm["seconds"])
    return family
