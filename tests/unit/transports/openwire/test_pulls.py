"""Consumers that pull, and browsers: both get an end marker when there is nothing more."""

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire.commands import (
    AckType,
    ConsumerInfo,
    MessageDispatch,
    MessagePull,
    Response,
)
from tests.unit.transports.openwire.conversation import OpenWireClient, World, of_kind, texts

ORDERS = queue("ORDERS")


def pull(client: OpenWireClient, timeout: int) -> MessagePull:
    return MessagePull(consumer_id=client.consumer(), destination=ORDERS, timeout=timeout)


@pytest.fixture
def client(world: World) -> OpenWireClient:
    client = world.client()
    client.consume(ORDERS, prefetch_size=0)
    return client


@pytest.mark.parametrize("timeout", [0, -1, 1000])
def test_a_pull_gets_one_message(client: OpenWireClient, timeout: int) -> None:
    client.send(ORDERS, "a", "b")
    assert texts(client.request(pull(client, timeout))) == ["a"]
    client.wait(5)
    assert client.receive() == []


def test_nothing_comes_without_a_pull(client: OpenWireClient) -> None:
    client.send(ORDERS, "a")
    assert client.receive() == []


def test_impatient_pull_of_nothing_is_answered_at_once(client: OpenWireClient) -> None:
    (nothing,) = client.request(pull(client, -1))
    assert isinstance(nothing, MessageDispatch)
    assert (nothing.consumer_id, nothing.message, nothing.destination) == (client.consumer(), None, None)
    assert texts(client.send(ORDERS, "a")) == [], "the pull is over"


def test_patient_pull_is_answered_when_its_time_is_over(client: OpenWireClient) -> None:
    assert client.request(pull(client, 300)) == []
    client.wait(0.299)
    assert client.receive() == []
    client.wait(0.002)
    assert texts(client.receive()) == [None]
    assert texts(client.send(ORDERS, "a")) == []


def test_pull_with_a_timeout_gets_a_message_sent_later(client: OpenWireClient) -> None:
    client.send_commands(pull(client, 300))
    client.wait(0.2)
    assert texts(client.send(ORDERS, "a", "b")) == ["a"]
    client.wait(5)
    assert client.receive() == [], "no end marker follows a message"


def test_endless_pull_waits(client: OpenWireClient) -> None:
    client.send_commands(pull(client, 0))
    client.wait(9)
    assert client.receive() == []
    assert texts(client.send(ORDERS, "a", "b")) == ["a"]


def test_a_longer_pull_takes_the_place_of_a_shorter_one(client: OpenWireClient) -> None:
    client.send_commands(pull(client, 300), pull(client, 900))
    client.wait(0.5)
    assert client.receive() == []
    client.wait(0.5)
    assert texts(client.receive()) == [None]


def test_pull_of_a_consumer_that_is_gone_is_ignored_and_answered(client: OpenWireClient) -> None:
    client.send_commands(pull(client, 300))
    client.remove(client.consumer())
    client.wait(1)
    assert client.receive() == []
    assert client.request(pull(client, -1)) == []
    client.answer(pull(client, -1), Response)
    assert client.request(MessagePull(consumer_id=None, timeout=-1)) == []


def test_two_consumers_wait_each_for_its_own_time(client: OpenWireClient) -> None:
    client.consume(ORDERS, 2, prefetch_size=0)
    client.send_commands(pull(client, 300), MessagePull(consumer_id=client.consumer(2), timeout=600))
    client.wait(0.4)
    assert [each.consumer_id for each in of_kind(client.receive(), MessageDispatch)] == [client.consumer()]
    client.wait(0.4)
    assert [each.consumer_id for each in of_kind(client.receive(), MessageDispatch)] == [client.consumer(2)]


def test_ack_of_a_pulled_message_does_not_pull_another(client: OpenWireClient) -> None:
    client.send(ORDERS, "a", "b")
    taken = of_kind(client.request(pull(client, 0)), MessageDispatch)
    assert client.ack(taken) == []
    assert texts(client.request(pull(client, 0))) == ["b"]


@pytest.mark.parametrize("timeout", [(1 << 63) - 1, -(1 << 63)])
def test_times_may_be_as_long_as_a_number(client: OpenWireClient, timeout: int) -> None:
    client.send_commands(pull(client, timeout))
    assert not client.link.closed


# ---------------------------------------------------------------- browsers


def test_browser_sees_all_and_then_the_end(world: World) -> None:
    client = world.client()
    client.send(ORDERS, "a", "b", "c")
    world.client("c2").consume(ORDERS, prefetch_size=1)
    seen = client.consume(ORDERS, browser=True, prefetch_size=500)
    assert texts(seen) == ["a", "b", "c", None]


def test_empty_queue_ends_at_once(world: World) -> None:
    assert texts(world.client().consume(ORDERS, browser=True, prefetch_size=500)) == [None]


def test_browser_has_a_window_and_consumes_nothing(world: World) -> None:
    client = world.client()
    client.send(ORDERS, "a", "b", "c")
    seen = client.consume(ORDERS, browser=True, prefetch_size=2)
    assert texts(seen) == ["a", "b"]
    assert texts(client.ack(seen[:1])) == ["c"]
    assert texts(client.ack(seen[1:])) == [None]
    client.remove(client.consumer())
    assert world.waiting(ORDERS) == ["a", "b", "c"]


def test_browser_cannot_give_up_what_it_does_not_own(world: World) -> None:
    client = world.client()
    client.send(ORDERS, "a")
    seen = client.consume(ORDERS, browser=True, prefetch_size=500)
    assert client.refused(client.acknowledgement(seen[:1], AckType.POISON))[0] == "javax.jms.JMSException"


def test_topics_cannot_be_browsed(world: World) -> None:
    client = world.client()
    info = ConsumerInfo(consumer_id=client.consumer(), destination=topic("NEWS"), browser=True, prefetch_size=5)
    assert client.refused(info)[0] == "javax.jms.JMSException"
