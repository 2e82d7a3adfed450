"""Advisories: to whom they go, what they cost, and that they leave nothing behind."""

import pytest

from pybroker.broker.core import advisory
from pybroker.broker.core.broker import Limits
from pybroker.broker.domain.destination import parse, topic
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.commands import ActiveMQMessage, RemoveSubscriptionInfo
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.message import view

PREFIX = "topic://ActiveMQ.Advisory."


def names(inbox):
    return [delivery.message.destination.name.removeprefix("ActiveMQ.Advisory.") for delivery in inbox.deliveries]


def counts(inbox, name):
    return [view(delivery.message).properties[name] for delivery in inbox.deliveries]


def test_listening_to_everything_makes_no_topic_per_subject(world):
    inbox = world.client().subscribe(PREFIX + ">")
    client = world.client()
    for number in range(3):
        client.send(f"queue://Q{number}", "a")
        client.connection.remove_destination(parse(f"queue://Q{number}"))
    assert names(inbox)[-6:] == ["Queue"] * 6
    assert [name for name in world.broker.topics if name.name.startswith("ActiveMQ.")] == []


def test_listeners_do_not_reduce_the_destinations_limit(make_world):
    world = make_world(limits=Limits(destinations_max=3))
    listener = world.client().subscribe(PREFIX + ">")
    client = world.client()
    for _ in range(10):
        destination = client.connection.create_temporary(parse("temp-queue://x").type)
        client.subscribe(str(destination)).consumer.close()
        client.connection.remove_destination(destination)
    client.send("queue://Q", "a")
    assert len(names(listener)) >= 40


def test_an_advisory_topic_goes_with_its_last_listener(world):
    client = world.client()
    inboxes = [client.subscribe(PREFIX + "Queue"), client.subscribe(PREFIX + "*")]
    for inbox in inboxes:
        assert topic("ActiveMQ.Advisory.Queue") in world.broker.topics
        inbox.consumer.close()
    assert not world.broker.topics


def test_a_listener_is_accepted_at_the_destinations_limit(make_world):
    world = make_world(limits=Limits(destinations_max=1))
    client = world.client()
    client.send("queue://Q", "a")
    assert names(client.subscribe(PREFIX + "Queue")) == ["Queue"]
    with pytest.raises(RequestError):
        client.send(PREFIX + "Invented", "b")


def test_durable_wildcard_keeps_no_advisories(world):
    client = world.client("me")
    client.subscribe("topic://>", subscription_name="s").consumer.close()
    client.subscribe(PREFIX + "Queue")
    client.send("queue://Q", "a")
    client.send("topic://T", "b")
    durable = world.broker.durables["me:s"]
    assert [reference.message.destination.name for reference in durable.pending] == ["T"]
    assert [each.destination.name for each in durable.topics] == ["T"]


def test_listeners_by_name_and_pattern_get_one_advisory_each(world):
    client = world.client()
    by_name, by_pattern = client.subscribe(PREFIX + "Queue"), client.subscribe("topic://ActiveMQ.>")
    by_pattern.deliveries.clear()
    client.send("queue://Q", "a")
    assert names(by_name) == ["Queue"]
    assert names(by_pattern) == ["Queue"]


def test_closed_listener_gets_no_advisory(world):
    client = world.client()
    inbox = client.subscribe(PREFIX + ">")
    inbox.consumer.close()
    inbox.deliveries.clear()
    client.send("queue://Q", "a")
    assert inbox.deliveries == []


def test_new_listener_gets_what_exists_and_matches(world):
    client = world.client()
    client.subscribe("queue://Q")
    client.connection.add_producer(ProducerId("c", 1, 1), parse("queue://Q"))
    client.connection.add_producer(ProducerId("c", 1, 2), parse("queue://R"))
    assert names(client.subscribe(PREFIX + "Producer.Queue.R")) == ["Producer.Queue.R"]
    assert names(client.subscribe(PREFIX + "Producer.>")) == ["Producer.Queue.Q", "Producer.Queue.R"]
    assert names(client.subscribe(PREFIX + "Consumer.>")) == ["Consumer.Queue.Q"]
    assert names(client.subscribe(PREFIX + "TempQueue," + PREFIX + "TempTopic")) == []
    assert names(client.subscribe(PREFIX + "Connection")) == ["Connection"]
    assert set(names(client.subscribe(PREFIX + "*"))) == {"Connection", "Queue"}


def test_an_advisory_without_listeners_is_not_created(world, monkeypatch):
    for described in ("consumer_info", "_connection_info", "ProducerInfo", "_destination_info", "from_store"):
        monkeypatch.setattr(advisory, described, None)  # calling it would raise
    client = world.client()
    client.subscribe("queue://Q").consumer.close()
    client.connection.add_producer(ProducerId("c", 1, 1), parse("queue://Q"))
    client.send("queue://Q", "a", expiration=1)
    client.connection.close()


def test_new_listener_reads_only_what_it_subscribes_to(world, monkeypatch):
    client = world.client()
    client.subscribe("queue://Q")
    client.connection.add_producer(ProducerId("c", 1, 1), parse("queue://Q"))
    for described in ("consumer_info", "_connection_info", "ProducerInfo", "_destination_info"):
        monkeypatch.setattr(advisory, described, None)  # calling it would raise
    client.subscribe(PREFIX + "TempQueue")


def test_advisories_count_producers(world):
    inbox = world.client().subscribe(PREFIX + "Producer.Queue.Q")
    one, other = world.client(), world.client()
    one.connection.add_producer(ProducerId("c", 1, 1), parse("queue://Q"))
    other.connection.add_producer(ProducerId("d", 1, 1), parse("queue://Q"))
    one.connection.remove_producer(ProducerId("c", 1, 1))
    other.connection.close()
    assert counts(inbox, "producerCount") == [1, 2, 1, 0]


def test_deletion_of_a_durable_subscription_is_announced(world):
    client = world.client("me")
    client.subscribe("topic://T", subscription_name="s").consumer.close()
    inbox = world.client().subscribe(PREFIX + "Consumer.Topic.T")
    client.connection.unsubscribe("me", "s")
    assert names(inbox) == ["Consumer.Topic.T"]
    (delivery,) = inbox.deliveries
    advice = WireFormat(version=12).decode(delivery.message.data)
    assert isinstance(advice, ActiveMQMessage)
    assert advice.data_structure == RemoveSubscriptionInfo(client_id="me", subscription_name="s")
    assert counts(inbox, "consumerCount") == [0]


def test_a_producer_that_is_announced_twice_counts_once(world):
    inbox = world.client().subscribe(PREFIX + "Producer.Queue.Q")
    client = world.client()
    for _ in range(2):
        client.connection.add_producer(ProducerId("c", 1, 1), parse("queue://Q"))
    assert counts(inbox, "producerCount")[-1] == 1


def test_deleted_temporary_destination_has_one_advisory(world):
    inbox = world.client().subscribe(PREFIX + "TempQueue")
    owner, other = world.client(), world.client()
    temporary = owner.connection.create_temporary(parse("temp-queue://x").type)
    other.connection.remove_destination(temporary)
    owner.connection.close()
    assert names(inbox) == ["TempQueue", "TempQueue"]


def test_a_message_that_does_not_decode_becomes_a_dead_letter(world):
    inbox = world.client().subscribe(PREFIX + "Expired.Queue.Q")
    world.broker.destinations.queue(parse("queue://Q")).enqueue(
        Message(
            message_id="ID:x:1:1:1",
            destination=parse("queue://Q"),
            data=b"\x17nonsense",
            persistent=True,
            expiration=world.now_ms + 1,
        )
    )
    world.now_ms += 2
    world.broker.remove_expired()
    assert inbox.deliveries == []
    assert len(world.broker.queues[parse("queue://Q")].pending) == 0


def test_advisories_of_two_runs_have_different_message_ids(world):
    found = []
    for _ in range(2):
        world.now_ms += 1
        world.start()
        inbox = world.client().subscribe(PREFIX + "Queue")
        world.client().send("queue://Q", "a")
        found += [delivery.message.message_id for delivery in inbox.deliveries]
    assert len(set(found)) == len(found) == 2
