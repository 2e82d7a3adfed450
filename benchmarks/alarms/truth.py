"""Judges alarms: an alarm is true if what its text says was so, for as long as the rule asks, when it fired.

The facts are recorded by who causes them, and never taken from the metrics that the rules read. All times are in
seconds since 1970.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from benchmarks.prometheus import Samples

FAILOVER_WINDOW_SECONDS: Final = 3600.0
FAILOVERS_MANY: Final = 2
"""`PybrokerFailovers` fires above it."""

LAG_WINDOW_SECONDS: Final = 180.0
"""`PybrokerEventLoopLag` is pending for two minutes, about turns of the minute before."""

SILENT_SECONDS: Final = 10.0
"""The time after which a member that renews nothing is called silent."""

_CLOCK_SECONDS: Final = 0.5
"""A fact is recorded as soon as its cause returns, which may be after the scrape that sees it."""


class Span(NamedTuple):
    """The time for which something was so."""

    began_at: float
    ended_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """An alert that was pending, or firing, without interruption.

    Attributes:
        alert: its name.
        state: `pending` or `firing`.
        instance: the member that it is about, or an empty string.
        began_at, ended_at: its first and its last sample.
    """

    alert: str
    state: str
    instance: str
    began_at: float
    ended_at: float


@dataclass(slots=True)
class Facts:
    """Recorded facts about a pair.

    Attributes:
        down: for each instance when it was down.
        hung: for each instance when its process was stopped.
        without_master: when no member served.
        without_standby: when no member stood by with all of the journal read.
        promotions: when a member took over.
        late: when a client waited half a second for an answer while a master served.
    """

    down: dict[str, list[Span]] = field(default_factory=dict[str, list[Span]])
    hung: dict[str, list[Span]] = field(default_factory=dict[str, list[Span]])
    without_master: list[Span] = field(default_factory=list[Span])
    without_standby: list[Span] = field(default_factory=list[Span])
    promotions: list[float] = field(default_factory=list[float])
    late: list[Span] = field(default_factory=list[Span])


def episodes(found: Iterable[Samples], gap_seconds: float) -> list[Episode]:
    """Return the episodes in samples of `ALERTS`, the earliest first; a longer gap than that ends one."""
    made: list[Episode] = []
    for labels, values in found:
        times = [at for at, _ in values]
        ends = [index for index, at in enumerate(times[1:], 1) if at - times[index - 1] > gap_seconds]
        for first, after in zip([0, *ends], [*ends, len(times)], strict=True):
            made.append(
                Episode(
                    alert=labels["alertname"],
                    state=labels["alertstate"],
                    instance=labels.get("instance", ""),
                    began_at=times[first],
                    ended_at=times[after - 1],
                )
            )
    return sorted(made, key=lambda each: each.began_at)


def is_true(episode: Episode, facts: Facts, pending: Mapping[str, float], interval: float) -> bool:
    """Judge a firing alert.

    Args:
        episode: the alert.
        facts: what happened.
        pending: for how many seconds each alert is pending, by name.
        interval: the seconds between two scrapes, and between two evaluations.

    Returns:
        False for an alert that nothing in such a run makes true, such as a second master.
    """
    if episode.alert == "PybrokerFailovers":
        return _failovers_before(episode.began_at, facts.promotions) > FAILOVERS_MANY
    if episode.alert == "PybrokerEventLoopLag":
        return any(
            span.began_at <= episode.ended_at and span.ended_at >= episode.began_at - LAG_WINDOW_SECONDS
            for span in facts.late
        )
    hangs = [span for spans in facts.hung.values() for span in spans]
    spans: Sequence[Span] = {
        "PybrokerNoMaster": facts.without_master,
        "PybrokerMemberDown": [*facts.down.get(episode.instance, ()), *facts.hung.get(episode.instance, ())],
        "PybrokerNoStandby": facts.without_standby,
        "PybrokerDegraded": [*facts.without_standby, *hangs],
        "PybrokerNotChecked": [*facts.without_standby, *hangs],
        "PybrokerMemberSilent": [Span(span.began_at + SILENT_SECONDS, span.ended_at) for span in hangs],
    }.get(episode.alert, ())
    return _held(spans, episode, pending[episode.alert], interval)


def failovers_claimed(value: float, at: float, promotions: Sequence[float], interval: float) -> bool:
    """Judge the number in the text of `PybrokerFailovers`: there were at least as many in the hour before.

    A failover leaves that hour a scrape and an evaluation later; `interval` is that of both.
    """
    return value <= _failovers_before(at, promotions, 2 * interval)


def _failovers_before(at: float, promotions: Sequence[float], seen: float = 0.0) -> int:
    return sum(at - FAILOVER_WINDOW_SECONDS - seen - _CLOCK_SECONDS <= each <= at for each in promotions)


def _held(spans: Sequence[Span], episode: Episode, pending: float, interval: float) -> bool:
    """Return True if one span lasted at least as long as the alert is pending, and still did when it fired.

    What is true is seen a scrape and an evaluation later, and so is its end.
    """
    seen = 2 * interval
    return any(
        span.ended_at - span.began_at >= pending
        and span.began_at - _CLOCK_SECONDS <= episode.began_at - pending
        and span.ended_at >= episode.began_at - seen
        and span.ended_at >= episode.ended_at - seen - interval
        for span in spans
    )
