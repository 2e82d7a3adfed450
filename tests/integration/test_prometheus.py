"""A real Prometheus that scrapes a pair: series by role, alerts of a failover, and the board of the examples."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.prometheus_server import ROOT, PrometheusServer, alert_expressions, rules
from tests.integration.stomp_client import StompClient
from tests.integration.test_pair_health import Load
from tests.integration.watched_pair import SECONDS, WAITING, WatchedPair, watched_pair

pytestmark = pytest.mark.component("prometheus")

SOON: Final = 5.0
"""The time in which series and alerts follow a failover."""

BUSY_SECONDS: Final = 5.0
"""In addition, as the machine is shared with other tests."""

BOARD: Final = ROOT / "examples/grafana/pybroker.json"
VARIABLES: Final = {"job": ".*", "cluster": "orders", "instance": ".*", "queue": ".*", "__rate_interval": "1m"}
METRIC: Final = re.compile(r"(?<![\w:])((?:pybroker|activemq|process)_\w+)")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[WatchedPair]:
    with watched_pair(tmp_path, tmp_path / "store") as pair:
        yield pair


def board() -> Any:
    return json.loads(BOARD.read_text(encoding="utf-8"))


def expressions_of(board: Any) -> list[str]:
    """Return the expressions of a board's panels and annotations, with values for its variables."""
    found = [each["expr"] for panel in board["panels"] for each in panel.get("targets", ())]
    found += [each["expr"] for each in board["annotations"]["list"]]
    return [re.sub(r"\$(\w+)", lambda match: VARIABLES[match[1]], each) for each in found]


# ---------------------------------------------------------------- a failover


def test_series_and_alerts_follow_a_failover(pair: WatchedPair) -> None:
    master, prometheus = pair.start("a"), pair.prometheus
    pair.start("b", wait_for=WAITING)
    first, second = pair.instance("a"), pair.instance("b")
    prometheus.wait_for("up", lambda found: found == {first: 1, second: 1}, SECONDS)
    prometheus.wait_for('pybroker_role{role="master"} == 1', lambda found: [*found] == [first], SECONDS)
    prometheus.wait_for("pybroker_standby_ready", lambda found: found == {second: 1}, SECONDS)
    prometheus.wait_for("activemq_connections", lambda found: [*found] == [first], SECONDS)
    assert prometheus.query("pybroker_lock_held") == {first: 1, second: 0}

    killed_at = time.monotonic()
    master.kill()
    for expression, expected in (
        ('pybroker_role{role="master"}', {second: 1}),
        ("pybroker_lock_held", {second: 1}),
        ("up", {first: 0, second: 1}),
        ("pybroker_standby_ready", {}),
        ("activemq_connections", {second: 0}),
        ("pybroker_promotions_total", {second: 1}),
    ):
        left = max(2.0, SOON + BUSY_SECONDS - (time.monotonic() - killed_at))
        prometheus.wait_for(expression, expected.__eq__, left)
    prometheus.wait_for_alert("PybrokerMemberDown", SOON + BUSY_SECONDS)
    prometheus.wait_for_alert("PybrokerNoStandby", SOON + BUSY_SECONDS)
    wait_for_firing(prometheus, {"PybrokerMemberDown", "PybrokerNoStandby", "PybrokerDegraded"})
    assert not prometheus.alerts().keys() & {"PybrokerNoMaster", "PybrokerTwoMasters"}

    pair.start("a", wait_for=WAITING)
    wait_for_firing(prometheus, set())


def wait_for_firing(prometheus: PrometheusServer, expected: set[str]) -> None:
    """Wait until exactly these alerts fire."""
    deadline = time.monotonic() + SECONDS
    while (found := prometheus.firing()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_failovers_under_load_have_their_true_alerts_alone(pair: WatchedPair) -> None:
    began_at = time.time()
    members = {"a": pair.start("a")}
    members["b"] = pair.start("b", wait_for=WAITING)
    load = Load(list(pair.stomp.values()))
    load.start()
    try:
        for number in range(3):
            name, other = ("a", "b") if number % 2 == 0 else ("b", "a")
            sent, deadline = load.sent, time.monotonic() + SECONDS
            while load.sent < sent + 500:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            members[name].kill()
            members[other].wait_for("listening on")
            members[name] = pair.start(name, wait_for=WAITING)
        pair.prometheus.wait_for("pybroker_degraded == 0", lambda found: len(found) == 2, SECONDS)
        deadline = time.monotonic() + SECONDS
        while pair.prometheus.firing() - {"PybrokerFailovers"}:  # which an hour must pass to forget
            assert time.monotonic() < deadline, pair.prometheus.alerts()
            time.sleep(0.05)
    finally:
        load.ends.set()
        load.join()
    true = {"PybrokerMemberDown", "PybrokerNoStandby", "PybrokerDegraded", "PybrokerFailovers"}
    assert pair.prometheus.fired(began_at) <= true


# ---------------------------------------------------------------- the board and the rules


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WatchedPair, set[str]]]:
    """A pair with a message that waits, and the names of its metrics."""
    directory = tmp_path_factory.mktemp("board")
    with watched_pair(directory, directory / "store") as pair:
        pair.start("a")
        pair.start("b", wait_for=WAITING)
        client = StompClient(pair.stomp["a"])
        client.request("SEND", b"x", destination="/queue/Q", persistent="true")
        client.request("SEND", b"x", destination="/topic/T")
        deadline = time.monotonic() + SECONDS
        looked = ("pybroker_standby_lag_seconds", "pybroker_ha_last_check_timestamp_seconds")
        while any(each not in pair.metrics("b") for each in looked):
            assert time.monotonic() < deadline
        found: set[str] = set()
        for name in ("a", "b"):
            for line in pair.metrics(name).splitlines():
                found.add(line.split()[2] if line.startswith("# TYPE") else re.split(r"[{ ]", line)[0])
        pair.prometheus.wait_for("rate(process_cpu_seconds_total[1m])", lambda found: len(found) == 2, SECONDS)
        pair.prometheus.wait_for("rate(activemq_topic_enqueue_count[1m])", bool, SECONDS)
        yield pair, found
        client.close()


def test_each_expression_of_the_board_is_one(names: tuple[WatchedPair, set[str]]) -> None:
    pair, _ = names
    empty = [each for each in expressions_of(board()) if not pair.prometheus.ask("query", query=each)["result"]]
    assert len(expressions_of(board())) > 60
    # No sample yet: there is nothing wrong, no dead letter, no second promotion, and no rate of what was seen once.
    unlike = ("pybroker_findings", "changes(pybroker_promotion_last_timestamp_seconds", "histogram_quantile", "_sum{")
    assert [each for each in empty if not any(part in each for part in unlike)] == []


def test_each_metric_of_the_board_and_the_rules_exists(names: tuple[WatchedPair, set[str]]) -> None:
    _, known = names
    used = {metric for each in expressions_of(board()) for metric in METRIC.findall(each)}
    used |= {metric for each in board()["templating"]["list"][1:4] for metric in METRIC.findall(each["definition"])}
    assert used - known == set()
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for rule in rules():
        assert set(METRIC.findall(rule["expr"])) - known == set(), rule
        assert set(re.findall(r"cluster:\w+:\w+", rule["expr"])) <= recorded


def test_the_board_depends_on_no_installation() -> None:
    text, content = BOARD.read_text(encoding="utf-8"), board()
    assert (content["id"], content["uid"]) == (None, None)
    assert set(re.findall(r'"uid": "(.*)"', text)) == {"${datasource}"}
    variables = [each["name"] for each in content["templating"]["list"]]
    assert variables == ["datasource", "job", "cluster", "instance", "queue"]
    assert set(re.findall(r"\$\{?(\w+)", text)) == {*variables, "__rate_interval"}
    panels = content["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert rows == [
        "High availability",
        "Traffic",
        "The 20 largest queues",
        "Memory, store and disk",
        "Connections and logins",
        "Process",
    ]


def test_panels_of_the_board_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board()["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_counts_of_the_board_are_rates() -> None:
    """Counts begin again with each master; of what Prometheus takes for untyped, too, only rates mean something."""
    gauges = {"activemq_consumer_total", "activemq_producer_total", "activemq_message_total"}
    for each in expressions_of(board()):
        for match in re.finditer(r"(\w*(?:_total|_(?:en|de)queue_count|_dispatch_count|_expired_count))\{", each):
            before = each[: match.start()]
            assert match[1] in gauges or before.endswith(("rate(", "increase(")), each


def test_alerts_are_quiet_while_all_is_well(names: tuple[WatchedPair, set[str]]) -> None:
    pair, _ = names
    pair.prometheus.wait_for("pybroker_degraded == 0", lambda found: len(found) == 2, SECONDS)
    pair.prometheus.wait_for("pybroker_standby_ready == 1", bool, SECONDS)
    for expression in alert_expressions().values():
        pair.prometheus.wait_for(expression, lambda found: not found, SECONDS)
