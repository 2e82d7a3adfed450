"""The MBeans of which there is one: the broker, its health, its store and its scheduler.

On a standby the broker's is the only one. It has `Slave` true, zeros, and no names of others.

Source: management.md, section 4; ActiveMQ 5.17, `BrokerViewMBean`, `HealthViewMBean`, `PersistenceAdapterViewMBean`,
`JobSchedulerViewMBean`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pybroker.broker.domain.node_requests import ConsumerRow, DestinationRow, ProducerRow
from pybroker.broker.domain.role import Role
from pybroker.management.mbean_clients import is_of_topic
from pybroker.management.mbean_names import (
    Keys,
    connector_name,
    destination_keys,
    destination_type,
    inactive_keys,
    producer_keys,
    subscription_keys,
    with_keys,
)
from pybroker.management.mbeans import (
    OBJECT_NAME,
    OBJECT_NAMES,
    PAIR,
    Attribute,
    BrokerPicture,
    MBeanKind,
    MBeanReference,
    constant,
    percent,
)
from pybroker.management.object_names import encoded

STRING: Final = "java.lang.String"

NO_CONSUMER: Final = "org.apache.activemq.noConsumer"
STORE_LIMIT: Final = "org.apache.activemq.StoreLimit"
TEMP_LIMIT: Final = "org.apache.activemq.TempStoreLimit"

_WORRYING_PERCENT: Final = 90
"""The part of a limit from which on ActiveMQ's health names it."""

_UNITS: Final = (("day", 86400), ("hour", 3600), ("minute", 60))


def _of_broker(java_type: str, value: Callable[[BrokerPicture], Any], *, is_writable: bool = False) -> Attribute:
    return Attribute(type=java_type, value=lambda picture, row: value(picture), is_writable=is_writable)


def _overview(java_type: str, name: str) -> Attribute:
    """Return an attribute of the overview; null while it is not known."""
    return _of_broker(java_type, lambda picture: picture.overview.get(name))


def _total(java_type: str, name: str) -> Attribute:
    return _of_broker(java_type, lambda picture: picture.total(name))


def _usage(java_type: str, name: str, *, is_writable: bool = False) -> Attribute:
    return _of_broker(java_type, lambda picture: picture.usage(name), is_writable=is_writable)


# ---------------------------------------------------------------- totals of destinations


def _sum(name: str, *, with_removed: bool = False) -> Attribute:
    """Return the sum of a column of the destinations, maybe with those that were removed."""

    def value(picture: BrokerPicture, row: Any) -> int:
        removed = picture.overview["removed"][name] if with_removed and picture.is_master else 0
        return int(removed) + sum(int(getattr(each, name)) for each in picture.destinations)

    return Attribute(type="long", value=value, needs=("destinations",))


def _message_size(value: Callable[[Sequence[DestinationRow]], int]) -> Attribute:
    return Attribute(type="long", value=lambda picture, row: value(picture.destinations), needs=("destinations",))


def _average_size(rows: Sequence[DestinationRow]) -> int:
    return sum(row.message_bytes for row in rows) // max(1, sum(row.enqueued for row in rows))


def _largest_size(rows: Sequence[DestinationRow]) -> int:
    return max((row.message_bytes_max for row in rows), default=0)


def _smallest_size(rows: Sequence[DestinationRow]) -> int:
    return min((row.message_bytes_min for row in rows if row.message_bytes_min), default=0)


# ---------------------------------------------------------------- names of others


def _destinations(type_name: str) -> Attribute:
    def value(picture: BrokerPicture, row: Any) -> list[MBeanReference]:
        return [
            MBeanReference(with_keys(picture.prefix, destination_keys(each.kind, each.is_temporary, each.name)))
            for each in picture.destinations
            if destination_type(each.kind, each.is_temporary) == type_name
        ]

    return Attribute(type=OBJECT_NAMES, value=value, needs=("destinations",))


def _subscribers(selects: Callable[[ConsumerRow], bool]) -> Attribute:
    def value(picture: BrokerPicture, row: Any) -> list[MBeanReference]:
        return [
            MBeanReference(with_keys(picture.prefix, subscription_keys(each)))
            for each in picture.consumers
            if selects(each)
        ]

    return Attribute(type=OBJECT_NAMES, value=value, needs=("consumers",))


def _inactive(picture: BrokerPicture, row: Any) -> list[MBeanReference]:
    return [MBeanReference(with_keys(picture.prefix, inactive_keys(each))) for each in picture.inactive_subscriptions]


def _producers(selects: Callable[[ProducerRow], bool]) -> Attribute:
    def value(picture: BrokerPicture, row: Any) -> list[MBeanReference]:
        return [
            MBeanReference(with_keys(picture.prefix, producer_keys(each)))
            for each in picture.producers
            if selects(each)
        ]

    return Attribute(type=OBJECT_NAMES, value=value, needs=("producers",))


# ---------------------------------------------------------------- the broker


def uptime(milliseconds: int) -> str:
    """Return a duration in words, as `Uptime` has it: seconds, or the two largest units.

    Source: ActiveMQ 5.17, `TimeUtils.printDuration`.
    """
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.3f} seconds"
    seconds = milliseconds // 1000
    counts: list[tuple[int, str]] = []
    for unit, length in _UNITS:
        count, seconds = divmod(seconds, length)
        if count or counts:
            counts.append((count, unit))
    return " ".join([f"{count} {unit}{'s' if count > 1 else ''}" for count, unit in counts[:2] if count])


def _uptime_ms(picture: BrokerPicture) -> int:
    return max(0, round(time.time() * 1000) - int(picture.overview["since_ms"]))


def _connectors(picture: BrokerPicture) -> Mapping[str, str]:
    return {connector_name(url): url for url in picture.overview.get("listeners", ())}


def _scheduler(picture: BrokerPicture) -> MBeanReference | None:
    if not picture.overview.get("has_scheduler"):
        return None
    return MBeanReference(with_keys(picture.prefix, _SCHEDULER_KEYS))


def _of_pair(java_type: str, value: Callable[[Mapping[str, Any]], Any]) -> Attribute:
    """Return an attribute of the state of the pair."""
    return Attribute(
        type=java_type,
        value=lambda picture, row: None if picture.pair is None else value(picture.pair),
        needs=(PAIR,),
    )


def _standby_count(pair: Mapping[str, Any]) -> int:
    return sum(each["is_alive"] and each["role"] == Role.STANDBY for each in pair["members"])


_BROKER: Final[Mapping[str, Attribute]] = {
    "BrokerName": _overview(STRING, "broker_name"),
    "BrokerId": _overview(STRING, "broker_id"),
    "BrokerVersion": _of_broker(STRING, lambda picture: f"pybroker {picture.overview['version']}"),
    "Uptime": _of_broker(STRING, lambda picture: uptime(_uptime_ms(picture))),
    "UptimeMillis": _of_broker("long", _uptime_ms),
    "Persistent": _overview("boolean", "is_persistent"),
    "Slave": _of_broker("boolean", lambda picture: not picture.is_master),
    "Role": _overview(STRING, "role"),
    "Epoch": _overview("long", "epoch"),
    "LockHolder": _of_pair(STRING, lambda pair: pair["lock"]["holder"]),
    "StandbyCount": _of_pair("int", _standby_count),
    "VMURL": _of_broker(STRING, lambda picture: f"vm://{picture.overview['broker_name']}"),
    "DataDirectory": _overview(STRING, "store"),
    "StatisticsEnabled": constant("boolean", True),
    "TransportConnectors": _of_broker("java.util.Map", _connectors),
    "CurrentConnectionsCount": _total("int", "connections"),
    "TotalConnectionsCount": _total("long", "connections_ever"),
    "TotalEnqueueCount": _sum("enqueued", with_removed=True),
    "TotalDequeueCount": _sum("dequeued", with_removed=True),
    "TotalConsumerCount": _sum("consumers"),
    "TotalProducerCount": _sum("producers"),
    "TotalMessageCount": _sum("size"),
    "AverageMessageSize": _message_size(_average_size),
    "MaxMessageSize": _message_size(_largest_size),
    "MinMessageSize": _message_size(_smallest_size),
    "MemoryLimit": _of_broker("long", lambda picture: picture.total("memory_bytes_max"), is_writable=True),
    "MemoryPercentUsage": _of_broker(
        "int", lambda picture: percent(picture.total("memory_bytes"), picture.total("memory_bytes_max"))
    ),
    "StoreLimit": _usage("long", "storeLimit", is_writable=True),
    "StorePercentUsage": _usage("int", "storePercentUsage"),
    "TempLimit": _usage("long", "tempLimit", is_writable=True),
    "TempPercentUsage": _usage("int", "tempPercentUsage"),
    "JobSchedulerStoreLimit": constant("long", 0, is_writable=True),
    "JobSchedulerStorePercentUsage": constant("int", 0),
    "JMSJobScheduler": _of_broker(OBJECT_NAME, _scheduler),
    "Queues": _destinations("Queue"),
    "Topics": _destinations("Topic"),
    "TemporaryQueues": _destinations("TempQueue"),
    "TemporaryTopics": _destinations("TempTopic"),
    "QueueSubscribers": _subscribers(lambda row: row.kind == "queue" and not row.is_temporary),
    "TopicSubscribers": _subscribers(lambda row: is_of_topic(row) and not row.is_temporary),
    "DurableTopicSubscribers": _subscribers(lambda row: bool(row.subscription)),
    "InactiveDurableTopicSubscribers": Attribute(type=OBJECT_NAMES, value=_inactive, needs=("subscriptions",)),
    "TemporaryQueueSubscribers": _subscribers(lambda row: row.kind == "queue" and row.is_temporary),
    "TemporaryTopicSubscribers": _subscribers(lambda row: row.kind == "topic" and row.is_temporary),
    "QueueProducers": _producers(lambda row: row.kind == "queue" and not row.is_temporary),
    "TopicProducers": _producers(lambda row: row.kind == "topic" and not row.is_temporary),
    "TemporaryQueueProducers": _producers(lambda row: row.kind == "queue" and row.is_temporary),
    "TemporaryTopicProducers": _producers(lambda row: row.kind == "topic" and row.is_temporary),
    "DynamicDestinationProducers": _producers(lambda row: not row.kind),
}

BROKER: Final = MBeanKind(
    class_name="BrokerView",
    description="The broker, or on a standby the member that would serve it.",
    keys={},
    attributes=_BROKER,
)


# ---------------------------------------------------------------- health


def health_list(picture: BrokerPicture) -> list[dict[str, str]]:
    """Return what is worrying: queues that producers fill and no consumer empties, and limits that are nearly reached.

    Source: ActiveMQ 5.17, `HealthView.healthList`.
    """
    found = [
        _worry(
            NO_CONSUMER,
            f"Queue {row.name} has no consumers",
            with_keys(picture.prefix, destination_keys(row.kind, row.is_temporary, row.name)),
        )
        for row in picture.destinations
        if row.kind == "queue" and not row.is_temporary and row.producers and not row.consumers
    ]
    limits = ((STORE_LIMIT, "Message Store", "store"), (TEMP_LIMIT, "TempMessage Store", "temp"))
    for health_id, text, name in limits:
        used = picture.usage(f"{name}PercentUsage")
        if used > _WORRYING_PERCENT:
            found.append(_worry(health_id, f"{text} size is within {used}% of its limit", picture.prefix))
    return found


def _worry(health_id: str, message: str, resource: str) -> dict[str, str]:
    return {"healthId": health_id, "level": "WARNING", "message": message, "resource": resource}


def _status(picture: BrokerPicture, row: Any) -> str:
    worries = health_list(picture)
    if not worries:
        return "Good"
    texts = [
        f"HealthStatus: healthId={each['healthId']}, level={each['level']}, message={each['message']}, "
        f"resource={each['resource']} , "
        for each in worries
    ]
    return f"Getting Worried {{{''.join(texts)} }}"


def _is_serving(picture: BrokerPicture, row: Any) -> bool:
    return picture.is_master


HEALTH: Final = MBeanKind(
    class_name="HealthView",
    description="What is worrying about the broker.",
    keys={"service": "Health"},
    attributes={"CurrentStatus": Attribute(type=STRING, value=_status, needs=("destinations",))},
    selects=_is_serving,
)


# ---------------------------------------------------------------- store and scheduler


def _store_name(picture: BrokerPicture) -> str:
    directory = picture.overview["journal_directory"]
    return f"KahaDBPersistenceAdapter[{directory},Index:{directory}]"


def _store_names(picture: BrokerPicture, row: Any) -> Sequence[Keys]:
    return ({"service": "PersistenceAdapter", "instanceName": encoded(_store_name(picture))},)


def _has_directory(picture: BrokerPicture, row: Any) -> bool:
    return picture.is_master and bool(picture.overview["store"])


STORE: Final = MBeanKind(
    class_name="PersistenceAdapterView",
    description="The journal.",
    keys={"service": "PersistenceAdapter", "instanceName": None},
    attributes={
        "Name": _of_broker(STRING, _store_name),
        "Size": _usage("long", "storeUsage"),
    },
    selects=_has_directory,
    names=_store_names,
)

_SCHEDULER_KEYS: Final = {"service": "JobScheduler", "name": "JMS"}


def _has_scheduler(picture: BrokerPicture, row: Any) -> bool:
    return bool(picture.overview.get("has_scheduler"))


SCHEDULER: Final = MBeanKind(
    class_name="JobSchedulerView",
    description="The scheduled messages.",
    keys=_SCHEDULER_KEYS,
    attributes={"ScheduledMessageCount": _total("int", "scheduled")},
    selects=_has_scheduler,
)
