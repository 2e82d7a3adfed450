"""The verdict of the hostile suite: what it subtracts from a wait, and which promises it checks."""

import pytest

from benchmarks.hostile.attacks import all_attacks, chosen
from benchmarks.hostile.verdict import Waits, judged, lateness, problems


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
    assert problems(measured, peak_mb=peak_mb, limit_mb=128, log_kb=log_kb, errors=[], harm=[]) == expected


def test_problems_include_the_bystander_and_harm() -> None:
    found = problems(waits(1), peak_mb=1, limit_mb=128, log_kb=0, errors=["closed"], harm=["2 messages vanished"])
    assert found == ["bystander: closed", "2 messages vanished"]


def test_chosen_attacks_are_named_by_theme_or_beginning() -> None:
    everything = all_attacks()
    assert [each.theme for each in chosen(["identity"], quick=False)] == ["identity"] * len(
        [each for each in everything.values() if each.theme == "identity"]
    )
    assert {each.name for each in chosen(["like-*"], quick=True)} == {name for name in everything if "like-" in name}
    assert {each.name for each in chosen([], quick=True)} == {name for name in everything if everything[name].quick}
    with pytest.raises(ValueError, match=r"no attack x; there are flood-keepalive, "):
        chosen(["x"], quick=False)
