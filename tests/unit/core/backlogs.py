"""Queues and topics without a broker around them: clients that write down what they get, and messages by name."""

from dataclasses import dataclass, field
from itertools import count

import pytest

from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.counting_consumer import CountingConsumer
from pybroker.broker.core.deadletter import DeadLetters
from pybroker.broker.core.durable import Durable
from pybroker.broker.core.piecewise import Steps, carry_out
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.subscription_groups import SubscriptionIndex
from pybroker.broker.core.topic import Topic, TopicSubscription
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message, view
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.subscription import ConsumerRequest, DurableSubscription
from pybroker.store.memory import MemoryStore
from tests.compiled import IS_COMPILED

_sequence = count(1)
_connections = count(1)


def message(
    name: str, destination: str = "queue://Q", properties: dict[str, object] | None = None, **fields: object
) -> Message:
    """Return a message whose content is its name."""
    return to_message(
        OpenWireMessage(
            type=MessageType.TEXT,
            message_id=OpenWireMessageId(None, ProducerId("c", -1, 1), next(_sequence)),
            producer_id=ProducerId("c", -1, 1),
            destination=parse(destination),
            content=name.encode(),
            marshalled_properties=encode_map(properties) if properties else None,  # type: ignore[arg-type]
            **({"persistent": True} | fields),  # type: ignore[arg-type]
        )
    )


class Connection:
    """A connection with what a consumer needs; every delivery has left the process at once."""

    def __init__(self) -> None:
        self.connection_id = f"c{next(_connections)}"
        self.delivery_count = self.flushed = 0
        self.is_held = False
        self.first: BrokerConsumer | None = None

    def forget(self, consumer: BrokerConsumer) -> None: ...

    def work_off(self, steps: Steps) -> None:
        carry_out(steps)


@dataclass(eq=False)
class Client:
    """A consumer and what it got."""

    consumer: BrokerConsumer
    got: list[Delivery] = field(default_factory=list)
    unsettled: list[Delivery] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [(view(delivery.message).content or b"").decode() for delivery in self.got]

    @property
    def firsts(self) -> list[str]:
        """Names of the messages that were flagged as the first of their group."""
        flags = [view(delivery.message).group_first_for_consumer for delivery in self.got]
        return [name for name, flag in zip(self.names, flags, strict=True) if flag]

    def ack(self, count: int = 1) -> None:
        for _ in range(count):
            self.consumer.acknowledge(self.unsettled.pop(0))

    def deliver(self, delivery: Delivery) -> None:
        self.got.append(delivery)
        self.unsettled.append(delivery)
        self.consumer.connection.flushed = self.consumer.connection.delivery_count

    def pause(self) -> None:
        self.consumer.connection.is_held = True
        self.consumer.resize()

    def resume(self) -> None:
        self.consumer.connection.is_held = False
        self.consumer.resize()
        self.consumer.dispatch()

    def close(self) -> None:
        self.consumer.close()


class World:
    """One queue, one topic, their dead letter queue, and a clock that only the test moves."""

    def __init__(self, store: MemoryStore | None = None, **policy: object) -> None:
        self.now_ms = 1_000_000
        self.policy = DestinationPolicy(**policy)  # type: ignore[arg-type]
        self.store = store or MemoryStore()
        self.usage = Usage()
        self.letters: list[Message] = []
        self.dead_letters = DeadLetters(target=lambda destination: self, clock=self.clock)
        common = {"store": self.store, "clock": self.clock, "policy": self.policy}
        self.queue = Queue(
            parse("queue://Q"), dead_letters=self.dead_letters, usage=Usage(0, self.usage), **common  # type: ignore[arg-type]
        )  # fmt: skip
        self.index = SubscriptionIndex()
        self.topic = Topic(parse("topic://T"), usage=Usage(0, self.usage), index=self.index, **common)  # type: ignore[arg-type]

    def clock(self) -> int:
        return self.now_ms

    def send(self, letter: Message) -> None:
        """Take a dead letter."""
        self.letters.append(letter)

    def consume(self, **request: object) -> Client:
        """Start a consumer of the queue."""
        client = self._client("queue://Q", request)
        self.queue.attach(client.consumer)
        client.consumer.start()
        return client

    def listen(self, **request: object) -> Client:
        """Start a consumer of the topic."""
        client = self._client("topic://T", request, CountingConsumer)
        assert isinstance(client.consumer, CountingConsumer)
        subscription = TopicSubscription(
            client.consumer,
            dead_letters=self.dead_letters,
            clock=self.clock,
            policy=self.policy,
            paging=self.usage.paging,
        )
        subscription.join(self.topic)
        client.consumer.start()
        return client

    def durable(self, name: str = "s") -> Durable:
        """Create a durable subscription to the topic."""
        info = DurableSubscription(
            client_id="me", name=name, destination=self.topic.destination, subscribed_destination=self.topic.destination
        )
        durable = Durable(
            info, None, store=self.store, dead_letters=self.dead_letters, clock=self.clock, policy=self.policy
        )
        self.store.subscribe(info)
        durable.join(self.topic)
        return durable

    def activate(self, durable: Durable, **request: object) -> Client:
        """Start the consumer of a durable subscription."""
        client = self._client("topic://T", request)
        durable.attach(client.consumer)
        client.consumer.start()
        return client

    def put(self, *names: str, **fields: object) -> None:
        """Send to the queue."""
        for name in names:
            self.queue.send(message(name, **fields))  # type: ignore[arg-type]

    def publish(self, *names: str, **fields: object) -> None:
        """Send to the topic."""
        for name in names:
            self.topic.send(message(name, "topic://T", **fields))  # type: ignore[arg-type]

    def _client(
        self, destination: str, request: dict[str, object], kind: type[BrokerConsumer] = BrokerConsumer
    ) -> Client:
        wanted = ConsumerRequest(destination=parse(destination), **request)  # type: ignore[arg-type]
        prefetch = 1000 if wanted.prefetch is None else wanted.prefetch
        if IS_COMPILED:
            pytest.skip("a double is the connection here, and no native object")
        client: Client
        consumer = kind(Connection(), wanted, lambda delivery: client.deliver(delivery), prefetch=prefetch)  # type: ignore[arg-type]
        client = Client(consumer)
        return client
