"""Counts the deliveries of a consumer of several topics for each topic.

Deliveries of topics are only counted, not kept, and an acknowledgement is for a number of the oldest ones (see
`counting_consumer`). Which topics these were of is known from the order of the deliveries, kept as runs: a topic, and
the number of deliveries of it, one after the other. Of more than `RUNS_MAX` runs the oldest counts as acknowledged, so
that a wide window takes little memory.
"""

from collections import deque
from typing import Final

from pybroker.broker.core.durable import CoveredTopic

RUNS_MAX: Final = 1000


class _TopicRun:
    """Deliveries of one topic, one after the other."""

    __slots__ = ("count", "topic")

    def __init__(self, topic: CoveredTopic) -> None:
        self.topic = topic
        self.count = 1


class TopicDeliveries:
    """The outstanding deliveries of one consumer, which are counted in their topics."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: deque[_TopicRun] = deque()

    def add(self, topic: CoveredTopic) -> None:
        """Count a delivery."""
        topic.dispatched += 1
        topic.in_flight += 1
        runs = self._runs
        if runs and runs[-1].topic is topic:
            runs[-1].count += 1
            return
        runs.append(_TopicRun(topic))
        if len(runs) > RUNS_MAX:
            self.settle(runs[0].count)

    def settle(self, count: int) -> None:
        """Count so many of the oldest deliveries as acknowledged."""
        runs = self._runs
        while count > 0 and runs:
            run = runs[0]
            part = min(run.count, count)
            run.topic.dequeued += part
            run.topic.in_flight -= part
            run.count -= part
            count -= part
            if not run.count:
                runs.popleft()

    def end(self) -> None:
        """Count no delivery as outstanding any more: the consumer has closed."""
        for run in self._runs:
            run.topic.in_flight -= run.count
        self._runs.clear()
