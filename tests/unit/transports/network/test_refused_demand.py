"""Demand subscriptions that the bridge's own broker refuses for a reason that passes: they begin later."""

import logging
from typing import Any
from unittest.mock import Mock

import pytest

from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.core.limits import Limits
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import InvalidDestination, ResourceLimit, SubscriptionInUse
from pybroker.broker.domain.openwire.commands import DestinationInfo, DestinationOperation, MessageDispatch, Response
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.transports.network.refused_demand import PIECE, RefusedDemand, may_pass_by
from tests.compiled import interpreted
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, texts

Q, FULL = queue("Q"), queue("FULL")


def got(client: OpenWireClient) -> list[str | None]:
    """Return the texts that a client has got, and acknowledge them."""
    dispatches = of_kind(client.receive(), MessageDispatch)
    for each in dispatches:
        client.ack([each])
    return texts(dispatches)


def later(brokers: TwoBrokers, seconds: float) -> None:
    """Let so much time pass at both ends."""
    for link in (brokers.link, brokers.far_link):
        link.now += seconds
        assert link.session is not None
        link.session.on_timer()
    brokers.pump()


def test_demand_refused_for_a_limit_begins_when_there_is_space(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pybroker.transports.network")
    brokers = TwoBrokers(near_limits=Limits(destinations_max=1))
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    producer.send(FULL, "keeps the queue")
    reader.consume(Q)
    brokers.pump()
    assert [brokers.link.wakes_at, brokers.session.demand] == [1.0, []]
    for seconds in (1, 2, 4):
        later(brokers, seconds)
    producer.answer(DestinationInfo(destination=FULL, operation_type=DestinationOperation.REMOVE), Response)
    producer.send(Q, "1")
    brokers.pump()
    assert got(reader) == []
    later(brokers, 8)
    assert got(reader) == ["1"]
    lines = [each.getMessage().partition(": ")[2] for each in caplog.records if "messages of" in each.getMessage()]
    assert lines == [
        "no messages of queue://Q go to far: queue://Q cannot be created: there are 1 destinations already, the limit "
        "destinations_max",
        "messages of queue://Q go to far now",
    ]


def test_demand_that_ends_before_there_is_space_does_not_begin() -> None:
    brokers = TwoBrokers(near_limits=Limits(destinations_max=1))
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    producer.send(FULL, "keeps the queue")
    reader.consume(Q)
    brokers.pump()
    reader.remove(reader.consumer())
    brokers.pump()
    producer.answer(DestinationInfo(destination=FULL, operation_type=DestinationOperation.REMOVE), Response)
    later(brokers, 2)
    assert Q not in brokers.near.broker.queues
    assert brokers.session.demand == []


@interpreted
@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("error", [ResourceLimit("no memory"), SubscriptionInUse("in use")])
def test_either_half_of_a_duplex_bridge_asks_again(
    monkeypatch: pytest.MonkeyPatch, is_back: bool, error: Exception
) -> None:
    brokers = TwoBrokers(duplex=True)
    source, target = (brokers.far, brokers.near.broker) if is_back else (brokers.near.broker, brokers.far)
    producer, reader = brokers.client(source, "p"), brokers.client(target, "c")
    producer.send(Q, "1")
    reader.consume(Q)
    with monkeypatch.context() as patch:
        patch.setattr(BrokerConnection, "subscribe", Mock(side_effect=error))
        brokers.pump()
    assert got(reader) == []
    later(brokers, 1)
    assert got(reader) == ["1"]


@interpreted
def test_refused_change_of_a_selector_is_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(Q, 1, selector="JMSPriority = 1")
    brokers.pump()
    reader.consume(Q, 2, selector="JMSPriority = 2")
    with monkeypatch.context() as patch:
        patch.setattr(BrokerConnection, "subscribe", Mock(side_effect=ResourceLimit("no memory")))
        brokers.pump()
    reader.consume(Q, 3, selector="JMSPriority = 3")
    with monkeypatch.context() as patch:
        patch.setattr(BrokerConnection, "subscribe", Mock(side_effect=ResourceLimit("no memory")))
        brokers.pump()
    for priority in (1, 2, 3, 4):
        producer.send(Q, str(priority), priority=priority)
    brokers.pump()
    assert got(reader) == ["1"]
    later(brokers, 4)
    assert sorted(map(str, got(reader))) == ["2", "3"]
    assert len(brokers.session.demand) == 1


@interpreted
def test_subscription_is_not_tried_for_ever_once_the_reason_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = TwoBrokers()
    brokers.client(brokers.far, "c").consume(Q)
    subscribe = Mock(side_effect=[ResourceLimit("no memory"), InvalidDestination("not allowed any more")])
    with monkeypatch.context() as patch:
        patch.setattr(BrokerConnection, "subscribe", subscribe)
        brokers.pump()
        later(brokers, 1)
        assert brokers.link.wakes_at is None or brokers.link.wakes_at > brokers.link.now, (
            "another attempt is due at once"
        )
        later(brokers, 60)
    assert subscribe.call_count == 2
    assert len([each for each in caplog.records if "no messages of" in each.getMessage()]) == 2


def test_time_that_does_not_hold_any_more_is_no_attempt() -> None:
    refused, request = RefusedDemand(), ConsumerRequest(destination=Q)
    for number in range(3):
        refused.add(number, request, number / 10)
    refused.remove(0)
    assert refused.next_attempt == 1.1
    refused.add(1, request, 1.0)
    assert refused.next_attempt == 1.2
    assert [number for number, _ in refused.due(5.0)] == [2, 1]
    assert refused.next_attempt is None


def test_other_refusals_stay() -> None:
    assert not may_pass_by(InvalidDestination("no name"))


def test_many_refused_subscriptions_are_tried_in_pieces() -> None:
    refused, request = RefusedDemand(), ConsumerRequest(destination=Q)
    assert [refused.add(number, request, 0.0) for number in range(PIECE + 1)] == [True] * (PIECE + 1)
    assert refused.due(0.9) == []
    first = [number for number, _ in refused.due(1.0)]
    assert first == list(range(PIECE))
    assert [refused.add(number, request, 1.0) for number in first] == [False] * PIECE
    assert [number for number, _ in refused.due(1.0)] == [PIECE]
    assert refused.remove(PIECE)
    assert not refused.remove(PIECE)
    assert refused.next_attempt == 3.0


def test_pauses_grow_up_to_half_a_minute() -> None:
    refused, now, pauses = RefusedDemand(), 0.0, list[Any]()
    for _ in range(8):
        refused.add(1, ConsumerRequest(destination=Q), now)
        pauses.append((refused.next_attempt or 0.0) - now)
        now = refused.next_attempt or 0.0
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
