"""How many messages make a page that is bounded by bytes."""

from collections.abc import Iterable


def page_count(sizes: Iterable[int], bytes_max: int) -> int:
    """Return how many of these sizes, from the first on, it takes to reach `bytes_max`; all if they do not reach it."""
    count = 0
    for size in sizes:
        count += 1
        bytes_max -= size
        if bytes_max <= 0:
            break
    return count
