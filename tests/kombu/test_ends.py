"""Ends: of a connection in another thread, of a channel with messages, of a fork, and of what others have deleted."""

import gc
import os
import signal
import threading

import kombu
import pytest
from kombu.exceptions import ChannelError

from pybroker.client import ConnectionClosed, connect
from pybroker.testing import Broker
from tests.kombu.channels import PATIENCE, bodies, consume, drain, drain_rest, publish


@pytest.fixture
def lone():
    """A broker that a test may kill, and a connection that gives up then."""
    with (
        Broker() as broker,
        kombu.Connection(f"activemq+failover:({broker.uri})?maxReconnectAttempts=0", connect_timeout=30) as connection,
    ):
        yield broker, connection


def draining(connection):
    """Drain without a limit in another thread; return it, and the list to which its error is added."""
    errors = []

    def run():
        try:
            connection.transport.drain_events(connection.transport)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def test_a_connection_that_was_dropped_closes(url, name):
    """Celery drops one for each thread that has waited for results, without closing it."""
    connection = kombu.Connection(url, connect_timeout=30)
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    publish(channel, "", name)
    drain(channel, consume(channel, name), 1)
    client = connection.transport.broker
    del connection, channel
    with kombu.Connection(url, connect_timeout=30) as following:
        channel = following.channel()
        received = consume(channel, name)
        gc.collect()
        [message] = drain(channel, received, 1)
        assert message.delivery_info["redelivered"]
    assert isinstance(client.error, ConnectionClosed)


def test_the_loss_of_the_broker_ends_a_wait_without_consumers(lone):
    broker, connection = lone
    connection.connect()
    thread, errors = draining(connection)
    broker.kill9()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert isinstance(errors[0], connection.connection_errors)


def test_the_loss_of_the_broker_ends_a_wait_for_room(lone):
    """The application has as many messages as it may: no consumer would report the loss."""
    broker, connection = lone
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    publish(channel, "", "q")
    channel.basic_qos(0, 1, False)
    drain(channel, consume(channel, "q"), 1)
    thread, errors = draining(connection)
    broker.kill9()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert isinstance(errors[0], connection.connection_errors)


def test_a_close_ends_a_wait_in_another_thread(url):
    connection = kombu.Connection(url, connect_timeout=30)
    connection.connect()
    thread, errors = draining(connection)
    connection.release()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert isinstance(errors[0], ConnectionClosed)


@pytest.mark.parametrize("how", ["close", "collect"])
def test_an_acknowledgement_after_the_end_is_a_connection_error(url, name, how):
    """A thread of Celery's pool may still have the message: it logs such errors, and no others."""
    connection = kombu.Connection(url, connect_timeout=30)
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    for _ in range(2):
        publish(channel, "", name)
    channel.basic_qos(0, 1, False)
    (message,) = drain(channel, consume(channel, name), 1)
    drain_rest(channel)
    errors = connection.connection_errors
    if how == "close":
        channel.close()
    else:
        connection.collect()
    with pytest.raises(errors):
        message.ack()
    with pytest.raises(errors):
        channel.basic_reject(message.delivery_tag, requeue=True)
    connection.release()


def test_a_channel_closes_without_a_broker():
    """It has a queue to delete, for which it does not wait."""
    with Broker() as broker:
        url = f"activemq+failover:({broker.uri})"
        connection = kombu.Connection(url, connect_timeout=30)
        channel = connection.channel()
        channel.queue_declare("q", durable=True, auto_delete=True)
        consume(channel, "q")
        broker.kill9()
        wait = threading.Event()
        while channel.connection.broker.broker is not None:
            wait.wait(0.01)
        closing = threading.Thread(target=connection.release, daemon=True)
        closing.start()
        closing.join(PATIENCE)
        assert not closing.is_alive()


def test_a_queue_that_was_deleted_is_created_by_the_next_declaration(connection, other, broker_uri, name):
    channel, another = connection.channel(), other.channel()
    for _ in range(2):
        channel.exchange_declare(f"{name}.x", "direct")
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, f"{name}.x", "k")
        publish(another, f"{name}.x", "k", "x")
        assert bodies([channel.basic_get(name, no_ack=True)]) == ["x"]
        channel.close()
        channel = connection.channel()
        with connect(broker_uri) as client:
            for queue in (
                name,
                f"Consumer.{name.replace('.', '%2E')}.VirtualTopic.kombu.{name.replace('.', '%2E')}%2Ex.k",
            ):
                assert client.destination_exists(f"queue://{queue}")
                client.delete_destination(f"queue://{queue}")
        with pytest.raises(ChannelError):
            channel.queue_declare(name, passive=True)


def test_a_requeued_message_of_a_transient_queue_comes_again(connection, name):
    channel = connection.channel()
    channel.exchange_declare(f"{name}.x", "fanout")
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, f"{name}.x")
    publish(channel, f"{name}.x", "", "1")
    received = drain(channel, consume(channel, name), 1)
    received[0].requeue()
    drain(channel, received, 2)
    assert bodies(received) == ["1", "1"]
    assert received[1].delivery_info["redelivered"]
    channel.basic_recover(requeue=True)
    drain(channel, received, 3)
    channel.close()
    again = connection.channel()
    last = drain(again, consume(again, name), 1)
    assert bodies(last) == ["1"]
    last[0].ack()
    drain_rest(again)
    assert len(last) == 1


def test_a_binding_in_use_elsewhere_stays(connection, other, name):
    channel, another = connection.channel(), other.channel()
    for each in (channel, another):
        each.exchange_declare(f"{name}.x", "direct")
        each.queue_declare(name, durable=True)
        each.queue_bind(name, f"{name}.x", "k")
    received = consume(another, name)
    publish(channel, f"{name}.x", "k", "1")
    drain(another, received, 1)
    with pytest.raises(connection.channel_errors):
        channel.queue_unbind(name, f"{name}.x", "k")
    another.close()  # what it has not acknowledged is in the queue of the binding, which is not deleted
    assert bodies(drain(channel, consume(channel, name), 1)) == ["1"]


def test_a_binding_that_is_removed_keeps_the_fields_of_a_foreign_message(connection, broker_uri, name):
    channel = connection.channel()
    exchange = f"{name.replace('.', '%2E')}"
    channel.exchange_declare(name, "direct")
    channel.queue_declare(f"{name}.q", durable=True)
    channel.queue_bind(f"{name}.q", name, "k")
    with connect(broker_uri) as client:
        client.send(f"topic://VirtualTopic.kombu.{exchange}.k", "1", reply_to="queue://answers", type="t")
    channel.queue_unbind(f"{name}.q", name, "k")
    (message,) = drain(channel, consume(channel, f"{name}.q"), 1)
    assert message.properties["reply_to"] == "answers"


def test_a_child_forked_under_load_opens_its_own_connection(url, name):
    """Threads publish and acknowledge meanwhile; Kombu closes what the child has inherited, and connects anew."""
    with kombu.Connection(url, connect_timeout=30) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        channel.queue_declare(f"{name}.children", durable=True)
        channel.basic_qos(0, 5, False)
        stop, failures = threading.Event(), []
        received = consume(channel, name)

        def work():
            try:
                while not stop.is_set():
                    publish(channel, "", name, "x", delivery_mode=1)
            except Exception as error:
                failures.append(error)

        def acknowledge():
            try:
                while not stop.is_set():
                    drain(channel, received, len(received) + 1)
                    received[-1].ack()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=each) for each in (work, work, acknowledge)]
        *publishing, acknowledging = threads
        for thread in threads:
            thread.start()
        for number in range(8):
            child = os.fork()
            if not child:
                signal.alarm(30)  # a deadlock ends the child
                try:
                    assert not connection.connected
                    connection.collect()
                    own = kombu.Connection(url, connect_timeout=20)
                    publish(own.channel(), "", f"{name}.children", str(number))
                    own.release()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in publishing:
            thread.join()
        publish(channel, "", name, "last", delivery_mode=1)  # or the other one might wait for a message in vain
        acknowledging.join()
        assert failures == []
        mine = drain(channel, consume(channel, f"{name}.children", "children", no_ack=True), 8)
        assert sorted(bodies(mine)) == [str(number) for number in range(8)]
