"""The MBeans of queues and topics.

Attributes of what pybroker does another way have the value that a stock ActiveMQ has: `MaxPageSize`, `UseCache` and so
on. What it does not count has no attribute: `BlockedSends` and its kin, `StoreMessageSize`. See docs/differences.md.

Source: management.md, section 4; ActiveMQ 5.17, `DestinationViewMBean`, `QueueViewMBean`, `TopicViewMBean`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pybroker.broker.domain.destination import matches
from pybroker.broker.domain.node_requests import ConsumerRow, DestinationRow, SubscriptionRow
from pybroker.management.mbean_names import (
    destination_keys,
    destination_type,
    inactive_keys,
    subscription_name,
    with_keys,
)
from pybroker.management.mbeans import (
    OBJECT_NAME,
    OBJECT_NAMES,
    Attribute,
    BrokerPicture,
    MBeanKind,
    MBeanReference,
    column,
    computed,
    constant,
    percent,
)


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)


def _average_wait(row: DestinationRow) -> float:
    return 1000 * row.wait_seconds / row.dispatched if row.dispatched else 0.0


def _memory_percent(row: DestinationRow) -> int:
    return percent(row.memory_bytes, row.memory_bytes_max)


def _is_full(row: DestinationRow) -> bool:
    return 0 < row.memory_bytes_max <= row.memory_bytes


def _subscriptions(picture: BrokerPicture, row: DestinationRow) -> list[MBeanReference]:
    active = [MBeanReference(subscription_name(picture.prefix, each)) for each in _consumers(picture, row)]
    return active + [MBeanReference(with_keys(picture.prefix, inactive_keys(each))) for each in _inactive(picture, row)]


def _consumers(picture: BrokerPicture, row: DestinationRow) -> Iterator[ConsumerRow]:
    yield from picture.consumers_of.get((row.kind, row.name), ())
    for each in picture.wide_consumers:
        if each.kind == row.kind and any(matches(name, row.name) for name in each.destination.split(",")):
            yield each


def _inactive(picture: BrokerPicture, row: DestinationRow) -> Iterator[SubscriptionRow]:
    if row.kind == "topic":
        for each in picture.inactive_subscriptions:
            if matches(each.destination, row.name):
                yield each


_BOTH: Final[Mapping[str, Attribute]] = {
    "Name": column("java.lang.String", "name"),
    "QueueSize": column("long", "size"),
    "EnqueueCount": column("long", "enqueued"),
    "DequeueCount": column("long", "dequeued"),
    "DispatchCount": column("long", "dispatched"),
    "InFlightCount": column("long", "in_flight"),
    "ExpiredCount": column("long", "expired"),
    "ForwardCount": column("long", "forwarded"),
    "DuplicateFromStoreCount": constant("long", 0),
    "ConsumerCount": column("long", "consumers"),
    "ProducerCount": column("long", "producers"),
    "MemoryLimit": computed("long", lambda row: row.memory_bytes_max, is_writable=True),
    "MemoryUsageByteCount": column("long", "memory_bytes"),
    "MemoryPercentUsage": computed("int", _memory_percent),
    "MemoryUsagePortion": constant("float", 1.0, is_writable=True),
    "TempUsageLimit": Attribute(type="long", value=lambda picture, row: picture.usage("tempLimit"), is_writable=True),
    "TempUsagePercentUsage": Attribute(type="int", value=lambda picture, row: picture.usage("tempPercentUsage")),
    "AverageMessageSize": computed("long", lambda row: row.message_bytes // max(1, row.enqueued)),
    "MaxMessageSize": column("long", "message_bytes_max"),
    "MinMessageSize": column("long", "message_bytes_min"),
    "AverageEnqueueTime": computed("double", _average_wait),
    "MaxEnqueueTime": computed("long", lambda row: _milliseconds(row.wait_seconds_max)),
    "MinEnqueueTime": computed("long", lambda row: _milliseconds(row.wait_seconds_min)),
    "DLQ": computed("boolean", lambda row: row.is_dead_letter_queue, is_writable=True),
    "PrioritizedMessages": column("boolean", "is_prioritized"),
    "ProducerFlowControl": computed("boolean", lambda row: row.has_flow_control, is_writable=True),
    "AlwaysRetroactive": computed("boolean", lambda row: row.is_always_retroactive, is_writable=True),
    "BlockedProducerWarningInterval": constant("long", 30000, is_writable=True),
    "SendDuplicateFromStoreToDLQ": constant("boolean", False),
    "MaxPageSize": constant("int", 200, is_writable=True),
    "UseCache": constant("boolean", True, is_writable=True),
    "MaxAuditDepth": constant("int", 2048, is_writable=True),
    "MaxProducersToAudit": constant("int", 1024, is_writable=True),
    "Subscriptions": Attribute(type=OBJECT_NAMES, value=_subscriptions, needs=("consumers", "subscriptions")),
    "Options": computed("java.lang.String", lambda row: "isDLQ=true" if row.is_dead_letter_queue else ""),
    "SlowConsumerStrategy": constant(OBJECT_NAME, None),
}

_QUEUE: Final[Mapping[str, Attribute]] = {
    **_BOTH,
    "Paused": column("boolean", "is_paused"),
    "CursorMemoryUsage": column("long", "memory_bytes"),
    "CursorPercentUsage": computed("int", _memory_percent),
    "CursorFull": computed("boolean", _is_full),
    "CacheEnabled": constant("boolean", True),
    "MessageGroupType": constant("java.lang.String", "cached"),
}


def _kind(class_name: str, destination_type_name: str, attributes: Mapping[str, Attribute]) -> MBeanKind:
    def selects(picture: BrokerPicture, row: DestinationRow) -> bool:
        return destination_type(row.kind, row.is_temporary) == destination_type_name

    def names(picture: BrokerPicture, row: DestinationRow) -> Sequence[Mapping[str, Any]]:
        return (destination_keys(row.kind, row.is_temporary, row.name),)

    return MBeanKind(
        class_name=class_name,
        description=f"A {destination_type_name} with its counters.",
        keys={"destinationType": destination_type_name, "destinationName": None},
        attributes=attributes,
        rows="destinations",
        selects=selects,
        names=names,
    )


QUEUE: Final = _kind("QueueView", "Queue", _QUEUE)
TOPIC: Final = _kind("TopicView", "Topic", _BOTH)
TEMPORARY_QUEUE: Final = _kind("QueueView", "TempQueue", _QUEUE)
TEMPORARY_TOPIC: Final = _kind("TopicView", "TempTopic", _BOTH)
