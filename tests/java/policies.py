"""The policies that both brokers get: once as pybroker's `[[policies]]` tables, once in StockBroker's short form."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """One entry.

    Attributes:
        name: "queue" or "topic" and the pattern.
        pybroker: attributes as TOML.
        activemq: the same, as `StockBroker.java` takes it.
    """

    name: str
    pybroker: str
    activemq: str = ""


SOON = "expireMessagesPeriod=100"
"""ActiveMQ looks for expired messages that often; pybroker's setting `expire_interval` is for all queues."""

ADVISORIES = (
    "send_advisory_if_no_consumers",
    "advisory_for_slow_consumers",
    "advisory_for_discarding_messages",
    "advisory_for_delivery",
    "advisory_for_consumed",
)


def _advising(name: str, pybroker: str = "", activemq: str = "") -> "Policy":
    """Return a policy that asks for all advisories."""
    stock = " ".join(f"{_camel(each)}=true" for each in ADVISORIES)
    return Policy(
        name, "\n".join((*(f"{each} = true" for each in ADVISORIES), pybroker)), f"{stock} {activemq}".rstrip()
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


POLICIES = (
    Policy("queue=Policies.prio.>", "prioritized_messages = true", "prioritizedMessages=true"),
    Policy("queue=Policies.strict.>", "strict_order_dispatch = true", "strictOrderDispatch=true"),
    Policy(
        "queue=Policies.exclusive.>", "all_consumers_exclusive_by_default = true", "allConsumersExclusiveByDefault=true"
    ),
    Policy("queue=Policies.prefetch.>", "queue_prefetch = 2", "queuePrefetch=2"),
    Policy(
        "queue=Policies.together.>",
        'consumers_before_dispatch_starts = 2\ntime_before_dispatch_starts = "1min"',
        "consumersBeforeDispatchStarts=2 timeBeforeDispatchStarts=60000",
    ),
    Policy("queue=Policies.later.>", 'time_before_dispatch_starts = "800ms"', "timeBeforeDispatchStarts=800"),
    Policy(
        "queue=Policies.impatient.>",
        'memory_limit = "200kb"\nsend_fail_if_no_space_after_timeout = "1s"',
        "memoryLimit=204800 sendFailIfNoSpaceAfterTimeout=1000",
    ),
    Policy("queue=Policies.alone.>", "consumers_before_dispatch_starts = 2", "consumersBeforeDispatchStarts=2"),
    Policy("queue=Policies.page.>", "max_browse_page_size = 3", "maxBrowsePageSize=3"),
    Policy("queue=Policies.shared.>", 'dead_letter_strategy = "shared"', f"deadLetterStrategy=shared {SOON}"),
    Policy(
        "queue=Policies.individual.>",
        'dead_letter_strategy = { type = "individual", queue_prefix = "ActiveMQ.DLQ.Queue." }',
        f"deadLetterStrategy=individual {SOON}",
    ),
    Policy(
        "queue=Policies.transient.>",
        'dead_letter_strategy = { type = "individual", process_non_persistent = true }',
        f"deadLetterStrategy=keep-non-persistent {SOON}",
    ),
    Policy(
        "queue=Policies.discarding.>",
        'dead_letter_strategy = "discarding"',
        f"deadLetterStrategy=discarding {SOON}",
    ),
    Policy(
        "queue=Policies.unexpired.>",
        'dead_letter_strategy = { type = "shared", process_expired = false }',
        f"deadLetterStrategy=discard-expired {SOON}",
    ),
    Policy(
        "topic=Policies.count.>",
        'subscription_recovery_policy = { type = "fixed_count", maximum_size = 3 }',
        "subscriptionRecoveryPolicy=count:3",
    ),
    Policy(
        "topic=Policies.last.>",
        'subscription_recovery_policy = "last_image"\nalways_retroactive = true',
        "subscriptionRecoveryPolicy=last alwaysRetroactive=true",
    ),
    Policy("topic=Policies.limit.>", "pending_message_limit_strategy = 5", "pendingMessageLimit=5"),
    _advising("queue=PolicyAdvisories.>"),
    _advising("topic=PolicyAdvisories.>", "pending_message_limit_strategy = 2", "pendingMessageLimit=2"),
    _advising("topic=PolicyAdvisories.slow.>", "pending_message_limit_strategy = 100", "pendingMessageLimit=100"),
    _advising("queue=PolicyAdvisories.body.>", "include_body_for_advisory = true", "includeBodyForAdvisory=true"),
)


def for_activemq() -> list[str]:
    """Return StockBroker's arguments."""
    return [f"{policy.name} {policy.activemq}" for policy in POLICIES]


def for_pybroker() -> str:
    """Return the configuration file's tables."""
    tables = []
    for policy in POLICIES:
        kind, _, pattern = policy.name.partition("=")
        tables.append(f'[[policies]]\n{kind} = "{pattern}"\n{policy.pybroker}\n')
    return "\n".join(tables)
