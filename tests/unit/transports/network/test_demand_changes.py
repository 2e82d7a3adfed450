"""Demand that changes while a bridge stands, and selectors that only the remote broker knows."""

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.commands import ActiveMQMessage, ConsumerId, ConsumerInfo
from pybroker.transports.network.bridge import BridgeSession
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.network.test_bridge import got

Q = queue("Q")


def advise(session: BridgeSession, info: ConsumerInfo) -> None:
    """Have a bridge learn of a consumer that only an ActiveMQ could have."""
    half = session._half
    assert half is not None
    half.advised(ActiveMQMessage(destination=topic("ActiveMQ.Advisory.Consumer.Queue.Q"), data_structure=info))


@pytest.mark.parametrize("comes_first", [True, False])
@pytest.mark.parametrize("selector", ["XPATH 'a'", f"a IN ('{'x' * 600_000}')"], ids=["unknown", "long"])
def test_selector_that_is_not_known_here_stops_no_messages(
    comes_first: bool, selector: str, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    foreign = ConsumerInfo(consumer_id=ConsumerId("foreign", 1, 1), destination=Q, selector=selector)
    if comes_first:
        advise(brokers.session, foreign)
    reader.consume(Q, selector="JMSType IS NULL")
    brokers.pump()
    if not comes_first:
        advise(brokers.session, foreign)
    producer.send(Q, "1")
    brokers.pump()
    assert got(reader) == ["1"]
    assert [(each.request.selector, each.ends_by) for each in brokers.session.demand] == [(None, None)]
    assert "messages of queue://Q are not selected" in caplog.text
