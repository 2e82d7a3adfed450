"""The receive maximum of MQTT 5: of the broker, which clients must respect, and of a client."""

import gc

import pytest

from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.mqtt.packets import MqttLimits
from tests import mqtt_packets as packets
from tests.unit.transports.mqtt.conversation import Peer, World

RECEIVE_MAXIMUM = b"\x21"


@pytest.fixture
def world() -> World:
    return World(limits=MqttLimits(receive_maximum=2))


def excess_of(peer: Peer, packet_id: int, qos: int) -> int | None:
    """Publish once more; return the reason code of DISCONNECT, None if there is none."""
    answers = peer.send(packets.publish("t", b"x", qos=qos, packet_id=packet_id, pieces=()))
    return answers[-1].body[0] if answers and answers[-1].name == "DISCONNECT" else None


def test_receive_maximum_is_announced(world: World) -> None:
    [answer] = world.open(5).send(packets.connect("dev1", level=5))
    assert RECEIVE_MAXIMUM + b"\0\2" in answer.body


def test_quality_2_counts_until_pubrel(world: World) -> None:
    peer = world.connect(level=5)
    peer.publish("t", b"x", 2, 1)
    peer.publish("t", b"x", 2, 2)
    assert peer.publish("t", b"x", 2, 2, dup=True) == ["PUBREC"]
    peer.acknowledge(packets.PUBREL, 1)
    assert excess_of(peer, 3, 2) is None
    assert excess_of(peer, 4, 1) == 0x93
    assert peer.link.closed


def test_quality_1_counts_until_puback(world: World) -> None:
    world.connect("keeper", clean=False).subscribe(("t", 1))
    peer = world.connect(level=5)
    world.store.is_slow = True
    assert peer.publish("t", b"x", 1, 1) == peer.publish("t", b"x", 1, 2) == []
    world.store.sync()
    assert [each.name for each in peer.receive()] == ["PUBACK", "PUBACK"]
    peer.publish("t", b"x", 1, 3)
    peer.publish("t", b"x", 1, 4)
    assert excess_of(peer, 5, 0) is None
    assert excess_of(peer, 5, 2) == 0x93


def test_refused_message_does_not_count(world: World) -> None:
    peer = world.connect(level=5)
    for packet_id in range(1, 5):
        assert peer.publish("a/+", b"x", 2, packet_id) == ["PUBREC"]
    assert not peer.link.closed


def test_new_connection_has_the_whole_quota(world: World) -> None:
    expiry = (b"\x11\0\0\0\x09",)
    peer = world.connect(level=5, clean=False, pieces=expiry)
    peer.publish("t", b"x", 2, 1)
    peer.publish("t", b"x", 2, 2)
    peer.drop()
    peer = world.connect(level=5, clean=False, pieces=expiry)
    assert peer.publish("t", b"x", 2, 3) == ["PUBREC"]
    assert [each.name for each in peer.acknowledge(packets.PUBREL, 1)] == ["PUBCOMP"]
    assert peer.publish("t", b"x", 2, 2, dup=True) == ["PUBREC"]
    assert excess_of(peer, 4, 2) == 0x93


def test_earlier_versions_have_no_receive_maximum(world: World) -> None:
    peer = world.connect()
    for packet_id in range(1, 5):
        assert peer.publish("t", b"x", 2, packet_id) == ["PUBREC"]


def test_window_of_the_client_is_respected(world: World) -> None:
    receiver = world.connect(level=5, pieces=(RECEIVE_MAXIMUM + b"\0\1",))
    receiver.subscribe(("t", 2), ("u", 0))
    sender = world.connect("sender")
    for number in range(4):
        sender.publish("t", b"%d" % number, number % 2 + 1, number + 1)
    got: list[bytes] = []
    for number in range(4):
        [found] = receiver.published()
        got.append(found.payload)
        if number % 2:
            receiver.session.receive(packets.packet(packets.PUBREC, packets.short(found.packet_id)))
            [pubrel] = receiver.receive()
            assert pubrel.name == "PUBREL"
            receiver.session.receive(packets.packet(packets.PUBCOMP, packets.short(found.packet_id)))
        else:
            receiver.session.receive(packets.packet(packets.PUBACK, packets.short(found.packet_id)))
    assert got == [b"0", b"1", b"2", b"3"]
    sender.publish("u", b"last")
    assert receiver.payloads() == [b"last"]


def test_core_keeps_what_is_beyond_the_window(world: World) -> None:
    receiver = world.connect("dev1", 5, pieces=(RECEIVE_MAXIMUM + b"\0\2", b"\x11\0\0\0\x09"))
    receiver.subscribe(("t", 1), ("u", 1))
    sender = world.connect("sender")
    for number in range(4):
        sender.publish("t", b"x", 1, number + 1)
        sender.publish("u", b"x", 1, number + 1)
    assert len(receiver.published()) == 2
    outstanding = sum(len(durable.in_flight()) for durable in world.broker.durables.values())
    assert outstanding == 2, "bodies of others may leave memory, and could not be sent"


def test_client_of_3_1_1_that_sends_on_is_not_answered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the core does not withhold the answers while there is no space, but reads no more."""
    found: list[bool] = []
    send = BrokerConnection.send

    def spy(self: BrokerConnection, message: Message, *, answered: bool) -> bool:
        found.append(answered)
        return send(self, message, answered=answered)

    world.connect("keeper", clean=False).subscribe(("t", 1))
    peer = world.connect()
    monkeypatch.setattr(BrokerConnection, "send", spy)
    world.store.is_slow = True
    for packet_id in range(1, 4):
        peer.publish("t", b"x", 1, packet_id)
    world.store.sync()
    peer.publish("t", b"x", 1, 4)
    assert found == [True, True, False, True]


def test_unacknowledged_deliveries_keep_no_messages(world: World) -> None:
    receiver = world.connect(level=5)
    receiver.subscribe(("t", 1))
    world.connect("sender").publish("t", b"x" * 1_200_000, 1)
    assert len(receiver.published()) == 1
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, Message) and len(each.data) > 1_000_000] == []


def test_pubcomp_before_redelivery_outlives_the_connection(world: World) -> None:
    def connect(window: int) -> Peer:
        pieces = (RECEIVE_MAXIMUM + packets.short(window), b"\x11\0\0\0\x09")
        return world.connect("dev1", 5, clean=False, pieces=pieces)

    receiver = connect(2)
    receiver.subscribe(("t", 2))
    sender = world.connect("sender")
    for packet_id in (1, 2):
        sender.publish("t", b"%d" % packet_id, 2, packet_id)
    first, second = receiver.published()
    for each in (first, second):
        receiver.acknowledge(packets.PUBREC, each.packet_id)
    receiver.drop()
    receiver = connect(1)  # the core delivers the first again, and the second only when there is space
    assert [each.name for each in receiver.greeting] == ["PUBREL", "PUBREL"]
    assert receiver.acknowledge(packets.PUBCOMP, second.packet_id) == []
    receiver.drop()
    for _ in range(2):  # the connection may end before the broker has acknowledged it in the core
        receiver = connect(2)
        assert [(each.name, each.body) for each in receiver.greeting] == [("PUBREL", packets.short(first.packet_id))]
        receiver.drop()
    receiver = connect(2)
    receiver.session.on_timer()
    receiver.acknowledge(packets.PUBCOMP, first.packet_id)
    assert [durable.pending.count for durable in world.broker.durables.values()] == [0]
    assert [durable.in_flight() for durable in world.broker.durables.values()] == [[]]
