"""Implements the port `Admin`: connections, destinations, their consumers, and totals, for operators."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from typing import Final

from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.core.destinations import Destinations
from pybroker.broker.core.durable import Durable
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.runtime import CoreRuntime
from pybroker.broker.domain.admin import (
    NO_MESSAGES,
    ClientView,
    Counters,
    DestinationState,
    SubscriptionState,
    Totals,
)
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.ids import ProducerId

_REMOVED_MAX: Final = 500
"""Counts that are kept before they are added together: a temporary queue is removed in less time than that takes."""


class Administration(Observer):
    """Reports the state of one broker; implements the port `Admin`."""

    def __init__(
        self,
        destinations: Destinations,
        clients: Mapping[str, BrokerConnection],
        runtime: CoreRuntime,
        *,
        is_full: Callable[[], bool],
        is_dead_letter_queue: Callable[[Destination], bool],
        in_doubt: Callable[[], int],
    ) -> None:
        """Create the port from live views of the broker's state, and have it observe the broker.

        Args:
            destinations: the queues, topics and durable subscriptions.
            clients: the open connections by client id.
            runtime: has the memory of messages, and of what clients create.
            is_full: returns True while the store has no space.
            is_dead_letter_queue: returns True if a queue is for dead letters.
            in_doubt: returns the number of prepared transactions.
        """
        self._destinations = destinations
        self._clients = clients
        self._usage = runtime.usage
        self._objects = runtime.objects
        self._is_full = is_full
        self._is_dead_letter_queue = is_dead_letter_queue
        self._in_doubt = in_doubt
        self._dead_letters = runtime.dead_letters
        self._began_at = self._usage.paging.monotonic()
        self._producer_counts: Counter[Destination] = Counter()
        self._removed: list[Counters] = []
        """The counts of removed destinations, not all of them added together yet."""
        self._connections_ever = 0
        runtime.observers.add(self)

    def connection_added(self, connection: ClientView) -> None:
        """Count a connection."""
        self._connections_ever += 1

    def destination_removed(self, destination: Destination, owner: str | None) -> None:
        """Keep the counts of a destination that is removed."""
        existing = self._destinations.existing(destination)
        if existing is not None:
            self._removed.append(existing.counters())
            if len(self._removed) >= _REMOVED_MAX:
                self.removed()

    def producer_added(self, producer_id: ProducerId, destination: Destination) -> None:
        """Count a producer."""
        self._producer_counts[destination] += 1

    def producer_removed(self, producer_id: ProducerId, destination: Destination) -> None:
        """Count one producer less."""
        self._producer_counts[destination] -= 1
        if not self._producer_counts[destination]:
            del self._producer_counts[destination]

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

    def producer_count(self, destination: Destination) -> int:
        """Return the number of producers of a destination, without those that name one in each message."""
        return self._producer_counts[destination]

    def state(self, destination: Destination) -> DestinationState | None:
        """Return the state of a queue or topic; None if it does not exist."""
        existing = self._destinations.existing(destination)
        if existing is None:
            return None
        usage, policy = existing.usage, existing.policy
        return DestinationState(
            destination=destination,
            counters=existing.counters(),
            consumers=self.consumer_count(destination),
            producers=self.producer_count(destination),
            cached=existing.cached_count,
            memory_bytes=usage.used,
            memory_bytes_max=usage.limit or usage.broker.limit,
            is_paused=isinstance(existing, Queue) and existing.consumer_set.is_paused,
            is_dead_letter_queue=self._is_dead_letter_queue(destination),
            is_prioritized=policy.prioritized_messages,
            has_flow_control=policy.producer_flow_control,
            is_always_retroactive=policy.always_retroactive,
            oldest_seconds=self._oldest_seconds(existing) if isinstance(existing, Queue) else 0.0,
        )

    def _oldest_seconds(self, queue: Queue) -> float:
        return queue.oldest_seconds(self._usage.paging.monotonic(), self._began_at)

    def durable_subscriptions(self) -> Iterator[SubscriptionState]:
        """Yield the state of each durable subscription that exists now; others may come and go in between."""
        return map(_subscription_state, list(self._destinations.durables.values()))

    def subscription(self, key: str) -> SubscriptionState | None:
        """Return the state of the durable subscription of that key; None if there is none."""
        durable = self._destinations.durables.get(key)
        return None if durable is None else _subscription_state(durable)

    def largest(self, count: int) -> Sequence[tuple[Destination, int]]:
        """Return the destinations whose messages take most memory, and its bytes, the largest first."""
        there = self._destinations
        usages = chain(
            ((name, queue.usage) for name, queue in there.queues.items()),
            ((name, topic.usage) for name, topic in there.topics.items()),
        )
        using = ((name, usage.used) for name, usage in usages if usage.used)
        return nlargest(count, using, key=itemgetter(1))

    def removed(self) -> Counters:
        """Return the counts of all destinations that were removed, together."""
        total = NO_MESSAGES
        for each in self._removed:
            total += each
        total = replace(total, size=0, in_flight=0)
        self._removed = [total]
        return total

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
            connections_ever=self._connections_ever,
            blocked=sum([connection.is_blocked for connection in self._clients.values()]),
            in_doubt=self._in_doubt(),
            redelivered=self._dead_letters.redelivered,
            dead_letters={kind.value: count for kind, count in self._dead_letters.sent.items()},
        )


def _subscription_state(durable: Durable) -> SubscriptionState:
    info, consumer = durable.info, durable.consumer
    return SubscriptionState(
        key=info.key,
        client_id=info.client_id,
        name=info.name,
        destination=info.subscribed_destination,
        selector=info.selector,
        no_local=info.no_local,
        user=info.user,
        connection_id=None if consumer is None else consumer.connection.connection_id,
        counters=durable.counters(),
        cached=durable.cached_count,
    )
