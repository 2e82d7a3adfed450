"""The metrics: names that boards for ActiveMQ use, limited in number, in both formats of Prometheus."""

import asyncio
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from pybroker.management import metrics
from tests.pages import ROOT
from tests.unit.management.simulated import row, site

TOTALS = {
    "connections": 2,
    "in_flight": 1,
    "scheduled": 0,
    "is_full": False,
    "memory_bytes": 50,
    "memory_bytes_max": 200,
    "spool_bytes": 0,
    "is_spool_full": False,
    "refused": 3,
    "loop_lag_seconds": 0.25,
}
MASTER: dict[str, Any] = {
    "broker_name": "b",
    "role": "MASTER",
    "since_ms": 5000,
    "epoch": 4,
    "totals": TOTALS,
    "removed": {"enqueued": 10, "dequeued": 7},
    "usage": {"storeUsage": 30, "storeLimit": 40, "tempUsage": 1, "tempLimit": 0},
}
ROWS = [
    row("A", size=7, enqueued=11, dequeued=4, dispatched=8, wait_seconds=2.0, message_bytes=22, memory_bytes_max=9),
    row("B", size=1, enqueued=1),
    row("C", size=2, enqueued=2),
    row("ID:x", size=9, enqueued=99, is_temporary=True),
    row("T", "topic", enqueued=6),
]


def scrape(accept: str = "") -> str:
    async def run() -> str:
        async with site({"overview": lambda _: MASTER, "destinations": lambda _: ROWS}) as there:
            status, _, text = await there.ask_raw("/metrics", Accept=accept)
            assert status == 200
            return text

    return asyncio.run(run())


def samples(text: str) -> dict[tuple[str, str], float]:
    """Return the values by name and destination."""
    families = text_string_to_metric_families(text)
    each = (sample for family in families for sample in family.samples)
    return {(sample.name, sample.labels.get("destination", "")): sample.value for sample in each}


def test_names_of_activemq() -> None:
    found = samples(scrape())
    assert found["activemq_queue_queue_size", "A"] == 7
    assert found["activemq_queue_enqueue_count", "A"] == 11
    assert found["activemq_queue_average_enqueue_time", "A"] == 250
    assert found["activemq_queue_average_message_size", "A"] == 2
    assert found["activemq_topic_enqueue_count", "T"] == 6
    assert found["activemq_connections", ""] == 2
    assert found["activemq_enqueue_total", ""] == 10 + 11 + 1 + 2 + 99 + 6
    assert found["activemq_memory_usage_ratio", ""] == 0.25
    assert found["activemq_store_usage_ratio", ""] == 0.75
    assert found["activemq_temp_usage_ratio", ""] == 0
    assert found["pybroker_event_loop_lag_seconds", ""] == 0.25
    assert found["pybroker_epoch", ""] == 4
    assert ("activemq_queue_queue_size", "ID:x") not in found
    assert found["process_resident_memory_bytes", ""] > 0


def test_the_page_names_every_metric() -> None:
    page = (ROOT / "docs/management.md").read_text(encoding="utf-8")
    for name in {name for name, _ in samples(scrape())}:
        if name.startswith("process_"):
            continue
        word = name
        for prefix in ("activemq_queue_", "activemq_topic_"):
            word = word.removeprefix(prefix)
        assert f"`{word}" in page or f"`{word}`" in page, name


def test_openmetrics_by_content_negotiation() -> None:
    text = scrape("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    families = {each.name: each for each in openmetrics.text_string_to_metric_families(text)}
    assert families["activemq_queue_enqueue_count"].type == "unknown"
    assert families["activemq_queue_queue_size"].type == "gauge"


def test_only_the_busiest_have_series_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "DESTINATIONS_MAX", 2)
    found = samples(scrape())
    assert found["activemq_queue_queue_size", "A"] == 7
    assert found["activemq_queue_queue_size", "other"] == 3
    assert ("activemq_queue_average_enqueue_time", "other") not in found
    assert found["activemq_topic_enqueue_count", "T"] == 6
    assert found["pybroker_metrics_dropped_destinations", ""] == 2
