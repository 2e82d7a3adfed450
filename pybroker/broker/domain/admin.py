"""The port through which an operator, or whoever reports to one, asks the broker what there is.

What it returns is seen as it changes: read it at once, on the event loop's thread, and keep none of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.subscription import ConsumerRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A broker at one moment, in totals: counts by destination would be a list without end.

    Attributes:
        connections: clients that are connected.
        destinations: queues and topics.
        waiting: messages that wait for a consumer, in queues and durable subscriptions.
        in_flight: messages that consumers were sent and have not acknowledged.
        memory_bytes: what messages take in memory.
        memory_bytes_max: what they may take; 0: no limit.
        is_full: the store takes no persistent messages, for want of room.
    """

    connections: int
    destinations: int
    waiting: int
    in_flight: int
    memory_bytes: int
    memory_bytes_max: int
    is_full: bool


class ClientView(Protocol):
    """A client that is connected, or was."""

    @property
    def connection_id(self) -> str:
        """Its connection, unlike any other of this broker."""
        ...

    @property
    def client_id(self) -> str:
        """Its name, unlike that of any other client that is connected."""
        ...


class ConsumerView(Protocol):
    """A consumer, active or closed."""

    @property
    def connection(self) -> ClientView:
        """Whose it is."""
        ...

    @property
    def request(self) -> ConsumerRequest:
        """What it asked for."""
        ...

    @property
    def prefetch(self) -> int:
        """How many unacknowledged messages it may hold at once."""
        ...


class ConnectionView(ClientView, Protocol):
    """A client that is connected, and what it has open."""

    @property
    def consumers(self) -> Iterable[ConsumerView]:
        """Its consumers."""
        ...

    @property
    def producers(self) -> Mapping[ProducerId, Destination | None]:
        """Its producers by their ids; None: one that names its destination per message."""
        ...


class Admin(Protocol):
    """What an operator may ask a broker."""

    def connections(self) -> Iterable[ConnectionView]:
        """Return the clients that are connected."""
        ...

    def destinations(self) -> Iterable[Destination]:
        """Return the queues and topics there are, advisory topics and temporary destinations included."""
        ...

    def owner(self, destination: Destination) -> str | None:
        """Return whose temporary destination it is, by connection id; None for a lasting one."""
        ...

    def consumer_count(self, destination: Destination) -> int:
        """Return how many consume from a destination; a topic's durable subscriptions count also while away."""
        ...

    def totals(self) -> Totals:
        """Count what there is; takes about 0.1 ms for each thousand queues, subscriptions and consumers."""
        ...
