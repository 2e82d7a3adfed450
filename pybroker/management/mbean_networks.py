"""The MBeans of network connectors and of the bridges that are up.

```text
connector=networkConnectors,networkConnectorName=NAME
connector=networkConnectors,networkConnectorName=NAME,networkBridge=ADDRESS
connector=duplexNetworkConnectors,networkConnectorName=NAME,networkBridge=ADDRESS
```

The last ones are the duplex bridges that other brokers have opened to this one. ActiveMQ names their connector `#0`,
`#1` and so on; here it has the name that the other broker gave it.

Source: ActiveMQ 5.17, `NetworkConnectorViewMBean`, `NetworkBridgeViewMBean`, `BrokerMBeanSupport`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pybroker.broker.domain.network.rows import UP, BridgeRow, IncomingBridgeRow, NetworkConnectorRow
from pybroker.management.mbean_names import Keys
from pybroker.management.mbeans import Attribute, BrokerPicture, MBeanKind, column, computed, constant
from pybroker.management.object_names import encoded

_STRING: Final = "java.lang.String"
_DUPLEX: Final = "duplexNetworkConnectors"
_HIDDEN: Final = "*****"
_FLAGS: Final = {
    "Duplex": "duplex",
    "DynamicOnly": "dynamic_only",
    "StaticBridge": "static_bridge",
    "ConduitSubscriptions": "conduit_subscriptions",
    "DecreaseNetworkConsumerPriority": "decrease_network_consumer_priority",
    "SuppressDuplicateQueueSubscriptions": "suppress_duplicate_queue_subscriptions",
    "SuppressDuplicateTopicSubscriptions": "suppress_duplicate_topic_subscriptions",
    "BridgeTempDestinations": "bridge_temp_destinations",
}
_NUMBERS: Final = {
    "MessageTTL": "message_ttl",
    "ConsumerTTL": "consumer_ttl",
    "PrefetchSize": "prefetch_size",
    "AdvisoryPrefetchSize": "advisory_prefetch_size",
}


def _keys(name: str) -> Keys:
    return {"connector": "networkConnectors", "networkConnectorName": encoded(name)}


def _connector_names(picture: BrokerPicture, row: NetworkConnectorRow) -> Sequence[Keys]:
    return (_keys(row.name),)


def _bridge_names(picture: BrokerPicture, row: BridgeRow) -> Sequence[Keys]:
    return ({**_keys(row.connector), "networkBridge": encoded(row.remote_address)},)


def _incoming_names(picture: BrokerPicture, row: IncomingBridgeRow) -> Sequence[Keys]:
    address = encoded(f"tcp://{row.address}")
    return ({"connector": _DUPLEX, "networkConnectorName": encoded(row.connector), "networkBridge": address},)


def _is_duplex(picture: BrokerPicture, row: Any) -> bool:
    """Return True if messages go both ways. A bridge that is refused is left out: any client may choose its names."""
    return isinstance(row, IncomingBridgeRow) and row.is_duplex and not row.problem


def _is_up(picture: BrokerPicture, row: Any) -> bool:
    return isinstance(row, BridgeRow) and row.state == UP


_CONNECTOR: Final[Mapping[str, Attribute]] = {
    "Name": column(_STRING, "name"),
    **{name: column("boolean", field) for name, field in _FLAGS.items()},
    **{name: column("int", field) for name, field in _NUMBERS.items()},
    "DispatchAsync": constant("boolean", True),
    "AutoStart": constant("boolean", True),
    "DestinationFilter": column(_STRING, "destination_filter"),
    "UserName": computed(_STRING, lambda row: row.user_name or None),
    "Password": computed(_STRING, lambda row: _HIDDEN if row.has_password else None),
    "RemoteUserName": computed(_STRING, lambda row: row.remote_user_name or None),
}

_BRIDGE: Final[Mapping[str, Attribute]] = {
    "LocalAddress": Attribute(type=_STRING, value=lambda picture, row: f"vm://{picture.overview['broker_name']}"),
    "RemoteBrokerName": column(_STRING, "remote_name"),
    "RemoteBrokerId": column(_STRING, "remote_id"),
    "LocalBrokerName": Attribute(type=_STRING, value=lambda picture, row: picture.overview["broker_name"]),
    "EnqueueCounter": column("long", "sent"),
    "DequeueCounter": column("long", "forwarded"),
    "ReceivedCounter": column("long", "received"),
}

NETWORK_CONNECTOR: Final = MBeanKind(
    class_name="NetworkConnectorView",
    description="A connector to other brokers.",
    keys={"connector": "networkConnectors", "networkConnectorName": None},
    attributes=_CONNECTOR,
    rows="network_connectors",
    names=_connector_names,
)

NETWORK_BRIDGE: Final = MBeanKind(
    class_name="NetworkBridgeView",
    description="A bridge to another broker that is up.",
    keys={"connector": "networkConnectors", "networkConnectorName": None, "networkBridge": None},
    attributes={
        **_BRIDGE,
        "RemoteAddress": column(_STRING, "remote_address"),
        "CreatedByDuplex": constant("boolean", False),
    },
    rows="bridges",
    selects=_is_up,
    names=_bridge_names,
)

INCOMING_BRIDGE: Final = MBeanKind(
    class_name="NetworkBridgeView",
    description="A duplex bridge that another broker has opened to this one.",
    keys={"connector": _DUPLEX, "networkConnectorName": None, "networkBridge": None},
    attributes={
        **_BRIDGE,
        "RemoteAddress": computed(_STRING, lambda row: f"tcp://{row.address}"),
        "CreatedByDuplex": constant("boolean", True),
    },
    rows="incoming_bridges",
    selects=_is_duplex,
    names=_incoming_names,
)
