"""The configuration's tables that change what happens to every message.

```toml
[time_stamping]
ttl_ceiling = "1h"

[[redelivery.policies]]
queue = "ORDERS.>"
maximum_redeliveries = 4
```

Names are those of ActiveMQ's plugins and of its `redeliveryPolicy` in snake case.
"""

from typing import Any

from pybroker.broker.app.setting import (
    Read,
    Setting,
    Table,
    listed,
    milliseconds,
    named,
    number,
    tables,
    text,
    whole,
    yes_or_no,
)
from pybroker.broker.core.arrival_rules import TimeStamping
from pybroker.broker.core.deadletter import DiscardedLetters
from pybroker.broker.core.policy import EntryMap
from pybroker.broker.core.redelivery import RedeliveryPolicy, RedeliveryRules
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.linear_expression import LinearExpression

_DELAY_MS_MIN = 1000
_DELAY_MS_MAX = 2**31 - 1

_FLAG = Setting(yes_or_no)
_LIFETIME = Setting(milliseconds, least=0)

TIME_STAMPING = Table(
    TimeStamping,
    {
        "zero_expiration_override": _LIFETIME,
        "ttl_ceiling": _LIFETIME,
        "future_only": _FLAG,
        "process_network_messages": _FLAG,
    },
)
"""The `[time_stamping]` table."""


def _delay(value: object) -> int:
    delay = milliseconds(value)
    if not _DELAY_MS_MIN <= delay <= _DELAY_MS_MAX:
        raise ValueError("it must be at least 1s, as in ActiveMQ, and at most 24d")
    return delay


def _redelivery_policy(queue: str = "", **given: Any) -> tuple[Destination | None, RedeliveryPolicy]:
    return named(DestinationType.QUEUE, queue) if queue else None, RedeliveryPolicy(**given)


REDELIVERY_POLICY = Table(
    _redelivery_policy,
    {
        "queue": Setting(text),
        "maximum_redeliveries": Setting(whole, least=-1, most=1_000_000),
        "initial_redelivery_delay": Setting(_delay),
        "redelivery_delay": Setting(_delay),
        "use_exponential_back_off": _FLAG,
        "back_off_multiplier": Setting(number, least=1, most=1000),
        "maximum_redelivery_delay": Setting(_delay),
        "use_collision_avoidance": _FLAG,
        "collision_avoidance_percent": Setting(whole, least=0, most=100),
    },
    ("topic", "pre_dispatch_check", "temp_queue", "temp_topic"),
)
"""A `[[redelivery.policies]]` table."""


def _redelivery(
    policies: tuple[tuple[Destination | None, RedeliveryPolicy], ...] = (), **given: bool
) -> RedeliveryRules:
    default: RedeliveryPolicy | None = None
    entries: list[tuple[Destination, RedeliveryPolicy | None]] = []
    for destination, policy in policies:
        if destination is None:
            default = policy
        else:
            entries.append((destination, policy))
    return RedeliveryRules(policies=EntryMap(entries, default), **given)


REDELIVERY = Table(
    _redelivery,
    {
        "policies": Setting(tables(REDELIVERY_POLICY, "redelivery.policies")),
        "send_to_dlq_if_max_retries_exceeded": _FLAG,
        "fallback_to_dead_letter": _FLAG,
    },
)
"""The `[redelivery]` table."""


_PATTERNS_MAX = 50


def _pattern(value: object) -> LinearExpression:
    given = text(value)
    try:
        return LinearExpression(given)
    except ValueError as error:
        raise ValueError(f"{given!r} is no valid regular expression: {error}") from error


def _patterns(value: object) -> tuple[LinearExpression, ...]:
    """Return expressions: a list, or a text with blanks between them, as in ActiveMQ."""
    found = listed(_pattern, "expression", "write a list of expressions")(
        value.split() if isinstance(value, str) else value
    )
    if len(found) > _PATTERNS_MAX:
        raise ValueError(f"at most {_PATTERNS_MAX} expressions are allowed; given were {len(found)}")
    return found


def _discarded_letters(**given: Any) -> DiscardedLetters:
    letters = DiscardedLetters(**given)
    if letters.drop_only and letters.drop_all:
        raise ValueError("drop_only goes with drop_all = false: else all dead letters are dropped")
    return letters


DISCARDING_DEAD_LETTERS = Table(
    _discarded_letters,
    {
        "drop_all": _FLAG,
        "drop_temporary_topics": _FLAG,
        "drop_temporary_queues": _FLAG,
        "drop_only": Setting(_patterns),
    },
    ("report_interval",),
)
"""The `[discarding_dead_letters]` table."""


def _optional(table: Table[Any], *, is_empty_allowed: bool) -> Read:
    """Return the reader of a table that need not be; True is one without attributes, if that makes sense."""

    def read(value: object) -> Any:
        try:
            return None if value is False else table.read({} if value is True and is_empty_allowed else value)
        except ConfigError as error:  # with the attribute, which is not the setting
            raise ValueError(str(error)) from error

    return read


READERS = {
    "time_stamping": _optional(TIME_STAMPING, is_empty_allowed=True),
    "discarding_dead_letters": _optional(DISCARDING_DEAD_LETTERS, is_empty_allowed=True),
    "redelivery": _optional(REDELIVERY, is_empty_allowed=False),
}
"""The readers of these settings."""
