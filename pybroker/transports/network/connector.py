"""The life of a network connector: it dials, waits after a failure, and dials again, until it is stopped.

```text
        dialled, BrokerInfo came          lost, refused, silent
DIALLING ------------------------> UP ------------------------> WAITING ----+
    ^                                                              | delay  |
    +--------------------------------------------------------------+        | too many failures, or itself
                                                                            v
                                                                          ENDED
```

A delay that has grown ends early when the remote broker opens a bridge to this one, as that shows that it serves: in a
network whose brokers dial each other, one that comes back is found at once.

Each address of the connector's URI has a bridge of its own. A bridge keeps nothing from one connection to the next.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final

from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.rows import STOPPED, UP, BridgeRow, DemandRow
from pybroker.broker.domain.ports import BrokerPort
from pybroker.broker.domain.security import (
    NETWORK_CONNECTOR,
    WITHOUT_LOGINS,
    Authenticator,
    Credentials,
    NotAuthenticated,
    User,
)
from pybroker.transports.connection import Registry, ReplaceableLink, SocketConnection
from pybroker.transports.frame_memory import FrameMemory
from pybroker.transports.handshakes import Handshakes
from pybroker.transports.network.backoff import BackOff
from pybroker.transports.network.bridge import BridgeEnd, BridgeSession, BridgeSettings
from pybroker.transports.network.discovery import BridgeTarget, RemoteAddress, parse
from pybroker.transports.network.outgoing import NotConnected, connect
from pybroker.transports.network.remote_text import one_line
from pybroker.transports.output_memory import OutputMemory
from pybroker.transports.session import Session
from pybroker.transports.turn import Turn
from pybroker.transports.work_thread import WorkThread

_log = logging.getLogger(__name__)

_LOCAL_ADDRESS: Final = "127.0.0.1"
"""The address of a bridge's login at its own broker, for the audit log."""

_FINAL: Final = frozenset((BridgeEnd.STOPPED, BridgeEnd.ITSELF))


class BridgeState(Enum):
    """The state of one bridge."""

    DIALLING = "connecting"
    UP = UP
    WAITING = "waiting to connect again"
    ENDED = "ended"
    STOPPED = STOPPED


class _Outgoing:
    """The registry of a bridge's connections: the server's memory limits hold for them, its limits to clients do not.

    Attributes:
        connections: those that have not ended; besides the present one they only send their last bytes.
    """

    def __init__(self, server: Registry) -> None:
        self._server = server
        self.connections: set[SocketConnection] = set()

    def admit(self, connection: SocketConnection) -> bool:
        """Add a connection: this broker has opened it."""
        self.connections.add(connection)
        return True

    def forget(self, connection: SocketConnection) -> None:
        """Remove a connection; the bridge learns of its end from its session."""
        self.connections.discard(connection)

    @property
    def frames(self) -> FrameMemory:
        """The server's."""
        return self._server.frames

    @property
    def unread(self) -> OutputMemory:
        """The server's."""
        return self._server.unread

    @property
    def turn(self) -> Turn:
        """The server's."""
        return self._server.turn

    @property
    def work_thread(self) -> WorkThread:
        """The server's."""
        return self._server.work_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeHost:
    """The objects that all bridges of a broker share.

    Attributes:
        broker: the broker.
        registry: the server, whose loop and memory are used.
        handshakes: the server's.
        authenticator: decides who a bridge with a user name is at this broker.
    """

    broker: BrokerPort
    registry: Registry
    handshakes: Handshakes
    authenticator: Authenticator = WITHOUT_LOGINS


class BridgeLife:
    """The connections of one bridge, one after the other."""

    def __init__(self, target: BridgeTarget, settings: BridgeSettings, host: BridgeHost) -> None:
        """Wait for `start`.

        Args:
            target: the remote broker's addresses.
            settings: those of each connection; the connection ids get a number.
            host: this broker.
        """
        self._target = target
        self._settings = settings
        self._host = host
        self._registry = _Outgoing(host.registry)
        self._back_off = BackOff(target.delays)
        self._state = BridgeState.DIALLING
        self._reason = ""
        self._remote_name = self._joined_id = ""
        self._forwarded_count = 0
        self._remote_id = self._remote_address = ""
        self._sent_count = self._received_count = self._failure_count = 0
        self._since_ms = _now_ms()
        self._last_failure, self._last_failure_ms = "", 0
        self._next_attempt_ms = 0
        self._may_dial = asyncio.Event()
        """Set when the remote broker has shown during a delay that it serves."""
        self._number = 0
        self._session: BridgeSession | None = None
        self._connection: SocketConnection | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def connector(self) -> NetworkConnector:
        """Its connector."""
        return self._settings.connector

    @property
    def is_started(self) -> bool:
        """False before `start`, and after `stop`."""
        return self._task is not None

    @property
    def row(self) -> BridgeRow:
        """Its present state."""
        session = self._session
        return BridgeRow(
            self.connector.name,
            str(self._target),
            self._state.value,
            self._since_ms,
            self._remote_name,
            self._remote_id,
            self._remote_address,
            self._sent_count + (0 if session is None else session.sent_count),
            self._forwarded_count + (0 if session is None else session.forwarded_count),
            self._failure_count,
            self._back_off.failure_count,
            self._last_failure,
            self._last_failure_ms,
            self._next_attempt_ms,
            0 if session is None else len(session.demand),
            self.connector.duplex,
            self._received_count + (0 if session is None else session.received_count),
        )

    def demand(self) -> Iterable[DemandRow]:
        """Return its demand subscriptions."""
        return () if self._session is None else self._session.demand_rows()

    def start(self) -> None:
        """Dial, and dial again after each end; also after `stop`, with all counts as they are."""
        self._back_off = BackOff(self._target.delays)
        self._enter(BridgeState.DIALLING)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """End the bridge: nothing more is forwarded, and what has no answer returns to its place."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        for connection in list(self._registry.connections):
            if connection is not self._connection:
                connection.abort()
        if self._session is not None:
            self._session.stop()
        elif self._connection is not None:
            self._connection.abort()
        self._enter(BridgeState.STOPPED)

    def remote_serves(self, remote_name: str) -> None:
        """Dial again before a long delay is over, if the broker of that name is this bridge's, or may be.

        The first delay always passes, or two brokers whose bridges both fail would wake each other without a pause.
        """
        if self._state is BridgeState.WAITING and self._remote_name in ("", remote_name):
            earliest_ms = self._since_ms + round(1000 * self._target.delays.initial_reconnect_delay_seconds)
            self._next_attempt_ms = min(self._next_attempt_ms, max(earliest_ms, _now_ms()))
            self._may_dial.set()

    def _enter(self, state: BridgeState, next_attempt_ms: int = 0) -> None:
        self._state, self._since_ms, self._next_attempt_ms = state, _now_ms(), next_attempt_ms

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            end = await self._contained_attempt()
            lived = loop.time() - began if self._state is BridgeState.UP else 0.0  # a long wait for an answer is no run
            self._failure_count += 1
            self._last_failure, self._last_failure_ms = self._reason, _now_ms()
            if end in _FINAL:
                self._enter(BridgeState.ENDED)
                _log.warning("%s ends: %s", self, self._reason)
                return
            delay = self._back_off.after(lived)
            if delay is None:
                self._enter(BridgeState.ENDED)
                _log.error("%s ends after %d failures: %s", self, self._back_off.failure_count, self._reason)
                return
            self._enter(BridgeState.WAITING, _now_ms() + round(1000 * delay))
            _log.warning("%s: %s; the next attempt is in %g s", self, self._reason, delay)
            await self._wait(delay)
            self._enter(BridgeState.DIALLING)

    async def _wait(self, delay: float) -> None:
        """Wait for a delay, or at least for the first one if the remote broker serves; see `remote_serves`."""
        self._may_dial.clear()
        first = min(delay, self._target.delays.initial_reconnect_delay_seconds)
        await asyncio.sleep(first)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay - first):
                await self._may_dial.wait()

    async def _contained_attempt(self) -> BridgeEnd:
        """Make an attempt; an error that is not expected fails it, as the bridge would else end without a line."""
        try:
            return await self._attempt()
        except Exception as error:
            _log.error("%s: an attempt has failed", self, exc_info=error)
            self._reason = one_line(f"{type(error).__name__}: {error}")
            if self._connection is not None:
                self._connection.abort()
            return BridgeEnd.LOST

    async def _attempt(self) -> BridgeEnd:
        """Log in at this broker, connect to the first address at which a broker answers, and wait for the end."""
        user = await self._log_in()
        if isinstance(user, NotAuthenticated):
            remedy = "correct user_name and password; if they are for the remote broker, call them remote_user_name and"
            self._reason = one_line(f"this broker refuses the bridge: {user}: {remedy} remote_password")
            return BridgeEnd.REFUSED
        failures: list[str] = []
        for address in self._target.addresses:
            ended: asyncio.Future[BridgeEnd] = asyncio.get_running_loop().create_future()
            try:
                await self._dial(address, user, ended)
            except NotConnected as error:
                failures.append(self._failure(address, str(error)))
                continue
            self._remote_address = str(address)
            end = await ended
            if self._state is BridgeState.UP or end in _FINAL:
                return end
            # A port may be open before its broker serves: that of a slave, or of a proxy.
            failures.append(self._failure(address, self._reason))
        self._reason = one_line("; ".join(failures))
        return BridgeEnd.LOST

    def _failure(self, address: RemoteAddress, reason: str) -> str:
        """Return the reason of a failure, with the address if it is one of several; the log names a single one."""
        return reason if len(self._target.addresses) == 1 else f"{address}: {reason}"

    async def _log_in(self) -> User | NotAuthenticated:
        """Return who the bridge is at this broker; without a user name it is the broker itself."""
        connector = self._settings.connector
        if not connector.user_name:
            return NETWORK_CONNECTOR
        decision: asyncio.Future[User | NotAuthenticated] = asyncio.get_running_loop().create_future()

        def decided(outcome: User | NotAuthenticated) -> None:
            if not decision.done():  # it may be cancelled
                decision.set_result(outcome)

        credentials = Credentials(connector.user_name, connector.password or None, _LOCAL_ADDRESS)
        self._host.authenticator.authenticate(credentials, decided)
        return await decision

    async def _dial(self, address: RemoteAddress, user: User, ended: "asyncio.Future[BridgeEnd]") -> None:
        loop = asyncio.get_running_loop()
        self._number += 1
        connection_id = f"{self._settings.connection_id}-{self._number}"
        settings = replace(
            self._settings,
            connection_id=connection_id,
            user=user,
            offer=replace(
                self._settings.offer,
                max_inactivity_ms=address.max_inactivity_ms,
                initial_delay_ms=address.initial_delay_ms,
                host=address.host,
            ),
        )

        def make_session(link: ReplaceableLink) -> Session:
            self._session = BridgeSession(
                broker=self._host.broker,
                link=link,
                settings=settings,
                call_soon=loop.call_soon,
                on_begin=self._begun,
                on_end=partial(self._ended, ended=ended),
            )
            return self._session

        self._connection = await connect(
            address, settings.connector, self._registry, self._host.handshakes, make_session
        )

    def _begun(self, session: BridgeSession) -> None:
        self._enter(BridgeState.UP)
        self._reason = ""
        self._remote_name, self._remote_id = session.remote_name, session.remote_id
        _log.info("%s is up: broker %s, id %s", self, session.remote_name, session.remote_id)
        if self._settings.peers is not None:
            self._joined_id = session.remote_id
            try:
                self._settings.peers.joined(session.remote_id, session.remote_name, session.remote_url)
            except ValueError as error:
                _log.warning("%s: clients do not get the address of broker %s: %s", self, session.remote_name, error)

    def _ended(self, session: BridgeSession, *, ended: "asyncio.Future[BridgeEnd]") -> None:
        if self._settings.peers is not None and self._joined_id:
            self._settings.peers.left(self._joined_id)
            self._joined_id = ""
        self._sent_count += session.sent_count
        self._received_count += session.received_count
        self._forwarded_count += session.forwarded_count
        self._reason = one_line(session.reason)
        self._session = self._connection = None
        if not ended.done() and session.end is not None:
            ended.set_result(session.end)

    def __str__(self) -> str:
        """Return the connector's name and its addresses, for logs."""
        return f"network connector {self._settings.connector.name} to {self._target}"


def bridges_of(
    connector: NetworkConnector, host: BridgeHost, settings: Callable[[NetworkConnector, str], BridgeSettings]
) -> Sequence[BridgeLife]:
    """Return the bridges of a connector, none of which has started.

    Args:
        connector: the connector.
        host: this broker.
        settings: returns what a bridge is made with, from the connector and the first part of its connection ids.

    Raises:
        ValueError: the connector's URI is not valid.
    """
    lives: list[BridgeLife] = []
    for target in parse(connector.uri):
        unique = f"{time.time_ns() // 10**6}-{secrets.randbits(32)}"
        connection_id = f"ID:{host.broker.name}->{target.addresses[0].port}-{unique}"
        lives.append(BridgeLife(target, settings(connector, connection_id), host))
    return lives


def _now_ms() -> int:
    return time.time_ns() // 10**6
