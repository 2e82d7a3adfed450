"""The verdict of the hostile suite: what it subtracts from a wait, its promises, and how far attacks came."""

import pytest

from benchmarks.hostile.attacks import all_attacks, chosen
from benchmarks.hostile.target import Depth
from benchmarks.hostile.verdict import Waits, judged, lateness, problems, unmeant


def waits(own_ms: float, late_ms: float = 0.0) -> Waits:
    return Waits(count=1, p99_ms=own_ms, max_ms=own_ms, own_ms=own_ms, late_ms=late_ms, step="send")


@pytest.mark.parametrize(
    ("late", "delays", "expected"),
    [
        ([], [], 0.0),
        ([], [(0.0, 0.5), (10.1, 0.2), (10.9, 5.0)], 0.3),  # before it, within it, and across its end
        ([(10.2, 0.03)], [], 0.0),  # the bystander had nothing to do at that time
        ([(10.2, 0.3)], [], 0.3),  # the machine stood still
        ([(10.6, 0.9)], [], 0.4),  # the answer came, and was not noticed
        ([(9.0, 5.0)], [(9.0, 5.0)], 1.0),  # never more than the wait
    ],
)
def test_lateness_counts_what_kept_the_answer(
    late: list[tuple[float, float]], delays: list[tuple[float, float]], expected: float
) -> None:
    assert lateness(10.0, 1.0, late=late, delays=delays) == pytest.approx(expected)


def test_judged_names_the_step_with_the_longest_own_wait() -> None:
    made = judged({"send": [(0.0, 0.4), (5.0, 0.01)], "receive": [(0.0, 0.3)]}, late=[], delays=[(0.1, 0.2)])
    assert (made.count, made.max_ms, made.step) == (3, 400.0, "send")
    assert made.own_ms == pytest.approx(200.0)
    assert made.late_ms == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("measured", "peak_mb", "log_kb", "expected"),
    [
        (waits(99), 227, 511, []),
        (waits(101), 228, 512, ["wait > 100 ms"]),
        (waits(249, late_ms=30), 228, 512, []),
        (waits(251, late_ms=30), 229, 513, ["wait > 250 ms", "memory > 228 MB", "log > 512 KB"]),
    ],
)
def test_problems_are_broken_promises(measured: Waits, peak_mb: float, log_kb: float, expected: list[str]) -> None:
    found = problems(measured, peak_mb=peak_mb, limit_mb=128, log_kb=log_kb, errors=[], harm=[], missed=[])
    assert found == expected


def test_problems_include_bystander_harm_and_missed_depth() -> None:
    found = problems(
        waits(1),
        peak_mb=1,
        limit_mb=128,
        log_kb=0,
        errors=["closed"],
        harm=["2 messages vanished"],
        missed=["3 of 10 queues"],
    )
    assert found == ["bystander: closed", "2 messages vanished", "did not reach: 3 of 10 queues"]


@pytest.mark.parametrize(
    ("refusals", "meant", "quick", "expected"),
    [
        ({}, None, False, []),
        ({"limit": 3, "closed": 1}, None, False, ["4 refused: limit"]),
        ({"limit": 3}, "^li", False, []),
        ({"limit": 3, "closed": 1}, "^li", False, ["1 refused: closed"]),
        ({}, "^li", False, ["nothing was refused with ^li"]),
        ({"closed": 1}, "^li", False, ["1 refused: closed", "nothing was refused with ^li"]),
        ({}, "^li", True, []),  # the short form may be too small
    ],
)
def test_refusals_that_are_not_meant_are_missed_depth(
    refusals: dict[str, int], meant: str | None, quick: bool, expected: list[str]
) -> None:
    assert unmeant(refusals, meant, quick=quick) == expected


def test_depth_adds_counts_of_the_same_kind() -> None:
    depth = Depth()
    for _ in range(3):
        depth.reach(1_200, 1_000, "messages")  # more than wanted makes up for nothing
    depth.reach(7, 7, "queues")
    depth.reach(6, 7, "queues")
    assert depth.reached() == ["3,000 of 3,000 messages"]
    assert depth.missed() == ["13 of 14 queues"]


def test_depth_of_an_attack_that_broke_off_is_missed() -> None:
    depth = Depth()
    depth.broken_off.append("time-out: no answer")
    assert depth.missed() == ["time-out: no answer"]


def test_chosen_attacks_are_named_by_theme_or_beginning() -> None:
    everything = all_attacks()
    assert [each.theme for each in chosen(["identity"], quick=False)] == ["identity"] * len(
        [each for each in everything.values() if each.theme == "identity"]
    )
    assert {each.name for each in chosen(["like-*"], quick=True)} == {name for name in everything if "like-" in name}
    assert {each.name for each in chosen([], quick=True)} == {name for name in everything if everything[name].quick}
    with pytest.raises(ValueError, match=r"no attack x; there are flood-keepalive, "):
        chosen(["x"], quick=False)


@pytest.mark.parametrize(("peak_mb", "found"), [(498.0, []), (498.1, ["memory > 498 MB"])])
def test_frames_near_the_limit_are_allowed_for_three_times(peak_mb: float, found: list[str]) -> None:
    measured = Waits(count=1, p99_ms=1, max_ms=1, own_ms=1, late_ms=0, step="send")
    assert (
        problems(measured, peak_mb=peak_mb, limit_mb=128, frame_mb=90, log_kb=0, errors=[], harm=[], missed=[]) == found
    )
