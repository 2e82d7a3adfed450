"""Topics and the subscriptions of wildcards: what a topic remembers, and when it looks again."""

from collections import deque
from collections.abc import Callable

from pybroker.broker.core import topic as topics
from pybroker.broker.core.subscription_groups import SubscriptionGroup
from pybroker.broker.core.topic import DIRECT_MAX, FAN_OUT_PIECE
from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.errors import DestinationInUse
from tests.compiled import interpreted
from tests.unit.core.conftest import Inbox


def run(pieces: deque[Callable[[], None]]) -> None:
    while pieces:
        pieces.popleft()()


def test_subscriptions_of_a_wildcard_are_one_object_of_many_topics(world):
    client = world.client()
    inboxes = [client.subscribe("topic://w.>", prefetch=100) for _ in range(DIRECT_MAX + 10)]
    names = [f"w.{number}" for number in range(10)]
    for name in names:
        client.send(f"topic://{name}", name)
    groups = {world.broker.topics[topic(name)]._groups for name in names}
    assert len(groups) == 1
    assert [len(each.members) for each in groups.pop()] == [len(inboxes)]
    assert all(inbox.ids == names for inbox in inboxes)


def test_very_many_wildcards_of_one_topic_are_not_remembered(world):
    client = world.client()
    wanted = ["topic://" + "w." * (number + 1) + ">" for number in range(DIRECT_MAX + 2)]
    name = "w" + ".w" * (DIRECT_MAX + 2)
    inboxes = [client.subscribe(each) for each in reversed(wanted)]
    client.send(f"topic://{name}", "a", "b")
    assert [inbox.ids for inbox in inboxes] == [["a", "b"]] * len(wanted)
    found = world.broker.topics[topic(name)]
    assert found._groups is None
    assert found._receivers is None
    assert found.subscription_count == len(wanted)


@interpreted
def test_pieces_for_very_many_wildcards_look_at_each_group_once(world, monkeypatch):
    monkeypatch.setattr(topics, "FAN_OUT_PIECE", 4)
    pieces: deque[Callable[[], None]] = deque()
    world.broker.usage.paging.later = pieces.append
    looks: list[SubscriptionGroup] = []
    between = SubscriptionGroup.between
    monkeypatch.setattr(SubscriptionGroup, "between", lambda self, *args: looks.append(self) or between(self, *args))
    client = world.client()
    count = 4 * DIRECT_MAX
    inboxes = [client.subscribe("topic://w." + "w." * number + ">", prefetch=10) for number in range(count)]
    client.send("topic://w" + ".w" * count, "a", "b")
    inboxes[-1].consumer.close()
    late = client.subscribe("topic://*.w.>", prefetch=10)
    turns = 0
    while pieces:
        turns += 1
        pieces.popleft()()
    assert [inbox.ids for inbox in inboxes[:-1]] == [["a", "b"]] * (count - 1)
    assert (inboxes[-1].ids, late.ids) == ([], [])
    assert turns <= 2 * count / 4 + 2
    assert len(looks) <= 2 * (2 * count + turns)


def test_topic_published_to_gets_a_new_wildcard_and_loses_a_closed_one(world):
    client = world.client()
    client.send("topic://w", "a")
    named = client.subscribe("topic://w")
    wild = client.subscribe("topic://w.>")
    client.send("topic://w", "b")
    wild.consumer.close()
    client.send("topic://w", "c")
    assert (named.ids, wild.ids) == (["b", "c"], ["b"])


def test_topic_of_a_wildcard_is_in_use_until_its_last_consumer_closes(world):
    client = world.client()
    client.send("topic://w", "a")
    wild = [client.subscribe("topic://w.>"), client.subscribe("topic://w.>")]
    for each in wild:
        try:
            client.connection.remove_destination(topic("w"))
        except DestinationInUse:
            each.consumer.close()
    assert [each.consumer.closed for each in wild] == [True, True]
    client.connection.remove_destination(topic("w"))
    assert topic("w") not in world.broker.topics


def test_composite_that_matches_twice_gets_a_message_once(world):
    client = world.client()
    first = client.subscribe("topic://w.>", composite=(topic("*.a"), topic("w.a")))
    second = client.subscribe("topic://w.a")
    client.send("topic://w.a", "a")
    assert (first.ids, second.ids) == (["a"], ["a"])
    assert world.broker.topics[topic("w.a")].subscription_count == 2


def test_many_of_several_wildcards_get_messages_in_order_of_subscription(world):
    pieces: deque[Callable[[], None]] = deque()
    world.broker.usage.paging.later = pieces.append
    client = world.client()
    order: list[int] = []

    def subscribe(number: int) -> Inbox:
        inbox = client.subscribe(("topic://w.>", "topic://w.*", "topic://w.a")[number % 3], prefetch=10)
        deliver = inbox.consumer.deliver
        inbox.consumer.deliver = lambda delivery: (order.append(number), deliver(delivery))
        return inbox

    count = 2 * FAN_OUT_PIECE + 10
    inboxes = [subscribe(number) for number in range(count)]
    client.send("topic://w.a", "a")
    assert len(order) == FAN_OUT_PIECE
    inboxes[-1].consumer.close()
    late = subscribe(count)
    run(pieces)
    assert order == [*range(count - 1)]
    assert late.ids == []


def test_retroactive_consumer_of_a_wildcard_gets_the_history_of_each_topic(world):
    client = world.client()
    for name in ("w.a", "w.b", "x"):
        client.send(f"topic://{name}", name, properties={"ActiveMQ.Retain": True})
    assert client.subscribe("topic://w.*", retroactive=True).ids == ["w.a", "w.b"]
    assert client.subscribe("topic://w.*").ids == []


def test_policy_can_make_every_consumer_of_a_wildcard_retroactive(make_world):
    client = make_world(always_retroactive=True).client()
    client.send("topic://w", "a", properties={"ActiveMQ.Retain": True})
    assert client.subscribe("topic://w.>").ids == ["a"]


def test_deleted_topic_is_forgotten_by_the_index(world):
    client = world.client()
    client.send("topic://w", "a")
    client.connection.remove_destination(topic("w"))
    assert not world.broker.destinations.subscription_index._caches
