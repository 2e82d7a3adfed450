"""What MQTT 5 adds to subscriptions and connections: identifiers, retain options, topic aliases, server keep-alive."""

from typing import Any

import pytest

from pybroker.broker.domain.mqtt.packets import MqttLimits
from pybroker.transports.mqtt.topic_aliases import ALIASES_MAX, NAME_BYTES_MAX, Alias, TopicAliases
from tests import mqtt_packets as packets
from tests.unit.transports.mqtt.conversation import Answer, Peer, World

RETAIN_AS_PUBLISHED = 8
IF_NEW, NEVER = 0x10, 0x20


def alias_maximum(count: int) -> bytes:
    """Encode the topic alias maximum."""
    return b"\x22" + packets.short(count)


def alias(number: int) -> bytes:
    """Encode a topic alias."""
    return b"\x23" + packets.short(number)


def identifier(number: int) -> bytes:
    """Encode a subscription identifier."""
    return b"\x0b" + packets.variable(number)


@pytest.fixture
def world() -> World:
    return World()


def subscribe(peer: Peer, text: str, options: int, *pieces: bytes) -> list[Answer]:
    """Subscribe; return what came behind SUBACK."""
    suback, *others = peer.send(packets.subscribe(1, (text, options), pieces=pieces))
    assert (suback.name, suback.body[-1]) == ("SUBACK", options & 3)
    return others


# ---------------------------------------------------------------- subscription identifiers


def test_overlapping_subscriptions_deliver_a_copy_each_with_its_identifier(world: World) -> None:
    peer = world.connect(level=5)
    subscribe(peer, "a/b", 2, identifier(2))
    subscribe(peer, "a/#", 1, identifier(300))
    subscribe(peer, "+/b", 0)
    world.connect("sender").publish("a/b", b"x", 2)
    found = {(each.qos, each.properties) for each in peer.published()}
    assert found == {(2, identifier(2)), (1, identifier(300)), (0, b"")}


def test_repeated_subscribe_changes_the_identifier(world: World) -> None:
    peer = world.connect(level=5)
    sender = world.connect("sender")
    for number, pieces in ((1, (identifier(1),)), (2, (identifier(2),)), (3, ())):
        subscribe(peer, "t", 1, *pieces)
        sender.publish("t", b"x")
        assert [each.properties for each in peer.published()] == [b"".join(pieces)], number


def test_identifiers_outlive_the_connection(world: World) -> None:
    expiry = b"\x11\0\0\0\x09"
    peer = world.connect(level=5, pieces=(expiry,))
    subscribe(peer, "t", 1 | RETAIN_AS_PUBLISHED, identifier(7))
    peer.drop()
    world.connect("sender").publish("t", b"x", 1, retain=True)
    peer = world.connect(level=5, clean=False, pieces=(expiry,))
    [found] = peer.published(peer.greeting)
    assert (found.properties, found.retain) == (identifier(7), True)


# ---------------------------------------------------------------- retained messages


def test_retain_as_published(world: World) -> None:
    peer = world.connect(level=5)
    subscribe(peer, "kept", RETAIN_AS_PUBLISHED)
    subscribe(peer, "plain", 0)
    sender = world.connect("sender", 5)
    for topic in ("kept", "plain"):
        sender.publish(topic, b"1")
        sender.publish(topic, b"2", retain=True)
    found = [(each.topic, each.payload, each.retain) for each in peer.published()]
    assert found == [("kept", b"1", False), ("kept", b"2", True), ("plain", b"1", False), ("plain", b"2", False)]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retain_handling(world: World, qos: int, durable: bool) -> None:
    world.connect("sender").publish("t", b"x", 2, retain=True)
    peer = world.connect(level=5, pieces=(b"\x11\0\0\0\x09",) if durable else ())
    assert subscribe(peer, "never", qos | NEVER) == []
    assert [each.name for each in subscribe(peer, "t", qos | IF_NEW)] == ["PUBLISH"]
    assert subscribe(peer, "t", qos | IF_NEW) == []
    [again] = peer.published(subscribe(peer, "t", qos))
    assert (again.payload, again.retain, again.qos) == (b"x", True, qos)
    assert subscribe(peer, "t", (qos + 1) % 3 | IF_NEW) == []
    assert subscribe(peer, "t", qos | NEVER) == []


def test_restored_subscription_is_not_new(world: World) -> None:
    world.connect("sender").publish("t", b"x", 1, retain=True)
    expiry = b"\x11\0\0\0\x09"
    peer = world.connect(level=5, pieces=(expiry,))
    subscribe(peer, "t", 1 | NEVER)
    peer.drop()
    peer = world.connect(level=5, clean=False, pieces=(expiry,))
    assert peer.greeting == []
    assert subscribe(peer, "t", 1 | IF_NEW) == []


# ---------------------------------------------------------------- topic aliases


def test_broker_sends_topic_aliases(world: World) -> None:
    peer = world.connect(level=5, pieces=(alias_maximum(2),))
    subscribe(peer, "#", 2)
    sender = world.connect("sender")
    for number, topic in enumerate(("a", "a", "b", "a", "c", "a", "b"), 1):
        sender.publish(topic, b"x", number % 3, number)
    found = [(each.topic, each.properties) for each in peer.published()]
    assert found == [
        ("a", alias(1)),
        ("", alias(1)),
        ("b", alias(2)),
        ("", alias(1)),
        ("c", alias(2)),
        ("", alias(1)),
        ("b", alias(2)),
    ]


@pytest.mark.parametrize("level", [4, 5])
def test_no_aliases_unless_the_client_accepts_them(world: World, level: int) -> None:
    peer = world.connect(level=level)
    peer.subscribe(("t", 0))
    sender = world.connect("sender")
    sender.publish("t", b"x")
    sender.publish("t", b"y")
    assert [(each.topic, each.properties) for each in peer.published()] == [("t", b"")] * 2


def test_message_that_only_an_alias_makes_too_large_is_sent_without(world: World) -> None:
    peer = world.connect(level=5, pieces=(alias_maximum(1), b"\x27\0\0\0\x17"))
    subscribe(peer, "t", 0)
    sender = world.connect("sender")
    for payload in (b"x" * 17, b"x" * 19, b"1"):
        sender.publish("t", payload)
    found = [(each.topic, each.payload, each.properties) for each in peer.published()]
    assert found == [("t", b"x" * 17, b""), ("t", b"1", alias(1))]


def test_topic_aliases_are_limited() -> None:
    aliases = TopicAliases(65_535)
    for number in range(ALIASES_MAX + 5):
        expected = Alias(number % ALIASES_MAX + 1, is_known=False)
        assert aliases.find(b"%d" % number) == expected
        aliases.record(b"%d" % number, expected)
    assert aliases.find(b"0") == Alias(6, is_known=False)
    assert aliases.find(b"5") == Alias(6, is_known=True)
    assert aliases.find(b"x" * (NAME_BYTES_MAX + 1)) is None


# ---------------------------------------------------------------- server keep-alive


@pytest.mark.parametrize(
    ("asked", "answered", "closes_at"), [(120, True, 90), (0, True, 90), (60, False, 90), (5, False, 7.5)]
)
def test_server_keep_alive(asked: int, answered: bool, closes_at: float) -> None:
    peer = World(limits=MqttLimits(keep_alive_max=60)).open(5)
    [connack] = peer.send(packets.connect("dev1", level=5, keep_alive=asked))
    assert (b"\x13\0\x3c" in connack.body) is answered
    assert peer.link.wakes_at == closes_at


def test_keep_alive_of_earlier_versions_is_accepted() -> None:
    peer = World(limits=MqttLimits(keep_alive_max=60)).connect(keep_alive=120)
    assert peer.link.wakes_at == 180


# ---------------------------------------------------------------- publishing


def test_repeated_publish_may_define_an_alias(world: World) -> None:
    receiver = world.connect("receiver")
    receiver.subscribe(("t", 0))
    expiry = b"\x11\0\0\0\x09"
    peer = world.connect(level=5, pieces=(expiry,))
    first = packets.publish("t", b"1", qos=2, packet_id=1, pieces=(alias(4),))
    assert peer.names(first) == ["PUBREC"]
    peer.drop()
    peer = world.connect(level=5, clean=False, pieces=(expiry,))
    assert peer.names(first, packets.publish("", b"2", pieces=(alias(4),))) == ["PUBREC"]
    assert receiver.payloads() == [b"1", b"2"]


def test_refusals_keep_the_order_of_answers(world: World) -> None:
    world.connect("keeper", clean=False).subscribe(("t", 1))
    peer = world.connect(level=5)
    world.store.is_slow = True
    assert peer.publish("t", b"x", 1, 1) == peer.publish("a/+", b"x", 1, 2) == []
    world.store.sync()
    assert [each.body for each in peer.receive()] == [b"\0\1", b"\0\2\x90"]


@pytest.mark.parametrize(("limit", "is_there"), [(None, True), (30, False)])
def test_reason_string_respects_the_packet_size_of_the_client(world: World, limit: int | None, is_there: bool) -> None:
    peer = world.connect(level=5, pieces=() if limit is None else (b"\x27" + limit.to_bytes(4, "big"),))
    [answer] = peer.send(packets.connect("again", level=5))
    assert (answer.name, answer.body[0]) == ("DISCONNECT", 0x82)
    assert (len(answer.body) > 2) is is_there


def test_connack_comes_before_any_disconnect(world: World) -> None:
    world.store.is_slow = True
    first = world.open(5)
    assert first.send(packets.connect("dev1", level=5)) == []
    world.open(5).send(packets.connect("dev1", level=5))
    [answer] = first.receive()
    assert (answer.name, answer.body[1]) == ("CONNACK", 0x89)
    assert first.link.closed


def test_changed_quality_of_a_plain_subscription_loses_nothing_that_waits(world: World) -> None:
    peer = world.connect(level=5, pieces=(b"\x21\0\1",))
    subscribe(peer, "t", 1)
    sender = world.connect("sender")
    for number in range(3):
        sender.publish("t", b"%d" % number, 1, number + 1)
    [first] = peer.published()
    assert subscribe(peer, "t", 2) == []
    sender.publish("t", b"3", 2, 4)
    found = [first]
    for number in range(3):
        peer.session.receive(packets.packet(packets.PUBACK, packets.short(found[-1].packet_id)))
        found += peer.published()
        assert len(found) == number + 2
    assert [(each.payload, each.qos) for each in found] == [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 2)]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pieces": (b"\x16" + packets.text("data"),)}, 0x82),
        ({"will": ("t", b"w"), "will_pieces": (b"\x08" + packets.text(""),)}, 0x90),
        ({"will": ("t", b"w"), "will_pieces": (b"\x08" + packets.text("a/#"),)}, 0x90),
    ],
    ids=["authentication data without a method", "empty response topic", "response topic with a wildcard"],
)
def test_connect_with_wrong_properties_is_refused(world: World, options: dict[str, Any], reason: int) -> None:
    peer = world.open(level=5)
    (connack,) = peer.send(packets.connect("dev", level=5, **options))
    assert (connack.name, connack.body[1]) == ("CONNACK", reason)
    assert peer.link.closed


def test_client_that_accepts_no_connack_is_closed(world: World) -> None:
    """A packet larger than it accepts must not be sent to it."""
    for limit in (2, 10):
        peer = world.open(level=5)
        assert peer.send(packets.connect("dev", level=5, pieces=(b"\x27" + limit.to_bytes(4, "big"),))) == []
        assert peer.link.closed
    peer = world.open(level=5)
    wrong = (b"\x27\0\0\0\2", b"\x16" + packets.text("data"))
    assert peer.send(packets.connect("dev", level=5, pieces=wrong)) == []
    assert peer.link.closed


def test_refused_message_with_an_unknown_packet_id_gets_no_pubrel(world: World) -> None:
    peer = world.connect(level=5)
    assert peer.send(packets.packet(packets.PUBREC, packets.short(9), b"\x97")) == []
    assert peer.names(packets.packet(packets.PUBREC, packets.short(9))) == ["PUBREL"]
