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
"""Both sizes are measured so often, in turn, and the least times count: other work on the machine only adds to them."""
REPEATS_MIN: Final = 3
ENOUGH_SECONDS: Final = 5.0
"""After so many seconds a row is measured only `REPEATS_MIN` times."""


_OTHER_MEMORY: Final = bytearray(64 << 20)
"""More than a processor's caches hold."""


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
    small, large, longest = least(row.work, n, 1 if is_quick else REPEATS)
    return {
        "row": row.name,
        "N": n,
        "N: ms": small * 1000,
        "10 N: ms": large * 1000,
        "exponent": max(0.0, log10(large / small)),
        "longest turn: ms": longest * 1000,
    }


def least(work: Callable[[Bench, int], Turns], n: int, repeats: int) -> tuple[float, float, float]:
    """Return the least time for N and for 10 N, and the least of the longest turns with 10 N, in seconds.

    The sizes are measured in turn and equally often. One after the other, they would meet different states of a shared
    machine; and of more repetitions the least time is less.
    """
    small: list[float] = []
    large: list[float] = []
    turns: list[float] = []
    end = perf_counter() + ENOUGH_SECONDS
    while not small or (len(small) < repeats and (len(small) < REPEATS_MIN or perf_counter() < end)):
        small.append(timed(work(bench := Bench(), n), bench)[0])
        seconds, longest = timed(work(bench := Bench(), FACTOR * n), bench)
        large.append(seconds)
        turns.append(longest)
    return min(small), min(large), min(turns)


def timed(turns: Turns, bench: Bench) -> tuple[float, float]:
    """Run a row; return its time after the preparation, and the longest turn, in seconds.

    Times are those of the processor, without what else runs on the machine. The collector of garbage is off: a full
    collection takes as long as everything that the process holds. The processor's caches are emptied: what N prepares
    would still be in them, and what 10 N prepares would not.
    """
    next(turns)
    bench.run_deferred()
    gc.collect()
    gc.disable()
    _OTHER_MEMORY.count(1)
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
