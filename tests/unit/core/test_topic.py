"""Topics and durable subscriptions: each subscriber gets a copy, and durable ones store it."""

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.domain.destination import DestinationType, parse, topic
from pybroker.broker.domain.errors import InvalidClientId, InvalidDestination, InvalidSelector, SubscriptionInUse
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId
from tests.slow import SlowStore
from tests.unit.core.conftest import FencedStore, World, make_message


def test_every_subscription_gets_every_message_sent_after_it(world):
    client = world.client()
    first = client.subscribe("topic://T")
    client.send("topic://T", "a")
    second = client.subscribe("topic://T")
    client.send("topic://T", "b")
    assert (first.ids, second.ids) == (["a", "b"], ["b"])


def test_patterns_cover_topics_to_come_and_the_bare_name(world):
    client = world.client()
    inbox = client.subscribe("topic://w.>")
    for name in ("w", "w.a", "w.a.b", "x"):
        client.send(f"topic://{name}", name)
    assert inbox.ids == ["w", "w.a", "w.a.b"]


def test_a_closed_subscription_gets_nothing_and_holds_nothing(world):
    client = world.client()
    inbox = client.subscribe("topic://T")
    inbox.consumer.close()
    client.send("topic://T", "a")
    assert inbox.ids == []
    assert world.broker.topics[parse("topic://T")].subscription_count == 0


def test_a_closed_pattern_does_not_join_new_topics(world):
    client = world.client()
    inbox = client.subscribe("topic://w.*")
    inbox.consumer.close()
    client.send("topic://w.new", "a")
    assert inbox.ids == []


def test_selector_and_no_local_apply(world):
    client, other = world.client(), world.client()
    odd = client.subscribe("topic://T", selector="n = 1")
    foreign = client.subscribe("topic://T", no_local=True)
    client.send("topic://T", "mine", properties={"n": 1})
    other.send("topic://T", "theirs", properties={"n": 2})
    assert (odd.ids, foreign.ids) == (["mine"], ["theirs"])


def test_slow_consumer_keeps_window_and_newest_messages(make_world):
    world = make_world(pending_message_limit=5)
    client = world.client()
    inbox = client.subscribe("topic://T", prefetch=2)
    client.send("topic://T", *(str(n) for n in range(20)), persistent=False)
    for index in range(6):
        inbox.ack(index)
    assert inbox.ids == ["0", "1", "15", "16", "17", "18", "19"]


def test_a_paused_consumer_may_have_its_whole_window_waiting(make_world):
    world = make_world(pending_message_limit=1)
    client = world.client()
    inbox = client.subscribe("topic://T", prefetch=3)
    client.connection.pause()
    client.send("topic://T", *"abcdef", persistent=False)
    client.connection.resume()
    assert inbox.ids == ["c", "d", "e"]


def test_message_dropped_for_a_slow_consumer_is_dead_lettered(make_world):
    world = make_world(pending_message_limit=0)
    client = world.client()
    client.subscribe("topic://T", prefetch=1)
    client.send("topic://T", "a", "b", persistent=True)
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == ["b"]


def test_without_durable_subscription_nothing_is_stored(world):
    world.client().send("topic://T", "a", persistent=True)
    assert not world.store.recover().queues


class TestDurable:
    def test_offline_durable_gets_its_messages_after_a_restart(self, world):
        client = world.client("me")
        client.subscribe("topic://T", subscription_name="s").consumer.close()
        client.send("topic://T", "a", "b")
        client.connection.close()
        world.start()
        inbox = world.client("me").subscribe("topic://T", subscription_name="s")
        assert inbox.ids == ["a", "b"]

    def test_acknowledged_messages_do_not_come_again(self, world):
        client = world.client("me")
        inbox = client.subscribe("topic://T", subscription_name="s")
        client.send("topic://T", "a", "b", "c")
        inbox.ack(1)
        world.start()
        assert world.client("me").subscribe("topic://T", subscription_name="s").ids == ["a", "c"]

    def test_non_persistent_messages_wait_in_memory(self, world):
        client = world.client("me")
        client.subscribe("topic://T", subscription_name="s").consumer.close()
        client.send("topic://T", "a", persistent=False)
        assert client.subscribe("topic://T", subscription_name="s").ids == ["a"]

    def test_durable_subscription_can_be_active_only_once(self, world):
        client = world.client("me")
        client.subscribe("topic://T", subscription_name="s")
        with pytest.raises(SubscriptionInUse, match="client: me and subscriptionName: s"):
            client.subscribe("topic://T", subscription_name="s")

    def test_unsubscribe_ends_it_and_its_backlog(self, world):
        client = world.client("me")
        inbox = client.subscribe("topic://T", subscription_name="s")
        with pytest.raises(SubscriptionInUse):
            client.connection.unsubscribe("me", "s")
        inbox.consumer.close()
        client.send("topic://T", "a")
        client.connection.unsubscribe("me", "s")
        with pytest.raises(InvalidDestination, match="No durable subscription"):
            client.connection.unsubscribe("me", "s")
        world.start()
        assert world.client("me").subscribe("topic://T", subscription_name="s").ids == []

    def test_a_changed_selector_makes_a_new_subscription(self, world):
        client = world.client("me")
        client.subscribe("topic://T", subscription_name="s").consumer.close()
        client.send("topic://T", "old", properties={"n": 1})
        inbox = client.subscribe("topic://T", subscription_name="s", selector="n = 1")
        client.send("topic://T", "new", properties={"n": 1})
        assert inbox.ids == ["new"]

    def test_what_does_not_match_is_acknowledged_in_the_store(self, world):
        client = world.client("me")
        inbox = client.subscribe("topic://T", subscription_name="s", selector="n = 1")
        client.send("topic://T", "no")
        client.send("topic://T", "yes", properties={"n": 1})
        assert inbox.ids == ["yes"]
        world.start()
        assert world.client("me").subscribe("topic://T", subscription_name="s", selector="n = 1").ids == ["yes"]

    def test_wildcard_durable_covers_later_topics_after_a_restart(self, world):
        client = world.client("me")
        client.subscribe("topic://w.>", subscription_name="s").consumer.close()
        client.send("topic://w.a", "a")
        client.connection.close()
        world.start()
        world.client().send("topic://w.b", "b")
        world.start()
        inbox = world.client("me").subscribe("topic://w.>", subscription_name="s")
        assert sorted(inbox.ids) == ["a", "b"]

    def test_returned_messages_come_again_marked_and_in_order(self, world):
        client = world.client("me")
        inbox = client.subscribe("topic://T", subscription_name="s", prefetch=2)
        client.send("topic://T", *"abc")
        inbox.consumer.close()
        again = client.subscribe("topic://T", subscription_name="s")
        assert (again.ids, again.counts) == (["a", "b", "c"], [1, 1, 0])

    def test_a_queue_cannot_be_subscribed_to_durably(self, world):
        with pytest.raises(InvalidDestination, match="Queue"):
            world.client("me").subscribe("queue://Q", subscription_name="s")

    def test_expired_messages_are_dead_lettered_while_it_is_away(self, world):
        client = world.client("me")
        client.subscribe("topic://T", subscription_name="s").consumer.close()
        client.send("topic://T", "a", expiration=world.now_ms + 1)
        world.now_ms += 2
        world.broker.remove_expired()
        assert client.subscribe("queue://ActiveMQ.DLQ").ids == ["a"]
        assert client.subscribe("topic://T", subscription_name="s").ids == []

    def test_a_poison_message_ends_on_the_dead_letter_queue(self, world):
        client = world.client("me")
        client.subscribe("topic://T", subscription_name="s").consumer.close()
        world.client().send("topic://T", "poison", "innocent")
        for _ in range(7):
            client.subscribe("topic://T", subscription_name="s").consumer.close()
        assert client.subscribe("topic://T", subscription_name="s").ids == ["innocent"]
        assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == ["poison"]

    def test_a_wildcard_that_covers_no_topic_yet_survives_a_restart(self, world):
        world.client("me").subscribe("topic://w.>", subscription_name="s")
        world.start()
        world.client().send("topic://w.a", "kept")
        world.start()
        assert world.client("me").subscribe("topic://w.>", subscription_name="s").ids == ["kept"]

    def test_refused_stored_selector_does_not_prevent_the_start(self, world):
        info = DurableSubscription(
            client_id="me",
            name="s",
            destination=topic("T"),
            subscribed_destination=topic("T"),
            selector="XPATH '//a'",
        )
        world.store.subscribe(info)
        world.start()
        world.client().send("topic://T", "kept")
        with pytest.raises(InvalidSelector):
            world.client("me").subscribe("topic://T", subscription_name="s", selector="XPATH '//a'")
        assert len(world.broker.durables["me:s"].pending) == 1

    def test_subscription_keys_that_collide_are_refused(self, world):
        world.client("a:b").subscribe("topic://T", subscription_name="c").consumer.close()
        with pytest.raises(SubscriptionInUse, match="without a colon"):
            world.client("a").subscribe("topic://T", subscription_name="b:c")
        with pytest.raises(SubscriptionInUse, match="without a colon"):
            world.client().connection.unsubscribe("a", "b:c")


class TestTemporary:
    def test_its_owner_consumes_and_everyone_may_send(self, world):
        owner, other = world.client(), world.client()
        destination = owner.connection.create_temporary(DestinationType.TEMP_QUEUE)
        inbox = owner.subscribe(str(destination))
        other.send(str(destination), "reply")
        assert inbox.ids == ["reply"]

    def test_temporary_destination_has_no_foreign_consumers(self, world):
        destination = world.client().connection.create_temporary(DestinationType.TEMP_TOPIC)
        with pytest.raises(InvalidDestination, match="another connection"):
            world.client().subscribe(str(destination))

    def test_temporary_queue_goes_with_its_connection(self, world):
        owner, other = world.client(), world.client()
        destination = owner.connection.create_temporary(DestinationType.TEMP_QUEUE)
        owner.connection.close()
        with pytest.raises(InvalidDestination, match="does not exist"):
            other.send(str(destination), "late")


def test_a_persistent_message_on_a_temporary_queue_is_not_stored(world):
    owner = world.client()
    destination = owner.connection.create_temporary(DestinationType.TEMP_QUEUE)
    transaction = owner.connection.begin()
    owner.send(str(destination), "reply", persistent=True)
    owner.send(str(destination), "in a transaction", persistent=True, transaction=transaction)
    owner.connection.commit(transaction)
    inbox = owner.subscribe(str(destination))
    assert inbox.ids == ["reply", "in a transaction"]
    inbox.ack(0)
    world.start()
    assert not world.store.recover().queues


def test_stored_messages_of_temporary_queues_are_dropped(world):
    world.store.add(make_message("lost reply", "temp-queue://ID:gone:1"))
    world.start()
    assert not world.store.recover().queues


def test_stored_destinations_above_the_limit_are_recovered(make_world):
    world = make_world(Limits(destinations_max=3))
    for number in range(3):
        world.client().send(f"queue://{number}", "a")
    world.limits = Limits(destinations_max=1)
    world.start()
    assert len(world.broker.queues) == 3


def test_a_client_id_is_used_once_at_a_time(world):
    first = world.client("me")
    with pytest.raises(InvalidClientId, match="me already connected"):
        world.client("me")
    first.connection.close()
    world.client("me")


def test_destinations_are_limited(make_world):
    from pybroker.broker.domain.errors import RequestError

    client = make_world(Limits(destinations_max=2)).client()
    client.send("queue://1", "a")
    client.send("topic://2", "a")
    with pytest.raises(RequestError, match="2 destinations already"):
        client.send("queue://3", "a")


def durable_inbox(world, name, destination="topic://T", **request):
    return world.client(name).subscribe(destination, subscription_name="s", **request)


@pytest.mark.parametrize("transaction", [None, LocalTransactionId("me", 1)])
def test_persistent_message_without_durable_requires_the_fence(transaction):
    """A former master must not confirm it: a durable subscription of the new master would miss it."""
    store = FencedStore()
    world = World(store)
    client = world.client()
    client.send("topic://T", "a", persistent=False)
    client.send("queue://Q", "b", persistent=True)
    assert store.fence_count == 0
    if transaction is not None:
        client.connection.begin(transaction)
    client.send("topic://T", "c", persistent=True, transaction=transaction)
    if transaction is not None:
        client.connection.commit(transaction)
    assert store.fence_count == 1


def test_durable_subscription_that_exists_requires_the_fence():
    """The next master may have deleted it: a former one must not answer that it is there."""
    store = FencedStore()
    client = World(store).client("me")
    client.subscribe("topic://T", subscription_name="s").consumer.close()
    assert store.fence_count == 0
    client.subscribe("topic://T", subscription_name="s")
    assert store.fence_count == 1


@pytest.mark.parametrize("pattern", ["T", "*", ">"])
@pytest.mark.parametrize("is_slow", [False, True])
def test_retroactive_durable_gets_what_is_stored_for_others(is_slow, pattern):
    """It gets what another durable subscription has not acknowledged, what came since, and each once."""
    store = SlowStore()
    world = World(store)
    first = durable_inbox(world, "first")
    producer = world.client()
    producer.send("topic://T", "a", "b", "c")
    producer.send("topic://T", "not stored", persistent=False)
    first.ack(0)
    if not is_slow:
        store.sync()
    late = durable_inbox(world, "late", f"topic://{pattern}", retroactive=True)
    producer.send("topic://T", "d")
    assert late.ids == [] or not is_slow, "what is not on disk yet cannot be read"
    store.sync()
    assert late.ids == ["b", "c", "d"]
    assert durable_inbox(world, "plain").ids == []
    late.consumer.acknowledge_all(list(late.deliveries))
    first.consumer.acknowledge_all(list(first.deliveries[1:]))
    assert not store.recover().backlogs[0].message_ids


def test_retroactive_durable_gets_only_what_its_selector_wants():
    store = SlowStore()
    world = World(store)
    durable_inbox(world, "first")
    for number in range(5):
        world.client().send("topic://T", str(number), properties={"n": number})
    late = durable_inbox(world, "late", selector="n > 2", retroactive=True)
    store.sync()
    assert late.ids == ["3", "4"]


def test_retroactive_durable_that_comes_back_gets_nothing_again():
    store = SlowStore()
    world = World(store)
    durable_inbox(world, "first")
    world.client().send("topic://T", "a")
    for expected in (["a"], []):
        client = world.client("late")
        late = client.subscribe("topic://T", subscription_name="s", retroactive=True)
        store.sync()
        assert late.ids == expected
        late.consumer.acknowledge_all(list(late.deliveries))
        client.connection.close()
