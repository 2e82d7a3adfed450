"""Flow control without deadlock: every pause ends, every answer comes, nothing is left behind."""

import gc
import weakref

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import RequestError, ResourceLimit
from pybroker.broker.domain.transaction import LocalTransactionId
from tests.compiled import interpreted
from tests.unit.core.conftest import make_message

SMALL = 2000
"""Space for one message, and less than another."""


def fill(world, destination="queue://Q"):
    world.client().send(destination, "one", "two")


def send_answered(client, destination="queue://Q", transaction=None):
    """Send as a client that waits; returns the list that gets an entry with the answer."""
    client.connection.send(make_message("more", destination), transaction, answered=True)
    answers = []
    client.connection.when_accepted(lambda: answers.append("answer"))
    return answers


# ---------------------------------------------------------------- pauses


@pytest.mark.parametrize("makes_room_later", [False, True])
def test_a_paused_connection_that_closes_is_resumed(make_world, makes_room_later):
    world = make_world(memory_limit=SMALL)
    fill(world)
    producer = world.client()
    producer.send("queue://Q", "more")
    assert producer.throttle.holds == 1
    producer.connection.close()
    assert producer.throttle.holds == 0
    if makes_room_later:
        inbox = world.client().subscribe("queue://Q")
        inbox.consumer.acknowledge_all(list(inbox.deliveries))
    assert producer.throttle.holds == 0


@interpreted
def test_closed_connections_that_waited_are_freed(make_world):
    world = make_world(memory_limit=SMALL)
    fill(world)
    producer = world.client()
    send_answered(producer)
    producer.send("queue://Q", "unanswered")
    producer.connection.close()
    gone = weakref.ref(producer.connection)
    del producer
    gc.collect()
    assert gone() is None


def test_the_end_of_one_producer_does_not_answer_or_lose_another(make_world):
    world = make_world(memory_limit=SMALL)
    fill(world)
    leaving, staying = world.client(), world.client()
    lost, answers = send_answered(leaving), send_answered(staying)
    leaving.connection.close()
    assert answers == []
    inbox = world.client().subscribe("queue://Q")
    inbox.consumer.acknowledge_all(list(inbox.deliveries))
    assert (lost, answers) == ([], ["answer"])


def test_producers_wait_for_a_job_store_that_is_behind(world):
    class Jobs:
        """A job store that is far behind its disk."""

        unwritten_bytes = 1 << 30
        is_full = False

        def __init__(self):
            self.callbacks = []

        def when_durable(self, callback):
            self.callbacks.append(callback)

    jobs = Jobs()
    world.broker.open_scheduler(jobs, [], wake_at=lambda when: None, connection_id="s", jobs_max=10)
    client = world.client()
    client.send("queue://Q", "a")
    assert client.throttle.holds == 1
    for callback in jobs.callbacks:
        callback()
    assert client.throttle.holds == 0


def test_a_client_during_the_stop_gets_no_message(world):
    sender = world.client()
    sender.send("queue://Q", "a")
    world.broker.quiesce()
    assert world.client().subscribe("queue://Q").ids == []


# ---------------------------------------------------------------- answers


def test_a_send_that_failed_holds_up_no_later_answer(make_world):
    world = make_world(memory_limit=SMALL)
    fill(world)
    client = world.client()
    with pytest.raises(RequestError):
        send_answered(client, transaction=LocalTransactionId("no one", 1))
    assert send_answered(client, "queue://EMPTY") == ["answer"]


def test_an_answer_waits_for_space_in_all_queues(make_world):
    world = make_world(memory_limit=SMALL)
    fill(world, "queue://Q")
    fill(world, "queue://R")
    client = world.client()
    client.connection.send(make_message("more", "queue://Q"), answered=True)
    answers = send_answered(client, "queue://R")
    consumer = world.client()
    for name in ("queue://R", "queue://Q"):
        assert answers == []
        inbox = consumer.subscribe(name)
        inbox.consumer.acknowledge_all(list(inbox.deliveries))
    assert answers == ["answer"]


def test_a_listener_waiting_for_its_own_ack_continues(make_world):
    world = make_world(limits=Limits(memory_bytes_max=SMALL))
    fill(world, "queue://IN")
    client = world.client()
    inbox = client.subscribe("queue://IN")
    answers = send_answered(client, "queue://OUT")
    world.broker.resume_stalled()
    assert answers == []  # it may not have waited long
    world.broker.resume_stalled()
    assert answers == ["answer"]
    assert inbox.ids == ["one", "two"]


def test_waiting_producer_is_not_released_while_memory_is_freed(make_world):
    world = make_world(memory_limit=4 * SMALL)
    client = world.client()
    client.send("queue://Q", *"abcdefghijkl")
    inbox = world.client().subscribe("queue://Q")
    answers = send_answered(client)
    for index in range(3):
        world.broker.resume_stalled()
        inbox.ack(index)
    assert answers == []


def test_no_producer_is_released_beyond_twice_the_limit():
    usage = Usage(limit=100)
    usage.acquire(200)
    answers = []
    usage.when_space(lambda: answers.append("answer"))
    for _ in range(3):
        usage.release_stalled()
    assert answers == []


def test_a_full_broker_refuses_before_the_queues_own_limit():
    broker = Usage(limit=100)
    queue = Usage(100, broker)
    queue.acquire(120)
    broker.acquire(80)
    assert queue.is_overrun


def test_deleted_queue_answers_waiting_producers(make_world):
    world = make_world(memory_limit=SMALL)
    fill(world)
    client = world.client()
    answers = send_answered(client)
    client.connection.remove_destination(parse("queue://Q"))
    assert answers == ["answer"]
    assert world.broker.usage.used == 0


def test_a_transaction_is_refused_whole_without_space_for_a_part(make_world):
    world = make_world(memory_limit=SMALL, send_fail_if_no_space=True)
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://OTHER", "a", transaction=transaction)
    client.send("queue://Q", "one", "two")
    with pytest.raises(ResourceLimit):
        client.send("queue://Q", "b", transaction=transaction)
    client.connection.rollback(transaction)
    assert client.subscribe("queue://OTHER").ids == []


# ---------------------------------------------------------------- expiry


def test_returned_message_expires_in_queue_without_consumers(world):
    client = world.client()
    inbox = client.subscribe("queue://Q")
    client.send("queue://Q", "a", expiration=world.now_ms + 1000)
    world.broker.remove_expired()
    inbox.consumer.close()
    world.now_ms += 2000
    world.broker.remove_expired()
    assert world.client().subscribe("queue://ActiveMQ.DLQ").ids == ["a"]


@interpreted
def test_backlog_is_not_scanned_before_a_message_has_expired(world, monkeypatch):
    client = world.client()
    client.send("queue://Q", "a", expiration=world.now_ms + 10_000)
    client.send("queue://Q", "b", expiration=world.now_ms + 5000)
    looked = []
    queue = world.broker.queues[parse("queue://Q")]
    monkeypatch.setattr(
        type(queue), "is_expired", lambda self, message: looked.append(message) or message.is_expired(world.now_ms)
    )
    world.now_ms += 5000
    world.broker.remove_expired()
    assert not looked
    world.now_ms += 1
    world.broker.remove_expired()
    assert len(looked) == 2
    assert [message.expiration for message in looked if message.is_expired(world.now_ms)] == [world.now_ms - 1]
