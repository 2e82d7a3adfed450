"""How the broker's work grows with the number of what clients make: the exponent between N and 10 N of each kind.

Each row does work that is proportional to N in the best case, so its exponent, log10 of the time for 10 N over the time
for N, is 1.0 at best; 2.0 is work that grows with the square. The core runs in process on a store in memory, without
sockets; rows of `openwire` hold a conversation with a session over a link that drops its output.

The longest turn of the event loop, or piece of deferred work, is the longest time for which other clients would have
had to wait. `growth` has the rows.

Run from the root of the checkout: `python -m benchmarks.scale`, or `python -m benchmarks.scale --row queues`.
"""

import gc
from collections.abc import Callable
from math import log10
from time import perf_counter, process_time
from typing import Final

from benchmarks.growth import ROWS, Growth, Turns
from benchmarks.in_process import Bench
from benchmarks.report import Report, Row, parser

FACTOR: Final = 10
REPEATS: Final = 5
"""Each size is measured so often, and the least time counts: other work on the machine only adds to it."""
ENOUGH_SECONDS: Final = 2.0
"""Repetitions of one size end after so many seconds."""


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--row", action="append", choices=[row.name for row in ROWS], help="measure this row only")
    parsed = options.parse_args()
    report = Report(parsed)
    rows = [row for row in ROWS if parsed.row is None or row.name in parsed.row]
    figures: list[Row] = []
    for row in rows:
        figures.append(measured(row, is_quick=parsed.quick))
        print(f"{row.name}: {figures[-1]['exponent']:.2f}", flush=True)
    report.table("time of N and 10 N", figures)
    report.finish()


def measured(row: Growth, *, is_quick: bool) -> Row:
    """Return a row's times in milliseconds, its exponent, and the longest turn with 10 N."""
    n = max(4, row.n // 50) if is_quick else row.n
    repeats = 1 if is_quick else REPEATS
    small, _ = least(row.work, n, repeats)
    large, longest = least(row.work, FACTOR * n, repeats)
    return {
        "row": row.name,
        "N": n,
        "N: ms": small * 1000,
        "10 N: ms": large * 1000,
        "exponent": max(0.0, log10(large / small)),
        "longest turn: ms": longest * 1000,
    }


def least(work: Callable[[Bench, int], Turns], n: int, repeats: int) -> tuple[float, float]:
    """Return the least time of several runs, and the least of their longest turns, in seconds."""
    times: list[float] = []
    turns: list[float] = []
    end = perf_counter() + ENOUGH_SECONDS
    while not times or (len(times) < repeats and perf_counter() < end):
        seconds, longest = timed(work(bench := Bench(), n), bench)
        times.append(seconds)
        turns.append(longest)
    return min(times), min(turns)


def timed(turns: Turns, bench: Bench) -> tuple[float, float]:
    """Run a row; return its time after the preparation, and the longest turn, in seconds.

    Times are those of the processor, without what else runs on the machine. The collector of garbage is off: a full
    collection takes as long as everything that the process holds.
    """
    next(turns)
    bench.run_deferred()
    gc.collect()
    gc.disable()
    try:
        longest, begin = 0.0, process_time()
        last = begin
        for _ in turns:
            now = process_time()
            longest = max(longest, now - last)
            if bench.has_deferred:
                longest = max(longest, bench.run_deferred())
                now = process_time()
            last = now
        return max(last - begin, 1e-9), longest
    finally:
        gc.enable()


if __name__ == "__main__":
    main()
