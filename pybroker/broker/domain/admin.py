"""The port through which operators and monitoring read the state of a broker.

It returns live views: read them at once, on the event loop's thread, and do not keep them.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.subscription import ConsumerRequest


class DeadLetterCause(enum.Enum):
    """Why a message was sent to a dead letter queue, for counts; its property `dlqDeliveryFailureCause` says more."""

    EXPIRED = "expired"
    """It has expired."""
    REDELIVERED = "redelivered"
    """Too many consumers have left it without an acknowledgement."""
    REJECTED = "rejected"
    """A client rejected it: a NACK, or its own limit of redeliveries."""
    DISCARDED = "discarded"
    """The consumer of a topic was too slow for it."""
    UNDELIVERABLE = "undeliverable"
    """A scheduled message could not be sent when it was due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Counts of the messages of one queue, topic or subscription since its broker became master.

    Source: ActiveMQ 5.17, `DestinationStatistics`; in brackets the attribute of its MBean.

    Attributes:
        size: messages that are not acknowledged, those in flight included (QueueSize; 0 for a topic).
        enqueued: messages that were sent to it; in a transaction they count from its commit on (EnqueueCount).
        dispatched: deliveries to consumers (DispatchCount).
        dequeued: messages that have left it: acknowledged, expired, dead-lettered or removed (DequeueCount). What an
            earlier master had stored counts too, so it may be more than `enqueued`.
        expired: messages that have expired (ExpiredCount).
        in_flight: messages that were delivered and are not acknowledged (InFlightCount).
        wait_seconds: the sum of the times that delivered messages had waited for a consumer (AverageEnqueueTime, by
            `dispatched`). Of a topic only its durable subscriptions count.
        wait_seconds_max: the longest of these times (MaxEnqueueTime).
        wait_seconds_min: the shortest of them that is not 0 (MinEnqueueTime).
        message_bytes: the sum of the sizes of the messages that were sent to it (AverageMessageSize, by `enqueued`).
        message_bytes_max: the largest of these sizes (MaxMessageSize).
        message_bytes_min: the smallest of them (MinMessageSize).
        forwarded: messages that bridges have forwarded to other brokers (ForwardCount). A topic counts none.
    """

    size: int
    enqueued: int
    dispatched: int
    dequeued: int
    expired: int
    in_flight: int
    wait_seconds: float = 0.0
    wait_seconds_max: float = 0.0
    wait_seconds_min: float = 0.0
    message_bytes: int = 0
    message_bytes_max: int = 0
    message_bytes_min: int = 0
    forwarded: int = 0

    def __add__(self, other: "Counters") -> "Counters":
        """Return the counts of both together."""
        return Counters(
            size=self.size + other.size,
            enqueued=self.enqueued + other.enqueued,
            dispatched=self.dispatched + other.dispatched,
            dequeued=self.dequeued + other.dequeued,
            expired=self.expired + other.expired,
            in_flight=self.in_flight + other.in_flight,
            wait_seconds=self.wait_seconds + other.wait_seconds,
            wait_seconds_max=max(self.wait_seconds_max, other.wait_seconds_max),
            wait_seconds_min=min(filter(None, (self.wait_seconds_min, other.wait_seconds_min)), default=0.0),
            message_bytes=self.message_bytes + other.message_bytes,
            message_bytes_max=max(self.message_bytes_max, other.message_bytes_max),
            message_bytes_min=min(filter(None, (self.message_bytes_min, other.message_bytes_min)), default=0),
            forwarded=self.forwarded + other.forwarded,
        )


NO_MESSAGES: Final = Counters(size=0, enqueued=0, dispatched=0, dequeued=0, expired=0, in_flight=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationState:
    """The state of one queue or topic at one moment.

    Source: ActiveMQ 5.17, `DestinationView`; in brackets the attribute of its MBean.

    Attributes:
        destination: its name.
        counters: the counts of its messages.
        consumers: number of consumers, with durable subscriptions even without a consumer (ConsumerCount).
        producers: number of producers of this destination (ProducerCount).
        cached: number of messages that wait in memory.
        memory_bytes: memory that its messages take (MemoryUsageByteCount).
        memory_bytes_max: the limit of that memory, its own or the broker's; 0: none (MemoryLimit).
        is_paused: True while an operator has paused deliveries to its consumers (Paused).
        is_dead_letter_queue: True if a policy names it for dead letters, or some were sent there (DLQ). In ActiveMQ
            only the latter counts, until it is started again.
        is_prioritized: True if it delivers by priority (PrioritizedMessages).
        has_flow_control: True if its producers are slowed down at a limit (ProducerFlowControl).
        is_always_retroactive: True if every consumer gets the topic's history (AlwaysRetroactive).
        oldest_seconds: for how long the oldest message of a queue has waited for a consumer; 0 if none waits, and for a
            topic. Of one that an earlier master had stored it is the time since this member became master.
    """

    destination: Destination
    counters: Counters
    consumers: int
    producers: int
    cached: int
    memory_bytes: int
    memory_bytes_max: int
    is_paused: bool = False
    is_dead_letter_queue: bool = False
    is_prioritized: bool = False
    has_flow_control: bool = True
    is_always_retroactive: bool = False
    oldest_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionState:
    """The state of one durable subscription at one moment, with or without a consumer.

    Source: ActiveMQ 5.17, `DurableSubscriptionView`.

    Attributes:
        key: its key in the store, `<client id>:<name>`.
        client_id: the client id of its owner.
        name: its name.
        destination: the topic, or a wildcard.
        selector: its selector; None: every message.
        no_local: True if it gets no message of its own connection.
        user: the user to whom it belongs; None: unknown, or there were no logins.
        connection_id: the connection of its consumer; None: it has none.
        counters: the counts of its messages.
        cached: number of messages that wait in memory.
    """

    key: str
    client_id: str
    name: str
    destination: Destination
    selector: str | None
    no_local: bool
    user: str | None
    connection_id: str | None
    counters: Counters
    cached: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The totals of a broker at one moment. There are none by destination: a broker may have very many of them.

    Attributes:
        connections: number of open connections.
        destinations: number of queues and topics.
        waiting: number of messages that wait for a consumer, in queues and durable subscriptions.
        in_flight: number of outstanding messages: delivered, and not acknowledged.
        memory_bytes: memory used by messages.
        memory_bytes_max: limit of that memory; 0: no limit.
        is_full: True while the disk is full, and persistent messages are refused.
        spool_bytes: disk space that spooled messages take.
        spool_bytes_max: limit of that space; 0: there is no spool.
        is_spool_full: True while the spool takes no more messages.
        refused: number of connections that limits have refused or closed, since this member became master.
        scheduled: number of scheduled messages.
        connections_ever: number of connections that were opened since this member became master.
        loop_lag_seconds: the longest turn of the event loop in the last minute: the wait that it added for all clients.
        loop_lag_cause: what that turn did.
        reconnections: number of connections whose client says that it was connected before (OpenWire,
            `ConnectionInfo.failoverReconnect`), since this member became master.
        by_listener: number of open connections by the name of their listener, those without a login included.
        blocked: number of connections whose client has to wait before it sends more, because memory is full or the
            store is behind.
        in_doubt: number of XA transactions that are prepared.
        redelivered: messages that came back from a consumer whose client may have seen them, since this member became
            master. What a client redelivers to itself is unknown to the broker.
        dead_letters: messages that were sent to a dead letter queue, by `DeadLetterCause`, since then.
    """

    connections: int
    destinations: int
    waiting: int
    in_flight: int
    memory_bytes: int
    memory_bytes_max: int
    is_full: bool
    spool_bytes: int
    spool_bytes_max: int
    is_spool_full: bool
    refused: int = 0
    scheduled: int = 0
    connections_ever: int = 0
    loop_lag_seconds: float = 0.0
    loop_lag_cause: str = ""
    reconnections: int = 0
    by_listener: Mapping[str, int] = field(default_factory=dict[str, int])
    blocked: int = 0
    in_doubt: int = 0
    redelivered: int = 0
    dead_letters: Mapping[str, int] = field(default_factory=dict[str, int])


class ClientView(Protocol):
    """A client with an open or closed connection."""

    @property
    def connection_id(self) -> str:
        """The id of its connection, unique in this broker."""
        ...

    @property
    def client_id(self) -> str:
        """The client id, unique among open connections."""
        ...


class ConsumerView(Protocol):
    """A consumer, active or closed."""

    @property
    def connection(self) -> ClientView:
        """The connection of the consumer."""
        ...

    @property
    def request(self) -> ConsumerRequest:
        """The request of the client."""
        ...

    @property
    def prefetch(self) -> int:
        """The number of deliveries that may be outstanding."""
        ...


class ConnectionView(ClientView, Protocol):
    """A client with an open connection, and its consumers and producers."""

    @property
    def consumers(self) -> Iterable[ConsumerView]:
        """The consumers of the connection."""
        ...

    @property
    def producers(self) -> Mapping[ProducerId, Destination | None]:
        """The producers' destinations by producer id; None: the producer names a destination in each message."""
        ...


class Admin(Protocol):
    """The state of a broker, for operators."""

    def connections(self) -> Iterable[ConnectionView]:
        """Return the open connections."""
        ...

    def destinations(self) -> Iterable[Destination]:
        """Return all queues and topics, including advisory topics and temporary destinations."""
        ...

    def temporaries(self) -> Iterable[Destination]:
        """Return the temporary destinations that clients own."""
        ...

    def exists(self, destination: Destination) -> bool:
        """Return True if there is such a queue or topic."""
        ...

    def owner(self, destination: Destination) -> str | None:
        """Return the connection id of a temporary destination's owner; None for a permanent destination."""
        ...

    def consumer_count(self, destination: Destination) -> int:
        """Return the number of consumers of a destination; durable subscriptions count even without a consumer."""
        ...

    def producer_count(self, destination: Destination) -> int:
        """Return the number of producers of a destination, without those that name one in each message."""
        ...

    def state(self, destination: Destination) -> DestinationState | None:
        """Return the state of a queue or topic; None if it does not exist.

        Takes time for each subscription of a topic, and for each outstanding message of a durable subscription to
        several topics.
        """
        ...

    def durable_subscriptions(self) -> Iterable[SubscriptionState]:
        """Yield the state of each durable subscription; a few microseconds each. Read them in one turn."""
        ...

    def subscription(self, key: str) -> SubscriptionState | None:
        """Return the state of the durable subscription of that key; None if there is none."""
        ...

    def largest(self, count: int) -> Sequence[tuple[Destination, int]]:
        """Return the destinations whose messages take most memory, and its bytes, the largest first; at most `count`.

        Takes about 0.2 ms for each thousand destinations.
        """
        ...

    def removed(self) -> Counters:
        """Return the counts of all destinations that were removed, together."""
        ...

    def totals(self) -> Totals:
        """Return the totals; takes about 0.1 ms for each thousand queues, subscriptions and consumers."""
        ...
