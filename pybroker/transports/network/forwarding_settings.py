"""The circumstances of a forwarding half: whom it serves, and by which ids."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.interests import Interests
from pybroker.broker.domain.network.peers import BridgePeer
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.security import User
from pybroker.broker.domain.subscription import DurableSubscription


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingSettings:
    """The circumstances of a forwarding half.

    Attributes:
        connector: the bridge's connector.
        remote_id: the id of the remote broker.
        remote_name: its name.
        local_connection_id: the id of the half's connection at this broker.
        remote_connection_id: the id of its connection at the remote broker.
        interests: shared by all bridges of this broker.
        subscriptions: returns the durable subscriptions of a client id.
        announce: notifies the observers of this broker.
        user: who the bridge is at this broker.
        label: names the bridge in the log.
        remote_url: the address of the remote broker for clients.
        is_created_by_duplex: True if the remote broker has opened the connection, for both ways.
    """

    connector: NetworkConnector
    remote_id: str
    remote_name: str
    local_connection_id: str
    remote_connection_id: str
    interests: Interests
    subscriptions: Callable[[str], Iterable[DurableSubscription]]
    announce: Callable[[Callable[[Observer], None]], None]
    user: User
    label: str
    remote_url: str = ""
    is_created_by_duplex: bool = False

    def peer_at(self, address: str) -> BridgePeer:
        """Return the remote broker, for observers."""
        return BridgePeer(
            broker_id=self.remote_id,
            broker_name=self.remote_name,
            broker_url=self.remote_url,
            address=address,
            is_duplex=self.is_created_by_duplex,
        )
