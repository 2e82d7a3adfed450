"""The state of the broker, as the node told it last, however many ask.

An answer that is less than `FRESH_SECONDS` old is good. An older one, of less than `STALE_SECONDS`, is returned at once
too, and asked for again behind that, so that pages which are read every few seconds never wait. For all else the node
is asked, once for all who wait.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from pybroker.broker.domain.network.rows import (
    BridgeRow,
    DemandRow,
    IncomingBridgeRow,
    NetworkConnectorRow,
    StrandedRow,
)
from pybroker.broker.domain.node_requests import (
    BranchRow,
    ConnectionRow,
    ConsumerRow,
    DestinationRow,
    ProducerRow,
    SubscriptionRow,
)
from pybroker.management.link import NodeLink

FRESH_SECONDS: Final = 1.0
STALE_SECONDS: Final = 5.0

HA_SECONDS: Final = 1.0
"""The age up to which the state of the pair is good: it is read from the store."""

OVERVIEW_SECONDS: Final = 0.25
"""The age up to which the overview is good: it has the role, and is short."""

BRANCHES_SECONDS: Final = 0.0
"""The age up to which transactions in doubt are good: who reads them decides about them."""

ValueT = TypeVar("ValueT")


class Shared(Generic[ValueT]):
    """A value that is computed once for all who ask for it at a time."""

    def __init__(
        self,
        compute: Callable[[], Awaitable[ValueT]],
        fresh_seconds: float = FRESH_SECONDS,
        stale_seconds: float = STALE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a value, which `compute` returns."""
        self._compute = compute
        self._fresh_seconds = fresh_seconds
        self._stale_seconds = stale_seconds
        self._monotonic = monotonic
        self._task: asyncio.Task[ValueT] | None = None
        self._last: tuple[float, ValueT] | None = None

    async def get(self) -> ValueT:
        """Return the value; an error is not kept.

        Raises:
            Exception: raised by the computation.
        """
        age = math.inf if self._last is None else self._monotonic() - self._last[0]
        if self._last is not None and age < self._fresh_seconds:
            return self._last[1]
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._done)
        if self._last is not None and age < self._stale_seconds:
            return self._last[1]
        return await asyncio.shield(self._task)

    def forget(self) -> None:
        """Compute the value again for who asks from now on: it has been changed."""
        self._last, self._task = None, None

    async def _run(self) -> ValueT:
        value = await self._compute()
        if self._task is asyncio.current_task():  # else it may be older than what `forget` was called for
            self._last = self._monotonic(), value
        return value

    def _done(self, task: "asyncio.Task[ValueT]") -> None:
        if self._task is not task:
            if not task.cancelled():
                task.exception()  # who has waited for it has got it
            return
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            self._last = None  # a failed request discards the cached value


class Snapshots:
    """The state of the broker.

    Attributes:
        overview: the member, and the totals of its broker; see `app.node_answers`.
        destinations: all queues and topics but advisory topics.
        connections: the open connections.
        consumers: the consumers.
        subscriptions: the durable subscriptions, with or without a consumer.
        ha: the state of the pair; see `app.ha_state`.
        producers: the producers.
        branches: the XA transactions in doubt.
        network_connectors: the network connectors.
        bridges: their bridges.
        incoming_bridges: the bridges that other brokers have opened.
        demand: the demand subscriptions of these.
        stranded: the queues with messages that have come over a bridge, and without a consumer of this broker.
    """

    def __init__(self, link: NodeLink) -> None:
        self._link = link
        self.overview: Shared[Mapping[str, Any]] = Shared(self._overview, OVERVIEW_SECONDS, OVERVIEW_SECONDS)
        self.destinations: Shared[Sequence[DestinationRow]] = Shared(self._destinations)
        self.connections: Shared[Sequence[ConnectionRow]] = Shared(self._connections)
        self.consumers: Shared[Sequence[ConsumerRow]] = Shared(self._consumers)
        self.ha: Shared[Mapping[str, Any]] = Shared(self._ha, HA_SECONDS, HA_SECONDS)
        self.subscriptions: Shared[Sequence[SubscriptionRow]] = Shared(self._subscriptions)
        self.producers: Shared[Sequence[ProducerRow]] = Shared(self._producers)
        self.branches: Shared[Sequence[BranchRow]] = Shared(self._branches, BRANCHES_SECONDS, BRANCHES_SECONDS)
        self.network_connectors: Shared[Sequence[NetworkConnectorRow]] = Shared(self._network_connectors)
        self.bridges: Shared[Sequence[BridgeRow]] = Shared(self._bridges)
        self.incoming_bridges: Shared[Sequence[IncomingBridgeRow]] = Shared(self._incoming_bridges)
        self.demand: Shared[Sequence[DemandRow]] = Shared(self._demand)
        self.stranded: Shared[Sequence[StrandedRow]] = Shared(self._stranded)

    def forget(self) -> None:
        """Ask the node again: something was changed."""
        shared: tuple[Shared[Any], ...] = (
            self.overview,
            self.destinations,
            self.connections,
            self.consumers,
            self.producers,
            self.subscriptions,
            self.branches,
            self.network_connectors,
            self.bridges,
            self.incoming_bridges,
            self.demand,
        )
        for each in shared:
            each.forget()

    async def destination(self, destination_type: str, name: str) -> DestinationRow | None:
        """Return one queue or topic as it is now; None if it does not exist."""
        answer = await self._link.ask("destinations", type=destination_type, name=name)
        return DestinationRow(*answer.rows[0]) if answer.rows else None

    async def _overview(self) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = (await self._link.ask("overview")).result
        return answer

    async def _ha(self) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = (await self._link.ask("ha")).result
        return answer

    async def _destinations(self) -> Sequence[DestinationRow]:
        return [DestinationRow(*row) for row in (await self._link.ask("destinations")).rows]

    async def _connections(self) -> Sequence[ConnectionRow]:
        return [ConnectionRow(*row) for row in (await self._link.ask("connections")).rows]

    async def _consumers(self) -> Sequence[ConsumerRow]:
        return [ConsumerRow(*row) for row in (await self._link.ask("consumers")).rows]

    async def _subscriptions(self) -> Sequence[SubscriptionRow]:
        return [SubscriptionRow(*row) for row in (await self._link.ask("subscriptions")).rows]

    async def _producers(self) -> Sequence[ProducerRow]:
        return [ProducerRow(*row) for row in (await self._link.ask("producers")).rows]

    async def _branches(self) -> Sequence[BranchRow]:
        return [BranchRow(*row) for row in (await self._link.ask("branches")).rows]

    async def _network_connectors(self) -> Sequence[NetworkConnectorRow]:
        return [NetworkConnectorRow(*row) for row in (await self._link.ask("network_connectors")).rows]

    async def _bridges(self) -> Sequence[BridgeRow]:
        return [BridgeRow(*row) for row in (await self._link.ask("bridges")).rows]

    async def _incoming_bridges(self) -> Sequence[IncomingBridgeRow]:
        return [IncomingBridgeRow(*row) for row in (await self._link.ask("incoming_bridges")).rows]

    async def _demand(self) -> Sequence[DemandRow]:
        return [DemandRow(*row) for row in (await self._link.ask("demand")).rows]

    async def _stranded(self) -> Sequence[StrandedRow]:
        return [StrandedRow(*row) for row in (await self._link.ask("stranded")).rows]
