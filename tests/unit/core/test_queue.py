"""Queues: who gets a message, in which order, and what happens to what comes back."""

from typing import Any

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.domain.errors import InvalidSelector, RequestError
from pybroker.broker.domain.openwire.message import decode
from tests.unit.core.conftest import make_message


def test_a_waiting_consumer_gets_a_message_at_once(world):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q", "a", "b")
    assert inbox.ids == ["a", "b"]
    assert inbox.counts == [0, 0]


def test_a_backlog_is_delivered_in_order_of_arrival(world):
    client = world.client()
    client.send("queue://Q", "p1", persistent=True)
    client.send("queue://Q", "n1", persistent=False)
    client.send("queue://Q", "p2", persistent=True)
    assert client.subscribe("queue://Q").ids == ["p1", "n1", "p2"]


def test_a_consumer_is_silent_until_started(world):
    client = world.client()
    client.send("queue://Q", "a")
    got: list[Any] = []
    from pybroker.broker.domain.destination import queue
    from pybroker.broker.domain.subscription import ConsumerRequest

    consumer = client.connection.subscribe(ConsumerRequest(destination=queue("Q")), got.append)
    assert not got
    consumer.start()
    assert len(got) == 1


def test_equal_consumers_take_turns(world):
    client = world.client()
    first, second = client.subscribe("queue://Q"), client.subscribe("queue://Q")
    client.send("queue://Q", *"012345")
    assert (first.ids, second.ids) == (["0", "2", "4"], ["1", "3", "5"])


def test_at_most_prefetch_messages_are_outstanding(world):
    client = world.client()
    inbox = client.subscribe("queue://Q", prefetch=2)
    client.send("queue://Q", *"abcd")
    assert inbox.ids == ["a", "b"]
    inbox.ack(0)
    assert inbox.ids == ["a", "b", "c"]
    inbox.consumer.acknowledge_through(inbox.deliveries[2])
    assert inbox.ids == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("named", "strange", "left"),
    [
        ("abc", "", "de"),
        ("acb", "", "de"),
        ("bd", "", "ace"),
        ("xay", "xy", "bcde"),
        ("aab", "a", "cde"),
        ("bab", "b", "cde"),
        ("", "", "abcde"),
    ],
)
def test_acknowledged_is_what_is_named_in_whatever_order(world, named, strange, left):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q", *"abcde")
    ids = {name: each.message.message_id for name, each in zip(inbox.ids, inbox.deliveries, strict=True)}
    returned = inbox.consumer.acknowledge_each([ids.get(name, name) for name in named])
    assert list(returned) == [ids.get(name, name) for name in strange]
    assert [each.message.message_id for each in inbox.consumer.unsettled()] == [ids[name] for name in left]
    client.connection.close()
    assert world.client().subscribe("queue://Q").ids == list(left)


def test_a_range_acknowledgement_frees_as_much_prefetch(world):
    client = world.client()
    inbox = client.subscribe("queue://Q", prefetch=2)
    client.send("queue://Q", *"abcdef")
    inbox.consumer.acknowledge_each([each.message.message_id for each in inbox.deliveries])
    assert inbox.ids == ["a", "b", "c", "d"]


def test_prefetch_zero_gets_nothing(world):
    client = world.client()
    inbox = client.subscribe("queue://Q", prefetch=0)
    client.send("queue://Q", "a")
    assert inbox.ids == []


def test_a_full_consumer_leaves_messages_to_others(world):
    client = world.client()
    first, second = client.subscribe("queue://Q", prefetch=1), client.subscribe("queue://Q", prefetch=3)
    client.send("queue://Q", *"abcde")
    assert (first.ids, second.ids) == (["a"], ["b", "c", "d"])


def test_acknowledged_messages_are_gone_permanently(world):
    client = world.client()
    client.send("queue://Q", "a", "b")
    client.subscribe("queue://Q").ack(0)
    world.start()
    assert world.client().subscribe("queue://Q").ids == ["b"]


def test_a_repeated_acknowledgement_changes_nothing(world):
    client = world.client()
    inbox = client.subscribe("queue://Q", prefetch=1)
    client.send("queue://Q", "a", "b", "c")
    inbox.ack(0)
    inbox.ack(0)
    assert inbox.ids == ["a", "b"]
    assert inbox.deliveries[0] not in inbox.consumer.outstanding
    assert inbox.deliveries[1] in inbox.consumer.outstanding


def test_what_a_consumer_leaves_comes_back_in_its_place_marked(world):
    client, other = world.client(), world.client()
    inbox = client.subscribe("queue://Q", prefetch=3)
    client.send("queue://Q", *"abcde")
    inbox.ack(1)
    inbox.consumer.close()
    rest = other.subscribe("queue://Q")
    assert rest.ids == ["a", "c", "d", "e"]
    assert rest.counts == [1, 1, 1, 0]


def test_closed_connection_returns_messages_of_its_consumers(world):
    client = world.client()
    client.subscribe("queue://Q", prefetch=1)
    client.subscribe("queue://Q", prefetch=1)
    client.send("queue://Q", "a", "b", "c")
    client.connection.close()
    client.connection.close()
    assert world.client().subscribe("queue://Q").ids == ["a", "b", "c"]


def test_six_redeliveries_and_then_the_dead_letter_queue(world):
    producer = world.client()
    producer.send("queue://Q", "poison")
    for expected in range(7):
        inbox = world.client().subscribe("queue://Q")
        assert inbox.counts == [expected]
        inbox.consumer.close()
    assert world.client().subscribe("queue://Q").ids == []
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == ["poison"]


def test_only_the_oldest_of_a_returned_window_gets_a_strike(world):
    world.client().send("queue://Q", "poison", "innocent")
    for _ in range(7):
        world.client().subscribe("queue://Q").consumer.close()
    assert world.client().subscribe("queue://Q").ids == ["innocent"]


def test_one_burial_does_not_drag_the_next_along(world):
    world.client().send("queue://Q", "poison", *"abc")
    for _ in range(10):
        world.client().subscribe("queue://Q").consumer.close()
    assert world.client().subscribe("queue://Q").ids == ["a", "b", "c"]


def test_unlimited_redeliveries(make_world):
    world = make_world(max_redeliveries=-1)
    world.client().send("queue://Q", "a")
    for _ in range(20):
        world.client().subscribe("queue://Q").consumer.close()
    assert world.client().subscribe("queue://Q").ids == ["a"]


def test_a_rejected_message_is_dead_lettered_with_its_cause(world):
    from pybroker.broker.domain.openwire.message import view

    client = world.client()
    client.send("queue://Q", "a", properties={"colour": "red"})
    inbox = client.subscribe("queue://Q")
    inbox.consumer.reject(inbox.deliveries[0], "NACK")
    dead = view(world.client().subscribe("queue://ActiveMQ.DLQ").deliveries[0].message)
    assert str(dead.original_destination) == "queue://Q"
    assert dead.properties["dlqDeliveryFailureCause"] == "NACK"
    assert dead.properties["originalExpiration"] == 0
    assert dead.properties["colour"] == "red"


def test_a_rejected_non_persistent_message_is_dropped(world):
    client = world.client()
    client.send("queue://Q", "a", persistent=False)
    inbox = client.subscribe("queue://Q")
    inbox.consumer.reject(inbox.deliveries[0], "NACK")
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == []


def test_a_message_rejected_on_the_dead_letter_queue_is_dropped(world):
    client = world.client()
    client.send("queue://ActiveMQ.DLQ", "a")
    inbox = client.subscribe("queue://ActiveMQ.DLQ")
    inbox.consumer.reject(inbox.deliveries[0], "NACK")
    world.start()
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == []


class TestSelectors:
    def test_only_matching_messages_are_delivered(self, world):
        client = world.client()
        inbox = client.subscribe("queue://Q", selector="n > 5")
        for n in (4, 6, 7):
            client.send("queue://Q", str(n), properties={"n": n})
        assert inbox.ids == ["6", "7"]
        assert client.subscribe("queue://Q").ids == ["4"]

    def test_a_match_behind_a_thousand_others_is_found(self, world):
        client = world.client()
        client.send("queue://Q", *(f"x{n}" for n in range(1000)))
        client.send("queue://Q", "match", properties={"n": 1})
        assert client.subscribe("queue://Q", selector="n = 1").ids == ["match"]

    def test_returned_message_is_offered_behind_a_search(self, world):
        client = world.client()
        client.send("queue://Q", "a", properties={"n": 1})
        first = client.subscribe("queue://Q", selector="n = 1")
        second = client.subscribe("queue://Q", selector="n = 1")
        client.send("queue://Q", "other")
        first.consumer.close()
        assert second.ids == ["a"]

    def test_a_bad_selector_is_refused_and_leaves_no_consumer(self, world):
        client = world.client()
        with pytest.raises(InvalidSelector):
            client.subscribe("queue://Q", selector="n >")
        client.send("queue://Q", "a")
        assert client.subscribe("queue://Q").ids == ["a"]

    def test_no_local_skips_ones_own(self, world):
        client = world.client()
        inbox = client.subscribe("queue://Q", no_local=True)
        client.send("queue://Q", "mine")
        assert inbox.ids == []


class TestExpiry:
    def test_an_expired_message_is_not_delivered_but_dead_lettered(self, world):
        client = world.client()
        client.send("queue://Q", "a", expiration=world.now_ms + 10)
        world.now_ms += 11
        assert client.subscribe("queue://Q").ids == []
        assert client.subscribe("queue://ActiveMQ.DLQ").ids == ["a"]

    def test_a_message_expired_on_arrival_is_not_queued(self, world):
        client = world.client()
        inbox = client.subscribe("queue://Q")
        client.send("queue://Q", "a", expiration=world.now_ms - 1)
        assert inbox.ids == []
        assert client.subscribe("queue://ActiveMQ.DLQ").ids == ["a"]

    def test_expiry_needs_no_consumer(self, world):
        client = world.client()
        client.send("queue://Q", "dies", expiration=world.now_ms + 10)
        client.send("queue://Q", "stays")
        world.now_ms += 11
        world.broker.remove_expired()
        assert client.subscribe("queue://ActiveMQ.DLQ").ids == ["dies"]
        assert client.subscribe("queue://Q").ids == ["stays"]

    def test_at_its_very_last_millisecond_a_message_lives(self, world):
        client = world.client()
        client.send("queue://Q", "a", expiration=world.now_ms)
        assert client.subscribe("queue://Q").ids == ["a"]


class TestBrowser:
    def test_browser_sees_waiting_and_in_flight_messages(self, world):
        client = world.client()
        client.subscribe("queue://Q", prefetch=1)
        client.send("queue://Q", "a", "b", "c")
        browser = client.subscribe("queue://Q", browser=True)
        assert browser.ids == ["a", "b", "c"]
        assert browser.ended
        browser.ack(0)
        browser.consumer.close()
        world.start()
        assert world.client().subscribe("queue://Q").ids == ["a", "b", "c"]

    def test_it_goes_on_as_its_window_opens(self, world):
        client = world.client()
        client.send("queue://Q", "a", "b", "c")
        browser = client.subscribe("queue://Q", browser=True, prefetch=2)
        assert (browser.ids, browser.ended) == (["a", "b"], False)
        browser.ack(0)
        assert (browser.ids, browser.ended) == (["a", "b", "c"], False)
        browser.ack(1)
        assert browser.ended

    def test_policy_limits_what_a_browser_gets(self, make_world):
        client = make_world(max_browse_page_size=2).client()
        client.send("queue://Q", "a", "b", "c")
        client.send("queue://R", "d")
        browser = client.subscribe("queue://Q", browser=True)
        assert (browser.ids, browser.ended) == (["a", "b"], True)
        assert client.subscribe("queue://*", browser=True).ids == ["a", "b"]
        assert client.subscribe("queue://Q").ids == ["a", "b", "c"]

    def test_a_topic_cannot_be_browsed(self, world):
        with pytest.raises(RequestError, match="topic"):
            world.client().subscribe("topic://T", browser=True)


class TestWildcards:
    def test_a_pattern_covers_queues_there_are_and_queues_to_come(self, world):
        client = world.client()
        client.send("queue://A.old", "1")
        inbox = client.subscribe("queue://A.*")
        client.send("queue://A.new", "2")
        client.send("queue://A.new.deeper", "3")
        client.send("queue://A", "4")
        assert inbox.ids == ["1", "2"]

    def test_the_window_is_shared(self, world):
        client = world.client()
        inbox = client.subscribe("queue://A.>", prefetch=2)
        client.send("queue://A", "1")
        client.send("queue://A.x", "2", "3")
        assert inbox.ids == ["1", "2"]
        inbox.ack(0)
        assert inbox.ids == ["1", "2", "3"]

    def test_no_queue_starves_behind_a_long_one(self, world):
        client = world.client()
        client.send("queue://A.long", *(f"l{n}" for n in range(100)))
        client.send("queue://A.short", "s")
        inbox = client.subscribe("queue://A.>", prefetch=1)
        for index in range(3):
            inbox.ack(index)
        assert "s" in inbox.ids

    def test_closing_leaves_all_queues(self, world):
        client = world.client()
        inbox = client.subscribe("queue://A.*")
        client.send("queue://A.1", "1")
        inbox.consumer.close()
        client.send("queue://A.2", "2")
        assert inbox.ids == ["1"]
        assert client.subscribe("queue://A.1").counts == [1]

    def test_a_pattern_of_queues_leaves_temporary_queues_alone(self, world):
        client = world.client()
        inbox = client.subscribe("queue://>")
        from pybroker.broker.domain.destination import DestinationType

        destination = client.connection.create_temporary(DestinationType.TEMP_QUEUE)
        client.send(str(destination), "a")
        assert inbox.ids == []


def test_a_paused_connection_gets_nothing_until_resumed(world):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.connection.pause()
    client.send("queue://Q", "a")
    assert inbox.ids == []
    client.connection.resume()
    assert inbox.ids == ["a"]


def test_many_messages_through_a_small_window_keep_their_order(world):
    client = world.client()
    names = [str(n) for n in range(5000)]
    client.send("queue://Q", *names)
    inbox = client.subscribe("queue://Q", prefetch=10)
    for index in range(len(names)):
        inbox.ack(index)
    assert inbox.ids == names
    assert len(world.broker.queues[inbox.deliveries[0].message.destination].pending) == 0


class TestLeaving:
    def test_unsent_delivery_is_not_counted_as_redelivered(self, world):
        world.client().send("queue://Q", "a")
        client = world.client()
        client.reads = False
        client.subscribe("queue://Q")
        client.connection.close()
        assert world.client().subscribe("queue://Q").counts == [0]

    def test_many_consumers_leaving_at_once_bury_nothing(self, world):
        """Each gets for a moment what the one before it left."""
        world.client().send("queue://Q", "a")
        clients = [world.client() for _ in range(20)]
        for client in clients:
            client.reads = False
            client.subscribe("queue://Q", prefetch=1)
        for client in clients:
            client.connection.close()
        assert world.client().subscribe("queue://Q").ids == ["a"]

    def test_stopping_broker_redelivers_to_no_other_consumer(self, world):
        world.client().send("queue://Q", "a")
        clients = [world.client() for _ in range(20)]
        inboxes = [client.subscribe("queue://Q") for client in clients]
        world.broker.quiesce()
        for client in clients:
            client.connection.resume()
            client.connection.close()
        assert [len(inbox.ids) for inbox in inboxes] == [1] + [0] * 19
        assert len(list(world.broker.delivered())) == 1

    def test_consumer_acking_once_per_connection_dead_letters_none(self, world):
        world.client().send("queue://Q", *(str(n) for n in range(20)))
        done = []
        for _ in range(20):
            client = world.client()
            inbox = client.subscribe("queue://Q")
            done.append(inbox.ids[0])
            inbox.ack(0)
            client.connection.close()
        assert done == [str(n) for n in range(20)]


class TestDeadLetterQueue:
    def test_it_needs_no_leave_to_be_created(self, make_world):
        client = make_world(Limits(destinations_max=1)).client()
        client.send("queue://Q", "a")
        inbox = client.subscribe("queue://Q")
        inbox.consumer.reject(inbox.deliveries[0], "NACK")
        assert client.subscribe("queue://ActiveMQ.DLQ").ids == ["a"]

    def test_a_message_that_does_not_decode_goes_there_as_it_is(self, world):
        client = world.client()
        message = make_message("a", "queue://Q", properties={"n": 1})
        message.decoded = None
        message.data = message.data.replace(b"\x00\x01n\x05", b"\x00\x01n\x63")
        client.connection.send(message)
        inbox = client.subscribe("queue://Q")
        inbox.consumer.reject(inbox.deliveries[0], "NACK")
        dead = client.subscribe("queue://ActiveMQ.DLQ").deliveries
        assert [decode(each.message.data).marshalled_properties for each in dead] == [
            decode(message.data).marshalled_properties
        ]
        client.connection.close()
        world.start()
        assert len(world.client().subscribe("queue://ActiveMQ.DLQ").deliveries) == 1


@pytest.mark.parametrize("destination", ["queue://Q", "topic://T"])
def test_a_persistent_message_sent_again_is_handed_out_once(world, destination):
    client = world.client("me")
    name = None if destination.startswith("queue") else "s"
    inbox = client.subscribe(destination, subscription_name=name)
    message = make_message("a", destination)
    client.connection.send(message)
    client.connection.send(message)
    assert inbox.ids == ["a"]


def test_two_copies_of_a_dead_letter_are_one(world):
    for number in (1, 2):
        world.client(f"c{number}x").subscribe("topic://T", subscription_name="s").consumer.close()
    world.client().send("topic://T", "a", expiration=world.now_ms + 1)
    world.now_ms += 2
    world.broker.remove_expired()
    client = world.client()
    inbox = client.subscribe("queue://ActiveMQ.DLQ")
    assert inbox.ids == ["a"]
    inbox.ack(0)
    world.start()
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == []


def test_a_wildcard_consumer_without_capacity_reads_no_queue(world):
    client = world.client()
    inbox = client.subscribe("queue://A.*", prefetch=1)
    for number in range(50):
        client.send(f"queue://A.{number}", str(number))
    for index in range(50):
        inbox.ack(index)
    assert sorted(inbox.ids, key=int) == [str(number) for number in range(50)]
