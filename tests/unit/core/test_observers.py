"""Events of the broker reach each observer once, and no observer changes what happens."""

import logging

import pytest

from pybroker.broker.domain.admin import ClientView, ConsumerView
from pybroker.broker.domain.destination import Destination, DestinationType, parse
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.observer import Observer
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.subscription import DurableSubscription
from tests.unit.core.conftest import World, make_message

QUEUE = parse("queue://Q")


class Diary(Observer):
    """Records what it observes, except the broker's own destinations."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def connection_added(self, connection: ClientView) -> None:
        self.events.append(("connection added", connection.client_id))

    def connection_removed(self, connection: ClientView) -> None:
        self.events.append(("connection removed", connection.client_id))

    def destination_added(self, destination: Destination, owner: str | None) -> None:
        self.events.append(("destination added", destination.name, owner))

    def destination_removed(self, destination: Destination, owner: str | None) -> None:
        self.events.append(("destination removed", destination.name, owner))

    def consumer_added(self, consumer: ConsumerView) -> None:
        self.events.append(("consumer added", consumer.request.destination.name, consumer.connection.client_id))

    def consumer_removed(self, consumer: ConsumerView) -> None:
        self.events.append(("consumer removed", consumer.request.destination.name, consumer.connection.client_id))

    def durable_removed(self, subscription: DurableSubscription) -> None:
        self.events.append(("durable removed", subscription.key))

    def producer_added(self, producer_id: ProducerId, destination: Destination) -> None:
        self.events.append(("producer added", destination.name))

    def producer_removed(self, producer_id: ProducerId, destination: Destination) -> None:
        self.events.append(("producer removed", destination.name))

    def message_expired(self, message: Message) -> None:
        self.events.append(("expired", message.message_id))

    def message_dead_lettered(self, message: Message, cause: str) -> None:
        self.events.append(("dead-lettered", message.message_id, cause.partition(":")[0]))


class Broken(Observer):
    """Raises whatever it is made with."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def connection_added(self, connection: ClientView) -> None:
        raise self.error


@pytest.fixture
def diary(world: World) -> Diary:
    diary = Diary()
    world.broker.observe(diary)
    return diary


def test_a_client_is_announced_with_all_it_opens_and_closes(world: World, diary: Diary) -> None:
    client = world.client("me")
    client.connection.add_producer(ProducerId("c1", 1, 1), QUEUE)
    inbox = client.subscribe("queue://Q")
    inbox.consumer.close()
    temporary = client.connection.create_temporary(DestinationType.TEMP_QUEUE)
    client.connection.close()
    assert diary.events == [
        ("connection added", "me"),
        ("destination added", "Q", None),
        ("producer added", "Q"),
        ("consumer added", "Q", "me"),
        ("consumer removed", "Q", "me"),
        ("destination added", temporary.name, "c1"),
        ("producer removed", "Q"),
        ("destination removed", temporary.name, "c1"),
        ("connection removed", "me"),
    ]


def test_an_expired_message_is_announced_with_its_dead_letter(world: World, diary: Diary) -> None:
    client = world.client()
    late = make_message("late", "queue://Q", expiration=world.now_ms + 1)
    client.connection.send(late)
    diary.events.clear()
    world.now_ms += 2
    world.broker.remove_expired()
    assert diary.events == [
        ("destination added", "ActiveMQ.DLQ", None),
        ("dead-lettered", late.message_id, "java.lang.Throwable"),
        ("expired", late.message_id),
    ]


def test_messages_that_are_consumed_are_not_announced(world: World, diary: Diary) -> None:
    client = world.client()
    inbox = client.subscribe("queue://Q")
    diary.events.clear()
    client.connection.send(make_message("m", "queue://Q"))
    inbox.consumer.acknowledge(inbox.deliveries[0])
    assert diary.events == []


def test_an_observer_that_fails_disturbs_no_other(world: World, diary: Diary, caplog: pytest.LogCaptureFixture) -> None:
    world.broker.observe(Broken(ValueError("out of ink")))
    after = Diary()
    world.broker.observe(after)
    with caplog.at_level(logging.ERROR):
        world.client("me")
    assert diary.events == after.events == [("connection added", "me")]
    assert "out of ink" in caplog.text


def test_an_observer_does_not_hide_a_failed_store(world: World) -> None:
    world.broker.observe(Broken(StoreUnavailable("the disk is gone")))
    with pytest.raises(StoreUnavailable):
        world.client()
