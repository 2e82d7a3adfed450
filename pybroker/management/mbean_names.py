"""Keys and names of the MBeans of destinations, consumers, producers and connections, as ActiveMQ makes them.

Source: ActiveMQ 5.17, `BrokerMBeanSupport`; management.md, section 4; broker.md, section 12.3.
"""

from collections.abc import Mapping
from typing import Final

from pybroker.broker.domain.node_requests import ConnectionRow, ConsumerRow, ProducerRow, SubscriptionRow
from pybroker.management.object_names import encoded

Keys = Mapping[str, str]

_CONNECTORS: Final = {"tcp": "openwire"}
"""The names of connectors in the stock configuration, where they are not the listener's own."""


def destination_type(kind: str, is_temporary: bool) -> str:
    """Return the value of the key `destinationType`."""
    return f"{'Temp' if is_temporary else ''}{kind.capitalize()}"


def destination_keys(kind: str, is_temporary: bool, name: str) -> Keys:
    """Return the keys of a queue or topic."""
    return {"destinationType": destination_type(kind, is_temporary), "destinationName": encoded(name)}


def subscription_keys(row: ConsumerRow) -> Keys:
    """Return the keys of a consumer."""
    return {
        **destination_keys(row.kind, row.is_temporary, row.destination),
        "endpoint": "Consumer",
        "clientId": encoded(row.client_id),
        "consumerId": durable_id(row.client_id, row.subscription) if row.subscription else encoded(row.consumer_id),
    }


def inactive_keys(row: SubscriptionRow) -> Keys:
    """Return the keys of a durable subscription without a consumer."""
    return {
        **destination_keys("topic", is_temporary=False, name=row.destination),
        "endpoint": "Consumer",
        "clientId": encoded(row.client_id),
        "consumerId": durable_id(row.client_id, row.name),
    }


def durable_id(client_id: str, name: str) -> str:
    """Return the value of the key `consumerId` for a durable subscription."""
    return f"Durable({encoded(f'{client_id}:{name}')})"


def producer_keys(row: ProducerRow) -> Keys:
    """Return the keys of a producer; one that names a destination in each message has no keys of a destination."""
    of_destination: Keys = destination_keys(row.kind, row.is_temporary, row.destination) if row.kind else {}
    return {
        **of_destination,
        "endpoint": "Producer" if row.kind else "dynamicProducer",
        "clientId": encoded(row.client_id),
        "producerId": encoded(row.producer_id),
    }


def connection_keys(row: ConnectionRow, view: str) -> Keys:
    """Return the keys of a connection by its `clientId` or `remoteAddress`."""
    return {
        "connector": "clientConnectors",
        "connectorName": connector_name(row.listener),
        "connectionViewType": view,
        "connectionName": encoded(row.client_id if view == "clientId" else remote_address(row)),
    }


def connector_name(listener: str) -> str:
    """Return the name of a connector by the name of the listener, or its URL."""
    url, _, name = listener.partition("#")
    scheme = url.partition("://")[0]
    return name or _CONNECTORS.get(scheme, scheme)


def remote_address(row: ConnectionRow) -> str:
    """Return the address of a client as ActiveMQ writes it."""
    return f"tcp://{row.peer}"


def with_keys(prefix: str, keys: Keys) -> str:
    """Return a name from that of the broker."""
    return ",".join([prefix, *(f"{key}={value}" for key, value in keys.items())])


def subscription_name(prefix: str, row: ConsumerRow) -> str:
    """Return the name of a consumer's MBean."""
    return with_keys(prefix, subscription_keys(row))
