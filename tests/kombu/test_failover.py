"""The loss of a broker stays below Kombu: no reconnection there, and what is in work stays in work."""

import itertools
import threading

import kombu
import pytest

from pybroker.client import ConnectionLost
from tests.kombu.channels import bodies, consume, drain, drain_rest, publish

names = itertools.count()


@pytest.fixture
def url(pair):
    return f"activemq+{pair.uri}"


@pytest.fixture
def name(name):
    return f"{name}.{next(names)}"


def test_what_is_in_work_is_acknowledged_to_the_next_broker(pair, connection, other, name):
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    for number in range(5):
        publish(channel, "", name, str(number))
    channel.basic_qos(0, 2, False)
    received = drain(channel, consume(channel, name), 2)
    pair.kill()
    for each in received:
        each.ack()
    for count in (3, 4, 5):
        drain(channel, received, count)[count - 1].ack()
    channel.close()
    assert sorted(bodies(received)) == list("01234")
    assert other.channel().basic_get(name) is None


def test_publishers_wait_and_lose_nothing(pair, connection, name):
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    publish(channel, "", name, "0")
    killing = threading.Thread(target=pair.kill)
    killing.start()
    for number in range(1, 50):
        publish(channel, "", name, str(number))
    killing.join()
    received = drain(channel, consume(channel, name), 50)
    drain_rest(channel)
    assert bodies(received) == [str(number) for number in range(50)]


def test_bindings_collect_on_the_next_broker(pair, connection, name):
    """Those of a durable queue in the broker, those of a transient one by a consumer that the client opens again."""
    channel = connection.channel()
    channel.exchange_declare(f"{name}.x", "topic")
    for queue, transient in ((f"{name}.durable", False), (f"{name}.transient", True)):
        channel.queue_declare(queue, durable=not transient, exclusive=transient)
        channel.queue_bind(queue, f"{name}.x", "a.*")
    pair.kill()
    publish(channel, f"{name}.x", "a.b", "x")
    for queue in (f"{name}.durable", f"{name}.transient"):
        assert bodies(drain(channel, consume(channel, queue, queue), 1)) == ["x"]


def test_kombu_reconnects_when_the_client_gives_up(pair, name):
    """With `maxReconnectAttempts` the client gives up; Kombu takes over."""
    with kombu.Connection(f"activemq+{pair.uri}?maxReconnectAttempts=0", connect_timeout=30) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        consume(channel, name)
        pair.kill()
        transport = connection.transport
        with pytest.raises(ConnectionLost):
            transport.drain_events(transport, timeout=20)
        assert not connection.connected
        connection.ensure_connection(timeout=60)
        channel = connection.channel()
        publish(channel, "", name, "x")
        assert bodies(drain(channel, consume(channel, name), 1)) == ["x"]
