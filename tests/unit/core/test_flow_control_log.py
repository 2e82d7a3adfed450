"""The log of producers that wait for space."""

import logging
from collections.abc import Callable

import pytest

from pybroker.broker.core.broker import Limits
from pybroker.broker.core.flow_control_log import LOG_INTERVAL_MS
from tests.unit.core.conftest import Client, Inbox, World, make_message

SMALL = 2000
"""Space for one message, and less than another."""


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the lines about waits since the last call."""
    caplog.set_level(logging.INFO, "pybroker.broker.core.flow_control_log")

    def logged() -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.name.endswith(".flow_control_log")]
        caplog.clear()
        return lines

    return logged


def send_answered(client: Client, destination: str = "queue://Q") -> list[str]:
    """Send as a client that waits; return the list that gets an entry with the answer."""
    client.connection.send(make_message("more", destination, persistent=False), answered=True)
    answers: list[str] = []
    client.connection.when_accepted(lambda: answers.append("answer"))
    return answers


def fill(world: World, destination: str = "queue://Q") -> None:
    world.client().send(destination, "one", "two", persistent=False)


def drain(inbox: Inbox) -> None:
    """Acknowledge what was delivered until nothing more comes."""
    while held := list(inbox.consumer.unsettled()):
        inbox.consumer.acknowledge_all(held)


def test_wait_is_logged_with_destination_limit_and_end(make_world, logged) -> None:
    world = make_world(memory_limit=SMALL)
    fill(world)
    producer = world.client()
    answers = send_answered(producer)
    name = producer.connection.connection_id
    assert logged() == [f"{name} waits to send to queue://Q: its memory limit of 2,000 bytes is reached"]
    drain(world.client().subscribe("queue://Q"))
    assert answers == ["answer"]
    assert logged() == [f"{name} goes on sending to queue://Q"]


def test_wait_at_the_brokers_limit_names_that_limit(make_world, logged) -> None:
    world = make_world(limits=Limits(memory_bytes_max=SMALL))
    fill(world, "queue://OTHER")
    producer = world.client()
    send_answered(producer)
    name = producer.connection.connection_id
    assert logged() == [f"{name} waits to send to queue://Q: the broker's memory limit of 2,000 bytes is reached"]


def test_connection_that_is_not_read_is_logged_too(make_world, logged) -> None:
    world = make_world(memory_limit=SMALL)
    fill(world)
    producer = world.client()
    producer.send("queue://Q", "unanswered", persistent=False)
    assert producer.throttle.holds == 1
    name = producer.connection.connection_id
    assert logged() == [f"{name} waits to send to queue://Q: its memory limit of 2,000 bytes is reached"]
    drain(world.client().subscribe("queue://Q"))
    assert producer.throttle.holds == 0
    assert logged() == [f"{name} goes on sending to queue://Q"]


def test_waits_are_logged_once_in_an_interval(make_world, logged) -> None:
    """A producer at a limit waits for nearly every message."""
    world = make_world(memory_limit=SMALL)
    fill(world)
    producer = world.client()
    send_answered(producer)
    assert len(logged()) == 1
    send_answered(producer)
    assert logged() == [], "it waits already"
    inbox = world.client().subscribe("queue://Q")
    drain(inbox)
    assert len(logged()) == 1
    inbox.consumer.close()
    for _ in range(10):
        world.now_ms += LOG_INTERVAL_MS // 20
        fill(world)
        send_answered(producer)
        inbox = world.client().subscribe("queue://Q")
        drain(inbox)
        inbox.consumer.close()
    assert [line for line in logged() if producer.connection.connection_id + " " in line] == []
    world.now_ms += LOG_INTERVAL_MS
    fill(world)
    send_answered(producer)
    assert len([line for line in logged() if producer.connection.connection_id + " " in line]) == 1


def test_send_with_free_memory_logs_nothing(make_world, logged) -> None:
    world = make_world(memory_limit=10 * SMALL)
    assert send_answered(world.client()) == ["answer"]
    assert logged() == []


def test_connection_closed_while_waiting_logs_no_end(make_world, logged) -> None:
    world = make_world(memory_limit=SMALL)
    fill(world)
    producer = world.client()
    send_answered(producer)
    logged()
    producer.connection.close()
    drain(world.client().subscribe("queue://Q"))
    assert logged() == []
