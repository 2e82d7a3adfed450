"""The brokers of a network that OpenWire clients get: at their connection, and with each change."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pybroker.broker.domain.network.cluster import ClusterPeers, ClusterSettings
from pybroker.broker.domain.openwire.commands import BrokerId, BrokerInfo, ConnectionControl
from pybroker.transports.openwire.cluster import ClusterClients
from pybroker.transports.openwire.session import Sessions
from tests.unit.transports.openwire.conversation import JAVA, OpenWireClient, new_broker, settings

UPDATE = ClusterSettings(update_clients=True)
REBALANCE = ClusterSettings(update_clients=True, rebalance_clients=True, update_on_remove=True)


class Cluster:
    """A broker at tcp://b1:61616, and its peers."""

    def __init__(self, chosen: ClusterSettings = UPDATE, own: tuple[str, ...] = ("tcp://b1:61616",)) -> None:
        self.departures: list[Callable[[], None]] = []
        self.peers = ClusterPeers(self._after)
        self.sessions = Sessions(peers=self.peers)
        self.broker = new_broker()
        self.settings = replace(settings(), cluster=ClusterClients(chosen, own, self.peers))
        self.count = 0

    def _after(self, _seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        self.departures.append(callback)
        return self.departures.clear

    def depart(self, broker_id: str) -> None:
        self.peers.left(broker_id)
        self.departures.pop()()

    def client(self, version: int = 12, **info: Any) -> tuple[OpenWireClient, ConnectionControl]:
        client = OpenWireClient(
            self.broker, self.sessions, of_broker=self.settings, offer=replace(JAVA, version=version)
        )
        self.count += 1
        control = client.connect(f"c{self.count}", manageable=True, **info)[-1]
        assert isinstance(control, ConnectionControl)
        return client, control


def controls(client: OpenWireClient) -> list[tuple[str | None, bool]]:
    return [
        (each.connected_brokers, each.rebalance_connection)
        for each in client.receive()
        if isinstance(each, ConnectionControl)
    ]


@pytest.mark.parametrize("fault_tolerant", [True, False])
def test_each_manageable_client_gets_the_peers(fault_tolerant: bool) -> None:
    cluster = Cluster()
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1,tcp://b2s:1")
    _, control = cluster.client(fault_tolerant=fault_tolerant)
    assert control.connected_brokers == "tcp://b1:61616,tcp://b2:1,tcp://b2s:1"
    assert (control.reconnect_to, control.rebalance_connection) == ("", False)


def test_failover_client_gets_each_change() -> None:
    cluster = Cluster()
    client, _ = cluster.client(fault_tolerant=True)
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1")
    assert controls(client) == [("tcp://b1:61616,tcp://b2:1", False)]


def test_plain_client_gets_no_changes() -> None:
    cluster = Cluster()
    client, _ = cluster.client()
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1")
    assert controls(client) == []


def test_client_of_an_old_version_gets_no_changes() -> None:
    cluster = Cluster()
    client, _ = cluster.client(version=5, fault_tolerant=True)
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1")
    assert controls(client) == []


def test_client_that_has_closed_gets_no_changes() -> None:
    cluster = Cluster()
    client, _ = cluster.client(fault_tolerant=True)
    client.session.lost()
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1")
    assert controls(client) == []


def test_list_with_the_same_addresses_is_not_sent_again() -> None:
    cluster = Cluster()
    client, _ = cluster.client(fault_tolerant=True)
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1")
    cluster.peers.joined("ID:b2-again", "b2", "tcp://b2:1")
    assert len(controls(client)) == 1


@pytest.mark.parametrize(("on_remove", "lists"), [(True, ["tcp://b1:61616"]), (False, [])])
def test_departed_peer_is_removed_only_on_request(on_remove: bool, lists: list[str]) -> None:
    cluster = Cluster(replace(UPDATE, update_on_remove=on_remove))
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1")
    client, _ = cluster.client(fault_tolerant=True)
    cluster.depart("ID:b2")
    assert [addresses for addresses, _ in controls(client)] == lists


def test_filter_limits_lists_and_peer_infos() -> None:
    cluster = Cluster(replace(UPDATE, filter="east.*"))
    for name in ("east2", "west1"):
        cluster.peers.joined(f"ID:{name}", name, f"tcp://{name}:1")
    client, control = cluster.client(fault_tolerant=True)
    assert control.connected_brokers == "tcp://b1:61616,tcp://east2:1"
    cluster.peers.joined("ID:west2", "west2", "tcp://west2:1")
    assert controls(client) == []
    assert cluster.settings.cluster is not None
    assert [each and each.broker_name for each in cluster.settings.cluster.peer_infos or ()] == ["east2"]


def test_rebalanced_clients_get_lists_with_different_beginnings() -> None:
    cluster = Cluster(REBALANCE)
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1")
    found = [cluster.client(fault_tolerant=True)[1] for _ in range(3)]
    assert [each.connected_brokers for each in found] == [
        "tcp://b1:61616,tcp://b2:1",
        "tcp://b2:1,tcp://b1:61616",
        "tcp://b1:61616,tcp://b2:1",
    ]
    assert all(each.rebalance_connection for each in found)


def test_client_that_was_moved_is_not_moved_on_at_once() -> None:
    cluster = Cluster(REBALANCE)
    client, control = cluster.client(fault_tolerant=True, failover_reconnect=True)
    assert not control.rebalance_connection
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1")
    assert [rebalance for _, rebalance in controls(client)] == [True]


def test_rebalancing_without_updates_sends_an_empty_list() -> None:
    cluster = Cluster(ClusterSettings(rebalance_clients=True))
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1")
    _, control = cluster.client(fault_tolerant=True)
    assert (control.connected_brokers, control.rebalance_connection) == ("", True)


def broker_info(client: OpenWireClient) -> BrokerInfo:
    return next(each for each in client.receive() if isinstance(each, BrokerInfo))


def test_broker_info_has_the_peers() -> None:
    cluster = Cluster()
    assert broker_info(OpenWireClient(cluster.broker, of_broker=cluster.settings)).peer_broker_infos == ()
    cluster.peers.joined("ID:b2", "b2", "tcp://b2:1,tcp://b2s:1")
    infos = broker_info(OpenWireClient(cluster.broker, of_broker=cluster.settings)).peer_broker_infos or ()
    assert [(each.broker_id, each.broker_name, each.broker_url) for each in infos if each is not None] == [
        (BrokerId("ID:b2"), "b2", "tcp://b2:1,tcp://b2s:1")
    ]


def dialling(cluster: Cluster, *, duplex: bool = True, url: str = "tcp://b2:1") -> OpenWireClient:
    client = OpenWireClient(cluster.broker, cluster.sessions, of_broker=cluster.settings)
    client.send_commands(
        BrokerInfo(
            broker_id=BrokerId("ID:b2"),
            broker_name="b2",
            broker_url=url,
            network_connection=True,
            duplex_connection=duplex,
        )
    )
    client.connect("bridge", client_id="nc_b2_outbound")
    return client


def test_duplex_bridge_of_another_broker_adds_it() -> None:
    cluster = Cluster(REBALANCE)
    client, _ = cluster.client(fault_tolerant=True)
    bridge = dialling(cluster)
    assert controls(client) == [("tcp://b2:1,tcp://b1:61616", True)]
    bridge.session.lost()
    cluster.departures.pop()()
    assert controls(client) == [("tcp://b1:61616", True)]


def test_one_way_bridge_of_another_broker_adds_nothing() -> None:
    cluster = Cluster()
    client, _ = cluster.client(fault_tolerant=True)
    dialling(cluster, duplex=False)
    assert controls(client) == []


def test_bridge_itself_gets_no_changes() -> None:
    cluster = Cluster()
    bridge = dialling(cluster)
    bridge.receive()
    cluster.peers.joined("ID:b3", "b3", "tcp://b3:1")
    assert controls(bridge) == []


def test_duplex_bridge_without_an_address_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    client, _ = cluster.client(fault_tolerant=True)
    dialling(cluster, url="")
    assert controls(client) == []
    assert "clients do not get the address of broker b2" in caplog.text
