"""The metrics of high availability, from the state of the pair: every member has them, whatever its role.

Source: management.md, section 9; `app.ha_state` documents the state.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.core import GaugeMetricFamily as Gauge

_MEMBER_STATES: Final = ("master", "standby", "silent", "degraded")


def families(state: Mapping[str, Any], now: float) -> Iterator[Metric]:
    """Yield the metrics of a state; `now` in seconds since the epoch."""
    own = own_member(state)
    yield from _of_lock(state, now)
    yield from _of_members(state)
    yield from _of_standby(own)
    yield Gauge("pybroker_degraded", "1 while something is wrong with the pair", state["state"] == "degraded")
    findings = Gauge("pybroker_findings", "What is wrong with the pair", labels=["member", "kind"])
    for member, kind in sorted({(each["member"], each["kind"]) for each in state["reasons"]}):
        findings.add_metric([member, kind], 1)
    yield findings
    if state["last_clean_check_ms"]:
        text = "When a member last found nothing wrong, in seconds since 1970"
        yield Gauge("pybroker_ha_last_check_timestamp_seconds", text, state["last_clean_check_ms"] / 1000)
    if state["disk_free_bytes"] is not None:
        yield Gauge("pybroker_disk_free_bytes", "Space that is free for the store", state["disk_free_bytes"])
    if state["reconnections"] is not None:
        text = "Connections of clients that were connected before, since the master became it"
        yield CounterMetricFamily("pybroker_client_reconnects", text, state["reconnections"])
    yield from _of_promotions(state, own)


def own_member(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of the member that the state comes from; an empty one if there is none."""
    empty: Mapping[str, Any] = {}
    return next((each for each in state["members"] if each["name"] == state["name"]), empty)


def _of_lock(state: Mapping[str, Any], now: float) -> Iterator[Metric]:
    lock = state["lock"]
    is_held = lock["is_held"] and lock["holder"] == state["name"]
    yield Gauge("pybroker_lock_held", "1 if this member holds the lock", is_held)
    if lock["holder"]:
        holder = Gauge("pybroker_lock_holder_info", "The member that holds the lock", labels=["holder"])
        holder.add_metric([lock["holder"]], 1)
        yield holder
    if lock["held_since_ms"]:
        age = now - lock["held_since_ms"] / 1000
        yield Gauge("pybroker_lock_age_seconds", "For how long the holder has had the lock", max(0.0, age))
    if lock["confirmed_ms"]:
        age = now - lock["confirmed_ms"] / 1000
        text = "The time since the holder last found that it holds the lock"
        yield Gauge("pybroker_lock_last_confirmed_seconds", text, max(0.0, age))


def _of_members(state: Mapping[str, Any]) -> Iterator[Metric]:
    counts = dict.fromkeys(_MEMBER_STATES, 0)
    for member in state["members"]:
        if not member["is_alive"]:
            continue
        role = str(member["role"] or "").lower()
        if role in counts:
            counts[role] += 1
        counts["silent"] += bool(member["is_silent"])
        counts["degraded"] += bool(member["obstacles"] or member["warnings"])
    family = Gauge("pybroker_members", "Members that live, by role and by what is wrong", labels=["state"])
    for name, count in counts.items():
        family.add_metric([name], count)
    yield family


def _of_standby(own: Mapping[str, Any]) -> Iterator[Metric]:
    if str(own.get("role") or "").lower() != "standby":
        return
    for name in ("bytes", "seconds"):
        lag = own.get(f"lag_{name}")
        if lag is not None:
            yield Gauge(f"pybroker_standby_lag_{name}", "How far this standby is behind the journal's end", lag)


def _of_promotions(state: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[Metric]:
    if own.get("promotion_count") is not None:
        text = "How often this member has become master since it was started"
        yield CounterMetricFamily("pybroker_promotions", text, own["promotion_count"])
    if state["promotions"]:
        last = state["promotions"][0]
        text = "The last promotion of a member of this pair, from the lock to its listeners"
        yield Gauge("pybroker_promotion_last_duration_seconds", text, last["total_ms"] / 1000)
        text = "When that promotion ended, in seconds since 1970"
        yield Gauge("pybroker_promotion_last_timestamp_seconds", text, last["at_ms"] / 1000)
