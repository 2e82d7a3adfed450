"""Advisories that are sent where a policy asks for them."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.topic import TopicSubscription
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.commands import ActiveMQMessage, ConsumerInfo, ProducerInfo
from pybroker.broker.domain.openwire.marshal.transcode import from_store
from pybroker.broker.domain.openwire.values import decode_map
from pybroker.broker.domain.transaction import LocalTransactionId
from tests.unit.core.conftest import Client, Inbox, World, make_message
from tests.unit.core.test_delivered import COUNT, Disk, squeeze, started, text

MakeWorld = Callable[..., World]


def listen(world: World, subject: str) -> Inbox:
    return world.client().subscribe(f"topic://ActiveMQ.Advisory.{subject}")


def properties_of(advisory: ActiveMQMessage) -> dict[str, Any]:
    return decode_map(advisory.marshalled_properties or b"")


def seen(inbox: Inbox) -> list[tuple[str, dict[str, Any]]]:
    """Return the bodies of the messages inside the advisories, `-` for none, and the advisories' own properties."""
    found = []
    for delivery in inbox.deliveries:
        advisory = from_store(inbox.messages[delivery].data)
        assert isinstance(advisory, ActiveMQMessage)
        about = advisory.data_structure
        assert isinstance(about, ActiveMQMessage)
        properties = {
            key: value for key, value in properties_of(advisory).items() if not key.startswith("originBroker")
        }
        properties.pop("orignalMessageId")
        properties.pop("orignalDestination")
        found.append(((about.content or b"-").decode(), properties))
    return found


def test_without_a_policy_there_is_none(world: World) -> None:
    kinds = ("MessageDelivered", "MessageConsumed", "NoConsumer", "SlowConsumer", "FULL", "FastProducer")
    inboxes = [listen(world, f"{kind}.Queue.>") for kind in kinds]
    client = world.client()
    client.send("queue://Q", "a", persistent=False)
    client.subscribe("queue://Q", prefetch=1).ack()
    assert [inbox.deliveries for inbox in inboxes] == [[]] * len(kinds)


@pytest.mark.parametrize(("has_body", "body"), [(False, "-"), (True, "a")])
def test_each_message_that_is_accepted(make_world: MakeWorld, has_body: bool, body: str) -> None:
    world = make_world(advisory_for_delivery=True, include_body_for_advisory=has_body)
    queue, topic = listen(world, "MessageDelivered.Queue.Q"), listen(world, "MessageDelivered.Topic.T")
    client = world.client()
    client.send("queue://Q", "a")
    client.send("topic://T", "a")
    client.send("queue://OTHER", "x")
    assert seen(queue) == seen(topic) == [(body, {})]


def test_a_transaction_is_accepted_with_its_commit(make_world: MakeWorld) -> None:
    world = make_world(advisory_for_delivery=True)
    inbox, client = listen(world, "MessageDelivered.Queue.Q"), world.client()
    transaction = LocalTransactionId(client.connection.connection_id, 1)
    client.connection.begin(transaction)
    client.send("queue://Q", "a", transaction=transaction)
    assert seen(inbox) == []
    client.connection.commit(transaction)
    assert seen(inbox) == [("-", {})]


def test_each_message_that_is_acknowledged(make_world: MakeWorld) -> None:
    world = make_world(advisory_for_consumed=True)
    inbox, client = listen(world, "MessageConsumed.Queue.Q"), world.client()
    consumer = client.subscribe("queue://Q")
    client.send("queue://Q", "a", "b", "c")
    consumer.ack(0)
    assert len(seen(inbox)) == 1
    transaction = LocalTransactionId(client.connection.connection_id, 1)
    client.connection.begin(transaction)
    consumer.ack(1, transaction)
    assert len(seen(inbox)) == 1
    client.connection.commit(transaction)
    assert len(seen(inbox)) == 2
    consumer.consumer.reject(consumer.deliveries[2], "bad")
    assert len(seen(inbox)) == 2


@pytest.mark.parametrize("pattern", ["Queue.Q", "Queue.*", ">"])
@pytest.mark.parametrize("kind", ["MessageDelivered", "MessageConsumed"])
def test_listeners_get_advisories_from_then_on(make_world: MakeWorld, kind: str, pattern: str) -> None:
    world = make_world(advisory_for_delivery=True, advisory_for_consumed=True)
    client = world.client()
    consumer = client.subscribe("queue://Q")
    client.send("queue://Q", "a")
    consumer.ack()
    first = listen(world, f"{kind}.{pattern}")
    client.send("queue://Q", "b")
    consumer.ack(1)
    second = listen(world, f"{kind}.{pattern}")
    first.consumer.close()
    client.send("queue://Q", "c")
    consumer.ack(2)
    assert len(seen(first)) == len(seen(second)) == 1


class Count(Observer):
    """Counts the messages that are accepted, and uses the events about them if it is made to."""

    def __init__(self, *, uses: bool) -> None:
        self.uses, self.asked, self.accepted = uses, 0, 0

    def uses_messages_of(self, destination: Destination) -> bool:
        self.asked += 1
        return self.uses

    def message_accepted(self, message: Message) -> None:
        self.accepted += 1


@pytest.mark.parametrize("address", ["queue://Q", "topic://T"])
def test_unused_events_are_not_announced(make_world: MakeWorld, address: str) -> None:
    world = make_world(advisory_for_delivery=True)
    idle, user, client = Count(uses=False), Count(uses=True), world.client()
    world.broker.observe(idle)
    client.send(address, "a")
    assert idle.accepted == 0
    world.broker.observe(user)
    client.send(address, "b")
    assert (idle.accepted, user.accepted) == (1, 1)


def test_observers_are_asked_after_a_change_alone(make_world: MakeWorld) -> None:
    world = make_world(advisory_for_delivery=True)
    observer, client = Count(uses=False), world.client()
    world.broker.observe(observer)
    client.send("queue://Q", "a", "b")
    for kind in ("TempQueue", "TempTopic"):  # as each connection of a JMS client
        listen(world, kind)
    client.subscribe("queue://>")
    client.send("queue://Q", "c")
    assert observer.asked == 1
    listen(world, "MessageDelivered.Queue.Q")
    client.send("queue://Q", "d")
    assert observer.asked == 2


def test_each_acknowledgement_of_a_durable_subscription(make_world: MakeWorld) -> None:
    world = make_world(advisory_for_consumed=True)
    inbox, client = listen(world, "MessageConsumed.Topic.T"), world.client()
    durable, plain = client.subscribe("topic://T", subscription_name="s"), client.subscribe("topic://T")
    client.send("topic://T", "a", "b")
    plain.ack()
    durable.ack()
    assert len(seen(inbox)) == 1


def test_what_expires_is_not_consumed(make_world: MakeWorld) -> None:
    world = make_world(advisory_for_consumed=True)
    inbox, client = listen(world, "MessageConsumed.Queue.Q"), world.client()
    client.send("queue://Q", "late", expiration=world.now_ms + 1)
    world.now_ms += 2
    world.broker.remove_expired()
    assert seen(inbox) == []


@pytest.mark.parametrize(("kind", "domain"), [("queue", "Queue"), ("topic", "Topic")])
def test_a_message_without_consumers_goes_to_its_listeners(make_world: MakeWorld, kind: str, domain: str) -> None:
    world = make_world(send_advisory_if_no_consumers=True)
    inbox, client = listen(world, f"NoConsumer.{domain}.X"), world.client()
    client.send(f"{kind}://X", "lost", persistent=False)
    client.send(f"{kind}://X", "stored", persistent=True)
    client.subscribe(f"{kind}://X")
    client.send(f"{kind}://X", "found", persistent=False)
    assert inbox.ids == ["lost"]


def test_what_is_dropped_for_a_slow_consumer(make_world: MakeWorld) -> None:
    world = make_world(advisory_for_discarding_messages=True, pending_message_limit=1)
    inbox, client = listen(world, "MessageDiscarded.Topic.T"), world.client()
    slow = client.subscribe("topic://T", prefetch=1)
    client.send("topic://T", "1", "2", "3", "4", persistent=False)
    assert [properties["discardedCount"] for _, properties in seen(inbox)] == [1, 2]
    assert all(properties["consumerId"] for _, properties in seen(inbox))
    assert slow.ids == ["1"]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_slow_consumer_of_everything_loses_one_message_for_one(make_world: MakeWorld, persistent: bool) -> None:
    """The advisory about a dropped message must not make its consumer drop the next."""
    world = make_world(advisory_for_discarding_messages=True, pending_message_limit=50)
    client = world.client()
    slow = client.subscribe("topic://>", prefetch=1)
    subscription = slow.consumer.sources[0]
    assert isinstance(subscription, TopicSubscription)
    while not subscription.dropped:
        client.send("topic://T", "x", persistent=persistent)
    for number in range(2, 10):
        client.send("topic://T", "x", persistent=persistent)
        assert subscription.dropped == number


def test_consumed_messages_are_announced_although_memory_is_short() -> None:
    world = started(Disk(), advisory_for_consumed=True)
    inbox = world.client().subscribe("topic://ActiveMQ.Advisory.MessageConsumed.>", prefetch=100_000)
    consumer = world.client().subscribe("queue://Q", prefetch=1000)
    world.client().send("queue://Q", *map(text, range(COUNT)))
    squeeze(world)
    consumer.consumer.acknowledge_all(consumer.deliveries)
    assert len(inbox.deliveries) == COUNT


def slow_consumers(inbox: Inbox) -> list[str]:
    found = []
    for delivery in inbox.deliveries:
        advisory = from_store(inbox.messages[delivery].data)
        assert isinstance(advisory, ActiveMQMessage)
        assert isinstance(advisory.data_structure, ConsumerInfo)
        found.append(str(advisory.data_structure.destination))
        assert properties_of(advisory)["consumerId"]
    return found


def test_a_slow_consumer_of_a_queue_is_announced_once_until_it_has_room_again(make_world: MakeWorld) -> None:
    world = make_world(advisory_for_slow_consumers=True)
    inbox, client = listen(world, "SlowConsumer.Queue.Q"), world.client()
    consumer = client.subscribe("queue://Q", prefetch=1)
    client.send("queue://Q", "1")
    assert slow_consumers(inbox) == []
    client.send("queue://Q", "2", "3")
    assert slow_consumers(inbox) == ["queue://Q"]
    for index in range(3):
        consumer.ack(index)
    client.send("queue://Q", "4", "5")
    assert slow_consumers(inbox) == ["queue://Q"] * 2


def test_a_slow_consumer_of_a_topic(make_world: MakeWorld) -> None:
    world = make_world(advisory_for_slow_consumers=True, pending_message_limit=100)
    inbox, client = listen(world, "SlowConsumer.Topic.T"), world.client()
    consumer = client.subscribe("topic://T", prefetch=2)
    client.send("topic://T", "1", "2", "3", "4", "5", persistent=False)
    assert slow_consumers(inbox) == []  # two are in its window, and three wait
    client.send("topic://T", "6", "7", persistent=False)
    assert slow_consumers(inbox) == ["topic://T"]
    for index in range(5):
        consumer.ack(index)
    client.send("topic://T", "8", "9", persistent=False)
    assert slow_consumers(inbox) == ["topic://T"]  # still: messages have waited all the time
    for index in range(5, 9):
        consumer.ack(index)
    client.send("topic://T", *"abcdefg", persistent=False)
    assert slow_consumers(inbox) == ["topic://T"] * 2


def test_a_steady_backlog_of_a_queue_is_announced_once(make_world: MakeWorld) -> None:
    world = make_world(advisory_for_slow_consumers=True)
    inbox, client = listen(world, "SlowConsumer.Queue.Q"), world.client()
    consumer = client.subscribe("queue://Q", prefetch=2)
    client.send("queue://Q", *"abcde")
    for index in range(20):
        consumer.ack(index)
        client.send("queue://Q", "more")
    assert slow_consumers(inbox) == ["queue://Q"]


def test_of_many_slow_consumers_each_is_announced_once(make_world: MakeWorld) -> None:
    world = make_world(advisory_for_slow_consumers=True)
    inbox = listen(world, "SlowConsumer.Queue.Q")
    consumers = [world.client().subscribe("queue://Q", prefetch=1) for _ in range(50)]
    client = world.client()
    client.send("queue://Q", *["x"] * 60)
    assert slow_consumers(inbox) == ["queue://Q"] * 50
    consumers[0].consumer.close()


def fill(client: Client, name: str) -> None:
    for number in range(5):
        client.connection.send(make_message(f"{number}" * 100_000, name, persistent=False))


def test_a_memory_limit_that_is_reached(make_world: MakeWorld) -> None:
    world = make_world(Limits(memory_bytes_max=300_000), advisory_when_full=True)
    inbox = listen(world, "FULL.Queue.Q")
    fill(world.client(), "queue://Q")
    assert inbox.deliveries
    advisory = from_store(inbox.messages[inbox.deliveries[0]].data)
    assert isinstance(advisory, ActiveMQMessage)
    assert advisory.data_structure is None
    assert properties_of(advisory)["usageName"] == "queue://Q"
    assert properties_of(advisory)["usageCount"] > 300_000


def test_a_producer_that_reaches_a_memory_limit(make_world: MakeWorld) -> None:
    world = make_world(Limits(memory_bytes_max=300_000), advisory_for_fast_producers=True)
    inbox = listen(world, "FastProducer.Queue.Q")
    fill(world.client(), "queue://Q")
    advisory = from_store(inbox.messages[inbox.deliveries[0]].data)
    assert isinstance(advisory, ActiveMQMessage)
    assert isinstance(advisory.data_structure, ProducerInfo)
    assert properties_of(advisory)["producerId"] == "c:-1:1"
