"""Names that a bridge uses at both brokers; those of durable subscriptions outlive it, so all brokers must agree.

Source: ActiveMQ 5.17, `DemandForwardingBridgeSupport`, `DurableConduitBridge`, `NetworkBridgeConfiguration`.
"""

from typing import Final

from pybroker.broker.domain.destination import ADVISORY_PREFIX, Destination, parts, topic
from pybroker.broker.domain.network.connector import NetworkConnector

DURABLE_PREFIX: Final = "NC-DS_"
"""How the names of the durable subscriptions of bridges begin."""

_CONSUMER_PREFIX: Final = ADVISORY_PREFIX + "Consumer."
VIRTUAL_PREFIX: Final = ADVISORY_PREFIX + "VirtualDestination.Consumer."
"""How the topics of advisories about consumers behind virtual destinations begin."""

_PREFIXES: Final = (_CONSUMER_PREFIX, VIRTUAL_PREFIX)
_TEMPORARY: Final = (ADVISORY_PREFIX + "TempQueue", ADVISORY_PREFIX + "TempTopic")


def inbound_client_id(connector: NetworkConnector, remote_broker: str, local_broker: str) -> str:
    """Return the client id of a bridge at its own broker, by the names of connector and brokers."""
    return connector.client_id_token.join((connector.name, remote_broker, "inbound", local_broker))


def inbound_duplex_client_id(connector: NetworkConnector, remote_broker: str, local_broker: str) -> str:
    """Return the client id, at its own broker, under which a duplex bridge sends what the remote broker forwards."""
    return connector.client_id_token.join((connector.name, remote_broker, "inbound", "duplex", local_broker))


def outbound_client_id(connector: NetworkConnector, local_broker: str) -> str:
    """Return the client id of a bridge at the remote broker, by the names of connector and local broker."""
    return connector.client_id_token.join((connector.name, local_broker, "outbound"))


def connector_of_client(client_id: str, remote_broker: str) -> str:
    """Return the name of the connector in the client id of a remote broker's bridge; the client id if it has none.

    The remote broker's `client_id_token` is not known: it is what is at both sides of its name.
    """
    if not remote_broker or not client_id.endswith("outbound"):
        return client_id
    before, _, token = client_id.removesuffix("outbound").rpartition(remote_broker)
    return (before.removesuffix(token) if token and before.endswith(token) else "") or client_id


def durable_name(local_broker: str, destination: Destination) -> str:
    """Return the name of the durable subscription at the local broker in which messages for a topic wait."""
    return f"{DURABLE_PREFIX}{local_broker}_{destination.name}"


def advisory_destination(connector: NetworkConnector) -> Destination:
    """Return the topics of advisories about demand, which a bridge consumes at the remote broker, as one composite."""
    if connector.destination_filter:
        wanted = [each.strip() for each in connector.destination_filter.split(",")]
        names = [each if each.startswith(_PREFIXES) else _CONSUMER_PREFIX + each for each in wanted if each]
    else:
        included = (part for each in connector.dynamically_included for part in parts(each))
        ends = [f"{'Queue' if part.is_queue else 'Topic'}.{part.name}" for part in included] or [">"]
        prefixes = _PREFIXES if connector.use_virtual_dest_subs else (_CONSUMER_PREFIX,)
        names = [prefix + end for end in ends for prefix in prefixes]
    if not names:
        names = [_CONSUMER_PREFIX + ">"]
    if connector.bridge_temp_destinations:
        names += _TEMPORARY
    return topic(",".join(names))
