"""Names of a bridge at both brokers, as in recordings of ActiveMQ."""

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.names import (
    advisory_destination,
    durable_name,
    inbound_client_id,
    outbound_client_id,
)
from tests.unit.domain.network.recorded import conversations

ALL = "ActiveMQ.Advisory.Consumer.>"
TEMPORARY = ",ActiveMQ.Advisory.TempQueue,ActiveMQ.Advisory.TempTopic"


def test_virtual_destinations_are_asked_for_as_by_activemq() -> None:
    sent = [each["command"] for each in conversations()["vdestsubs"]["frames"] if each["from"] == "initiator"]
    (consumer,) = [each for each in sent if each["_type"] == "ConsumerInfo"]
    connector = NetworkConnector(use_virtual_dest_subs=True, dynamically_included=(topic("IN.>"),))
    assert str(advisory_destination(connector)) == consumer["destination"]


def test_client_ids_and_durable_names_are_activemqs() -> None:
    assert inbound_client_id(NetworkConnector(name="nc"), "b", "a") == "nc_b_inbound_a"
    assert outbound_client_id(NetworkConnector(name="nc"), "a") == "nc_a_outbound"
    assert durable_name("a", topic("D")) == "NC-DS_a_D"


@pytest.mark.parametrize(
    ("connector", "expected"),
    [
        (NetworkConnector(), ALL + TEMPORARY),
        (NetworkConnector(bridge_temp_destinations=False), ALL),
        (
            NetworkConnector(dynamically_included=(queue("Q.>"), topic("T.>"))),
            "ActiveMQ.Advisory.Consumer.Queue.Q.>,ActiveMQ.Advisory.Consumer.Topic.T.>" + TEMPORARY,
        ),
        (
            NetworkConnector(destination_filter="Queue.X,ActiveMQ.Advisory.Consumer.Topic.Y"),
            "ActiveMQ.Advisory.Consumer.Queue.X,ActiveMQ.Advisory.Consumer.Topic.Y" + TEMPORARY,
        ),
        (
            NetworkConnector(use_virtual_dest_subs=True, bridge_temp_destinations=False),
            f"{ALL},ActiveMQ.Advisory.VirtualDestination.Consumer.>",
        ),
        (
            NetworkConnector(destination_filter="ActiveMQ.Advisory.VirtualDestination.Consumer.Topic.Y"),
            "ActiveMQ.Advisory.VirtualDestination.Consumer.Topic.Y" + TEMPORARY,
        ),
    ],
)
def test_advisories_are_consumed_from_one_composite_topic(connector: NetworkConnector, expected: str) -> None:
    assert advisory_destination(connector) == topic(expected)
