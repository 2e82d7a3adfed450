"""The benchmark of growth: rows whose work is proportional to N have exponents near 1, and every row ends."""

import pytest

from benchmarks.growth import ROWS
from benchmarks.in_process import Bench
from benchmarks.scale import FACTOR, least, timed

_BY_NAME = {row.name: row for row in ROWS}

EXPONENT_MAX = 1.5
"""Between proportional work, with other work on the machine, and the square."""

HELD = ("queues", "connections", "priorities", "groups", "commits", "composites")


@pytest.mark.parametrize("name", HELD)
def test_work_of_a_row_does_not_grow_with_the_square(name: str) -> None:
    row = _BY_NAME[name]
    small, large, _ = least(row.work, row.n // 4, 3)
    assert large < small * FACTOR**EXPONENT_MAX


def test_row_without_deferred_work_counts_its_longest_turn() -> None:
    bench = Bench()
    seconds, longest = timed(_BY_NAME["deletion"].work(bench, 100), bench)
    assert 0 < longest <= seconds
