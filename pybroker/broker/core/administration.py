"""Implements the port `Admin`: connections, destinations, their consumers, and totals, for operators."""

from collections.abc import Callable, Iterable, Mapping

from pybroker.broker.core.connection import Connection
from pybroker.broker.core.destinations import Destinations
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.admin import Totals
from pybroker.broker.domain.destination import Destination


class Administration:
    """Answers for one broker; implements the port `Admin`."""

    def __init__(
        self,
        destinations: Destinations,
        clients: Mapping[str, Connection],
        usage: Usage,
        is_full: Callable[[], bool],
    ) -> None:
        """Answer from what is seen as it changes.

        Args:
            destinations: the queues, topics and durable subscriptions there are.
            clients: those that are connected, by their client ids.
            usage: what all messages take.
            is_full: tells whether the store has no room.
        """
        self._destinations = destinations
        self._clients = clients
        self._usage = usage
        self._is_full = is_full

    def connections(self) -> Iterable[Connection]:
        """Return the clients that are connected."""
        return self._clients.values()

    def destinations(self) -> Iterable[Destination]:
        """Return the queues and topics there are."""
        return self._destinations

    def owner(self, destination: Destination) -> str | None:
        """Return whose temporary destination it is, by connection id; None for a lasting one."""
        owner = self._destinations.owner(destination)
        return None if owner is None else owner.connection_id

    def consumer_count(self, destination: Destination) -> int:
        """Return how many consume from a destination; a topic's durable subscriptions count also while away."""
        queue = self._destinations.queues.get(destination)
        if queue is not None:
            return len(queue.consumers)
        topic = self._destinations.topics.get(destination)
        return 0 if topic is None else len(topic.subscriptions) + len(topic.durables)

    def totals(self) -> Totals:
        """Count what there is."""
        there = self._destinations
        consumers = (consumer for connection in self._clients.values() for consumer in connection.consumers)
        return Totals(
            connections=len(self._clients),
            destinations=len(there),
            waiting=sum(each.pending.count for each in (*there.queues.values(), *there.durables.values())),
            in_flight=sum(len(consumer.outstanding) for consumer in consumers),
            memory_bytes=self._usage.used,
            memory_bytes_max=self._usage.limit,
            is_full=self._is_full(),
        )
