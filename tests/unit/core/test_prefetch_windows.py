"""Prefetch windows: what is granted, pulled, held and rolled back never starves a consumer."""

import pytest

from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import DestinationInUse


def test_a_pull_after_a_rollback_gets_one_message(world):
    client = world.client()
    client.send("queue://Q", "a", "b", "c")
    inbox = client.subscribe("queue://Q", prefetch=0)
    inbox.consumer.pull()
    transaction = client.connection.begin()
    inbox.ack(0, transaction)
    assert inbox.ids == ["a"]
    client.connection.rollback(transaction)
    assert inbox.ids == ["a"]
    inbox.consumer.pull()
    assert inbox.ids == ["a", "b"]


def test_a_pull_that_waits_is_served_by_what_another_gives_back(world):
    client, other = world.client(), world.client()
    client.send("queue://Q", "a")
    holder = other.subscribe("queue://Q", prefetch=1)
    inbox = client.subscribe("queue://Q", prefetch=0)
    inbox.consumer.pull()
    holder.consumer.close()
    assert inbox.ids == ["a"]


def test_pull_is_served_when_the_client_reads_again(world):
    client = world.client()
    client.send("queue://Q", "a")
    inbox = client.subscribe("queue://Q", prefetch=0)
    client.connection.pause()
    inbox.consumer.pull()
    assert inbox.ids == []
    client.connection.resume()
    assert inbox.ids == ["a"]


def test_a_consumer_over_its_window_continues_after_enough_acks(world):
    client = world.client()
    client.send("queue://Q", *"abcdef")
    inbox = client.subscribe("queue://Q", prefetch=2)
    transaction = client.connection.begin()
    inbox.ack(0, transaction)
    inbox.ack(1, transaction)
    client.connection.rollback(transaction)
    assert inbox.ids == ["a", "b", "c", "d"]
    for index, got in ((0, "abcd"), (1, "abcd"), (2, "abcde"), (3, "abcdef")):
        inbox.ack(index)
        assert inbox.ids == list(got)


def test_a_grant_is_used_up_by_what_it_was_for(world):
    client = world.client()
    client.send("queue://Q", *"abcdef")
    inbox = client.subscribe("queue://Q", prefetch=2)
    inbox.consumer.grant(2)
    assert inbox.ids == list("abcd")
    inbox.consumer.acknowledge_through(inbox.deliveries[1])
    assert inbox.ids == list("abcd")
    inbox.ack(2)
    assert inbox.ids == list("abcde")


def test_a_window_changed_from_pull_to_push_is_the_prefetch(world):
    client = world.client()
    client.send("queue://Q", *"abcdef")
    inbox = client.subscribe("queue://Q", prefetch=0)
    inbox.consumer.pull()
    inbox.consumer.set_prefetch(3)
    assert inbox.ids == list("abc")
    inbox.consumer.set_prefetch(0)
    inbox.ack(0)
    assert inbox.ids == list("abc")
    inbox.consumer.pull()
    assert inbox.ids == list("abcd")


def test_close_reports_seen_messages_after_a_rollback(world):
    client, other = world.client(), world.client()
    client.send("queue://Q", *"abcd")
    inbox = client.subscribe("queue://Q")
    transaction = client.connection.begin()
    inbox.consumer.acknowledge_through(inbox.deliveries[1], transaction)
    client.connection.rollback(transaction)
    inbox.consumer.close(inbox.deliveries[1])
    assert list(zip(*[(again := other.subscribe("queue://Q")).ids, again.counts], strict=True)) == [
        ("a", 1),
        ("b", 1),
        ("c", 0),
        ("d", 0),
    ]


def test_a_range_that_was_rolled_back_can_be_acknowledged_again(world):
    client = world.client()
    client.send("queue://Q", *"abcd")
    inbox = client.subscribe("queue://Q")
    transaction = client.connection.begin()
    for index in (2, 0, 1):
        inbox.ack(index, transaction)
    client.connection.rollback(transaction)
    first, last = (inbox.deliveries[index].message.message_id for index in (0, 2))
    assert inbox.consumer.outstanding_through(first, last) == inbox.deliveries[:3]


def test_a_consumer_of_several_queues_is_served_by_each_in_turn(world):
    client = world.client()
    inbox = client.subscribe("queue://A", composite=(parse("queue://B"),), prefetch=1)
    client.send("queue://A", "a1", "a2", "a3")
    client.send("queue://B", "b1", "b2", "b3")
    for index in range(5):
        inbox.ack(index)
    assert [{name[0] for name in inbox.ids[start : start + 2]} for start in (1, 3)] == [{"a", "b"}, {"a", "b"}]
    assert sorted(inbox.ids) == ["a1", "a2", "a3", "b1", "b2", "b3"]


def test_a_browser_acknowledges_nothing_in_a_transaction_either(world):
    client = world.client()
    client.send("queue://Q", "a", "b")
    browser = client.subscribe("queue://Q", browser=True, prefetch=1)
    transaction = client.connection.begin()
    browser.ack(0, transaction)
    assert browser.ids == ["a", "b"]
    client.connection.commit(transaction)
    assert client.subscribe("queue://Q").ids == ["a", "b"]


def test_a_queue_that_an_idle_pattern_covers_is_in_use(world):
    client = world.client()
    client.subscribe("queue://A.>")
    client.send("queue://A.1", "a")
    with pytest.raises(DestinationInUse):
        client.connection.remove_destination(parse("queue://A.1"))


def test_a_recreated_queue_belongs_to_its_virtual_topic(world):
    client = world.client()
    for _ in range(2):
        inbox = client.subscribe("queue://Consumer.a.VirtualTopic.X")
        client.send("topic://VirtualTopic.X", "a")
        assert inbox.ids == ["a"]
        inbox.consumer.close(delivered_none=True)
        client.connection.remove_destination(parse("queue://Consumer.a.VirtualTopic.X"))
        client.send("topic://VirtualTopic.X", "lost")


def test_an_acknowledgement_of_a_deleted_queue_does_no_harm(make_world):
    world = make_world(memory_limit=10_000)
    owner, sender = world.client(), world.client()
    temporary = owner.connection.create_temporary(parse("temp-queue://x").type)
    inbox = owner.subscribe(str(temporary))
    sender.send(str(temporary), "a", persistent=False)
    sender.connection.remove_destination(parse("queue://OTHER"))
    world.broker.destinations.drop(temporary)
    inbox.ack()
    inbox.consumer.close()
    assert world.broker.usage.used == 0
