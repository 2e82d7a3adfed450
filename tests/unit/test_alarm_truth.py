"""The judge of the benchmark of alarms: an alarm is true only while, and for as long as, its text was."""

import pytest

from benchmarks.alarms.truth import Episode, Facts, Span, episodes, failovers_claimed, is_true
from benchmarks.prometheus import (
    Samples,
    hurried,
    pending_seconds,
    seconds_of,
    shipped_configuration,
    shipped_rules,
    with_interval,
)

INTERVAL = 5.0
PENDING = pending_seconds(shipped_rules())


def firing(alert: str, began_at: float, ended_at: float | None = None, instance: str = "") -> Episode:
    ended_at = began_at if ended_at is None else ended_at
    return Episode(alert=alert, state="firing", instance=instance, began_at=began_at, ended_at=ended_at)


def judged(episode: Episode, facts: Facts) -> bool:
    return is_true(episode, facts, PENDING, INTERVAL)


def test_an_episode_ends_where_samples_are_missing() -> None:
    labels = {"alertname": "PybrokerMemberDown", "alertstate": "firing", "instance": "a"}
    later = {"alertname": "PybrokerDegraded", "alertstate": "pending"}
    found = episodes(
        [Samples(labels, [(10.0, 1.0), (15.0, 1.0), (40.0, 1.0)]), Samples(later, [(20.0, 1.0)])], 2.5 * INTERVAL
    )
    assert found == [
        firing("PybrokerMemberDown", 10.0, 15.0, "a"),
        Episode(alert="PybrokerDegraded", state="pending", instance="", began_at=20.0, ended_at=20.0),
        firing("PybrokerMemberDown", 40.0, 40.0, "a"),
    ]


@pytest.mark.parametrize(
    ("down", "began_at", "ended_at", "expected"),
    [
        (Span(100.0, 160.0), 135.0, 165.0, True),
        (Span(100.0, 160.0), 135.0, 180.0, False),  # it fires on when the member is back for long
        (Span(100.0, 128.0), 135.0, 135.0, False),  # it was down for less than the rule asks
        (Span(100.0, 160.0), 125.0, 160.0, False),  # it fires too early
        (Span(100.0, 160.0), 175.0, 175.0, False),  # it fires when the member is back
    ],
)
def test_a_member_is_down_for_as_long_as_the_rule_asks(
    down: Span, began_at: float, ended_at: float, expected: bool
) -> None:
    facts = Facts(down={"a": [down]})
    assert judged(firing("PybrokerMemberDown", began_at, ended_at, "a"), facts) is expected
    assert not judged(firing("PybrokerMemberDown", began_at, ended_at, "b"), facts)


def test_short_outages_do_not_add_up() -> None:
    facts = Facts(without_standby=[Span(0.0, 40.0), Span(41.0, 80.0)])
    assert not judged(firing("PybrokerDegraded", 70.0), facts)
    assert judged(firing("PybrokerDegraded", 70.0), Facts(without_standby=[Span(0.0, 80.0)]))


def test_a_member_that_hangs_is_silent_after_ten_seconds() -> None:
    facts = Facts(hung={"a": [Span(0.0, 40.0)]})
    assert not judged(firing("PybrokerMemberSilent", 15.0), facts)
    assert judged(firing("PybrokerMemberSilent", 25.0), facts)
    assert judged(firing("PybrokerMemberDown", 35.0, instance="a"), facts)


def test_failovers_are_those_of_the_hour_before() -> None:
    facts = Facts(promotions=[100.0, 200.0, 300.0])
    assert judged(firing("PybrokerFailovers", 305.0), facts)
    assert not judged(firing("PybrokerFailovers", 295.0), facts)
    assert not judged(firing("PybrokerFailovers", 3705.0), facts)
    for value, at, expected in (
        (3.0, 305.0, True),
        (4.0, 305.0, False),
        (3.0, 3709.0, True),  # the first is an hour ago, which is seen a scrape and an evaluation later
        (3.0, 3711.0, False),
        (2.0, 3711.0, True),
    ):
        assert failovers_claimed(value, at, facts.promotions, INTERVAL) is expected


def test_the_event_loop_lags_if_clients_waited() -> None:
    facts = Facts(late=[Span(100.0, 101.0)])
    assert judged(firing("PybrokerEventLoopLag", 250.0), facts)
    assert not judged(firing("PybrokerEventLoopLag", 300.0), facts)
    assert not judged(firing("PybrokerEventLoopLag", 90.0), facts)


@pytest.mark.parametrize("alert", sorted(PENDING))
def test_no_alarm_is_true_of_a_pair_that_is_well(alert: str) -> None:
    assert not judged(firing(alert, 1000.0), Facts())


def test_what_no_run_causes_is_never_true() -> None:
    span = [Span(0.0, 5000.0)]
    facts = Facts(
        down={"a": span}, hung={"a": span}, without_master=span, without_standby=span, promotions=[1.0, 2.0, 3.0],
        late=span,
    )  # fmt: skip
    true = {alert for alert in PENDING if judged(firing(alert, 1000.0, instance="a"), facts)}
    assert true == {
        "PybrokerNoMaster",
        "PybrokerMemberDown",
        "PybrokerNoStandby",
        "PybrokerDegraded",
        "PybrokerNotChecked",
        "PybrokerMemberSilent",
        "PybrokerFailovers",
        "PybrokerEventLoopLag",
    }


def test_only_what_is_asked_for_differs_from_the_examples() -> None:
    assert [seconds_of(each) for each in ("5s", "2m", "1h")] == [5.0, 120.0, 3600.0]
    assert PENDING["PybrokerMemberDown"] == 30.0
    assert PENDING["PybrokerFailovers"] == 0.0
    quick = pending_seconds(hurried(shipped_rules(), "3s"))
    assert (quick["PybrokerNoStandby"], quick["PybrokerOldestMessage"]) == (3.0, PENDING["PybrokerOldestMessage"])
    assert pending_seconds(shipped_rules()) == PENDING, "the rules themselves are left alone"
    configuration = shipped_configuration(["x:1"])
    assert configuration["global"] == {"scrape_interval": "5s", "evaluation_interval": "5s"}
    assert set(with_interval(configuration, "1s")["global"].values()) == {"1s"}
    assert configuration["scrape_configs"][0]["static_configs"][0]["targets"] == ["x:1"]
