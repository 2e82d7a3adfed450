"""Exchanges and bindings: the broker routes, also for processes that know nothing of each other's bindings."""

import pytest
from kombu.exceptions import ChannelError

from pybroker.client import connect
from tests.kombu.channels import bodies, consume, drain, drain_rest, publish


def bound(channel, queue, exchange, kind, *keys, **options):
    """Declare a queue with bindings."""
    channel.exchange_declare(exchange, kind)
    channel.queue_declare(queue, **{"durable": True, **options})
    for key in keys:
        channel.queue_bind(queue, exchange, key)


@pytest.mark.parametrize(
    ("kind", "key", "sent", "expected"),
    [
        ("direct", "d1", ["d1", "d2", "d1.x"], ["d1"]),
        ("direct", "", ["", "x"], [""]),
        ("direct", "a*.>", ["a*.>", "ab.c"], ["a*.>"]),
        ("topic", "task.*", ["task.x", "task", "task.x.y"], ["task.x"]),
        ("topic", "*.x", ["a.x", "x", "a.y"], ["a.x"]),
        ("topic", "task.#", ["task.x.y", "task", "tasks"], ["task.x.y", "task"]),
        ("topic", "#", ["", "a", "a.b"], ["", "a", "a.b"]),
        ("topic", "a.#.b", ["a.b", "a.x.y.b", "a.x", "b"], ["a.b", "a.x.y.b"]),
        ("fanout", "", ["", "any"], ["", "any"]),
    ],
)
@pytest.mark.parametrize("transient", [False, True])
def test_another_connection_publishes_to_a_binding(connection, other, name, kind, key, sent, expected, transient):
    """Before there is a consumer, and without a declaration of the queue or the binding."""
    channel, publisher = connection.channel(), other.channel()
    bound(channel, name, f"{name}.x", kind, key, exclusive=transient)
    publisher.exchange_declare(f"{name}.x", kind)
    for each in sent:
        publish(publisher, f"{name}.x", each, each)
    received = consume(channel, name)
    assert bodies(drain(channel, received, len(expected))) == expected
    drain_rest(channel)
    assert bodies(received) == expected
    assert [each.delivery_info["routing_key"] for each in received] == expected


def test_a_publisher_need_not_know_that_it_is_a_fanout(connection, other, name):
    channel = connection.channel()
    bound(channel, name, name, "fanout", "")
    publish(other.channel(), name, "some.key", "x")
    assert bodies(drain(channel, consume(channel, name), 1)) == ["x"]


def test_every_queue_of_a_fanout_gets_a_copy(connection, name):
    channel = connection.channel()
    for queue in ("a", "b"):
        bound(channel, f"{name}.{queue}", name, "fanout", "")
    publish(channel, name, "", "x")
    for queue in ("a", "b"):
        assert bodies(drain(channel, consume(channel, f"{name}.{queue}", queue), 1)) == ["x"]


def test_two_bindings_that_match_give_one_message(connection, name):
    channel = connection.channel()
    bound(channel, name, f"{name}.x", "topic", "a.*", "*.b", "#", "#.b")
    for body in ("1", "2", "3"):
        publish(channel, f"{name}.x", "a.b", body)
    received = consume(channel, name)
    drain(channel, received, 3)
    drain_rest(channel)
    assert sorted(bodies(received)) == ["1", "2", "3"]
    for each in received:
        each.ack()


def test_a_narrow_binding_is_not_lost_to_a_wide_one(connection, name):
    """A consumer of the wide binding's queue also gets messages of the narrow one's, which it does not match."""
    channel = connection.channel()
    bound(channel, name, f"{name}.x", "topic", "#.z", "a.*")
    for key in ("a.b", "b.z", "c.c"):
        publish(channel, f"{name}.x", key, key)
    received = consume(channel, name)
    drain(channel, received, 2)
    drain_rest(channel)
    assert sorted(bodies(received)) == ["a.b", "b.z"]


def test_a_queue_has_its_own_name_for_other_languages(connection, broker_uri, name):
    channel = connection.channel()
    bound(channel, name, name, "direct", name)
    publish(channel, name, name, "[1]", headers={"task": "t"})
    publish(channel, "", name, "[2]")
    with connect(broker_uri) as client, client.consumer(f"queue://{name}") as consumer:
        first, second = (consumer.receive(timeout=20) for _ in range(2))
    assert [first.body, second.body] == ["[1]", "[2]"]
    assert first.properties["celery_task"] == "t"


def test_other_languages_send_to_a_queue(connection, broker_uri, name):
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    with connect(broker_uri) as client:
        client.send(f"queue://{name}", '{"a": null}', properties={"task": "t"})
    (got,) = drain(channel, consume(channel, name), 1)
    assert (got.payload, got.headers) == ({"a": None}, {"task": "t"})


@pytest.mark.parametrize("odd", ["a,b", "a?b", "*", "a.>", "50%", " blanks ", "größe.日本", "a..b", "a:b/c"])
def test_any_name_is_a_queue(connection, name, odd):
    channel = connection.channel()
    queue = f"{odd}{name}{odd}"
    bound(channel, queue, odd, "direct", odd)
    publish(channel, odd, odd, "exchange")
    publish(channel, "", queue, "default")
    received = consume(channel, queue)
    assert sorted(bodies(drain(channel, received, 2))) == ["default", "exchange"]


def test_a_binding_that_is_removed_keeps_what_it_collected(connection, name):
    channel = connection.channel()
    bound(channel, name, f"{name}.x", "direct", "k")
    publish(channel, f"{name}.x", "k", "before", correlation_id="c")
    channel.queue_unbind(name, f"{name}.x", "k")
    publish(channel, f"{name}.x", "k", "after")
    received = consume(channel, name)
    drain(channel, received, 1)
    drain_rest(channel)
    assert bodies(received) == ["before"]
    assert received[0].properties["correlation_id"] == "c"


def test_a_binding_made_later_feeds_a_consumer(connection, name):
    channel = connection.channel()
    bound(channel, name, f"{name}.x", "direct", "k")
    received = consume(channel, name)
    channel.queue_bind(name, f"{name}.x", "later")
    publish(channel, f"{name}.x", "later", "x")
    assert bodies(drain(channel, received, 1)) == ["x"]


def test_a_passive_declaration_finds_and_counts(connection, other, name):
    channel = connection.channel()
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        channel.queue_declare(name, passive=True)
    channel.queue_declare(name, durable=True)
    for _ in range(3):
        publish(channel, "", name)
    assert other.channel().queue_declare(name, passive=True).message_count == 3


def test_a_deleted_queue_is_gone_with_its_bindings(connection, other, name):
    channel = connection.channel()
    bound(channel, name, f"{name}.x", "direct", "k")
    publish(channel, "", name, "lost")
    channel.queue_delete(name)
    with pytest.raises(ChannelError):
        other.channel().queue_declare(name, passive=True)
    publish(channel, f"{name}.x", "k", "lost")
    bound(channel, name, f"{name}.x", "direct", "k")
    assert channel.basic_get(name) is None


def test_an_automatically_deleted_queue_ends_with_its_last_consumer(connection, other, name):
    channel = connection.channel()
    channel.queue_declare(name, durable=True, auto_delete=True)
    consume(channel, name, "one")
    consume(channel, name, "two")
    channel.basic_cancel("one")
    assert other.channel().queue_declare(name, passive=True).queue == name
    channel.basic_cancel("two")
    with pytest.raises(ChannelError):
        other.channel().queue_declare(name, passive=True)


def test_what_has_no_form_is_refused(connection, name):
    channel = connection.channel()
    with pytest.raises(NotImplementedError):
        channel.exchange_declare(name, "headers")
    with pytest.raises(NotImplementedError):
        channel.exchange_declare(name, "direct", arguments={"alternate-exchange": "x"})
    with pytest.raises(NotImplementedError):
        channel.exchange_bind(name, name)
    with pytest.raises(NotImplementedError):
        channel.basic_publish({}, name, name, mandatory=True)
