"""Messages of bridges that have left their destination in other ways than to a consumer: they come again as duplicates.

The bridge whose answers were lost forwards them again, here or to the next master.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import decode, to_message
from tests.unit.core.conftest import World
from tests.unit.core.test_network_consumers import bridged

DEAD_LETTERS = parse("queue://ActiveMQ.DLQ")
LIFE_MS = 1000


def counts(world: World) -> dict[str, int]:
    """Return the number of messages that wait in each queue that has some."""
    return {name.name: len(each.pending) for name, each in world.broker.queues.items() if len(each.pending)}


def is_new_again(world: World, message: Message, *, is_restarted: bool) -> bool:
    """Forward a message again, with the mark of redelivery; return True if it was taken for a new one."""
    if is_restarted:
        world.start()
    again = to_message(replace(decode(message.data), redelivery_counter=1))
    return world.client().connection.send(again)


@pytest.fixture(params=[False, True], ids=["here", "next-master"])
def is_restarted(request: pytest.FixtureRequest) -> bool:
    """True if the broker starts again before the message comes again."""
    return bool(request.param)


def expiring(world: World) -> Message:
    return to_message(replace(decode(bridged("m").data), expiration=world.now_ms + LIFE_MS))


def test_message_expired_on_its_way_is_one_dead_letter(world: World, is_restarted: bool) -> None:
    message = expiring(world)
    world.now_ms += 2 * LIFE_MS
    world.client().connection.send(message)
    assert counts(world) == {DEAD_LETTERS.name: 1}
    assert not is_new_again(world, message, is_restarted=is_restarted)
    assert counts(world) == {DEAD_LETTERS.name: 1}


def test_message_that_expires_waiting_is_one_dead_letter(world: World, is_restarted: bool) -> None:
    message = expiring(world)
    world.client().connection.send(message)
    world.now_ms += 2 * LIFE_MS
    world.broker.remove_expired()
    assert counts(world) == {DEAD_LETTERS.name: 1}
    assert not is_new_again(world, message, is_restarted=is_restarted)
    assert counts(world) == {DEAD_LETTERS.name: 1}


def test_rejected_message_is_one_dead_letter(world: World, is_restarted: bool) -> None:
    client = world.client()
    inbox, message = client.subscribe("queue://Q"), bridged("m")
    client.connection.send(message)
    inbox.consumer.reject(inbox.deliveries[0], "because")
    inbox.consumer.close()
    assert not is_new_again(world, message, is_restarted=is_restarted)
    assert counts(world) == {DEAD_LETTERS.name: 1}


def test_dead_letter_that_was_consumed_does_not_come_back(world: World, is_restarted: bool) -> None:
    client = world.client()
    inbox, message = client.subscribe("queue://Q"), bridged("m")
    client.connection.send(message)
    inbox.consumer.reject(inbox.deliveries[0], "because")
    inbox.consumer.close()
    client.subscribe(str(DEAD_LETTERS)).ack()
    assert not is_new_again(world, message, is_restarted=is_restarted)
    assert counts(world) == {}


def test_message_no_subscriber_got_is_not_for_later_ones(world: World, is_restarted: bool) -> None:
    message = bridged("m", "topic://T")
    world.client().connection.send(message)
    if is_restarted:
        world.start()
    inbox = world.client().subscribe("topic://T")
    assert not is_new_again(world, message, is_restarted=False)
    assert inbox.ids == []


def test_message_too_many_for_a_slow_consumer_is_dropped_once(make_world: Callable[..., World]) -> None:
    world = make_world(pending_message_limit=1)
    slow = world.client().subscribe("topic://T", prefetch=1)
    messages = [bridged(name, "topic://T") for name in ("1", "2", "3")]
    bridge = world.client().connection
    for each in messages:
        assert bridge.send(each)
    assert not any(bridge.send(each) for each in messages)
    slow.ack(0)
    assert slow.ids == ["1", "3"]


@pytest.mark.parametrize("is_consumed", [True, False])
def test_virtual_topic_gets_each_message_once(world: World, is_restarted: bool, is_consumed: bool) -> None:
    queues = [f"queue://Consumer.{name}.VirtualTopic.X" for name in "AB"]
    client = world.client()
    inboxes = [client.subscribe(each) for each in queues]
    message = bridged("m", "topic://VirtualTopic.X")
    client.connection.send(message)
    assert [each.ids for each in inboxes] == [["m"], ["m"]]
    for each in inboxes:
        if is_consumed:
            each.ack()
        each.consumer.close()
    assert not is_new_again(world, message, is_restarted=is_restarted)
    left = world.client()
    expected = [] if is_consumed else ["m"]
    assert [left.subscribe(each).ids for each in queues] == [expected, expected]


def test_copy_of_a_virtual_topic_and_the_same_by_a_queue_are_one(world: World) -> None:
    """A remote consumer's queue may be forwarded too, by a broker that has made the copy itself."""
    name = "queue://Consumer.A.VirtualTopic.X"
    client = world.client()
    inbox = client.subscribe(name)
    message = bridged("m", "topic://VirtualTopic.X")
    client.connection.send(message)
    client.connection.send(to_message(replace(decode(message.data), destination=parse(name))))
    assert inbox.ids == ["m"]
