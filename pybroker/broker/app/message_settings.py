"""The settings about destinations, and those that change what happens to every message.

ActiveMQ has them as policies, as interceptors of destinations, and as plugins of the broker. They are settings of
`Config` like all others. The readers of tables are imported, with the core, when one is needed.
"""

from typing import TYPE_CHECKING, Any

from pybroker.broker.app.setting import Read, choice, declared
from pybroker.units import parse_duration as duration

if TYPE_CHECKING:  # imported when a file has tables
    from pybroker.broker.app.policies import Policy
    from pybroker.broker.core.arrival_rules import TimeStamping
    from pybroker.broker.core.deadletter import DiscardedLetters
    from pybroker.broker.core.redelivery import RedeliveryRules
    from pybroker.broker.core.virtual import CompositeDestination, MirroredQueues, VirtualTopic
    from pybroker.broker.domain.destination import Destination

MESSAGE_TABLES = (
    "policies",
    "virtual_topics",
    "composite_queues",
    "composite_topics",
    "mirrored_queues",
    "destinations",
    "time_stamping",
    "redelivery",
    "discarding_dead_letters",
)
"""Those of these settings that are tables."""

PERSISTENCY = {"persistent": True, "non_persistent": False}
"""The values of `force_persistency_mode`."""


def _table(name: str) -> Read:
    """Return the reader of a table."""

    def read(value: object) -> Any:
        from pybroker.broker.app import configured_destinations, message_tables, policies, virtual

        lists = {"policies": policies.read_policies, "destinations": configured_destinations.read_destinations}
        return {**lists, **virtual.READERS, **message_tables.READERS}[name](value)

    return read


class MessageSettings:
    """The settings."""

    destination_purge_interval: float | None = declared(
        duration,
        None,
        least=0,
        most=86400,
        description="How often destinations are looked for that nothing uses (see the policies' "
        "`gc_inactive_destinations`), as ActiveMQ's `schedulePeriodForDestinationPurge`; by default `expire_interval`; "
        "`0`: only when there are nearly `destinations_max`.",
    )
    offline_durable_subscriber_timeout: float | None = declared(
        duration,
        None,
        above=0,
        description="Remove durable subscriptions, with their messages, whose client has been away for so long; by "
        "default never. The time begins again when another member becomes master.",
    )
    offline_durable_subscriber_task_schedule: float = declared(
        duration, 300.0, least=0.1, most=86400, description="How often such subscriptions are looked for."
    )
    policies: "tuple[Policy, ...]" = declared(_table("policies"), (), description="Rules per destination or wildcard.")
    virtual_topics: "tuple[VirtualTopic, ...] | None" = declared(
        _table("virtual_topics"),
        None,
        description="Topics whose messages are copied to the queues of their consumers.",
    )
    composite_queues: "tuple[CompositeDestination, ...]" = declared(
        _table("composite_queues"), (), description="Queues that stand for other destinations."
    )
    composite_topics: "tuple[CompositeDestination, ...]" = declared(
        _table("composite_topics"), (), description="Topics that stand for other destinations."
    )
    mirrored_queues: "MirroredQueues | None" = declared(
        _table("mirrored_queues"), None, description="Topics that get a copy of every queue's messages."
    )
    destinations: "tuple[Destination, ...]" = declared(
        _table("destinations"), (), description="Queues and topics that exist from the start."
    )
    time_stamping: "TimeStamping | None" = declared(
        _table("time_stamping"),
        None,
        description="Give each message the broker's time, for clients whose clocks are wrong.",
    )
    redelivery: "RedeliveryRules | None" = declared(
        _table("redelivery"),
        None,
        description="Send messages that consumers reject to their queue again, after a delay.",
    )
    discarding_dead_letters: "DiscardedLetters | None" = declared(
        _table("discarding_dead_letters"),
        None,
        description="Drop dead letters of destinations by their names, whatever their policies say.",
    )
    force_persistency_mode: str | None = declared(
        choice(*PERSISTENCY),
        None,
        description="The delivery mode of all messages that clients send, whatever they say, as with ActiveMQ's "
        "`forcePersistencyModeBrokerPlugin`: `persistent`, or `non_persistent`, which loses them when the broker ends.",
    )
