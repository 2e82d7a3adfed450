"""Per-destination policies: the rules an operator sets for a destination or a wildcard of them.

Names and defaults are those of ActiveMQ's `policyEntry` in snake case, where there is such a thing. Here are values
only, and the choice among them; what they mean is done where messages are: `queue`, `topic`, `recovery`, `deadletter`.

Source: ActiveMQ 5.17, `PolicyEntry`, `PolicyMap`.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pybroker.broker.domain.destination import Destination, DestinationType, covers, matches, queue
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
"""What a topic keeps for retroactive consumers; all of it in memory."""


class Eviction(enum.Enum):
    """Who goes when too many messages wait for a slow topic consumer (`messageEvictionStrategy`)."""

    OLDEST = "oldest"
    OLDEST_WITH_LOWEST_PRIORITY = "oldest_with_lowest_priority"


# ---------------------------------------------------------------- where dead letters go


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterStrategy:
    """What all strategies have in common.

    Attributes:
        process_expired: keep messages whose time is over; False: drop them.
        process_non_persistent: keep non-persistent messages too, as persistent ones.
        enable_audit: the same message id is put on the same dead letter queue once only; a second time it is dropped.
        max_audit_depth: how many sequence numbers of one producer the audit remembers.
        max_producers_to_audit: of how many producers.
        expiration: milliseconds a dead letter lives; 0 for ever.
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
    """All dead letters go to one place, by default the queue `ActiveMQ.DLQ`."""

    dead_letter_queue: Destination = _SHARED_QUEUE

    def place_for(self, destination: Destination, subscription_key: str | None = None) -> Destination:
        """Return where dead letters of a destination go."""
        return self.dead_letter_queue

    def is_place(self, destination: Destination) -> bool:
        """Tell whether what dies there is already a dead letter."""
        return destination == self.dead_letter_queue


@dataclass(frozen=True, slots=True, kw_only=True)
class IndividualDeadLetterStrategy(DeadLetterStrategy):
    """Each destination has its own: prefix, its name, suffix.

    Attributes:
        queue_prefix: before a queue's name.
        queue_suffix: behind a queue's name.
        topic_prefix: before a topic's name.
        topic_suffix: behind a topic's name.
        use_queue_for_queue_messages: a queue's letters go to a queue; False: to a topic, where they are lost if nobody
            listens.
        use_queue_for_topic_messages: the same for a topic's.
        destination_per_durable_subscriber: a dot and the subscription's key come behind the topic's name.
    """

    queue_prefix: str = "ActiveMQ.DLQ.Queue."
    queue_suffix: str = ""
    topic_prefix: str = "ActiveMQ.DLQ.Topic."
    topic_suffix: str = ""
    use_queue_for_queue_messages: bool = True
    use_queue_for_topic_messages: bool = True
    destination_per_durable_subscriber: bool = False

    def place_for(self, destination: Destination, subscription_key: str | None = None) -> Destination:
        """Return where dead letters of a destination, or of one durable subscription to it, go."""
        if destination.is_queue:
            kind = _kind(self.use_queue_for_queue_messages)
            return Destination(kind, self.queue_prefix + destination.name + self.queue_suffix)
        name = self.topic_prefix + destination.name
        if subscription_key is not None and self.destination_per_durable_subscriber:
            name += "." + subscription_key
        return Destination(_kind(self.use_queue_for_topic_messages), name + self.topic_suffix)

    def is_place(self, destination: Destination) -> bool:
        """Tell whether what dies there is already a dead letter, by its name."""
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


# ---------------------------------------------------------------- all rules for one destination


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationPolicy:
    """The rules for one destination.

    Attributes:
        prioritized_messages: queues and durable subscriptions hand out by priority, then by age.
        strict_order_dispatch: a queue fills its first consumer before the next instead of taking turns.
        all_consumers_exclusive_by_default: every consumer of a queue counts as exclusive.
        queue_prefetch: window of a queue's consumers that asked for the default.
        queue_browser_prefetch: the same of browsers.
        topic_prefetch: the same of non-durable topic consumers.
        durable_topic_prefetch: the same of durable subscriptions.
        pending_message_limit: messages that may wait for a slow topic consumer beyond its window; -1 without limit.
        pending_message_limit_multiplier: the limit as a multiple of the consumer's prefetch instead; None: not so.
            See `pending_limit`.
        message_eviction_strategy: which of them goes when there are more.
        subscription_recovery_policy: what a topic keeps for retroactive consumers; None: nothing.
        memory_limit: bytes its messages may take in memory before producers are slowed down; 0: the broker's limit.
        producer_flow_control: slow producers down at a limit; False: accept on.
        send_fail_if_no_space: at a limit, refuse a send instead of having it wait.
        always_retroactive: every consumer of a topic counts as retroactive.
        gc_inactive_destinations: remove the destination when nothing has used it for a while.
        inactive_timeout_before_gc: for how many milliseconds.
        max_redeliveries: how often a message may come back from consumers that left it; -1 for ever.
        dead_letter_strategy: where messages go that nobody could use.
        send_advisory_if_no_consumers: a non-persistent message that nobody consumes goes to an advisory topic.
        advisory_for_slow_consumers: tell of consumers that fall behind.
        advisory_for_discarding_messages: tell of messages dropped for a slow topic consumer.
        advisory_when_full: tell of a limit that is reached.
        advisory_for_delivery: tell of each message accepted.
        advisory_for_consumed: tell of each message acknowledged.
        include_body_for_advisory: messages in advisories keep their body.
    """

    prioritized_messages: bool = False
    strict_order_dispatch: bool = False
    all_consumers_exclusive_by_default: bool = False
    queue_prefetch: int = QUEUE_PREFETCH
    queue_browser_prefetch: int = BROWSER_PREFETCH
    topic_prefetch: int = TOPIC_PREFETCH
    durable_topic_prefetch: int = DURABLE_PREFETCH
    pending_message_limit: int = 1000
    pending_message_limit_multiplier: float | None = None
    message_eviction_strategy: Eviction = Eviction.OLDEST
    subscription_recovery_policy: RecoveryPolicy | None = None
    memory_limit: int = 0
    producer_flow_control: bool = True
    send_fail_if_no_space: bool = False
    always_retroactive: bool = False
    gc_inactive_destinations: bool = True
    inactive_timeout_before_gc: int = 300_000
    max_redeliveries: int = 6
    dead_letter_strategy: AnyDeadLetterStrategy = SharedDeadLetterStrategy()
    send_advisory_if_no_consumers: bool = False
    advisory_for_slow_consumers: bool = False
    advisory_for_discarding_messages: bool = False
    advisory_when_full: bool = False
    advisory_for_delivery: bool = False
    advisory_for_consumed: bool = False
    include_body_for_advisory: bool = False

    def pending_limit(self, prefetch: int) -> int:
        """Return how many messages may wait for a slow topic consumer of that prefetch; -1 without limit."""
        if self.pending_message_limit_multiplier is None:
            return self.pending_message_limit
        return int(prefetch * self.pending_message_limit_multiplier)


# ---------------------------------------------------------------- which rules are whose


class PolicyEntry(NamedTuple):
    """Rules for a destination or for all that a pattern covers.

    Attributes:
        destination: its name may be a pattern. It covers destinations of its own type only: temporary ones need entries
            of theirs.
        policy: the rules.
    """

    destination: Destination
    policy: DestinationPolicy


class PolicyMap:
    """All entries, and the rules for what none of them covers.

    One entry is chosen, entries are not merged: that of the exact name, else the most specific pattern. A pattern is
    more specific than another that covers all it covers: `A.B.*`, `A.B.>`, `A.*.>`, `A.>` and `>` in this order. Among
    patterns that do not compare, such as `A.*.C` and `A.B.*`, the alphabet decides; of two equal ones the last counts.
    The order is ActiveMQ's intention. ActiveMQ 5.17 itself takes `A.*.>` before `A.B.>`, and `A.>` before `A.*.>`.
    """

    __slots__ = ("_default", "_patterns", "_policies")

    def __init__(self, entries: Iterable[PolicyEntry] = (), default: DestinationPolicy | None = None) -> None:
        self._default = default or DestinationPolicy()
        self._policies = {entry.destination: entry.policy for entry in entries}
        self._patterns = sorted(destination for destination in self._policies if destination.is_pattern)

    def for_destination(self, destination: Destination) -> DestinationPolicy:
        """Return the rules for a destination. Compares it with every pattern: remember what it returns."""
        exact = self._policies.get(destination)
        if exact is not None:
            return exact
        kind, name = destination
        candidates = [pattern for pattern in self._patterns if pattern.type is kind and matches(pattern.name, name)]
        if not candidates:
            return self._default
        return self._policies[next(entry for entry in candidates if not _has_narrower(entry.name, candidates))]


def _has_narrower(pattern: str, candidates: Iterable[Destination]) -> bool:
    return any(covers(pattern, other.name) and not covers(other.name, pattern) for other in candidates)
