"""Durable subscribers over a bridge: each message once, wherever it waits, and nothing is left behind them."""

from typing import Any
from unittest.mock import Mock

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.properties import asking, asks_for_durables, decode
from pybroker.broker.domain.openwire.commands import (
    BrokerId,
    BrokerInfo,
    BrokerSubscriptionInfo,
    ConsumerInfo,
    MessageDispatch,
    RemoveInfo,
    RemoveSubscriptionInfo,
    Response,
)
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.framing import FrameReader
from pybroker.broker.domain.openwire.marshal.wireformat import broker_offer, encode_offer
from pybroker.transports.network.demand_consumer import PAUSE_SECONDS_MAX
from pybroker.transports.openwire.durable_sync import subscription_infos
from tests.compiled import interpreted
from tests.unit.transports.network.bridges import Near, TwoBrokers, named_broker
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, texts

D = topic("D")
NC = "NC-DS_near_D"


class Subscriber:
    """A durable subscriber of D at the far broker, which comes and goes."""

    def __init__(self, brokers: TwoBrokers, name: str) -> None:
        self.brokers = brokers
        self.name = name
        self.count = 0
        self.client: OpenWireClient

    def come(self) -> list[str | None]:
        """Return what waited, acknowledged."""
        self.count += 1
        self.client = OpenWireClient(self.brokers.far)
        self.client.connect(f"{self.name}-{self.count}", client_id=self.name)
        self.client.open_session()
        self.client.consume(D, subscription_name="sub")
        got = self.client.pushed
        self.brokers.pump()
        return self.read(of_kind(got, MessageDispatch))

    def read(self, dispatches: list[MessageDispatch] | None = None) -> list[str | None]:
        found = (dispatches or []) + of_kind(self.client.receive(), MessageDispatch)
        for each in found:
            self.client.ack([each])
        return texts(found)

    def leave(self) -> None:
        self.client.answer(RemoveInfo(object_id=self.client.consumer()), Response)
        self.client.session.lost()
        self.brokers.pump()

    def unsubscribe(self) -> None:
        """Delete the subscription; the consumer has left."""
        other = OpenWireClient(self.brokers.far)
        other.connect(f"{self.name}-end", client_id=self.name)
        other.answer(RemoveSubscriptionInfo(client_id=self.name, subscription_name="sub"), Response)
        other.session.lost()
        self.brokers.pump()


def stored(brokers: TwoBrokers) -> list[str]:
    """Return the names of the bridge's durable subscriptions at the near broker."""
    return [each.name for each in brokers.near.broker.admin.durable_subscriptions()]


def restarted(brokers: TwoBrokers, **attributes: Any) -> None:
    brokers.cut()
    brokers.connect(**attributes)


@pytest.mark.parametrize("attributes", [{}, {"dynamic_only": True}, {"sync_durable_subs": True}, {"consumer_ttl": 2}])
def test_each_message_arrives_once_wherever_it_waited(attributes: dict[str, Any]) -> None:
    brokers = TwoBrokers(**attributes)
    producer = brokers.client(brokers.near.broker, "p")
    subscriber = Subscriber(brokers, "s")

    def send(text: str) -> None:
        producer.send(D, text)
        brokers.pump()

    assert subscriber.come() == []
    send("d1")
    assert subscriber.read() == ["d1"]
    subscriber.leave()
    send("d2")  # it waits at the far broker
    brokers.cut()
    producer.send(D, "d3")  # and this at the near one
    brokers.connect(**attributes)
    send("d4")
    got = subscriber.come()
    send("d5")
    assert got + subscriber.read() == ["d2", "d3", "d4", "d5"]
    assert stored(brokers) == [NC]


@pytest.mark.parametrize("dynamic_only", [False, True])
def test_backlog_flows_at_once_unless_dynamic_only(dynamic_only: bool) -> None:
    brokers = TwoBrokers(dynamic_only=dynamic_only)
    producer = brokers.client(brokers.near.broker, "p")
    subscriber = Subscriber(brokers, "s")
    subscriber.come()
    subscriber.leave()
    brokers.cut()
    producer.send(D, "d")
    brokers.connect(dynamic_only=dynamic_only)
    assert brokers.session.forwarded_count == (0 if dynamic_only else 1)
    assert subscriber.come() == ["d"]


@pytest.mark.parametrize("dynamic_only", [False, True])
@pytest.mark.parametrize("is_down", [False, True])
def test_other_durable_keeps_the_subscription_after_a_restart(is_down: bool, dynamic_only: bool) -> None:
    """After a restart of the connector ActiveMQ forgets the second one, whose message is lost."""
    brokers = TwoBrokers(dynamic_only=dynamic_only)
    producer = brokers.client(brokers.near.broker, "p")
    first, second = Subscriber(brokers, "s1"), Subscriber(brokers, "s2")
    for each in (first, second):
        each.come()
        each.leave()
    brokers.cut()
    if is_down:
        first.unsubscribe()
    brokers.connect(dynamic_only=dynamic_only)
    if not is_down:
        first.come()
        first.leave()
        first.unsubscribe()
    assert stored(brokers) == [NC]
    producer.send(D, "d")
    brokers.pump()
    assert second.come() == ["d"]
    second.leave()
    second.unsubscribe()
    assert stored(brokers) == []


@pytest.mark.parametrize("attributes", [{}, {"dynamic_only": True}, {"dynamically_included": (topic("D"), queue("Q"))}])
def test_unsubscribed_while_the_bridge_is_down_leaves_nothing(attributes: dict[str, Any]) -> None:
    brokers = TwoBrokers(**attributes)
    subscriber = Subscriber(brokers, "s")
    subscriber.come()
    subscriber.leave()
    brokers.cut()
    subscriber.unsubscribe()
    assert stored(brokers) == [NC]
    brokers.connect(**attributes)
    assert stored(brokers) == []


def test_unsubscribed_while_the_bridge_is_down_stays_over_two_hops() -> None:
    """The far broker does not list the subscriptions of its own bridges, behind which there may be subscribers."""
    brokers = TwoBrokers(consumer_ttl=2)
    subscriber = Subscriber(brokers, "s")
    subscriber.come()
    subscriber.leave()
    brokers.cut()
    subscriber.unsubscribe()
    brokers.connect(consumer_ttl=2)
    assert stored(brokers) == [NC]


def test_subscription_made_while_the_bridge_is_down_collects_at_once() -> None:
    brokers = TwoBrokers()
    producer = brokers.client(brokers.near.broker, "p")
    brokers.cut()
    subscriber = Subscriber(brokers, "s")
    subscriber.come()
    subscriber.leave()
    brokers.connect()
    producer.send(D, "d")
    brokers.pump()
    assert subscriber.come() == ["d"]


def test_broker_of_an_old_wire_format_deletes_nothing() -> None:
    """It sends no list: what is stored stays, because a subscriber may be there."""
    near = Near(named_broker("near"))
    session, link = near.bridge(sync_durable_subs=True)
    wire = WireFormat(version=11)
    introduction = wire.encode_frame(BrokerInfo(broker_id=BrokerId("x"), broker_name="far"))
    session.receive(encode_offer(broker_offer(version=11)) + introduction)
    assert session.is_connected
    assert not link.closed
    assert [type(each) for each in sent(link.output, 11)][:2] != [BrokerInfo, BrokerSubscriptionInfo]


def sent(output: bytearray, version: int) -> list[Any]:
    """Return the commands behind the WireFormatInfo."""
    frames, wire = FrameReader(), WireFormat(version=version)
    found: list[bytes] = []
    frames.feed(bytes(output))
    while frames.advance():
        found.append(frames.data[frames.start : frames.stop])
    return [wire.decode(each) for each in found[1:]]


def test_own_subscriptions_are_listed_if_the_brokers_exchange_them() -> None:
    near = Near(named_broker("near"))
    local = OpenWireClient(near.broker)
    local.connect("c")
    local.open_session()
    local.consume(D, subscription_name="one")
    local.consume(topic("OTHER"), 2, subscription_name="two")
    session, link = near.bridge(sync_durable_subs=True, dynamically_included=(topic("D"),))
    introduction = WireFormat(version=12).encode_frame(BrokerInfo(broker_id=BrokerId("x"), broker_name="far"))
    session.receive(encode_offer(broker_offer()) + introduction)
    _, info, *_ = sent(link.output, 12)
    assert isinstance(info, BrokerSubscriptionInfo)
    assert [(each.client_id, each.subscription_name) for each in info.subscription_infos or () if each] == [
        ("c", "one")
    ]


@pytest.mark.parametrize(
    ("attributes", "asks"),
    [
        ({}, True),
        ({"dynamically_included": (topic("D"),)}, True),
        ({"dynamically_included": (queue("Q"),)}, False),
        ({"conduit_subscriptions": False}, False),
        ({"static_bridge": True}, False),
    ],
)
def test_bridge_asks_where_it_may_serve_topics(attributes: dict[str, Any], asks: bool) -> None:
    connector = NetworkConnector(**attributes)
    assert asks_for_durables(connector) is asks
    assert asking(connector, "near")["syncDurableSubs"] == str(asks).lower()


def test_asking_changes_nothing_else() -> None:
    connector = NetworkConnector(excluded=(topic("X"),), sync_durable_subs=True)
    pairs = decode("".join(f"{key}={value}\n" for key, value in asking(connector, "near").items()))
    assert pairs["excludedDestinations"] == "[topic://X]"
    assert pairs["name"] == "NC"


def test_subscriptions_of_two_brokers_are_never_taken_for_one() -> None:
    """The same client id and name at another broker is another subscriber."""
    brokers = TwoBrokers()
    infos: list[ConsumerInfo] = []
    for name in ("far", "further"):
        broker = brokers.far if name == "far" else named_broker(name)
        client = OpenWireClient(broker)
        client.connect("c")
        client.open_session()
        client.consume(D, subscription_name="sub")
        infos += subscription_infos(broker.admin.durable_subscriptions(), (D,), broker.id) or ()
    assert infos[0].consumer_id != infos[1].consumer_id


@interpreted
@pytest.mark.parametrize("pattern", ["D", ">"])
@pytest.mark.parametrize("is_refused", [False, True])
def test_copy_waits_for_the_answer_to_the_first(
    monkeypatch: pytest.MonkeyPatch, pattern: str, is_refused: bool
) -> None:
    """A plain consumer's subscription forwards a message; without its answer the durable one still has it."""
    brokers = TwoBrokers()
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(topic(pattern))
    brokers.pump()
    subscriber = Subscriber(brokers, "s")
    subscriber.come()
    with monkeypatch.context() as patch:
        if is_refused:
            patch.setattr(brokers.far, "accept_bridged", Mock(side_effect=ResourceLimit("no space")))
        else:
            patch.setattr(brokers.far_session, "receive", Mock(return_value=False))  # the far broker hangs
        producer.send(D, "1", "2")
        brokers.pump()
    if is_refused:
        brokers.link.now += PAUSE_SECONDS_MAX
        brokers.session.on_timer()
        brokers.pump()
    else:
        restarted(brokers)
    assert subscriber.read() == ["1", "2"]
    assert all(each.is_idle for each in brokers.session.demand)
    producer.send(D, "3")
    brokers.pump()
    assert subscriber.read() == ["3"]
    brokers.cut()
    brokers.connect()
    assert subscriber.read() == [], "all was acknowledged"


@pytest.mark.parametrize("attributes", [{}, {"conduit_subscriptions": False}])
def test_subscriber_is_back_before_the_last_answers(
    monkeypatch: pytest.MonkeyPatch, attributes: dict[str, Any]
) -> None:
    """It leaves, deletes its subscription and makes it again, while the far broker has not answered yet."""
    brokers = TwoBrokers(**attributes)
    producer, subscriber = brokers.client(brokers.near.broker, "p"), Subscriber(brokers, "s")
    subscriber.come()
    received = bytearray()

    def hold(data: bytes) -> bool:
        received.extend(data)
        return False

    with monkeypatch.context() as patch:
        patch.setattr(brokers.far_session, "receive", hold)
        producer.send(D, "1")
        brokers.pump()
        subscriber.leave()
        if not attributes:
            subscriber.unsubscribe()
        subscriber.come()
    brokers.far_session.receive(bytes(received))
    brokers.pump()
    assert [each.ends_by for each in brokers.session.demand] == [None]
    producer.send(D, "2")
    brokers.pump()
    assert subscriber.read() == ["1", "2"]
    brokers.cut()
    brokers.connect(**attributes)
    assert subscriber.read() == [], "all was acknowledged"


@pytest.mark.parametrize("others", [{}, {"duplex": True, "sync_durable_subs": True}])
def test_plain_consumer_of_a_forced_topic_loses_nothing_meanwhile(others: dict[str, Any]) -> None:
    attributes: dict[str, Any] = {"forced_durable": (D,), "dynamically_included": (D,)} | others
    brokers = TwoBrokers(**attributes)
    producer, reader = brokers.client(brokers.near.broker, "p"), brokers.client(brokers.far, "c")
    reader.consume(D)
    brokers.pump()
    assert stored(brokers) == [NC]
    brokers.cut()
    producer.send(D, "1", persistent=True)
    brokers.connect(**attributes)
    assert texts(reader.receive()) == ["1"]
    reader.remove(reader.consumer())
    brokers.pump()
    assert stored(brokers) == []


def test_forced_demand_holds_for_the_other_half_of_a_duplex_bridge() -> None:
    brokers = TwoBrokers(forced_durable=(D,), dynamically_included=(D,), duplex=True)
    reader = brokers.client(brokers.near.broker, "c")
    reader.consume(D)
    brokers.pump()
    assert [each.name for each in brokers.far.admin.durable_subscriptions()] == ["NC-DS_far_D"]
