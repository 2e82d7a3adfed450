"""The settings of the OpenWire listeners of a broker."""

from dataclasses import dataclass

from pybroker.broker.domain.openwire.marshal.wireformat import Offer
from pybroker.transports.openwire.cluster import ClusterClients


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWireSettings:
    """The settings of all OpenWire listeners of a broker.

    Attributes:
        offer: the wire format that the broker offers.
        broker_url: the URL for clients.
        connected_brokers: comma list of addresses for failover clients; empty: those that they know already.
        cluster: the clients of the listener that get the addresses of a network instead; None: none do.
        connect_seconds: the time limit for a peer's WireFormatInfo. For its ConnectionInfo it has ten times as long, as
            a Java client sends that when the application first uses its connection.
    """

    offer: Offer
    broker_url: str
    connected_brokers: str = ""
    cluster: ClusterClients | None = None
    connect_seconds: float = 30.0
