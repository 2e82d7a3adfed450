"""Removes destinations that nothing uses any more, so that names made up by programs do not fill the broker.

A destination is inactive while it has no message, consumer, durable subscription or producer, no part in an open or
prepared transaction, and nothing to remember for retroactive consumers. One that all sweeps have found so for
`inactive_timeout_before_gc` milliseconds is removed, with the advisory that ActiveMQ sends. The next send or consumer
makes it again. Where a broker comes near its `destinations_max` none of them waits for its time: a client that comes
back after a failover should not be refused its queue because of queues that nobody uses.

Never removed: temporary destinations, which go with their connection, and the queues of virtual topics. Such a queue
collects what its topic gets while it is empty and its consumers are away: to remove it would lose messages.

A sweep looks at a slice of the destinations in each turn of the event loop. Source: ActiveMQ 5.17,
`gcInactiveDestinations`, which is off there by default.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Protocol

from pybroker.broker.core.connection import Connection
from pybroker.broker.core.destinations import Destinations
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.queue import Queue
from pybroker.broker.core.runtime import CoreRuntime
from pybroker.broker.core.topic import Topic
from pybroker.broker.core.transaction import Transaction
from pybroker.broker.domain.destination import Destination, parts

SLICE = 500
"""Destinations that are looked at in one turn: less than a millisecond."""

NEAR_PERCENT = 90
"""Of `destinations_max`: from there on what is inactive goes at once."""

NEAR_SHARE = 20
"""Between two sweeps for that: a millisecond for so many destinations, which take 40 microseconds to look at."""


class Users(Protocol):
    """Those who may use a destination without its knowing."""

    @property
    def is_ending(self) -> bool:
        """True once nothing may be removed any more."""
        ...

    def connections(self) -> Iterable[Connection]:
        """Return the clients that are connected."""
        ...

    def transactions(self) -> Iterable[Transaction]:
        """Return the transactions under way, and those in doubt."""
        ...


class InactiveDestinations:
    """Sweeps one broker for inactive destinations."""

    def __init__(self, runtime: CoreRuntime, destinations: Destinations, users: Users, destinations_max: int) -> None:
        self._runtime = runtime
        self._destinations = destinations
        self._users = users
        self._destinations_max = destinations_max
        self._marks: dict[Destination, tuple[int, int]] = {}
        """Those that were inactive at the last look: since when, and how many messages they had had by then."""
        self._remaining: Iterator[Destination] | None = None
        self._is_near = False
        """This sweep waits for no time to pass."""
        self._near_at = -(2**63)

    def sweep(self) -> None:
        """Begin to look at all destinations, unless the last sweep is not over yet; called every now and then."""
        if self._remaining is None:
            existing = self._destinations.existing
            self._marks = {each: mark for each, mark in self._marks.items() if existing(each) is not None}
            self._remaining = iter([*self._destinations])
            self._continue()

    def make_room(self, count: int) -> None:
        """Have the loop's next turn begin to remove what is inactive now, if there are nearly too many destinations.

        Not this turn: whoever creates a destination is about to use it, and maybe others that it has created.

        Args:
            count: destinations there are.
        """
        destinations_max = self._destinations_max
        if 100 * count < NEAR_PERCENT * destinations_max:
            return
        now = self._runtime.clock()
        if not 0 <= now - self._near_at < destinations_max // NEAR_SHARE:
            self._near_at = now
            self._runtime.usage.paging.defer(self._sweep_near)

    def _sweep_near(self) -> None:
        self._is_near = True
        self.sweep()

    def _continue(self) -> None:
        while self._remaining is not None and not self._users.is_ending:
            page = list(islice(self._remaining, SLICE))
            overdue = [each for each in page if self._is_overdue(each)]
            if overdue:
                named, gates = self._in_use()
                for destination in overdue:
                    self._remove_unless_used(destination, named, gates)
            if len(page) < SLICE:
                self._remaining = None
                self._is_near = False
            elif self._runtime.usage.paging.defer(self._continue):
                return

    def _is_overdue(self, destination: Destination) -> bool:
        """Mark a destination that is inactive, and tell whether it has been for long enough."""
        found = self._destinations.existing(destination)
        if found is None or destination.is_temporary or not found.policy.gc_inactive_destinations:
            return False
        if not _is_inactive(found):
            self._marks.pop(destination, None)
            return False
        now, count = self._runtime.clock(), found.next_sequence if isinstance(found, Queue) else 0
        since, count_before = self._marks.get(destination, (now, count))
        if count != count_before:  # it was used between two sweeps
            since = now
        self._marks[destination] = (since, count)
        return self._is_near or now - since >= found.policy.inactive_timeout_before_gc

    def _remove_unless_used(self, destination: Destination, named: set[Destination], gates: set[Gate]) -> None:
        found = self._destinations.existing(destination)
        if found is None or not _is_inactive(found):  # what was removed before has told listeners, who may do anything
            return
        if destination in named or found.gate in gates or self._destinations.router.is_of_virtual_topic(destination):
            del self._marks[destination]
            return
        del self._marks[destination]
        self._destinations.remove_inactive(destination)

    def _in_use(self) -> tuple[set[Destination], set[Gate]]:
        """Return what clients have named for a producer or consumer, and where open transactions will send."""
        named: set[Destination] = set()
        for connection in self._users.connections():
            for destination in filter(None, connection.producers.values()):
                named.update(parts(destination))
            for consumer in connection.consumers:
                named.update(consumer.request.destinations)
        return named, set(chain.from_iterable(each.gates for each in self._users.transactions()))


def _is_inactive(found: Queue | Topic) -> bool:
    """Tell whether a destination holds nothing and nobody takes from it."""
    if found.is_in_use or found.usage.used or not found.gate.is_open:
        return False
    return not found.pending.count if isinstance(found, Queue) else not any(found.history)
