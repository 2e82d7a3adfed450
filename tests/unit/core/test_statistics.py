"""Requests for statistics by messages, and their answers."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pybroker.broker.core.statistics import BROKER, DESTINATION, END_OF_LIST, FIRST_TIMESTAMP, SUBSCRIPTION
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import OpenWireMessage, to_message, view
from pybroker.broker.domain.openwire.values import Long, Value, encode_map
from pybroker.broker.domain.transaction import LocalTransactionId
from tests.unit.core.conftest import Client, Inbox, World, make_message
from tests.unit.core.test_delivered import COUNT, Disk, filled, started

REPLIES = "queue://REPLIES"


@pytest.fixture
def asking(world: World) -> World:
    world.broker.open_statistics()
    return world


def request(name: str, reply_to: str | None = REPLIES, correlation_id: str | None = "7", **properties: Any) -> Message:
    fields = view(make_message("?", name, persistent=False))
    return to_message(
        replace(
            fields,
            reply_to=None if reply_to is None else parse(reply_to),
            correlation_id=correlation_id,
            marshalled_properties=encode_map(properties) if properties else None,
        )
    )


def answers(inbox: Inbox) -> list[OpenWireMessage]:
    return [view(inbox.messages[delivery]) for delivery in inbox.deliveries]


def ask(world: World, name: str, **properties: Any) -> list[OpenWireMessage]:
    client = world.client()
    inbox = client.subscribe(REPLIES)
    client.connection.send(request(name, **properties))
    found = answers(inbox)
    for index in range(len(found)):
        inbox.ack(index)
    client.connection.close()
    return found


def prepare(world: World) -> Client:
    client = world.client("me")
    inbox = client.subscribe("queue://ORDERS", prefetch=3)
    client.send("queue://ORDERS", "1", "2", "3", "4")
    inbox.ack(0)
    client.send("queue://OTHER", "5")
    client.send("topic://ORDERS", "6")
    return client


@pytest.mark.parametrize("name", [f"queue://{DESTINATION}ORDERS", f"queue://{DESTINATION}.ORDERS"])
def test_one_queue(asking: World, name: str) -> None:
    prepare(asking)
    (answer,) = ask(asking, name)
    assert answer.map() == {
        "brokerName": "b",
        "brokerId": "ID:b",
        "destinationName": "queue://ORDERS",
        "size": 3,
        "enqueueCount": 4,
        "dequeueCount": 1,
        "dispatchCount": 4,
        "expiredCount": 0,
        "inflightCount": 3,
        "messagesCached": 0,
        "averageMessageSize": 1025,
        "averageEnqueueTime": 0.0,
        "maxEnqueueTime": 0.0,
        "minEnqueueTime": 0.0,
        "consumerCount": 1,
        "producerCount": 0,
        "memoryUsage": answer.map()["memoryUsage"],
        "memoryLimit": 0,
        "memoryPercentUsage": 0,
    }
    assert (answer.jms_type, answer.correlation_id, answer.persistent, answer.priority) == ("Advisory", "7", False, 4)
    types = {key: type(value) for key, value in answer.map().items()}
    assert types["size"] is types["memoryUsage"] is Long
    assert types["averageEnqueueTime"] is float
    assert types["memoryPercentUsage"] is int


def test_a_wildcard_has_an_answer_for_each_queue_or_topic(asking: World) -> None:
    prepare(asking)
    assert [each.map()["destinationName"] for each in ask(asking, f"queue://{DESTINATION}.>")] == [
        "queue://ORDERS",
        "queue://OTHER",
        "queue://REPLIES",
    ]
    assert [each.map()["destinationName"] for each in ask(asking, f"topic://{DESTINATION}.>")] == ["topic://ORDERS"]
    assert ask(asking, f"queue://{DESTINATION}O>") == []
    assert ask(asking, f"queue://{DESTINATION}") == []


@pytest.mark.parametrize(
    ("name", "properties"),
    [(f"queue://{DESTINATION}NONE", {END_OF_LIST: True}), (f"queue://{DESTINATION}NONE{END_OF_LIST}", {})],
)
def test_an_empty_map_ends_a_list_if_it_is_asked_for(asking: World, name: str, properties: dict[str, Value]) -> None:
    (answer,) = ask(asking, name, **properties)
    assert answer.map() == {}


@pytest.mark.parametrize(("came", "expected"), [(123_456, 123_456), (0, 7)])
def test_the_time_when_the_first_message_came(asking: World, came: int, expected: int) -> None:
    client = prepare(asking)
    first = replace(view(make_message("x", "queue://NEW")), timestamp=7, broker_in_time=came)
    client.connection.send(to_message(first))
    client.send("queue://NEW", "y")
    (answer,) = ask(asking, f"queue://{DESTINATION}NEW", **{FIRST_TIMESTAMP: True})
    assert answer.map()["firstMessageTimestamp"] == expected
    (answer,) = ask(asking, f"queue://{DESTINATION}REPLIES", **{FIRST_TIMESTAMP: True})
    assert "firstMessageTimestamp" not in answer.map()


def test_the_time_of_a_message_whose_body_has_left_memory_is_not_known(world: World) -> None:
    world = started(Disk())
    world.broker.open_statistics()
    filled(world)
    (answer,) = ask(world, f"queue://{DESTINATION}Q", **{FIRST_TIMESTAMP: True})
    assert "firstMessageTimestamp" not in answer.map()
    assert answer.map()["inflightCount"] == COUNT


def test_the_broker_has_the_sums_of_all_also_of_what_is_gone(asking: World) -> None:
    prepare(asking)
    asking.client().subscribe("queue://GONE").consumer.close()
    asking.client().send("queue://GONE", "x")
    asking.broker.remove_destination(parse("queue://GONE"))
    (answer,) = ask(asking, f"queue://{BROKER}")
    assert "destinationName" not in answer.map()
    counts = [answer.map()[each] for each in ("size", "enqueueCount", "dequeueCount", "inflightCount")]
    assert counts == [4, 7, 1, 3]
    assert answer.map()["consumerCount"] == 2


def test_the_broker_has_what_its_system_usage_has(world: World) -> None:
    class SystemUsage:
        def statistics(self) -> dict[str, Value]:
            return {"storeUsage": Long(5), "openwire": "tcp://a:61616"}

    world.broker.open_statistics(SystemUsage())
    (answer,) = ask(world, f"queue://{BROKER}")
    assert (answer.map()["storeUsage"], answer.map()["openwire"]) == (5, "tcp://a:61616")


def test_each_subscription_without_durable_ones(asking: World) -> None:
    client = prepare(asking)
    client.subscribe("topic://ORDERS", subscription_name="s")
    client.subscribe("topic://ORDERS", selector="a = 1", prefetch=9)
    found = [each.map() for each in ask(asking, f"topic://{SUBSCRIPTION}")]
    assert [each["destinationName"] for each in found] == ["ORDERS", "ORDERS", "REPLIES"]
    queue, topic, _ = found
    assert (queue["clientId"], queue["connectionId"]) == ("me", client.connection.connection_id)
    assert [queue[each] for each in ("enqueueCounter", "dequeueCounter", "dispatchedQueueSize")] == [4, 1, 3]
    assert (topic["selector"], topic["prefetchSize"]) == ("a = 1", 9)


def test_an_answer_about_subscriptions_has_no_correlation_id(asking: World) -> None:
    assert [each.correlation_id for each in ask(asking, f"queue://{SUBSCRIPTION}")] == [None]


@pytest.mark.parametrize("name", [f"queue://{BROKER}", f"queue://{DESTINATION}Q", "queue://ActiveMQ.Statistics.What"])
def test_without_a_reply_to_or_a_known_name_it_is_an_ordinary_message(asking: World, name: str) -> None:
    inbox = asking.client().subscribe(name)
    asking.client().connection.send(request(name, reply_to=REPLIES if name.endswith("What") else None))
    assert inbox.ids == ["?"]


def test_a_message_that_does_not_decode_is_an_ordinary_message(asking: World) -> None:
    inbox = asking.client().subscribe(f"queue://{BROKER}")
    whole = request(f"queue://{BROKER}", wanted=1)
    cut = replace(view(whole), marshalled_properties=(view(whole).marshalled_properties or b"")[:-2])
    asking.client().connection.send(to_message(cut))
    assert len(inbox.deliveries) == 1


def test_without_the_setting_it_is_an_ordinary_message(world: World) -> None:
    inbox = world.client().subscribe(f"queue://{BROKER}")
    world.client().connection.send(request(f"queue://{BROKER}"))
    assert inbox.ids == ["?"]


def test_a_request_in_a_transaction_is_answered_at_once(asking: World) -> None:
    client = asking.client()
    inbox = client.subscribe(REPLIES)
    client.connection.send(request(f"queue://{BROKER}", reply_to=None))  # the destination exists from now on
    transaction = LocalTransactionId(client.connection.connection_id, 1)
    client.connection.begin(transaction)
    client.connection.send(request(f"queue://{BROKER}"), transaction)
    assert len(inbox.deliveries) == 1
    client.connection.rollback(transaction)
    assert len(inbox.deliveries) == 1


def test_an_answer_that_cannot_be_sent_ends_the_list(asking: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    asking.client().connection.send(request(f"queue://{BROKER}", reply_to="temp-queue://gone:1"))
    assert "statistics for temp-queue://gone:1 end: " in caplog.text


def test_answers_end_where_the_memory_is_full(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = make_world(memory_limit=100_000)
    world.broker.open_statistics()
    client = world.client()
    for number in range(1000):
        client.send(f"queue://Q.{number}", "x")
    client.connection.send(request(f"queue://{DESTINATION}Q.>"))
    state = world.broker.admin.state(parse(REPLIES))
    assert state is not None
    assert 20 < state.counters.size < 200
    assert f"statistics for {REPLIES} end: Usage Manager Memory Limit reached on {REPLIES}" in caplog.text


def test_many_destinations_are_answered_in_pieces(make_world: Callable[..., World]) -> None:
    world = make_world()
    later: list[Callable[[], None]] = []
    world.broker.usage.paging.later = later.append
    world.broker.open_statistics()
    client = world.client()
    for number in range(1000):
        client.send(f"queue://Q.{number}", "x")
    inbox = world.client().subscribe(REPLIES)
    client.connection.send(request(f"queue://{DESTINATION}Q.>"))
    turns = 0
    while len(inbox.deliveries) < 1000 and later:
        turns += 1
        callbacks, later[:] = list(later), []
        for callback in callbacks:
            callback()
    assert len(inbox.deliveries) == 1000
    assert turns > 20
