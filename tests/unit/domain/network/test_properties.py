"""Java properties files, and what a bridge says of itself in one."""

from dataclasses import replace

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.properties import connector_of, decode, described, encode
from pybroker.broker.domain.openwire.commands import BrokerInfo
from tests.unit.domain.network.recorded import frames


def test_a_file_of_java_is_read_in_all_its_forms() -> None:
    text = (
        "#comment\r\n! another\n\nname=nc\nuri = static\\:(tcp\\://h\\:1)\n  key\\ with\\=signs : a\\tb \n"
        "long=one, \\\n    two\\\\\nempty\nunicode\\u00e9=\\u20ac\\uD83D\\uDE00\nname=last"
    )

    assert decode(text) == {
        "name": "last",
        "uri": "static:(tcp://h:1)",
        "key with=signs": "a\tb ",
        "long": "one, two\\",
        "empty": "",
        "unicodeé": "€😀",
    }


def test_a_file_cut_within_a_continuation_is_read() -> None:
    assert decode("a=b\\") == {"a": "b"}
    assert decode("a=\\u12") == {"a": "u12"}


@pytest.mark.parametrize("text", ["", " x", "a=b:c#d!e\\", "line\nend\r", "é😀", "a  b ", "\ud800"])
def test_what_is_written_is_read_again(text: str) -> None:
    pairs = {"key " + text: text, "other": "x"}

    written = encode(pairs)

    assert written.isascii()
    assert decode(written) == {
        key.replace("\ud800", "\ufffd"): each.replace("\ud800", "\ufffd") for key, each in pairs.items()
    }


def test_values_are_escaped_as_java_does() -> None:
    assert encode({"excludedDestinations": "[queue://EX.>]"}) == "excludedDestinations=[queue\\://EX.>]\n"


def test_forced_durable_demand_is_an_option_in_the_lists() -> None:
    listed = (queue("Q"), topic("T.>"), topic("A,B"))
    connector = NetworkConnector(dynamically_included=listed, forced_durable=(topic("T.>"), topic("A"), topic("B")))
    pairs = described(connector, "a")
    option = "?forceDurable=true"
    assert pairs["dynamicallyIncludedDestinations"] == f"[queue://Q, topic://T.>{option}, topic://A,B{option}]"
    assert connector_of(pairs).dynamically_included == listed
    assert connector_of(pairs).forced_durable == connector.forced_durable


def test_a_bridge_describes_itself_without_credentials() -> None:
    connector = NetworkConnector(
        name="nc",
        duplex=True,
        consumer_ttl=2,
        user_name="me",
        password="geheim",
        remote_user_name="you",
        remote_password="geheim",
        dynamically_included=(queue("Q.>"), topic("T.>")),
        excluded=(queue("EX.>"),),
    )

    pairs = described(connector, "a")

    assert not {"userName", "password", "remoteUserName", "remotePassword", "uri"} & pairs.keys()
    assert "geheim" not in encode(pairs)
    assert pairs["name"] == "nc"
    assert pairs["brokerName"] == "a"
    assert pairs["duplex"] == "true"
    assert pairs["consumerTTL"] == "2"
    assert pairs["dynamicallyIncludedDestinations"] == "[queue://Q.>, topic://T.>]"
    assert pairs["excludedDestinations"] == "[queue://EX.>]"
    assert "staticallyIncludedDestinations" not in pairs
    assert connector_of(decode(encode(pairs))) == replace(
        connector, user_name="", password="", remote_user_name="", remote_password=""
    )


def test_a_recorded_description_gives_the_connector() -> None:
    infos = [each.value for each in frames("duplex") if isinstance(each.value, BrokerInfo)]
    (described_by_activemq,) = (each.network_properties for each in infos if each.network_properties)

    assert connector_of(decode(described_by_activemq)) == NetworkConnector(
        name="nc",
        duplex=True,
        excluded=(queue("EX.>"),),
        dynamically_included=(queue("Q.>"), topic("T.>")),
        destination_filter="ActiveMQ.Advisory.Consumer.Queue.Q.>,ActiveMQ.Advisory.Consumer.Topic.T.>",
    )


def test_three_keys_are_a_description() -> None:
    pairs = decode("name=nc\nduplex=true\nbrokerName=a\n")

    assert connector_of(pairs) == NetworkConnector(name="nc", duplex=True)


def test_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="many"):
        connector_of({"consumerTTL": "many"})
