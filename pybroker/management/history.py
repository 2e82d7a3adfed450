"""The last hour of the broker's totals, and the present rates of each destination: for pictures of what goes on.

The node is asked every `INTERVAL_SECONDS`, or more seldom where there are so many destinations that this would take
more than a fiftieth of the time. A rate is that between the last two answers.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiohttp import web

from pybroker.broker.domain.node_requests import DestinationRow, RequestFailed
from pybroker.management.rest import API, Rates
from pybroker.management.routes import Route
from pybroker.management.site import json_answer
from pybroker.management.snapshots import Snapshots

INTERVAL_SECONDS: Final = 10.0
POINTS_MAX: Final = 360
_SHARE_MAX: Final = 0.02

_log = logging.getLogger(__name__)


class Point(NamedTuple):
    """The totals at one moment; counts are those since the member became master.

    Attributes:
        at_ms: the time, in milliseconds since the epoch.
        enqueued: messages that were sent.
        dequeued: messages that have left their queues and topics.
        size: messages that are not acknowledged.
        connections: open connections.
        memory_bytes: memory of messages.
        loop_lag_seconds: the longest turn of the event loop in the last minute.
    """

    at_ms: int
    enqueued: int
    dequeued: int
    size: int
    connections: int
    memory_bytes: int
    loop_lag_seconds: float


_Key = tuple[str, str]


class TotalsHistory:
    """The last hour. It is empty on a standby."""

    def __init__(self, snapshots: Snapshots) -> None:
        """Begin with nothing."""
        self.points: deque[Point] = deque(maxlen=POINTS_MAX)
        self._snapshots = snapshots
        self._counts: tuple[float, Mapping[_Key, tuple[int, int]]] | None = None
        self._rates: Mapping[_Key, Rates] = {}

    def rates_of(self, row: DestinationRow) -> Rates | None:
        """Return the rates of a queue or topic; None if they are not known yet."""
        return self._rates.get((row.kind, row.name))

    async def watch(self) -> None:
        """Take a point at each interval, until cancelled."""
        while True:
            began_at = time.monotonic()
            try:
                await self._take()
            except RequestFailed:  # it is no master, or hangs: both are shown elsewhere
                self._forget()
            except Exception:
                _log.exception("the history of the broker has no point for this moment")
            await asyncio.sleep(max(INTERVAL_SECONDS, (time.monotonic() - began_at) / _SHARE_MAX))

    async def _take(self) -> None:
        overview = await self._snapshots.overview.get()
        if "totals" not in overview:
            self._forget()
            return
        rows = await self._snapshots.destinations.get()
        totals, removed = overview["totals"], overview["removed"]
        self.points.append(
            Point(
                round(time.time() * 1000),
                removed["enqueued"] + sum(row.enqueued for row in rows),
                removed["dequeued"] + sum(row.dequeued for row in rows),
                sum(row.size for row in rows),
                totals["connections"],
                totals["memory_bytes"],
                totals["loop_lag_seconds"],
            )
        )
        self._compare(rows)

    def _compare(self, rows: Sequence[DestinationRow]) -> None:
        now = time.monotonic()
        counts = {(row.kind, row.name): (row.enqueued, row.dequeued) for row in rows}
        if self._counts is not None:
            seconds = now - self._counts[0]
            before = self._counts[1]
            self._rates = {
                key: Rates(max(0, enqueued - last[0]) / seconds, max(0, dequeued - last[1]) / seconds)
                for key, (enqueued, dequeued) in counts.items()
                if (last := before.get(key)) is not None
            }
        self._counts = now, counts

    def _forget(self) -> None:
        """Begin again: another master counts from zero."""
        self.points.clear()
        self._counts, self._rates = None, {}


def routes(history: TotalsHistory) -> Sequence[Route]:
    """Return the route of the history."""

    async def answer(request: web.Request) -> web.StreamResponse:
        points: list[dict[str, Any]] = [point._asdict() for point in history.points]
        return json_answer({"interval_seconds": INTERVAL_SECONDS, "points": points})

    summary = "The totals of the last hour, oldest first. Counts are totals: a rate is the difference of two."
    return [Route(method="GET", path=f"{API}/history", handler=answer, summary=summary, answer={"type": "object"})]
