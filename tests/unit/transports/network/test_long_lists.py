"""Brokers with so many durable subscriptions that the list of them, which opens a bridge, is long."""

import logging
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.commands import (
    BrokerId,
    BrokerInfo,
    BrokerSubscriptionInfo,
    ConnectionErrorCommand,
    ConsumerInfo,
    MessageDispatch,
)
from pybroker.transports.openwire import durable_sync
from pybroker.transports.openwire.durable_sync import LIST_BYTES_MAX, LISTED_MAX, EarlyLists, subscription_infos
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.openwire.conversation import World, of_kind, texts

COUNT = 500
"""Subscriptions whose list exceeds the 64 KiB of other frames before a login."""


def bridged(**attributes: Any) -> TwoBrokers:
    """Return a bridge of a broker whose durable subscriptions are all offline."""
    brokers = TwoBrokers(name="nc", sync_durable_subs=True, **attributes)
    brokers.cut()
    subscriber = brokers.client(brokers.near.broker, "d")
    for number in range(COUNT):
        subscriber.consume(topic(f"T.{number}"), number, subscription_name=f"{number:0150}")
    subscriber.session.lost()
    brokers.connect(name="nc", sync_durable_subs=True, **attributes)
    assert brokers.session.is_connected, brokers.session.reason
    return brokers


def test_bridge_with_many_durable_subscriptions_comes_up() -> None:
    assert bridged().session.end is None


def test_long_list_makes_the_demand_of_a_duplex_bridge() -> None:
    brokers = bridged(duplex=True)
    brokers.client(brokers.far, "p").send(topic(f"T.{COUNT - 1}"), "for one that is offline")
    brokers.pump()
    again = brokers.client(brokers.near.broker, "d")
    got = again.consume(topic(f"T.{COUNT - 1}"), subscription_name=f"{COUNT - 1:0150}")
    assert texts(of_kind(got, MessageDispatch)) == ["for one that is offline"]


def early(world: World, duplex: bool, size: int, info: Any = None) -> list[str]:
    """Return the errors that a peer gets which introduces itself as a bridge, and sends a list before its login."""
    bridge = world.new_client()
    introduction = BrokerInfo(
        broker_id=BrokerId("ID:a"), broker_name="a", network_connection=True, duplex_connection=duplex
    )
    row = ConsumerInfo(selector="x" * 60_000, destination=topic("T"))
    rows = BrokerSubscriptionInfo(subscription_infos=(row,) * (size // 60_000))
    bridge.send_commands(introduction, info or rows)
    errors = [each.exception for each in of_kind(bridge.receive(), ConnectionErrorCommand)]
    return [str(each.message) for each in errors if each is not None]


def test_other_frames_before_the_login_stay_short() -> None:
    info = BrokerInfo(peer_broker_infos=(BrokerInfo(broker_name="x" * 60_000),) * 2)
    (error,) = early(World(), duplex=True, size=0, info=info)
    assert "before a ConnectionInfo that is accepted" in error


def test_list_before_the_login_has_a_limit() -> None:
    (error,) = early(World(), duplex=True, size=LIST_BYTES_MAX + 60_000)
    assert f"where 1 to {LIST_BYTES_MAX} are allowed" in error


def test_lists_of_all_logins_together_have_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    """More connections than the limit allows are served without their lists."""
    world = World()
    for _ in range(4):
        assert early(world, duplex=False, size=12 << 20) == [], "those of bridges in one way are not kept"
    assert "is dropped" not in caplog.text
    for _ in range(4):
        assert early(world, duplex=True, size=12 << 20) == []
    assert caplog.text.count("its list of durable subscriptions is dropped") == 2


def test_lists_give_their_space_back() -> None:
    lists = EarlyLists()
    data = bytes(LIST_BYTES_MAX)
    assert [lists.keep(data) for _ in range(3)] == [True, True, False]
    lists.release(data)
    assert lists.keep(data)


def test_more_subscriptions_than_a_list_can_have_are_not_listed(caplog: pytest.LogCaptureFixture) -> None:
    """A part of them would have the other end delete what the others need."""
    brokers = TwoBrokers()
    brokers.client(brokers.far, "d").consume(topic("T"), subscription_name="n")
    (state,) = brokers.far.admin.durable_subscriptions()
    caplog.set_level(logging.WARNING)
    assert len(subscription_infos([state] * LISTED_MAX, [topic(">")], "ID:b") or ()) == LISTED_MAX
    assert subscription_infos([state] * (LISTED_MAX + 1), [topic(">")], "ID:b") is None
    assert "a bridge gets no list of the 32768 durable subscriptions" in caplog.text


@pytest.mark.parametrize("duplex", [False, True])
def test_bridge_between_brokers_with_too_many_comes_up(monkeypatch: pytest.MonkeyPatch, duplex: bool) -> None:
    monkeypatch.setattr(durable_sync, "LISTED_MAX", 0)
    brokers = TwoBrokers(name="nc", sync_durable_subs=True, duplex=duplex)
    brokers.cut()
    for broker in (brokers.near.broker, brokers.far):
        brokers.client(broker, "d").consume(topic("T"), subscription_name="n")
    brokers.connect(name="nc", sync_durable_subs=True, duplex=duplex)
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(queue("Q"))
    brokers.pump()
    producer.send(queue("Q"), "1")
    brokers.pump()
    assert texts(of_kind(reader.receive(), MessageDispatch)) == ["1"]
