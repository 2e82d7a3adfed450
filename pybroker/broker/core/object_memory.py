"""The memory of what clients create: limits for each connection, and for all of them together.

```text
what a connection takes with it at its end    consumers, producers, sessions, temporary destinations, transactions
   the first GUARANTEED_BYTES of each connection: always
   beyond: a shared part, an eighth of the memory limit; a connection takes at most three times what is left of it

what stays                                    queues, topics, durable subscriptions
   another part, a quarter of the limit, or what `destinations_max` destinations take, if that is less
   |<--------------- general: three quarters --------------->|<----- reserve ----->|
     a connection takes at most three times what is left        at a rate: a little for each connection, and for all
```

So the first connection gets three quarters of a part, the next one three quarters of the rest, and a new one always
finds something. What stays cannot be taken back from a client that has left; clients that connect again and again could
use up the general part, each its share. The reserve then lasts for an hour of such clients, or ten minutes at least
under a limit below 350 MB, as creating is slow in it. What is recovered from a store is counted, and never refused.

"What is left" depends on the order in which connections come. After a take-over they come back in another one, and what
fitted on the former master has to fit again. So a new master begins with a grace period. In it a connection may take
what the first one gets, three quarters of a part, as long as all together take no more than the part. This does not
depend on the order: on the former master no connection took more than three quarters, nor all of them more than the
part, so neither do those of them that are back. The parts are no larger than ever; a connection that takes more than
its usual share keeps it, and gets nothing more when the grace period is over.

Consumers of wildcards have a part of their own for the queues that they match, an eighth of the limit, with the same
shares. A new queue counts in the accounts of the consumers that match it. It is refused only where the part has no room
for it, so an account may exceed its share; in the grace period it may have again whatever fits into the part.

Scheduled messages have a further part, without shares. All count in the broker's memory usage, but no more than their
parts do: what a store holds beyond must not stop producers for ever. Connections beside their guaranteed bytes take at
most the shared part.

Not per message: everything here is called when something is created or removed. Source of the rule of three times what
is left: A. K. Choudhury, E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet switches".
"""

from collections.abc import Callable
from typing import Final

from pybroker.broker.domain.destination import Destination, is_advisory
from pybroker.broker.domain.errors import RequestError, ResourceLimit
from pybroker.broker.domain.subscription import ConsumerRequest

DESTINATION_BYTES: Final = 6000
DURABLE_BYTES: Final = 5000
CONSUMER_BYTES: Final = 4000
PRODUCER_BYTES: Final = 500
SESSION_BYTES: Final = 100
"""The memory of each object, without names and selectors, with its entries in tables here and in the store. Measured
with 10,000 to a million of them."""

PART_BYTES: Final = 300
"""The memory of a consumer for each further destination of its composite name."""

MATCH_BYTES: Final = 200
"""The memory of a consumer for each queue that its wildcards match. Measured with 20 to 200 consumers of 20,000."""

DURABLE_MATCH_BYTES: Final = 700
"""The memory of a durable subscription for each topic that its wildcard matches, with its record in the store."""

TRANSACTION_BYTES: Final = 4000
"""The memory of a transaction that is open beside ten others, in tables of its connection; it counts itself besides."""

JOB_BYTES: Final = 725
"""The memory of a scheduled message, whose body is not in memory. Measured with 100,000 of them."""

CHARACTER_BYTES: Final = 4
"""The memory of each character of a name or selector, which several tables have, and a selector compiled too."""

LEVELS_INCLUDED: Final = 8
LEVEL_BYTES: Final = 500
"""The memory of each level of a name beyond the first eight, which are included in the constants above. Maps of names
and of wildcards have 240 to 370 bytes for each, and a name may be in several."""

GUARANTEED_BYTES: Final = 128 << 10
"""The bytes that are guaranteed to each connection: 32 consumers, or 20 consumers and 80 producers."""

PART_MIN: Final = 16 << 20
"""The smallest part, so that a low limit on messages is none on the number of clients."""

CONNECTIONS_SHIFT: Final = 3
MATCHES_SHIFT: Final = 3
LASTING_SHIFT: Final = 2
JOBS_SHIFT: Final = 2
"""The shared part of connections is an eighth of the memory limit, that of the queues which wildcards match another
eighth, that of what stays is a quarter, and that of scheduled messages another quarter."""

REST_FACTOR: Final = 3
"""A connection takes at most so many times what is left."""

_NO_LIMIT: Final = 1 << 60

RESERVE_SHIFT: Final = 2
"""The reserve is a quarter of the part of what stays."""

RESERVE_SECONDS: Final = 3600
"""Clients that use the reserve as fast as they may use it up in so many seconds."""

RESERVE_BYTES_PER_SECOND: Final = 6_000
"""Under a low limit creating is not slower than this: a queue a second."""

RESERVE_BURST_SECONDS: Final = 20
"""The reserve's bytes of so many seconds may be used at once."""

OWN_BURST_BYTES: Final = 64 << 10
OWN_BYTES_PER_SECOND: Final = 1 << 10
"""The rate limit of one connection in the reserve: a burst of ten queues, and then one queue in six seconds."""

GRACE_SECONDS: Final = 120.0
"""The grace period of a new master. Clients that try again every 30 seconds, as ActiveMQ's do at most, and that take 30
seconds to notice a broken connection, are back by then."""

NEAR_PERCENT: Final = 90
"""Use of the general part, in percent, from which on unused destinations are to be removed at once."""


class ObjectMemory:
    """Counts the memory of what the clients of one broker create.

    Attributes:
        shared_max: bytes that all connections may take beyond what each is guaranteed; 0: no limit here and below.
        shared: bytes that they take of it.
        held: bytes of everything that connections take with them.
        matched: bytes of consumers for the queues that their wildcards match.
        matched_max: bytes of them that consumers may take.
        lasting_max: bytes of what stays.
        lasting: bytes that are taken of it.
        destination_count: number of queues and topics that stay.
        job_count: number of scheduled messages.
        jobs_max: number of scheduled messages that clients may create.
        counted: bytes of all this that count in the broker's memory usage.
    """

    __slots__ = (
        "_count",
        "_creators",
        "_general_max",
        "_grace_ends_at",
        "_jobs_counted_max",
        "_lasting_counted_max",
        "_matched_counted_max",
        "_reserve",
        "_seconds",
        "_shared_counted_max",
        "counted",
        "destination_count",
        "held",
        "job_count",
        "jobs_max",
        "lasting",
        "lasting_max",
        "matched",
        "matched_max",
        "shared",
        "shared_max",
    )

    def __init__(
        self,
        limit: int,
        destinations_max: int,
        *,
        count: Callable[[int], None],
        seconds: Callable[[], float],
    ) -> None:
        """Count nothing yet.

        Args:
            limit: the broker's memory limit in bytes; 0: there is none.
            destinations_max: number of destinations that clients may create.
            count: called with the bytes by which the broker's memory usage changes.
            seconds: a monotonic clock.
        """
        self.shared_max = max(limit >> CONNECTIONS_SHIFT, PART_MIN) if limit else 0
        self._shared_counted_max = limit >> CONNECTIONS_SHIFT
        self.matched_max = max(limit >> MATCHES_SHIFT, PART_MIN) if limit else 0
        self._matched_counted_max = limit >> MATCHES_SHIFT
        self.matched = 0
        quarter = min(limit >> LASTING_SHIFT, destinations_max * DESTINATION_BYTES)
        self.lasting_max = max(quarter, PART_MIN) if limit else 0
        self._lasting_counted_max = limit >> LASTING_SHIFT
        reserve = self.lasting_max >> RESERVE_SHIFT
        self._general_max = self.lasting_max - reserve
        rate = max(reserve / RESERVE_SECONDS, RESERVE_BYTES_PER_SECOND)
        self._reserve = Allowance(rate * RESERVE_BURST_SECONDS, rate, seconds())
        self._seconds = seconds
        self._grace_ends_at = 0.0
        self._count = count
        self.counted = 0
        self._creators: dict[Destination | str, ObjectAccount | None] = {}
        self.shared = 0
        self.held = 0
        self.lasting = 0
        self.destination_count = 0
        self.jobs_max = max(limit >> JOBS_SHIFT, PART_MIN) // JOB_BYTES if limit else _NO_LIMIT
        self._jobs_counted_max = limit >> JOBS_SHIFT
        self.job_count = 0

    def begin_grace(self) -> None:
        """Begin the grace period, as the clients of a former master come back now."""
        self._grace_ends_at = self._seconds() + GRACE_SECONDS

    def allows_shared(self, own: int, change: int) -> bool:
        """Return True if a connection may take more of the shared part.

        Args:
            own: the bytes of it that the connection would have.
            change: those of them that it does not have yet.
        """
        return not self.shared_max or self._is_share(own, self.shared_max, self.shared_max - self.shared - change)

    @property
    def is_short(self) -> bool:
        """True when what stays takes most of the general part."""
        return self.lasting_max > 0 and 100 * self.lasting >= NEAR_PERCENT * self._general_max

    def check_lasting(self, size: int, creator: "ObjectAccount | None", what: str) -> None:
        """Check that something may be created that stays.

        Args:
            size: its bytes.
            creator: the connection that creates it; None: the broker itself.
            what: its name, for the error.

        Raises:
            ResourceLimit: it may not.
        """
        if not self.lasting_max:
            return
        total = self.lasting + size
        if creator is None:
            is_allowed = total <= self.lasting_max
        elif self._is_share(creator.created + size, self._general_max, self._general_max - total):
            is_allowed = True
        else:
            is_allowed = total <= self.lasting_max and self._takes_reserve(size, creator)
        if not is_allowed:
            own = 0 if creator is None else creator.created
            raise ResourceLimit(
                f"{what} cannot be created: queues, topics and durable subscriptions take {self.lasting} of "
                f"{self.lasting_max} bytes, and {own} of these are this connection's. "
                "Delete what is not used, or raise memory_limit and destinations_max."
            )

    def check_matches(self, count: int, what: str) -> None:
        """Check that a queue may be created which so many consumers of wildcards match.

        Raises:
            ResourceLimit: it may not.
        """
        if self.matched_max and count and self.matched + count * MATCH_BYTES > self.matched_max:
            raise ResourceLimit(
                f"{what} cannot be created: {count} consumers of wildcards match it, and the queues that wildcards "
                f"match take {self.matched} of {self.matched_max} bytes. Close consumers of wildcards, or raise "
                "memory_limit."
            )

    def allows_matches(self, own: int, change: int) -> bool:
        """Return True if the consumers of a connection may match more queues; see `allows_shared`."""
        rest = self.matched_max - self.matched - change
        if not self.matched_max or own <= REST_FACTOR * rest:
            return True
        return rest >= 0 and self._seconds() < self._grace_ends_at

    def change_matched(self, size: int) -> None:
        """Count bytes of consumers for queues that they match; negative: gone."""
        self.matched += size
        self._recount()

    def add_lasting(self, key: Destination | str, size: int, creator: "ObjectAccount | None") -> None:
        """Count something that stays.

        Args:
            key: the destination, or the key of a durable subscription; not counted yet.
            size: its bytes.
            creator: the connection that has created it; None: the broker itself, or an earlier one.
        """
        self._creators[key] = creator
        if creator is not None:
            creator.created += size
        self.lasting += size
        if isinstance(key, Destination):
            self.destination_count += 1
        self._recount()

    def enlarge_lasting(self, key: str, size: int) -> None:
        """Count more bytes of a durable subscription."""
        creator = self._creators[key]
        if creator is not None:
            creator.created += size
        self.lasting += size
        self._recount()

    def remove_lasting(self, key: Destination | str, size: int) -> None:
        """Subtract something that stayed; do nothing if it is not counted."""
        if key not in self._creators:
            return
        creator = self._creators.pop(key)
        if creator is not None:
            creator.created -= size
        self.lasting -= size
        if isinstance(key, Destination):
            self.destination_count -= 1
        self._recount()

    def count_jobs(self, change: int) -> None:
        """Count a change of the number of scheduled messages."""
        self.job_count += change
        self._recount()

    def change_held(self, size: int, shared: int) -> None:
        """Count bytes of a connection, and those of them that are beyond what it is guaranteed; negative: gone."""
        self.held += size
        self.shared += shared
        self._recount()

    def _is_share(self, own: int, part: int, rest: int) -> bool:
        """Return True if a connection may have so many bytes of a part, of which that rest would be left."""
        if own <= REST_FACTOR * rest:
            return True
        return rest >= 0 and own <= REST_FACTOR * (part - own) and self._seconds() < self._grace_ends_at

    def _takes_reserve(self, size: int, creator: "ObjectAccount") -> bool:
        """Take bytes of the reserve, if it has them for this connection."""
        now = self._seconds()
        own = creator.reserve
        if own is None:
            own = creator.reserve = Allowance(OWN_BURST_BYTES, OWN_BYTES_PER_SECOND, now)
        if own.left(now) < size or self._reserve.left(now) < size:
            return False
        own.take(size)
        self._reserve.take(size)
        return True

    def _recount(self) -> None:
        counted = min(self.held, self._shared_counted_max) + min(self.lasting, self._lasting_counted_max)
        counted += min(self.matched, self._matched_counted_max)
        counted += min(self.job_count * JOB_BYTES, self._jobs_counted_max)
        if counted != self.counted:
            change, self.counted = counted - self.counted, counted
            self._count(change)


class ObjectAccount:
    """The memory quota of one connection for the objects that it creates.

    Attributes:
        held: bytes of what it takes with it at its end.
        created: bytes of what it has created that stays, and is still there.
        matched: bytes of its consumers for the queues that their wildcards match.
        reserve: what it may take of the reserve; None: it has not used any.
    """

    __slots__ = ("_is_closed", "_memory", "created", "held", "matched", "reserve")

    def __init__(self, memory: ObjectMemory) -> None:
        self._memory = memory
        self._is_closed = False
        self.held = 0
        self.created = 0
        self.matched = 0
        self.reserve: Allowance | None = None

    def acquire(self, size: int, what: str) -> None:
        """Count something that the connection creates, and takes with it at its end.

        Args:
            size: its bytes.
            what: what it is, for the error.

        Raises:
            ResourceLimit: it may not be created; nothing is counted.
            RequestError: the connection is closed, and nothing would ever remove it.
        """
        if self._is_closed:
            raise RequestError(f"The {what} cannot be created: the connection is closed")
        memory = self._memory
        before = max(0, self.held - GUARANTEED_BYTES)
        after = max(0, self.held + size - GUARANTEED_BYTES)
        if after and not memory.allows_shared(after, after - before):
            raise ResourceLimit(
                f"The {what} cannot be created: consumers, producers, sessions and temporary destinations of this "
                f"connection take {self.held} bytes, and all connections take {memory.shared} of {memory.shared_max} "
                "besides what each may have. Close what is not used, subscribe with a lower prefetch, or raise "
                "memory_limit."
            )
        self.held += size
        memory.change_held(size, after - before)

    def acquire_matches(self, count: int) -> None:
        """Count the queues that a new consumer's wildcards match.

        Raises:
            ResourceLimit: they are too many; nothing is counted.
        """
        size, memory = count * MATCH_BYTES, self._memory
        if not memory.allows_matches(self.matched + size, size):
            raise ResourceLimit(
                f"The consumer of {count} queues cannot be created: the queues that the wildcards of this connection "
                f"match take {self.matched} bytes, and those of all connections {memory.matched} of "
                f"{memory.matched_max}. Use fewer consumers of wildcards, or raise memory_limit."
            )
        self.add_matches(count)

    def add_matches(self, count: int) -> None:
        """Count queues that a consumer's wildcards match, negative: no more; do nothing once it is closed."""
        if not self._is_closed:
            self.matched += count * MATCH_BYTES
            self._memory.change_matched(count * MATCH_BYTES)

    def release(self, size: int) -> None:
        """Subtract something that is gone; do nothing once the connection is closed."""
        if self._is_closed:
            return
        before = max(0, self.held - GUARANTEED_BYTES)
        self.held -= size
        self._memory.change_held(-size, max(0, self.held - GUARANTEED_BYTES) - before)

    def close(self) -> None:
        """Subtract everything that the connection takes with it, and have it create nothing more."""
        self.release(self.held)
        self.add_matches(-self.matched // MATCH_BYTES)
        self._is_closed = True


class Allowance:
    """Bytes that may be taken: as many as a burst, and again at a rate."""

    __slots__ = ("_burst", "_left", "_rate", "_since")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self._burst = burst
        self._left = burst
        self._rate = rate
        self._since = now

    def left(self, now: float) -> float:
        """Return the bytes that may be taken now, at that second."""
        self._left = min(self._burst, self._left + (now - self._since) * self._rate)
        self._since = now
        return self._left

    def take(self, size: int) -> None:
        """Take bytes, after a look at what is left."""
        self._left -= size


def size_of_destination(destination: Destination) -> int:
    """Return the bytes of a destination."""
    return DESTINATION_BYTES + size_of_name(destination)


def size_of_name(destination: Destination) -> int:
    """Return the bytes of a destination's name in the tables that have it."""
    return CHARACTER_BYTES * len(destination.name) + size_of_levels(destination)


def size_of_consumer(request: ConsumerRequest) -> int:
    """Return the bytes of a consumer, with those of the advisory topics that it alone may listen to.

    What its transport keeps of outstanding deliveries counts for the whole window, so that the consumer is refused
    when it begins, rather than held back later: a client that acknowledges a whole window at once would stand still.
    """
    size = CONSUMER_BYTES + PART_BYTES * len(request.composite)
    characters = len(request.selector or "") + len(request.subscription_name or "")
    for destination in request.destinations:
        size += size_of_name(destination)
        if is_advisory(destination) and not destination.is_pattern:
            size += DESTINATION_BYTES
    if request.window_max is not None:
        window = request.window_max if request.prefetch is None else min(request.prefetch, request.window_max)
        size += request.tracked_bytes * window
    return size + CHARACTER_BYTES * characters


def size_of_producer(destination: Destination | None) -> int:
    """Return the bytes of a producer; None: it has no destination."""
    return PRODUCER_BYTES if destination is None else PRODUCER_BYTES + size_of_name(destination)


def size_of_levels(destination: Destination) -> int:
    """Return the bytes of the levels of a name that are not included."""
    return LEVEL_BYTES * max(0, destination.name.count(".") + 1 - LEVELS_INCLUDED)
