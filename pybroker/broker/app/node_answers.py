"""Answers the requests of the management process about its member: see `domain.node_requests`.

Long answers are made in slices of `SLICE_SECONDS`, one in a turn of the event loop, and wait while the process does not
read. They have rows as the broker has them: to sort, filter and format them takes longer, and is left to the process.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from pybroker import __version__
from pybroker.broker.app.config import Config
from pybroker.broker.app.ha_answers import HaAnswers
from pybroker.broker.app.ha_state import HaState
from pybroker.broker.app.layout import layout_of
from pybroker.broker.app.management_logins import ManagementLogins
from pybroker.broker.app.network_answers import NetworkAnswers
from pybroker.broker.app.node import Node, Term
from pybroker.broker.app.operation_answers import OperationAnswers
from pybroker.broker.app.request_types import Arguments, Method, SendRows
from pybroker.broker.app.stores import MEMORY_STORE
from pybroker.broker.app.wiring import journal_counts
from pybroker.broker.core.advisory import consumer_id
from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.durable import Durable
from pybroker.broker.core.topic import TopicSubscription
from pybroker.broker.domain import audit
from pybroker.broker.domain.admin import ConnectionView
from pybroker.broker.domain.destination import Destination, DestinationType, is_advisory
from pybroker.broker.domain.node_requests import (
    ConnectionRow,
    ConsumerRow,
    DestinationRow,
    ProducerRow,
    RequestFailed,
    SubscriptionRow,
    kind_of,
)
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.role import Role
from pybroker.transports.connection import SocketConnection

SLICE_SECONDS: Final = 0.001

_CLOCK_MASK: Final = 7
"""The clock is read once for so many items and one more."""

ItemT = TypeVar("ItemT")

_log = logging.getLogger(__name__)


class NodeAnswers:
    """The answers of one member.

    Attributes:
        node: the present run of the member; None before the first.
        ha: the answers about the pair.
    """

    def __init__(self, config: Config, logins: ManagementLogins) -> None:
        """Create it without a node; `logins` decides who may ask."""
        self.node: Node | None = None
        self.ha = HaAnswers(config.name or socket.gethostname())
        self._config = config
        self._journal_directory = str(layout_of(config).journal) if config.is_in_directory else ""
        self._logins = logins
        self._methods: Final[Mapping[str, Method]] = {
            "login": self._login,
            "denied": self._denied,
            "overview": self._overview,
            "destinations": self._destinations,
            "connections": self._connections,
            "consumers": self._consumers,
            "subscriptions": self._subscriptions,
            **OperationAnswers(self._serving).methods,
            **self.ha.methods,
            **NetworkAnswers(self._serving).methods,
            "producers": self._producers,
        }

    def manage(self, node: Node, ha_state: Callable[[], HaState]) -> None:
        """Answer about a run of the member from now on; `ha_state` returns the state of the pair."""
        self.node = self.ha.node = node
        self.ha.read = ha_state

    async def answer(self, method: str, arguments: Arguments, send: SendRows) -> object:
        """Return the result of a request, after its rows were sent.

        Raises:
            RequestFailed: it is not carried out.
        """
        found = self._methods.get(method)
        if found is None:
            raise RequestFailed(HTTPStatus.NOT_IMPLEMENTED, f"this member has no method {method!r}")
        return await found(arguments, send)

    def _serving(self) -> Term:
        """Return the present term.

        Raises:
            RequestFailed: the member is not master.
        """
        term = None if self.node is None else self.node.serving()
        if term is None:
            role = "starting" if self.node is None else self.node.role.lower()
            text = f"this member is not the master: it is {role}; /api/v1/ha says which one is"
            raise RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, text)
        return term

    # ------------------------------------------------------------ users

    async def _login(self, arguments: Arguments, send: SendRows) -> object:
        user, role = await self._logins.verify(arguments["user"], arguments["password"], arguments["address"])
        return {"user": user, "role": role.name}

    async def _denied(self, arguments: Arguments, send: SendRows) -> object:
        audit.denied(arguments["user"], arguments["address"], arguments["act"], arguments["object"])
        return None

    # ------------------------------------------------------------ state

    async def _overview(self, arguments: Arguments, send: SendRows) -> object:
        config, node = self._config, self.node
        found = {
            "version": __version__,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "broker_name": config.broker_name,
            "store": config.store if config.is_in_directory else "",
            "journal_directory": self._journal_directory,
            "is_persistent": config.sync != "never" and config.store != MEMORY_STORE,
            "role": (Role.STANDBY if node is None else node.role).value,
            "since_ms": 0 if node is None else node.since_ms,
            "audit": dict(audit.COUNTS),
            "disk_reserve": config.disk_reserve if config.is_in_directory else None,
        }
        term, totals = (None, None) if node is None else (node.serving(), node.totals())
        if node is None or term is None or totals is None:
            return found
        return found | {
            "broker_id": term.broker.id,
            "listeners": list(term.listeners),
            "epoch": term.store.epoch,
            "has_scheduler": term.jobs is not None,
            "totals": asdict(totals),
            "removed": asdict(term.broker.admin.removed()),
            "usage": dict(node.system_usage(term).statistics()),
            "journal": journal_counts(term.store),
        }

    async def _destinations(self, arguments: Arguments, send: SendRows) -> object:
        term = self._serving()
        admin, is_wanted = term.broker.admin, _filter(arguments)

        def row(destination: Destination) -> DestinationRow | None:
            state = admin.state(destination) if is_wanted(destination) else None
            return None if state is None else DestinationRow.of(state)

        await self._in_slices(term, list(admin.destinations()), row, send)
        return None

    async def _connections(self, arguments: Arguments, send: SendRows) -> object:
        term = self._serving()
        listeners: dict[str, str] = {}

        def note(connection: SocketConnection) -> None:
            listeners[connection.peer] = term.server.listener_of(connection)

        await self._in_slices(term, list(term.server.connections), note, send)
        row = partial(_connection_row, listeners=listeners)
        await self._in_slices(term, list(term.broker.admin.connections()), row, send)
        return None

    async def _consumers(self, arguments: Arguments, send: SendRows) -> object:
        term = self._serving()
        connections = list(term.broker.admin.connections())
        consumers = (consumer for connection in connections for consumer in list(connection.consumers))
        await self._in_slices(term, consumers, _consumer_row, send)
        return None

    async def _subscriptions(self, arguments: Arguments, send: SendRows) -> object:
        term = self._serving()
        await self._in_slices(term, term.broker.admin.durable_subscriptions(), SubscriptionRow.of, send)
        return None

    async def _producers(self, arguments: Arguments, send: SendRows) -> object:
        term = self._serving()
        for connection in list(term.broker.admin.connections()):
            await self._in_slices(term, list(connection.producers.items()), partial(_producer_row, connection), send)
        return None

    async def _in_slices(
        self, term: Term, items: Iterable[ItemT], row: Callable[[ItemT], tuple[Any, ...] | None], send: SendRows
    ) -> None:
        """Send the rows of items; those without one are left out."""
        rows: list[Any] = []
        began_at = time.monotonic()
        for index, item in enumerate(items):
            if (found := row(item)) is not None:
                rows.append(found)
            if not index & _CLOCK_MASK and time.monotonic() - began_at > SLICE_SECONDS:
                await send(rows)
                await asyncio.sleep(0)
                if self._serving() is not term:
                    raise RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, "the master has changed meanwhile")
                rows, began_at = [], time.monotonic()
        if rows:
            await send(rows)


def _filter(arguments: Arguments) -> Callable[[Destination], bool]:
    """Return what decides which destinations are wanted: one alone, or all but advisory topics."""
    name = arguments.get("name")
    if name is None:
        return lambda destination: not is_advisory(destination)
    return Destination(DestinationType[arguments["type"]], name).__eq__


def _connection_row(connection: ConnectionView, listeners: Mapping[str, str]) -> ConnectionRow | None:
    if not isinstance(connection, BrokerConnection):
        return None
    return ConnectionRow(
        connection.connection_id,
        connection.client_id,
        connection.user.name,
        connection.peer,
        listeners.get(connection.peer, ""),
        len(connection.consumers),
        len(connection.producers),
        len(connection.transactions),
        connection.is_blocked,
    )


def _consumer_row(consumer: object) -> ConsumerRow | None:
    if not isinstance(consumer, BrokerConsumer):
        return None
    request, connection = consumer.request, consumer.connection
    own_id = consumer_id(consumer)
    source = consumer.sources[0] if consumer.sources else None
    waiting, discarded = 0, 0
    if isinstance(source, TopicSubscription):
        waiting, discarded = source.waiting_count, source.dropped
    elif isinstance(source, Durable):
        waiting = source.pending.count
    return ConsumerRow(
        str(own_id),
        connection.connection_id,
        connection.client_id,
        connection.user.name,
        kind_of(request.destination),
        ",".join([each.name for each in request.destinations]),
        request.selector or "",
        request.subscription_name or "",
        consumer.prefetch,
        consumer.offered_count,
        consumer.acknowledged_count,
        consumer.outstanding_count,
        request.priority,
        request.exclusive,
        request.retroactive,
        request.no_local,
        request.browser,
        request.pending_limit or 0,
        request.destination.is_temporary,
        own_id.session_id,
        own_id.value,
        waiting,
        discarded,
        request.network is not None,
    )


def _producer_row(connection: ConnectionView, item: tuple[ProducerId, Destination | None]) -> ProducerRow | None:
    if not isinstance(connection, BrokerConnection):
        return None
    producer_id, destination = item
    return ProducerRow(
        str(producer_id),
        connection.connection_id,
        connection.client_id,
        connection.user.name,
        "" if destination is None else kind_of(destination),
        "" if destination is None else destination.name,
        destination is not None and destination.is_temporary,
        producer_id.session_id,
    )
