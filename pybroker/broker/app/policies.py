"""The configuration's `[[policies]]` tables, and their conversion to the core's policies.

```toml
[[policies]]
queue = "ORDERS.>"
dead_letter_strategy = { type = "individual", queue_prefix = "DLQ." }
```

Names are those of ActiveMQ's `policyEntry` in snake case; an element with attributes is a table with a type.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pybroker.broker.app.setting import (
    Setting,
    Table,
    milliseconds,
    named,
    number,
    one_of,
    single,
    tables,
    text,
    whole,
    yes_or_no,
)
from pybroker.broker.core.policy import (
    DestinationPolicy,
    DiscardingDeadLetterStrategy,
    Eviction,
    FixedCountRecovery,
    FixedSizeRecovery,
    IndividualDeadLetterStrategy,
    LastImageRecovery,
    PolicyEntry,
    PolicyMap,
    SharedDeadLetterStrategy,
    TimedRecovery,
)
from pybroker.broker.domain.destination import Destination, DestinationType, parse
from pybroker.broker.domain.network.bridge_filter import ConditionalBridgeFilter
from pybroker.units import parse_size as size

_INT_MAX = 2**31 - 1

_FLAG = Setting(yes_or_no)
_TEXT = Setting(text)
_PREFETCH = Setting(whole, least=0, most=_INT_MAX)


# ---------------------------------------------------------------- nested tables


def _individual(**given: Any) -> IndividualDeadLetterStrategy:
    strategy = IndividualDeadLetterStrategy(**given)
    if not (strategy.queue_prefix or strategy.queue_suffix):
        raise ValueError("queue_prefix or queue_suffix must be set, else a queue is its own dead letter queue")
    if not (strategy.topic_prefix or strategy.topic_suffix):
        raise ValueError("topic_prefix or topic_suffix must be set, else any queue counts as a dead letter queue")
    return strategy


def _shared(**given: Any) -> SharedDeadLetterStrategy:
    if "dead_letter_queue" in given:
        given["dead_letter_queue"] = single(parse(given["dead_letter_queue"]))
    return SharedDeadLetterStrategy(**given)


_DEAD_LETTERS = {
    "process_expired": _FLAG,
    "process_non_persistent": _FLAG,
    "enable_audit": _FLAG,
    "max_audit_depth": Setting(whole, least=1, most=1_000_000),
    "max_producers_to_audit": Setting(whole, least=1, most=100_000),
    "expiration": Setting(milliseconds),
}

DEAD_LETTER_STRATEGIES = {
    "shared": Table(_shared, _DEAD_LETTERS | {"dead_letter_queue": _TEXT}),
    "individual": Table(
        _individual,
        _DEAD_LETTERS
        | dict.fromkeys(("queue_prefix", "queue_suffix", "topic_prefix", "topic_suffix"), _TEXT)
        | dict.fromkeys(
            ("use_queue_for_queue_messages", "use_queue_for_topic_messages", "destination_per_durable_subscriber"),
            _FLAG,
        ),
    ),
    "discarding": Table(DiscardingDeadLetterStrategy),
}
"""The dead letter strategies, by the type that names them in the configuration."""


def _fixed_sized(maximum_size: int = FixedSizeRecovery().maximum_bytes) -> FixedSizeRecovery:
    return FixedSizeRecovery(maximum_size)


def _timed(recover_duration: int = TimedRecovery().milliseconds) -> TimedRecovery:
    return TimedRecovery(recover_duration)


_recovery = one_of(
    {
        "fixed_count": Table(FixedCountRecovery, {"maximum_size": Setting(whole, least=1, most=1_000_000)}),
        "fixed_sized": Table(_fixed_sized, {"maximum_size": Setting(size, least=1)}),
        "last_image": Table(LastImageRecovery),
        "timed": Table(_timed, {"recover_duration": Setting(milliseconds, above=0)}),
        "no": Table(lambda: None),
    }
)


def _constant(limit: int = -1) -> dict[str, Any]:
    return {"pending_message_limit": limit, "pending_message_limit_multiplier": None}


def _prefetch_rate(multiplier: float = 0.5) -> dict[str, Any]:
    return {"pending_message_limit_multiplier": multiplier}


_LIMITS = one_of(
    {
        "constant": Table(_constant, {"limit": Setting(whole, least=-1, most=_INT_MAX)}),
        "prefetch_rate": Table(_prefetch_rate, {"multiplier": Setting(number, least=0, most=1000)}),
    }
)


def _pending_limit(value: object) -> dict[str, Any]:
    """Return the core's fields; a bare number is a constant limit."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    fields: dict[str, Any] = _LIMITS({"type": "constant", "limit": value} if is_number else value)
    return fields


_PERIOD_MS_MIN = 1000  # each sweep visits all destinations


def _period(value: object) -> int:
    period = milliseconds(value)
    if 0 < period < _PERIOD_MS_MIN or period < 0:
        raise ValueError("it must be 0, or at least 1s")
    return period


_BRIDGE_FILTERS = one_of(
    {
        "conditional": Table(
            ConditionalBridgeFilter,
            {
                "replay_when_no_consumers": _FLAG,
                "replay_delay": Setting(milliseconds, least=0),
                "rate_limit": Setting(whole, least=0, most=_INT_MAX),
                "rate_duration": Setting(milliseconds, above=0),
                "selector_aware": _FLAG,
            },
        ),
        "default": Table(ConditionalBridgeFilter),
    }
)


# ---------------------------------------------------------------- the table


class Policy(NamedTuple):
    """One `[[policies]]` table.

    Attributes:
        destination: the destination of these rules; None for all without other rules.
        fields: the fields of `DestinationPolicy` that the table sets.
    """

    destination: Destination | None
    fields: Mapping[str, Any]


_KINDS = {
    "queue": DestinationType.QUEUE,
    "topic": DestinationType.TOPIC,
    "temp_queue": DestinationType.TEMP_QUEUE,
    "temp_topic": DestinationType.TEMP_TOPIC,
}


def _policy(**given: Any) -> Policy:
    kinds = [name for name in _KINDS if name in given]
    if len(kinds) > 1:
        raise ValueError(f"{kinds[0]} and {kinds[1]} are both set: write a table for each")
    destination = named(_KINDS[kinds[0]], given.pop(kinds[0])) if kinds else None
    return Policy(destination, given | given.pop("pending_message_limit_strategy", {}))


_NOT_SERVED = frozenset(
    (
        "blocked_producer_warning_interval",
        "cursor_memory_high_water_mark",
        "dispatch_policy",
        "do_optimze_message_storage",
        "enable_audit",
        "gc_with_network_consumers",
        "lazy_dispatch",
        "max_audit_depth",
        "max_destinations",
        "max_expire_page_size",
        "max_page_size",
        "max_producers_to_audit",
        "max_queue_audit_depth",
        "message_group_map_factory",
        "message_group_map_factory_type",
        "minimum_message_size",
        "optimize_message_store_in_flight_limit",
        "optimized_dispatch",
        "pending_durable_subscriber_policy",
        "pending_queue_policy",
        "pending_subscriber_policy",
        "persist_jms_redelivered",
        "reduce_memory_footprint",
        "send_duplicate_from_store_to_dlq",
        "slow_consumer_strategy",
        "store_usage_high_water_mark",
        "use_cache",
        "use_prefetch_extension",
        "use_topic_subscription_inflight_stats",
    )
)


POLICY = Table(
    _policy,
    {
        **dict.fromkeys(_KINDS, _TEXT),
        "prioritized_messages": _FLAG,
        "strict_order_dispatch": _FLAG,
        "all_consumers_exclusive_by_default": _FLAG,
        "consumers_before_dispatch_starts": Setting(whole, least=0, most=_INT_MAX),
        "time_before_dispatch_starts": Setting(milliseconds, least=0),
        "use_consumer_priority": _FLAG,
        "queue_prefetch": _PREFETCH,
        "queue_browser_prefetch": _PREFETCH,
        "max_browse_page_size": Setting(whole, least=0, most=_INT_MAX),
        "topic_prefetch": _PREFETCH,
        "durable_topic_prefetch": _PREFETCH,
        "pending_message_limit_strategy": Setting(_pending_limit),
        "message_eviction_strategy": Setting(one_of({each.value: Table(partial(Eviction, each)) for each in Eviction})),
        "subscription_recovery_policy": Setting(_recovery),
        "memory_limit": Setting(size),
        "producer_flow_control": _FLAG,
        "send_fail_if_no_space": _FLAG,
        "send_fail_if_no_space_after_timeout": Setting(milliseconds, least=0),
        "always_retroactive": _FLAG,
        "gc_inactive_destinations": _FLAG,
        "inactive_timeout_before_gc": Setting(milliseconds, above=0),
        "expire_messages_period": Setting(_period),
        "max_redeliveries": Setting(whole, least=-1, most=1_000_000),
        "dead_letter_strategy": Setting(one_of(DEAD_LETTER_STRATEGIES)),
        "send_advisory_if_no_consumers": _FLAG,
        "advisory_for_slow_consumers": _FLAG,
        "advisory_for_discarding_messages": _FLAG,
        "advisory_for_fast_producers": _FLAG,
        "advisory_when_full": _FLAG,
        "advisory_for_delivery": _FLAG,
        "advisory_for_consumed": _FLAG,
        "include_body_for_advisory": _FLAG,
        "network_bridge_filter_factory": Setting(_BRIDGE_FILTERS),
    },
    _NOT_SERVED,
)
"""A `[[policies]]` table."""

read_policies = tables(POLICY, "policies")
"""Reads the setting `policies`."""


def policy_map(policies: Sequence[Policy], defaults: DestinationPolicy) -> PolicyMap:
    """Return the policies.

    Args:
        policies: the tables in their order; the last one without a destination is the default entry.
        defaults: the values of attributes that a table does not set, and the default entry if there is no such table.
    """
    entries: list[PolicyEntry] = []
    default = defaults
    for destination, fields in policies:
        policy = replace(defaults, **fields)
        if destination is None:
            default = policy
        else:
            entries.append(PolicyEntry(destination, policy))
    return PolicyMap(entries, default)
