"""Demand that changes while a bridge stands, and selectors that only the remote broker knows."""

from unittest.mock import Mock

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.openwire.commands import ActiveMQMessage, ConsumerId, ConsumerInfo, MessageDispatch
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.transports.network.bridge import BridgeSession
from tests.compiled import interpreted
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.network.test_bridge import got
from tests.unit.transports.openwire.conversation import of_kind

Q, T = queue("Q"), topic("T")


def advise(session: BridgeSession, info: ConsumerInfo) -> None:
    """Have a bridge learn of a consumer that only an ActiveMQ could have."""
    advisory = ActiveMQMessage(destination=topic("ActiveMQ.Advisory.Consumer.Queue.Q"), data_structure=info)
    session.receive(WireFormat(version=12).encode_frame(MessageDispatch(message=advisory)))


@pytest.mark.parametrize("comes_first", [True, False])
@pytest.mark.parametrize("selector", ["XPATH 'a'", f"a = '{'x' * 8_180}'"], ids=["unknown", "long"])
def test_selector_that_is_not_valid_here_stops_no_messages(
    comes_first: bool, selector: str, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    observer = brokers.client(brokers.near.broker, "o")
    observer.consume(topic("ActiveMQ.Advisory.Consumer.>"))
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
    assert {"messages of queue://Q are not selected" in each.getMessage() for each in caplog.records} == {True}
    assert of_kind(observer.receive(), MessageDispatch), "its own demand is announced"


def test_selectors_that_are_too_much_together_stop_no_messages(caplog: pytest.LogCaptureFixture) -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    for number in range(66):
        destination, selector = queue(f"Q.{number}"), f"a = '{number}{'x' * 8_000}'"
        advise(
            brokers.session,
            ConsumerInfo(consumer_id=ConsumerId("foreign", 1, number), destination=destination, selector=selector),
        )
    reader.consume(queue("Q.65"))
    reader.consume(Q, 2, selector="JMSType IS NULL")
    brokers.pump()
    producer.send(queue("Q.65"), "1")
    producer.send(Q, "2")
    brokers.pump()
    assert got(reader) == ["1", "2"]
    assert "messages of queue://Q.65 are not selected: the selectors of a connection" in caplog.text


@pytest.mark.parametrize("is_slow", [False, True])
def test_change_of_the_selector_loses_no_message_of_a_topic(is_slow: bool) -> None:
    """What waits for the window, or for a slow connection, waits in the subscription that another one replaces."""
    brokers = TwoBrokers(prefetch_size=2)
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    other = brokers.client(brokers.far, "d")
    reader.consume(T, selector="JMSType = 'x'")
    brokers.pump()
    if is_slow:
        brokers.session.pause_writing()
    expected = [str(each) for each in range(7)]
    producer.send(T, *expected, jms_type="x")
    other.consume(T, selector="JMSType = 'y'")
    to_far, brokers.link.output = bytes(brokers.link.output), bytearray()  # the far broker has not answered yet
    brokers.session.receive(bytes(brokers.far_link.output))
    brokers.far_link.output = bytearray()
    producer.send(T, "7", jms_type="x")
    producer.send(T, "8", jms_type="y")
    assert len(brokers.session.demand) == 2
    brokers.far_session.receive(to_far)
    brokers.session.written()
    brokers.pump()
    assert sorted(map(str, got(reader))) == [*expected, "7"]
    assert got(other) == ["8"]
    assert [each.ends_by for each in brokers.session.demand] == [None], "the former one has ended"


@interpreted
def test_messages_refused_together_cause_one_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(Q)
    brokers.pump()
    pauses: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr(brokers.far, "accept_bridged", Mock(side_effect=ResourceLimit("no space")))
        producer.send(Q, *"1234567")
        for _ in range(3):
            brokers.pump()
            (demand,) = brokers.session.demand
            assert demand.resumes_at is not None
            pauses.append(demand.resumes_at - brokers.link.now)
            brokers.link.now = demand.resumes_at
            brokers.session.on_timer()
    brokers.pump()
    assert pauses == [1, 2, 4]
    assert got(reader) == [*"1234567"]
