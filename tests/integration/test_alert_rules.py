"""The alert rules of the examples under `promtool`: each fires in its situation and in no other."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from tests.integration.prometheus_server import CONFIGURATION, ROOT, RULES, alert_expressions, rules

pytestmark = pytest.mark.component("prometheus")

STEP: Final = 5
"""Seconds between two samples of a series."""

SAMPLES: Final = 720
"""The samples of an hour."""

LABELS: Final = 'job="pybroker", cluster="orders"'
CALM: Final = -10_000
"""A time before all others, for a promotion that is long past."""


def series(name: str, instance: str, **labels: str) -> str:
    own = "".join(f', {key}="{value}"' for key, value in labels.items())
    return f'{name}{{{LABELS}, instance="{instance}"{own}}}'


def constant(value: float, count: int = SAMPLES) -> str:
    return f"{float(value)}+0x{count - 1}"


def _well() -> dict[str, str]:
    """Return the series of a pair that is well, whose master is `a`."""
    found: dict[str, str] = {}
    for instance in ("a", "b"):
        is_master = instance == "a"
        found |= {
            series("up", instance): constant(1),
            series("pybroker_role", instance, role="master"): constant(is_master),
            series("pybroker_role", instance, role="standby"): constant(not is_master),
            series("pybroker_lock_held", instance): constant(is_master),
            series("pybroker_lock_last_confirmed_seconds", instance): constant(1),
            series("pybroker_members", instance, state="master"): constant(1),
            series("pybroker_members", instance, state="silent"): constant(0),
            series("pybroker_degraded", instance): constant(0),
            series("pybroker_ha_known", instance): constant(1),
            series("pybroker_ha_last_check_timestamp_seconds", instance): f"0+{STEP}x{SAMPLES - 1}",
            series("pybroker_promotion_last_timestamp_seconds", instance): constant(CALM),
            series("pybroker_client_reconnects_total", instance): constant(7),
            series("pybroker_disk_free_bytes", instance): constant(1 << 36),
            series("pybroker_disk_reserve_bytes", instance): constant(32 << 20),
        }
    return found | {
        series("pybroker_standby_ready", "b"): constant(1),
        series("pybroker_dead_letters_total", "a", cause="expired"): constant(3),
        series("pybroker_queue_oldest_message_seconds", "a", destination="Q"): constant(800),
        series("pybroker_queue_oldest_message_seconds", "a", destination="ActiveMQ.DLQ"): constant(90_000),
        series("pybroker_store_full", "a"): constant(0),
        series("pybroker_spool_full", "a"): constant(0),
        series("pybroker_blocked_producers", "a"): constant(0),
        series("pybroker_xa_in_doubt", "a"): constant(0),
        series("pybroker_event_loop_lag_seconds", "a"): constant(0.1),
    }


class Situation(NamedTuple):
    """What is wrong from the first sample on.

    Attributes:
        alert: the alert that fires.
        changed: the series that differ from those of a pair that is well.
        pending_seconds: until then it does not fire; 0: it fires at once.
        others: alerts that fire too, because of the same.
    """

    alert: str
    changed: dict[str, str]
    pending_seconds: int
    others: tuple[str, ...] = ()


GONE: Final = "stale"
DOWN_A: Final = {name: GONE for name in _well() if 'instance="a"' in name} | {series("up", "a"): constant(0)}
ALL_DOWN: Final = {name: GONE for name in _well()} | {series("up", each): constant(0) for each in ("a", "b")}

SITUATIONS: Final = (
    Situation("PybrokerNoMaster", {series("pybroker_role", "a", role="master"): constant(0)}, 10),
    Situation("PybrokerNoMaster", ALL_DOWN, 10, ("PybrokerMemberDown", "PybrokerNoStandby")),
    Situation("PybrokerTwoMasters", {series("pybroker_role", "b", role="master"): constant(1)}, 10),
    Situation("PybrokerTwoMasters", {series("pybroker_lock_held", "b"): constant(1)}, 10),
    Situation("PybrokerTwoMasters", {series("pybroker_members", "b", state="master"): constant(2)}, 10),
    Situation("PybrokerMemberDown", DOWN_A, 30, ("PybrokerNoMaster",)),
    Situation("PybrokerNoStandby", {series("pybroker_role", "b", role="standby"): constant(0)}, 300),
    Situation("PybrokerStandbyNotReady", {series("pybroker_standby_ready", "b"): constant(0)}, 120),
    Situation("PybrokerDegraded", {series("pybroker_degraded", "b"): constant(1)}, 60),
    Situation("PybrokerMemberSilent", {series("pybroker_members", "a", state="silent"): constant(1)}, 10),
    Situation("PybrokerLockUnconfirmed", {series("pybroker_lock_last_confirmed_seconds", "a"): constant(6)}, 5),
    Situation(
        "PybrokerNotChecked",
        {series("pybroker_ha_last_check_timestamp_seconds", each): constant(0) for each in ("a", "b")},
        300,
    ),
    Situation("PybrokerStoreSilent", {series("pybroker_ha_known", "b"): constant(0)}, 30),
    Situation(
        "PybrokerFailovers",
        {
            series("pybroker_promotion_last_timestamp_seconds", "a"): " ".join(
                constant(each, 60) for each in (CALM, 300, 600, 900, 900)
            )
        },
        890,
    ),
    Situation(
        "PybrokerReconnects",
        {series("pybroker_client_reconnects_total", "a"): f"{constant(7, 540)} 7+5x120"},
        540 * STEP,
    ),
    Situation(
        "PybrokerDeadLetters",
        {series("pybroker_dead_letters_total", "a", cause="expired"): f"{constant(3, 100)} {constant(4, 100)}"},
        100 * STEP - STEP,
    ),
    Situation(
        "PybrokerOldestMessage",
        {series("pybroker_queue_oldest_message_seconds", "a", destination="Q"): f"800+{STEP}x200"},
        100 + 60,
    ),
    Situation("PybrokerDiskFreeLow", {series("pybroker_disk_free_bytes", "b"): constant(60 << 20)}, 60),
    Situation("PybrokerStoreFull", {series("pybroker_store_full", "a"): constant(1)}, 5),
    Situation("PybrokerSpoolFull", {series("pybroker_spool_full", "a"): constant(1)}, 60),
    Situation("PybrokerBlockedProducers", {series("pybroker_blocked_producers", "a"): constant(3)}, 300),
    Situation("PybrokerInDoubt", {series("pybroker_xa_in_doubt", "a"): constant(1)}, 600),
    Situation("PybrokerEventLoopLag", {series("pybroker_event_loop_lag_seconds", "a"): constant(0.6)}, 120),
)


def promtool(*arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fires(seconds: int, *alerts: str) -> dict[str, Any]:
    """Return the check that exactly these alerts fire at a time."""
    return {
        "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{seconds}s",
        "exp_samples": [{"labels": f'{{alertname="{each}"}}', "value": 1} for each in alerts],
    }


def check(directory: Path, values: dict[str, str], *checks: dict[str, Any]) -> None:
    """Require that alerts fire at the times of the checks."""
    test = {
        "interval": f"{STEP}s",
        "input_series": [{"series": name, "values": each} for name, each in values.items()],
        "promql_expr_test": list(checks),
    }
    content = {"rule_files": [str(RULES)], "evaluation_interval": f"{STEP}s", "tests": [test]}
    (directory / "test.yml").write_text(yaml.safe_dump(content))
    promtool("test", "rules", "test.yml", cwd=directory)


def test_promtool_accepts_the_rules_and_the_configuration(tmp_path: Path) -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))
    for file in (RULES, CONFIGURATION):
        (tmp_path / file.name).write_text(file.read_text())
    password = tmp_path / "password"
    password.write_text("x")
    configuration = tmp_path / CONFIGURATION.name
    configuration.write_text(configuration.read_text().replace("/etc/prometheus/pybroker-password", str(password)))
    assert "SUCCESS" in promtool("check", "config", str(configuration))


def test_each_alert_has_a_situation() -> None:
    assert {each.alert for each in SITUATIONS} == set(alert_expressions())


@pytest.mark.parametrize("situation", SITUATIONS, ids=[each.alert for each in SITUATIONS])
def test_alert_fires_in_its_situation_and_no_other_does(tmp_path: Path, situation: Situation) -> None:
    pending, expected = situation.pending_seconds, (situation.alert, *situation.others)
    checks = [fires(3000 if pending > 900 else 900, *expected)]
    if pending:
        checks.append(
            {**fires(pending - STEP), "expr": f'ALERTS{{alertname="{situation.alert}", alertstate="firing"}}'}
        )
    check(tmp_path, _well() | situation.changed, *checks)


def test_a_pair_that_is_well_has_no_alert(tmp_path: Path) -> None:
    check(tmp_path, _well(), *[fires(seconds) for seconds in (0, 60, 600, 1800, 3500)])


def test_a_single_broker_has_no_alert_for_its_missing_standby(tmp_path: Path) -> None:
    alone = {name: values for name, values in _well().items() if 'instance="a"' in name}
    check(tmp_path, alone, *[fires(seconds) for seconds in (0, 60, 600, 3500)])


def test_a_failover_has_the_alert_of_its_missing_member_alone(tmp_path: Path) -> None:
    """The master is killed after 20 minutes, and is a standby again 80 seconds later; clients come back."""
    before, without, after = 240, 16, SAMPLES - 240 - 16
    pair = _well()
    for name in list(pair):
        if 'instance="a"' in name and name.split("{")[0] != "up":
            role = 'role="standby"' in name
            at_end = 1 if role or "pybroker_ha_known" in name or "confirmed" in name else 0
            if "disk_free" in name:
                at_end = 1 << 36
            if "timestamp" in name or "members" in name or "disk_reserve" in name or "reconnects" in name:
                continue  # the other member goes on showing these
            pair[name] = f"{pair[name].replace(f'x{SAMPLES - 1}', f'x{before - 1}')} {GONE} _x{without - 1} " + (
                constant(at_end, after) if "dead" not in name and "oldest" not in name else "_"
            )
    pair[series("up", "a")] = f"{constant(1, before)} {constant(0, without)} {constant(1, after)}"
    for instance in ("a", "b"):
        pair[series("pybroker_promotion_last_timestamp_seconds", instance)] = (
            f"{constant(CALM, before)} {constant(before * STEP, without + after)}"
        )
        pair[series("pybroker_client_reconnects_total", instance)] = f"{constant(7, before)} 0 {constant(200, after)}"
    pair[series("pybroker_role", "b", role="master")] = f"{constant(0, before)} {constant(1, without + after)}"
    pair[series("pybroker_role", "b", role="standby")] = f"{constant(1, before)} {constant(0, without + after)}"
    pair[series("pybroker_lock_held", "b")] = f"{constant(0, before)} {constant(1, without + after)}"
    pair[series("pybroker_standby_ready", "b")] = f"{constant(1, before)} {GONE}"
    end = (before + without) * STEP
    times = [*range(before * STEP, before * STEP + 30, STEP), end + STEP, end + 60, end + 600, 3500]
    check(tmp_path, pair, *[fires(seconds) for seconds in times], fires(end - STEP, "PybrokerMemberDown"))


def test_each_alert_is_in_the_page() -> None:
    page = (ROOT / "docs/watching.md").read_text(encoding="utf-8")
    section = page.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(Pybroker\w+)` \|", section, re.MULTILINE) == list(alert_expressions())
    for rule in rules():
        if "alert" in rule:
            assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
            assert rule["annotations"]["runbook_url"] == "docs/watching.md#alerts"
            assert rule["labels"]["severity"] in ("warning", "critical")
