"""Policies: the settings of a destination, or of all destinations that a wildcard covers.

If ActiveMQ's `policyEntry` has a setting, its name in snake case and its default are used. This module has the values,
and chooses the entry for a destination; `queue`, `topic`, `retained_history` and `deadletter` implement the settings.

Source: ActiveMQ 5.17, `PolicyEntry`, `PolicyMap`.
"""

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from pybroker.broker.domain.destination import Destination, DestinationType, covers, queue
from pybroker.broker.domain.destination_map import PatternMap
from pybroker.broker.domain.network.bridge_filter import ConditionalBridgeFilter
from pybroker.broker.domain.subscription import BROWSER_PREFETCH, DURABLE_PREFETCH, QUEUE_PREFETCH, TOPIC_PREFETCH

# ---------------------------------------------------------------- what a topic keeps for retroactive consumers


@dataclass(frozen=True, slots=True)
class FixedCountRecovery:
    """Keep a topic's last messages (`fixedCountSubscriptionRecoveryPolicy`).

    Attributes:
        maximum_size: how many.
    """

    maximum_size: int = 100


@dataclass(frozen=True, slots=True)
class FixedSizeRecovery:
    """Keep a topic's last messages as far as they fit (`fixedSizedSubscriptionRecoveryPolicy`).

    Attributes:
        maximum_bytes: sum of their `Message.size`.
    """

    maximum_bytes: int = 64 << 10


@dataclass(frozen=True, slots=True)
class LastImageRecovery:
    """Keep a topic's last message (`lastImageSubscriptionRecoveryPolicy`)."""


@dataclass(frozen=True, slots=True)
class TimedRecovery:
    """Keep a topic's messages for a while (`timedSubscriptionRecoveryPolicy`).

    Attributes:
        milliseconds: how long.
    """

    milliseconds: int = 60_000


RecoveryPolicy = FixedCountRecovery | FixedSizeRecovery | LastImageRecovery | TimedRecovery
"""Selects the messages that a topic keeps for retroactive consumers, in memory only."""


class Eviction(enum.Enum):
    """Which message is dropped when too many wait for a slow topic consumer (`messageEvictionStrategy`)."""

    OLDEST = "oldest"
    OLDEST_WITH_LOWEST_PRIORITY = "oldest_with_lowest_priority"


# ---------------------------------------------------------------- where dead letters go


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterStrategy:
    """Settings that all strategies have.

    Attributes:
        process_expired: keep expired messages; False: drop them.
        process_non_persistent: keep non-persistent messages too, as persistent ones.
        enable_audit: keep a message id once per dead letter queue, and drop further messages with that id.
        max_audit_depth: number of sequence numbers that the audit remembers for each producer.
        max_producers_to_audit: number of producers that the audit remembers.
        expiration: milliseconds after which a dead letter expires; 0: never.
    """

    process_expired: bool = True
    process_non_persistent: bool = False
    enable_audit: bool = True
    max_audit_depth: int = 2048
    max_producers_to_audit: int = 64
    expiration: int = 0


_SHARED_QUEUE = queue("ActiveMQ.DLQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDeadLetterStrategy(DeadLetterStrategy):
    """All dead letters go to one destination, by default the queue `ActiveMQ.DLQ`."""

    dead_letter_queue: Destination = _SHARED_QUEUE

    def place_for(self, destination: Destination, subscription_key: str | None = None) -> Destination:
        """Return the destination of the dead letters of a destination."""
        return self.dead_letter_queue

    def is_place(self, destination: Destination) -> bool:
        """Return True if messages of this destination are dead letters already."""
        return destination == self.dead_letter_queue


@dataclass(frozen=True, slots=True, kw_only=True)
class IndividualDeadLetterStrategy(DeadLetterStrategy):
    """Each destination has its own: prefix, its name, suffix.

    Attributes:
        queue_prefix: the part before a queue's name.
        queue_suffix: the part after a queue's name.
        topic_prefix: the part before a topic's name.
        topic_suffix: the part after a topic's name.
        use_queue_for_queue_messages: dead letters of a queue go to a queue; False: to a topic, where they are lost
            unless it has subscribers.
        use_queue_for_topic_messages: the same for dead letters of a topic.
        destination_per_durable_subscriber: append a dot and the subscription key to the topic's name.
    """

    queue_prefix: str = "ActiveMQ.DLQ.Queue."
    queue_suffix: str = ""
    topic_prefix: str = "ActiveMQ.DLQ.Topic."
    topic_suffix: str = ""
    use_queue_for_queue_messages: bool = True
    use_queue_for_topic_messages: bool = True
    destination_per_durable_subscriber: bool = False

    def place_for(self, destination: Destination, subscription_key: str | None = None) -> Destination:
        """Return the destination of the dead letters of a destination, or of one durable subscription to it."""
        if destination.is_queue:
            kind = _kind(self.use_queue_for_queue_messages)
            return Destination(kind, self.queue_prefix + destination.name + self.queue_suffix)
        name = self.topic_prefix + destination.name
        if subscription_key is not None and self.destination_per_durable_subscriber:
            name += "." + subscription_key
        return Destination(_kind(self.use_queue_for_topic_messages), name + self.topic_suffix)

    def is_place(self, destination: Destination) -> bool:
        """Return True if, by the destination's name, its messages are dead letters already."""
        return any(
            destination.type is _kind(is_queue) and _is_between(destination.name, prefix, suffix)
            for is_queue, prefix, suffix in (
                (self.use_queue_for_queue_messages, self.queue_prefix, self.queue_suffix),
                (self.use_queue_for_topic_messages, self.topic_prefix, self.topic_suffix),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardingDeadLetterStrategy(DeadLetterStrategy):
    """All dead letters are dropped."""


AnyDeadLetterStrategy = SharedDeadLetterStrategy | IndividualDeadLetterStrategy | DiscardingDeadLetterStrategy


def _kind(is_queue: bool) -> DestinationType:
    return DestinationType.QUEUE if is_queue else DestinationType.TOPIC


def _is_between(name: str, prefix: str, suffix: str) -> bool:
    return len(name) > len(prefix) + len(suffix) and name.startswith(prefix) and name.endswith(suffix)


# ---------------------------------------------------------------- all settings of one destination


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationPolicy:
    """The settings of one destination.

    Attributes:
        prioritized_messages: queues and durable subscriptions deliver by priority, then by age.
        strict_order_dispatch: a queue fills the window of its first consumer before the next; False: in turn.
        all_consumers_exclusive_by_default: every consumer of a queue counts as exclusive.
        consumers_before_dispatch_starts: when the first consumer of a queue has come, wait for so many; 0: for none.
        time_before_dispatch_starts: milliseconds after which it does not wait any longer; 0: a second. It also waits so
            long if there is no number of consumers.
        use_consumer_priority: fill consumers of a higher priority before others.
        queue_prefetch: prefetch of a queue's consumers that request the default.
        queue_browser_prefetch: the same for browsers.
        max_browse_page_size: number of messages after which a browser gets the end of the queue; 0: after all.
        topic_prefetch: the prefetch of non-durable topic consumers.
        durable_topic_prefetch: the same for durable subscriptions.
        pending_message_limit: messages that may wait for a slow topic consumer outside its window; -1: no limit.
        pending_message_limit_multiplier: this limit as a multiple of the consumer's prefetch; None: not used.
            See `pending_limit`.
        message_eviction_strategy: which message is dropped when more wait.
        subscription_recovery_policy: which messages a topic keeps for retroactive consumers; None: none.
        memory_limit: memory of its messages above which producers are slowed down; 0: the broker's limit.
        producer_flow_control: slow producers down at a limit; False: accept all messages.
        send_fail_if_no_space: at a limit, refuse a send instead of delaying its answer.
        send_fail_if_no_space_after_timeout: refuse a send whose producer waits for the answer if there was no space for
            so many milliseconds; 0: never.
        always_retroactive: every consumer of a topic counts as retroactive.
        gc_inactive_destinations: remove the destination when it is inactive; None: unless the settings name it.
        inactive_timeout_before_gc: for how many milliseconds it must be inactive.
        expire_messages_period: milliseconds between sweeps for expired messages; 0: there are none; None: as often as
            the broker calls for one.
        max_redeliveries: number of strikes above which a message is dead-lettered; -1: never.
        dead_letter_strategy: what happens to messages that expire, or cannot be delivered.
        send_advisory_if_no_consumers: a non-persistent message without a consumer goes to an advisory topic.
        advisory_for_slow_consumers: send advisories about slow consumers.
        advisory_for_discarding_messages: send advisories about messages dropped for a slow topic consumer.
        advisory_for_fast_producers: send advisories about producers that reach a memory limit.
        advisory_when_full: send advisories about limits that are reached.
        advisory_for_delivery: send an advisory for each message accepted.
        advisory_for_consumed: send an advisory for each message acknowledged.
        include_body_for_advisory: messages in advisories keep their body.
        network_bridge_filter_factory: the filter of bridges that consume a queue; None: that of their connectors.
    """

    prioritized_messages: bool = False
    strict_order_dispatch: bool = False
    all_consumers_exclusive_by_default: bool = False
    consumers_before_dispatch_starts: int = 0
    time_before_dispatch_starts: int = 0
    use_consumer_priority: bool = True
    queue_prefetch: int = QUEUE_PREFETCH
    queue_browser_prefetch: int = BROWSER_PREFETCH
    max_browse_page_size: int = 0
    topic_prefetch: int = TOPIC_PREFETCH
    durable_topic_prefetch: int = DURABLE_PREFETCH
    pending_message_limit: int = 1000
    pending_message_limit_multiplier: float | None = None
    message_eviction_strategy: Eviction = Eviction.OLDEST
    subscription_recovery_policy: RecoveryPolicy | None = None
    memory_limit: int = 0
    producer_flow_control: bool = True
    send_fail_if_no_space: bool = False
    send_fail_if_no_space_after_timeout: int = 0
    always_retroactive: bool = False
    gc_inactive_destinations: bool | None = None
    inactive_timeout_before_gc: int = 300_000
    expire_messages_period: int | None = None
    max_redeliveries: int = 6
    dead_letter_strategy: AnyDeadLetterStrategy = SharedDeadLetterStrategy()
    send_advisory_if_no_consumers: bool = False
    advisory_for_slow_consumers: bool = False
    advisory_for_discarding_messages: bool = False
    advisory_for_fast_producers: bool = False
    advisory_when_full: bool = False
    advisory_for_delivery: bool = False
    advisory_for_consumed: bool = False
    include_body_for_advisory: bool = False
    network_bridge_filter_factory: ConditionalBridgeFilter | None = None

    def pending_limit(self, prefetch: int) -> int:
        """Return the number of messages that may wait for a slow topic consumer of that prefetch; -1: no limit."""
        if self.pending_message_limit_multiplier is None:
            return self.pending_message_limit
        return int(prefetch * self.pending_message_limit_multiplier)


# ---------------------------------------------------------------- the choice of an entry

T = TypeVar("T")


class PolicyEntry(NamedTuple):
    """The policy of a destination, or of all destinations that a pattern covers.

    Attributes:
        destination: a name or pattern. It covers only destinations of its type: temporary ones need entries of their
            own.
        policy: the policy.
    """

    destination: Destination
    policy: DestinationPolicy


class EntryMap(Generic[T]):
    """Entries by destination or pattern, and a default for destinations that no entry covers.

    One entry is chosen, and entries are not merged: the one with the exact name, or else the most specific pattern. A
    pattern is more specific than another that covers everything it covers: `A.B.*`, `A.B.>`, `A.*.>`, `A.>` and `>` are
    in this order. Of patterns that do not compare, such as `A.*.C` and `A.B.*`, the first in the alphabet is chosen; of
    equal ones, the last. This is the order that ActiveMQ documents. ActiveMQ 5.17 itself chooses `A.*.>` before
    `A.B.>`, and `A.>` before `A.*.>`.
    """

    __slots__ = ("_default", "_entries", "_patterns")

    def __init__(self, entries: Iterable[tuple[Destination, T]], default: T) -> None:
        self._default = default
        self._entries = dict(entries)
        self._patterns: PatternMap[Destination] = PatternMap()
        for pattern in sorted(destination for destination in self._entries if destination.is_pattern):
            self._patterns.add(pattern, pattern)

    def for_destination(self, destination: Destination) -> T:
        """Return the entry of a destination; callers that need it for each message should keep it."""
        exact = self._entries.get(destination)
        if exact is not None:
            return exact
        candidates = self._patterns.covering(destination)
        if not candidates:
            return self._default
        return self._entries[next(entry for entry in candidates if not _has_narrower(entry.name, candidates))]


class PolicyMap(EntryMap[DestinationPolicy]):
    """The policies of destinations."""

    __slots__ = ()

    def __init__(self, entries: Iterable[PolicyEntry] = (), default: DestinationPolicy | None = None) -> None:
        super().__init__(entries, default or DestinationPolicy())

    def any(self, asks: Callable[[DestinationPolicy], bool]) -> bool:
        """Return True if the policy of some destinations asks for something."""
        return asks(self._default) or any(map(asks, self._entries.values()))

    def names_for_dead_letters(self, destination: Destination) -> bool:
        """Return True if the dead letters of some destination would go to this one."""
        return self.any(lambda policy: _is_place(policy.dead_letter_strategy, destination))


def _is_place(strategy: AnyDeadLetterStrategy, destination: Destination) -> bool:
    return not isinstance(strategy, DiscardingDeadLetterStrategy) and strategy.is_place(destination)


def _has_narrower(pattern: str, candidates: Iterable[Destination]) -> bool:
    return any(covers(pattern, other.name) and not covers(other.name, pattern) for other in candidates)
