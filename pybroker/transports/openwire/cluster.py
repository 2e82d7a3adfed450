"""The clients of one listener that get the addresses of the brokers of a network, and of each change of them.

Source: ActiveMQ 5.17, `TransportConnector.getConnectionControl`, `updateClientClusterInfo`; network.md 13.1.
"""

from collections.abc import Sequence
from itertools import count

from pybroker.broker.domain.network.cluster import ClusterFilter, ClusterPeer, ClusterPeers, ClusterSettings
from pybroker.broker.domain.openwire.commands import BrokerId, BrokerInfo, ConnectionControl, ConnectionInfo
from pybroker.transports.openwire.peer import Peer

_SINCE = 6
"""The first version of OpenWire whose ConnectionControl has addresses."""


class ClusterClients:
    """The clients of one listener, and the list of brokers that they are sent."""

    def __init__(self, settings: ClusterSettings, own: Sequence[str], peers: ClusterPeers) -> None:
        """Follow the peers.

        Args:
            settings: those of the listener.
            own: the addresses of this broker, and of the other members of its pair.
            peers: the brokers to which bridges lead.

        Raises:
            ValueError: the filter is not valid.
        """
        self._settings = settings
        self._own = own
        self._peers = peers
        self._filter = ClusterFilter(settings.filter)
        self._clients: dict[Peer, None] = {}
        self._rotations = count()
        self._addresses = self._present_addresses()
        peers.watch(self._changed)

    @property
    def peer_infos(self) -> tuple[BrokerInfo | None, ...] | None:
        """The peers for a BrokerInfo; None where clients get none."""
        if not self._settings.update_clients:
            return None
        return tuple(
            BrokerInfo(broker_id=BrokerId(each.broker_id), broker_name=each.name, broker_url=",".join(each.addresses))
            for each in self._known()
        )

    def greeting(self, info: ConnectionInfo) -> ConnectionControl:
        """Return the first ConnectionControl of a client.

        A client that was connected before keeps its new place: it would be moved again by each broker that it comes to.
        """
        return self._control(rebalance=not info.failover_reconnect)

    def add(self, peer: Peer, info: ConnectionInfo) -> None:
        """Send each change to a client, if its transport can follow it."""
        if info.fault_tolerant and peer.wire.version >= _SINCE:
            self._clients[peer] = None

    def remove(self, peer: Peer) -> None:
        """Send a client nothing more."""
        self._clients.pop(peer, None)

    def _changed(self) -> None:
        addresses = self._present_addresses()
        if set(addresses) == set(self._addresses):
            return
        self._addresses = addresses
        for each in list(self._clients):
            each.send(self._control(rebalance=True))

    def _control(self, *, rebalance: bool) -> ConnectionControl:
        """Return what the next client gets: with rebalancing the list of each begins one address later."""
        addresses = self._addresses
        if self._settings.rebalance_clients and addresses:
            first = next(self._rotations) % len(addresses)
            addresses = (*addresses[first:], *addresses[:first])
        return ConnectionControl(
            connected_brokers=",".join(addresses),
            reconnect_to="",
            rebalance_connection=rebalance and self._settings.rebalance_clients,
        )

    def _present_addresses(self) -> tuple[str, ...]:
        if not self._settings.update_clients:
            return ()
        theirs = [address for each in self._known() for address in each.addresses]
        return tuple(dict.fromkeys((*self._own, *theirs)))

    def _known(self) -> Sequence[ClusterPeer]:
        return self._peers.known(self._filter, with_departed=not self._settings.update_on_remove)
