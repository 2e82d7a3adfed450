"""Ratios compared with their targets: pure functions over what was measured."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.report import Cell
from benchmarks.report import Row as TableRow
from benchmarks.side_by_side.brokers import ACTIVEMQ, OBSERVED, PYBROKER, RABBITMQ, WITH_LOGINS
from benchmarks.side_by_side.rows import CPU_RATIO_MAX, PEAK_RATIO_MAX, Row

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One repetition of a row on one broker.

    Attributes:
        messages_per_second: sent and, where there are consumers, received.
        p50_ms: median time of a send, or of a commit.
        p99_ms: 99th percentile of it.
        cpu_seconds_per_1000: the broker's user and system time for a thousand messages.
        client_cpu_seconds_per_1000: the client's.
        peak_mib: the most memory the broker had resident.
    """

    messages_per_second: float
    p50_ms: float
    p99_ms: float
    cpu_seconds_per_1000: float
    client_cpu_seconds_per_1000: float
    peak_mib: float


COST_MAX = {WITH_LOGINS: 0.03, OBSERVED: 0.02}
"""Additions to pybroker, and the share that each may cost of the messages per second and of the processor time."""

_COLUMNS = {
    "messages_per_second": "messages/s",
    "p50_ms": "send p50 ms",
    "p99_ms": "send p99 ms",
    "cpu_seconds_per_1000": "broker CPU s per 1,000",
    "client_cpu_seconds_per_1000": "client CPU s per 1,000",
    "peak_mib": "broker peak MiB",
}

Runs = Mapping[str, Sequence[Run]]
"""By broker, in the order they were made: run n of one broker was beside run n of the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One broker over another: of the medians, and the least and the greatest of runs made side by side."""

    median: float
    least: float
    greatest: float


def compared(names: Sequence[str]) -> tuple[str, str]:
    """Return the broker whose figures are divided, and the one whose figures they are divided by."""
    for other in (ACTIVEMQ, RABBITMQ):
        if other in names:
            return PYBROKER, other
    return names[1], names[0]


def ratio(runs: Runs, figure: Callable[[Run], float]) -> Ratio:
    """Compare one figure of both brokers. The ratio is infinite if the other's figure is too small for the clock."""
    one, other = compared([*runs])
    ours = [figure(run) for run in runs[one]]
    theirs = [figure(run) for run in runs[other]]
    pairs = [_divide(one, other) for one, other in zip(ours, theirs, strict=True)]
    return Ratio(
        median=_divide(statistics.median(ours), statistics.median(theirs)), least=min(pairs), greatest=max(pairs)
    )


def figures(row: Row, runs: Runs) -> list[TableRow]:
    """Return the medians of each broker, a line each."""
    return [{"row": row.key, "broker": name} | _medians(each) for name, each in runs.items()]


def comparison(row: Row, runs: Runs) -> TableRow:
    """Return one line of ratios with targets and the verdict."""
    speed = ratio(runs, lambda run: run.messages_per_second)
    cpu = ratio(runs, lambda run: run.cpu_seconds_per_1000)
    peak = ratio(runs, lambda run: run.peak_mib)
    has_targets = ACTIVEMQ in runs
    return {
        "row": row.key,
        "messages/s ratio": speed.median,
        "min..max": f"{speed.least:.2f}..{speed.greatest:.2f}",
        "target": row.target,
        "speed": _word(reached=row.reaches(speed.median)),
        "CPU ratio": cpu.median,
        f"CPU <= {CPU_RATIO_MAX}": _word(reached=cpu.median <= CPU_RATIO_MAX) if has_targets else "",
        "peak memory ratio": peak.median,
        f"memory <= {PEAK_RATIO_MAX}": _word(reached=peak.median <= PEAK_RATIO_MAX) if has_targets else "",
    }


def cost(row: Row, runs: Runs) -> TableRow:
    """Return one line of ratios with an addition to those without, and if either is worse by more than `COST_MAX`."""
    share = COST_MAX[compared([*runs])[0]]
    speed = ratio(runs, lambda run: run.messages_per_second)
    cpu = ratio(runs, lambda run: run.cpu_seconds_per_1000)
    return {
        "row": row.key,
        "messages/s ratio": speed.median,
        "min..max": f"{speed.least:.3f}..{speed.greatest:.3f}",
        f"speed >= {1 - share:g}": _word(reached=speed.median >= 1 - share),
        "CPU ratio": cpu.median,
        f"CPU <= {1 + share:g}": _word(reached=cpu.median <= 1 + share),
    }


def instructions(counts: Mapping[str, int]) -> TableRow:
    """Return the columns that compare the instructions for a message with an addition and without."""
    name, plain = compared([*counts])
    ratio, limit = counts[name] / counts[plain], 1 + COST_MAX[name]
    return {name: counts[name], "ratio": ratio, f"<= {limit:g}": _word(reached=ratio <= limit)}


def score(comparisons: Sequence[TableRow]) -> str:
    """Return how many targets are reached, in a sentence."""
    words = [
        cell for line in comparisons for cell in line.values() if cell in {_word(reached=True), _word(reached=False)}
    ]
    return f"{words.count(_word(reached=True))} of {len(words)} targets reached"


def _medians(runs: Sequence[Run]) -> dict[str, Cell]:
    each = [asdict(run) for run in runs]
    return {column: statistics.median(run[name] for run in each) for name, column in _COLUMNS.items()}


def _divide(one: float, other: float) -> float:
    return one / other if other else float("inf")


def _word(*, reached: bool) -> str:
    return "pass" if reached else "FAIL"
