"""Connectors to other brokers in an `activemq.xml`."""

import pytest

from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.findings import FindingKind
from tests.unit.activemq_xml.reading_bench import distinct_places, read, why_at

REFUSED, WARNING = FindingKind.REFUSED, FindingKind.WARNING


def network(attributes: str, body: str = "") -> str:
    return f'<networkConnectors><networkConnector name="n" {attributes}>{body}</networkConnector></networkConnectors>'


def test_connector_is_refused_with_what_would_not_flow() -> None:
    included = (
        '<dynamicallyIncludedDestinations><queue physicalName="A.&gt;"/></dynamicallyIncludedDestinations>'
        '<staticallyIncludedDestinations><topic physicalName="B"/></staticallyIncludedDestinations>'
        '<excludedDestinations><queue physicalName="C"/></excludedDestinations>'
    )
    reading = read(network('uri="static:(tcp://b:61616)" duplex="true" password="secret-word"', included))
    assert distinct_places(reading, REFUSED) == {"networkConnector[n]"}
    why = why_at(reading, "networkConnector[n]")
    assert "A.>, B would stay here, and those of the other broker there" in why
    assert "C" not in why.replace("Connector", "")
    assert "--without-network" in why
    assert "secret-word" not in why


def test_connector_without_destinations_is_for_all() -> None:
    why = why_at(read(network('uri="multicast://default"')), "networkConnector[n]")
    assert "all destinations" in why
    assert "the other broker" not in why


@pytest.mark.parametrize("body", ["<networkConnectors><multicastNetworkConnector/></networkConnectors>", network("")])
def test_network_that_is_left_out_is_a_warning(body: str) -> None:
    reading = read(body, demands=Demands(is_network_left_out=True))
    assert not distinct_places(reading, REFUSED)
    assert any("etworkConnector" in at for at in distinct_places(reading, WARNING))


@pytest.mark.parametrize(
    ("uri", "is_needless"),
    [
        ("static:(tcp://a:61616,tcp://b:61616)", True),
        ("static:(failover:(tcp://a:61616,tcp://b:61616)?maxReconnectDelay=5)", True),
        ("masterslave:(nio://b:61616?wireFormat.maxFrameSize=1,tcp://localhost:61616)", True),
        ("static:(tcp://localhost:61616)", True),
        ("static://(tcp://127.0.0.1:61616)", True),
        ("static:(tcp://a:61616,tcp://c:61616)", False),
        ("static:(tcp://a:61617)", False),
        ("static:(tcp://localhost:61617)", False),
        ("static:(tcp://a)", False),
        ("static:(tcp://a:port)", False),
        ("static:()", False),
        ("multicast://a:61616", False),
    ],
)
def test_connector_to_the_own_members_is_needless(uri: str, is_needless: bool) -> None:
    reading = read(network(f'uri="{uri}"'), demands=Demands(members=frozenset({"a:61616", "b:61616"})))
    assert distinct_places(reading, WARNING if is_needless else REFUSED) >= {"networkConnector[n]"}
    assert ("networkConnector[n]" in distinct_places(reading, REFUSED)) != is_needless


def test_member_without_a_common_store_is_another_broker() -> None:
    demands = Demands(members=frozenset({"a:61616"}))
    reading = read(network('uri="static:(tcp://a:61616)"'), attributes='persistent="false"', demands=demands)
    assert distinct_places(reading, REFUSED) == {"networkConnector[n]"}


@pytest.mark.parametrize("name", ["networkConnectorURIs", "jmsBridgeConnectors", "proxyConnectors"])
def test_other_bridges_are_refused(name: str) -> None:
    assert distinct_places(read(f"<{name}/>"), REFUSED) == {name}
    assert name in distinct_places(read(f"<{name}/>", demands=Demands(is_network_left_out=True)), WARNING)


def test_bean_that_a_connector_refers_to_is_not_needed() -> None:
    reading = read(network('uri="static:(tcp://b:1)" sslContext="#ssl"'), beside='<bean id="ssl" class="x.Ssl"/>')
    assert distinct_places(reading, REFUSED) == {"networkConnector[n]"}
