"""Counters of a journal's writer since it was started, for metrics: bytes written, and durations of syncs.

The writer's thread counts, once for each batch; the event loop reads. A number that is read in between belongs to the
batch before or after, which is the same to a metric.
"""

from bisect import bisect_left
from typing import Final

SYNC_BOUNDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""The upper bounds of the classes of sync times, in seconds: from a disk with a cache to one that hangs."""


class JournalActivity:
    """Counts of one writer.

    Attributes:
        written_bytes: the length of the batches that were written.
        sync_counts: the number of syncs in each class of `SYNC_BOUNDS`, and at the end that of longer ones.
        sync_seconds: the sum of their times.
    """

    __slots__ = ("sync_counts", "sync_seconds", "written_bytes")

    def __init__(self) -> None:
        self.written_bytes = 0
        self.sync_counts = [0] * (len(SYNC_BOUNDS) + 1)
        self.sync_seconds = 0.0

    def add_sync(self, seconds: float) -> None:
        """Count a sync that took so long."""
        self.sync_counts[bisect_left(SYNC_BOUNDS, seconds)] += 1
        self.sync_seconds += seconds
