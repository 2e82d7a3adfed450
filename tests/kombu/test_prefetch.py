"""The limit of a channel: one for all that it consumes, and each source of messages gets its turn."""

import threading
from typing import Any

import pytest

from tests.kombu.channels import PATIENCE, bodies, consume, drain, drain_rest, publish


@pytest.fixture
def exchange(name):
    return f"{name}.x"


@pytest.fixture
def bound(connection, name, exchange):
    """A channel with a queue that has a binding."""
    channel = connection.channel()
    return declare(channel, name, exchange)


def declare(channel, name, exchange):
    channel.exchange_declare(exchange, "direct")
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, exchange, "k")
    return channel


def test_a_limit_is_one_for_a_queue_and_its_bindings(bound, other, name, exchange):
    """A busy worker does not keep what another one can do."""
    bound.basic_qos(0, 1, False)
    mine = consume(bound, name)
    publish(bound, "", name, "0")
    drain(bound, mine, 1)
    for number in range(1, 6):
        publish(bound, exchange, "k", str(number))
    drain_rest(bound)
    channel = declare(other.channel(), name, exchange)
    channel.basic_qos(0, 100, False)
    others = drain(channel, consume(channel, name), 5)
    assert (bodies(mine), sorted(bodies(others))) == (["0"], list("12345"))
    channel.basic_cancel("tag")
    for each in others:
        each.ack()
    for number in range(6, 9):  # the source that was held back continues
        publish(channel, exchange, "k", str(number))
    for count in range(2, 5):
        mine[-1].ack()
        drain(bound, mine, count)
    drain_rest(bound)
    assert sorted(bodies(mine)) == list("0678")


def test_a_message_that_arrives_while_there_is_no_room_goes_back(bound, other, name, exchange):
    bound.basic_qos(0, 1, False)
    mine = consume(bound, name)
    publish(bound, exchange, "k", "0")
    publish(bound, "", name, "1")
    drain(bound, mine, 1)
    drain_rest(bound)
    channel = declare(other.channel(), name, exchange)
    channel.basic_qos(0, 100, False)
    assert len(drain(channel, consume(channel, name), 1)) == 1
    assert len(mine) == 1


def test_no_source_of_a_queue_starves_another(bound, name, exchange):
    for number in range(20):
        publish(bound, "", name, f"queue {number}")
    for number in range(3):
        publish(bound, exchange, "k", f"binding {number}")
    bound.basic_qos(0, 1, False)
    received = consume(bound, name)
    for count in range(1, 24):
        drain(bound, received, count)[-1].ack()
    assert len([each for each in bodies(received)[:12] if each.startswith("binding")]) == 3


def test_no_queue_of_a_channel_starves_another(connection, name):
    channel = connection.channel()
    for number, count in enumerate((20, 3)):
        channel.queue_declare(f"{name}.{number}", durable=True)
        for _ in range(count):
            publish(channel, "", f"{name}.{number}", str(number))
    channel.basic_qos(0, 1, False)
    received: list[Any] = []
    for number in range(2):
        channel.basic_consume(f"{name}.{number}", False, received.append, str(number))
    for count in range(1, 13):
        drain(channel, received, count)[-1].ack()
    assert bodies(received).count("1") == 3


def test_a_busy_channel_does_not_starve_another(connection, name):
    busy, calm = connection.channel(), connection.channel()
    for channel, queue in ((busy, "busy"), (calm, "calm")):
        channel.queue_declare(f"{name}.{queue}", durable=True)
    for _ in range(250):
        publish(busy, "", f"{name}.busy", delivery_mode=1)
    publish(calm, "", f"{name}.calm")
    much, little = consume(busy, f"{name}.busy", no_ack=True), consume(calm, f"{name}.calm")
    wait = threading.Event()
    while not all(source.consumer.has_message for source in (*busy._sources[:1], *calm._sources[:1])):
        wait.wait(0.01)
    for _ in range(2):
        connection.drain_events(timeout=PATIENCE)
    assert len(little) == 1
    assert len(much) <= 200


def test_what_goes_back_without_a_delivery_does_not_count_as_one(bound, name, exchange):
    """A broker drops what its consumers have left too often, and the mark would say that a task may have run."""
    for number in range(15):
        publish(bound, "", name, f"queue {number}", delivery_mode=1)
        publish(bound, exchange, "k", f"binding {number}", delivery_mode=1)
    bound.basic_qos(0, 1, False)
    received = consume(bound, name)
    for count in range(1, 31):
        drain(bound, received, count)
        if count < 12:
            drain_rest(bound)  # what there is no room for goes back meanwhile
        received[-1].ack()
    assert len(set(bodies(received))) == 30
    assert [each.body for each in received if each.delivery_info["redelivered"]] == []


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_threads_acknowledge_what_several_sources_deliver(bound, name, exchange, limit):
    """None waits for ever, and the limit holds, while other threads make room."""
    for number in range(60):
        publish(bound, "", name, f"queue {number}", delivery_mode=1)
        publish(bound, exchange, "k", f"binding {number}", delivery_mode=1)
    bound.basic_qos(0, limit, False)
    lock, most, now, received, failures = threading.Lock(), 0, 0, [], []

    def acknowledge(message):
        nonlocal now
        try:
            with lock:
                now -= 1
            message.ack()
        except Exception as error:
            failures.append(error)

    threads = []

    def work(message):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        received.append(message)
        threads.append(threading.Thread(target=acknowledge, args=[message]))
        threads[-1].start()

    bound.basic_consume(name, False, work, "tag")
    while len(received) < 120:
        bound.connection.drain_events(bound.connection, timeout=PATIENCE)
    drain_rest(bound)
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(bodies(received)) == sorted(f"{kind} {n}" for kind in ("queue", "binding") for n in range(60))
    assert most <= limit
