"""Answers the requests of the management process about networks of brokers, and stops and starts connectors.

A connector that an operator has stopped stays so until it is started, or another member becomes master.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

from pybroker.broker.app.node import Term
from pybroker.broker.app.operation_answers import outcome
from pybroker.broker.app.request_types import Arguments, Method, SendRows
from pybroker.broker.domain import audit
from pybroker.broker.domain.admin import DestinationState
from pybroker.broker.domain.destination import Destination, matches
from pybroker.broker.domain.network.rows import NetworkConnectorRow, StrandedRow
from pybroker.broker.domain.node_requests import RequestFailed
from pybroker.broker.domain.operations import FROM_THE_BEGINNING, MessagePage, PageLimits
from pybroker.transports.network.connector import BridgeLife

STRANDED_EXAMINED: Final = 100
"""The messages of a queue that are looked at: they may have to be read from the store."""

STRANDED_QUEUES_MAX: Final = 100
"""The queues that are looked at, the largest ones first."""

_SLICE: Final = 100
"""The rows, or destinations, of one turn of the event loop, which take about a millisecond."""


class NetworkAnswers:
    """The answers of one member about its network connectors."""

    def __init__(self, serving: Callable[[], Term]) -> None:
        """Create it; `serving` returns the present term, or raises `RequestFailed`."""
        self._serving = serving
        self.methods: Final[dict[str, Method]] = {
            "network_connectors": self._connectors,
            "bridges": self._bridges,
            "incoming_bridges": self._incoming,
            "demand": self._demand,
            "stranded": self._stranded,
            "stop_connector": self._stop,
            "start_connector": self._start,
        }

    async def _connectors(self, arguments: Arguments, send: SendRows) -> object:
        await send(list(connector_rows(self._serving().bridges)))
        return None

    async def _bridges(self, arguments: Arguments, send: SendRows) -> object:
        await send([each.row for each in self._serving().bridges])
        return None

    async def _incoming(self, arguments: Arguments, send: SendRows) -> object:
        found = self._serving().sessions.bridge_rows()
        for start in range(0, len(found), _SLICE):
            await send(found[start : start + _SLICE])
        return None

    async def _demand(self, arguments: Arguments, send: SendRows) -> object:
        term = self._serving()
        found = [row for each in term.bridges for row in each.demand()]
        for session in term.sessions.bridges.values():
            if (bridge := session.bridge) is not None:
                found += bridge.demand
        for start in range(0, len(found), _SLICE):
            await send(found[start : start + _SLICE])
            await asyncio.sleep(0)
        return None

    async def _stranded(self, arguments: Arguments, send: SendRows) -> object:
        term = self._serving()
        limits = PageLimits(count=STRANDED_EXAMINED)
        for state in await _without_consumers(term):
            name = state.destination
            browse = partial(term.broker.operations.browse, name, FROM_THE_BEGINNING, limits, None)
            page = await outcome(browse, send)
            if not isinstance(page, MessagePage):
                raise page
            count = sum(each.message.bridge is not None for each in page.messages)
            if count:
                await send([StrandedRow(name.name, state.counters.size, count, len(page.messages))])
        return None

    async def _stop(self, arguments: Arguments, send: SendRows) -> object:
        return self._change(arguments, BridgeLife.stop, "stopped", is_started=False)

    async def _start(self, arguments: Arguments, send: SendRows) -> object:
        return self._change(arguments, BridgeLife.start, "started", is_started=True)

    def _change(
        self, arguments: Arguments, act: Callable[[BridgeLife], None], done: str, *, is_started: bool
    ) -> object:
        """Stop or start the bridges of a connector; one that is so already stays as it is."""
        name = arguments["connector"]
        bridges = [each for each in self._serving().bridges if each.connector.name == name]
        if not bridges:
            raise RequestFailed(HTTPStatus.NOT_FOUND, f"there is no network connector {name!r}")
        changed = [each for each in bridges if each.is_started is not is_started]
        for each in changed:
            act(each)
        if changed:
            audit.operated(arguments["user"], arguments["address"], done, f"network connector {name}")
        return {"changed": bool(changed)}


def connector_rows(bridges: Sequence[BridgeLife]) -> Iterator[NetworkConnectorRow]:
    """Yield a row for each connector of these bridges."""
    for name in dict.fromkeys(each.connector.name for each in bridges):
        own = [each for each in bridges if each.connector.name == name]
        is_started = any(each.is_started for each in own)
        yield NetworkConnectorRow.of(own[0].connector, [each.row for each in own], is_started=is_started)


async def _without_consumers(term: Term) -> Sequence[DestinationState]:
    """Return the queues that have messages and no consumer of this broker, the largest first."""
    admin = term.broker.admin
    names, patterns = _consumed(term)
    found: list[DestinationState] = []
    for number, each in enumerate(list(admin.destinations())):
        if not number % _SLICE:
            await asyncio.sleep(0)
        if (
            not each.is_queue
            or each.is_temporary
            or each.name in names
            or any(matches(one, each.name) for one in patterns)
        ):
            continue
        state = admin.state(each)
        if state is not None and state.counters.size and not state.is_dead_letter_queue:
            found.append(state)
    return sorted(found, key=lambda state: -state.counters.size)[:STRANDED_QUEUES_MAX]


def _consumed(term: Term) -> tuple[set[str], set[str]]:
    """Return the names and the patterns of queues that have a consumer which is no bridge's, and no browser."""
    wanted: set[Destination] = set()
    for connection in term.broker.admin.connections():
        for consumer in connection.consumers:
            if consumer.request.network is None and not consumer.request.browser:
                wanted.update(each for each in consumer.request.destinations if each.is_queue)
    patterns = {each.name for each in wanted if each.is_pattern}
    return {each.name for each in wanted} - patterns, patterns
