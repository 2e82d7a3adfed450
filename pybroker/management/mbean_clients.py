"""The MBeans of consumers, producers, connections and listeners.

pybroker does not count what each producer has sent, so its MBean has no `SentCount`. See docs/differences.md.

Source: management.md, section 4; ActiveMQ 5.17, `SubscriptionViewMBean`, `TopicSubscriptionViewMBean`,
`DurableSubscriptionViewMBean`, `ProducerViewMBean`, `ConnectionViewMBean`, `ConnectorViewMBean`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pybroker.broker.domain.node_requests import ConnectionRow, ConsumerRow, ProducerRow, SubscriptionRow
from pybroker.management.mbean_names import (
    Keys,
    connection_keys,
    connector_name,
    inactive_keys,
    producer_keys,
    remote_address,
    subscription_keys,
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
    user_name,
)

VIEWS: Final = ("clientId", "remoteAddress")
"""The names of a connection; see `connectionViewType`."""


# ---------------------------------------------------------------- consumers


def _connection(picture: BrokerPicture, row: ConsumerRow) -> MBeanReference | None:
    found = picture.clients.get(row.connection_id)
    return None if found is None else MBeanReference(with_keys(picture.prefix, connection_keys(found, "clientId")))


def _is_slow(row: ConsumerRow) -> bool:
    """Return True if more messages of a topic wait than the window has, as in ActiveMQ."""
    return row.kind == "topic" and row.waiting > row.prefetch > 1


def _enqueued(row: ConsumerRow) -> int:
    """Return the messages that came for a consumer: of a topic also those that wait, or were dropped."""
    return row.enqueued + row.waiting + row.discarded


_SUBSCRIPTION: Final[Mapping[str, Attribute]] = {
    "ClientId": column("java.lang.String", "client_id"),
    "ConnectionId": column("java.lang.String", "connection_id"),
    "Connection": Attribute(type=OBJECT_NAME, value=_connection, needs=("connections",)),
    "SessionId": column("long", "session_id"),
    "SubscriptionId": column("long", "number"),
    "SubscriptionName": computed("java.lang.String", lambda row: row.subscription or None),
    "UserName": computed("java.lang.String", user_name),
    "DestinationName": column("java.lang.String", "destination"),
    "DestinationQueue": computed("boolean", lambda row: row.kind == "queue"),
    "DestinationTopic": computed("boolean", lambda row: row.kind == "topic"),
    "DestinationTemporary": column("boolean", "is_temporary"),
    "Selector": computed("java.lang.String", lambda row: row.selector or None, is_writable=True),
    "PrefetchSize": column("int", "prefetch"),
    "Priority": column("byte", "priority"),
    "Active": constant("boolean", True),
    "Durable": computed("boolean", lambda row: bool(row.subscription)),
    "Exclusive": column("boolean", "is_exclusive"),
    "Retroactive": column("boolean", "is_retroactive"),
    "NoLocal": column("boolean", "is_no_local"),
    "Network": column("boolean", "is_network"),
    "DispatchAsync": constant("boolean", True),
    "SlowConsumer": computed("boolean", _is_slow),
    "MaximumPendingMessageLimit": column("int", "pending_max"),
    "PendingQueueSize": column("int", "waiting"),
    "DispatchedQueueSize": column("int", "in_flight"),
    "MessageCountAwaitingAcknowledge": column("int", "in_flight"),
    "EnqueueCounter": computed("long", _enqueued),
    "DispatchedCounter": column("long", "enqueued"),
    "DequeueCounter": column("long", "dequeued"),
    "ConsumedCount": constant("long", 0),
}
_TOPIC_SUBSCRIPTION: Final[Mapping[str, Attribute]] = {
    **_SUBSCRIPTION,
    "DiscardedCount": column("int", "discarded"),
    "MaximumPendingQueueSize": constant("int", -1, is_writable=True),
}


def _stored(name: str) -> Attribute:
    """Return an attribute of a durable subscription, whose counts begin before its present consumer."""

    def value(picture: BrokerPicture, row: ConsumerRow) -> int:
        found = picture.subscriptions_by_key.get(f"{row.client_id}:{row.subscription}")
        return 0 if found is None else int(getattr(found, name))

    return Attribute(type="long", value=value, needs=("subscriptions",))


_DURABLE_SUBSCRIPTION: Final[Mapping[str, Attribute]] = {
    **_SUBSCRIPTION,
    "EnqueueCounter": _stored("enqueued"),
    "DispatchedCounter": _stored("dispatched"),
    "DequeueCounter": _stored("dequeued"),
}
_INACTIVE_SUBSCRIPTION: Final[Mapping[str, Attribute]] = {
    "ClientId": column("java.lang.String", "client_id"),
    "ConnectionId": constant("java.lang.String", "NOTSET"),
    "Connection": constant(OBJECT_NAME, None),
    "SessionId": constant("long", 0),
    "SubscriptionId": constant("long", -1),
    "SubscriptionName": column("java.lang.String", "name"),
    "UserName": constant("java.lang.String", None),
    "DestinationName": column("java.lang.String", "destination"),
    "DestinationQueue": constant("boolean", False),
    "DestinationTopic": constant("boolean", True),
    "DestinationTemporary": constant("boolean", False),
    "Selector": computed("java.lang.String", lambda row: row.selector or None, is_writable=True),
    "PrefetchSize": constant("int", 1000),
    "Priority": constant("byte", 0),
    "Active": constant("boolean", False),
    "Durable": constant("boolean", False),
    "Exclusive": constant("boolean", False),
    "Retroactive": constant("boolean", False),
    "NoLocal": column("boolean", "is_no_local"),
    "Network": constant("boolean", False),
    "DispatchAsync": constant("boolean", False),
    "SlowConsumer": constant("boolean", False),
    "MaximumPendingMessageLimit": constant("int", 0),
    "PendingQueueSize": column("int", "size"),
    "DispatchedQueueSize": constant("int", 0),
    "MessageCountAwaitingAcknowledge": constant("int", 0),
    "EnqueueCounter": column("long", "enqueued"),
    "DispatchedCounter": column("long", "dispatched"),
    "DequeueCounter": column("long", "dequeued"),
    "ConsumedCount": constant("long", 0),
}


def _subscription_names(picture: BrokerPicture, row: ConsumerRow) -> Sequence[Keys]:
    return (subscription_keys(row),)


def _subscription_kind(
    class_name: str,
    description: str,
    attributes: Mapping[str, Attribute],
    selects: Callable[[ConsumerRow], bool],
) -> MBeanKind:
    return MBeanKind(
        class_name=class_name,
        description=description,
        keys={
            "destinationType": None,
            "destinationName": None,
            "endpoint": "Consumer",
            "clientId": None,
            "consumerId": None,
        },
        attributes=attributes,
        rows="consumers",
        selects=lambda picture, row: selects(row),
        names=_subscription_names,
    )


def is_of_topic(row: ConsumerRow) -> bool:
    """Return True for a consumer of a topic without a durable subscription."""
    return row.kind == "topic" and not row.subscription


QUEUE_SUBSCRIPTION: Final = _subscription_kind(
    "SubscriptionView", "A consumer of a queue.", _SUBSCRIPTION, lambda row: row.kind == "queue"
)
TOPIC_SUBSCRIPTION: Final = _subscription_kind(
    "TopicSubscriptionView",
    "A consumer of a topic, without a durable subscription.",
    _TOPIC_SUBSCRIPTION,
    is_of_topic,
)
DURABLE_SUBSCRIPTION: Final = _subscription_kind(
    "DurableSubscriptionView",
    "The consumer of a durable subscription.",
    _DURABLE_SUBSCRIPTION,
    lambda row: bool(row.subscription),
)


def _is_inactive(picture: BrokerPicture, row: SubscriptionRow) -> bool:
    return not row.is_active


def _inactive_names(picture: BrokerPicture, row: SubscriptionRow) -> Sequence[Keys]:
    return (inactive_keys(row),)


INACTIVE_SUBSCRIPTION: Final = MBeanKind(
    class_name="InactiveDurableSubscriptionView",
    description="A durable subscription without a consumer.",
    keys=DURABLE_SUBSCRIPTION.keys,
    attributes=_INACTIVE_SUBSCRIPTION,
    rows="subscriptions",
    selects=_is_inactive,
    names=_inactive_names,
)


# ---------------------------------------------------------------- producers


_PRODUCER: Final[Mapping[str, Attribute]] = {
    "ProducerId": column("java.lang.String", "producer_id"),
    "ClientId": column("java.lang.String", "client_id"),
    "ConnectionId": column("java.lang.String", "connection_id"),
    "SessionId": column("long", "session_id"),
    "UserName": computed("java.lang.String", user_name),
    "DispatchAsync": constant("boolean", False),
}
_NAMED_PRODUCER: Final[Mapping[str, Attribute]] = {
    **_PRODUCER,
    "DestinationName": column("java.lang.String", "destination"),
    "DestinationQueue": computed("boolean", lambda row: row.kind == "queue"),
    "DestinationTopic": computed("boolean", lambda row: row.kind == "topic"),
    "DestinationTemporary": column("boolean", "is_temporary"),
}


def _producer_names(picture: BrokerPicture, row: ProducerRow) -> Sequence[Keys]:
    return (producer_keys(row),)


def _names_destination(picture: BrokerPicture, row: ProducerRow) -> bool:
    return bool(row.kind)


def _names_none(picture: BrokerPicture, row: ProducerRow) -> bool:
    return not row.kind


PRODUCER: Final = MBeanKind(
    class_name="ProducerView",
    description="A producer of one destination.",
    keys={
        "destinationType": None,
        "destinationName": None,
        "endpoint": "Producer",
        "clientId": None,
        "producerId": None,
    },
    attributes=_NAMED_PRODUCER,
    rows="producers",
    selects=_names_destination,
    names=_producer_names,
)
DYNAMIC_PRODUCER: Final = MBeanKind(
    class_name="DynamicProducerView",
    description="A producer that names a destination in each message.",
    keys={"endpoint": "dynamicProducer", "clientId": None, "producerId": None},
    attributes=_PRODUCER,
    rows="producers",
    selects=_names_none,
    names=_producer_names,
)


# ---------------------------------------------------------------- connections and listeners


def _consumers(picture: BrokerPicture, row: ConnectionRow) -> list[MBeanReference]:
    own = [each for each in picture.consumers if each.connection_id == row.connection_id]
    return [MBeanReference(with_keys(picture.prefix, subscription_keys(each))) for each in own]


def _producers(picture: BrokerPicture, row: ConnectionRow) -> list[MBeanReference]:
    """Return the names of the producers of one destination: ActiveMQ leaves the others out."""
    own = [each for each in picture.producers if each.kind and each.connection_id == row.connection_id]
    return [MBeanReference(with_keys(picture.prefix, producer_keys(each))) for each in own]


def _connection_names(picture: BrokerPicture, row: ConnectionRow) -> Sequence[Keys]:
    return [connection_keys(row, view) for view in VIEWS]


CONNECTION: Final = MBeanKind(
    class_name="ConnectionView",
    description="A connection of a client, under its client id and under its address.",
    keys={
        "connector": "clientConnectors",
        "connectorName": None,
        "connectionViewType": None,
        "connectionName": None,
    },
    attributes={
        "RemoteAddress": computed("java.lang.String", remote_address),
        "ClientId": column("java.lang.String", "client_id"),
        "UserName": computed("java.lang.String", user_name),
        "Connected": constant("boolean", True),
        "Active": constant("boolean", True),
        "Blocked": column("boolean", "is_blocked"),
        "ActiveTransactionCount": column("int", "transactions"),
        "Consumers": Attribute(type=OBJECT_NAMES, value=_consumers, needs=("consumers",)),
        "Producers": Attribute(type=OBJECT_NAMES, value=_producers, needs=("producers",)),
    },
    rows="connections",
    names=_connection_names,
)


def _connector_names(picture: BrokerPicture, url: Any) -> Sequence[Keys]:
    return ({"connector": "clientConnectors", "connectorName": connector_name(url)},)


CONNECTOR: Final = MBeanKind(
    class_name="ConnectorView",
    description="A listener.",
    keys={"connector": "clientConnectors", "connectorName": None},
    attributes={
        "StatisticsEnabled": constant("boolean", True),
        "UpdateClusterClients": constant("boolean", False),
        "RebalanceClusterClients": constant("boolean", False),
        "UpdateClusterClientsOnRemove": constant("boolean", False),
        "UpdateClusterFilter": constant("java.lang.String", None),
        "AllowLinkStealingEnabled": constant("boolean", False),
    },
    rows="listeners",
    names=_connector_names,
)
