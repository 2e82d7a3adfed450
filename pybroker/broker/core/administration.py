"""Implements the port `Admin`: connections, destinations, their consumers, and totals, for operators."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from operator import itemgetter

from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.core.destinations import Destinations
from pybroker.broker.core.runtime import CoreRuntime
from pybroker.broker.domain.admin import Counters, Totals
from pybroker.broker.domain.destination import Destination


class Administration:
    """Reports the state of one broker; implements the port `Admin`."""

    def __init__(
        self,
        destinations: Destinations,
        clients: Mapping[str, BrokerConnection],
        runtime: CoreRuntime,
        is_full: Callable[[], bool],
    ) -> None:
        """Create the port from live views of the broker's state.

        Args:
            destinations: the queues, topics and durable subscriptions.
            clients: the open connections by client id.
            runtime: has the memory of messages, and of what clients create.
            is_full: returns True while the store has no space.
        """
        self._destinations = destinations
        self._clients = clients
        self._usage = runtime.usage
        self._objects = runtime.objects
        self._is_full = is_full

    def connections(self) -> Iterable[BrokerConnection]:
        """Return the open connections."""
        return self._clients.values()

    def destinations(self) -> Iterable[Destination]:
        """Return all queues and topics."""
        return self._destinations

    def temporaries(self) -> Iterable[Destination]:
        """Return the temporary destinations that clients own."""
        return self._destinations.temporaries

    def exists(self, destination: Destination) -> bool:
        """Return True if there is such a queue or topic."""
        return self._destinations.existing(destination) is not None

    def owner(self, destination: Destination) -> str | None:
        """Return the connection id of a temporary destination's owner; None for a permanent destination."""
        owner = self._destinations.owner(destination)
        return None if owner is None else owner.connection_id

    def consumer_count(self, destination: Destination) -> int:
        """Return the number of consumers of a destination; durable subscriptions count even without a consumer."""
        queue = self._destinations.queues.get(destination)
        if queue is not None:
            return len(queue.consumers)
        topic = self._destinations.topics.get(destination)
        return 0 if topic is None else topic.subscription_count + len(topic.durables) + len(topic.joining)

    def counters(self, destination: Destination) -> Counters | None:
        """Return the counts of a queue or topic; None if it does not exist."""
        existing = self._destinations.existing(destination)
        return None if existing is None else existing.counters()

    def largest(self, count: int) -> Sequence[tuple[Destination, int]]:
        """Return the destinations whose messages take most memory, and its bytes, the largest first."""
        there = self._destinations
        usages = chain(
            ((name, queue.usage) for name, queue in there.queues.items()),
            ((name, topic.usage) for name, topic in there.topics.items()),
        )
        using = ((name, usage.used) for name, usage in usages if usage.used)
        return nlargest(count, using, key=itemgetter(1))

    def totals(self) -> Totals:
        """Return totals of connections, destinations, messages and memory."""
        there = self._destinations
        spool = self._usage.paging.spool
        consumers = (consumer for connection in self._clients.values() for consumer in connection.consumers)
        return Totals(
            connections=len(self._clients),
            destinations=len(there),
            waiting=sum(each.pending.count for each in (*there.queues.values(), *there.durables.values())),
            in_flight=sum(consumer.outstanding_count for consumer in consumers),
            memory_bytes=self._usage.used,
            memory_bytes_max=self._usage.limit,
            is_full=self._is_full(),
            spool_bytes=0 if spool is None else spool.used_bytes,
            spool_bytes_max=0 if spool is None else spool.bytes_max,
            is_spool_full=spool is not None and spool.is_full,
            scheduled=self._objects.job_count,
        )
