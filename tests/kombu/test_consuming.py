"""Consuming: acknowledgements, what is given back, limits, and threads."""

import os
import threading
from typing import Any

import kombu
import pytest
from kombu.asynchronous.hub import Hub

from pybroker.client import ClientError, connect
from tests.kombu.channels import PATIENCE, SILENCE, bodies, consume, drain, drain_rest, publish


@pytest.fixture
def filled(connection, name):
    """A channel, and a queue with ten messages."""
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    for number in range(10):
        publish(channel, "", name, str(number))
    return channel


def test_what_is_acknowledged_does_not_come_again(filled, other, name):
    for each in drain(filled, consume(filled, name), 10):
        each.ack()
    filled.close()
    assert other.channel().basic_get(name) is None


def test_what_is_not_acknowledged_comes_to_another(filled, other, name):
    received = drain(filled, consume(filled, name), 10)
    for each in received[:8]:
        each.ack()
    filled.close()
    channel = other.channel()
    again = drain(channel, consume(channel, name), 2)
    assert bodies(again) == ["8", "9"]
    assert all(each.delivery_info["redelivered"] for each in again)


def test_multiple_acknowledges_all_before(filled, other, name):
    received = drain(filled, consume(filled, name), 10)
    received[7].ack(multiple=True)
    filled.close()
    channel = other.channel()
    assert bodies(drain(channel, consume(channel, name), 2)) == ["8", "9"]


def test_properties_that_amqp_does_not_have_are_ignored(connection, name):
    """As with AMQP. The canvases of Celery give signatures and other objects of their own, which JSON cannot hold."""
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    publish(channel, "", name, chord_header=object(), message_id="7", app_id="shop", reply_to="answers")
    (message,) = drain(channel, consume(channel, name), 1)
    assert "chord_header" not in message.properties
    assert [message.properties[each] for each in ("message_id", "app_id", "reply_to")] == ["7", "shop", "answers"]


def test_without_acknowledgements_a_delivery_is_final(filled, other, name):
    drain(filled, consume(filled, name, no_ack=True), 10)
    filled.close()
    assert other.channel().basic_get(name) is None


def test_a_limit_leaves_the_rest_to_others(filled, other, name):
    filled.basic_qos(0, 3, False)
    mine = drain(filled, consume(filled, name), 3)
    channel = other.channel()
    channel.basic_qos(0, 100, False)
    others = drain(channel, consume(channel, name), 7)
    drain_rest(filled)
    assert (len(mine), len(others)) == (3, 7)


def test_an_acknowledgement_makes_room(filled, name):
    filled.basic_qos(0, 1, False)
    received = consume(filled, name)
    for count in range(1, 11):
        drain(filled, received, count)[-1].ack()
    assert bodies(received) == [str(number) for number in range(10)]


def test_a_limit_can_grow(filled, name):
    filled.basic_qos(0, 1, False)
    received = consume(filled, name)
    drain(filled, received, 1)
    drain_rest(filled)
    assert len(received) == 1
    filled.basic_qos(0, 4, False)
    drain(filled, received, 4)
    drain_rest(filled)
    assert len(received) == 4


def test_a_limit_is_one_for_all_queues_of_a_channel(filled, name):
    filled.queue_declare(f"{name}.2", durable=True)
    publish(filled, "", f"{name}.2", "x")
    filled.basic_qos(0, 1, False)
    received: list[Any] = []
    for tag, queue in (("1", name), ("2", f"{name}.2")):
        filled.basic_consume(queue, False, received.append, tag)
    drain(filled, received, 1)
    drain_rest(filled)
    assert len(received) == 1
    received[0].ack()
    drain(filled, received, 2)
    drain_rest(filled)
    assert len(received) == 2


def test_a_requeued_message_comes_again(filled, name):
    received = drain(filled, consume(filled, name), 10)
    received[0].requeue()
    again = drain(filled, received, 11)[-1]
    assert again.body == b"0"
    assert again.delivery_info["redelivered"]
    for each in received[1:]:
        each.ack()
    drain_rest(filled)
    assert len(received) == 11


def test_a_rejected_message_is_discarded(filled, other, name):
    for each in drain(filled, consume(filled, name), 10):
        each.reject()
    filled.close()
    assert other.channel().basic_get(name) is None


def test_a_rejected_message_can_be_a_dead_letter(url, broker_uri, name):
    with kombu.Connection(url, transport_options={"reject_to_dlq": True}) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        publish(channel, "", name, name)
        drain(channel, consume(channel, name), 1)[0].reject()
    with (
        connect(broker_uri) as client,
        client.consumer("queue://ActiveMQ.DLQ", selector=f"kombu_routing_key = '{name}'") as dead,
    ):
        assert dead.receive(timeout=PATIENCE).body == name


def test_recover_gives_everything_back(filled, name):
    received = consume(filled, name)
    drain(filled, received, 10)
    filled.basic_recover(requeue=True)
    again = drain(filled, received, 20)[10:]
    assert sorted(bodies(again)) == [str(number) for number in range(10)]


def test_a_message_can_be_acknowledged_after_the_consumer_is_cancelled(filled, other, name):
    """A worker that shuts down finishes its tasks; others get what it has not begun."""
    filled.basic_qos(0, 5, False)
    received = consume(filled, name)
    drain(filled, received, 5)
    filled.basic_cancel("tag")
    channel = other.channel()
    others = drain(channel, consume(channel, name), 5)
    for each in received:
        each.ack()
    filled.close()
    drain_rest(channel)
    assert (bodies(received), sorted(bodies(others))) == (list("01234"), list("56789"))


def test_what_was_sent_ahead_goes_back_at_the_cancel(filled, other, name):
    filled.basic_qos(0, 10, False)
    received = consume(filled, name)
    while not filled.deliver_waiting(1):
        filled.connection.wakeup.wait(PATIENCE)
    filled.basic_cancel("tag")
    assert len(received) == 1
    channel = other.channel()
    assert len(drain(channel, consume(channel, name), 9)) == 9
    received[0].ack()


def test_what_will_not_be_processed_goes_back_after_the_cancel(filled, other, name):
    """It does not count as delivered: a task for later that is passed on at each restart is no dead letter."""
    filled.basic_qos(0, 10, False)
    received = drain(filled, consume(filled, name), 10)
    filled.return_unused([received[0].delivery_tag])
    filled.basic_cancel("tag")
    filled.return_unused([each.delivery_tag for each in received[3:8]])
    channel = other.channel()
    others = drain(channel, consume(channel, name), 5)
    assert sorted(bodies(others)) == list("34567"), "what a consumer still has that is not cancelled, stays"
    assert not any(each.delivery_info["redelivered"] for each in others)
    for each in (*received[:3], *received[8:], *others):
        each.ack()
    filled.close()
    drain_rest(channel)
    assert len(others) == 5


def test_get_returns_one_message_at_once(filled, name):
    first = filled.basic_get(name)
    assert first.body == b"0"
    first.ack()
    second = filled.basic_get(name)
    second.requeue()
    assert filled.basic_get(name).body == b"1"
    assert filled.basic_get(name, no_ack=True).body == b"2"


def test_purge_counts(filled, name):
    assert filled.queue_purge(name) == 10
    assert filled.queue_purge(name) == 0


def test_nothing_to_deliver_is_a_timeout(connection, name):
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    consume(channel, name)
    with pytest.raises(TimeoutError):
        connection.drain_events(timeout=SILENCE)


def test_an_expired_message_is_not_delivered(connection, name):
    channel = connection.channel()
    channel.exchange_declare(f"{name}.x", "fanout")
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, f"{name}.x")
    publish(channel, f"{name}.x", "", "old", expiration="1")
    threading.Event().wait(SILENCE)
    publish(channel, f"{name}.x", "", "new")
    assert bodies(drain(channel, consume(channel, name), 1)) == ["new"]


def test_the_queues_argument_limits_the_age(connection, name):
    channel = connection.channel()
    channel.queue_declare(name, durable=True, arguments={"x-message-ttl": 1})
    publish(channel, "", name, "old")
    threading.Event().wait(SILENCE)
    assert channel.basic_get(name) is None


def test_a_damaged_message_becomes_a_dead_letter(connection, broker_uri, name, caplog):
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    with connect(broker_uri) as client:
        client.send(f"queue://{name}", name, properties={"kombu_headers": "{"})
    publish(channel, "", name, "good")
    assert bodies(drain(channel, consume(channel, name), 1)) == ["good"]
    assert "becomes a dead letter" in caplog.text


def test_sixteen_threads_acknowledge_and_publish_meanwhile(connection, name):
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    channel.queue_declare(f"{name}.done", durable=True)
    for number in range(320):
        publish(channel, "", name, str(number), delivery_mode=1)
    channel.basic_qos(0, 32, False)
    received = consume(channel, name)
    todo = threading.Semaphore(0)
    position, lock, failures = iter(range(320)), threading.Lock(), []

    def work():
        try:
            while True:
                todo.acquire()
                with lock:
                    at = next(position)
                publish(channel, "", f"{name}.done", "x", delivery_mode=1)
                received[at].ack()
        except StopIteration:
            return
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for count in range(1, 321):
        drain(channel, received, count)
        todo.release()
    todo.release(16)
    for thread in threads:
        thread.join()
    assert failures == []
    channel.close()
    again = connection.channel()
    assert again.basic_get(name) is None
    assert again.queue_purge(f"{name}.done") == 320


def test_an_event_loop_delivers(filled, connection, name):
    hub = Hub()
    received = consume(filled, name)
    connection.register_with_event_loop(hub)
    try:
        while len(received) < 10:
            hub.run_once()
        threading.Timer(0.01, publish, (filled, "", name, "later")).start()
        while len(received) < 11:
            hub.run_once()
    finally:
        connection.transport.unregister_from_event_loop(connection.transport, hub)
        hub.close()
    assert bodies(received)[-1] == "later"


def test_an_acknowledgement_of_another_thread_wakes_the_event_loop(filled, connection, name):
    hub = Hub()
    filled.basic_qos(0, 1, False)
    received = consume(filled, name)
    connection.register_with_event_loop(hub)
    try:
        for count in range(1, 11):
            while len(received) < count:
                hub.run_once()
            thread = threading.Timer(0.01, received[-1].ack)
            thread.start()
        thread.join()
    finally:
        hub.close()
    assert len(received) == 10


def test_a_forked_child_cannot_use_the_connection(filled, name):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            publish(filled, "", name, "of the child")
            os.write(writer, b"published")
        except ClientError:
            os.write(writer, b"refused")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"refused"
    os.close(reader)
    os.close(writer)
    assert len(drain(filled, consume(filled, name), 10)) == 10


def test_a_wrong_broker_is_reported_in_time():
    connection = kombu.Connection("activemq://127.0.0.1:1", connect_timeout=0.5)
    with pytest.raises(connection.recoverable_connection_errors):
        connection.connect()


def test_the_password_is_not_shown(url):
    connection = kombu.Connection(url.replace("//", "//user:secret@"))
    assert connection.as_uri() == url.replace("//", "//user:**@")
    assert connection.as_uri(include_password=True) == url.replace("//", "//user:secret@")
