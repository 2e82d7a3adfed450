"""The strategy `mqtt-virtual-topic-subscriptions`: virtual topics, and queues in place of durable subscriptions."""

import pytest

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.mqtt.packets import PublishPacket
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.rules import Grants, Rule, Rules
from pybroker.broker.domain.security import Authenticator, Credentials, Decided, User
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.transports.mqtt.mapping import PublishReader
from pybroker.transports.mqtt.outgoing import OutgoingDeliveries
from pybroker.transports.mqtt.subscription_strategy import SubscriptionStrategy
from tests import mqtt_packets as packets
from tests.unit.transports.mqtt.conversation import Peer, World
from tests.unit.transports.mqtt.test_session_expiry import expiry, will_delay
from tests.unit.transports.openwire.conversation import FakeLink

QUEUE = queue("Consumer.dev1:AT_LEAST_ONCE.VirtualTopic.t.*.x")


@pytest.fixture
def world() -> World:
    return World(has_virtual_topics=True)


def kept(world: World, *filters: tuple[str, int], client_id: str = "dev1") -> Peer:
    """Return a client with a session that lasts, and subscriptions."""
    peer = world.connect(client_id, clean=False)
    peer.subscribe(*filters)
    return peer


def queues(world: World) -> list[str]:
    return sorted(each.name for each in world.broker.destinations.queues)


def consumed(world: World, source: Destination) -> list[Message]:
    """Return what a consumer of another protocol gets."""
    found: list[Delivery] = []
    connection = world.broker.connect("reader", "reader", FakeLink())
    consumer = connection.subscribe(ConsumerRequest(destination=source), found.append)
    consumer.start()
    consumer.acknowledge_all(found)
    connection.close()
    return [each.message for each in found]


@pytest.mark.parametrize(
    ("text", "qos", "name"),
    [
        ("t/+/x", 1, "Consumer.dev1:AT_LEAST_ONCE.VirtualTopic.t.*.x"),
        ("t/#", 2, "Consumer.dev1:EXACTLY_ONCE.VirtualTopic.t.>"),
        ("a.b/c", 1, "Consumer.dev1:AT_LEAST_ONCE.VirtualTopic.a/b.c"),
        ("#", 1, "Consumer.dev1:AT_LEAST_ONCE.VirtualTopic.>"),
    ],
)
def test_lasting_subscription_is_a_queue(world: World, text: str, qos: int, name: str) -> None:
    kept(world, (text, qos))
    assert queues(world) == [name]
    assert not world.broker.subscriptions_of("dev1")


def test_client_id_is_swapped_in_the_name(world: World) -> None:
    kept(world, ("t", 1), client_id="e.f")
    assert queues(world) == ["Consumer.e/f:AT_LEAST_ONCE.VirtualTopic.t"]


def test_offline_messages_come_back(world: World) -> None:
    kept(world, ("t/+/x", 1), ("two", 2)).drop()
    sender = world.connect("sender")
    assert sender.publish("t/a/x", b"1", 1) == ["PUBACK"]
    sender.publish("two", b"2", 2)
    peer = world.connect(clean=False)
    assert peer.is_session_present
    found = peer.published(peer.greeting)
    assert [(each.topic, each.payload, each.qos) for each in found] == [("t/a/x", b"1", 1), ("two", b"2", 2)]
    assert peer.acknowledge(packets.PUBACK, found[0].packet_id) == []
    peer.drop()
    peer = world.connect(clean=False)
    [again] = peer.published(peer.greeting)
    assert (again.payload, again.dup, again.packet_id) == (b"2", True, found[1].packet_id)


def test_other_clients_read_the_queue(world: World) -> None:
    kept(world, ("t/+/x", 1)).drop()
    world.connect("sender").publish("t/a/x", b"1", 1)
    [message] = consumed(world, QUEUE)
    assert view(message).original_destination == topic("VirtualTopic.t.a.x")
    assert view(message).properties["ActiveMQ.MQTT.QoS"] == 1
    assert not world.connect(clean=False).greeting


def test_prefix_is_not_repeated(world: World) -> None:
    peer = kept(world, ("VirtualTopic/v", 1), ("v", 0))
    assert queues(world) == []
    [info] = world.broker.subscriptions_of("dev1")
    assert (info.name, info.destination) == ("AT_LEAST_ONCE:VirtualTopic/v", topic("VirtualTopic.v"))
    world.connect("sender").publish("VirtualTopic/v", b"1", 1)
    assert sorted((each.topic, each.qos) for each in peer.published()) == [("v", 0), ("v", 1)]


def test_subscriptions_of_a_clean_session_are_topic_consumers(world: World) -> None:
    peer = world.connect()
    peer.subscribe(("t/#", 2))
    assert queues(world) == []
    world.connect("sender").publish("t/a", b"1", 2)
    assert [(each.topic, each.qos) for each in peer.published()] == [("t/a", 2)]


def test_wildcards_leave_out_names_with_a_dollar(world: World) -> None:
    peers = [world.connect(), kept(world, ("#", 1), client_id="dev2")]
    peers[0].subscribe(("+/x", 1))
    sender = world.connect("sender")
    sender.publish("$a/x", b"1", 1)
    sender.publish("b/x", b"2", 1)
    assert [peer.payloads() for peer in peers] == [[b"2"], [b"2"]]
    peers[1].session.on_timer()  # which acknowledges what is not sent
    peers[1].acknowledge(packets.PUBACK, 1)
    assert not consumed(world, queue("Consumer.dev2:AT_LEAST_ONCE.VirtualTopic.>"))


def test_overlapping_filters_have_their_own_queues(world: World) -> None:
    peer = kept(world, ("t/+/x", 1), ("t/a/x", 1))
    sender = world.connect("sender")
    sender.publish("t/a/x", b"1", 1)
    assert peer.payloads() == [b"1", b"1"]
    assert peer.names(packets.unsubscribe(2, "t/a/x")) == ["UNSUBACK"]
    assert queues(world) == [QUEUE.name]
    sender.publish("t/a/x", b"2", 1)
    assert peer.payloads() == [b"2"]


def test_clean_session_deletes_its_own_queues(world: World) -> None:
    kept(world, ("t", 1)).drop()
    kept(world, ("t", 1), client_id="dev1:1").drop()
    world.connect()
    assert queues(world) == ["Consumer.dev1:1:AT_LEAST_ONCE.VirtualTopic.t"]


def test_quality_is_changed(world: World) -> None:
    peer = kept(world, ("t", 1))
    peer.subscribe(("t", 2))
    assert queues(world) == ["Consumer.dev1:EXACTLY_ONCE.VirtualTopic.t"]
    peer.subscribe(("t", 0))
    assert queues(world) == []


def test_session_of_mqtt_5_ends_with_its_queues(world: World) -> None:
    peer = world.connect("dev1", 5, pieces=(expiry(10),))
    peer.subscribe(("t", 1))
    peer.drop()
    world.advance(9)
    assert len(queues(world)) == 1
    world.advance(1)
    assert queues(world) == []


def test_queue_that_another_client_reads_ends_later(world: World) -> None:
    peer = world.connect("dev1", 5, pieces=(expiry(10),))
    peer.subscribe(("t", 1), ("VirtualTopic/v", 1))
    peer.drop()
    connection = world.broker.connect("reader", "reader", FakeLink())
    request = ConsumerRequest(destination=queue("Consumer.dev1:AT_LEAST_ONCE.VirtualTopic.t"))
    found: list[Delivery] = []
    connection.subscribe(request, found.append)
    world.advance(10)
    assert len(queues(world)) == 1
    assert not world.broker.subscriptions_of("dev1")
    connection.close()
    world.advance(60)
    assert queues(world) == []


@pytest.mark.parametrize("client_id", ["d/e", "a+b", "a#b", "a,b", "a?b"])
def test_client_ids_that_no_queue_can_have(world: World, client_id: str) -> None:
    kept(world, ("t", 1), client_id=client_id).drop()
    assert queues(world) == []
    world.connect("sender").publish("t", b"1", 1)
    peer = world.connect(client_id, clean=False)
    assert [(each.topic, each.payload) for each in peer.published(peer.greeting)] == [("t", b"1")]


def test_no_local_is_kept(world: World) -> None:
    peer = world.connect("dev1", 5, clean=False, pieces=(expiry(10),))
    peer.send(packets.packet(0x82, packets.short(1) + b"\0" + packets.text("t") + bytes([1 | 4])))
    peer.publish("t", b"own", 1)
    world.connect("sender").publish("t", b"1", 1)
    assert peer.payloads() == [b"1"]
    peer.drop()
    peer = world.connect("dev1", 5, clean=False, pieces=(expiry(10),))
    assert peer.is_session_present
    peer.publish("t", b"own", 1)
    assert b"own" not in peer.payloads()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_message_comes_to_the_queue_subscriber(world: World, qos: int) -> None:
    sender = world.connect("sender")
    sender.publish("t/a", b"old", qos, 1, retain=True)
    sender.publish("t/a", b"new", qos, 2, retain=True)
    peer = world.connect(clean=False)
    answers = peer.subscribe(("t/+", 1))
    [found] = peer.published(answers)
    assert (found.topic, found.payload, found.retain, found.qos) == ("t/a", b"new", True, min(qos, 1))
    if found.qos:
        peer.acknowledge(packets.PUBACK, found.packet_id)
    sender.publish("t/a", b"live", 1, 9)
    [live] = peer.published()
    assert (live.payload, live.retain) == (b"live", False)
    assert [each.payload for each in peer.published(peer.subscribe(("t/+", 1)))] == [b"new"]


def test_retained_message_that_is_unanswered_does_not_come_again(world: World) -> None:
    world.connect("sender").publish("t/a", b"kept", 1, retain=True)
    kept(world, ("t/+", 1)).drop()
    assert world.connect(clean=False).greeting == []


def test_will_is_published_to_the_virtual_topic(world: World) -> None:
    watcher = kept(world, ("will", 1), client_id="watcher")
    world.connect(will=("will", b"gone")).drop()
    world.connect("dev2", 5, pieces=(expiry(9),), will=("will", b"late"), will_pieces=(will_delay(1),)).drop()
    world.advance(2)
    assert [(each.topic, each.payload) for each in watcher.published()] == [("will", b"gone"), ("will", b"late")]


def test_response_topic_goes_there_and_back(world: World) -> None:
    service = world.connect("service", 5)
    service.subscribe(("ask", 1))
    response_topic = b"\x08" + packets.text("answer/1")
    world.connect("client", 5).send(packets.publish("ask", b"?", qos=0, pieces=(response_topic,)))
    [request] = service.published()
    assert response_topic in request.properties
    kept(world, ("ask", 1)).drop()
    world.connect("client", 5).send(packets.publish("ask", b"?", qos=0, pieces=(response_topic,)))
    [message] = consumed(world, queue("Consumer.dev1:AT_LEAST_ONCE.VirtualTopic.ask"))
    assert view(message).reply_to == topic("VirtualTopic.answer.1")


def test_shared_subscription_gets_messages(world: World) -> None:
    first = world.connect("a", 5, pieces=(expiry(9),))
    first.subscribe(("$share/g/t/#", 1))
    sender = world.connect("sender")
    sender.publish("t/a", b"1", 1)
    assert [(each.topic, each.payload) for each in first.published()] == [("t/a", b"1")]
    [info] = world.broker.subscriptions_of("$share/g/t/#")
    assert info.destination == topic("VirtualTopic.t.>")


def test_message_that_was_sent_to_the_queue_itself(world: World) -> None:
    peer = kept(world, ("t/+/x", 1), ("u", 1))
    world.connect("sender").publish("t/a/x", b"1", 1)
    [found] = peer.published()
    peer.acknowledge(packets.PUBACK, found.packet_id)
    reader = PublishReader("ID:jms", lambda: world.now_ms, world.broker.next_sequence, strategy=_ToQueue())
    connection = world.broker.connect("jms", "jms", FakeLink())
    for name in ("Consumer.dev1:AT_LEAST_ONCE.VirtualTopic.u", QUEUE.name):  # a name, and one with a wildcard
        connection.send(reader.read(PublishPacket("x", b"direct", 1, False, False, 1), name))
    assert [(each.topic, each.payload) for each in peer.published()] == [("u", b"direct")]
    peer.session.on_timer()
    [letter] = consumed(world, queue("ActiveMQ.DLQ"))
    assert "no topic" in str(view(letter).properties["dlqDeliveryFailureCause"])


class _ToQueue(SubscriptionStrategy):
    """Has the queue of each name."""

    def topic_of(self, text: str) -> Destination:
        return queue(text)


class _EachUser(Authenticator):
    """Believes everyone."""

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        decided(User(credentials.user or "", frozenset((credentials.user or "",))))


def test_queues_of_another_user_are_neither_read_nor_deleted() -> None:
    world = World(_EachUser(), has_virtual_topics=True)
    every, ann = (frozenset(names) for names in (("ann", "bob", "sender"), ("ann",)))
    rules = (Rule(topic(">"), Grants(every, every, every)), Rule(queue(">"), Grants(ann, ann, every)))
    world.broker.use_rules(Rules(rules))
    peer = world.connect(clean=False, user="ann", password="x")
    peer.subscribe(("t/+", 1))
    peer.drop()
    world.connect("sender", user="sender", password="x").publish("t/a", b"1", 1)
    thief = world.connect(clean=False, user="bob", password="x")
    assert not thief.published(thief.greeting)
    answers = thief.send(packets.subscribe(1, ("t/+", 1)))
    assert answers[0].body[-1] == 0x80
    thief.drop()
    world.connect(user="bob", password="x").drop()
    peer = world.connect(clean=False, user="ann", password="x")
    assert [each.payload for each in peer.published(peer.greeting)] == [b"1"]


def test_subscription_without_retained_messages_waits_for_no_space(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[object] = []

    def add_drain(_: OutgoingDeliveries, drain: object) -> None:
        waiting.append(drain)

    monkeypatch.setattr(OutgoingDeliveries, "add_drain", add_drain)
    world.connect(clean=False).subscribe(*((f"t/{number}", 1) for number in range(10)))
    assert not waiting


def test_retained_messages_wait_for_a_client_that_is_slow_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = world.connect("sender")
    for number in range(50):
        sender.publish(f"t/{number}", b"retained", 1, 1, retain=True)
    peer = world.connect(clean=False)
    peer.session.pause_writing()
    peer.session.receive(packets.subscribe(1, ("t/+", 1)))
    sender.publish("t/live", b"live", 1, 1)
    write, slow = peer.link.write, peer.session.pause_writing

    def write_too_much(data: bytes) -> None:
        write(data)
        slow()
        monkeypatch.undo()  # the kernel takes no more, and the link says so once

    monkeypatch.setattr(peer.link, "write", write_too_much)
    peer.session.written()
    assert b"live" in peer.link.output
    assert b"retained" not in peer.link.output
    peer.session.written()
    assert peer.link.output.count(b"retained") == 50
