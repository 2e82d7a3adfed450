"""The metrics: names that boards for ActiveMQ use, limited in number, in both formats of Prometheus."""

import asyncio
import sys
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from pybroker.management import metrics
from tests.pages import ROOT
from tests.unit.management.brokers import BRIDGES, INCOMING
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
    "by_listener": {"stomp": 2, "tcp": 1},
    "blocked": 1,
    "in_doubt": 4,
    "redelivered": 5,
    "dead_letters": {"expired": 6},
}
MASTER: dict[str, Any] = {
    "broker_name": "b",
    "role": "MASTER",
    "since_ms": 5000,
    "epoch": 4,
    "totals": TOTALS,
    "removed": {"enqueued": 10, "dequeued": 7},
    "usage": {"storeUsage": 30, "storeLimit": 40, "tempUsage": 1, "tempLimit": 0},
    "audit": {"login": 8, "login refused": 2, "login throttled": 3, "operated": 1},
    "disk_reserve": 32,
    "journal": {
        "files": 3,
        "written_bytes": 1000,
        "sync_bounds": [0.001, 1.0],
        "sync_counts": [4, 2, 1],
        "sync_seconds": 2.5,
    },
}
ROWS = [
    row(
        "A",
        size=7,
        enqueued=11,
        dequeued=4,
        dispatched=8,
        wait_seconds=2.0,
        message_bytes=22,
        memory_bytes_max=9,
        oldest_seconds=60.0,
    ),
    row("B", size=1, enqueued=1),
    row("C", size=2, enqueued=2),
    row("ID:x", size=9, enqueued=99, is_temporary=True),
    row("T", "topic", enqueued=6),
]


def scrape(accept: str = "") -> str:
    async def run() -> str:
        answers = {
            "overview": lambda _: MASTER,
            "destinations": lambda _: ROWS,
            "bridges": lambda _: BRIDGES,
            "incoming_bridges": lambda _: INCOMING,
            "ha": lambda _: HA | {"reconnections": 4},
        }
        async with site(answers) as there:
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


def test_what_happens_is_counted() -> None:
    text = scrape()
    assert 'pybroker_connections{listener="stomp"} 2.0' in text
    assert 'pybroker_dead_letters_total{cause="expired"} 6.0' in text
    assert 'pybroker_dead_letters_total{cause="rejected"} 0.0' in text
    assert 'pybroker_logins_total{result="ok"} 8.0' in text
    assert 'pybroker_logins_total{result="guest"} 0.0' in text
    assert 'pybroker_logins_total{result="refused"} 2.0' in text
    assert 'pybroker_logins_total{result="throttled"} 3.0' in text
    found = samples(text)
    expected = {
        "pybroker_redeliveries_total": 5,
        "pybroker_blocked_producers": 1,
        "pybroker_xa_in_doubt": 4,
        "pybroker_denied_total": 0,
        "pybroker_journal_files": 3,
        "pybroker_journal_write_bytes_total": 1000,
        "pybroker_journal_sync_seconds_count": 7,
        "pybroker_journal_sync_seconds_sum": 2.5,
    }
    assert {name: found[name, ""] for name in expected} == expected
    buckets = [("0.001", 4), ("1", 6), ("+Inf", 7)]
    assert all(f'pybroker_journal_sync_seconds_bucket{{le="{le}"}} {count}.0' in text for le, count in buckets)
    assert found["pybroker_queue_oldest_message_seconds", "A"] == 60


def test_bridges_have_series_by_connector_and_address() -> None:
    text = scrape()
    up, down = 'connector="hub",target="tcp://h:1"', 'connector="hub",target="tcp://i:2"'
    assert f"pybroker_bridge_up{{{up}}} 1.0" in text
    assert f"pybroker_bridge_up{{{down}}} 0.0" in text
    assert f"pybroker_bridge_forwarded_total{{{up}}} 10.0" in text
    assert f"pybroker_bridge_failures_total{{{down}}} 8.0" in text
    assert f"pybroker_bridge_demand_subscriptions{{{up}}} 2.0" in text
    assert f"pybroker_bridge_received_total{{{up}}} 0.0" in text


def test_incoming_bridges_are_series_unless_their_messages_are_refused() -> None:
    text = scrape()
    served = 'connector="in",remote_broker="sp\\\\ud800"'
    assert f"pybroker_incoming_bridge_received_total{{{served}}} 34.0" in text
    assert f"pybroker_incoming_bridge_forwarded_total{{{served}}} 11.0" in text
    assert f"pybroker_incoming_bridge_since_seconds{{{served}}} 1.0" in text
    assert "pybroker_incoming_bridges_refused 1.0" in text
    assert 'connector="edge"' not in text


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


HA: dict[str, Any] = {
    "name": "b",
    "state": "degraded",
    "reasons": [
        {"member": "a", "is_obstacle": False, "kind": "alone", "text": "w"},
        {"member": "b", "is_obstacle": True, "kind": "port", "text": "o"},
        {"member": "b", "is_obstacle": True, "kind": "port", "text": "o 2"},
    ],
    "last_clean_check_ms": 9000,
    "disk_free_bytes": 77,
    "reconnections": None,
    "lock": {"is_held": True, "holder": "a", "held_since_ms": 1000, "confirmed_ms": 2000},
    "promotions": [{"at_ms": 5000, "total_ms": 250}],
    "members": [
        {"name": "a", "role": "MASTER", "is_alive": True, "is_silent": True, "obstacles": [], "warnings": ["w"]},
        {
            "name": "b",
            "role": "STANDBY",
            "is_alive": True,
            "is_silent": False,
            "obstacles": ["o"],
            "warnings": [],
            "lag_bytes": 5,
            "lag_seconds": 0.5,
            "standby_ready": False,
            "promotion_count": 3,
        },
        {"name": "c", "role": "STANDBY", "is_alive": False, "is_silent": False, "obstacles": [], "warnings": []},
    ],
}


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_names_that_labels_cannot_have(monkeypatch: pytest.MonkeyPatch, accept: str) -> None:
    """A client may name a queue as it likes, and the metrics of all others are there."""
    monkeypatch.setattr(metrics, "DESTINATIONS_MAX", 2)
    names = ["other", "\ud800", 'a"\n\\', "b"]
    monkeypatch.setattr(sys.modules[__name__], "ROWS", [row(name, size=5, enqueued=9) for name in names])
    text = scrape(accept)
    assert r'activemq_queue_queue_size{destination="\\ud800"} 5.0' in text
    assert r'activemq_queue_queue_size{destination="a\"\n\\"} 5.0' in text
    assert text.count('activemq_queue_queue_size{destination="other"} 10.0') == 1


def test_a_standby_has_the_state_of_the_pair() -> None:
    standby = {"broker_name": "b", "role": "STANDBY", "since_ms": 0}

    async def run() -> str:
        async with site({"overview": lambda _: standby, "ha": lambda _: HA}) as there:
            return (await there.ask_raw("/metrics"))[2]

    text = asyncio.run(run())
    found = samples(text)
    assert 'pybroker_members{state="master"} 1.0' in text
    assert 'pybroker_members{state="standby"} 1.0' in text
    assert 'pybroker_members{state="silent"} 1.0' in text
    assert 'pybroker_members{state="degraded"} 2.0' in text
    assert 'pybroker_findings{kind="port",member="b"} 1.0' in text
    assert 'pybroker_findings{kind="alone",member="a"} 1.0' in text
    assert 'pybroker_lock_holder_info{holder="a"} 1.0' in text
    expected = {
        "pybroker_standby_ready": 0,
        "pybroker_degraded": 1,
        "pybroker_lock_held": 0,
        "pybroker_standby_lag_bytes": 5,
        "pybroker_standby_lag_seconds": 0.5,
        "pybroker_ha_last_check_timestamp_seconds": 9,
        "pybroker_disk_free_bytes": 77,
        "pybroker_promotions_total": 3,
        "pybroker_promotion_last_duration_seconds": 0.25,
        "pybroker_promotion_last_timestamp_seconds": 5,
        "pybroker_ha_known": 1,
    }
    assert {name: found[name, ""] for name in expected} == expected
    assert ("pybroker_client_reconnects_total", "") not in found
    assert found["pybroker_lock_age_seconds", ""] > found["pybroker_lock_last_confirmed_seconds", ""] > 0


REPLICA: dict[str, Any] = {
    "in_sync_count": 2,
    "minimum": 1,
    "is_in_sync": True,
    "members": [
        {"name": "a", "is_in_sync": True, "lag_bytes": 0, "lag_seconds": 0.0, "left_bytes": 0},
        {"name": "b", "is_in_sync": False, "lag_bytes": 7, "lag_seconds": 1.5, "left_bytes": 9},
    ],
    "confirm": {"bounds": [0.001, 1.0], "counts": [4, 2, 1], "seconds": 2.5},
    "set_changes": {"caught_up": 3},
    "promotions": {"lease": 1},
    "discarded_records": 258,
    "register_seconds": 0.25,
    "register_age_seconds": None,
    "lease_left_seconds": 3.5,
    "grace_active": True,
    "last_verified_ms": 1000,
    "damaged": ["kahadb/db-3.log"],
}


def test_a_replicated_member_has_its_cluster() -> None:
    async def run() -> str:
        answers = {
            "overview": lambda _: {"broker_name": "b", "role": "STANDBY", "since_ms": 0},
            "ha": lambda _: HA | {"replica": REPLICA},
        }
        async with site(answers) as there:
            return (await there.ask_raw("/metrics"))[2]

    text = asyncio.run(run())
    found = samples(text)
    for line in (
        'pybroker_replica_in_sync{member="a"} 1.0',
        'pybroker_replica_in_sync{member="b"} 0.0',
        'pybroker_replica_confirmed_lag_seconds{member="b"} 1.5',
        'pybroker_replica_lag_bytes{member="b"} 7.0',
        'pybroker_replica_catch_up_bytes_left{member="b"} 9.0',
        'pybroker_replica_set_changes_total{reason="caught_up"} 3.0',
        'pybroker_replica_promotions_total{cause="lease"} 1.0',
        'pybroker_replica_confirm_seconds_bucket{le="1"} 6.0',
        "pybroker_replica_confirm_seconds_count 7.0",
    ):
        assert line in text
    assert found["pybroker_replica_in_sync_count", ""] == 2
    assert found["pybroker_replica_discarded_records_total", ""] == 258
    assert found["pybroker_replica_lease_left_seconds", ""] == 3.5
    assert found["pybroker_replica_grace_active", ""] == 1
    assert found["pybroker_replica_damaged_files", ""] == 1
    assert found["pybroker_replica_last_verified_seconds", ""] > 1e9
    assert "pybroker_replica_register_age_seconds" not in text
