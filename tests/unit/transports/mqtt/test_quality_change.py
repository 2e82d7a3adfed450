"""A changed QoS of a subscription: what waits for it is not lost (MQTT 5.0, MQTT-3.8.4-4)."""

from collections.abc import Callable

import pytest

from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.subscription import ConsumerRequest
from tests import mqtt_packets as packets
from tests.unit.transports.mqtt.conversation import Peer, World
from tests.unit.transports.openwire.conversation import FakeLink


@pytest.fixture
def world() -> World:
    return World()


def names(world: World, client_id: str = "dev1") -> list[str]:
    return [info.name for info in world.broker.subscriptions_of(client_id)]


def publish(world: World, *payloads: bytes, name: str = "t", qos: int = 1) -> None:
    sender = world.connect("sender")
    for packet_id, payload in enumerate(payloads, 1):
        sender.publish(name, payload, qos, packet_id)
    sender.send(packets.DISCONNECT)


def backlog(world: World, client_id: str = "dev1") -> Peer:
    """Return a client that has got four messages, and acknowledged the second one."""
    world.connect(client_id, clean=False).subscribe(("t", 1))
    publish(world, b"1", b"2", b"3", b"4")
    peer = world.connect(client_id, clean=False)
    found = peer.published(peer.greeting)
    peer.acknowledge(packets.PUBACK, found[1].packet_id)
    return peer


@pytest.mark.parametrize(("qos", "name"), [(1, "AT_LEAST_ONCE:t"), (2, "EXACTLY_ONCE:t")])
def test_backlog_stays(world: World, qos: int, name: str) -> None:
    peer = backlog(world)
    answers = peer.subscribe(("t", 3 - qos)) + peer.subscribe(("t", qos))
    assert names(world) == [name]
    publish(world, b"5", qos=2)
    found = peer.published(answers)[-3:] + peer.published()
    assert [each.payload for each in found] == [b"1", b"3", b"4", b"5"]
    assert [each.qos for each in found] == [1, 1, 1, qos]


def test_backlog_of_others_is_neither_taken_nor_lost(world: World) -> None:
    world.connect("other", clean=False).subscribe(("t", 1))
    publish(world, b"for other")
    peer = backlog(world)
    found = peer.published(peer.subscribe(("t", 2)))
    assert [each.payload for each in found] == [b"1", b"3", b"4"]
    for each in found:
        peer.acknowledge(packets.PUBACK, each.packet_id)
    peer.drop()
    assert not world.connect(clean=False).greeting
    other = world.connect("other", clean=False)
    assert [each.payload for each in other.published(other.greeting)] == [b"for other", b"1", b"2", b"3", b"4"]
    for each in other.published(other.greeting):
        other.acknowledge(packets.PUBACK, each.packet_id)
    assert not world.store.recover().backlogs[0].message_ids


def test_backlog_of_a_wildcard_stays(world: World) -> None:
    world.connect(clean=False).subscribe(("t/+", 2))
    publish(world, b"1", b"2", name="t/a", qos=2)
    publish(world, b"3", name="t/b", qos=2)
    publish(world, b"4", name="t/a", qos=0)
    peer = world.connect(clean=False)
    assert len(peer.published(peer.greeting)) == 4
    peer.drop()
    peer = world.connect(clean=False)
    peer.receive()
    found = peer.published(peer.subscribe(("t/+", 1)))
    assert sorted(each.payload for each in found) == [b"1", b"2", b"3"]
    assert {each.qos for each in found} == {1}
    assert names(world) == ["AT_LEAST_ONCE:t/+"]
    assert [each.info.name for each in world.broker.destinations.topics[topic("t.a")].durables] == names(world)


def test_messages_with_quality_0_stay(world: World) -> None:
    world.connect(clean=False).subscribe(("t", 1))
    peer = world.connect("dev1", 5, clean=False, pieces=(b"\x11\0\0\0\x09", b"\x21\0\1"))  # one packet at a time
    publish(world, b"1")
    publish(world, b"2", b"3", qos=0)
    [first] = peer.published()
    assert not peer.published(peer.subscribe(("t", 2)))
    [again] = peer.published(peer.acknowledge(packets.PUBACK, first.packet_id))
    assert (first.payload, again.payload) == (b"1", b"1")
    assert [each.payload for each in peer.published(peer.acknowledge(packets.PUBACK, again.packet_id))] == [b"2", b"3"]


def test_retained_message_comes_once(world: World) -> None:
    sender = world.connect("sender")
    sender.publish("t", b"retained", 1, retain=True)
    peer = world.connect(clean=False)
    assert [each.payload for each in peer.published(peer.subscribe(("t", 1)))] == [b"retained"]
    found = peer.published(peer.subscribe(("t", 2)))
    assert [(each.payload, each.retain) for each in found] == [(b"retained", True)]


def test_second_subscription_to_a_filter_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.connect(clean=False).subscribe(("t", 1))
    world.connect(clean=False).drop()
    request = ConsumerRequest(destination=topic("t"), subscription_name="EXACTLY_ONCE:t")
    connection = world.broker.connect("jms", "dev1", FakeLink())
    connection.subscribe(request, lambda delivery: None)
    connection.close()
    world.connect(clean=False)
    assert "its subscription EXACTLY_ONCE:t remains: it has another one to that filter" in caplog.text


def change_in_turns(world: World, *filters: tuple[str, int]) -> bytes:
    """Have a client that comes back change the QoS of its subscriptions; return the reason codes."""
    peer = world.connect(clean=False)
    peer.receive()
    turns: list[Callable[[], None]] = []
    world.broker.usage.paging.later = turns.append
    answers = peer.send(packets.subscribe(1, *filters))
    while turns:
        turns.pop(0)()
    [answer] = [each for each in answers + peer.receive() if each.name == "SUBACK"]
    world.broker.usage.paging.later = None
    peer.drop()
    return answer.body[2:]


def test_backlog_stays_where_another_one_takes_several_turns(world: World) -> None:
    world.connect(clean=False).subscribe(("many/+", 1), ("t", 1))
    for number in range(600):
        publish(world, b"", name=f"many/{number}")
    publish(world, b"kept")
    assert change_in_turns(world, ("many/+", 2), ("t", 2)) == b"\2\2"
    peer = world.connect(clean=False)
    assert b"kept" in [each.payload for each in peer.published(peer.greeting)]


def test_backlog_stays_where_the_client_has_much_of_it() -> None:
    world = World(policy=DestinationPolicy(durable_topic_prefetch=2000))
    world.connect(clean=False).subscribe(("t", 1))
    publish(world, *[b"kept"] * 2000)
    assert change_in_turns(world, ("t", 2)) == b"\2"
    peer = world.connect(clean=False)
    assert len(peer.published(peer.greeting)) == 2000
