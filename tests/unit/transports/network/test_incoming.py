"""The state of bridges that other brokers have opened, as operators see it at the broker that they lead to."""

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.network.names import connector_of_client
from pybroker.broker.domain.network.rows import IncomingBridgeRow
from pybroker.broker.domain.rules import Grants, Rule, Rules
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.openwire.conversation import OpenWireClient

Q = queue("Q")


def row(brokers: TwoBrokers) -> IncomingBridgeRow:
    (found,) = brokers.sessions.bridge_rows()
    return found


def test_bridge_one_way_counts_what_comes() -> None:
    brokers = TwoBrokers(name="to-far")
    producer = brokers.client(brokers.near.broker, "p")
    brokers.client(brokers.far, "c").consume(Q)
    brokers.pump()
    producer.send(Q, "1", "2")
    brokers.pump()
    found = row(brokers)
    assert (found.connector, found.remote_name, found.remote_id) == ("to-far", "near", brokers.near.broker.id)
    assert (found.client_id, found.user, found.problem) == ("to-far_near_outbound", "anonymous", "")
    assert (found.is_duplex, found.received, found.sent, found.forwarded, found.demand) == (False, 2, 0, 0, 0)
    assert found.since_ms > 0
    assert found.address == brokers.far_link.peer


def test_duplex_bridge_counts_both_ways_at_both_ends() -> None:
    brokers = TwoBrokers(name="to-far", duplex=True)
    producer = brokers.client(brokers.far, "p")
    brokers.client(brokers.near.broker, "c").consume(Q)
    brokers.pump()
    producer.send(Q, "1", "2", "3")
    brokers.pump()
    found = row(brokers)
    assert (found.is_duplex, found.received, found.sent, found.forwarded, found.demand) == (True, 0, 3, 3, 1)
    assert brokers.far_session.bridge is not None
    (demand,) = brokers.far_session.bridge.demand
    assert (demand.connector, demand.remote_name, demand.destination) == ("to-far", "near", "Q")
    assert brokers.session.received_count == 3


@pytest.mark.parametrize("duplex", [False, True])
def test_bridge_that_has_ended_is_not_listed(duplex: bool) -> None:
    brokers = TwoBrokers(name="to-far", duplex=duplex)
    assert row(brokers)
    brokers.cut()
    assert brokers.sessions.bridge_rows() == []
    assert brokers.far_session.bridge is None


def test_bridge_without_the_right_says_so() -> None:
    brokers = TwoBrokers(name="to-far")
    brokers.cut()
    every, admins = frozenset(("*",)), frozenset(("admins",))
    brokers.far.use_rules(
        Rules((Rule(queue(">"), Grants(every, every, admins)), Rule(topic(">"), Grants(every, every, every))))
    )
    brokers.connect(name="to-far")
    assert "a bridge needs the right admin for all queues" in row(brokers).problem


def test_client_is_no_bridge() -> None:
    brokers = TwoBrokers(name="to-far")
    client = OpenWireClient(brokers.far, brokers.sessions)
    client.connect("c")
    assert client.session.bridge is None
    assert len(brokers.sessions.bridge_rows()) == 1


@pytest.mark.parametrize(
    ("client_id", "broker", "connector"),
    [
        ("to-far_near_outbound", "near", "to-far"),
        ("a_b_c_outbound", "b_c", "a"),
        ("a--near--outbound", "near", "a"),
        ("near_near_outbound", "near", "near"),
        ("its-own", "near", "its-own"),
        ("a_outbound", "", "a_outbound"),
        ("_near_outbound", "near", "_near_outbound"),
    ],
)
def test_connector_is_found_in_the_client_id(client_id: str, broker: str, connector: str) -> None:
    assert connector_of_client(client_id, broker) == connector
