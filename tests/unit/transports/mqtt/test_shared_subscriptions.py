"""Shared subscriptions of MQTT 5: each message goes to one member, and to another one if that member is lost."""

from collections import Counter

import pytest

from pybroker.broker.domain.security import Authenticator, Credentials, Decided, User
from tests import mqtt_packets as packets
from tests.unit.transports.mqtt.conversation import Peer, World

FILTER = "$share/g/t/+"
EXPIRY = b"\x11\0\0\0\x09"
NO_LOCAL = 4


@pytest.fixture
def world() -> World:
    return World()


def member(world: World, name: str, *pieces: bytes, clean: bool = True, qos: int = 1) -> Peer:
    peer = world.connect(name, 5, clean=clean, pieces=pieces)
    [suback] = peer.subscribe((FILTER, qos))
    assert suback.body[-1] == min(qos, 1)
    return peer


def publish(world: World, *payloads: bytes) -> None:
    sender = world.connect("sender")
    for packet_id, payload in enumerate(payloads, 1):
        assert sender.publish("t/x", payload, 1, packet_id) == ["PUBACK"]


def acknowledge(peer: Peer) -> list[bytes]:
    """Acknowledge what has come; return the payloads."""
    found = peer.published()
    for each in found:
        peer.session.receive(packets.packet(packets.PUBACK, packets.short(each.packet_id)))
    return [each.payload for each in found]


def group_names(world: World) -> list[str]:
    return [info.key for info in world.broker.subscriptions_of(FILTER)]


def test_three_members_get_each_message_once(world: World) -> None:
    members = [member(world, f"m{number}", qos=number) for number in range(3)]
    other = world.connect("other", 5)
    other.subscribe(("t/x", 0))
    payloads = [b"%d" % number for number in range(30)]
    publish(world, *payloads)
    found = [acknowledge(peer) for peer in members]
    assert Counter(payload for each in found for payload in each) == Counter(payloads)
    assert {len(each) for each in found} == {10}
    assert other.payloads() == payloads


def test_packet_with_the_most_groups_is_answered(world: World) -> None:
    peer = world.connect("m", 5)
    [suback] = peer.subscribe(*[(f"$share/g{number}/t", 1) for number in range(1000)])
    assert suback.body[-1000:] == b"\1" * 1000
    sender = world.connect("sender")
    assert sender.publish("t", b"1", 0) == []
    assert peer.payloads() == [b"1"] * 1000


def test_shared_subscriptions_of_a_session_are_limited(world: World) -> None:
    """All groups of a client that is lost end in one turn of the event loop: 6,000 of them stalled others for 1 s."""
    filters = [(f"$share/g{number}/t", 1) for number in range(1000)]
    peer = world.connect("m", 5, clean=False, pieces=[EXPIRY])
    peer.subscribe(*filters)
    [suback] = peer.subscribe(("$share/more/t", 1), ("t", 1), filters[0])
    assert suback.body[-3:] == b"\x97\1\1"
    peer.drop()
    back = world.connect("m", 5, clean=False, pieces=[EXPIRY])
    [suback] = back.subscribe(("$share/more/t", 1))
    assert suback.body[-1:] == b"\x97"
    back.send(packets.unsubscribe(2, filters[0][0], pieces=[]))
    [suback] = back.subscribe(("$share/more/t", 1))
    assert suback.body[-1:] == b"\1"
    assert world.connect("other", 5).subscribe(("$share/more/t", 1))[0].body[-1:] == b"\1"


def test_member_that_is_lost_has_its_messages_redelivered(world: World) -> None:
    first, second = member(world, "m1"), member(world, "m2")
    publish(world, b"1", b"2", b"3", b"4")
    kept = acknowledge(second)
    lost = first.payloads()
    assert len(lost) == len(kept) == 2
    first.drop()
    again = second.published()
    assert [(each.payload, each.dup) for each in again] == [(payload, False) for payload in lost]


def test_member_with_a_full_window_gets_nothing_more(world: World) -> None:
    slow = member(world, "slow", b"\x21\0\1")
    fast = member(world, "fast")
    publish(world, *[b"%d" % number for number in range(9)])
    assert len(fast.published()) == 8
    [held] = slow.published()
    publish(world, b"x")
    assert acknowledge(fast) == [b"x"]
    slow.session.receive(packets.packet(packets.PUBACK, packets.short(held.packet_id)))
    publish(world, b"y", b"z")
    assert len(slow.published()) == 1


def test_backlog_waits_while_all_windows_are_full(world: World) -> None:
    peer = member(world, "m1", b"\x21\0\1")
    publish(world, b"1", b"2", b"3")
    assert [acknowledge(peer) for _ in range(4)] == [[b"1"], [b"2"], [b"3"], []]


def test_member_that_does_not_read_gets_nothing_more(world: World) -> None:
    slow, fast = member(world, "slow"), member(world, "fast")
    slow.session.pause_writing()
    publish(world, b"1", b"2")
    assert acknowledge(fast) == [b"1", b"2"]
    fast.drop()
    publish(world, b"3")
    assert slow.published() == []
    slow.session.written()
    assert acknowledge(slow) == [b"3"]


def test_backlog_waits_for_a_session_that_outlives_its_connection(world: World) -> None:
    member(world, "m1", EXPIRY).drop()
    publish(world, b"1", b"2")
    peer = world.connect("m1", 5, clean=False, pieces=(EXPIRY,))
    assert peer.is_session_present
    assert [each.payload for each in peer.published(peer.greeting)] == [b"1", b"2"]
    assert len(world.shared) == 1


def test_last_session_that_ends_discards_the_backlog(world: World) -> None:
    first, second = member(world, "m1"), member(world, "m2", EXPIRY)
    first.drop()
    assert group_names(world) == [f"{FILTER}:AT_LEAST_ONCE:t/+"]
    second.drop()
    publish(world, b"1")
    world.advance(8)
    assert group_names(world) == [f"{FILTER}:AT_LEAST_ONCE:t/+"]
    world.advance(1)
    assert group_names(world) == []
    assert world.broker.subscriptions_of("m2") == []
    member(world, "m1")
    assert world.connect("m2", 5, clean=False).greeting == []


@pytest.mark.parametrize("end", ["unsubscribe", "clean start", "disconnect"])
def test_group_ends_with_its_last_member(world: World, end: str) -> None:
    peer = member(world, "m1", EXPIRY)
    if end == "unsubscribe":
        [answer] = peer.send(packets.unsubscribe(3, FILTER, pieces=()))
        assert answer.body[-1] == 0
    elif end == "clean start":
        world.connect("m1", 5)
    else:
        peer.send(packets.packet(0xE0, b"\0", packets.properties(b"\x11\0\0\0\0")))
    assert group_names(world) == []
    assert world.broker.subscriptions_of("m1") == []
    assert len(world.shared) == 0


def test_members_and_backlog_survive_a_failover(world: World) -> None:
    member(world, "m1", EXPIRY).drop()
    member(world, "m2", EXPIRY).drop()
    publish(world, b"1")
    world.start()
    second = world.connect("m2", 5, clean=False)
    assert acknowledge_greeting(second) == [b"1"]
    second.drop()
    assert group_names(world), "m1 is a member still"
    world.connect("m1", 5, clean=False).drop()
    assert group_names(world) == []


def acknowledge_greeting(peer: Peer) -> list[bytes]:
    found = peer.published(peer.greeting)
    for each in found:
        peer.session.receive(packets.packet(packets.PUBACK, packets.short(each.packet_id)))
    return [each.payload for each in found]


def test_take_over_of_a_member(world: World) -> None:
    first = member(world, "m1", EXPIRY)
    publish(world, b"1")
    assert first.payloads() == [b"1"]
    second = world.connect("m1", 5, clean=False, pieces=(EXPIRY,))
    assert first.link.closed
    assert acknowledge_greeting(second) == [b"1"]


def test_deliveries_follow_suback(world: World) -> None:
    member(world, "m1")
    second = world.connect("m2", 5)
    world.store.is_slow = True
    assert second.send(packets.subscribe(1, (FILTER, 1), pieces=())) == []
    world.store.is_slow = False
    publish(world, b"1", b"2")
    assert second.published() == []
    world.store.sync()
    assert [each.name for each in second.receive()] == ["SUBACK"]
    publish(world, b"3", b"4")
    assert len(second.published()) == 1


def test_options(world: World) -> None:
    sender = world.connect("sender")
    sender.publish("t/x", b"retained", 1, retain=True)
    peer = world.connect("m1", 5)
    answers = peer.send(packets.subscribe(1, (FILTER, 2 | 8), pieces=(b"\x0b\x05",)))
    assert [each.name for each in answers] == ["SUBACK"]
    sender.publish("t/x", b"live", 2, 3, retain=True)
    [found] = peer.published()
    assert (found.payload, found.qos, found.retain, found.properties) == (b"live", 1, True, b"\x0b\x05")
    assert peer.subscribe((FILTER, 0))[0].body[-1] == 0
    sender.publish("t/x", b"more", 1, 4)
    assert [(each.payload, each.qos) for each in peer.published()] == [(b"more", 0)]
    [answer] = peer.send(packets.subscribe(1, (FILTER, NO_LOCAL), pieces=()))
    assert (answer.name, answer.body[0]) == ("DISCONNECT", 0x82)


def test_everything_but_reserved_topics(world: World) -> None:
    peer = world.connect("m1", 5)
    peer.subscribe(("$share/g/#", 0))
    sender = world.connect("sender")
    sender.publish("$own", b"1")
    sender.publish("$share/g/x", b"2")
    sender.publish("x", b"3")
    assert peer.payloads() == [b"3"]


def test_client_id_of_a_group_is_refused(world: World) -> None:
    [answer] = world.open(5).send(packets.connect(FILTER, level=5))
    assert (answer.name, answer.body[1]) == ("CONNACK", 0x85)


def test_earlier_versions_have_no_shared_subscriptions(world: World) -> None:
    peer = world.connect("m1")
    peer.subscribe((FILTER, 1))
    publish(world, b"1")
    assert peer.payloads() == []
    world.connect("sender").publish("$share/g/t/x", b"2")
    assert peer.payloads() == [b"2"]


def test_group_that_an_operator_closes_closes_its_members(world: World) -> None:
    members = [member(world, "m1"), member(world, "m2", EXPIRY)]
    [connection] = [each for each in world.broker.connections() if each.client_id == FILTER]
    connection.stop()
    assert all(peer.link.closed for peer in members)
    assert len(world.shared) == 0


class _EachUser(Authenticator):
    """Believes everyone."""

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        decided(User(credentials.user or ""))


def test_group_belongs_to_the_user_of_its_first_member() -> None:
    world = World(_EachUser())
    for name, reason in (("ann", 1), ("bob", 0x87), ("ann", 1)):
        peer = world.open(5)
        peer.send(packets.connect(f"{name}{reason}", level=5, user=name, password="x"))
        [suback] = peer.subscribe((FILTER, 1))
        assert suback.body[-1] == reason


def test_members_that_come_and_go_leave_nothing(world: World) -> None:
    first = member(world, "m1", EXPIRY)
    for number in range(50):
        member(world, f"n{number}").drop()
    assert world.shared.membership_count == 1
    publish(world, b"x")
    assert first.payloads() == [b"x"]
    world.connect("sender").drop()
    first.send(packets.packet(0xE0, b"\0", packets.properties(b"\x11\0\0\0\0")))
    assert world.shared.membership_count == 0
    assert list(world.broker.connections()) == []
