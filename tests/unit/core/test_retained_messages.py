# mypy: disable-error-code="arg-type, attr-defined, union-attr"
"""Retained messages survive a crash, and are read back when they are not in memory."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.domain.destination import DestinationType, parse, topic
from pybroker.broker.domain.errors import InvalidDestination, NotReadYet
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.reserved_queues import RESERVED_QUEUES, RETAINED_RECORDS
from tests.slow import SlowStore
from tests.unit.core.conftest import Client, World, make_message

KEEP = {"ActiveMQ.Retain": True}
QUEUE = RETAINED_RECORDS.destination


def held(world: World, name: str = "topic://>") -> list[str]:
    """Return what a new subscriber gets once the disk has everything."""
    subscriber = world.client().subscribe(name, retroactive=True, leaves_out_reserved=True)
    if isinstance(world.store, SlowStore):
        world.store.sync()
    return sorted(subscriber.ids)


def stored(world: World) -> int:
    """Return the number of records."""
    return len(world.store.recover().queues.get(QUEUE, ()))


@pytest.fixture
def client(world: World) -> Client:
    return world.client()


def test_new_master_has_them_as_they_were(world, client):
    client.send("topic://a", "old", "kept", properties={**KEEP, "colour": "red"}, expiration=2_000_000)
    client.send("topic://b.c", "text", properties=KEEP, persistent=False)
    client.send("topic://d", "gone", properties=KEEP)
    client.send("topic://d", "", properties=KEEP)
    before = client.subscribe("topic://a", retroactive=True).deliveries[0].message
    assert stored(world) == 2
    world.start()
    inbox = world.client().subscribe("topic://>", retroactive=True, leaves_out_reserved=True)
    assert sorted(inbox.ids) == ["kept", "text"]
    found = {view(each.message).content.decode(): each.message for each in inbox.deliveries}
    after = found["kept"]
    assert (after.message_id, after.data, after.expiration) == (before.message_id, before.data, 2_000_000)
    assert view(after).properties == {"ActiveMQ.Retained": True, "colour": "red"}
    assert not found["text"].persistent
    assert after.persistent


def test_recovery_reads_no_body(world, client, monkeypatch):
    client.send("topic://a", "kept", properties=KEEP)
    monkeypatch.setattr(world.store, "read_page", None)
    world.start()
    assert topic("a") in world.broker.topics


def test_durable_subscription_gets_it_from_the_next_master(world, client):
    client.send("topic://a", "kept", properties=KEEP)
    world.start()
    inbox = world.client("me").subscribe("topic://*", subscription_name="s", retroactive=True)
    assert inbox.ids == ["kept"]


def test_removal_of_one_lasts(world, client):
    client.send("topic://a", "kept", properties=KEEP)
    world.start()
    world.client().send("topic://a", "", properties=KEEP)
    assert (held(world), stored(world)) == ([], 0)
    world.start()
    assert held(world) == []


def test_deleted_topic_takes_it_along(world, client):
    client.send("topic://a", "kept", properties=KEEP)
    world.start()
    world.client().connection.remove_destination(parse("topic://a"))
    assert stored(world) == 0
    world.start()
    assert topic("a") not in world.broker.topics


def test_inactive_topic_with_one_stays(make_world):
    world = make_world(gc_inactive_destinations=True, inactive_timeout_before_gc=10)
    world.client().send("topic://a", "kept", properties=KEEP)
    world.start()
    for _ in range(3):
        world.now_ms += 10
        world.broker.remove_inactive_destinations()
    assert topic("a") in world.broker.topics


def test_temporary_topic_stores_none(world, client):
    temporary = str(client.connection.create_temporary(DestinationType.TEMP_TOPIC))
    client.send(temporary, "kept", properties=KEEP)
    assert stored(world) == 0
    assert client.subscribe(temporary, retroactive=True).ids == ["kept"]


@pytest.mark.parametrize("name", sorted(map(str, RESERVED_QUEUES)))
def test_queue_is_hidden_from_clients(world, client, name):
    client.send("topic://a", "kept", properties=KEEP)
    world.start()
    client = world.client()
    with pytest.raises(InvalidDestination, match="is the broker's own"):
        client.send(name, "a")
    with pytest.raises(InvalidDestination, match="is the broker's own"):
        client.subscribe(name)
    assert client.subscribe("queue://ActiveMQ.>").ids == []
    assert not [each for each in world.broker.destinations if each.is_queue]


class TestTransactions:
    def test_message_of_a_commit_is_stored(self, world, client):
        transaction = client.connection.begin()
        client.send("topic://a", "kept", properties=KEEP, transaction=transaction)
        assert stored(world) == 0
        client.connection.commit(transaction)
        world.start()
        assert held(world) == ["kept"]

    def test_message_behind_a_commit_is_stored_when_it_is_sent(self):
        world = World(SlowStore())
        client, subscriber = world.client(), world.client("me")
        subscriber.subscribe("topic://a", subscription_name="s")  # so that the commit is one on disk
        transaction = client.connection.begin()
        client.send("topic://a", "committed", properties=KEEP, transaction=transaction)
        client.connection.commit(transaction)
        client.send("topic://a", "later", properties=KEEP)  # waits at the gate
        assert world.broker.topics[topic("a")].history.retained is None
        assert stored(world) == 1
        world.store.sync()
        assert (held(world), stored(world)) == (["later"], 1)
        client.send("topic://a", "last", properties=KEEP)
        world.start()
        assert held(world) == ["last"]

    def test_message_to_several_targets_is_stored_before_its_answer(self):
        world = World(SlowStore())
        client = world.client()
        client.subscribe("queue://Consumer.x.VirtualTopic.a")
        client.send("topic://VirtualTopic.a", "kept", properties=KEEP)
        answers = []
        client.connection.when_confirmed(lambda: answers.append(stored(world)))
        world.store.sync()
        assert answers == [1]


def test_answer_to_a_removal_waits_for_the_disk():
    class Confirming(SlowStore):
        """A store that confirms at once, as if all were consumed."""

        def when_confirmed(self, callback: Callable[[], None]) -> None:
            callback()

    world = World(Confirming())
    client = world.client()
    answers: list[str] = []
    client.send("topic://a", "kept", properties=KEEP)
    world.store.sync()
    client.connection.when_confirmed(lambda: answers.append("plain"))
    client.send("topic://a", "", properties=KEEP)
    client.connection.when_confirmed(lambda: answers.append("removed"))
    assert answers == ["plain"]
    world.store.sync()
    assert answers == ["plain", "removed"]


class TestReadingBack:
    def test_what_memory_has_no_space_for_is_read_from_the_store(self, make_world):
        world = make_world(limits=Limits(memory_bytes_max=8 << 20))
        client = world.client()
        large = "x" * 400_000
        for name in "abc":
            client.send(f"topic://{name}", f"{name}{large}", properties=KEEP)
        assert 400_000 < world.broker.usage.retained < 500_000
        assert [text[0] for text in held(world)] == list("abc")
        world.start()
        assert world.broker.usage.retained == 0
        assert [text[0] for text in held(world)] == list("abc")
        assert 400_000 < world.broker.usage.retained < 500_000

    def test_pages_are_read_in_turns_and_newer_ones_win(self, world, client, monkeypatch):
        for number in range(450):
            client.send(f"topic://t{number}", str(number), properties=KEEP)
        world.start()
        turns: list[Callable[[], None]] = []
        monkeypatch.setattr(world.broker.usage.paging, "later", turns.append)
        client = world.client()
        inbox = client.subscribe("topic://>", retroactive=True, leaves_out_reserved=True)
        closed = world.client().subscribe("topic://>", retroactive=True, leaves_out_reserved=True)
        closed.consumer.close()
        client.send("topic://t1", "new", properties=KEEP)
        client.send("topic://t2", "", properties=KEEP)
        assert inbox.drain() == ["new", ""]
        sizes = [0]
        while turns:
            turns.pop(0)()
            sizes.append(len(inbox.deliveries))
        assert max(after - before for before, after in pairwise(sizes)) == 200
        assert sorted(inbox.ids) == sorted(["new", *(str(each) for each in range(450) if each not in (1, 2))])
        assert closed.ids == []

    def test_slow_wildcard_subscriber_loses_none(self, world, client):
        for number in range(3_000):
            client.send(f"topic://t.{number}", str(number), properties=KEEP)
        world.start()
        inbox = world.client().subscribe("topic://t.*", retroactive=True, prefetch=10)
        got = set()
        while inbox.deliveries:
            got.add(inbox.ids[0])
            inbox.ack()
            del inbox.deliveries[0]
        assert got == {str(number) for number in range(3_000)}

    def test_store_that_is_away_is_asked_again(self, world, client, monkeypatch):
        def away(*_):
            raise NotReadYet("the database has not answered")

        client.send("topic://a", "kept", properties=KEEP)
        world.start()
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "read_page", away)
            inbox = world.client().subscribe("topic://a", retroactive=True)
            second = world.client().subscribe("topic://a", retroactive=True)
        assert inbox.ids == []
        world.broker.remove_expired()
        assert inbox.ids == second.ids == ["kept"]

    def test_record_that_does_not_decode_is_left_out(self, world, client, caplog):
        client.send("topic://a", "kept", properties=KEEP)
        client.send("topic://b", "kept too", properties=KEEP)
        message = make_message("x", "topic://a")
        message.data = b"\x00broken"
        world.broker.retained.put(topic("a"), message)
        world.start()
        assert held(world) == ["kept too"]
        assert "the retained message of topic://a does not decode" in caplog.text


def test_full_store_keeps_what_is_not_persistent_in_memory(world, client, monkeypatch):
    client.send("topic://a", "old", properties=KEEP)
    with monkeypatch.context() as patch:
        patch.setattr(type(world.store), "is_full", True)
        client.send("topic://a", "new", properties=KEEP, persistent=False)
    assert (held(world), stored(world)) == (["new"], 0)
