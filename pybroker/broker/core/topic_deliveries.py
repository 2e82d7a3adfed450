"""Counts the deliveries of a consumer of several topics by topic.

Deliveries of topics are only counted, not kept, and an acknowledgement is for a number of the oldest ones (see
`counting_consumer`). Which topics these were of is known from the order of the deliveries, kept as runs: a topic, and
the number of deliveries of it, one after the other. Runs are dropped once they are acknowledged. Of more than
`RUNS_MAX` the oldest counts as acknowledged, so that a wide window takes little memory.
"""

from collections import Counter, deque
from typing import Final

from pybroker.broker.domain.destination import Destination

RUNS_MAX: Final = 1000


class _Run:
    """Deliveries of one topic, one after the other."""

    __slots__ = ("count", "topic")

    def __init__(self, topic: Destination) -> None:
        self.topic: Destination | None = topic  # None once it is deleted
        self.count = 1


class TopicDeliveries:
    """The deliveries of one consumer, by topic.

    Attributes:
        dispatched: the number of deliveries of each topic.
        dequeued: those of them that are acknowledged, up to the last call of `settle`.
        dropped: the number of messages of each topic that were dropped, because the consumer is slow.
    """

    __slots__ = ("_runs", "_runs_count", "dequeued", "dispatched", "dropped")

    def __init__(self) -> None:
        self.dispatched: Counter[Destination] = Counter()
        self.dequeued: Counter[Destination] = Counter()
        self.dropped: Counter[Destination] = Counter()
        self._runs: deque[_Run] = deque()
        self._runs_count = 0
        """The number of deliveries of all runs."""

    def add(self, topic: Destination, in_flight: int) -> None:
        """Count a delivery; so many are outstanding with it."""
        self.dispatched[topic] += 1
        self._runs_count += 1
        runs = self._runs
        if runs and runs[-1].topic == topic:
            runs[-1].count += 1
            return
        runs.append(_Run(topic))
        if len(runs) > RUNS_MAX:
            self.settle(in_flight)
            if len(runs) > RUNS_MAX:
                self.settle(self._runs_count - runs[0].count)

    def settle(self, in_flight: int) -> None:
        """Count those as acknowledged that are not among the newest, of which so many are outstanding."""
        runs, excess = self._runs, self._runs_count - in_flight
        while excess > 0:
            run = runs[0]
            count = min(run.count, excess)
            if run.topic is not None:
                self.dequeued[run.topic] += count
            self._runs_count -= count
            excess -= count
            run.count -= count
            if not run.count:
                runs.popleft()

    def forget(self, topic: Destination) -> None:
        """Forget a topic that is deleted; what is outstanding of it keeps its place among the others."""
        for run in self._runs:
            if run.topic == topic:
                run.topic = None
        for counts in (self.dispatched, self.dequeued, self.dropped):
            counts.pop(topic, None)
