"""Connectors to other brokers in an `activemq.xml`."""

import pytest

from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.networks import has_passwords, with_passwords
from pybroker.broker.app.network_tables import read_networks
from pybroker.broker.domain.destination import queue, topic
from tests.unit.activemq_xml.reading_bench import distinct_places, read, why_at

REFUSED, WARNING = FindingKind.REFUSED, FindingKind.WARNING


def network(attributes: str, body: str = "") -> str:
    return f'<networkConnectors><networkConnector name="n" {attributes}>{body}</networkConnector></networkConnectors>'


ATTRIBUTES = (
    'uri="static:(tcp://b:61616)" networkTTL="2" messageTTL="3" prefetchSize="10" userName="u" password="secret-word" '
    'conduitSubscriptions="false" dynamicOnly="true" staticBridge="false" decreaseNetworkConsumerPriority="true" '
    'consumerPriorityBase="-7" destinationFilter="Queue.A" advisoryForFailedForward="true" duplex="true" '
    'bridgeTempDestinations="false" clientIdToken="-"'
)
LISTS = (
    '<dynamicallyIncludedDestinations><queue physicalName="A.&gt;"/></dynamicallyIncludedDestinations>'
    '<staticallyIncludedDestinations><topic physicalName="B"/></staticallyIncludedDestinations>'
    '<excludedDestinations><queue physicalName="C"/><topic physicalName="D"/></excludedDestinations>'
    '<durableDestinations><topic physicalName="E"/></durableDestinations>'
)


def test_connector_is_a_table_with_all_that_is_served() -> None:
    reading = read(network(ATTRIBUTES, LISTS))
    assert not distinct_places(reading, REFUSED)
    (table,) = reading.settings["network"]
    assert table == {
        "name": "n",
        "uri": "static:(tcp://b:61616)",
        "network_ttl": 2,
        "message_ttl": 3,
        "prefetch_size": 10,
        "user_name": "u",
        "conduit_subscriptions": False,
        "dynamic_only": True,
        "static_bridge": False,
        "decrease_network_consumer_priority": True,
        "consumer_priority_base": -7,
        "destination_filter": "Queue.A",
        "advisory_for_failed_forward": True,
        "duplex": True,
        "bridge_temp_destinations": False,
        "client_id_token": "-",
        "dynamically_included": ["queue://A.>"],
        "statically_included": ["topic://B"],
        "excluded": ["queue://C", "topic://D"],
    }
    settings = with_passwords(reading.settings, reading.secrets)
    (connector,) = read_networks(settings["network"])
    assert (connector.message_ttl, connector.password) == (3, "secret-word")
    assert has_passwords(reading.secrets)
    assert "secret-word" not in repr(reading)


@pytest.mark.parametrize(
    ("attribute", "setting"),
    [
        ("useCompression", "use_compression"),
        ("useVirtualDestSubs", "use_virtual_dest_subs"),
    ],
)
def test_flag_of_a_connector_is_its_setting(attribute: str, setting: str) -> None:
    reading = read(network(f'uri="static:(tcp://b:61616)" {attribute}="true"'))
    assert not distinct_places(reading, WARNING)
    (connector,) = read_networks(reading.settings["network"])
    assert getattr(connector, setting) is True


def test_user_in_the_uri_is_refused() -> None:
    reading = read(network('uri="static:(tcp://u:secret-word@b:61616)"'))
    assert distinct_places(reading, REFUSED) == {"networkConnector[n]@uri"}
    assert "secret-word" not in repr(reading)


def test_name_of_activemq_stays_as_it_is() -> None:
    """Durable subscriptions over bridges have it in their names."""
    text = '<networkConnectors><networkConnector name="a -> b" uri="static:(tcp://b:61616)"/></networkConnectors>'
    assert read_networks(read(text).settings["network"])[0].name == "a -> b"


def test_connectors_of_one_name_are_refused() -> None:
    one = '<networkConnector uri="static:(tcp://b:61616)"/>'
    reading = read(f"<networkConnectors>{one}{one}</networkConnectors>")
    assert distinct_places(reading, REFUSED) == {"networkConnector"}
    assert "another connector is called 'NC' too" in why_at(reading, "networkConnector")


@pytest.mark.parametrize(
    ("attributes", "kind", "place"),
    [
        ('sslContext="#ssl"', REFUSED, "@sslContext"),
        ('prefetchSize="many"', REFUSED, "@prefetchSize"),
    ],
)
def test_attribute_that_is_not_served_is_a_finding(attributes: str, kind: FindingKind, place: str) -> None:
    reading = read(network(f'uri="static:(tcp://b:61616)" {attributes}'), beside='<bean id="ssl" class="x.Ssl"/>')
    assert f"networkConnector[n]{place}" in distinct_places(reading, kind)


def test_forced_durable_demand_is_an_option_of_the_topic() -> None:
    listed = '<topic physicalName="P?forceDurable=true"/><queue physicalName="Q?forceDurable=true"/>'
    body = f"<dynamicallyIncludedDestinations>{listed}</dynamicallyIncludedDestinations>"
    reading = read(network('uri="static:(tcp://b:61616)"', body))
    assert not distinct_places(reading, WARNING)
    (connector,) = read_networks(reading.settings["network"])
    assert connector.dynamically_included == (topic("P"), queue("Q"))
    assert connector.forced_durable == (topic("P"),)


def test_connector_that_is_left_out_names_what_would_not_flow() -> None:
    reading = read(network(ATTRIBUTES, LISTS), demands=Demands(is_network_left_out=True))
    assert "network" not in reading.settings
    why = why_at(reading, "networkConnector[n]")
    assert "A.>, B, E would stay here, and those of the other broker there" in why
    assert "secret-word" not in why


def test_discovery_by_multicast_is_refused() -> None:
    why = why_at(read(network('uri="multicast://default"')), "networkConnector[n]")
    assert "all destinations" in why
    assert "list the addresses" in why
    assert "--without-network" in why


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
    assert ("networkConnector[n]" in distinct_places(reading, WARNING)) == is_needless
    assert ("network" in reading.settings or "networkConnector[n]" in distinct_places(reading, REFUSED)) != is_needless


def test_member_without_a_common_store_is_another_broker() -> None:
    demands = Demands(members=frozenset({"a:61616"}))
    reading = read(network('uri="static:(tcp://a:61616)"'), attributes='persistent="false"', demands=demands)
    assert reading.settings["network"][0]["uri"] == "static:(tcp://a:61616)"


@pytest.mark.parametrize("name", ["networkConnectorURIs", "jmsBridgeConnectors", "proxyConnectors"])
def test_other_bridges_are_refused(name: str) -> None:
    assert distinct_places(read(f"<{name}/>"), REFUSED) == {name}
    assert name in distinct_places(read(f"<{name}/>", demands=Demands(is_network_left_out=True)), WARNING)
