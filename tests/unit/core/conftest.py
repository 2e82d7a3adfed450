# mypy: disable-error-code="arg-type, union-attr"
"""A broker's core on a store in memory, with clients that write down what they get."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pytest

from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message, view
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.rules import Rules
from pybroker.broker.domain.security import ANONYMOUS, User
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.memory import MemoryStore

_sequence = count(1)


class Throttle:
    """Counts how often its producer is held."""

    def __init__(self) -> None:
        self.peer = "10.0.0.1:50000"
        self.holds = 0
        self.input_holds = 0
        self.error: BrokerError | None = None

    def pause_reading(self) -> None:
        self.holds += 1

    def resume_reading(self) -> None:
        self.holds -= 1

    def hold_input(self) -> None:
        self.input_holds += 1

    def release_input(self) -> None:
        self.input_holds -= 1

    def give_up(self, error: BrokerError) -> None:
        self.error = error


@dataclass
class Inbox:
    """A consumer and its deliveries, oldest first."""

    deliveries: list[Delivery] = field(default_factory=list)
    noted: list[tuple[str, int]] = field(default_factory=list)
    """Deliveries that the test has looked at."""
    messages: dict[Delivery, Message] = field(default_factory=dict)
    """What was delivered, whose bodies may leave the memory of the broker later."""
    ended: bool = False
    consumer: BrokerConsumer = None  # type: ignore[assignment]  # set once subscribed

    @property
    def ids(self) -> list[str]:
        return [view(self.messages[delivery]).content.decode() for delivery in self.deliveries]

    @property
    def counts(self) -> list[int]:
        return [delivery.redelivery_count for delivery in self.deliveries]

    def drain(self) -> list[str]:
        ids = self.ids
        self.deliveries.clear()
        return ids

    def end(self) -> None:
        self.ended = True

    def ack(self, index: int = 0, transaction: LocalTransactionId | None = None) -> None:
        self.consumer.acknowledge(self.deliveries[index], transaction)


class Client:
    """A connection with short methods to send and subscribe."""

    def __init__(self, connection: BrokerConnection, throttle: Throttle) -> None:
        self.connection = connection
        self.throttle = throttle
        self.reads = True
        """False: what is delivered stays in the process."""

    def send(
        self, destination: str, *names: str, transaction: LocalTransactionId | None = None, **fields: object
    ) -> None:
        for name in names:
            self.connection.send(make_message(name, destination, self.connection.connection_id, **fields), transaction)

    def subscribe(self, destination: str, **request: object) -> Inbox:
        inbox = Inbox()
        wanted = ConsumerRequest(destination=parse(destination), **request)

        def deliver(delivery: Delivery) -> None:
            inbox.deliveries.append(delivery)
            inbox.messages[delivery] = delivery.message
            if self.reads:
                self.connection.written()

        consumer = self.connection.subscribe(wanted, deliver, inbox.end)
        inbox.consumer = consumer
        consumer.start()
        return inbox


def make_message(
    name: str,
    destination: str,
    connection_id: str = "c",
    *,
    persistent: bool = True,
    expiration: int = 0,
    priority: int = 4,
    properties: dict[str, object] | None = None,
) -> Message:
    """Return a message whose content is its name."""
    return to_message(
        OpenWireMessage(
            type=MessageType.TEXT,
            message_id=OpenWireMessageId(None, ProducerId(connection_id, -1, 1), next(_sequence)),
            producer_id=ProducerId(connection_id, -1, 1),
            destination=parse(destination),
            persistent=persistent,
            expiration=expiration,
            priority=priority,
            content=name.encode(),
            marshalled_properties=encode_map(properties) if properties else None,
        )
    )


class FencedStore(MemoryStore):
    """Counts how often the fence was required."""

    def __init__(self):
        super().__init__()
        self.fence_count = 0

    def require_fence(self):
        self.fence_count += 1


@dataclass
class World:
    """A broker and a clock that only the test moves."""

    store: MemoryStore
    policy: DestinationPolicy = field(default_factory=DestinationPolicy)
    limits: Limits = field(default_factory=Limits)
    rules: Rules | None = None
    configured: tuple[str, ...] = ()
    now_ms: int = 1_000_000

    def __post_init__(self) -> None:
        self.broker = self.start()
        self._count = 0

    def start(self) -> BrokerCore:
        """Start a broker on what the store holds, as a new master does."""
        self.broker = BrokerCore(
            "b",
            store=self.store,
            clock=lambda: self.now_ms,
            limits=self.limits,
            policies=PolicyMap(default=self.policy),
            rules=self.rules,
        )
        self.broker.destinations.configured = frozenset(map(parse, self.configured))
        self.broker.recover()
        return self.broker

    def client(self, client_id: str | None = None, user: User = ANONYMOUS) -> Client:
        self._count += 1
        throttle = Throttle()
        connection = self.broker.connect(f"c{self._count}", client_id or f"c{self._count}", throttle, user)
        return Client(connection, throttle)


@pytest.fixture
def make_world() -> Callable[..., World]:
    """Make a world; the keywords are those of its default policy, and `limits`."""
    return lambda limits=None, **policy: World(MemoryStore(), DestinationPolicy(**policy), limits or Limits())


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()
