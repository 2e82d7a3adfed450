"""A network connector over real sockets, on a loop whose clock skips the times in which nothing happens."""

import asyncio
import contextlib
import logging
import selectors
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.openwire.marshal.wireformat import broker_offer
from pybroker.broker.domain.security import WITHOUT_LOGINS, Authenticator
from pybroker.transports.admission import AdmissionLimits
from pybroker.transports.network.bridge import BridgeSettings
from pybroker.transports.network.connector import BridgeHost, BridgeLife, BridgeState, bridges_of
from pybroker.transports.openwire.session import OpenWireSession, Sessions
from pybroker.transports.server import ListenerProtocol, Server, Tls, bind
from pybroker.transports.session import Link
from tests.unit.transports.network.bridges import named_broker
from tests.unit.transports.openwire.conversation import settings

QUIET_SECONDS = 0.05
"""The real time without an event after which the clock skips to the next timer."""

SECONDS = 20.0


class _SkippingSelector(selectors.DefaultSelector):
    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= QUIET_SECONDS:
            return super().select(timeout)
        began = time.monotonic()
        found = super().select(QUIET_SECONDS)
        if not found:
            self.skipped += timeout - (time.monotonic() - began)
        return found


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop that does not wait for a timer, but skips to it."""

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return super().time() + self._skipping.skipped


class _Notifier(logging.Handler):
    def __init__(self, event: asyncio.Event) -> None:
        super().__init__()
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        self._event.set()


class Far:
    """A broker that listens for OpenWire."""

    def __init__(self, server: Server, *, authenticator: Authenticator = WITHOUT_LOGINS, name: str = "far") -> None:
        self.server = server
        self.broker = named_broker(name)
        self.sessions = Sessions()
        self.authenticator = authenticator
        self.port = 0

    def listen(self, context: ssl.SSLContext | None = None) -> int:
        bound = bind("127.0.0.1", 0, "openwire")
        self.port = bound.getsockname()[1]
        tls = None if context is None else Tls(context=lambda: context, handshake_seconds=SECONDS)
        self.server.listen(ListenerProtocol(scheme="openwire", session=self._session, tls=tls), bound)
        return self.port

    def _session(self, link: Link) -> OpenWireSession:
        return OpenWireSession(
            broker=self.broker,
            link=link,
            settings=settings(),
            sessions=self.sessions,
            authenticator=self.authenticator,
        )


class Place:
    """The broker with the connectors, and the far ones.

    Attributes:
        lines: what was logged at level INFO and above by `pybroker.transports.network`.
        faults: calls of the loop's exception handler.
    """

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.server = Server(limits=AdmissionLimits.of(100))
        self.authenticator: Authenticator = WITHOUT_LOGINS
        self.far_server = Server(limits=AdmissionLimits.of(100))
        self.broker = named_broker("near")
        self.interests = Interests()
        self.lives: list[BridgeLife] = []
        self.faults: list[dict[str, Any]] = []
        self._caplog = caplog
        self._has_logged = asyncio.Event()
        self._handler = _Notifier(self._has_logged)
        logging.getLogger("pybroker").addHandler(self._handler)
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.faults.append(context))

    @property
    def lines(self) -> list[str]:
        found = [each for each in self._caplog.records if each.name.startswith("pybroker.transports.network")]
        return [each.getMessage() for each in found if each.levelno >= logging.INFO]

    @property
    def failures(self) -> list[str]:
        """The lines about failed attempts, from behind the connector's name and addresses."""
        return [line.partition(": ")[2] for line in self.lines if "; the next attempt is in" in line]

    def dial(self, uri: str, **attributes: Any) -> BridgeLife:
        """Start a connector of one address."""
        (life,) = self.dial_all(uri, **attributes)
        return life

    def dial_all(self, uri: str, **attributes: Any) -> Sequence[BridgeLife]:
        """Start a connector."""
        connector = NetworkConnector(uri=uri, **attributes)
        lives = bridges_of(connector, self._host, self._settings)
        self.lives += lives
        for life in lives:
            life.start()
        return lives

    def _settings(self, connector: NetworkConnector, connection_id: str) -> BridgeSettings:
        return BridgeSettings(
            connector=connector,
            offer=broker_offer(),
            broker_url="tcp://near:61616",
            connection_id=connection_id,
            interests=self.interests,
            subscriptions=self.broker.subscriptions_of,
            announce=self.broker.announce,
        )

    @property
    def _host(self) -> BridgeHost:
        return BridgeHost(
            broker=self.broker,
            registry=self.server,
            handshakes=self.server.handshakes,
            authenticator=self.authenticator,
        )

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for the line of the log after which something is true."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            self._has_logged.clear()
            await self._has_logged.wait()
            assert time.monotonic() < deadline, f"it came too late; logged was {self.lines}"

    async def until_failures(self, count: int) -> list[str]:
        """Wait for failed attempts, and return the lines about the first ones."""
        await self.until(lambda: len(self.failures) >= count)
        return self.failures[:count]

    async def until_up(self, life: BridgeLife) -> None:
        await self.until(lambda: life.row.state == BridgeState.UP.value)

    async def close(self) -> None:
        for life in self.lives:
            life.stop()
        self.server.abort()
        logging.getLogger("pybroker").removeHandler(self._handler)
        self.far_server.abort()
        for _ in range(10):  # the ends of the connections are in later turns of the loop
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def raw_server(answer: bytes, *, closes: bool = False) -> AsyncGenerator[int, None]:
    """Listen as another program, that sends some bytes to each client, and closes or is silent; yields its port."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(answer)
        if closes:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()


def run(
    caplog: pytest.LogCaptureFixture,
    scenario: Callable[[Place], Awaitable[None]],
    make_loop: Callable[[], asyncio.AbstractEventLoop] = SkippingLoop,
) -> None:
    """Run a scenario; no callback of the loop may fail."""
    caplog.set_level(logging.INFO)

    async def main() -> None:
        place = Place(caplog)
        try:
            await scenario(place)
        finally:
            await place.close()
        assert not place.faults

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
