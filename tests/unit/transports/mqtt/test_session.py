"""MQTT conversations with a broker in memory: connecting, quality of service, sessions, wills, retained messages."""

from collections.abc import Callable

import pytest

from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.message import MessageType, view
from pybroker.broker.domain.openwire.template import MessageTemplate
from tests import mqtt_packets as packets
from tests.unit.transports.mqtt.conversation import Peer, World

PUBACK, PUBREC, PUBREL, PUBCOMP = packets.PUBACK, packets.PUBREC, packets.PUBREL, packets.PUBCOMP


@pytest.fixture
def world() -> World:
    return World()


# ---------------------------------------------------------------- CONNECT


@pytest.mark.parametrize("level", [3, 4, 5])
def test_each_version_is_accepted(world: World, level: int) -> None:
    peer = world.connect(level=level)
    assert peer.session.is_connected
    assert not peer.is_session_present
    assert peer.names(packets.PINGREQ) == ["PINGRESP"]


def test_newer_version_is_refused(world: World) -> None:
    peer = world.open()
    data = packets.packet(packets.CONNECT, packets.text("MQTT"), b"\x06\2\0\0", packets.text("x"))
    [answer] = peer.send(data)
    assert (answer.name, answer.body) == ("CONNACK", b"\0\1")
    assert peer.link.closed


def test_empty_client_id(world: World) -> None:
    assert world.connect("").session.is_connected
    peer = world.open()
    [answer] = peer.send(packets.connect("", clean=False))
    assert answer.body == b"\0\2"
    assert peer.link.closed


def test_client_of_mqtt_5_is_told_the_id_that_it_gets(world: World) -> None:
    peer = world.open(5)
    [answer] = peer.send(packets.connect("", level=5))
    assert b"\x12" + packets.text("ID:host-1-1") in answer.body


@pytest.mark.parametrize(
    "data",
    [b"\0\0", packets.PINGREQ, packets.publish("t", b""), packets.subscribe(1, ("t", 0)), b"GET / HTTP/1.1\r\n\r\n"],
)
def test_what_comes_before_connect_closes(world: World, data: bytes) -> None:
    peer = world.open()
    assert peer.send(data) == []
    assert peer.link.closed


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc", "it speaks TLS: use a port of MQTT with TLS"),
        (b"AMQP\0\1\0\0", "it speaks AMQP: use a port of that, or of auto"),
        (b"\x30\3\0\1t", "PublishPacket came before CONNECT"),
    ],
)
def test_client_of_another_port_is_logged_with_the_remedy(
    world: World, head: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.open().send(head)
    [line] = caplog.messages
    assert line.endswith(f"closed: {reason}")


def test_second_connect_closes(world: World) -> None:
    peer = world.connect()
    assert peer.send(packets.connect("dev1")) == []
    assert peer.link.closed


def test_silence_before_connect_closes(world: World) -> None:
    peer = world.open()
    assert peer.link.wakes_at == 30.0
    peer.session.on_timer()
    assert peer.link.closed


def test_connack_waits_for_the_disk(world: World) -> None:
    world.store.is_slow = True
    peer = world.open()
    assert peer.send(packets.connect("dev1", clean=False), packets.PINGREQ) == []
    world.store.sync()
    assert [each.name for each in peer.receive()] == ["CONNACK", "PINGRESP"]


# ---------------------------------------------------------------- quality of service


@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("level", [4, 5])
def test_lower_quality_of_service_wins(world: World, sent: int, granted: int, level: int) -> None:
    receiver = world.connect("receiver", level)
    [suback] = receiver.subscribe(("a/b", granted))
    assert suback.body[-1] == granted
    sender = world.connect("sender", level)
    answers = sender.publish("a/b", b"x", sent)
    assert answers == [[], ["PUBACK"], ["PUBREC"]][sent]
    [found] = receiver.published()
    assert (found.topic, found.payload, found.qos) == ("a/b", b"x", min(sent, granted))
    assert (found.packet_id > 0) is (found.qos > 0)


def test_puback_comes_when_the_message_is_on_disk(world: World) -> None:
    world.connect("keeper", clean=False).subscribe(("t", 1))
    sender = world.connect("sender")
    world.store.is_slow = True
    assert sender.publish("t", b"x", 1, 9) == []
    world.store.sync()
    [answer] = sender.receive()
    assert (answer.name, answer.body) == ("PUBACK", b"\0\x09")


def test_second_publish_with_the_packet_id_is_stored_once(world: World) -> None:
    receiver = world.connect("receiver")
    receiver.subscribe(("t", 0))
    sender = world.connect("sender")
    assert sender.publish("t", b"x", 2, 5) == ["PUBREC"]
    assert sender.publish("t", b"x", 2, 5, dup=True) == ["PUBREC"]
    assert receiver.payloads() == [b"x"]
    assert [each.name for each in sender.acknowledge(PUBREL, 5)] == ["PUBCOMP"]
    assert sender.publish("t", b"y", 2, 5) == ["PUBREC"]
    assert receiver.payloads() == [b"y"]


def test_inbound_quality_2_survives_a_reconnect(world: World) -> None:
    receiver = world.connect("receiver")
    receiver.subscribe(("t", 0))
    sender = world.connect("sender", clean=False)
    sender.publish("t", b"x", 2, 5)
    sender.drop()
    sender = world.connect("sender", clean=False)
    assert sender.is_session_present
    assert sender.publish("t", b"x", 2, 5, dup=True) == ["PUBREC"]
    assert receiver.payloads() == [b"x"]


def test_outgoing_quality_2(world: World) -> None:
    receiver = world.connect("receiver", clean=False)
    receiver.subscribe(("t", 2))
    world.connect("sender").publish("t", b"x", 2)
    [found] = receiver.published()
    [pubrel] = receiver.acknowledge(PUBREC, found.packet_id)
    assert (pubrel.name, pubrel.flags) == ("PUBREL", 2)
    assert receiver.acknowledge(PUBCOMP, found.packet_id) == []
    receiver.drop()
    assert world.connect("receiver", clean=False).greeting == []


def test_unknown_acknowledgements(world: World) -> None:
    peer = world.connect()
    assert peer.acknowledge(PUBACK, 99) == []
    assert peer.acknowledge(PUBCOMP, 99) == []
    assert [each.name for each in peer.acknowledge(PUBREC, 99)] == ["PUBREL"]
    assert [each.name for each in peer.acknowledge(PUBREL, 99)] == ["PUBCOMP"]
    assert not peer.link.closed


# ---------------------------------------------------------------- sessions


def keeper(world: World, *filters: tuple[str, int], level: int = 4) -> Peer:
    pieces = {"pieces": (b"\x11\xff\xff\xff\xff",)} if level == 5 else {}
    peer = world.connect("dev1", level, clean=False, **pieces)
    if filters:
        peer.subscribe(*filters)
    return peer


@pytest.mark.parametrize("level", [4, 5])
def test_session_gets_what_came_meanwhile_before_it_subscribes(world: World, level: int) -> None:
    keeper(world, ("t/+/x", 1), ("t/two", 2), level=level).drop()
    sender = world.connect("sender")
    for number in range(3):
        sender.publish("t/a/x", b"%d" % number, 1)
    sender.publish("t/two", b"two", 2)
    names = {(info.client_id, info.name, info.destination.name) for info in world.broker.subscriptions_of("dev1")}
    assert names == {("dev1", "AT_LEAST_ONCE:t/+/x", "t.*.x"), ("dev1", "EXACTLY_ONCE:t/two", "t.two")}
    peer = keeper(world, level=level)
    assert peer.is_session_present
    found = peer.published(peer.greeting)
    assert sorted(each.payload for each in found) == [b"0", b"1", b"2", b"two"]


def test_unacknowledged_messages_come_again_with_their_packet_ids(world: World) -> None:
    peer = keeper(world, ("t", 1))
    sender = world.connect("sender")
    for number in range(3):
        sender.publish("t", b"%d" % number, 1)
    first = peer.published()
    peer.acknowledge(PUBACK, first[1].packet_id)
    peer.drop()
    peer = keeper(world)
    again = peer.published(peer.greeting)
    assert [(each.payload, each.packet_id, each.dup) for each in again] == [
        (b"0", first[0].packet_id, True),
        (b"2", first[2].packet_id, True),
    ]
    sender.publish("t", b"3", 1)
    [new] = peer.published()
    assert new.packet_id not in {each.packet_id for each in again}
    assert not new.dup


def test_pubrel_comes_again_instead_of_the_message(world: World) -> None:
    peer = keeper(world, ("t", 2))
    world.connect("sender").publish("t", b"x", 2)
    [found] = peer.published()
    peer.acknowledge(PUBREC, found.packet_id)
    peer.drop()
    peer = keeper(world)
    assert [(each.name, each.body) for each in peer.greeting] == [("PUBREL", packets.short(found.packet_id))]
    assert peer.acknowledge(PUBCOMP, found.packet_id) == []
    peer.drop()
    assert keeper(world).greeting == []


def taken_over(world: World, level: int = 4) -> tuple[Peer, Peer]:
    """A client with a session of QoS 2 that a new master continues, which has a message for it; and the sender."""
    never_ends = (b"\x11\xff\xff\xff\xff",) if level == 5 else ()
    peer = world.connect(level=level, clean=False, pieces=never_ends)
    peer.subscribe(("t", 2))
    peer.drop()
    world.start()
    sender = world.connect("sender")
    sender.publish("t", b"m1", 2, 1)
    return world.connect(level=level, clean=False, pieces=never_ends), sender


@pytest.mark.parametrize("level", [4, 5])
def test_new_master_releases_packet_ids_before_it_uses_them(world: World, level: int) -> None:
    """Or a client that waits for the PUBREL of the former one would take no message with that packet identifier."""
    peer, sender = taken_over(world, level)
    assert {each.name for each in peer.greeting} == {"PUBREL"}
    numbers = [int.from_bytes(each.body, "big") for each in peer.greeting]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert [peer.acknowledge(PUBCOMP, number) for number in numbers[:-1]] == [[]] * (len(numbers) - 1)
    (found,) = peer.published(peer.acknowledge(PUBCOMP, numbers[-1]))
    assert (found.payload, found.packet_id) == (b"m1", 1)
    peer.drop()  # what is released stays so
    peer = world.connect(clean=False)
    assert [(each.packet_id, each.dup) for each in peer.published(peer.greeting)] == [(1, True)]
    sender.publish("t", b"m2", 2, 2)
    assert [each.packet_id for each in peer.published()] == [2]


def test_more_packet_ids_are_released_when_all_are_used(world: World) -> None:
    peer, sender = taken_over(world)
    first = len(peer.greeting)
    for filter in ("t/1", "t/2", "t/3"):
        peer.subscribe((filter, 2))
    for number in range(1, first + 1):
        peer.acknowledge(PUBCOMP, number)
    for number in range(300):
        sender.publish(f"t/{number % 3 + 1}", b"m", 1, 7)
    answers = peer.receive()
    assert len(peer.published(answers)) == first - 1
    assert [int.from_bytes(each.body, "big") for each in answers if each.name == "PUBREL"] == [
        *range(first + 1, 2 * first + 1)
    ]
    found = [each for number in range(first + 1, 2 * first + 1) for each in peer.acknowledge(PUBCOMP, number)]
    assert len(peer.published(found)) == 301 - first


def test_pingreq_ends_the_wait_for_packet_ids(world: World) -> None:
    """There are clients that do not answer a PUBREL that they do not expect."""
    peer, _ = taken_over(world)
    answers = peer.send(packets.PINGREQ)
    assert [each.payload for each in peer.published(answers)] == [b"m1"]


def test_session_that_ends_in_the_wait_for_packet_ids_waits_again(world: World) -> None:
    peer, _ = taken_over(world)
    peer.acknowledge(PUBCOMP, 1)
    peer.drop()
    peer = world.connect(clean=False)
    assert len(peer.greeting) > 1
    assert {each.name for each in peer.greeting} == {"PUBREL"}


def test_clean_session_deletes_what_mqtt_clients_made(world: World) -> None:
    keeper(world, ("t", 1)).drop()
    world.connect("sender").publish("t", b"x", 1)
    world.connect("dev1").drop()
    assert world.broker.subscriptions_of("dev1") == []
    peer = keeper(world)
    assert not peer.is_session_present
    assert peer.greeting == []


def test_unsubscribe_deletes(world: World) -> None:
    peer = keeper(world, ("t", 1), ("u", 0))
    assert peer.names(packets.unsubscribe(3, "t", "u", "never")) == ["UNSUBACK"]
    assert world.broker.subscriptions_of("dev1") == []
    world.connect("sender").publish("t", b"x", 1)
    assert peer.payloads() == []


def test_changed_quality_of_service_replaces_the_subscription(world: World) -> None:
    peer = keeper(world, ("t", 1))
    peer.subscribe(("t", 2))
    assert [info.name for info in world.broker.subscriptions_of("dev1")] == ["EXACTLY_ONCE:t"]
    peer.subscribe(("t", 0))
    assert world.broker.subscriptions_of("dev1") == []
    world.connect("sender").publish("t", b"x", 1)
    assert peer.payloads() == [b"x"]


def test_same_filter_twice_is_one_subscription(world: World) -> None:
    peer = world.connect()
    peer.subscribe(("t", 1))
    peer.subscribe(("t", 1))
    world.connect("sender").publish("t", b"x", 1)
    assert peer.payloads() == [b"x"]


def test_take_over(world: World) -> None:
    first = keeper(world, ("t", 1))
    world.connect("sender").publish("t", b"x", 1)
    [found] = first.published()
    second = keeper(world)
    assert first.link.closed
    [again] = second.published(second.greeting)
    assert (again.payload, again.packet_id, again.dup) == (b"x", found.packet_id, True)


def test_client_of_mqtt_5_is_told_that_it_was_taken_over(world: World) -> None:
    first = world.connect(level=5)
    world.connect(level=5)
    [answer] = first.receive()
    assert (answer.name, answer.body[0]) == ("DISCONNECT", 0x8E)


# ---------------------------------------------------------------- wills


@pytest.mark.parametrize("cause", ["lost", "violation", "take-over", "silence", "disconnect"])
def test_will(world: World, cause: str) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe(("will", 1))
    peer = world.connect("dev1", will=("will", b"gone"), will_qos=1, keep_alive=10)
    match cause:
        case "lost":
            peer.drop()
        case "violation":
            peer.send(b"\0\0")
        case "take-over":
            world.connect("dev1")
        case "silence":
            peer.link.now = 14.9
            peer.session.on_timer()
            assert watcher.payloads() == []
            peer.link.now = 15.0
            peer.session.on_timer()
            assert peer.link.closed
        case _:
            peer.send(packets.DISCONNECT)
    peer.drop()
    assert watcher.payloads() == ([] if cause == "disconnect" else [b"gone"])


# ---------------------------------------------------------------- retained messages


def test_retained_message(world: World) -> None:
    sender = world.connect("sender")
    sender.publish("a/b", b"first", 1, retain=True)
    sender.publish("a/b", b"last", 1, retain=True)
    peer = world.connect()
    answers = peer.subscribe(("a/+", 1))
    [found] = peer.published(answers[1:])
    assert (found.payload, found.retain, found.qos) == (b"last", True, 1)
    sender.publish("a/b", b"live", 1, retain=True)
    [live] = peer.published()
    assert (live.payload, live.retain) == (b"live", False)
    sender.publish("a/b", b"", 1, retain=True)
    assert peer.payloads() == [b""]
    assert world.connect("other").subscribe(("a/+", 1))[1:] == []


def test_retained_message_comes_at_each_subscribe(world: World) -> None:
    world.connect("sender").publish("t", b"x", 1, retain=True)
    peer = keeper(world, ("t", 1))
    assert [each.payload for each in peer.published(peer.subscribe(("t", 1)))] == [b"x"]


# ---------------------------------------------------------------- names


def test_wildcards_at_the_beginning_leave_out_advisories_and_dollar_topics(world: World) -> None:
    everything = world.connect("everything")
    everything.subscribe(("#", 0), ("+/x", 0))
    kept = keeper(world, ("#", 1))
    named = world.connect("named")
    named.subscribe(("$own/x", 0))
    world.connect("sender").publish("$own/x", b"1", 1)
    assert (everything.payloads(), kept.payloads(), named.payloads()) == ([], [], [b"1"])
    asking = world.connect("asking")
    asking.subscribe(("ActiveMQ/Advisory/Connection", 0))
    world.connect("one more")
    assert [each.topic for each in asking.published()] == ["ActiveMQ/Advisory/Connection"]
    assert (everything.payloads(), kept.payloads()) == ([], [])


@pytest.mark.parametrize("data", [
    packets.publish("a/+", b""), packets.publish("", b""), packets.publish("a,b", b""), packets.subscribe(1, ("a#", 0)),
])  # fmt: skip
def test_invalid_names_close_before_mqtt_5(world: World, data: bytes) -> None:
    peer = world.connect()
    assert peer.send(data) == []
    assert peer.link.closed


def test_mqtt_5_answers_invalid_names(world: World) -> None:
    peer = world.connect(level=5)
    [suback] = peer.subscribe(("a#", 0), ("ok", 1), ("$share/g", 1))
    assert suback.body[-3:] == b"\x8f\1\x8f"
    assert peer.publish("a/+", b"", 1) == ["PUBACK"]


def test_messages_of_other_kinds(world: World) -> None:
    peer = world.connect()
    peer.subscribe(("#", 2))
    connection = world.broker.connect("jms", "jms", peer.link)
    made = MessageTemplate(ProducerId("jms", 1, 1), topic("a.b")).build(
        type=MessageType.TEXT,
        sequence=1,
        content=encode_text("é"),
        properties={"n": "1"},
        persistent=True,
        timestamp=1,
    )
    assert view(made).text() == "é"
    connection.send(made)
    [found] = peer.published()
    assert (found.topic, found.payload, found.qos) == ("a/b", "é".encode(), 1)


# ---------------------------------------------------------------- limits, and the broker's stop


FULL = DestinationPolicy(memory_limit=1500, send_fail_if_no_space_after_timeout=5000)


@pytest.mark.parametrize("level", [4, 5])
def test_publish_without_space_waits_and_is_refused_in_time(level: int) -> None:
    world = World(policy=FULL)
    kept = keeper(world, ("t", 1))
    sender = world.connect("sender", level)
    assert sender.publish("t", b"x" * 600, 1, 1) == ["PUBACK"]
    assert sender.publish("t", b"late", 1, 2) == []
    assert sender.publish("t", b"behind", 2, 3) == []
    [found] = kept.published()
    kept.acknowledge(PUBACK, found.packet_id)
    assert [(each.name, each.body) for each in sender.receive()] == [("PUBACK", b"\0\2"), ("PUBREC", b"\0\3")]
    kept.drop()
    assert sender.publish("t", b"never", 1, 5) == []
    world.timers.elapse()
    answers = sender.receive()
    if level == 5:
        assert [(each.name, each.body) for each in answers] == [("PUBACK", b"\0\5\x97")]
    else:
        assert answers == []
        assert sender.link.closed
    kept = keeper(world)
    assert [each.payload for each in kept.published(kept.greeting)] == [b"late", b"behind"]


def test_clients_of_mqtt_5_are_told_of_the_stop_and_no_will_is_published(world: World) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe(("will", 0))
    leaving = [world.connect(f"c{level}", level, will=("will", b"gone")) for level in (4, 5)]
    for peer in leaving:
        peer.session.stopping()
        peer.drop()
    assert [[(each.name, each.body) for each in peer.receive()] for peer in leaving] == [
        [], [("DISCONNECT", b"\x8b\0")],
    ]  # fmt: skip
    assert watcher.payloads() == []


def test_new_subscription_gets_no_messages_of_before(world: World) -> None:
    world.connect("other", clean=False).subscribe(("t", 1))
    world.connect("sender").publish("t", b"before", 1)
    peer = world.connect(clean=False)
    assert not peer.published(peer.subscribe(("t", 1), ("+", 1)))
    other = world.connect("other", clean=False)
    assert [each.payload for each in other.published(other.greeting)] == [b"before"]


def test_answers_to_publish_keep_the_order_of_the_packets(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store may confirm them in another one: what no subscriber gets is not written."""
    confirmed: list[Callable[[], None]] = []
    monkeypatch.setattr(world.store, "when_confirmed", confirmed.append)
    peer = world.connect()
    for packet_id, qos in ((1, 1), (2, 2), (3, 1)):
        assert peer.publish("t", b"x", qos, packet_id) == []
    confirmed[2]()
    confirmed[1]()
    assert peer.receive() == []
    confirmed[0]()
    answers = [(each.name, each.body) for each in peer.receive()]
    assert answers == [("PUBACK", b"\0\1"), ("PUBREC", b"\0\2"), ("PUBACK", b"\0\3")]
