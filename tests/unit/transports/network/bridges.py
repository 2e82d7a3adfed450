"""Two brokers and a bridge between them, without sockets: the sessions of both ends over fake links."""

from collections.abc import Callable
from typing import Any

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.limits import Limits
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.openwire.marshal.wireformat import broker_offer
from pybroker.broker.domain.security import NETWORK_CONNECTOR, WITHOUT_LOGINS, Authenticator
from pybroker.store.memory import MemoryStore
from pybroker.transports.network.acceptor import DuplexAcceptor
from pybroker.transports.network.bridge import BridgeSession, BridgeSettings
from pybroker.transports.openwire.session import OpenWireSession, Sessions
from tests.unit.transports.openwire.conversation import Clock, FakeLink, OpenWireClient, settings


def named_broker(name: str, store: MemoryStore | None = None, **details: Any) -> BrokerCore:
    """Return a broker with an empty store, or a given one; the details are those of `BrokerCore`."""
    broker = BrokerCore(name, store=store or MemoryStore(), clock=Clock(), **details)
    broker.url = f"tcp://{name}:61616"
    broker.recover()
    return broker


class Near:
    """The broker that has the connector, and what its bridges have reported."""

    def __init__(self, broker: BrokerCore) -> None:
        self.broker = broker
        self.interests = Interests()
        self.user = NETWORK_CONNECTOR
        self.begun: list[BridgeSession] = []
        self.ended: list[BridgeSession] = []
        self.soon: list[Callable[[], None]] = []
        self.bridge_count = 0

    def bridge(self, **attributes: Any) -> tuple[BridgeSession, FakeLink]:
        """Begin a bridge."""
        self.bridge_count += 1
        link = FakeLink()
        session = BridgeSession(
            broker=self.broker,
            link=link,
            settings=BridgeSettings(
                connector=NetworkConnector(**attributes),
                offer=broker_offer(),
                broker_url="tcp://near:61616",
                connection_id=f"ID:{self.broker.name}->far-{self.bridge_count}",
                interests=self.interests,
                subscriptions=self.broker.subscriptions_of,
                announce=self.broker.announce,
                user=self.user,
            ),
            call_soon=self.soon.append,
            on_begin=self.begun.append,
            on_end=self.ended.append,
        )
        link.session = session
        return session, link


class TwoBrokers:
    """A bridge from `near` to `far`."""

    def __init__(
        self,
        *,
        authenticator: Authenticator = WITHOUT_LOGINS,
        near: str = "near",
        other: "TwoBrokers | None" = None,
        far_store: MemoryStore | None = None,
        near_limits: Limits | None = None,
        near_broker: BrokerCore | None = None,
        far_broker: BrokerCore | None = None,
        **attributes: Any,
    ) -> None:
        """Open a bridge.

        Args:
            authenticator: that of the far broker.
            near: the name of the near broker.
            other: a bridge whose far broker is that of this one too.
            far_store: that of the far broker.
            near_limits: those of the near broker.
            near_broker: the near broker itself, if it is not a usual one or has other bridges too.
            far_broker: the far broker, likewise.
            attributes: of the connector.
        """
        self.near = Near(near_broker or named_broker(near, limits=near_limits))
        self.far: BrokerCore = far_broker or (named_broker("far", far_store) if other is None else other.far)
        self.far_soon: list[Callable[[], None]] = []
        acceptor = DuplexAcceptor(
            broker=self.far,
            interests=Interests(),
            subscriptions=self.far.subscriptions_of,
            announce=self.far.announce,
            call_soon=self.far_soon.append,
        )
        self.sessions: Sessions = Sessions(acceptor.open) if other is None else other.sessions
        self.authenticator = authenticator
        self.connect(**attributes)

    def connect(self, **attributes: Any) -> None:
        """Open a bridge, and let it stand."""
        self.session, self.link = self.near.bridge(**attributes)
        self.far_link = FakeLink()
        self.far_session = OpenWireSession(
            broker=self.far,
            link=self.far_link,
            settings=settings(),
            sessions=self.sessions,
            authenticator=self.authenticator,
        )
        self.far_link.session = self.far_session
        self.pump()

    def pump(self, *, answers: bool = True, chunk_bytes: int = 1 << 30) -> bool:
        """Carry bytes both ways until there are none, in chunks of a size; return True if there were any.

        Without answers, those of the far broker are lost.
        """
        is_busy, was_busy = True, False
        while is_busy:
            is_busy = False
            for soon in (self.near.soon, self.far_soon):
                while soon:
                    soon.pop(0)()
            for link, session, is_carried in (
                (self.link, self.far_session, True),
                (self.far_link, self.session, answers),
            ):
                data, link.output = bytes(link.output), bytearray()
                if data:
                    is_busy = was_busy = True
                    if is_carried:
                        for start in range(0, len(data), chunk_bytes):
                            session.receive(data[start : start + chunk_bytes])
                    if link.session is not None and not link.closed:
                        link.session.written()
        return was_busy

    def cut(self) -> None:
        """Lose the connection, at both ends."""
        self.session.lost()
        self.far_session.lost()

    def client(self, broker: BrokerCore, name: str) -> OpenWireClient:
        """Return a connected client."""
        client = OpenWireClient(broker)
        client.connect(name)
        client.open_session()
        return client
