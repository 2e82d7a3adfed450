"""The configuration's `[[policies]]` tables, and their conversion to the core's policies.

```toml
[[policies]]
queue = "ORDERS.>"
dead_letter_strategy = { type = "individual", queue_prefix = "DLQ." }
```

Names are those of ActiveMQ's `policyEntry` in snake case; an element with attributes is a table with a type.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from pybroker.broker.app.tables import Milliseconds, SettingsTable, Size, attempt, named, single, tables, typed
from pybroker.broker.core.policy import (
    AnyDeadLetterStrategy,
    DestinationPolicy,
    DiscardingDeadLetterStrategy,
    Eviction,
    FixedCountRecovery,
    FixedSizeRecovery,
    IndividualDeadLetterStrategy,
    LastImageRecovery,
    PolicyEntry,
    PolicyMap,
    RecoveryPolicy,
    SharedDeadLetterStrategy,
    TimedRecovery,
)
from pybroker.broker.domain.destination import Destination, DestinationType, parse

_INT_MAX = 2**31 - 1

_Prefetch = Annotated[int, Field(ge=0, le=_INT_MAX)]
_Limit = Annotated[int, Field(ge=-1, le=_INT_MAX)]


# ---------------------------------------------------------------- nested tables


class _DeadLetterTable(SettingsTable):
    process_expired: bool = True
    process_non_persistent: bool = False
    enable_audit: bool = True
    max_audit_depth: int = Field(0, ge=1, le=1_000_000)
    max_producers_to_audit: int = Field(0, ge=1, le=100_000)
    expiration: Milliseconds = 0


class SharedDeadLetterTable(_DeadLetterTable):
    """One dead letter queue for all destinations."""

    type: Literal["shared"]
    dead_letter_queue: str = ""

    def strategy(self) -> SharedDeadLetterStrategy:
        """Return the core's value."""
        given = self.given("type")
        if self.dead_letter_queue:
            given["dead_letter_queue"] = single(parse(self.dead_letter_queue))
        return SharedDeadLetterStrategy(**given)

    @model_validator(mode="after")
    def _can_be_made(self) -> "SharedDeadLetterTable":
        attempt(self.strategy)
        return self


class IndividualDeadLetterTable(_DeadLetterTable):
    """A separate dead letter queue for each destination."""

    type: Literal["individual"]
    queue_prefix: str = ""
    queue_suffix: str = ""
    topic_prefix: str = ""
    topic_suffix: str = ""
    use_queue_for_queue_messages: bool = True
    use_queue_for_topic_messages: bool = True
    destination_per_durable_subscriber: bool = False

    def strategy(self) -> IndividualDeadLetterStrategy:
        """Return the core's value."""
        return IndividualDeadLetterStrategy(**self.given("type"))

    @model_validator(mode="after")
    def _names_differ(self) -> "IndividualDeadLetterTable":
        strategy = self.strategy()
        if not (strategy.queue_prefix or strategy.queue_suffix):
            raise ValueError("queue_prefix or queue_suffix must be set, else a queue is its own dead letter queue")
        if not (strategy.topic_prefix or strategy.topic_suffix):
            raise ValueError("topic_prefix or topic_suffix must be set, else any queue counts as a dead letter queue")
        return self


class DiscardingDeadLetterTable(SettingsTable):
    """No dead letters."""

    type: Literal["discarding"]

    def strategy(self) -> DiscardingDeadLetterStrategy:
        """Return the core's value."""
        return DiscardingDeadLetterStrategy()


class FixedCountTable(SettingsTable):
    """The last messages."""

    type: Literal["fixed_count"]
    maximum_size: int = Field(FixedCountRecovery().maximum_size, ge=1, le=1_000_000)

    def policy(self) -> RecoveryPolicy:
        """Return the core's value."""
        return FixedCountRecovery(self.maximum_size)


class FixedSizedTable(SettingsTable):
    """The last messages, up to a number of bytes."""

    type: Literal["fixed_sized"]
    maximum_size: Annotated[Size, Field(ge=1)] = FixedSizeRecovery().maximum_bytes

    def policy(self) -> RecoveryPolicy:
        """Return the core's value."""
        return FixedSizeRecovery(self.maximum_size)


class LastImageTable(SettingsTable):
    """The last message."""

    type: Literal["last_image"]

    def policy(self) -> RecoveryPolicy:
        """Return the core's value."""
        return LastImageRecovery()


class TimedTable(SettingsTable):
    """The messages of a recent period."""

    type: Literal["timed"]
    recover_duration: Annotated[Milliseconds, Field(ge=1)] = TimedRecovery().milliseconds

    def policy(self) -> RecoveryPolicy:
        """Return the core's value."""
        return TimedRecovery(self.recover_duration)


class NoRecoveryTable(SettingsTable):
    """No recovery of messages."""

    type: Literal["no"]

    def policy(self) -> RecoveryPolicy | None:
        """Return the core's value."""
        return None


class ConstantLimitTable(SettingsTable):
    """A number of messages."""

    type: Literal["constant"]
    limit: _Limit = -1

    def fields(self) -> dict[str, Any]:
        """Return the core's fields."""
        return {"pending_message_limit": self.limit, "pending_message_limit_multiplier": None}


class PrefetchRateLimitTable(SettingsTable):
    """A multiple of the consumer's prefetch."""

    type: Literal["prefetch_rate"]
    multiplier: float = Field(0.5, ge=0, le=1000, allow_inf_nan=False)

    def fields(self) -> dict[str, Any]:
        """Return the core's fields."""
        return {"pending_message_limit_multiplier": self.multiplier}


class EvictionTable(SettingsTable):
    """The order of eviction."""

    type: Literal["oldest", "oldest_with_lowest_priority"]


def _limit_typed(value: object) -> object:
    """Expand a bare number to a constant limit."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"type": "constant", "limit": value}
    return typed(value)


_Discriminator = Field(discriminator="type")
_DeadLetterStrategy = Annotated[
    Annotated[SharedDeadLetterTable | IndividualDeadLetterTable | DiscardingDeadLetterTable, _Discriminator],
    BeforeValidator(typed),
]
_Recovery = Annotated[
    Annotated[FixedCountTable | FixedSizedTable | LastImageTable | TimedTable | NoRecoveryTable, _Discriminator],
    BeforeValidator(typed),
]
_PendingLimit = Annotated[
    Annotated[ConstantLimitTable | PrefetchRateLimitTable, _Discriminator], BeforeValidator(_limit_typed)
]
_Eviction = Annotated[EvictionTable, BeforeValidator(typed)]


# ---------------------------------------------------------------- the table


_NOT_SERVED = frozenset(
    (
        "advisory_for_fast_producers",
        "blocked_producer_warning_interval",
        "consumers_before_dispatch_starts",
        "cursor_memory_high_water_mark",
        "dispatch_policy",
        "do_optimze_message_storage",
        "enable_audit",
        "expire_messages_period",
        "gc_with_network_consumers",
        "inactive_timout_before_gc",
        "lazy_dispatch",
        "max_audit_depth",
        "max_browse_page_size",
        "max_destinations",
        "max_expire_page_size",
        "max_page_size",
        "max_producers_to_audit",
        "max_queue_audit_depth",
        "message_group_map_factory",
        "message_group_map_factory_type",
        "minimum_message_size",
        "network_bridge_filter_factory",
        "optimize_message_store_in_flight_limit",
        "optimized_dispatch",
        "pending_durable_subscriber_policy",
        "pending_queue_policy",
        "pending_subscriber_policy",
        "persist_jms_redelivered",
        "reduce_memory_footprint",
        "send_duplicate_from_store_to_dlq",
        "send_fail_if_no_space_after_timeout",
        "slow_consumer_strategy",
        "store_usage_high_water_mark",
        "time_before_dispatch_starts",
        "use_cache",
        "use_consumer_priority",
        "use_prefetch_extension",
        "use_topic_subscription_inflight_stats",
    )
)


class PolicyTable(SettingsTable):
    """One `[[policies]]` table. Attributes that are not set are None, and keep the defaults of the policy."""

    not_served: ClassVar[Collection[str]] = _NOT_SERVED

    queue: str | None = None
    topic: str | None = None
    temp_queue: str | None = None
    temp_topic: str | None = None
    prioritized_messages: bool | None = None
    strict_order_dispatch: bool | None = None
    all_consumers_exclusive_by_default: bool | None = None
    queue_prefetch: _Prefetch | None = None
    queue_browser_prefetch: _Prefetch | None = None
    topic_prefetch: _Prefetch | None = None
    durable_topic_prefetch: _Prefetch | None = None
    pending_message_limit_strategy: _PendingLimit | None = None
    message_eviction_strategy: _Eviction | None = None
    subscription_recovery_policy: _Recovery | None = None
    memory_limit: Size | None = None
    producer_flow_control: bool | None = None
    send_fail_if_no_space: bool | None = None
    always_retroactive: bool | None = None
    gc_inactive_destinations: bool | None = None
    inactive_timeout_before_gc: Annotated[Milliseconds, Field(ge=1)] | None = None
    max_redeliveries: Annotated[int, Field(ge=-1, le=1_000_000)] | None = None
    dead_letter_strategy: _DeadLetterStrategy | None = None
    send_advisory_if_no_consumers: bool | None = None
    advisory_for_slow_consumers: bool | None = None
    advisory_for_discarding_messages: bool | None = None
    advisory_when_full: bool | None = None
    advisory_for_delivery: bool | None = None
    advisory_for_consumed: bool | None = None
    include_body_for_advisory: bool | None = None

    @model_validator(mode="after")
    def _has_one_destination(self) -> "PolicyTable":
        named = [name for name in _KINDS if getattr(self, name) is not None]
        if len(named) > 1:
            raise ValueError(f"{named[0]} and {named[1]} are both set: write a table for each")
        attempt(lambda: self.destination)
        return self

    @property
    def destination(self) -> Destination | None:
        """The destination of these rules; None for all without other rules."""
        for name, kind in _KINDS.items():
            text = getattr(self, name)
            if text is not None:
                return named(kind, text)
        return None

    def policy(self, defaults: DestinationPolicy) -> DestinationPolicy:
        """Return the policy.

        Args:
            defaults: the value of each attribute that the table does not set.
        """
        fields = self.given(*_KINDS, *_STRATEGIES)
        if self.pending_message_limit_strategy is not None:
            fields |= self.pending_message_limit_strategy.fields()
        if self.message_eviction_strategy is not None:
            fields["message_eviction_strategy"] = Eviction(self.message_eviction_strategy.type)
        if self.subscription_recovery_policy is not None:
            fields["subscription_recovery_policy"] = self.subscription_recovery_policy.policy()
        if self.dead_letter_strategy is not None:
            strategy: AnyDeadLetterStrategy = self.dead_letter_strategy.strategy()
            fields["dead_letter_strategy"] = strategy
        return replace(defaults, **fields)


_KINDS: Mapping[str, DestinationType] = {
    "queue": DestinationType.QUEUE,
    "topic": DestinationType.TOPIC,
    "temp_queue": DestinationType.TEMP_QUEUE,
    "temp_topic": DestinationType.TEMP_TOPIC,
}
_STRATEGIES = (
    "pending_message_limit_strategy",
    "message_eviction_strategy",
    "subscription_recovery_policy",
    "dead_letter_strategy",
)


read_policies = tables(PolicyTable, "policies")
"""Reads the setting `policies`."""


def policy_map(tables: Sequence[PolicyTable], defaults: DestinationPolicy) -> PolicyMap:
    """Return the policies.

    Args:
        tables: the tables in their order; the last one without a destination is the default entry.
        defaults: the values of attributes that a table does not set, and the default entry if there is no such table.
    """
    entries: list[PolicyEntry] = []
    default = defaults
    for table in tables:
        policy = table.policy(defaults)
        if table.destination is None:
            default = policy
        else:
            entries.append(PolicyEntry(table.destination, policy))
    return PolicyMap(entries, default)
